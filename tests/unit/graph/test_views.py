"""Transposes and reshapes move, cancel and end in products; every rewrite keeps what the graph means."""

import itertools
import math
import random

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.dead_code import dead_code
from tec.graph.passes.fuse import fuse
from tec.graph.passes.views import _regrouped, move_views
from tec.ops.dims import Dim
from tec.ops.views import apply_shape, contiguous_run, normal_steps, swap_last
from tests import seeds
from tests.thinned import thinned
from tests.unit.graph.random_graphs import feed, random_graph

HOST, GFX942 = tec.Target("llvm"), tec.Target("rocm -mcpu=gfx942")
rng = np.random.default_rng(5)


def ops(g):
    return [n.op for n in g.nodes]


def T(*perm):
    return ("transpose", tuple(perm))


def R(*shape):
    return ("reshape", tuple(shape))


def graph(shape, *steps, dtype="float32"):
    """Operators one after the other: ("transpose", perm), ("reshape", shape), (op, [others], attrs) or op."""
    g = Graph()
    x = g.input("x", dtype, shape)
    for s in steps:
        s = (s, [], {}) if isinstance(s, str) else s
        if len(s) == 2:
            (x,) = g.add(s[0], [x], {"perm" if s[0] == "transpose" else "shape": s[1]})
        else:
            others = [x if isinstance(o, str) else g.constant(o) for o in s[1]]
            x = g.add(s[0], [x, *others], s[2])[0]
    g.set_outputs([x])
    return g


def moved(g, target=HOST):
    after = dead_code(move_views(g, target))
    after.check()
    feeds = feed(g)
    for a, b in zip(run_graph(after, feeds), run_graph(g, feeds), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return after


def num(*shape):
    return rng.standard_normal(shape).astype("f")


NHWC, NCHW = T(0, 2, 3, 1), T(0, 3, 1, 2)

CASES = {
    "two that cancel": ((2, 3, 4, 5), [NHWC, NCHW], []),
    "two that compose": ((2, 3, 4, 5), [T(0, 2, 3, 1), T(0, 2, 3, 1)], ["transpose"]),
    "three": ((2, 3, 4), [T(1, 2, 0), T(1, 2, 0), T(1, 2, 0)], []),
    "around elementwise work": ((2, 3, 4, 5), [NHWC, "relu", ("add", [num(3)], {}), NCHW], ["relu", "add"]),
    "around a constant of full shape": ((2, 3, 4), [T(2, 0, 1), ("multiply", [num(4, 2, 3)], {}), T(1, 2, 0)], ["multiply"]),
    "around one of a row": ((2, 3, 4), [T(2, 0, 1), ("add", [num(2, 1)], {}), T(1, 2, 0)], ["add"]),
    "around a number": ((2, 3), [T(1, 0), ("multiply", [np.float32(2)], {}), T(1, 0)], ["multiply"]),
    "around a sum": ((2, 3, 4, 5), [NHWC, ("reduce_sum", [], {"axes": (1, -2), "keepdims": True}), NCHW], ["reduce_sum"]),
    "a sum that drops dimensions": (
        (2, 3, 4, 5), [T(3, 2, 1, 0), ("reduce_max", [], {"axes": (1,), "keepdims": False}), T(2, 1, 0)], ["reduce_max"]),
    "around softmax": ((2, 3, 4), [T(0, 2, 1), ("softmax", [], {"axes": (-1,)}), T(0, 2, 1)], ["softmax"]),
    "around concat": ((2, 3, 4), [T(0, 2, 1), ("concat", [num(2, 4, 5)], {"axis": 2}), T(0, 2, 1)], ["concat"]),
    "around slice": (
        (2, 3, 4), [T(0, 2, 1), ("slice", [], {"starts": (0, 1, 2), "steps": (1, 2, -1), "sizes": (1, 2, 3)}), T(0, 2, 1)], ["slice"]),
    "around pad": (
        (2, 3, 4), [T(0, 2, 1), ("pad", [], {"before": (0, 1, 2), "after": (1, 0, 0), "mode": "constant", "value": 1.5}), T(0, 2, 1)],
        ["pad"]),
    "reshapes": ((2, 3, 4), [R(6, 4), R(24), R(2, 12)], ["reshape"]),
    "reshapes that cancel": ((2, 3, 4), [R(6, 4), "tanh", R(2, 3, 4)], ["tanh"]),
    "a bias behind a reshape": ((6, 8), [R(2, 3, 8), ("add", [num(8)], {}), ("multiply", [num(1, 1, 8)], {}), R(6, 8)], ["add", "multiply"]),
    "a bias in front": ((6, 8), [R(6, 4, 2), ("add", [num(6, 1, 1)], {}), R(6, 8)], ["add"]),
    "a bias in the middle": ((6, 8), [R(2, 3, 8), ("add", [num(3, 1)], {}), R(6, 8)], ["reshape", "add", "reshape"]),
    "of extents of 1": ((1, 3, 1, 5), [T(0, 1, 3, 2), R(3, 5)], ["reshape"]),
    "layer_norm behind a reshape": ((6, 8), [R(2, 3, 8), ("layer_norm", [], {"axis": -1, "epsilon": 1e-5}), R(6, 8)], ["layer_norm"]),
    "softmax behind a reshape": ((6, 8), [R(2, 3, 8), ("softmax", [], {"axes": (2,)}), R(6, 8)], ["softmax"]),
    "softmax over what a reshape joined": ((2, 3, 8), [R(2, 24), ("softmax", [], {"axes": (1,)})], ["reshape", "softmax"]),
    "two readers": ((2, 3, 4), [T(0, 2, 1), ("add", ["same"], {}), "relu", T(0, 2, 1)], None),
}  # fmt: skip


@thinned(1, ("case", CASES), ("target", [HOST, GFX942]))
def test_what_is_left(case, target):
    shape, steps, left = CASES[case]
    after = moved(graph(shape, *steps), target)
    assert left is None or ops(after) == left


@pytest.mark.parametrize("seed", seeds.some(30))
def test_random_graphs_mean_the_same(seed):
    g = random_graph(seed, 24)
    before = ops(g).count("transpose")
    after = moved(g, HOST if seed % 2 else GFX942)
    assert ops(after).count("transpose") <= before + 1


@pytest.mark.parametrize("seed", seeds.some(40))
def test_random_chains_of_views(seed):
    r = np.random.default_rng(seed)
    shape, steps = (2, 3, 4, 5), []
    now = shape
    for _ in range(8):
        kind = r.integers(4)
        if kind == 0:
            perm = tuple(int(p) for p in r.permutation(len(now)))
            steps.append(T(*perm))
            now = tuple(now[p] for p in perm)
        elif kind == 1:
            now = [(24, 5), (2, 3, 4, 5), (6, 4, 5), (120,), (4, 1, 30), (2, 60)][r.integers(6)]
            steps.append(R(*now))
        elif kind == 2:
            dims = [n if r.random() < 0.5 else 1 for n in now]
            steps.append(("add", [num(*dims[r.integers(len(dims)) :])], {}))
        else:
            steps.append(("softmax", [], {"axes": (int(r.integers(len(now))),)}))
    moved(graph(shape, *steps), HOST if seed % 2 else GFX942)


def test_a_transpose_with_two_readers_is_not_repeated():
    g = Graph()
    x = g.input("x", "float32", (2, 3, 4, 4))
    (t,) = g.add("transpose", [x], {"perm": (0, 2, 3, 1)})
    (a,) = g.add("relu", [t])
    (b,) = g.add("gather", [t, g.constant(np.array([0, 2]))], {"axis": 1})
    g.set_outputs([a, b])
    assert ops(moved(g)).count("transpose") == 1


def test_an_output_keeps_its_transpose():
    g = graph((2, 3), T(1, 0))
    assert ops(moved(g)) == ["transpose"]


def test_a_graph_without_views_is_the_same_object():
    g = graph((2, 3), "relu")
    assert move_views(g, HOST) is g


# ---- products


@thinned(1, ("ta,tb", list(itertools.product([False, True], repeat=2))), ("target", [HOST, GFX942]))
def test_exchanged_last_dimensions_become_the_products_flags(ta, tb, target):
    g = Graph()
    x = g.input("x", "float32", (2, 5, 6) if ta else (2, 6, 5))
    y = g.input("y", "float32", (2, 7, 5) if tb else (2, 5, 7))
    (p,) = g.add("transpose", [x], {"perm": (0, 2, 1)})
    (q,) = g.add("transpose", [y], {"perm": (0, 2, 1)})
    g.set_outputs(g.add("matmul", [p, q], {"transpose_a": not ta, "transpose_b": not tb}))
    after = moved(g, target)
    if target is HOST and tb:  # a CPU's product reads rows of its second operand
        assert ops(after) == ["transpose", "matmul"]
        assert bool(after.nodes[1].attrs.get("transpose_b")) != tb
        return
    assert ops(after) == ["matmul"]
    assert bool(after.nodes[0].attrs.get("transpose_a")) == ta and bool(after.nodes[0].attrs.get("transpose_b")) == tb


def attention(heads=4, tokens=32, dim=16):
    """What exporters write: projections, heads split off and turned to the front, and back."""
    g = Graph()
    width = heads * dim
    x = g.input("x", "float32", (2, tokens, width))

    def project(v):
        (y,) = g.add("matmul", [v, g.constant(num(width, width) / 8)])
        return g.add("add", [y, g.constant(num(width))])[0]

    def split(v, *perm):
        (y,) = g.add("reshape", [v], {"shape": (2, tokens, heads, dim)})
        return g.add("transpose", [y], {"perm": perm})[0]

    q, k, v = split(project(x), 0, 2, 1, 3), split(project(x), 0, 2, 3, 1), split(project(x), 0, 2, 1, 3)
    (s,) = g.add("matmul", [q, k])
    (s,) = g.add("multiply", [s, g.constant(np.float32(0.25))])
    (s,) = g.add("softmax", [s], {"axes": (-1,)})
    (o,) = g.add("matmul", [s, v])
    (o,) = g.add("transpose", [o], {"perm": (0, 2, 1, 3)})
    (o,) = g.add("reshape", [o], {"shape": (2, tokens, width)})
    (o,) = g.add("add", [project(o), x])
    (o,) = g.add("layer_norm", [o], {"axis": -1, "epsilon": 1e-5})[:1]
    (o,) = g.add("multiply", [o, g.constant(num(width))])
    g.set_outputs(g.add("add", [o, g.constant(num(width))]))
    return g


def test_attention_has_no_transposes_on_a_gpu(monkeypatch):
    g = attention()
    after = moved(g, GFX942)
    assert "transpose" not in ops(after)
    whole = [x for x in fuse(optimize(g, GFX942)) if not x.is_alias]
    assert [[n.op for n in k.nodes] for k in whole] == [
        ["matmul", "add"], ["attention"], ["matmul", "add", "add"], ["layer_norm", "multiply", "add"],
    ]  # fmt: skip
    monkeypatch.setattr("tec.graph.optimize.find_attention", lambda g, *_: g)
    kernels = [x for x in fuse(optimize(g, GFX942)) if not x.is_alias]
    assert [[n.op for n in k.nodes] for k in kernels] == [
        ["matmul", "add"], ["matmul", "multiply"], ["softmax"], ["matmul"], ["matmul", "add", "add"],
        ["layer_norm", "multiply", "add"],
    ]  # fmt: skip


@thinned(1, ("mcpu", ["gfx942", "gfx1100"]), ("dtype", ["float32", "float16"]))
def test_attention_on_the_software_gpu(mcpu, dtype):
    g = attention()
    x = num(2, 32, 64)
    (want,) = run_graph(g, {"x": x})
    (got,) = tec.compile(g, target=f"rocm -mcpu={mcpu}", dtype=dtype, cache=False).run(
        {"x": x}, device=tec.rocm_emu(mcpu)
    )
    np.testing.assert_allclose(got, want, atol=1e-4 if dtype == "float32" else 3e-2)


def test_attention_on_the_cpu():
    g = attention()
    x = num(2, 32, 64)
    (got,) = tec.compile(g, target="llvm", cache=False).run({"x": x})
    np.testing.assert_allclose(got, run_graph(g, {"x": x})[0], atol=1e-4)


def test_rows_of_several_matrices_are_one_product():
    g = Graph()
    (y,) = g.add("matmul", [g.input("x", "float32", (4, 6, 8)), g.constant(num(8, 5))])
    g.set_outputs(g.add("add", [y, g.constant(num(5))]))
    after = moved(g)
    assert [n.outputs[0].shape for n in after.nodes if n.op in ("matmul", "add")] == [(24, 5), (24, 5)]


# ---- fusion


def names(g):
    return [[n.op for n in x.nodes] for x in fuse(g) if not x.is_alias]


def test_a_value_with_all_its_readers_in_one_group_is_taken_in():
    """x * 0.5 * (1 + erf(x / sqrt 2)) behind a product and its bias is one kernel."""
    g = Graph()
    (y,) = g.add("matmul", [g.input("x", "float32", (8, 16)), g.constant(num(16, 24))])
    (y,) = g.add("add", [y, g.constant(num(24))])
    (a,) = g.add("multiply", [y, g.constant(np.float32(0.5))])
    (b,) = g.add("erf", [y])
    g.set_outputs(g.add("multiply", [a, b]))
    assert names(g) == [["matmul", "add", "multiply", "erf", "multiply"]]
    x = num(8, 16)
    for target in ("llvm", "rocm -mcpu=gfx942"):
        net = tec.compile(g, target=target, cache=False)
        (got,) = net.run({"x": x}, device=None if target == "llvm" else tec.rocm_emu("gfx942"))
        np.testing.assert_allclose(got, run_graph(g, {"x": x})[0], atol=1e-4)
    g.set_outputs([*g.outputs, y])
    assert names(g) == [["matmul", "add"], ["multiply", "erf", "multiply"]]


def group_norm(channels, groups, picture, silu=True):
    """As exporters write it: rows of a group each, then a scale and a summand of each channel, and what is read twice behind them."""
    g = Graph()
    n = channels // groups * picture * picture
    x = g.input("x", "float32", (2, channels, picture, picture))
    (y,) = g.add("reshape", [x], {"shape": (2, groups, n)})
    y = g.add("layer_norm", [y], {"axis": 2, "epsilon": 1e-5})[0]
    (y,) = g.add("reshape", [y], {"shape": x.shape})
    for op in ("multiply", "add"):
        (y,) = g.add(op, [y, g.constant(num(channels, 1, 1))], {})
    if silu:
        (y,) = g.add("multiply", [y, g.add("sigmoid", [y], {})[0]], {})
    g.set_outputs([y])
    return g


def test_a_norm_of_groups_is_one_kernel_with_its_scales_and_activation():
    g = moved(group_norm(12, 3, 8))
    (norm,) = [n for n in g.nodes if n.op == "layer_norm"]
    assert norm.outputs[0].shape == (2, 3, 4, 64) and norm.attrs["axis"] == 2
    groups = [[n.op for n in f.nodes] for f in fuse(g) if not f.is_alias]
    assert groups == [["layer_norm", "multiply", "add", "sigmoid", "multiply"]]


def test_a_norm_of_groups_of_small_pictures_keeps_long_rows():
    """Four places a channel are no vector: the scales are a kernel of their own, with what reads them twice."""
    groups = [[n.op for n in f.nodes] for f in fuse(moved(group_norm(12, 3, 2))) if not f.is_alias]
    assert groups == [["layer_norm"], ["multiply", "add", "sigmoid", "multiply"]]


def test_operands_broadcast_alike_behind_a_reshape():
    """Random groupings of random extents."""
    r = random.Random(seeds.number())
    found = 0
    for _ in range(300):
        extents = [r.choice([1, 2, 3, 4, 6]) for _ in range(r.randint(1, 5))]
        here, target = ([math.prod(part) for part in parts(extents, r)] for _ in range(2))
        now = [n if r.random() < 0.5 else 1 for n in here]
        made = _regrouped(now, here, target)
        if made is None:
            continue
        found += 1
        x = np.arange(math.prod(now))
        a, b = np.broadcast_to(x.reshape(now), here), np.broadcast_to(x.reshape(made), target)
        assert np.array_equal(a.reshape(target), b), (now, here, target, made)
    assert found > 100
    assert _regrouped([2, 1], [2, 3], [6]) is None


def test_what_broadcasts_over_a_reshape_of_open_sizes():
    n = Dim("n")
    assert _regrouped([1, 1, 4, 16], [n, 32, 4, 16], [n * 32, 64]) == (1, 64)
    assert _regrouped([n, 32, 1, 1], [n, 32, 4, 16], [n * 32, 64]) == (n * 32, 1)
    assert _regrouped([1, 32, 4, 16], [n, 32, 4, 16], [n * 32, 64]) is None


def parts(extents, r):
    """Neighbours together, and empty parts between, which are dimensions of one place."""
    at = 0
    while at < len(extents):
        step = r.randint(0, 2)
        yield extents[at : at + step]
        at += step


def test_a_normalisation_whose_statistics_are_read_stays_alone():
    g = Graph()
    y, mean, _ = g.add("layer_norm", [g.input("x", "float32", (4, 16))], {"axis": -1, "epsilon": 1e-5})
    (z,) = g.add("multiply", [y, g.constant(num(16))])
    g.set_outputs([z])
    assert names(g) == [["layer_norm", "multiply"]]
    g.set_outputs([z, mean])
    assert names(g) == [["layer_norm"], ["multiply"]]


# ---- steps


def test_steps():
    assert normal_steps((T(1, 0), T(1, 0)), (2, 3)) == ()
    assert normal_steps((R(6), R(2, 3)), (2, 3)) == ()
    assert normal_steps((T(1, 0, 2),), (1, 3, 4)) == (R(3, 1, 4),)
    assert swap_last((R(2, 3, 4), T(0, 2, 1))) == ((R(2, 3, 4),), True)
    assert swap_last((T(0, 2, 3, 1),)) == ((T(0, 2, 1, 3),), True)
    assert swap_last((T(0, 2, 1, 3),)) == ((T(0, 2, 1, 3),), False)
    assert apply_shape((2, 3, 4), (T(2, 0, 1), R(8, 3))) == (8, 3)


@pytest.mark.parametrize("shape,steps,most,run", [
    ((4, 24), (), 8, 8), ((4, 12), (), 8, 4), ((2, 8, 3, 16), (T(0, 2, 1, 3),), 8, 8), ((2, 8, 16), (T(0, 2, 1),), 8, 1),
    ((2, 3, 8, 4), (T(0, 2, 1, 3), R(16, 12)), 8, 4), ((6, 4), (R(24),), 8, 8),
])  # fmt: skip
def test_contiguous_runs(shape, steps, most, run):
    assert contiguous_run(shape, steps, most) == run


# ---- equal kernels


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_equal_layers_share_one_function(target):
    """Blocks of one shape differ by their weights alone: one function each, run as often as there are blocks."""
    g = Graph()
    x = y = g.input("x", "float32", (1, 32, 8, 8))
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}
    for _ in range(6):
        (z,) = g.add("conv", [y, g.constant(num(32, 32, 3, 3) / 16)], attrs)
        (z,) = g.add("relu", [g.add("add", [z, g.constant(num(32, 1, 1))])[0]])
        (z,) = g.add("conv", [z, g.constant(num(32, 32, 3, 3) / 16)], attrs)
        (y,) = g.add("relu", [g.add("add", [z, y])[0]])
    g.set_outputs([y])
    net = tec.compile(g, target=target, cache=False)
    convolutions = [name for name in net.report.functions if "conv" in name]
    assert len(convolutions) <= 3  # the two of a block; the last block's may end in another layout
    assert sum(len(net.report.origins[name]) for name in convolutions) == 12
    feeds = {"x": num(1, 32, 8, 8)}
    (got,) = net.run(feeds, device=None if target == "llvm" else tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(got, run_graph(g, feeds)[0], rtol=1e-3, atol=1e-3)
    assert x.shape == y.shape


def test_a_transformers_layers_have_no_casts_between_them():
    """A normalisation is read by products, in 16 bits, and by the sum of the residual: one of them having it converted is enough."""
    g = Graph()
    x = g.input("x", "float32", (2, 16, 32))
    (y,) = g.add("add", [x, g.constant(num(32))])
    for _ in range(3):
        (a,) = g.add("reshape", [y], {"shape": (32, 32)})
        (a,) = g.add("matmul", [a, g.constant(num(32, 32) / 6)])
        (a,) = g.add("reshape", [a], {"shape": (2, 16, 32)})
        (a,) = g.add("add", [a, y])
        y = g.add("layer_norm", [a], {"axis": -1, "epsilon": 1e-5})[0]
        (y,) = g.add("multiply", [y, g.constant(num(32))])
    g.set_outputs([y])
    after = optimize(g, GFX942, "float16")
    assert ops(after).count("cast") <= 2  # in and out
    feeds = {"x": num(2, 16, 32)}
    np.testing.assert_allclose(run_graph(after, feeds)[0], run_graph(g, feeds)[0], atol=3e-2)


def channels_last(is_undone):
    """Squeeze and excitation on channels last: two readers of a transposed picture, and a sum around both."""
    g = Graph()
    x = g.input("x", "float32", (2, 8, 6, 6))
    (last,) = g.add("transpose", [x], {"perm": (0, 2, 3, 1)})
    (mean,) = g.add("reduce_mean", [last], {"axes": (1, 2), "keepdims": True})
    (gated,) = g.add("multiply", [last, mean], {})
    (total,) = g.add("add", [gated, last], {})
    (out,) = g.add("transpose", [total], {"perm": (0, 3, 1, 2)}) if is_undone else [total]
    g.set_outputs([out])
    return g


def test_a_transpose_passes_several_readers_where_it_is_undone_behind_them():
    assert "transpose" not in ops(moved(channels_last(True)))
    assert ops(moved(channels_last(False))).count("transpose") == 1
