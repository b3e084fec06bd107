"""The verifier: good functions pass at their stage, each broken rule is found by its check."""

import pytest

from tec.errors import TecError
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.buffer import Buffer
from tec.ir.func import Func
from tec.ir.verify import VerifyError, checks_of, verify
from tests.ir.parser import parse_func

HEAD = 'def f(A: Buffer((64,), "float32"), M: Buffer((8, 8), "float32"), n: int32):\n    '
GOOD = {
    "loops": "for i in vectorized(8):\n        for tx in thread('threadIdx.x', 8):\n            M[i, tx] = A[i] * 2.0",
    "flat": "for i in vectorized(8):\n        A[i] = 0.0",
    "lowered": "for tx in thread('threadIdx.x', 8):\n        if tx < n:\n            A[tx] = 0.0",
}


@pytest.mark.parametrize("stage", GOOD)
def test_good_functions(stage):
    verify(parse_func(HEAD + GOOD[stage]), stage)


def test_kernels():
    text = """
@attrs(kernel=True)
def k(A: Buffer((64,), "float32"), n: int32):
    bx = launch_index("blockIdx.x", n)
    A[bx] = 1.0
"""
    verify(parse_func(text), "kernel")
    with pytest.raises(VerifyError, match='attrs\\["kernel"\\] is not set'):
        verify(parse_func(text.replace("kernel=True", "kernel=False")), "kernel")


@pytest.mark.parametrize(
    "stage, body, check, message",
    [
        ("flat", "M[0, 0] = 0.0", "flat buffers", "M is not flat"),
        ("lowered", GOOD["flat"], "lowered loops", "still to be vectorized"),
        ("lowered", "for v in thread('vthread', 2):\n        A[v] = 0.0", "lowered loops", "virtual thread"),
        ("loops", "for t in thread('threadIdx.w', 2):\n        A[t] = 0.0", "loops", "unknown launch index 'threadIdx.w'"),
        ("lowered", "for t in thread('threadIdx.x', 2):\n        for u in thread('threadIdx.x', 2):\n            A[t] = 0.0", "lowered loops", "threadIdx.x is bound twice"),
        ("lowered", "F = alloc((4,), \"float32\", scope=\"fragment.a\")\n    F[0] = 0.0", "fragments", "F is still a fragment"),
        ("loops", "F = alloc((4,), \"float32\", scope=\"cupboard\")\n    F[0] = 0.0", "storage", "unknown memory 'cupboard'"),
        ("kernel", "T = alloc((4,), \"float32\")\n    T[0] = 0.0", "kernel", "attrs"),
    ],
)  # fmt: skip
def test_broken_rules_of_stages(stage, body, check, message):
    with pytest.raises(VerifyError, match=message) as e:
        verify(parse_func(HEAD + body), stage)
    assert e.value.check == check


A = Buffer("A", "float32", (E.IntImm(64),))
I = E.Var("i")


def store(value, index=E.IntImm(0)):
    return S.BufferStore(A, value, (index,))


F0, F1, LOAD = E.FloatImm(0.0), E.FloatImm(1.0), E.BufferLoad(A, (E.IntImm(0),))


@pytest.mark.parametrize(
    "body, message",
    [
        (store(E.Add(F0, E.FloatImm(1.0, "float64"))), "operands of float32 and float64"),
        (store(E.IntImm(0)), "takes float32 here, the value is int32"),
        (store(F0, I), "the variable i is used where it has no value"),
        (S.Seq((S.For(I, E.IntImm(0), E.IntImm(4), store(F0, I)), store(F0, I))), "the variable i is used"),
        (store(F0, E.FloatImm(0.0)), "index 0 of A is float32"),
        (S.BufferStore(A, F0, ()), "has 1 dimensions, indexed with 0"),
        (S.IfThenElse(E.IntImm(1), store(F0)), "the condition is int32"),
        (S.For(I, E.IntImm(0, "int64"), E.IntImm(4), store(F0)), "i is int32, its range int64 and int32"),
        (S.For(I, E.IntImm(0), E.IntImm(2), S.For(I, E.IntImm(0), E.IntImm(2), store(F0))), "variable of a loop around it"),
        (S.For(I, E.IntImm(0), E.IntImm(2), store(F0), "sideways"), "unknown kind of loop"),
        (store(E.Call("frobnicate", (F0,), "float32")), "unknown operation"),
        (store(E.Call("pow", (F0,), "float32")), "pow takes 2 arguments, has 1"),
        (store(E.Select(E.IntImm(1), F0, F1)), "the condition is int32"),
        (store(E.IntImm(1, "bool")), "the value is bool"),
        (store(E.Cast("float32", E.IntImm(400, "int8"))), "400 does not fit int8"),
        (S.BufferStore(Buffer("B", "float32", (E.IntImm(4),)), F0, (E.IntImm(0),)), "B is used where it has no storage"),
        (S.Evaluate(E.Ramp(F0, F1, 4)), "a ramp from float32"),
        (S.LetStmt(I, F0, store(F0)), "i is int32, its value float32"),
        (S.Evaluate(E.Call("atomic_add", (F0, F1), "float32")), "no access"),
        (store(E.Reduce(E.CommReducer((), (), (), ()), (F0,), (), E.IntImm(1, "bool"))), "Reduce belongs to tensor expressions"),
        (S.AllReduce(E.CommReducer((E.Var("x", "float32"),), (E.Var("y", "float32"),), (F0,), (F0,)), (LOAD,), E.IntImm(1, "bool"), (A,), (I,)), "no threadIdx loop"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_broken_nodes(body, message):
    with pytest.raises(VerifyError, match=message):
        verify(Func("f", (A,), body), "loops")


def test_the_message_shows_the_node_and_its_loops():
    f = Func("f", (A,), S.For(I, E.IntImm(0), E.IntImm(4), store(E.Add(F0, E.FloatImm(1.0, "float64")), I)))
    with pytest.raises(VerifyError) as e:
        verify(f, "loops")
    assert "in: 0.0 + float64(1.0)" in str(e.value)
    assert "under: for i in range(4):" in str(e.value)


def test_stages_have_named_checks():
    assert "flat buffers" in checks_of("flat") and "flat buffers" not in checks_of("loops")
    with pytest.raises(TecError, match="unknown stage"):
        verify(Func("f", (A,), S.NOP), "sometime")
