"""What is appended to states as codes with scales: one launch makes both, of keys that are turned on the way."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph, Value
from tec.graph.optimize import optimize
from tec.graph.passes.fuse import fuse
from tec.graph.state import declare
from tec.ops.dim_bounds import Empty
from tec.ops.dims import Dim
from tec.target import Target

TARGET = "rocm -mcpu=gfx942"
HEADS, SIZE = 3, 64


def step(turned: bool, shared: bool = False) -> Graph:
    """A token's keys, which lie in a row, as int8 with scales behind those of the tokens before. shared: something else reads the scales."""
    g = Graph("g")
    past = Dim(Empty("past"))
    codes = g.input("codes", "int8", (1, HEADS, past, SIZE))
    scales = g.input("scales", "float32", (1, HEADS, past, 1))
    x: Value = g.add("reshape", [g.input("x", "float32", (1, HEADS * SIZE))], {"shape": (1, 1, HEADS, SIZE)})[0]
    if turned:
        angles = (g.input(n, "float32", (1, SIZE // 2)) for n in ("cos", "sin"))
        wide = [g.add("reshape", [a], {"shape": (1, 1, 1, SIZE // 2)})[0] for a in angles]
        (x,) = g.add("rotary", [x, *wide], {"interleaved": False})
    (top,) = g.add("reduce_max", [g.add("abs", [x])[0]], {"axes": (3,), "keepdims": True})
    (scale,) = g.add("multiply", [top, g.constant(np.float32(1 / 127))])
    (near,) = g.add("max_norm", [x], {"axis": 3, "factor": 1 / 127, "least": 1e-30})
    (code,) = g.add("cast", [g.add("round_even", [near])[0]], {"dtype": "int8"})
    made = [
        g.add("concat", [was, g.add("transpose", [new], {"perm": (0, 2, 1, 3)})[0]], {"axis": 2})[0]
        for was, new in ((codes, code), (scales, scale))
    ]
    more = [g.add("neg", [scale])[0]] if shared else []
    g.set_outputs([*made, *more], ["codes2", "scales2", *["other"][: len(more)]])
    return g


STATE = {"codes": "codes2", "scales": "scales2"}


def groups(g: Graph) -> list[list[str]]:
    target = Target(TARGET)
    with target:
        made = fuse(optimize(declare(g, STATE)[0], target))
    return [[n.op for n in x.nodes] for x in made if not x.is_alias]


@pytest.mark.parametrize("turned", [False, True])
def test_one_launch_makes_codes_and_scales(turned: bool) -> None:
    net = tec.compile(step(turned), TARGET, state=STATE, cache=False)
    assert sum(m.get_source("ir").count("kernel=True") for m in net.module.imported_modules) == 1
    rng = np.random.default_rng(6)
    executor = net.executor(tec.rocm_emu("gfx942", check="race,init"), capacity=5)
    codes, scales = np.zeros((1, HEADS, 0, SIZE), np.int8), np.zeros((1, HEADS, 0, 1), np.float32)
    given = {"codes": codes, "scales": scales}
    for turn in range(3):
        x = rng.standard_normal((1, HEADS * SIZE)).astype(np.float32)
        angle = rng.random((1, SIZE // 2), np.float32)
        angles = {"cos": np.cos(angle), "sin": np.sin(angle)} if turned else {}
        executor.run({"x": x, **angles} | (given if turn == 0 else {}))
        got = [executor.state[n].numpy() for n in STATE]
        rows = x.reshape(HEADS, SIZE)
        if turned:
            a, b = np.split(rows, 2, 1)
            rows = np.concatenate([a * angles["cos"] - b * angles["sin"], b * angles["cos"] + a * angles["sin"]], 1)
        scale = np.abs(rows).max(1, keepdims=True) / 127
        np.testing.assert_allclose(got[1][0, :, turn], scale, rtol=1e-6)
        assert np.abs(got[0][0, :, turn] - rows / scale).max() < 0.501
        np.testing.assert_array_equal(got[0][:, :, :turn], codes)
        codes, scales = got
    assert codes.shape[2] == 3


def test_what_others_read_is_made_for_them() -> None:
    found = groups(step(True, shared=True))
    assert ["append"] not in found and sum(ops[-1] == "append" for ops in found) == 2
    assert sum("reduce_max" in ops for ops in found) == 2


def test_a_row_that_does_not_end_with_its_sums_stays() -> None:
    """A norm over heads and elements is another row than that of a head."""
    g = Graph("g")
    past = g.input("past", "float32", (1, HEADS, Dim(Empty("past")), SIZE))
    x = g.input("x", "float32", (1, 1, HEADS, SIZE))
    (y,) = g.add("max_norm", [x], {"axis": 2, "factor": 1.0, "least": 1e-30})
    new = g.add("transpose", [y], {"perm": (0, 2, 1, 3)})[0]
    g.set_outputs([g.add("concat", [past, new], {"axis": 2})[0]], ["past2"])
    net = tec.compile(g, TARGET, state={"past": "past2"}, cache=False)
    v = np.random.default_rng(7).standard_normal((1, 1, HEADS, SIZE)).astype(np.float32)
    executor = net.executor(tec.rocm_emu("gfx942"), capacity=4)
    executor.run({"x": v, "past": np.zeros((1, HEADS, 0, SIZE), np.float32)})
    np.testing.assert_allclose(executor.state["past"].numpy()[0, :, 0], v[0, 0] / np.abs(v).max(), rtol=1e-6)


@pytest.mark.parametrize("name", ["pool", "places"])
def test_reductions_over_other_dimensions_stay(name: str) -> None:
    """Windows have no axis, and the places of the largest along a middle one leave no dimension of one."""
    g = Graph("g")
    if name == "pool":
        past, x = (g.input(n, "float32", (1, HEADS, d, 8)) for n, d in (("past", Dim(Empty("past"))), ("x", 2)))
        none, two = (0, 0), (2, 1)
        windows = {
            "kernel": two,
            "strides": two,
            "dilations": (1, 1),
            "before": none,
            "after": none,
            "out_space": (1, 8),
        }
        (y,) = g.add("max_pool", [x], windows)
    else:
        past, x = g.input("past", "int64", (1, Dim(Empty("past")), HEADS)), g.input("x", "float32", (1, HEADS, 8))
        (y,) = g.add("argmax", [g.add("transpose", [x], {"perm": (0, 2, 1)})[0]], {"axis": 1, "keepdims": False})
        (y,) = g.add("reshape", [y], {"shape": (1, 1, HEADS)})
    g.set_outputs([g.add("concat", [past, y], {"axis": 2 if name == "pool" else 1})[0]], ["past2"])
    net = tec.compile(g, TARGET, state={"past": "past2"}, cache=False)
    v = np.random.default_rng(8).standard_normal(x.shape).astype(np.float32)
    executor = net.executor(tec.rocm_emu("gfx942"), capacity=4)
    before = np.zeros([0 if isinstance(n, Dim) else n for n in past.shape], past.dtype)
    executor.run({"x": v, "past": before})
    want = v.max(2, keepdims=True) if name == "pool" else v.argmax(2)[:, None]
    np.testing.assert_array_equal(executor.state["past"].numpy(), want)
