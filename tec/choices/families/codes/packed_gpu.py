"""Products of few rows with packed weights (`tec.ops.packed`) on AMD's matrix units: a decoder's step, which reads all of its weights once.

A wavefront has 16 columns of the result, or a few times as many, and a part of the sum; its lanes load 16 bytes of codes a row side by side and keep them in registers. Codes become
float16 two at a time (a code in the low bits of 1024.0 is 1024 + code), less the zero point, times the block's scale, and are the unit's first operand as they come: which k
stands where is no matter to a sum, so x is brought into the codes' order instead, once for all columns of the wavefront. The parts meet in shared memory, where what follows the product is
computed. Nothing else is written on the way.

    columns      16 * tiles a work-group; `waves` of them share the sum; `ahead` loads of codes of a row are under way at once
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, ClassVar

from .... import te
from ....ir import build
from ....ir.expr import Broadcast, BufferLoad, Expr, Ramp
from ....ir.matrix import MatrixInstr, instructions
from ....ops.forms import Form
from ....ops.packed import PackedContraction
from ....target import Target, level_gbps
from ....te import PlaceholderOp, Tensor
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...group import Group
from ...parts import loops, needs
from ...parts.epilogues import FusedForm
from ...space import Choice, Cost

MOST_ROWS = 64  # of x, up to which a product is limited by its weights
_WORDS = 4  # of codes that a lane loads at once: 16 bytes
_SIDE = 16  # rows and columns of the instruction
_ONES = 0x64006400  # 1024.0 twice: the unit of a float16 there is 1
_PAD = 1  # between the rows of sums where they meet
_IN_FLIGHT = 64  # registers of a thread for codes that are under way (80 with two tiles and seven steps: 10 spilled)


def unit_of(target: Target) -> MatrixInstr | None:
    """The instruction of 16 by 16 sums of float16 products with the most terms; None where the chip has none."""
    found = [
        i for i in instructions(target)
        if (i.in_dtype, i.acc_dtype, i.m, i.n, i.blocks) == ("float16", "float32", _SIDE, _SIDE, 1)
    ]  # fmt: skip
    return max(found, key=lambda i: i.k, default=None)


def match(group: Group, target: Target) -> Iterator[loops.LoopForm]:
    """The space of a group around a packed product of few float16 rows."""
    found, unit = group.form("product"), unit_of(target)
    c = found[0].attrs["contraction"] if found is not None else None
    if found is None or unit is None or not isinstance(c, PackedContraction) or c.weights is None or c.weights.panel:
        return
    w, piece = c.weights, _WORDS * c.weights.per
    x, _, scale, *_ = c.tensors_read
    plain = x.dtype == scale.dtype == "float16" and not w.format and isinstance(c.m, int) and c.m <= MOST_ROWS
    if not plain or w.k % piece or w.block % piece or not all(isinstance(t.op, PlaceholderOp) for t in c.tensors_read):
        return
    space = FewRows(group, target, unit, *found)
    if space.epilogue is not None and next(space.drafts(), None) is not None:
        yield space


class FewRows(FusedForm):
    """`tiles` of 16 columns a work-group, whose `waves` wavefronts share the sum; codes of `ahead` steps of it at once."""

    template: ClassVar[str] = "packed rows"
    stage: ClassVar[str] = "packed_rows"

    def __init__(self, group: Group, target: Target, unit: MatrixInstr, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.contraction: PackedContraction = form.attrs["contraction"]
        assert self.contraction.weights is not None
        self.weights, self.unit = self.contraction.weights, unit
        self.rows = int(self.contraction.m)
        self.piece = _WORDS * self.weights.per  # codes that a lane loads at once
        self.groups = unit.wave // _SIDE // unit.copies  # lanes that have other parts of a row
        self.row_tiles = -(-self.rows // _SIDE)
        self.parameters = {
            "tiles": (1, 2, 4),
            "waves": self.threads_up_to_limit(8, 16, 4, 2, 1, each=unit.wave),
            "ahead": (4, 8, 2, 1, 7, 3, 5, 6),
        }

    def steps(self, choice: Choice) -> int:
        """Of a wavefront: each is a load of every row's codes."""
        pieces = -(-self.weights.k // (self.piece * self.groups))
        each = -(-pieces // choice["waves"])
        return int(-(-each // choice["ahead"]) * choice["ahead"])

    def why_not(self, choice: Choice) -> str | None:
        tiles, waves, ahead = choice["tiles"], choice["waves"], choice["ahead"]
        if (wrong := needs.shared_memory(self.lds_bytes(choice), self.target.lds_bytes)) is not None:
            return wrong
        if tiles * ahead * (_WORDS + 1) > _IN_FLIGHT:
            return "codes under way take too many registers"
        if ahead > 1 and -(-self.weights.k // (self.piece * self.groups)) < ahead * waves:
            return "wavefronts have less of the sum than they load at once"
        return None

    def lds_bytes(self, choice: Choice) -> int:
        """Of the parts of the sum."""
        return 4 * int(choice["waves"]) * min(self.rows, _SIDE * self.row_tiles) * (_SIDE * int(choice["tiles"]) + _PAD)

    @property
    def default(self) -> Choice:
        """As many columns as x's rows are worth; more wavefronts where work-groups are no more than units, and more of a wavefront's codes at once."""
        units, figures = self.target.machine.units, self.figures
        best: tuple[Any, ...] | None = None
        for c in self.drafts():
            groups = -(-self.weights.n // (_SIDE * c["tiles"]))
            steps = self.steps(c)
            few = self.rows <= figures["few_rows"] or groups < figures["filled"] * units
            columns = c["tiles"] if few else -c["tiles"]
            waves = figures.count("waves_alone") if groups <= units else figures.count("waves")
            alone = groups <= units and c["tiles"] == 1
            ahead = min(steps, figures.count("most_at_once")) if alone else figures.count("at_once")
            key = (columns, steps * c["waves"], abs(c["waves"] - waves), abs(c["ahead"] - ahead))
            if best is None or key < best[0]:
                best = key, c
        assert best is not None  # `match` has seen one
        return best[1]  # type: ignore[no-any-return]

    def cost(self, choice: Choice) -> Cost:
        """The weights' bytes at memory's rate, or what the busiest unit brings of them and of x, and the latencies of its steps one after another."""
        w, machine = self.weights, self.target.machine
        groups = -(-w.n // (_SIDE * choice["tiles"]))
        share = -(-groups // machine.units)
        steps, waves, tiles = self.steps(choice), choice["waves"], choice["tiles"]
        clock = machine.clock_mhz * 1e6
        memory = (
            w.n * w.k * w.bits / 8 * (1 + 16 / (w.block * w.bits)) / (level_gbps(self.target.machine, "memory") * 1e9)
        )
        # Lines of 128 bytes pass an L1 one a clock or two: a row of codes half a line, of x by itself.
        lines = waves * steps * (2 * tiles * _SIDE + 2 * self.rows * self.groups)
        codes = waves * steps * tiles * self.unit.wave * self.piece * 2.5 / (machine.macs("float32", matrix=False) / 2)
        unit = share * max(lines, codes) / clock
        rest = 2e-6 + 0.4e-6 * steps / choice["ahead"] * max(1, share / 2)
        return Cost(max(memory, unit) + rest, "memory" if memory > unit else "issue")

    def kernel(self, choice: Choice, ib: IRBuilder, sources: list[Any], out: Any) -> None:
        _Product(self, choice, ib, sources).run(out)


def _twice(half: Expr) -> Expr:
    bits = build.reinterpret("uint16", half).astype("uint32")
    twice: Expr = bits | (bits << 16)
    return twice


class _Product:
    """The loops of a work-group."""

    def __init__(self, space: FewRows, choice: Choice, ib: IRBuilder, sources: list[Any]):
        self.space, self.w, self.unit, self.ib = space, space.weights, space.unit, ib
        self.tiles, self.waves, self.ahead = choice["tiles"], choice["waves"], choice["ahead"]
        self.steps, self.piece = space.steps(choice), space.piece
        own = len(space.contraction.tensors_read)
        self.x, self.codes, self.scale = sources[:3]
        self.zero = sources[3] if own > 3 else None
        self.beside = sources[own:]
        self.pieces = self.w.k // self.piece
        self.is_ragged = self.steps * self.waves * space.groups != self.pieces

    def run(self, out: Any) -> None:
        ib, unit, s = self.ib, self.unit, self.space
        tx, ty, bx = (te.thread_axis(n) for n in ("threadIdx.x", "threadIdx.y", "blockIdx.x"))
        with ib.new_scope():
            ib.scope_attr(bx, "thread_extent", -(-self.w.n // (_SIDE * self.tiles)))
            ib.scope_attr(tx, "thread_extent", unit.wave)
            ib.scope_attr(ty, "thread_extent", self.waves)
            self.lane, self.wave = ib.let("lane", tx.var + 0), ty.var
            self.line = ib.let("line", te.indexmod(self.lane, _SIDE))
            self.group = te.indexmod(te.indexdiv(self.lane, _SIDE), s.groups)
            self.first = ib.let("first", bx.var * (_SIDE * self.tiles))
            self.lines = [self._inside(self.first + t * _SIDE + self.line, self.w.n) for t in range(self.tiles)]
            self.own_rows = [self._inside(t * _SIDE + self.line, s.rows) for t in range(s.row_tiles)]
            self._allocate()
            with ib.for_range(0, self.steps // self.ahead, "chunk") as chunk:
                first = ib.let("first_piece", (self.wave * self.steps + chunk * self.ahead) * s.groups + self.group)
                places = [self._place(first + u * s.groups) for u in range(self.ahead)]
                for u, (at, _) in enumerate(places):
                    for t in range(self.tiles):
                        self._load(u, t, at)
                for u, (at, counts) in enumerate(places):
                    self._bring_x(at, counts)
                    for t in range(self.tiles):
                        self._numbers(u, t)
                        self._multiply(t)
            self._meet(out)

    def _inside(self, row: Index, rows: int) -> Any:
        """A row that there is, in place of one beyond the last."""
        is_whole = rows % (_SIDE * self.tiles) == 0
        return self.ib.let("row", row if is_whole else te.min(row, rows - 1))

    def _place(self, at: Index) -> tuple[Any, Any]:
        """A piece of the sum, and whether it counts."""
        if not self.is_ragged:
            return self.ib.let("piece", at), None
        return self.ib.let("piece", te.min(at, self.pieces - 1)), at < self.pieces

    def _allocate(self) -> None:
        ib, s = self.ib, self.space

        def local(dtype: str, n: int, name: str) -> Any:
            return ib.allocate(dtype, (n,), name, scope="local")

        self.words = local("uint32", self.ahead * self.tiles * _WORDS, "words")
        # Twice each, side by side.
        self.scales = local("uint32", self.ahead * self.tiles, "scales")
        self.zeros = local("uint32", self.ahead * self.tiles, "zeros") if self.zero is not None else None
        self.x_words = local("uint32", self.piece // 2, "x_words")
        self.b = local("uint32", s.row_tiles * self.piece // 2, "b")
        self.a = local("uint32", self.piece // 2, "a")
        acc = self.unit.acc_elems
        self.sums = local("float32", self.tiles * s.row_tiles * acc, "sums")
        for t in range(self.tiles * s.row_tiles):
            loops.put_vector(self.ib, self.sums, t * acc, Broadcast(te.const(0, "float32"), acc))

    # ---- codes

    def _load(self, u: int, t: int, at: Index) -> None:
        """A piece's codes of a row, its scale and its zero point."""
        slot, row = u * self.tiles + t, self.lines[t]
        loops.put_vector(self.ib, self.words, slot * _WORDS, self._row(self.codes, row, at * _WORDS, _WORDS))
        block = at if self.w.block == self.piece else te.indexdiv(at, self.w.block // self.piece)
        self.scales[slot] = _twice(self.scale[row, block])
        if self.zeros is not None and self.zero is not None:
            self.zeros[slot] = _twice(self.zero[row, block].astype("float16"))

    def _numbers(self, u: int, t: int) -> None:
        """The piece's numbers: of each word the codes j and j + half, for one j after another."""
        slot, w = u * self.tiles + t, self.w
        zero = te.const(1024.0, "float16") if self.zeros is not None else te.const(1024.0 + w.zero, "float16")
        mask = (1 << w.bits) - 1
        for j in range(w.per // 2):
            for n in range(_WORDS):
                word = self.words[slot * _WORDS + n]
                both = ((word >> (j * w.bits)) & te.const(mask << 16 | mask, "uint32")) | te.const(_ONES, "uint32")
                y = build.reinterpret("float16x2", both) - Broadcast(zero, 2)
                if self.zeros is not None:
                    y = y - build.reinterpret("float16x2", self.zeros[slot])
                self.a[j * _WORDS + n] = build.reinterpret(
                    "uint32", y * build.reinterpret("float16x2", self.scales[slot])
                )

    # ---- x

    def _bring_x(self, at: Index, counts: BufferVar) -> None:
        """The piece of each row of x, in the order of the codes."""
        w, half = self.w, self.w.per // 2
        for r, row in enumerate(self.own_rows):
            if self.space.groups == 1 and self.space.rows - r * _SIDE == 1:
                # Lanes of one row would read one place, in scalar registers, whose upper halves LLVM 22 dies of on RDNA 3. What others compute is not stored.
                at = te.select(self.line == 0, at, 0)
            for first in range(0, self.piece, 8):
                loaded = build.reinterpret("uint32x4", self._row(self.x, row, at * self.piece + first, 8))
                loops.put_vector(self.ib, self.x_words, first // 2, loaded)
            for j in range(half):
                for t in range(_WORDS):
                    low, high = (self.x_words[(w.per * t + i) // 2] for i in (j, j + half))
                    if j % 2:
                        both = (low >> 16) | (high & te.const(0xFFFF0000, "uint32"))
                    else:
                        both = (low & te.const(0xFFFF, "uint32")) | (high << 16)
                    if counts is not None:
                        both = te.select(counts, both, te.const(0, "uint32"))
                    self.b[r * self.piece // 2 + j * _WORDS + t] = both

    def _multiply(self, t: int) -> None:
        unit = self.unit
        n, acc = unit.a_elems, unit.acc_elems
        for first in range(0, self.piece, n):
            a = build.reinterpret(f"float16x{n}", loops.vector(self.a, first // 2, n // 2))
            for r in range(self.space.row_tiles):
                b = build.reinterpret(f"float16x{n}", loops.vector(self.b, (r * self.piece + first) // 2, n // 2))
                at = (t * self.space.row_tiles + r) * acc
                loops.put_vector(self.ib, self.sums, at, unit.call(a, b, loops.vector(self.sums, at, acc)))

    # ---- results

    def _meet(self, out: Any) -> None:
        """The wavefronts' sums, [wavefront, row, column] in shared memory, are added up by all threads."""
        ib, unit, s = self.ib, self.unit, self.space
        columns = _SIDE * self.tiles
        pitch, rows = columns + _PAD, s.rows
        parts = ib.allocate("float32", (self.waves * rows * pitch,), "parts", scope="shared")
        for t in range(self.tiles):
            for r in range(s.row_tiles):
                row = r * _SIDE + te.indexmod(self.lane, _SIDE)
                with ib.if_scope(row < rows):
                    for i in range(unit.acc_elems):
                        _, column, _ = unit.coords("acc", self.lane, i)
                        at = (self.wave * rows + row) * pitch + t * _SIDE + column
                        parts[at] = self.sums[(t * s.row_tiles + r) * unit.acc_elems + i]
        threads, count = self.waves * unit.wave, rows * columns
        thread = self.wave * unit.wave + self.lane
        for first in range(0, count, threads):
            e = ib.let("e", thread + first)
            row, column = te.indexdiv(e, columns), te.indexmod(e, columns)
            inside = [e < count] * (first + threads > count)
            inside += [self.first + column < self.w.n] * (self.w.n % columns != 0)
            with ib.if_scope(te.all(*inside)) if inside else nullcontext():
                total = parts[row * pitch + column]
                for k in range(1, self.waves):
                    total = total + parts[(k * rows + row) * pitch + column]
                place, value = (row, self.first + column), total.astype(s.contraction.out_dtype)
                out[place] = s.ended(place, value, self.beside)

    # ---- vectors in buffers

    @staticmethod
    def _row(buffer: BufferVar, row: Index, first: Index, n: int) -> Expr:
        return BufferLoad(buffer.buffer, (build.convert(row), Ramp(build.convert(first), te.const(1, "int32"), n)))
