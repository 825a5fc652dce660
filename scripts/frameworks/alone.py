"""A page that runs alone: its command line, and the lines that it prints, which are the programs'
(src/demo/report.cu). Every peer is verified, timed, and verified again."""

import argparse
import contextlib
import sys
import textwrap
from pathlib import Path
from statistics import median, quantiles

from shared import command_line, data_sheets
from shared.command_line import FAILED, OK, SKIPPED, WRONG, Stop

WIDTH = 79
NOISY = 0.02  # of the median: the spread of the samples' middle half


def parse():
    """(N, S of --talk) of the page that is run, None where not given; its docstring is --help, and
    says what it takes. None where no page is run."""
    main = sys.modules["__main__"]
    path = Path(getattr(main, "__file__", None) or "").resolve()
    if path.parent != Path(__file__).resolve().parent:
        return None
    parser = command_line.Parser(prog=path.name, description=main.__doc__, allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    multiple = 32 if "N is a multiple of 32" in main.__doc__ else 1
    parser.add_argument("N", nargs="?", type=size(multiple))
    parser.set_defaults(talk=None)
    if "--talk" in main.__doc__:
        parser.add_argument("--talk", metavar="S", type=size(16), help="the talk's shape instead")
    options = parser.parse_args()
    if options.N and options.talk:
        parser.error("--talk S takes the place of N")
    return options.N, options.talk


def size(multiple):
    """A parser of one size."""
    def parse_one(text):
        several = command_line.sizes(multiple)(text)
        if len(several) > 1:
            raise argparse.ArgumentTypeError(f"'{text}': one size is expected")
        return several[0]
    return parse_one


@contextlib.contextmanager
def needing_both():
    """Where PyTorch or Triton is missing, a page that runs alone ends with one line."""
    try:
        yield
    except (ImportError, OSError) as error:
        if parse() is None:
            raise
        sys.exit(command_line.say(Path(sys.argv[0]).name, f"PyTorch and Triton are needed: "
                                  f"pip install torch triton ({error})", SKIPPED))


def run(page, sizes, work):
    """Ends with the exit status of work(page, N, S)."""
    @command_line.reporting(Path(page.__file__).name)
    def main(_):
        from torch_demo import INTERPRETED, torch
        if not INTERPRETED and not torch.cuda.is_available():
            raise Stop("no NVIDIA GPU, and TRITON_INTERPRET=0 rules out the interpreter", SKIPPED)
        return work(page, *sizes)

    command_line.run(main)


# --- Figures, as in src/demo/numbers.cpp ---


def significant(value, digits=4):
    decimals = digits - 1
    small, large = value, value
    while 0 < small < 1 and decimals < 9:
        small, decimals = 10 * small, decimals + 1
    while large >= 10 and decimals > 0:
        large, decimals = large / 10, decimals - 1
    return f"{value:.{decimals}f}"


def percent(fraction):
    return f"{100 * fraction:.{1 if fraction < 0.0995 else 0}f}%"


def human_bytes(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.{0 if unit == 'B' else 1}f} {unit}"
        size /= 1024


# --- One problem ---


class Timed:
    """A problem whose peers are verified and timed one by one."""

    def __init__(self, page, problem):
        from frameworks.case import PeersOfCase, free_bytes
        self.problem, self.status = problem, OK  # WRONG or FAILED once something is
        if problem["least_bytes"] > free_bytes():
            raise Stop(f"{problem['text']} needs {human_bytes(problem['least_bytes'])}, and "
                       f"{human_bytes(free_bytes())} are free")
        self.case = PeersOfCase(page, problem)
        self.peers = self.case.peers

    def samples(self, name):
        """(milliseconds of each launch, "") of a peer, or ([], why there are none)."""
        from frameworks.case import Wrong, torch
        if self.peers[name].why_not:
            return [], f"skipped: {self.peers[name].why_not}"
        try:
            self.case.verify(name)
            found = self.case.samples(name)
            self.case.verify(name)
            return found, ""
        except Wrong as error:
            self.status = command_line.say(Path(sys.argv[0]).name, f"{name}: {error}", WRONG)
            return [], "WRONG"
        except torch.OutOfMemoryError:
            return [], "skipped: too little memory"
        except RuntimeError as error:
            reason = str(error).partition("\n")[0][:WIDTH - 24]
            if "No available kernel" in reason:  # of PyTorch's, for this GPU
                return [], f"skipped: {reason}"
            self.status = self.status or FAILED
            return [], f"failed: {reason}"


def print_head(page, what):
    from frameworks.case import gpu, versions
    from torch_demo import INTERPRETED
    who = f"{Path(page.__file__).name} on {'CPU (not a GPU)' if INTERPRETED else gpu()[0]}:"
    fits = len(who) + 1 + len(what) <= WIDTH
    print(f"{who} {what}" if fits else f"{who}\n" + textwrap.fill(what, WIDTH, initial_indent="  "))
    print("  PyTorch {pytorch}, Triton {triton}".format(**versions()), flush=True)


def compare(page, n, s):
    """The programs' table: a line for each peer of the page."""
    from frameworks.case import COPY, gpu
    from torch_demo import INTERPRETED
    n = n or (256 if INTERPRETED else 4096)
    problem = page.problem(n, s) if s else page.problem(n)
    by_traffic = problem["memory_bound"] and not INTERPRETED
    print_head(page, f"{problem['text']}, {problem['dtype']}, " + (
        f"at least {human_bytes(problem['least_bytes'])} to move" if problem["memory_bound"]
        else "fp32 sums"))
    case = Timed(page, problem)
    peak = None if INTERPRETED else data_sheets.sheets().get(gpu()[0], {}).get(problem["dtype"])
    copy_ms = median(case.samples(COPY)[0]) if by_traffic else None  # first: others need it
    width = max(map(len, case.peers))
    head = f"{'time':>20}{'TFLOP/s':>16}" if INTERPRETED else (
        f"{'time':>13}{'GB/s' if by_traffic else 'TFLOP/s':>9}"
        + f"{'of copy' if copy_ms else 'of peak':>9}" * bool(copy_ms or peak) + f"{'speed-up':>10}")
    print(f"  {'':{width}}{head}")
    ms, noisy = {}, False
    for name in case.peers:
        samples, why_not = case.samples(name)
        if not samples:
            print(f"  {name:{width}}  {why_not}", flush=True)
            continue
        ms[name] = time = median(samples)
        tflops, figure = problem["flops"] / time / 1e9, ""
        if INTERPRETED:
            if name != COPY:
                figure = f"(CPU) {'<0.001' if tflops < 0.001 else significant(tflops, 3)}"
            line = f"{f'(CPU) {significant(time, 3)} ms':>20}{figure:>16}"
        else:
            low, _, high = quantiles(samples, n=4)
            uneven = high - low > NOISY * time
            noisy |= uneven
            rate = problem["least_bytes"] / time / 1e6 if by_traffic else tflops
            line = f"{'~' * uneven + significant(time) + ' ms':>13}{significant(rate):>9}"
            if copy_ms or peak:
                line += f"{percent(copy_ms / time if copy_ms else tflops / peak):>9}"
            if name != COPY:
                figure = significant(next(iter(ms.values())) / time, 3) + "x"
            line += f"{figure:>10}"
        print(f"  {name:{width}}{line}  verified", flush=True)
    if noisy:
        print("  ~ noisy: the middle half of samples spreads over 2%: run again")
    if INTERPRETED:
        print("  (CPU): this computer's time, which says nothing about a GPU's")
    else:
        print_best(case, ms)
    return case.status


def print_best(case, ms):
    """How the best kernel in Triton compares with the best of PyTorch."""
    both = [[name for name in ms if case.peers[name].rival and case.peers[name].rounded == rounded]
            for rounded in (False, True)]
    if all(both):
        ours, theirs = (min(names, key=ms.get) for names in both)
        print(f"  {ours} against the best of PyTorch: "
              f"{significant(ms[theirs] / ms[ours], 3)}x {theirs}")
