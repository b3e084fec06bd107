"""Attention on a CPU's tile registers (AMX): by the interpreter against float64, on the processor where it has them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.graph import Graph
from tec.ir.interp import run
from tec.ops import get_op
from tec.ops.dims import Dim
from tests.conformance.host_levels import missing
from tests.thinned import thinned_rows
from tests.unit.ops.test_attention import build, dense

TEMPLATE = "cpu tile attention"
AMX = tec.Target("llvm -mcpu=sapphirerapids")
#                     batch, heads, key heads, queries, keys, size, value size
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "two heads that share keys, causal": ({"right": 0, "offset": 30}, {}, (1, 2, 1, 40, 70, 32, 32)),
    "half a tile of values, a bias": ({}, {"bias": ("float32", (1, 1, 33, 64))}, (1, 1, 1, 33, 64, 64, 48)),
    "heads beside each other, soft cap": (
        {"q_order": (0, 2, 1, 3), "k_order": (0, 2, 1, 3), "v_order": (0, 2, 1, 3), "softcap": 2.0},
        {},
        (1, 2, 2, 20, 64, 32, 32),
    ),
    "turned, a block of 32 keys and 8 more": (
        {},
        {"cos": ("float32", (1, 1, 12, 16)), "sin": ("float32", (1, 1, 12, 16))},
        (1, 1, 1, 12, 40, 32, 32),
    ),
}


def problem(case: str) -> tuple[Graph, dict[str, Any], Any]:
    """The graph, its inputs, what comes of them in float64."""
    attrs, extras, sizes = CASES[case]
    g = build(attrs, extras, sizes, "bfloat16")
    rng = np.random.default_rng(1)
    f = {v.name: rng.standard_normal(v.shape).astype(ml_dtypes.bfloat16 if v.dtype == "bfloat16" else v.dtype) for v in g.inputs}  # fmt: skip
    exact = {k: x.astype(np.float32) for k, x in f.items()}
    return g, f, dense(exact, attrs)


def on_tiles(g: Graph) -> tuple[Any, list[Any]]:
    """The schedule on tiles, and the arguments of its function."""
    node = g.nodes[0]
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in node.inputs]
    outs = get_op("attention").compute(node.attrs, ins, [v.type for v in node.outputs])
    made = schedule(outs, AMX, {"template": TEMPLATE, "queries": 32, "keys": 32, "rows": 4})
    return made.schedule, [*ins, *made.outputs]


@thinned_rows(2, "case", CASES)
def test_by_the_interpreter(case: str) -> None:
    g, f, want = problem(case)
    s, args = on_tiles(g)
    func = next(iter(tec.lower(s, args, name="f", target=AMX)))
    got = np.zeros(want.size, ml_dtypes.bfloat16)
    arrays = [f[v.name].reshape(-1).copy() for v in g.nodes[0].inputs]
    run(func, dict(zip([p.name for p in func.params], [*arrays, got])), {}, check=True)
    np.testing.assert_allclose(got.reshape(want.shape).astype(np.float64), want, atol=2e-2)


@pytest.mark.skipif(bool(missing("sapphirerapids")), reason="this processor has no AMX")
@pytest.mark.parametrize("case", CASES)
def test_on_the_processor(case: str) -> None:
    g, f, want = problem(case)
    s, args = on_tiles(g)
    got = np.zeros(want.shape, ml_dtypes.bfloat16)
    tec.build(s, args, AMX)(*[f[v.name] for v in g.nodes[0].inputs], got)
    np.testing.assert_allclose(got.astype(np.float64), want, atol=2e-2)


def test_is_the_default_where_there_is_work() -> None:
    """Not for few scores a core: values are turned by a parallel loop of their own."""
    for queries, first in ((2048, TEMPLATE), (32, "cpu attention")):
        g = build({"right": 0}, {}, (1, 64, 2, queries, queries, 64, 64), "bfloat16")
        ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.nodes[0].inputs]
        outs = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
        units = AMX.machine.units
        if 64 * 32 * 32 < units << 14:
            assert spaces(outs, AMX)[0].template == first


@pytest.mark.parametrize(
    "dtype,sizes,why",
    [
        ("float16", (1, 1, 1, 40, 64, 32, 32), "bits of float16 would be lost"),
        ("bfloat16", (1, 1, 1, 40, 64, 24, 32), "no whole tile"),
        ("bfloat16", (1, 1, 1, 2, 64, 32, 32), "few queries"),
        ("bfloat16", (1, 1, 1, 40, 31, 32, 32), "no whole block of keys"),
    ],
)
def test_others_go_by_vectors(dtype: str, sizes: tuple[int, ...], why: str) -> None:
    g = build({}, {}, sizes, dtype)
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.nodes[0].inputs]
    outs = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    assert TEMPLATE not in [s.template for s in spaces(outs, AMX)], why


def test_open_lengths_compile() -> None:
    g = Graph()
    n = Dim("n")
    q, k, v = (g.input(x, "bfloat16", (1, 2, n, 32)) for x in "qkv")
    g.set_outputs(g.add("attention", [q, k, v], {"scale": 0.2, "right": 0}))
    net = tec.compile(g, target=AMX, cache=False)
    assert "tdpbf16ps" in net.get_source("asm")
    if not missing("sapphirerapids"):
        rng = np.random.default_rng(0)
        for steps in (1, 5, 64, 150):
            f = {x: rng.standard_normal((1, 2, steps, 32)).astype(ml_dtypes.bfloat16) for x in "qkv"}
            want = dense({x: y.astype(np.float32) for x, y in f.items()}, {"right": 0})  # scale 0.4 there
            (got,) = net.run({**f, "q": (f["q"].astype(np.float32) * 2).astype(ml_dtypes.bfloat16)})
            np.testing.assert_allclose(got.astype(np.float64), want, atol=2e-2)
