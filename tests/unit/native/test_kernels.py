"""te functions as shared objects: typed C functions whose arguments are checked."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import ArgumentError, PackageError
from tec.native import kernels
from tests.unit.native.harness import Failed, library, tensor


class Error(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 500)]


def caller(path, name):
    """Calls an exported kernel with arrays and C numbers."""
    function = getattr(library(path), name)

    def call(*args):
        error, kept = Error(), []
        words = []
        for a in args:
            if isinstance(a, np.ndarray):
                t, keep = tensor(a)
                kept.append((t, keep))
                words.append(ctypes.byref(t))
            else:
                words.append(a)
        status = function(*words, ctypes.byref(error))
        if status:
            raise Failed(status, error.text.decode())

    return call


def aligned(shape, dtype="f"):
    raw = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 64, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)


def scaled(name="scaled", target="llvm"):
    n = te.var("n")
    a, s = te.placeholder((n, 4), "float32", "A"), te.var("s", "float32")
    b = te.compute((n, 4), lambda i, j: a[i, j] * s + te.cast("float32", j), "B")
    sch = te.create_schedule(b.op)
    return tec.build(sch, [a, b, s], target, name=name)


def test_a_kernel_with_an_open_size_and_a_number(tmp_path):
    module = scaled()
    module.save(tmp_path / "k.so")  # as export_library: the name says it
    header = (tmp_path / "k.h").read_text()
    assert "int32_t k_scaled(const DLTensor *A, DLTensor *B, float s, tec_error *tec_error_out);" in header
    assert "A: float32 [n, 4], read" in header and "B: float32 [n, 4], written" in header
    call = caller(tmp_path / "k.so", "k_scaled")
    for n in (1, 7):
        a, b = aligned((n, 4)), aligned((n, 4))
        a[...] = np.random.default_rng(n).standard_normal(a.shape)
        call(a, b, ctypes.c_float(2.5))
        want = aligned((n, 4))
        module(a, want, 2.5)
        np.testing.assert_array_equal(b, want)
        np.testing.assert_allclose(b, a * np.float32(2.5) + np.arange(4, dtype="f"), rtol=1e-6, atol=1e-6)


def test_a_shared_object_is_loaded_as_a_module_too(tmp_path):
    """The package lies behind it. Of a stripped one, and of other libraries, the error says what to do."""
    scaled().export_library(tmp_path / "k.so")
    a, b = np.ones((3, 4), "f"), np.empty((3, 4), "f")
    tec.load_module(tmp_path / "k.so")["scaled"](a, b, 2.0)
    assert (b == [2, 3, 4, 5]).all()
    scaled().save(tmp_path / "k.o")
    with pytest.raises(PackageError, match="no tec package") as e:
        tec.load_module(tmp_path / "k.o")
    assert "save(path)" in str(e.value)


def test_what_a_call_costs(tmp_path):
    """Each call that asked the processor for its features took 0.3 ms on a virtual machine."""
    scaled().export_library(tmp_path / "k.so")
    function = library(tmp_path / "k.so").k_scaled
    (a, *keep), (b, *more) = tensor(aligned((3, 4))), tensor(aligned((3, 4)))
    args = ctypes.byref(a), ctypes.byref(b), ctypes.c_float(1), None
    start = time.process_time()
    for _ in range(500):
        assert function(*args) == 0
    assert time.process_time() - start < 500 * 50e-6
    del keep, more


def test_what_a_kernel_refuses(tmp_path):
    scaled().export_library(tmp_path / "k.so")
    call = caller(tmp_path / "k.so", "k_scaled")
    a, b, s = aligned((3, 4)), aligned((3, 4)), ctypes.c_float(1)
    for args, says in [
        ((a, aligned((2, 4)), s), "dimension 0 of argument B is 2, 3 is wanted"),
        ((a, aligned((3, 5)), s), "dimension 1 of argument B is 5, 4 is wanted"),
        ((a, aligned((3, 4), "i4"), s), "argument B is of type int32, float32 is wanted"),
        ((a, aligned((12,)), s), "argument B has 1 dimensions, 2 are wanted"),
        ((None, b, s), "argument A: the tensor is a null pointer"),
        ((a, a, s), "argument B is written and shares memory with argument A"),
        ((aligned((3, 8))[:, ::2], b, s), "argument A has strides"),
    ]:
        with pytest.raises(Failed, match=says) as e:
            call(*args)
        assert e.value.status == 1
    assert library(tmp_path / "k.so").k_scaled(None, None, s, None) == 1


def test_sizes_that_are_solved_for_and_strides(tmp_path):
    """A size that stands in products alone, a tensor with strides of its own, numbers of several types."""
    n = te.var("n")
    a = te.placeholder((n * 4,), "float32", "A")
    b = te.compute((n,), lambda i: a[i * 4] + a[i * 4 + 3], "B")
    f = tec.build(te.create_schedule(b.op), [a, b], "llvm", name="pairs")
    f.export_library(tmp_path / "p.so", name="pairs")
    call = caller(tmp_path / "p.so", "pairs")
    x, y = aligned((20,)), aligned((5,))
    x[...] = np.arange(20)
    call(x, y)
    np.testing.assert_array_equal(y, x[::4] + x[3::4])
    with pytest.raises(Failed, match="dimension 0 of argument A is 18, 16 is wanted"):
        call(aligned((18,)), aligned((4,)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float64", "bool", "float16"])
def test_numbers_of_each_type(dtype, tmp_path):
    a, s = te.placeholder((4,), dtype, "A"), te.var("s", dtype)
    b = te.compute((4,), lambda i: te.if_then_else(i > 1, a[i], s), "B")
    tec.build(te.create_schedule(b.op), [a, b, s], "llvm", name="f").export_library(tmp_path / "k.so")
    call = caller(tmp_path / "k.so", "k_f")
    x, y = aligned((4,), dtype), aligned((4,), dtype)
    x[...] = 1
    c_type = {"float64": ctypes.c_double, "bool": ctypes.c_bool, "float16": ctypes.c_uint16}.get(dtype) or getattr(
        ctypes, f"c_{dtype}"
    )
    value = np.array(True if dtype == "bool" else 100 if dtype[0] == "u" else -100, dtype)
    call(x, y, c_type(int(value.view("u2")) if dtype == "float16" else value.item()))
    np.testing.assert_array_equal(y, np.where(np.arange(4) > 1, x, value))


def test_what_is_no_library(tmp_path):
    with pytest.raises(ArgumentError, match="there is no such program"):
        scaled().export_library(tmp_path / "k.so", linker="no-such-linker")
    with pytest.raises(ArgumentError, match="a static library is not linked"):
        scaled().export_library(tmp_path / "k.a", linker="cc")


def test_entries_run_before_a_processor_is_asked(monkeypatch):
    """They are for any processor of the architecture: what refuses code that is not for this one is called by them."""
    made = []
    whole = kernels.llvm_util.compile_text
    monkeypatch.setattr(
        kernels.llvm_util,
        "compile_text",
        lambda text, machine, *more: made.append(machine) or whole(text, machine, *more),
    )
    tables = kernels.KernelTables([scaled(target="llvm -mcpu=x86-64-v4")], "m")
    tables.entries("llvm -mcpu=x86-64-v4")
    assert [m.cpu for m in made] == ["x86-64"]
