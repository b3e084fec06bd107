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
