"""Loops, branches, storage, assertions, parallel loops, calls to the outside."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from tec.codegen.cpu.build import emit_cpu
from tec.errors import LoweringError
from tec.ir import (
    EQ,
    LT,
    Add,
    Alloc,
    Assert,
    Buffer,
    BufferLoad,
    BufferStore,
    Cast,
    Evaluate,
    FloatImm,
    For,
    ForKind,
    Func,
    IfThenElse,
    IntImm,
    Let,
    LetStmt,
    Mul,
    Ramp,
    Seq,
    Sub,
    Var,
    While,
)  # fmt: skip
from tec.ir import build as B
from tec.target import Target
from tests.thinned import thinned

from .harness import buffer, compile_func

ZERO = IntImm(0)


def accumulate(out, value, at=ZERO):
    return BufferStore(out, Add(BufferLoad(out, (at,)), value), (at,))


@thinned(
    2,
    ("dtype", ["int32", "int64"]),
    ("kind", [ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED, ForKind.PARALLEL]),
    ("low,extent", [(0, 0), (0, 1), (3, 5), (-4, 9), (0, -3)]),
)
def test_loops_of_every_kind_and_range(dtype, kind, low, extent):
    n, i = Var("n", dtype), Var("i", dtype)
    out = buffer("out", "int64", 64)
    for symbolic in (False, True):
        ext = n if symbolic else B.const(extent, dtype)
        body = For(i, B.const(low, dtype), ext, BufferStore(out, Cast("int64", i), (Add(i, B.const(10, dtype)),)), kind)
        got = np.full(64, -1, "i8")
        assert compile_func(Func("main", (out, n), body))(got, scalars=(extent,)) == 0
        want = np.full(64, -1, "i8")
        for k in range(low, low + extent):
            want[k + 10] = k
        np.testing.assert_array_equal(got, want)


def test_nested_loops_with_dependent_bounds():
    i, j, n = Var("i"), Var("j"), Var("n", is_size=True)
    out = buffer("out", "int32", 8)
    body = For(i, ZERO, n, For(j, i, Sub(n, i), accumulate(out, j, i)))
    got = np.zeros(8, "i4")
    compile_func(Func("main", (out, n), body))(got, scalars=(8,))
    assert list(got) == [sum(range(k, 8)) for k in range(8)]


def test_while_and_if():
    x = buffer("x", "int32", 2)
    first, steps = BufferLoad(x, (ZERO,)), IntImm(1)
    odd = EQ(B.call("bitand", first, IntImm(1)), IntImm(1))
    step = IfThenElse(
        odd,
        BufferStore(x, Add(Mul(first, IntImm(3)), IntImm(1)), (ZERO,)),
        BufferStore(x, B.call("shr", first, IntImm(1)), (ZERO,)),
    )
    body = While(B.compare("ne", first, IntImm(1)), Seq((step, accumulate(x, IntImm(1), steps))))
    got = np.array([27, 0], "i4")
    compile_func(Func("main", (x,), body))(got)
    assert list(got) == [1, 111]


def test_if_then_else_guards_the_access():
    """The other side would read far outside of the array."""
    a, out, i = buffer("a", "float32", 4), buffer("out", "float32", 8), Var("i")
    guarded = B.if_then_else(
        LT(i, IntImm(4)),
        BufferLoad(a, (Mul(i, Add(IntImm(1), Mul(Cast("int32", B.compare("ge", i, 4)), IntImm(1 << 28)))),)),
        FloatImm(-1.0),
    )
    got = np.zeros(8, "f4")
    compile_func(Func("main", (a, out), For(i, ZERO, IntImm(8), BufferStore(out, guarded, (i,)))))(
        np.arange(4, dtype="f4"), got
    )
    assert list(got) == [0, 1, 2, 3, -1, -1, -1, -1]


def test_shared_nodes_are_written_once():
    """A chain of doublings is a tree of 2**40 nodes and a graph of 40."""
    a, out = buffer("a", "float32", 1), buffer("out", "float32", 1)
    e = BufferLoad(a, (ZERO,))
    for _ in range(40):
        e = Add(e, e)
    got = np.zeros(1, "f4")
    k = compile_func(Func("main", (a, out), BufferStore(out, e, (ZERO,))))
    k(np.ones(1, "f4"), got)
    assert got[0] == 2.0**40 and k.code.llvm.count("fadd") == 40


def test_a_let_body_shared_by_two_lets_takes_each_value():
    out, v = buffer("out", "float32", 2), Var("v", "float32")
    body = Mul(v, v)
    e = Add(Let(v, FloatImm(3.0), body), Mul(FloatImm(100.0), Let(v, FloatImm(5.0), body)))
    got = np.zeros(2, "f4")
    compile_func(Func("main", (out,), BufferStore(out, e, (ZERO,))))(got)
    assert got[0] == 9 + 2500


def test_a_value_of_one_branch_is_not_used_in_the_other():
    a, out, c = buffer("a", "float32", 1), buffer("out", "float32", 1), Var("c", "bool")
    shared = Add(BufferLoad(a, (ZERO,)), FloatImm(1.0))
    e = Add(B.if_then_else(c, Mul(shared, FloatImm(2.0)), Mul(shared, FloatImm(3.0))), shared)
    k = compile_func(Func("main", (a, out, c), BufferStore(out, e, (ZERO,))))
    for flag, want in ((1, 6.0), (0, 8.0)):
        got = np.zeros(1, "f4")
        k(np.ones(1, "f4"), got, scalars=(flag,))
        assert got[0] == want


@pytest.mark.parametrize("depth", [2000, 50000])
def test_deep_expressions_compile_and_deeper_ones_raise(depth):
    a, out = buffer("a", "float32", 1), buffer("out", "float32", 1)
    e = BufferLoad(a, (ZERO,))
    for _ in range(depth):
        e = Add(e, FloatImm(1.0))
    f = Func("main", (a, out), BufferStore(out, e, (ZERO,)), {"writes": ["out"]})
    if depth > 10000:
        with pytest.raises(LoweringError, match="too deeply"):
            compile_func(f)
    else:
        got = np.zeros(1, "f4")
        compile_func(f)(np.zeros(1, "f4"), got)
        assert got[0] == depth


def test_let_statements_and_scalar_params_of_every_type():
    params = [
        Var("a", "int8"),
        Var("b", "uint16"),
        Var("c", "float32"),
        Var("d", "float64"),
        Var("e", "bool"),
        Var("f", "float16"),
    ]
    out = buffer("out", "float64", 6)
    t = Var("t", "float64")
    stores = [LetStmt(t, Cast("float64", p), BufferStore(out, t, (IntImm(k),))) for k, p in enumerate(params)]
    words = (
        -5, 65535, int(np.float32(1.5).view("i4")), int(np.float64(-2.25).view("i8")), 1, int(np.float16(0.5).view("i2")),
    )  # fmt: skip
    got = np.zeros(6)
    compile_func(Func("main", (out, *params), Seq(tuple(stores))))(got, scalars=words)
    assert list(got) == [-5, 65535, 1.5, -2.25, 1, 0.5]


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("size", [16, 1 << 12, 1 << 20])
def test_storage_of_every_size(scope, size):
    i, out = Var("i"), buffer("out", "int32", 4)
    tmp = Buffer("tmp", "int32", (IntImm(size),), scope=scope)
    fill = For(i, ZERO, IntImm(size), BufferStore(tmp, Mul(i, IntImm(2)), (i,)))
    body = Alloc(tmp, Seq((fill, BufferStore(out, BufferLoad(tmp, (IntImm(size - 1),)), (ZERO,)))))
    got = np.zeros(4, "i4")
    assert compile_func(Func("main", (out,), body))(got) == 0
    assert got[0] == 2 * (size - 1)


def test_symbolic_storage_and_running_out_of_memory():
    n, out = Var("n", "int64"), buffer("out", "float32", 1)
    tmp = Buffer("tmp", "float32", (n,))
    body = Alloc(
        tmp, Seq((BufferStore(tmp, FloatImm(4.0), (ZERO,)), BufferStore(out, BufferLoad(tmp, (ZERO,)), (ZERO,))))
    )
    k = compile_func(Func("main", (out, n), body))
    got = np.zeros(1, "f4")
    assert k(got, scalars=(1000,)) == 0 and got[0] == 4
    assert k(got, scalars=(1 << 58,)) == -1


def test_assertions_name_themselves_and_free_what_was_allocated():
    n, out = Var("n"), buffer("out", "float32", 1)
    tmp = Buffer("tmp", "float32", (IntImm(1 << 18),))
    checks = Seq((Assert(LT(n, IntImm(10)), "n is below 10"), Assert(LT(n, IntImm(5)), "n is below 5")))
    k = compile_func(Func("main", (out, n), Alloc(tmp, checks)))
    got = np.zeros(1, "f4")
    assert [k(got, scalars=(v,)) for v in (1, 7, 12)] == [0, 2, 1]
    assert k.code.messages == {"main": ["n is below 10", "n is below 5"]}
    for _ in range(3000):  # 3 GB, were they not freed
        k(got, scalars=(12,))


def test_parallel_loops_run_every_index_once_and_pass_on_failures():
    i, j, n, limit = Var("i"), Var("j"), Var("n"), Var("limit")
    out = buffer("out", "int32", n)
    scale = Var("scale", "float32")
    work = Seq(
        (
            Assert(LT(i, limit), "i is below the limit"),
            For(j, ZERO, IntImm(3), accumulate(out, Cast("int32", scale), i), "parallel"),
        )
    )
    k = compile_func(Func("main", (out, n, limit, scale), For(i, IntImm(0), n, work, "parallel")))
    two = int(np.float32(2.0).view("i4"))
    for size in (1, 2, 3, 1000, 100000):
        got = np.zeros(size, "i4")
        assert k(got, scalars=(size, size, two)) == 0
        assert (got == 6).all()
        assert k(got, scalars=(size, size - 1, two)) == 1
    results: list[int] = []

    def caller():
        mine = np.zeros(5000, "i4")
        for _ in range(100):
            mine[:] = 0
            results.append(k(mine, scalars=(5000, 5000, two)) or int((mine != 6).sum()))

    threads = [threading.Thread(target=caller) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [0] * 400


def test_parallel_loops_after_fork():
    i, out = Var("i"), buffer("out", "int32", 4096)
    k = compile_func(Func("main", (out,), For(i, ZERO, IntImm(4096), BufferStore(out, i, (i,)), "parallel")))
    got = np.zeros(4096, "i4")
    k(got)
    child = os.fork()
    if child == 0:
        got[:] = 0
        ok = k(got) == 0 and (got == np.arange(4096)).all()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_parallel_loops_use_local_storage_of_each_iteration():
    i, j, out = Var("i"), Var("j"), buffer("out", "int64", 512)
    for size in (8, 1 << 17):
        tmp = Buffer("tmp", "int64", (IntImm(size),))
        fill = For(j, ZERO, IntImm(size), BufferStore(tmp, Cast("int64", Add(i, j)), (j,)))
        body = For(
            i,
            ZERO,
            IntImm(512),
            Alloc(tmp, Seq((fill, BufferStore(out, BufferLoad(tmp, (IntImm(size - 1),)), (i,))))),
            "parallel",
        )
        got = np.zeros(512, "i8")
        assert compile_func(Func("main", (out,), body))(got) == 0
        np.testing.assert_array_equal(got, np.arange(512) + size - 1)


def test_extern_calls():
    out = buffer("out", "float64", 4)
    body = Seq((
        BufferStore(out, B.call("call_pure_extern", B.const(2.0, "float64"), B.const(10.0, "float64"), symbol="pow", dtype="float64"), (ZERO,)),
        BufferStore(out, Cast("float64", B.call("call_extern", B.const(-7), symbol="abs", dtype="int32")), (IntImm(1),)),
        Evaluate(B.call("call_extern", B.call("access_ptr", BufferLoad(out, (ZERO,)), IntImm(2), dtype="handle", rw="w"), B.const(0), B.const(8, "int64"), symbol="memset", dtype="handle")),
    ))  # fmt: skip
    got = np.full(4, 9.0)
    compile_func(Func("main", (out,), body))(got)
    assert list(got) == [1024, 7, 0, 9]


def test_dot_products():
    a, b, c, out = buffer("a", "int8", 4), buffer("b", "int8", 4), buffer("c", "int32", 1), buffer("out", "int32", 1)
    lane = B.E.Ramp(ZERO, IntImm(1), 4)
    dot = B.call("dot4", BufferLoad(a, (lane,)), BufferLoad(b, (lane,)), BufferLoad(c, (ZERO,)), dtype="int32")
    x, y, z, got = (
        np.array([-128, 127, 3, -4], "i1"),
        np.array([-128, 2, 5, 6], "i1"),
        np.array([1000], "i4"),
        np.zeros(1, "i4"),
    )
    compile_func(Func("main", (a, b, c, out), BufferStore(out, dot, (ZERO,))))(x, y, z, got)
    assert got[0] == 1000 + int(x.astype("i4") @ y.astype("i4"))


@pytest.mark.parametrize(
    "target",
    [
        "llvm -mtriple=aarch64-unknown-linux-gnu",
        "llvm -mcpu=x86-64",
        "llvm -mcpu=haswell",
        "llvm -mcpu=znver4 -mattr=-avx512f",
    ],
)
def test_other_cpus_get_objects(target):
    from tec.codegen.cpu import build_cpu
    from tec.runtime.objects.elfobject import MACHINES, parse_object
    from tec.target import Target

    a, out, i = buffer("a", "float32", 64), buffer("out", "bfloat16", 64), Var("i")
    lane = B.E.Ramp(Mul(i, IntImm(16)), IntImm(1), 16)
    body = For(
        i,
        ZERO,
        IntImm(4),
        BufferStore(out, Cast("bfloat16x16", B.call("sqrt", BufferLoad(a, (lane,)))), (lane,)),
        "parallel",
    )
    code = build_cpu([Func("main", (a, out), body)], Target(target))
    assert MACHINES[parse_object(code.object).machine] == ("aarch64" if "aarch64" in target else "x86_64")
    assert "main:" in code.asm


def test_a_parallel_body_may_bind_what_was_bound_before():
    """The variable of an earlier let is bound anew inside of the loop: its old value, of another block, is not captured."""
    i, v, n = Var("i"), Var("v"), Var("n")
    out = buffer("out", "int32", 64)
    first = LetStmt(v, BufferLoad(out, (ZERO,)), BufferStore(out, Add(v, IntImm(1)), (ZERO,)))
    second = For(i, ZERO, IntImm(64), LetStmt(v, Mul(i, n), BufferStore(out, v, (i,))), "parallel")
    k = compile_func(Func("main", (out, n), Seq((IfThenElse(LT(n, IntImm(5)), first), second))))
    got = np.zeros(64, "i4")
    assert k(got, scalars=(3,)) == 0
    assert list(got) == [3 * x for x in range(64)]


@pytest.mark.parametrize("lanes,extent,left", [(4, None, True), (1, None, False), (4, 12, False)])
def test_loops_of_vectors_of_open_extent_are_repeated_by_schedules_alone(lanes, extent, left):
    """LLVM's own copies of such loops, and a loop for their rest, make no code faster."""
    x, y = buffer("x", "float32", 64), buffer("y", "float32", 64)
    i, n = Var("i", "int64"), Var("n", "int64")
    at = Mul(i, IntImm(lanes, "int64"))
    index = Ramp(at, IntImm(1, "int64"), lanes) if lanes > 1 else at
    loop = For(
        i,
        IntImm(0, "int64"),
        n if extent is None else IntImm(extent, "int64"),
        BufferStore(y, BufferLoad(x, (index,)), (index,)),
    )
    text, _ = emit_cpu([Func("f", [x, y, n], loop, attrs={"stage": "lowered"})], Target("llvm -mcpu=x86-64-v3"))
    assert ("llvm.loop.unroll.runtime.disable" in text) is left
