#!/usr/bin/env bash
# Makes a site of the documents and of the pages that play kernels.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

ensure_python
exec python3 scripts/site/make_site.py "$@"
