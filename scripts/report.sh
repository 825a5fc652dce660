#!/usr/bin/env bash
# Writes measured results as one HTML file: report.sh --help says more.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")") # files are named from where the caller is
source "$here/setup.sh"
attend "$@"

ensure_python
exec python3 "$here/report/html_report.py" "$@"
