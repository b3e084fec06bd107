"""Weights of 4, 6 and 8 bits: codes that stand for (code - zero) * scale, with a scale, and maybe a zero point, for each block along one axis.

Codes may be those of a microscaling format (`tec.ir.microscaling`, attribute `format`): small floats, whose scales are bytes and which have no zero point.
Of 16 bits they are the weights themselves, floats of the type `format`, without scales: a product of float32 reads half of the bytes.

`dequantize` is what they mean, for any reader; `packed_matmul` a product with such a matrix that stays packed; `round_blocks` makes bytes of its other
operand where a model allows that. Codes are unsigned (a signed model's are moved up by half of the range), two of 4 bits to a byte, the first one low; four of 6 bits in three
bytes, of microscaling formats one behind the other, of integers in panels their lower four bits and their upper two apart (`Weights`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..ir.microscaling import format_of, pack, powers, unpack
from ..records import dataclass
from ..te import Tensor
from .contraction import Contraction, Operand
from .forms import Form, carry
from .matmul import accumulator
from .microscaling import number, power, stored_code
from .registry import COMPLEX, INJECTIVE, PACKED, SUMS, Attrs, TensorType, fail, register, static_shape

BITS = (4, 6, 8)
_QUAD = 4  # codes of 6 bits that have bytes of their own
MIDDLE = {4: 8.0, 8: 128.0}  # the code of 0 where no zero point is given, as MatMulNBits has it
ROUNDED = 127.0  # the largest magnitude of a block of x that is rounded to bytes
HALVES = ("float16", "bfloat16")  # formats of 16 bits
WORD_BITS = 32  # of what a GPU's thread reads of a row at once


def unpacked(codes: Any, bits: int, count: int) -> Any:
    """Codes of `bits` side by side in bytes along the last axis, one a byte: the first `count`."""
    codes = np.asarray(codes, np.uint8)
    if bits == 8:
        return codes[..., :count]
    if bits == 6:
        return unpack(codes, format_of("mxfp6"))[..., :count]
    wide = np.stack([codes & 15, codes >> 4], -1)
    return wide.reshape(*codes.shape[:-1], -1)[..., :count]


def packed(codes: Any, bits: int) -> Any:
    """The other way; an odd number is filled up with 0."""
    codes = np.asarray(codes, np.uint8)
    if bits == 8:
        return codes
    if bits == 6:
        filled = np.pad(codes, [*[(0, 0)] * (codes.ndim - 1), (0, -codes.shape[-1] % _QUAD)])
        return pack(filled, format_of("mxfp6"))
    codes = np.pad(codes, [*[(0, 0)] * (codes.ndim - 1), (0, codes.shape[-1] % 2)])
    return codes[..., ::2] | (codes[..., 1::2] << 4)


# ---- dequantize


def _stored(shape: Sequence[int], bits: int) -> tuple[int, ...]:
    count = -(-shape[-1] // _QUAD) * _QUAD if bits == 6 else shape[-1]
    return (*shape[:-1], -(-count * bits // 8))


def _check_blocks(op: str, types: Sequence[TensorType], bits: int, format: str = "") -> None:
    if format in HALVES:
        if bits != 16 or len(types) != 1 or types[0].dtype != "uint8":
            raise fail(f"{op} of {', '.join(map(str, types))} as {format} of {bits} bits")
        return
    if format:
        own = format_of(format).bits
        if bits not in ((own, 8) if own == 6 else (own,)) or [t.dtype for t in types] != ["uint8"] * 2:
            raise fail(f"{op} of {', '.join(map(str, types))} as {format} of {bits} bits")
        return
    if (
        (bits not in MIDDLE and not (bits == 6 and op == "packed_matmul"))
        or types[0].dtype != "uint8"
        or "float" not in types[1].dtype
    ):
        raise fail(f"{op} of codes {types[0]} of {bits} bits with scales {types[1]}")
    if len(types) > 2 and (types[2].shape != types[1].shape or not (types[2].dtype == "uint8" or "float" in types[2].dtype)):  # fmt: skip
        raise fail(f"{op}: zero points {types[2]} for scales {types[1]}")


def _dequantize_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    shape, axis, block = tuple(attrs["shape"]), attrs["axis"], attrs["block"]
    _check_blocks("dequantize", types, attrs["bits"], attrs.get("format", ""))
    want = [n if k != axis else -(-n // block) for k, n in enumerate(shape)]
    fits = len(want) == types[1].ndim and all(a in (b, 1) for a, b in zip(types[1].shape, want))
    if types[0].shape != _stored(shape, attrs["bits"]) or not fits or block < 1:
        raise fail(f"dequantize of {types[0]} as {shape} in blocks of {block} along {axis} with scales {types[1]}")
    return [TensorType(attrs["dtype"], shape)]


def _dequantize_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    shape, axis, block = outs[0].shape, attrs["axis"], attrs["block"]
    codes = unpacked(arrays[0], attrs["bits"], shape[-1])
    if attrs.get("format"):
        codes, arrays = format_of(attrs["format"]).numbers[codes], [arrays[0], powers(arrays[1])]
    codes = codes.astype(np.float32)
    zero = arrays[2] if len(arrays) > 2 else np.full_like(arrays[1], _zero(attrs))

    def spread(a: Any) -> Any:
        a = np.asarray(a).astype(np.float32)
        return a if a.shape[axis] == 1 else np.repeat(a, block, axis)[tuple(slice(0, n) for n in shape)]

    return [((codes - spread(zero)) * spread(arrays[1])).astype(arrays[1].dtype if outs[0].dtype == "bfloat16" else outs[0].dtype)]  # fmt: skip


def number_of(code: Any, format: str) -> Any:
    """The float32 that a code, an int32, stands for before zero point and scale."""
    return number(code, format_of(format)) if format else code.astype("float32")


def scale_of(stored: Any, format: str) -> Any:
    """A scale as float32."""
    return power(stored) if format else stored.astype("float32")


def _code(value: Any, place: Any, bits: int) -> Any:
    """The code at `place` of those that an unsigned integer holds."""
    if bits == 8 and value.dtype == "uint8":
        return value.astype("int32")
    return (value.astype("int32") >> (place * bits)) & ((1 << bits) - 1)


@register("dequantize", INJECTIVE, _dequantize_type, host=_dequantize_host, traits=[PACKED], takes=(2, 3))
def _dequantize(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """(code - zero) * scale. Inputs: codes, packed along the last axis; scales, of the shape of the result with one place a block of `block` along
    `axis`, or 1 where all share one; zero points alike (without: the number `zero`, or the middle of the range). Attributes: bits, shape, axis,
    block, dtype, zero; `format`: what codes are, where they are no integers; `rounds`: a product with it may round its other operand to bytes, a block at a time (`round_blocks`)."""
    codes, scale = inputs[:2]
    bits, axis, block, dtype = attrs["bits"], attrs["axis"], attrs["block"], attrs["dtype"]
    per, dims, form = 8 // bits, static_shape(scale), attrs.get("format", "")

    def code_at(*i: Any) -> Any:
        if bits == 6:
            return stored_code(lambda byte: codes(*i[:-1], byte), i[-1], format_of(form))
        last = i[-1] if per == 1 else te.indexdiv(i[-1], per)
        return _code(codes(*i[:-1], last), 0 if per == 1 else te.indexmod(i[-1], per), bits)

    def body(*i: Any) -> Any:
        code = number_of(code_at(*i), form)
        at = [0 if n == 1 else te.indexdiv(x, block) if k == axis else x for k, (x, n) in enumerate(zip(i, dims))]
        zero = inputs[2](*at).astype("float32") if len(inputs) > 2 else te.const(_zero(attrs), "float32")
        return ((code - zero) * scale_of(scale(*at), form)).astype(dtype)

    return [te.compute(outputs[0].shape, body, name="dequantize")]


def _zero(attrs: Attrs) -> float:
    if attrs.get("format"):
        return 0.0
    return float(attrs["zero"] if "zero" in attrs else MIDDLE[attrs["bits"]])


# ---- products


@dataclass(frozen=True)
class Weights:
    """A packed matrix of k by n as a kernel reads it. `panel` 0: rows along k for each n, scales [n, blocks]; the codes as words of 32 bits.
    Else panels of so many columns: [panels, k, bytes], for each k the codes of a panel, those of 4 bits with column c and column c + panel / 2 in
    a byte (one load, a mask and a shift make two vectors); scales [panels, blocks, panel], so that a panel reads one stream of each. `group`: so many codes of a column side by side, for
    dot products of bytes: [panels, k / group, bytes * group]. Integers of 6 bits, in panels alone: [panels, k / (2 * group), 3 * panel / 2 * group], for two groups the lower four
    bits of each as of codes of 4 bits, then the upper two bits of all four halves, the first group's first half lowest. `format`: what codes are, where they are no integers."""

    bits: int
    block: int
    panel: int
    k: int
    n: int
    zero: float
    group: int = 1
    format: str = ""

    @classmethod
    def of(cls, attrs: Attrs) -> Weights:
        group, format = attrs.get("group", 1), attrs.get("format", "")
        return cls(
            attrs["bits"], attrs["block"], attrs["panel"], attrs["depth"], attrs["columns"], _zero(attrs), group, format
        )  # fmt: skip

    @property
    def are_numbers(self) -> bool:
        """Whether codes are floats themselves, which nothing scales."""
        return self.format in HALVES

    @property
    def are_split(self) -> bool:
        """Whether upper bits of codes lie apart from the lower ones."""
        return self.bits == 6 and self.panel > 0

    @property
    def blocks(self) -> int:
        return self.k // self.block

    @property
    def panels(self) -> int:
        return -(-self.n // self.panel)

    @property
    def per(self) -> int:
        """Codes of a stored integer; of six bits those of three bytes."""
        if self.are_numbers:
            return 1
        if self.bits == 6:
            return 2 if self.panel else _QUAD
        return (8 if self.panel else WORD_BITS) // self.bits

    @property
    def codes_shape(self) -> tuple[int, ...]:
        if self.are_split:
            return (self.panels, self.k // (2 * self.group), 3 * self.panel // 2 * self.group)
        if self.bits == 6:
            return (self.n, self.k * 6 // 8)
        if not self.panel:
            return (self.n, self.k // self.per)
        return (self.panels, self.k // self.group, self.panel // self.per * self.group)

    @property
    def scales_shape(self) -> tuple[int, ...]:
        return (self.panels, self.blocks, self.panel) if self.panel else (self.n, self.blocks)

    @property
    def codes_dtype(self) -> str:
        if self.are_numbers:
            return self.format
        return "uint8" if self.panel or self.bits == 6 else "uint32"

    # ---- constants

    def store(self, codes: Any) -> Any:
        """Codes [n, k], one a byte, in this order; of 16 bits one an element of whichever type of 16 bits."""
        if self.are_numbers:
            if not self.panel:
                return np.ascontiguousarray(codes)
            whole = self._whole(np.asarray(codes)).reshape(self.panels, self.panel, self.k)
            return np.ascontiguousarray(whole.swapaxes(1, 2))
        if self.are_split:
            return self._store_split(codes)
        if self.bits == 6:
            return packed(codes, 6)
        if not self.panel:
            return np.ascontiguousarray(packed(codes, self.bits)).view("<u4")
        wide, half = self._whole(codes).reshape(self.panels, self.panel, self.k), self.panel // self.per
        stored = wide[:, :half]
        for j in range(1, self.per):
            stored = stored | wide[:, j * half : (j + 1) * half] << (self.bits * j)
        # A group moves as one number where there are numbers of its size: NumPy would copy it byte by byte.
        size = self.group if self.group in (1, 2, 4, 8) else 1
        grouped = np.ascontiguousarray(stored).view(f"u{size}").reshape(self.panels, half, -1, self.group // size)
        return np.ascontiguousarray(grouped.swapaxes(1, 2)).view(np.uint8).reshape(self.codes_shape)

    def _store_split(self, codes: Any) -> Any:
        """[panel, pair of groups, low 4 bits of each then the upper 2 of both] of codes [n, k]."""
        half, group = self.panel // 2, self.group
        # Panel, half, column, pair, which of it, code of a group.
        wide = self._whole(codes).reshape(self.panels, 2, half, -1, 2, group)
        low, high = wide & 15, wide >> 4
        low = (low[:, 0] | low[:, 1] << 4).transpose(0, 2, 3, 1, 4)
        high = (high[..., 0, :] | high[..., 1, :] << 4).transpose(0, 3, 1, 2, 4)  # panel, pair, half, column, code
        high = high[:, :, 0] | high[:, :, 1] << 2
        pairs = self.k // (2 * group)
        parts = low.reshape(self.panels, pairs, -1), high.reshape(self.panels, pairs, -1)
        return np.ascontiguousarray(np.concatenate(parts, -1))

    def _whole(self, rows: Any) -> Any:
        """Rows [n, ...] with zeros below them, as many as panels have."""
        missing = self.panels * self.panel - self.n
        return np.pad(rows, ((0, missing), (0, 0))) if missing else rows

    def store_blocks(self, values: Any) -> Any:
        """Scales or zero points [n, blocks] in this order."""
        if not self.panel:
            return np.ascontiguousarray(values)
        return np.ascontiguousarray(self._whole(values).reshape(self.panels, self.panel, self.blocks).swapaxes(1, 2))

    # ---- reading, in te and in loops

    def code(self, codes: Any, k: Any, n: Any) -> Any:
        """The code of an element, int32. `codes(index)` reads what is stored."""
        if self.are_split:
            (low, at_low), (high, at_high) = self.places(k, n)
            panel, pair = te.indexdiv(n, self.panel), te.indexdiv(k, 2 * self.group)
            low, high = (codes((panel, pair, byte)).astype("int32") for byte in (low, high))
            return ((low >> at_low) & 15) | ((high >> at_high & 3) << 4)
        if self.bits == 6:
            return stored_code(lambda byte: codes((n, byte)), k, format_of(self.format))
        if not self.panel:
            return _code(codes((n, te.indexdiv(k, self.per))), te.indexmod(k, self.per), self.bits)
        half = self.panel // self.per
        at, g = te.indexmod(n, self.panel), self.group
        row, byte = (k, te.indexmod(at, half)) if g == 1 else (te.indexdiv(k, g), te.indexmod(at, half) * g + te.indexmod(k, g))  # fmt: skip
        return _code(codes((te.indexdiv(n, self.panel), row, byte)), te.indexdiv(at, half), self.bits)

    def places(self, k: Any, n: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Where split codes have their lower and their upper bits: (byte of a pair of groups, its first bit) of each. k, n: expressions or NumPy's integers."""

        def div(a: Any, b: int) -> Any:
            return a // b if isinstance(a, (int, np.ndarray)) else te.indexdiv(a, b)

        def mod(a: Any, b: int) -> Any:
            return a % b if isinstance(a, (int, np.ndarray)) else te.indexmod(a, b)

        half, group = self.panel // 2, self.group
        column, which = mod(n, self.panel), div(mod(k, 2 * group), group)
        above, byte = div(column, half), mod(column, half) * group + mod(k, group)
        return (which * (half * group) + byte, above * 4), (byte + 2 * half * group, which * 4 + above * 2)

    def codes_at(self, stored: Any, n: Any, k: Any) -> Any:
        """The codes of rows `n` at places `k`, arrays of one shape, of what is stored, int64."""
        if self.are_split:
            (low, at_low), (high, at_high) = self.places(k, n)
            panel, pair = n // self.panel, k // (2 * self.group)
            low, high = (stored[panel, pair, byte].astype(np.int64) for byte in (low, high))
            return (low >> at_low & 15) | (high >> at_high & 3) << 4
        if self.panel:
            half = self.panel // self.per
            byte = n % half * self.group + k % self.group
            codes = stored[n // self.panel, k // self.group, byte].astype(np.int64) >> (
                n % self.panel // half * self.bits
            )
        elif self.bits == 6:
            return unpacked(stored, 6, self.k).astype(np.int64)[n, k]
        else:
            codes = stored[n, k // self.per].astype(np.int64) >> (k % self.per * self.bits)
        return codes & ((1 << self.bits) - 1)

    def number(self, codes: Any, k: Any, n: Any) -> Any:
        """The number of an element before its zero point and scale, float32."""
        if self.are_numbers:
            at = (te.indexdiv(n, self.panel), k, te.indexmod(n, self.panel)) if self.panel else (n, k)
            return codes(at).astype("float32")
        return number_of(self.code(codes, k, n), self.format)

    def of_block(self, values: Any, b: Any, n: Any) -> Any:
        """A block's scale or zero point for a column."""
        return values((te.indexdiv(n, self.panel), b, te.indexmod(n, self.panel)) if self.panel else (n, b))


def _packed_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    w, x = Weights.of(attrs), types[0]
    rounded = [t for t in types[-1:] if x.dtype == "int8"]
    if rounded and w.are_numbers:
        raise fail(f"packed_matmul of {x} in bytes and {w}")
    _check_blocks("packed_matmul", [TensorType("uint8", types[1].shape), *types[2 : len(types) - len(rounded)]], attrs["bits"], w.format)  # fmt: skip
    whole = w.block > 0 and w.k % w.block == 0 and w.k % w.per == 0 and (not w.panel or w.panel % w.per == 0)
    if w.bits == 6:  # of microscaling formats panels have them one a byte
        whole = whole and (not w.format and w.block % (2 * w.group) == 0 if w.panel else bool(w.format))
    if x.ndim != 2 or x.shape[1] != w.k or not ("float" in x.dtype or rounded) or not whole or w.block % w.group:
        raise fail(f"packed_matmul of {x} and {w}")
    if types[1] != TensorType(w.codes_dtype, w.codes_shape) or any(t.shape != w.scales_shape for t in types[2:3]):
        raise fail(f"packed_matmul: codes {' and scales '.join(map(str, types[1:3]))} for {w}")
    if rounded and rounded[0] != TensorType("float32", (x.shape[0], w.blocks)):
        raise fail(f"packed_matmul of {x} with scales {rounded[0]} for {w}")
    return [TensorType("float32" if rounded else x.dtype, (x.shape[0], w.n))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * int(attrs["depth"])


def _packed_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    w, x = Weights.of(attrs), np.asarray(arrays[0])
    if w.are_numbers:
        whole = arrays[1].swapaxes(1, 2).reshape(-1, w.k)[: w.n] if w.panel else arrays[1]
        wide = np.float64 if x.dtype == np.float64 else np.float32
        return [(x.astype(wide) @ whole.astype(wide).T).astype(x.dtype)]
    if x.dtype == np.int8:
        x, arrays = x * np.repeat(np.asarray(arrays[-1]), w.block, 1), arrays[:-1]
    k, n = np.meshgrid(np.arange(w.k), np.arange(w.n), indexing="ij")
    codes = w.codes_at(np.asarray(arrays[1]), n, k)
    at = (n // w.panel, k // w.block, n % w.panel) if w.panel else (n, k // w.block)
    zero = arrays[3][at].astype(np.float32) if len(arrays) > 3 else np.float32(w.zero)
    scales = np.asarray(arrays[2])[at]
    if w.format:
        codes, scales = format_of(w.format).numbers[codes], powers(scales)
    y = (codes.astype(np.float32) - zero) * scales.astype(np.float32)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    return [(x.astype(wide) @ y.astype(wide)).astype(x.dtype)]


@dataclass(frozen=True, eq=False)
class PackedContraction(Contraction):
    """A product whose second operand is packed: the tensors (x, codes, scales, maybe zero points), and how the codes lie."""

    tensors_read: tuple[Tensor, ...] = ()
    weights: Weights | None = None


@register("packed_matmul", COMPLEX, _packed_type, flops=_flops, traits=[SUMS], host=_packed_host, takes=(2, 5))
def _packed_matmul(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x [m, k] times a packed matrix of `depth` by `columns`, blocks of `block` along k. Inputs: x, codes, scales, zero points (without: the number
    `zero`, or the middle of the range), which lie as `Weights` says for `bits`, `panel` and `group`; and, of x in bytes, its scales [m, blocks]
    (`round_blocks`). Weights of 16 bits have no scales. Accumulates as matmul does, bytes in float32."""
    x, codes, *scales = inputs
    rounded = inputs[-1] if x.dtype == "int8" else None
    zeros = inputs[3] if len(inputs) > 3 + (rounded is not None) else None
    dtype = outputs[0].dtype
    w, acc = Weights.of(attrs), accumulator(dtype)
    r = te.reduce_axis((0, w.k), "k")

    def left(batch: Any, m: Any, k: Any) -> Any:
        return x(m, k) if rounded is None else x(m, k).astype(dtype) * rounded(m, te.indexdiv(k, w.block))

    def right(batch: Any, n: Any, k: Any) -> Any:
        number = w.number(lambda i: codes(*i), k, n)
        if w.are_numbers:
            return number.astype(dtype)
        b = te.indexdiv(k, w.block)
        zero = te.const(w.zero, "float32") if zeros is None else w.of_block(lambda i: zeros(*i), b, n)
        value = (number - zero.astype("float32")) * scale_of(w.of_block(lambda i: scales[0](*i), b, n), w.format)
        return value.astype(dtype)

    m, n = outputs[0].shape
    c = te.compute(
        (m, n), lambda i, j: te.sum(left((), i, r).astype(acc) * right((), j, r).astype(acc), axis=r), name="packed",
        tag="packed matmul", attrs={"run": w.per},
    )  # fmt: skip
    made = c if acc == dtype else te.compute((m, n), lambda *i: c(*i).astype(dtype), name="packed_cast")
    piece = max(1, 16 // (2 if "16" in dtype else 4))
    weights = Operand(right, dtype, not w.panel, min(piece, w.per), unpacked=not w.are_numbers)
    sides = Operand(left, dtype, True, piece if rounded is None else 1), weights
    return PackedContraction(
        (), m, n, w.k, *sides, acc, dtype, few_is_thin=True, tensors_read=tuple(inputs), weights=w
    ).carried(made)


# ---- the other operand as bytes


def _round_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    (x,), block = types, attrs["block"]
    if x.ndim != 2 or x.dtype != "float32" or block < 1 or not isinstance(x.shape[1], int) or x.shape[1] % block:
        raise fail(f"round_blocks of {x} in blocks of {block}")
    return [TensorType("int8", x.shape), TensorType("float32", (x.shape[0], x.shape[1] // block))]


def _round_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x = np.asarray(arrays[0]).reshape(*outs[1].shape, attrs["block"])
    scale = (np.abs(x).max(-1) / np.float32(ROUNDED)).astype(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return [np.rint(x * inverse[..., None]).astype(np.int8).reshape(outs[0].shape), scale]


@register("round_blocks", COMPLEX, _round_type, host=_round_host, takes=1)
def _round_blocks(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x [m, k] as bytes in blocks of `block` along k: [m, k], to nearest, and the blocks' scales [m, k / block], the largest magnitude over 127; 0 for a
    block of zeros."""
    (x,), block = inputs, attrs["block"]
    r = te.reduce_axis((0, block), "r")
    top = te.compute(outputs[1].shape, lambda i, b: te.max(te.abs(x(i, b * block + r)), axis=r), name="top")
    scale = te.compute(outputs[1].shape, lambda i, b: top(i, b) / te.const(ROUNDED, "float32"), name="block_scale")

    def body(i: Any, k: Any) -> Any:
        own = scale(i, te.indexdiv(k, block))
        inverse = te.select(own > 0, te.const(1, "float32") / own, te.const(0, "float32"))
        return te.nearbyint(x(i, k) * inverse).astype("int8")

    made = [te.compute(outputs[0].shape, body, name="rounded"), scale]
    return carry(Form("round_blocks", (x,), tuple(outputs), {"block": block}), made)
