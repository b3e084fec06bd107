"""Attention by two warpgroups that take turns at the matrix unit, and one that fetches (Hopper); work-groups stay for all their tiles.

Scores of the next block are under way before the weights of the last one meet their values, so that a warpgroup's softmax runs beside its own second
product, and beside the other's both: each gives the turn once its products are queued. Blocks go from the last to the first, those that need masks in
loops of their own: no branch stands where products are under way.
Source: Shah and others, "FlashAttention-3" (2024), "pingpong scheduling"; PTX ISA, "wgmma.mma_async", "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .... import te
from ....ir.expr import Broadcast
from ....ir.matrix import WARPGROUP
from ....ops.attention import order_of
from ....target import Target
from ....te.like import Index
from ...parts import loops, needs
from ...parts.warpgroups import ROWS, WARPS
from ...space import Choice, Cost
from .fragments import Fragments
from .grid import Grid, Results, Rows, ceil_div
from .kernel import Kernel
from .softmax import RunningSoftmax
from .tiles import sizes
from .warpgroup import Warp, WarpgroupAttention

GROUPS = 2
_WIDE = 64  # elements of a head beyond which work-groups that take turns are the faster ones
REGISTERS = 232  # of a working thread, where the fetching warpgroup keeps 40 of the unit's


def takes_copies(target: Target, dtype: str, size: Index, value_size: Index, queries: Index) -> bool:
    """Whether queries come by bulk copies, which turn nothing on the way: the chip's kernel for many queries of wide heads."""
    wide = any(not isinstance(n, int) or n > _WIDE for n in (size, value_size))
    many = not isinstance(queries, int) or queries >= ROWS
    return target.is_gpu and bool(target.chip.warpgroup) and dtype in ("float16", "bfloat16") and wide and many


class PingPongAttention(WarpgroupAttention):
    """Two warpgroups of 64 queries each by a block of `keys`; rings of `stages` blocks of keys, and of values."""

    template: ClassVar[str] = "attention in turns"

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.parameters = {"keys": (128, 80, 64, 96, 112, 32), "stages": (2, 3, 4), "turns": (True, False)}

    def registers(self, choice: Choice) -> int:
        """Of a thread: sums, scores and weights."""
        return super().registers({**choice, "hold": False})

    def shared_bytes(self, choice: Choice) -> int:
        """Of the rings and of the queries; these have a ring too where one block has all keys, and no loop over blocks is left."""
        rings = choice["stages"] if isinstance(self.g.keys, int) and self.g.keys <= choice["keys"] else 1
        return super().shared_bytes({**choice, "hold": False, "groups": GROUPS * rings})

    def why_not(self, choice: Choice) -> str | None:
        if not self.plain_rows:
            return "rows of queries begin where a bulk copy cannot"
        if self.registers(choice) > REGISTERS:
            return f"{self.registers(choice)} registers of a thread, there are {REGISTERS}"
        return needs.shared_memory(self.shared_bytes(choice), self.target.lds_bytes)

    @property
    def plain_rows(self) -> bool:
        """Whether queries lie as rows that a bulk copy can bring, and are as long as the unit takes them."""
        size, value_size = sizes(self.fragments(), self.g)
        whole = size == self.g.size and value_size == self.g.value_size
        turned = "cos" in self.form.attrs.get("extras", ())
        return whole and order_of(self.form.attrs, "q")[3] == 3 and not turned

    @property
    def default(self) -> Choice:
        size = max(self.g.size, self.g.value_size)
        some = [
            self.choice(keys=k, stages=2, turns=told["turns"]) for told in self.ruled(size=size) for k in told["keys"]
        ]
        return next((c for c in some if self.why_not(c) is None), None) or super(WarpgroupAttention, self).default

    @property
    def tiles(self) -> Any:
        """Work-groups' pieces of work."""
        return self.batch * self.g.heads * -(-self.queries // (ROWS * GROUPS))

    def cost(self, choice: Choice) -> Cost:
        """Products of both warpgroups one after the other at the unit, by how many rounds of tiles there are."""
        machine, (matrix, vector) = self.target.machine, self.step_clocks(choice)
        clocks = max(GROUPS * matrix, GROUPS * vector * self.figures["softmax_bound"], matrix + vector)
        clocks += self.figures["step_clocks"]
        if (work := self.causal_work(ROWS * GROUPS, choice["keys"], 1, True)) is not None:
            clocks = work[0] * clocks + work[1] * 500 + 1500
        else:
            steps, rounds = -(-self.length // choice["keys"]), -(-self.tiles // machine.units)
            clocks = rounds * (steps * clocks + 500) + 1500
        return Cost(clocks / machine.clock_hz + machine.launch_seconds, "matrix")

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        f, units = self.fragments(), self.target.machine.units
        asked = {**choice, "rows": 16, "waves": WARPS * GROUPS, "hold": False, "masked": self.is_masked}
        grid = Grid(kernel, False, ROWS * GROUPS, 1, (WARPGROUP, GROUPS), 1, sorted=self.sorts(ROWS * GROUPS))
        # Tiles of so short a kernel that it may begin beside the one ahead.
        few = self.figures.count("few_rounds") * units
        launch(
            grid, units, few, lambda of, first, tx, ty: PingPongWarp(kernel, f, asked, of, first, tx, ty, self.target)
        )


def launch(grid: Grid, units: int, few: int, make: Callable[..., PingPongWarp]) -> None:
    """Work-groups that stay: one a multiprocessor, each for every so many-th tile."""
    k = grid.k
    ib, g = k.ib, k.g
    tiles = ceil_div(g.queries, grid.tile)
    total = g.batch * g.heads * tiles
    there = min(total, units) if isinstance(total, int) else te.min(total, units)
    # Under a causal mask the last queries see the most keys: they begin first.
    uneven = k.scores.attrs.get("right") is not None
    with loops.launch(ib, (there,), tuple(grid.threads)) as (block, tx, ty):
        ib.scope_attr(None, "min_blocks", grid.resident)
        if isinstance(total, int) and units <= total <= few:
            ib.scope_attr(None, "early_start", None)
        begin = make(None, 0, tx, ty)
        ib.scope_attr(None, "warp_specialize", begin.stages)
        shared = begin.tiles_in_shared_memory()
        begin.begin_turns()
        with ib.for_range(0, ceil_div(total, units), "round") as round_:
            at: Any = block
            if uneven:
                # There and back, so that nobody has the longer ones each time: where 132 is a little more than a number of heads' tiles, every so
                # many-th tile alone is 9 % more work for the first than for the last (tiles in groups of heads, wrapping at other places, were worse).
                at = te.select(te.indexmod(round_, 2) == 0, at, there - 1 - at)
            at = ib.let("tile", at + round_ * units)
            with ib.if_scope(at < total):
                if grid.sorted:
                    b_head, place = te.indexmod(at, g.batch * g.heads), te.indexdiv(at, g.batch * g.heads)
                else:
                    b_head, place = te.indexdiv(at, tiles), te.indexmod(at, tiles)
                b, head = ib.let("b", te.indexdiv(b_head, g.heads)), ib.let("head", te.indexmod(b_head, g.heads))
                first = ib.let("first", (tiles - 1 - place if uneven else place) * grid.tile)
                of = Rows(k, False, b, head)
                t = make(of, first, tx, ty)
                t.q, t.ks, t.vs = shared
                t.run(0, 1)
                t.results(Results(grid, of, 0, None, tiles))


class PingPongWarp(Warp):
    """One warp's part."""

    def __init__(
        self, k: Kernel, f: Fragments, asked: Choice, of: Any, first: Index, thread: Index, group: Index, target: Target
    ):
        super().__init__(k, f, asked, of, first, thread, group, target)
        self.turns, self.masked = asked["turns"], asked["masked"]

    def tiles_in_shared_memory(self) -> list[Any]:
        """Queries, a block of keys, and one of values."""
        sizes_ = self.g.size, self.g.value_size
        return [
            self._tile("query_tile", self.group_rows, sizes_[0]), self._tile("key_tile", self.keys, sizes_[0]),
            self._tile("value_tile", self.keys, sizes_[1]),
        ]  # fmt: skip

    # ---- turns

    def begin_turns(self) -> None:
        """The first warpgroup begins."""
        if self.turns:
            with self.ib.if_scope(self.group == 1):
                self._effect("turn_give", self.group)

    # ---- tiles

    def _keys_come(self, block: Index) -> None:
        self._bulk_copy("k", self.ks, self.of.key_head, block * self.keys, self.keys, self.g.size)

    def _values_come(self, block: Index) -> None:
        self._bulk_copy("v", self.vs, self.of.key_head, block * self.keys, self.keys, self.g.value_size)

    # ---- products

    def _issue(self, which: int) -> None:
        self._start(which, self.group)

    def _done(self, which: int, behind: int) -> None:
        """Wait for a product while `behind` later ones are under way; its tile may then be filled again."""
        self._wait(which, behind)
        self._effect("bulk_release", (self.vs if which else self.ks)[0, 0])

    # ---- the loop

    def run(self, split: Index, splits: int) -> None:
        """A warpgroup's rows: from the last block of keys, which may have hidden ones, to the first."""
        ib, f, acc = self.ib, self.f, self.k.acc
        self.lane = ib.let("lane", self.lane + 0)
        self.q_elems = f.instr.elems(f.query_role)
        self.o = ib.allocate(acc, (self.value_tiles * self.acc,), "sums", scope="local")
        self.s = ib.allocate(acc, (self.key_tiles * self.acc,), "scores", scope="local")
        self.p = ib.allocate(self.dtype, (self.keys // f.instr.k * self.q_elems,), "weights", scope="local")
        self.softmax = RunningSoftmax(self.k, f.slots, 2, self.power)
        self.places = [[self.of.at(te.min(self._row(0, s), self.of.count - 1)) for s in range(f.slots)]]
        for n in range(f.slots):
            self.softmax.begin(n)
        loops.put_vector(self.ib, self.o, 0, Broadcast(self.k.const(0), self.value_tiles * self.acc))
        begin, end = self._range(0, 1)
        last = ib.let("last", te.max(end, begin + 1) - 1)
        hidden_before, seen_from = self._seen_range(begin, last)
        self._bulk_copy("q", self.q, self.of.head, self.group_first, self.group_rows, self.g.size)
        self._keys_come(last)
        self._effect("wgmma_fence")
        self._issue(0)
        self._done(0, 0)
        self._softmax(last, self._has_hidden())
        self._packed(0)
        if hidden_before is not None:
            self._walk(hidden_before, last, True)
        self._walk(
            seen_from if seen_from is not None else begin, hidden_before if hidden_before is not None else last, False
        )
        if seen_from is not None:
            self._walk(begin, seen_from, True)
        self._values_come(begin)
        self._effect("wgmma_fence")
        self._issue(1)
        self._done(1, 0)
        self._effect("bulk_release", self.q[0, 0])

    def _has_hidden(self) -> bool:
        """Whether a tile's last block may have keys that are not seen."""
        return self.masked or not (isinstance(self.g.keys, int) and self.g.keys % self.keys == 0)

    def _seen_range(self, begin: Index, last: Index) -> tuple[Any, Any]:
        """(the first block behind those that all queries see, but for those before: `last` where only the last is not; the first that they all see): None
        where there are none such before."""
        k, attrs, ib = self.k, self.k.form.attrs, self.ib
        offset = k.scores.offset(k.extra, self.of.b) if k.scores.has_range else 0
        ends = []
        if attrs.get("right") is not None:
            ends.append(te.max(self.low + offset + (attrs["right"] + 1), 0))
        if "length" in k.scores.shapes:
            ends.append(te.max(k.extra("length", (self.of.b,)).astype("int32"), 0))
        before = seen = None
        if ends:
            whole = te.indexdiv(ends[0] if len(ends) == 1 else te.min(*ends), self.keys)
            before = ib.let("seen_end", te.max(te.min(whole, last), begin))
        if attrs.get("left") is not None:
            from_ = te.indexdiv(te.max(self.high + offset - attrs["left"], 0) + (self.keys - 1), self.keys)
            seen = ib.let("seen_begin", te.max(te.min(from_, before if before is not None else last), begin))
        return before, seen

    def _walk(self, begin: Index, end: Index, masked: bool) -> None:
        """Blocks end - 1 to begin: their scores, and the values of the blocks behind them."""
        with self.ib.for_range(0, end - begin, "step") as step:
            block = self.ib.let("block", end - 1 - step)
            self._keys_come(block)
            if self.turns:
                self._effect("turn_take", self.group)
            self._effect("wgmma_fence")
            self._issue(0)
            self._values_come(block + 1)
            self._issue(1)
            if self.turns:
                self._effect("turn_give", self.group)
            self._done(0, 1)
            factors = self._softmax(block, masked)
            self._done(1, 0)
            self._packed(0)
            self._scale(0, factors)

    def _softmax(self, block: Index, masked: bool) -> list[Any]:
        """Scores into weights; what sums so far are to be multiplied by."""
        key = block * self.keys
        if not self.is_raw:
            self._each_score(key, self._biased)
        if masked:
            self._each_score(key, self._masked)
        factors = [self._maximum(0, slot) for slot in range(self.f.slots)]
        self._exponentials(0, factors)
        return factors
