"""One case: its peers, and their inputs, which stay on the GPU over all rounds."""

import contextlib
import functools
import os
import statistics
from unittest import mock

from frameworks import data, timing, verification
from frameworks.verification import Wrong
from torch_demo import DEVICE, INTERPRETED, Peer, do_bench, launch, tl, torch, triton, tuned

COPY = "copy"


class PeersOfCase:
    """All that computes a problem, by the name of its column. `problem` comes from our program's
    --describe, or from the page; `page` is that program's file in this folder."""

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
        return data.make_inputs(self.problem, DEVICE)

    def verify(self, name):
        """Runs a peer once, the first time also to compile and tune it. Raises Wrong."""
        peer = self.peers[name]
        if name not in self.prepared:
            self.prepared[name] = peer.prepare(*self.inputs)
            peer.run(*self.prepared[name])
        with nan_where_nothing_is_written():
            output = peer.run(*self.prepared[name])
        if isinstance(output, tuple):  # several: the first is verified
            output = output[0]
        if name != COPY:
            how = {} if peer.rounded else {"rounded": False}
            verification.check(self.problem, self.inputs, output,
                               functools.partial(self.expected, **how))

    def expected(self, dtype, inputs, rows, **how):
        if hasattr(self.page, "expected"):
            return self.page.expected(dtype, inputs, rows, **how)
        return verification.elementwise(self.page.formula, dtype, inputs, rows)

    def samples(self, name):
        """The milliseconds of each launch of a verified peer."""
        return timing.samples(lambda: self.peers[name].run(*self.prepared[name]), DEVICE)

    def measure(self, name):
        """Their median."""
        return statistics.median(self.samples(name))


@contextlib.contextmanager
def nan_where_nothing_is_written():
    """Outputs that Python allocates begin as NaN: an earlier result that lies in this memory must
    not pass for a kernel's own."""
    def filled(allocate):
        def allocate_filled(*arguments, **options):
            tensor = allocate(*arguments, **options)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor
        return mock.patch.object(torch, allocate.__name__, allocate_filled)

    with filled(torch.empty), filled(torch.empty_like):
        yield


# --- A copy, the yardstick where memory is the limit ---


@tuned(["size"], *[({"BLOCK": 1024 * k}, 4 * k, 1) for k in (1, 2, 4)])
@triton.jit
def copy(source, target, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < size), mask=at < size)


def by_pytorch(source, target):
    target.copy_(source)


def by_triton(source, target):
    launch(copy, lambda tile: (triton.cdiv(source.numel(), tile["BLOCK"]),),
           source, target, source.numel())


def copy_of(traffic):
    """A peer that copies: it reads half of `traffic` bytes and writes the other half. It is
    PyTorch's or Triton's, whichever is faster here."""

    def prepare(*_):
        words = traffic // 2 // 4
        source = torch.randint(-1 << 31, 1 << 31, (words,), dtype=torch.int32, device=DEVICE)
        ways = []
        for way in by_pytorch, by_triton:
            target = torch.zeros_like(source)
            way(source, target)
            if not torch.equal(source, target):
                raise Wrong("a copy differs from its source")
            ms = 0 if INTERPRETED else do_bench(lambda: way(source, target), return_mode="median")
            ways.append((ms, way))
        fastest = min(ways, key=lambda timed: timed[0])[1]
        return fastest, source, target

    return Peer(lambda way, source, target: way(source, target), prepare, rival=False)


# --- The GPU, and what runs it ---


def versions():
    return {"pytorch": torch.__version__, "triton": triton.__version__}


def gpu():
    """(name, compute capability as in "90") of the GPU, or None."""
    if INTERPRETED or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(0), "%d%d" % torch.cuda.get_device_capability(0)


def free_bytes():
    """Of the memory that the tensors lie in."""
    if DEVICE == "cuda":
        return torch.cuda.mem_get_info()[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
