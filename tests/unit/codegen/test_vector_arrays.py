"""Arrays of vector types: to callers an array of the element with a last dimension of the lanes, the same on every device."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ArgumentError, ExprError
from tec.ir.interp import run
from tec.schedule import to_loops

TYPES = [("float32x4", "float32", 4), ("int32x8", "int32", 8), ("float16x2", "float16", 2)]
TARGETS = ["llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100"]


def definition(how, dtype, gpu):
    n = te.size_var("n") if how == "compute" else 6
    A = te.placeholder((n, 3), dtype=dtype, name="A")
    two = te.const(2, dtype)
    if how == "compute":
        return A, te.compute((n, 3), lambda i, j: A[i, j] + A[i, 2 - j] * two, name="C")

    def body(ins, outs):
        ib = te.ir_builder.create()

        def row(i):
            for j in range(3):
                ib.emit(outs[0].vstore([i, j], ins[0].vload([i, j], dtype) + ins[0].vload([i, 2 - j], dtype) * two))

        if gpu:
            tx = te.thread_axis("threadIdx.x")
            ib.scope_attr(tx, "thread_extent", 6)
            row(tx.var)
        else:
            with ib.for_range(0, 6, name="i") as i:
                row(i)
        return ib.get()

    return A, te.extern((6, 3), [A], body, name="C", dtype=dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ["compute", "hand-written"])
@pytest.mark.parametrize("dtype, element, lanes", TYPES)
def test_an_array_of_vectors(dtype, element, lanes, how, target):
    gpu = target != "llvm"
    A, C = definition(how, dtype, gpu)
    s = tec.create_schedule(C.op)
    if gpu and how == "compute":
        s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
        s[C].bind(C.op.axis[1], te.thread_axis("threadIdx.x"))
    a = np.random.default_rng(0).integers(0, 9, (6, 3, lanes)).astype(element)
    want = a + a[:, ::-1] * 2
    f = tec.build(s, [A, C], target)
    assert f.signature["params"][0]["dtype"] == element and f.signature["params"][0]["shape"][-1] == lanes
    dev = tec.rocm_emu(target.split("=")[1], check="bounds") if gpu else tec.cpu(0)
    out = tec.nd.array(np.zeros_like(a), dev)
    f(tec.nd.array(a, dev), out)
    np.testing.assert_array_equal(out.numpy(), want)
    if not gpu:
        got = np.zeros_like(a)
        run(to_loops(s, [A, C]), {"A": a, "C": got}, {}, check=True)
        np.testing.assert_array_equal(got, want)
        with pytest.raises(ArgumentError, match="3"):
            f(a.reshape(18, lanes), out)


def test_a_value_of_two_elements_and_of_half_a_one():
    pairs = te.decl_buffer((8,), "float32x2", name="pairs")
    store = pairs.vstore([2], te.const(1, "float32x4"))
    assert str(store) == "pairs[ramp(2, 1, 2)] = broadcast(1.0, 4)"
    assert str(pairs.vload([1], "float32x2")) == "pairs[1]" and pairs.vload([1], "float32x4").dtype == "float32x4"
    assert str(pairs.vstore([0], te.const(1.0))) == "pairs[0] = broadcast(1.0, 2)"
    with pytest.raises(ExprError, match="no whole number of elements"):
        pairs.vload([0], "float32x3")
