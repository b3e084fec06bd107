"""Few rows times a matrix whose rows lie along the sum, on a GPU: a decoder's step, which is as long as it takes to read its weights.

A wavefront has some columns of the result and a part of the sum. Its lanes load 16 bytes of each of its weights' rows side by side, several rows and steps at once, so that
enough bytes are under way for memory's rate; x comes from the caches, once for all columns. The lanes' sums meet by shuffles, those of wavefronts that share a sum in
shared memory, where what follows is computed: a norm's factor, a gate, an elementwise epilogue. Packed weights stay codes up to the registers (`few_rows_codes`).

    columns      of the result a wavefront, two rows of weights each where there is a gate
    waves        of a work-group; `split_k` of them share a sum
    ahead        steps whose loads are under way at once
    early        NVIDIA: the kernel begins before the one ahead of it has ended ("start"), and meanwhile loads its first weights
                 into registers ("held"); "" for neither
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from .... import te
from ....ir import Call, Expr
from ....ir.dtype import dtype_info
from ....ir.stmt import Evaluate
from ....ops.forms import Form
from ....ops.matmul import accumulator
from ....target import Target
from ....te import Tensor
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...cost import Footprint, Kernel
from ...group import Group
from ...parts import loops, needs
from ...parts.counts import moved_bytes
from ...parts.epilogues import FusedForm
from ...space import Choice
from .few_rows_codes import Codes
from .few_rows_operands import PIECE_BYTES, Operands, operands_of, piece_of

MOST_ROWS = 8  # of x: more are better off on matrix units
_MOST_LOADS = 16  # of weights under way in a lane: 64 registers
_MOST_SUMS = 64  # of a lane
_MOST_NUMBERS = 128  # of x that a lane has of a piece of packed weights


class FewRows(FusedForm):
    """See the module."""

    template: ClassVar[str] = "few rows"
    stage = "few_rows"
    is_ranked = True

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        """The space of a group around such a product, or around a projection."""
        found = operands_of(group, target)
        if found is None or not cls.takes(found[2], target):
            return None
        space = cls(group, target, *found)
        return space if space.epilogue is not None and next(space.drafts(), None) is not None else None

    @classmethod
    def takes(cls, o: Operands, target: Target) -> bool:
        """Whether it is for such operands."""
        return o.m <= MOST_ROWS and (o.packed is None or o.m * piece_of(o) <= _MOST_NUMBERS)

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor], operands: Operands):
        super().__init__(group, target, form, carriers)
        self.o, self.piece, self.wave = operands, piece_of(operands), target.wavefront_size
        self.pieces, self.wanted_loads = operands.k // self.piece, self.figures["loads"]
        # Lanes that have other parts of a row of weights; those that have weights of their own.
        self.along = self.lanes = self.wave
        # One row by whole sums of a wavefront (`projections`, `gpu_reductions`) takes an AMD GPU as long by its time model, or a little less.
        self.is_second = operands.m == 1 and not target.chip.early_start
        self.makes_all_rows = operands.rows is not None
        self.parameters = {
            "columns": (4, 2, 1, 8), "waves": self.threads_up_to_limit(8, 4, 16, 2, 1, each=self.wave), "split_k": (1, 2, 4, 8, 16), "ahead": (1, 2, 4, 8),
            "early": ("start", "") if target.chip.early_start else ("",),
        }  # fmt: skip
        # The kernel ahead may write weights that are no constants.
        if target.chip.early_start and self.can_be_held:
            self.parameters["early"] = ("held", "start", "")

    @property
    def can_be_held(self) -> bool:
        """Whether weights may come before the kernel ahead has ended."""
        packed = self.o.packed
        read = (self.o.w, *(packed.tensors if packed is not None else ()))
        return all(bool(t.op.attrs.get("constant")) for t in read)

    def steps(self, choice: Choice) -> int:
        """Of a wavefront, each a load of every row of its weights."""
        return int(-(-self._each(choice) // choice["ahead"]) * choice["ahead"])

    def _each(self, choice: Choice) -> int:
        """Pieces of the sum that a lane has."""
        return int(-(-self.pieces // (choice["split_k"] * self.along)))

    def weights(self, choice: Choice) -> int:
        """Rows of weights of a wavefront."""
        return int(choice["columns"]) * (2 if self.o.gate else 1)

    def loads(self, choice: Choice) -> int:
        """Of weights that are under way in a lane."""
        return self.weights(choice) * self.along // self.lanes * int(choice["ahead"])

    def sums(self, choice: Choice) -> int:
        """Of a lane."""
        return (self.weights(choice) + (self.o.scale is not None)) * self.o.m

    def issued(self, choice: Choice) -> float:
        """Instructions of a lane: what it does with its loads, and the sums' way through the wavefront."""
        sums, rows = self.weights(choice) * self.o.m, self.weights(choice)
        own = self.piece * (sums + rows + self.o.m * (3 if self.o.scale is not None else 1))
        return float(self.steps(choice) * own + 10 * sums)

    def lds_bytes(self, choice: Choice) -> int:
        """Of the parts of sums."""
        waves = int(choice["waves"])
        return 4 * waves * self.o.m * (self.weights(choice) + 1 + (self.o.scale is not None))

    def groups(self, choice: Choice) -> int:
        """Work-groups."""
        return -(-self.o.n // int(choice["columns"] * (choice["waves"] // choice["split_k"])))

    def why_not(self, choice: Choice) -> str | None:
        waves = choice["waves"]
        if waves % choice["split_k"]:
            return "wavefronts that share a sum are of one work-group"
        if self.loads(choice) > _MOST_LOADS:
            return "weights under way take too many registers"
        if self.sums(choice) > _MOST_SUMS:
            return "sums take too many registers"
        if (wrong := needs.shared_memory(self.lds_bytes(choice), self.target.lds_bytes)) is not None:
            return wrong
        if choice["ahead"] > self._each(choice) or choice["split_k"] * self.along > self.pieces + self.along - 1:
            return "wavefronts have less of the sum than they load at once"
        return None

    @property
    def default(self) -> Choice:
        """Work-groups for all units first, then as many loads of a lane at once as there are."""
        return min(self.drafts(), key=self._worth)

    def _worth(self, choice: Choice) -> tuple[Any, ...]:
        """What is best comes first: units with work, no idle lanes, sums of as few steps as were quickest, then the figures of a wavefront and a work-group."""
        f = self.figures
        waves = self.groups(choice) * choice["waves"] / self.target.machine.units
        return (
            -round(min(1.0, waves / f["waves_a_unit"]), 1),
            self._idle(choice),
            abs(math.log2(self.steps(choice) / self.wanted_steps)),
            self._apart(choice),
            abs(math.log2(self.weights(choice) / self.wanted_rows)),
            abs(math.log2(choice["waves"] / f["waves"])),
            choice["early"] != self._early,
        )

    def _apart(self, choice: Choice) -> float:
        """How far the loads under way are from as many as were quickest."""
        return abs(math.log2(self.loads(choice) / self.wanted_loads))

    @property
    def wanted_steps(self) -> float:
        """Steps of a wavefront that were quickest."""
        return self.figures["steps"]

    @property
    def wanted_rows(self) -> float:
        """Rows of weights of a wavefront that were quickest."""
        return self.figures["rows"]

    @property
    def _early(self) -> str:
        """Weights that are there by the time that x is shorten a kernel; of one that reads many each stands for less, and they take the rate from the kernel ahead."""
        if not self.target.chip.early_start:
            return ""
        few = self.o.weight_bytes <= self.figures["held_bytes"]
        return "held" if few and "held" in self.parameters["early"] else "start"

    def _idle(self, choice: Choice) -> float:
        """What a step's lanes do for nothing, of what they do."""
        done = self.steps(choice) * int(choice["split_k"]) * self.along
        return round(1 - self.pieces / done, 2)

    def sketch(self, choice: Choice) -> Footprint:
        o, steps, waves, moved = self.o, self.steps(choice), choice["waves"], moved_bytes(self.group)
        asked = moved + self.groups(choice) * waves * self.wave * steps * o.m * PIECE_BYTES * self.along / self.wave
        return Footprint((Kernel(
            self.groups(choice), waves * self.wave, memory_bytes=moved, asked_bytes=asked, issued=self.issued(choice), waits=1 + steps / choice["ahead"],
            barriers=1,
        ),))  # fmt: skip

    @property
    def operands(self) -> list[Tensor]:
        return self.o.tensors

    def kernel(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> None:
        RowLoops(self, choice, ib, sources).run(out)


class RowLoops:
    """The loops of a work-group."""

    in_pairs = False  # whether numbers are made of codes two at a time

    def __init__(self, space: FewRows, choice: Choice, ib: IRBuilder, sources: list[BufferVar]):
        self.space, self.o, self.ib, self.choice = space, space.o, ib, choice
        self.piece, self.wave = space.piece, space.wave
        self.columns, self.rows, self.ahead = choice["columns"], space.weights(choice), choice["ahead"]
        self.halves = 2 if self.o.gate else 1
        self.waves, self.parts = choice["waves"], choice["split_k"]
        self.square_parts = self.parts  # wavefronts, from the first on, that have a part of the squares of all rows
        self.steps = space.steps(choice)
        own = len(self.o.tensors)
        self.x, self.w = sources[:2]
        self.scale = sources[2] if self.o.scale is not None else None
        self.of_codes = [self.w, *sources[2 + (self.o.scale is not None) : own]]
        self.codes: Codes | None = None
        self.beside = sources[own:]
        self.is_ragged = self.steps * self.parts * space.along != space.pieces
        self.acc = accumulator(self.o.x.dtype)
        self.is_held = choice["early"] == "held"
        self.kept = 1  # steps whose pieces of x are there at once
        self.held_codes = 1  # times as many codes as are asked for at once
        self.covered = space.groups(choice) * (self.waves // self.parts) * self.columns  # columns of all work-groups

    def run(self, out: BufferVar) -> None:
        ib = self.ib
        groups = self.waves // self.parts
        with loops.launch(ib, (self.space.groups(self.choice),), (self.wave, self.waves)) as (block, tx, ty):
            if self.choice["early"]:
                ib.scope_attr(None, "early_start", None)
            self.lane, self.mine = ib.let("lane", tx + 0), ty
            self.part = ib.let("part", te.indexmod(ty, self.parts)) if self.parts > 1 else 0
            group = te.indexdiv(ty, self.parts) if self.parts > 1 else ty
            self.index = block
            self.block = ib.let("block", block * (groups * self.columns))
            first = ib.let("first", self.block + group * self.columns)
            self.lines = self._lines(first)
            self._allocate()
            if self.is_held:  # while the kernel ahead still runs, which does not write weights
                self._bring_weights(self._places_of(0), 0)
                self.ib.emit(Evaluate(Call("early_wait", (), "int32")))
            self._compute(out, groups)

    def _compute(self, out: BufferVar, groups: int) -> None:
        self._walk(self.steps // self.ahead)
        self._meet(out, groups)

    def _walk(self, chunks: int) -> None:
        """Chunk after chunk of `ahead` steps: its loads of weights, then its products."""
        if chunks > 1 or self.is_held:
            self._share_x()
        if self.is_held:
            self._multiply_steps(self._places_of(0))
            if chunks == 1:
                return
        with self.ib.for_range(1 if self.is_held else 0, chunks, "chunk") as chunk:
            places = self._places_of(chunk)
            self._bring_weights(places, 0)
            if chunks == 1:
                self._share_x()  # weights are under way meanwhile
            self._multiply_steps(places)

    def _multiply_steps(self, places: list[tuple[Any, Any]]) -> None:
        for u, (at, counts) in enumerate(places):
            self._multiply(u, at, counts)

    def _places_of(self, chunk: Index) -> list[tuple[Any, Any]]:
        return [self._place(chunk * self.ahead + u) for u in range(self.ahead)]

    def _bring_weights(self, places: list[tuple[Any, Any]], slot: int) -> None:
        """The weights of some steps, into registers from a step's on."""
        for u, (at, _) in enumerate(places):
            for r, line in enumerate(self.lines):
                self._bring((slot + u) * len(self.lines) + r, line, at)

    def _share_x(self) -> None:
        """Bring x to shared memory, where a template has it there."""

    def _bring(self, load: int, line: Expr, at: Expr) -> None:
        """A lane's piece of a row of weights into registers."""
        if self.codes is not None:
            self.codes.bring(load, line, at)
            return
        self._load(self.weights, load * self.piece, self.w, line, at)

    def _lines(self, first: Index) -> list[Expr]:
        """The weights' rows that the lane loads, of the wavefront's columns from `first` on."""
        return [self._line(first + c, half) for half in range(self.halves) for c in range(self.columns)]

    def _line(self, column: Index, half: Index) -> Expr:
        """The weights' row of a column, of one that there is in place of one beyond the last."""
        n = self.o.n
        row = column if self.covered == n else te.min(column, n - 1)
        return self.ib.let("row", row if isinstance(half, int) and half == 0 else row + half * n)

    def _place(self, step: Index) -> tuple[Any, Any]:
        """A lane's piece of the sum, and whether it counts."""
        at = (self.part * self.steps + step) * self.space.along + self._along()
        if not self.is_ragged:
            return self.ib.let("piece", at), None
        last = self.space.pieces
        at = self.ib.let("place", at)
        return self.ib.let("piece", te.min(at, last - 1)), at < last

    def _along(self) -> Expr:
        """Which of the lanes along a row of weights this one is."""
        return self.lane

    def _local(self, dtype: str, n: int, name: str) -> BufferVar:
        return self.ib.allocate(dtype, (n,), name, scope="local")

    def _allocate_weights(self, dtype: str, count: int) -> None:
        """Registers for loads of weights that are under way: numbers, or codes."""
        o, loads = self.o, self.ahead * len(self.lines)
        if o.packed is not None:
            self.codes = Codes(self.ib, o.packed, o.x.dtype, self.held_codes * loads, self.of_codes, self.in_pairs)
        else:
            self.weights = self._local(dtype, loads * count, "weights")

    def _allocate(self) -> None:
        o, local = self.o, self._local
        self._allocate_weights(o.w.dtype, self.piece)
        self.row = local(o.x.dtype, self.kept * o.m * self.piece, "row")
        self.sums = local(self.acc, o.m * self.rows, "sums")
        for e in range(o.m * self.rows):
            self.sums[e] = te.const(0, self.acc)
        if o.scale is not None:
            self.factors = local(o.scale.dtype, self.kept * self.piece, "factors")
            self.squares = local(self.acc, o.m, "squares")
            for e in range(o.m):
                self.squares[e] = te.const(0, self.acc)

    def _load(self, to: BufferVar, slot: int, buffer: Any, row: Any, at: Expr) -> None:
        """A piece of a row, 16 bytes at a time. row: None for a vector."""
        dtype = buffer.dtype
        n = min(self.piece, PIECE_BYTES // dtype_info(dtype).bytes)
        for first in range(0, self.piece, n):
            column = at * self.piece + first
            before = [0] * (len(buffer.buffer.shape) - (1 if row is None else 2))
            index = (*before, *(() if row is None else (row,)))
            loops.put_vector(self.ib, to, slot + first, loops.vector_at(buffer, index, column, n))

    def _row(self, m: Index) -> Any:
        """A row of x, of one that there is in place of one beyond the last."""
        if self.o.rows is None or (isinstance(m, int) and m == 0):
            return m
        return te.min(m, self.o.last_row)

    def _bring_x(self, u: int, at: Expr) -> None:
        """A step's pieces of x, and of the norm's scale."""
        for m in range(self.o.m):
            self._load(self.row, (u * self.o.m + m) * self.piece, self.x, self._row(m), at)
        if self.o.scale is not None:
            self._load(self.factors, u * self.piece, self.scale, None, at)

    def _step_of_x(self, u: int, at: Expr) -> int:
        """Which of the steps whose pieces of x are there is step u, whose pieces come now."""
        self._bring_x(0, at)
        return 0

    def _multiply(self, u: int, at: Expr, counts: Expr) -> None:
        """A step's products, of all rows of x."""
        o, acc = self.o, self.acc
        v = self._step_of_x(u, at)
        if self.codes is not None:
            xs = [[self.number_of_x(v, m, i, counts) for i in range(self.piece)] for m in range(o.m)]
            self.codes.multiply(xs, u * self.rows, self.rows, self.sums)
            return
        for i in range(self.piece):
            for m in range(o.m):
                x = self.number_of_x(v, m, i, counts)
                for r in range(self.rows):
                    w = self.weights[(u * self.rows + r) * self.piece + i].astype(acc)
                    self.sums[m * self.rows + r] = self.sums[m * self.rows + r] + x * w

    def number_of_x(self, v: int, m: int, i: int, counts: Any) -> Any:
        """A number of a row of x, 0 where its place does not count; its square is counted for the norm, by whose scale it is multiplied."""
        ib, acc = self.ib, self.acc
        x = self.row[(v * self.o.m + m) * self.piece + i].astype(acc)
        x = ib.let("x", x if counts is None else te.select(counts, x, te.const(0, acc)))
        if self.o.scale is None:
            return x
        self.squares[m] = self.squares[m] + x * x
        return ib.let("scaled", x * self.factors[v * self.piece + i].astype(acc))

    # ---- results

    @property
    def pitch(self) -> int:  # sums from row to row where they meet
        return self.rows

    def _over_lanes(self, sums: BufferVar, count: int) -> None:
        """Each of some sums of a lane becomes that of all lanes."""
        step = self.wave // 2
        while step:
            for e in range(count):
                other = te.call_intrin(self.acc, "shuffle_xor", sums[e], step, self.wave)
                sums[e] = sums[e] + other
            step //= 2

    def _put(self, sums: BufferVar, squares: Any) -> None:
        """A wavefront's sums into shared memory."""
        ib, o = self.ib, self.o
        count = o.m * self.rows
        self._over_lanes(self.sums, count)
        if squares is not None:
            self._over_lanes(self.squares, o.m)
        with ib.if_scope(self.lane == 0):
            for e in range(count):
                sums[self.mine * count + e] = self.sums[e]
            if squares is not None:
                for m in range(o.m):
                    squares[self.mine * o.m + m] = self.squares[m]

    def _meet(self, out: BufferVar, groups: int) -> None:
        """Sums, [wavefront, row, weights' row] in shared memory, are added up and ended by all threads."""
        ib, o, acc = self.ib, self.o, self.acc
        sums = ib.allocate(acc, (self.waves * o.m * self.pitch,), "parts", scope="shared")
        squares: Any = None
        if o.scale is not None:
            squares = ib.allocate(acc, (self.waves * o.m,), "square_parts", scope="shared")
        self._put(sums, squares)
        width = groups * self.columns
        total, threads = o.m * width, self.waves * self.wave
        thread = self.mine * self.wave + self.lane
        for begin in range(0, total, threads):
            e = ib.let("e", thread + begin)
            inside = [e < total] * (begin + threads > total)
            m, column = te.indexdiv(e, width), ib.let("column", te.indexmod(e, width))
            inside += [self.block + column < o.n] * (self.covered != o.n)
            if o.rows is not None:
                inside.append(m < o.rows.asexpr())
            with loops.where(ib, *inside):
                self._end(out, sums, squares, ib.let("m", m), column)

    def _end(self, out: BufferVar, sums: BufferVar, squares: Any, m: Index, column: Expr) -> None:
        """A result: the parts of its sum together, scaled and shifted, to where it is stored."""
        ib, o, acc = self.ib, self.o, self.acc
        group, own = te.indexdiv(column, self.columns), te.indexmod(column, self.columns)

        def total(half: int) -> Expr:
            at = (group * self.parts * o.m + m) * self.pitch + half * self.columns + own
            y = sums[at]
            for p in range(1, self.parts):
                y = y + sums[at + p * o.m * self.pitch]
            return y

        factor: Any = None
        if squares is not None:
            square = squares[m]
            for p in range(1, self.square_parts):
                square = square + squares[p * o.m + m]
            factor = ib.let("factor", te.rsqrt(square * te.const(1.0 / o.k, acc) + te.const(o.eps, acc)))

        def normed(y: Expr) -> Expr:
            return y if factor is None else y * factor

        y = ib.let("y", normed(total(0)))
        if o.gate:
            y = ib.let("gated", y * te.sigmoid(y) * normed(total(1)))
        shape = self.space.form.outputs[0].shape
        place = (*[0] * (len(shape) - 2), m, self.block + column)
        out[place] = self.space.ended(place, y.astype(o.out_dtype), self.beside)
