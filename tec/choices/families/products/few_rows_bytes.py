"""One row times packed weights of 4 bits in whole numbers, on NVIDIA's units for bytes: `few_rows_packed` with x in parts of a byte.

    x of a block = scale * (128 * high + low), whole numbers of a byte        made once a work-group, in shared memory
    sums of a block = codes . high, codes . low                               exact, in int32
    y += (128 * sum of high + sum of low - zero * sum of x) * scale of x * scale of w

To make float16 numbers of codes takes three instructions for two of them; bytes of codes are a mask of four. x has 15 bits below the block's largest number, where a float16
has 11 below its own.

An instruction has eight rows of x (columns of its second operand), and there is one. So they are the two parts of four blocks: a lane has 16 bytes of a row, which are one
block, and the four lanes of a row have four; rows 2 q and 2 q + 1 of x are zero but for lane q's own block. A sum of lane q's is then of its own block, whose scales it has.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .... import te
from ....ir import build
from ....ir.dtype import dtype_info
from ....ir.expr import Broadcast, Call, Expr, Shuffle
from ....ir.matrix import MatrixInstr, instructions
from ....ops.forms import Form
from ....target import Target
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...group import Group
from ...parts import loops
from ...space import Choice
from .few_rows_codes import WORDS
from .few_rows_matrix import SHARED_BYTES, SIDE, UNIT
from .few_rows_operands import PIECE_BYTES, Operands
from .few_rows_packed import PackedLoops, PackedRows

_BLOCK = 32  # codes: 16 bytes, what a lane loads at once
_LEAST = 256  # x is whole turns of a wavefront's 8 numbers a lane: lanes that share a block meet
_HIGHEST = 127 * 128  # of a number of x: its lower 7 bits are one byte, what is above them another
# A float32 whose last bit is 1, so that adding it rounds; what it is as a whole number.
_ROUNDING, _ROUNDING_BITS = 1.5 * 2**23, 0x4B400000
_BLOCK_WORDS = 16  # of a block's two parts in shared memory
_NIBBLES = 0x0F0F0F0F


def _is_served(o: Operands) -> bool:
    """Whether x is one row, and codes are of 4 bits in blocks of a lane's load with a scale and one zero point."""
    p = o.packed
    if p is None or o.m != 1 or o.k % _LEAST or p.zero is not None:
        return False
    w = p.weights
    return not w.format and w.bits == 4 and w.block == _BLOCK and w.zero == int(w.zero)


def _shared_bytes(o: Operands) -> int:
    """Of x: two parts, two scales a block, and zeros."""
    nbytes = o.k // _BLOCK * (4 * _BLOCK_WORDS + 8) + 4 * _BLOCK_WORDS
    return nbytes if nbytes <= SHARED_BYTES else 0


class ByteRows(PackedRows):
    """The same in whole numbers."""

    template: ClassVar[str] = "few packed rows by bytes"
    stage = "few_rows_bytes"

    @classmethod
    def unit_for(cls, o: Operands, target: Target) -> MatrixInstr | None:
        """The instruction of bytes with 16 rows of weights, of which a lane has 8 terms."""
        wanted = "int8", "int32", SIDE, 8, 32
        return next((i for i in instructions(target) if (i.in_dtype, i.acc_dtype, i.m, i.n, i.k) == wanted), None)

    @classmethod
    def takes(cls, o: Operands, target: Target) -> bool:
        known = target.chip.early_start and _is_served(o) and cls.unit_for(o, target) is not None
        return bool(known) and _shared_bytes(o) > 0

    def __init__(self, group: Group, target: Target, form: Form, *rest: Any):
        super().__init__(group, target, form, *rest)
        # Also of a gate: its rows and the columns' are as quick in tiles of their own.
        self.wanted_loads = self.figures["loads"]

    def _worth(self, choice: Choice) -> tuple[Any, ...]:
        """Of what fills the units the number of turns that was quickest: each work-group makes x's bytes for itself."""
        units, idle, *rest = super()._worth(choice)
        return units, idle, abs(choice["turns"] - self.figures["turns"]), *rest

    @property
    def shared_bytes(self) -> int:
        """Of x in shared memory."""
        return _shared_bytes(self.o)

    def issued(self, choice: Choice) -> float:
        """Instructions of a lane: codes as bytes, products, a block's scales, and its share of x."""
        tiles = self.weights(choice) // SIDE
        block = tiles * (2 * 3 * WORDS + WORDS + 10) + 6
        brought = self.o.k / (choice["waves"] * self.wave) * 16
        return float(int(choice["turns"]) * self.steps(choice) * block + brought)

    def kernel(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> None:
        ByteLoops(self, choice, ib, sources).run(out)


class ByteLoops(PackedLoops):
    """The loops of a work-group."""

    in_pairs = False

    @property
    def blocks(self) -> int:
        """Of x."""
        return self.o.k // _BLOCK

    def _allocate(self) -> None:
        ib, o, local = self.ib, self.o, self._local
        self._allocate_weights("uint32", 0)
        self.sums = local("float32", 2 * self.tiles, "sums")
        self._clear_sums()
        self.parts_of_x = local("uint32", 2 * WORDS, "parts_of_x")
        self.a, self.whole = local("uint32", 4, "a"), local("int32", self.unit.acc_elems, "whole")
        self.xs = ib.allocate("uint32", ((self.blocks + 1) * _BLOCK_WORDS,), "xs", scope="shared")
        self.x_scales = ib.allocate("float32", (2 * self.blocks,), "x_scales", scope="shared")
        self.numbers, self.wholes = local("float32", UNIT, "numbers"), local("int32", UNIT, "wholes")
        if o.scale is not None:
            self.squares = local("float32", 1, "squares")

    def _clear_sums(self) -> None:
        for e in range(2 * self.tiles):
            self.sums[e] = te.const(0, "float32")

    # ---- x

    def _share_x(self) -> None:
        """x of blocks as two bytes each, in the codes' order, their scales, and the sum of its squares."""
        ib, o, threads = self.ib, self.o, self.waves * self.wave
        if o.scale is not None:
            self.squares[0] = te.const(0, "float32")
        thread = ib.let("thread", self.mine * self.wave + self.lane)
        with ib.if_scope(thread < 2 * WORDS):
            self.xs[self.blocks * _BLOCK_WORDS + thread] = te.const(0, "uint32")
        units = o.k // UNIT
        for begin in range(0, units, threads):
            unit = ib.let("unit", thread + begin)
            with loops.where(ib, begin + threads <= units or unit < units):
                self._share(unit)
        if o.scale is not None:
            masks = loops.doublings(self.wave)
            self.squares[0] = loops.summed_over_lanes(ib, self.squares[0], masks, self.wave, "squares")

    def _share(self, unit: Index) -> None:
        """Eight numbers of x, those of a word of codes; four lanes have a block."""
        ib, numbers, wholes = self.ib, self.numbers, self.wholes
        self._read_unit(unit)
        largest: Any = te.abs(numbers[0])
        for i in range(1, UNIT):
            largest = Call("max_nan", (largest, te.abs(numbers[i])), "float32")
        largest = ib.let("largest", largest)
        for apart in (1, 2):
            other = te.call_intrin("float32", "shuffle_xor", largest, apart, self.wave)
            largest = ib.let("largest", Call("max_nan", (largest, other), "float32"))
        zero = te.const(0, "float32")
        inverse = ib.let("inverse", te.select(largest > zero, te.const(float(_HIGHEST), "float32") / largest, zero))
        total: Any = te.const(0, "int32")
        for i in range(UNIT):
            rounded = te.fma(numbers[i], inverse, te.const(_ROUNDING, "float32"))
            wholes[i] = te.reinterpret("int32", rounded) - _ROUNDING_BITS
            total = total + wholes[i]
        total = loops.summed_over_lanes(ib, ib.let("total", total), (1, 2), self.wave)
        block, word = ib.let("block_of_x", te.indexdiv(unit, WORDS)), ib.let("word", te.indexmod(unit, WORDS))
        high = [wholes[i] >> 7 for i in range(UNIT)]
        low = [wholes[i] & 127 for i in range(UNIT)]
        for part, of in enumerate((high, low)):
            at = block * _BLOCK_WORDS + part * (_BLOCK_WORDS // 2) + word * 2
            for k in range(2):
                self.xs[at + k] = _four(of[k::2])
        with ib.if_scope(word == 0):
            self.x_scales[block * 2] = largest * te.const(1 / _HIGHEST, "float32")
            zero_of_codes = int(self.o.packed.weights.zero) if self.o.packed is not None else 0
            self.x_scales[block * 2 + 1] = (total * zero_of_codes).astype("float32")

    def _read_unit(self, unit: Index) -> None:
        """Eight numbers of x as float32, by the norm's scale; their squares are counted."""
        ib, o = self.ib, self.o
        own = self._local(o.x.dtype, UNIT, "own")
        loops.put_vector(ib, own, 0, self._piece_of(self.x, 0, unit * UNIT))
        if o.scale is None:
            for i in range(UNIT):
                self.numbers[i] = own[i].astype("float32")
            return
        factors = self._local(o.scale.dtype, UNIT, "factors")
        n = min(UNIT, PIECE_BYTES // dtype_info(o.scale.dtype).bytes)
        for first in range(0, UNIT, n):
            loops.put_vector(ib, factors, first, loops.vector_at(self.scale, (), unit * UNIT + first, n))
        for i in range(UNIT):
            x = ib.let("x", own[i].astype("float32"))
            self.squares[0] = self.squares[0] + x * x
            self.numbers[i] = x * factors[i].astype("float32")

    # ---- products

    def _multiply(self, u: int, at: Expr, counts: Any) -> None:
        ib, unit, codes = self.ib, self.unit, self.codes
        assert codes is not None
        column, own = te.indexdiv(self.lane, 4), te.indexmod(self.lane, 4)
        there = at * _BLOCK_WORDS + te.indexmod(column, 2) * (_BLOCK_WORDS // 2)
        place = ib.let("place", te.select(own == te.indexdiv(column, 2), there, self.blocks * _BLOCK_WORDS))
        for i in range(0, 2 * WORDS, 4):
            loops.put_vector(ib, self.parts_of_x, i, loops.vector(self.xs, place + i, 4))
        scale, zero = (ib.let(n, self.x_scales[at * 2 + k]) for k, n in enumerate(("x_scale", "x_zero")))
        if counts is not None:
            scale = ib.let("x_scale", te.select(counts, scale, te.const(0, "float32")))
        for t in range(self.tiles):
            first = u * len(self.lines) + 2 * t
            loops.put_vector(ib, self.whole, 0, Broadcast(te.const(0, "int32"), unit.acc_elems))
            for w in range(WORDS):
                for r in range(2):
                    word = codes.words[(first + r) * WORDS + w]
                    self.a[r] = word & te.const(_NIBBLES, "uint32")
                    self.a[2 + r] = (word >> 4) & te.const(_NIBBLES, "uint32")
                a = build.reinterpret(unit.dtype("a"), loops.vector(self.a, 0, 4))
                b = build.reinterpret(unit.dtype("b"), loops.vector(self.parts_of_x, 2 * w, 2))
                acc = loops.vector(self.whole, 0, unit.acc_elems)
                loops.put_vector(ib, self.whole, 0, unit.call(a, b, acc))
            for r in range(2):
                value = (self.whole[2 * r] * 128 + self.whole[2 * r + 1]).astype("float32") - zero
                self.sums[2 * t + r] = self.sums[2 * t + r] + value * (codes.scale_of(first + r) * scale)

    # ---- results

    def _put(self, sums: BufferVar, squares: Any) -> None:
        """The sums of the four blocks of each row, and the wavefront's squares, for the other wavefronts."""
        ib = self.ib
        row, own = te.indexdiv(self.lane, 4), te.indexmod(self.lane, 4)
        for t in range(self.tiles):
            for r in range(2):
                total = loops.summed_over_lanes(ib, self.sums[2 * t + r], (1, 2), self.wave)
                with ib.if_scope(own == 0):
                    sums[self.mine * self.pitch + t * SIDE + row + 8 * r] = total
        if squares is not None:
            with ib.if_scope(self.lane == 0):
                squares[self.mine] = self.squares[0]


def _four(numbers: list[Any]) -> Any:
    """Four whole numbers as the bytes of a word, the first lowest."""
    return build.reinterpret("uint32", Shuffle(tuple(n.astype("int8") for n in numbers), (0, 1, 2, 3)))
