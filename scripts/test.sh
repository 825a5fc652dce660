#!/usr/bin/env bash
# Builds what the tests need, and runs them: the quick ones, or with --full all.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/test.sh [--full | --all] [OPTION ...] [tests/test_NAME.py ...]

Installs what is missing, builds, and runs tests, on the GPU if there is one and on the simulator.
Once all is installed it takes some 8 minutes on 2 cores: every program at two sizes, nvcc's
compilation of the lessons and of what differs from the main branch, the mutants (programs with a
bug each) of what differs, or of lessons 1, 2, 3 and 6, what programs and scripts print and refuse,
and the style. Without a GPU nvcc compiles for 9.0a with PTX of 9.0. What was skipped is listed with
its reason, and at the end the ten slowest steps, and what was left out.

  --full   everything, some 50 minutes: all programs by nvcc, for 7.5 and 8.0 those whose kernels
           differ there, all mutants, sizes and orders of the simulator's threads, the host's
           sanitizers, the exercises, the documents, the slides in a browser
  --all    before a release: also all architectures that the toolkit knows, every size in every
           order, and mutants that are made by rule of every barrier and bound

TILE=0 in the environment leaves out the kernels in CUDA Tile C++, and their compiler of 430 MB.
CUDA=0 leaves out the CUDA Toolkit: the simulator alone, with the compiler that CXX names.

These go to pytest, as do files of tests, of which alone then run: scripts/test.sh --full -k step -x

  -k WORD    tests with that word in their name: also -k "gelu and not mutant"
  -x, --lf   end at the first failure; run what failed last time
  -v         name every test

Exit status: 0 all passed; 1 one failed; 2 usage; 3 something cannot be installed or built; 5 no
such test has that name; 130 interrupted.
END
}

full="" all="" files=() options=() word='(not )?[[:alnum:]_]+'
while (($# > 0)); do
    case $1 in
        -h | --help) show_usage ;;
        --full) full=full ;;
        --all) full=full all=all && export TEST_ALL=1 ;;
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
[[ -t 1 ]] || { # no terminal shows what goes on
    while sleep 60 &>/dev/null; do
        say "$((SECONDS / 60)) min, $(grep -c . "$TEST_TIMES") steps done"
    done &
    BESIDE=$!
}

# shellcheck disable=SC2317,SC2329 # build calls it
run_scons() { # in place of setup.sh's: SCons says "Command execution time: TARGET: SECONDS seconds"
    local line target seconds
    PYTHONUNBUFFERED=1 "${SCONS[@]}" -Q -j $(($(nproc) + 1)) --debug=time "$@" |
        while IFS= read -r line; do
            case $line in
                "Command execution time: "*)
                    read -r _ _ _ target seconds _ <<<"$line"
                    printf '%.1f %s\n' "$seconds" "${target%:}" >>"$TEST_TIMES"
                    ;;
                *" is up to date." | SConscript:* | Total*time:*) ;;
                *) echo "$line" ;;
            esac
        done
}

ALSO=(gtest)
ensure_compiler
ensure_simulator_libraries
ensure_scons
[[ $full ]] || TILE=0
[[ ${CUDA-} == 0 ]] || ensure_cuda
ensure_pytest
ensure_test_packages
(ensure_linters) || say "the style is not checked, then"
if [[ $full ]]; then
    if [[ ${CUDA-} != 0 ]]; then
        ensure_nccl
        [[ ${TILE-} == 0 ]] || (ensure_tile) || say "tile kernels are not compiled, then"
        ensure_disassembler
    fi
    ensure_matplotlib
    ensure_notebook_runner
    ensure_browser
    (ensure_pandoc) || say "the slides are not compared with their sources, then"
    (ensure_site) || say "the site is not made, then"
    (ensure_gdb) || say "stepping through kernels is not tested, then"
fi

# What is built: by nvcc, its architectures where no GPU is here, for the GPU, and in any case.
if [[ $full ]]; then
    compiled=(programs tests) architectures=(architectures "arch=${all:-90a}") mutants=(mutants)
    simulated=(cpu/programs cpu/tests cpu/mutants cpu/exercises ${all:+cpu/generated})
else
    readarray -t changed < <(python3 scripts/test/changed.py)
    export TEST_QUICK="${changed[*]}" # tests/suite.py reads it
    compiled=(lessons "${changed[@]}") architectures=(arch=90a)
    mutants=("${changed[@]/#/build/mutants/}")
    simulated=(build/tests/host_tests "${changed[@]/#/cpu/mutants/}" cpu/programs
        cpu/exercises/quick cpu/count/quick)
fi
if [[ ${CUDA-} == 0 ]]; then
    say "no CUDA here: running on the simulator"
    build cpu/hello build/tests/host_tests "${simulated[@]}"
elif has_gpu --builds; then
    build hello cpu/hello "${compiled[@]}" "${mutants[@]}" "${simulated[@]}" ${all:+arch=all}
else
    say "$NO_GPU: compiling, and running on the simulator"
    build hello cpu/hello "${compiled[@]}" "${architectures[@]}" "${simulated[@]}"
fi
[[ ! $full ]] || build cpu/tests sanitize=1

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
if [[ $full ]]; then
    run_tests -n "$(nproc)" --dist loadfile -m "not timed"
    run_tests -m timed
    ((none < 2)) || status=5
else
    run_tests -n $(($(nproc) + 1)) --dist loadfile -m "not timed and not full"
    ((none == 0)) || status=5
fi

echo
echo "The ten slowest steps, in seconds (several run at a time):"
sort -rn "$TEST_TIMES" | sed -n '1,10s/^/  /p'  # reads all: head would make sort fail
if [[ $all ]]; then
    echo "All ran that this machine has what it takes for."
elif [[ $full ]]; then
    echo "Left out: other architectures, every size in every order, mutants made by rule:" \
        "scripts/test.sh --all"
else
    echo "Left out: other mutants, exercises, sizes and orders of threads, sanitizers, what the" \
        "documents show: scripts/test.sh --full"
fi
end $status
