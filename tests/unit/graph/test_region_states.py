"""Loops and branches that read states which grow in place, and outputs that show them: against the graph reference, run by run, saved and loaded."""

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError
from tec.graph import Graph, run_graph
from tec.graph.builders import Builder
from tec.graph.builders.control import choose, loop
from tec.ops.dim_bounds import Empty
from tec.ops.dims import Dim
from tests.thinned import thinned


def cached():
    """Two caches: "k" grows along axis 1, "r" along axis 0."""
    g = Graph("g")
    p, n = Dim(Empty("p")), Dim("n")
    k, r = g.input("k", "float32", (2, p, 4)), g.input("r", "float32", (p, 4))
    a, c = g.input("a", "float32", (2, n, 4)), g.input("c", "float32", (n, 4))
    b = Builder(g, "l")
    return g, b, (k, r), (b.op("concat", k, a, axis=1), b.op("concat", r, c, axis=0))


def captured(g, b, past, present):
    """Loops and branches within each other read both, before and after they grew."""

    def step(b, number, states, rows):
        s = b.op("add", states[0], b.op("reduce_sum", present[0], axes=(1,), keepdims=True))
        other = b.op("reduce_sum", present[1], axes=(0, 1), keepdims=True)
        more = choose(
            b,
            b.op("greater", other, b.const(np.zeros((1, 1), "float32"))),
            lambda g: [Builder(g, "t").op("add", s, other)],
            lambda g: [s],
        )
        return [b.op("subtract", more[0], b.op("reduce_sum", past[0], axes=(1,), keepdims=True))], [], None

    return loop(b, step, [b.const(np.ones((2, 1, 4), "float32"))], 3)[0]


def begun(g, b, past, present):
    """A cache is what a loop's state is at first."""
    return loop(b, lambda b, k, s, rows: ([b.op("multiply", s[0], b.const(np.float32(2)))], [], None), [present[0]], 3)[
        0
    ]


def gone_over(g, b, past, present):
    """A loop over the rows of one cache, which reads the other."""

    def step(b, number, states, rows):
        total = b.op("reduce_sum", present[0], axes=(0, 1), keepdims=False)
        return [b.op("add", states[0], rows[0])], [b.op("add", rows[0], total)], None

    final, made = loop(
        b, step, [b.const(np.zeros(4, "float32"))], present[1].shape[0], rows=[(present[1], True)], made=[False]
    )
    return [*final, *made]


def handed_on(g, b, past, present):
    """A branch gives a cache as it is."""
    asked = b.op(
        "greater", b.op("reduce_sum", present[1], axes=(0, 1), keepdims=True), b.const(np.zeros((1, 1), "float32"))
    )
    return choose(b, asked, lambda g: [present[0]], lambda g: [Builder(g, "e").op("neg", present[0])])


def shown(g, b, past, present):
    """Outputs beside the state's own: the cache as it was, and again as it is."""
    return [past[0], present[0], present[1]]


CASES = [captured, begun, gone_over, handed_on, shown]


@thinned(1, ("case", CASES), ("target, device", [("llvm", None), ("rocm -mcpu=gfx942", "rocm_emu:gfx942")]))
def test_what_reads_a_cache(case, target, device, tmp_path):
    g, b, past, present = cached()
    outs = case(g, b, past, present)
    g.set_outputs([*outs, *present], [*(f"y{i}" for i in range(len(outs))), "k_next", "r_next"])
    tec.compile(g, target, cache=False, state={"k": "k_next", "r": "r_next"}).save(tmp_path / "net.tec")
    ex = tec.load(tmp_path / "net.tec").executor(device, capacity=2)
    rng = np.random.default_rng(5)
    held = {"k": np.zeros((2, 0, 4), "float32"), "r": np.zeros((0, 4), "float32")}
    for n in (1, 3, 1):
        new = {
            "a": rng.standard_normal((2, n, 4)).astype("float32"),
            "c": rng.standard_normal((n, 4)).astype("float32"),
        }
        *want, k, r = run_graph(g, {**held, **new})
        for x, y in zip(ex.run(new), want, strict=True):
            np.testing.assert_allclose(x.numpy(), y, rtol=1e-5, atol=1e-5)
        held = {"k": k, "r": r}
        for name, x in held.items():
            np.testing.assert_array_equal(ex.state[name].numpy(), x)
    with pytest.raises(ArgumentError):
        ex.run({"a": new["a"], "c": new["c"][:, :3]})
    assert ex.length == 5


@pytest.mark.parametrize(("target", "device"), [("llvm", None), ("rocm -mcpu=gfx942", "rocm_emu:gfx942")])
def test_a_launched_run_that_fails_loses_nothing(target, device):
    g = Graph("g")
    p, n = Dim(Empty("p")), Dim("n")
    past, ids = g.input("past", "float32", (p, 4)), g.input("ids", "int64", (n,))
    b = Builder(g, "l")
    present = b.op("concat", past, b.op("gather", b.const(np.eye(4, dtype="float32")), ids, axis=0), axis=0)
    g.set_outputs([b.op("reduce_sum", present, axes=(0,), keepdims=False), present], ["y", "next"])
    ex = tec.compile(g, target, cache=False, state={"past": "next"}).executor(device)
    ex.launch({"ids": np.array([1, 2])}).sync()
    with pytest.raises(ArgumentError):
        ex.launch({"ids": np.array([4, 0, 1])}).sync()
    assert ex.length == 2
    (y,) = ex.launch({"ids": np.array([2])}).sync()
    np.testing.assert_array_equal(y.numpy(), [0, 1, 2, 0])
