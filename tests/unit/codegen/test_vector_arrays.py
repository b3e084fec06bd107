"""Arrays of vector types: to callers an array of the element with a last dimension of the lanes, the same on every device."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ArgumentError, ExprError
from tec.ir.interp import run
from tec.schedule import to_loops
from tests.thinned import thinned, thinned_rows

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


@thinned(2, ("target", TARGETS), ("how", ["compute", "hand-written"]), ("dtype, element, lanes", TYPES))
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


def turned_and_picked(dtype):
    A, I = te.placeholder((7, 5), dtype, name="A"), te.placeholder((7, 5), "int32", name="I")
    return A, I, te.compute((7, 5), lambda i, j: A[6 - i, j] + A[i, I[i, j]], name="C")


@thinned_rows(5, "lanes", range(2, 17))
def test_every_count_of_lanes(lanes):
    """Elements lie packed whatever their lanes: on the CPU, on GPUs through shared and local storage, gathered, and in the interpreter."""
    r = np.random.default_rng(lanes)
    for element in ("float32", "int8", "float16") if lanes in (2, 3, 5, 7, 12, 16) else ("float32",):
        dtype = f"{element}x{lanes}"
        A, I, C = turned_and_picked(dtype)
        a, index = r.integers(0, 9, (7, 5, lanes)).astype(element), r.integers(0, 5, (7, 5)).astype("int32")
        want = a[::-1] + np.take_along_axis(a, index[..., None], 1)
        plain = te.create_schedule(C.op)
        got = np.zeros_like(a)
        run(to_loops(plain, [A, I, C]), {"A": a, "I": index, "C": got}, {}, check=True)
        np.testing.assert_array_equal(got, want)
        got[:] = 0
        tec.build(plain, [A, I, C], "llvm")(tec.nd.array(a), tec.nd.array(index), out := tec.nd.array(got))
        np.testing.assert_array_equal(out.numpy(), want)
        if element == "int8" or (lanes not in (3, 5, 12, 16)):
            continue
        for scope, chip in (("shared", "gfx942"), ("local", "gfx1100")):
            s = te.create_schedule(C.op)
            cached = s.cache_read(A, scope, [C])
            s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x" if scope == "local" else "blockIdx.x"))
            if scope == "shared":
                s[C].bind(C.op.axis[1], te.thread_axis("threadIdx.x"))
            s[cached].compute_at(s[C], C.op.axis[0])
            dev = tec.rocm_emu(chip, check="bounds")
            out = tec.nd.array(np.zeros_like(a), dev)
            tec.build(s, [A, I, C], f"rocm -mcpu={chip}")(tec.nd.array(a, dev), tec.nd.array(index, dev), out)
            np.testing.assert_array_equal(out.numpy(), want)
        if lanes == 3:
            ptx = tec.build(s, [A, I, C], "cuda -arch=sm_80").imported_modules[0].get_source("asm")
            assert ".entry" in ptx


def test_three_lanes_copied_in_from_rows():
    """12 bytes an element, none between them: an array made empty, filled from rows of three floats, and doubled."""
    A = te.placeholder((8,), "float32x3", name="A")
    C = te.compute((8,), lambda i: A[i] + A[i], name="C")
    ins, out = tec.nd.empty((8,), A.dtype), tec.nd.empty((8,), A.dtype)
    rows = np.random.default_rng(3).standard_normal((8, 3)).astype(np.float32)
    ins.copyfrom(rows)
    tec.build(te.create_schedule(C.op), [A, C], "llvm")(ins, out)
    np.testing.assert_array_equal(out.numpy().reshape(8, 3), rows + rows)


def test_slices_of_arrays_of_three_lanes():
    """Strides and offsets of a buffer are in elements."""
    whole = tec.nd.array(np.arange(60, dtype="float32").reshape(5, 4, 3), dtype="float32x3")
    A = te.placeholder((3, 4), "float32x3", name="A")
    C = te.compute((3, 4), lambda i, j: A[i, 3 - j] + A[i, j], name="C")
    out = tec.nd.empty((3, 4), "float32x3")
    part = whole[1:4]
    tec.build(te.create_schedule(C.op), [A, C], "llvm")(part, out)
    x = part.numpy()
    np.testing.assert_array_equal(out.numpy(), x + x[:, ::-1])
