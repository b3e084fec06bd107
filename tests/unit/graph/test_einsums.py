"""Sums of products along named axes are products of matrices, and mean the same."""

from __future__ import annotations

import numpy as np
import pytest

from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.dead_code import dead_code
from tec.graph.passes.einsums import einsums_as_products
from tec.ops.dims import Dim
from tec.target import Target
from tests import seeds

SIZES = dict(zip("bhqtkdmn", (2, 3, 4, 5, 6, 7, 8, 9)))


def net(equation, *, first_is_weight=False, dtype="float32"):
    g, rng = Graph(), np.random.default_rng(seeds.number())
    operands = equation.split("->")[0].split(",")
    shapes = [tuple(SIZES[c] for c in o) for o in operands]
    values = [g.input(f"x{k}", dtype, s) for k, s in enumerate(shapes)]
    if first_is_weight:
        values[0] = g.constant(rng.standard_normal(shapes[0]).astype(dtype))
        g.inputs.pop(0)
    g.set_outputs(g.add("einsum", values, {"equation": equation}))
    return g, {v.name: rng.standard_normal(v.shape).astype(dtype) for v in g.inputs}


@pytest.mark.parametrize(
    "equation",
    ["btd,dhk->bthk", "bqhk,bthk->bhqt", "bhqt,bthk->bqhk", "bthk,hkd->btd", "mk,kn->nm", "km,k->m", "bk,bk n->bn".replace(" ", ""), "kmb,nbk->bmn"],
)  # fmt: skip
def test_products(equation):
    g, feeds = net(equation)
    found = dead_code(einsums_as_products(g))
    assert [n.op for n in found.nodes].count("matmul") == 1 and "einsum" not in [n.op for n in found.nodes]
    np.testing.assert_allclose(run_graph(found, feeds)[0], run_graph(g, feeds)[0], rtol=1e-4, atol=1e-5)


def test_a_weight_is_the_second_operand():
    g, feeds = net("dk,btd->btk", first_is_weight=True)
    (product,) = [n for n in einsums_as_products(g).nodes if n.op == "matmul"]
    assert product.inputs[1].node is None or product.inputs[1].node.inputs[0].is_const
    np.testing.assert_allclose(
        run_graph(einsums_as_products(g), feeds)[0], run_graph(g, feeds)[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("equation", ["mk,kn,nd->md", "bt,td,dk,bk->b", "mk,mn,md->knd"])
def test_more_operands_are_multiplied_in_pairs(equation):
    """All at once the sum takes as many multiply-adds as the product of all sizes."""
    g, feeds = net(equation)
    found = dead_code(einsums_as_products(g))
    assert max((len(n.inputs) for n in found.nodes if n.op == "einsum"), default=2) == 2
    assert "matmul" in [n.op for n in found.nodes]
    np.testing.assert_allclose(run_graph(found, feeds)[0], run_graph(g, feeds)[0], rtol=1e-4, atol=1e-4)


def test_operands_of_open_sizes_are_multiplied_in_pairs():
    g = Graph()
    i, j, k = map(Dim, "ijk")
    g.set_outputs(
        g.add(
            "einsum",
            [g.input(f"x{n}", "float32", s) for n, s in enumerate([(i, j), (j, k), (k, 5)])],
            {"equation": "ij,jk,kl->il"},
        )
    )
    assert [n.op for n in dead_code(einsums_as_products(g)).nodes] == ["matmul", "matmul"]


def test_the_pair_of_fewest_multiply_adds_comes_first():
    g = Graph()
    x, y, z = (g.input(c, "float32", s) for c, s in zip("xyz", ((900, 7), (7, 300), (300, 4))))
    g.set_outputs(g.add("einsum", [x, y, z], {"equation": "ij,jk,kl->il"}))
    shapes = [n.outputs[0].shape for n in dead_code(einsums_as_products(g)).nodes if n.op == "matmul"]
    assert shapes == [(7, 4), (900, 4)]


def test_the_order_is_the_cheapest_of_all():
    """The cheapest pair may leave a product that costs more than it saved."""
    g = Graph()
    x, y, z = (g.input(c, "float32", s) for c, s in zip("xyz", ((616, 41), (41, 16), (16, 605))))
    g.set_outputs(g.add("einsum", [x, y, z], {"equation": "ij,jk,kl->il"}))
    shapes = [n.outputs[0].shape for n in dead_code(einsums_as_products(g)).nodes if n.op == "matmul"]
    assert [sorted(s) for s in shapes] == [[16, 616], [605, 616]]
    many = Graph()
    xs = [many.input(f"x{k}", "float32", (2, 2)) for k in range(8)]
    many.set_outputs(many.add("einsum", xs, {"equation": "ab,bc,cd,de,ef,fg,gh,hi->ai"}))
    assert [n.op for n in dead_code(einsums_as_products(many)).nodes].count("matmul") == 7


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pairs_of_16_bits_are_kept_in_float32(dtype):
    """Products of some operands may be beyond 65,504 where the whole sum is not."""
    g = Graph()
    xs = [g.input(c, dtype, s) for c, s in zip("xyz", ((4, 7), (7, 9), (9, 5)))]
    g.set_outputs(g.add("einsum", xs, {"equation": "ij,jk,kl->il"}))
    found = dead_code(einsums_as_products(g))
    products = [n for n in found.nodes if n.op == "matmul"]
    assert len(products) == 2 and all(n.outputs[0].dtype == "float32" for n in products)
    # The first two are multiplied as they are, by matrix units; nothing that is in float32 is rounded to be multiplied.
    assert [{v.dtype for v in n.inputs} for n in products] == [{dtype}, {"float32"}]
    assert "transpose" not in [n.op for n in found.nodes]
    assert found.outputs[0].dtype == dtype
    if dtype == "float16":
        x, y, z = np.full((4, 7), 300.0), np.full((7, 9), 200.0), np.full((9, 5), 2.0**-6)
        feeds = {n: v.astype("float16") for n, v in zip("xyz", (x, y, z))}
        np.testing.assert_array_equal(run_graph(found, feeds)[0], (x @ y @ z).astype("float16"))


def test_sizes_that_broadcast_stay_one_sum():
    g = Graph()
    xs = [g.input(c, "float32", s) for c, s in zip("xyz", ((4, 1), (7, 3), (3, 5)))]
    g.set_outputs(g.add("einsum", xs, {"equation": "ij,jk,kl->il"}))
    assert [n.op for n in einsums_as_products(g).nodes] == ["einsum"]


@pytest.mark.parametrize("equation", ["bt,bt->bt", "bt,hd->bthd", "btd,dk->b", "bt,bt->b"])
def test_what_is_no_product_of_matrices_stays(equation):
    g, _ = net(equation)
    assert [n.op for n in einsums_as_products(g).nodes] == ["einsum"]


def test_attention_is_found_in_sums_along_named_axes():
    g = Graph()
    q, k, v = (g.input(c, "float32", (2, n, 3, 6)) for c, n in zip("qkv", (4, 5, 5)))
    (scores,) = g.add("einsum", [q, k], {"equation": "bqhk,bthk->bhqt"})
    (weights,) = g.add("softmax", [scores], {"axes": (-1,)})
    g.set_outputs(g.add("einsum", [weights, v], {"equation": "bhqt,bthk->bqhk"}))
    found = optimize(g, Target("llvm"))
    assert [n.op for n in found.nodes] == ["attention"]
    rng = np.random.default_rng(seeds.number())
    feeds = {x.name: rng.standard_normal(x.shape).astype(np.float32) for x in g.inputs}
    np.testing.assert_allclose(run_graph(found, feeds)[0], run_graph(g, feeds)[0], rtol=1e-4, atol=1e-5)
