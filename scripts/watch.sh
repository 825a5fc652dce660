#!/usr/bin/env bash
# Makes a page that plays what a kernel's threads did, on the simulator.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

ensure_python
exec python3 scripts/watch/watch.py "$@"
