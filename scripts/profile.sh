#!/usr/bin/env bash
# Runs a CUDA program and shows where its time went: kernels, copies, launches, gaps, a timeline.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"

usage() {
    cat <<'END'
Usage: scripts/profile.sh [OPTION ...] PROGRAM [ARGUMENT ...]

Runs any CUDA program, unchanged, and prints after its output where the time went: a table of every
kernel and copy (launches, total, mean, share, grid, block, registers and shared memory per block,
and the host's mean time in the call that launched it), the gaps between them, the host's time in
launching and in waiting, what the names of the library's kernels say, and a timeline in text.
Ranges that the program names (NVTX) are tables of their own; of the demos' ranges those that are
timed are shown, and the others in a line each.

  --all          tables of all ranges
  --trace FILE   write all of it in the Chrome trace format, too: https://ui.perfetto.dev opens it
  --no-build     take the library that records as it lies here; PROGRAM is never built

    scripts/profile.sh ./5_gating_unfused 4096
    scripts/profile.sh 5 4096                           a demo, by name or number

Needs an NVIDIA GPU, and CUPTI, which comes with the CUDA Toolkit; neither nsys nor ncu. Recording
makes launches slower: the GPU's times are the kernels' own, the host's are longer than they were.

Exit status: the program's; but 2 usage, 3 no CUPTI, 77 no GPU here.
END
}

caller=$PWD
root=$(dirname "$here")
cd -- "$root"

must_build=yes options=() program=()
while (($# > 0)); do
    case $1 in
        -h | --help) show_usage ;;
        --all) options+=(--all) ;;
        --no-build) must_build="" ;;
        --trace)
            [[ ${2--} != -* ]] || die 2 "--trace needs a file's name (--help shows the usage)"
            options+=(--trace "$2")
            shift
            ;;
        -*) die 2 "unknown option $1 (--help shows the usage)" ;;
        *) program=("$@") && break ;;
    esac
    shift
done
((${#program[@]} > 0)) || die 2 "a program to run is expected (--help shows the usage)"

if ! path=$(cd "$caller" && type -P -- "${program[0]}"); then
    path=$root/$(find_program "${program[0]}" 2>/dev/null) ||
        die 2 "there is no program '${program[0]}' (scons builds the demos)"
    program[0]=$path
fi
path=$(cd "$caller" && readlink -f -- "$path")
[[ ! -f src/${path##*/}.cu ]] || find_program "${path##*/}" "${program[@]:1}" >/dev/null
[[ $path != "$root"/cpu/* ]] ||
    die 77 "${program[0]} runs on the CPU: there is no GPU's time to show (perf or gdb may help)"
has_gpu || die 77 "$NO_GPU: profiling needs an NVIDIA GPU and its driver"
[[ -x $path ]] || die 3 "${path##*/} is not built: scons ${path##*/}"

# --- The library that records ---

library=build/libprofile_injection.so
if [[ $must_build ]]; then
    ensure_compiler
    ensure_scons
    ensure_cuda
    ensure_cupti
    build profile >&2
fi
[[ -e $library ]] || die 3 "$library is not built: scons profile"
if [[ $(ldd "$library") == *libcupti*"not found"* ]]; then
    die 3 "CUPTI is missing: install cuda-cupti-13-0 (NVIDIA's apt repository)," \
        "or nvidia-cuda-cupti with pip"
fi

# --- The program, and the report ---

make_work_folder
cd "$caller"
status=0
callers=${PYTHONPATH#"$here"} # the program may be a Python of its own
PYTHONPATH=${callers#:} PROFILE_RECORDS=$WORK CUDA_INJECTION64_PATH=$root/$library \
    NVTX_INJECTION64_PATH=$root/$library "${program[@]}" || status=$?

if compgen -G "$WORK/*.txt" >/dev/null; then
    # Where and when: "2 x NVIDIA H200, driver 580.159.04, CUDA 13.0.88, 2026-11-30".
    gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort |
        uniq -c | sed -E 's/^ *1 //; s/^ *([0-9]+) /\1 x /; s/, /, driver /') || gpus=""
    toolkit=$([[ ! -f $root/src/${path##*/}.cu ]] || cat "$root"/build/toolkit.txt 2>/dev/null) || :
    printf '\n%s%s%s\n' "${gpus:+${gpus//$'\n'/, }, }" "${toolkit:+CUDA $toolkit, }" "$(date +%F)"
    python3 "$root/scripts/profile/profile_report.py" "${options[@]}" "$WORK"/*.txt ||
        status=$((status == 0 ? 3 : status))
elif ((status == 0)); then
    say "${program[0]} used no GPU: there is nothing to show"
fi
end "$status"
