#!/usr/bin/env bash
# Shows what the compiler made of a program's kernels: PTX and machine code beside the source, loads
# and stores counted, registers, spills, occupancy.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

ensure_python
exec python3 scripts/inspect/machine_code.py "$@"
