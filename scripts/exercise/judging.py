"""Whether an answer to an exercise is right."""

import re
from typing import NamedTuple, Sequence

from shared import counts
from shared.command_line import FAILED, OK, WRONG

STATUS = {"Still verified": OK, "verified": OK, "WRONG": WRONG, "An error": FAILED}
WORDS = {OK: "verified", WRONG: "WRONG", FAILED: "an error"}


class Verdict(NamedTuple):
    right: bool
    lines: Sequence[str] = ()  # what was run and counted, and what should have been
    slip: str = ""  # what to say of a wrong answer that is known


def prints(text, pattern):
    """Whether one of its lines has the pattern's text, in which `...` stands for anything. Blanks
    count as one. `not` in front: whether none has."""
    if pattern.startswith("not "):
        return not prints(text, pattern[4:])
    wanted = ".*".join(r"\s+".join(map(re.escape, part.split())) for part in pattern.split("..."))
    return any(re.search(wanted, line) for line in text.splitlines())


def judge(exercise, known, run):
    """Judges what run(words) runs: it returns an exit status and what was printed. An answer is
    right when its runs end as the solution's do, and count the same."""
    right, lines, transcript, counted_run = True, [], "", ""
    wanted = [f"{' '.join(exercise.command)}: {exercise.outcome}", *known.runs]
    for command, _, word in (one.rpartition(": ") for one in wanted):
        ended, printed = run(command.split())
        came = WORDS.get(ended, f"exit status {ended}")
        counted_run = counted_run or printed * ("DEMO_COUNT=1" in command)
        transcript += f"{command}: {came}\n{printed}\n"
        as_wanted = ended == STATUS[word]
        lines.append(f"  {command}: {came}" + (f", not {WORDS[STATUS[word]]}" if not as_wanted else
                                               ", as it should be" * (ended != OK)))
        if len(lines) == 1 or right and not as_wanted:  # what the program says of it
            lines += [f"    {line}" for line in printed.splitlines()
                      if line.startswith(f"{exercise.program}: ")]
        right = right and as_wanted
    for pattern in known.says or [exercise.promise] * (not known.counts):
        if not prints(transcript, pattern):
            a, of = ("no", pattern[4:]) if pattern.startswith("not ") else ("a", pattern)
            lines.append(f"  expected {a} line with: {' '.join(of.split())}")
            right = False
    if known.counts:
        lines.append(f"  {'':32}{'yours':>14}{'the solution':>14}{'as it came':>14}")
    for count in known.counts:
        found = counted(counted_run, count)
        lines.append(f"  {count.row + ', ' + count.column:32}{found:>14,}{count.solved:>14,}"
                     f"{count.before:>14,}")
        right = right and found == count.solved
    slips = [slip.said for slip in known.slips
             if slip.when and all(prints(transcript, pattern) for pattern in slip.when)]
    return Verdict(right, lines, "" if right or not slips else slips[0])


def counted(text, count):
    """What a run counted; 0 where it has no such row."""
    kernels = counts.read("", text)[1]
    row = kernels[0].counts.get(count.row, {}) if kernels else {}
    if count.column == "sectors a request":
        return round(row.get("sectors", 0) / max(row.get("requests", 0), 1), 2)
    return row.get(count.column, 0)


def judge_value(known, value):
    """Judges a number."""
    if abs(value - known.answer) <= known.within + 1e-9:
        return Verdict(True)
    near = [slip.said for slip in known.slips if abs(slip.value - value) <= 0.01 * value]
    return Verdict(False, slip=near[0] if near else "")
