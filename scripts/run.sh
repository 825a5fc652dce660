#!/usr/bin/env bash
# Builds the lessons, runs them and prints one table.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
attend "$@"
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/run.sh [--all] [--no-build] [N]

Installs what is missing, builds the lessons, runs each at size N (without it at the lesson's own
default, mostly 4096) and prints one table: a row a lesson, with its best kernel. N is a multiple of
32. The gating lessons also run the talk's shape, --talk S, S = N / 4 up to 1024. The programs use
CUDA's first GPU; CUDA_VISIBLE_DEVICES=1 chooses the second. Without a GPU that CUDA can use the
same programs run on the CPU, most at N = 256, and at S = 16.

  --all        the bonuses too, and a row for every kernel
  --no-build   run the programs that lie here; they were built elsewhere

Exit status: 0 all that could run here is verified; 1 a wrong result; 2 usage; 3 an error;
77 nothing here can run it; 130 interrupted.
END
}

size=() must_build=yes all=""
for argument in "$@"; do
    case $argument in
        -h | --help) show_usage ;;
        --all) all=yes ;;
        --no-build) must_build="" ;;
        -*) die 2 "unknown option $argument (--help shows the usage)" ;;
        *) size+=("$argument") ;;
    esac
done
((${#size[@]} <= 1)) || die 2 "one size N is expected, not ${#size[@]} (--help shows the usage)"
for n in "${size[@]}"; do # nine digits keep the arithmetic safe; the programs know their limits
    if [[ ! $n =~ ^[1-9][0-9]{0,8}$ ]] || ((n % 32 != 0)); then
        die 2 "'$n' is no size: a multiple of 32 is expected (--help shows the usage)"
    fi
done

run_programs() {
    python3 scripts/run/run_programs.py ${all:+--all} "$@"
}

target=lessons
[[ ! $all ]] || target=programs
[[ ! $must_build ]] || ensure_compiler
ensure_python

# --- On the GPU ---

if has_gpu ${must_build:+--builds}; then
    n=${size[0]-4096} s=1024
    if ((n / 4 < s)); then
        s=$((n / 4 - n / 4 % 16))
        ((s >= 16)) || s=16
    fi
    if [[ $must_build ]]; then
        ensure_scons
        ensure_cuda
        mention_tile
        [[ $target == lessons ]] || ensure_nccl
        build "$target"
    fi
    status=0
    run_programs . "${size[0]-0}" "$s" || status=$?
    ((status == 78)) || end "$status" # else CUDA finds no GPU: the first program said why
    NO_GPU="there is a GPU here, but no program can use it"
fi

# --- On the simulator ---

say "$NO_GPU: running the same programs on the CPU, at a small N"
if [[ $must_build ]]; then
    ensure_scons
    ensure_simulator_libraries
    build "cpu/$target"
fi
run_programs cpu "${size[0]-0}" 16 || end $?
