#!/usr/bin/env bash
# Exercises that say when you are right: lists them, lays them out, judges answers.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

ensure_python
exec python3 scripts/exercise/exercise.py "$@"
