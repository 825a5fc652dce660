"""docs/outputs.md: what every program prints. results/outputs/ has it, a folder for each GPU and
one for the simulator, a file for each program; `update_docs.py --record` writes them."""

import re
import subprocess

from shared import command_line, programs
from shared.command_line import OK, PROJECT, SKIPPED, Stop

FOLDER = PROJECT / "results/outputs"
SIMULATOR = "simulator"
SHOWN_GPU = "nvidia-h200"  # whose figures the README shows
GPU_TALK, CPU_SIZE, CPU_TALK = 1024, 128, 16


def commands(name, on_gpu):
    """The arguments that show what a program does: at its usual size, and its other forms."""
    about = programs.describe(programs.latest_build(name))
    size = [] if on_gpu else [str(CPU_SIZE)]
    runs = [size] if about["sizes"] else []
    if about["sweep"] == "always" and not on_gpu:
        runs = [["64"]]
    elif about["talk"]:
        runs.append(["--talk", str(GPU_TALK if on_gpu else CPU_TALK)])
    if about["sweep"] == "on request":
        runs.append(["--sweep"])
    return runs


def without_times(text):
    """What the simulator prints, without the times, which are this CPU's and change."""
    text = re.sub(r" +\(CPU\) [<.\d]+( ms)?", lambda figure: (
        "(CPU) ..." + (figure[1] or "")).rjust(len(figure[0])), text)
    sweep = re.compile(r"^(  \S+ (?:x|=) \S+) .* ok$", re.MULTILINE)
    text = sweep.sub(r"\1 ... ok", text)
    return re.sub(r"(device|back) +\(CPU\)", r"\1 (CPU)", text)  # of any width


def printed(name, on_gpu):
    """What a program prints, below each of its commands; None where nothing here can run it."""
    path = (PROJECT if on_gpu else PROJECT / "cpu") / name
    shown = f"./{name}" if on_gpu else f"cpu/{name}"
    parts = []
    for arguments in commands(name, on_gpu):
        done = subprocess.run([str(path), *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, cwd=PROJECT)
        if on_gpu and done.returncode == SKIPPED:
            return None
        if done.returncode != OK:
            raise Stop(f"{' '.join([shown, *arguments])} ended with {done.returncode}")
        text = (done.stdout if on_gpu else without_times(done.stdout)) + done.stderr
        parts.append(" ".join(["$", shown, *arguments]) + "\n" + text)
    return "\n".join(parts)


def record():
    """Keeps what the programs that are built print, on the GPU of this machine and on the
    simulator."""
    for on_gpu in (True, False):
        for name in programs.listed():
            path = (PROJECT if on_gpu else PROJECT / "cpu") / name
            text = printed(name, on_gpu) if path.exists() else None
            if text:
                gpu = re.search(r" on (.*?)(:|$)", text, re.MULTILINE)[1] if on_gpu else SIMULATOR
                folder = FOLDER / command_line.file_stem(gpu)
                folder.mkdir(parents=True, exist_ok=True)
                command_line.write_text(folder / f"{name}.txt", text)


def terminal():
    """What a talk shows, on the GPU whose figures the README shows: the first lesson, and the last
    command of the last lesson that has the talk's shape."""
    files = [FOLDER / SHOWN_GPU / f"{name}.txt" for name in programs.lessons()]
    shown = [("\n" + file.read_text(encoding="utf-8")).split("\n$ ") for file in files
             if file.exists()]
    talk = [blocks[-1] for blocks in shown if "--talk" in blocks[-1].partition("\n")[0]]
    return "\n\n".join("    $ " + block.rstrip().replace("\n", "\n    ")
                       for block in (shown[0][1], talk[-1]))


def python():
    """What the Python files that the talk shows print."""
    text = (FOLDER / SHOWN_GPU / "python.txt").read_text(encoding="utf-8")
    return "    " + text.rstrip().replace("\n", "\n    ")


def shown(name):
    """What one program prints on a GPU: on the README's, or else on the first that ran it."""
    files = sorted((file for file in FOLDER.glob(f"*/{name}.txt")
                    if file.parent.name != SIMULATOR),
                   key=lambda file: (file.parent.name != SHOWN_GPU, file))
    return f"```\n{files[0].read_text(encoding='utf-8')}```" if files else "Not recorded yet."


def document():
    """A section for each program, with all of its recorded outputs: GPUs first."""
    folders = sorted((path for path in FOLDER.iterdir() if path.is_dir()),
                     key=lambda path: (path.name == SIMULATOR, path.name))
    sections = []
    for name in programs.listed():
        files = [folder / f"{name}.txt" for folder in folders]
        blocks = [file.read_text(encoding="utf-8").rstrip("\n") for file in files if file.exists()]
        if blocks:
            sections.append("\n\n".join([f"## {name}", *(f"```\n{text}\n```" for text in blocks)]))
    return "\n\n".join(sections)
