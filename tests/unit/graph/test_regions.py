"""Loops and branches as parts of a plan: against the graph reference on the CPU and on the software GPU, saved and loaded, and what they refuse."""

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.builders import Builder
from tec.graph.builders.attention import attend, join_heads, split_heads
from tec.graph.builders.control import choose, loop
from tec.ops.dims import Dim
from tec.runtime.plans.plan import Call, Choose, Repeat

rng = np.random.default_rng(11)
TARGETS = [("llvm", None), ("rocm -mcpu=gfx942", "rocm_emu:gfx942")]


def rand(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def check(g, feeds, tmp_path, tol=1e-5):
    g.check()
    want = run_graph(g, feeds)
    for target, device in TARGETS:
        net = tec.compile(g, target, cache=False)
        net.save(tmp_path / "net.tec")
        net = tec.load(tmp_path / "net.tec")
        for _ in range(2):
            for a, b in zip(net.run(feeds, device), want, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
    return net


@pytest.mark.parametrize("trips", [0, 1, 4, 5])
def test_states_change_places_and_rows_lie_in_place(trips, tmp_path):
    """Two states of which one becomes the other, rows from the end, rows made in both directions, the number of the trip. Rows of 6 floats
    begin anywhere."""
    g = Graph("g")
    b, x, y, w = (
        Builder(g, "l"),
        g.input("x", "float32", (6,)),
        g.input("y", "float32", (6,)),
        g.input("w", "float32", (trips, 6)),
    )

    def step(b, number, states, rows):
        s = b.op("add", b.op("multiply", states[0], rows[0]), x)
        return [states[1], s], [s, b.op("multiply", states[0], b.cast(number, "float32"))], None

    final, made = loop(b, step, [x, y], trips, rows=[(w, True)], made=[False, True])
    g.set_outputs([*final, *made])
    net = check(g, {"x": rand(6), "y": rand(6), "w": rand(trips, 6)}, tmp_path)
    assert any(isinstance(s, Repeat) for s in net.plan.steps)


@pytest.mark.parametrize(("count", "limit"), [(5, 100.0), (50, 20.0), (0, 1.0)])
def test_a_count_and_conditions_are_read_when_it_runs(count, limit, tmp_path):
    g = Graph("g")
    b, x = Builder(g, "l"), g.input("x", "float32", (6,))
    n, most = g.input("n", "int64", ()), g.input("most", "float32", ())

    def step(b, number, states, rows):
        s = b.op("add", states[0], x)
        top = b.op("reduce_max", s, axes=(0,), keepdims=False)
        small = b.op("less", top, b.const(np.float32(7)))
        made = choose(
            b,
            small,
            lambda body: [Builder(body).op("multiply", s, Builder(body).const(np.float32(1.5)))],
            lambda body: [s],
        )
        return made, [], b.op("less", top, most)

    final, _ = loop(b, step, [x], None, count=n)
    g.set_outputs(final)
    net = check(g, {"x": np.abs(rand(6)), "n": np.int64(count), "most": np.float32(limit)}, tmp_path)
    assert any(isinstance(s, Choose) for s, _ in net.plan.holders)


def test_loops_in_loops_and_outputs_of_both(tmp_path):
    g = Graph("g")
    b, x, m = Builder(g, "l"), g.input("x", "float32", (3, 5)), g.input("m", "float32", (4, 5))

    def outer(b, number, states, rows):
        def within(b, number, own, items):
            return [b.op("add", own[0], b.op("multiply", items[0], rows[0]))], [b.op("add", items[0], own[0])], None

        last, made = loop(b, within, [states[0]], 4, rows=[(states[1], False)], made=[False])
        return [last[0], made[0]], [last[0]], None

    final, made = loop(b, outer, [b.const(np.zeros(5, np.float32)), m], 3, rows=[(x, False)], made=[False])
    g.set_outputs([*final, *made, b.op("tanh", made[0])])
    check(g, {"x": rand(3, 5), "m": rand(4, 5)}, tmp_path)


def test_bodies_that_hand_on_what_they_are_given(tmp_path):
    """Outputs that are inputs, constants, captured values or views of them are copied."""
    g = Graph("g")
    b, x, flag = Builder(g, "l"), g.input("x", "float32", (2, 8)), g.input("flag", "bool", ())

    def step(b, number, states, rows):
        turned = b.reshape(states[1], (2, 8))
        return [turned, b.reshape(states[0], (16,)), b.const(np.ones(3, np.float32))], [rows[0], x], None

    final, made = loop(
        b, step, [x, b.reshape(x, (16,)), b.const(np.zeros(3, np.float32))], 2, rows=[(x, False)], made=[False, False]
    )
    same = choose(
        b,
        flag,
        lambda body: [x, Builder(body).const(np.float32(1))],
        lambda body: [Builder(body).op("neg", x), Builder(body).const(np.float32(2))],
    )
    g.set_outputs([*final, *made, *same])
    for truth in (True, False):
        check(g, {"x": rand(2, 8), "flag": np.asarray(truth)}, tmp_path)


@pytest.mark.parametrize(("target", "device"), TARGETS)
def test_one_plan_for_all_lengths(target, device):
    g = Graph("g")
    steps, batch = Dim("t"), Dim("b")
    b, w = Builder(g, "l"), g.input("w", "float32", (steps, batch, 6))

    def step(b, number, states, rows):
        s = b.op("add", states[0], rows[0])
        return [s], [b.op("tanh", s)], None

    zero = b.broadcast(b.const(np.float32(0)), (batch, 6))
    final, made = loop(b, step, [zero], steps, rows=[(w, True)], made=[True])
    g.set_outputs([*final, *made])
    net = tec.compile(g, target, cache=False)
    for size in ((3, 2), (1, 1), (8, 4)):
        feeds = {"w": rand(*size, 6)}
        for a, c in zip(net.run(feeds, device), run_graph(g, feeds), strict=True):
            np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-5)
    fixed = net.bind(t=5, b=2)
    feeds = {"w": rand(5, 2, 6)}
    np.testing.assert_allclose(fixed.run(feeds, device)[1], run_graph(g, feeds)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("where", ["loop", "branch"])
def test_indices_in_bodies_are_checked(where):
    g = Graph("g")
    b, x, i, flag = (
        Builder(g, "l"),
        g.input("x", "float32", (6,)),
        g.input("i", "int64", (4, 1)),
        g.input("flag", "bool", ()),
    )
    if where == "loop":
        outs, _ = loop(
            b, lambda b, n, states, rows: ([b.op("add", states[0], b.op("gather", x, rows[0], axis=0))], [], None),
            [b.const(np.zeros(1, np.float32))], 4, rows=[(i, False)],
        )  # fmt: skip
    else:
        first = b.take(i, 0, 2)
        outs = choose(
            b,
            flag,
            lambda body: [Builder(body).op("gather", x, first, axis=0)],
            lambda body: [Builder(body).const(np.zeros(1, np.float32))],
        )
    g.set_outputs(outs)
    net = tec.compile(g, cache=False)
    feeds = {"x": rand(6), "i": np.array([[1], [0], [5], [3]]), "flag": np.asarray(True)}
    np.testing.assert_allclose(net.run(feeds)[0], run_graph(g, feeds)[0], rtol=1e-6)
    feeds["i"] = np.array([[1], [0], [9], [3]])
    with pytest.raises(ArgumentError, match=r"an index of gather .* is outside of -6 to 5"):
        net.run(feeds)
    feeds["flag"] = np.asarray(False)
    if where == "branch":
        assert net.run(feeds)[0] == 0  # the branch with the index is not taken


def counted():
    g = Graph("g")
    b, x, n = Builder(g, "l"), g.input("x", "float32", (3,)), g.input("n", "int64", ())
    final, _ = loop(b, lambda b, k, states, rows: ([b.op("add", states[0], x)], [], None), [x], None, count=n)
    g.set_outputs(final)
    return g


@pytest.mark.parametrize(("target", "device"), TARGETS)
def test_absurd_trip_counts_lose_nothing(target, device):
    net = tec.compile(counted(), target, cache=False)
    ex, x = net.executor(device), rand(3)
    for n, says in ((-1, "asked for -1 trips"), (1 << 40, f"asked for {1 << 40} trips")):
        with pytest.raises(ArgumentError, match=says):
            ex.run({"x": x, "n": np.int64(n)})
        np.testing.assert_allclose(ex.run({"x": x, "n": np.int64(3)})[0].numpy(), 4 * x, rtol=1e-5)


def test_a_state_survives_a_run_that_fails():
    """A network with a state and a loop: a refused trip count leaves the state as it was."""
    g = Graph("g")
    b, x, s, n = (
        Builder(g, "l"),
        g.input("x", "float32", (3,)),
        g.input("s", "float32", (3,)),
        g.input("n", "int64", ()),
    )
    final, _ = loop(b, lambda b, k, states, rows: ([b.op("add", states[0], x)], [], None), [s], None, count=n)
    g.set_outputs([b.op("neg", final[0]), final[0]], ["y", "next"])
    ex = tec.compile(g, cache=False, state={"s": "next"}).executor()
    x = rand(3)
    ex.run({"x": x, "n": np.int64(2)})
    with pytest.raises(ArgumentError, match="-5 trips"):
        ex.run({"x": x, "n": np.int64(-5)})
    np.testing.assert_allclose(ex.run({"x": x, "n": np.int64(1)})[0].numpy(), -3 * x, rtol=1e-5)


def test_mixed_precision_goes_into_bodies():
    g = Graph("g")
    b, x, w = Builder(g, "l"), g.input("x", "float32", (4, 16)), rand(16, 16) / 4
    final, _ = loop(
        b, lambda b, k, states, rows: ([b.op("tanh", b.op("matmul", states[0], b.const(w)))], [], None), [x], 9
    )
    g.set_outputs(final)
    feeds = {"x": rand(4, 16)}
    net = tec.compile(g, dtype="float16", cache=False)
    np.testing.assert_allclose(net.run(feeds)[0], run_graph(g, feeds)[0], atol=2e-2)
    assert any(p.dtype == np.float16 for p in net.params.values())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"states": 3}, "whose body takes"),
        ({"trips": None, "made": (False,)}, "trips no size gives"),
        ({"extras": ("speed",)}, "whose speed is"),
        ({"going": True}, "whose body takes"),
    ],
)
def test_what_does_not_fit_is_refused(change, says):
    g = counted()
    with pytest.raises(ImportModelError, match=says):
        g.add("loop", g.nodes[0].inputs, {**g.nodes[0].attrs, **change})


def test_branches_give_the_same_types():
    g = Graph("g")
    b, x, flag = Builder(g, "l"), g.input("x", "float32", (3,)), g.input("flag", "bool", ())
    with pytest.raises(ImportModelError, match=r"branches that give float32\[3\] and float32\[\]"):
        choose(b, flag, lambda body: [x], lambda body: [Builder(body).const(np.float32(0))])


def test_a_loop_reads_views_whose_rows_lie_apart(tmp_path):
    """Attention reads queries, keys and values where one product left them, side by side; at each trip elsewhere."""
    g = Graph("g")
    heads, size, steps = 2, 16, 8
    width = heads * size
    b, x = Builder(g, "l"), g.input("x", "float32", (2, steps, width))
    w = g.constant((rand(width, 3 * width) / width**0.5).astype(np.float32), "w")

    def step(b, number, states, rows):
        parts = b.split(b.op("matmul", states[0], w), 2, [width] * 3)
        q, k, v = (split_heads(b, p, heads) for p in parts)
        return [join_heads(b, attend(b, q, k, v, None, size**-0.5))], [], None

    final, _ = loop(b, step, [x], 3)
    g.set_outputs(final)
    net = check(g, {"x": rand(2, steps, width)}, tmp_path)
    calls = [s for s in net.plan.flat if isinstance(s, Call)]
    assert any(not isinstance(e, str) for s in calls for p in net.signature(s.function) for e in p.strides or ())
