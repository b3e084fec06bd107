"""Every operation on every type against NumPy, scalar and in vectors."""

# ruff: noqa: B023 (each lambda runs before the loop moves on)

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tec.ir import EQ, GE, LT, NE, Add, Cast, Div, FloorDiv, FloorMod, Max, Min, Mod, Mul, Not, Select, Sub, dtype_info
from tec.ir import build as B

from .harness import elementwise, numpy_dtype

INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
N = 256
LANES = [1, 8]


def samples(dtype: str, seed: int, n: int = N) -> np.ndarray:
    rng = np.random.default_rng(seed)
    info = dtype_info(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(np.bool_)
    if info.is_int:
        t = np.iinfo(dtype)
        out = rng.integers(t.min, t.max, n, dtype=dtype, endpoint=True)
        small = rng.integers(max(t.min, -9), 9, n).astype(dtype)
        out = np.where(rng.random(n) < 0.5, out, small)
        out[:4] = [t.min, t.max, 0, t.min]
        return out
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 2.5, 0.5, -0.5]
    out = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(dtype)
    out[: len(special)] = np.array(special, dtype)
    return out


def run(fn, dtypes, out_dtype, arrays, lanes):
    out = np.zeros(len(arrays[0]), numpy_dtype(out_dtype))
    assert elementwise(fn, dtypes, out_dtype, len(out), lanes)(*arrays, out) == 0
    return out


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTS)
def test_integer_arithmetic_is_numpys(dtype, lanes):
    a, b = samples(dtype, 1), samples(dtype, 2)
    b[3] = -1 if dtype.startswith("int") else 1
    with np.errstate(all="ignore"):
        trunc = np.where(
            b == 0,
            0,
            np.sign(a.astype(object) * b.astype(object))
            * (abs(a.astype(object)) // np.where(b == 0, 1, abs(b.astype(object)))),
        )
        trunc = np.array([int(x) for x in trunc], object)
        wrap = (
            np.array([int(x) & ((1 << dtype_info(dtype).bits) - 1) for x in trunc], np.uint64)
            .astype(f"u{dtype.lstrip('u')}")
            .view(dtype)
        )
        rem = np.where(b == 0, 0, a - wrap * b)
        cases = [
            (Add, a + b), (Sub, a - b), (Mul, a * b), (Min, np.minimum(a, b)), (Max, np.maximum(a, b)),
            (FloorDiv, a // b), (FloorMod, a % b), (Div, wrap), (Mod, rem),
        ]  # fmt: skip
    for node, want in cases:
        np.testing.assert_array_equal(run(node, [dtype] * 2, dtype, [a, b], lanes), want, err_msg=node.__name__)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
@pytest.mark.parametrize("k", [1, 2, 7, 8, 127, -1, -3])
def test_division_by_constants(dtype, k, lanes):
    if k < 0 and dtype.startswith("u"):
        return
    a = samples(dtype, 3)
    c = B.const(k, dtype)
    for node, want in ((FloorDiv, a // np.array(k, dtype)), (FloorMod, a % np.array(k, dtype))):
        with np.errstate(all="ignore"):
            got = run(
                lambda x: node(x, c if lanes == 1 else B.const(k, f"{dtype}x{lanes}")), [dtype], dtype, [a], lanes
            )
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic_is_numpys(dtype, lanes):
    a, b = samples(dtype, 4), samples(dtype, 5)
    with np.errstate(all="ignore"):
        cases = [(Add, a + b), (Sub, a - b), (Mul, a * b), (Div, a / b), (Min, np.fmin(a, b)), (Max, np.fmax(a, b))]
    for node, want in cases:
        got = run(node, [dtype] * 2, dtype, [a, b], lanes)
        np.testing.assert_array_equal(got, want, err_msg=node.__name__)
    for node, want in ((EQ, a == b), (NE, a != b), (LT, a < b), (GE, a >= b)):
        np.testing.assert_array_equal(run(node, [dtype] * 2, "bool", [a, b], lanes), want)


@pytest.mark.parametrize("lanes", LANES)
def test_bfloat16_rounds_each_operation(lanes):
    a, b = (samples("float32", k).astype(ml_dtypes.bfloat16) for k in (6, 7))
    with np.errstate(all="ignore"):
        for node, want in ((Add, a + b), (Mul, a * b), (Sub, a - b), (Div, a / b)):
            got = run(node, ["bfloat16"] * 2, "bfloat16", [a.view(np.uint16), b.view(np.uint16)], lanes)
            np.testing.assert_array_equal(got.view(ml_dtypes.bfloat16).astype("f4"), want.astype("f4"))
        got = run(LT, ["bfloat16"] * 2, "bool", [a.view(np.uint16), b.view(np.uint16)], lanes)
        np.testing.assert_array_equal(got, a < b)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("src", ["float32", "float64", "float16"])
def test_floats_saturate_into_integers(src, lanes):
    a = samples(src, 8)
    a[20:26] = np.array([3e38, -3e38, 1e10, -1e10, 300.0, -129.0], "f8").astype(src)
    for dst in INTS:
        t = np.iinfo(dst)
        exact = [
            0 if np.isnan(x) else t.max if x >= float(t.max) else t.min if x <= float(t.min) else int(x)
            for x in a.astype("f8")
        ]
        got = run(lambda x: Cast(dst if lanes == 1 else f"{dst}x{lanes}", x), [src], dst, [a], lanes)
        np.testing.assert_array_equal(got, np.array(exact, dst), err_msg=dst)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("src", [*INTS, "bool", "float16", "float32", "float64"])
def test_conversions_to_floats_and_bool(src, lanes):
    a = samples(src, 9)
    for dst in ("float16", "float32", "float64", "bool"):
        if src == dst:
            continue
        with np.errstate(all="ignore"):
            want = a.astype(dst) if dst != "float16" or src in ("float64", "float32") else a.astype("f4").astype("f2")
        got = run(lambda x: Cast(dst if lanes == 1 else f"{dst}x{lanes}", x), [src], dst, [a], lanes)
        np.testing.assert_array_equal(got, want, err_msg=dst)


def test_double_to_half_rounds_once():
    rng = np.random.default_rng(10)
    halves = rng.integers(0, 0x7C00, 4096).astype(np.uint16).view(np.float16).astype("f8")
    ties = halves + np.spacing(halves.astype("f2")).astype("f8") / 2
    a = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, 1e9), -ties, [1e300, -1e300, 1e-300, 5e-324]])
    a = np.resize(a, len(a) // 8 * 8)
    with np.errstate(all="ignore"):
        want = a.astype("f2")
    for lanes in LANES:
        got = run(
            lambda x: Cast("float16" if lanes == 1 else f"float16x{lanes}", x), ["float64"], "float16", [a], lanes
        )
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTS)
def test_bits(dtype, lanes):
    a, b = samples(dtype, 11), samples(dtype, 12)
    bits = dtype_info(dtype).bits
    shift = (np.arange(N) % bits).astype(dtype)
    u = a.view(f"u{dtype.lstrip('u')}")
    table = {
        "bitand": a & b, "bitor": a | b, "bitxor": a ^ b, "mulhi": np.array([(int(x) * int(y)) >> bits for x, y in zip(a, b)], dtype),
    }  # fmt: skip
    for op, want in table.items():
        np.testing.assert_array_equal(
            run(lambda x, y: B.call(op, x, y), [dtype] * 2, dtype, [a, b], lanes), want, err_msg=op
        )
    np.testing.assert_array_equal(
        run(lambda x, y: B.call("shl", x, y), [dtype] * 2, dtype, [a, shift], lanes), a << shift
    )
    np.testing.assert_array_equal(
        run(lambda x, y: B.call("shr", x, y), [dtype] * 2, dtype, [a, shift], lanes), a >> shift
    )
    text = [f"{int(x):0{bits}b}" for x in u]
    counts = {
        "popcount": [t.count("1") for t in text], "clz": [len(t) - len(t.lstrip("0")) for t in text],
        "ctz": [len(t) - len(t.rstrip("0")) for t in text],
    }  # fmt: skip
    for op, want in counts.items():
        np.testing.assert_array_equal(
            run(lambda x: B.call(op, x), [dtype], dtype, [a], lanes), np.array(want), err_msg=op
        )


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_native_math(dtype, lanes):
    a, b = samples(dtype, 13), samples(dtype, 14)
    half_away = np.trunc(np.abs(a.astype("f8")) + 0.5) * np.sign(a)
    with np.errstate(all="ignore"):
        table = {
            "sqrt": np.sqrt(a),
            "floor": np.floor(a),
            "ceil": np.ceil(a),
            "trunc": np.trunc(a),
            "nearbyint": np.rint(a),
            "abs": np.abs(a),
            "round": half_away.astype(dtype),
        }
        for op, want in table.items():
            np.testing.assert_array_equal(run(lambda x: B.call(op, x), [dtype], dtype, [a], lanes), want, err_msg=op)
        for op, want in {
            "copysign": np.copysign(a, b),
            "fmod": np.fmod(a, b),
            "min_nan": np.minimum(a, b),
            "max_nan": np.maximum(a, b),
        }.items():
            np.testing.assert_array_equal(
                run(lambda x, y: B.call(op, x, y), [dtype] * 2, dtype, [a, b], lanes), want, err_msg=op
            )
    for op, want in {"isnan": np.isnan(a), "isinf": np.isinf(a), "isfinite": np.isfinite(a)}.items():
        out = "bool" if lanes == 1 else f"boolx{lanes}"
        np.testing.assert_array_equal(
            run(lambda x: B.call(op, x, dtype=out), [dtype], "bool", [a], lanes), want, err_msg=op
        )


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ldexp_rounds_once(dtype, lanes):
    rng = np.random.default_rng(15)
    top = 160 if dtype == "float32" else 1100
    a = samples(dtype, 16, 4096)
    n = rng.integers(-2 * top, 2 * top, 4096).astype("i4")
    with np.errstate(all="ignore"):
        want = np.ldexp(a, n)
    got = run(lambda x, k: B.call("ldexp", x, k), [dtype, "int32"], dtype, [a, n], lanes)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lanes", LANES)
def test_libm_serves_float64(lanes):
    a = np.linspace(0.1, 0.9, N)
    for op in ("exp", "log", "sin", "tanh", "asin"):
        got = run(lambda x: B.call(op, x), ["float64"], "float64", [a], lanes)
        np.testing.assert_allclose(got, getattr(np, op if op != "asin" else "arcsin")(a), rtol=1e-15)


@pytest.mark.parametrize("lanes", LANES)
def test_logic_and_select(lanes):
    a, b = samples("bool", 17), samples("bool", 18)
    x, y = samples("float32", 19), samples("float32", 20)
    both = run(lambda p, q: B.logical_and(p, Not(q)), ["bool", "bool"], "bool", [a, b], lanes)
    np.testing.assert_array_equal(both, a & ~b)
    got = run(Select, ["bool", "float32", "float32"], "float32", [a, x, y], lanes)
    np.testing.assert_array_equal(got, np.where(a, x, y))


def test_fast_math_is_the_users_choice():
    for target, word in (
        ("llvm", "fmul contract"),
        ("llvm -fast-math", "fmul fast"),
        ("llvm -fast-math=none", "fmul <"),
        ("llvm -fast-math=nnan,nsz", "fmul nnan nsz"),
    ):
        text = elementwise(Mul, ["float32"] * 2, "float32", 16, 8, target).code.llvm
        assert word in text, target


@pytest.mark.parametrize("lanes", LANES)
def test_float16_without_hardware(lanes):
    """A CPU before F16C: every half widens exactly, float32 and float64 round to nearest even, arithmetic is NumPy's."""
    target = "llvm -mcpu=x86-64"
    name = "float16" if lanes == 1 else f"float16x{lanes}"

    def convert(a, src, dst):
        out = np.zeros(len(a), dst)
        as_lanes = dst if lanes == 1 else f"{dst}x{lanes}"
        assert elementwise(lambda x: Cast(as_lanes, x), [src], dst, len(a), lanes, target)(a, out) == 0
        return out

    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(convert(every, "float16", "float32"), every.astype("f4"))
    rng = np.random.default_rng(21)
    halves = every[np.isfinite(every)][::7][:8192].astype("f8")
    ties = halves + np.spacing(halves.astype("f2")).astype("f8") / 2
    wide = np.concatenate(
        [
            ties,
            np.nextafter(ties, 1e9),
            np.nextafter(ties, -1e9),
            rng.standard_normal(8192) * 1e5,
            [np.inf, -np.inf, np.nan, 65519.9, 65520, 1e300, 1e-300, -0.0],
        ]
    )
    wide = wide[: len(wide) // 8 * 8]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(convert(wide, "float64", "float16"), wide.astype("f2"))
        narrow = wide.astype("f4")
        np.testing.assert_array_equal(convert(narrow, "float32", "float16"), narrow.astype("f2"))
        a, b = samples("float16", 22), samples("float16", 23)
        for node, want in ((Add, a + b), (Sub, a - b), (Mul, a * b), (Div, a / b), (Max, np.fmax(a, b))):
            out = np.zeros(N, "f2")
            built = elementwise(node, ["float16"] * 2, "float16", N, lanes, target)
            built(a, b, out)
            np.testing.assert_array_equal(out, want)
            assert "hf2" not in built.code.asm
    assert name in ("float16", "float16x8")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16"])
def test_half_to_integer_goes_through_float32(dtype):
    """LLVM 22's own conversion of halves, on a CPU that has it, takes NaN for -32768."""
    for lanes in LANES:
        to = dtype if lanes == 1 else f"{dtype}x{lanes}"
        built = elementwise(lambda x, t=to: Cast(t, x), ["float16"], dtype, 64, lanes, "llvm -mcpu=sapphirerapids")
        assert "f16(" not in built.code.llvm.replace("bf16(", "") and "vcvttph2" not in built.code.asm


@pytest.mark.parametrize("shape", [(13, 7), (14, 5), (14, 14)])
def test_row_maxima_with_the_reduction_outermost(shape):
    """LLVM 22's loop vectorizer makes wrong values of this plain nest once its outer loop is unrolled (float maxima alone)."""
    import tec
    from tec import te

    A = te.placeholder(shape, name="A")
    k = te.reduce_axis((0, shape[1]), "k")
    T = te.compute((shape[0],), lambda i: te.max(A[i, k], axis=k), name="T")
    s = tec.create_schedule(T.op)
    s[T].reorder(k, T.op.axis[0])
    a = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")
    out = np.zeros(shape[0], "float32")
    tec.build(s, [A, T], "llvm")(a, out)
    np.testing.assert_array_equal(out, a.max(1))
