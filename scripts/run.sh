#!/usr/bin/env bash
# Builds the lessons, runs them and prints one table.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

usage() {
    cat <<'END'
Usage: scripts/run.sh [--all] [--no-build] [N]

Installs what is missing, builds the lessons, runs each at size N (default 4096) and prints one
table: a row a lesson, with its best kernel. N is a multiple of 32. The gating lessons also run the
talk's shape, --talk S, S = N / 4 up to 1024. Without a GPU the same programs run on the CPU, at
N = 256 and S = 16.

  --all        the bonuses too, and a row for every kernel
  --no-build   run the programs that lie here; they were built elsewhere

Exit status: 0 all that could run here is verified; 1 a wrong result; 2 usage; 3 an error;
77 nothing here can run it.
END
}

size=() must_build=yes all=""
for argument in "$@"; do
    case $argument in
        -h | --help) usage && exit ;;
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

# --- What runs here, and its sizes ---

folder=. n=${size[0]-4096} s=1024
if ! has_gpu; then
    say "no GPU here: running the same programs on the CPU, at a small N"
    folder=cpu n=${size[0]-256} s=16
elif ((n / 4 < s)); then
    s=$((n / 4 - n / 4 % 16))
    ((s >= 16)) || s=16
fi

target=lessons
[[ ! $all ]] || target=programs
ensure_python
if [[ $must_build ]]; then
    ensure_compiler
    ensure_scons
    if [[ $folder == cpu ]]; then
        ensure_simulator_libraries
        build "cpu/$target"
    else
        ensure_cuda
        build "$target"
    fi
fi

exec python3 scripts/run/run_programs.py ${all:+--all} "$folder" "$n" "$s"
