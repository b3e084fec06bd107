"""Reads outside of a tensor: refused with the user's line where they are certain, asked at run time where they are not known."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import LoweringError, TecError
from tec.schedule import create_schedule

A = te.placeholder((64, 64), name="A")
n = te.size_var("n")
V = te.placeholder((n,), name="V")
ROWS = te.placeholder((8,), dtype="int32", name="rows")


def window(begin, condition=None):
    k = te.reduce_axis((0, 3), "k")
    where = {} if condition is None else {"where": condition}
    return lambda i, j: te.sum(A[i + k + begin, j], axis=k, **{w: c(i, k) for w, c in where.items()})


OUTSIDE = {
    "past the end": ((64, 64), lambda i, j: A[i + 1, j], "the index is 64 at i = 63"),
    "before the begin": ((64, 64), lambda i, j: A[i, j - 1], "the index is -1 at j = 0"),
    "a guard that lets it through": (
        (64, 64), lambda i, j: te.if_then_else(i < 63, A[i + 2, j], 0.0), "the index is 64 at i = 62"),
    "the other branch": ((64, 64), lambda i, j: te.if_then_else(i < 63, 0.0, A[i + 1, j]), "the index is 64 at i = 63"),
    "both sides of a select": ((64, 64), lambda i, j: te.select(i < 63, A[i + 1, j], 0.0), "the index is 64"),
    "a window": ((64, 64), window(0), "the index is 65 at i = 63, k = 2"),
    "a window whose condition keeps one end in": (
        (64, 64), window(-1, lambda i, k: i + k <= 64), "the index is -1 at i = 0, k = 0"),
    "a size": ((n,), lambda i: V[i + 1], "the index is n at i = n - 1"),
    "backwards": ((n,), lambda i: V[n - i], "the index is n at i = 0"),
    "rows of rows": ((64, 3), lambda i, j: A[j * 32, i], "the index is 64 at j = 2"),
    "an index of a gather": ((9, 64), lambda i, j: A[ROWS[i], j], "the index is 8 at i = 8"),
}  # fmt: skip

INSIDE = {
    "guarded": ((64, 64), lambda i, j: te.if_then_else(te.all(i < 63, j >= 1), A[i + 1, j - 1], 0.0)),
    "clamped": ((64, 64), lambda i, j: A[te.min(i + 1, 63), te.max(j - 1, 0)]),
    "a window": ((64, 64), window(-1, lambda i, k: te.all(i + k >= 1, i + k <= 64))),
    "reversed": ((n,), lambda i: V[n - 1 - i]),
    "a quotient and a rest": ((4096,), lambda i: A[i // 64, i % 64]),
    "a gather": ((8, 64), lambda i, j: A[ROWS[i], j]),
}  # fmt: skip


def lowered(shape, f):
    C = te.compute(shape, f, name="C")
    return C, tec.lower(create_schedule(C), [*C.op.inputs, C])


@pytest.mark.parametrize("what", OUTSIDE)
def test_a_read_that_is_outside_is_refused(what):
    shape, f, text = OUTSIDE[what]
    with pytest.raises(LoweringError, match="outside of") as e:
        lowered(shape, f)
    assert text in e.value.message and e.value.where.file == __file__ and "if_then_else" in e.value.hint


@pytest.mark.parametrize("what", INSIDE)
def test_a_read_that_is_inside_or_not_known_is_compiled(what):
    lowered(*INSIDE[what])


def test_a_scan_reads_no_time_before_its_start():
    X, state = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="state")
    init = te.compute((2, 4), lambda t, j: X[t, j], name="init")
    half = te.compute((6, 4), lambda t, j: state[t - 2, j] * 0.5, name="half")
    update = te.compute((6, 4), lambda t, j: state[t - 1, j] + half[t, j], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    tec.lower(create_schedule(R), [X, R])


def test_a_scan_that_reads_before_its_start_is_refused():
    X, state = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="state")
    init = te.compute((1, 4), lambda t, j: X[t, j], name="init")
    update = te.compute((6, 4), lambda t, j: state[t - 2, j], name="update")
    R = te.scan(init, update, state, inputs=[X], name="R")
    with pytest.raises(LoweringError, match="the index is -1 at t = 1"):
        tec.lower(create_schedule(R), [X, R])


def gathered(schedule, shape=(8, 64), f=lambda i, j: A[ROWS[i], j] + 1):
    C = te.compute(shape, f, name="C")
    s = create_schedule(C)
    schedule(s[C], *C.op.axis)
    return tec.build(s, [A, ROWS, C], "llvm", check="bounds"), C.op.loc


SCHEDULES = {
    "plain": lambda s, i, j: None,
    "vector": lambda s, i, j: s.vectorize(j),
    "parallel": lambda s, i, j: (s.parallel(i), s.vectorize(s.split(j, factor=7)[1])),
    "inside out": lambda s, i, j: (s.reorder(j, i), s.unroll(i)),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_not_known_is_asked_at_run_time(schedule, capfd):
    f, loc = gathered(SCHEDULES[schedule])
    assert f"{loc}: reads A[rows[" in f.get_source("bounds") and f"{loc}: reads A[rows[" in capfd.readouterr().err
    a, out = np.random.default_rng(0).random((64, 64), "float32"), np.zeros((8, 64), "float32")
    rows = np.array([0, 63, 5, 5, 1, 2, 3, 4], "int32")
    f(a, rows, out)
    np.testing.assert_array_equal(out, a[rows] + 1)
    for bad in (64, -1, 2**31 - 1):
        rows[3] = bad
        with pytest.raises(TecError, match=r"reads A\[rows\[.*outside of A \(64, 64\)") as e:
            f(a, rows, out)
        assert str(loc) in e.value.message and e.value.where.file == __file__


def test_what_is_proved_costs_nothing():
    C = te.compute((64, 64), lambda i, j: te.if_then_else(i < 63, A[i + 1, j], 0.0), name="C")
    s = create_schedule(C)
    s[C].split(C.op.axis[0], factor=5)
    plain, asked = (tec.build(s, [A, C], "llvm", check=c) for c in ("", "bounds"))
    assert asked.get_source("bounds") == ""
    assert plain.get_source("ir") == asked.get_source("ir") and "bounds" not in plain.sources


def test_a_condition_is_asked_before_what_it_guards():
    """An index that memory gives, guarded by the same memory: the guard decides, and is asked itself."""
    f, loc = gathered(
        SCHEDULES["plain"], f=lambda i, j: te.if_then_else(te.all(ROWS[i] >= 0, ROWS[i] < 64), A[ROWS[i], j], -1.0)
    )
    a, out = np.ones((64, 64), "float32"), np.zeros((8, 64), "float32")
    f(a, np.array([0, 64, -1, 5, 1, 2, 3, 4], "int32"), out)
    np.testing.assert_array_equal(out[:, 0], [1, -1, -1, 1, 1, 1, 1, 1])
    # A guard that leaves some rows open: they are asked where it holds, and there alone.
    f, _ = gathered(SCHEDULES["plain"], f=lambda i, j: te.if_then_else(ROWS[i] != 100, A[ROWS[i], j], -1.0))
    f(a, np.array([0, 100, 1, 5, 1, 2, 3, 4], "int32"), out)
    np.testing.assert_array_equal(out[:, 0], [1, -1, 1, 1, 1, 1, 1, 1])
    with pytest.raises(TecError, match="outside of A"):
        f(a, np.array([0, 100, 101, 5, 1, 2, 3, 4], "int32"), out)


def test_hand_written_code_is_asked():
    def body(ins, outs):
        ib = te.ir_builder.create()
        rows, o = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8, name="i") as i:
            o[rows[i]] = te.const(1.0)
        return ib.get()

    E = te.extern((8,), [ROWS], body, name="E", dtype="float32")
    f = tec.build(create_schedule(E.op), [ROWS, E], "llvm", check="bounds")
    out = np.zeros(8, "float32")
    f(np.arange(8, dtype="int32"), out)
    assert out.all()
    with pytest.raises(TecError, match=r"writes E\[rows\[i\]\], outside of E \(8,\)"):
        f(np.arange(1, 9, dtype="int32"), out)


def test_the_environment_asks_for_it(monkeypatch):
    C = te.compute((8, 64), lambda i, j: A[ROWS[i], j], name="C")
    monkeypatch.setenv("TEC_CHECK", "bounds")
    assert "reads A[rows[i], j]" in tec.build(create_schedule(C), [A, ROWS, C], "llvm").get_source("bounds")
    monkeypatch.setenv("TEC_CHECK", "race")
    assert "bounds" not in tec.build(create_schedule(C), [A, ROWS, C], "llvm").sources
