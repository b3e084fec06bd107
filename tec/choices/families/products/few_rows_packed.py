"""Few rows times packed weights (`ops.packed`) on matrix units: `few_rows_matrix` with codes in place of numbers, from the first row on.

Making a number of a code costs as much as a product on vector units, and the matrix unit's products are beside that for nothing. x, in the codes' order and with a norm's
scale, is brought to shared memory once for all wavefronts, where it fits. Codes that are constants may be loaded, with their scales and zero points, before the kernel ahead
has ended.

With `turns` a work-group has several groups of columns one after the other: x is brought once, and while the sums of one are added up, the codes of the next two are under way.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .... import te
from ....ir import build
from ....ir.dtype import dtype_info
from ....ir.expr import Expr
from ....ops.forms import Form
from ....target import Target
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...group import Group
from ...parts import loops
from ...rules import figures
from ...space import Choice
from .few_rows_codes import WORDS, in_pairs
from .few_rows_matrix import (
    SHARED_BYTES,
    SIDE,
    UNIT,
    FewRowsMatrix,
    MatrixLoops,
    piece_pitch,
    row_pitch,
    terms_of,
)
from .few_rows_operands import PIECE_BYTES, Operands, piece_of

_MOST_WORDS = 64  # of codes under way in a lane


class PackedRows(FewRowsMatrix):
    """The same of packed weights."""

    template: ClassVar[str] = "few packed rows"
    stage = "few_packed_rows"
    can_prefetch: ClassVar[bool] = False  # nobody has tried it with codes

    @classmethod
    def takes(cls, o: Operands, target: Target) -> bool:
        most = figures.of(cls.template, target).count("most_rows")
        if o.packed is None or cls.unit_for(o, target) is None or o.m > most:
            return False
        return o.scale is None or _shared_bytes(o) > 0  # a norm is of rows in shared memory

    def __init__(self, group: Group, target: Target, form: Form, *rest: Any):
        super().__init__(group, target, form, *rest)
        self.is_second = self.is_second and "contraction" not in form.attrs
        if not target.chip.early_start:  # of a wavefront's few steps all at once
            self.parameters["ahead"] = (4, 8, 2, 1, 7, 3, 5, 6)
        self.parameters["turns"] = (1, 2, 3, 4) if target.chip.early_start and self.shared_bytes else (1,)
        if self.parameters["columns"][0] < SIDE:
            # A tile has columns and their gates: a fifth quicker than two tiles, which have twice the loads under way.
            self.wanted_loads /= 2

    @property
    def wanted_steps(self) -> float:
        """By how many codes of a row a lane has."""
        return self.figures["codes"] / self.piece

    def groups(self, choice: Choice) -> int:
        """Work-groups."""
        return -(-super().groups(choice) // int(choice["turns"]))

    def why_not(self, choice: Choice) -> str | None:
        if (wrong := super().why_not(choice)) is not None:
            return wrong
        if choice["turns"] > 1:
            if self.steps(choice) != choice["ahead"]:
                return "turns are of sums whose loads are all under way at once"
            if 2 * self.loads(choice) * WORDS > _MOST_WORDS:
                return "codes of two turns take too many registers"
            if self.groups(choice) < self.target.machine.units:
                return "turns leave units without work"
        return None

    def _worth(self, choice: Choice) -> tuple[Any, ...]:
        """AMD's chips: as many columns as the rows of x are worth, where that leaves units enough with work: each work-group reads all of x."""
        f = self.figures
        filled = "wide" in f and self.o.n >= f["filled"] * self.target.machine.units * f["wide"]
        if not filled or self.o.m <= f["few_rows"]:
            return super()._worth(choice)
        apart = choice["waves"] // choice["split_k"]
        wide, waves = math.log2(self.weights(choice) / f["wide"]), math.log2(choice["waves"] / f["waves"])
        return apart, abs(wide), self._idle(choice), abs(waves), abs(choice["ahead"] - f["at_once"])

    @property
    def shared_bytes(self) -> int:
        """Of x in shared memory; 0 where it is read from where it lies."""
        return _shared_bytes(self.o)

    def lds_bytes(self, choice: Choice) -> int:
        """Of the parts of sums, and of x."""
        return super().lds_bytes(choice) + self.shared_bytes

    def issued(self, choice: Choice) -> float:
        """Instructions of a lane: numbers of codes, products, and its share of x."""
        tiles = self.weights(choice) // SIDE
        numbers = tiles * self.piece * 2 * 1.75  # a tile has two rows in a lane
        products = tiles * self.row_tiles * (self.piece // terms_of(self.unit))
        x = self.row_tiles * self.piece // (UNIT if self.shared_bytes else 1)
        brought = self.o.m * self.o.k / (choice["waves"] * self.wave) * (3 if self.shared_bytes else 0)
        return float(self.steps(choice) * (numbers + products + x) + brought)

    def kernel(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> None:
        PackedLoops(self, choice, ib, sources).run(out)


def _shared_bytes(o: Operands) -> int:
    nbytes = o.m * row_pitch(o.k, piece_of(o))
    return nbytes if nbytes <= SHARED_BYTES else 0


class PackedLoops(MatrixLoops):
    """The loops of a work-group."""

    def __init__(self, space: PackedRows, choice: Choice, ib: IRBuilder, sources: list[BufferVar]):
        super().__init__(space, choice, ib, sources)
        self.turns = int(choice["turns"])
        if self.turns > 1:
            self.held_codes = 2
            self.covered *= self.turns

    # ---- turns

    def _compute(self, out: BufferVar, groups: int) -> None:
        if self.turns == 1:
            super()._compute(out, groups)
            return
        ib, width, places = self.ib, groups * self.columns, self._places_of(0)
        turns = [(self.block, self.lines)]
        for t in range(1, self.turns):
            first = ib.let("block", (self.index + t * self.space.groups(self.choice)) * width)
            own = te.indexdiv(self.mine, self.parts) if self.parts > 1 else self.mine
            turns.append((first, self._lines(ib.let("first", first + own * self.columns))))
        for t in range(self.is_held, 2):
            self._bring_turn(turns, t, places)
        self._share_x()
        for t in range(self.turns):
            self.block, self.lines = turns[t]
            if t:
                self._clear_sums()
            for u, (at, counts) in enumerate(places):
                self._multiply(t % 2 * self.ahead + u, at, counts)
            self._bring_turn(turns, t + 2, places)
            self.block, self.lines = turns[t]
            self._meet(out, groups)

    def _bring_turn(self, turns: list[tuple[Any, list[Expr]]], t: int, places: list[tuple[Any, Any]]) -> None:
        """The codes of a turn, into the registers of those two turns before."""
        if t < len(turns):
            self.lines = turns[t][1]
            self._bring_weights(places, t % 2 * self.ahead)

    # ---- x

    def _share_x(self) -> None:
        """x in the codes' order, by the norm's scale, and the sums of its squares, in shared memory: 16 bytes a thread at once."""
        if not self.shared:
            return
        ib, o, threads = self.ib, self.o, self.waves * self.wave
        units = o.k // UNIT
        words = self._local("uint32", UNIT // 2, "unit")
        for m in range(o.m):
            self.squares[m] = te.const(0, "float32")
            for begin in range(0, units, threads):
                unit = ib.let("unit", self.mine * self.wave + self.lane + begin)
                with loops.where(ib, begin + threads <= units or unit < units):
                    self._share_unit(m, unit, words)
            if o.scale is not None:
                masks = reversed([*loops.doublings(self.wave)])
                self.squares[m] = loops.summed_over_lanes(ib, self.squares[m], masks, self.wave, "squares")

    def _share_unit(self, m: int, unit: Index, words: BufferVar) -> None:
        ib, o = self.ib, self.o
        numbers = self._piece_of(self.x, m, unit * UNIT)
        if o.scale is not None:
            numbers = self._scaled(m, unit, numbers)
        loops.put_vector(ib, words, 0, self._words(numbers))
        natural = [ib.let("two", words[i]) for i in range(UNIT // 2)]
        for k, word in enumerate(in_pairs(natural, self.order[:UNIT])):
            words[k] = word
        piece, i = te.indexdiv(unit * UNIT, self.piece), te.indexmod(unit * UNIT, self.piece)
        place = m * (row_pitch(o.k, self.piece) // 2) + piece * (piece_pitch(self.piece) // 2) + i
        made = build.reinterpret(f"{o.x.dtype}x{UNIT}", loops.vector(words, 0, UNIT // 2))
        loops.put_vector(ib, self.xs, place, made)

    def _scaled(self, m: int, unit: Index, numbers: Expr) -> Any:
        """A unit times the norm's scale; its squares are counted."""
        ib, o = self.ib, self.o
        assert o.scale is not None
        own, factors = self._local(o.x.dtype, UNIT, "own"), self._local(o.scale.dtype, UNIT, "factors")
        loops.put_vector(ib, own, 0, numbers)
        n = min(UNIT, PIECE_BYTES // dtype_info(o.scale.dtype).bytes)
        for first in range(0, UNIT, n):
            loops.put_vector(ib, factors, first, loops.vector_at(self.scale, (), unit * UNIT + first, n))
        for i in range(UNIT):
            x = ib.let("x", own[i].astype("float32"))
            self.squares[m] = self.squares[m] + x * x
            own[i] = (x * factors[i].astype("float32")).astype(o.x.dtype)
        return loops.vector(own, 0, UNIT)
