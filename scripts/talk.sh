#!/usr/bin/env bash
# Gives the talk, the lecture or the course: the commands of its run sheet, Enter for the next.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
if [[ -t 0 && -t 1 ]]; then
    begin # it needs the keyboard
else
    attend "$@"
fi

ensure_python
exec python3 "$here/talk/run_sheet.py" "$@"
