# shellcheck shell=bash
# How run.sh and compare_gpus.sh run a program. Sourced after setup.sh; defines functions alone.

# The programs' names in the order of the talk: the numbers, then the bonuses.
list_programs() {
    local source
    for source in src/*.cu; do
        basename "$source" .cu
    done | sort -V
}

# Whether a program takes --talk S as well as N.
has_talk_shape() {
    [[ $1 == *_gating_* ]]
}

# run_step LABEL ROWS PROGRAM ARGUMENT...
# Runs a program with --csv into the file ROWS and prints one line: LABEL ... what came of it.
# Returns the program's exit status and keeps count over all steps: STEPS_VERIFIED of successes;
# STEPS_STATUS is 1 once a result was wrong, else 3 once a program failed otherwise (skipped, 77, is
# no failure). ROWS is left where it can be read, also after a failure: a program may fail at its
# last kernel.
STEPS_VERIFIED=0
STEPS_STATUS=0
run_step() {
    local label=$1 rows=$2 program=$3 status=0 reason="" result
    shift 3
    printf '%s ... ' "$label"
    if [[ -x $program ]]; then
        "$program" "$@" --csv >"$rows" 2>"$rows.err" || status=$?
        reason=$(grep -v '^[[:space:]]*$' "$rows.err" | tail -n 1) || reason="it gave no reason"
        reason=${reason#"$(basename "$program"): "} # the label says it already
    else
        status=127 reason="not built"
    fi
    if ! result=$(python3 scripts/table.py summary "$rows" 2>&1); then
        ((status != 0)) || status=3 reason=$result
        rm -f "$rows"
    fi
    case $status in
        0) STEPS_VERIFIED=$((STEPS_VERIFIED + 1)) ;;
        1) STEPS_STATUS=1 result="FAILED, a wrong result: $reason" ;;
        77) result="skipped: $reason" ;;
        *)
            ((STEPS_STATUS == 1)) || STEPS_STATUS=3
            result="FAILED, exit status $status: $reason"
            ((status != 2)) || result="refused"
            ;;
    esac
    printf '%s\n' "$result"
    ((status != 2)) || say "$(basename "$program"): $reason" # a wrong command line, as always on stderr
    return "$status"
}
