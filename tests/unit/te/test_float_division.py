"""`//` and `%` of floats equal NumPy's, bit for bit but for the sign of NaN: drawn values, neighbours of multiples, zeros of both signs, infinities, NaN."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te
from tec.codegen.nvptx import remainder
from tec.ir import interp
from tec.schedule import to_loops
from tests.thinned import thinned

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "floordiv": (te.floordiv, np.floor_divide),
    "floormod": (te.floormod, np.remainder),
}


def operands(dtype: str, n: int = 1500) -> tuple[Any, Any]:
    """Pairs of every kind: special values with one another, drawn ones of all magnitudes, multiples and their neighbours."""
    r = np.random.default_rng(7)
    kind = DTYPES[dtype]
    top = float(ml_dtypes.finfo(kind).max)
    least = float(ml_dtypes.finfo(kind).smallest_subnormal)
    special = [0.0, -0.0, 1.0, -1.0, 0.1, -3.0, np.inf, -np.inf, np.nan, top, -top, least, -least]
    pairs = np.array([(x, y) for x in special for y in special]).T
    span = min(np.log2(top), 120.0)
    a = np.concatenate(
        [pairs[0], r.standard_normal(n) * 50, r.standard_normal(n) * 2 ** r.uniform(-span, span, n) * 0.1]
    )
    b = np.concatenate([pairs[1], r.standard_normal(n), r.standard_normal(n) * 2 ** r.uniform(-span, span, n) * 0.1])
    with np.errstate(all="ignore"):
        a, b = a.astype(kind), b.astype(kind)
        times = r.integers(-60, 60, n).astype(np.float64)
        by = r.choice([0.1, 0.3, 1 / 3, 0.7, 2.5, 7.0, -0.1, -1.3], n).astype(kind)
        near = (times * by.astype(np.float64)).astype(kind)
    moved = near.view(f"u{near.itemsize}") + r.integers(-1, 2, n).astype(f"u{near.itemsize}")
    return np.concatenate([a, moved.view(kind)]), np.concatenate([b, by])


def reference(function: Any, a: Any, b: Any) -> Any:
    """NumPy's; of bfloat16 that of float32, rounded once, as NumPy does it for float16."""
    with np.errstate(all="ignore"):
        if a.dtype == ml_dtypes.bfloat16:
            return function(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
        return function(a, b)


def equal_bits(got: Any, want: Any, a: Any, b: Any) -> None:
    bits = f"u{want.itemsize}"
    wrong = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
    at = np.flatnonzero(wrong)[:5]
    assert not at.size, f"{wrong.sum()} of {wrong.size}: {[(a[k], b[k], got[k], want[k]) for k in at]}"


def _program(function: Any, dtype: str, n: int) -> tuple[Any, list[Any]]:
    A, B = (te.placeholder((n,), dtype, name=x) for x in "AB")
    C = te.compute((n,), lambda i: function(A[i], B[i]), name="C")
    return te.create_schedule(C.op), [A, B, C]


@thinned(1, ("dtype", DTYPES), ("name", FUNCTIONS))
def test_on_the_interpreter_and_the_cpu(name: str, dtype: str) -> None:
    function, numpys = FUNCTIONS[name]
    a, b = operands(dtype)
    want = reference(numpys, a, b)
    s, args = _program(function, dtype, a.size)
    kind = DTYPES[dtype]
    got = np.zeros(a.size, kind)
    few = slice(0, 400)
    part = np.zeros(400, kind)
    interp.run(to_loops(*_scheduled(function, dtype, 400)), [a[few].copy(), b[few].copy(), part])
    equal_bits(part, want[few], a, b)
    for vector in (False, True):
        if vector:
            s, args = _program(function, dtype, a.size)
            _, inner = s[args[2]].split(args[2].op.axis[0], 4)
            s[args[2]].vectorize(inner)
        x, y, z = (tec.nd.array(v) for v in (a, b, got))
        tec.build(s, args, "llvm")(x, y, z)
        equal_bits(z.numpy(), want, a, b)


def _scheduled(function: Any, dtype: str, n: int) -> tuple[Any, list[Any], str]:
    s, args = _program(function, dtype, n)
    return s, args, "f"


@thinned(1, ("chip", ("gfx942", "gfx1100")), ("dtype", DTYPES))
def test_on_a_gpu(dtype: str, chip: str) -> None:
    """Both functions in one kernel, on the software GPU; the same source compiles to PTX."""
    a, b = operands(dtype, 300)
    n = a.size
    A, B = (te.placeholder((n,), dtype, name=x) for x in "AB")
    outs = te.compute((n,), lambda i: (te.floordiv(A[i], B[i]), te.floormod(A[i], B[i])), name="C")
    for target in (f"rocm -mcpu={chip}", "cuda -arch=sm_80"):
        s = te.create_schedule(outs[0].op)
        block, thread = s[outs[0]].split(outs[0].op.axis[0], 64)
        s[outs[0]].bind(block, te.thread_axis("blockIdx.x"))
        s[outs[0]].bind(thread, te.thread_axis("threadIdx.x"))
        f = tec.build(s, [A, B, *outs], target)
        if target.startswith("rocm"):
            device = tec.rocm_emu(chip)
            q, r = (tec.nd.empty((n,), dtype, device) for _ in outs)
            f(tec.nd.array(a, device), tec.nd.array(b, device), q, r)
            equal_bits(q.numpy(), reference(np.floor_divide, a, b), a, b)
            equal_bits(r.numpy(), reference(np.remainder, a, b), a, b)


@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_the_remainder_of_ptx_is_exact(dtype: str) -> None:
    """The function that stands for fmod in PTX is plain LLVM IR: the host runs it, and finds what C's fmod gives."""
    name, texts = remainder.definition(dtype)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    body = texts[name].replace("define internal", "define").replace("alwaysinline", "")
    declared = "\n".join(t for n, t in texts.items() if n != name)
    module = llvm.parse_assembly(f"{body}\n{declared}")
    machine = llvm.Target.from_default_triple().create_target_machine(features="+fma", opt=0)
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        kind = {"float32": ctypes.c_float, "float64": ctypes.c_double}[dtype]
        f = ctypes.CFUNCTYPE(kind, kind, kind)(engine.get_function_address(name))
        a, b = operands(dtype)
        got = np.array([f(float(x), float(y)) for x, y in zip(a, b)], a.dtype)
    equal_bits(got, reference(np.fmod, a, b), a, b)


def test_ptx_takes_no_rounded_quotient_for_a_remainder() -> None:
    for dtype in DTYPES:
        s, args = _program(te.fmod, dtype, 64)
        s[args[2]].bind(args[2].op.axis[0], te.thread_axis("threadIdx.x"))
        ptx = tec.build(s, args, "cuda -arch=sm_80").imported_modules[0].get_source("asm")
        assert "bra" in ptx and ".func" not in ptx


def test_in_kernels_and_arrays() -> None:
    @tec.kernel
    def both(x: Any, y: Any, q: Any, r: Any) -> None:
        i = tec.grid_idx(1)
        if i < len(x):
            q[i] = x[i] // y[i]
            r[i] = x[i] % y[i]

    a, b = operands("float32", 200)
    q, r = np.zeros_like(a), np.zeros_like(a)
    both.launch(a.size)(a, b, q, r)
    equal_bits(q, reference(np.floor_divide, a, b), a, b)
    equal_bits(r, reference(np.remainder, a, b), a, b)
    for dtype in ("float16", "float32", "float64"):
        a, b = operands(dtype, 200)
        x, y = tec.array.asarray(a), tec.array.asarray(b)
        equal_bits((x % y).numpy(), reference(np.remainder, a, b), a, b)
        finite = ~(np.isinf(a) | np.isinf(b))  # for infinities the array API standard has other quotients than NumPy
        equal_bits((x // y).numpy()[finite], reference(np.floor_divide, a, b)[finite], a[finite], b[finite])


def test_gradients_follow_the_remainder() -> None:
    """d(a % b) is da - floor(a / b) db, and a // b is flat."""
    a, b = np.array([7.5, -7.5, 0.3], np.float64), np.array([2.0, 2.0, -0.1], np.float64)
    A, B = (te.placeholder((3,), "float64", name=n) for n in "AB")
    C = te.compute((3,), lambda i: te.floormod(A[i], B[i]) + te.floordiv(A[i], B[i]), name="C")
    head = te.placeholder((3,), "float64", name="head")
    da, db = te.gradient(C, [A, B], head=head)
    f = tec.build(te.create_schedule([da.op, db.op]), [A, B, head, da, db], "llvm")
    x, y = np.zeros(3), np.zeros(3)
    f(a, b, np.ones(3), x, y)
    np.testing.assert_array_equal(x, np.ones(3))
    np.testing.assert_array_equal(y, -np.floor_divide(a, b))
