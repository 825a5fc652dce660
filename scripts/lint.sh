#!/usr/bin/env bash
# Checks the style of Python, Bash and C++, or mends it.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/lint.sh [--fix]

Checks Python with ruff (mistakes, the order of imports, lines beyond 100 columns), Bash with
shellcheck, and how C++ is laid out with clang-format 14: ruff.toml, .shellcheckrc and .clang-format
say what is asked. Installs them into .venv where they are missing.

  --fix   puts imports in order and lays C++ out, and checks the rest

Exit status: 0 all is well; 1 something was found; 2 usage; 3 they cannot be installed.
END
}

fix="" layout=(--dry-run --Werror)
case "$*" in
    "") ;;
    --fix) fix=--fix layout=(-i) ;;
    -h | --help) show_usage ;;
    *) die 2 "--fix or nothing is expected (--help shows the usage)" ;;
esac
ensure_linters
PATH=$PWD/.venv/bin:$PATH
code='.*\.\(cuh?\|[ch]pp\|h\)'
readarray -t sources < <(find docs include scripts simulator src tests -regex "$code")

status=0
ruff check --quiet $fix . || status=1
shellcheck scripts/*.sh scripts/*.sbatch tests/*.sh .ci/run || status=1
clang-format "${layout[@]}" "${sources[@]}" || status=1
! grep -nE '.{101}' "${sources[@]}" scripts/*.sh || status=1 # a projector shows 100 columns
end $status
