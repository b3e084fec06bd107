"""Host programs, expressions, and the call of GPU functions over a fake driver."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE, fake_device, floats, scalar, scale, tensor, vadd

import tec
from tec import te
from tec.errors import ArgumentError, DeviceError, PackageError
from tec.runtime import Module, nd
from tec.runtime.modules import exprs
from tec.runtime.modules.program import PLAN_LIMIT

N = {"name": "n", "dtype": "int32"}


def gpu_module(signature, program, name="f", kind="rocm"):
    device = Module(kind, image=b"code", target="rocm -mcpu=gfx942" if kind == "rocm" else "")
    return Module("llvm", name, signature, program=program, imported=[device])


def launch(kernel, *args, grid=(1, 1, 1), block=(64, 1, 1), shared=0):
    made = [{"buffer": a} if isinstance(a, str) else {"scalar": a[0], "dtype": a[1]} for a in args]
    return {
        "op": "launch",
        "kernel": kernel,
        "grid": list(grid),
        "block": list(block),
        "dyn_shared": shared,
        "args": made,
    }


# ---- expressions

OPS = list(exprs.BINARY)
numbers = st.integers(-50, 50)
trees = st.recursive(
    numbers | st.sampled_from("abc"), lambda e: st.tuples(st.sampled_from(OPS), e, e).map(list), max_leaves=12
)
PYTHON = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=",
}  # fmt: skip


def as_python(e):
    if not isinstance(e, list):
        return str(e)
    a, b = as_python(e[1]), as_python(e[2])
    if e[0] in PYTHON:
        return f"int({a} {PYTHON[e[0]]} {b})"
    return f"int(bool({a}) {e[0]} bool({b}))" if e[0] in ("and", "or") else f"{e[0]}({a}, {b})"


@given(trees, numbers, numbers, numbers)
def test_expressions_mean_what_python_means(e, a, b, c):
    env = {"a": a, "b": b, "c": c}
    try:
        expected = eval(as_python(e), {"min": min, "max": max}, dict(env))
    except ZeroDivisionError:
        with pytest.raises((ZeroDivisionError, PackageError)):
            exprs.evaluate(exprs.compile_expr(e), env)
    else:
        try:
            assert exprs.evaluate(exprs.compile_expr(e), env) == expected
        except PackageError:
            assert "0" in as_python(e)  # a constant part divides by 0, which `and` and `or` passed over


def test_select_and_text():
    e = ["select", ["lt", "n", 4], ["mul", "n", 2], ["floordiv", "n", 0]]
    assert exprs.evaluate(exprs.compile_expr(e), {"n": 3}) == 6
    assert exprs.text(["add", ["mul", "n", 2], 1]) == "((n * 2) + 1)" and exprs.shape_text(["n"]) == "(n,)"
    for bad in (None, [], ["add", 1], ["select", 1, 2], ["pow", 1, 2], {"a": 1}, ["floordiv", 1, 0], [["add"], 1, 2]):
        with pytest.raises(PackageError):
            exprs.compile_expr(bad)
    deep = 1
    for _ in range(500):
        deep = ["add", deep, 1]
    with pytest.raises(PackageError):
        exprs.compile_expr(deep)


@given(st.integers(-20, 20), st.integers(-9, 9), st.sampled_from(["add", "sub", "mul"]), st.booleans())
def test_solve_inverts(n, k, op, left):
    e = [op, "n", k] if left else [op, k, "n"]
    value = exprs.evaluate(exprs.compile_expr(e), {"n": n})
    found = exprs.solve(["add", e, 3], value + 3, {})
    assert found == (None if op == "mul" and k == 0 else ("n", n))


# ---- programs


def test_symbolic_sizes_and_one_load():
    dev = fake_device({"vadd": vadd})
    f = gpu_module(VADD_SIGNATURE, VADD_PROGRAM)
    for n in (1, 64, 65, 1000, 65):
        x = np.arange(n, dtype="float32")
        c = nd.zeros(n, "float32", dev)
        f(nd.array(x, dev), nd.array(x, dev), c)
        np.testing.assert_array_equal(c.numpy(), 2 * x)
    assert [c[2][0] for c in dev.driver.of("launch")] == [1, 1, 2, 16, 2]
    assert len(dev.driver.of("load")) == 1
    f(nd.empty(0, "float32", dev), nd.empty(0, "float32", dev), nd.empty(0, "float32", dev))
    assert len(dev.driver.of("launch")) == 5  # an empty grid is not launched


def test_scratch_scalars_loops_and_conditions():
    signature = {
        "params": [
            tensor("A", ["n"]),
            scalar("f", "float32"),
            scalar("times", "int32"),
            tensor("C", ["n"], writes=True),
        ],
        "implicit": [N],
    }
    program = [
        {"op": "assert", "cond": ["ge", "times", 0], "message": "times is negative"},
        {"op": "alloc", "name": "t", "dtype": "float32", "size": ["mul", "n", 2]},
        launch("scale", "A", "t", ("f", "float32"), ("n", "int32"), grid=["n", 1, 1]),
        launch("scale", "A", "C", (1, "float32"), ("n", "int32"), grid=["n", 1, 1]),
        {
            "op": "for", "var": "i", "min": 1, "extent": "times",
            "body": [{
                "op": "if", "cond": ["eq", ["floormod", "i", 2], 1],
                "then": [launch("acc", "t", "C", ("i", "int64"), ("n", "int32"), grid=["n", 1, 1])],
                "else": [],
            }],
        },
        {"op": "free", "name": "t"},
    ]  # fmt: skip

    def acc(driver, grid, block, kernargs):
        t, c, i, n = struct.unpack("<QQqi", kernargs)
        floats(c, n)[:] += floats(t, n) * i

    dev = fake_device({"scale": scale, "acc": acc})
    f = gpu_module(signature, program)
    x = np.arange(5, dtype="float32")
    a, c = nd.array(x, dev), nd.zeros(5, "float32", dev)
    for factor, times in ((2.0, 4), (0.5, 4), (3, 0), (np.float32(1.5), np.int64(6))):
        f(a, factor, times, c)
        odd = sum(i for i in range(1, 1 + times) if i % 2)
        np.testing.assert_array_equal(c.numpy(), x + x * np.float32(factor) * odd)
    stats = dev.memory()
    assert stats.blocks == 2 and stats.cache_hits == 3  # the scratch of one call serves the next
    # f is no part of a plan's key, times is: four calls, three plans
    assert len(f["f"].plans) == 3
    with pytest.raises(ArgumentError, match=r"f: times is negative \(times = -1\)"):
        f(a, 1.0, -1, c)


def test_kernargs_are_naturally_aligned():
    seen = []

    def kernel(driver, grid, block, kernargs):
        seen.append(kernargs)

    params = [
        scalar("a", "int8"), scalar("b", "float64"), scalar("c", "bool"), scalar("d", "float16"), scalar("e", "bfloat16"),
        scalar("g", "uint64"), tensor("X", [2]), scalar("h", "int16"),
    ]  # fmt: skip
    args = [(p["name"], p["dtype"]) if p["kind"] == "scalar" else p["name"] for p in params]
    dev = fake_device({"k": kernel})
    f = gpu_module({"params": params, "implicit": []}, [launch("k", *args)])
    x = nd.zeros(2, "float32", dev)
    f(-3, 0.1, True, 1.5, -2.0, 2**63 + 1, x, -7)
    expected = struct.pack("<b7xd?xeH2xQQh", -3, 0.1, True, 1.5, 0xC000, 2**63 + 1, x.address, -7)
    assert seen == [expected]


def test_scratch_is_freed_after_an_error():
    def broken(driver, grid, block, kernargs):
        raise DeviceError("boom")

    program = [
        {"op": "alloc", "name": "t", "dtype": "int8", "size": 4096},
        launch("k", "t"),
        {"op": "free", "name": "t"},
    ]
    dev = fake_device({"k": broken})
    f = gpu_module({"params": [tensor("A", [1])], "implicit": []}, program)
    a = nd.zeros(1, "float32", dev)
    with pytest.raises(DeviceError, match="boom"):
        f(a)
    assert dev.memory().blocks == 1


def test_scratch_without_a_free_and_out_of_memory():
    dev = fake_device({"k": lambda *a: None}, total=1 << 20)
    f = gpu_module(
        {"params": [tensor("A", ["n"])], "implicit": [N]},
        [{"op": "alloc", "name": "t", "dtype": "int8", "size": ["mul", "n", 1 << 20]}, launch("k", "t")],
    )
    with pytest.raises(DeviceError, match="out of memory"):
        f(nd.zeros(2, "float32", dev))
    dev.driver.total <<= 4
    f(nd.zeros(2, "float32", dev))
    assert dev.memory().blocks == 0


def test_long_programs_are_walked():
    count = [0]

    def k(driver, grid, block, kernargs):
        assert struct.unpack("<i", kernargs)[0] == count[0] % (PLAN_LIMIT + 5)
        count[0] += 1

    dev = fake_device({"k": k})
    steps = [{"op": "for", "var": "i", "min": 0, "extent": PLAN_LIMIT + 5, "body": [launch("k", ("i", "int32"))]}]
    f = gpu_module({"params": [tensor("A", [1])], "implicit": []}, steps)
    a = nd.zeros(1, "float32", dev)
    f(a)
    f(a)
    assert count[0] == 2 * (PLAN_LIMIT + 5)


def test_division_by_zero_in_a_size():
    dev = fake_device({"k": lambda *a: None})
    f = gpu_module(
        {"params": [tensor("A", ["n"])], "implicit": [N]}, [launch("k", "A", grid=[["floordiv", 8, "n"], 1, 1])]
    )
    with pytest.raises(ArgumentError, match="divides by 0"):
        f(nd.zeros(0, "float32", dev))


@pytest.mark.parametrize(
    "steps",
    [
        "launch", [{"op": "jump"}], [{}], [5], [{"op": "launch", "kernel": "k"}], [launch("k", "missing")],
        [launch("k", ("m", "int32"))], [launch("k", ("n", "int33"))], [launch("k", grid=[1])], [{"op": "free", "name": "t"}],
        [{"op": "alloc", "name": "t", "dtype": "int8", "size": "q"}], [launch("k", grid=[["boo", 1, 2], 1, 1])],
        [{"op": "for", "var": "i", "min": 0, "extent": 1, "body": 3}], [{"op": "if", "cond": 1}],
    ],
)  # fmt: skip
def test_damaged_programs(steps):
    with pytest.raises(PackageError):
        gpu_module({"params": [tensor("A", ["n"])], "implicit": [N]}, steps)


def test_streams_reach_the_launch():
    dev = fake_device({"vadd": vadd})
    f = gpu_module(VADD_SIGNATURE, VADD_PROGRAM)
    a, b, c = (nd.zeros(8, "float32", dev) for _ in range(3))
    f(a, b, c)
    with dev.stream() as s:
        f(a, b, c)
        with dev.stream() as inner:
            f(a, b, c)
        f(a, b, c)
    f(a, b, c)
    assert [call[-1] for call in dev.driver.of("launch")] == [None, s.handle, inner.handle, s.handle, None]


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_a_number_that_sizes_depend_on_is_of_the_plan(target: str) -> None:
    """Arrays look the same in each call, and how many are summed is an argument: a plan of one number is not taken for another."""
    m = te.var("m")
    A = te.placeholder((16,), name="A")
    T = te.compute((m,), lambda i: A[i] * 2, name="T")
    k = te.reduce_axis((0, m), "k")
    C = te.compute((1,), lambda i: te.sum(T[k], axis=k), name="C")
    s = te.create_schedule(C.op)
    device = tec.cpu(0)
    if target != "llvm":
        device = tec.rocm_emu("gfx942")
        s[T].bind(T.op.axis[0], te.thread_axis("blockIdx.x"))
        s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    f = tec.build(s, [m, A, C], target)
    a, c = tec.nd.array(np.arange(16, dtype=np.float32), device), tec.nd.array(np.zeros(1, np.float32), device)
    for n in (3, 9, 3, 16, 1):
        f(n, a, c)
        assert c.numpy()[0] == n * (n - 1), n
