"""Attention as exporters write it is found, and means the same."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.passes.attention import find_attention
from tec.graph.passes.dead_code import dead_code

B, N, S, T, H = 2, 4, 6, 6, 8


class Net:
    """A graph under construction, with what exporters use."""

    def __init__(self, dtype="float32"):
        self.g, self.dtype = Graph(), dtype

    def x(self, name, *shape, dtype=None):
        return self.g.input(name, dtype or self.dtype, shape)

    def c(self, value, dtype=np.float32):
        return self.g.constant(np.asarray(value, dtype))

    def __getattr__(self, op):
        return lambda *inputs, **attrs: self.g.add(op, list(inputs), attrs)[0]

    def done(self, *outs):
        self.g.set_outputs(outs)
        return self.g


def heads(n, x, *perm):
    return n.transpose(n.reshape(x, shape=(B, x.shape[1], N, H)), perm=perm)


def bert():
    n = Net()
    q, k, v = (n.x(c, B, S, N * H) for c in "qkv")
    x = n.divide(n.matmul(heads(n, q, 0, 2, 1, 3), heads(n, k, 0, 2, 3, 1)), n.c(2.5))
    x = n.softmax(n.add(x, n.x("mask", B, 1, 1, T)), axes=(-1,))
    y = n.transpose(n.matmul(x, heads(n, v, 0, 2, 1, 3)), perm=(0, 2, 1, 3))
    return n.done(n.reshape(y, shape=(B, S, N * H))), {"extras": ("bias",)}


def causal_constant():
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    mask = np.where(np.tril(np.ones((S, S), bool)), 0, -3.4e38)[None, None]
    root = n.c(0.7)
    x = n.matmul(n.multiply(q, root), n.multiply(n.transpose(k, perm=(0, 1, 3, 2)), root))
    return n.done(n.matmul(n.softmax(n.add(x, n.c(mask)), axes=(3,)), v)), {"right": 0, "offset": 0, "extras": ()}


def causal_low(low, spelled):
    """Places hidden by a number that is low for 16 bits, but in which float32 scores do not sink."""
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    keep = np.tril(np.ones((1, 1, S, S), bool))
    x = n.matmul(q, k, transpose_b=True)
    if spelled == "sum":
        x = n.add(x, n.c(np.where(keep, 0, low)))
    elif spelled == "choice":
        x = n.where(n.c(keep, bool), x, n.c(low))
    else:
        x = n.add(
            n.multiply(x, n.c(np.broadcast_to(keep, (B, N, S, S)))),
            n.c(np.broadcast_to(np.where(keep, 0, low), (B, N, S, S))),
        )
    return n.done(n.matmul(n.softmax(x, axes=(3,)), v)), {"right": 0, "offset": 0, "extras": ()}  # fmt: skip


def window_constant():
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    i, j = np.arange(S)[:, None], np.arange(S)
    keep = n.c((j <= i) & (j > i - 3), bool)
    x = n.where(keep, n.matmul(q, k, transpose_b=True), n.c(-np.inf))
    return n.done(n.matmul(n.softmax(x, axes=(3,)), v)), {"right": 0, "left": 2}


def chosen():
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    keep = n.x("keep", B, 1, 1, T, dtype="bool")
    x = n.where(keep, n.matmul(q, k, transpose_b=True), n.c(-1e30))
    x = n.add(n.x("places", 1, N, S, T), x)
    return n.done(n.matmul(n.softmax(x, axes=(3,)), v)), {"extras": ("bias", "bias1")}


def heads_in_the_batch():
    n = Net()
    q, k, v = (n.reshape(heads(n, n.x(c, B, S, N * H), 0, 2, 1, 3), shape=(B * N, S, H)) for c in "qkv")
    x = n.matmul(q, n.transpose(k, perm=(0, 2, 1)))
    x = n.reshape(n.add(n.reshape(x, shape=(B, N, S, T)), n.x("mask", B, 1, S, T)), shape=(B * N, S, T))
    y = n.reshape(n.matmul(n.softmax(x, axes=(2,)), v), shape=(B, N, S, H))
    return n.done(n.transpose(y, perm=(0, 2, 1, 3))), {"extras": ("bias",), "out_order": (0, 2, 1, 3)}


def heads_in_the_batch_without_mask():
    n = Net()
    q, k, v = (n.reshape(heads(n, n.x(c, B, S, N * H), 0, 2, 1, 3), shape=(B * N, S, H)) for c in "qkv")
    x = n.softmax(n.matmul(q, n.transpose(k, perm=(0, 2, 1))), axes=(2,))
    y = n.reshape(n.matmul(x, v), shape=(B, N, S, H))
    return n.done(n.transpose(y, perm=(0, 2, 1, 3))), {"q_order": (0, 2, 1, 3), "out_order": (0, 2, 1, 3)}


def three_dimensions():
    n = Net()
    q, k, v = (n.x(c, 5, S, H) for c in "qkv")
    x = n.add(n.matmul(q, k, transpose_b=True), n.x("mask", 5, S, S))
    return n.done(n.matmul(n.softmax(x, axes=(2,)), v)), {"extras": ("bias",)}


def places_first():
    """torch.nn.MultiheadAttention, as the newer exporter writes it: batch and heads are one dimension until after a transpose."""
    n = Net()
    q, k, v = (n.transpose(n.reshape(n.x(c, S, B, N * H), shape=(S, B * N, H)), perm=(1, 0, 2)) for c in "qkv")
    k = n.reshape(n.transpose(k, perm=(0, 2, 1)), shape=(B, N, H, T))
    x = n.softmax(n.matmul(n.reshape(q, shape=(B, N, S, H)), k), axes=(3,))
    y = n.transpose(n.matmul(x, n.reshape(v, shape=(B, N, T, H))), perm=(2, 0, 1, 3))
    order = (1, 2, 0, 3)
    found = {f"{x}_order": order for x in ("q", "k", "v", "out")}
    return n.done(n.reshape(y, shape=(S * B, N * H))), found


def places_first_of_three_dimensions():
    """The same with weights asked for: products of three dimensions."""
    n = Net()
    q, k, v = (n.transpose(n.reshape(n.x(c, S, B, N * H), shape=(S, B * N, H)), perm=(1, 0, 2)) for c in "qkv")
    x = n.softmax(n.matmul(q, n.transpose(k, perm=(0, 2, 1))), axes=(2,))
    y = n.transpose(n.matmul(x, v), perm=(1, 0, 2))
    order = (0, 2, 1, 3)
    found = {f"{x}_order": order for x in ("q", "k", "v", "out")}
    return n.done(n.reshape(y, shape=(S * B, N * H))), found


def repeated_heads():
    n = Net()
    q = n.x("q", B, N, S, H)
    k, v = (n.x(c, B, T, 2, H) for c in "kv")

    def repeat(x):
        x = n.reshape(n.transpose(x, perm=(0, 2, 1, 3)), shape=(B, 2, 1, T, H))
        return n.reshape(n.broadcast_to(x, shape=(B, 2, N // 2, T, H)), shape=(B, N, T, H))

    x = n.matmul(q, n.transpose(repeat(k), perm=(0, 1, 3, 2)))
    return n.done(n.matmul(n.softmax(x, axes=(3,)), repeat(v))), {"k_order": (0, 2, 1, 3)}


def one_key_head():
    n = Net()
    q, k, v = n.x("q", B, N, S, H), n.x("k", B, 1, T, H), n.x("v", B, 1, T, H)
    x = n.multiply(n.tanh(n.multiply(n.matmul(q, k, transpose_b=True), n.c(0.1))), n.c(3.0))
    return n.done(n.matmul(n.softmax(x, axes=(3,)), v)), {"softcap": 3.0}


def half_with_casts():
    n = Net("float16")
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    x = n.cast(n.matmul(q, k, transpose_b=True), dtype="float32")
    x = n.cast(n.softmax(n.multiply(x, n.c(0.3)), axes=(3,)), dtype="float16")
    return n.done(n.matmul(x, v)), {"extras": ()}


FOUND = [
    bert, causal_constant, window_constant, chosen, heads_in_the_batch, heads_in_the_batch_without_mask,
    three_dimensions, places_first, places_first_of_three_dimensions, repeated_heads, one_key_head, half_with_casts,
    lambda: causal_low(-1e4, "sum"), lambda: causal_low(-65504.0, "choice"), lambda: causal_low(-1e4, "factor"),
]  # fmt: skip


def fed(g):
    rng = np.random.default_rng(3)
    made = {}
    for v in g.inputs:
        if v.dtype == "bool":
            made[v.name] = rng.random(v.shape) > 0.3
            made[v.name][..., 0] = True
        else:
            made[v.name] = rng.standard_normal(v.shape).astype(v.dtype)
    return made


@pytest.mark.parametrize("make", FOUND)
def test_is_found(make):
    g, attrs = make()
    after = dead_code(find_attention(g))
    after.check()
    ops = [n.op for n in after.nodes]
    assert ops.count("attention") == 1 and not {"softmax", "matmul", "transpose", "broadcast_to"} & set(ops)
    node = next(n for n in after.nodes if n.op == "attention")
    assert {k: node.attrs.get(k) for k in attrs} == attrs
    f = fed(g)
    tol = 5e-3 if node.outputs[0].dtype == "float16" else 2e-5
    (want,) = run_graph(g, f)
    for got in (run_graph(after, f)[0], tec.compile(g, target="llvm", cache=False).run(f)[0]):
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), atol=tol)


def weights_used_twice():
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    p = n.softmax(n.matmul(q, k, transpose_b=True), axes=(3,))
    return n.done(n.matmul(p, v), p)


def softmax_over_queries():
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    return n.done(n.matmul(n.softmax(n.matmul(q, k, transpose_b=True), axes=(2,)), v))


def mask_that_does_not_hide():
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    keep = n.x("keep", B, 1, 1, T, dtype="bool")
    x = n.where(keep, n.matmul(q, k, transpose_b=True), n.c(-2.0))
    return n.done(n.matmul(n.softmax(x, axes=(3,)), v))


def low_numbers_where_a_row_may_see_none(known):
    """In a row of such numbers alone all keys weigh the same, whatever their scores."""
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    keep = n.c(np.arange(S)[:, None] > np.zeros(T), bool) if known else n.x("keep", B, 1, 1, T, dtype="bool")
    x = n.where(keep, n.matmul(q, k, transpose_b=True), n.c(-1e4))
    return n.done(n.matmul(n.softmax(x, axes=(3,)), v))


@pytest.mark.parametrize(
    "make",
    [
        weights_used_twice,
        softmax_over_queries,
        mask_that_does_not_hide,
        lambda: low_numbers_where_a_row_may_see_none(True),
        lambda: low_numbers_where_a_row_may_see_none(False),
    ],
)
def test_is_left_alone(make):
    g = make()
    assert find_attention(g) is g


def test_a_constant_mask_that_weighs_stays():
    n = Net()
    q, k, v = (n.x(c, B, N, S, H) for c in "qkv")
    bias = np.random.default_rng(1).standard_normal((1, N, S, T))
    g = n.done(n.matmul(n.softmax(n.add(n.matmul(q, k, transpose_b=True), n.c(bias)), axes=(3,)), v))
    f = fed(g)
    after = dead_code(find_attention(g))
    assert after.nodes[-1].attrs["extras"] == ("bias",)
    np.testing.assert_allclose(run_graph(after, f)[0], run_graph(g, f)[0], atol=2e-5)
