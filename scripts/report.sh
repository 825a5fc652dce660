#!/usr/bin/env bash
# Writes measured results as one HTML file: report.sh --help says more.
set -euo pipefail
command -v python3 >/dev/null || { echo "report.sh: Python 3 is missing" >&2 && exit 3; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/report.py" "$@"
