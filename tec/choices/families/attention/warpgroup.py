"""Attention by warpgroup products (Hopper): keys and values come by bulk copies into a ring, wgmma multiplies, softmax stays in registers.

Each of a warpgroup's four warps holds 16 queries and their scores, weights and sums as it would for mma.sync (`wave`): a warpgroup
product's accumulators are those of neighbouring tiles of 16 by 8, and queries and weights are its operand from registers. Keys and values lie in shared
memory as the copy engine and the unit agree on. Work-groups of a warpgroup or two, of which a multiprocessor holds more than one: one's softmax runs
beside another's products.
Source: Shah and others, "FlashAttention-3" (2024), for what the chip wants; PTX ISA, "wgmma.mma_async".
"""

from __future__ import annotations

from typing import Any, ClassVar

from .... import te
from ....ir.dtype import dtype_info, with_lanes
from ....ir.expr import Broadcast, Call
from ....ir.matrix import WARPGROUP, find_warpgroup
from ....ops.attention import order_of
from ....target import Target
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...parts import loops, needs
from ...parts.warpgroups import FILE_REGISTERS, ROWS, WARPS, boxed
from ...space import Choice, Cost
from .deal import longest
from .fragments import Fragments
from .grid import Grid, Rows, is_sorted
from .kernel import AttentionSpace, Kernel
from .matrix import fragments
from .tiles import sizes
from .wave import Wave

MOST_TRIED = 1 << 14  # tiles whose dealing out is tried; of more, each work-group has enough for a mean
SLACK_BYTES = 2048  # of shared memory: barriers, and tiles beginning at multiples of 1 KB
# Of a thread: addresses, masks, maxima, descriptors (ptxas takes 15 to 25, and gives up little below).
REGISTERS_BESIDE = 16


class WarpgroupAttention(AttentionSpace):
    """`groups` warpgroups of 64 queries each by a block of `keys`; a ring of `stages` blocks."""

    template: ClassVar[str] = "warpgroup attention"

    def read_form(self) -> None:
        super().read_form()
        self.parameters = {
            "groups": (1, 2, 3),
            "keys": (128, 64, 96, 80, 112, 32, 160, 176),
            "stages": (2, 3, 4),
            "resident": (2, 1, 3, 4),
            "hold": (True, False),
        }

    @property
    def fits_at_all(self) -> bool:
        """Whether the chip has the unit, and rows of queries, keys and values are what copies can bring."""
        g, target = self.g, self.target
        if not target.chip.warpgroup or self.dtype not in ("float16", "bfloat16"):
            return False
        whole = all(isinstance(n, int) and n % 8 == 0 and 16 <= n <= 256 for n in (g.size, g.value_size))
        last = all(order_of(self.form.attrs, x)[3] == 3 for x in "kv")
        many = not isinstance(g.queries, int) or g.queries >= ROWS
        return whole and last and many and next(self.all, None) is not None

    @property
    def is_masked(self) -> bool:
        """Whether some blocks have keys that some queries do not see."""
        attrs = self.form.attrs
        return attrs.get("right") is not None or attrs.get("left") is not None or "length" in attrs.get("extras", ())

    def fragments(self) -> Fragments:
        """A warp's part of the unit's registers."""
        return fragments(self.dtype, self.target)["16x8"]

    def registers(self, choice: Choice) -> int:
        """Of a thread: sums, scores, weights and queries."""
        size, value_size = sizes(self.fragments(), self.g)
        queries = size // 2 if choice["hold"] else 0
        total: int = (value_size + choice["keys"] + choice["keys"] // 2 + queries) // 2 + REGISTERS_BESIDE
        return total

    def shared_bytes(self, choice: Choice) -> int:
        """Of the ring, and of queries where they are not held in registers."""
        bytes_ = dtype_info(self.dtype).bytes
        size, value_size = (boxed(n, self.dtype) * bytes_ for n in (self.g.size, self.g.value_size))
        queries = 0 if choice["hold"] else ROWS * choice["groups"] * size
        total: int = choice["stages"] * choice["keys"] * (size + value_size) + queries + SLACK_BYTES
        return total

    def why_not(self, choice: Choice) -> str | None:
        whole = isinstance(self.g.keys, int) and self.g.keys % choice["keys"] == 0
        if (wrong := self.bug(choice, masked=self.is_masked, whole=whole)) is not None:
            return wrong
        have = min(255, FILE_REGISTERS // WARPGROUP // (choice["groups"] * choice["resident"]) // 8 * 8)
        if self.registers(choice) > have:
            return f"{self.registers(choice)} registers of a thread, there are {have}"
        lds = min(self.target.chip.unit_lds_bytes // choice["resident"], self.target.lds_bytes)
        return needs.shared_memory(self.shared_bytes(choice), lds)

    @property
    def default(self) -> Choice:
        """The first of the rules' blocks (warpgroups, keys, work-groups a multiprocessor) that is legal."""
        size = max(self.g.size, self.g.value_size)
        tiles = self.batch * self.g.heads * -(-self.queries // (2 * ROWS))
        keys = self.g.keys if isinstance(self.g.keys, int) else None
        features = {"keys": keys, "size": size, "tiles": tiles if isinstance(tiles, int) else None}
        choices = [tuple(c) for told in self.ruled(**features) for c in told["blocks"]]
        for groups, keys, resident in choices:
            for hold in (size <= 64, False):
                choice = self.choice(groups=groups, keys=keys, stages=2, resident=resident, hold=hold)
                if self.why_not(choice) is None:
                    return choice
        return super().default

    def step_clocks(self, choice: Choice) -> tuple[float, float]:
        """Of a warpgroup's block of keys: of both products at the unit, and of the softmax between them."""
        g, machine = self.g, self.target.machine
        matrix = ROWS * choice["keys"] * (g.size + g.value_size) / machine.macs(self.dtype)
        vector = ROWS * (10 * choice["keys"] + g.value_size) / machine.macs("float32", matrix=False)
        return matrix, vector

    def cost(self, choice: Choice) -> Cost:
        """Products and softmax side by side where warpgroups share a multiprocessor, by how many rounds of work-groups there are."""
        g, machine = self.g, self.target.machine
        groups = self.batch * g.heads * -(-self.queries // (ROWS * choice["groups"]))
        there = choice["resident"] * choice["groups"]  # warpgroups of a multiprocessor
        matrix, vector = self.step_clocks(choice)
        clocks = max(there * max(matrix, vector), matrix + vector) + 120
        steps = -(-self.length // choice["keys"])
        rounds = -(-groups // (machine.units * choice["resident"]))
        if (work := self.causal_work(ROWS * choice["groups"], choice["keys"], choice["resident"])) is not None:
            # Work-groups of a multiprocessor share it until the shorter ones end: each has its part of the whole.
            alone = matrix + vector + 120
            clocks = max(work[0] * clocks / choice["resident"], work[2] * alone) + work[1] * 1500 / choice["resident"]
        else:
            clocks = rounds * (steps * clocks + 1500)
        return Cost(clocks / machine.clock_hz + machine.launch_seconds, "matrix")

    def sorts(self, rows: int) -> bool:
        """Whether tiles of so many queries go by their length (see `grid.is_sorted`). Where each multiprocessor has one at most, order makes none shorter."""
        g = self.g
        if not self.is_causal or not all(isinstance(n, int) for n in (g.batch, g.heads, g.queries)):
            return False
        tiles = g.batch * g.heads * -(-g.queries // rows)
        return tiles > self.target.machine.units and is_sorted(g, self.target, dtype_info(self.dtype).bytes)

    @property
    def is_causal(self) -> bool:
        """Whether the last queries see the most keys."""
        return self.form.attrs.get("right") is not None

    def causal_work(self, rows: int, keys: int, resident: int, stay: bool = False) -> tuple[int, int, int] | None:
        """Under a causal mask, of the multiprocessor with the most work: blocks of keys and tiles; and blocks of the longest tile. None without such a mask,
        where sizes are open, or tiles so many that each has enough of them for a mean. stay: see `deal.longest`."""
        g, offset = self.g, self.form.attrs.get("offset", 0)
        sizes_ = (g.batch, g.heads, g.queries, g.keys, offset)
        if (
            not self.is_causal
            or "start" in self.form.attrs.get("extras", ())
            or not all(isinstance(n, int) for n in sizes_)
        ):
            return None
        lines, tiles = g.batch * g.heads, -(-g.queries // rows)
        if lines * tiles > MOST_TRIED:
            return None
        left, right = self.form.attrs.get("left"), self.form.attrs["right"]
        blocks = []
        for at in reversed(range(tiles)):
            end = max(0, min(min((at + 1) * rows, g.queries) + offset + right, g.keys))
            begin = 0 if left is None else max(0, at * rows + offset - left) // keys
            blocks.append(max(0, -(-end // keys) - begin))
        return longest(tuple(blocks), lines, self.sorts(rows), self.target.machine.units, resident, stay)

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        f, groups = self.fragments(), choice["groups"]
        asked = {**choice, "rows": 16, "waves": WARPS * groups}
        grid = Grid(
            kernel, False, ROWS * groups, 1, (WARPGROUP, groups), choice["resident"], sorted=self.sorts(ROWS * groups)
        )
        grid.launch(lambda of, first, tx, ty: Warp(kernel, f, asked, of, first, tx, ty, self.target))


class Warp(Wave):
    """One warp's part: what it shares with three others is the product."""

    def __init__(
        self,
        k: Kernel,
        f: Fragments,
        choice: Choice,
        of: Rows,
        first: Index,
        thread: Index,
        group: Index,
        target: Target,
    ):
        super().__init__(k, f, choice, of, first, te.indexmod(thread, 32), group * WARPS + te.indexdiv(thread, 32))
        self.group = group
        self.units = [
            find_warpgroup(target, self.dtype, n, depth)
            for n, depth in ((self.keys, self.size), (self.value_size, self.keys))
        ]

    def _blocks(self, key: Index) -> None:
        """Keys and values as tiles of whole lines, which bulk copies fill; beyond a tensor's edge they bring 0."""
        made = []
        for operand, size in (("k", self.g.size), ("v", self.g.value_size)):
            made.append(self._tile(f"{operand}_tile", self.keys, size))
            self._bulk_copy(operand, made[-1], self.of.key_head, key, self.keys, size)
        self.ks, self.vs = made

    def _tile(self, name: str, rows: int, size: int) -> BufferVar:
        """A tile of whole lines in shared memory."""
        return self.ib.allocate(self.dtype, (rows, boxed(size, self.dtype)), name, scope="shared")

    def _bulk_copy(self, operand: str, tile: BufferVar, head: Index, first: Index, rows: int, size: int) -> None:
        """A tile from the places `first` and on of a head; beyond a tensor's edge copies bring 0."""
        ib = self.ib
        with ib.new_scope():
            ib.scope_attr(None, "bulk_copy", None)
            with ib.for_range(0, rows, "row") as row, ib.for_range(0, boxed(size, self.dtype), "column") as column:
                tile[row, column] = self.k.stored_at(operand, self.of.b, head, first + row, column)

    def _fill_queries(self) -> None:
        """The work-group's queries as the unit reads them from shared memory, where threads have written them."""
        ib, piece, columns = self.ib, 16 // self.bytes, boxed(self.g.size, self.dtype)
        self.q = ib.allocate(self.dtype, (self.group_rows, columns), "query_tile", scope="shared")
        pieces = self.size // piece
        thread = self.wave * 32 + self.lane
        with ib.for_range(0, -(-self.group_rows * pieces // self.threads), "r", kind="unroll") as r:
            e = r * self.threads + thread
            row, column = te.indexdiv(e, pieces), te.indexmod(e, pieces) * piece
            with ib.if_scope(row < self.group_rows), ib.for_range(0, piece, "v", kind="vectorize") as v:
                self.q[row, column + v] = self._query_element(self.group_first + row, column + v)
        self._effect("proxy_fence")
        self._effect("barrier", scope="shared")

    def _effect(self, op: str, *args: Any, **attrs: Any) -> None:
        self.ib.emit(te.call_intrin("int32", op, *args, **attrs))

    def _start(self, which: int, group: Index) -> None:
        """Queue the product of queries and keys (0), or of weights and values, which is added to the sums (1). group: the warpgroup's number."""
        instr, acc = self.units[which], self.o if which else self.s
        assert instr is not None
        dtype, attrs = with_lanes("float32", instr.acc_elems), {**instr.attrs(), "b_major": "mn" if which else "k"}
        first = loops.vector(acc, 0, instr.acc_elems) if which else Broadcast(self.k.const(0), instr.acc_elems)
        right = (self.vs if which else self.ks)[0, 0]
        if which or self.holds:
            left = (
                loops.vector(self.p, 0, self.keys // 2) if which else loops.vector(self.q, 0, self.parts * self.q_elems)
            )
            product = Call("wgmma_registers", (left, right, first), dtype, attrs)
        else:
            product = Call("wgmma", (self.q[group * ROWS, 0], right, first), dtype, {**attrs, "a_major": "k"})
        loops.put_vector(self.ib, acc, 0, product)
        self._effect("wgmma_commit")

    def _wait(self, which: int, behind: int) -> None:
        """Wait for a product while `behind` later ones are under way."""
        instr, acc = self.units[which], self.o if which else self.s
        assert instr is not None
        whole = loops.vector(acc, 0, instr.acc_elems)
        loops.put_vector(self.ib, acc, 0, Call("wgmma_wait", (whole,), whole.dtype, {"n": behind}))

    def _multiply(self, which: int) -> None:
        self._effect("wgmma_fence")
        self._start(which, self.group if self.holds else te.call_intrin("int32", "readfirstlane", self.group))
        self._wait(which, 0)

    def _scores(self) -> None:
        self._multiply(0)

    def _values(self) -> None:
        self._multiply(1)
