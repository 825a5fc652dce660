"""Mutants made by rule, of every line that a rule fits, for scripts/test.sh --all: is there a
barrier, a wait or a bound whose loss no test would notice?"""

import re
from typing import NamedTuple

from pages import SRC, kernel_headers, owner, source_of

RULES = {
    "no_barrier": (r"__sync(?:threads|warp)\(\);", ";"),
    "no_wait": (r"__pipeline_wait_prior\([^;]*\);", ";"),
    "one_short": (r"\b(\w+) < (N_?|K|M|H|rows|cols|size|count|left|tiles)\b", r"\1 + 1 < \2"),
}


class Generated(NamedTuple):
    name: str
    rule: str
    line: str  # as it stands in the source
    text: str  # the program with it changed


def generated(program, programs):
    """All of a program of src/, whose names are `programs`."""
    own = [f"{program}.cu"] + [header for header in kernel_headers(program)
                               if owner(header, programs) == program]
    own_lines = {line for file in own for line in (SRC / file).read_text("utf-8").splitlines()}
    lines = source_of(program).splitlines(keepends=True)
    found = []
    for i, line in enumerate(lines):
        code = line.partition("//")[0]
        if line.rstrip("\n") not in own_lines:
            continue
        for rule, (pattern, replacement) in RULES.items():
            for match in re.finditer(pattern, code):
                changed = line[:match.start()] + match.expand(replacement) + line[match.end():]
                text = "".join(lines[:i] + [changed] + lines[i + 1:])
                found.append(Generated(f"{rule}_{len(found)}", rule, line.strip(), text))
    return found


def texts_of(program, programs):
    """{name: text} of all of them."""
    return {mutant.name: mutant.text for mutant in generated(program, programs)}
