"""What exporters spell in several ways comes out as one operator, and means the same."""

from __future__ import annotations

import numpy as np
import pytest

from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.attention import find_attention
from tec.graph.passes.dead_code import dead_code
from tec.graph.passes.spellings import RULES, one_spelling
from tec.target import Target
from tests import seeds
from tests.thinned import thinned


class Net:
    def __init__(self):
        self.g = Graph()
        self.x = self.g.input("x", "float32", (2, 3, 4, 5))

    def c(self, value, dtype=np.float32):
        return self.g.constant(np.asarray(value, dtype))

    def __getattr__(self, op):
        return lambda *inputs, **attrs: self.g.add(op, list(inputs), attrs)[0]

    def done(self, out):
        self.g.set_outputs([out])
        return self.g


def norm(axes=(2, 3), square="power", root="divide", keepdims=True, variance_axes=None, swapped=False):
    n = Net()
    mean = n.reduce_mean(n.x, axes=axes, keepdims=keepdims)
    gap = n.subtract(n.x, mean)
    squared = {
        "power": lambda: n.power(gap, n.c(2.0)),
        "square": lambda: n.square(gap),
        "again": lambda: n.multiply(gap, n.subtract(n.x, mean)),  # each of its readers has a difference of its own
    }[square]()
    spread = [n.reduce_mean(squared, axes=variance_axes or axes, keepdims=keepdims), n.c(1e-3)]
    total = n.add(*(spread[::-1] if swapped else spread))
    if root == "divide":
        return n.done(n.divide(gap, n.sqrt(total)))
    inverse = {
        "rsqrt": lambda: n.rsqrt(total),
        "reciprocal": lambda: n.reciprocal(n.sqrt(total)),
        "one over": lambda: n.divide(n.c(1.0), n.sqrt(total)),
    }[root]()
    return n.done(n.multiply(inverse, gap) if swapped else n.multiply(gap, inverse))


def ops(graph):
    return [n.op for n in dead_code(graph).nodes]


def same(a, b, **inputs):
    rng = np.random.default_rng(seeds.number())
    feeds = {v.name: inputs.get(v.name, rng.standard_normal(v.shape).astype(np.float32)) for v in a.inputs}
    np.testing.assert_allclose(run_graph(b, feeds)[0], run_graph(a, feeds)[0], rtol=2e-5, atol=2e-6)


@thinned(1, ("square", ["power", "square", "again"]), ("root", ["divide", "rsqrt", "reciprocal", "one over"]))
def test_layer_norm(square, root):
    g = norm(square=square, root=root, swapped=square == "square")
    found = one_spelling(g)
    assert ops(found) == ["layer_norm"]
    same(g, found)


def test_what_is_no_layer_norm_of_the_last_dimensions():
    for more in ({"axes": (1,)}, {"axes": (1, 3)}, {"variance_axes": (3,)}):
        g = norm(**more)
        found = one_spelling(g)
        assert "layer_norm" not in ops(found)
        same(g, found)


def test_parts_that_are_read_elsewhere_stay():
    n = Net()
    mean = n.reduce_mean(n.x, axes=(3,), keepdims=True)
    gap = n.subtract(n.x, mean)
    y = n.divide(gap, n.sqrt(n.add(n.reduce_mean(n.square(gap), axes=(3,), keepdims=True), n.c(1e-5))))
    g = n.done(n.add(y, mean))
    found = one_spelling(g)
    assert ops(found).count("layer_norm") == 1 and ops(found).count("reduce_mean") == 1
    same(g, found)


def test_a_transpose_with_the_leading_dimensions_as_one():
    n = Net()
    flat = n.reshape(n.x, shape=(6, 4, 5))
    g = n.done(n.reshape(n.transpose(flat, perm=(0, 2, 1)), shape=(2, 3, 5, 4)))
    found = one_spelling(g)
    assert ops(found) == ["transpose"]
    same(g, found)
    n = Net()  # other dimensions come out
    flat = n.reshape(n.x, shape=(6, 4, 5))
    g = n.done(n.reshape(n.transpose(flat, perm=(0, 2, 1)), shape=(3, 2, 5, 4)))
    assert ops(one_spelling(g)) == ["reshape", "transpose", "reshape"]


def test_operands_and_squares_stand_in_one_order():
    n = Net()
    other = n.g.input("y", "float32", (2, 3, 4, 5))
    g = n.done(n.multiply(n.c(2.0), n.add(n.c(1.0), n.multiply(n.x, n.multiply(other, other)))))
    found = one_spelling(g)
    assert ops(found) == ["square", "multiply", "add", "multiply"]
    assert all(not v.inputs[0].is_const for v in found.nodes)
    same(g, found)


def test_axes_of_reductions_stand_in_order():
    made = []
    for axes in ((2, 3), (-1, -2), (3, 2)):
        n = Net()
        g = n.done(n.reduce_mean(n.x, axes=axes, keepdims=False))
        found = one_spelling(g)
        made += [node.attrs for node in found.nodes]
        same(g, found)
    assert made == [{"axes": (2, 3), "keepdims": False}] * 3


def convolution(before=(0, 0, 1, 0), after=(0, 0, 0, 1), **pad):
    n = Net()
    window = {"strides": (2, 1), "dilations": (1, 1), "before": (0, 1), "after": (1, 0), "groups": 1}
    w = n.c(np.random.default_rng(1).standard_normal((4, 3, 2, 3)))
    return n.done(n.conv(n.pad(n.x, before=before, after=after, **pad), w, **window))


def test_zeros_around_a_picture_are_padding_of_its_convolution():
    g = convolution(mode="constant")
    found = one_spelling(g)
    (conv,) = dead_code(found).nodes
    assert conv.op == "conv" and (conv.attrs["before"], conv.attrs["after"]) == ((1, 1), (1, 1))
    same(g, found)


@pytest.mark.parametrize(
    "pad",
    [{"mode": "edge"}, {"value": 1.0}, {"before": (0, 0, -1, 0)}, {"before": (1, 0, 0, 0)}, {"after": (0, 0, 1, 0)}],
)
def test_what_is_no_padding_of_a_convolution_stays(pad):
    assert ops(one_spelling(convolution(**pad))) == ["pad", "conv"]


def test_mish_is_one_operator():
    n = Net()
    g = n.done(n.multiply(n.x, n.tanh(n.softplus(n.x))))
    found = one_spelling(g)
    assert ops(found) == ["mish"]
    same(g, found)


def by_scale_and_shift(mean, inverse, n, gamma=True, difference=False):
    """As Keras on TensorFlow writes it."""
    scale = n.multiply(inverse, n.c(np.arange(5.0))) if gamma else inverse
    shift = (
        n.subtract(n.c(3.0), n.multiply(mean, scale)) if difference else n.add(n.multiply(n.neg(mean), scale), n.c(3.0))
    )
    return n.done(n.add(n.multiply(n.x, scale), shift))


def parts_of_norm(n, moments=False, sums=False):
    """Mean, and 1 over the root of the variance: by moments as flax has it, by sums as JAX writes means."""

    def mean_of(v):
        if not sums:
            return n.reduce_mean(v, axes=(-1,), keepdims=True)
        return n.reshape(n.divide(n.reduce_sum(v, axes=(3,), keepdims=False), n.c(5.0)), shape=(2, 3, 4, 1))

    mean = mean_of(n.x)
    gap = n.subtract(n.x, mean)
    variance = mean_of(n.square(gap))
    if moments:
        variance = n.maximum(n.c(0.0), n.subtract(mean_of(n.square(n.x)), n.square(mean)))
    return mean, gap, n.reciprocal(n.sqrt(n.add(variance, n.c(1e-3))))


@pytest.mark.parametrize("more", [{}, {"gamma": False}, {"difference": True}])
def test_layer_norm_by_a_scale_and_a_shift(more):
    n = Net()
    mean, _, inverse = parts_of_norm(n)
    g = by_scale_and_shift(mean, inverse, n, **more)
    found = one_spelling(g)
    assert ops(found) == ["layer_norm", *["multiply"] * more.get("gamma", True), "add"]
    same(g, found)


@pytest.mark.parametrize("how", ["moments", "sums"])
def test_layer_norm_as_jax_writes_it(how):
    n = Net()
    _, gap, inverse = parts_of_norm(n, **{how: True})
    g = n.done(n.multiply(gap, inverse))
    found = one_spelling(g)
    assert ops(found) == ["layer_norm"]
    same(g, found)


def test_a_sum_by_another_number_is_no_mean():
    for other in (n := Net()).c(4.0), n.c(np.full((2, 3, 1, 1), 5.0)):
        g = n.done(n.divide(n.reduce_sum(n.x, axes=(2, 3), keepdims=True), other))
        assert ops(one_spelling(g)) == ["reduce_sum", "divide"]


def test_a_choice_as_a_sum():
    n = Net()
    keep = n.g.input("keep", "bool", (2, 1, 4, 5))
    kept, hidden = (n.cast(v, dtype="float32") for v in (keep, n.logical_not(keep)))
    g = n.done(n.add(n.multiply(kept, n.x), n.multiply(hidden, n.c(-1e30))))
    found = one_spelling(g)
    assert ops(found) == ["where"]
    same(g, found, keep=np.random.default_rng(1).random((2, 1, 4, 5)) > 0.5)


def test_a_transpose_among_dimensions_of_one():
    n = Net()
    wide = n.reshape(n.x, shape=(2, 1, 3, 4, 1, 5))
    turned = n.transpose(wide, perm=(0, 3, 4, 5, 1, 2))
    g = n.done(n.reshape(n.reshape(turned, shape=(2, 4, 5, 3, 1)), shape=(8, 15)))
    found = one_spelling(g)
    assert ops(found) == ["transpose", "reshape"]
    same(g, found)
    n = Net()  # the dimension of 1 is the value's own
    own = n.g.input("y", "float32", (3, 1, 4))
    g = n.done(n.transpose(n.reshape(own, shape=(3, 1, 4, 1)), perm=(2, 1, 3, 0)))
    same(g, one_spelling(g))


@pytest.mark.parametrize("first, starts, axis", [(0.0, 0, 2), (0.0, 1, 2), (1.0, 0, 2), (0.0, 0, 3)], ids=str)
def test_a_running_sum_behind_a_zero(first, starts, axis):
    n = Net()
    zero = n.broadcast_to(n.c(first), shape=(2, 3, 1, 5)) if first == 0 else n.c(np.full((2, 3, 1, 5), first))
    part = n.slice(n.x, starts=(0, 0, starts, 0), steps=(1,) * 4, sizes=(2, 3, 3, 5))
    g = n.done(n.concat(zero, n.cumsum(part, axis=axis, exclusive=False, reverse=False), axis=2))
    found = one_spelling(g)
    assert (ops(found) == ["cumsum"]) == (first == starts == 0 and axis == 2)
    same(g, found)


@pytest.mark.parametrize("first, starts, axis", [(0.0, 0, 2), (0.0, 1, 2), (1.0, 0, 2), (0.0, 0, 3)], ids=str)
def test_a_running_sum_of_what_is_shifted(first, starts, axis):
    n = Net()
    joined = n.concat(n.c(np.full((2, 3, 1, 5), first)), n.x, axis=2)
    part = n.slice(joined, starts=(0, 0, starts, 0), steps=(1,) * 4, sizes=(2, 3, 4, 5))
    g = n.done(n.cumsum(part, axis=axis, exclusive=False, reverse=False))
    found = one_spelling(g)
    assert (ops(found) == ["cumsum"]) == (first == starts == 0 and axis == 2)
    same(g, found)


def test_every_rule_says_why():
    assert len({r.name for r in RULES}) == len(RULES) and all(r.why for r in RULES)


def masked(dtype):
    """As torch exports attention with a mask that chooses: a row that sees no key is no number, and then 0."""
    n = Net()
    q, k, v = (n.g.input(c, "float32", (1, 2, 4, 8)) for c in "qkv")
    mask = n.where(n.g.input("mask", "bool", (1, 1, 4, 4)), n.c(0.0), n.c(-np.inf))
    scores = n.matmul(q, n.transpose(k, perm=(0, 1, 3, 2)))
    w = n.softmax(n.add(scores, mask), axes=(-1,))
    w = n.where(n.isnan(w), n.c(0.0), w)
    return n.done(n.matmul(w, v))


def test_attention_whose_hidden_rows_are_no_numbers():
    g = masked("bool")
    found = find_attention(g)
    assert "attention" in ops(found) and "isnan" not in ops(found)
    mask = np.tril(np.ones((1, 1, 4, 4), bool))
    mask[..., 2, :] = False
    with np.errstate(invalid="ignore"):
        same(g, found, mask=mask)


def test_attention_whose_mask_is_a_factor_and_a_summand():
    n = Net()
    q, k, v = (n.g.input(c, "float32", (1, 2, 4, 8)) for c in "qkv")
    keep = np.tril(np.ones((1, 2, 4, 4)))
    for low, is_mask in ((-2e30, True), (-3.0, False)):
        scores = n.multiply(n.matmul(q, n.transpose(k, perm=(0, 1, 3, 2))), n.c(0.25))
        scores = n.add(n.multiply(scores, n.c(keep)), n.c((1 - keep) * low))
        g = n.done(n.matmul(n.softmax(scores, axes=(-1,)), v))
        found = dead_code(find_attention(g))
        assert ("multiply" not in ops(found)) == is_mask
        assert not is_mask or [node.attrs["right"] for node in found.nodes if node.op == "attention"] == [0]
        same(g, found)


def test_gelu_is_one_operator_whatever_its_parts():
    def gelu(tanh, cube):
        n = Net()
        half = n.multiply(n.c(0.5), n.x)
        if tanh is None:  # TensorFlow and JAX: the complement of the error function
            scaled = n.multiply(n.neg(n.x), n.c(0.5**0.5))
            return n.done(n.multiply(half, n.subtract(n.c(1.0), n.erf(scaled))))
        if not tanh:
            return n.done(n.multiply(half, n.add(n.erf(n.divide(n.x, n.c(2**0.5))), n.c(1.0))))
        third = n.power(n.x, n.c(3.0)) if cube else n.multiply(n.x, n.multiply(n.x, n.x))
        inner = n.multiply(n.c((2 / np.pi) ** 0.5), n.add(n.x, n.multiply(n.c(0.044715), third)))
        return n.done(n.multiply(half, n.add(n.c(1.0), n.tanh(inner))))

    for tanh, cube in ((False, False), (True, True), (True, False), (None, False)):
        g = gelu(tanh, cube)
        found = optimize(g, Target("llvm"))
        assert ops(found) == ["gelu_tanh" if tanh else "gelu"]
        same(g, found)


@pytest.mark.parametrize("op", ["gather", "gather_nd"])
@pytest.mark.parametrize("places", ["all in order", "reversed", "some"])
def test_a_look_up_of_all_places_is_a_reshape(op, places):
    """By one number or by two; in another order, or of a part, it stays a look-up."""
    n = Net()
    flat = {"all in order": np.arange(6), "reversed": np.arange(6)[::-1], "some": np.arange(5)}[places]
    if op == "gather":
        x, index = n.reshape(n.x, shape=(6, 20)), n.c(flat.reshape(-1, 1), np.int64)
        out = n.gather(x, index, axis=0)
    else:
        index = np.stack(np.unravel_index(flat, (2, 3)), -1) - [2, 0]  # numbers from the end count too
        out = n.gather_nd(n.x, n.c(index[:, None], np.int64), batch_dims=0)
    g = n.done(out)
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    made = one_spelling(g)
    assert (op not in [m.op for m in made.nodes]) == (places == "all in order")
    np.testing.assert_array_equal(run_graph(dead_code(made), {"x": x})[0], run_graph(g, {"x": x})[0])


def test_a_product_says_only_what_is_transposed():
    n = Net()
    g = n.done(n.matmul(n.x, n.x, transpose_a=False, transpose_b=True))
    (node,) = one_spelling(g).nodes
    assert node.attrs == {"transpose_b": True}


def test_reshapes_there_and_back_are_none():
    """As ONNX's own body of Attention writes them around keys that heads do not share: a reshape to the shape that there is would hide a transpose."""
    n = Net()
    turned = n.transpose(n.x, perm=(0, 2, 1, 3))
    g = n.done(n.relu(n.reshape(n.reshape(turned, shape=(2, 4, 1, 3, 5)), shape=(2, 4, 3, 5))))
    assert [m.op for m in dead_code(one_spelling(g)).nodes] == ["transpose", "relu"]
