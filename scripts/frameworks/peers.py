"""What a page says of each way to compute its formula."""

import types
import warnings
from typing import Callable, NamedTuple

import torch


class Peer(NamedTuple):
    run: Callable  # enqueues the work and returns its output
    # What run() takes, made of the inputs beforehand: not timed.
    prepare: Callable = lambda *inputs: inputs
    rival: bool = True  # False: shown, and never the best of theirs


def compiled(formula, prepare=Peer._field_defaults["prepare"]):
    """The formula as torch.compile makes it, for these very shapes."""
    return Peer(torch.compile(formula, dynamic=False), prepare)


def graphed(formula, prepare=Peer._field_defaults["prepare"]):
    """The formula in a CUDA graph, which the host launches as one: `formula` may be compiled."""
    def record(*inputs):
        inputs = prepare(*inputs)
        stream = torch.cuda.Stream()  # what runs first, and allocates, must not be recorded
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                formula(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = formula(*inputs)
        return graph, output, inputs  # which the graph reads: they must stay

    def replay(graph, output, inputs):
        graph.replay()
        return output

    return Peer(replay, record)


def scripted(formula):
    """The formula as torch.jit.script fuses it, for these very shapes."""
    # A copy: for a function that it has seen before, torch.jit.script returns the version that has
    # adapted to earlier shapes.
    copy = types.FunctionType(formula.__code__, formula.__globals__, formula.__name__,
                              formula.__defaults__)
    copy.__annotations__ = formula.__annotations__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.compile has taken its place
        script = torch.jit.script(copy)

    def fuse(*inputs):
        # The first call runs one kernel per operation and notes the types; the second one compiles.
        for _ in range(3):
            script(*inputs)
        if "TensorExprGroup" not in str(torch.jit.last_executed_optimized_graph()):
            raise RuntimeError("torch.jit.script has fused nothing")
        return inputs

    return Peer(script, fuse)
