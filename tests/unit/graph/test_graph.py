"""The graph: building, folding, order, text, parts."""

import numpy as np
import pytest

import tec
from tec.errors import ImportModelError
from tec.graph import Graph, Node, run_graph
from tec.graph.passes.rewrite import copied
from tec.graph.subgraph import subgraph
from tec.ops.dims import Dim

CONV = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}


def small():
    g = Graph("small")
    x = g.input("x", "float32", (1, 3, 4, 4))
    w = g.constant(np.ones((2, 3, 3, 3), "f"), "w")
    (y,) = g.add("conv", [x, w], CONV, "y")
    (z,) = g.add("relu", [y], {}, "z")
    g.set_outputs([z], ["out"])
    return g, x, y, z


@pytest.mark.parametrize("shape", [("n", 4), (2.5,), 7, None])
def test_a_shape_that_is_none_is_refused(shape):
    with pytest.raises(tec.ArgumentError, match="the shape of input x") as e:
        Graph("g").input("x", "float32", shape)
    assert "Dim(" in str(e.value)


def test_types_are_inferred_and_names_unique():
    g, _, y, z = small()
    assert str(y.type) == "float32[1, 2, 4, 4]" and z.name == "z"
    (again,) = g.add("relu", [z], {}, "z")
    assert again.name == "z_1"
    g.check()
    assert list(g.params) == ["w"] and g.flops() == 2 * 32 * 27 + 32 * 2


def test_constants_fold_at_once():
    g = Graph()
    a, b = g.constant(np.arange(3)), g.constant(np.int64(2))
    (c,) = g.add("multiply", [a, b])
    assert c.is_const and c.data.tolist() == [0, 2, 4] and not g.nodes


def test_text_and_dot():
    g, *_ = small()
    text = str(g)
    assert "%y: float32[1, 2, 4, 4] = conv(%x, %w, strides=(1, 1)" in text and text.endswith("return %z")
    dot = g.dot()
    assert dot.startswith('digraph "small"') and 'label="conv"' in dot and dot.count("->") == 4


def test_networkx_view():
    g, *_ = small()
    n = g.networkx()
    assert n.number_of_nodes() == 4 and n.number_of_edges() == 3


def test_sort_puts_producers_first_and_finds_cycles():
    g, x, _, z = small()
    g.nodes.reverse()
    with pytest.raises(ImportModelError, match="reads %y"):
        g.check()
    g.sort()
    g.check()
    g.nodes[0].inputs[0] = z
    with pytest.raises(ImportModelError, match="cycle"):
        g.sort()
    del x


def test_check_holds_types_against_inference():
    g, *_ = small()
    g.nodes[0].outputs[0].type = g.nodes[0].outputs[0].type._replace(shape=(1, 2, 4, 5))
    with pytest.raises(ImportModelError, match="should give"):
        g.check()


def test_run_and_part():
    g, x, y, z = small()
    unused = g.input("unused", "float32", (2,))
    data = np.random.default_rng(0).normal(size=x.shape).astype("f")
    (whole,) = run_graph(g, {"x": data, "unused": np.zeros(2, "f")})
    p = subgraph(g, [y])
    assert [v.name for v in p.inputs] == ["x"] and len(p) == 1
    np.testing.assert_array_equal(np.maximum(run_graph(p, {"x": data})[0], 0), whole)
    y.data = np.zeros(y.shape, "f")  # a value that became known
    q = subgraph(g, [z])
    assert not q.inputs and len(q) == 1
    del unused


@pytest.mark.parametrize("feeds,message", [({}, "no array for input x"), ({"x": np.zeros((2, 2), "f")}, "has shape")])
def test_run_checks_its_inputs(feeds, message):
    g, *_ = small()
    with pytest.raises(ImportModelError, match=message):
        run_graph(g, feeds)


def test_bad_attributes_are_no_tracebacks():
    g, x, *_ = small()
    for op, attrs in (("conv", {}), ("transpose", {"perm": None}), ("reshape", {"shape": "ab"})):
        with pytest.raises(ImportModelError):
            g.add(op, [x] * (2 if op == "conv" else 1), attrs)


def test_node_prints():
    g, *_ = small()
    assert repr(g.nodes[1]) == "%z: float32[1, 2, 4, 4] = relu(%y)" and isinstance(g.nodes[1], Node)


def test_a_value_beyond_all_memory_is_refused():
    g, x, *_ = small()
    with pytest.raises(ImportModelError, match="more than any memory holds"):
        g.add("pad", [x], {"before": (0, 0, 0, 2**40), "after": (0, 0, 0, 0)})


def test_an_empty_part_is_no_argument():
    """A function takes what it reads: an empty slice next to another input leaves none."""
    g = Graph()
    x, y = g.input("x", "float32", (2, 4)), g.input("y", "float32", (2, 3))
    (none,) = g.add("slice", [x], {"starts": (0, 4), "steps": (1, 1), "sizes": (2, 0)})
    (z,) = g.add("concat", [none, *g.add("relu", [y])], {"axis": 1})
    g.set_outputs([z])
    data = np.arange(-3, 3, dtype="f").reshape(2, 3)
    (got,) = tec.compile(g, target="llvm", cache=False).run({"x": np.zeros((2, 4), "f"), "y": data})
    np.testing.assert_array_equal(got, np.maximum(data, 0))


def test_lengths_fit_the_batch():
    g = Graph()
    x, n = g.input("x", "float32", (5, 4)), g.input("n", "int64", (4,))
    with pytest.raises(ImportModelError, match="one length for each"):
        g.add("reverse_sequence", [x, n], {"batch_axis": 0, "time_axis": 1})


def test_a_copied_node_has_the_types_that_inference_gives():
    """Copies take types over where the inputs' are the same; where a pass has changed one, or made a constant of it, they are inferred and folded anew."""
    g, x, y, z = small()
    same, other = Graph("same"), Graph("other")
    (a,) = copied(same, y.node, [same.input("x", "float32", x.shape), *y.node.inputs[1:]])
    assert (a.type, a.name, a.node.attrs, a.node.origin) == (y.type, y.name, y.node.attrs, y.node.origin)
    (b,) = copied(other, y.node, [other.input("x", "float32", (1, 3, 9, 4)), *y.node.inputs[1:]])
    assert b.shape == (1, 2, 9, 4)
    (c,) = copied(other, z.node, [other.constant(np.full(y.shape, -1, "f"), "folded")])
    assert c.is_known and not c.data.any()
    with pytest.raises(ImportModelError, match="conv"):
        copied(other, y.node, [other.input("bad", "float32", (3, 3)), *y.node.inputs[1:]])


def test_an_attribute_that_is_missing_is_named():
    g, x, *_ = small()
    with pytest.raises(ImportModelError, match="needs the attribute 'axes'"):
        g.add("softmax", [x], {"axis": 1})
    n = Graph("open").input("x", "float32", (Dim("n"), 3))
    with pytest.raises(ImportModelError, match="needs the attribute 'axes'"):
        g.add("softmax", [n], {})


def test_an_input_that_is_no_value_is_told():
    g, x, *_ = small()
    with pytest.raises(ImportModelError, match="an input of relu is no value of a graph but list") as e:
        g.add("relu", [g.add("relu", [x])])
    assert "take its first value" in str(e.value)
    with pytest.raises(ImportModelError, match="an input of add is no value of a graph but NoneType"):
        g.add("add", [x, None])


def test_a_running_sum_along_an_axis_that_there_is_not():
    g = Graph("axis")
    x = g.input("x", "float32", (2, 3, 4))
    for axis in (3, -4):
        with pytest.raises(ImportModelError, match=f"axis {axis} of a tensor of 3 dimensions"):
            g.add("cumsum", [x], {"axis": axis})
