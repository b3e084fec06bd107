"""Products of microscaling formats (`tec.ops.microscaling`) on a matrix unit that takes elements and scales as they are stored (gfx950).

A work-group of some wavefronts computes a tile, a step of k at a time: bytes of elements and of scales pass through shared memory as they lie, rows padded by 16 bytes
so that lanes side by side read from banks of their own. The steps are a pipeline, with the next step's loads and stores between a step's sums. The unit computes the
transpose, so that a lane holds neighbours of a row of the result, on which what follows the product is computed before they are stored. Rows and columns beyond the edge
read the last one, and are not stored.

Other targets, and sums that are no whole steps, take `matrix product` and what else serves a contraction: elements become bfloat16 on their way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

from .... import te
from ....ir.expr import Broadcast
from ....ir.microscaling import BLOCK
from ....ir.scaled_matrix import WAVE, ScaledMatrix
from ....ops.forms import Form
from ....ops.microscaling import MxContraction
from ....target import Target
from ....te.ir_builder import BufferVar, IRBuilder
from ....te.like import Index
from ...group import Group
from ...parts import loops, needs
from ...parts.epilogues import FusedForm
from ...parts.threads import neighbour_on_a_die
from ...space import Choice, Cost
from ..products import tilings
from ..products.tilings import Shape, Tiling

_PIECE = 16  # bytes that a thread moves at once
_BANDS = (8, 4, 2)  # rows of tiles that go together, where their number allows
_RUN = 4  # results of a lane that are neighbours
# Of a thread by `Tile.registers`, up to which none was spilled: 224 were 179 to 221 of LLVM's; 240 and 256 were 256 and up to 62 in scratch.
_REGISTERS = 232


class MxProduct(FusedForm):
    """`rows` by `columns` of the result a work-group of `waves_m` by `waves_n` wavefronts, `step` elements of the sum at a time."""

    template: ClassVar[str] = "scaled matrix product"
    kind: ClassVar[str] = "product"
    stage = "scaled_product"

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        space = super().match(group, target)
        return space if space is not None and next(space.drafts(), None) is not None else None

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        """A product of known sizes, on a chip with the unit."""
        c = form.attrs["contraction"]
        has_unit = target.is_gpu and bool(target.chip.scaled_matrix)
        return has_unit and isinstance(c, MxContraction) and isinstance(c.m, int) and isinstance(c.n, int)

    def read_form(self) -> None:
        super().read_form()
        self.contraction: MxContraction = self.form.attrs["contraction"]
        a, b = self.contraction.formats
        self.units = {f"{m}x{n}x{k}": ScaledMatrix(a, b, m, n, k) for m, n, k in self.target.chip.scaled_matrix}  # fmt: skip
        self.parameters = {
            "rows": (128, 64, 256, 32), "columns": (128, 64, 256, 32), "step": tuple(n for n in (256, 128, 512) if self.contraction.k % n == 0), "waves_m": (2, 1, 4), "waves_n": (2, 1, 4),
            "instruction": tuple(self.units), "interleave": (True, False),
        }  # fmt: skip

    def why_not(self, choice: Choice) -> str | None:
        t, unit = Tile(self, choice), self.units[choice["instruction"]]
        if choice["rows"] % (choice["waves_m"] * unit.m) or choice["columns"] % (choice["waves_n"] * unit.n):
            return "a wavefront's part is not a whole number of instructions"
        brought = [
            rows * bytes_
            for rows, f in zip((choice["rows"], choice["columns"]), unit.formats)
            for bytes_ in (f.stored(choice["step"]), choice["step"] // BLOCK)
        ]
        return needs.first(
            needs.dealt(brought, t.threads, "pieces"),
            needs.shared_memory(t.lds_bytes, self.target.lds_bytes),
            needs.sums(t.registers, _REGISTERS),
        )

    def drafts(self) -> Iterator[Choice]:
        """For each tile its best instruction and step."""
        # As of other types, small sums leave more places for loads and stores between them.
        for rows, columns, waves_m, waves_n in (
            (256, 256, 4, 2), (256, 128, 4, 2), (128, 256, 2, 4), (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (64, 32, 2, 2), (32, 64, 2, 2), (32, 32, 2, 2),
        ):  # fmt: skip
            for step in self.parameters["step"]:
                made = self.choice(
                    rows=rows, columns=columns, step=step, waves_m=waves_m, waves_n=waves_n, interleave=True,
                    instruction=next(n for n, u in self.units.items() if u.m == 16),
                )  # fmt: skip
                if self.why_not(made) is None:
                    yield made
                    break

    def cost(self, choice: Choice) -> Cost:
        """That of the tile in bytes, by the rate of the unit for the formats."""
        c, unit = self.contraction, self.units[choice["instruction"]]
        shape = Shape(c.m, c.n, c.k, 1, "float8_e4m3", "float32", padded=True)
        t = Tiling(
            choice["rows"], choice["columns"], choice["step"], choice["waves_m"], choice["waves_n"], unit.m, unit.n, unit.k, False, 1, interleave=True,
        )  # fmt: skip
        # Elements of fewer bits are as a shorter sum: as many bytes, and twice the rate of bytes where both are small.
        bits = sum(f.bits for f in unit.formats) / 16
        part = max(bits, 0.5 if all(f.bits < 8 for f in unit.formats) else 1.0)
        seconds, limit = tilings.seconds(t, replace(shape, k=int(c.k * part)), self.target)
        return Cost(seconds, limit)

    def kernel(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> None:
        Tile(self, choice).run(ib, sources, out)


class Tile:
    """The loops of a work-group. Operands: 0 is a, 1 is b, each with its elements and its scales."""

    def __init__(self, space: MxProduct, choice: Choice):
        self.c, self.target, self.ended = space.contraction, space.target, space.ended
        # Handed to the unit in the other order: it computes the transpose.
        own = space.units[choice["instruction"]]
        self.unit = ScaledMatrix(own.b, own.a, own.m, own.n, own.k)
        self.formats = own.formats
        self.sizes = (choice["rows"], choice["columns"])
        self.waves = (choice["waves_m"], choice["waves_n"])
        self.step, self.weave = choice["step"], choice["interleave"]
        self.threads = self.waves[0] * self.waves[1] * WAVE
        self.tiles = tuple(n // (w * own.m) for n, w in zip(self.sizes, self.waves))
        self.bytes = tuple(f.stored(choice["step"]) for f in self.formats)
        self.pitch = tuple(n + _PIECE for n in self.bytes)
        self.scale_pitch = choice["step"] // BLOCK

    @property
    def lds_bytes(self) -> int:
        return sum(n * (p + self.scale_pitch) for n, p in zip(self.sizes, self.pitch))

    @property
    def registers(self) -> int:
        """Of a thread: its sums, elements of a part of the step and of the next, what is on its way to shared memory."""
        sums = self.sizes[0] * self.sizes[1] // self.threads
        elements = sum(t * f.stored(BLOCK) // 4 for t, f in zip(self.tiles, self.formats))
        coming = sum(n * b for n, b in zip(self.sizes, self.bytes)) // self.threads // 4
        total: int = sums + 2 * elements + coming
        return total

    def piece(self, bytes_: int, row: int) -> int:
        """Bytes of so many in rows that a thread moves at once, so that all threads move as many."""
        return math.gcd(_PIECE, bytes_ // self.threads, row)

    def run(self, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> None:
        self.ib = ib
        self.sources = ((sources[0], sources[1]), (sources[2], sources[3]))
        self.beside = sources[4:]  # what the epilogue reads
        m, n = (-(-size // tile) for size, tile in zip((self.c.m, self.c.n), self.sizes))
        with loops.launch(ib, (m * n,), (WAVE, self.threads // WAVE)) as (block, tx, wave):
            self.lane = ib.let("lane", tx + 0)
            self.thread = ib.let("thread", wave * WAVE + self.lane)
            row, column = self._tile(block, m, n)
            self.first = (ib.let("first_row", row * self.sizes[0]), ib.let("first_column", column * self.sizes[1]))
            parts = (te.indexdiv(wave, self.waves[1]), te.indexmod(wave, self.waves[1]))
            # Where this wavefront's part of the tile begins.
            self.own = tuple(ib.let("own", p * (n // w)) for p, n, w in zip(parts, self.sizes, self.waves))
            self._sums()
            self._store(out)

    def _tile(self, at: Index, m: int, n: int) -> tuple[Any, Any]:
        """(row, column) of a work-group's tile. Work-groups are dealt to the dies in turn: each die gets a run of tiles, which go down a band's rows first."""
        dies = self.target.machine.dies
        if dies > 1 and m * n % dies == 0:
            at = self.ib.let("place", neighbour_on_a_die(at, m * n, dies))
        band = next((b for b in _BANDS if m % b == 0), 1)
        inside = te.indexmod(at, band * n)
        return te.indexdiv(at, band * n) * band + te.indexmod(inside, band), te.indexdiv(inside, band)

    # ---- sums

    def _sums(self) -> None:
        ib, unit = self.ib, self.unit
        count = self.tiles[0] * self.tiles[1]
        self.acc = unit.sums.acc_elems
        self.o = ib.allocate("float32", (count * self.acc,), "sums", scope="local")
        for t in range(count):
            loops.put_vector(self.ib, self.o, t * self.acc, Broadcast(te.const(0, "float32"), self.acc))
        with ib.new_scope():
            ib.scope_attr(None, "software_pipeline", 1)
            with ib.for_range(0, self.c.k // self.step, "step") as step:
                tiles = [self._brought(side, step) for side in (0, 1)]
                with ib.new_scope():
                    if self.weave:
                        ib.scope_attr(None, "fragments_ahead", None)
                    with ib.for_range(0, self.step // unit.k, "part", kind="unroll") as part:
                        self._part(tiles, part)

    def _brought(self, side: int, step: Any) -> tuple[Any, Any]:
        """A step of an operand, and of its scales, in shared memory."""
        made = []
        for source, row, pitch in (
            (self.sources[side][0], self.bytes[side], self.pitch[side]),
            (self.sources[side][1], self.scale_pitch, self.scale_pitch),
        ):
            made.append(self.ib.allocate("uint8", (self.sizes[side] * pitch,), "ab"[side], scope="shared"))
            self._fill(made[-1], source, side, step, row, pitch)
        return made[0], made[1]

    def _fill(self, tile: Any, source: Any, side: int, step: Any, row: int, pitch: int) -> None:
        ib, count = self.ib, self.sizes[side] * row
        piece = self.piece(count, row)
        whole = (self.c.m, self.c.n)[side] % self.sizes[side] == 0
        last = (self.c.m, self.c.n)[side] - 1

        def one(e: Any) -> None:
            line, byte = te.indexdiv(e, row // piece), te.indexmod(e, row // piece) * piece
            at = self.first[side] + line
            at = at if whole else te.min(at, last)
            if piece == 1:
                tile[line * pitch + byte] = source[at, step * row + byte]
                return
            with ib.for_range(0, piece, "v", kind="vectorize") as v:
                tile[line * pitch + byte + v] = source[at, step * row + byte + v]

        loops.dealt(ib, count // piece, self.threads, (self.thread,), one)

    def _part(self, tiles: list[tuple[Any, Any]], part: Index) -> None:
        """The sums of one instruction's k."""
        held = [self._held(side, *tiles[side], part) for side in (0, 1)]
        with self.ib.for_range(0, self.tiles[0], "i", kind="unroll") as i:
            with self.ib.for_range(0, self.tiles[1], "j", kind="unroll") as j:
                at = (i * self.tiles[1] + j) * self.acc
                a, b = (
                    (loops.vector(h[0], t * n, n), h[1][t]) for h, t, n in zip(held, (i, j), (self._lane_bytes(0), self._lane_bytes(1)))
                )  # fmt: skip
                loops.put_vector(
                    self.ib, self.o, at, self.unit.call(b[0], a[0], loops.vector(self.o, at, self.acc), b[1], a[1])
                )

    def _lane_bytes(self, side: int) -> int:
        return self.formats[side].stored(BLOCK)

    def _held(self, side: int, tile: Any, scales: Any, part: Index) -> tuple[Any, Any]:
        """A wavefront's elements of a part of the step, and their scales, in registers."""
        ib, f, n, rows = self.ib, self.formats[side], self._lane_bytes(side), self.unit.m
        line, group = te.indexmod(self.lane, rows), te.indexdiv(self.lane, rows)
        local = ib.allocate("uint8", (self.tiles[side] * n,), "elements", scope="local")
        with ib.for_range(0, self.tiles[side], "t", kind="unroll") as t:
            row = self.own[side] + t * rows + line
            at = 0
            for first, count in self.unit.runs("ba"[side], group):
                begin = row * self.pitch[side] + part * f.stored(self.unit.k) + te.indexdiv(first * f.bits, 8)
                piece = min(_PIECE, n & -n)
                for byte in range(0, f.stored(count), piece):
                    loops.put_vector(self.ib, local, t * n + at + byte, loops.vector(tile, begin + byte, piece))
                at += f.stored(count)
        own = ib.allocate("int32", (self.tiles[side],), "own_scales", scope="local")
        with ib.for_range(0, self.tiles[side], "t", kind="unroll") as t:
            row = self.own[side] + t * rows + line
            own[t] = scales[row * self.scale_pitch + part * (self.unit.k // BLOCK) + group].astype("int32")
        return local, own

    # ---- results

    def _store(self, out: BufferVar) -> None:
        """The transpose's rows are columns of the result: a lane has runs of neighbours."""
        for i in range(self.tiles[0]):
            for j in range(self.tiles[1]):
                for first in range(0, self.acc, _RUN):
                    _, y, x = self.unit.sums.coords("acc", self.lane, first)
                    row = self.first[0] + self.own[0] + i * self.unit.m + x
                    column = self.first[1] + self.own[1] + j * self.unit.n + y
                    at = (i * self.tiles[1] + j) * self.acc + first
                    self._store_run(out, self.ib.let("row", row), self.ib.let("column", column), at)

    def _store_run(self, out: BufferVar, row: Index, column: Index, at: int) -> None:
        """Neighbours of a row, from the sum `at` on, where they are in the result."""
        ib, c = self.ib, self.c

        def element(v: Any) -> None:
            value = self.o[at + v].astype(c.out_dtype)
            place = row, column + v
            out[place] = self.ended(place, value, self.beside)

        if c.n % _RUN:  # rows begin anywhere
            for v in range(_RUN):
                with ib.if_scope(te.all(row < c.m, column + v < c.n)):
                    element(v)
            return
        inside = [row < c.m] * (c.m % self.sizes[0] != 0) + [column < c.n] * (c.n % self.sizes[1] != 0)
        with loops.where(ib, *inside), ib.for_range(0, _RUN, "v", kind="vectorize") as lane:  # fmt: skip
            element(lane)
