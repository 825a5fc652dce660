"""Samples a GPU's clocks, temperature and power with nvidia-smi while programs run on it."""

import contextlib
import subprocess
from datetime import datetime
from statistics import median
from typing import List, NamedTuple, Optional

from shared import command_line

# Why clocks are lower than they could be: bits as in NVML's nvmlClocksEventReasons.
REASONS = {
    0x2: "clocks set", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal", 0x40: "hardware thermal", 0x80: "power brake", 0x100: "display clocks",
}


@contextlib.contextmanager
def sampling(uuid, path):
    """Meanwhile a GPU's samples are added to a file, ten a second."""
    sampler = None
    # Drivers before 535 know the older names alone.
    for names in ("power.draw.instant,clocks_event_reasons.active",
                  "power.draw,clocks_throttle_reasons.active"):
        ask = ["nvidia-smi", "-i", uuid, "--query-gpu=timestamp,utilization.gpu,clocks.sm,"
               f"temperature.gpu,{names}", "--format=csv,noheader,nounits"]
        quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if command_line.output(*ask)[0]:  # within a minute
            with path.open("a") as file:
                sampler = subprocess.Popen([*ask, "-lms", "100"], stdout=file, **quiet)
            break
    try:
        yield
    finally:
        if sampler:
            sampler.terminate()
            sampler.wait()


class Sample(NamedTuple):
    """One line of nvidia-smi, whose fields may be None: it does not know them on every GPU."""

    time: float  # seconds since 1970
    busy: Optional[float]  # percent of the time
    values: List[Optional[float]]  # SM clock in MHz, temperature in degrees C, power in W
    reasons: int


def read(path):
    """The samples in a file: its last line may be cut off."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        fields = [field.strip() for field in line.split(",")]
        try:
            time = datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
            busy, *values = (_number(field, float) for field in fields[1:5])
            reasons = _number(fields[5], lambda text: int(text, 16)) or 0
            found.append(Sample(time, busy, values, reasons))
        except (ValueError, IndexError):
            continue
    return found


def _number(text, convert):
    try:
        return convert(text)
    except ValueError:
        return None  # N/A, [Not Supported], ...


def medians(seen):
    """The medians of some samples as text, and how often something held the clocks back."""
    # A program also starts, and fills memory: what the GPU did meanwhile is no part of its figures.
    seen = [sample for sample in seen if (sample.busy or 0) >= 50] or seen
    texts = []
    for values in zip(*(sample.values for sample in seen)):
        known = [value for value in values if value is not None]
        texts.append(f"{median(known):.0f}" if known else "")
    counts = {name: sum(bool(sample.reasons & bit) for sample in seen)
              for bit, name in REASONS.items()}
    shares = [f"{name} {max(1, round(100 * count / len(seen)))}%"
              for name, count in counts.items() if count]
    return (texts or ["", "", ""]) + ["; ".join(shares)]
