"""Keys and values in blocks of a pool: attention through a table against attention over the same keys in one piece, and rows that are written in place."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, ImportModelError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.ops import get_op
from tec.ops.dim_bounds import Empty
from tec.ops.dims import Dim
from tec.ops.registry import TensorType
from tec.runtime.arrays.ndarray import array
from tec.te import placeholder
from tec.te.evaluation import evaluate
from tests import seeds
from tests.thinned import thinned_rows

HEADS, KEY_HEADS, SIZE, VALUES = 6, 2, 16, 8
ORDER = {"q_order": (0, 2, 1, 3), "out_order": (0, 2, 1, 3)}


def drawn(rng, batch, queries, blocks, width, places):
    """q, two pools, starts and tables of texts."""
    starts = rng.integers(0, max(1, width * places - queries + 1), batch)
    tables = rng.integers(0, blocks, (batch, width))
    shapes = (batch, queries, HEADS, SIZE), (blocks, KEY_HEADS, places, SIZE), (blocks, KEY_HEADS, places, VALUES)
    return [*(rng.standard_normal(s).astype(np.float32) for s in shapes), starts, tables]


def alone(attrs, q, k, v, starts, tables):
    """By the operator on the host, over keys that were put in one piece, text by text."""
    found = []
    for e in range(len(q)):
        keys, values = (np.concatenate(list(x[tables[e]]), 1)[None] for x in (k, v))
        of = {**attrs, "extras": ("start",)}
        out = TensorType("float32", (1, q.shape[1], HEADS, VALUES))
        found.append(get_op("attention").host(of, [q[e : e + 1], keys, values, starts[e : e + 1]], [out])[0])
    return np.concatenate(found) if found else np.zeros((0, q.shape[1], HEADS, VALUES), np.float32)


CASES = {"causal": {}, "a window": {"left": 5}, "capped": {"softcap": 2.0}}


@pytest.mark.parametrize("case", list(CASES))
def test_what_it_means(case):
    rng = np.random.default_rng(seeds.first())
    attrs = {"scale": 0.3, "right": 0, "extras": ("start", "table"), **ORDER, **CASES[case]}
    given = drawn(rng, 2, 2, 5, 3, 4)
    want = alone(attrs, *given)
    types = [TensorType(str(x.dtype), x.shape) for x in given]
    op = get_op("attention")
    (out,) = op.infer(types, attrs)
    np.testing.assert_allclose(op.host(attrs, given, [out])[0], want, atol=1e-5)
    inputs = [placeholder(x.shape, str(x.dtype), name=f"x{n}") for n, x in enumerate(given)]
    (made,) = evaluate(op.compute(attrs, inputs, [out]), dict(zip(inputs, given)))
    np.testing.assert_allclose(made, want, atol=1e-5)


def network(target, places, **attrs):
    """Texts of one query and of some, as many as there are, some of each."""
    g, blocks = Graph("paged"), Dim("blocks")
    b = Builder(g)
    pools = [g.input(n, "float32", (blocks, KEY_HEADS, places, size)) for n, size in (("k", SIZE), ("v", VALUES))]
    made = []
    for name, queries in (("single", 1), ("piece", Dim(Empty("queries")))):
        count = Dim(Empty(f"{name}s"))
        q = g.input(f"{name}.q", "float32", (count, queries, HEADS, SIZE))
        more = (
            g.input(f"{name}.start", "int64", (count,)),
            g.input(f"{name}.table", "int64", (count, Dim(f"{name}.width"))),
        )
        made.append(
            b.op("attention", q, *pools, *more, scale=0.3, right=0, extras=("start", "table"), **ORDER, **attrs)
        )
    g.set_outputs(made, ["singles", "pieces"])
    return tec.compile(g, target)


@thinned_rows(2, ("places", "attrs"), [(4, {}), (8, {}), (16, {}), (32, {"left": 20, "softcap": 3.0})])
def test_compiled(places, attrs):
    net = network("llvm", places, **attrs)
    assert {c["choice"]["template"] for c in net.report.choices.values()} == {"cpu attention"}
    rng = np.random.default_rng(seeds.first(3))
    for singles, pieces, queries in ((3, 0, 0), (0, 2, 9), (5, 1, 40), (1, 3, 2)):
        k, v = drawn(rng, 1, 1, 7, 1, places)[1:3]
        feeds, want = {"k": k, "v": v}, []
        for name, count, many in (("single", singles, 1), ("piece", pieces, queries)):
            q, _, _, starts, tables = drawn(rng, count, many, 7, int(rng.integers(2, 5)), places)
            feeds.update({f"{name}.q": q, f"{name}.start": starts, f"{name}.table": tables})
            want.append(alone({"scale": 0.3, "right": 0, **ORDER, **attrs}, q, k, v, starts, tables))
        for got, one in zip(net.run(feeds), want):
            np.testing.assert_allclose(np.asarray(got), one, atol=2e-5)


def writer(state=True, readers=1):
    g = Graph("write")
    b = Builder(g)
    pool = g.input("pool", "float32", (Dim("blocks"), 2, 4, 8))
    rows, slots = g.input("rows", "float32", (Dim("n"), 2, 8)), g.input("slots", "int64", (Dim("n"),))
    made = b.op("write_rows", pool, b.op("multiply", rows, b.like(2.0, rows)), slots)
    seen = b.op("reduce_sum", made, axes=(1, 3), keepdims=False)
    if readers > 1:
        seen = b.op("add", seen, b.op("reduce_sum", pool, axes=(1, 3), keepdims=False))
    g.set_outputs([seen, made], ["seen", "written"])
    return tec.compile(g, "llvm", state={"pool": "written"} if state else False)


def test_rows_are_written_in_place():
    executor = writer().executor()
    pool = np.random.default_rng(seeds.first(5)).standard_normal((3, 2, 4, 8)).astype(np.float32)
    own, want = array(pool), pool.copy()
    executor.begin_with({"pool": own})
    for slots in ([0, 11, 5], [7], [-1, 4], [12, 3]):  # what is outside is left out
        rows = np.random.default_rng(len(slots)).standard_normal((len(slots), 2, 8)).astype(np.float32)
        for slot, row in zip(slots, rows):
            if 0 <= slot < 12:
                want[slot // 4, :, slot % 4] = 2 * row
        (seen,) = executor.run({"rows": rows, "slots": np.array(slots)})
        np.testing.assert_allclose(seen.numpy(), want.sum((1, 3)), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(own.numpy(), want)
    assert executor.state["pool"].address == own.address, "nothing was copied"
    with pytest.raises(ArgumentError, match="is no state"):
        executor.begin_with({"pool": array(pool.astype(np.float64))})


def test_what_cannot_be_written_in_place_is_refused():
    for more in ({"state": False}, {"readers": 2}):
        with pytest.raises(ImportModelError, match="no state that this alone reads"):
            writer(**more)
    g = Graph("wrong")
    with pytest.raises(ImportModelError, match="in blocks by the table"):
        q = g.input("q", "float32", (2, HEADS, 1, SIZE))
        k = g.input("k", "float32", (5, KEY_HEADS, 4, SIZE))
        Builder(g).op("attention", q, k, k, g.input("t", "int64", (3, 2)), scale=1.0, extras=("table",))
