#!/usr/bin/env bash
# Measures every GPU of the machine into results/, and compares GPUs, also from mailed files.
set -euo pipefail

usage() {
    cat <<'END'
Usage: scripts/compare_gpus.sh [--no-build] [--talk S,...] [N ...]
       scripts/compare_gpus.sh --table FILE ...

Builds the demos and runs each on every GPU of this machine, at the sizes N (multiples of 32;
default 1024 2048 4096 8192 16384); the gating demos also at the talk's shape, for each S (multiples
of 16; default 128,256,512,1024,2048). Writes results/<gpu>.csv and prints programs x GPUs.
bonus_benchmark_fused is left out: it measures the same kernels as the two gating demos.

  --table FILE ...   print such files side by side, with ratios to the first; runs and builds nothing
  --no-build         measure the programs that lie here; they were built elsewhere
  --talk S,...       the sizes of the talk's shape

Exit status: 0 all that could run is verified; 1 a wrong result; 2 usage; 3 an error; 77 no GPU.
END
}

# Files are named from where the caller is.
here=$(dirname "${BASH_SOURCE[0]}")
if [[ ${1-} == --table ]]; then
    shift
    (($# > 0)) || { echo "compare_gpus.sh: --table needs files" >&2 && exit 2; }
    exec python3 "$here/table.py" compare "$@"
fi

cd "$here/.."
source scripts/setup.sh
source scripts/demo_step.sh

protocol=1 # of measuring: changes when figures are no longer comparable with earlier ones
seed=1
sizes=() talk_sizes=(128 256 512 1024 2048) must_build=yes

# check_size VALUE MULTIPLE: nine digits keep the arithmetic safe; the programs know their limits.
check_size() {
    if [[ ! $1 =~ ^[1-9][0-9]{0,8}$ ]] || (($1 % $2 != 0)); then
        die 2 "'$1' is no size: a multiple of $2 is expected (--help shows the usage)"
    fi
}

while (($# > 0)); do
    case $1 in
        -h | --help) usage && exit ;;
        --no-build) must_build="" ;;
        --talk)
            [[ ${2-} ]] || die 2 "--talk needs sizes (--help shows the usage)"
            IFS=, read -ra talk_sizes <<<"$2"
            shift
            ;;
        --table) die 2 "--table comes first, and only files after it" ;;
        -*) die 2 "unknown option $1 (--help shows the usage)" ;;
        *) sizes+=("$1") ;;
    esac
    shift
done
((${#sizes[@]} > 0)) || sizes=(1024 2048 4096 8192 16384)
for n in "${sizes[@]}"; do check_size "$n" 32; done
for s in "${talk_sizes[@]}"; do check_size "$s" 16; done

# The name comes last, so that it may hold anything.
mapfile -t gpus < <(nvidia-smi --query-gpu=uuid,driver_version,name --format=csv,noheader 2>/dev/null |
    grep '^GPU-')
((${#gpus[@]} > 0)) || die 77 "no GPU here: measuring needs an NVIDIA GPU and its driver"

if [[ $must_build ]]; then
    ensure_scons
    ensure_cuda
    build programs || die 3 "the build failed"
fi

# --- What to run, and how files are called ---

steps=() # "program argument ..."
while read -r program; do
    [[ $program != bonus_benchmark_fused ]] || continue
    for n in "${sizes[@]}"; do steps+=("$program $n"); done
    ! has_talk_shape "$program" ||
        for s in "${talk_sizes[@]}"; do steps+=("$program --talk $s"); done
done < <(list_programs)

# "NVIDIA H200" becomes nvidia-h200.
slug() {
    tr '[:upper:]' '[:lower:]' <<<"$1" | sed -E 's/[^a-z0-9]+/-/g; s/^-+|-+$//g'
}

toolkit=unknown
if [[ -f build/toolkit.txt ]]; then
    toolkit=$(<build/toolkit.txt)
elif toolkit_here=$(python3 site_scons/cuda_toolkit.py --version 2>/dev/null); then
    toolkit="$toolkit_here (found here; the programs were built elsewhere)"
fi
suite=$(git describe --always --dirty 2>/dev/null) || suite=unknown

parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
mkdir -p results
names=$(printf '%s\n' "${gpus[@]}" | sed -E 's/^[^,]*, *[^,]*, *//')
files=()
declare -A seen=()

# --- Each GPU in turn ---

for gpu in "${gpus[@]}"; do
    IFS=, read -r uuid driver name <<<"$gpu"
    name=${name# }
    file=results/$(slug "$name")
    if (($(grep -cFx -- "$name" <<<"$names") > 1)); then # alike: numbered
        index=${seen[$name]-0}
        seen[$name]=$((index + 1))
        file+=-$index
    fi
    file+=.csv

    rm -f "$parts"/*
    i=0
    for step in "${steps[@]}"; do
        i=$((i + 1))
        read -ra words <<<"$step"
        CUDA_VISIBLE_DEVICES=$uuid run_step "[$i/${#steps[@]}] $name: $step" \
            "$parts/$(printf %04d $i).csv" "./${words[0]}" "${words[@]:1}" --seed $seed || true
    done

    if ! compgen -G "$parts/*.csv" >/dev/null; then
        say "$name: nothing ran, so $file is not written"
        continue
    fi
    {
        echo "# GPU: $name"
        echo "# driver: ${driver# }"
        echo "# toolkit: $toolkit"
        echo "# date: $(date -u +%F)"
        echo "# seed: $seed"
        echo "# suite: $suite"
        echo "# protocol: $protocol"
        python3 scripts/table.py merge "$parts"/*.csv
    } >"$parts/all"
    mv "$parts/all" "$file"
    files+=("$file")
done

if ((${#files[@]} > 0)); then
    echo
    python3 scripts/table.py compare "${files[@]}"
    say "wrote ${files[*]}"
fi
((STEPS_STATUS == 0)) || exit "$STEPS_STATUS"
((STEPS_VERIFIED > 0)) || exit 77
