"""Storage that a script allocates in front of its threads' loops."""

from __future__ import annotations

import numpy as np

import tec
from tec import te
from tec.ir import Alloc, Buffer, For, ForKind, Seq, Var
from tec.ir.build import buffer_store, const
from tec.ir.passes.thread_storage import in_thread_loops


def test_shared_and_local_storage_in_front_of_several_loops_over_the_threads():
    @te.hybrid.script
    def turned(a, b):
        c = output_tensor((64,), "float32")  # noqa: F821
        shared = allocate((64,), "float32", "shared")  # noqa: F821
        for i in bind("threadIdx.x", 64):  # noqa: F821
            shared[i] = a[i]
        mine = allocate((1,), "float32", "local")  # noqa: F821
        for i in bind("threadIdx.x", 64):  # noqa: F821
            mine[0] = b[i] * 2.0
        for i in bind("threadIdx.x", 64):  # noqa: F821
            c[i] = shared[63 - i] + mine[0]
        return c

    A, B = (te.placeholder((64,), name=n) for n in "AB")
    C = turned(A, B)
    f = tec.build(tec.create_schedule(C.op), [A, B, C], "rocm -mcpu=gfx942")
    dev = tec.rocm_emu("gfx942", check="all")
    a, b = np.random.default_rng(0).random((2, 64)).astype("float32")
    c = tec.nd.array(np.zeros(64, "float32"), dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), c)
    np.testing.assert_allclose(c.numpy(), a[::-1] + 2 * b, rtol=1e-6)


def test_loops_over_other_threads_stay_apart():
    b = Buffer("b", "float32", (const(8),), scope="shared")

    def loop(n):
        v = Var("v")
        return For(v, const(0), const(n), buffer_store(b, [v], 1.0), ForKind.THREAD, "threadIdx.x")

    kept = in_thread_loops(Alloc(b, Seq((loop(8), loop(4)))))
    assert isinstance(kept, Alloc)
    moved = in_thread_loops(Alloc(b, Seq((loop(8), loop(8)))))
    assert isinstance(moved, For) and isinstance(moved.body, Alloc)
