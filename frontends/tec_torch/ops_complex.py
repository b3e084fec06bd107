"""ATen operators on complex numbers. A complex tensor is a `Complex` while it is converted: two values, its real and its imaginary part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of, fourier
from tec.ops.dims import Dim, is_symbolic

from .importer import CONVERTERS, AtenCall, Complex, complex_op
from .ops_nn import times
from .ops_reduce import vector_norm
from .remedies import FIX_THE_SIZE
from .types import PART_TYPES

# What moves or picks elements, or is linear with real factors: done to each part.
_PART_BY_PART = (
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "expand", "permute", "transpose", "t", "slice",
    "narrow", "select", "split", "split_with_sizes", "unbind", "cat", "stack", "flip", "roll", "repeat", "constant_pad_nd", "clone",
    "alias", "detach", "lift_fresh_copy", "contiguous", "index", "index_select", "gather", "embedding", "sum", "mean", "cumsum",
    "slice_scatter", "select_scatter", "index_put", "where", "neg", "diagonal", "resolve_conj", "resolve_neg", "tril", "triu",
)  # fmt: skip


def _wide(c: AtenCall, part: Value) -> Value:
    """A part of an operand in the type of the result's parts: complex64 and complex128 make complex128."""
    return c.cast(part, c.part) if c.dtype in PART_TYPES else part


def real(c: AtenCall, x: Any) -> Value:
    return _wide(c, x.real) if isinstance(x, Complex) else c.value(x.real if isinstance(x, complex) else x, c.part)


def imag(c: AtenCall, x: Any) -> Value | None:
    """None for one that is zero everywhere."""
    if isinstance(x, complex):
        return c.value(x.imag, c.part)
    return _wide(c, x.imag) if isinstance(x, Complex) and x.imag is not None else None


def imag_or_zeros(c: AtenCall, x: Any) -> Value:
    found = imag(c, x)
    return found if found is not None else zeros_like(c, real(c, x))


def zeros_like(c: AtenCall, x: Value) -> Value:
    return c.broadcast(c.like(0, x), x.shape)


def _part(x: Any, k: int, c: AtenCall) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_part(v, k, c) for v in x)
    if isinstance(x, Complex):
        return x.real if k == 0 else imag_or_zeros(c, x)
    if isinstance(x, complex):
        return x.real if k == 0 else x.imag
    return x


@complex_op(*_PART_BY_PART)
def part_by_part(c: AtenCall, *args: Any, **kwargs: Any) -> Any:
    convert = CONVERTERS.get(c.target) or CONVERTERS[c.target.overloadpacket]
    made = []
    dtype, types = c.dtype, c.types
    c.dtype, c.types = c.part, [None if t is None else (c.part, t[1]) for t in types]
    for k in range(2):
        # A real tensor beside complex ones (in cat, where) is one whose imaginary part is zero.
        given = _of_real(c, args, k)
        made.append(convert(c, *given, **{n: _part(v, k, c) for n, v in kwargs.items()}))
    c.dtype, c.types = dtype, types
    if isinstance(made[0], (list, tuple)):
        return [Complex(*pair) for pair in zip(*made)]
    return Complex(*made)


def _of_real(c: AtenCall, args: Sequence[Any], k: int) -> list[Any]:
    name = c.name_of_op
    out = [_part(a, k, c) for a in args]
    if k == 1 and name in ("cat", "stack"):
        out[0] = [zeros_like(c, v) if isinstance(v, Value) else p for v, p in zip(args[0], out[0])]
    if k == 1 and name in ("where", "slice_scatter", "select_scatter", "index_put"):
        at = (1, 2) if name == "where" else (0, 2 if name == "index_put" else 1)
        for i in at:
            if i < len(args) and not isinstance(args[i], (Complex, complex)):
                out[i] = zeros_like(c, args[i]) if isinstance(args[i], Value) else 0
    return out


@complex_op("add", "sub", "rsub")
def add(c: AtenCall, a: Any, b: Any, alpha: Any = 1) -> Complex:
    if c.name_of_op == "rsub":
        a, b = b, a
    if isinstance(alpha, complex):
        raise ImportModelError("a complex factor alpha", hint="multiply by it before: x + alpha * y")

    def scaled(v: Value) -> Value:
        return v if alpha == 1 else c.op("multiply", v, c.value(alpha, c.part))

    name = "add" if c.name_of_op == "add" else "subtract"
    re = c.op(name, real(c, a), scaled(real(c, b)))
    return Complex(re, c.op(name, imag_or_zeros(c, a), scaled(imag_or_zeros(c, b))))


def product(c: AtenCall, a: Any, b: Any, by: Any) -> Complex:
    """(ar + i ai) (br + i bi), `by(x, y)` being the product of real values; those with zeros are left out."""
    ar, br, ai, bi = real(c, a), real(c, b), imag(c, a), imag(c, b)
    re = by(ar, br)
    cross = [by(*pair) for pair in ((ar, bi), (ai, br)) if None not in pair]
    if ai is not None and bi is not None:
        re = c.op("subtract", re, by(ai, bi))
    im = None if not cross else cross[0] if len(cross) == 1 else c.op("add", *cross)
    return Complex(re, im)


@complex_op("mul")
def mul(c: AtenCall, a: Any, b: Any) -> Complex:
    return product(c, a, b, lambda x, y: c.op("multiply", x, y))


@complex_op("mm", "bmm", "matmul", "mv", "dot")
def matmul(c: AtenCall, a: Any, b: Any) -> Complex:
    return product(c, a, b, lambda x, y: c.reshape(times(c, x, y), c.shape))


@complex_op("div", "true_divide")
def div(c: AtenCall, a: Any, b: Any) -> Complex:
    """Times the conjugate, over the squared size."""
    br, bi = real(c, b), imag(c, b)
    if bi is None:
        im = imag(c, a)
        return Complex(c.op("divide", real(c, a), br), None if im is None else c.op("divide", im, br))
    y = product(c, a, Complex(br, c.op("neg", bi)), lambda x, y: c.op("multiply", x, y))
    size = c.op("add", c.op("square", br), c.op("square", bi))
    return Complex(c.op("divide", y.real, size), c.op("divide", imag_or_zeros(c, y), size))


@complex_op("conj", "_conj", "conj_physical", "_conj_physical")
def conj(c: AtenCall, x: Complex) -> Complex:
    return Complex(x.real, None if x.imag is None else c.op("neg", x.imag))


@complex_op("abs")
def size(c: AtenCall, x: Complex) -> Value:
    """The larger part times the root of 1 and the square of their ratio: squares alone overflow where the size does not."""
    a, b = (c.op("abs", v) for v in (x.real, imag_or_zeros(c, x)))
    top, low = c.op("maximum", a, b), c.op("minimum", a, b)
    ratio = c.op("divide", low, c.op("where", c.op("equal", top, c.like(0, top)), c.like(1, top), top))
    return c.op("multiply", top, c.op("sqrt", c.op("add", c.op("square", ratio), c.like(1, ratio))))


@complex_op("norm", "linalg_vector_norm")
def norm(c: AtenCall, x: Complex, *how: Any) -> Value:
    return vector_norm(c, size(c, x), *how)


@complex_op("sgn")
def sgn(c: AtenCall, x: Complex) -> Complex:
    """Over its size; zero stays zero."""
    length = size(c, x)
    some = c.op("where", c.op("equal", length, c.like(0, length)), c.like(1, length), length)
    return Complex(c.op("divide", x.real, some), None if x.imag is None else c.op("divide", x.imag, some))


@complex_op("copy")
def copy(c: AtenCall, x: Any, source: Any, *more: Any) -> Any:
    re, im = c.broadcast(c.cast(real(c, source), c.part), c.shape), imag(c, source)
    if not c.dtype.startswith("complex"):
        return re
    return Complex(re, None if im is None else c.broadcast(c.cast(im, c.part), c.shape))


@complex_op("angle")
def angle(c: AtenCall, x: Any) -> Value:
    if not isinstance(x, Complex):
        x = c.cast(x, c.dtype)
        turned = c.op("where", c.op("less", x, c.like(0, x)), c.like(math.pi, x), c.like(0, x))
        return c.op("where", c.op("isnan", x), x, turned)
    return c.op("atan2", imag_or_zeros(c, x), x.real)


@complex_op("exp")
def exp(c: AtenCall, x: Complex) -> Complex:
    scale, turn = c.op("exp", x.real), imag_or_zeros(c, x)
    return Complex(c.op("multiply", scale, c.op("cos", turn)), c.op("multiply", scale, c.op("sin", turn)))


@complex_op("view_as_complex")
def view_as_complex(c: AtenCall, x: Value) -> Complex:
    return Complex(c.take(x, x.ndim - 1, 0), c.take(x, x.ndim - 1, 1))


@complex_op("view_as_real")
def view_as_real(c: AtenCall, x: Complex) -> Value:
    return c.stack([x.real, imag_or_zeros(c, x)], x.real.ndim)


@complex_op("real", "imag")
def one_part(c: AtenCall, x: Any) -> Value:
    return real(c, x) if c.name_of_op == "real" else imag_or_zeros(c, x)


@complex_op("complex")
def joined(c: AtenCall, re: Value, im: Value) -> Complex:
    return Complex(c.broadcast(re, c.shape), c.broadcast(im, c.shape))


@complex_op("polar")
def polar(c: AtenCall, radius: Value, turn: Value) -> Complex:
    return Complex(*(c.broadcast(c.op("multiply", radius, c.op(f, turn)), c.shape) for f in ("cos", "sin")))


@complex_op("_to_copy", "to", "convert_element_type")
def to_copy(c: AtenCall, x: Any, *more: Any) -> Any:
    if not c.dtype.startswith("complex"):
        return c.cast(real(c, x), c.dtype)
    im = imag(c, x)
    return Complex(c.cast(real(c, x), c.part), None if im is None else c.cast(im, c.part))


@complex_op(
    "full",
    "zeros",
    "ones",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "scalar_tensor",
)
def full(c: AtenCall, *args: Any) -> Complex:
    name = c.name_of_op
    value = 0 if "zeros" in name else 1 if "ones" in name else args[0] if name == "scalar_tensor" else args[-1]
    parts = (value.real, value.imag) if isinstance(value, complex) else (value, 0)
    re, im = (c.broadcast(c.value(v, c.part), c.shape) for v in parts)
    return Complex(re, None if parts[1] == 0 else im)


# ---- Fourier transforms


def factor(c: AtenCall, sizes: Sequence[Any], normalization: int) -> float:
    """By torch's number of a normalization: as it is, over the root of the elements, over the elements."""
    if is_symbolic(list(sizes)):
        raise ImportModelError("a Fourier transform of an open size", hint=FIX_THE_SIZE)
    return float(math.prod(sizes)) ** (0.0, -0.5, -1.0)[normalization]


@complex_op("_fft_c2c", "_fft_r2c")
def transform(c: AtenCall, x: Any, dims: Sequence[Any], normalization: int, flag: bool) -> Complex:
    """flag: of complex numbers whether it is forward, of real ones whether the last axis gives half, the rest being its mirror image."""
    is_real = c.name_of_op == "_fft_r2c"
    re, im = (x, None) if isinstance(x, Value) else (x.real, x.imag)
    axes = [axis_of(int(d), re.ndim) for d in dims if not isinstance(d, Dim)]
    scale = factor(c, [re.shape[a] for a in axes], normalization)
    for k, axis in enumerate(reversed(axes)):
        rows = int(re.shape[axis]) // 2 + 1 if is_real and flag and k == 0 else None
        scale_here = scale if k == 0 else 1.0
        re, im = fourier.transform(c, (re, im), axis, rows=rows, inverse=not is_real and not flag, scale=scale_here)
    return Complex(re, im)


@complex_op("_fft_c2r")
def to_real(c: AtenCall, x: Complex, dims: Sequence[int], normalization: int, last: Any) -> Value:
    axes = [axis_of(d, x.real.ndim) for d in dims]
    sizes = [x.real.shape[a] for a in axes[:-1]] + [last]
    scale = factor(c, sizes, normalization)
    re, im = x.real, x.imag
    for axis in axes[:-1]:
        re, im = fourier.transform(c, (re, im), axis, inverse=True)
    half = int(last) // 2 + 1
    if re.shape[axes[-1]] != half:
        raise ImportModelError(
            f"{re.shape[axes[-1]]} places of the transform of {last} numbers, which has {half}",
            hint="irfft(x, n=) with n in the range that x has places for: 2 * x.shape[-1] - 2, or one more",
        )
    return fourier.real_inverse(c, (re, im), axes[-1], int(last), scale)
