"""Matrix products by warpgroups (Hopper): tiles by bulk copies into a ring, wgmma, results out as tiles (see docs/matrix-units.md).

One warpgroup fetches, the others multiply 64 rows each. Work-groups may stay for all their tiles, which lets one tile's results go out while the next
one's operands come; tiles then go in bands of rows, so that neighbours share operands in the second-level cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ....ir.dtype import dtype_info
from ....ir.matrix import warpgroup_columns
from ....ir.passes.pipeline.bulk_copies import MOST_RANK
from ....ops.matmul import accumulator
from ....records import dataclass
from ....schedule import Schedule
from ....schedule.reads import ZERO_BEYOND
from ....target import Target
from ....te import ComputeOp, PlaceholderOp, intrin, thread_axis
from ...group import Group, const_shape
from ...parts import grid, needs, split_k, warpgroups
from ...parts.counts import instructions_behind
from ...parts.grid import Tiles
from ...parts.needs import filled
from ...parts.operands import InMemory, Product, accumulators, begin_with, in_memory
from ...parts.warpgroups import BOX_BYTES, ROWS, boxed
from ...space import Choice, Cost, Scheduled, Space, Value

_SLACK_BYTES = 1024  # of shared memory: barriers, and results beginning at a multiple of 1 KB
_SHARED_EACH = 512  # less than half of the shared memory that one work-group may have, where there are two: the system keeps 1 KB of each
_USUAL_COLUMNS = (256, 128, 192, 64)
_LEAST_COLUMNS = 64  # of a tile: narrower ones read A too often a product
_PING_PONG_SUMS = 128 * 192  # of a warpgroup with a tile of its own: 192 of its threads' 232 registers
_SPLITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_LEAST_STEPS = 4  # of a part: those that a ring has under way at once
_MOST_PARTS = 2  # tiles of all parts, a multiprocessor: with more of them there is no need of parts
_EITHER_ORDER = ("float16", "bfloat16")  # other types' operands lie along k, both
_TYPES = (*_EITHER_ORDER, "int8", "float8_e4m3", "float8_e5m2")


@dataclass(frozen=True)
class Plan:
    """Rows and columns of a work-group's tile, slots of the ring, rows of tiles in a band, work-groups that stay (0: one a tile) and those that
    share a multiprocessor: one's products then hide the other's results on their way."""

    rows: int
    columns: int
    stages: int
    group_m: int
    groups: int
    occupancy: int
    early: bool = False  # comes while the kernel ahead ends
    # A tile for each of two warpgroups, in turn: one's results then go beside the other's products.
    ping_pong: bool = False


class WarpgroupProduct(Space):
    """A product of tensors as they are, with an elementwise epilogue."""

    template: ClassVar[str] = "warpgroup product"
    neutral: ClassVar[Mapping[str, Value]] = {"ping_pong": False, "split_k": 1}
    outline: ClassVar[frozenset[str]] = frozenset({"rows", "columns", "occupancy"})
    former: ClassVar[Mapping[str | tuple[str, str], str]] = {"band": "group_m", "stays": "persistent", "resident": "occupancy", "turns": "ping_pong"}  # fmt: skip

    def __init__(self, group: Group, target: Target, op: ComputeOp, x: InMemory):
        super().__init__(group, target)
        self.op, self.p, self.batch = op, x.p, x.batch
        self.m, self.n, self.k = x.m, x.n, x.k
        self.size = dtype_info(x.p.a.dtype).bytes
        self.out_bytes = dtype_info(group.outputs[0].dtype).bytes
        self.epilogue = instructions_behind(group, op.output(0))
        self.read_bytes = _read_bytes(group, op)
        # A symbolic number of rows has no bands that are even, and leaves it open how many tiles a work-group stays for.
        is_open = x.p.m is None
        self.parameters = {
            "rows": needs.parts_of(self.m, (128, 64, 192), ROWS), "columns": self._columns(), "stages": (3, 4, 5, 6, 2), "group_m": (1,) if is_open else (16, 8, 4, 1),
            "persistent": (False,) if is_open else (True, False), "occupancy": (1, 2), "ping_pong": (False,) if is_open else (False, True),
            "split_k": (1,) if is_open else tuple(n for n in _SPLITS if self._is_split(n)),
        }  # fmt: skip

    def _columns(self) -> tuple[int, ...]:
        """Of a tile: the usual ones, and whatever else the unit has up to the product's own, a row of results of a tile whole boxes."""
        unit = [c for c in warpgroup_columns(self.p.a.dtype) if c >= _LEAST_COLUMNS]
        whole = BOX_BYTES // self.out_bytes
        some = dict.fromkeys((*_USUAL_COLUMNS, *reversed(unit)))
        return tuple(c for c in some if c == self.n or (c < self.n and c % whole == 0))

    def _steps(self, splits: int = 1) -> int:
        """Of the sum, in each of its parts."""
        return -(-self.k // (self.step * splits))

    def _pitches(self) -> tuple[int, int]:
        """Bytes from a row of A in memory to the next, and of B."""
        p = self.p
        return (self.m if p.trans_a else self.k) * self.size, (self.k if p.trans_b else self.n) * self.size

    def _is_split(self, splits: int) -> bool:
        """Whether a sum in so many parts has steps enough in each, and some in the last; the parts are a dimension more of what copies bring."""
        enough = self._steps(splits) >= _LEAST_STEPS and len(self.op.axis) < MOST_RANK
        return splits == 1 or (enough and (splits - 1) * self._steps(splits) < self._steps())

    def _draft_columns(self) -> Iterator[int]:
        """The usual ones; others where they leave no tile at the end partly empty, and no usual one but the narrowest does."""
        yield from (c for c in _USUAL_COLUMNS if c in self.parameters["columns"])
        if all(self.n % c for c in _USUAL_COLUMNS if c > _LEAST_COLUMNS):
            yield from (c for c in self.parameters["columns"] if c not in _USUAL_COLUMNS and self.n % c == 0)

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> WarpgroupProduct | None:
        """The space, or None where the chip has no such unit, an operand is computed in place, or a row begins where the copy engine cannot."""
        x = in_memory(group, op, open_rows=True) if target.chip.warpgroup else None
        if x is None or x.p.a.dtype not in _TYPES or op.output(0).dtype != accumulator(x.p.a.dtype):
            return None
        if x.p.a.dtype not in _EITHER_ORDER and (x.p.trans_a or not x.p.trans_b):
            return None
        tensors = (x.p.a, x.p.b, group.outputs[0])
        whole = all((const_shape(t)[-1] or 1) * dtype_info(t.dtype).bytes % 16 == 0 for t in tensors)
        steps = x.k * dtype_info(x.p.a.dtype).bytes / BOX_BYTES
        if not whole or x.m < ROWS or x.n < _LEAST_COLUMNS or steps < 1:
            return None
        space = cls(group, target, op, x)
        if next(space.drafts(), None) is None:
            return None
        # With few tiles a kernel is as long as its latencies, and smaller tiles by mma.sync, or the sum in parts, have less of them.
        in_one = min((c for c in space.drafts() if c["split_k"] == 1), key=lambda c: space.cost(c).seconds)
        space.is_second = space.tiles(in_one) < space.figures["few_tiles"] * target.machine.units
        return space

    def plan(self, c: Choice) -> Plan:
        tiles = self.tiles(c)
        places = self.target.machine.units * c["occupancy"]
        stays = c["persistent"] and tiles > places
        # Bands of as many rows of tiles each: where the last has less, work-groups that stay have unequal numbers of tiles.
        high = -(-self.m // c["rows"])
        band = -(-high // -(-high // c["group_m"]))
        # One such kernel behind the other gains by an early start. Small ones lose: they are placed beside the kernel ahead of them, several to a multiprocessor
        # where others are left empty. In kernels of many rounds there is nothing to gain.
        units = self.target.machine.units
        work = -(-tiles // units) * self._steps(c["split_k"]) * c["rows"] * c["columns"]
        short = work <= self.figures["short_steps"] * 128 * 256
        early = units * self.figures["filled"] <= tiles and (tiles <= places or short)
        return Plan(
            c["rows"], c["columns"], c["stages"], band, places if stays else 0, c["occupancy"], early, c["ping_pong"]
        )

    def tiles(self, c: Choice) -> int:
        """Of all parts of the sum."""
        return grid.count((c["rows"], c["columns"]), (self.m, self.n), self.batch * c["split_k"])

    @property
    def step(self) -> int:
        """k of a step: a row of a tile."""
        return warpgroups.step(self.p.a.dtype)

    def step_bytes(self, rows: int, columns: int) -> int:
        """Of both operands' tiles in a slot. A row of a tile is whole boxes of 128 bytes; one that lies along rows or columns has the sum's terms as rows."""
        dtype = self.p.a.dtype
        a = boxed(rows, dtype) if self.p.trans_a else filled(rows, ROWS)
        b = columns if self.p.trans_b else boxed(columns, dtype)
        return (a + b) * BOX_BYTES

    def result_bytes(self, choice: Choice) -> int:
        """Of the results on their way out, rows of whole boxes."""
        stored = self.group.outputs[0] if choice["split_k"] == 1 else self.op.output(0)
        each = choice["rows"] * boxed(choice["columns"], stored.dtype) * dtype_info(stored.dtype).bytes
        return int(each) * (2 if choice["ping_pong"] else 1)

    def why_not(self, choice: Choice) -> str | None:
        rows, columns = choice["rows"], choice["columns"]
        if rows * columns > 128 * 256:
            return f"{rows} x {columns} sums are more than the registers of three warpgroups hold beside the one that fetches"
        lds = choice["stages"] * self.step_bytes(rows, columns) + self.result_bytes(choice) + _SLACK_BYTES
        most = self.target.lds_bytes if choice["occupancy"] == 1 else self.target.lds_bytes // 2 - _SHARED_EACH
        if (wrong := needs.shared_memory(lds, most)) is not None:
            return wrong
        if choice["occupancy"] > 1 and (rows > ROWS or columns > 192):
            return "two such work-groups are more than the registers of a multiprocessor"
        if choice["split_k"] > 1 and (
            choice["ping_pong"] or self.tiles(choice) > _MOST_PARTS * self.target.machine.units
        ):
            return "sums in parts are for few tiles, which no warpgroups take in turn"
        if choice["ping_pong"]:
            if not choice["persistent"] or choice["occupancy"] > 1 or self.tiles(choice) <= self.target.machine.units:
                return "warpgroups take turns in a work-group that stays for several tiles, alone on its multiprocessor"
            if rows * columns > _PING_PONG_SUMS:
                return f"{rows} x {columns} sums are more than the registers of one warpgroup hold"
        return None

    def drafts(self) -> Iterator[Choice]:
        deepest = sorted(self.parameters["stages"], reverse=True)
        # Not three warpgroups at work, nor two work-groups a multiprocessor: slower than their price says (`rules/matrix_products.jsonl`).
        high = [n for n in (128, 64) if n in self.parameters["rows"]]
        for columns, rows, splits in itertools.product(self._draft_columns(), high, self.parameters["split_k"]):
            yield from self._first_that_fits(rows, columns, deepest, splits=splits)
        for told in self.ruled(n=self.n) if True in self.parameters["ping_pong"] else ():
            # Where there are less columns, all of them.
            widest = max(c for c in self.parameters["columns"] if c <= min(told["columns"], self.n))
            yield from self._first_that_fits(told["rows"], widest, told["stages"], ping_pong=True)

    def _first_that_fits(
        self, rows: int, columns: int, stages: Sequence[int], ping_pong: bool = False, splits: int = 1
    ) -> Iterator[Choice]:
        """A tile with the first of some rings that fits."""
        tile = {
            "rows": rows,
            "columns": columns,
            "group_m": self.parameters["group_m"][0],
            "persistent": self.parameters["persistent"][0],
            "occupancy": 1,
            "ping_pong": ping_pong,
            "split_k": splits,
        }
        made = (self.choice(**tile, stages=s) for s in stages)
        yield from itertools.islice((c for c in made if self.why_not(c) is None), 1)

    def cost(self, choice: Choice) -> Cost:
        """Rounds of tiles over the multiprocessors, each its products at the held rate or its operands at the second-level cache's, and its ends:
        beside the other work-group's products where two share a multiprocessor, or behind its own."""
        machine, resident, known = self.target.machine, choice["occupancy"], self.figures
        rows, columns, splits = choice["rows"], choice["columns"], choice["split_k"]
        steps = self._steps(splits)
        rate = (
            machine.macs(self.p.a.dtype)
            * known["busy_rate"]
            * known.along("width_rate", columns)
            * (1.0 if rows > ROWS else known["one_group_rate"])
        )
        products = steps * (rows * columns * self.step / rate + known["step_clocks"] / resident)
        ring = 1.0 if choice["stages"] > 2 else known["short_ring_rate"]
        a_clock = known["bytes_a_clock"]
        lines_a, lines_b = (known.along("pitch_lines", math.gcd(pitch, BOX_BYTES)) for pitch in self._pitches())
        brought = steps * (rows * lines_a + columns * lines_b) * BOX_BYTES / a_clock
        # Of parts the second kernel ends the computation.
        is_whole = splits == 1
        work = rows * columns * (self.epilogue if is_whole else 0) / machine.macs("float32", matrix=False)
        from_memory = (
            rows
            * columns
            * (self.read_bytes if is_whole else 0)
            / (machine.memory_gbps / machine.units / machine.clock_mhz * 1e3)
        )
        ends_clocks = known["ends_clocks"]
        out_bytes = self.out_bytes if is_whole else dtype_info(self.op.output(0).dtype).bytes
        ends = ends_clocks + rows * columns * out_bytes / a_clock + work
        ends += from_memory * known["read_ping_pong" if choice["ping_pong"] else "read"]
        tiles = self.tiles(choice)
        if choice["ping_pong"]:  # a tile's results beside the next one's products; of the last both
            each = max(products / known["ping_pong_rate"], brought, products / 2 + ends - ends_clocks)
            clocks = -(-tiles // machine.units) * each + ends + work
        elif resident > 1 and tiles > machine.units:
            pairs = tiles / 2 / machine.units
            clocks = (
                max(1.0, -(-tiles // (2 * machine.units)) * 0.5 + pairs * 0.5) * 2 * max(products, brought, ends / 2)
                + ends
            )
        else:
            rounds = -(-tiles // machine.units)
            clocks = (
                rounds
                * (max(products, brought) / ring + (ends if not choice["persistent"] else ends - ends_clocks / 2))
                + ends_clocks / 2
            )
        parts = known["parts_traffic"] * self.batch * self.m * self.n
        seconds = clocks / machine.clock_mhz * 1e-6 + split_k.traffic_seconds(splits, parts, machine)
        return Cost(seconds, "matrix" if products > brought else "L2")

    def build(self, choice: Choice) -> Scheduled:
        if choice["split_k"] > 1:
            return self._build_parts(choice)
        begun = begin_with(self.group)
        schedule(begun.s, self.op, begun.out, self.target, self.p, self.plan(choice))
        return Scheduled(begun.s, begun.outputs, choice)

    def _build_parts(self, choice: Choice) -> Scheduled:
        """Each part's tiles as those of a batch of products, and a kernel that adds them up and ends the computation."""
        p, sums, parts = self.p, self.op.output(0), choice["split_k"]
        depth = self._steps(parts) * self.step

        def a(lead: Sequence[Any], i: Any, k: Any) -> Any:
            return p.a(*lead, *((k, i) if p.trans_a else (i, k)))

        def b(lead: Sequence[Any], j: Any, k: Any) -> Any:
            return p.b(*lead, *((j, k) if p.trans_b else (k, j)))

        # Of the last part the copies bring what is beyond the sum as zeros.
        part = split_k.sums(sums.shape, depth, parts, a, b, sums.dtype, "part", attrs={ZERO_BEYOND: True})
        begun = begin_with(self.group, sums, split_k.total(part, parts, sums.shape, sums.dtype))
        assert isinstance(part.op, ComputeOp)
        split_k.schedule_total(begun.s, begun.group, part.op)
        schedule(begun.s, part.op, part.op, self.target, p, self.plan(choice))
        return Scheduled(begun.s, begun.outputs, choice)


def _read_bytes(group: Group, op: ComputeOp) -> int:
    """Bytes that the epilogue reads an element of the result, beside the sums: of tensors as large as the result."""
    result = op.output(0)
    others = {t for o in group.ops if o is not op for t in o.inputs if isinstance(t.op, PlaceholderOp)}
    return sum(dtype_info(t.dtype).bytes for t in others if const_shape(t) == const_shape(result))


def schedule(s: Schedule, mm: ComputeOp, out: ComputeOp, target: Target, p: Product, plan: Plan) -> None:
    """Schedule the product `mm` and its elementwise epilogue `out` (or `mm` itself)."""
    step = warpgroups.step(p.a.dtype)
    unit = intrin.warpgroup(target, p.a.dtype, plan.columns, step, trans_a=p.trans_a, trans_b=p.trans_b)
    result = s.cache_write(out.output(0), "shared")  # results go out of shared memory as tiles
    acc = accumulators(s, mm, out, "fragment.acc", result)
    staged = [s.cache_read(t, "shared", [acc]) for t in (p.a, p.b)]
    tiles = Tiles(s[out.output(0)], plan.rows, plan.columns)
    tiles.nest(tiles.i, tiles.j)
    at = tiles.bind(plan.group_m, groups=plan.groups)
    tiles.stage.pragma(tiles.i, "bulk_copy")
    stage = s[result]
    stage.compute_at(s[out.output(0)], at)
    *_, i, _ = stage.op.axis
    wi, i = stage.split(i, factor=ROWS)
    if not plan.ping_pong:
        stage.bind(wi, thread_axis("threadIdx.y"))
    if plan.occupancy > 1:
        stage.pragma(wi, "min_blocks", plan.occupancy)
    if plan.early:
        stage.pragma(wi, "early_start")
    unit.on_tile(stage, i)
    *lead, x, y = s[acc].op.axis
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=step)
    if plan.ping_pong:  # all rows of the tile by one warpgroup
        s[acc].compute_at(s[out.output(0)], at)
        blocks, x = s[acc].split(x, factor=ROWS)
        s[acc].reorder(*lead, ko, blocks, x, y, ki)
    else:
        s[acc].compute_at(stage, wi)
        s[acc].reorder(*lead, ko, x, y, ki)
    s[acc].tensorize(x, unit.mma)
    s[acc].pragma(ko, "warp_specialize", (plan.stages, plan.ping_pong))
    for tensor in staged:
        s[tensor].compute_at(s[acc], ko)
        s[tensor].pragma(s[tensor].op.axis[0], "bulk_copy")
