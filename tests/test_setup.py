"""setup.sh: how .venv comes about where Python lacks what makes one. A fake python3, apt-get and id
stand in for such machines."""

import os
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
    "-m pip "*) echo "error: externally-managed-environment" >&2 && exit 1 ;;
    *"import ensurepip"*) [[ -f $here/ensurepip ]] || exit 1 ;;
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


@pytest.mark.parametrize("compiler, status", [("sh -c", 0), ("gpp", FAILED), ("gpp -O2", FAILED)])
def test_a_compiler_of_the_users_own_is_not_replaced(setup, compiler, status):
    """It may be of several words; where it is mistyped, nothing is installed."""
    done = setup.install("ensure_compiler", CXX=compiler)
    assert (done.returncode, done.stdout) == (status, "")
    assert not setup.used_apt()
    if status:
        assert_one_line(done.stderr, "run.sh")
        assert f"'{compiler}'" in done.stderr


def test_a_build_that_fails_ends_the_script(setup):
    done = setup.install("SCONS=(false); build programs; echo went on")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr == "run.sh: the build failed\n"
