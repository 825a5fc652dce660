#!/usr/bin/env bash
# Builds everything and runs every test.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

usage() {
    cat <<'END'
Usage: scripts/test.sh [--all] [PYTEST-ARGUMENT ...]

Installs what is missing, builds the programs, the tests and the mutants (programs with a bug each),
and runs every test, on the GPU if there is one and on the simulator; what was skipped is listed
with its reason, and at the end the ten slowest steps. Without a GPU the programs are compiled for
9.0a, and for 7.5, 8.0 and 9.0 those whose sources differ between these.

  --all    before a release: all architectures that the toolkit knows, and every size in every order
           of the simulator's threads

Other arguments go to pytest: scripts/test.sh -k command_line -x
END
}

all=""
case ${1-} in
    -h | --help) usage && exit ;;
    --all) all=all && export TEST_ALL=1 && shift ;;
esac

TEST_TIMES=$(mktemp)
export TEST_TIMES
trap 'rm -f "$TEST_TIMES"' EXIT

# timed COMMAND ...: runs it, and notes what it took, as tests/conftest.py does for each of its
# files.
timed() {
    local start=$SECONDS status=0
    "$@" || status=$?
    echo "$((SECONDS - start)) $*" >>"$TEST_TIMES"
    return $status
}

ensure_compiler
ensure_simulator_libraries
ensure_scons
ensure_cuda
ensure_disassembler
ensure_gtest
ensure_pytest
ensure_jsonschema
ensure_matplotlib
ensure_browser
(ensure_gdb) || say "stepping through kernels is not tested, then"

if has_gpu; then
    timed build programs ${all:+arch=all}
    timed build tests
    timed build mutants
else
    say "no GPU here: compiling, and running on the simulator"
    timed build programs "arch=${all:-90a}"
    timed build architectures arch=90a
    timed build tests arch=90a # they cannot run here: that they compile is enough
fi
timed build cpu/programs cpu/tests
timed build cpu/mutants
timed build cpu/programs cpu/tests sanitize=1

# Whatever one finds, the others run. Where pytest's arguments choose no test of a part, it ends
# with 5.
status=0
timed build/tests/host_tests --gtest_brief=1 || status=1
none=0
run_tests() {
    local ended=0
    "${PYTEST[@]}" tests -rs "$@" || ended=$?
    case $ended in
        0) ;;
        5) none=$((none + 1)) ;;
        *) status=1 ;;
    esac
}
run_tests -n "$(nproc)" --dist loadfile -m "not timed" "$@"
run_tests -m timed "$@"
((none < 2)) || status=5

echo
echo "The ten slowest steps, in seconds of one process:"
sort -rn "$TEST_TIMES" | head -n 10 | sed 's/^/  /'
exit $status
