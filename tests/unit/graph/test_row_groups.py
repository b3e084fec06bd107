"""On a GPU sums of rows and the work on the same rows are one function, which reads them once."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.builders.builder import Builder
from tec.graph.optimize import optimize
from tec.graph.passes.fuse import fuse
from tec.target import Target
from tests import seeds

TARGET = Target("rocm -mcpu=gfx942")


def total(b, op, x, keepdims=True):
    return b.op(op, x, axes=(x.ndim - 1,), keepdims=keepdims)


def over_norm(b, x, y):
    return b.op("divide", x, b.op("maximum", b.op("sqrt", total(b, "reduce_sum_square", x)), b.like(1e-3, x)))


def between_extremes(b, x, y):
    low, high = total(b, "reduce_min", x), total(b, "reduce_max", x)
    return b.op("divide", b.op("subtract", x, low), b.op("add", b.op("subtract", high, low), b.like(1e-3, x)))


def cosine(b, x, y):
    scaled = [over_norm(b, v, None) for v in (x, y)]
    return total(b, "reduce_sum", b.op("multiply", *scaled), keepdims=False)


def standard(b, x, y):
    d = b.op("subtract", x, total(b, "reduce_mean", x))
    return b.op("divide", d, b.op("sqrt", b.op("add", total(b, "reduce_mean", b.op("square", d)), b.like(1e-3, x))))


def entropy(b, x, y):
    p, log = (b.op(op, x, axes=(x.ndim - 1,)) for op in ("softmax", "log_softmax"))
    return b.op("neg", total(b, "reduce_sum", b.op("multiply", p, log), keepdims=False))


def log_of(x):
    return x - np.logaddexp.reduce(x, -1, keepdims=True)


def norms(x):
    return np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-3)


MADE = {
    over_norm: lambda x, y: x / norms(x),
    between_extremes: lambda x, y: (x - x.min(-1, keepdims=True)) / (np.ptp(x, -1, keepdims=True) + 1e-3),
    cosine: lambda x, y: (x / norms(x) * (y / norms(y))).sum(-1),
    entropy: lambda x, y: -(np.exp(log_of(x)) * log_of(x)).sum(-1),
    standard: lambda x, y: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3),
}


def graph(make, *shape):
    g = Graph()
    b = Builder(g)
    x, y = (g.input(n, "float32", shape) for n in "xy")
    out = make(b, x, y)
    g.set_outputs(out if isinstance(out, list) else [out])
    return g


def groups(g, target=TARGET):
    with target:
        return [group for group in fuse(optimize(g, target)) if not group.is_alias]


@pytest.mark.parametrize("make", MADE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", seeds.some(1))
def test_one_function_with_the_values(make, seed):
    rng = random.Random(f"{seed} {make.__name__}")
    shape = (*rng.choice([(), (3,)]), rng.randint(2, 40), rng.choice([1, 7, 64, 130, 999]))
    net = tec.compile(graph(make, *shape), TARGET)
    assert len(net.plan.steps) == 1
    x, y = (np.random.default_rng(seed + k).standard_normal(shape).astype("f4") for k in range(2))
    (got,) = net.executor(tec.rocm_emu("gfx942")).run({n["name"]: {"x": x, "y": y}[n["name"]] for n in net.inputs})
    np.testing.assert_allclose(got.numpy(), MADE[make](x.astype("f8"), y.astype("f8")), rtol=2e-4, atol=2e-5)


def norm_too(b, x, y):
    norm = total(b, "reduce_sum_square", x)
    return [b.op("divide", x, norm), norm]


def of_columns(b, x, y):
    return b.op("divide", x, b.op("reduce_sum_square", x, axes=(0,), keepdims=True))


def of_another(b, x, y):
    return b.op("divide", x, total(b, "reduce_sum_square", y))


@pytest.mark.parametrize("make", [norm_too, of_columns, of_another], ids=lambda f: f.__name__)
def test_others_stay_apart(make):
    assert len(groups(graph(make, 500, 320))) == 2


def test_a_work_group_keeps_its_row():
    assert len(groups(graph(over_norm, 500, 30_000))) == 1
    assert len(groups(graph(over_norm, 500, 300_000))) == 2
    assert len(groups(graph(over_norm, 5, 30_000))) == 2  # few rows go in parts
    assert len(groups(graph(over_norm, 5, 3_000))) == 1
    assert len(groups(graph(over_norm, 500, 300), Target("llvm"))) == 2
