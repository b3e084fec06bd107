"""Slices and concatenations of whole rows take no function: pieces of memory, right values, plans that are checked."""

import numpy as np
import pytest

import tec
from tec.errors import PackageError
from tec.graph import Graph, run_graph
from tec.runtime.networks.network import Network
from tec.runtime.plans.plan import Plan

TARGETS = ["llvm", "rocm -mcpu=gfx942"]


def _run(net, feeds):
    device = None if "llvm" in str(net.module.target) else tec.rocm_emu("gfx942")
    return net.run(feeds, device=device)


def _tanh_of_rows(steps, width, outer_output=False):
    """x in rows; the tanh of each; together again, and twice."""
    g = Graph("rows")
    x = g.input("x", "float32", (steps, width))
    rows = []
    for k in range(steps):
        (row,) = g.add("slice", [x], {"starts": (k, 0), "steps": (1, 1), "sizes": (1, width)})
        rows.append(g.add("tanh", [row], {})[0])
    (y,) = g.add("concat", rows, {"axis": 0}, "y")
    (z,) = g.add("add", [y, y], {}, "z")
    g.set_outputs([y, z] if outer_output else [z])
    return g


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("outer_output", [False, True])
def test_rows_are_pieces_and_their_function_is_one(target, outer_output):
    net = tec.compile(_tanh_of_rows(40, 32, outer_output), target=target, cache=False)
    assert len({s.function for s in net.plan.steps}) == 2
    # 40 rows, four of them a launch on a GPU, and one sum: no slices, no concat.
    assert len(net.plan.steps) == (41 if target == "llvm" else 11)
    x = np.random.default_rng(0).standard_normal((40, 32)).astype(np.float32)
    want = np.tanh(x)
    outs = _run(net, {"x": x})
    np.testing.assert_allclose(outs[-1], want + want, rtol=1e-5, atol=1e-6)
    if outer_output:
        np.testing.assert_allclose(outs[0], want, rtol=1e-5, atol=1e-6)


def test_rows_that_are_not_aligned_are_copied():
    net = tec.compile(_tanh_of_rows(6, 7), target="llvm", cache=False)
    x = np.random.default_rng(0).standard_normal((6, 7)).astype(np.float32)
    np.testing.assert_allclose(net.run({"x": x})[0], 2 * np.tanh(x), rtol=1e-5, atol=1e-6)
    for v in net.plan.values.values():
        assert (v.offset or 0) % 64 == 0


@pytest.mark.parametrize("target", TARGETS)
def test_the_last_part_may_end_anywhere(target):
    """NudeNet's boxes and scores: nothing begins behind the scores."""
    g = Graph("boxes")
    parts = [g.input(n, "float32", (1, size)) for n, size in (("x", 64), ("y", 7))]
    (joined,) = g.add("concat", [g.add("softmax", [v], {"axes": (1,)})[0] for v in parts], {"axis": 1})
    g.set_outputs([g.add("softmax", [joined], {"axes": (1,)})[0]])
    net = tec.compile(g, target=target, cache=False)
    assert any(v.parts for v in net.plan.values.values())
    rng = np.random.default_rng(0)
    f = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in g.inputs}
    np.testing.assert_allclose(_run(net, f)[0], run_graph(g, f)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_joins_within_joins_and_values_that_others_read_too(target):
    """A dense block: every layer reads all before it, and its result goes behind them."""
    g = Graph("dense")
    x = g.input("x", "float32", (1, 4, 8, 8))
    (now,) = g.add("relu", [x], {})
    want_parts = []
    for _ in range(3):
        (t,) = g.add("exp", [g.add("neg", [now], {})[0]], {})
        want_parts.append(t)
        (now,) = g.add("concat", [now, t], {"axis": 1})
    (out,) = g.add("multiply", [now, now], {})
    g.set_outputs([out, want_parts[1]])
    a = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)
    net = tec.compile(g, target=target, cache=False)
    assert any(v.parts for v in net.plan.values.values())
    want, second = np.maximum(a, 0), None
    for k in range(3):
        t = np.exp(-want)
        second = t if k == 1 else second
        want = np.concatenate([want, t], 1)
    outs = _run(net, {"x": a})
    np.testing.assert_allclose(outs[0], want * want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outs[1], second, rtol=1e-5, atol=1e-6)


def test_one_value_twice_in_a_concat_and_in_two_concats():
    g = Graph("twice")
    x = g.input("x", "float32", (2, 16))
    (a,) = g.add("exp", [x], {})
    (b,) = g.add("tanh", [x], {})
    (one,) = g.add("concat", [a, a, b], {"axis": 0})
    (two,) = g.add("concat", [b, a], {"axis": 0})
    g.set_outputs([g.add("neg", [one], {})[0], g.add("neg", [two], {})[0], a])
    v = np.random.default_rng(2).standard_normal((2, 16)).astype(np.float32)
    e, t = np.exp(v), np.tanh(v)
    outs = tec.compile(g, target="llvm", cache=False).run({"x": v})
    for got, want in zip(outs, (-np.concatenate([e, e, t]), -np.concatenate([t, e]), e)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_package_keeps_pieces_and_forged_ones_are_refused(tmp_path):
    net = tec.compile(_tanh_of_rows(8, 16), target="llvm", cache=False)
    net.save(tmp_path / "rows.tec")
    x = np.ones((8, 16), np.float32)
    np.testing.assert_allclose(tec.load(tmp_path / "rows.tec").run({"x": x})[0], 2 * np.tanh(x), rtol=1e-5)

    def forged(change):
        data = net.plan.to_json()
        change(data["values"])
        return Network(net.module, Plan.from_json(data), net.params)

    def first(values, ok):
        return next(n for n, v in values.items() if ok(v))

    def piece(v):
        return v["place"] == "alias" and v.get("offset")

    def whole(v):
        return bool(v.get("parts"))

    changes = [
        lambda v: v[first(v, piece)].update(offset=8 * 16 * 4),  # past the end
        lambda v: v[first(v, piece)].update(offset=-64),
        lambda v: v[first(v, piece)].update(offset=4),  # not aligned
        lambda v: v[first(v, whole)]["parts"].pop(),
        lambda v: v[first(v, whole)].update(parts=v[first(v, whole)]["parts"][::-1]),
        lambda v: v[first(v, whole)].update(parts=[first(v, whole)]),  # of itself
        lambda v: v[first(v, whole)].update(parts=["x"]),
        lambda v: v[first(v, whole)].update(parts=7),
    ]
    for change in changes:
        with pytest.raises(PackageError):
            forged(change)


@pytest.mark.parametrize("start", [0, 2])
def test_an_output_that_is_a_part_of_an_input(start):
    """No step at all: the output is a copy of some rows."""
    g = Graph("rows")
    x = g.input("x", "float32", (5, 16))
    (y,) = g.add("slice", [x], {"starts": (start, 0), "steps": (1, 1), "sizes": (3, 16)})
    g.set_outputs([y], ["y"])
    net = tec.compile(g, target="llvm", cache=False)
    data = np.arange(80, dtype="float32").reshape(5, 16)
    (got,) = net.run({"x": data})
    np.testing.assert_array_equal(got, data[start : start + 3])
    data[:] = 0
    assert got.any()


def test_a_view_of_a_view_takes_no_function():
    """A signal's convolution is one of an image of one row: taking the row out again only takes out a dimension of 1, but what follows shows memory and has no loops to put that into."""
    g = Graph("views")
    x = g.input("x", "float16", (1, 4, 40))
    w = g.constant(np.random.default_rng(1).standard_normal((48, 4, 3)).astype("float16"))
    attrs = {"strides": (1,), "dilations": (1,), "before": (1,), "after": (1,), "groups": 1, "out_dtype": "float16"}
    (y,) = g.add("conv", [x, w], attrs)
    g.set_outputs(g.add("multiply", [y, *g.add("sigmoid", [y], {})], {}))
    net = tec.compile(g, target="rocm -mcpu=gfx950", cache=False)
    assert len(net.plan.steps) == 1
