#!/usr/bin/env bash
# Measures every GPU of the machine into results/, and compares GPUs, also from mailed files.
set -euo pipefail

usage() {
    cat <<'END'
Usage: scripts/compare_gpus.sh [OPTION ...]
       scripts/compare_gpus.sh --table [OPTION ...] FILE ...

Builds the programs, runs each on every GPU of this machine (MIG instances too), and writes one file
per GPU: results/<gpu>.csv. Then prints programs x GPUs. A program that fails gets a row that says
so. What an interrupted run has measured is kept: the same command goes on from there.

Without a selection every program is measured at the sizes and in the data types that it declares
(PROGRAM --describe), which takes some minutes; a program that declares no sizes is left out. A
selection is written to build/results/, so that results/ holds whole runs.

  --programs P,...   these alone, by name or number: 6, bonus_matmul_hopper
  --sizes N,...      these sizes N alone (multiples of 32)
  --talk S,...       these sizes S of the talk's shape alone (multiples of 16); with --sizes: both
  --quick            N = 4096 and S = 1024, in each program's first data type
  --rounds COUNT     let the kernels of a program take turns so many times (default 1)
  --out FOLDER       write there
  --fresh            forget what an interrupted run has measured
  --no-build         measure the programs that lie here; they were built elsewhere

  --table FILE ...   print such files side by side, with ratios to the first; runs and builds
                     nothing. --sizes and --talk choose rows; --markdown or --csv change the form

Exit status: 0 all that could run is verified; 1 a wrong result; 2 usage; 3 an error; 77 no GPU.
END
}

# Files are named from where the caller is.
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=scripts/setup.sh
source "$here/setup.sh"
if [[ ${1-} == --table ]]; then
    shift
    (($# > 0)) || die 2 "--table needs files (--help shows the usage)"
    [[ $1 != -h && $1 != --help ]] || { usage && exit; }
    ensure_python
    exec python3 "$here/shared/table.py" compare "$@"
fi

caller=$PWD
CDPATH="" cd -- "$here/.."
source scripts/shared/programs.sh

protocol=2 # of measuring: changes when figures are no longer comparable with earlier ones
seed=1

# --- The command line ---

sizes=() talk_sizes=() chosen=() rounds=1 must_build=yes fresh="" quick="" out=""

while (($# > 0)); do
    case $1 in
        --programs | --sizes | --talk | --rounds | --out)
            [[ ${2-} ]] || die 2 "$1 needs a value (--help shows the usage)"
            ;;&
        -h | --help) usage && exit ;;
        --no-build) must_build="" ;;
        --fresh) fresh=yes ;;
        --quick) quick=yes ;;
        --programs) IFS=, read -ra chosen <<<"$2" && shift ;;
        --sizes) IFS=, read -ra sizes <<<"$2" && shift ;;
        --talk) IFS=, read -ra talk_sizes <<<"$2" && shift ;;
        --rounds) rounds=$2 && shift ;;
        --out) out=$(cd "$caller" && realpath -m -- "$2") && shift ;;
        --table) die 2 "--table comes first, and only files and its options after it" ;;
        *) die 2 "unknown argument '$1' (--help shows the usage)" ;;
    esac
    shift
done
for n in "${sizes[@]}"; do check_size "$n" 32; done
for s in "${talk_sizes[@]}"; do check_size "$s" 16; done
[[ $rounds =~ ^[1-9][0-9]?$ ]] ||
    die 2 "--rounds: a count from 1 to 99 is expected, not '$rounds' (--help shows the usage)"

selection=() # of sizes; without one, each program's own
((${#sizes[@]} == 0)) || selection+=(--sizes "$(IFS=, && echo "${sizes[*]}")")
((${#talk_sizes[@]} == 0)) || selection+=(--talk "$(IFS=, && echo "${talk_sizes[*]}")")
if [[ $quick ]]; then
    ((${#selection[@]} == 0)) || die 2 "--quick excludes --sizes and --talk"
    selection=(--quick)
fi
if [[ ! $out ]]; then
    out=results
    ((${#selection[@]} + ${#chosen[@]} == 0)) || out=build/results
fi

mapfile -t programs < <(list_programs)
if ((${#chosen[@]} > 0)); then
    programs=()
    for choice in "${chosen[@]}"; do
        program=$(find_program "$choice")
        programs+=("$program")
    done
fi

# --- The GPUs ---

# From nvidia-smi -L, a line for each GPU or MIG instance: its UUID, that of the GPU whose clocks it
# shares, its name. A GPU that is divided into instances is not visited itself.
list_gpus() {
    local line whole="" parent="" name=""
    while IFS= read -r line; do
        if [[ $line =~ ^GPU\ [0-9]+:\ (.*)\ \(UUID:\ ([^\)]+)\) ]]; then
            [[ ! $whole ]] || echo "$whole"
            name=${BASH_REMATCH[1]} parent=${BASH_REMATCH[2]}
            whole=$parent$'\t'$parent$'\t'$name
        elif [[ $line =~ ^\ +MIG\ ([^\ ]+)\ .*\(UUID:\ ([^\)]+)\) ]]; then
            echo "${BASH_REMATCH[2]}"$'\t'"$parent"$'\t'"$name MIG ${BASH_REMATCH[1]}"
            whole=""
        fi
    done
    [[ ! $whole ]] || echo "$whole"
}

mapfile -t gpus < <(nvidia-smi -L 2>/dev/null | list_gpus)
((${#gpus[@]} > 0)) || die 77 "no GPU here: measuring needs an NVIDIA GPU and its driver"
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null) || driver=unknown
driver=${driver%%$'\n'*} # the same for every GPU

# start_sampling UUID FILE: adds a GPU's clocks and power to the file, ten times a second.
SAMPLER=""
start_sampling() {
    local uuid=$1 file=$2 fields
    # Drivers before 535 know the older names alone.
    for fields in power.draw.instant,clocks_event_reasons.active \
        power.draw,clocks_throttle_reasons.active; do
        fields=timestamp,utilization.gpu,clocks.sm,temperature.gpu,$fields
        nvidia-smi -i "$uuid" --query-gpu=$fields --format=csv,noheader >/dev/null 2>&1 || continue
        nvidia-smi -i "$uuid" --query-gpu=$fields --format=csv,noheader,nounits -lms 100 \
            >>"$file" 2>/dev/null </dev/null &
        SAMPLER=$!
        return
    done
}
stop_sampling() {
    [[ $SAMPLER ]] || return 0
    kill "$SAMPLER" 2>/dev/null || true
    wait "$SAMPLER" 2>/dev/null || true
    SAMPLER=""
}
trap stop_sampling EXIT
trap 'echo && say "interrupted: the same command goes on from here" && exit 130' INT TERM

if [[ $must_build ]]; then
    ensure_scons
    ensure_cuda
    build programs || die 3 "the build failed"
fi

ensure_python

# --- The steps: a program and its arguments ---

steps=()
for program in "${programs[@]}"; do
    status=0
    runs=$(python3 scripts/shared/programs.py measure "${selection[@]}" "./$program") || status=$?
    case $status in
        0) [[ ! $runs ]] || mapfile -t -O ${#steps[@]} steps <<<"$runs" ;;
        77) ((${#chosen[@]} == 0)) || die 2 "$program declares no sizes to measure" ;;
        *) exit "$status" ;; # it said why
    esac
done
((${#steps[@]} > 0)) || die 2 "no program takes these sizes"

# about_step STEP: what its rows would say, for the case that it prints none.
about_step() {
    local shape=square n="" dtype=""
    read -ra words <<<"$1"
    echo "program: ${words[0]}"
    set -- "${words[@]:1}"
    while (($# > 0)); do
        case $1 in
            --talk) shape=talk n=$2 && shift ;;
            --rows) shape=${2}x$4 n=$2 && shift 3 ;;
            --dtype) dtype=$2 && shift ;;
            *) n=$1 ;;
        esac
        shift
    done
    printf 'shape: %s\nn: %s\ndtype: %s\n' "$shape" "$n" "$dtype"
}

# "NVIDIA H200" becomes nvidia-h200.
slug() {
    tr '[:upper:]' '[:lower:]' <<<"$1" | sed -E 's/[^a-z0-9]+/-/g; s/^-+|-+$//g'
}

# time_left: for a step's label, from how long this call's steps took so far.
steps_run=0 steps_left=$((${#steps[@]} * ${#gpus[@]})) began=$SECONDS
time_left() {
    ((steps_run >= 5)) || return 0
    local seconds=$(((SECONDS - began) * steps_left / steps_run))
    printf ', about %d:%02d left' $((seconds / 60)) $((seconds % 60))
}

toolkit=unknown
if [[ -f build/toolkit.txt ]]; then
    toolkit=$(<build/toolkit.txt)
elif toolkit_here=$(python3 scripts/shared/cuda_toolkit.py --version 2>/dev/null); then
    toolkit="$toolkit_here (found here; the programs were built elsewhere)"
fi
suite=$(git describe --always --dirty 2>/dev/null) || suite=unknown

# --- Each GPU in turn ---

mkdir -p "$out"
# What was measured so far of this selection; it goes when the last GPU is done.
measured=build/compare/$(printf '%s\n' "${steps[@]}" | cksum | tr ' ' -)
names=$(printf '%s\n' "${gpus[@]}" | cut -f 3)
files=() total=${#steps[@]}
declare -A seen=()
for gpu in "${gpus[@]}"; do
    IFS=$'\t' read -r uuid clocks_uuid name <<<"$gpu"
    stem=$(slug "$name")
    if (($(grep -cFx -- "$name" <<<"$names") > 1)); then # alike: numbered
        index=${seen[$name]-0}
        seen[$name]=$((index + 1))
        stem+=-$index
    fi

    # What makes figures comparable. An interrupted run goes on only where all of it is the same.
    about=$(
        echo "GPU: $name"
        CUDA_VISIBLE_DEVICES=$uuid python3 scripts/compare_gpus/device_facts.py || true
        printf 'driver: %s\ntoolkit: %s\n' "$driver" "$toolkit"
        printf 'seed: %s\nrounds: %s\n' "$seed" "$rounds"
        printf 'suite: %s\nprotocol: %s\n' "$suite" "$protocol"
    )
    run=$measured/$stem
    if [[ $fresh || ! -f $run/about || $(<"$run/about") != "$about" ]]; then
        rm -rf "$run"
        mkdir -p "$run"
        echo "$about" >"$run/about"
    fi
    printf '%s\n' "${steps[@]}" >"$run/steps"

    start_sampling "$clocks_uuid" "$run/samples"
    i=0 kept=0
    for step in "${steps[@]}"; do
        i=$((i + 1)) part=$run/$step
        read -ra words <<<"$step"
        if [[ -f $part.done && $part.done -nt ./${words[0]} ]]; then
            kept=$((kept + 1)) steps_left=$((steps_left - 1))
            STEPS_VERIFIED=$((STEPS_VERIFIED + 1))
            continue
        fi
        rm -f "$part".*
        status=0 start=$(date +%s.%N)
        CUDA_VISIBLE_DEVICES=$uuid run_step "[$i/$total$(time_left)] $name: $step" "$part.csv" \
            "./${words[0]}" "${words[@]:1}" --seed $seed --rounds "$rounds" || status=$?
        steps_run=$((steps_run + 1)) steps_left=$((steps_left - 1))
        {
            about_step "$step"
            printf 'status: %s\nreason: %s\n' "$status" "$STEP_REASON"
            printf 'start: %s\nend: %s\n' "$start" "$(date +%s.%N)"
        } >"$part.about"
        ((status != 0)) || touch "$part.done" # what failed runs again
    done
    stop_sampling
    ((kept == 0)) || say "$name: $kept of $total steps were measured before an interruption"

    if ! compgen -G "$run/*.csv" >/dev/null; then
        say "$name: nothing ran, so $out/$stem.csv is not written"
    else
        python3 scripts/compare_gpus/collect.py "$run" >"$run/all" || die 3 "$run could not be collected"
        mv "$run/all" "$out/$stem.csv"
        files+=("$out/$stem.csv")
    fi
done
rm -rf "$measured"
rmdir --ignore-fail-on-non-empty build/compare

if ((${#files[@]} > 0)); then
    echo
    python3 scripts/shared/table.py compare "${files[@]}"
    say "wrote ${files[*]}"
fi
((STEPS_STATUS == 0)) || exit "$STEPS_STATUS"
((STEPS_VERIFIED > 0)) || exit 77
