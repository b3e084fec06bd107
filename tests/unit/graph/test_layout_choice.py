"""Layouts chosen for all convolutions together: the least cost there is, less than one by one where copies count, and the same numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices import layout_options
from tec.choices.layout_options import TEMPLATE, signature
from tec.choices.store import records
from tec.graph import Graph, Value, run_graph
from tec.graph.least_cost import Problem
from tec.graph.passes import layout, layout_choice
from tec.graph.passes.layout import choose_layouts
from tec.graph.passes.layout_choice import Layouts, choose
from tec.ops.layouts import Layout, plain
from tests import seeds

WIDE = tec.Target("llvm -mcpu=znver4")
TARGETS = ["llvm", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"]


@pytest.fixture(autouse=True)
def blocks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain images have no register tiles and are no products: what is tested is how layouts of blocks are chosen together. `test_register_tiles` tests those tiles."""
    monkeypatch.setattr(layout_options, "FEWEST_COLUMNS", 1 << 30)
    monkeypatch.setattr(layout_options, "_as_product", lambda *_: math.inf)


# ---- the least cost


@pytest.mark.parametrize("seed", seeds.some(20))
def test_the_least_cost_is_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = Problem()
    count = int(rng.integers(1, 8))
    for _ in range(count):
        p.variable(rng.uniform(0, 1, rng.integers(1, 4)).round(2).tolist())
    for a, b in itertools.combinations(range(count), 2):
        for _ in range(int(rng.integers(0, 3)) if rng.uniform() < 0.6 else 0):
            first, second = (a, b) if rng.uniform() < 0.5 else (b, a)
            p.pair(first, second, rng.uniform(0, 1, (p.sizes[first], p.sizes[second])).round(2).tolist())
    best = min(p.cost(labels) for labels in itertools.product(*map(range, p.sizes)))
    assert p.cost(p.solve()) == pytest.approx(best)
    assert p.cost(p.solve(most_entries=8)) >= best - 1e-9  # approximate, but labels all the same


def test_a_long_network_with_shortcuts_stays_exact_and_quick() -> None:
    """Residual blocks: tables stay small, whatever the length. The cheapest is all zeros, one pair away from the greedy ones."""
    p = Problem()
    before = [p.variable([1.0, 0.9, 2.0])]
    for k in range(600):
        v = p.variable([1.0, 0.9 if k % 7 else 1.5, 1.1])
        for u in before[-3:]:
            p.pair(u, v, [[0.0, 0.3, 0.3], [0.3, 0.0, 0.3], [0.3, 0.3, 0.0]])
        before.append(v)
    labels = p.solve()
    assert p.cost(labels) <= min(p.cost([k] * 601) for k in range(3))


# ---- networks


def conv(g: Graph, x: Value, channels: int, k: int = 1, groups: int = 1) -> Value:
    rng = np.random.default_rng(len(g.nodes))
    w = g.constant((rng.standard_normal((channels, x.shape[1] // groups, k, k)) * 0.2).astype(np.float32))
    window = {"strides": (1, 1), "dilations": (1, 1), "before": (k // 2,) * 2, "after": (k // 2,) * 2, "groups": groups}
    return g.add("conv", [x, w], window)[0]


def turned_chain(channels: int = 8, size: int = 32) -> Graph:
    """Small convolutions with transpositions between: each block would be copied to and from NCHW."""
    g = Graph("turned")
    v = g.input("x", "float32", (1, channels, size, size))
    for _ in range(3):
        (v,) = g.add("transpose", [conv(g, v, channels)], {"perm": (0, 1, 3, 2)})
    g.set_outputs([v])
    return g


def branches() -> Graph:
    """24 channels between others, a residual sum, a gate, a concatenation, pooling, a window a channel: read by several."""
    g = Graph("branches")
    x = g.input("x", "float32", (2, 3, 12, 10))
    a = conv(g, x, 24, 3)
    (r,) = g.add("relu", [a])
    d = conv(g, r, 24, 3, groups=24)
    (s,) = g.add("add", [conv(g, d, 24), a])
    (m,) = g.add("reduce_mean", [s], {"axes": (2, 3), "keepdims": True})
    (t,) = g.add("sigmoid", [conv(g, m, 24)])
    (u,) = g.add("multiply", [s, t])
    (p,) = g.add(
        "max_pool",
        [u],
        {
            "kernel": (3, 3),
            "strides": (1, 1),
            "dilations": (1, 1),
            "before": (1, 1),
            "after": (1, 1),
            "out_space": (12, 10),
        },
    )
    (c,) = g.add("concat", [p, conv(g, u, 40, 3)], {"axis": 1})
    (q,) = g.add("transpose", [c], {"perm": (0, 2, 3, 1)})
    g.set_outputs([conv(g, c, 3), q, m])
    return g


def copies(g: Graph) -> int:
    return sum(n.op == "transform_layout" for n in g.nodes)


def greedy(g: Graph, target: tec.Target, monkeypatch: pytest.MonkeyPatch) -> Graph:
    with monkeypatch.context() as m:
        m.setattr(layout, "choose", lambda graph, target: Layouts())
        return choose_layouts(g, target)


def test_small_convolutions_stay_plain_where_copies_would_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    g = turned_chain()
    assert copies(greedy(g, WIDE, monkeypatch)) == 6
    assert copies(choose_layouts(g, WIDE)) == 0


def test_large_ones_are_blocked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy is right there: of 64 channels a plain convolution takes longer than any copy."""
    assert copies(choose_layouts(turned_chain(64), WIDE)) == copies(greedy(turned_chain(64), WIDE, monkeypatch)) == 6


def test_products_of_plain_images_need_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a convolution may be weights times windows, as many channels stay plain between transpositions."""
    monkeypatch.undo()
    assert copies(choose_layouts(turned_chain(64), WIDE)) == 0


def test_blocks_are_as_wide_as_channels_fill() -> None:
    """24 channels in blocks of 8, 32 and 64 in blocks of 16, and nothing copied between: a convolution reads one and writes the other."""
    g = Graph("g")
    x = g.input("x", "float32", (1, 64, 28, 28))
    g.set_outputs([conv(g, conv(g, conv(g, x, 24), 24, 3), 64)])
    lies = [n.attrs["layouts"] for n in choose_layouts(g, WIDE).nodes if n.op == "conv"]
    assert [(x.name, y.name) for x, _, y in lies] == [
        ("NCHW16c", "NCHW8c"),
        ("NCHW8c", "NCHW8c"),
        ("NCHW8c", "NCHW16c"),
    ]
    assert copies(choose_layouts(g, WIDE)) == 2  # at the network's ends


def test_convolutions_without_a_choice_are_reckoned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups they are blocked, whatever the others are: one between two others costs no copies, and small ones beside it stay blocked."""
    g = Graph("groups")
    x = g.input("x", "float32", (1, 3, 24, 24))
    a = conv(g, x, 24, 3)
    b = conv(g, conv(g, a, 64), 64, 1, groups=4)
    (c,) = g.add("relu", [conv(g, b, 24)], {})
    (s,) = g.add("add", [c, a])
    g.set_outputs([conv(g, conv(g, s, 64, 1), 8, 1, groups=4)])
    assert copies(choose_layouts(g, WIDE)) <= copies(greedy(g, WIDE, monkeypatch)) == 1
    assert [
        n.attrs["layouts"][2].name for n in choose_layouts(g, WIDE).nodes if n.op == "conv" and n.attrs["groups"] == 1
    ][:2] == ["NCHW8c", "NCHW16c"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [turned_chain, branches])
def test_numbers_stay(make: Any, target: str) -> None:
    g = make()
    feeds = {v.name: np.random.default_rng(0).standard_normal(v.shape).astype(np.float32) for v in g.inputs}
    want = run_graph(g, feeds)
    for got, expected in zip(run_graph(choose_layouts(g, tec.Target(target)), feeds), want):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    if target == "llvm":
        for got, expected in zip(tec.compile(g, target=target, cache=False).run(feeds), want):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_measured_times_stand_in_the_models_place() -> None:
    g = Graph("g")
    x = g.input("x", "float32", (1, 24, 28, 28))
    g.set_outputs([conv(g, x, 24, 3)])
    (node,) = g.nodes
    sizes = layout_options.blocks(WIDE, [(x.type, node.inputs[1].type, node.attrs)])
    found = layout_options.options(WIDE, x.type, node.inputs[1].type, node.outputs[0].type, node.attrs, sizes)
    known = {
        signature(x.type, node.inputs[1].type, node.attrs, o): {"template": TEMPLATE, "seconds": 1e-3 if o.y.name == "NCHW16c" == o.x.name else 2e-3}
        for o in layout_options.worth_timing(found)
    }  # fmt: skip

    def taken() -> str:
        return next(n.attrs["layouts"][2].name for n in choose_layouts(g, WIDE).nodes if n.op == "conv")

    assert taken() == "NCHW8c" and len(known) == 4  # plain is hopeless
    with records.using(known):
        assert taken() == "NCHW16c"
    known.popitem()  # a time beside a model's says nothing
    with records.using(known):
        assert taken() == "NCHW8c"


def test_nothing_is_asked_where_nothing_can_be_gained() -> None:
    """Channels that fill blocks, large images: what was chosen one by one stands, and takes no time."""
    g = Graph("g")
    x = g.input("x", "float32", (1, 3, 56, 56))
    g.set_outputs([conv(g, conv(g, x, 64, 3), 128, 3)])
    assert choose(g, WIDE) == Layouts()
    assert layout_choice.choose(g, tec.Target("rocm -mcpu=gfx942")) == Layouts()
    assert Layout("NCHW") == plain(4)
