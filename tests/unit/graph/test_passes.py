"""Graph passes: each keeps what the graph means, and does what it is for."""

import time

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.common_subexpressions import common_subexpressions
from tec.graph.passes.dead_code import dead_code
from tec.graph.passes.fold_scale import fold_scale
from tec.graph.passes.fuse import fuse
from tec.graph.passes.layout import choose_layouts
from tec.graph.passes.layout_choice import Layouts
from tests import seeds
from tests.thinned import thinned
from tests.unit.graph.random_graphs import constant, conv_attrs, feed, random_graph

HOST = tec.Target("llvm")
GFX942, GFX1100 = tec.Target("rocm -mcpu=gfx942"), tec.Target("rocm -mcpu=gfx1100")
rng = np.random.default_rng(7)


def ops(g):
    return [n.op for n in g.nodes]


def start(shape=(2, 3, 7, 6)):
    g = Graph()
    return g, g.input("x", "float32", shape)


def chain(g, x, *steps):
    """Operators one after the other: a name, or (name, constant), or (name, [inputs...], attrs)."""
    for s in steps:
        op, operands, attrs = (s, [], {}) if isinstance(s, str) else (*s, {}) if len(s) == 2 else s
        operands = operands if isinstance(operands, list) else [g.constant(operands)]
        (x,) = g.add(op, [x, *operands], attrs)
    return x


def same(before, after, rtol=1e-4):
    after.check()
    assert after.output_names == before.output_names
    feeds = feed(before)
    for a, b in zip(run_graph(after, feeds), run_graph(before, feeds)):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1.0, float(np.abs(b).max(initial=0))))


PASSES = {
    "common_subexpressions": common_subexpressions,
    "fold_scale": fold_scale,
    "dead_code": dead_code,
    "blocked_layout": lambda g: choose_layouts(g, HOST, Layouts()),
    "chosen_layouts": lambda g: choose_layouts(g, HOST),
    "flat_layout": lambda g: choose_layouts(g, GFX1100),
    "pixel_layout": lambda g: choose_layouts(g, GFX942),
    "all, for the host": lambda g: optimize(g, HOST),
    "all, for a GPU": lambda g: optimize(g, tec.Target("rocm -mcpu=gfx942")),
}


@pytest.mark.parametrize("name", PASSES)
def test_random_graphs_mean_the_same(name):
    for seed in seeds.some(6):
        same(random_graph(seed), PASSES[name](random_graph(seed)))


# ---- fold_scale


def conv_on(g, x, out=4, **attrs):
    return g.add("conv", [x, constant(g, rng, (out, x.shape[1] // attrs.get("groups", 1), 3, 3))], conv_attrs(**attrs))[
        0
    ]


def vector(n):
    return rng.normal(size=(n, 1, 1)).astype("f")


FOLDED = {
    "a scale a channel": ([("multiply", vector(4))], ["conv"]),
    "one scale": ([("multiply", np.float32(3))], ["conv"]),
    "batch normalisation": ([("multiply", vector(4)), ("add", vector(4))], ["conv", "add"]),
    "bias and batch normalisation": ([("add", vector(4)), ("multiply", vector(4)), ("add", vector(4))], ["conv", "add"]),
    "a scale a pixel": ([("multiply", rng.normal(size=(5, 4)).astype("f"))], ["conv", "multiply"]),
    "a scale that makes it larger": ([("multiply", rng.normal(size=(2, 2, 4, 5, 4)).astype("f"))], ["conv", "multiply"]),
    "three sums": ([("add", vector(4)), ("add", vector(4)), ("add", vector(4))], None),
    "sums of other shapes": ([("add", vector(4)), ("add", rng.normal(size=(5, 1)).astype("f"))], ["conv", "add"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDED)
def test_fold_scale(case):
    steps, left = FOLDED[case]

    def make():
        g, x = start()
        g.set_outputs([chain(g, conv_on(g, x), *steps)])
        return g

    rng.bit_generator.state = np.random.default_rng(3).bit_generator.state
    before = make()
    rng.bit_generator.state = np.random.default_rng(3).bit_generator.state
    after = dead_code(fold_scale(make()))
    same(before, after)
    assert left is None or ops(after) == left
    assert len(after.nodes) < len(before.nodes) or left == ops(before)


@pytest.mark.parametrize("groups", [1, 3])
def test_scales_fold_into_grouped_convolutions(groups):
    g, x = start()
    g.set_outputs([chain(g, conv_on(g, x, 6, groups=groups, stride=2), ("multiply", vector(6)))])
    after = dead_code(fold_scale(g))
    assert ops(after) == ["conv"]
    same(g, after)


def test_a_convolution_with_two_readers_keeps_its_weights():
    g, x = start()
    y = conv_on(g, x)
    g.set_outputs([chain(g, y, ("multiply", vector(4))), chain(g, y, "relu")])
    after = fold_scale(g)
    assert sorted(ops(after)) == ["conv", "multiply", "relu"]
    same(g, after)


def test_a_convolution_that_is_an_output_keeps_its_weights():
    g, x = start()
    y = conv_on(g, x)
    g.set_outputs([chain(g, y, ("multiply", vector(4))), y])
    same(g, fold_scale(g))


def test_integers_are_not_reordered():
    g = Graph()
    x = g.input("x", "int32", (4,))
    g.set_outputs([chain(g, x, ("add", np.int32(2**31 - 1)), ("add", np.int32(5)))])
    assert ops(fold_scale(g)) == ["add", "add"]


# ---- common subexpressions, dead code


def test_equal_nodes_become_one():
    g, x = start()
    a, b = chain(g, x, "relu", "tanh"), chain(g, x, "relu", "tanh")
    (t,) = g.add("add", [a, b])
    (u,) = g.add("softmax", [a], {"axes": (1,)})
    (v,) = g.add("softmax", [b], {"axes": (3,)})
    g.set_outputs([t, u, v, b])
    after = common_subexpressions(g)
    assert ops(after) == ["relu", "tanh", "add", "softmax", "softmax"]
    same(g, after)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([[1, 2]], "f"), np.array([[1], [2]], "f")),  # shapes
        (np.array([[1.0, 2.0]], "f"), np.array([[1.0, 2.0]], "f").view("int32")),  # types
        (np.zeros((2, 1), "f"), np.zeros((2, 1), "int32")),
        (np.zeros((1, 2), "int64"), np.zeros((1, 2), "d")),
        (np.array([[0.0, 1.0]], "f"), np.array([[-0.0, 1.0]], "f")),  # numbers that compare equal
        (np.array([[1, 2]], "f"), np.array([[1, 3]], "f")),
        (np.array([[True, False]]), np.array([[1, 0]], "int8")),
    ],
)
def test_constants_with_the_same_bytes_are_not_equal(one, other):
    """Nodes on constants become one where type, shape and bytes agree, and only there."""
    g = Graph()
    p = g.input("p", "bool", (2, 2))
    made = [g.add("where", [p, g.constant(c), g.constant(c)])[0] for c in (one, other, one.copy())]
    g.set_outputs(made)
    after = common_subexpressions(g)
    assert after.outputs[0] is after.outputs[2] and after.outputs[0] is not after.outputs[1]
    for a, b in zip(run_graph(g, feed(g)), run_graph(after, feed(g))):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_unused_nodes_go():
    g, x = start()
    y = chain(g, x, "relu")
    chain(g, y, "tanh", "neg")
    g.set_outputs([y])
    assert ops(dead_code(g)) == ["relu"] and g.inputs == [x]


# ---- layout

SHAPES = [
    (cin, cout, groups, stride, dilation)
    for cin, cout, groups in [(3, 5, 1), (5, 17, 1), (17, 1, 1), (16, 33, 1), (7, 7, 7), (16, 16, 16), (6, 4, 2), (6, 12, 6), (1, 3, 1)]
    for stride, dilation in [(1, 1), (2, 1), (1, 2)]
]  # fmt: skip


@pytest.mark.parametrize("cin,cout,groups,stride,dilation", SHAPES)
def test_blocked_convolutions(cin, cout, groups, stride, dilation):
    g, x = start((2, cin, 9, 8))
    (y,) = g.add("conv", [x, constant(g, rng, (cout, cin // groups, 3, 2))], conv_attrs(stride, dilation, 1, 2, groups))
    y = chain(g, y, ("add", vector(cout)), "relu")
    (z,) = g.add("conv", [y, constant(g, rng, (5, cout, 1, 1))], conv_attrs())
    (p,) = g.add("reduce_mean", [z], {"axes": (2, 3), "keepdims": True})
    g.set_outputs([y, p])
    after = choose_layouts(g, HOST, Layouts())
    assert any(n.outputs[0].layout and n.outputs[0].layout.blocks for n in after.nodes if n.op == "conv")
    same(g, after)


@pytest.mark.parametrize("op", ["reciprocal", "log", "rsqrt", "divide", "power"])
def test_what_fills_a_block_never_shows(op):
    """The channels that fill up a block are 0 after a convolution: 1 / 0 there must not reach a sum as 0 times infinity."""
    g, x = start((1, 5, 6, 6))
    a = chain(g, conv_on(g, x, 5, before=1, after=1), "square")
    b = chain(g, conv_on(g, x, 5, before=1, after=1), "abs", "neg")
    (y,) = g.add(op, [a, b] if op in ("divide", "power") else [a])
    (y,) = g.add("clip", [y], {"low": -50.0, "high": 50.0}) if op == "power" else [y]
    (z,) = g.add("conv", [y, constant(g, rng, (3, 5, 1, 1))], conv_attrs())
    g.set_outputs([z])
    same(g, choose_layouts(g, HOST, Layouts()), 1e-3)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_a_shape_attribute_keeps_its_meaning(target):
    g, x = start((1, 5, 6, 6))
    y = conv_on(g, x, 5, before=1, after=1)
    (a,) = g.add("broadcast_to", [y], {"shape": (1, 5, 6, 6)})
    (m,) = g.add("reduce_mean", [y], {"axes": (2, 3), "keepdims": True})
    (b,) = g.add("broadcast_to", [m], {"shape": (1, 5, 6, 6)})
    (z,) = g.add("add", [a, b])
    g.set_outputs([z])
    same(g, optimize(g, tec.Target(target)))


def test_a_graph_without_convolutions_is_the_same_object():
    g, x = start()
    g.set_outputs([chain(g, x, "relu")])
    assert choose_layouts(g, HOST) is g


# ---- convolutions as products


@pytest.mark.parametrize("stride,dilation,after", [(1, 1, 0), (2, 1, 1), (1, 2, 2)])
def test_convolutions_as_products(stride, dilation, after):
    g, x = start((2, 5, 9, 8))
    y = chain(g, conv_on(g, x, 7, stride=stride, dilation=dilation, after=after), ("add", vector(7)), "relu")
    (s,) = g.add("add", [y, y])
    (t,) = g.add("transpose", [y], {"perm": (0, 2, 3, 1)})
    g.set_outputs([s, t])
    made = choose_layouts(g, GFX1100)
    assert [n.outputs[0].layout.name for n in made.nodes if n.op == "conv"] == ["NC(HW)"]
    flat = next(n for n in made.nodes if n.op == "relu")
    assert flat.outputs[0].ndim == 3  # elementwise work stays on the flat form
    same(g, made)


def test_grouped_convolutions_stay():
    g, x = start((1, 4, 8, 8))
    g.set_outputs([conv_on(g, x, 4, groups=2)])
    assert ops(choose_layouts(g, GFX1100)) == ["conv"]


# ---- fusion


def check_groups(g, groups):
    """What holds of every partition into groups."""
    nodes = [n for group in groups for n in group.nodes]
    assert len(nodes) == len(set(nodes)) and set(nodes) == set(g.nodes)
    made = set(g.inputs)
    for group in groups:
        inside = {v for n in group.nodes for v in n.outputs}
        last = set(group.nodes[-1].outputs)
        assert all(v.is_const or v in made for v in group.inputs), "a group reads what a later one makes"
        outside = {v for other in groups if other is not group for v in other.inputs} | set(g.outputs)
        assert not (inside - last) & outside, "what is inside of a group is read outside"
        assert len(group.nodes) == 1 or len(group.nodes[-1].outputs) == 1
        assert set(group.outputs) >= last & outside and not set(group.outputs) - last
        assert sum(n.definition.kind in ("complex", "reduction", "opaque") for n in group.nodes) <= 1
        assert len(group.nodes) <= 24
        made |= set(group.outputs)
    assert all(v.is_const or v in made for v in g.outputs)


@pytest.mark.parametrize("seed", seeds.some(40))
def test_groups_of_random_graphs(seed):
    for target in (HOST, None):
        g = random_graph(seed, 30)
        g = optimize(g, target) if target is not None else g
        check_groups(g, fuse(g))


def test_a_chain_is_one_group_and_a_diamond_has_no_cycle():
    g, x = start()
    y = chain(g, x, "relu", "tanh")
    a, b = chain(g, y, "neg"), g.add("softmax", [y], {"axes": (3,)})[0]
    (z,) = g.add("add", [a, b])
    g.set_outputs([z])
    groups = fuse(g)
    check_groups(g, groups)
    assert [n.op for n in groups[0].nodes] == ["relu", "tanh"]


def test_values_that_only_a_sum_reads_twice_are_computed_in_it():
    g, x = start((6, 40))
    (d,) = g.add("abs", [x])
    (e,) = g.add("multiply", [d, chain(g, d, "sigmoid")])
    (f,) = g.add("multiply", [e, chain(g, e, "tanh")])
    (total,) = g.add("reduce_sum", [f], {"axes": (1,), "keepdims": False})
    g.set_outputs([total])
    groups = fuse(g)
    check_groups(g, groups)
    assert len(groups) == 1
    g.set_outputs([total, d])  # what others read as well stays
    assert [[n.op for n in group.nodes][-1] for group in fuse(g)] == ["abs", "reduce_sum"]


def test_values_that_a_window_or_a_broadcast_reads_often_are_computed_once():
    pairs = {k: (n, n) for k, n in (("kernel", 3), ("strides", 1), ("dilations", 1), ("before", 0), ("after", 0))}
    window = {**pairs, "out_space": (5, 4), "include_pad": True}
    for op, attrs in (("avg_pool", window), ("reduce_sum", {"axes": (0,), "keepdims": False})):
        g, x = start((2, 3, 7, 6))
        row = g.constant(np.ones((4, 1, 1, 1, 1), "float32"))
        e = chain(g, x, "exp")
        (f,) = g.add("multiply", [e, chain(g, e, "tanh")])
        wide = f if op == "avg_pool" else g.add("multiply", [g.add("multiply", [f, row])[0], f])[0]
        g.set_outputs(g.add(op, [wide], attrs))
        groups = fuse(g)
        check_groups(g, groups)
        assert len(groups) > 1, op


def test_long_chains_are_cut():
    g, x = start()
    g.set_outputs([chain(g, x, *["tanh", "neg"] * 40)])
    groups = fuse(g)
    check_groups(g, groups)
    assert 4 <= len(groups) <= 8


@thinned(1, ("target", ["llvm", "rocm -mcpu=gfx942"]), ("kind", ["twice", "turned", "shifted"]))
def test_a_long_chain_of_values_read_twice_compiles_in_linear_time(kind, target):
    """Written out, a chain of n such steps is 2**n terms; turned or shifted, it would be computed so often, too."""
    g, x = start((12, 12))
    y, want = x, np.random.default_rng(0).random((12, 12), np.float32)
    feeds = {"x": want}
    half = g.constant(np.float32(0.5))
    for _ in range(40):
        if kind == "shifted":  # by one column, out of two copies side by side
            (two,) = g.add("concat", [y, y], {"axis": 1})
            (y,) = g.add("slice", [two], {"starts": (0, 1), "steps": (1, 1), "sizes": (12, 12)})
            want = np.roll(want, -1, 1)
            continue
        other = y if kind == "twice" else g.add("transpose", [y], {"perm": (1, 0)})[0]
        (y,) = g.add("multiply", [g.add("add", [y, other])[0], half])
        want = (want + (want if kind == "twice" else want.T)) * np.float32(0.5)
    g.set_outputs([y])
    begin = time.process_time()
    net = tec.compile(g, target=target)
    assert time.process_time() - begin < 20
    got = net.run(feeds, device=None if target == "llvm" else tec.rocm_emu("gfx942"))[0]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    widest = max(len(nodes) for nodes in net.report.functions.values())
    assert widest >= {"twice": 12, "shifted": 6, "turned": 3}[kind]  # still fused
