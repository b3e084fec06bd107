"""Matrix products without matrix units on chips with bulk copies (Hopper): a ring of tiles that one thread fills, a block of the result in each thread's registers.

A thread's rows lie as far apart as there are threads along them, so that all its rows of A share their swizzle and four steps of k come by one load; its
columns are runs of four, or where B is [n, k] as its rows are. Products of few tiles are summed in parts: a kernel makes sums over pieces of k, another adds them up
and ends the computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from .... import te
from ....ir import IterVar
from ....records import dataclass
from ....schedule import Schedule, Stage
from ....target import Target
from ....te import ComputeOp, Tensor, thread_axis
from ....te.like import Index
from ...group import Group, const_shape
from ...parts import ends, grid, needs, split_k, sums
from ...parts.grid import Tiles
from ...parts.operands import InMemory, Product, accumulators, in_memory
from ...parts.sums import RUN
from ...space import Choice, Cost, Scheduled, Space

# Along rows and columns: a warp's are 4 x 8, whose loads of B are one line and of A four banks of four.
_THREADS = (16, 8)
_SLACK_BYTES = 1024  # of shared memory: barriers, and tiles beginning at multiples of 1 KB


class BulkProduct(Space):
    """`rows` by `columns` of the result a work-group of 128 threads, `occupancy` of them a multiprocessor; `step` of k a slot; the sum in `split_k` parts. `order`: a
    thread's sums in blocks of two by two, or along whole rows there and back; `prefetch`: registers are filled a step ahead, over
    the ends of slots too."""

    template: ClassVar[str] = "bulk product"
    former: ClassVar[Mapping[str | tuple[str, str], str]] = {"blocks": "occupancy", "band": "group_m", "parts": "split_k", "ahead": "prefetch", ("order", "turns"): "serpentine"}  # fmt: skip

    def __init__(self, group: Group, target: Target, op: ComputeOp, x: InMemory):
        super().__init__(group, target)
        self.op, self.p, self.batch = op, x.p, x.batch
        self.m, self.n, self.k = x.m, x.n, x.k
        self.parameters = {
            "rows": needs.parts_of(self.m, (128, 64, 32), needs.THREAD_PART), "columns": needs.parts_of(self.n, (64, 32, 128), needs.THREAD_PART), "step": (64, 32), "stages": (2, 3), "occupancy": (2, 3, 4, 1),
            "order": ("blocks", "serpentine"), "group_m": (8, 16, 1), "split_k": (1, 2, 3, 4, 6, 8, 12, 16) if self.batch == 1 else (1,),
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
            or (x.n % RUN and not x.p.trans_b)
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
        if (parts > 1 and self.k % (parts * step)) or self.k < 2 * step * parts:
            return f"{parts} parts of {self.k} terms are not whole steps of {step}, two at least"
        return needs.shared_memory(lds, self.target.lds_bytes)

    def drafts(self) -> Iterator[Choice]:
        for rows, columns in ((128, 64), (64, 64), (128, 32), (64, 32), (32, 32)):
            if rows not in self.parameters["rows"] or columns not in self.parameters["columns"]:
                continue
            few = grid.count((rows, columns), (self.m, self.n), self.batch) < self.target.machine.units
            for parts in self.parameters["split_k"] if few else (1,):
                told: Mapping[str, Any] = next(self.ruled(rows=rows, split_k=parts, turned=self.p.trans_b), {})
                how = {"order": told.get("order", "blocks"), "prefetch": told.get("prefetch", False)}
                for step, occupancy in told.get("steps", ((32, 3), (64, 2))):
                    c = self.choice(
                        rows=rows, columns=columns, step=step, stages=2, occupancy=occupancy, group_m=8, split_k=parts, **how
                    )  # fmt: skip
                    if self.why_not(c) is None:
                        yield c

    def cost(self, choice: Choice) -> Cost:
        """Rounds of tiles over the multiprocessors: sums at the rate that registers give, of small blocks at that of shared memory; the traffic of parts."""
        machine, c = self.target.machine, choice
        rows, columns, parts, resident = c["rows"], c["columns"], c["split_k"], c["occupancy"]
        tiles = grid.count((rows, columns), (self.m, self.n), self.batch) * parts
        depth = self.k // parts
        block = rows // _THREADS[0], columns // _THREADS[1]
        known = self.figures
        rate = known["prefetch_rate" if c["prefetch"] else "rate" if resident < 3 else "crowded_rate"]
        rate *= known.along("block_rate", block[0] * block[1]) * (known["turned_rate"] if self.p.trans_b else 1.0)
        macs = rows * columns / (machine.macs("float32", matrix=False) * rate)
        # A step of k brings block[0] / 4 + block[1] / 4 loads of 16 bytes a thread; a warp's take 1 clock of A (4 lines) and of B each.
        loads = 4 * (block[0] / 4 + block[1] / 4)
        a_round = min(resident, max(1, -(-tiles // machine.units)))
        clocks = depth * max(macs, loads) * a_round + depth / c["step"] * known["step_clocks"] * (
            2 if a_round == 1 else 1
        )
        rounds = -(-tiles // (machine.units * resident))
        if c["prefetch"]:  # what is left of the others' registers is used up before a round ends
            rounds = max(1.0, -(-tiles // machine.units) / a_round)
            clocks += known["prefetch_tile_clocks"] * a_round
        clocks *= known["ragged_rows"] if self.m % rows else 1.0
        clocks *= known["ragged_columns"] if self.n % columns else 1.0
        total = rounds * clocks + known["ends_clocks"]
        seconds = total / machine.clock_hz + machine.launch_seconds
        seconds += split_k.traffic_seconds(parts, self.m * self.n, machine)
        return Cost(seconds, "issue" if macs >= loads else "LDS")

    def build(self, choice: Choice) -> Scheduled:
        loop, parts = BulkTiles(self.p, choice, self.figures.count("unrolled")), choice["split_k"]
        if parts == 1:
            begun = ends.as_they_lie(loop, self.group, self.op)
        else:
            total = in_parts(self.p, parts, len(self.op.axis) - 2)
            begun = ends.added_tiles(loop, self.group, self.op.output(0), total)
        return Scheduled(begun.s, begun.outputs, choice)


def in_parts(p: Product, parts: int, lead: int = 0) -> Tensor:
    """The product as sums of sums over equal parts of k. Before rows and columns stand `lead` axes of one in the result, and perhaps in operands."""
    assert p.m and p.n and p.k

    def at(t: Tensor, row: Index, column: Index) -> Any:
        return t[(*(0,) * (len(t.shape) - 2), row, column)]

    x, y = lambda _, i, k: at(p.a, i, k), lambda _, j, k: at(p.b, *((j, k) if p.trans_b else (k, j)))
    part = split_k.sums((p.m, p.n), p.k // parts, parts, x, y, p.a.dtype, "part", "part")
    r = te.reduce_axis((0, parts), "r")
    shape = (*(1,) * lead, p.m, p.n)
    total: Tensor = te.compute(shape, lambda *x: te.sum(part[r, x[-2], x[-1]], axis=r), name="total")
    return total


@dataclass(frozen=True)
class BulkTiles(ends.Mainloop):
    """The main loop of such products; `unrolled` steps of k are written out."""

    p: Product
    choice: Choice
    unrolled: int
    on_matrix_units: ClassVar[bool] = False

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.choice["rows"], self.choice["columns"], self.choice["step"]

    @property
    def threads(self) -> list[tuple[IterVar, int]]:
        return [(thread_axis("threadIdx.x"), _THREADS[0] * _THREADS[1])]

    def schedule(self, s: Schedule, product: ComputeOp, out: ComputeOp) -> None:
        schedule(s, product, out, self.p, self.choice, self.unrolled)


def schedule(s: Schedule, mm: ComputeOp, out: ComputeOp, p: Product, choice: Choice, unrolled: int) -> None:
    """Schedule the product `mm` and its elementwise epilogue `out` (or `mm` itself); `unrolled` steps of k are written out."""
    acc = accumulators(s, mm, out, "local")
    shared = [s.cache_read(t, "shared", [acc]) for t in (p.a, p.b)]
    own = [s.cache_read(t, "local", [acc]) for t in shared]
    final, step = s[out.output(0)], choice["step"]
    # Rows of A by four steps; B's by one, or its columns by four where they are rows in memory.
    thread, along = _result(final, choice, p.trans_b), (True, p.trans_b)
    steps = sums.block(s, acc, own, final, thread, step, along, choice["stages"], unrolled)
    steps.stage.pragma(steps.term, "min_blocks", choice["occupancy"])
    if choice["prefetch"]:
        steps.stage.pragma(steps.part, "fragments_ahead", choice["order"] == "serpentine")
    for tensor in shared:
        s[tensor].compute_at(steps.stage, steps.step)
        # A warp reads runs of B's rows side by side; of A it reads columns.
        is_rows = tensor is shared[1] and not p.trans_b
        s[tensor].pragma(s[tensor].op.axis[0], "bulk_copy", *((False,) if is_rows and choice["prefetch"] else ()))


def _result(final: Stage, choice: Choice, trans_b: bool) -> Any:
    """The result's tiles over work-groups, in bands of rows, and a tile over threads. Returns the thread's axis.

    The order of a thread's multiply-adds counts, since ptxas puts registers in banks by it, and which loads are under way (`rules/matrix_products.jsonl`).
    """
    tiles, (threads_y, threads_x) = Tiles(final, choice["rows"], choice["columns"]), _THREADS
    i, j, far, near = tiles.i, tiles.j, [], []
    if choice["order"] != "serpentine":  # blocks of two by two
        pair, i = final.split(i, factor=2 * threads_y)
        far.append(pair)
        if trans_b:
            pair, j = final.split(j, factor=2 * threads_x)
            far.append(pair)
    columns = sums.share(final, j, threads_x, single=trans_b)
    far.append(columns.far)
    if not trans_b:
        run = columns.near
        if choice["order"] != "serpentine":
            half, run = final.split(run, factor=2)
            far.append(half)
        near.append(run)
    rows = sums.share(final, i, threads_y, single=True)
    far.insert({"serpentine": 0, "blocks": 3}[choice["order"]], rows.far)
    sums.nest(tiles, rows, columns, far, near)
    rows_of_tiles = -(-(const_shape(final.op.output(0))[-2] or 1) // choice["rows"])
    tiles.bind(grid.even_band(rows_of_tiles, choice["group_m"]))
    thread = sums.over_threads(final, rows, columns, far, thread_axis("threadIdx.x"))
    if near:
        final.vectorize(near[0])
    return thread
