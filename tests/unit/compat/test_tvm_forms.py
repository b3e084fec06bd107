"""What TVM's programs do with schedules, passes, bits and statements of their own, through tec.compat.tvm."""

from __future__ import annotations

import json
import pickle

import ml_dtypes
import numpy as np
import pytest

import tec
import tec.compat.tvm as tvm
from tec.compat.tvm import te


def scheduled():
    A = te.placeholder((12, 8), name="A")
    B = te.compute((12, 8), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((12, 8), lambda i, j: B[i, j] * 2.0, name="C")
    s = te.create_schedule(C.op)
    low = s.cache_write(C, "local")
    xo, _ = s[C].split(C.op.axis[0], factor=4)
    s[low].compute_at(s[C], xo)
    s[B].compute_inline()
    return s


@pytest.mark.parametrize(
    "back", [lambda s: tvm.ir.load_json(tvm.ir.save_json(s)), lambda s: pickle.loads(pickle.dumps(s))]
)
def test_a_schedule_goes_to_text_and_back(back):
    s = scheduled()
    again = back(s)
    assert str(again) == str(s)
    A, C = (next(st.op.output(0) for st in again.stages if st.name == n) for n in ("A", "C"))
    a, c = tec.nd.array(np.ones((12, 8), "float32")), tec.nd.array(np.zeros((12, 8), "float32"))
    tvm.build(again, [A, C], "llvm")(a, c)
    assert (c.numpy() == 4).all()


def test_attributes_print_as_json():
    C = te.compute((4,), lambda i: i, name="C", attrs={"hello": 1, "list": [10, 12]})
    again = tvm.ir.load_json(tvm.ir.save_json(C))
    assert json.loads(str(again.op.attrs)) == {"hello": 1, "list": [10, 12]}


def test_records_of_a_schedule():
    assert te.create_schedule([]).schedule_record == []
    with tvm.transform.PassContext(config={"te.keep_schedule_record": True}):
        A = te.placeholder((8, 8), name="A")
        C = te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="C")
        s = te.create_schedule(C.op)
        assert s.primitive_record == ["vanilla"]
        _, _, _, inner = s[C].tile(*C.op.axis, 4, 4)
        s[C].vectorize(inner)
        assert s.primitive_record == ["vanilla", "split", "split", "reorder", "vectorize"]
        assert len(s.schedule_record) == 5
        assert te.create_schedule([]).primitive_record == ["vanilla"]


def test_a_pass_of_ones_own_changes_the_loops():
    A = te.placeholder((8,), "int32", name="A")
    C = te.compute((8,), lambda i: A[i] + 1, name="C")
    s = te.create_schedule(C.op)

    def tripled(loop):
        store = loop.body
        return tvm.tir.For(
            loop.loop_var, loop.min, loop.extent, 0, tvm.tir.BufferStore(store.buffer, store.value * 3, store.indices)
        )

    def change(f, mod, context):
        return f.with_body(tvm.tir.stmt_functor.ir_transform(f.body, None, tripled, ["tir.For"]))

    added = tvm.tir.transform.prim_func_pass(change, opt_level=0)
    a, c = tvm.nd.array(np.arange(8, dtype="int32")), tvm.nd.array(np.zeros(8, "int32"))
    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, added)]}):
        assert "* 3" in str(tvm.lower(s, [A, C]))
        tvm.build(s, [A, C], "llvm")(a, c)
    assert c.numpy().tolist() == [(i + 1) * 3 for i in range(8)]
    tvm.build(s, [A, C], "llvm")(a, c)
    assert c.numpy().tolist() == [i + 1 for i in range(8)]


def test_bfloat16_arrays_are_bits_in_numpy():
    numbers = np.float32([1.0, -2.5, 3.0]).astype(ml_dtypes.bfloat16)
    a = tvm.nd.empty((3,), "bfloat16").copyfrom(numbers.view(np.uint16))
    assert a.numpy().dtype == np.uint16
    assert (a.numpy() == numbers.view(np.uint16)).all()
    assert (tvm.nd.empty((3,), "uint16").copyfrom(a).numpy() == numbers.view(np.uint16)).all()
    assert (tvm.nd.empty((3,), "bfloat16").copyfrom(numbers).numpy() == numbers.view(np.uint16)).all()
    again = tvm.nd.array(a)
    assert again.dtype == "bfloat16"
    assert (again.numpy() == a.numpy()).all()
    assert (tvm.nd.array(numbers).numpy() == a.numpy()).all()
    lanes = tvm.nd.empty((2,), "bfloat16x2").copyfrom(np.uint16([[1, 2], [3, 4]]))
    assert tvm.nd.empty((2, 2), "uint16").copyfrom(lanes).numpy().tolist() == [[1, 2], [3, 4]]


def test_extern_statements_that_change_their_input_need_no_output():
    def counted(ins, outs):
        ib = tvm.tir.ir_builder.create()
        a = ib.buffer_ptr(ins[0])
        with ib.for_range(0, 4) as i:
            a[i] = a[i] + 1.0
        return ib.get()

    A = te.placeholder((4,), name="A")
    C = te.extern((4,), [A], counted, dtype="float32", name="C")
    a = tvm.nd.array(np.arange(4, dtype="float32"))
    tvm.build(te.create_schedule(C.op), [A], "llvm")(a)
    assert a.numpy().tolist() == [1, 2, 3, 4]
    D = te.compute((4,), lambda i: A[i] + 1.0, name="D")
    with pytest.raises(tec.TecError, match="output D is not among the parameters"):
        tvm.build(te.create_schedule(D.op), [A], "llvm")


def test_a_smaller_shape_takes_the_first_elements():
    A = te.placeholder((2, 5), name="A")
    a = np.arange(10, dtype="float32").reshape(2, 5)
    (got,) = te.evaluate([tvm.topi.reshape(A, (2, 3))], {A: a})
    assert got.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(tec.TecError, match="10 elements"):
        tvm.topi.reshape(A, (3, 4))


def test_cudas_dot_of_four_bytes():
    A, B = (te.placeholder((8,), "int8x4", name=n) for n in "AB")
    C = te.placeholder((8,), "int32", name="C")
    D = te.compute((8,), lambda i: tvm.tir.call_pure_extern("int32", "__dp4a", A[i], B[i], C[i]), name="D")
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 127, (8, 4)).astype("int8") for _ in range(2))
    c = rng.integers(0, 99, 8).astype("int32")
    dev = tec.rocm_emu("gfx942")
    s = te.create_schedule(D.op)
    s[D].bind(D.op.axis[0], te.thread_axis("threadIdx.x"))
    args = [tvm.nd.empty((8,), t, dev) for t in ("int8x4", "int8x4", "int32", "int32")]
    for array, values in zip(args, (a, b, c)):
        array.copyfrom(values)
    tvm.build(s, [A, B, C, D], "rocm -mcpu=gfx942")(*args)
    assert (args[3].numpy() == (a.astype(int) * b).sum(1) + c).all()


def test_the_thread_pools_pragmas_change_no_value():
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((32,), lambda i: B[31 - i] * 2.0, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], nparts=1)
    s[B].compute_at(s[C], outer)
    s[B].parallel(B.op.axis[0])
    s[B].pragma(B.op.axis[0], "parallel_barrier_when_finish")
    s[C].parallel(inner)
    s[C].pragma(outer, "parallel_launch_point")
    s[C].pragma(inner, "parallel_stride_pattern")
    a, c = tvm.nd.array(np.arange(32, dtype="float32")), tvm.nd.array(np.zeros(32, "float32"))
    tvm.build(s, [A, C], "llvm")(a, c)
    assert (c.numpy() == (np.arange(32)[::-1] + 1) * 2).all()


def test_reading_loops_needs_no_read_to_be_right():
    A = te.placeholder((2,), name="A")
    C = te.compute((10,), lambda i: A[i], name="C")
    s = te.create_schedule(C.op)
    assert "A[i]" in str(tvm.te.schedule.ScheduleOps(s, tvm.te.schedule.InferBound(s)))
    assert "A[i]" in str(tvm.lower(s, [A, C], simple_mode=True))
    with pytest.raises(tec.TecError, match="outside of A"):
        tvm.build(s, [A, C], "llvm")


def test_an_intrinsic_of_max_fits_pooling_that_keeps_nan():
    """TVM's programs declare it with te.max: there is no other in TVM."""
    rows = te.placeholder((5, 6), name="rows")
    kh, kw = te.reduce_axis((0, 2), name="kh"), te.reduce_axis((0, 2), name="kw")
    p = te.compute((4, 5), lambda i, j: te.max(rows[i + kh, j + kw], axis=[kh, kw]), name="p")

    def of_rows(ins, outs):
        ib = tvm.tir.ir_builder.create()
        x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 4, "i") as i, ib.for_range(0, 5, "j") as j:
            a, b = te.max(x[i, j], x[i, j + 1]), te.max(x[i + 1, j], x[i + 1, j + 1])
            y[i, j] = te.max(a, b)
        return ib.get()

    intrin = te.decl_tensor_intrin(p.op, of_rows, default_buffer_params={"offset_factor": 1})
    A = te.placeholder((1, 3, 5, 6), name="A")
    P = tvm.topi.nn.pool2d(A, (2, 2), (1, 1), (1, 1), (0, 0, 0, 0), "max")
    s = te.create_schedule(P.op)
    s[P].tensorize(P.op.axis[2], intrin)
    x, y = np.random.default_rng(0).random((1, 3, 5, 6), np.float32), np.zeros((1, 3, 4, 5), np.float32)
    tvm.build(s, [A, P], "llvm")(x, y)
    pairs = np.maximum(x[..., :-1], x[..., 1:])
    np.testing.assert_array_equal(y, np.maximum(pairs[..., :-1, :], pairs[..., 1:, :]))


def test_a_pointer_takes_the_extent_that_tvm_gives():
    b = tec.te.decl_buffer((4, 8), "float32", name="b")
    assert str(b.access_ptr("r", offset=8, extent=16)) == str(b.access_ptr("r", offset=8))
