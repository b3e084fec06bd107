"""Products on a GPU's vector units: a tile a work-group, its operands' tiles in shared memory, a block of the result in each thread's registers.

Blocks are of words (`packed_words`), which come from shared memory in runs of four (`parts.sums`); products of few tiles are summed in parts by a second kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ....ops.dims import is_symbolic
from ....ops.typical import is_unbounded
from ....schedule import Schedule, Stage
from ....target import Target
from ....te import ComputeOp, Tensor, thread_axis
from ...group import Group, same_shape
from ...parts import needs, split_k, sums
from ...parts.grid import Tiles
from ...parts.operands import begin_with, contraction
from ...parts.staging import bring
from ...parts.sums import RUN
from ...space import Choice, Cost, Scheduled, Space
from . import padding
from .packed_words import Words, in_words

_MOST_BROUGHT = 24  # elements of the next step in a thread's registers, beside 64 sums and what they are made of
_RESIDENT = 3  # work-groups of 128 threads with 64 sums each that a multiprocessor should hold: 168 registers a thread
_STEP_CLOCKS = 120  # of a step beside its sums: two barriers, and values on their way through registers
_GUARD_CLOCKS = 12  # a thread's of an element that comes under conditions: where it lies, and whether it is there


class RegisterBlocks(Space):
    """`rows` by `columns` a work-group, `block` of them a thread, `step` words of the sum at a time, the sum in `split_k` parts."""

    template: ClassVar[str] = "blocked product"
    former: ClassVar[Mapping[Any, str]] = {"parts": "split_k"}

    def __init__(self, group: Group, target: Target, words: Words, result: Tensor):
        super().__init__(group, target)
        self.words, self.result = words, result
        self.contraction = c = words.contraction
        is_open = is_unbounded(c.m) or is_symbolic((*c.batch, c.n, c.k))
        self.parameters = {
            "rows": (128, 64, 32), "columns": (64, 32, 128), "step": (16, 8, 32), "block": ("8x8", "4x8", "8x4", "4x4"),
            "split_k": (1,) if is_open else (1, 2, 3, 4, 6, 8, 12, 16),
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

    def _threads(self, choice: Choice) -> tuple[int, int]:
        rows, columns = map(int, choice["block"].split("x"))
        return choice["rows"] // rows, choice["columns"] // columns

    def why_not(self, choice: Choice) -> str | None:
        rows, columns, step, size = choice["rows"], choice["columns"], choice["step"], self.words.bytes
        y, x = self._threads(choice)
        m, n, k, _ = padding.sizes(self.contraction)
        if not 64 <= x * y <= min(256, self.target.max_threads) or y < 4 or x < 4:
            return f"{y} by {x} threads"
        wrong = needs.first(
            needs.extents((rows, columns), (m, n), (needs.THREAD_PART, needs.THREAD_PART)),
            needs.dealt((rows * step // RUN, columns * step), x * y),
            needs.sums(rows * columns // (x * y) * size // 4, self.target.chip.vgprs // 2),
            needs.shared_memory((rows + columns) * (step + RUN) * size, self.target.static_lds_bytes),
        )
        if wrong is not None:
            return wrong
        if (rows + columns) * step > _MOST_BROUGHT * x * y:
            return "the next step's elements are more than a thread's registers should hold"
        if choice["split_k"] > 1 and k < 4 * step * self.words.pack * choice["split_k"]:
            return f"a sum of {k} is too short for {choice['split_k']} parts"
        return None

    @property
    def default(self) -> Choice:
        steps = [c for c in self.all if c["step"] == self.parameters["step"][0]]
        return min(steps or self.all, key=lambda c: self.cost(c).seconds)

    def cost(self, choice: Choice) -> Cost:
        """Work-groups over the multiprocessors, several at a time: multiply-adds, shared memory's traffic, addresses; the traffic of parts."""
        machine, c = self.target.machine, self.contraction
        m, n, k, batch = padding.sizes(c)
        rows, columns, step, parts = choice["rows"], choice["columns"], choice["step"], choice["split_k"]
        y, x = self._threads(choice)
        block = rows // y, columns // x
        groups = batch * -(-m // rows) * -(-n // columns) * parts
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
        seconds = (share * clocks + alone) / (machine.clock_mhz * 1e6) + machine.launch_us * 1e-6
        if parts > 1:
            seconds += split_k.traffic_seconds(parts, batch * m * n, machine.memory.gbps or machine.memory_gbps)
        return Cost(seconds, "issue" if macs >= lds else "LDS")

    def _goes_round(self, choice: Choice) -> bool:
        """Whether a pipeline leaves a loop between its first step and its last. Of two steps none is left: LLVM then reads both steps' tiles at once, and
        on AMD spills."""
        c, words = self.contraction, choice["step"] * self.words.pack * choice["split_k"]
        return self.target.kind == "cuda" or is_symbolic(c.k) or padding.sizes(c)[2] > 2 * words

    def build(self, choice: Choice) -> Scheduled:
        tile = choice["rows"], choice["columns"], choice["step"] * self.words.pack
        begun = begin_with(self.group, self.result, padding.padded(self.contraction, tile, parts=choice["split_k"]))
        s, out = begun.s, begun.out
        (product,) = (o for o in begun.group.reductions() if o.tag == "tiled_product")
        acc = product.output(0)
        if choice["split_k"] == 1:
            s[acc].set_scope("local")
        else:
            split_k.schedule_total(s, begun.group, product)
            out, acc = product, s.cache_write(acc, "local")
        self._schedule(s, s[out.output(0)], acc, product, choice)
        return Scheduled(s, begun.outputs, choice)

    def _schedule(self, s: Schedule, final: Stage, acc: Tensor, product: ComputeOp, choice: Choice) -> None:
        """The product's tiles over work-groups and threads, its accumulators, its operands' tiles."""
        c, (ny, nx), pack = self.contraction, self._threads(choice), self.words.pack
        step, run = choice["step"] * pack, RUN * pack
        along = c.a.k_last, c.b.k_last
        tiles = Tiles(final, choice["rows"], choice["columns"])
        rows, columns = sums.share(final, tiles.i, ny, along[0]), sums.share(final, tiles.j, nx, along[1])
        far = [rows.far, columns.far]
        near = [axis for axis in (rows.near, columns.near) if axis is not None]
        sums.nest(tiles, rows, columns, far, near)
        tiles.bind()
        threads = thread_axis((0, ny * nx), "threadIdx.x")
        thread = sums.over_threads(final, rows, columns, far, threads)
        for axis in near:
            final.unroll(axis)
        own = [s.cache_read(t, "local", [acc]) for t in product.inputs]
        stages = 1 if self._goes_round(choice) else 0
        steps = sums.block(s, acc, own, final, thread, step, along, stages, dot=self.words.dot(), pack=pack)
        if ny * nx == 128 and self.target.kind == "cuda" and not padding.guarded(c):
            steps.stage.pragma(
                steps.term, "min_blocks", _RESIDENT
            )  # conditions take registers too: bounded so, they spill
        for tile, lies, turned in zip(product.inputs, along, self.words.is_turned):
            if lies:
                s[tile].storage_align(
                    tile.op.axis[-2], step, run
                )  # rows that a wavefront reads together begin in other banks
            piece = pack if turned else math.gcd(tile.op.attrs.get("wide", 1), run)
            s[tile].unroll(bring(s[tile], steps.stage, steps.step, [(threads, ny * nx)], piece, turned))


__all__ = ["RegisterBlocks"]
