"""The series of runs that a soak makes: run i of a series depends on the seed and on i alone."""

import json
import random

import drawing
from drawing import Command, Run
from programs import LIMIT_S

TOOLS = {"memcheck": None, "initcheck": None, "synccheck": None,
         # It is about shared memory, and ends some processes that launch a library's kernels.
         "racecheck": ("ours", "record")}  # roles of the kernels that it is for
FOUND = 9  # the exit status that compute-sanitizer shall have where it finds something


def describe(processes, path, arguments):
    """(what a program says of a problem, None), or (None, the command that does not say it)."""
    command = Command([path, *arguments, "--describe"])
    status, out, _ = processes.output(command, LIMIT_S)
    return (json.loads(out), None) if status == 0 else (None, command)


class Anything:
    """Without end: any program, any problem, in any manner. abouts: {path: what --describe says}.
    With `repeat` all runs are launches of all kernels, twice."""

    length = None

    def __init__(self, seed, abouts, largest, simulated, repeat=False):
        self.seed, self.abouts, self.largest, self.simulated = seed, abouts, largest, simulated
        self.repeat = repeat

    def draw(self, processes, i):
        draws = random.Random(f"{self.seed} {i}")
        path = draws.choice(list(self.abouts))
        problem = drawing.draw_problem(draws, self.abouts[path], self.largest)
        about, failing = describe(processes, path, problem)
        if failing:
            return Run([failing])
        repeated = self.repeat or draws.random() < drawing.REPEATED
        manner = ([*drawing.draw_seed(draws), "--once", "--csv"] if self.repeat else
                  drawing.draw_manner(draws, about, drawing.kernels_of(about), repeated))
        words = [path, *problem, *manner]
        commands = []
        for _ in range(1 + repeated):
            order = {"DEMO_SCHEDULE": f"random:{draws.randrange(10 ** 6)}"}
            commands.append(Command(words, order if self.simulated else {}))
        return Run(commands, drawing.repeatable(about))


class EveryKernel:
    """Each kernel once under each tool of compute-sanitizer."""

    def __init__(self, seed, abouts, largest, sanitizer):
        self.seed, self.abouts, self.largest, self.sanitizer = seed, abouts, largest, sanitizer
        self.cases = [(path, contender["kernel"], tool)
                      for path, about in abouts.items() for contender in about["contenders"]
                      for tool, roles in TOOLS.items() if not roles or contender["role"] in roles]
        self.length = len(self.cases)

    def draw(self, processes, i):
        draws = random.Random(f"{self.seed} {i}")
        path, kernel, tool = self.cases[i]
        kernels = []
        while kernel not in kernels:  # until there is a problem that it computes
            problem = drawing.draw_problem(draws, self.abouts[path], self.largest)
            about, failing = describe(processes, path, problem)
            if failing:
                return Run([failing])
            kernels = drawing.kernels_of(about)
        words = [path, *problem, *drawing.draw_seed(draws), "--kernel", kernel, "--once"]
        checked = [self.sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), *words]
        return Run([Command(checked)], by_tool=True)
