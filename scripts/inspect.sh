#!/usr/bin/env bash
# Shows what the compiler made of a program's kernels: PTX and machine code beside the source, loads
# and stores counted, registers, spills, occupancy.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

ensure_python
exec python3 scripts/inspect/machine_code.py "$@"
