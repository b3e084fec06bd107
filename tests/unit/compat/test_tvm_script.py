"""TVMScript through tec.compat.tvm: functions run, and what is not read says the line."""

from __future__ import annotations

import numpy as np
import pytest

import tec
import tec.compat.tvm as tvm
from tec.compat.tvm.script import ir as I
from tec.compat.tvm.script import tir as T
from tec.errors import ExprError

RNG = np.random.default_rng(5)


def arrays(*shape, count=2):
    return [RNG.random(shape, np.float32) for _ in range(count)]


def run(func, *inputs, out):
    made = tvm.nd.array(out)
    tvm.build(func, target="llvm")(*[tvm.nd.array(x) if isinstance(x, np.ndarray) else x for x in inputs], made)
    return made.numpy()


@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle) -> None:
    T.func_attr({"global_symbol": "product"})
    A = T.match_buffer(a, (6, 5))
    B = T.match_buffer(b, (5, 7))
    C = T.match_buffer(c, (6, 7))
    for i, j, k in T.grid(6, 7, 5):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vk] * B[vk, vj]


def test_blocks_with_init():
    (a,), (b,) = arrays(6, 5, count=1), arrays(5, 7, count=1)
    out = run(product, a, b, out=np.full((6, 7), np.nan, np.float32))
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    assert product.name == "product"


@T.prim_func
def picked(x: T.Buffer((9,), "float32"), n: T.int32, y: T.Buffer((9,), "float32")):
    low = T.alloc_buffer((9,), "float32")
    for i in range(9):
        low[i] = x[i] * 2.0
    for i in T.serial(9):
        twice: T.float32 = low[i]
        if 1 < i < n and not i == 4:
            y[i] = twice
        else:
            y[i] = -1.0 if i == 0 or i == 8 else x[i]


def test_statements_and_conditions():
    (x,) = arrays(9, count=1)
    i = np.arange(9)
    want = np.where((i > 1) & (i < 7) & (i != 4), x * 2, np.where((i == 0) | (i == 8), -1, x)).astype("float32")
    np.testing.assert_array_equal(run(picked, x, 7, out=np.zeros(9, np.float32)), want)


@T.prim_func
def quotient(x: T.int32, y: T.int32) -> T.int32:
    if y == 0:
        T.evaluate(T.ret(-1, dtype="int32"))
    return T.floordiv(x, y)


def test_a_function_that_returns_a_value():
    f = tvm.build(quotient, target="llvm")
    assert (f(-7, 2), f(7, 2), f(3, 0)) == (-4, 3, -1)


@T.prim_func
def seen_flat(a: T.Buffer((4, 3), "float32"), b: T.Buffer((12,), "float32"), s: T.Buffer((), "float32")):
    flat = T.Buffer((12,), "float32", data=a.data)
    rows = T.Buffer((4, 3), "float32", data=b.data)
    s[()] = 0.0
    for k in range(12):
        s[()] += flat[k]
    for i, j in T.grid(4, 3):
        rows[i, j] = flat[i * 3 + j] + a[i, j]


def test_views_of_other_shapes():
    (a,) = arrays(4, 3, count=1)
    b, s = (tvm.nd.array(np.zeros(n, np.float32)) for n in ((12,), ()))
    tvm.build(seen_flat, target="llvm")(tvm.nd.array(a), b, s)
    np.testing.assert_allclose(b.numpy(), a.ravel() * 2)
    np.testing.assert_allclose(s.numpy(), a.sum(), rtol=1e-6)


def test_functions_of_a_module_call_one_another():
    @I.ir_module
    class mod:
        @T.prim_func
        def main(A: T.Buffer(3, "float32"), B: T.Buffer(3, "float32")):
            mod.scaled(A.data, B.data, 2.0)
            mod.scaled(B.data, B.data, 3.0)

        @T.prim_func
        def scaled(x: T.handle("float32"), y: T.handle("float32"), by: T.float32):
            T.func_attr({"calling_conv": -1})
            X = T.decl_buffer(3, "float32", data=x)
            Y = T.decl_buffer(3, "float32", data=y)
            for i in range(3):
                Y[i] = X[i] * by

    assert list(mod.functions) == ["main"]
    x, y = tvm.nd.array(np.float32([1, 2, 3])), tvm.nd.array(np.zeros(3, np.float32))
    tvm.build(mod)["main"](x, y)
    assert y.numpy().tolist() == [6, 12, 18]


@T.prim_func
def on_threads(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            y[b * 32 + t] = x[b * 32 + t] + 1.0


def test_loops_over_threads():
    dev = tec.rocm_emu("gfx942")
    x, y = (tec.nd.array(v, dev) for v in (np.arange(64, dtype="float32"), np.zeros(64, "float32")))
    tvm.build(on_threads, target="rocm -mcpu=gfx942")(x, y)
    assert (y.numpy() == np.arange(64) + 1).all()


def test_what_is_not_read_names_its_line():
    def with_try(x: T.Buffer((4,), "float32")):
        try:
            x[0] = 1.0
        finally:
            pass

    line = with_try.__code__.co_firstlineno + 1
    with pytest.raises(ExprError, match=rf"no Try here\n.*test_tvm_script.py:{line}"):
        T.prim_func(with_try)

    def indexed_wrongly(x: T.Buffer((4, 4), "float32")):
        x[0, 0, 0] = 1.0

    with pytest.raises(ExprError, match=r"2 dimensions, indexed with 3"):
        T.prim_func(indexed_wrongly)


def test_a_view_of_another_type_is_refused():
    def cast(x: T.Buffer((4,), "float32")):
        y = T.Buffer((4,), "int32", data=x.data)
        y[0] = 1

    with pytest.raises(ExprError, match="a view of float32 as int32"):
        T.prim_func(cast)
