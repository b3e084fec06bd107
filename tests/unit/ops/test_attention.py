"""Attention as one operator: against float64 NumPy, as its te definition, as loops on every device, with open sizes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import spaces
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.graph import bind_sizes
from tec.ops import get_op
from tec.ops.dim_bounds import Empty
from tec.ops.dims import Dim
from tec.te.evaluation import evaluate
from tests.thinned import thinned_rows

B, N, M, S, T, H = 2, 4, 2, 5, 9, 8
CASES = {
    "plain": ({}, {}),
    "causal": ({"right": 0, "offset": T - S}, {}),
    "window": ({"right": 1, "left": 2, "offset": 1}, {}),
    "nothing seen": ({"right": 0, "offset": -2}, {}),
    "soft cap": ({"softcap": 1.5}, {}),
    "alibi": ({}, {"bias": ("float32", (1, N, 1, T))}),
    "two biases": ({}, {"bias": ("float32", (B, 1, S, T)), "bias1": ("bool", (B, 1, 1, T))}),
    "own starts": ({"right": 0}, {"start": ("int64", (B,)), "length": ("int32", (B,))}),
    "starts that no window asks for": ({}, {"start": ("int64", (B,))}),
    "turned": (
        {"q_order": (0, 2, 1, 3), "k_order": (1, 0, 3, 2), "v_order": (3, 2, 1, 0), "out_order": (0, 2, 1, 3)},
        {},
    ),
    "angles": ({"right": 0}, {"cos": ("float32", (B, 1, S, H // 2)), "sin": ("float32", (B, 1, S, H // 2))}),
    "angles of each feature, behind masks": (
        {"q_order": (0, 2, 1, 3), "whole": True},
        {"bias": ("float32", (1, 1, S, T)), "cos": ("float32", (1, N, S, H)), "sin": ("float32", (1, N, S, H))},
    ),
    "angles of neighbours, some": (
        {"interleaved": True},
        {"cos": ("float32", (B, 1, 1, H // 4)), "sin": ("float32", (B, 1, 1, H // 4))},
    ),
    "sinks behind a window": ({"right": 0, "left": 3, "offset": T - S}, {"sink": ("float32", (1, N, 1, 1))}),
    "sinks where nothing is seen": (
        {"right": 0, "offset": -2},
        {"bias": ("float32", (1, 1, S, T)), "sink": ("float32", (1, N, S, 1))},
    ),
    "slopes": ({"right": 0, "offset": T - S, "softcap": 2.0}, {"slopes": ("float32", (1, N, 1, 1))}),
    "slopes and own starts": ({"right": 0}, {"slopes": ("float32", (1, N, 1, 1)), "start": ("int64", (B,))}),
    "angles of some": ({}, {"sin": ("float32", (1, 1, S, H // 4)), "cos": ("float32", (1, 1, S, H // 4))}),
}


def stored(shape, order):
    """The shape of a tensor that shows (batch, heads, places, elements) by `order`."""
    out = [0] * 4
    for axis, n in zip(order, shape):
        out[axis] = n
    return tuple(out)


def build(attrs, extras, sizes=(B, N, M, S, T, H, 6), dtype="float32"):
    b, n, m, s, t, h, w = sizes
    g = Graph()
    shapes = {"q": (b, n, s, h), "k": (b, m, t, h), "v": (b, m, t, w)}
    ins = [g.input(x, dtype, stored(shape, attrs.get(f"{x}_order", (0, 1, 2, 3)))) for x, shape in shapes.items()]
    ins += [g.input(x, kind, shape) for x, (kind, shape) in extras.items()]
    g.set_outputs(g.add("attention", ins, {"scale": 0.4, "extras": tuple(extras), **attrs}))
    return g


def feeds(g, seed=0):
    rng = np.random.default_rng(seed)
    made = {}
    for v in g.inputs:
        if v.dtype == "bool":
            made[v.name] = rng.random(v.shape) > 0.3
        elif v.dtype.startswith("int"):
            made[v.name] = rng.integers(1, 6, v.shape).astype(v.dtype)
        else:
            made[v.name] = rng.standard_normal(v.shape).astype(np.float32)
    return made


def turned(q, cos, sin, attrs):
    """Queries turned by their angles, a pair at a time."""
    y = q.copy()
    half = cos.shape[3] // 2 if attrs.get("whole") else cos.shape[3]
    for p in range(half):
        a, b = (2 * p, 2 * p + 1) if attrs.get("interleaved") else (p, p + half)
        i, j = (a, b) if attrs.get("whole") else (p, p)
        y[..., a] = q[..., a] * cos[..., i] - q[..., b] * sin[..., i]
        y[..., b] = q[..., b] * cos[..., j] + q[..., a] * sin[..., j]
    return y


def dense(f, attrs, offset=None):
    """All at once, in float64."""
    q, k, v = (f[x].astype(np.float64).transpose(attrs.get(f"{x}_order", (0, 1, 2, 3))) for x in "qkv")
    if "cos" in f:
        q = turned(q, f["cos"].astype(np.float64), f["sin"].astype(np.float64), attrs)
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    x = q @ k.swapaxes(2, 3) * 0.4
    if attrs.get("softcap"):
        x = np.tanh(x / attrs["softcap"]) * attrs["softcap"]
    for name, bias in f.items():
        if name.startswith("bias"):
            x = np.where(bias, x, -np.inf) if bias.dtype == bool else x + bias
    i, j = np.arange(x.shape[2])[:, None], np.arange(x.shape[3])
    place = i + (f["start"][:, None, None, None] if "start" in f else attrs.get("offset", 0))
    if "slopes" in f:
        x = x + f["slopes"] * (j - place)
    seen = np.ones(x.shape, bool)
    if "right" in attrs:
        seen &= j <= place + attrs["right"]
    if "left" in attrs:
        seen &= j >= place - attrs["left"]
    if "length" in f:
        seen &= j < f["length"][:, None, None, None]
    x = np.where(seen, x, -np.inf)
    p = np.exp(x - np.where(seen.any(3, keepdims=True), x.max(3, keepdims=True), 0))
    p = np.where(np.isnan(p), 0, p)
    total = p.sum(3, keepdims=True)
    if "sink" in f:
        total = total + np.exp(f["sink"] - np.where(seen.any(3, keepdims=True), x.max(3, keepdims=True), 0))
    y = p @ v / np.maximum(total, 1e-300)
    order = attrs.get("out_order", (0, 1, 2, 3))
    return y.transpose(np.argsort(order))


@thinned_rows(9, "case", CASES)
def test_definition_host_and_cpu(case):
    attrs, extras = CASES[case]
    g = build(attrs, extras)
    f = feeds(g)
    want = dense(f, attrs)
    (host,) = run_graph(g, f)
    np.testing.assert_allclose(host, want, atol=1e-5)
    node = g.nodes[0]
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in node.inputs]
    made = get_op("attention").compute(node.attrs, ins, [v.type for v in node.outputs])
    (defined,) = evaluate(made, {t: f[v.name] for t, v in zip(ins, node.inputs)})
    np.testing.assert_allclose(defined, want, atol=1e-5)
    (got,) = tec.compile(g, target="llvm", cache=False).run(f)
    np.testing.assert_allclose(got, want, atol=1e-5)


ON_GPUS = [
    ("plain", "gfx1100"),
    ("window", "gfx942"),
    ("two biases", "gfx1100"),
    ("own starts", "gfx942"),
    ("turned", "gfx942"),
    ("angles", "gfx942"),
    ("angles of each feature, behind masks", "gfx1100"),
    ("angles of neighbours, some", "gfx942"),
    ("angles of some", "gfx1100"),
    ("sinks behind a window", "gfx942"),
    ("slopes", "gfx942"),
    ("slopes and own starts", "gfx1100"),
]


@thinned_rows(6, "case,chip", ON_GPUS)
def test_on_the_software_gpu(case, chip):
    attrs, extras = CASES[case]
    g = build(attrs, extras)
    f = feeds(g)
    net = tec.compile(g, target=f"rocm -mcpu={chip}", cache=False)
    (got,) = net.run(f, device=tec.rocm_emu(chip))
    np.testing.assert_allclose(got, dense(f, attrs), atol=1e-5)


def test_keys_over_work_groups():
    """One query and a long cache: parts of the keys side by side, then joined."""
    g = build(
        {"right": 0},
        {"start": ("int64", (2,)), "sink": ("float16", (1, 4, 1, 1)), "slopes": ("float32", (1, 4, 1, 1))},
        (2, 4, 2, 1, 6000, 32, 32),
        "float16",
    )
    f = {k: x.astype(np.float16) if x.dtype == np.float32 else x for k, x in feeds(g).items()}
    f["start"], f["slopes"] = np.array([5999, 40]), np.float32([0.5, 2e-2, 1e-3, 0]).reshape(1, 4, 1, 1)
    net = tec.compile(g, target="rocm -mcpu=gfx942", cache=False)
    assert all(c["choice"]["splits"] > 1 for c in net.report.choices.values())
    (got,) = net.run(f, device=tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(got.astype(np.float32), dense(f, {"right": 0}), atol=2e-3)


@pytest.mark.parametrize("dtype,tol", [("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-12)])
def test_types(dtype, tol):
    from tec.te.numpy_dtype import np_dtype

    g = build({"right": 0, "offset": 30}, {}, (1, 2, 1, 40, 70, 16, 16), dtype)
    f = {k: x.astype(np_dtype(dtype)) for k, x in feeds(g).items()}
    (got,) = tec.compile(g, target="llvm", cache=False).run(f)
    np.testing.assert_allclose(got.astype(np.float64), dense(f, {"right": 0, "offset": 30}), atol=tol)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 33, 64, 256, 256), (1, 2, 2, 70, 129, 20, 5), (3, 3, 1, 1, 1, 4, 4)])
def test_sizes_that_do_not_divide(sizes):
    g = build({}, {}, sizes)
    f = feeds(g)
    (got,) = tec.compile(g, target="llvm", cache=False).run(f)
    np.testing.assert_allclose(got, dense(f, {}), atol=1e-5)


def test_as_many_queries_as_lanes_of_short_vectors():
    """Tiles of four queries are no squares of eight, by which queries and results are turned."""
    g = build({}, {}, (1, 2, 1, 4, 9, 8, 8))
    f = feeds(g)
    (got,) = tec.compile(g, target="llvm -mcpu=x86-64-v2", cache=False).run(f)
    np.testing.assert_allclose(got, dense(f, {}), atol=1e-5)


@thinned_rows(6, "case", CASES)
def test_few_queries_on_a_cpu(case):
    """Up to eight queries of a group: lanes of elements and of keys."""
    attrs, extras = CASES[case]
    few = {
        k: (kind, tuple(2 if n == S and x == 2 else n for x, n in enumerate(shape)))
        for k, (kind, shape) in extras.items()
    }
    for sizes in ((B, N, M, 2, T, H, 6), (B, N, M, 2, T, 12, 80)):
        g = build(attrs, few, sizes)
        f = feeds(g)
        (got,) = tec.compile(g, target="llvm", cache=False).run(f)
        np.testing.assert_allclose(got, dense(f, attrs), atol=1e-5)


@pytest.mark.parametrize(("size", "value_size"), [(5, 69), (75, 17), (1, 1), (33, 40)])
def test_few_queries_of_heads_that_vectors_do_not_fill(size, value_size):
    """The last vector of a head begins earlier; an infinite element before its own lanes is in no score twice."""
    g = build({}, {}, (1, 2, 2, 3, 70, size, value_size))
    f = feeds(g)
    f["k"][0, 0, 7, 0] = -np.inf
    f["q"][..., 0] = np.abs(f["q"][..., 0]) + 1
    net = tec.compile(g, target="llvm -mcpu=x86-64-v3", cache=False)
    np.testing.assert_allclose(net.run(f)[0], dense(f, {}), atol=1e-5)


def test_one_query_and_a_long_cache():
    g = build({"right": 0, "offset": 299}, {}, (1, 4, 2, 1, 300, 64, 64))
    f = feeds(g)
    (got,) = tec.compile(g, target="llvm", cache=False).run(f)
    np.testing.assert_allclose(got, dense(f, {"right": 0, "offset": 299}), atol=1e-5)


def test_every_choice_on_a_cpu():
    g = build({"right": 0, "offset": 6}, {}, (1, 2, 2, 20, 26, 7, 9))
    f = feeds(g)
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    made = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    space = spaces(made, "llvm -mcpu=x86-64-v3")[0]
    assert space.template == "cpu attention"
    for rows, keys in ((2, 32), (6, 128), (12, 64)):
        choice = space.check({"rows": rows, "keys": keys})
        net = tec.compile(g, target="llvm", cache=False, choices=lambda *_, c=choice: c)
        np.testing.assert_allclose(net.run(f)[0], dense(f, {"right": 0, "offset": 6}), atol=1e-5)


def test_open_sizes():
    b, s, t = Dim("b"), Dim("s"), Dim("t")
    g = build({"right": 0, "offset": t - s}, {}, (b, 4, 2, s, t, 16, 16))
    net = tec.compile(g, target="llvm", cache=False)
    for sizes in ((1, 4, 2, 1, 1, 16, 16), (2, 4, 2, 5, 70, 16, 16), (1, 4, 2, 33, 130, 16, 16)):
        f = feeds(build({}, {}, sizes))
        want = dense(f, {"right": 0, "offset": sizes[4] - sizes[3]})
        np.testing.assert_allclose(net.run(f)[0], want, atol=1e-5)


def test_no_matrix_of_scores_is_kept():
    n = 4096
    net = tec.compile(build({}, {}, (1, 2, 2, n, n, 16, 16)), target="llvm", cache=False)
    assert net.plan.arena_bytes < n * n
    assert all(np.prod(v.shape) < n * n for v in net.plan.values.values())
    largest = [int(x) for x in re.findall(r"tec_alloc\(i64 (\d+)\)", net.module.sources.get("llvm", ""))]
    assert max(largest, default=0) < n * n


def test_misfits_are_refused():
    g = Graph()
    q = g.input("q", "float32", (1, 4, 3, 8))
    for k, v in (((1, 3, 5, 8), (1, 3, 5, 8)), ((1, 2, 5, 7), (1, 2, 5, 7)), ((1, 2, 5, 8), (1, 2, 6, 8))):
        with pytest.raises(ImportModelError, match="attention of"):
            g.add("attention", [q, g.input("k", "float32", k), g.input("v", "float32", v)], {"scale": 1.0})
    kv = g.input("kv", "float32", (1, 2, 5, 8))
    with pytest.raises(ImportModelError, match="broadcast"):
        bias = g.input("bias", "float32", (1, 1, 3, 4))
        g.add("attention", [q, kv, kv, bias], {"scale": 1.0, "extras": ("bias",)})


def test_an_empty_cache():
    """No key at all: 0, on the host as on a CPU."""
    g = build({"right": 0}, {}, (1, 4, 2, 3, Dim(Empty("t")), 8, 6))
    f = {v.name: np.ones([d if isinstance(d, int) else 0 for d in v.shape], np.float32) for v in g.inputs}
    (host,) = run_graph(bind_sizes(g, {"t": 0}), f)
    (got,) = tec.compile(g, target="llvm", cache=False).run(f)
    assert host.shape == got.shape == (1, 4, 3, 6) and not host.any() and not got.any()
