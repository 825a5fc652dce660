"""setup.sh: what a machine lacks is told at once, and how .venv comes about where Python lacks what
makes one. A fake python3, apt-get and id stand in for such machines."""

import os
import shutil
import subprocess
import sys

import pytest

from fakes import FakeMachine
from suite import FAILED, assert_one_line

# As Debian's Python without its package of venv: no ensurepip, and `venv` says so. With a file
# `ensurepip` beside it, it has that. The file `pip_version` says which pip it has.
FAKE_PYTHON = r"""#!/usr/bin/env bash
here=$(dirname "$0")
case "$*" in
    "-m venv "*--without-pip*) ;;
    "-m venv "*)
        if [[ ! -f $here/ensurepip ]]; then
            echo "The virtual environment was not created successfully because ensurepip is not"
            echo "available. Install the python3-venv package"
            exit 1
        fi
        "PYTHON" -m venv --clear --without-pip .venv
        exec cp -r "$here/wheel/pip" .venv/lib/python3*/site-packages/
        ;;
    "-m pip --python .venv/bin/python install "*" pip")
        case $(cat "$here/pip_version") in
            none) echo "python3: No module named pip" >&2 && exit 1 ;;
            22.2) echo "no such option: --python" >&2 && exit 2 ;;
        esac
        exec cp -r "$here/wheel/pip" .venv/lib/python3*/site-packages/
        ;;
    "-m pip --version")
        [[ $(cat "$here/pip_version") != none ]] || exit 1
        echo "pip $(cat "$here/pip_version") from here" && exit
        ;;
    "-m pip "*) echo "error: externally-managed-environment" >&2 && exit 1 ;;
    *"import ensurepip"*) [[ -f $here/ensurepip ]] || exit 1 ;;
    "-m SCons "*) exit 1 ;; # none that is installed for all
esac
exec "PYTHON" "$@"
""".replace("PYTHON", sys.executable)

# It keeps what it is asked for, takes a while, and fails where the file `offline` says so.
FAKE_PIP = """import sys, time
if sys.argv[1:] != ["--version"]:
    with open("piped", "a") as file:
        print(*sys.argv[1:], file=file)
    try:
        print(open("offline").read(), file=sys.stderr)
        sys.exit(1)
    except FileNotFoundError:
        time.sleep(0.5)
"""


class Setup:
    """A machine whose python3 has no ensurepip."""

    def __init__(self, machine, pip):
        self.root, self.bin = machine.root, machine.root / "bin"
        FakeMachine.install(self.bin / "python3", FAKE_PYTHON)
        (self.bin / "pip_version").write_text(pip)
        (self.bin / "wheel/pip").mkdir(parents=True)
        (self.bin / "wheel/pip/__init__.py").touch()
        (self.bin / "wheel/pip/__main__.py").write_text(FAKE_PIP)
        FakeMachine.install(self.bin / "id", "#!/bin/sh\necho 0\n")
        self.apt_get("exit 0")

    def apt_get(self, does):
        """What apt-get install does."""
        FakeMachine.install(
            self.bin / "apt-get",
            f'#!/bin/sh\necho "$*" >>"{self.root}/apt"\n[ "$1" = update ] || {{ {does}; }}\n')

    def used_apt(self):
        return (self.root / "apt").exists()

    def start(self, commands="pip_install 'a package' package", **more):
        """Starts functions of setup.sh."""
        env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **more}
        code = f"set -euo pipefail; source scripts/setup.sh; {commands}"
        return subprocess.Popen(["bash", "-c", code, "run.sh"], cwd=self.root, env=env, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def install(self, *commands, **more):
        """Lets setup.sh install a package."""
        with self.start(*commands, **more) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def piped(self):
        """What pip was asked for."""
        lines = (self.root / "piped").read_text().splitlines()
        return [line.split()[-1] for line in lines]


@pytest.fixture
def setup(tmp_path, request):
    return Setup(FakeMachine(tmp_path), getattr(request, "param", "24.1"))


VENV = "python{}.{}-venv".format(*sys.version_info)  # what Debian calls the package


def assert_installed(setup, done):
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert setup.piped()[-1] == "package"
    assert done.stderr.endswith("run.sh: installing a package into .venv (pip install package)\n")


def test_without_ensurepip_another_pip_makes_the_environment(setup):
    done = setup.install()
    assert_installed(setup, done)
    assert_one_line(done.stderr, "run.sh")
    assert not setup.used_apt()
    assert_installed(setup, setup.install())  # which finds it made


@pytest.mark.parametrize("setup", ["22.2", "none"], indirect=True)
def test_where_no_pip_can_root_installs_ensurepip(setup):
    setup.apt_get(f'touch "{setup.bin}/ensurepip"')
    done = setup.install()
    assert_installed(setup, done)
    assert done.stderr.splitlines()[0] == (
        f"run.sh: installing Python's venv (apt-get install {VENV})")


@pytest.mark.parametrize("setup", ["22.2", "none"], indirect=True)
def test_where_nothing_helps_one_line_says_what_to_install(setup):
    done = setup.install()
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr.count("\n") == 2  # the first announces apt-get
    last = done.stderr.splitlines()[1]
    assert last.startswith("run.sh: python3 makes no .venv (")
    assert last.endswith(f"): install {VENV}, or pip 22.3 or later for python3")


@pytest.mark.parametrize("setup", ["22.2", "none"], indirect=True)
def test_others_than_root_are_told_what_to_install(setup):
    FakeMachine.install(setup.bin / "id", "#!/bin/sh\necho 1000\n")
    done = setup.install()
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "run.sh")
    assert f"apt-get install {VENV}" in done.stderr
    assert not setup.used_apt()


def test_two_that_install_at_once_share_one_environment(setup):
    """The second waits, and does not begin it anew."""
    mark = "pip_install 'a package' package; touch .venv/mine-$$"
    both = [setup.start(mark), setup.start(mark)]
    for process in both:
        process.communicate()
    assert [process.returncode for process in both] == [0, 0]
    assert len(list((setup.root / ".venv").glob("mine-*"))) == 2
    assert setup.piped() == ["package", "package"]


def test_without_a_network_the_last_of_pips_lines_says_why(setup):
    (setup.root / "offline").write_text("WARNING: Retrying\nWARNING: Retrying\nERROR: no such host")
    done = setup.install()
    assert (done.returncode, done.stdout) == (FAILED, "")
    announced, problem = done.stderr.splitlines()
    assert problem == ("run.sh: pip install package failed (ERROR: no such host): "
                       "is there a network?")
    assert "--retries 1" in (setup.root / "piped").read_text()  # five take ten seconds


@pytest.mark.parametrize("compiler, status", [("env g++", 0), ("gpp", FAILED),
                                              ("gpp -O2", FAILED)])
def test_a_compiler_of_the_users_own_is_not_replaced(setup, compiler, status):
    """It may be of several words; where it is mistyped, nothing is installed."""
    done = setup.install("ensure_compiler", CXX=compiler)
    assert (done.returncode, done.stdout) == (status, "")
    assert not setup.used_apt()
    if status:
        assert_one_line(done.stderr, "run.sh")
        assert f"'{compiler}'" in done.stderr


def test_a_compiler_that_is_too_old_is_told_in_one_line(setup):
    """As g++ 10, which knows no std::bit_cast."""
    FakeMachine.install(setup.bin / "g++", "#!/bin/sh\necho 'g++ (Debian 10.2.1-6) 10.2.1'\n")
    done = setup.install("ensure_compiler; echo went on", CXX="")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "run.sh")
    assert "g++ 10.2.1" in done.stderr and "g++ 11 or later is needed" in done.stderr


def test_the_hpc_sdks_compiler_is_refused_in_one_line(setup):
    """Its modules put it into CXX."""
    FakeMachine.install(setup.bin / "nvc++",
                        "#!/bin/sh\necho '#define __cpp_lib_bit_cast 201806L'\n")
    done = setup.install("ensure_compiler; echo went on", CXX=str(setup.bin / "nvc++"))
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "run.sh")
    assert "nvc++" in done.stderr and "CXX=g++" in done.stderr


def test_a_python_that_is_too_old_is_told_in_one_line(setup):
    FakeMachine.install(setup.bin / "python3", "#!/bin/sh\ncase $1 in --version) "
                        "echo Python 3.6.8 ;; *) exit 1 ;; esac\n")
    done = setup.install("ensure_python; echo went on")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr == ("run.sh: Python 3.6.8 is too old: 3.8 or later is needed, as python3 on "
                           "PATH\n")


# --- What is missing ----------------------------------------------------------------------------

TOOLS = ("bash", "cat", "cmp", "dirname", "env", "flock", "id", "readlink", "sed", "sort")


class Bare(Setup):
    """A machine that has nothing to build with, where its user is not root."""

    def __init__(self, machine, *more):
        super().__init__(machine, "none")
        (self.bin / "python3").unlink()
        (self.bin / "apt-get").unlink()
        self.user(1000)
        for name in TOOLS:
            if not (self.bin / name).exists():
                (self.bin / name).symlink_to(shutil.which(name))
        for name in more:
            FakeMachine.install(self.bin / name, "#!/bin/sh\nexit 9\n")

    def user(self, number):
        FakeMachine.install(self.bin / "id", f"#!/bin/sh\necho {number}\n")

    def install(self, *commands, **more):
        return super().install(*commands, **{"PATH": str(self.bin), "CXX": "", **more})


@pytest.mark.parametrize("has, told", [
    (["apt-get", "sudo"], "sudo apt-get install python3 g++ python3-venv libgtest-dev"),
    (["apt-get"], "as root: apt-get install python3 g++ python3-venv libgtest-dev"),
    (["dnf", "sudo"], "sudo dnf install python3 gcc-c++ gtest-devel"),
    (["zypper", "sudo"], "sudo zypper install python3 gcc-c++ gtest"),
    (["pacman", "sudo"], "sudo pacman -S python gcc gtest"),
    ([], "on Debian and Ubuntu: apt-get install python3 g++ python3-venv libgtest-dev"),
], ids=lambda value: "-".join(value) if isinstance(value, list) else "")
def test_all_that_is_missing_is_told_in_one_line(tmp_path, has, told):
    bare = Bare(FakeMachine(tmp_path), *has)
    done = bare.install("ALSO=(gtest); ensure_compiler; echo went on")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr == ("run.sh: Python 3, a C++ compiler, Python's venv and GoogleTest are "
                           f"missing: install them ({told})\n")


def test_root_gets_all_that_is_missing_at_once(tmp_path):
    bare = Bare(FakeMachine(tmp_path))
    bare.user(0)
    FakeMachine.install(bare.bin / "python3", FAKE_PYTHON)
    bare.apt_get(f'touch "{bare.bin}/ensurepip"; ln -s {shutil.which("g++")} "{bare.bin}/g++"')
    FakeMachine.install(bare.bin / "touch", f'#!/bin/sh\nexec {shutil.which("touch")} "$@"\n')
    (bare.bin / "ln").symlink_to(shutil.which("ln"))
    done = bare.install("ensure_compiler; echo went on")
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert done.stderr == ("run.sh: installing a C++ compiler and Python's venv "
                           f"(apt-get install g++ {VENV})\n")


# --- A checkout that was moved or copied ----------------------------------------------------------


def test_scons_of_a_copied_checkout_runs_with_its_own_python(setup, tmp_path):
    """pip writes the folder of .venv into what it puts there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", setup.root / ".venv"],
                   check=True)
    [packages] = (setup.root / ".venv/lib").glob("python3*/site-packages")
    (packages / "SCons").mkdir()
    (packages / "SCons/__main__.py").write_text("import sys\nprint(sys.prefix, *sys.argv[1:])\n")
    FakeMachine.install(setup.root / ".venv/bin/scons",
                        f"#!{setup.root}/.venv/bin/python\nimport SCons.__main__\n")
    FakeMachine.install(setup.bin / "scons", "#!/bin/sh\nexit 1\n")
    done = setup.install("ensure_scons; echo ${SCONS[0]}")
    assert (done.returncode, done.stdout) == (0, ".venv/bin/python\n"), done.stderr
    copy = tmp_path / "copy"
    shutil.copytree(setup.root / ".venv", copy / ".venv", symlinks=True)
    done = subprocess.run([copy / ".venv/bin/scons", "-Q", "a b"], capture_output=True, text=True)
    assert done.stdout == f"{copy}/.venv -Q a b\n", done.stderr


# --- nvdisasm -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, installs", [
    ("1", True), ("1 --sass", True), ("1 --ptx", False), ("--help", False), ("", False)])
def test_inspect_installs_what_prints_machine_code(setup, arguments, installs):
    FakeMachine.install(setup.bin / "fake_python", FAKE_PYTHON)
    FakeMachine.install(setup.bin / "python3", f"""#!/usr/bin/env bash
case "$*" in
    *machine_code.py*) echo inspected && exit ;;
    *cuda_toolkit.py) exit 0 ;;
    *nvdisasm*) exit 1 ;;
esac
exec "{setup.bin}/fake_python" "$@"
""")
    env = {**os.environ, "PATH": f"{setup.bin}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "scripts/inspect.sh", *arguments.split()], cwd=setup.root,
                          env=env, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "inspected\n"), done.stderr
    if installs:
        assert setup.piped() == ["nvidia-cuda-nvdisasm"]
    else:
        assert not (setup.root / "piped").exists() and done.stderr == ""


def test_a_build_that_fails_ends_the_script(setup):
    done = setup.install("SCONS=(false); build programs; echo went on")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr == "run.sh: the build failed\n"
