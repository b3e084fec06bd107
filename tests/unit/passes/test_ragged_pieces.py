"""Pieces of rows that no vector divides, on targets whose loads may begin anywhere (`ragged_pieces`)."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te


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
