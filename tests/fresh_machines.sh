#!/usr/bin/env bash
# Tries the README's two commands on fresh machines. By hand, before a release: see usage().
set -euo pipefail

usage() {
    cat <<'END'
Usage: tests/fresh_machines.sh [NAME ...]

Makes minimal installations in folders (debootstrap, chroot), follows the README in each as a new
user does, and writes what was seen to docs/install/NAME.txt. Names, all by default: debian-12
debian-13 ubuntu-22.04 ubuntu-24.04, and colab: Ubuntu 24.04 whose Python has pip and no ensurepip,
and whose apt-get brings none, as on Google Colab (but for its GPU).

In each: scripts/run.sh as an ordinary user, who is told what is missing; root installs just that;
then scripts/run.sh again. On colab all of it as root, as there. Then a part of scripts/test.sh: it
makes sure of GoogleTest and pytest, builds and runs the host tests, and runs the tests of setup.sh
and run.sh. (test.sh itself would take 8 minutes more.)

Needs root, debootstrap, a network, and 2 GB for each machine below FRESH_MACHINES (default:
/var/tmp/fresh_machines). A machine's first state is kept there, as NAME.first. DEBIAN_MIRROR and
UBUNTU_MIRROR name other mirrors. Exit status: 0 all got to a verified run; 1 one did not; 2 usage;
3 not root.
END
}

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
all=(debian-12 debian-13 ubuntu-22.04 ubuntu-24.04 colab)
names=("$@")
case ${1-} in
    -h | --help) usage && exit ;;
    "") names=("${all[@]}") ;;
esac
for name in "${names[@]}"; do
    [[ " ${all[*]} " == *" $name "* ]] ||
        { echo "fresh_machines.sh: no machine '$name' (--help lists them)" >&2 && exit 2; }
done
[[ $(id -u) == 0 ]] || { echo "fresh_machines.sh: root is needed, for chroot" >&2 && exit 3; }
# What is mounted below is so for this script alone, and gone when it ends.
[[ ${IN_NAMESPACE-} ]] ||
    exec env IN_NAMESPACE=yes unshare --mount bash "$here/${0##*/}" "${names[@]}"

cd -- "$here/.."
machines=${FRESH_MACHINES:-/var/tmp/fresh_machines}
mkdir -p "$machines" docs/install

# first NAME: makes its first state.
first() {
    local suite options=(--variant=minbase) mirror=${UBUNTU_MIRROR-} # empty: debootstrap knows one
    local keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg script=()
    case $1 in
        debian-12) suite=bookworm ;;
        debian-13) suite=trixie ;;
        ubuntu-22.04) suite=jammy ;;
        ubuntu-24.04 | colab) suite=noble ;;
    esac
    [[ ! -d $machines/$1.first ]] || return 0
    if [[ $1 == debian-* ]]; then
        mirror=${DEBIAN_MIRROR-}
    else
        options+=("--components=main,universe")
        [[ -f $keys ]] && options+=("--keyring=$keys") || options+=(--no-check-gpg)
        # An older debootstrap lacks Ubuntu's new names, which differ in nothing.
        [[ -e /usr/share/debootstrap/scripts/$suite ]] ||
            script=(/usr/share/debootstrap/scripts/gutsy)
    fi
    rm -rf --one-file-system "$machines/$1.new"
    debootstrap "${options[@]}" "$suite" "$machines/$1.new" "$mirror" "${script[@]}" \
        >"$machines/$1.log" 2>&1 || { tail -n 3 "$machines/$1.log" >&2 && return 1; }
    if [[ $1 == colab ]]; then
        chroot "$machines/$1.new" apt-get install -y -qq --no-install-recommends \
            g++ python3 python3-pip >>"$machines/$1.log" 2>&1 ||
            { tail -n 3 "$machines/$1.log" >&2 && return 1; }
        printf 'Package: python3*-venv\nPin: release *\nPin-Priority: -1\n' \
            >"$machines/$1.new/etc/apt/preferences.d/no-venv"
    fi
    mv "$machines/$1.new" "$machines/$1.first"
}

# inside USER COMMAND: on the machine, in its copy of this project.
inside() {
    local name settings=(PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 TILE=0)
    settings+=("HOME=/home/demo" PIP_CERT=/etc/fresh_machines.crt PIP_NO_CACHE_DIR=1)
    while read -r name; do # how this machine reaches a network
        settings+=("$name=${!name}")
    done < <(compgen -e | grep -iE '^(https?|no)_proxy$|^PIP_(INDEX_URL|EXTRA_INDEX_URL)$')
    env -i "${settings[@]}" chroot --userspec="$1" "$root" \
        bash -c "cd /home/demo/demos && $2" test.sh </dev/null
}

# step USER COMMAND [SHOWN]: runs it, and prints what it says and how it ended. Sets `status`.
step() {
    local start=$SECONDS sign="$"
    [[ $1 != root ]] || sign="#"
    echo "$sign ${3-$2}"
    status=0
    inside "$1" "$2" >"$root.out" 2>&1 || status=$?
    # Not each file that is compiled; no address and no folder of this machine.
    sed -E "/^(g\+\+|Creating|Checking) /d; s|$root||g; s|https?://[^ ]*|(address)|g" "$root.out" |
        tail -n 50 | fold -s -w 100
    echo "exit status $status, after $((SECONDS - start)) s"
    echo
}

# shellcheck disable=SC2016 # bash expands it inside
PART_OF_TESTS='set -e; source scripts/setup.sh; ALSO=(gtest); ensure_compiler; ensure_scons
ensure_pytest; build tests; build/tests/host_tests --gtest_brief=1
"${PYTEST[@]}" -q -n 2 tests/test_setup.py tests/test_run.py'

try() {
    local root=$machines/$1 user=demo status said
    first "$1"
    rm -rf --one-file-system "$root"
    cp -a "$root.first" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/fresh_machines.crt"
    chroot "$root" useradd --create-home demo
    mkdir "$root/home/demo/demos"
    git ls-files -z --cached --others --exclude-standard |
        xargs -0 cp --parents -t "$root/home/demo/demos"
    chroot "$root" chown -R demo:demo /home/demo
    chroot "$root" apt-get update -qq >/dev/null
    [[ $1 != colab ]] || user=root
    {
        echo "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release"), $(uname -m)," \
            "a minimal installation, $(nproc) cores; $(date +%Y-%m-%d)"
        [[ $1 != colab ]] || echo "With g++, and Python with pip and without ensurepip; no GPU"
        echo
        if [[ $user == demo ]]; then
            step demo scripts/run.sh
            said=$(grep -oE 'apt-get install [^)]*' "$root.out") || return 1
            step root "${said/install/install -y -qq --no-install-recommends} >/dev/null 2>&1" \
                "$said"
        fi
        step "$user" scripts/run.sh
        inside "$user" 'g++ --version | head -n 1; python3 --version'
        echo
        [[ $status == 0 ]] || return 1
        step root "$PART_OF_TESTS" \
            "a part of scripts/test.sh: host tests, tests of the two commands"
        ((status == 0)) || return 1
    } >"docs/install/$1.txt"
}

ended=0
for name in "${names[@]}"; do
    echo "$name ..."
    # Not `if try`: that would switch off set -e inside.
    set +e
    (set -e; try "$name")
    status=$?
    set -e
    if ((status == 0)); then
        echo "$name: verified (docs/install/$name.txt)"
    else
        echo "$name: FAILED (docs/install/$name.txt)"
        ended=1
    fi
    umount -R "$machines/$name/proc" "$machines/$name/dev" 2>/dev/null || true
done
exit "$ended"
