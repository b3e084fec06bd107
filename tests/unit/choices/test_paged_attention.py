"""Attention through a table of blocks on GPUs: right with every check on the software GPUs, what reads the table, and the same templates as of keys in one piece."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.ops.registry import TensorType, get_op
from tests import seeds
from tests.thinned import thinned_rows

FEW, MATRIX, VECTOR = (f"{n} attention" for n in ("few rows", "matrix", "gpu"))
DIRECT = "few rows attention by matrix units"
ORDER = {"q_order": (0, 2, 1, 3), "out_order": (0, 2, 1, 3)}


def drawn(rng, dtype, heads, key_heads, size, places, queries, lengths):
    """q, pools, places of the first queries, tables whose unused entries lie outside of the pools."""
    width = max(-(-n // places) for n in lengths)
    own = [-(-n // places) for n in lengths]
    order = rng.permutation(sum(own) + 2)
    table = np.full((len(lengths), width), -3, np.int64)
    pools = [rng.standard_normal((len(order), key_heads, places, size)).astype(dtype) for _ in "kv"]
    for e, n in enumerate(own):
        table[e, :n] = order[sum(own[:e]) : sum(own[: e + 1])]
    q = rng.standard_normal((len(lengths), queries, heads, size)).astype(dtype)
    return [q, *pools, np.array([n - queries for n in lengths]), table]


def check(chip, choice, arrays, attrs):
    target, op = f"rocm -mcpu={chip}", get_op("attention")
    types = [TensorType(str(a.dtype), a.shape) for a in arrays]
    (out,) = op.infer(types, attrs)
    xs = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    made = schedule(op.compute(attrs, list(xs), [out]), target, choice)
    assert made.choice["template"] == choice["template"]
    f, dev = tec.build(made.schedule, [*xs, *made.outputs], target), tec.rocm_emu(chip, check="all")
    got = tec.nd.empty(out.shape, out.dtype, dev)
    f(*[tec.nd.array(a, dev) for a in arrays], got)
    wide = [a.astype("float32") if a.dtype.kind == "f" else a for a in arrays]
    want = op.host(attrs, wide, [TensorType("float32", out.shape)])[0]
    np.testing.assert_allclose(got.numpy().astype("float32"), want, atol=2e-5 if out.dtype == "float32" else 4e-3)


CASES = [
    ("gfx942", {"template": FEW}, "float16", 32, 1, {}),  # a step of all lanes is in one block
    ("gfx1100", {"template": FEW, "splits": 4, "waves": 1, "ahead": 4}, "float32", 8, 2, {"left": 21}),  # of some lanes
    (
        "gfx942",
        {"template": DIRECT, "keys": 32, "waves": 1, "splits": 1},
        "float16",
        64,
        2,
        {},
    ),  # a wavefront's keys are of one block
    ("gfx942", {"template": DIRECT, "keys": 32, "waves": 2, "splits": 2}, "float16", 8, 1, {"left": 21}),  # of several
    ("gfx942", {"template": MATRIX, "keys": 32, "splits": 2}, "float16", 32, 19, {"softcap": 4.0}),  # a tile is a block
    ("gfx1100", {"template": MATRIX, "keys": 64}, "float16", 16, 19, {}),  # a tile is of several
    ("gfx1100", {"template": VECTOR, "splits": 2}, "float32", 16, 19, {"left": 9}),
]


@thinned_rows(2, ("chip", "choice", "dtype", "places", "queries", "attrs"), CASES)
def test_values(chip, choice, dtype, places, queries, attrs):
    rng = np.random.default_rng(seeds.first(7))
    lengths = rng.integers(queries, 90, 2).tolist()
    attrs = {"scale": 0.2, "right": 0, "extras": ("start", "table"), **ORDER, **attrs}
    check(chip, choice, drawn(rng, dtype, 4, 2, 32, places, queries, lengths), attrs)


@pytest.mark.parametrize(("queries", "first"), [(1, DIRECT), (40, MATRIX)])
def test_no_plain_stages(queries, first):
    """The default of one query is few rows on matrix units, that of a piece of a prompt tiles on matrix units."""
    given = drawn(np.random.default_rng(0), "float16", 8, 2, 64, 32, queries, [64, 90])
    attrs = {"scale": 0.125, "right": 0, "extras": ("start", "table"), **ORDER}
    types = [TensorType(str(a.dtype), a.shape) for a in given]
    xs = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(given)]
    op = get_op("attention")
    found = spaces(op.compute(attrs, xs, op.infer(types, attrs)), "cuda -arch=sm_90a")
    assert next(s.template for s in found if "attention" in s.template) == first
