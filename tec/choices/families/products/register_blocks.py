"""Products on a GPU's vector units: a tile a work-group, its operands' tiles in shared memory, a block of the result in each thread's registers.

Blocks are of words (`packed_words`), which come from shared memory in runs of four (`parts.sums`); products of few tiles are summed in parts by a second kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import ClassVar

from ....ir import IterVar
from ....ir.dtype import dtype_info
from ....ops.contraction import Contraction
from ....ops.dims import is_symbolic
from ....ops.typical import is_unbounded
from ....records import dataclass
from ....schedule import Schedule
from ....target import Target, latency_ns
from ....te import ComputeOp, Tensor, thread_axis
from ...group import Group, const_shape, same_shape
from ...parts import ends, grid, needs, padding, split_k, sums
from ...parts.grid import Tiles
from ...parts.operands import accumulators, contraction
from ...parts.staging import bring
from ...parts.sums import RUN
from ...space import Choice, Cost, Scheduled, Space, Value
from . import block_clocks
from .packed_words import Words, in_words

_MOST_BROUGHT = 24  # elements of the next step in a thread's registers, beside 64 sums and what they are made of
_BETWEEN = (96, 48)  # rows or columns of a tile: for products that fill little of the last one otherwise
_FEW_ROWS = 16  # of a product whose tile has no more: four threads of runs of four
_MOST_AHEAD = 64  # terms of the sum that a ring of slots holds
_RESIDENT = 3  # work-groups of 128 threads with 64 sums each that a multiprocessor should hold: 168 registers a thread
_AROUND = 3  # waits for memory of a work-group beside those of its steps
_STEP_CLOCKS = 120  # of a step beside its sums: two barriers, and values on their way through registers
_GUARD_CLOCKS = 12  # a thread's of an element that comes under conditions: where it lies, and whether it is there


class RegisterBlocks(Space):
    """`rows` by `columns` a work-group, `block` of them a thread, `step` words of the sum at a time, the sum in `split_k` parts."""

    template: ClassVar[str] = "blocked product"
    easiest: ClassVar[Mapping[str, Value]] = {"split_k": 1}
    former: ClassVar[Mapping[str | tuple[str, str], str]] = {"parts": "split_k"}

    def __init__(self, group: Group, target: Target, words: Words, result: Tensor):
        super().__init__(group, target)
        self.words, self.result = words, result
        self.contraction = c = words.contraction
        # Of a product without symbolic sizes; and by sizes what its choices have in common.
        self._fixed = None if is_symbolic((*c.batch, c.m, c.n, c.k)) else padding.sizes(c)
        self._clocks: dict[tuple[int, ...], block_clocks.Clocks] = {}
        is_open = is_unbounded(c.m) or is_symbolic((*c.batch, c.n, c.k))
        m, n, *_ = padding.sizes(c)
        between = _BETWEEN if self._may_copy() else ()
        few = (_FEW_ROWS,) if m <= _FEW_ROWS and self._may_copy() else ()
        self.parameters = {
            "rows": needs.parts_of(m, (128, 64, 32, *between, *few), needs.THREAD_PART), "columns": needs.parts_of(n, (64, 32, 128, *between), needs.THREAD_PART), "step": (16, 8, 32), "block": ("8x8", "8x4", "4x8", "4x4"),
            "split_k": (1,) if is_open else (1, 2, 3, 4, 6, 8, 12, 16), "stages": (1, 2, 3, 4) if self._may_copy() else (1,),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> RegisterBlocks | None:
        """The space of a product whose sums have 32 bits or more."""
        found = contraction(group, op)
        if found is None or not same_shape(group.outputs[0], op.output(0)):
            return None
        c, result = found
        words = in_words(c, target)
        if words is None:
            return None
        space = cls(group, target, words, result)
        return space if min(padding.sizes(c)[:3]) >= RUN and next(space.all, None) is not None else None

    def _may_copy(self) -> bool:
        """Whether tiles can come by copies in the background: elements as they lie in memory, of at least the four bytes that one brings."""
        c = self.contraction
        is_plain = c.a.dtype == c.b.dtype == c.acc and dtype_info(c.acc).bits == 32
        return self.target.kind == "cuda" and self.target.chip.async_lds and is_plain

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self._fixed or padding.sizes(self.contraction)

    def why_not(self, choice: Choice) -> str | None:
        rows, columns, step, size = choice["rows"], choice["columns"], choice["step"], self.words.bytes
        y, x = _threads(choice)
        if not 64 <= x * y <= min(256, self.target.max_threads) or y < 4 or x < 4:
            return f"{y} by {x} threads"
        if choice["stages"] > 1 and (wrong := self._why_no_ring(choice, x * y)) is not None:
            return wrong
        wrong = needs.first(
            needs.dealt((rows * step // RUN, columns * step), x * y) if choice["stages"] == 1 else None,
            needs.sums(rows * columns // (x * y) * size // 4, self.target.chip.vgprs // 2),
            needs.shared_memory(
                choice["stages"] * (rows + columns) * (step + RUN) * size, self.target.static_lds_bytes
            ),
        )
        if wrong is not None:
            return wrong
        if choice["stages"] == 1 and (rows + columns) * step > _MOST_BROUGHT * x * y:
            return "the next step's elements are more than a thread's registers should hold"
        k = self._sizes[2]
        if choice["split_k"] > 1 and k < 4 * step * self.words.pack * choice["split_k"]:
            return f"a sum of {k} is too short for {choice['split_k']} parts"
        return None

    def _why_no_ring(self, choice: Choice, threads: int) -> str | None:
        """What speaks against slots that are filled in the background."""
        k, stages = self._sizes[2], choice["stages"]
        if threads % self.target.wavefront_size:
            return f"{threads} threads are no whole wavefronts"
        if choice["step"] * stages > _MOST_AHEAD:
            return f"a ring of more than {_MOST_AHEAD} terms"
        if stages > -(-k // (choice["step"] * choice["split_k"])) + 1:
            return "there are more slots than steps"
        return None

    @property
    def default(self) -> Choice:
        if self._may_copy():
            return min(self.all, key=lambda c: self.cost(c).seconds)
        usual = self.parameters["step"][0]
        # Of a short sum steps of the usual length are too few for a pipeline, which prices by a time model tell.
        steps = [c for c in self.all if c["step"] == usual and not self.target.machine.priced_by_model]
        return min(steps or self.all, key=lambda c: self.cost(c).seconds)

    def cost(self, choice: Choice) -> Cost:
        """Work-groups over the multiprocessors, several at a time: multiply-adds, shared memory's traffic, addresses; the traffic of parts."""
        machine, c = self.target.machine, self.contraction
        m, n, k, batch = self._sizes
        y, x = _threads(choice)
        if self._may_copy():
            clocks = self._clocks.get((m, n, k, batch))
            if clocks is None:
                clocks = self._clocks[m, n, k, batch] = block_clocks.Clocks(c, self.target, (m, n, k, batch))
            return Cost(clocks.seconds(choice, (y, x)), "issue")
        rows, columns, step, parts = choice["rows"], choice["columns"], choice["step"], choice["split_k"]
        block = rows // y, columns // x
        groups = grid.count((rows, columns), (m, n), batch) * parts
        steps = -(-k // (step * self.words.pack * parts))
        # Of the vector units' multiply-adds, what is left beside loads, addresses and waiting, by the sums of a thread.
        rate = machine.macs(c.acc, matrix=False) * self.figures.along("block_rate", block[0] * block[1])
        macs = rows * columns * step / rate
        lds = 4.0 * x * y * step * (block[0] + block[1]) / 4 * (self.words.bytes / 4) / machine.scratch_bytes_a_clock
        brought = (
            (rows * (_GUARD_CLOCKS if c.a.guarded else 4) + columns * (_GUARD_CLOCKS if c.b.guarded else 4))
            * step
            / machine.macs(c.acc, matrix=False)
        )
        clocks = steps * (max(macs, lds) + brought)
        resident = max(1, min(1536 // (x * y), 8) // (2 if block[0] * block[1] > 32 else 1))
        share = -(-groups // machine.units)
        alone = _STEP_CLOCKS * steps * (4 if share == 1 else 2 if share < resident else 1)
        seconds = (share * clocks + alone) / machine.clock_hz + machine.launch_seconds
        if machine.priced_by_model:  # for arguments, the first tiles, the way of the results
            seconds += _AROUND * latency_ns(machine, "memory") * 1e-9
        seconds += split_k.traffic_seconds(parts, batch * m * n, machine)
        return Cost(seconds, "issue" if macs >= lds else "LDS")

    def _goes_round(self, choice: Choice) -> bool:
        """Whether a pipeline leaves a loop between its first step and its last. Of two steps none is left: LLVM then reads both steps' tiles at once, and
        on AMD spills."""
        c, words = self.contraction, choice["step"] * self.words.pack * choice["split_k"]
        return self.target.kind == "cuda" or is_symbolic(c.k) or padding.sizes(c)[2] > 2 * words

    def build(self, choice: Choice) -> Scheduled:
        loop, parts = self.loop(choice), choice["split_k"]
        if parts == 1:
            begun = ends.stored(loop, self.group, self.contraction, self.result)
        else:
            total = padding.padded(self.contraction, loop.tile, parts=parts)
            begun = ends.added_tiles(loop, self.group, self.result, total)
        return Scheduled(begun.s, begun.outputs, choice)

    def loop(self, choice: Choice) -> Blocks:
        return Blocks(self.words, choice, self.target, self._goes_round(choice))


def loops(c: Contraction, target: Target, group: Group, result: Tensor) -> Iterator[Blocks]:
    """The main loops for a product on vector units that leave shared memory room for a tile of its sums, of each tile the one with the least price; none where
    the sums are shorter than a word."""
    words = in_words(c, target)
    if words is None:
        return
    space, best = RegisterBlocks(group, target, words, result), dict[tuple[int, int], Choice]()
    for choice in sorted(space.legal({**space.parameters, "split_k": (1,)}), key=lambda x: space.cost(x).seconds):
        best.setdefault((choice["rows"], choice["columns"]), choice)
    for (rows, columns), choice in best.items():
        loop = space.loop(choice)
        held = (rows * (columns + ends.PIECE) + (rows + columns) * (choice["step"] + RUN)) * words.bytes
        if held <= target.static_lds_bytes:
            yield loop


def _threads(choice: Choice) -> tuple[int, int]:
    """Along rows and columns."""
    rows, columns = _block(choice["block"])
    return choice["rows"] // rows, choice["columns"] // columns


@cache
def _block(text: str) -> tuple[int, int]:
    """Rows and columns of a thread."""
    rows, columns = map(int, text.split("x"))
    return rows, columns


@dataclass(frozen=True)
class Blocks(ends.Mainloop):
    """The main loop of such products. pipelined: whether the next step's elements are on their way in registers."""

    words: Words
    choice: Choice
    target: Target
    pipelined: bool
    on_matrix_units: ClassVar[bool] = False

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.choice["rows"], self.choice["columns"], self.choice["step"] * self.words.pack

    @property
    def threads(self) -> list[tuple[IterVar, int]]:
        n = math.prod(_threads(self.choice))
        return [(thread_axis((0, n), "threadIdx.x"), n)]

    def _band(self) -> int:
        """Rows of tiles that go together: all of them where the second-level cache holds the first operand and not the second, which each row of tiles would else bring from memory
        again."""
        c, l2 = self.words.contraction, self.target.machine.level("L2")
        if not self.target.machine.priced_by_model or l2 is None or is_symbolic((*c.batch, c.m, c.n, c.k)):
            return 0
        m, n, k, batch = padding.sizes(c)
        high, size = -(-m // self.choice["rows"]), self.words.bytes
        first, second = m * k * size * c.a.distinct, batch * n * k * size * c.b.distinct
        return high if high > 1 and 2 * first <= l2.size_bytes < second else 0

    def operands(self, c: Contraction) -> Contraction:
        words = in_words(c, self.target)
        assert words is not None
        return words.contraction

    def schedule(self, s: Schedule, product: ComputeOp, out: ComputeOp) -> None:
        acc, final = accumulators(s, product, out, "local"), s[out.output(0)]
        c, (ny, nx), pack = self.words.contraction, _threads(self.choice), self.words.pack
        high, wide, step = self.tile
        run, along = RUN * pack, (c.a.k_last, c.b.k_last)
        tiles = Tiles(final, high, wide)
        rows, columns = sums.share(final, tiles.i, ny, along[0]), sums.share(final, tiles.j, nx, along[1])
        far = [rows.far, columns.far]
        near = [axis for axis in (rows.near, columns.near) if axis is not None]
        sums.nest(tiles, rows, columns, far, near)
        if out.tag != ends.MET:
            tiles.bind(self._band())
        threads = self.threads
        thread = sums.over_threads(final, rows, columns, far, threads[0][0])
        # Parts of runs end where rows do: written out, conditions on what is far apart stand between the stores of a run.
        whole = math.gcd(const_shape(out.output(0))[-1] or 1, RUN)
        for axis in near:
            if axis is columns.near and whole > 1:
                outer, axis = final.split(axis, factor=whole) if whole < RUN else (None, axis)
                final.vectorize(axis)
                if outer is not None:
                    final.unroll(outer)
            else:
                final.unroll(axis)
        own = [s.cache_read(t, "local", [acc]) for t in product.inputs]
        steps = sums.block(s, acc, own, final, thread, step, along, self.choice["stages"] if self.pipelined else 0, dot=self.words.dot(), pack=pack)  # fmt: skip
        if ny * nx == 128 and self.target.kind == "cuda" and not padding.guarded(c):
            # Conditions take registers too: bounded so, they spill.
            steps.stage.pragma(steps.term, "min_blocks", _RESIDENT)
        for tile, lies, turned in zip(product.inputs, along, self.words.is_turned):
            if lies:  # rows that a wavefront reads together begin in other banks
                s[tile].storage_align(tile.op.axis[-2], step, run)
            piece = pack if turned else math.gcd(tile.op.attrs.get("wide", 1), run)
            bring(s[tile], steps.stage, steps.step, threads, piece, turn=(1, pack) if turned else (0, 0))
