"""A parameter that is computed inside of another stage's concurrent loops."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te


def _conv_and_add(read):
    A = te.placeholder((16, 12), name="A")
    k = te.reduce_axis((0, 12), "k")
    B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((16,), lambda i: B[read(i)] + 1.0, name="C")
    s = te.create_schedule(C.op)
    return A, B, C, s


@pytest.mark.parametrize("scope", ["local", ""])
@pytest.mark.parametrize("threads", [False, True])
def test_threads_compute_it_in_storage_of_their_own(scope, threads):
    A, B, C, s = _conv_and_add(lambda i: i)
    bx, tx = s[C].split(C.op.axis[0], 4)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], tx)
    if scope:
        s[B].set_scope(scope)
    if threads:
        s[B].bind(B.op.reduce_axis[0], te.thread_axis("threadIdx.y"))
    f = tec.build(s, [A, B, C], "rocm -mcpu=gfx942")
    dev = tec.rocm_emu("gfx942", check="all")
    a = np.random.default_rng(0).random((16, 12)).astype("f")
    b, c = (tec.nd.array(np.full(16, np.nan, "f"), dev) for _ in range(2))
    f(tec.nd.array(a, dev), b, c)
    np.testing.assert_allclose(b.numpy(), a.sum(1), rtol=1e-6)
    np.testing.assert_allclose(c.numpy(), a.sum(1) + 1, rtol=1e-6)


def test_on_the_cpu():
    A, B, C, s = _conv_and_add(lambda i: i)
    s[C].parallel(C.op.axis[0])
    s[B].compute_at(s[C], C.op.axis[0])
    a = np.random.default_rng(0).random((16, 12)).astype("f")
    b, c = np.zeros(16, "f"), np.zeros(16, "f")
    tec.build(s, [A, B, C], "llvm")(a, b, c)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-6)
    np.testing.assert_allclose(c, a.sum(1) + 1, rtol=1e-6)


def test_one_that_might_not_be_complete_is_refused():
    A, B, C, s = _conv_and_add(lambda i: i // 2)
    s[C].parallel(C.op.axis[0])
    s[B].compute_at(s[C], C.op.axis[0])
    with pytest.raises(
        tec.ScheduleError, match=r"parameter B is computed inside of loops that run at once(.|\n)*compute_root"
    ):
        tec.lower(s, [A, B, C], target="llvm")
