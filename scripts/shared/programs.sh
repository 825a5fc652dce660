# shellcheck shell=bash
# The programs, and how run.sh and compare_gpus.sh run one. Sourced after setup.sh; defines
# functions alone.

# The programs' names in the order of the talk: the numbers, then the bonuses.
list_programs() {
    local source
    for source in src/*.cu; do
        basename "$source" .cu
    done | sort -V
}

# The lessons among them: the numbers.
list_lessons() {
    list_programs | grep '^[0-9]'
}

# find_program WORD: prints the program of that name or number.
find_program() {
    local name
    for name in $(list_programs); do
        [[ $name == "$1" || $1 =~ ^[0-9]+$ && $name == "$1"_* ]] || continue
        echo "$name"
        return
    done
    die 2 "no program '$1'; there are $(list_programs | paste -sd ' ')"
}

# check_size VALUE MULTIPLE: nine digits keep the arithmetic safe; the programs know their limits.
check_size() {
    if [[ ! $1 =~ ^[1-9][0-9]{0,8}$ ]] || (($1 % $2 != 0)); then
        die 2 "'$1' is no size: a multiple of $2 is expected (--help shows the usage)"
    fi
}

# run_step LABEL ROWS PROGRAM ARGUMENT...
# Runs a program with --csv into the file ROWS and prints one line: LABEL ... what came of it.
# Returns the program's exit status; STEP_REASON is then what it said of a failure. Keeps count over
# all steps: STEPS_VERIFIED of successes; STEPS_STATUS is 1 once a result was wrong, else 3 once a
# program failed otherwise (skipped, 77, is no failure). ROWS is left where it can be read, also
# after a failure: a program may fail at its last kernel.
STEPS_VERIFIED=0
STEPS_STATUS=0
run_step() {
    local label=$1 rows=$2 program=$3 status=0 result
    shift 3
    STEP_REASON=""
    printf '%s ... ' "$label"
    if [[ -x $program ]]; then
        "$program" "$@" --csv >"$rows" 2>"$rows.err" || status=$?
        STEP_REASON=$(grep -v '^[[:space:]]*$' "$rows.err" | tail -n 1) ||
            STEP_REASON="it gave no reason"
        STEP_REASON=${STEP_REASON#"$(basename "$program"): "} # the label says it already
    else
        status=127 STEP_REASON="not built"
    fi
    if ! result=$(python3 scripts/shared/table.py summary "$rows" 2>&1); then
        ((status != 0)) || status=3 STEP_REASON=$result
        rm -f "$rows"
    fi
    case $status in
        0) STEPS_VERIFIED=$((STEPS_VERIFIED + 1)) STEP_REASON="" ;;
        1) STEPS_STATUS=1 result="FAILED, a wrong result: $STEP_REASON" ;;
        77) result="skipped: $STEP_REASON" ;;
        *)
            ((STEPS_STATUS == 1)) || STEPS_STATUS=3
            result="FAILED, exit status $status: $STEP_REASON"
            ((status != 2)) || result="refused"
            ;;
    esac
    printf '%s\n' "$result"
    # A wrong command line, as always on stderr.
    ((status != 2)) || say "$(basename "$program"): $STEP_REASON"
    return "$status"
}
