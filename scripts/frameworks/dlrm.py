"""DLRM: the page that its programs share. Two MLPs, 26 lookups, the interaction of 27 vectors."""

import torch.nn.functional as F

from frameworks.verification import ROUNDOFF, SUBNORMAL
from torch_demo import Peer, compiled, graphed, torch

BOTTOM = 4  # layers; those of the top MLP follow


def gather(h, ids, tables):
    """The 27 vectors of each sample: h, and a row of each table."""
    rows = (ids + 1) % tables.shape[1]
    return [h] + [tables[t][rows[:, t]] for t in range(len(tables))]


def outer(vectors):
    z = torch.cat(vectors, 1)
    return (z[:, :, None] * z[:, None, :]).flatten(1)


def folded(vectors):
    """outer(), with z_i z_j and z_j z_i, which are the same, once."""
    z = torch.cat(vectors, 1)
    i, j = torch.triu_indices(z.shape[1], z.shape[1], device=z.device)
    return z[:, i] * z[:, j]


def dot(vectors):
    z = torch.stack(vectors, 1)
    i, j = torch.tril_indices(len(vectors), len(vectors), -1, device=z.device)
    return torch.cat([vectors[0], torch.bmm(z, z.transpose(1, 2))[:, i, j]], 1)


def model_with(interaction, linear):
    def model(h, ids, tables, *layers):
        layers = list(zip(layers[0::2], layers[1::2]))
        for W, b in layers[:BOTTOM]:
            h = F.relu(linear(h, W, b))
        h = interaction(gather(h, ids, tables))
        for W, b in layers[BOTTOM:-1]:
            h = F.relu(linear(h, W, b))
        return torch.sigmoid(linear(h, *layers[-1]))
    return model


# As a model is written: the weights of a linear layer are [out, in].
def parameters_of(x, ids, tables, *layers):
    """W[in, out] as [out, in]."""
    turned = (tensor.t().contiguous() if tensor.dim() == 2 else tensor for tensor in layers)
    return x, ids, tables, *turned


def folded_parameters_of(x, ids, tables, *layers):
    """The top MLP's first weights folded, too: the rows of z_i z_j and z_j z_i, added in fp32."""
    layers, first = list(layers), 2 * BOTTOM
    W = layers[first]
    width = len(tables) * tables.shape[2] + tables.shape[2]
    i, j = torch.triu_indices(width, width, device=W.device)
    sums = W[i * width + j].float()
    sums[i != j] += W[(j * width + i)[i != j]].float()
    layers[first] = sums.to(W.dtype)
    return parameters_of(x, ids, tables, *layers)


def is_dot(problem):
    return problem["shape"].startswith("dot")


def peers(problem):
    interaction = dot if is_dot(problem) else outer
    model = model_with(interaction, F.linear)
    one = compiled(model, parameters_of)
    found = {"eager": Peer(model_with(interaction, lambda h, W, b: torch.addmm(b, h, W))),
             "library": Peer(model, parameters_of), "compile": one,
             "graph comp": graphed(one.run, parameters_of)}
    if not is_dot(problem):
        half = compiled(model_with(folded, F.linear), folded_parameters_of)
        found["folded"] = graphed(half.run, folded_parameters_of)
    return found


def expected(dtype, inputs, rows):
    """As the suite's own bound (dlrm/dlrm.cuh): errors that come with a layer's inputs add up as
    the root of their squares, since the weights give them independent signs; ReLU's slope is at
    most 1, the sigmoid's 1/4. Layers are rounded before the activation and after it, features and
    folded weights once. Where both factors of a term are read as TF32, the sum is smaller by up to
    2^-10 of it, and each term off by as much."""
    u, tiny = ROUNDOFF[dtype], SUBNORMAL[dtype]
    tf32 = 1.0005 * 2.0**-10 if dtype == "tf32" else 0
    x, ids, tables, *layers = inputs
    layers = list(zip(layers[0::2], layers[1::2]))

    def layer(h, squares, W, b):
        """h W + b, the squares of what its inputs' errors do there, and its own error."""
        W, b = W.double(), b.double()
        v, terms = h @ W + b, h.abs() @ W.abs() + b.abs()
        own = len(W)**0.5 * 2.0**-24 * terms + 2 * u * (v.abs() + terms / len(W)**0.5) + tiny
        return v, (squares + (tf32 * h)**2) @ W**2, own + tf32 * (v - b).abs()

    h, squares = x[rows].double(), 0 * x[rows].double()
    for W, b in layers[:BOTTOM]:
        h, carried, own = layer(h, squares, W, b)
        h, squares = h.relu(), carried + own**2
    vectors = gather(h, ids[rows], tables.double())
    errors = [squares] + [0 * vector for vector in vectors[1:]]
    if len(layers[BOTTOM][0]) == sum(vector.shape[1] for vector in vectors)**2:
        z, of_z = torch.cat(vectors, 1), torch.cat(errors, 1)
        h = outer(vectors)
        # Of z_i z_j: the errors of both factors, the rounding of the product and of a folded W.
        squares = (of_z[:, :, None] * z[:, None, :]**2 + z[:, :, None]**2 * of_z[:, None, :])
        squares = squares.flatten(1) + (3 * u * h)**2
    else:
        z, of_z = torch.stack(vectors, 1), torch.stack(errors, 1)
        i, j = torch.tril_indices(len(vectors), len(vectors), -1, device=z.device)
        products = torch.bmm(z, z.transpose(1, 2))[:, i, j]
        terms = torch.bmm(z.abs(), z.abs().transpose(1, 2))[:, i, j]
        of_products = torch.bmm(of_z, z.transpose(1, 2)**2)
        of_products = (of_products + of_products.transpose(1, 2))[:, i, j]
        own = z.shape[2]**0.5 * 2.0**-24 * terms + (2 * u + tf32) * products.abs() + tiny
        of_products = of_products + tf32**2 * torch.bmm(z**2, z.transpose(1, 2)**2)[:, i, j]
        h = torch.cat([vectors[0], products], 1)
        squares = torch.cat([errors[0], of_products + own**2], 1)
    for W, b in layers[BOTTOM:-1]:
        h, carried, own = layer(h, squares, W, b)
        h, squares = h.relu(), carried + own**2
    v, carried, own = layer(h, squares, *layers[-1])
    out = v.sigmoid()
    return out, (8 * carried.sqrt() + own) / 4 + (2.0**-18 + 2 * u) * out + tiny
