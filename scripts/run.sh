#!/usr/bin/env bash
# Builds the lessons, runs them and prints one table.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh
source scripts/shared/programs.sh

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
for n in "${size[@]}"; do check_size "$n" 32; done

# --- What runs here, and its sizes ---

folder=. n=${size[0]-4096} s=1024
if ! has_gpu; then
    say "no GPU here: running the same programs on the CPU, at a small N"
    folder=cpu n=${size[0]-256} s=16
elif ((n / 4 < s)); then
    s=$((n / 4 - n / 4 % 16))
    ((s >= 16)) || s=16
fi

target=lessons view=lessons
mapfile -t programs < <(list_lessons)
if [[ $all ]]; then
    target=programs view=run
    mapfile -t programs < <(list_programs)
fi

if [[ $must_build ]]; then
    ensure_compiler
    ensure_scons
    if [[ $folder == cpu ]]; then
        ensure_lane_libraries
        build "cpu/$target" || die 3 "the build failed"
    else
        ensure_cuda
        build "$target" || die 3 "the build failed"
    fi
fi

# --- The programs ---

parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

position=0 step=0
# demo SIZE ARGUMENT...: one step of the current program.
demo() {
    local shown=$1 rows
    shift
    step=$((step + 1))
    rows=$(printf '%s/%03d.csv' "$parts" "$step")
    run_step "[$position/${#programs[@]}] $program $shown" "$rows" "$folder/$program" "$@" || true
}

for program in "${programs[@]}"; do
    position=$((position + 1))
    if [[ ! -x $folder/$program ]]; then
        demo "N=$n" # which says that it is not built
    elif runs=$(python3 scripts/shared/programs.py show "$folder/$program" "$n" "$s"); then
        while IFS=$'\t' read -r -u 3 shown arguments; do
            read -ra words <<<"$arguments"
            [[ ! $shown ]] || demo "$shown" "${words[@]}" # it may not take this size
        done 3<<<"$runs"
    else # it said why
        ((STEPS_STATUS == 1)) || STEPS_STATUS=3
    fi
done

if compgen -G "$parts/*.csv" >/dev/null; then
    echo
    python3 scripts/shared/table.py "$view" "$parts"/*.csv
    [[ $folder != cpu ]] || cat <<END
What a kernel reads and writes:  scripts/count.sh ${programs[0]%%_*}
Line by line, in a debugger:     scripts/step.sh ${programs[0]%%_*}
END
fi
((STEPS_STATUS == 0)) || exit "$STEPS_STATUS"
((STEPS_VERIFIED > 0)) || exit 77
