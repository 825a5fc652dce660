#!/usr/bin/env bash
# Builds everything and runs every test.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/test.sh [OPTION ...] [tests/test_NAME.py ...]

Installs what is missing, builds the programs, the tests, the mutants (programs with a bug each) and
the exercises' solutions, and runs every test, on the GPU if there is one and on the simulator; what
was skipped is listed with its reason, and at the end the ten slowest steps. Without a GPU the
programs are compiled for 9.0a with PTX of 9.0, and for 7.5 and 8.0 those whose kernels differ
there.

TILE=0 in the environment leaves out the kernels in CUDA Tile C++, and their compiler of 430 MB.
CUDA=0 leaves out the CUDA Toolkit: the simulator alone, with the compiler that CXX names.

  --all    before a release: all architectures that the toolkit knows, every size in every order of
           the simulator's threads, and mutants that are made by rule of every barrier and bound

These go to pytest, as do files of tests, which then run alone: scripts/test.sh -k command_line -x

  -k WORD    tests with that word in their name: also -k "gelu and not mutant"
  -x, --lf   end at the first failure; run what failed last time
  -v         name every test

Exit status: 0 all passed; 1 one failed; 2 usage; 3 something cannot be installed or built; 5 no
test has that name; 130 interrupted.
END
}

all="" files=() options=() word='(not )?[[:alnum:]_]+'
while (($# > 0)); do
    case $1 in
        -h | --help) show_usage ;;
        --all) all=all && export TEST_ALL=1 ;;
        -x | -v | --lf) options+=("$1") ;;
        -k)
            [[ ${2-} =~ ^$word(\ (and|or)\ $word)*$ ]] ||
                die 2 "-k takes a word, or several with and, or, not (--help shows the usage)"
            options+=(-k "$2") && shift
            ;;
        tests/test_*.py)
            [[ -f $1 ]] || die 2 "there is no $1"
            files+=("$1")
            ;;
        *) die 2 "unknown argument $1 (--help shows the usage)" ;;
    esac
    shift
done

make_work_folder
export TEST_TIMES=$WORK/times # run_scons and tests/conftest.py write there what each step took
touch "$TEST_TIMES"

# shellcheck disable=SC2317,SC2329 # build calls it
run_scons() { # in place of setup.sh's: SCons says "Command execution time: TARGET: SECONDS seconds"
    "${SCONS[@]}" -Q --debug=time "$@" | awk -v times="$TEST_TIMES" '
        /^Command execution time: / { sub(":$", "", $4); printf "%.1f %s\n", $5, $4 >>times; next }
        !/ is up to date\.$|^SConscript:|^Total .* time: / { print; fflush() }'
}

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
(ensure_linters) || say "the style is not checked, then"
ensure_matplotlib
ensure_notebook_runner
ensure_browser
(ensure_pandoc) || say "the slides are not compared with their sources, then"
(ensure_gdb) || say "stepping through kernels is not tested, then"

simulator=(cpu/programs cpu/tests cpu/mutants cpu/exercises ${all:+cpu/generated})
if [[ ${CUDA-} == 0 ]]; then
    say "no CUDA here: running on the simulator"
    build build/tests/host_tests "${simulator[@]}"
elif has_gpu --builds; then
    build programs tests mutants "${simulator[@]}" ${all:+arch=all}
else
    say "$NO_GPU: compiling, and running on the simulator"
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
    "${PYTEST[@]}" "${files[@]:-tests}" "${options[@]}" -rsfE "$@" || ended=$?
    case $ended in
        0) ;;
        5) none=$((none + 1)) ;;
        *) status=1 ;;
    esac
}
run_tests -n "$(nproc)" --dist loadfile -m "not timed"
run_tests -m timed
((none < 2)) || status=5

echo
echo "The ten slowest steps, in seconds (several run at a time):"
sort -rn "$TEST_TIMES" | sed -n '1,10s/^/  /p'  # reads all: head would make sort fail
end $status
