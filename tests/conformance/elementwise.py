"""Elementwise kernels: types, math functions, broadcasts, guards, gathers, symbolic sizes with ragged ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special

from tec import te

from .harness import Program, case, cpu_elementwise, gpu_elementwise

F32 = np.float32


def uniform(
    *shapes: tuple[int, ...], lo: float = -2.0, hi: float = 2.0, dtype: Any = F32
) -> Callable[[np.random.Generator], list[Any]]:
    """Inputs drawn uniformly."""
    return lambda rng: [rng.uniform(lo, hi, shape).astype(dtype) for shape in shapes]


def integers(*shapes: tuple[int, ...], lo: int, hi: int, dtype: Any) -> Callable[[np.random.Generator], list[Any]]:
    return lambda rng: [rng.integers(lo, hi, shape).astype(dtype) for shape in shapes]


def _program(args: list[Any], out: Any) -> Program:
    return Program([*args, out], [out], cpu_elementwise(out), gpu_elementwise(out))


def _binary(dtype: str, f: Callable[[Any, Any], Any], shape: tuple[Any, ...] | None = None) -> Callable[[], Program]:
    def make() -> Program:
        dims = shape or (te.var("n"),)
        a, b = te.placeholder(dims, dtype, name="A"), te.placeholder(dims, dtype, name="B")
        c = te.compute(dims, lambda *i: f(a[i], b[i]), name="C")
        return _program([a, b], c)

    return make


def _unary(dtype: str, f: Callable[[Any], Any], shape: tuple[Any, ...] | None = None) -> Callable[[], Program]:
    def make() -> Program:
        dims = shape or (te.var("n"),)
        a = te.placeholder(dims, dtype, name="A")
        return _program([a], te.compute(dims, lambda *i: f(a[i]), name="C"))

    return make


# ---- minimum and maximum: which of them NaN wins; signalling NaNs count as NaN, which zero comes of two is open


def _with_nans(dtype: Any) -> Callable[[np.random.Generator], list[Any]]:
    def make(rng: np.random.Generator) -> list[Any]:
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -2.0]
        pairs = np.array([(x, y) for x in special for y in special] * 4).T
        a, b = (rng.permutation(np.concatenate([p, rng.uniform(-2, 2, 301)])).astype(dtype) for p in pairs)
        a[:64], b[:64] = pairs[0][:64].astype(dtype), pairs[1][:64].astype(dtype)
        bits = a.view(f"u{a.itemsize}")
        bits[70:90] = np.array(np.inf, dtype).view(bits.dtype) + 1  # signalling
        return [a, b]

    return make


def _number_wins(pick: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: np.where(np.isnan(a), b, np.where(np.isnan(b), a, pick(a, b)))


for _dtype, _numpy in (
    ("float32", F32),
    ("float64", np.float64),
    ("float16", np.float16),
    ("bfloat16", ml_dtypes.bfloat16),
):
    for _name, _f, _reference in (
        ("max", te.max, _number_wins(np.maximum)),
        ("min", te.min, _number_wins(np.minimum)),
        ("maximum", te.maximum, np.maximum),
        ("minimum", te.minimum, np.minimum),
    ):
        case(f"{_name}_of_nan_{_dtype}", _with_nans(_numpy), _reference)(_binary(_dtype, _f))
    case(
        f"clamp_of_nan_{_dtype}",
        _with_nans(_numpy),
        lambda a, b: (np.minimum(np.maximum(a, -1), 1) + 0 * b).astype(a.dtype),
    )(_binary(_dtype, lambda a, b: te.minimum(1.0, te.maximum(a, -1.0)) + b * 0.0))

# ---- 2 to the power of x by the chip's own instruction: -inf gives 0, and inf infinity

case(
    "exp2_fast",
    lambda rng: [np.array([-np.inf, np.inf, 0, -0.0, 1, -200, *rng.uniform(-100, 100, 250)], np.float32)],
    np.exp2,
    rtol=1e-6,
)(_unary("float32", lambda a: te.call_intrin("float32", "exp2_fast", a)))

# ---- powers of numbers up to 0: -inf gives 0

case(
    "exp_below",
    lambda rng: [np.array([-np.inf, 0, -0.0, -1, -87, -200, *rng.uniform(-80, 0, 250)], np.float32)],
    np.exp,
    rtol=1e-6,
)(_unary("float32", lambda a: te.call_intrin("float32", "exp_below", a)))

# ---- 1/x by the chip's own instruction, of normal numbers

case(
    "rcp_fast",
    lambda rng: [np.copysign(np.exp(rng.uniform(-80, 80, 250)), rng.standard_normal(250)).astype(np.float32)],
    lambda a: (1 / a).astype(a.dtype),
    rtol=2.0**-14,
)(_unary("float32", lambda a: te.call_intrin("float32", "rcp_fast", a)))

# ---- shifts by any count, integers that take more bits than the float has


def _shifted(dtype: str) -> Callable[[np.random.Generator], list[Any]]:
    def make(rng: np.random.Generator) -> list[Any]:
        info = np.iinfo(dtype)
        counts = [*range(info.bits + 3), 2 * info.bits - 1, info.max, info.min, info.max // 2]
        picked = np.array([counts[k] for k in rng.integers(0, len(counts), 301)], dtype)
        return [rng.integers(info.min, info.max, 301, dtype, True), picked]

    return make


for _dtype in ("int8", "uint16", "int32", "uint64"):
    case(f"shl_{_dtype}", _shifted(_dtype), np.left_shift)(_binary(_dtype, lambda a, b: a << b))
    case(f"shr_{_dtype}", _shifted(_dtype), np.right_shift)(_binary(_dtype, lambda a, b: a >> b))


def _near_ties(dtype: str, kept: int) -> Callable[[np.random.Generator], list[Any]]:
    """Integers about half way between two numbers of `kept` bits."""

    def make(rng: np.random.Generator) -> list[Any]:
        info = np.iinfo(dtype)
        n = rng.integers(kept + 1, info.bits, 400)
        values = []
        for width, top, off in zip(
            n.tolist(), rng.integers(1 << kept - 1, 1 << kept, 400).tolist(), rng.integers(-1, 2, 400).tolist()
        ):
            v = min(((top << 1 | 1) << (width - kept - 1)) + off, info.max)
            values.append(-v if info.min < 0 and rng.random() < 0.5 else v)
        return [np.array([*values, info.min, info.max, 0, 1], dtype)]

    return make


def _rounded(kept: int, dtype: Any) -> Callable[[Any], Any]:
    """Integers rounded once to `kept` bits, ties to even, by integer arithmetic."""

    def one(v: int) -> float:
        m, sign = abs(v), -1 if v < 0 else 1
        drop = max(m.bit_length() - kept, 0)
        q, r = m >> drop, m & ((1 << drop) - 1)
        half = (1 << drop) >> 1
        up = drop > 0 and (r > half or (r == half and q & 1))
        return sign * float((q + up) << drop)

    def reference(a: Any) -> Any:
        with np.errstate(over="ignore"):
            return np.array([one(v) for v in a.tolist()]).astype(dtype)

    return reference


for _dtype, _name, _kept, _numpy in (
    ("int32", "bfloat16", 8, ml_dtypes.bfloat16),
    ("int64", "bfloat16", 8, ml_dtypes.bfloat16),
    ("uint64", "bfloat16", 8, ml_dtypes.bfloat16),
    ("uint64", "float16", 11, np.float16),
    ("uint64", "float32", 24, F32),
):
    case(f"{_dtype}_to_{_name}", _near_ties(_dtype, _kept), _rounded(_kept, _numpy), rtol=0, atol=0)(
        _unary(_dtype, lambda a, t=_name: a.astype(t))
    )


def _tiny_quotients(rng: np.random.Generator) -> list[Any]:
    """Numerators and denominators whose quotients are denormal, most of them."""
    small, large = rng.integers(0, 70, 2000), rng.integers(55, 85, 2000)
    return [(rng.uniform(1, 2, 2000) * 2.0**-small).astype(F32), (rng.uniform(1, 2, 2000) * 2.0**large).astype(F32)]


case("denormal_quotients_f32", _tiny_quotients, lambda a, b: a / b, rtol=0, atol=0)(
    _binary("float32", lambda a, b: a / b)
)

# ---- types

case("add_f32_symbolic", uniform((1000,), (1000,)), lambda a, b: a + b)(_binary("float32", lambda a, b: a + b))
case("add_f64", uniform((130,), (130,), dtype=np.float64), lambda a, b: a + b)(_binary("float64", lambda a, b: a + b))
case("mul_add_f16", uniform((257,), (257,), dtype=np.float16), lambda a, b: a * b + a, rtol=2e-3, atol=2e-3)(
    _binary("float16", lambda a, b: a * b + a)
)
case(
    "mul_add_bf16",
    uniform((257,), (257,), dtype=ml_dtypes.bfloat16),
    lambda a, b: (a.astype(F32) * b.astype(F32) + a.astype(F32)).astype(ml_dtypes.bfloat16),
    rtol=2e-2,
    atol=2e-2,
)(_binary("bfloat16", lambda a, b: a * b + a))
for _dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
    case(
        f"wrap_{_dtype}",
        integers((300,), (300,), lo=0, hi=127, dtype=_dtype),
        lambda a, b: a * b - b * a // np.asarray(3, a.dtype) + a,
    )(_binary(_dtype, lambda a, b: a * b - b * a // 3 + a))
case("compare_bool", integers((200,), (200,), lo=0, hi=4, dtype="int32"), lambda a, b: (a < b) | (a == 3))(
    _binary("int32", lambda a, b: (a < b) | (a == 3))
)
case(
    "bits_int32",
    integers((200,), (200,), lo=-9000, hi=9000, dtype="int32"),
    lambda a, b: ((a ^ b) & (a << 2)) | (b >> 3),
)(_binary("int32", lambda a, b: ((a ^ b) & (a << 2)) | (b >> 3)))
case("floordiv_mod_int32", integers((200,), (200,), lo=-50, hi=50, dtype="int32"), lambda a, b: (a // 7) * 100 + b % 7)(
    _binary("int32", lambda a, b: (a // 7) * 100 + b % 7)
)
case(
    "truncdiv_mod_int32",
    integers((200,), (200,), lo=-50, hi=50, dtype="int32"),
    lambda a, b: np.trunc(a / 7).astype("int32") * 100 + np.fmod(b, 7).astype("int32"),
)(_binary("int32", lambda a, b: te.truncdiv(a, 7) * 100 + te.truncmod(b, 7)))
case(
    "divide_by_variable_int64", lambda r: [r.integers(-99, 99, 200), r.integers(1, 9, 200)], lambda a, b: a // b + a % b
)(_binary("int64", lambda a, b: a // b + a % b))
case("cast_f32_to_int8", uniform((300,), lo=-100, hi=100), lambda a: a.astype("int8"))(
    _unary("float32", lambda a: a.astype("int8"))
)
case("cast_u8_to_f16", integers((300,), lo=0, hi=255, dtype="uint8"), lambda a: a.astype("float16"))(
    _unary("uint8", lambda a: a.astype("float16"))
)
case("cast_f32_to_bf16", uniform((300,)), lambda a: a.astype(ml_dtypes.bfloat16))(
    _unary("float32", lambda a: a.astype("bfloat16"))
)
case("select_f32", uniform((300,), (300,)), lambda a, b: np.where(a > b, a - b, b * F32(2)))(
    _binary("float32", lambda a, b: te.select(a > b, a - b, b * 2))
)
case(  # one instruction of AVX-512, which LLVM masks wrongly; long enough that the constant is an operand in memory
    "select_of_bits_int32",
    integers((1600,), (1600,), lo=-(2**31), hi=2**31, dtype="int32"),
    lambda a, b: np.where(a > b, (a & 0x7FFFFFFF) | (b & -(2**31)), a),
)(_binary("int32", lambda a, b: te.select(a > b, (a & 0x7FFFFFFF) | (b & te.const(-(2**31), "int32")), a)))
case("min_max_f32", uniform((300,), (300,)), lambda a, b: np.maximum(np.minimum(a, b), F32(-1)))(
    _binary("float32", lambda a, b: te.maximum(te.minimum(a, b), -1.0))
)
case(
    "popcount_clz",
    integers((200,), lo=1, hi=2**31 - 1, dtype="uint32"),
    lambda a: np.array([bin(x).count("1") * 64 + 32 - int(x).bit_length() for x in a], "uint32"),
)(_unary("uint32", lambda a: te.popcount(a) * 64 + te.clz(a)))

# ---- math: f32 against float64

_MATH: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "exp": (np.exp, -80, 80), "exp2": (np.exp2, -100, 100), "exp10": (lambda x: 10.0**x, -30, 30), "log": (np.log, 1e-3, 1e3), "log2": (np.log2, 1e-3, 1e3),
    "log10": (np.log10, 1e-3, 1e3), "log1p": (np.log1p, -0.9, 10), "sqrt": (np.sqrt, 0, 1e4), "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-3, 1e4),
    "sin": (np.sin, -100, 100), "cos": (np.cos, -100, 100), "tan": (np.tan, -1.4, 1.4), "asin": (np.arcsin, -1, 1), "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -50, 50), "sinh": (np.sinh, -20, 20), "cosh": (np.cosh, -20, 20), "tanh": (np.tanh, -6, 6), "asinh": (np.arcsinh, -100, 100),
    "acosh": (np.arccosh, 1, 100), "atanh": (np.arctanh, -0.99, 0.99), "sigmoid": (scipy.special.expit, -20, 20), "erf": (scipy.special.erf, -4, 4),
    "floor": (np.floor, -9, 9), "ceil": (np.ceil, -9, 9), "trunc": (np.trunc, -9, 9), "nearbyint": (np.rint, -9, 9), "abs": (np.abs, -9, 9),
}  # fmt: skip
for _name, (_ref, _lo, _hi) in _MATH.items():
    case(
        f"math_{_name}",
        uniform((515,), lo=_lo, hi=_hi),
        (lambda ref: lambda a: ref(a.astype(np.float64)).astype(F32))(_ref),
        rtol=1e-6,
        atol=1e-6,
    )(_unary("float32", getattr(te, _name)))
# What is beyond float32, below its normal numbers, and no number: 2 units in the last place, down to the smallest.
for _name, _ref in (("exp", np.exp), ("sigmoid", scipy.special.expit)):
    case(
        f"math_{_name}_at_the_ends",
        lambda r: [
            np.array(
                [
                    np.nan,
                    np.inf,
                    -np.inf,
                    0,
                    -0.0,
                    1e-30,
                    3e38,
                    -3e38,
                    88.72284,
                    88.72283,
                    -87.4,
                    -103.97,
                    -103.98,
                    *r.uniform(-104, 89, 500),
                ],
                F32,
            )
        ],
        (lambda ref: lambda a: ref(a.astype(np.float64)).astype(F32))(_ref),
        rtol=2.4e-7,
        atol=3e-45,
    )(_unary("float32", getattr(te, _name)))
case(
    "math_pow",
    lambda r: [r.uniform(0.01, 5, 300).astype(F32), r.uniform(-4, 4, 300).astype(F32)],
    lambda a, b: np.power(a.astype("d"), b).astype(F32),
    rtol=2e-6,
)(_binary("float32", te.pow))
case("math_atan2", uniform((300,), (300,)), lambda a, b: np.arctan2(a.astype("d"), b).astype(F32), rtol=1e-6)(
    _binary("float32", te.atan2)
)
for _dtype, _kind in (
    ("float16", np.float16),
    ("bfloat16", ml_dtypes.bfloat16),
    ("float32", F32),
    ("float64", np.float64),
):
    for _name, _f, _reference in (("floordiv", te.floordiv, np.floor_divide), ("floormod", te.floormod, np.remainder)):

        def _by_numpy(a: Any, b: Any, f: Any = _reference) -> Any:
            wide = [x.astype(F32) if x.dtype == ml_dtypes.bfloat16 else x for x in (a, b)]
            return f(*wide).astype(a.dtype)

        case(f"{_name}_{_dtype}", uniform((301,), (301,), lo=-40.0, hi=40.0, dtype=_kind), _by_numpy)(
            _binary(_dtype, _f)
        )
case("math_fmod", uniform((300,), (300,)), lambda a, b: np.fmod(a, b), rtol=1e-6)(_binary("float32", te.fmod))
case("math_isnan", lambda r: [np.where(r.random(300) < 0.3, np.nan, r.random(300)).astype(F32)], np.isnan)(
    _unary("float32", te.isnan)
)
case(
    "math_tanh_f16",
    uniform((300,), dtype=np.float16),
    lambda a: np.tanh(a.astype("d")).astype("float16"),
    rtol=2e-3,
    atol=1e-3,
)(_unary("float16", te.tanh))
case("math_exp_f64", uniform((300,), lo=-50, hi=50, dtype=np.float64), np.exp, rtol=1e-14)(_unary("float64", te.exp))
case(
    "math_exp_bf16",
    uniform((300,), dtype=ml_dtypes.bfloat16),
    lambda a: np.exp(a.astype("d")).astype(ml_dtypes.bfloat16),
    rtol=1e-2,
    atol=1e-2,
)(_unary("bfloat16", te.exp))
case(
    "gelu_f32",
    uniform((400,), lo=-5, hi=5),
    lambda a: (0.5 * a.astype("d") * (1 + scipy.special.erf(a.astype("d") / np.sqrt(2)))).astype(F32),
)(_unary("float32", lambda a: 0.5 * a * (1.0 + te.erf(a * 0.70710678))))

# ---- shapes


@case("broadcast_row_column", uniform((17, 1), (1, 23)), lambda a, b: a * b + a)
def _broadcast() -> Program:
    a, b = te.placeholder((17, 1), name="A"), te.placeholder((1, 23), name="B")
    return _program([a, b], te.compute((17, 23), lambda i, j: a[i, 0] * b[0, j] + a[i, 0], name="C"))


@case("symbolic_2d_ragged", uniform((37, 53), (37, 53)), lambda a, b: a - b)
def _symbolic_2d() -> Program:
    m, n = te.var("m"), te.var("n")
    a, b = te.placeholder((m, n), name="A"), te.placeholder((m, n), name="B")
    c = te.compute((m, n), lambda i, j: a[i, j] - b[i, j], name="C")

    def cpu(s: Any, target: Any) -> None:
        io, jo, ii, ji = s[c].tile(c.op.axis[0], c.op.axis[1], 8, 16)
        s[c].parallel(io)
        s[c].vectorize(ji)

    def gpu(s: Any, target: Any) -> None:
        io, jo, ii, ji = s[c].tile(c.op.axis[0], c.op.axis[1], 8, 8)
        for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
            s[c].bind(axis, te.thread_axis(tag))

    return Program([a, b, c], [c], cpu, gpu)


@case(
    "gather_rows", lambda r: [r.random((40, 12)).astype(F32), r.integers(0, 40, 25).astype("int32")], lambda a, i: a[i]
)
def _gather() -> Program:
    a, idx = te.placeholder((40, 12), name="A"), te.placeholder((25,), "int32", name="I")
    return _program([a, idx], te.compute((25, 12), lambda i, j: a[idx[i], j], name="C"))


@case(
    "stencil_5point",
    uniform((34, 45)),
    lambda a: (
        np.pad(a, 1)[:-2, 1:-1] + np.pad(a, 1)[2:, 1:-1] + np.pad(a, 1)[1:-1, :-2] + np.pad(a, 1)[1:-1, 2:] - 4 * a
    ),
)
def _stencil() -> Program:
    h, w = 34, 45
    a = te.placeholder((h, w), name="A")

    def at(i: Any, j: Any) -> Any:
        return te.if_then_else(te.all(i >= 0, i < h, j >= 0, j < w), a[i, j], 0.0)

    return _program(
        [a],
        te.compute(
            (h, w), lambda i, j: at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + at(i, j + 1) - 4.0 * a[i, j], name="C"
        ),
    )


@case("inline_chain", uniform((20, 30)), lambda a: np.maximum(a * 2 + 1, 0) ** 2)
def _inline_chain() -> Program:
    a = te.placeholder((20, 30), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2.0 + 1.0, name="B")
    c = te.compute(a.shape, lambda i, j: te.max(b[i, j], 0.0) if False else te.maximum(b[i, j], 0.0), name="R")
    d = te.compute(a.shape, lambda i, j: c[i, j] * c[i, j], name="D")

    def both(schedule: Any) -> Any:
        def apply(s: Any, target: Any) -> None:
            s[b].compute_inline()
            s[c].compute_inline()
            schedule(s, target)

        return apply

    return Program([a, d], [d], both(cpu_elementwise(d)), both(gpu_elementwise(d)))


@case("two_outputs", uniform((77,)), lambda a: (a + 1, a * 3))
def _two_outputs() -> Program:
    a = te.placeholder((77,), name="A")
    b, c = te.compute((77,), lambda i: (a[i] + 1.0, a[i] * 3.0), name="BC")
    return Program([a, b, c], [b], cpu_elementwise(b), gpu_elementwise(b))


@case("index_arithmetic", uniform((24, 10)), lambda a: a.reshape(6, 4, 10).transpose(1, 2, 0).reshape(4, 60))
def _index_arithmetic() -> Program:
    a = te.placeholder((24, 10), name="A")
    return _program([a], te.compute((4, 60), lambda i, j: a[te.indexmod(j, 6) * 4 + i, te.indexdiv(j, 6)], name="C"))


@case("iota_arithmetic", lambda r: [np.zeros(9, F32)], lambda a: (np.arange(9) * 3 % 5).astype(F32) + a)
def _iota() -> Program:
    a = te.placeholder((9,), name="A")
    return _program([a], te.compute((9,), lambda i: (i * 3 % 5).astype("float32") + a[i], name="C"))
