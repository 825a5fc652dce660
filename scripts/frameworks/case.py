"""One case on the GPU: its peers, and their inputs, which stay there over all rounds."""

import contextlib
import functools

import torch
import triton

from frameworks import data, timing, verification
from frameworks.copying import copy_of
from frameworks.verification import Wrong  # noqa: F401

COPY = "copy"


class PeersOfCase:
    """All that computes a problem, by the name of its column. `problem` comes from our program's
    --describe; `page` is that program's file in this folder."""

    def __init__(self, page, problem):
        # Or else torch.compile would compile for any shape once it has seen a second one.
        torch._dynamo.reset()
        torch.backends.cuda.matmul.allow_tf32 = problem["dtype"] == "tf32"
        self.page, self.problem = page, problem
        self.peers = dict(page.peers(problem))
        if problem["memory_bound"]:
            self.peers[COPY] = copy_of(problem["least_bytes"])
        self.prepared = {}  # what a peer's run() takes

    def is_rival(self, name):
        return self.peers[name].rival

    @functools.cached_property
    def inputs(self):
        return data.make_inputs(self.problem, "cuda")

    def verify(self, name):
        """Runs a peer once, which also compiles and tunes it. Raises Wrong."""
        peer = self.peers[name]
        self.prepared[name] = peer.prepare(*self.inputs)
        output = peer.run(*self.prepared[name])
        if isinstance(output, tuple):  # several: the first is verified
            output = output[0]
        if name != COPY:
            verification.check(self.problem, self.inputs, output, self.expected)

    def expected(self, dtype, inputs, rows):
        if hasattr(self.page, "expected"):
            return self.page.expected(dtype, inputs, rows)
        return verification.elementwise(self.page.formula, dtype, inputs, rows)

    def measure(self, name):
        """The milliseconds of a verified peer."""
        return timing.measure(lambda: self.peers[name].run(*self.prepared[name]))


def versions():
    return {"pytorch": torch.__version__, "triton": triton.__version__}


def gpu():
    """(name, compute capability as in "90") of the GPU, or None."""
    if not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(0), "%d%d" % torch.cuda.get_device_capability(0)


def is_alive():
    """Whether the GPU still works for this process: some errors, such as an access outside of
    memory, end that for good."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def free():
    """Gives unused memory back: our program runs next, and needs its own."""
    with contextlib.suppress(RuntimeError):  # a GPU that has failed refuses this, too
        torch.cuda.empty_cache()
