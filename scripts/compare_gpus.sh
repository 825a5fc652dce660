#!/usr/bin/env bash
# Measures every GPU of the machine into results/, and compares GPUs, also from mailed files:
# compare_gpus.sh --help says more.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")") # files are named from where the caller is
source "$here/setup.sh"
attend "$@"

ensure_python
exec python3 "$here/compare_gpus/measure.py" "$@"
