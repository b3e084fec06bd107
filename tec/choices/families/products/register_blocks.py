"""Products on a GPU's vector units: a tile a work-group, its operands' tiles in shared memory, a block of the result in each thread's registers.

`SharedTiles` takes every product, whatever its sizes and types: a thread has 4 by 4 results or more, and reads one element at a time. `RegisterBlocks` is for larger
blocks of 32-bit words (`packed_words`), which come from shared memory in runs of four (`parts.sums`); products of few tiles are summed in parts by a second kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ....ir.dtype import dtype_info
from ....ops.contraction import Contraction
from ....ops.dims import is_symbolic
from ....ops.typical import is_unbounded
from ....schedule import Schedule, Stage
from ....target import Target
from ....te import ComputeOp, Tensor, thread_axis
from ...cost import Footprint, Kernel
from ...group import Group, const_shape, reduce_size, same_shape
from ...parts import needs, split_k, sums
from ...parts.grid import Tiles
from ...parts.operands import begin_with, contraction
from ...parts.pointwise import moved_bytes
from ...parts.staging import bring
from ...parts.sums import RUN
from ...space import Choice, Cost, Scheduled, Space
from . import padding
from .packed_words import Words, in_words

_FEW_GROUPS = 64  # work-groups below which a GPU is better off with more and smaller ones
# Of the vector units' multiply-adds, what is left beside loads, addresses and waiting, by the sums of a thread: the fewer, the more loads each.
_RATES = {64: 0.62, 32: 0.56, 16: 0.45}
_MOST_BROUGHT = 24  # elements of the next step in a thread's registers, beside 64 sums and what they are made of
_RESIDENT = 3  # work-groups of 128 threads with 64 sums each that a multiprocessor should hold: 168 registers a thread
_STEP_CLOCKS = 120  # of a step beside its sums: two barriers, and values on their way through registers
_LARGE = 1 << 28  # multiply-adds from which on AMD a kernel of some thousand instructions is worth compiling
_GUARD_CLOCKS = 12  # a thread's of an element that comes under conditions: where it lies, and whether it is there


class SharedTiles(Space):
    """A GPU's product without matrix units: a tile a work-group, its operands' tiles in shared memory, a block of the result a thread."""

    template: ClassVar[str] = "gpu product"

    def __init__(self, group: Group, target: Target, contraction: Contraction, result: Tensor):
        super().__init__(group, target)
        self.contraction, self.result = contraction, result
        self.parameters = {
            "rows": (64, 32, 16, 128),
            "columns": (64, 32, 16, 128),
            "step": (16, 8, 32),
            "stages": (1, 0),
        }

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> SharedTiles | None:
        found = contraction(group, op)
        if (
            found is None
            or len(group.outputs[0].shape) != len(op.axis)
            or not isinstance(group.outputs[0].op, ComputeOp)
        ):
            return None
        return cls(group, target, *found)

    @property
    def default(self) -> Choice:
        rows, columns, step = tile_sizes(*padding.sizes(self.contraction))
        return self.choice(rows=rows, columns=columns, step=step, stages=1)

    def why_not(self, choice: Choice) -> str | None:
        rows, columns = choice["rows"], choice["columns"]
        threads, _ = _blocks(rows, columns)
        return needs.first(
            needs.extents((rows, columns), padding.sizes(self.contraction)[:2], (needs.THREAD_PART, needs.THREAD_PART)),
            needs.sums(rows * columns // threads, self.target.chip.vgprs // 2),
            needs.dealt(((rows + columns) * choice["step"],), threads),
        )

    def sketch(self, choice: Choice) -> Footprint:
        """An element of each tile's row and column feeds a block of the result; a step's tiles come while the one before is summed, and all threads meet twice."""
        c, rows, columns, step = self.contraction, choice["rows"], choice["columns"], choice["step"]
        m, n, k, batch = padding.sizes(c)
        threads, (high, wide) = _blocks(rows, columns)
        groups, size, sums = batch * -(-m // rows) * -(-n // columns), _bytes(c), rows * columns * k
        return Footprint((Kernel(
            groups, threads, (rows + columns) * step * size, high * wide, moved_bytes(self.group), groups * (rows + columns) * k * size,
            groups * sums * size * (1 / high + 1 / wide), sums / threads * (1 + 1 / high + 1 / wide), waits=-(-k // step), barriers=2 * -(-k // step),
        ),))  # fmt: skip

    def build(self, choice: Choice) -> Scheduled:
        step, (m, n) = choice["step"], (choice["rows"], choice["columns"])
        result = padding.padded(self.contraction, (m, n, step))
        begun = begin_with(self.group, self.result, result)
        s, op = begun.s, result.op.inputs[0].op
        final, acc = s[begun.out], s[op]
        acc.set_scope("local")
        rows, columns = min(16, m // 4), min(16, n // 4)
        tx, ty = thread_axis((0, columns), "threadIdx.x"), thread_axis((0, rows), "threadIdx.y")
        whole = (const_shape(begun.out.output(0))[-1] or 1) % n == 0
        tiles = Tiles(final, m, n)
        ti, iv = final.split(tiles.i, nparts=rows)
        tj, jv = final.split(tiles.j, nparts=columns)
        tiles.nest(ti, tj, iv, jv)
        tiles.bind()
        final.bind(ti, ty)
        final.bind(tj, tx)
        final.unroll(iv)
        final.vectorize(jv) if whole else final.unroll(jv)
        acc.compute_at(final, tj)
        (k,) = op.reduce_axis
        ko, ki = acc.split(k, factor=step)
        own = list(op.axis)
        acc.reorder(ko, ki, *own)
        # The next step's loads are under way in registers meanwhile. Of two steps the prologue and the epilogue have one each, and no loop is left between
        # them: LLVM then reads both steps' tiles at once, and spills.
        if choice["stages"] and (reduce_size(op) or 3 * step) > 2 * step:
            acc.pragma(ko, "software_pipeline", 1)
        for axis in own[-2:]:
            acc.unroll(axis)
        for tile in op.inputs:
            bring(s[tile], acc, ko, [(tx, columns), (ty, rows)])
        return Scheduled(s, begun.outputs, choice)


def tile_sizes(m: int, n: int, k: int, batch: int = 1) -> tuple[int, int, int]:
    """Tile of a work-group without matrix units: rows, columns, and the step along the sum."""
    rows, cols = (64 if x > 32 else 32 if x > 16 else 16 for x in (m, n))
    if batch * -(-m // rows) * -(-n // cols) < _FEW_GROUPS:
        rows, cols = min(rows, 32), min(cols, 32)
    return rows, cols, 16 if k > 8 else 8


def _blocks(rows: int, columns: int) -> tuple[int, tuple[int, int]]:
    """Threads of a tile of `SharedTiles`, and the block of each."""
    y, x = min(16, rows // 4), min(16, columns // 4)
    return y * x, (rows // y, columns // x)


def _bytes(c: Contraction) -> int:
    return dtype_info(c.a.dtype).bytes


class RegisterBlocks(Space):
    """`rows` by `columns` a work-group, `block` of them a thread, `step` words of the sum at a time, the sum in `split_k` parts."""

    template: ClassVar[str] = "blocked product"
    former: ClassVar[Mapping[Any, str]] = {"parts": "split_k"}

    def __init__(self, group: Group, target: Target, words: Words, result: Tensor):
        super().__init__(group, target)
        self.words, self.result = words, result
        self.contraction = contraction = words.contraction
        self.parameters = {
            "rows": (128, 64, 32), "columns": (64, 32, 128), "step": (16, 8, 32), "block": ("8x8", "4x8", "8x4", "4x4"),
            "split_k": (1,) if is_unbounded(contraction.m) else (1, 2, 3, 4, 6, 8, 12, 16),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> RegisterBlocks | None:
        """The space of a product that goes by words of 32 bits, no smaller than the smallest tile; its rows alone may be open."""
        found = contraction(group, op)
        if found is None or not same_shape(group.outputs[0], op.output(0)):
            return None
        c, result = found
        words = in_words(c, target)
        if is_symbolic((*c.batch, c.n, c.k)) or words is None:
            return None
        space = cls(group, target, words, result)
        return space if min(padding.sizes(c)[:3]) >= RUN and next(space.all, None) is not None else None

    @property
    def is_second(self) -> bool:  # type: ignore[override]
        """On AMD: small products, which `SharedTiles` compiles quicker. Of larger ones it is behind where B lies along the sum, since its columns meet in
        the banks (float32 4096 cubed on gfx1100 by the time model 20.7 ms, here 3.9), and where blocks are large (4.9 and 3.9 ms). Never where few tiles have long sums, which this one splits
        (512 x 13 by 55,296 on gfx1030: 0.92 ms, here 0.11), nor of narrow elements, which the other reads one at a time (float16 1024 cubed on gfx1030, both along the sum: 306 us,
        here 72)."""
        if self.target.kind == "cuda" or self.words.is_narrow:
            return False
        m, n, k, batch = padding.sizes(self.contraction)
        is_large = batch * m * n * k >= _LARGE
        if is_large and self.contraction.b.k_last:
            return False
        default = self.default
        return default["split_k"] == 1 and not (is_large and default["block"] == "8x8")

    def _threads(self, choice: Choice) -> tuple[int, int]:
        rows, columns = map(int, choice["block"].split("x"))
        return choice["rows"] // rows, choice["columns"] // columns

    def why_not(self, choice: Choice) -> str | None:
        rows, columns, step = choice["rows"], choice["columns"], choice["step"]
        y, x = self._threads(choice)
        m, n, k, _ = padding.sizes(self.contraction)
        if not 64 <= x * y <= min(256, self.target.max_threads) or y < 4 or x < 4:
            return f"{y} by {x} threads"
        wrong = needs.first(
            needs.extents((rows, columns), (m, n), (needs.THREAD_PART, needs.THREAD_PART)),
            needs.dealt((rows * step // RUN, columns * step), x * y),
            needs.shared_memory((rows + columns) * (step + RUN) * 4, self.target.static_lds_bytes),
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
        macs = rows * columns * step / (machine.macs(c.acc, matrix=False) * _RATES[block[0] * block[1]])
        lds = 4.0 * x * y * step * (block[0] + block[1]) / 4 / machine.scratch_bytes_a_clock
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
        steps = sums.block(s, acc, own, final, thread, step, along, stages=1, dot=self.words.dot(), pack=pack)
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


__all__ = ["RegisterBlocks", "SharedTiles"]
