#!/usr/bin/env bash
# Builds everything and runs every test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

case ${1-} in
    -h | --help)
        cat <<'END'
Usage: scripts/test.sh [PYTEST-ARGUMENT ...]

Installs what is missing, builds the programs, the tests and the mutants, and runs every test; what
was skipped is listed with its reason. Without a GPU everything is compiled, for all architectures,
and only what needs no GPU runs. Arguments go to pytest: scripts/test.sh -k command_line -x
END
        exit
        ;;
esac

ensure_compiler
ensure_scons
ensure_cuda
ensure_gtest
ensure_pytest

if has_gpu; then
    build programs tests mutants
else
    say "no GPU here: compiling for all architectures; what needs a GPU is skipped"
    build programs tests
    build mutants arch=80 # nothing can run them here: that they compile is all there is to test
fi

# Both run, whatever the first one finds.
status=0
build/tests/host_tests --gtest_brief=1 || status=1
"${PYTEST[@]}" tests -rs "$@" || status=1
exit $status
