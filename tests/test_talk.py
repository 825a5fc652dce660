"""scripts/talk.sh: the talk's programs in their order, as docs/lecture.md's run sheet has them."""

import json
import re
import shutil

import pytest

from fakes import FakeMachine, copy_folders, description, script
from suite import CPU, FAILED, ROOT, SKIPPED, USAGE, VERIFIED, WRONG, assert_one_line, run
from terminal import CTRL_C, CTRL_D, on_a_terminal

INTERRUPTED = 130
LECTURE = (ROOT / "docs/lecture.md").read_text(encoding="utf-8")
SLIDES = (ROOT / "docs/slides/talk.md").read_text(encoding="utf-8")
TALK = LECTURE.partition("\n## The talk: ")[2].partition("\n## ")[0]


def commands_of(info):
    """[the commands of a step] of the run sheet's blocks."""
    return [re.findall(r"^\$ (.*)$", block, re.MULTILINE)
            for block in re.findall(rf"^```{info}\n(.*?)^```", TALK, re.MULTILINE | re.DOTALL)]


WITH_GPU, WITHOUT = commands_of("console gpu"), commands_of("console")

# It says how it was called, and ends as the file `status` beside it has it.
FAKE = """#!/bin/sh
case "$*" in *--describe*) cat <<'END'
DESCRIPTION
END
exit ;; esac
[ "$*" = "32 --once" ] || echo "called: ${DEMO_COUNT+DEMO_COUNT=1 }$0 $*"
[ ! -f "$0.status" ] || exit "$(cat "$0.status")"
"""


class Stage:
    """A copy of the scripts with fake programs, and one GPU."""

    def __init__(self, root):
        self.root = root
        copy_folders(root, "scripts", "src")
        for folder in ("docs", "bin", "cpu/count"):
            (root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "docs/lecture.md", root / "docs")
        for path in (root / "src").glob("[1-9]_*.cu"):
            about = description(path.stem)
            for program in (root / path.stem, root / "cpu" / path.stem):
                FakeMachine.install(program, FAKE.replace("DESCRIPTION", json.dumps(about)))
        FakeMachine.install(root / "bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: A GPU'\n")

    @property
    def env(self):
        return {"PATH": f"{self.root}/bin:/usr/bin:/bin"}

    def ends(self, program, status):
        (self.root / f"{program}.status").write_text(str(status))

    def talk(self, *arguments, build=False):
        options = [] if build else ["--no-build"]
        return script("talk.sh", *options, *arguments, root=self.root, env=self.env)

    def called(self, text):
        """The commands that were run, as the run sheet has them."""
        return [line.replace(f"{self.root}/cpu/", "cpu/").replace(f"{self.root}/", "./")
                for line in re.findall(r"^called: (.*?)\r?$", text, re.MULTILINE)]


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


# --- One source -----------------------------------------------------------------------------------


def test_it_runs_what_the_run_sheet_says(stage):
    assert len(WITH_GPU) == len(WITHOUT) == 7
    done = stage.talk()
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    assert stage.called(done.stdout) == sum(WITH_GPU, [])
    done = stage.talk("--cpu")
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    assert stage.called(done.stdout) == sum(WITHOUT, [])
    assert re.findall(r"^\$ (.*)$", done.stdout, re.MULTILINE) == sum(WITHOUT, [])
    titles = re.findall(r"^### Talk (\d): (.*)$", TALK, re.MULTILINE)
    banners = re.findall(r"^  (\d) of 7   (.*?)  +\d minutes?$", done.stdout, re.MULTILINE)
    assert banners == titles


def test_the_slides_say_the_same():
    steps = re.split(r"^Talk (\d) begins here", SLIDES, flags=re.MULTILINE)
    assert steps[1::2] == [*"1234567"]
    said = [re.findall(r"`(\./\w+ (?:\d|--talk )[^`]*)`", step) for step in steps[2::2]]
    assert [step[:1] for step in said] == WITH_GPU
    assert said[-1][1:] == ["./7_gelu 16384 --dtype fp16"]  # of a spare slide


def test_the_real_programs_describe_the_steps():
    run(CPU.folder / "6_gating_fused", "--help")  # skips where it is not built
    done = script("talk.sh", "--no-build", "--cpu", "7")
    assert done.returncode == VERIFIED, done.stderr
    assert "  7 of 7   the talk's shape, and the easy way " in done.stdout
    assert "  6_gating_fused: sigmoid(x W1 + b1) * (x W2 + b2) in one kernel\n" in done.stdout
    assert "  fused_talk_tile    verified\n" in done.stdout


@pytest.mark.parametrize("old, new", [
    ("## The talk: ", "## A talk: "), ("**Minutes** 2. ", ""), ("```console gpu", "```bash"),
    ("$ ./4_matmul_cublas 4096", "$ rm -r cpu"),
    ("**Program** `4_matmul_cublas`", "**Program** `7_gelu`"),
    ("$ ./4_matmul_cublas 4096", "$ ./4_matmul_cublas '4096")])
def test_a_sheet_that_is_none_is_refused(stage, old, new):
    (stage.root / "docs/lecture.md").write_text(LECTURE.replace(old, new))
    done = stage.talk()
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "talk.sh")


# --- Options --------------------------------------------------------------------------------------


def test_it_begins_at_any_step(stage):
    assert stage.called(stage.talk("5").stdout) == sum(WITH_GPU[4:], [])


def test_a_slower_gpu_gets_another_size(stage):
    called = stage.called(stage.talk("--size", "1056").stdout)
    assert called == [command.replace("4096", "1056").replace("1024", "256")
                      for command in sum(WITH_GPU, [])]
    assert stage.called(stage.talk("--size", "8192", "7").stdout) == WITH_GPU[6]
    done = stage.talk("--cpu", "--size", "1056", "7")
    assert stage.called(done.stdout) == WITHOUT[6] and "--size is for a GPU" in done.stderr


# --- What may happen ------------------------------------------------------------------------------


@pytest.mark.parametrize("statuses, expected", [
    ({"3_matmul_tensorcore": 3}, FAILED), ({"3_matmul_tensorcore": 77}, VERIFIED),
    ({"1_matmul_basic": 3, "5_gating_unfused": 1}, WRONG), ({"2_matmul_sharedmem": 139}, 139)])
def test_a_failing_program_does_not_end_the_talk(stage, statuses, expected):
    for program, status in statuses.items():
        stage.ends(program, status)
    done = stage.talk()
    assert done.returncode == expected and stage.called(done.stdout) == sum(WITH_GPU, [])


def test_nothing_here_can_run_it(stage):
    for program in stage.root.glob("cpu/[1-9]*"):
        stage.ends(f"cpu/{program.name}", SKIPPED)
    assert stage.talk("--cpu").returncode == SKIPPED


def goes_on_at(step):
    return f"talk.sh: scripts/talk.sh {step} goes on from here\n"


def test_an_interrupted_program_ends_the_talk(stage):
    stage.ends("2_matmul_sharedmem", INTERRUPTED)
    done = stage.talk()
    assert (done.returncode, done.stderr) == (INTERRUPTED, goes_on_at(2))
    assert stage.called(done.stdout) == sum(WITH_GPU[:2], [])


def test_a_driver_that_does_not_answer_is_named(stage):
    FakeMachine.install(stage.root / "bin/nvidia-smi", "#!/bin/sh\necho 'No driver'\nexit 9\n")
    done = stage.talk("7")
    assert (done.returncode, stage.called(done.stdout)) == (VERIFIED, WITHOUT[6])
    assert done.stderr == ("talk.sh: no GPU here that the driver serves (nvidia-smi: No driver): "
                           "on the CPU\n")
    assert stage.talk("--cpu", "7").stderr == ""
    assert_one_line(stage.talk("8").stderr, "talk.sh")


def test_a_gpu_that_no_program_can_use(stage):
    stage.ends("1_matmul_basic", SKIPPED)
    done = stage.talk()
    assert done.returncode == VERIFIED and stage.called(done.stdout) == sum(WITHOUT, [])
    assert_one_line(done.stderr, "talk.sh")
    assert "on the CPU instead" in done.stderr


def test_everything_is_built_before_the_first_banner(stage):
    FakeMachine.install(stage.root / "bin/scons", "#!/bin/sh\n"
                        'case "$*" in *--version*) exit ;; esac\necho "scons $*"\n')
    FakeMachine.install(stage.root / "bin/id", "#!/bin/sh\necho 1000\n")  # nothing is installed
    done = stage.talk("--cpu", "2", build=True)
    assert done.returncode == VERIFIED, done.stderr
    assert done.stderr.splitlines() == [
        "scons -Q " + " ".join(f"cpu/{folder}{program}" for program in (
            "1_matmul_basic", "2_matmul_sharedmem", "3_matmul_tensorcore")
            for folder in ("", "count/")) + " cpu/4_matmul_cublas cpu/5_gating_unfused "
        "cpu/6_gating_fused"]


# --- On a terminal --------------------------------------------------------------------------------


def on_stage(stage, typed, *arguments):
    shown, status = on_a_terminal(
        ["bash", "scripts/talk.sh", "--no-build", *arguments], typed,
        r"\r\$ |\[Enter\](\x1b\[0m)? ?(\x1b\[0m)?", cwd=stage.root, env=stage.env)
    return [stage.called(part) for part in shown], "".join(shown), status


def test_enter_runs_a_command_and_goes_on(stage):
    called, shown, status = on_stage(stage, [""] * 5, "5")
    assert status == VERIFIED
    assert called == [[], WITH_GPU[4], [], WITH_GPU[5], [], WITH_GPU[6]]
    assert "\x1b[1m  5 of 7 " in shown and shown.count("[Enter]") == 2


def test_another_command_can_be_typed(stage):
    """At either prompt, which then comes again; so it does for what is no command."""
    python = "python3 scripts/frameworks/6_gating_fused.py 33"
    typed = ["./6_gating_fused 64", "what?", "", "'", "DEMO_COUNT=1 cpu/1_matmul_basic 32", "",
             python, ""]
    called, shown, status = on_stage(stage, typed, "6")
    assert status == USAGE  # of the last one
    assert called == [[], ["./6_gating_fused 64"], [], WITH_GPU[5], [],
                      ["DEMO_COUNT=1 cpu/1_matmul_basic 32"], [], [], WITH_GPU[6]]
    assert "6_gating_fused.py: argument N: '33'" in shown
    assert shown.count("[Enter]") == 3 and shown.count("Enter goes on, Ctrl-D ends the talk") == 2
    assert f"\x1b[A\x1b[K$ {typed[0]}\r\n" in shown


def test_an_impatient_enter_starts_nothing(stage):
    """Enter while a program runs is no answer to the prompt that comes after it."""
    program = stage.root / "5_gating_unfused"
    program.write_text(program.read_text() + "[ \"$*\" = \"32 --once\" ] || sleep 0.5\n")
    called, _, status = on_stage(stage, ["\n\n", CTRL_D], "5")
    assert (called, status) == ([[], WITH_GPU[4], []], VERIFIED)


def test_the_talk_can_be_left(stage):
    called, _, status = on_stage(stage, ["", CTRL_D], "5")
    assert (called, status) == ([[], WITH_GPU[4], []], VERIFIED)
    called, shown, status = on_stage(stage, ["", "", CTRL_C], "5")
    assert (called, status) == ([[], WITH_GPU[4], [], []], INTERRUPTED)
    assert shown.endswith(goes_on_at(6).replace("\n", "\r\n"))


def test_a_wrong_result_is_not_forgotten_when_the_talk_is_left(stage):
    stage.ends("5_gating_unfused", WRONG)
    assert on_stage(stage, ["", CTRL_D], "5")[2] == WRONG
