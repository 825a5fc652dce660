#!/usr/bin/env bash
# Builds everything and runs every test.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/setup.sh
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/test.sh [--all] [PYTEST-ARGUMENT ...]

Installs what is missing, builds the programs, the tests, the mutants (programs with a bug each) and
the exercises' solutions, and runs every test, on the GPU if there is one and on the simulator; what
was skipped is listed with its reason, and at the end the ten slowest steps. Without a GPU the
programs are compiled for 9.0a with PTX of 9.0, and for 7.5 and 8.0 those whose kernels differ
there.

TILE=0 in the environment leaves out the kernels in CUDA Tile C++, and their compiler of 430 MB.
CUDA=0 leaves out the CUDA Toolkit: the simulator alone, with the compiler that CXX names.

  --all    before a release: all architectures that the toolkit knows, every size in every order of
           the simulator's threads, and mutants that are made by rule of every barrier and bound

Other arguments go to pytest: scripts/test.sh -k command_line -x

Exit status: 0 all passed; 1 one failed; 3 something cannot be installed or built; 5 no test has
that name; 130 interrupted.
END
}

all=""
case ${1-} in
    -h | --help) show_usage ;;
    --all) all=all && export TEST_ALL=1 && shift ;;
esac

make_work_folder
export TEST_TIMES=$WORK/times # SConstruct and tests/conftest.py write there what each step took
touch "$TEST_TIMES"

ALSO=(gtest)
ensure_compiler
ensure_simulator_libraries
ensure_scons
if [[ ${CUDA-} != 0 ]]; then
    ensure_cuda
    ensure_nccl
    [[ ${TILE-} == 0 ]] || (ensure_tile) || say "tile kernels are not compiled, then"
    ensure_disassembler
fi
ensure_pytest
ensure_test_packages
ensure_matplotlib
ensure_notebook_runner
ensure_browser
(ensure_pandoc) || say "the slides are not compared with their sources, then"
(ensure_gdb) || say "stepping through kernels is not tested, then"

simulator=(cpu/programs cpu/tests cpu/mutants cpu/exercises ${all:+cpu/generated})
if [[ ${CUDA-} == 0 ]]; then
    say "no CUDA here: running on the simulator"
    build build/tests/host_tests "${simulator[@]}"
elif has_gpu; then
    build programs tests mutants "${simulator[@]}" ${all:+arch=all}
else
    say "no GPU here: compiling, and running on the simulator"
    build programs tests architectures "${simulator[@]}" "arch=${all:-90a}"
fi
build cpu/tests sanitize=1

# Whatever one finds, the others run. Where pytest's arguments choose no test of a part, it ends
# with 5.
status=0
build/tests/host_tests --gtest_brief=1 || status=1
none=0
run_tests() {
    local ended=0
    "${PYTEST[@]}" tests -rsfE "$@" || ended=$?
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
echo "The ten slowest steps, in seconds (several run at a time):"
sort -rn "$TEST_TIMES" | sed -n '1,10s/^/  /p'  # reads all: head would make sort fail
end $status
