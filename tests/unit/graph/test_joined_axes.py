"""Axes that stay together become one before templates see them, and the results stay what they were."""

import numpy as np
import pytest

import tec
from tec import te
from tec.graph import Graph, run_graph
from tec.graph.joined_axes import join_axes
from tec.ir.visit import free_vars
from tec.ops.dims import Dim

rng = np.random.default_rng(11)


def numbers(*shape, dtype="float32"):
    return rng.integers(-9, 9, shape).astype(dtype)


def dims(made, inputs):
    """Numbers of dimensions of the arguments and outputs with joined axes; None where none are."""
    joined = join_axes(inputs, made)
    return None if joined is None else [len(t.shape) for t in (*joined.args, *joined.outputs)]


def read(*shape):
    return te.placeholder(shape, "float32", name="x")


def test_axes_behind_a_sum_are_one():
    x = read(9, 4, 3, 2)
    k = te.reduce_axis((0, 9), "k")
    assert dims([te.compute((4, 3, 2), lambda i, j, l: te.sum(x(k, i, j, l), axis=k))], [x]) == [2, 1]


def test_axes_that_are_summed_are_one():
    x = read(5, 4, 3)
    ks = [te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 3), "l")]
    assert dims([te.compute((5,), lambda i: te.sum(x(i, *ks), axis=ks))], [x]) == [2, 1]


def test_rows_of_slices_and_choices_are_one():
    x, y = read(7, 5, 2), read(7, 3, 2)
    assert dims([te.compute((7, 2, 2), lambda i, j, k: x(i, j + 3, k))], [x]) == [2, 2]
    chosen = te.compute((7, 8, 2), lambda i, j, k: te.if_then_else(j < 5, x(i, j, k), y(i, j - 5, k)))
    assert dims([chosen], [x, y]) == [2, 2, 2]


def test_a_repeated_axis_takes_those_behind_it():
    x = read(4, 3, 2)
    assert dims([te.compute((12, 3, 2), lambda i, j, k: x(te.indexmod(i, 4), j, k))], [x]) == [1, 1]


@pytest.mark.parametrize(
    "body",
    [
        lambda x, i, j: x(j, i),  # turned round
        lambda x, i, j: x(i, te.min(j + 1, 3)),  # others of the second
        lambda x, i, j: x(i, te.indexmod(j + 1, 4)),
        lambda x, i, j: te.select(j < 2, x(i, j), 0.0),  # asks for the second
        lambda x, i, j: x(i, j) * te.cast("float32", i),  # counts with the first
        lambda x, i, j: x(i * 2, j),  # steps over rows
        lambda x, i, j: x(i, j) + x(i, 0),  # another place of the same row
    ],
)
def test_axes_that_must_stay_apart(body):
    x = read(9, 4)
    y = te.compute((4, 4), lambda i, j: body(x, i, j))
    assert dims([y], [x]) is None


def test_one_reader_that_disagrees_keeps_all_apart():
    x = read(4, 4)
    joins = te.compute((4, 4), lambda i, j: x(i, j) + 1.0)
    assert dims([joins], [x]) == [1, 1]
    turned = te.compute((4, 4), lambda i, j: joins(i, j) + x(j, i))
    assert dims([turned], [x]) is None


def test_bounds_beyond_the_axes_say_what_their_ends_say():
    x, far = read(5, 4, 3), 1 << 30  # times the twelve steps of the first axis it is no int32
    low = te.compute((5, 4, 3), lambda i, j, k: te.if_then_else(i < far, x(i, j, k), 7.0))
    high = te.compute((5, 4, 3), lambda i, j, k: te.if_then_else(i >= -far, x(i, j, k), 7.0))
    moved = te.compute((5, 4, 3), lambda i, j, k: te.if_then_else(i >= far, x(i - far, j, k), 7.0))
    assert [str(join_axes([x], [t]).outputs[0].op.body[0]) for t in (low, high)] == [
        "if_then_else(i < 60, x[i], 7.0)",
        "if_then_else(i >= 0, x[i], 7.0)",
    ]
    assert dims([moved], [x]) == [2, 2]


def run(build, feeds):
    g = Graph()
    values = [g.input(name, str(a.dtype), a.shape) for name, a in feeds.items()]
    g.set_outputs([build(g, *values)])
    return tec.compile(g, target="llvm", cache=False), feeds


def add(g, op, *values, **attrs):
    return g.add(op, list(values), attrs)[0]


SHAPE = (3, 40, 5, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (2, 3), (0, 1, 2, 3)])
def test_reductions_of_short_rows(axes, dtype):
    x = numbers(*SHAPE, dtype=dtype)
    net, feeds = run(lambda g, v: add(g, "reduce_max", v, axes=axes, keepdims=False), {"x": x})
    (got,) = net.run(feeds)
    assert got.shape == x.max(axes).shape
    np.testing.assert_array_equal(got, x.max(axes))


def test_callers_know_parameters_by_all_dimensions():
    x = numbers(*SHAPE)
    net, feeds = run(lambda g, v: add(g, "reduce_sum", v, axes=(0,), keepdims=False), {"x": x})
    np.testing.assert_array_equal(net.run(feeds)[0], x.sum(0))
    ((name, _),) = net.module.texts.items()
    assert [tuple(p.shape) for p in net.signature(name)] == [SHAPE, SHAPE[1:]]


def test_concatenations_of_few_long_rows():
    parts = {f"x{k}": numbers(2, n, 3) for k, n in enumerate((900, 700, 1, 1300))}
    net, feeds = run(lambda g, *v: add(g, "concat", *v, axis=1), parts)
    np.testing.assert_array_equal(net.run(feeds)[0], np.concatenate(list(parts.values()), 1))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_edges(mode):
    x = numbers(3, 40, 5, 2)
    before, after = (0, 2, 3, 1), (1, 0, 2, 0)
    net, feeds = run(lambda g, v: add(g, "pad", v, before=before, after=after, mode=mode), {"x": x})
    np.testing.assert_array_equal(net.run(feeds)[0], np.pad(x, list(zip(before, after)), mode))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_edges_before_an_axis_that_is_cropped(mode):
    x = numbers(4, 5, 9)
    pads = {"before": (2, 1, -2), "after": (1, 3, -1), "mode": mode}
    net, feeds = run(lambda g, v: add(g, "pad", v, **pads), {"x": x})
    want = np.pad(x[..., 2:-1], [(2, 1), (1, 3), (0, 0)], mode)
    np.testing.assert_array_equal(net.run(feeds)[0], want)


def test_lines_of_edges_are_copied_too():
    g = Graph()
    pads = {"before": (2, 3, 1), "after": (2, 3, 1), "mode": "wrap", "inside_first": True}
    g.set_outputs([add(g, "pad", g.input("x", "uint8", (16, 8, 40)), **pads)])
    (node,) = g.nodes
    (y,) = node.definition.compute(
        node.attrs, [te.placeholder((16, 8, 40), "uint8", "x")], [v.type for v in node.outputs]
    )
    assert set(free_vars(y.op.body[0].args[0])) == {y.op.axis[-1].var}, (
        "which line it is asks for no elements one by one"
    )


@pytest.mark.parametrize("repeats", [(2, 1, 3), (3, 2, 1), (1, 1, 2), (2, 9, 2)])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_repetitions(repeats, dtype):
    x = numbers(4, 6, 7, dtype=dtype)
    net, feeds = run(lambda g, v: add(g, "tile", v, repeats=repeats), {"x": x})
    np.testing.assert_array_equal(net.run(feeds)[0], np.tile(x, repeats))


def test_running_sums_of_rows_behind_an_axis():
    x = numbers(3, 5, 4, 6)
    net, feeds = run(lambda g, v: add(g, "cumsum", v, axis=1), {"x": x})
    np.testing.assert_array_equal(net.run(feeds)[0], x.cumsum(1))


@pytest.mark.parametrize("shape,axis", [((30, 9, 2), 1), ((7, 9, 3), 1), ((6, 20, 5), 1)], ids=str)
def test_places_of_the_largest_of_lines_beside_few_others(shape, axis):
    x = numbers(*shape)
    net, feeds = run(lambda g, v: add(g, "argmax", v, axis=axis, keepdims=False), {"x": x})
    np.testing.assert_array_equal(net.run(feeds)[0], x.argmax(axis))


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_max", "reduce_mean", "argmax", "softmax"])
@pytest.mark.parametrize("axis", [0, 1])
def test_open_axes_beside_what_is_summed_are_one(op, axis):
    sizes = [Dim(n) for n in "abcd"]
    attrs = {"argmax": {"axis": axis, "keepdims": False}, "softmax": {"axes": (axis,)}}

    def graph(shape):
        g = Graph("g")
        g.set_outputs(g.add(op, [g.input("x", "float32", shape)], attrs.get(op, {"axes": (axis,), "keepdims": False})))
        return g

    net = tec.compile(graph((*sizes[:3], 2)), target="llvm", cache=False)
    assert "shapes={0: " in net.get_source("ir")  # what callers know it by, who have more axes
    for shape in [(1, 1, 1, 2), (3, 5, 7, 2), (2, 3, 17, 2), (4, 1, 40, 2)]:
        x = numbers(*shape)
        np.testing.assert_allclose(net.run({"x": x})[0], run_graph(graph(shape), {"x": x})[0], rtol=1e-5)
