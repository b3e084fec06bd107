"""Products of bytes with packed weights on a CPU whose vector units multiply bytes in fours (vpdpbusd, or vpmaddubsw and vpmaddwd): x is rounded to bytes
a block at a time.

A load of codes makes two vectors of 4 k by a column each, by a mask and a shift; four bytes of a row of x are broadcast against them. Sums of a block are
integers, begun with what the zero point takes away (-zero * sum(x)), and scaled once: scale of the weights * scale of x * sum.

`CpuRound` makes the bytes (`ops.packed.round_blocks`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from .... import te
from ....ir import Broadcast, build
from ....ir.dtype import with_lanes
from ....ops.forms import Form
from ....ops.packed import ROUNDED, PackedContraction, Weights
from ....target import Target
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ... import parallel
from ...cost import Footprint, on_cores
from ...group import Group
from ...layouts import is_narrow, packed_group
from ...parts import loops
from ...parts.counts import lanes_for, moved_bytes
from ...space import Choice
from . import packed

_CHUNK = 512  # codes of a column that are bytes of their own at once: 16 KiB for 32 columns
_ROUNDING = 2.0  # clocks of an element, in two passes over a block
_GROUP = 4  # bytes of a sum that an instruction multiplies


class CpuRound(loops.LoopForm):
    """Rows over threads; a block's largest magnitude in a vector, then its bytes."""

    template: ClassVar[str] = "cpu round to bytes"
    kind: ClassVar[str] = "round_blocks"
    stage = "round"

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        return super().match(group, target) if len(group.output_ops) == 2 else None

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return packed_group(target) == _GROUP

    def read_form(self) -> None:
        self.parameters = {"parallel": (True, False)}

    @property
    def default(self) -> Choice:
        rows, k = self.form.inputs[0].shape
        count = getattr(rows, "value", None)
        return self.choice(parallel=count is None or parallel.worth(_ROUNDING * count * getattr(k, "value", 1)))

    def sketch(self, choice: Choice) -> Footprint:
        rows, k = (getattr(n, "value", 1) for n in self.form.inputs[0].shape)
        return on_cores(_ROUNDING * rows * k, moved_bytes(self.group), choice["parallel"], rows)

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        (read,), (bytes_, scales), block = sources, results, self.form.attrs["block"]
        lanes = min(lanes_for("float32", self.target), block & -block)
        kind = "parallel" if choice["parallel"] else "serial"
        with ib.for_range(0, bytes_.shape[0], "i", kind=kind) as i, ib.for_range(0, scales.shape[1], "b") as b:
            _round_block(ib, read, bytes_, scales, i, b, block, lanes)


def _round_block(
    ib: IRBuilder, x: Any, out: BufferVar, scales: Any, i: Index, b: Index, block: int, lanes: int
) -> None:
    top = ib.allocate("float32", (lanes,), "top", scope="local")
    with ib.for_range(0, lanes, "lane", kind="vectorize") as lane:
        top[lane] = te.const(0, "float32")
    with ib.for_range(0, block // lanes, "c") as c, ib.for_range(0, lanes, "lane", kind="vectorize") as lane:
        top[lane] = te.maximum(top[lane], te.abs(x[i, b * block + c * lanes + lane]))
    half = lanes
    while half > 1:
        half //= 2
        with ib.for_range(0, half, "lane", kind="vectorize") as lane:
            top[lane] = te.maximum(top[lane], top[half + lane])
    scale = ib.let("scale", top[0] / te.const(ROUNDED, "float32"))
    scales[i, b] = scale
    zero = te.const(0, "float32")
    inverse = ib.let("inverse", te.select(scale > zero, te.const(1, "float32") / scale, zero))
    with ib.for_range(0, block // lanes, "c") as c, ib.for_range(0, lanes, "lane", kind="vectorize") as lane:
        at = b * block + c * lanes + lane
        out[i, at] = te.nearbyint(x[i, at] * inverse).astype("int8")


class CpuPackedBytes(packed.CpuPacked):
    """Panels of columns over threads; `rows` by a panel in registers where there are more than a few rows, the codes of a `chunk` unpacked for a `task`
    of rows."""

    template: ClassVar[str] = "cpu packed product of bytes"
    at_once, few_steps = _GROUP, 2
    block_steps = 24  # six instructions a vector of a block's sums, which are four multiply-adds each

    @staticmethod
    def takes(c: PackedContraction, w: Weights, target: Target) -> bool:
        is_whole = packed_group(target) == w.group == _GROUP and w.zero == int(w.zero)
        return is_whole and c.tensors_read[0].dtype == "int8"

    def read_form(self) -> None:
        super().read_form()
        sizes = (4, 2, 1, 6) if self.target.core.registers >= 32 else (2, 1)
        self.parameters = {**self.parameters, "rows": sizes, "chunk": (_CHUNK, 256, 1024)}

    def panels(self, *args: Any) -> packed.Panels:
        made = BytesProduct(self.contraction, is_narrow(self.target), *args)
        made.some = ((self.figures.count("rows_of_codes"), 4),)
        return made


class BytesProduct(packed.Panels):
    """The loops of one product. A vector is `lanes` columns, of codes 4 of each; sums of x over blocks are negated integers."""

    sums_dtype = "int32"
    few_clocks = 1.0
    many_clocks = 0.5

    def __init__(
        self,
        c: PackedContraction,
        narrow: bool,
        ib: IRBuilder,
        sources: list[BufferVar],
        out: BufferVar,
        lanes: int,
        choice: Choice,
    ):
        super().__init__(c, ib, sources[:-1], out, lanes, choice)
        self.narrow = narrow
        # Codes of 8 bits are signed where sums of two products must fit 16 bits, and their zero point moves with them.
        self.shift = 1 << (self.w.bits - 1) if narrow and self.w.bits == 8 else 0
        self.tile_dtype = "int8" if self.shift else "uint8"
        self.has_float_zeros = self.zero is not None and self.zero.dtype != "uint8"
        self.x_scale = sources[-1]
        self.wide = lanes * _GROUP  # bytes of a vector
        self.unit = self.w.block

    @property
    def in_turn(self) -> int:
        """Steps that lie together."""
        return 2 if self.w.are_split else 1

    def _unpacked(self, panel: Index, turn: Index, which: int, v: int) -> Any:
        """Four codes each of a vector's columns, of step `which` of those that lie together."""
        w, half = self.w, self.w.panel // self.w.per
        first, step = v * self.lanes, turn
        if w.are_split:
            (low, at_low), (high, at_high) = w.places(which * w.group, first)
            return self._bits(panel, turn, low, at_low, 4, 0) | self._bits(panel, turn, high, at_high, 2, 4)
        value = self.codes[panel, step, loops.neighbours(first % half * _GROUP, self.wide)]
        if self.shift:
            return build.reinterpret(with_lanes("int8", self.wide), value ^ self._all(self.shift, "uint8", self.wide))
        if w.per == 1:
            return value
        shift = first // half * w.bits
        if shift:
            value = value >> self._all(shift, "uint8", self.wide)
        return value & self._all((1 << w.bits) - 1, "uint8", self.wide) if shift + w.bits < 8 else value

    def _bits(self, panel: Index, turn: Index, byte: int, first: int, count: int, to: int) -> Any:
        """`count` bits of each byte of a vector from bit `first` on, moved to bit `to`."""
        value = self.codes[panel, turn, loops.neighbours(byte, self.wide)]
        if first > to:
            value = value >> self._all(first - to, "uint8", self.wide)
        elif first < to:
            value = value << self._all(to - first, "uint8", self.wide)
        return value & self._all(((1 << count) - 1) << to, "uint8", self.wide)

    @staticmethod
    def _all(value: int, dtype: str, lanes: int) -> Any:
        return Broadcast(build.const(value, dtype), lanes) if lanes > 1 else build.const(value, dtype)

    def _word(self, row: Index, k: Index) -> Any:
        """Four bytes of a row of x, for each lane."""
        word = build.reinterpret("int32", self.x[row, loops.neighbours(k, _GROUP)])
        return build.reinterpret(with_lanes("int8", self.wide), Broadcast(word, self.lanes))

    def _dot(self, acc: BufferVar, at: int, codes: Any, word: Any) -> None:
        here = loops.neighbours(at, self.lanes)
        acc[here] = build.call(self._op, codes, word, acc[here], dtype=with_lanes("int32", self.lanes))

    @property
    def _op(self) -> str:
        return "dot4_narrow" if self.narrow else "dot4"

    def _begin(self, acc: BufferVar, at: int, panel: Index, b: Index, v: int, taken: Any) -> None:
        """A vector of a block's sums: what a whole zero point takes away. taken: the block's sum of x, negated."""
        with self._lanes() as lane:
            if self.zero is None or self.has_float_zeros:
                number = 0 if self.zero is not None else int(self.w.zero) - self.shift
                acc[at + lane] = te.const(number, "int32") * taken if number else te.const(0, "int32")
            else:
                zero = self.zero[panel, b, v * self.lanes + lane].astype("int32")
                acc[at + lane] = (zero - self.shift) * taken if self.shift else zero * taken

    def _x_sum(self, row: Index, b: Index) -> Any:
        """The sum of a block of x, negated: dot products with ones, then over the lanes."""
        ib, w = self.ib, self.w
        lanes = min(self.lanes, w.block // _GROUP & -(w.block // _GROUP))
        part = ib.allocate("int32", (lanes,), "part", scope="local")
        here = loops.neighbours(0, lanes)
        wide = lanes * _GROUP
        part[here if lanes > 1 else 0] = self._all(0, "int32", lanes)
        with ib.for_range(0, w.block // wide, "c") as c:
            x = self.x[row, loops.neighbours(b * w.block + c * wide, wide)]
            at = here if lanes > 1 else 0
            ones, dtype = self._all(1, "uint8", wide), with_lanes("int32", lanes)
            part[at] = build.call(self._op, ones, x, part[at], dtype=dtype)
        total = part[0]
        for j in range(1, lanes):
            total = total + part[j]
        return te.const(0, "int32") - total

    def _scaled(
        self,
        total: Any,
        at: int,
        acc: BufferVar,
        a: int,
        panel: Index,
        b: Index,
        v: int,
        x_scale: Any,
        taken: Any,
    ) -> None:
        """A vector of a block's sums goes into the row's, less what a zero point that is no whole number takes away."""
        assert self.scale is not None
        with self._lanes() as lane:
            place = v * self.lanes + lane
            scale, value = self.scale[panel, b, place].astype("float32") * x_scale, acc[a + lane].astype("float32")
            if self.zero is not None and self.has_float_zeros:
                zero = self.zero[panel, b, place].astype("float32")
                value = value + (zero - te.const(self.shift, "float32") if self.shift else zero) * taken.astype(
                    "float32"
                )
            total[at + lane] = total[at + lane] + value * scale

    def _block(self, total: BufferVar, panel: Index, i: Any, b: Any, x_sums: Any) -> None:
        ib, w, lanes = self.ib, self.w, self.lanes
        acc = ib.allocate("int32", (w.panel,), "acc", scope="local")
        taken = ib.let("taken", x_sums[i * w.blocks + b])
        for v in range(self.vectors):
            self._begin(acc, v * lanes, panel, b, v, taken)
        turns, n = w.block // _GROUP // self.in_turn, self.in_turn
        with ib.for_range(0, turns, "turn") as turn:
            at = ib.let("at", b * turns + turn)
            for which in range(n):
                word = ib.let("word", self._word(i, (at * n + which) * _GROUP))
                for v in range(self.vectors):
                    self._dot(acc, v * lanes, self._unpacked(panel, at, which, v), word)
        own = ib.let("own", self.x_scale[i, b])
        for v in range(self.vectors):
            self._scaled(total, v * lanes, acc, v * lanes, panel, b, v, own, taken)

    def _prepare(self) -> None:
        self.x_sums = self._x_sums(self.m)

    def _direct(self, own: BufferVar, panel: Index, places: Sequence[Any]) -> None:
        ib, w, lanes, vectors, n = self.ib, self.w, self.lanes, self.vectors, self.in_turn
        turns = w.block // _GROUP // n
        with ib.for_range(0, w.blocks, "b") as b:
            acc = ib.allocate("int32", (len(places) * w.panel,), "acc", scope="local")
            sums = [ib.let("taken", self.x_sums[row * w.blocks + b]) for row in places]
            for r, v in itertools.product(range(len(places)), range(vectors)):
                self._begin(acc, (r * vectors + v) * lanes, panel, b, v, sums[r])
            with ib.for_range(0, turns, "turn") as turn:
                at = ib.let("at", b * turns + turn)
                for which in range(n):
                    codes = [ib.let("codes", self._unpacked(panel, at, which, v)) for v in range(vectors)]
                    for r, row in enumerate(places):
                        word = ib.let("word", self._word(row, (at * n + which) * _GROUP))
                        for v in range(vectors):
                            self._dot(acc, (r * vectors + v) * lanes, codes[v], word)
            self._scaled_rows(own, acc, panel, b, places, sums)

    def _scaled_rows(
        self, own: Any, acc: BufferVar, panel: Index, b: Index, places: Sequence[Any], sums: Sequence[Any]
    ) -> None:
        """A block's sums of all rows go into the rows' own."""
        for r, row in enumerate(places):
            x_scale = self.ib.let("x_scale", self.x_scale[row, b])
            for v in range(self.vectors):
                at = (r * self.vectors + v) * self.lanes
                self._scaled(own, at, acc, at, panel, b, v, x_scale, sums[r])

    def _chunk(
        self, tile: Any, sums: BufferVar, panel: Index, first: Index, count: Index, start: Index, depth: int
    ) -> None:
        ib, steps = self.ib, self.w.block // _GROUP
        n = self.in_turn
        with ib.for_range(0, depth * steps // n, "turn") as turn:
            for which, v in itertools.product(range(n), range(self.vectors)):
                here = ((turn * n + which) * self.vectors + v) * self.wide
                codes = self._unpacked(panel, start * (steps // n) + turn, which, v)
                tile[loops.neighbours(here, self.wide)] = codes

        def by(i0: Index, rows: int) -> None:
            self._tile(sums, i0, rows, lambda own: self._multiply(tile, own, panel, first, i0, rows, start, depth))

        at: Any = 0
        for size in dict.fromkeys((self.rows, 1)):  # what is left row by row: code of its own
            with ib.for_range(0, te.indexdiv(count - at, size), "tile") as t:
                by(at + t * size, size)
            at = ib.let("at", te.indexdiv(count, size) * size) if size > 1 else at

    def _multiply(
        self, tile: Any, own: Any, panel: Any, first: Index, i0: Index, rows: int, b0: Any, blocks: int
    ) -> None:
        ib, w, lanes, vectors, steps = self.ib, self.w, self.lanes, self.vectors, self.w.block // _GROUP
        with ib.for_range(0, blocks, "b") as b:
            acc = ib.allocate("int32", (rows * w.panel,), "acc", scope="local")
            sums = [ib.let("taken", self.x_sums[(first + i0 + r) * w.blocks + b0 + b]) for r in range(rows)]
            for r in range(rows):
                for v in range(vectors):
                    self._begin(acc, (r * vectors + v) * lanes, panel, b0 + b, v, sums[r])
            with ib.for_range(0, steps, "step") as step:
                at = ib.let("at", b * steps + step)
                codes = []
                for v in range(vectors):
                    here = loops.neighbours((at * vectors + v) * self.wide, self.wide)
                    codes.append(ib.let("codes", tile[here]))
                for r in range(rows):
                    word = ib.let("word", self._word(first + i0 + r, (b0 * steps + at) * _GROUP))
                    for v in range(vectors):
                        self._dot(acc, (r * vectors + v) * lanes, codes[v], word)
            self._scaled_rows(own, acc, panel, b0 + b, [first + i0 + r for r in range(rows)], sums)
