"""Codes of packed weights (`tec.ops.packed`) in a lane's registers, as `few_rows` and `few_rows_matrix` read them: 16 bytes of a row at a time, with their scale.

Codes become float16 two at a time: in the low bits of 1024.0 a code is 1024 + code, and four bits further up 1024 + 16 * code, so that a mask and one operation that
is exact make two numbers less their zero point; a second one multiplies them by the block's scale. Numbers of a microscaling format of 4 bits are shifted into a
float16's place. Where that is not exact (bfloat16, scales in float32) they go through float32. So pairs are the codes j and j + half of a word, and x is brought
into that order (`order`).
"""

from __future__ import annotations

from typing import Any

from .... import te
from ....ir import build
from ....ir.expr import Broadcast, Expr
from ....ir.microscaling import BIAS
from ....ops.packed import Weights, scale_of
from ....records import dataclass
from ....te import Tensor
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...parts import loops

WORDS = 4  # of codes that a lane loads at once: 16 bytes
FORMATS = ("", "mxfp4_e2m1")
_ONES = 0x64006400  # 1024.0 twice: the unit of a float16 there is 1
_WHOLE = 0x4B000000  # 2 ** 23: the unit of a float32 there is 1
_LIFT = 15  # 2 ** 14 makes numbers of an E2M1 code's bits in a float16's place; as much more, scales are exact down to 2 ** -23


def piece_of_codes(w: Weights) -> int:
    """Codes that a lane loads at once."""
    return WORDS * w.per


def is_served(w: Weights) -> bool:
    """Whether codes lie in words, a lane's load has one scale, and a row is whole loads."""
    if w.panel or w.bits not in (4, 8) or w.format not in FORMATS:
        return False
    return not w.block % piece_of_codes(w) and not w.k % piece_of_codes(w)


@dataclass(frozen=True)
class Packed:
    """How codes lie, and the tensors beside them."""

    weights: Weights
    scale: Tensor
    zero: Tensor | None = None

    @property
    def piece(self) -> int:
        """Codes that a lane loads at once."""
        return piece_of_codes(self.weights)

    @property
    def tensors(self) -> list[Tensor]:
        return [self.scale, *([self.zero] if self.zero is not None else [])]

    @property
    def bytes_a_weight(self) -> float:
        w = self.weights
        return w.bits / 8 + sum(2 if "16" in t.dtype else 4 if "32" in t.dtype else 1 for t in self.tensors) / w.block

    @property
    def order(self) -> list[int]:
        """Which code of a piece stands at each place of the numbers."""
        per, half = self.weights.per, self.weights.per // 2
        return [w * per + j + h * half for w in range(WORDS) for j in range(half) for h in range(2)]


class Codes:
    """The codes that are under way in a lane: `loads` pieces. sources: buffers of codes, scales and maybe zero points. in_pairs: numbers are asked for two
    at a time, as words (`pair`)."""

    def __init__(self, ib: IRBuilder, packed: Packed, dtype: str, loads: int, sources: list[BufferVar], in_pairs: bool):
        self.ib, self.packed, self.w, self.dtype = ib, packed, packed.weights, dtype
        self.codes, self.scale, *rest = sources
        self.zero = rest[0] if packed.zero is not None else None
        self.is_quick = in_pairs and dtype == "float16" and self._is_exact_in_halves()
        kept = "uint32" if self.is_quick else "float32"
        self.words = ib.allocate("uint32", (loads * WORDS,), "words", scope="local")
        self.scales = ib.allocate(kept, (loads,), "scales", scope="local")
        self.zeros = ib.allocate(kept, (loads,), "zeros", scope="local") if self.zero is not None else None
        self.both = ib.allocate(dtype, (2,), "both", scope="local") if in_pairs and not self.is_quick else None

    def _is_exact_in_halves(self) -> bool:
        w, p = self.w, self.packed
        if w.format:
            return True
        if p.zero is None:
            return p.scale.dtype == "float16" and w.zero == int(w.zero) and 0 <= w.zero < 1024
        return p.scale.dtype == "float16" and p.zero.dtype in ("float16", "uint8")

    def bring(self, load: int, line: Index, at: Index) -> None:
        """A piece of a row's codes, with its scale and zero point."""
        w = self.w
        block = at if w.block == self.packed.piece else te.indexdiv(at, w.block // self.packed.piece)
        zero = self.zero[line, block] if self.zero is not None else None
        self.put(load, loops.vector_at(self.codes, (line,), at * WORDS, WORDS), self.scale[line, block], zero)

    def put(self, load: int, words: Expr, scale: Expr, zero: Expr | None) -> None:
        """A piece into a lane's registers."""
        w = self.w
        loops.put_vector(self.ib, self.words, load * WORDS, words)
        if not self.is_quick:
            self.scales[load] = scale_of(scale, w.format)
            if self.zeros is not None and zero is not None:
                self.zeros[load] = zero.astype("float32")
            return
        self.scales[load] = _twice(self._half_power(scale) if w.format else scale)
        if self.zeros is not None and zero is not None:
            self.zeros[load] = _twice(zero.astype("float16"))

    @staticmethod
    def _half_power(scale: Expr) -> Any:
        """2 ** (scale - BIAS + 14 - _LIFT) as float16, of what it holds; NaN for a block without a scale. Smaller ones are 0, as are the block's numbers but for
        the last bits of the smallest float16; larger ones are the largest, whose numbers are infinite or nearly so."""
        s = scale.astype("int32")
        low = BIAS - 14 + _LIFT  # the byte of 1.0
        exponent = te.max(te.min(s - low, te.const(15, "int32")), te.const(-25, "int32"))
        normal = (exponent + 15) << 10
        small = te.const(1, "int32") << te.max(exponent + 24, te.const(0, "int32"))
        bits = te.select(exponent >= -14, normal, te.select(exponent >= -24, small, te.const(0, "int32")))
        bits = te.select(s == 255, te.const(0x7E00, "int32"), bits)
        return te.reinterpret("float16", bits.astype("uint16"))

    # ---- numbers

    def pair(self, load: int, i: int) -> Any:
        """Two numbers of a piece, those at places 2 i and 2 i + 1 of `order`, as a word."""
        half = self.w.per // 2
        word, j = self.words[load * WORDS + i // half], i % half
        if self.is_quick:
            return self._halves(load, word, j)
        assert self.both is not None
        for h in range(2):
            self.both[h] = self.number(load, word, j + h * half).astype(self.dtype)
        return build.reinterpret("uint32", loops.vector(self.both, 0, 2))

    def number(self, load: int, word: Expr, j: int) -> Any:
        """The number of a word's code j, float32."""
        code = self.code(word, j)
        return (code if self.zeros is None else code - self.zero_of(load)) * self.scale_of(load)

    def scale_of(self, load: int) -> Any:
        """A piece's scale, float32."""
        return self.scales[load]

    def zero_of(self, load: int) -> Any:
        """A piece's own zero point, float32."""
        assert self.zeros is not None
        return self.zeros[load]

    def code(self, word: Expr, j: int) -> Any:
        """A word's code j less the zero point that all have, float32."""
        w = self.w
        bits = (word >> (j * w.bits)) & te.const((1 << w.bits) - 1, "uint32")
        if w.format:
            half = ((bits & 7) << 9) | ((bits & 8) << 12)
            return te.reinterpret("float16", half.astype("uint16")).astype("float32") * te.const(
                float(1 << 14), "float32"
            )
        zero = 0.0 if self.zeros is not None else w.zero
        whole = te.reinterpret("float32", bits | te.const(_WHOLE, "uint32"))
        if zero != int(zero):
            return whole - te.const(float(1 << 23), "float32") - te.const(zero, "float32")
        return whole - te.const(float((1 << 23) + zero), "float32")

    def multiply(self, xs: list[list[Any]], first: int, rows: int, sums: BufferVar) -> None:
        """Add the products of x, [row of x][place in a piece], with the pieces of `rows` rows of weights, from load `first` on, to the sums [row of x, row]: a
        piece's products are multiplied by its scale once."""
        per, acc = self.w.per, sums.dtype
        for r in range(rows):
            load = first + r
            parts: list[Any] = [te.const(0, acc)] * len(xs)
            for i in range(self.packed.piece):
                w = self.code(self.words[load * WORDS + i // per], i % per)
                w = self.ib.let("w", w if self.zeros is None else w - self.zero_of(load))
                parts = [self.ib.let("part", p + x[i] * w) for x, p in zip(xs, parts)]
            for m, part in enumerate(parts):
                sums[m * rows + r] = sums[m * rows + r] + part * self.scale_of(load)

    def _halves(self, load: int, word: Expr, j: int) -> Any:
        w, scale = self.w, build.reinterpret("float16x2", self.scales[load])
        if w.format:
            lifted = build.reinterpret("float16x2", self._in_place(word, j)) * _both(float(1 << _LIFT))
            return build.reinterpret("uint32", lifted * scale)
        zero = 0.0 if self.zeros is not None else w.zero
        mask = (1 << w.bits) - 1
        higher = w.bits == 4 and j % 2  # taken where they lie, 16 times as large
        word = word >> ((j - higher) * w.bits) if j - higher else word
        both = mask << 16 | mask
        bits = (word & te.const(both << 4 if higher else both, "uint32")) | te.const(_ONES, "uint32")
        y: Any = build.reinterpret("float16x2", bits)
        if higher:
            y = te.fma(y, _both(1 / 16), _both(-(64.0 + zero)))
        else:
            y = y - _both(1024.0 + zero)
        if self.zeros is not None:
            y = y - build.reinterpret("float16x2", self.zeros[load])
        return build.reinterpret("uint32", y * scale)

    def _in_place(self, word: Expr, j: int) -> Any:
        """Two codes of E2M1, each with its sign, exponent and mantissa where a float16 has them."""
        at = 4 * j
        sign = word << (12 - at) if at < 12 else word
        rest = word << (9 - at) if at < 9 else word >> (at - 9)
        return (sign & te.const(0x80008000, "uint32")) | (rest & te.const(0x0E000E00, "uint32"))


def _twice(half: Expr) -> Any:
    bits = build.reinterpret("uint16", half).astype("uint32")
    return bits | (bits << 16)


def _both(value: float) -> Expr:
    return Broadcast(te.const(value, "float16"), 2)


def in_pairs(words: list[Any], order: list[int]) -> list[Any]:
    """Halves of words in another order, in which two that come together are both first or both second halves."""
    made = []
    for a, b in zip(order[::2], order[1::2]):
        low, high = words[a // 2], words[b // 2]
        if a % 2:
            made.append((low >> 16) | (high & te.const(0xFFFF0000, "uint32")))
        else:
            made.append((low & te.const(0xFFFF, "uint32")) | (high << 16))
    return made
