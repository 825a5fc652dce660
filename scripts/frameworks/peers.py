"""What a page says of each way to compute its formula."""

from typing import Callable, NamedTuple

import torch


class Peer(NamedTuple):
    run: Callable  # enqueues the work and returns its output
    # What run() takes, made of the inputs beforehand: not timed.
    prepare: Callable = lambda *inputs: inputs
    rival: bool = True  # False: shown, and never the best of theirs


def compiled(formula, prepare=Peer._field_defaults["prepare"], mode=None):
    """The formula as torch.compile makes it, for these very shapes."""
    return Peer(torch.compile(formula, dynamic=False, mode=mode), prepare)
