"""Gradients of convolutions and poolings as the operators that do the work in one call, beside those of their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.passes.window_gradients import window_gradients
from tests.thinned import thinned

xp = tec.array


def window(steps: Any, holes: Any, before: Any, after: Any, groups: int = 1) -> dict[str, Any]:
    return {"strides": steps, "dilations": holes, "before": before, "after": after, "groups": groups}


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 8, 9), (4, 3, 3, 3), window((1, 1), (1, 1), (1, 1), (1, 1))),
    "many channels": ((2, 20, 6, 7), (5, 20, 3, 2), window((1, 1), (1, 1), (0, 0), (0, 0))),
    "steps and holes": ((2, 3, 9, 13), (4, 3, 3, 3), window((2, 3), (2, 1), (1, 2), (0, 1))),
    "steps that leave an end": ((1, 2, 10, 11), (3, 2, 2, 2), window((3, 4), (1, 1), (0, 0), (0, 0))),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), window((1, 1), (1, 1), (1, 1), (1, 1), 2)),
    "each channel by itself": ((2, 4, 6, 6), (4, 1, 3, 3), window((2, 2), (1, 1), (1, 1), (1, 1), 4)),
    "signals": ((2, 3, 17), (4, 3, 5), window((2,), (1,), (2,), (2,))),
    "volumes": ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), window((1,) * 3, (1,) * 3, (1, 0, 0), (0, 0, 1))),
}


def gradients(name: str, dtype: str = "float32") -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph of both gradients of a convolution, and its inputs."""
    shape, weights, attrs = CONVOLUTIONS[name]
    g = Graph("gradients")
    x, w = g.input("x", dtype, shape), g.input("w", dtype, weights)
    (y,) = g.add("conv", [x, w], attrs)
    head = g.input("head", dtype, y.shape)
    given = tuple(sorted(attrs.items()))
    outs = [g.add("vjp", [x, w, head], {"of": "conv", "attrs": given, "wrt": k, "out": 0})[0] for k in (0, 1)]
    g.set_outputs(outs, ["by_x", "by_w"])
    rng = np.random.default_rng(7)
    return g, {v.name: rng.standard_normal(v.shape).astype(dtype) for v in g.inputs}


def by_hand(name: str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The same by the sum that a convolution is, in float64."""
    shape, weights, a = CONVOLUTIONS[name]
    x, w, head = (feeds[k].astype("float64") for k in ("x", "w", "head"))
    around = [(0, 0), (0, 0), *zip(a["before"], a["after"])]
    padded, by_w = np.pad(x, around), np.zeros(weights)
    by_x = np.zeros_like(padded)
    own, cin = weights[0] // a["groups"], weights[1]
    for tap in np.ndindex(*weights[2:]):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(tap, a["dilations"], a["strides"], head.shape[2:])
        )
        for k in range(a["groups"]):
            outs, ins = slice(k * own, (k + 1) * own), slice(k * cin, (k + 1) * cin)
            read = padded[(slice(None), ins, *at)]
            by_w[(outs, slice(None), *tap)] = np.einsum(
                "nop,nip->oi", *[v.reshape(*v.shape[:2], -1) for v in (head[:, outs], read)]
            )
            by_x[(slice(None), ins, *at)] += np.einsum("no...,oi->ni...", head[:, outs], w[(outs, slice(None), *tap)])
    inside = tuple(slice(b, b + n) for b, n in zip(a["before"], shape[2:]))
    return [by_x[(slice(None), slice(None), *inside)], by_w]


@thinned(1, ("name", CONVOLUTIONS), ("target", ["llvm", "rocm -mcpu=gfx942"]))
def test_convolutions(name: str, target: str) -> None:
    graph, feeds = gradients(name)
    assert not any(n.op == "vjp" for n in window_gradients(graph).nodes)
    dev = tec.rocm_emu("gfx942") if "rocm" in target else tec.cpu()
    outs = tec.compile(graph, target).executor(dev).run(feeds)
    for got, want in zip(outs, by_hand(name, feeds)):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def test_half_precision_is_summed_in_single() -> None:
    graph, feeds = gradients("plain", "float16")
    outs = tec.compile(graph, "llvm").executor().run(feeds)
    for got, want in zip(outs, by_hand("plain", feeds)):
        np.testing.assert_allclose(got.numpy().astype("float64"), want, rtol=3e-3, atol=2e-2)


@pytest.mark.parametrize("size", [(8, 6), (9, 7)])
def test_maxima_of_windows_side_by_side(size: tuple[int, int]) -> None:
    """Elements that share a maximum share its gradient; those that no window reaches get none."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 3, (2, 3, *size)).astype("float32")
    head = rng.standard_normal((2, 3, size[0] // 2, size[1] // 3)).astype("float32")
    _, back = tec.vjp(lambda a: xp.nn.max_pool(a, (2, 3)), xp.asarray(x))
    (got,) = back(xp.asarray(head)) if isinstance(back(xp.asarray(head)), tuple) else (back(xp.asarray(head)),)
    want = np.zeros_like(x)
    for n, c, i, j in np.ndindex(*head.shape):
        part = x[n, c, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
        top = part == part.max()
        want[n, c, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3] = top * head[n, c, i, j] / top.sum()
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def test_other_gradients_stay_as_they_are() -> None:
    """Windows that share elements, open sizes, and operators of other kinds."""
    g = Graph("others")
    x, head = g.input("x", "float32", (1, 2, 8, 8)), g.input("head", "float32", (1, 2, 3, 3))
    attrs = {
        "kernel": (3, 3), "strides": (2, 2), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "out_space": (3, 3),
    }  # fmt: skip
    made = g.add("vjp", [x, head], {"of": "max_pool", "attrs": tuple(sorted(attrs.items())), "wrt": 0, "out": 0})
    g.set_outputs(made, ["by_x"])
    assert window_gradients(g) is g
