"""Few rows times a matrix whose rows lie along the sum, on matrix units: from some rows on the vector units are busier with sums than memory with weights.

As `few_rows`, but a wavefront's columns are tiles of the instruction's rows (a tile of packed weights with a gate may have those of half as many columns and of
their gates), and its lanes hold 16 bytes of a row of weights as the unit wants them: which k stands where is no
matter to a sum, so x is loaded in the same order, and weights go from memory to registers and nowhere else. With `prefetch` the loads of the next steps, of x too, are under way while a wavefront multiplies: few work-groups fill a chip, and memory
would wait for each of them at the same times. Packed weights are such products from the first row
on: making a number of a code costs as much as a product on vector units, and the matrix unit's products are beside that for nothing. Their x, in the codes' order and
with a norm's scale, is brought to shared memory once for all wavefronts, where it fits.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .... import te
from ....ir import IntImm, build
from ....ir.dtype import dtype_info
from ....ir.expr import Broadcast, Expr
from ....ir.matrix import MatrixInstr, instructions
from ....ops.forms import Form
from ....ops.packed import Weights
from ....target import Target
from ....te import Tensor
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...group import Group
from ...parts import loops
from ...rules import figures
from ...space import Choice
from . import few_rows
from .few_rows import FewRows, RowLoops
from .few_rows_codes import in_pairs, is_served, piece_of_codes
from .few_rows_operands import LEAST_COLUMNS, LEAST_DEPTH, PIECE_BYTES, TYPES, Operands, piece_of

# With a norm in it: each work-group reads all of x, and of more rows a kernel for the norm and tiles take less.
FUSED_ROWS = 16
# Rows of weights beyond which norms of a few rows, which each work-group makes for itself, take longer than a kernel of their own: a vocabulary's do, a gate's do not.
FUSED_COLUMNS = 24_000
LEAST_ROWS = 5  # below, vector units keep up with memory
_MOST_REGISTERS = 255  # of a lane, by the encoding of NVIDIA's instructions
_REGISTERS_BESIDE = 16  # addresses and what an instruction takes; with 16 wavefronts loads of 112 registers ran as they should, of 192 spilled
SHARED_BYTES = 48 << 10  # of x: more would leave a unit too few work-groups
UNIT = 8  # numbers of x, 16 bytes, that a thread brings at once
SIDE = 16  # columns of a tile
_HALVES = ("float16", "bfloat16")


def unit_of(target: Target, dtype: str, piece: int = UNIT) -> MatrixInstr | None:
    """The instruction of 16-bit floats that has 16 columns of weights and the fewest rows of x, with at most `piece` terms, as many as a lane's load has; None
    where the chip has none."""
    if dtype not in _HALVES:
        return None
    found = [
        i for i in instructions(target)
        if (i.in_dtype, i.acc_dtype, i.m, i.blocks) == (dtype, "float32", SIDE, 1) and terms_of(i) <= piece
    ]  # fmt: skip
    return min(found, key=lambda i: (i.n, -i.k), default=None)


def terms_of(i: MatrixInstr) -> int:
    """Of a row of weights in one lane's vector."""
    return i.a_elems // len({int(i.coords("a", 0, e)[1]) for e in range(i.a_elems)})


def most_rows(target: Target, dtype: str, depth: int, columns: int, weights: Weights | None = None) -> int:
    """Rows of x up to which a product with `columns` rows of weights of `depth` elements may have a norm and a gate in its kernel; 1 where other templates serve it.
    weights: of a packed matrix."""
    if weights is not None:
        served = depth >= LEAST_DEPTH and columns >= LEAST_COLUMNS and is_served(weights)
        if not served or unit_of(target, dtype, piece_of_codes(weights)) is None or not target.chip.early_start:
            return 1
        return max(1, SHARED_BYTES // row_pitch(depth, piece_of_codes(weights)))
    served = dtype in TYPES and depth % (PIECE_BYTES // dtype_info(dtype).bytes) == 0
    if not served or depth < LEAST_DEPTH or columns < LEAST_COLUMNS:
        return 1
    if unit_of(target, dtype) is None:
        return few_rows.MOST_ROWS
    return LEAST_ROWS - 1 if target.chip.early_start and columns > FUSED_COLUMNS else FUSED_ROWS


def piece_pitch(piece: int) -> int:
    """Bytes from piece to piece of x in shared memory: lanes that read four of them side by side reach different banks."""
    return 2 * piece + 16


def row_pitch(depth: int, piece: int) -> int:
    """Bytes from row to row: half of the banks further."""
    nbytes = depth // piece * piece_pitch(piece)
    return nbytes + (64 - nbytes) % 128


class FewRowsMatrix(FewRows):
    """See the module."""

    template: ClassVar[str] = "few rows by matrix units"
    stage = "few_rows_matrix"
    can_prefetch: ClassVar[bool] = True

    @classmethod
    def unit_for(cls, o: Operands, target: Target) -> MatrixInstr | None:
        """The instruction that multiplies such operands."""
        return unit_of(target, o.x.dtype, piece_of(o))

    @classmethod
    def takes(cls, o: Operands, target: Target) -> bool:
        # Of a class of sizes one kernel serves one row and many.
        least, most = LEAST_ROWS if o.rows is None else 1, figures.of(cls.template, target).count("most_rows")
        return o.packed is None and cls.unit_for(o, target) is not None and least <= o.m <= most

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor], operands: Operands):
        super().__init__(group, target, form, carriers, operands)
        unit = self.unit_for(operands, target)
        assert unit is not None
        self.unit = unit
        self.along, self.lanes = unit.k // terms_of(unit), self.wave // unit.copies
        self.row_tiles = -(-operands.m // unit.n)
        self.parameters["columns"] = (SIDE, 2 * SIDE, 4 * SIDE)
        # Of numbers behind a norm each wavefront has twice the rows; AMD's chips nobody has tried.
        if operands.gate and operands.packed is not None and target.chip.early_start:
            self.parameters["columns"] = (SIDE // 2, *self.parameters["columns"])
        if self.can_prefetch:
            self.parameters["prefetch"] = (True, False)

    def sums(self, choice: Choice) -> int:
        """Of a lane."""
        return self.weights(choice) // SIDE * self.row_tiles * self.unit.acc_elems

    @property
    def wanted_rows(self) -> float:
        """Twice as many where each wavefront multiplies x by a norm's scale and squares it."""
        own = self.o.scale is not None and self.o.packed is None
        return super().wanted_rows * (self.figures["normed"] if own else 1)

    def registers(self, choice: Choice) -> int:
        """Of a lane, with all loads of two chunks under way."""
        steps = 2 * int(choice["ahead"])
        weights = self.weights(choice) * self.along // self.wave * PIECE_BYTES
        scale = PIECE_BYTES * dtype_info(self.o.scale.dtype).bytes // 2 if self.o.scale is not None else 0
        return steps * (weights + self.row_tiles * PIECE_BYTES + scale) // 4 + self.sums(choice)

    def why_not(self, choice: Choice) -> str | None:
        if choice.get("prefetch"):
            if self.steps(choice) == choice["ahead"]:
                return "all loads are under way at once as it is"
            each = self.figures.count("registers") // (choice["waves"] * self.wave)
            have = min(_MOST_REGISTERS, each) - _REGISTERS_BESIDE
            if self.registers(choice) > have:
                return f"loads of two chunks take {self.registers(choice)} registers, a lane has {have} for them"
        return super().why_not(choice)

    def _worth(self, choice: Choice) -> tuple[Any, ...]:
        units, idle, *rest = super()._worth(choice)
        return units, idle, self.can_prefetch and choice["prefetch"] != bool(self.figures["prefetch"]), *rest

    def _apart(self, choice: Choice) -> float:
        """With prefetch: how far a wavefront's chunks are from as many as were quickest. Two of them are under way at once: of fewer chunks a wavefront waits for
        much of its sum at once, and holds registers that the next kernel's work-groups would come into."""
        if not choice.get("prefetch"):
            return super()._apart(choice)
        return abs(math.log2(self.steps(choice) / choice["ahead"] / self.figures["chunks"]))

    @property
    def shared_bytes(self) -> int:
        """Of x in shared memory; 0 where it is read from where it lies."""
        return 0

    def issued(self, choice: Choice) -> float:
        """Instructions of a lane: loads, and a product each for the parts of a load."""
        tiles = self.weights(choice) // SIDE
        products = tiles * self.row_tiles * (self.piece // terms_of(self.unit))
        rows = self.row_tiles * (4 + 3 * self.piece * (self.o.scale is not None))
        return float(self.steps(choice) * (products + 4 * tiles + rows))

    def kernel(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> None:
        MatrixLoops(self, choice, ib, sources).run(out)


class MatrixLoops(RowLoops):
    """The loops of a work-group."""

    in_pairs = True

    def __init__(self, space: FewRowsMatrix, choice: Choice, ib: IRBuilder, sources: list[BufferVar]):
        super().__init__(space, choice, ib, sources)
        self.unit, self.row_tiles = space.unit, space.row_tiles
        self.tiles = self.rows // SIDE
        self.terms = terms_of(self.unit)
        # Of a lane's vectors, lane 0's: which row of the tile and which of its terms an element is.
        self.own_rows = sorted({int(self.unit.coords("a", 0, e)[1]) for e in range(self.unit.a_elems)})
        self.places_a = self._places("a", 1, 2)
        self.places_b = self._places("b", 2, 1)
        self.order = space.o.packed.order if space.o.packed is not None else list(range(self.piece))
        self.shared = space.shared_bytes
        if self.shared and space.o.scale is not None:
            self.square_parts = self.waves
        self.prefetch = bool(choice.get("prefetch"))
        if self.prefetch:
            self.kept = 2 * self.ahead

    def _places(self, role: str, row: int, k: int) -> list[tuple[int, int]]:
        at = [self.unit.coords(role, 0, e) for e in range(self.unit.elems(role))]
        rows, terms = (sorted({int(x[i]) for x in at}) for i in (row, k))
        return [(rows.index(int(x[row])), terms.index(int(x[k]))) for x in at]

    @property
    def pitch(self) -> int:
        return self.rows + 1  # rows begin in different banks

    def _along(self) -> Expr:
        if self.unit.unit == "mma.sync":
            return te.indexmod(self.lane, 4)
        return te.indexmod(te.indexdiv(self.lane, SIDE), self.space.along)

    def _lines(self, first: Index) -> list[Expr]:
        _, row, _ = self.unit.coords("a", self.lane, 0)
        if self.columns >= SIDE:
            columns = [t + row + r for t in range(0, self.columns, SIDE) for r in self.own_rows]
            return [self._line(first + c, half) for half in range(self.halves) for c in columns]
        # A tile of both: its first rows are the columns' own weights, the others their gates'.
        places = [self.ib.let("place", row + r) for r in self.own_rows]
        return [self._line(first + te.indexmod(r, self.columns), te.indexdiv(r, self.columns)) for r in places]

    def _allocate(self) -> None:
        """What a wavefront keeps in its registers, and where its rows of the first operand begin."""
        ib, o, unit, local = self.ib, self.o, self.unit, self._local
        self._allocate_weights("uint32", self.piece // 2 * (2 if self.prefetch else 1))
        self.row = local("uint32", self.kept * self.row_tiles * self.piece // 2, "row")
        self.a = local("uint32", unit.a_elems // 2, "a")
        self.b = local("uint32", self.row_tiles * unit.b_elems // 2, "b")
        self.sums = local("float32", self.tiles * self.row_tiles * unit.acc_elems, "sums")
        self._clear_sums()
        _, _, column = unit.coords("b", self.lane, 0)
        lines = [ib.let("x_row", t * unit.n + column) for t in range(self.row_tiles)]
        self.x_rows = [
            line if o.rows is None and (t + 1) * unit.n <= o.m else ib.let("x_row", te.min(line, o.last_row))
            for t, line in enumerate(lines)
        ]
        if self.shared:
            self.xs = ib.allocate(o.x.dtype, (self.shared // 2,), "xs", scope="shared")
            self.squares = local("float32", o.m, "squares")
        elif o.packed is not None:
            self.ordered = local("uint32", self.row_tiles * self.piece // 2, "ordered")
        elif o.scale is not None:
            self.factors = local(o.scale.dtype, self.kept * self.piece, "factors")
            self.scaled = local(o.x.dtype, self.piece, "scaled")
            self.squares = local("float32", self.row_tiles, "squares")
            for t in range(self.row_tiles):
                self.squares[t] = te.const(0, "float32")

    def _clear_sums(self) -> None:
        for t in range(self.tiles * self.row_tiles):
            zero = Broadcast(te.const(0, "float32"), self.unit.acc_elems)
            loops.put_vector(self.ib, self.sums, t * self.unit.acc_elems, zero)

    # ---- loads: pieces of 16 bytes, as words

    @staticmethod
    def _words(value: Expr) -> Expr:
        return build.reinterpret(f"uint32x{UNIT // 2}", value)

    def _bring(self, load: int, line: Expr, at: Expr) -> None:
        if self.codes is not None:
            self.codes.bring(load, line, at)
            return
        piece = self._piece_of(self.w, line, at * self.piece)
        loops.put_vector(self.ib, self.weights, load * self.piece // 2, self._words(piece))

    @staticmethod
    def _piece_of(buffer: BufferVar, row: Index, first: Index) -> Expr:
        lead = [0] * (len(buffer.buffer.shape) - 2)
        return loops.vector_at(buffer, (*lead, row), first, UNIT)

    def _bring_x(self, u: int, at: Expr) -> None:
        for t, line in enumerate(self.x_rows):
            if self.space.along == 1 and self.o.m - t * self.unit.n == 1:
                # Lanes of one row would read one place, in scalar registers, whose upper halves LLVM 22 dies of on RDNA 3. What others compute is not stored.
                at = te.select(te.indexmod(self.lane, SIDE) == 0, at, 0)
            for i in range(0, self.piece, UNIT):
                if self.shared:
                    place = line * (row_pitch(self.o.k, self.piece) // 2) + at * (piece_pitch(self.piece) // 2) + i
                    unit = loops.vector(self.xs, place, UNIT)
                else:
                    unit = self._piece_of(self.x, line, at * self.piece + i)
                loops.put_vector(self.ib, self.row, ((u * self.row_tiles + t) * self.piece + i) // 2, self._words(unit))
        if self.o.scale is not None and not self.shared:
            self._load(self.factors, u * self.piece, self.scale, None, at)

    # ---- loads ahead of products

    def _walk(self, chunks: int) -> None:
        if not self.prefetch:
            super()._walk(chunks)
            return
        places = self._places_of(0)
        if not self.is_held:
            self._bring_weights(places, 0)
        self._bring_pieces(places, 0)
        with self.ib.for_range(0, chunks - 1, "chunk") as chunk:
            places = self._places_of(chunk + 1)
            self._bring_weights(places, self.ahead)
            self._bring_pieces(places, self.ahead)
            self._multiply_steps(self._places_of(chunk))
            for buffer in (self.weights, self.row, *((self.factors,) if self.o.scale is not None else ())):
                self._take_fresh(buffer)
        self._multiply_steps(self._places_of(chunks - 1))

    def _bring_pieces(self, places: list[tuple[Any, Any]], slot: int) -> None:
        """The pieces of x of some steps, from a step's on."""
        for u, (at, _) in enumerate(places):
            self._bring_x(slot + u, at)

    def _step_of_x(self, u: int, at: Expr) -> int:
        if self.codes is not None:  # x is in shared memory, or comes from where it lies
            self._bring_x(0, at)
            return 0
        return u if self.prefetch else super()._step_of_x(u, at)

    def _take_fresh(self, buffer: BufferVar) -> None:
        """The second half of registers, of the next chunk, becomes the first."""
        (size,) = buffer.buffer.shape
        assert isinstance(size, IntImm)
        half, width = size.value // 2, PIECE_BYTES // dtype_info(buffer.dtype).bytes
        for first in range(0, half, width):
            loops.put_vector(self.ib, buffer, first, loops.vector(buffer, half + first, min(width, half - first)))

    # ---- products

    def _multiply(self, u: int, at: Expr, counts: Expr) -> None:
        v, unit = self._step_of_x(u, at), self.unit
        half, each = self.terms // 2, unit.b_elems // 2
        of_x = [self._x_words(v, x, counts) for x in range(self.row_tiles)]
        for part in range(self.piece // self.terms):
            for x, (words, first) in enumerate(of_x):
                for e in range(0, unit.b_elems, 2):
                    self.b[x * each + e // 2] = words[first + part * half + self.places_b[e][1] // 2]
            for t in range(self.tiles):
                self._product(u, t, part)

    def _product(self, u: int, t: int, part: int) -> None:
        unit, half, each = self.unit, self.terms // 2, self.unit.b_elems // 2
        load = u * len(self.lines) + t * len(self.own_rows)
        for e in range(0, unit.a_elems, 2):
            row, term = self.places_a[e]
            self.a[e // 2] = self._pair(load + row, part * half + term // 2)
        a = build.reinterpret(unit.dtype("a"), loops.vector(self.a, 0, unit.a_elems // 2))
        for x in range(self.row_tiles):
            b = build.reinterpret(unit.dtype("b"), loops.vector(self.b, x * each, each))
            at = (t * self.row_tiles + x) * unit.acc_elems
            loops.put_vector(self.ib, self.sums, at, unit.call(a, b, loops.vector(self.sums, at, unit.acc_elems)))

    def _pair(self, load: int, i: int) -> Expr:
        """Two numbers of a load, as a word."""
        return self.codes.pair(load, i) if self.codes is not None else self.weights[load * self.piece // 2 + i]

    def _x_words(self, v: int, x: int, counts: Expr) -> tuple[Any, int]:
        """A piece of a row of x as words, by the norm's scale where there is one, 0 where it does not count; and the first of them."""
        ib, o, first = self.ib, self.o, (v * self.row_tiles + x) * self.piece // 2
        if o.scale is None or self.shared:
            if counts is not None:
                for i in range(self.piece // 2):
                    self.row[first + i] = te.select(counts, self.row[first + i], te.const(0, "uint32"))
            if o.packed is None or self.shared:
                return self.row, first
            for k, word in enumerate(in_pairs([self.row[first + i] for i in range(self.piece // 2)], self.order)):
                self.ordered[x * self.piece // 2 + k] = word
            return self.ordered, x * self.piece // 2
        numbers = build.reinterpret(f"{o.x.dtype}x{self.piece}", loops.vector(self.row, first, self.piece // 2))
        loops.put_vector(ib, self.scaled, 0, numbers)
        for i in range(self.piece):
            y = ib.let("x", self.scaled[i].astype("float32"))
            if counts is not None:
                y = ib.let("x", te.select(counts, y, te.const(0, "float32")))
            self.squares[x] = self.squares[x] + y * y
            self.scaled[i] = (y * self.factors[v * self.piece + i].astype("float32")).astype(o.x.dtype)
        loops.put_vector(ib, self.row, first, self._words(loops.vector(self.scaled, 0, self.piece)))
        return self.row, first

    # ---- results

    def _put(self, sums: BufferVar, squares: Any) -> None:
        """The wavefront's sums, and its squares of rows, for the other wavefronts."""
        ib, o, unit = self.ib, self.o, self.unit
        for t in range(self.tiles):
            for x in range(self.row_tiles):
                for e in range(unit.acc_elems):
                    _, column, row = unit.coords("acc", self.lane, e)
                    value = self.sums[(t * self.row_tiles + x) * unit.acc_elems + e]
                    row = ib.let("row", x * unit.n + row)
                    at = (self.mine * o.m + row) * self.pitch + t * SIDE + column
                    with loops.where(ib, (x + 1) * unit.n <= o.m or row < o.m):
                        sums[at] = value
        if squares is None:
            return
        if self.shared:
            with ib.if_scope(self.lane == 0):
                for m in range(o.m):
                    squares[self.mine * o.m + m] = self.squares[m]
            return
        step, mine = (1 if unit.unit == "mma.sync" else self.wave // self.space.along), self._along()
        for x, line in enumerate(self.x_rows):
            masks = (step * bit for bit in loops.doublings(self.space.along))
            total = loops.summed_over_lanes(ib, self.squares[x], masks, self.wave, "squares")
            # Rows beyond the last are the last once more.
            with ib.if_scope(mine == 0):
                squares[self.mine * o.m + line] = total
