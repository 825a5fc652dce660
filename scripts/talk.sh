#!/usr/bin/env bash
# Gives the talk: its programs in their order, Enter for the next.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
if [[ -t 0 && -t 1 ]]; then
    begin # it needs the keyboard
else
    attend "$@"
fi
cd -- "$here/.."

usage() {
    cat <<'END'
Usage: scripts/talk.sh [OPTION ...] [STEP]

Builds what the talk of 20 minutes needs, and then runs its programs in their order, from STEP (1
to 7) on: the commands of the run sheet in docs/lecture.md, on a GPU or, without one, on the CPU.
Before each step a banner says what it is about, and the command stands below. Enter runs it;
Enter again goes on to the next banner. To answer a question, type another command at either, such
as ./6_gating_fused 2048: it runs, and the prompt comes again. Ctrl-C or Ctrl-D ends the talk.
Without a terminal it runs through, for the evening before: scripts/talk.sh </dev/null

  --cpu       on the CPU, GPU or not
  --size N    for a slower GPU: N in place of 4096, and --talk N / 4, at most 1024
  --no-build  run the programs that lie here; they were built elsewhere

Exit status: 0 all that could run here is verified; 1 a wrong result; else that of the first program
that failed; 2 usage; 77 nothing here can run it; 130 interrupted.
END
}

step=() size=() on_cpu="" must_build=yes
while (($# > 0)); do
    case $1 in
        -h | --help) show_usage ;;
        --cpu) on_cpu=--cpu ;;
        --no-build) must_build="" ;;
        --size)
            [[ ${2--} != -* ]] || die 2 "$1 needs a value (--help shows the usage)"
            size=(--size "$2") && shift
            ;;
        -*) die 2 "unknown option $1 (--help shows the usage)" ;;
        *) step+=("$1") ;;
    esac
    shift
done
((${#step[@]} <= 1)) || die 2 "one step is expected, not also '${step[1]}'"

unset DEMO_COUNT DEMO_SCHEDULE # the run sheet says where they are wanted

run_sheet() {
    python3 scripts/talk/run_sheet.py ${on_cpu:+--cpu} "${size[@]}" "$@"
}

# Sets targets, what is to be built here.
find_targets() {
    local words
    words=$(run_sheet --targets "${step[@]}") || end $?
    read -ra targets <<<"$words"
}

ensure_python
find_targets
if [[ ! $on_cpu ]] && ! has_gpu ${must_build:+--builds}; then
    say "$NO_GPU: on the CPU"
    on_cpu=--cpu
    find_targets
fi
[[ ! $on_cpu || ${#size[@]} == 0 ]] || say "--size is for a GPU: on the CPU the run sheet's N stays"

if [[ ! $on_cpu ]]; then
    if [[ $must_build ]]; then
        ensure_compiler
        ensure_scons
        ensure_cuda
        mention_tile
        build "${targets[@]}" >&2
    fi
    status=0
    [[ ! -x ./${targets[0]} ]] || "./${targets[0]}" 32 --once >/dev/null 2>&1 || status=$?
    if ((status == 77)); then
        say "there is a GPU here, but no program can use it: on the CPU instead"
        on_cpu=--cpu
        find_targets
    fi
fi
if [[ $on_cpu && $must_build ]]; then
    ensure_compiler
    ensure_scons
    ensure_simulator_libraries
    build "${targets[@]}" >&2
fi
run_sheet "${step[@]}" || end $?
