"""A reduction over threads is stored once, by the first of them."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("threads", [64, 128, 100])
def test_one_thread_stores(chip: str, threads: int) -> None:
    a = te.placeholder((6, 500), name="A")
    r = te.reduce_axis((0, 500), name="r")
    c = te.compute((6,), lambda i: te.sum(a[i, r], axis=r), name="C")
    s = tec.create_schedule(c.op)
    _, inner = s[c].split(c.op.reduce_axis[0], factor=threads)
    s[c].bind(c.op.axis[0], tec.thread_axis("blockIdx.x"))
    s[c].bind(inner, tec.thread_axis("threadIdx.x"))
    assert "if r_inner == 0:" in str(tec.schedule.to_loops(s, [a, c], name="f"))
    dev = tec.rocm_emu(chip, check="race,init")  # several wavefronts: a store by each would be a race
    x = np.random.default_rng(0).integers(-9, 9, (6, 500)).astype(np.float32)
    out = tec.nd.array(np.zeros(6, np.float32), dev)
    tec.build(s, [a, c], f"rocm -mcpu={chip}", name="f")(tec.nd.array(x, dev), out)
    assert (out.numpy() == x.sum(1)).all()


def test_a_predicate_of_the_user_stays() -> None:
    a = te.placeholder((64,), name="A")
    r = te.reduce_axis((0, 64), name="r")
    c = te.compute((1,), lambda i: te.sum(a[r], axis=r), name="C")
    s = tec.create_schedule(c.op)
    tx = tec.thread_axis("threadIdx.x")
    s[c].bind(c.op.reduce_axis[0], tx)
    s[c].set_store_predicate(tx.var.equal(3) if hasattr(tx.var, "equal") else tx.var == 3)
    text = str(tec.schedule.to_loops(s, [a, c], name="f"))
    assert "== 3" in text and "r == 0" not in text
