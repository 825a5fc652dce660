#!/usr/bin/env bash
# Shows what the compiler made of a program's kernels: PTX and machine code beside the source, loads
# and stores counted, registers, spills, occupancy.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

command -v python3 >/dev/null || die 77 "python3 is missing: install Python 3.9 or later"
exec python3 scripts/machine_code.py "$@"
