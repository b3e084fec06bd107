"""A reduction over threads is stored once, by the first of them."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tests.thinned import thinned


@thinned(1, ("chip", ["gfx942", "gfx1100"]), ("threads", [64, 128, 100]))
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


@pytest.mark.parametrize("asks", ["rows", "one of two"])
def test_a_predicate_that_leaves_reducing_threads_open(asks: str) -> None:
    """Waves that hold the same result do not all store it: of the threads that the predicate does not ask for, the first does."""
    a = te.placeholder((2, 128), name="A")
    r = te.reduce_axis((0, 128), name="r")
    c = te.compute((2,), lambda i: te.sum(a[i, r], axis=r), name="C")
    s = tec.create_schedule(c.op)
    ty, tx = te.thread_axis("threadIdx.y"), te.thread_axis("threadIdx.x")
    if asks == "rows":
        s[c].bind(c.op.axis[0], ty)
        s[c].bind(r, tx)
        s[c].set_store_predicate(ty.var >= 0)
    else:
        outer, inner = s[c].split(r, factor=64)
        s[c].bind(outer, ty)
        s[c].bind(inner, tx)
        s[c].set_store_predicate(te.all(ty.var >= 1, ty.var < 2))
    dev = tec.rocm_emu("gfx942", check="race")
    x = np.arange(256, dtype=np.float32).reshape(2, 128)
    out = tec.nd.array(np.zeros(2, np.float32), dev)
    tec.build(s, [a, c], "rocm -mcpu=gfx942", name="f")(tec.nd.array(x, dev), out)
    assert (out.numpy() == x.sum(1)).all()
