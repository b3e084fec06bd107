"""Rotary positions in graphs: found as exporters write them out, and put into the loads of attention."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.ops.dims import Dim
from tec.target import Target
from tests.thinned import thinned

S, T, H = 5, 7, 8


def half(g, x, first, size):
    starts, steps = (*(0,) * (x.ndim - 1), first), (1,) * x.ndim
    return g.add("slice", [x], {"starts": starts, "steps": steps, "sizes": (*x.shape[:-1], size)})[0]


def written_out(g, x, cos, sin, swapped=False):
    """x cos + rotate_half(x) sin."""
    size = x.shape[-1]
    high = g.add("neg", [half(g, x, size // 2, size - size // 2)])[0]
    crossed = g.add("concat", [high, half(g, x, 0, size // 2)], {"axis": -1})[0]
    pairs = [(sin, crossed), (cos, x)] if swapped else [(x, cos), (crossed, sin)]
    return g.add("add", [g.add("multiply", list(p))[0] for p in pairs])[0]


def attention(turn, size=H, dtype="float32", steps=S, heads=(2, 2)):
    """A graph of an attention whose queries `turn(graph, q, cos, sin)` turns."""
    g = Graph()
    q = g.input("q", dtype, (1, heads[0], steps, size))
    k, v = (g.input(x, dtype, (1, heads[1], T, size)) for x in "kv")
    cos, sin = (g.input(x, dtype, (1, 1, steps, size)) for x in ("cos", "sin"))
    g.set_outputs(g.add("attention", [turn(g, q, cos, sin), k, v], {"scale": 0.3}))
    return g


def feeds(g):
    rng = np.random.default_rng(3)
    shape = lambda v: [n if isinstance(n, int) else S for n in v.shape]  # noqa: E731
    return {v.name: rng.standard_normal(shape(v)).astype(v.dtype) for v in g.inputs}


def ops(g, target="llvm", dtype=None):
    return [n.op for n in optimize(g, Target(target), dtype).nodes]


def transposed_late(g, q, cos, sin):
    """Turned as (batch, places, heads, size), heads first behind that: tables are turned round too."""
    back = g.add("transpose", [q], {"perm": (0, 2, 1, 3)})[0]
    tables = [g.add("transpose", [t], {"perm": (0, 2, 1, 3)})[0] for t in (cos, sin)]
    return g.add("transpose", [written_out(g, back, *tables)], {"perm": (0, 2, 1, 3)})[0]


def first_half(g, x, cos, sin):
    """Half of the features."""
    n = x.shape[-1] // 2
    tables = [half(g, t, 0, n) for t in (cos, sin)]
    return g.add("concat", [written_out(g, half(g, x, 0, n), *tables), half(g, x, n, n)], {"axis": 3})[0]


FORMS = {
    "as torch": written_out,
    "swapped": lambda g, q, cos, sin: written_out(g, q, cos, sin, True),
    "of places first": transposed_late,
    "of half the features": first_half,
}


@pytest.mark.parametrize("form", FORMS)
def test_is_in_the_loads(form):
    g = attention(FORMS[form])
    assert "rotary" not in ops(g) and "multiply" not in ops(g) and "attention" in ops(g)
    f = feeds(g)
    want = run_graph(g, f)[0]
    np.testing.assert_allclose(tec.compile(g, target="llvm", cache=False).run(f)[0], want, atol=1e-5)


def not_halves(g, x, cos, sin):
    """The lower half of the features has the minus."""
    low = g.add("neg", [half(g, x, 0, x.shape[-1] // 2)])[0]
    crossed = g.add("concat", [half(g, x, x.shape[-1] // 2, x.shape[-1] // 2), low], {"axis": -1})[0]
    return g.add("add", [g.add("multiply", [x, cos])[0], g.add("multiply", [crossed, sin])[0]])[0]


def other_parts(g, x, cos, sin):
    """Not cut in the middle."""
    n = x.shape[-1]
    high = g.add("neg", [half(g, x, 2, n - 2)])[0]
    crossed = g.add("concat", [high, half(g, x, 0, 2)], {"axis": -1})[0]
    return g.add("add", [g.add("multiply", [x, cos])[0], g.add("multiply", [crossed, sin])[0]])[0]


@pytest.mark.parametrize("form", [not_halves, other_parts])
def test_what_only_looks_like_it_stays(form):
    g = attention(form)
    assert "rotary" not in ops(g) and "concat" in ops(g)
    f = feeds(g)
    np.testing.assert_allclose(tec.compile(g, target="llvm", cache=False).run(f)[0], run_graph(g, f)[0], atol=1e-5)


def test_read_by_others_too():
    """Queries that are an output are made, and read as they are."""
    g = attention(written_out)
    turned = next(n for n in g.nodes if n.op == "attention").inputs[0]
    g.set_outputs([*g.outputs, turned])
    assert "rotary" in ops(g)
    f = feeds(g)
    for got, want in zip(tec.compile(g, target="llvm", cache=False).run(f), run_graph(g, f)):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_wide_heads_that_bulk_copies_bring():
    """Hopper's kernel for many queries of wide heads turns nothing; for one query another kernel reads them."""
    hopper, ampere = "cuda -mcpu=sm_90a", "cuda -mcpu=sm_80"
    many = attention(written_out, 128, "float16", 512)
    assert "rotary" in ops(many, hopper) and "rotary" not in ops(many, ampere)
    assert "rotary" not in ops(attention(written_out, 128, "float16", 1), hopper)
    assert "rotary" not in ops(attention(written_out, 64, "float16", 512), hopper)


def test_mixed_precision_keeps_angles_in_float32():
    """Queries are turned in float32 before they are the product's 16 bits; a table of many places would lose its angles in 16."""
    g = attention(written_out, 16)
    after = optimize(g, Target("llvm"), "float16")
    node = next(n for n in after.nodes if n.op == "attention")
    kinds = dict(zip(node.attrs.get("extras", ()), (v.dtype for v in node.inputs[3:])))
    assert node.inputs[0].dtype == "float16" and kinds in ({}, {"cos": "float32", "sin": "float32"})


@thinned(1, ("chip", ["gfx942", "gfx1100", "gfx90a"]), ("steps", [1, 40]))
def test_on_matrix_units(chip, steps):
    """One query by vector code, many by matrix units."""
    g = attention(written_out, 32, "float16", steps, (4, 2))
    assert "rotary" not in ops(g, f"rocm -mcpu={chip}")
    rng = np.random.default_rng(0)
    f = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in g.inputs}
    want = run_graph(g, {k: x.astype(np.float32) for k, x in f.items()})[0]
    (got,) = tec.compile(g, target=f"rocm -mcpu={chip}", cache=False).run(f, device=tec.rocm_emu(chip))
    np.testing.assert_allclose(got.astype(np.float32), want, atol=6e-3)


def test_open_steps():
    g = attention(written_out, 16, steps=Dim("n"))
    assert "rotary" not in ops(g)
    net = tec.compile(g, target="llvm", cache=False)
    for n in (1, 4, 30):
        f = {v.name: np.random.default_rng(n).standard_normal([d if isinstance(d, int) else n for d in v.shape]).astype(np.float32) for v in g.inputs}  # fmt: skip
        np.testing.assert_allclose(net.run(f)[0], run_graph(attention(written_out, 16, steps=n), f)[0], atol=1e-5)
