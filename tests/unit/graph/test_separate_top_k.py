"""The largest of few long lines: in two steps on GPUs, with the same elements and places, and in one where lines are short, many or of another axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.graph.graph import Graph
from tec.graph.passes.separate_top_k import separate_top_k
from tec.ops.dims import Dim
from tec.target import Target

CHIP = "rocm -mcpu=gfx942"


def graph(op: str, shape: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Graph:
    g = Graph()
    outs = g.add(op, [g.input("x", dtype, shape)], attrs, "y")
    g.set_outputs(outs, [f"y{k}" for k in range(len(outs))])
    return g


def steps(g: Graph, target: str = CHIP) -> int:
    return sum(n.op in ("topk", "argmax") for n in separate_top_k(g, Target(target)).nodes)


def line_of(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers of which many are equal, the largest among them in several parts, and NaN in one line."""
    x = np.random.default_rng(3).integers(-9, 9, shape).astype(dtype)
    x[0, [5, 77, 16000]] = 50
    x[1, [9000, 12000]] = np.nan
    return x


@pytest.mark.parametrize(
    "k, largest, dtype, n", [(1, True, "float16", 32768), (5, True, "float32", 65536), (3, False, "float32", 65536)]
)
def test_elements_and_places_are_those_of_one_step(k: int, largest: bool, dtype: str, n: int) -> None:
    g = graph("topk", (2, n), dtype, axis=1, k=k, largest=largest)
    assert steps(g) == 2
    x = line_of((2, n), dtype)
    values, places = tec.compile(g, CHIP, cache=False).run({"x": x}, device=tec.rocm_emu("gfx942", check="race,init"))
    want, where = tec.compile(g, "llvm", cache=False).run({"x": x})
    np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(places, where)


def test_lines_without_whole_loads_take_longer_at_once() -> None:
    """In two steps a third of the time in the model."""
    assert steps(graph("topk", (5, 96081), "float16", axis=1, k=5), "rocm -mcpu=gfx90a") == 2
    assert steps(graph("topk", (5, 96080), "float16", axis=1, k=5), "rocm -mcpu=gfx90a") == 1


def test_an_argmax_is_the_place_of_the_largest() -> None:
    g = graph("argmax", (2, 262144), axis=-1, keepdims=False)
    assert steps(g) == 2
    x = line_of((2, 262144), "float32")
    (got,) = tec.compile(g, CHIP, cache=False).run({"x": x}, device=tec.rocm_emu("gfx942", check="race,init"))
    assert got.tolist() == [5, 9000] and got.shape == (2,)


def test_lines_may_be_of_any_number() -> None:
    g = Graph()
    g.set_outputs(
        g.add("argmax", [g.input("x", "float32", (Dim("rows"), 262144))], {"axis": 1, "keepdims": False}), ["y"]
    )
    assert steps(g) == 2
    net = tec.compile(g, CHIP, cache=False)
    for rows in (2, 3):
        x = np.concatenate([line_of((2, 262144), "float32"), np.full((1, 262144), -np.inf, np.float32)])[:rows]
        (got,) = net.run({"x": x}, device=tec.rocm_emu("gfx942", check="race,init"))
        assert got.tolist() == [5, 9000, 0][:rows]


@pytest.mark.parametrize(
    "op, shape, attrs",
    [
        ("topk", (1, 4096), {"axis": 1, "k": 1}),  # short
        ("topk", (2, 40000), {"axis": 1, "k": 50}),  # in the time model 9 us, in two steps and what is beside them 25
        ("topk", (1, 16411), {"axis": 1, "k": 1}),  # a prime number: no equal parts
        ("topk", (4096, 16384), {"axis": 1, "k": 1}),  # lines enough for all units
        ("topk", (16384, 2), {"axis": 0, "k": 1}),
        ("argmax", (1, 65536), {"axis": 1, "last": True}),
        ("argmin", (1, 65536), {"axis": 1}),
    ],
)
def test_others_stay(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    g = graph(op, shape, **attrs)
    assert [n.op for n in separate_top_k(g, Target(CHIP)).nodes] == [op]


def test_a_cpu_takes_one_step() -> None:
    assert steps(graph("topk", (1, 16384), axis=1, k=1), "llvm") == 1


def test_a_vocabulary_is_searched_by_the_whole_gpu() -> None:
    net = tec.compile(graph("topk", (1, 151936), axis=1, k=1), "cuda -arch=sm_90a", cache=False)
    assert max(grid[0] for grid in net._launches().geometry.tolist()) >= 32
