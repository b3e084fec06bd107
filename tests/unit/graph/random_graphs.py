"""Random operator graphs of bounded values: convolutions with odd channels, groups and strides; elementwise chains that share
values; reductions, row operators, views, several outputs. A seed gives the same graph everywhere."""

from __future__ import annotations

import random

import numpy as np

from tec.errors import ImportModelError
from tec.graph import Graph
from tec.ops.dims import Dim, evaluate

UNARY = ["relu", "tanh", "sigmoid", "neg", "abs", "square", "identity", "silu"]


def conv_attrs(stride=1, dilation=1, before=0, after=0, groups=1):
    return {
        "strides": (stride,) * 2, "dilations": (dilation,) * 2, "before": (before,) * 2, "after": (after,) * 2, "groups": groups,
    }  # fmt: skip


def constant(g, rng, shape, scale=1.0):
    return g.constant((rng.normal(size=shape) * scale).astype("f"), "c")


def _conv(r, rng, g, x):
    c = x.shape[1]
    groups = r.choice([1, 1, 1, c] + [n for n in (2, 3) if c % n == 0])
    out = groups * r.choice([1, 2, 3]) if groups > 1 else r.choice([1, 3, 5, 8, 17])
    if groups == c and r.random() < 0.7:
        out = c
    k, d = r.choice([1, 1, 3, 3, 2]), r.choice([1, 1, 2])
    w = constant(g, rng, (out, c // groups, k, k), 1 / (k * (c // groups) ** 0.5))
    return g.add("conv", [x, w], conv_attrs(r.choice([1, 1, 2]), d, r.choice([0, 1]), r.choice([0, 1, 2]), groups))


def _pool(r, rng, g, x):
    k, s = r.choice([2, 3]), r.choice([1, 2])
    space = tuple((n - k) // s + 1 for n in x.shape[2:])
    attrs = {k_: v for k_, v in conv_attrs(s).items() if k_ != "groups"}
    return g.add("max_pool", [x], {**attrs, "kernel": (k, k), "out_space": space})


def _step(r, rng, g, values):
    x = r.choice(values[-4:])
    how = r.randrange(14)
    if how < 3:
        return g.add(r.choice(UNARY), [x])
    if how == 3:
        return g.add(r.choice(["add", "multiply"]), [x, constant(g, rng, (x.shape[1], 1, 1))])
    if how == 4:
        other = r.choice([v for v in values if v.shape == x.shape])
        return g.add(r.choice(["add", "multiply", "subtract", "maximum"]), [x, other])
    if how == 5:
        return g.add("concat", [x, r.choice([v for v in values if v.shape == x.shape])], {"axis": 1})
    if how == 6:
        return _pool(r, rng, g, x)
    if how == 7:
        return g.add("softmax", [x], {"axes": (r.choice([1, 3]),)})
    if how == 8:
        return g.add("reduce_mean", [x], {"axes": (2, 3), "keepdims": True})
    if how == 9:
        (t,) = g.add("transpose", [x], {"perm": (0, 1, 3, 2)})
        return g.add(r.choice(UNARY), [t])
    if how == 10:
        n, c, h, w = x.shape
        return g.add("reshape", [x], {"shape": r.choice([(n, c, w, h), (n, c, h * w, 1), (n, 1, c * h, w)])})
    return _conv(r, rng, g, x)


def random_graph(seed, steps=14, names=()):
    """A graph of about `steps` nodes with one input "x" and one to four outputs. Dimensions in `names`, of "nchw", are symbolic."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    g = Graph(f"random{seed}")
    shape = (r.choice([1, 2]), r.choice([1, 3, 4, 5, 8, 17]), r.choice([5, 7, 9]), r.choice([6, 7]))
    values = [g.input("x", "float32", [Dim(name) if name in names else n for name, n in zip("nchw", shape)])]
    while len(g.nodes) < steps:
        try:
            made = _step(r, rng, g, values)
        except (ImportModelError, IndexError):
            continue  # a window larger than what is left
        values += [v for v in made if at_seven(v.type.size) < 20000]
    unread = [v for v in values[1:] if v not in g.users()]
    g.set_outputs(unread[-3:] + [r.choice(values[1:])] * (r.random() < 0.5))
    g.check()
    return g


def at_seven(size):
    """A size with 7 for its names."""
    return evaluate(size, dict.fromkeys("nchw", 7))


def feed(g, seed=0):
    rng = np.random.default_rng(seed)
    return {v.name: rng.normal(size=v.shape).astype(v.dtype) for v in g.inputs}
