"""The exercises: what docs/exercises.md says of each, and what docs/exercises/facts.py knows beside
it. The page's text of an exercise has this form:

    ### NUMBER. TITLE
    the question, and the command to run; then, folded:
    <details><summary>Outcome</summary>

    Still verified ...         what comes of it: that, WRONG or An error, in front of the block
    ```console                 a command, and a line that it prints with the solution, and does not
    $ cpu/1_matmul_basic 64    print without; `...` stands for what differs from run to run
    ... 4096 elements ...
    ```
    </details>
    Solution: [NN-name.patch](exercises/NN-name.patch)

Where there is nothing to change there is no patch, but a number to be given."""

import importlib.util
import re
from typing import NamedTuple, Sequence, Tuple

from shared.command_line import PROJECT

FOLDER = PROJECT / "docs/exercises"


class Exercise(NamedTuple):
    lesson: str  # its section's title
    number: int
    title: str
    text: str

    def _found(self, pattern):
        match = re.search(pattern, self.text, re.MULTILINE)
        return match[1] if match else ""

    question = property(lambda self: self.text.partition("<details>")[0])
    minutes = property(lambda self: int(self._found(r"^\*(\d+) minutes?\b")))
    outcome = property(lambda self: self._found(r"^(Still verified|WRONG|An error)\b"))
    command = property(lambda self: self._found(r"^```console\n\$ (.+)\n.+\n```$").split())
    promise = property(lambda self: self._found(r"^```console\n.+\n(.+)\n```$"))
    patch = property(lambda self: self._found(r"^Solution: \[(\S+\.patch)\]\(exercises/\1\)$"))
    # What the command runs, and the words whose times a GPU's owner is told to compare.
    program = property(lambda self: "".join(
        word[4:] for word in self.command if word.startswith("cpu/")))
    timed = property(lambda self: self._found(
        r"`\./([^`]+)`[^`.]*\bcompare\s+the\s+times").split())


def read():
    """All exercises, in the page's order."""
    sections = re.split(r"^## ", (PROJECT / "docs/exercises.md").read_text("utf-8"), flags=re.M)
    return [Exercise(section.partition("\n")[0], int(number), title, text)
            for section in sections for number, title, text in
            re.findall(r"^### (\d+)\. (.+)\n((?:(?!### ).*\n)*)", section, re.M)]


def facts():
    """{number: what docs/exercises/facts.py holds of it}"""
    spec = importlib.util.spec_from_file_location("facts", FOLDER / "facts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FACTS


def counting(exercise, known):
    """Whether some run of it counts."""
    return any("DEMO_COUNT=1" in run for run in [*exercise.command, *known.runs])


# --- Changes of a text ----------------------------------------------------------------------------


class Patch(NamedTuple):
    """What a patch changes: texts of one file."""

    name: str
    file: str
    edits: Sequence[Tuple[str, str]]  # (old, new)


def read_patch(name):
    """A patch of one file. Each of its hunks is a text and what stands in its place, wherever in
    the file that is."""
    head, *hunks = re.split(r"^@@.*\n", (FOLDER / name).read_text("utf-8"), flags=re.MULTILINE)
    files = re.findall(r"^\+\+\+ b/(\S+)$", head, re.MULTILINE)
    if len(files) != 1 or any(hunk.startswith("diff ") for hunk in hunks):
        raise ValueError(f"{name} changes more or less than one file")

    def side(hunk, signs):
        return "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in signs)

    return Patch(name, files[0], [(side(hunk, " -"), side(hunk, " +")) for hunk in hunks])


def with_edits(whose, edits, text):
    """The text with these edits. One that does not fit, or fits twice, is a ValueError."""
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{whose}: {old!r} occurs {text.count(old)} times, not once")
        text = text.replace(old, new)
    return text
