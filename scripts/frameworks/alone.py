"""A page that runs alone: its command line, and the lines that it prints, which are the programs'
(src/demo/report.cu). Every peer is verified, timed, and verified again."""

import argparse
import math
import os
import signal
import sys
import textwrap
from pathlib import Path
from statistics import median, quantiles

from shared import command_line, data_sheets
from shared.command_line import FAILED, OK, WRONG, Stop

WIDTH = 79
NOISY = 0.02  # of the median: the spread of the samples' middle half


def parse():
    """(N, S of --talk) of the page that is run, None where not given; its docstring is --help, and
    says what it takes. None where no page is run."""
    main = sys.modules["__main__"]
    path = Path(getattr(main, "__file__", None) or "").resolve()
    if path.parent != Path(__file__).resolve().parent:
        return None
    signal.signal(signal.SIGINT, lambda *_: os._exit(command_line.INTERRUPTED))  # while it imports
    about = main.__doc__ or ""
    parser = command_line.Parser(prog=path.name, description=about, allow_abbrev=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    multiple = 32 if "N is a multiple of 32" in about else 1
    parser.add_argument("N", nargs="?", type=command_line.sizes(multiple), default=[])
    parser.set_defaults(talk=[])
    if "--talk" in about:
        parser.add_argument("--talk", metavar="S", type=command_line.sizes(16))
    options = parser.parse_args()
    if len(options.N + options.talk) > 1:
        parser.error("one size is expected")
    return [sizes[0] if sizes else None for sizes in (options.N, options.talk)]


def significant(value, digits=4):
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(value)))}f}"


def human_bytes(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.{0 if unit == 'B' else 1}f} {unit}"
        size /= 1024


def say(message, status=OK):
    return command_line.say(Path(sys.argv[0]).name, message, status)


class Timed:
    """A problem whose peers are verified and timed one by one."""

    def __init__(self, page, problem):
        from frameworks.case import PeersOfCase, free_bytes
        self.status = OK  # WRONG or FAILED once something is
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
            self.status = say(f"{name}: {error}", WRONG)
            return [], "WRONG"
        except torch.OutOfMemoryError:
            return [], "skipped: too little memory"
        except RuntimeError as error:
            reason = str(error).partition("\n")[0][:WIDTH - 24]
            if "No available kernel" in reason:  # of PyTorch's, for this GPU
                return [], f"skipped: {reason}"
            if "can't allocate memory" in str(error):  # the CPU's
                return [], "skipped: too little memory"
            self.status = self.status or FAILED
            return [], f"failed: {reason}"


def print_head(page, what):
    from frameworks.case import gpu, versions
    name, _ = gpu() or ("CPU (not a GPU)", "")
    who = f"{Path(page.__file__).name} on {name}:"
    fits = len(who) + 1 + len(what) <= WIDTH
    print(f"{who} {what}" if fits else f"{who}\n" + textwrap.fill(what, WIDTH, initial_indent="  "))
    print("  PyTorch {pytorch}, Triton {triton}".format(**versions()), flush=True)


def compare(page, n, s):
    """The programs' table: a line for each peer of the page."""
    from frameworks.case import COPY, gpu
    n = n or (4096 if gpu() else 256)
    problem = page.problem(n, s) if s else page.problem(n)
    by_traffic, least = problem["memory_bound"], human_bytes(problem["least_bytes"])
    print_head(page, f"{problem['text']}, {problem['dtype']}, "
                     + (f"at least {least} to move" if by_traffic else "fp32 sums"))
    timed = Timed(page, problem)
    by_traffic, limit_ms = by_traffic and gpu(), None  # of a copy, or at the data sheet's peak
    if by_traffic:
        limit_ms = median(timed.samples(COPY)[0])
    elif gpu():
        peak = data_sheets.sheets().get(gpu()[0], {}).get(problem["dtype"])
        limit_ms = peak and problem["flops"] / peak / 1e9

    def show(name, cells, end=""):
        widths = (13, 9, 9, 10) if gpu() else (20, 16)
        text = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths))
        print(f"  {name:{max(map(len, timed.peers))}}{text}  {end}".rstrip(), flush=True)

    show("", ("time", "GB/s" if by_traffic else "TFLOP/s",
              ("of copy" if by_traffic else "of peak") if limit_ms else "", "speed-up"))
    ms, noisy = {}, False
    for name in timed.peers:
        samples, why_not = timed.samples(name)
        if not samples:
            show(name, (), why_not)
            continue
        ms[name] = time = median(samples)
        tflops = problem["flops"] / time / 1e9
        if gpu():
            low, _, high = quantiles(samples, n=4)
            noisy |= high - low > NOISY * time
            percent = 100 * limit_ms / time if limit_ms else 0
            cells = ("~" * (high - low > NOISY * time) + significant(time) + " ms",
                     significant(problem["least_bytes"] / time / 1e6 if by_traffic else tflops),
                     f"{percent:.{1 if percent < 9.95 else 0}f}%" if limit_ms else "",
                     significant(next(iter(ms.values())) / time, 3) + "x" if name != COPY else "")
        else:
            rate = "<0.001" if tflops < 0.001 else significant(tflops, 3)
            cells = (f"(CPU) {significant(time, 3)} ms", f"(CPU) {rate}" if name != COPY else "")
        show(name, cells, "verified")
    if noisy:
        print("  ~ noisy: the middle half of samples spreads over 2%: run again")
    if not gpu():
        print("  (CPU): this computer's time, which says nothing about a GPU's")
    best = [min((name for name in ms if timed.peers[name].rival
                 and timed.peers[name].rounded == rounded), key=ms.get, default=None)
            for rounded in (False, True)]  # in Triton, in PyTorch
    if gpu() and all(best):
        print(f"  {best[0]} against the best of PyTorch: "
              f"{significant(ms[best[1]] / ms[best[0]], 3)}x {best[1]}")
    return timed.status
