"""A function built for the CPU takes NumPy arrays as they are, and its call costs little."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tec
from tec import te
from tec.runtime.modules.arguments import Checker
from tec.runtime.modules.cpu_code import stand_ins
from tests.counting import cost


@pytest.fixture(scope="module")
def add():
    n = tec.var("n")
    A = tec.placeholder((n,), name="A")
    B = tec.placeholder((n,), name="B")
    C = tec.compute((n,), lambda i: A[i] + B[i], name="C")
    s = tec.create_schedule(C.op)
    s[C].vectorize(s[C].split(C.op.axis[0], factor=16)[1])
    return tec.build(s, [A, B, C], "llvm", name="add")


def test_numpy_arrays_are_taken_as_they_are(add, monkeypatch):
    def no_copy(*args):
        raise AssertionError("an argument was copied")

    monkeypatch.setattr(Checker, "_realign", no_copy)
    raw = np.arange(400, dtype="float32")
    start = -(raw.ctypes.data // 4) % 4  # NumPy gives 16 bytes; be sure
    for n in (1, 15, 16, 17, 100):
        for shift in (0, 4, 8, 12):
            x = raw[start + shift : start + shift + n]
            z = np.zeros(n + 4, "float32")[:n]
            add(x, x, z)
            np.testing.assert_array_equal(z, 2 * x)


def test_other_alignments_go_through_a_copy(add):
    raw = np.arange(100, dtype="float32")
    for shift in range(1, 4):
        z = np.zeros(60, "float32")
        add(raw[shift : shift + 50], raw[:50], z[shift : shift + 50])
        np.testing.assert_array_equal(z[shift : shift + 50], raw[shift : shift + 50] + raw[:50])
        assert not z[:shift].any() and not z[shift + 50 :].any()


def test_a_call_costs_little_over_the_work(add):
    """Arrays of tec that were checked before go straight on: 172 instructions with CPython 3.11, five times as many for NumPy's."""
    a, b, c = (tec.nd.zeros(16, "float32") for _ in range(3))
    add(a, b, c)
    known = cost(lambda: add(a, b, c))
    assert known.instructions < 230 and known.calls <= 12, known
    x, y, z = (np.zeros(16, "float32") for _ in range(3))
    add(x, y, z)
    new = cost(lambda: add(x, y, z))
    assert new.instructions < 1150 and new.calls <= 70, new


def test_numbers_that_change_between_calls():
    """A call keeps its block of numbers for the same objects, but not for objects that change."""
    a, v = te.placeholder((4,), name="A"), te.var("v", "float32")
    b = te.compute((4,), lambda i: a[i] * v, name="B")
    f = tec.build(te.create_schedule(b.op), [a, b, v])
    x, y, number = np.ones(4, "float32"), np.zeros(4, "float32"), np.array(2.0)
    for value in (2.0, 3.0):
        number[()] = value
        f(x, y, number)
        assert (y == value).all()
    for value in (-0.0, 0.0, True, 1, -0.0):
        f(x, y, value)
        assert (y == value).all() and (np.signbit(y) == np.signbit(float(value))).all()
    for value in (None, "a", [1]):
        with pytest.raises(tec.TecError, match="number is wanted"):
            f(x, y, value)


def test_numpy_arrays_that_call_after_call_are_others():
    """Of other order, type, writability, overlap: what a call knows of earlier ones does not hide it."""
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    f = tec.build(te.create_schedule(b.op), [a, b])
    x, y = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    frozen = np.zeros(4, "float32")
    frozen.flags.writeable = False
    for _ in range(2):
        f(x, y)
        assert (y == x + 1).all()
        for bad in (x, x.astype("float64"), frozen, np.zeros((4, 1), "float32")):
            with pytest.raises(tec.TecError):
                f(x, bad)
        with pytest.raises(tec.TecError):
            f(np.zeros(8, "float32")[::2], y)
    with pytest.raises(tec.TecError):
        f()


def test_plain_memory_of_cpu_code():
    at = stand_ins()
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(at["tec_alloc"])
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at["tec_free"])
    for n in (0, 1, 1000):
        p = alloc(n)
        assert p and p % 64 == 0
        ctypes.memset(p, 1, n)
        free(p)


def test_the_strides_of_empty_arrays_are_not_asked_for():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    given = te.decl_buffer((n,), "float32", name="Ab", strides=[te.var("step")])
    f = tec.build(te.create_schedule(b.op), [a, b], binds={a: given})
    out = np.zeros(3, "float32")
    f(np.arange(6, dtype="float32")[::2], out)
    assert out.tolist() == [1, 3, 5]
    f(np.zeros(0, "float32"), np.zeros(0, "float32"))


def test_an_empty_array_within_the_result_shares_nothing():
    n, m = te.var("n"), te.var("m")
    a, c = te.placeholder((n,), name="A"), te.placeholder((m,), name="C")
    b = te.compute((m,), lambda i: c[i] + 1.0, name="B")
    f = tec.build(te.create_schedule(b.op), [a, c, b])
    out, given = np.zeros(8, "float32"), np.arange(8, dtype="float32")
    f(out[4:][:0], given, out)
    assert (out == given + 1).all()
    with pytest.raises(tec.TecError, match="shares memory"):
        f(out[4:5], given, out)
