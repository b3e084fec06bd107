"""Attention of few queries over many keys on matrix units, without shared memory: a decoder's step of 16-bit keys.

As `few_rows`, work-groups share the keys of a head or of the heads that have the same ones, and wavefronts those of a work-group. But scores and sums are the matrix
unit's, which takes a tenth of the instructions: by vector code they are longer at work than keys and values take to come. Keys and values go from memory to the registers of
the lanes that hand them to the unit. Which element of a head stands where in a sum is no matter, so a lane loads 16 bytes of a row, and queries are loaded in the same
order; a lane's values of some keys are operands for as many tiles of results as a load has elements. Keys of the next block are under way as soon as the scores of this one are
there, and values as soon as its sums are, so that a block needs no second set of registers. Codes are multiplied by their scales when they become operands.

    waves     of a work-group
    keys      of a wavefront's block
    splits    work-groups that share the keys
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from .... import te
from ....ir.dtype import dtype_info, with_lanes
from ....ir.expr import Broadcast, Expr
from ....ops.attention import order_of, stored
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...parts import loops
from ...space import Choice
from .few_rows import PIECE_BYTES, FewRowsAttention, meet, query_piece
from .fragments import Fragments
from .grid import Grid, Results, Rows
from .kernel import Kernel
from .matrix import fragments
from .wave import Wave

_REGISTERS_BESIDE = 40  # of a lane, beside keys, values, queries, scores and sums: of 16 queries by 32 keys of 64 ptxas takes 106 to 150 in all


def layout_of(f: Fragments, size: int, value_size: int, bytes_: int) -> tuple[int, int] | None:
    """Elements of a lane's load of a key and of a value; None where heads are no whole number of such loads, or an operand is more than one."""
    own, most = f.instr.elems(f.key_role), PIECE_BYTES // bytes_
    of_key = next((own * n for n in (2, 1) if own * n <= most and size % (f.instr.k * n) == 0), None)
    of_value = next((n for n in (most, most // 2, most // 4) if value_size % (f.keys * n) == 0), None)
    return None if of_key is None or of_value is None else (of_key, of_value)


class DirectWave(Wave):
    """One wavefront, with blocks of keys of its own."""

    def __init__(self, k: Kernel, f: Fragments, choice: Choice, of: Rows, lane: Index, wave: Expr, count: int):
        own = {"rows": f.queries, "keys": choice["keys"], "stages": 0, "hold": True, "waves": choice["waves"]}
        super().__init__(k, f, own, of, 0, lane, wave)
        self.first, self.group_rows, self.count = 0, f.queries, count
        self.slots = len({s for s in range(f.slots) if f.query(0, s) < count})
        layout = layout_of(f, self.g.size, self.g.value_size, self.bytes)
        assert layout is not None
        self.of_key, self.of_value = layout
        self.own = f.instr.elems(f.key_role)  # keys' elements of a lane's operand, and keys of its operand of values
        self.along = f.instr.k // self.own  # lanes that have other elements of a key
        self.in_turn = self.of_key // self.own  # operands of a load
        self.chunks = self.g.size // (self.along * self.of_key)
        self.rounds = self.g.value_size // (f.keys * self.of_value)  # loads of a value in a lane

    def run(self, split: Index, splits: int) -> None:
        """A wavefront's blocks of keys; the next one's keys and values are loaded while one is computed."""
        ib, n = self.ib, self.keys
        self.low, self.high = self.of.reach(0, self.count)
        last = te.max(self.k.last_key(self.of.b, self.high), 0)
        self.last = last if isinstance(last, int) else ib.let("last_key", last)
        begin, end = self.k.key_range(self.of.b, self.low, self.high, n)
        begin = ib.let("begin", begin + split * self.waves + self.wave)
        # Blocks are dealt to all wavefronts in turn, so that none has two before each has one.
        steps = te.indexdiv(te.max(end - begin, 0) + (splits * self.waves - 1), splits * self.waves)
        steps = ib.let("steps", steps)
        rows = {"k": n // self.f.keys, "v": n // self.f.instr.k * self.own}  # that a lane has a part of
        self.in_keys = self._held("k", rows["k"] * self.chunks * self.of_key, "keys")
        self.in_values = self._held("v", rows["v"] * self.rounds * self.of_value, "values")
        scaled = [operand for operand in rows if f"{operand}_scale" in self.k.sources]
        self.scales = {o: ib.allocate(self.k.acc, (rows[o],), f"{o}_scales", scope="local") for o in scaled}
        self._enter(begin * n, splits * self.waves * n)
        with ib.if_scope(steps > 0):
            self._bring_keys(begin * n)
            self._bring_values(begin * n)
        self._begin()
        with ib.for_range(0, steps, "step") as step:
            key = ib.let("key", (begin + step * (splits * self.waves)) * n)
            after = ib.let("after", key + splits * self.waves * n)
            self._go_on(after, splits * self.waves * n)
            self._allocate_scores()
            self._scores()
            with ib.if_scope(step + 1 < steps):
                self._bring_keys(after)
            self._masks(key)
            self._weighted()
            self._values()
            with ib.if_scope(step + 1 < steps):
                self._bring_values(after)

    # ---- loads

    def _held(self, operand: str, count: int, name: str) -> BufferVar:
        return self.ib.allocate(self.k.sources[operand].dtype, (count,), name, scope="local")

    def _enter(self, key: Index, apart: int) -> None:
        """Ahead of the first block, whose keys begin at `key`; blocks of this wavefront are `apart` keys apart."""

    def _go_on(self, after: Index, apart: int) -> None:
        """In a step whose next block begins at `after`."""

    def _place(self, key: Index) -> Any:
        """Rows of a cache that nothing has filled hold anything, and 0 times a NaN is none: no lane reads behind the last key that is seen."""
        return te.min(key, self.last)

    def _own_along(self) -> Expr:
        """Which of the lanes along a key this one is."""
        step = 1 if self.f.instr.unit == "mma.sync" else self.f.keys
        return te.indexmod(te.indexdiv(self.lane, step), self.along) if step > 1 else te.indexmod(self.lane, self.along)

    def _row_of(self, operand: str, key: Index) -> tuple[Any, ...]:
        """Where a key's row lies."""
        return stored(order_of(self.k.form.attrs, operand), (self.of.b, self.of.key_head, self._place(key), 0))[:3]

    def _load_row(self, operand: str, to: BufferVar, at: int, row: tuple[Any, ...], first: Index, n: int) -> None:
        loops.put_vector(self.ib, to, at, loops.vector_at(self.k.sources[operand], row, first, n))

    def _load_scale(self, operand: str, at: int, row: tuple[Any, ...]) -> None:
        if operand in self.scales:
            self.scales[operand][at] = self.k.sources[f"{operand}_scale"][(*row, 0)].astype(self.k.acc)

    def _bring_keys(self, key: Index) -> None:
        f, n = self.f, self.of_key
        row, _ = f.operand(f.key_role, self.lane, 0)
        for t in range(self.keys // f.keys):
            place = self._row_of("k", self.ib.let("key", key + f.key_row(t, row)))
            self._load_scale("k", t, place)
            for c in range(self.chunks):
                first = c * self.along * n + self._own_along() * n
                self._load_row("k", self.in_keys, (t * self.chunks + c) * n, place, first, n)

    def _bring_values(self, key: Index) -> None:
        f, n = self.f, self.of_value
        for vector in range(self.keys // f.instr.k):
            for e in range(self.own):
                row, own = f.operand(f.key_role, self.lane, e)
                place = self._row_of("v", self.ib.let("key", key + own + vector * f.instr.k))
                self._load_scale("v", vector * self.own + e, place)
                for m in range(self.rounds):
                    at = ((vector * self.own + e) * self.rounds + m) * n
                    self._load_row("v", self.in_values, at, place, m * f.keys * n + row * n, n)

    # ---- operands

    def _read_queries(self) -> None:
        """Each lane's elements of queries, in the order of its elements of keys; 0 for queries that are not there."""
        f, n, ib = self.f, self.of_key, self.ib
        self.q = ib.allocate(self.dtype, (self.parts * self.q_elems,), "queries", scope="local")
        places = self._places_of_queries()
        for slot in range(f.slots):
            own = [i for i in range(self.q_elems) if places[i][0] == slot]
            if slot >= self.slots:
                for part, i in itertools.product(range(self.parts), own):
                    self.q[part * self.q_elems + i] = te.const(0, self.dtype)
                continue
            row = f.query(self.lane, slot)
            row = ib.let("row", te.min(row, self.count - 1) if self.count % f.queries else row)
            for c in range(self.chunks):
                piece = query_piece(self.k, self.of, row, c * self.along * n + self._own_along() * n, n)
                for h, i in itertools.product(range(self.in_turn), own):
                    at = (c * self.in_turn + h) * self.q_elems + i
                    self.q[at] = piece[h * self.own + places[i][1]]

    def _places_of_queries(self) -> list[tuple[int, int]]:
        """(slot, which of the lane's terms) of each element of its operand of queries."""
        f = self.f
        at = [tuple(int(x) for x in f.operand(f.query_role, 0, i)) for i in range(self.q_elems)]
        terms = sorted({k for _, k in at})
        rows = sorted({row for row, _ in at})
        return [(rows.index(row), terms.index(k)) for row, k in at]

    @property
    def at_once(self) -> int:
        return 1

    def _numbers(self, operand: str, x: Expr, n: int, row: int) -> Expr:
        """What `n` elements of a row stand for, in the queries' type; `row`: which of those that a lane has."""
        made: Expr = x.astype(with_lanes(self.dtype, n))
        if operand not in self.scales:
            return made
        scale = self.scales[operand][row]
        scaled: Expr = made.astype(with_lanes(self.k.acc, n)) * (Broadcast(scale, n) if n > 1 else scale)
        narrow: Expr = scaled.astype(with_lanes(self.dtype, n))
        return narrow

    def _keys_of(self, tile: int, part: int) -> list[tuple[int, Expr]]:
        chunk, h = divmod(part, self.in_turn)
        at = (tile * self.chunks + chunk) * self.of_key + h * self.own
        return [(tile, self._numbers("k", loops.vector(self.in_keys, at, self.own), self.own, tile))]

    def _values_of(self, tile: int, vector: int) -> list[tuple[int, Expr]]:
        """One element of each of a lane's values: tiles have neighbouring elements."""
        m, j = divmod(tile, self.of_value)
        one = self.ib.allocate(self.dtype, (self.own,), "one", scope="local")
        for e in range(self.own):
            row = vector * self.own + e
            one[e] = self._numbers("v", self.in_values[(row * self.rounds + m) * self.of_value + j], 1, row)
        return [(tile, loops.vector(one, 0, self.own))]

    # ---- the end

    def results(self, out: Results) -> None:
        ib, f, size, rows = self.ib, self.f, self.g.value_size, self.count

        def leave(shared: BufferVar, line: int) -> None:
            for slot in range(self.slots):
                top, total, is_first = self._whole(0, slot)
                row = ib.let("row", f.query(self.lane, slot))
                with loops.where(ib, rows % f.queries == 0 or row < rows):
                    at = ib.let("at", (self.wave * rows + row) * line)
                    for n in range(self.value_tiles * self.acc):
                        c, i = divmod(n, self.acc)
                        if f.slot(i) == slot:
                            m, j = divmod(c, self.of_value)
                            column = (m * f.keys + f.value_column(self.lane, i)) * self.of_value + j
                            shared[at + column] = self.o[n]
                    with ib.if_scope(is_first):
                        shared[at + size] = top
                        shared[at + size + 1] = total

        meet(self.k, out, self.waves, rows, (self.wave, self.lane), f.instr.wave, leave)


class PagedDirect(DirectWave):
    """Blocks of a wavefront are looked up a step ahead: one entry of the table serves a wavefront's block where blocks of the pool are a whole number of them."""

    @property
    def _is_whole(self) -> bool:
        return bool(self.k.places % self.keys == 0)

    def _block_of(self, key: Any) -> Any:
        """The entry of a key's block, no further than that of the last key that is seen."""
        places = self.k.places
        return self.k.entry(self.of.b, te.min(te.indexdiv(key, places), te.indexdiv(self.last, places)))

    def _enter(self, key: Any, apart: int) -> None:
        if not self._is_whole:
            return
        # Entries of the block whose loads come next, and of the one behind it.
        self.entries = self.ib.allocate("int32", (2,), "entries", scope="local")
        self.entries[0] = self._block_of(key)
        self.entries[1] = self._block_of(key + apart)

    def _go_on(self, after: Any, apart: int) -> None:
        if self._is_whole:
            self.entries[0] = self.entries[1]
            self.entries[1] = self._block_of(after + apart)

    def _row_of(self, operand: str, key: Index) -> tuple[Any, ...]:
        place = self._place(key)
        own = self.entries[0] if self._is_whole else self._block_of(place)
        return own, self.of.key_head, te.indexmod(place, self.k.places)


class FewRowsMatrixAttention(FewRowsAttention):
    """See the module."""

    template: ClassVar[str] = "few rows attention by matrix units"
    waits: ClassVar[int] = 1

    def read_form(self) -> None:
        super().read_form()
        self.parameters = {
            "waves": self.threads_up_to_limit(8, 4, 2, 1, each=self.wave), "keys": (16, 32, 64, 128), "splits": (1, 2, 4, 8, 16, 32),
        }  # fmt: skip
        self.unit = self._unit()

    def _unit(self) -> Fragments | None:
        """The narrowest instruction that has a column for each query, and whose operand in a lane is no more than a load."""
        # CDNA 1 has sums of matrix units in registers that vector code does not reach: each block would move them there and back to scale them.
        if dtype_info(self.dtype).bytes != 2 or self.target.chip.family == "cdna1":
            return None
        found = [f for f in fragments(self.dtype, self.target).values() if f.copies == 1 and f.queries >= self.rows[0]]
        return min((f for f in found if self._is_loaded(f)), key=lambda f: f.queries, default=None)

    def _is_loaded(self, f: Fragments) -> bool:
        """Whether heads are whole pieces of a lane's loads."""
        return layout_of(f, self.g.size, self.g.value_size, dtype_info(self.dtype).bytes) is not None

    @property
    def fits_at_all(self) -> bool:
        g = self.g
        if self.unit is None or not isinstance(g.queries, int):
            return False
        return all(order_of(self.form.attrs, name)[3] == 3 for name in "qkv") and next(iter(self.all), None) is not None

    def step(self, choice: Choice) -> int:
        return int(choice["waves"]) * int(choice["keys"])

    def loaded(self, choice: Choice) -> int:
        """Registers of a lane for a block of keys and values."""
        size = int(self.g.size) + int(self.g.value_size)
        return int(choice["keys"]) * size * dtype_info(self.dtype).bytes // (4 * self.wave)

    def registers(self, choice: Choice, f: Fragments) -> int:
        """Of a lane."""
        bytes_ = dtype_info(self.dtype).bytes
        queries = f.queries * int(self.g.size) * bytes_ // 4
        sums = f.queries * (int(self.g.value_size) + int(choice["keys"]))
        return self.loaded(choice) + (queries + sums) // self.wave + _REGISTERS_BESIDE

    def _resident(self, choice: Choice) -> int:
        """Wavefronts of a unit at once, as far as registers go."""
        chip, f = self.target.chip, self.unit
        assert f is not None
        return chip.registers(self.wave)[0] // self.registers(choice, f) * chip.simds

    def why_not(self, choice: Choice) -> str | None:
        f = self.unit
        if f is None or choice["keys"] % max(f.instr.k, f.keys):
            return "a block's keys are no whole number of tiles"
        if (need := self.registers(choice, f)) > (have := self.target.chip.vgprs):
            return f"{need} registers of a lane, there are {have}"
        return super().why_not(choice)

    @property
    def default(self) -> Choice:
        """As many keys a block as registers have room for, and work-groups for all units as long as each wavefront has blocks."""
        legal = [c for c in self.all if c["splits"] == 1]
        few = [c for c in legal if self.loaded(c) <= self.figures["registers"]]
        keys = max(few, key=lambda c: c["keys"])["keys"] if few else min(c["keys"] for c in legal)
        legal = [c for c in legal if c["keys"] == keys]
        one = next((c for c in legal if self._resident(c) >= self.figures["groups_a_unit"] * c["waves"]), legal[-1])
        units = self.figures["groups_a_unit"] * self.target.machine.units
        wanted = min(units / self.groups(self.rows[0]), self.length / (self.figures["blocks"] * self.step(one)))
        return {**one, "splits": min(int(self.parameters["splits"][-1]), 1 << max(0, int(wanted).bit_length() - 1))}

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        grid = Grid(kernel, self.rows[1], self.rows[0], choice["splits"], (self.wave, choice["waves"]), early=True)
        f = self.unit
        assert f is not None
        wave = PagedDirect if kernel.places else DirectWave
        grid.launch(lambda of, first, tx, ty: wave(kernel, f, choice, of, tx, ty, self.rows[0]))
