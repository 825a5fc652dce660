"""Draws command lines at random. What a program takes it says itself (--describe)."""

import shlex
from typing import Dict, List, NamedTuple

# How often
ROUND = 1 / 3       # a size is a power of two, times what it must be a multiple of;
GIVEN = 3 / 4       # an option of the program's own is given;
ONE_KERNEL = 1 / 2  # one kernel runs alone;
TIMED = 1 / 6       # kernels are measured, not just launched once;
REPEATED = 1 / 4    # a command line runs twice, and must give the same results.

# Not drawn like the other options. --sweep has sizes of its own, whatever --largest says; --gpus
# asks for GPUs that may not be there, --meet for other processes.
SPECIAL = set("--talk --rows --cols --kernel --seed --device --rounds --hot --energy --once "
              "--verbose --csv --sweep --describe --help --gpus --meet --patience".split())


class Command(NamedTuple):
    words: List[str]
    environment: Dict[str, str] = {}

    def __str__(self):
        """As one types it."""
        return " ".join([f"{name}={value}" for name, value in self.environment.items()] +
                        [shlex.quote(word) for word in self.words])


class Run(NamedTuple):
    """Commands that must all go well, and with the same results."""

    commands: List[Command]
    compared: List[str] = []  # kernels that give the same result each time
    by_tool: bool = False     # whether compute-sanitizer runs the program


# --- Numbers --------------------------------------------------------------------------------------


def log_uniform(random, last):
    """A whole number from 1 to `last`: small ones come as often as large ones."""
    return min(last, int((last + 1) ** random.random()))


def size(random, last, multiple=1):
    """A multiple of `multiple`, if possible up to `last`."""
    count = log_uniform(random, max(1, last // multiple))
    if random.random() < ROUND:
        count = 1 << count.bit_length() - 1
    return count * multiple


# --- Command lines --------------------------------------------------------------------------------


def draw_size(random, about, largest):
    """N; or S of --talk, whose matrices have 512 S^2 elements; or rows and columns of a matrix with
    at most largest^2 elements."""
    kind = random.choice([kind for kind in ("sizes", "talk", "shapes") if about[kind] is not None])
    if kind == "sizes":
        return [str(size(random, largest, about["sizes"]["multiple"]))]
    if kind == "talk":
        return ["--talk", str(size(random, largest // 4, about["talk"]["multiple"]))]
    one = size(random, largest ** 2)
    rows, cols = random.sample([one, size(random, largest ** 2 // one)], 2)
    rows = min(rows, max(1, largest ** 2 // 128))  # a short one takes the simulator as long
    return ["--rows", str(rows), "--cols", str(cols)]


def draw_option(random, declared, largest):
    """An option and its value, or neither."""
    name, kind = declared["name"], declared["kind"]
    if name in SPECIAL or random.random() > GIVEN:
        return []
    if kind == "flag":
        return [name]
    if kind == "choice":
        return [name, random.choice(declared["values"])]
    first, last, multiple = (declared[key] for key in ("first", "last", "multiple"))
    last = min(last, max(first, largest))
    return [name, str(max(first, size(random, last, multiple)))]


def draw_problem(random, about, largest):
    """What a program is to compute: its size, and the options of its own."""
    arguments = draw_size(random, about, largest)
    for declared in about["options"]:
        arguments += draw_option(random, declared, largest)
    return arguments


def draw_seed(random):
    return ["--seed", str(log_uniform(random, 2 ** 63 - 1))]


def draw_manner(random, about, kernels, repeated):
    """How a program is to compute it. `kernels`: those that can."""
    arguments = draw_seed(random)
    if kernels and random.random() < ONE_KERNEL:
        arguments += ["--kernel", random.choice(kernels)]
    # Measuring takes minutes where a run always goes over all sizes.
    if about["sweep"] == "always" or random.random() > TIMED:
        arguments.append("--once")
    else:
        arguments += ["--hot"] if random.random() < 1 / 2 else []
        arguments += ["--rounds", "2"] if random.random() < 1 / 4 else []
    arguments += ["--verbose"] if random.random() < 1 / 4 else []
    arguments += ["--csv"] if repeated or random.random() < 3 / 4 else []
    return arguments


def kernels_of(about):
    """The kernels that compute the problems that a program describes."""
    return sorted({kernel for problem in about["problems"] for kernel in problem["contenders"]})


def repeatable(about):
    """The kernels that give the same bits each time."""
    return [contender["kernel"] for contender in about["contenders"] if contender["repeatable"]]
