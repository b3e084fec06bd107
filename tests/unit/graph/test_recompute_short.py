"""Short work on constants, counters and inputs, which each of its readers does for itself on GPUs."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph

TARGET = "rocm -mcpu=gfx942"


def angles(pairs: int) -> Graph:
    """Cosines and sines of a place's angles, as a decoder has them."""
    g = Graph("g")
    place = g.input("place", "int64", (1,))
    turns = g.add(
        "multiply",
        [
            g.add("reshape", [g.add("cast", [place], {"dtype": "float32"})[0]], {"shape": (1, 1)})[0],
            g.constant(np.linspace(0.1, 1, pairs, dtype=np.float32).reshape(1, -1)),
        ],
    )[0]
    g.set_outputs([g.add(f, [turns])[0] for f in ("cos", "sin")], ["a", "b"])
    return g


def kernels(net: tec.Network) -> int:
    return sum(m.get_source("ir").count("kernel=True") for m in net.module.imported_modules)


@pytest.mark.parametrize(("pairs", "launches"), [(32, 1), (5000, 2)])
def test_angles_are_one_launch(pairs: int, launches: int) -> None:
    net = tec.compile(angles(pairs), TARGET, cache=False)
    assert kernels(net) == launches
    f = np.linspace(0.1, 1, pairs, dtype=np.float32)
    a, b = net.run([np.array([7])], device=tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(a[0], np.cos(7 * f), atol=1e-5)
    np.testing.assert_allclose(b[0], np.sin(7 * f), atol=1e-5)


def test_what_takes_long_is_computed_once() -> None:
    """The logarithm of the angles, which both read, is a launch."""
    g = Graph("g")
    x = g.input("x", "float32", (64,))
    y = g.add("log", [x])[0]
    g.set_outputs([g.add(f, [y])[0] for f in ("cos", "sin")], ["a", "b"])
    net = tec.compile(g, TARGET, cache=False)
    assert kernels(net) == 2
    v = np.random.default_rng(0).random(64, np.float32) + 1
    a, b = net.run([v], device=tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(a, np.cos(np.log(v)), rtol=1e-5)
    np.testing.assert_allclose(b, np.sin(np.log(v)), rtol=1e-5)


def test_a_wider_copy_is_made_by_each_reader() -> None:
    """A variance of float16 reads x twice, and stores no float32 of it."""
    g = Graph("g")
    x = g.input("x", "float16", (6, 50, 40))
    w = g.add("cast", [x], {"dtype": "float32"})[0]
    mean = g.add("reduce_mean", [w], {"axes": (1,), "keepdims": True})[0]
    square = g.add("square", [g.add("subtract", [w, mean])[0]])[0]
    g.set_outputs([g.add("reduce_mean", [square], {"axes": (1,), "keepdims": False})[0]], ["y"])
    net = tec.compile(g, TARGET, cache=False)
    assert kernels(net) == 2
    v = np.random.default_rng(0).random((6, 50, 40)).astype(np.float16)
    (y,) = net.run([v], device=tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(y, v.astype(np.float64).var(1), rtol=1e-4)
