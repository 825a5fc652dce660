"""scripts/talk.sh: the commands of docs/lecture.md's run sheets, in their order."""

import json
import re
import shutil
import time

import pytest

from fakes import FakeMachine, copy_folders, description, script
from suite import CPU, FAILED, ROOT, SKIPPED, VERIFIED, WRONG, assert_one_line, run
from terminal import CTRL_C, CTRL_D, on_a_terminal

INTERRUPTED = 130
LECTURE = (ROOT / "docs/lecture.md").read_text(encoding="utf-8")
SLIDES = (ROOT / "docs/slides/talk.md").read_text(encoding="utf-8")
SHEETS = ["talk", "lecture", "course"]
RECORDINGS = sorted((ROOT / "docs/recordings").glob("*.txt"))


def steps_of(sheet, info):
    """[the commands of a step] of a run sheet's blocks; without one for a GPU, the other's."""
    steps = re.split(rf"^### {sheet.capitalize()} \d", LECTURE, flags=re.MULTILINE)[1:]
    found = []
    for step in steps:
        blocks = dict(re.findall(r"^```(console(?: gpu)?)\n(.*?)^```", step.split("\n##")[0],
                                 re.MULTILINE | re.DOTALL))
        block = blocks.get(info) or blocks["console"]
        found.append(re.findall(r"^\$ (.*)$", block, re.MULTILINE))
    return found


def without_pipes(steps):
    return [command.split(" | ")[0] for commands in steps for command in commands]


WITH_GPU, WITHOUT = steps_of("talk", "console gpu"), steps_of("talk", "console")

# It says how it was called, and ends as the file `status` beside it has it.
FAKE = """#!/bin/sh
case "$*" in *--describe*) cat <<'END'
DESCRIPTION
END
exit ;; esac
[ "$*" = "32 --once" ] || echo "called: ${DEMO_COUNT+DEMO_COUNT=1 }$0 $*  # wmma: one launch"
[ ! -f "$0.status" ] || exit "$(cat "$0.status")"
"""


class Stage:
    """A copy of the scripts with fake programs, and one GPU."""

    def __init__(self, root):
        self.root = root
        copy_folders(root, "scripts", "src")
        for folder in ("docs", "bin", "cpu/count", "cpu/mutants"):
            (root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "docs/lecture.md", root / "docs")
        for path in (root / "src").glob("*.cu"):
            about = description(path.stem)
            for program in (root / path.stem, root / "cpu" / path.stem,
                            root / "cpu/mutants" / path.stem):
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
        return re.findall(r"^called: (.*?)(?:  # wmma: one launch)?\r?$", text, re.MULTILINE)


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
    assert stage.called(done.stdout) == without_pipes(WITHOUT)
    assert re.findall(r"^\$ (.*)$", done.stdout, re.MULTILINE) == sum(WITHOUT, [])
    titles = re.findall(r"^### Talk (\d): (.*)$", LECTURE, re.MULTILINE)
    banners = re.findall(r"^  (\d) of 7   (.*?)  +\d minutes$", done.stdout, re.MULTILINE)
    assert banners == titles


@pytest.mark.parametrize("sheet", SHEETS[1:])
@pytest.mark.parametrize("options, info", [([], "console gpu"), (["--cpu"], "console")])
def test_it_runs_the_other_sheets(stage, sheet, options, info):
    """Also scripts, pipes and mutants: these have to be wrong."""
    for name in ("count.sh", "step.sh", "compare_gpus.sh"):
        (stage.root / "scripts" / name).write_text('echo "called: scripts/${0##*/} $*"\n')
    for mutant in (stage.root / "cpu/mutants").iterdir():
        stage.ends(f"cpu/mutants/{mutant.name}", WRONG)
    done = stage.talk("--sheet", sheet, *options)
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    assert stage.called(done.stdout) == without_pipes(steps_of(sheet, info))
    stage.ends("cpu/mutants/2_matmul_sharedmem", VERIFIED)
    done = stage.talk("--sheet", sheet, *options)
    assert done.returncode == (WRONG if "cpu/mutants/" in str(steps_of(sheet, info)) else VERIFIED)


def test_the_notes_and_the_printed_sheet_say_the_same(stage):
    printed = stage.talk("--print", "--cpu", build=True).stdout
    assert printed.count("\f") == 3 and max(map(len, printed.splitlines())) <= 79
    printed = re.sub(r"\n {7}(?=results)", " ", printed)  # of a command that needs two lines
    assert re.findall(r"^   \$ (.*)$", printed, re.MULTILINE) == [
        command for sheet in SHEETS for step in steps_of(sheet, "console") for command in step]
    (stage.root / "build/talk").mkdir(parents=True)
    (stage.root / "build/talk/step").write_text("lecture 8")
    notes = stage.talk("--notes", build=True).stdout
    assert notes.startswith("lecture 8: what a GPU says (3 min)\n\nShow   the table of an H200")
    assert re.findall(r"^[A-Z]\w+", notes, re.MULTILINE) == ["Show", "Say", "Asked", "Asked", "If"]
    words = " ".join(re.search(r"Say +(.*?)\n\n", notes, re.DOTALL)[1].split())
    assert f"- **Say** {words}" in LECTURE and " ".join(printed.split()).count(words) == 1


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
    ("## The talk: ", "## A talk: "), ("**Minutes** 2. ", ""), ("```console", "```bash")])
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
    return f"talk.sh: scripts/talk.sh --no-build {step} goes on from here\n"


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
    assert done.returncode == VERIFIED and stage.called(done.stdout) == without_pipes(WITHOUT)
    assert_one_line(done.stderr, "talk.sh")
    assert "no program can use it: on the CPU" in done.stderr


def test_everything_is_built_before_the_first_banner(stage):
    FakeMachine.install(stage.root / "bin/scons", "#!/bin/sh\n"
                        'case "$*" in *--version*) exit ;; esac\necho "scons $*"\n')
    FakeMachine.install(stage.root / "bin/id", "#!/bin/sh\necho 1000\n")  # nothing is installed
    FakeMachine.install(stage.root / "bin/gdb", "#!/bin/sh\n")
    copy_folders(stage.root, "docs/exercises")
    shutil.copy(ROOT / "docs/exercises.md", stage.root / "docs")
    done = stage.talk("--cpu", "--sheet", "lecture", "--prepare", build=True)
    assert (done.returncode, done.stdout) == (VERIFIED, ""), done.stderr
    plain, debug, time = done.stderr.splitlines()
    assert re.fullmatch(r"talk.sh: all is built; it took \d+ s", time)
    assert debug == "scons -Q debug=1 cpu/2_matmul_sharedmem"
    assert {"cpu/1_matmul_basic", "cpu/count/2_matmul_sharedmem", "cpu/mutants/2_matmul_sharedmem",
            "build/exercises/02/solution/cpu/count/1_matmul_basic"} < set(plain.split())
    assert (stage.root / "build/exercises/02/solution/1_matmul_basic.cu").exists()
    done = stage.talk("--cpu", "--sheet", "lecture", "8", build=True)
    assert "exercises" not in done.stderr and stage.called(done.stdout) == []


def test_before_the_hall(stage):
    """What this machine lacks, a line each. The programs are not SCons's, so each is there."""
    for folder, name in (("count", "1_matmul_basic"), ("count", "2_matmul_sharedmem"),
                         ("count", "3_matmul_tensorcore")):
        shutil.copy(stage.root / "cpu" / name, stage.root / "cpu" / folder)
    smi = r"""#!/bin/sh
case "$*" in
    *utilization.gpu\ *) echo BUSY ;;
    *compute-apps*) echo '4711, a game' ;;
    *uuid*) echo 'GPU-1, 1980' ;;
    *timestamp*)
        while :; do echo "2026/01/01 00:00:00.000, 99, CLOCK, 80, 90, 0x20"; sleep 0.05; done ;;
    *) echo 'GPU 0: A GPU' ;;
esac
"""
    smi = smi.replace("while", '[ "${*#*-lms}" != "$*" ] || { echo; exit; }; while')
    fine = smi.replace("BUSY", "3").replace("CLOCK", "1900")
    FakeMachine.install(stage.root / "bin/nvidia-smi", fine)
    done = stage.talk("--check")
    assert (done.returncode, done.stderr) == (VERIFIED, ""), done.stdout
    assert done.stdout.endswith("This machine will carry it, offline too.\n")
    FakeMachine.install(stage.root / "bin/nvidia-smi",
                        smi.replace("BUSY", "34").replace("CLOCK", "990"))
    stage.ends("3_matmul_tensorcore", SKIPPED)
    (stage.root / "4_matmul_cublas").unlink()
    done = stage.talk("--check")
    assert done.returncode == FAILED
    not_built, busy, skipped, failed, clock = done.stderr.splitlines()
    assert "not built: 4_matmul_cublas: scripts/talk.sh --prepare" in not_built
    assert "34% busy (4711, a game)" in busy and "step 3 ended with 77" in skipped
    assert "step 4 ended with 127" in failed
    assert "the clock was 990 of 1980 MHz, at 80 C (thermal 100%)" in clock


# --- Recordings -----------------------------------------------------------------------------------


def test_a_recording_shows_what_was_printed(stage):
    stage.ends("5_gating_unfused", SKIPPED)
    done = stage.talk("--record")
    assert done.returncode == VERIFIED, done.stderr
    [file] = (stage.root / "docs/recordings").iterdir()
    assert file.name == "talk-gpu-0-a-gpu.txt"
    for program in stage.root.glob("[1-9]_*[a-z0-9]"):
        program.unlink()
    assert stage.called(stage.talk("--replay", "5", build=True).stdout) == sum(WITH_GPU[4:], [])
    done = stage.talk("--replay", file, build=True)
    assert stage.called(done.stdout) == sum(WITH_GPU, [])
    source = f"recording of GPU 0: A GPU, {time.strftime('%Y-%m-%d')}"
    assert (done.returncode, done.stdout.count(source)) == (VERIFIED, 7 + 7)
    file.write_text("something else")
    assert_one_line(stage.talk("--replay", file, build=True).stderr, "talk.sh")


def test_what_cannot_run_here_is_shown(stage):
    stage.talk("--record")
    stage.ends("5_gating_unfused", SKIPPED)
    _, shown, status = on_stage(stage, ["", "v", CTRL_D], "5")
    assert "; v: the recording of GPU 0: A GPU" in shown and "[Enter, about 1 s" in shown
    assert (status, stage.called(shown)) == (SKIPPED, WITH_GPU[4] * 2)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_the_recordings_have_the_sheets_commands(file):
    sheet, _, machine = file.stem.partition("-")
    info = "console" if machine == "simulator" else "console gpu"
    commands = re.findall(r"^\$ (.*)$", file.read_text(), re.MULTILINE)
    assert commands == sum(steps_of(sheet, info), []), "scripts/talk.sh --record writes it"
    assert sum(each.stat().st_size for each in RECORDINGS) <= 300_000


# --- On a terminal --------------------------------------------------------------------------------


def on_stage(stage, typed, *arguments):
    shown, status = on_a_terminal(
        ["bash", "scripts/talk.sh", "--no-build", *arguments], typed, r"\[(Enter|the end).*?\] ",
        cwd=stage.root, env=stage.env)
    return [stage.called(part) for part in shown], "".join(shown), status


def test_enter_runs_a_command_and_goes_on(stage):
    called, shown, status = on_stage(stage, [""] * 6, "5")
    assert status == VERIFIED
    assert called == [[], WITH_GPU[4], [], WITH_GPU[5], [], WITH_GPU[6], [], []]
    assert "\x1b[1m  5 of 7 " in shown and "minute 11, planned 11 --" in shown
    assert shown.count("[Enter: step ") == 2
    assert shown.count("[the end; q leaves; step 7, minute ") == 2
    assert (stage.root / "build/talk/step").read_text() == "talk 7"


def test_any_other_command_can_be_typed(stage):
    """Whatever comes of it, the prompt comes again, and the talk's status is the sheet's."""
    typed = ["./6_gating_fused 64 | cat", "what?", "'", "DEMO_COUNT=1 cpu/1_matmul_basic 32", "r",
             "exit 1", "kill -INT $$", "99", "v", "?", "", "q"]
    called, shown, status = on_stage(stage, typed, "6")
    assert status == VERIFIED
    counted = ["DEMO_COUNT=1 cpu/1_matmul_basic 32"]
    assert called == [[], ["./6_gating_fused 64"], [], [], counted, counted, [], [], [], [], [],
                      WITH_GPU[5], []]
    assert "what?: command not found" in shown and "there is no step 99: 1 to 7" in shown


def test_one_can_go_back(stage):
    called, shown, status = on_stage(stage, ["", "r", "b", "b", "7", "", "q"], "5")
    assert (called, status) == ([[], WITH_GPU[4], WITH_GPU[4], [], [], [], WITH_GPU[6], []],
                                VERIFIED)
    assert re.findall(r"  (\d) of 7 ", shown) == [*"5437"]


def test_an_impatient_enter_starts_nothing(stage):
    """Enter while a program runs is no answer to the prompt that comes after it."""
    program = stage.root / "5_gating_unfused"
    program.write_text(program.read_text() + "[ \"$*\" = \"32 --once\" ] || sleep 0.5\n")
    called, _, status = on_stage(stage, ["\n\n", CTRL_D], "5")
    assert (called, status) == ([[], WITH_GPU[4], []], VERIFIED)


def test_an_interrupt_does_not_end_the_talk(stage):
    stage.ends("5_gating_unfused", INTERRUPTED)
    called, _, status = on_stage(stage, [CTRL_C, "", CTRL_C, "", "", CTRL_D], "5")
    assert (called, status) == ([[], [], WITH_GPU[4], [], [], WITH_GPU[5], []], VERIFIED)


def test_a_wrong_result_is_not_forgotten_when_the_talk_is_left(stage):
    stage.ends("5_gating_unfused", WRONG)
    assert on_stage(stage, ["", "q"], "5")[2] == WRONG
