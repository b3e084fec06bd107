"""Matrix products without matrix units on chips with bulk copies (Hopper): a ring of tiles that one thread fills, a block of the result in each thread's registers.

A thread's rows lie as far apart as there are threads along them, so that all its rows of A share their swizzle and four steps of k come by one load; its
columns are runs of four. Products of few tiles are summed in parts: a kernel makes sums over pieces of k, another adds them up and ends the computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from .... import te
from ....target import Target
from ....te import ComputeOp, Tensor, thread_axis
from ...group import Group
from ...parts import needs, split_k, sums
from ...parts.grid import Tiles
from ...parts.operands import InMemory, Product, begin_with, in_memory
from ...parts.sums import RUN
from ...space import Choice, Cost, Scheduled, Space

_THREADS = (
    16,
    8,
)  # along rows and columns: a warp's are 4 x 8, whose loads of B are one line and of A four banks of four
_SLACK_BYTES = 1024  # of shared memory: barriers, and tiles beginning at multiples of 1 KB
_UNROLLED = 16  # steps of k written out: with 32 the code is slower, with 8 registers wait for loads more often (H200, 8192 cubed)
# Multiply-adds that a multiprocessor does of those that it could, with so many work-groups of 8 x 8 a thread on it: two operands of three come from
# registers' banks at the same time (cuBLAS reaches 0.76, one H200).
_RATE, _CROWDED_RATE, _AHEAD_RATE = 0.72, 0.66, 0.74
# Of that, with fewer sums a thread: BERT's products on one H200, 4096 x 768 x 768 by 64 x 64 122 us for 107 by 128 x 64, 128 x 768 x 3072 by 32 x 32 in
# eight parts 29.5 for 21.6 by 64 x 32.
_BLOCK_RATE = {128: 1.0, 64: 1.0, 32: 0.87, 16: 0.72, 8: 0.48}
_STEP_CLOCKS = (
    90  # of a step beside its sums, with one work-group a multiprocessor: waiting for the tile and for the others
)
_ENDS_CLOCKS = 2500  # of a kernel: launch, first tiles, results


class BulkProduct(Space):
    """`rows` by `columns` of the result a work-group of 128 threads, `occupancy` of them a multiprocessor; `step` of k a slot; the sum in `split_k` parts. `order`: a
    thread's sums in blocks of two by two, along rows of four in pairs, or along whole rows there and back; `prefetch`: registers are filled a step ahead, over
    the ends of slots too."""

    template: ClassVar[str] = "bulk product"
    former: ClassVar[Mapping[Any, str]] = {"blocks": "occupancy", "band": "group_m", "parts": "split_k", "ahead": "prefetch", ("order", "turns"): "serpentine"}  # fmt: skip

    def __init__(self, group: Group, target: Target, op: ComputeOp, x: InMemory):
        super().__init__(group, target)
        self.op, self.p, self.batch = op, x.p, x.batch
        self.m, self.n, self.k = x.m, x.n, x.k
        self.parameters = {
            "rows": (128, 64, 32), "columns": (64, 32, 128), "step": (64, 32), "stages": (2, 3), "occupancy": (2, 3, 4, 1),
            "order": ("blocks", "rows", "serpentine"), "group_m": (8, 16, 1), "split_k": (1, 2, 3, 4, 6, 8, 12, 16),
            "prefetch": (False, True),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> BulkProduct | None:
        """The space, or None where the chip has no bulk copies, an operand is no matrix as it lies, or its rows begin where they cannot start."""
        x = in_memory(group, op, shared_operands=True) if target.chip.warpgroup else None
        if (
            x is None
            or x.p.a.dtype != "float32"
            or x.p.trans_a
            or x.p.trans_b
            or x.n % RUN
            or x.k % RUN
            or min(x.m, x.n, x.k) < 32
        ):
            return None
        space = cls(group, target, op, x)
        return space if next(space.drafts(), None) is not None else None

    def why_not(self, choice: Choice) -> str | None:
        rows, columns, step, parts = choice["rows"], choice["columns"], choice["step"], choice["split_k"]
        if rows * columns > 128 * 64 and choice["occupancy"] > 2:
            return f"{choice['occupancy']} work-groups of {rows} x {columns} sums are more than the registers of a multiprocessor"
        lds = choice["occupancy"] * (choice["stages"] * (rows + columns) * step * 4 + _SLACK_BYTES)
        wrong = needs.first(
            needs.extents((rows, columns), (self.m, self.n), (needs.THREAD_PART, needs.THREAD_PART)),
            needs.shared_memory(lds, self.target.lds_bytes),
        )
        if wrong is not None:
            return wrong
        if parts > 1 and (self.k % (parts * step) or self.batch > 1):
            return f"{parts} parts are not whole steps" if self.batch == 1 else "a batch is not summed in parts"
        if self.k < 2 * step * parts:
            return f"a part of the sum has {self.k // parts} terms, less than two steps"
        return None

    def drafts(self) -> Iterator[Choice]:
        for rows, columns in ((128, 64), (64, 64), (64, 32), (32, 32)):
            few = self.batch * -(-self.m // rows) * -(-self.n // columns) < self.target.machine.units
            for parts in self.parameters["split_k"] if few else (1,):
                ahead = rows == 128 and parts == 1  # smaller tiles and parts gain nothing
                for step, occupancy in ((32, 3),) if ahead else ((32, 3), (64, 2)):
                    c = self.choice(
                        rows=rows,
                        columns=columns,
                        step=step,
                        stages=2,
                        occupancy=occupancy,
                        order="serpentine" if ahead else "blocks",
                        group_m=8,
                        split_k=parts,
                        prefetch=ahead,
                    )
                    if self.why_not(c) is None:
                        yield c

    def cost(self, choice: Choice) -> Cost:
        """Rounds of tiles over the multiprocessors: sums at the rate that registers give, of small blocks at that of shared memory; the traffic of parts."""
        machine, c = self.target.machine, choice
        rows, columns, parts, resident = c["rows"], c["columns"], c["split_k"], c["occupancy"]
        tiles = self.batch * -(-self.m // rows) * -(-self.n // columns) * parts
        depth = self.k // parts
        block = rows // _THREADS[0], columns // _THREADS[1]
        rate = _AHEAD_RATE if choice["prefetch"] else _RATE if resident < 3 else _CROWDED_RATE
        rate *= _BLOCK_RATE[block[0] * block[1]]
        macs = rows * columns / (machine.macs("float32", matrix=False) * rate)
        # A step of k brings block[0] / 4 + block[1] / 4 loads of 16 bytes a thread; a warp's take 1 clock of A (4 lines) and of B each.
        loads = 4 * (block[0] / 4 + block[1] / 4)
        a_round = min(resident, max(1, -(-tiles // machine.units)))
        clocks = depth * max(macs, loads) * a_round + depth / c["step"] * _STEP_CLOCKS * (2 if a_round == 1 else 1)
        rounds = -(-tiles // (machine.units * resident))
        if c["prefetch"]:  # what is left of the others' registers is used up before a round ends
            rounds = max(1.0, -(-tiles // machine.units) / a_round)
        total = rounds * clocks + _ENDS_CLOCKS
        seconds = total / (machine.clock_mhz * 1e6)
        if parts > 1:
            seconds += split_k.traffic_seconds(parts, self.m * self.n, machine.memory.gbps or machine.memory_gbps)
        return Cost(seconds, "issue" if macs >= loads else "LDS")

    def build(self, choice: Choice) -> Scheduled:
        if choice["split_k"] == 1:
            begun = begin_with(self.group)
            schedule(begun.s, self.op, begun.out, self.p, choice)
        else:
            total = in_parts(self.p, choice["split_k"], len(self.op.axis) - 2)
            begun = begin_with(self.group, self.op.output(0), total)
            (part,) = (t.op for t in total.op.inputs)
            assert isinstance(part, ComputeOp)
            split_k.schedule_total(begun.s, begun.group, part)
            schedule(begun.s, part, part, self.p, choice)
        return Scheduled(begun.s, begun.outputs, choice)


def in_parts(p: Product, parts: int, lead: int = 0) -> Tensor:
    """The product as sums of sums over equal parts of k. Before rows and columns stand `lead` axes of one in the result, and perhaps in operands."""
    assert p.m and p.n and p.k

    def at(t: Tensor, row: Any, column: Any) -> Any:
        return t[(*(0,) * (len(t.shape) - 2), row, column)]

    x, y = lambda _, i, k: at(p.a, i, k), lambda _, j, k: at(p.b, k, j)
    part = split_k.sums((p.m, p.n), p.k // parts, parts, x, y, p.a.dtype, "part")
    r = te.reduce_axis((0, parts), "r")
    shape = (*(1,) * lead, p.m, p.n)
    total: Tensor = te.compute(shape, lambda *x: te.sum(part[r, x[-2], x[-1]], axis=r), name="total")
    return total


def schedule(s: Any, mm: ComputeOp, out: ComputeOp, p: Product, choice: Choice) -> None:
    """Schedule the product `mm` and its elementwise epilogue `out` (or `mm` itself)."""
    if out is mm:
        acc = s.cache_write(mm.output(0), "local")
    else:
        acc = mm.output(0)
        s[acc].set_scope("local")
    shared = [s.cache_read(t, "shared", [acc]) for t in (p.a, p.b)]
    own = [s.cache_read(t, "local", [acc]) for t in shared]
    final, step = s[out.output(0)], choice["step"]
    # Rows of A by four steps, B's by one.
    steps = sums.block(s, acc, own, final, _result(final, choice), step, (True, False), choice["stages"], _UNROLLED)
    steps.stage.pragma(steps.term, "min_blocks", choice["occupancy"])
    if choice["prefetch"]:
        steps.stage.pragma(steps.part, "fragments_ahead", choice["order"] == "serpentine")
    for tensor in shared:
        s[tensor].compute_at(steps.stage, steps.step)
        # A warp reads runs of B's rows side by side; of A it reads columns.
        is_b = tensor is shared[1]
        s[tensor].pragma(s[tensor].op.axis[0], "bulk_copy", *((False,) if is_b and choice["prefetch"] else ()))


def _result(final: Any, choice: Choice) -> Any:
    """The result's tiles over work-groups, in bands of rows, and a tile over threads. Returns the thread's axis.

    The order of a thread's multiply-adds counts, since ptxas puts registers in banks by it, and which loads are under way: of cuBLAS's rate on one H200 at
    4096 and 8192 cubed, with registers filled ahead, 32 of k a slot and three work-groups, "serpentine" 0.96 and 0.99 (four work-groups 0.945 and 0.97; two with
    64 of k 0.94 and 0.96), "blocks" 0.93 and 0.94, "rows" 0.91 and 0.87; not ahead, "blocks" 0.90 and 0.93. At 2048 all are within 0.88 and 0.925.
    """
    tiles, (threads_y, threads_x) = Tiles(final, choice["rows"], choice["columns"]), _THREADS
    columns = sums.share(final, tiles.j, threads_x, single=False)
    i, near, far = tiles.i, columns.near, [columns.far]
    if choice["order"] != "serpentine":  # blocks of two by two
        pair, i = final.split(i, factor=2 * threads_y)
        half, near = final.split(near, factor=2)
        far = [pair, columns.far, half]
    rows = sums.share(final, i, threads_y, single=True)
    far.insert({"serpentine": 0, "rows": 2, "blocks": 3}[choice["order"]], rows.far)
    sums.nest(tiles, rows, columns, far, [near])
    tiles.bind(choice["group_m"])
    thread = sums.over_threads(final, rows, columns, far, thread_axis("threadIdx.x"))
    final.vectorize(near)
    return thread


__all__ = ["BulkProduct"]
