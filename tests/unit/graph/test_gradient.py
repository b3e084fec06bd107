"""Gradients of networks: compiled, against finite differences of the reference."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.builders import Builder
from tests.thinned import thinned_rows

from .operator_gradients import BOXES, PLACES, POOL, ROI, numbers


def network(build, feeds):
    g = Graph()
    out = build(Builder(g), **{k: g.input(k, str(v.dtype), v.shape) for k, v in feeds.items()})
    g.set_outputs([out], ["out"])
    return g


def differences(g, feeds, name, weights, step=1e-6):
    slopes = np.zeros_like(feeds[name])
    for where in np.ndindex(*slopes.shape):
        for sign in (1, -1):
            moved = {**feeds, name: feeds[name].copy()}
            moved[name][where] += sign * step
            slopes[where] += sign * float((run_graph(g, moved)[0] * weights).sum()) / (2 * step)
    return slopes


def holds(build, feeds, wrt=None):
    """The gradients of a weighted sum are those of finite differences; the graph of gradients."""
    g = network(build, feeds)
    names = wrt or [k for k, v in feeds.items() if v.dtype == np.float64]
    both = tec.grad(g, names, head="weights")
    weights = numbers(*g.outputs[0].shape, seed=9)
    got = tec.compile(both, cache=False).run({**feeds, "weights": weights})
    for name, found in zip(names, got[1:]):
        want = differences(g, feeds, name, weights)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6 * max(1.0, np.abs(want).max()))
    return both


X, Y, ROW = numbers(3, 4), numbers(3, 4, seed=1), numbers(4)
PICTURE, KERNEL = numbers(1, 2, 5, 5), numbers(3, 2, 3, 3)
INDEX = np.array([0, 2, 2, 1], "int64")
CONV = {"strides": (2, 2), "before": (1, 1), "after": (1, 1), "dilations": (1, 1), "groups": 1}

TURNED = {"x": numbers(2, 3, 6), "c": numbers(2, 1, 4), "s": numbers(2, 1, 4, seed=1)}
FAR = np.where(PLACES == 8, 20, PLACES)  # one place in another channel: it is put nowhere

CASES = {
    "a dense layer": (lambda b, x, w: b.op("softmax", b.op("relu", b.op("matmul", x, w)), axes=(1,)), {"x": X, "w": numbers(4, 5)}),
    "products in a batch": (lambda b, x, w: b.op("matmul", x, w), {"x": numbers(2, 3, 4), "w": numbers(4, 5)}),
    "an einsum": (lambda b, x, y: b.op("einsum", x, y, equation="bij,bjk->bik"), {"x": numbers(2, 3, 4), "y": numbers(2, 4, 2)}),
    "a convolution": (lambda b, x, w: b.op("conv", x, w, **CONV), {"x": PICTURE, "w": KERNEL}),
    "a largest window": (lambda b, x: b.op("max_pool", x, **POOL), {"x": numbers(1, 2, 4, 4)}),
    "a mean window": (lambda b, x: b.op("avg_pool", x, **POOL), {"x": numbers(1, 2, 4, 4)}),
    "layer norm": (lambda b, x: b.op("layer_norm", x, axis=1, epsilon=1e-5), {"x": X}),
    "log softmax": (lambda b, x: b.op("log_softmax", x, axes=(-1,)), {"x": X}),
    "attention": (lambda b, q, k, v: b.op("attention", q, k, v, scale=0.5), {"q": numbers(1, 2, 3, 4), "k": numbers(1, 2, 5, 4), "v": numbers(1, 2, 5, 4)}),
    "broadcasting": (lambda b, x, y: b.op("divide", b.op("subtract", x, y), b.op("exp", y)), {"x": X, "y": ROW}),
    "one value used twice": (lambda b, x: b.op("multiply", b.op("tanh", x), b.op("add", x, b.op("sigmoid", x))), {"x": X}),
    "choices": (lambda b, x, y: b.op("where", b.op("greater", x, y), x, b.op("maximum", y, b.like(0.3, y))), {"x": X, "y": Y}),
    "a mean": (lambda b, x: b.op("reduce_mean", x, axes=(0,), keepdims=False), {"x": X}),
    "a maximum": (lambda b, x: b.op("reduce_max", x, axes=(1,), keepdims=True), {"x": X}),
    "a product of elements": (lambda b, x: b.op("reduce_prod", x, axes=(1,), keepdims=False), {"x": X}),
    "slices and joins": (lambda b, x, y: b.concat([b.slice(x, 1, 1, 2), y, x], 1), {"x": X, "y": Y}),
    "views": (lambda b, x: b.transpose(b.reshape(x, (2, 2, 3)), (2, 0, 1)), {"x": X}),
    "padding": (lambda b, x: b.op("pad", x, before=(1, 0), after=(0, 2), mode="reflect"), {"x": X}),
    "rows by index": (lambda b, x, i: b.op("gather", x, i, axis=0), {"x": X, "i": INDEX}),
    "columns by index": (lambda b, x, i: b.op("gather", x, i, axis=1), {"x": X, "i": INDEX}),
    "the largest two": (lambda b, x: b.ops("topk", x, k=2, axis=1)[0], {"x": X}),
    "sums so far": (lambda b, x: b.op("cumsum", x, axis=1), {"x": X}),
    "gelu": (lambda b, x: b.op("gelu", x), {"x": X}),
    "halves turned": (lambda b, x, c, s: b.op("rotary", x, c, s), {**TURNED, "c": numbers(3, 3), "s": numbers(3, 3, seed=1)}),
    "neighbours turned": (lambda b, x, c, s: b.op("rotary", x, c, s, interleaved=True), {**TURNED, "c": numbers(3, 2), "s": numbers(3, 2, seed=1)}),
    "halves turned by angles of their own": (lambda b, x, c, s: b.op("rotary", x, c, s, whole=True), TURNED),
    "neighbours turned by angles of their own": (lambda b, x, c, s: b.op("rotary", x, c, s, whole=True, interleaved=True), TURNED),
    "the nearest": (lambda b, x, i: b.op("resample", x, i, axis=0, nearest=True), {"x": X, "i": np.array([[0, 0, 1, 2, 2]])}),
    "between the nearest": (lambda b, x, i, w: b.op("resample", x, i, w, axis=1), {"x": X, "i": np.array([[0, 1, 2], [1, 1, 3]]), "w": numbers(2, 3)}),
    "unpooled": (lambda b, x, i: b.op("max_unpool", x, i, shape=(1, 2, 4, 4)), {"x": numbers(1, 2, 2, 2), "i": FAR}),
    "cells of boxes": (lambda b, x, r, n: b.op("roi_align", x, r, n, **ROI, mode="avg"), {"x": numbers(1, 1, 4, 4), "r": BOXES, "n": np.array([0, 0])}),
    "largest of cells": (lambda b, x, r, n: b.op("roi_align", x, r, n, **ROI, mode="max"), {"x": numbers(1, 1, 4, 4), "r": BOXES, "n": np.array([0, 0])}),
    "windows moved": (lambda b, x, w, o: b.op("deform_conv", x, w, o, **CONV, offset_groups=2),
                      {"x": numbers(1, 2, 3, 3), "w": numbers(1, 2, 2, 2), "o": numbers(1, 16, 2, 2, low=-0.9, high=0.9)}),
    "silu and softplus": (lambda b, x: b.op("silu", b.op("softplus", x)), {"x": X}),
}  # fmt: skip


@thinned_rows(12, "name", CASES)
def test_against_finite_differences(name):
    holds(*CASES[name])


def test_a_dense_layers_gradients_are_products():
    both = holds(*CASES["products in a batch"])
    assert [n.op for n in both.nodes].count("matmul") == 3 and "vjp" not in [n.op for n in both.nodes]


@pytest.mark.parametrize(("axis", "block", "dims"), [(1, 4, (3, 2)), (1, 8, (1, 1)), (0, 2, (2, 7)), (1, 4, (1, 2))])
@pytest.mark.parametrize("zeros", ["float32", "uint8", None])
def test_scales_of_packed_weights(axis, block, dims, zeros):
    """Whole blocks and one cut short, shared scales, scales of both bits and zero points of every kind."""
    rng = np.random.default_rng(1)
    codes, scale = rng.integers(0, 256, (3, 7), "uint8"), rng.uniform(0.5, 2, dims).astype("float32")
    feeds = {"q": codes, "s": scale, **({"z": rng.integers(0, 9, dims).astype(zeros)} if zeros else {})}
    attrs = {"bits": 8, "shape": (3, 7), "axis": axis, "block": block, "dtype": "float32"}
    wrt = ["s", "z"] if zeros == "float32" else ["s"]
    both = tec.grad(network(lambda b, **v: b.op("dequantize", *v.values(), **attrs), feeds), wrt, head="h")
    head = rng.uniform(-1, 1, (3, 7)).astype("float32")
    got = tec.compile(both, cache=False).run({**feeds, "h": head})

    def spread(a):
        return np.broadcast_to(a if a.shape[axis] == 1 else np.repeat(a, block, axis)[:3, :7], (3, 7))

    def gathered(a):  # a sum for each scale, over the elements that it scales
        out, where = np.zeros(dims), np.arange(scale.size).reshape(dims)
        np.add.at(out.reshape(-1), spread(where).reshape(-1), a.reshape(-1))
        return out

    zero = spread(feeds["z"]).astype("float32") if zeros else 128.0
    want = [gathered(head * (codes - zero)), gathered(-head * spread(scale))]
    for found, expected in zip(got[1:], want):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_rules_that_work_in_one_pass():
    """The definitions of these would search: a rotary's gradient is a turn back, an unpooling's a gather, a resampling's a scatter."""
    turned = holds(*CASES["halves turned"])
    assert [n.op for n in turned.nodes].count("rotary") == 2 and "vjp" not in [n.op for n in turned.nodes]
    for name in ("unpooled", "the nearest", "between the nearest"):
        assert "vjp" not in [n.op for n in holds(*CASES[name]).nodes], name


def test_parameters_become_inputs():
    g = Graph()
    b = Builder(g)
    w = g.constant(numbers(4, 2), "w")
    g.set_outputs([b.op("matmul", g.input("x", "float64", (3, 4)), w)], ["out"])
    both = tec.grad(g, "w")
    assert [v.name for v in both.inputs] == ["x", "w"] and both.output_names == ["out", "grad_w"]
    out, by_w = tec.compile(both, cache=False).run({"x": X, "w": numbers(4, 2)})
    np.testing.assert_allclose(out, X @ numbers(4, 2))
    np.testing.assert_allclose(by_w, np.repeat(X.sum(0)[:, None], 2, 1))
    assert g.params and len(g.inputs) == 1, "the graph that was given is as it was"


def test_what_the_output_does_not_depend_on_has_zeros():
    g = network(lambda b, x, y: b.op("exp", x), {"x": X, "y": Y})
    (_, by_y) = tec.compile(tec.grad(g, ["y"]), cache=False).run({"x": X, "y": Y})
    assert by_y.shape == Y.shape and not by_y.any()


def test_one_module_for_the_software_gpu():
    feeds = {"x": numbers(16, 8).astype("float32"), "w": numbers(8, 4).astype("float32")}
    both = tec.grad(
        network(lambda b, x, w: b.op("log_softmax", b.op("tanh", b.op("matmul", x, w)), axes=(1,)), feeds), ["w"]
    )
    want = tec.compile(both, cache=False).run(feeds)
    got = tec.compile(both, target="gfx942", cache=False).run(feeds, device=tec.rocm_emu("gfx942"))
    for a, e in zip(got, want):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)


def test_a_recurrent_layer_is_refused_by_name():
    feeds = {"x": numbers(2, 1, 3), "w": numbers(1, 3, 3)}
    how = {"cell": "rnn", "hidden": 3, "backward": (False,), "activations": ((("tanh", 0.0, 0.0),),)}
    with pytest.raises(tec.ArgumentError, match=r"no gradient through recurrence \(.*no compute") as caught:
        tec.grad(network(lambda b, x, w: b.op("recurrence", x, w, **how), feeds), ["w"])
    assert "write its steps" in str(caught.value)


def test_mistakes():
    g = network(lambda b, x, i: b.op("gather", x, i, axis=0), {"x": X, "i": INDEX})
    ends = network(lambda b, x: b.op("argmax", x, axis=1, keepdims=False), {"x": X})
    for call, words in (
        (lambda: tec.grad(g, ["z"]), "no input or parameter 'z'"),
        (lambda: tec.grad(g, ["i"]), "int64"),
        (lambda: tec.grad(g, ["x"], output="loss"), "no output 'loss'"),
        (lambda: tec.grad(ends, ["x"]), "int64"),
    ):
        with pytest.raises(tec.ArgumentError) as caught:
            call()
        assert words in str(caught.value)
