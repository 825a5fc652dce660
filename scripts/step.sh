#!/usr/bin/env bash
# A debugger at the first line of a program's kernel, with commands for a lecture.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/setup.sh"
case " $* " in
    *" --batch "*) attend "$@" ;;
    *) begin ;; # a session needs the terminal
esac

usage() {
    cat <<'END'
Usage: scripts/step.sh [OPTION ...] PROGRAM [N]

Builds a program for debugging and stops at the first line of its first kernel, in block (0,0),
thread (0,0): under cuda-gdb on a GPU, without one under gdb, on the CPU. N is 64, or what PROGRAM
takes. PROGRAM is a name or its number: 2_matmul_sharedmem, 2, bonus_matmul_register_tiled.

  --cpu          on the CPU, GPU or not
  --kernel NAME  the program's --kernel
  --walk FILE    go through the commands in FILE: Enter runs the next one, which is shown in gray;
                 anything else that is typed runs instead. Lines with # are said before it. Without
                 a keyboard it is --batch
  --batch FILE   run them all, print what they say, and end; lines with ## are said nowhere
  --from COUNT   begin at that command of FILE; those before it run, and say nothing
  --no-build     the program lies in build/debug/ or cpu/debug/; it was built elsewhere

Commands, besides the debugger's own: thread, block, tile, next-barrier and who. A session begins by
saying what each does, and docs/tools.md shows them at work. b is block; a breakpoint is br 47.

On a GPU a warp steps together; on the CPU the selected thread steps alone. To go to another thread
lets nobody run: the one that is left stays where it is, and one that waits at a barrier is shown
waiting. Only a thread that has not begun yet begins, and stops at its first line.

Exit status: 0; 2 usage; 3 an error, also a command of FILE that failed; 77 no debugger, or PROGRAM
cannot run here.
END
}

caller=$PWD
cd -- "$here/.."

on_cpu="" must_build=yes way="" file="" from=1 words=() options=()
while (($# > 0)); do
    case $1 in
        --kernel | --batch | --walk | --from)
            [[ ${2--} != -* ]] || die 2 "$1 needs a value (--help shows the usage)"
            ;;&
        -h | --help) show_usage ;;
        --cpu) on_cpu=yes ;;
        --no-build) must_build="" ;;
        --kernel) options+=(--kernel "$2") && shift ;;
        --from)
            [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] || die 2 "--from takes a command's number, not '$2'"
            from=$2 && shift
            ;;
        --batch | --walk)
            [[ ! $way ]] || die 2 "one file is expected: $way $file, or $1 $2"
            way=$1 file=$2 && shift
            ;;
        -*) die 2 "unknown option $1 (--help shows the usage)" ;;
        *) words+=("$1") ;;
    esac
    shift
done
((${#words[@]} > 0)) || die 2 "a program is expected (--help shows the usage)"
((${#words[@]} <= 2)) || die 2 "a program and one size N are expected, not also '${words[2]}'"
[[ ! $way || $file == /* ]] || file=$caller/$file
[[ ! $way || -r $file && ! -d $file ]] || die 2 "$file cannot be read"

[[ $way || $from == 1 ]] || die 2 "--from needs --walk or --batch"
[[ $way != --walk || -t 0 ]] || way=--batch

program=$(find_program "${words[@]}")
n=${words[1]-64}

unset DEMO_COUNT DEMO_SCHEDULE # another build, another order of threads

# --- The debugger, and a program for it ---

# runs_python DEBUGGER: what its commands are written in.
runs_python() {
    [[ $("$1" -q -nx -batch -ex 'python print("yes")' 2>/dev/null) == *yes* ]]
}

# find_cuda_gdb: the first that runs Python, beside nvcc or on PATH.
find_cuda_gdb() {
    local candidate
    for candidate in "${CUDA_HOME-/usr/local/cuda}/bin/cuda-gdb" cuda-gdb; do
        ! runs_python "$candidate" || { echo "$candidate" && return; }
    done
    return 1
}

if [[ $on_cpu ]] || ! has_gpu ${must_build:+--builds}; then
    on_cpu=yes
else
    [[ ! $must_build ]] || ensure_cuda
    debugger=$(find_cuda_gdb) || {
        say "no cuda-gdb with Python here (NVIDIA's package cuda-gdb): on the CPU instead"
        on_cpu=yes
    }
fi
folder=build/debug target=$program
if [[ $on_cpu ]]; then
    (ensure_gdb) || exit 77
    runs_python gdb || die 77 "this gdb has no Python, which the commands are written in"
    debugger=gdb folder=cpu/debug target=cpu/$program
fi
if [[ $must_build ]]; then
    ensure_compiler
    ensure_scons
    build debug=1 "$target" >&2
fi

[[ -x $folder/$program ]] || die 3 "$folder/$program is not built"

# What the program says of its command line comes before a debugger could hide it.
arguments=("$n" --once "${options[@]}")
status=0
"$folder/$program" "${arguments[@]}" --describe >/dev/null || status=$?
((status == 0)) || exit "$status"

export STEP_PROGRAM=$program STEP_ARGUMENTS="${arguments[*]}" STEP_GPU=1
export STEP_BATCH="" STEP_WALK="" STEP_FROM=$from
[[ ! $on_cpu ]] || STEP_GPU=""
session=("$debugger" -q -nx -x scripts/step/step_commands.py --args "$folder/$program"
    "${arguments[@]}")
case $way in
    --batch) STEP_BATCH=$file "${session[@]}" 3>&1 >/dev/null </dev/null || end $? ;;
    --walk) STEP_WALK=$file exec "${session[@]}" 3>&1 >/dev/null ;;
    *) exec "${session[@]}" ;;
esac
