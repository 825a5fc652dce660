"""The inputs of a problem, with the values that our program gives them."""

import functools
import math

import torch

from frameworks.splitmix64 import MASK, random_bits, random_steps, shifted_right

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16,
          "bf16": torch.bfloat16, "uint32": torch.int64}  # PyTorch takes no uint32 as an index
OFFSET = "offset by rows"  # even rows lie around 100, odd ones around -100
CHUNK = 1 << 24  # elements made at once: their 64-bit integers take 128 MiB


# --- A problem as a page describes it, for where no program does: what --describe says of it ---


def kind(scale=0.0, offset=0.0, step=0, peak=0.0):
    """demo::HardRow."""
    return {"scale": scale, "offset": offset, "step": step, "peak": peak}


def hard_operand(large):
    """demo::hard_operand(1, large)."""
    return [kind(offset=0.75), kind(0.5, -0.5), kind(2.0**-15), kind(peak=1), kind(large)]


# demo::kHardRows<float>, and attention's kHardQueries.
HARD_ROWS = [kind(80), kind(1, peak=120), kind(1, offset=-110),
             kind(offset=float(torch.tensor(0.7))), kind(2.0**-8), kind(2.0**-127), kind(12),
             kind(200, step=200)]
HARD_QUERIES = [kind(offset=0.75), kind(4, -4), kind(2.0**-15), kind(peak=1), kind(32), kind(1, 30)]


def uniform(*shape, scale=1, offset=0, then=None, hard=None):
    """An input, uniform within `scale` of `offset`. `hard`: the kinds of its hard rows."""
    return {"shape": list(shape), "fill": {"kind": "uniform", "low": offset - scale,
                                           "high": offset + scale, "then": then, "hard": hard}}


def describe(text, inputs, output, flops, n, shape="square", dtype="fp16", memory_bound=False,
             parameters=()):
    """What `inputs`, {name: uniform()}, and the shape of the output make. Input i has seed i, from
    1 on, and hard rows lie where demo::HardRows has them."""
    for seed, (name, array) in enumerate(inputs.items(), 1):
        array.update(name=name, dtype=dtype)
        fill, rows = array["fill"], math.prod(array["shape"][:-1])
        fill["seed"] = seed
        if fill["hard"]:
            every, first = 4 if rows < 128 else 2, seed % len(fill["hard"])
            kinds = fill["hard"][first:] + fill["hard"][:first]
            last_strip = range(max(32, (rows - 1) // 32 * 32), rows)
            fill["hard"] = {"rows": [row for row in (*range(min(32, rows)), *last_strip)
                                     if row % every == every - 1], "every": every, "kinds": kinds}
    elements = sum(math.prod(each) for each in [*(a["shape"] for a in inputs.values()), output])
    return {"text": text, "shape": shape, "n": n, "dtype": dtype, "flops": flops,
            "least_bytes": elements * (4 if dtype == "fp32" else 2), "memory_bound": memory_bound,
            "inputs": list(inputs.values()), "outputs": [{"shape": list(output)}],
            "parameters": dict(parameters)}


# --- The numbers ---


def make_inputs(problem, device):
    """The tensors that `inputs` of a program's --describe lists, in that order, then the numbers of
    `parameters`."""
    tensors = (make_input(described, device) for described in problem["inputs"])
    return (*tensors, *problem["parameters"].values())


def make_input(described, device):
    fill = described["fill"]
    if fill["kind"] == "ids":
        return make_ids(described, device)
    if fill["kind"] != "uniform" or fill["then"] not in (None, OFFSET, *AFTERWARDS):
        raise ValueError(f"no way to fill {described['name']} is known: {fill}")
    data = torch.empty(described["shape"], dtype=DTYPES[described["dtype"]], device=device)
    scale, offset = (fill["high"] - fill["low"]) / 2, (fill["high"] + fill["low"]) / 2
    flat, columns = data.view(-1), data.shape[-1]
    for first in range(0, flat.numel(), CHUNK):
        part = flat[first:first + CHUNK]
        index = torch.arange(first, first + part.numel(), dtype=torch.int64, device=device)
        # In double what ours computes by fmaf() is exact.
        values = random_steps(fill["seed"], index).double() * (2.0**-23 * scale) + offset
        if fill["then"] == OFFSET:
            values += 100 - 200 * (index // columns % 2)
        part.copy_(values.float())
    if fill["hard"]:
        make_hard(data, fill["seed"], **fill["hard"])
    if fill["then"] in AFTERWARDS:
        AFTERWARDS[fill["then"]](data)
    return data


def make_hard(data, seed, rows, every, kinds):
    """demo::HardRows."""
    columns = data.shape[-1]
    for row in rows:
        kind = kinds[row // every % len(kinds)]
        index = torch.arange(row * columns, (row + 1) * columns, device=data.device)
        u = random_steps(seed, index).double() * 2.0**-23
        values = (u * kind["scale"] + kind["offset"]).float()
        if kind["step"]:
            values = torch.round(values / kind["step"]) * kind["step"]
        if kind["peak"]:
            values[(int(random_bits(seed, torch.tensor(~row))) & MASK) % columns] = kind["peak"]
        data.view(-1, columns)[row] = values


def make_ids(described, device):
    """demo::random_id(), or demo::zipf_id(), as int64."""
    count = math.prod(described["shape"])
    index = torch.arange(count, dtype=torch.int64, device=device)
    ids = shifted_right(random_bits(described["fill"]["seed"], index), 32)
    if described["fill"]["then"] == "zipf":
        y = 1 / (1 - ids.double() * 2.0**-32 * (1405349 * 2.0**-21))
        y4 = (y * y) * (y * y)
        ids = ((y4 * y4) * (y4 * y4) * y4).long() - 1
    return ids.view(described["shape"])


def round_to_tf32(data):
    """Rounds to the 10 bits of mantissa that TF32 has, so that TF32 loses nothing of an input."""
    data.view(torch.int32).add_(0x1000).bitwise_and_(~0x1FFF)


def count(data, start=0):
    """Every 16th column of an MLP counts, in odd multiples of 1/32."""
    data[:, ::16] = start + (torch.floor(16 * data[:, ::16].float()) + 0.5) / 16


def pass_on(weights):
    """And passes itself on alone."""
    weights[:, ::16] = weights[:, :, ::16] = 0
    weights.diagonal(dim1=1, dim2=2)[:, ::16] = 1


AFTERWARDS = {"rounded to TF32": round_to_tf32, "counting": count,
              "counting from 32": functools.partial(count, start=32), "passing on": pass_on}
