"""Products on a GPU's vector units: a tile a work-group, its operands' tiles in shared memory, a block of the result in each thread's registers.

As `products.SharedTiles`, for larger blocks: a thread takes its operands from shared memory four at a time, along the sum where a tile lies so (then its
rows or columns are as far apart as there are threads), or in runs of four rows or columns. Products of few tiles are summed in parts by a second kernel.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..ir.dtype import dtype_info
from ..ops.contraction import Contraction
from ..ops.dims import is_symbolic
from ..target import Target
from ..te import ComputeOp, Tensor, thread_axis
from . import padding
from .extents import THREAD_PART, why_not_tile
from .group import Group, begin, same_shape, substitute
from .parts import schedule_total, traffic_seconds
from .space import Choice, Cost, Scheduled, Space

_RUN = 4  # elements of 32 bits that a thread takes from shared memory at once
# Of the vector units' multiply-adds, what is left beside loads, addresses and waiting, by the sums of a thread: the fewer, the more loads each.
_RATES = {64: 0.62, 32: 0.56, 16: 0.45}
_MOST_BROUGHT = 24  # elements of the next step in a thread's registers, beside 64 sums and what they are made of
_RESIDENT = 3  # work-groups of 128 threads with 64 sums each that a multiprocessor should hold: 168 registers a thread
_STEP_CLOCKS = 120  # of a step beside its sums: two barriers, and values on their way through registers
_LARGE = 1 << 28  # multiply-adds from which on AMD a kernel of some thousand instructions is worth compiling
_GUARD_CLOCKS = 12  # a thread's of an element that comes under conditions: where it lies, and whether it is there


class RegisterBlocks(Space):
    """`rows` by `columns` a work-group, `block` of them a thread, `step` of the sum at a time, the sum in `parts`."""

    template: ClassVar[str] = "blocked product"

    def __init__(self, group: Group, target: Target, contraction: Contraction, result: Tensor):
        super().__init__(group, target)
        self.contraction, self.result = contraction, result
        self.parameters = {
            "rows": (128, 64, 32), "columns": (64, 32, 128), "step": (16, 8, 32), "block": ("8x8", "4x8", "8x4", "4x4"),
            "parts": (1, 2, 3, 4, 6, 8, 12, 16),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> RegisterBlocks | None:
        """The space of a product of 32-bit elements, of known sizes and no less than the smallest tile."""
        found = group.form("product")
        if found is None or len(group.output_ops) != 1 or group.reductions() != [op]:
            return None
        out, c = group.output_ops[0], found[0].attrs["contraction"]
        if (
            not isinstance(out, ComputeOp)
            or len(out.axis) != len(op.axis)
            or not same_shape(out.output(0), op.output(0))
        ):
            return None
        if (
            is_symbolic((*c.batch, c.m, c.n, c.k))
            or c.a.dtype != c.b.dtype
            or dtype_info(c.a.dtype).bits != 32
            or c.acc != c.a.dtype
        ):
            return None
        space = cls(group, target, c, found[1][0])
        return space if min(padding.sizes(c)[:3]) >= _RUN and next(space.all, None) is not None else None

    @property
    def is_second(self) -> bool:  # type: ignore[override]
        """On AMD: small products, which `SharedTiles` compiles quicker. Of larger ones it is behind where B lies along the sum, since its columns meet in
        the banks (float32 4096 cubed on gfx1100 by the time model 20.7 ms, here 3.9), and where blocks are large (4.9 and 3.9 ms)."""
        if self.target.kind == "cuda":
            return False
        m, n, k, batch = padding.sizes(self.contraction)
        return batch * m * n * k < _LARGE or not (self.contraction.b.k_last or self.default["block"] == "8x8")

    def _threads(self, choice: Choice) -> tuple[int, int]:
        rows, columns = map(int, choice["block"].split("x"))
        return choice["rows"] // rows, choice["columns"] // columns

    def why_not(self, choice: Choice) -> str | None:
        rows, columns, step = choice["rows"], choice["columns"], choice["step"]
        y, x = self._threads(choice)
        m, n, k, _ = padding.sizes(self.contraction)
        if not 64 <= x * y <= min(256, self.target.max_threads) or y < 4 or x < 4:
            return f"{y} by {x} threads"
        if (wrong := why_not_tile((rows, columns), (m, n), (THREAD_PART, THREAD_PART))) is not None:
            return wrong
        if (rows * step) % (_RUN * x * y) or (columns * step) % (x * y):
            return "the threads have not all as many elements of a step to bring"
        if (rows + columns) * step > _MOST_BROUGHT * x * y:
            return "the next step's elements are more than a thread's registers should hold"
        if (rows * (step + _RUN) + columns * (step + _RUN)) * 4 > self.target.static_lds_bytes:
            return "more than the shared memory there is"
        if choice["parts"] > 1 and k < 4 * step * choice["parts"]:
            return f"a sum of {k} is too short for {choice['parts']} parts"
        return None

    @property
    def default(self) -> Choice:
        steps = [c for c in self.all if c["step"] == self.parameters["step"][0]]
        return min(steps or self.all, key=lambda c: self.cost(c).seconds)

    def cost(self, choice: Choice) -> Cost:
        """Work-groups over the multiprocessors, several at a time: multiply-adds, shared memory's traffic, addresses; the traffic of parts."""
        machine, c = self.target.machine, self.contraction
        m, n, k, batch = padding.sizes(c)
        rows, columns, step, parts = choice["rows"], choice["columns"], choice["step"], choice["parts"]
        y, x = self._threads(choice)
        block = rows // y, columns // x
        groups = batch * -(-m // rows) * -(-n // columns) * parts
        steps = -(-k // (step * parts))
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
            seconds += traffic_seconds(parts, batch * m * n, machine.memory.gbps or machine.memory_gbps)
        return Cost(seconds, "issue" if macs >= lds else "LDS")

    def build(self, choice: Choice) -> Scheduled:
        tile = choice["rows"], choice["columns"], choice["step"]
        result = padding.padded(self.contraction, tile, parts=choice["parts"])
        outputs = substitute(self.group.outputs, {self.result: result})
        group = Group.of(outputs)
        s = begin(group, keep=[o for o in group.ops if o.tag == "tile"])
        out = group.output_ops[0]
        assert isinstance(out, ComputeOp)
        (product,) = (o for o in group.reductions() if o.tag == "tiled_product")
        if choice["parts"] == 1:
            s[product].set_scope("local")
            self._schedule(s, s[out], product.output(0), product, choice)
            return Scheduled(s, outputs, choice)
        schedule_total(s, group, product)
        acc = s.cache_write(product.output(0), "local")
        self._schedule(s, s[product.output(0)], acc, product, choice)
        return Scheduled(s, outputs, choice)

    def _schedule(self, s: Any, final: Any, acc: Tensor, product: ComputeOp, choice: Choice) -> None:
        """The product's tiles over work-groups and threads, its accumulators, its operands' tiles."""
        c, (ny, nx) = self.contraction, self._threads(choice)
        *lead, i, j = final.op.axis
        bi, i = final.split(i, factor=choice["rows"])
        bj, j = final.split(j, factor=choice["columns"])
        far_i, ty, near_i = _shared_out(final, i, ny, c.a.k_last)
        far_j, tx, near_j = _shared_out(final, j, nx, c.b.k_last)
        near = [axis for axis in (near_i, near_j) if axis is not None]
        final.reorder(*lead, bi, bj, far_i, far_j, ty, tx, *near)
        if lead:
            final.bind(final.fuse(*lead) if len(lead) > 1 else lead[0], thread_axis("blockIdx.z"))
        final.bind(bi, thread_axis("blockIdx.y"))
        final.bind(bj, thread_axis("blockIdx.x"))
        for axis in (far_i, far_j):
            final.bind(axis, thread_axis("vthread"))
        thread = final.fuse(ty, tx)
        threads = thread_axis((0, ny * nx), "threadIdx.x")
        final.bind(thread, threads)
        for axis in near:
            final.unroll(axis)
        own = [s.cache_read(t, "local", [acc]) for t in product.inputs]
        stage = s[acc]
        stage.compute_at(final, thread)
        *axes, x, y = stage.op.axis
        ko, ki = stage.split(stage.op.reduce_axis[0], factor=choice["step"])
        kg, ki = stage.split(ki, factor=_RUN)
        stage.reorder(*axes, ko, kg, ki, x, y)
        for axis in (kg, ki, x, y):
            stage.unroll(axis)
        stage.pragma(ko, "software_pipeline", 1)
        if ny * nx == 128 and self.target.kind == "cuda" and not padding.guarded(c):
            stage.pragma(ki, "min_blocks", _RESIDENT)  # conditions take registers too: bounded so, they spill
        for tensor, along in zip(own, (c.a.k_last, c.b.k_last)):
            *_, row, column = s[tensor].op.axis
            s[tensor].compute_at(stage, kg if along else ki)
            s[tensor].unroll(row)
            s[tensor].vectorize(column)
        for tile, along in zip(product.inputs, (c.a.k_last, c.b.k_last)):
            _bring(s[tile], ko, stage, threads, ny * nx, choice["step"] if along else 0)


def _shared_out(final: Any, axis: Any, threads: int, strided: bool) -> tuple[Any, Any, Any]:
    """A tile's rows or columns over threads: (what is far apart of a thread's, the threads, its run of four or None)."""
    if strided:
        far, thread = final.split(axis, factor=threads)
        return far, thread, None
    far, axis = final.split(axis, factor=_RUN * threads)
    thread, near = final.split(axis, factor=_RUN)
    return far, thread, near


def _bring(stage: Any, ko: Any, product: Any, threads: Any, count: int, along: int) -> None:
    """A tile into shared memory, by all threads, in pieces where its elements lie side by side. `along`: elements of a row that lies along the sum."""
    stage.set_scope("shared")
    stage.compute_at(product, ko)
    *lead, x, y = stage.op.axis
    if along:
        stage.storage_align(x, along, _RUN)  # rows that a wavefront reads together begin in other banks
    wide = min(_RUN, stage.op.attrs.get("wide", 1))
    rest = stage.fuse(*lead, x, y)
    if wide == _RUN:
        rest, vec = stage.split(rest, factor=_RUN)
        stage.vectorize(vec)
    turns, part = stage.split(rest, factor=count)
    stage.bind(part, threads)
    stage.unroll(turns)


__all__ = ["RegisterBlocks"]
