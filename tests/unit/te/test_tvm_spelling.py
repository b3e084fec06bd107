"""What programs written for TVM's te say, and what it means here."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te


def test_constants_are_numbers():
    assert int(te.const(3)) == 3 and float(te.const(0.5)) == 0.5
    assert [10, 20, 30, 40][te.const(2)] == 30


def test_whole_floats_are_extents():
    assert [int(d) for d in te.compute((32 / 4, 4), lambda i, j: te.const(1.0)).shape] == [8, 4]
    with pytest.raises(tec.ExprError, match=r"8\.5"):
        te.placeholder((8.5,))


def test_buffers():
    b = te.decl_buffer((4, 8), name="b")
    assert str(b[1, 2]) == "b[1, 2]"
    assert str(b.access_ptr("wr")) == str(b.access_ptr("rw"))


def test_arrays_name_their_device():
    dev = tec.device("llvm", 0)
    assert tec.nd.array(np.ones(2), device=dev).device == dev
    assert tec.nd.empty((2,), "int8", device=dev).device == tec.nd.zeros((2,), device=dev).device == dev


def test_errors_are_runtime_errors():
    with pytest.raises(RuntimeError):
        tec.build(None, [])
    with pytest.raises(ValueError, match="unknown target"):
        tec.Target("opencl")


def test_names_that_are_not_there():
    for name, hint in (
        ("auto_scheduler", "tec.tune"),
        ("tir", "tec.ir"),
        ("creat_schedule", "is tec.create_schedule meant"),
    ):
        with pytest.raises(AttributeError, match=hint):
            getattr(tec, name)


def test_memory_of_gpus_is_memory_on_a_cpu():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    x = np.arange(5000, dtype="float32")
    for scope in ("local", "shared"):
        s = te.create_schedule(C.op)
        s[B].set_scope(scope)
        y = tec.nd.zeros((5000,))
        tec.build(s, [A, C], "llvm")(x, y)
        np.testing.assert_array_equal(y.numpy(), (x + 1) * 2)
        with pytest.raises(tec.ScheduleError, match="a size that is not constant"):
            tec.lower(s, [A, C], target="rocm")


def test_a_reducer_combines_the_same_way_everywhere():
    X = te.placeholder((10,), name="X")

    def body(i):
        k = te.reduce_axis((0, 10), "k")
        clipped = te.comm_reducer(
            lambda x, y: te.max(x + y, i.astype("float32")), lambda t: te.const(0, t), name="clipped"
        )
        return clipped(X[k], axis=k)

    with pytest.raises(tec.ExprError, match="the reducer clipped of compute Y uses axis i"):
        te.compute((10,), body, name="Y")


def test_what_a_scan_alone_reads_is_computed_for_its_times():
    steps, n = 8, 4
    X = te.placeholder((steps - 1, n), name="X")
    state = te.placeholder((steps, n), name="state")
    init = te.compute((1, n), lambda t, i: te.const(0.0), name="init")
    doubled = te.compute((steps, n), lambda t, i: X[t - 1, i] * 2, name="doubled")  # of t >= 1 alone
    update = te.compute((steps, n), lambda t, i: state[t - 1, i] + doubled[t, i], name="update")
    out = te.scan(init, update, state, inputs=[X])
    s = te.create_schedule(out.op)
    x = np.random.default_rng(0).standard_normal((steps - 1, n)).astype("float32")
    y = tec.nd.zeros((steps, n))
    tec.build(s, [X, out], "llvm")(x, y)
    np.testing.assert_allclose(y.numpy(), np.concatenate([np.zeros((1, n)), np.cumsum(2 * x, 0)]), rtol=1e-5, atol=1e-6)
