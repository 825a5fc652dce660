#!/usr/bin/env bash
# Counts what a program's kernels touch: with ncu on a GPU, else on the simulator.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/count.sh [--no-build] [--together] PROGRAM [PROGRAM ...] [ARGUMENT ...]

Runs PROGRAM (1_matmul_basic, or its number: 1) once and prints what one launch of each of its
kernels touches: loads, stores and atomics of global and of shared memory, by threads and by warps,
bytes, sectors of 32 bytes, bank conflicts, barriers; on the simulator also TMA's copies and wgmma.
ARGUMENT is PROGRAM's: 256 --kernel NAME. Of several programs (1 2 256) all kernels stand in one
table, which says how many times fewer or more they are than those of the first. What may be a
program's number is one: 7 9 are two programs, and 7 with N = 9 is 7 --rows 9 --cols 9.

Where there is a GPU and ncu (Nsight Compute, part of the CUDA Toolkit), its counters say it. Else
the simulator does, and there also by source line: DEMO_COUNT=1 cpu/PROGRAM. The GPU's own compiler
merges loads and unrolls loops, so the counts differ where it did.

  --no-build   run what lies here; it was built elsewhere
  --together   one table also of a single program's kernels

ncu may be refused the counters (ERR_NVGPUCTRPERM). Then the simulator counts, unless this is run as
root, or the administrator loads the driver with NVreg_RestrictProfilingToAdminUsers=0.

Exit status: the program's (0 verified, 1 a wrong result, 2 usage, 3 an error); 77 nothing here can
count.
END
}

must_build=yes together=""
while [[ ${1-} == -* ]]; do
    case $1 in
        -h | --help) show_usage ;;
        --no-build) must_build="" ;;
        --together) together=yes ;;
        *) die 2 "unknown option $1 (--help shows the usage)" ;;
    esac
    shift
done
(($# > 0)) || die 2 "a program is expected: 1_matmul_basic (--help shows the usage)"
programs=("$(find_program "$1")")
shift
while (($# > 0)) && program=$(find_program "$1" 2>/dev/null); do
    programs+=("$program") together=yes
    shift
done

[[ ${1-} != 10 ]] || find_program 10 # is a program's number, and no N

for program in "${programs[@]}"; do
    find_program "$program" "$@" >/dev/null
done
[[ " $* " != *" --csv "* ]] || die 2 "--csv is not for counting, which prints tables"

# Prints where ncu is; it need not be on PATH.
find_ncu() {
    local candidate
    for candidate in "$(command -v ncu)" "${CUDA_HOME:-/usr/local/cuda}"/bin/ncu \
        /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu; do
        [[ ! -x $candidate ]] || { echo "$candidate" && return; }
    done
    return 1
}

make_work_folder
exec 3>&1

# count_all COUNT ARGUMENT...: one program after the other, as COUNT does it.
count_all() {
    local count=$1 program pairs=()
    shift
    for program in "${programs[@]}"; do
        if [[ $together ]]; then
            pairs+=("$program" "$WORK/$program.counts")
            COLUMNS=100 "$count" "$program" "$@" >"$WORK/$program.counts"
        else
            "$count" "$program" "$@"
        fi
    done
    [[ ! $together ]] || python3 scripts/count/side_by_side.py "${pairs[@]}"
}

# failed PROGRAM STATUS: ends with what the program printed, and its status.
failed() {
    [[ ! $together ]] || cat "$WORK/$1.counts" >&3
    end "$2"
}

# --- The simulator ---

count_on_simulator() {
    local program=$1
    shift
    [[ -x cpu/$program ]] || die 3 "cpu/$program is not built: scons cpu"
    DEMO_COUNT=1 "cpu/$program" "$@" || failed "$program" $?
}

# simulate WHY ARGUMENT...: counts there, and ends the script.
simulate() {
    local targets=("${programs[@]/#/cpu/}" "${programs[@]/#/cpu/count/}")
    say "$1: counting on the simulator"
    shift
    if [[ $must_build ]]; then
        ensure_counting_compiler
        ensure_scons
        ensure_simulator_libraries
        build "${targets[@]}" >&2
    fi
    count_all count_on_simulator "$@"
    exit
}

has_gpu ${must_build:+--builds} || simulate "$NO_GPU" "$@"
ncu=$(find_ncu) || simulate "no ncu here (it comes with the CUDA Toolkit)" "$@"

# --- ncu ---

count_on_gpu() {
    local program=$1 status
    shift
    [[ -x ./$program ]] || die 3 "$program is not built: scons $program"
    rm -f "$WORK/report.ncu-rep"
    "$ncu" --clock-control none --section SourceCounters --metrics "$metrics" \
        --export "$WORK/report" --log-file "$WORK/log" "./$program" "$@" --once >"$WORK/said" ||
        true # it has exit statuses of its own
    ! grep -q ERR_NVGPUCTRPERM "$WORK/log" ||
        simulate "ncu may not read the counters (ERR_NVGPUCTRPERM, see --help)" "$@" >&3
    cat "$WORK/said"
    status=$(sed -nE 's/.*application returned an error code \(([0-9]+)\).*/\1/p;T;q' "$WORK/log")
    ((${status:-0} == 0)) || failed "$program" "$status"
    [[ -f $WORK/report.ncu-rep ]] ||
        die 77 "ncu counted nothing: $(grep -m 1 ERROR "$WORK/log" || tail -n 1 "$WORK/log")"
    "$ncu" --import "$WORK/report.ncu-rep" --csv --page raw --print-units base >"$WORK/raw.csv"
    "$ncu" --import "$WORK/report.ncu-rep" --csv --page source --print-source sass >"$WORK/sass.csv"
    python3 scripts/count/ncu_counts.py table "$WORK/raw.csv" "$WORK/sass.csv"
}

if [[ $must_build ]]; then
    ensure_scons
    ensure_cuda
    build "${programs[@]}" >&2
fi

"$ncu" --query-metrics >"$WORK/known" 2>&1 || true # which differ from GPU to GPU
metrics=$(python3 scripts/count/ncu_counts.py metrics "$WORK/known")
count_all count_on_gpu "$@"
