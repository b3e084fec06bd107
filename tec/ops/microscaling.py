"""Products of microscaling formats, and what makes them: blocks of 32 small floats along the sum, each block with a power of two (`tec.ir.microscaling`).

`mx_matmul` is the product of two such matrices, both along k; `mx_quantize` rounds a float matrix to one. Both are defined on elements and scales as they are
stored, so every target computes them; a chip with a matrix unit for these formats has a template of its own (`choices.families.codes.mx_products`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..ir.microscaling import BIAS, BLOCK, NO_SCALE, Format, dequantize, format_of, quantize
from ..records import dataclass
from ..te import Tensor
from .contraction import Contraction, Operand
from .forms import Form, carry
from .registry import COMPLEX, FOLLOWS_16, OPAQUE, SUMS, Attrs, TensorType, fail, register, static_shape

_F32_MANTISSA = 23
_F16 = 10, 15  # mantissa bits and bias of float16, which holds every element of 4 and 6 bits


# ---- elements in te


def number(code: Any, f: Format) -> Any:
    """The float32 number of an element's code, an int32 whose other bits are 0."""
    if f.float8 is not None:
        return te.reinterpret(f.float8, code.astype("uint8")).astype("float32")
    mantissa, bias = _F16
    low = (1 << (f.bits - 1)) - 1
    half = ((code & low) << (mantissa - f.mantissa)) | ((code & (low + 1)) << (16 - f.bits))
    return te.reinterpret("float16", half.astype("uint16")).astype("float32") * te.const(2.0 ** (bias - f.bias), "float32")  # fmt: skip


def power(scale: Any) -> Any:
    """float32 of a scale's byte."""
    s = scale.astype("uint32")
    bits = te.select(s == 0, te.const(1 << (_F32_MANTISSA - 1), "uint32"), s << _F32_MANTISSA)
    return te.reinterpret("float32", te.select(s == NO_SCALE, te.const(0x7FC00000, "uint32"), bits))


def stored_code(read: Any, k: Any, f: Format) -> Any:
    """The code of element k of a row, int32; `read(byte)` gives a byte of it."""
    if f.bits == 8:
        return read(k).astype("int32")
    if f.bits == 4:
        return (read(te.indexdiv(k, 2)).astype("int32") >> (te.indexmod(k, 2) * 4)) & 15
    first, rest = te.indexdiv(k, 4) * 3, te.indexmod(k, 4) * 6
    low = read(first + te.indexdiv(rest, 8)).astype("int32")
    high = read(first + te.indexdiv(rest + 5, 8)).astype("int32")  # the byte of its last bit, often the same
    return ((low | (high << 8)) >> te.indexmod(rest, 8)) & 63


def value(elements: Tensor, scales: Tensor, row: Any, k: Any, f: Format) -> Any:
    """The float32 number at (row, k)."""
    code = stored_code(lambda byte: elements(row, byte), k, f)
    return number(code, f) * power(scales(row, te.indexdiv(k, BLOCK)))


# ---- products


@dataclass(frozen=True, eq=False)
class MxContraction(Contraction):
    """A product of two matrices of microscaling formats: the tensors (a, its scales, b, its scales)."""

    tensors_read: tuple[Tensor, ...] = ()
    formats: tuple[str, str] = ("", "")


def _matmul_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    rows, depths = [], []
    for (x, scales), key in zip((types[:2], types[2:]), ("format_a", "format_b")):
        f = format_of(attrs[key])
        if x.dtype != "uint8" or scales.dtype != "uint8" or x.ndim != 2 or scales.ndim != 2:
            raise fail(f"mx_matmul of {x} with scales {scales}: matrices of bytes")
        k = scales.shape[1] * BLOCK
        if x.shape != (scales.shape[0], f.stored(k)):
            raise fail(f"mx_matmul: {x} is not {f.name} with scales {scales}, a byte for {BLOCK} elements")
        rows.append(x.shape[0])
        depths.append(k)
    if depths[0] != depths[1]:
        raise fail(f"mx_matmul of rows of {depths[0]} and {depths[1]} elements")
    if attrs["out_dtype"] not in ("float32", "float16", "bfloat16"):
        raise fail(f"mx_matmul: a result of {attrs['out_dtype']}")
    return [TensorType(attrs["out_dtype"], (rows[0], rows[1]))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[1].shape[1] * BLOCK


def _matmul_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    a, b = (
        dequantize(np.asarray(x), np.asarray(s), attrs[key])
        for x, s, key in zip(arrays[::2], arrays[1::2], ("format_a", "format_b"))
    )
    return [(a @ b.T).astype(np.float32 if outs[0].dtype == "bfloat16" else outs[0].dtype)]


@register("mx_matmul", COMPLEX, _matmul_type, flops=_flops, traits=[SUMS], host=_matmul_host, takes=4)
def _mx_matmul(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """a [m, k] times b [n, k] transposed, summed in float32. Inputs: elements of a [m, bytes], scales [m, k / 32], elements of b [n, bytes], scales [n, k / 32], all
    uint8. Attributes: format_a, format_b, out_dtype."""
    a, scale_a, b, scale_b = inputs
    fa, fb = format_of(attrs["format_a"]), format_of(attrs["format_b"])
    (m, blocks), (n, _), dtype = static_shape(scale_a), static_shape(scale_b), outputs[0].dtype
    r = te.reduce_axis((0, blocks * BLOCK), "k")

    def left(batch: Any, i: Any, k: Any) -> Any:
        return value(a, scale_a, i, k, fa)

    def right(batch: Any, j: Any, k: Any) -> Any:
        return value(b, scale_b, j, k, fb)

    c = te.compute((m, n), lambda i, j: te.sum(left((), i, r) * right((), j, r), axis=r), name="mx_product")
    made = c if dtype == "float32" else te.compute((m, n), lambda *i: c(*i).astype(dtype), name="mx_cast")
    # bfloat16 holds an element times its scale as it is, but for scales at the ends of their range.
    sides = (
        Operand(lambda *at: left(*at).astype("bfloat16"), "bfloat16"),
        Operand(lambda *at: right(*at).astype("bfloat16"), "bfloat16"),
    )
    return MxContraction(
        (), m, n, blocks * BLOCK, *sides, "float32", dtype, tensors_read=tuple(inputs), formats=(fa.name, fb.name)
    ).carried(made)


# ---- quantizing


def _quantize_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    (x,), f = types, format_of(attrs["format"])
    if x.ndim != 2 or "float" not in x.dtype or x.dtype == "float64":
        raise fail(f"mx_quantize of {x}: a matrix of floats of 16 or 32 bits")
    if not isinstance(x.shape[1], int) or x.shape[1] % BLOCK:
        raise fail(f"mx_quantize of {x}: its columns are no multiple of {BLOCK}")
    return [
        TensorType("uint8", (x.shape[0], f.stored(x.shape[1]))), TensorType("uint8", (x.shape[0], x.shape[1] // BLOCK))
    ]  # fmt: skip


def _quantize_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    return list(quantize(np.asarray(arrays[0]), attrs["format"]))


def magnitude(x: Any) -> Any:
    """The bits of a float32's magnitude, int32: in the order of the magnitudes, NaN and infinity above all."""
    return te.reinterpret("int32", x) & 0x7FFFFFFF


def exponent_of(top: Any, f: Format) -> Any:
    """A block's scale, int32, by the bits of its largest magnitude."""
    field = top >> _F32_MANTISSA
    return te.select(field == NO_SCALE, NO_SCALE, te.max(field - f.top, 0))


def code_of(y: Any, f: Format) -> Any:
    """The code of a float32, int32: to nearest, halves to even, no larger than the largest."""
    largest = te.const(float(f.numbers[f.largest]), "float32")
    if f.float8 is not None:
        y = te.min(te.max(y, te.const(0, "float32") - largest), largest)
        return te.reinterpret("uint8", y.astype(f.float8)).astype("int32")
    size = te.min(te.abs(y), largest)
    field = (te.reinterpret("int32", size) >> _F32_MANTISSA) - BIAS
    exponent = te.max(field, 1 - f.bias)
    unit = te.reinterpret("float32", (f.mantissa - exponent + BIAS) << _F32_MANTISSA)
    code = ((exponent + (f.bias - 1)) << f.mantissa) + te.nearbyint(size * unit).astype("int32")
    sign = (te.reinterpret("int32", y) >> (32 - f.bits)) & (1 << (f.bits - 1))
    return code | sign


@dataclass
class _Blocks:
    """A tensor's blocks of 32 along its last axis in te: their scales, and the elements' codes."""

    x: Tensor
    f: Format

    def __post_init__(self) -> None:
        self.shape = (*self.x.shape[:-1], static_shape(self.x)[-1] // BLOCK)
        r = te.reduce_axis((0, BLOCK), "r")
        top = te.compute(
            self.shape,
            lambda *i: te.max(magnitude(self.x(*i[:-1], i[-1] * BLOCK + r).astype("float32")), axis=r),
            name="top",
        )

        def scale_of(*i: Any) -> Any:
            return exponent_of(top(*i), self.f).astype("uint8")

        self.scale = te.compute(self.shape, scale_of, name="mx_scale")

    def code(self, *i: Any) -> Any:
        """int32."""
        own = self.scale(*i[:-1], te.indexdiv(i[-1], BLOCK)).astype("int32")
        inverse = power(te.max(2 * BIAS - own, 0))
        return te.select(own == NO_SCALE, 0, code_of(self.x(*i).astype("float32") * inverse, self.f))


@register("mx_quantize", OPAQUE, _quantize_type, host=_quantize_host, takes=1)
def _mx_quantize(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x [m, k] in blocks of 32 along k: elements [m, bytes] and scales [m, k / 32], as `tec.ir.microscaling.quantize`. Attribute: format."""
    f = format_of(attrs["format"])
    blocks = _Blocks(inputs[0], f)
    code = blocks.code

    def byte(i: Any, p: Any) -> Any:
        if f.bits == 8:
            return code(i, p).astype("uint8")
        if f.bits == 4:
            return (code(i, p * 2) | (code(i, p * 2 + 1) << 4)).astype("uint8")
        at, first = te.indexmod(p, 3), te.indexdiv(p, 3) * 4
        low, high = code(i, first + at), code(i, first + at + 1)
        return ((low >> (at * 2)) | (high << (6 - at * 2))).astype("uint8")

    made = [te.compute(outputs[0].shape, byte, name="mx_elements"), blocks.scale]
    return carry(Form("mx_quantize", (inputs[0],), tuple(outputs), {"format": f.name}), made)


def _round_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    (x,), f = types, format_of(attrs["format"])
    if x.ndim < 1 or x.dtype not in ("float32", "float16", "bfloat16"):
        raise fail(f"mx_round of {x}: floats of 16 or 32 bits")
    if not isinstance(x.shape[-1], int) or x.shape[-1] % BLOCK:
        raise fail(f"mx_round of {x} to {f.name}: its last axis is no multiple of {BLOCK}")
    return [x]


def _round_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x = np.asarray(arrays[0])
    return [dequantize(*quantize(x, attrs["format"]), attrs["format"]).astype(x.dtype)]


@register("mx_round", OPAQUE, _round_type, host=_round_host, traits=[FOLLOWS_16], takes=1)
def _mx_round(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x with each block of 32 along its last axis rounded to a microscaling format: what is left of it as numbers. Attribute: format. A product with packed weights of such a
    format takes elements and scales in place of it, where the target multiplies them (`graph.passes.packed`)."""
    f = format_of(attrs["format"])
    blocks = _Blocks(inputs[0], f)

    def body(*i: Any) -> Any:
        made = number(blocks.code(*i), f) * power(blocks.scale(*i[:-1], te.indexdiv(i[-1], BLOCK)))
        return made.astype(outputs[0].dtype)

    return [te.compute(outputs[0].shape, body, name="mx_round")]
