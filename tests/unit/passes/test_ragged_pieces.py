"""Pieces of rows that no vector divides, on targets whose loads may begin anywhere (`ragged_pieces`)."""

from __future__ import annotations

import numpy as np
import pytest
from pass_util import GPU, apply, check_same, parse_func

import tec
from tec import te
from tec.choices import spaces
from tec.ir.verify import verify
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned_rows


def copied(rows, columns, target, threads=8):
    """A copy of rows into rows of whole vectors, zeros behind."""
    x = te.placeholder((rows, columns), "float16", name="x")
    whole = -(-columns // 8) * 8
    y = te.compute((rows, whole), lambda i, j: te.if_then_else(j < columns, x[i, j], te.const(0, "float16")), name="y")
    s = te.create_schedule(y.op)
    i, j = s[y].op.axis
    outer, inner = s[y].split(j, factor=8)
    s[y].vectorize(inner)
    s[y].bind(i, te.thread_axis("blockIdx.x"))
    s[y].bind(outer, te.thread_axis("threadIdx.x"))
    return tec.build(s, [x, y], target, name="copied")


@pytest.mark.parametrize("columns", [9, 21, 23])
def test_the_last_piece_ends_where_the_row_ends(columns):
    f, dev = copied(5, columns, tec.Target("rocm -mcpu=gfx942")), tec.rocm_emu("gfx942", check="all")
    x = np.random.default_rng(1).standard_normal((5, columns)).astype("float16")
    out = tec.nd.empty((5, -(-columns // 8) * 8), "float16", dev)
    f(tec.nd.array(x, dev), out)
    got = out.numpy()
    assert (got[:, :columns] == x).all() and (got[:, columns:] == 0).all()
    assert "ushort" not in f.get_source("asm")


def test_rows_shorter_than_a_piece_stay_under_a_mask():
    assert "ushort" in copied(5, 5, tec.Target("rocm -mcpu=gfx942")).get_source("asm")


def test_where_loads_must_be_aligned_they_stay_under_a_mask():
    assert ".v4" not in copied(5, 21, tec.Target("cuda -arch=sm_90")).get_source("ptx").split("st.")[0]


@thinned_rows(1, ("chip", "terms"), [("gfx942", 463), ("gfx1100", 237)])
def test_pieces_that_come_some_turns_ahead_are_moved_when_they_are_stored(chip, terms):
    """A product whose sum no vector divides, loads two steps ahead: a flag waits beside each piece, and no load is waited for where it was asked for."""
    target = tec.Target(f"rocm -mcpu={chip}")
    x, w = (te.placeholder((40, terms), "float16", name=n) for n in "xw")
    product = get_op("matmul")
    types = [TensorType("float16", (40, terms))] * 2
    outs = product.compute({"transpose_b": True}, [x, w], product.infer(types, {"transpose_b": True}))[:1]
    space = next(s for s in spaces(outs, target) if s.template == "matrix product")
    choice = next(c for c in space.drafts() if c["prefetch_distance"] == 2 and c["split_k"] == 1)
    chosen = space.apply(choice)
    f = tec.build(chosen.schedule, [x, w, *chosen.outputs], target, name="product")
    dev, rng = tec.rocm_emu(chip, check="all"), np.random.default_rng(2)
    a, b = (rng.standard_normal((40, terms)).astype("float16") for _ in "xw")
    out = tec.nd.empty((40, 40), "float16", dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), out)
    want = a.astype("f8") @ b.astype("f8").T
    assert np.abs(out.numpy() - want).max() <= 2e-3 * np.abs(want).max()
    assert "_ends[" in f.imported_modules[0].get_source("ir")


_PIECES = """
def f(A: Buffer((64,), "float16"), B: Buffer((32,), "float16")):
    L = alloc((16,), "float16", scope="local")
    for t in range(3):
        for v in vectorized(8):
            L[v] = if_then_else(t * 8 + v < 21, A[t * 8 + v], float16(0.0))
"""
_SECOND = """
        for u in vectorized(8):
            L[8 + u] = if_then_else(t * 8 + u < END, A[t * 8 + 24 + u], float16(0.0))
"""
_BOTH = """
        for h in range(2):
            for w in vectorized(8):
                B[h * 8 + w] = B[h * 8 + w] + L[h * 8 + w]
"""
_READ = "\n        for w in vectorized(8):\n            B[t * 8 + w] = L[w]\n"


@pytest.mark.parametrize(
    ("rest", "is_late"),
    [
        pytest.param(_READ, True, id="whole"),
        pytest.param("\n    for w in vectorized(8):\n        B[w] = L[w]\n", True, id="behind the loop"),
        pytest.param("\n        B[t] = L[3]\n        B[t + 3] = L[7]\n        B[t + 6] = L[0]\n", True, id="known elements"),
        pytest.param("\n        for w in range(8):\n            B[t * 8 + w] = L[w]\n", False, id="any element"),
        pytest.param(_SECOND.replace("END", "21") + _BOTH, True, id="two alike"),
        pytest.param(_SECOND.replace("END", "23") + _BOTH, False, id="moved by other numbers"),
        pytest.param(_SECOND.replace("END", "21") + _READ.replace("L[w]", "L[w + 3]"), False, id="across two"),
        pytest.param("\n        for u in vectorized(8):\n            L[u] = L[u] + float16(1.0)\n" + _READ, True, id="changed there"),
    ],
)  # fmt: skip
def test_pieces_in_registers_are_moved_where_all_their_readers_can_ask(rest: str, is_late: bool) -> None:
    """What is read is what was stored, wherever the reader stands and however it reads."""
    func = parse_func(_PIECES + rest.lstrip("\n"))
    made = apply(func, GPU, "flatten_buffers", "simplify", "vectorize")
    verify(made, "flat")  # no reader asks for a variable of a loop that it stands behind
    check_same(func, made)
    (first, *_) = [line for line in str(made).splitlines() if "L[ramp(0" in line.partition("=")[0]]
    assert ("let(" not in first) == is_late, str(made)
