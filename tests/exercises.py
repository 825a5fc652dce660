"""docs/exercises.md: what it says of each exercise, and the programs that its solutions make.

An exercise is a section "### NUMBER. TITLE". In it are

    the question, and the command to run; then, folded:
    <details><summary>Outcome</summary>

    Still verified ...         what comes of it: that, WRONG or An error, in front of the block
    ```console                 a command, and a line that it prints with the solution, and does not
    $ cpu/1_matmul_basic 64    print without; `...` stands for what differs from run to run
    ... 4096 elements ...
    ```
    </details>
    Solution: [NN-name.patch](exercises/NN-name.patch)

Where there is nothing to change there is no patch, and where a GPU must tell, no block."""

import re
from typing import NamedTuple, Sequence, Tuple

from pages import SRC, edited, in_one, in_place, kernel_headers

ROOT = SRC.parent
FOLDER = ROOT / "docs/exercises"


class Patch(NamedTuple):
    """What a patch changes: texts of one file."""

    name: str
    file: str
    edits: Sequence[Tuple[str, str]]  # (old, new), as a mutant's


class Exercise(NamedTuple):
    number: int
    title: str
    text: str

    def _found(self, pattern):
        match = re.search(pattern, self.text, re.MULTILINE)
        return match[1] if match else ""

    @property
    def question(self):
        """What stands in front of the fold."""
        return self.text.partition("<details>")[0]

    @property
    def outcome(self):
        return self._found(r"^(Still verified|WRONG|An error)\b")

    @property
    def command(self):
        return self._found(r"^```console\n\$ (.+)\n.+\n```$").split()

    @property
    def promise(self):
        return self._found(r"^```console\n.+\n(.+)\n```$")

    @property
    def patch(self):
        """The name of its file."""
        return self._found(r"^Solution: \[(\S+\.patch)\]\(exercises/\1\)$")

    @property
    def program(self):
        """The one that the command runs."""
        return "".join(word[4:] for word in self.command if word.startswith("cpu/"))

    @property
    def in_one(self):
        """Its solution's name among those of bundles.all_in_one()."""
        return f"exercise_{self.number}"

    @property
    def counts(self):
        return "DEMO_COUNT=1" in self.command


def read():
    """All exercises, in their order."""
    text = (ROOT / "docs/exercises.md").read_text("utf-8")
    sections = re.findall(r"^### (\d+)\. (.+)\n((?:(?!##).*\n)*)", text, re.MULTILINE)
    return [Exercise(int(number), title, text) for number, title, text in sections]


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


def source(program, patch=None):
    """The text of a program with its kernels' headers in place, patched, where lines keep their
    numbers."""
    parts = []
    headers = kernel_headers(program)
    for name in (*headers, f"{program}.cu"):
        text = (SRC / name).read_text("utf-8")
        if patch and patch.file == f"src/{name}":
            text = edited(patch, text)
        parts.append(f'#line 1 "src/{name}"\n{in_place(text, headers)}')
    return "".join(parts)


def texts(counts):
    """{name: text} of the programs that the tests run, those that count or the others: solutions,
    and where they count also what they solve. (What cpu/NAME is need not be built again.)"""
    solved = [each for each in read() if each.patch and each.counts == counts]
    found = {in_one(each.program): source(each.program) for each in solved if counts}
    found.update({each.in_one: source(each.program, read_patch(each.patch)) for each in solved})
    return found
