"""Matrix products by warpgroups (Hopper) whose operands are padded tiles: windows of an image, rows that begin anywhere, sizes that are not known.

What no bulk copy can bring, threads do: each step's pieces of 4 to 16 bytes by copies in the background (cp.async), with zeros where the operand has none, into the swizzled tiles
that wgmma reads. All warpgroups bring and multiply; a ring of slots keeps the copies of the next steps under way beside the products. The sum may be in parts, which a
second kernel adds up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ....ir import IterVar
from ....ir.dtype import dtype_info
from ....ir.matrix import WARPGROUP, warpgroup_columns
from ....ops.contraction import Contraction
from ....ops.dims import is_symbolic
from ....ops.matmul import accumulator
from ....ops.typical import is_unbounded
from ....records import dataclass
from ....schedule import Schedule, Stage
from ....target import Target
from ....te import ComputeOp, Tensor, intrin, thread_axis
from ...cost import copied_bytes_a_clock
from ...group import Group, const_shape
from ...parts import copies, ends, grid, needs, padding, split_k, warpgroups
from ...parts.counts import instructions_behind, moved_bytes
from ...parts.grid import Tiles
from ...parts.operands import contraction, follows, operands
from ...parts.staging import bring, deal
from ...parts.warpgroups import BOX_BYTES, FILE_REGISTERS, ROWS
from ...space import Choice, Cost, Scheduled, Space, Value
from .tilings import PIECE_BYTES

_TYPES = ("float16", "bfloat16")  # whose operands may lie along either axis
_LEAST_COPY = 4  # bytes that a copy in the background brings at least
_SLACK_BYTES = 1024  # of shared memory: tiles begin at a multiple of 1 KB
_OTHER_REGISTERS = 40  # of a thread: addresses, counters, what an epilogue has under way
_MOST_RESIDENT = 8  # work-groups of a multiprocessor that gain anything
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class PaddedWarpgroupProduct(Space):
    """`rows` by `columns` of the result a work-group, a warpgroup for each 64 rows; `stages` slots; `group_m` rows of tiles in a band; `occupancy` work-groups a multiprocessor; the sum
    in `split_k` parts; operands that are `copied` ahead, so that their rows begin at 16 bytes."""

    template: ClassVar[str] = "padded warpgroup product"
    neutral: ClassVar[Mapping[str, Value]] = {"copied": ""}
    outline: ClassVar[frozenset[str]] = frozenset({"rows", "columns", "occupancy"})

    def __init__(self, group: Group, target: Target, c: Contraction, result: Tensor):
        super().__init__(group, target)
        self.contraction, self.result = c, result
        self.m, self.n, self.k, self.batch = padding.sizes(c)
        self.size = dtype_info(c.a.dtype).bytes
        self.step = warpgroups.step(c.a.dtype)
        self.moved = moved_bytes(group)
        self.behind = instructions_behind(group, result)
        self.runs = tuple(min(PIECE_BYTES // self.size, padding.run(c, o)) for o in (c.a, c.b))
        fixed = not is_symbolic((*c.batch, c.n, c.k)) and not is_unbounded(c.m)
        self.parameters = {
            "rows": needs.parts_of(self.m, (128, 64, 192, 256), ROWS), "columns": self._columns(), "stages": (4, 3, 5, 6, 2), "group_m": (0, 4, 8, 16),
            "occupancy": (2, 1, 3, 4), "split_k": tuple(n for n in _SPLITS if self._is_split(n)) if fixed else (1,), "stage_out": (True, False),
            "copied": copies.options(c),
        }  # fmt: skip

    def _columns(self) -> tuple[int, ...]:
        """Of a tile: those of the unit that are whole rows of the tile where B lies along them."""
        box = 1 if self.contraction.b.k_last else self.step
        most = max(-(-self.n // 8) * 8, box)
        unit = [c for c in warpgroup_columns(self.contraction.a.dtype) if c % box == 0]
        return tuple(c for c in reversed(unit) if c <= most) or (min(unit),)

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> PaddedWarpgroupProduct | None:
        """The space, or None where the chip has no such unit for the types, or what follows the product reads it elsewhere."""
        found = contraction(group, op) if target.chip.warpgroup else None
        if found is None:
            return None
        c, result = found
        if not is_served(c, target) or not follows(group.output_ops[0], result.op):
            return None
        space = cls(group, target, c, result)
        if 1 in (space.m, space.n):  # such a row or column has no loop that would index the sums
            return None
        return space if next(space.drafts(), None) is not None else None

    def why_not(self, choice: Choice) -> str | None:
        splits = choice["split_k"]
        if self._by_registers(choice) < choice["occupancy"]:
            return f"{choice['occupancy']} such work-groups are more than the registers of a multiprocessor"
        if (wrong := needs.shared_memory(choice["occupancy"] * self._lds(choice), self.target.lds_bytes)) is not None:
            return wrong
        if splits > 1 and choice["stage_out"]:
            return "sums of parts are whole lines of memory as they lie in registers"
        if choice["stages"] > 2 and choice["stages"] > self._steps(splits) + 1:
            return "there are more slots than steps"
        return None

    def _lds(self, choice: Choice) -> int:
        """Bytes of shared memory: the ring of tiles, of which A's part is the results' in the end."""
        rows, columns, stages = choice["rows"], choice["columns"], choice["stages"]
        out = dtype_info(self.contraction.out_dtype).bytes
        results = rows * (columns * out + PIECE_BYTES) if choice["stage_out"] else 0
        return int(max(stages * rows * BOX_BYTES, results) + stages * columns * BOX_BYTES + _SLACK_BYTES)

    def _by_registers(self, choice: Choice) -> int:
        """Work-groups that a multiprocessor's registers hold."""
        sums = choice["columns"] * ROWS // WARPGROUP
        return int(FILE_REGISTERS // (choice["rows"] // ROWS * WARPGROUP * (sums + _OTHER_REGISTERS)))

    def _resident(self, choice: Choice) -> int:
        """Work-groups that a multiprocessor holds."""
        return max(1, min(self._by_registers(choice), self.target.lds_bytes // self._lds(choice), _MOST_RESIDENT))

    def _steps(self, splits: int) -> int:
        """Of the sum, in each of its parts."""
        whole = -(-self.k // self.step)
        return -(-whole // splits)

    def _is_split(self, splits: int) -> bool:
        """Whether a sum in so many parts has steps enough in each, and some in the last."""
        enough = splits == 1 or self._steps(splits) >= self.figures["least_steps"]
        return enough and (splits - 1) * self._steps(splits) < self._steps(1)

    def drafts(self) -> Iterator[Choice]:
        high = [n for n in (128, 64, 256, 192) if n in self.parameters["rows"]]
        for rows, columns in itertools.product(high, self._draft_columns()):
            for splits, stages in itertools.product(self.parameters["split_k"], (4, 3, 2)):
                c = self.choice(
                    rows=rows,
                    columns=columns,
                    stages=stages,
                    group_m=0,
                    occupancy=1,
                    split_k=splits,
                    stage_out=splits == 1,
                )
                c["occupancy"] = min(self._resident(c), max(self.parameters["occupancy"]))
                if self.why_not(c) is None:
                    yield from ({**c, "copied": sides} for sides in self.parameters["copied"])

    def _draft_columns(self) -> Iterator[int]:
        """Those that cover the product's with the least left over, for some numbers of tiles, and the usual ones."""
        every = self.parameters["columns"]
        fitting = {min((c for c in every if c * t >= self.n), default=every[0]) for t in (1, 2, 3, 4, 5, 6)}
        return iter(sorted(fitting | {c for c in (64, 128, 192, 256) if c in every}, reverse=True))

    def cost(self, choice: Choice) -> Cost:
        """Rounds of work-groups over the multiprocessors: each step its products, what its threads issue to bring the tiles, or the tiles at the second-level cache's rate."""
        machine, known, c = self.target.machine, self.figures, self.contraction
        rows, columns, splits = choice["rows"], choice["columns"], choice["split_k"]
        groups = grid.count((rows, columns), (self.m, self.n), self.batch * splits)
        at_once = min(self._resident(choice), -(-groups // machine.units))
        steps = self._steps(splits)
        # Narrow products read A from shared memory as often as wide ones: 64 rows of 128 bytes take the time of 64 columns.
        wide = max(columns, known["least_columns"])
        products = rows * wide * self.step / (machine.macs(c.a.dtype) * known["busy_rate"])
        pieces = self._pieces(choice)
        issued = sum(
            n * self.step / piece * known.along("piece_clocks", piece * self.size)
            for piece, n in zip(pieces, (min(rows, self.m), min(columns, self.n)))
        )
        operands = self.batch * (self.m + self.n) * self.k * self.size
        a_clock = copied_bytes_a_clock(self.target, operands)
        brought = (rows + columns) * BOX_BYTES / a_clock
        # Alone on its multiprocessor a step waits for its copies, of which the ring has some under way, and for both barriers.
        alone = max(products, issued) + known["step_clocks"] / (choice["stages"] - 1)
        if min(pieces) * self.size < _LEAST_COPY:  # through registers, one step at a time
            alone += known["register_clocks"]
        elif any(o.unpacked and side not in choice["copied"] for side, o in zip("ab", (c.a, c.b))):
            alone += known["made_clocks"]
        size = dtype_info(c.out_dtype).bytes if splits == 1 else 4
        rate = known["staged_bytes_a_clock" if choice["stage_out"] else "out_bytes_a_clock"]
        results = min(rows, self.m) * min(columns, self.n)
        stored = results * size / rate
        behind = results * self.behind / machine.macs("float32", matrix=False) if splits == 1 else 0.0
        # Of a tile what the multiprocessor has to do, which those beside it share, and what a work-group waits for by itself.
        busy = steps * max(products, issued, brought) + stored + known["behind"] * behind
        waits = steps * max(alone, brought) + known["ends_clocks"] + stored + known["behind_alone"] * behind
        share: float = groups / machine.units
        if share < known["even_rounds"] * at_once:
            clocks = max(math.ceil(share) * busy, math.ceil(math.ceil(share) / at_once) * waits)
        else:
            clocks = max(share * busy, share / at_once * waits)
        least = self.moved / (machine.reached_gbps * 1e9)
        seconds = max(clocks / machine.clock_hz, least)
        seconds += split_k.traffic_seconds(splits, self.batch * self.m * self.n, machine)
        seconds += copies.seconds(c, choice["copied"], machine)
        return Cost(seconds, "matrix" if products >= max(issued, brought) else "issue" if issued > brought else "L2")

    def _pieces(self, choice: Choice) -> tuple[int, ...]:
        """Elements of A and of B that a thread brings at once."""
        return tuple(
            PIECE_BYTES // self.size if side in choice["copied"] else run for side, run in zip("ab", self.runs)
        )

    def build(self, choice: Choice) -> Scheduled:
        c, loop, splits = self.contraction, PaddedTiles(choice, self.target, self.step), choice["split_k"]
        if splits == 1:
            begun = ends.stored(loop, self.group, c, self.result, choice["copied"])
        else:
            begun = ends.added(loop, self.group, c, self.result, splits, choice["copied"])
        return Scheduled(begun.s, begun.outputs, choice)


@dataclass(frozen=True)
class PaddedTiles(ends.Mainloop):
    """The main loop of such products."""

    choice: Choice
    target: Target
    step: int
    on_matrix_units: ClassVar[bool] = True
    called: ClassVar[str] = " by warpgroups"

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.choice["rows"], self.choice["columns"], self.step

    @property
    def threads(self) -> list[tuple[IterVar, int]]:
        counts = (("x", WARPGROUP), ("y", self.choice["rows"] // ROWS))
        return [(thread_axis((0, n), f"threadIdx.{dim}"), n) for dim, n in counts]

    def schedule(self, s: Schedule, product: ComputeOp, out: ComputeOp) -> None:
        schedule(s, product, out, self.target, self.choice, self.threads)


def schedule(s: Schedule, mm: ComputeOp, out: ComputeOp, target: Target, choice: Choice, threads: list[tuple[IterVar, int]]) -> None:  # fmt: skip
    """Schedule a product `mm` of padded tiles and its elementwise epilogue `out`."""
    p = operands(mm)
    assert p is not None
    step = warpgroups.step(p.a.dtype)
    unit = intrin.warpgroup(target, p.a.dtype, choice["columns"], step, trans_a=p.trans_a, trans_b=p.trans_b)
    acc = s[mm.output(0)]
    acc.set_scope("fragment.acc")
    if choice["stage_out"] or out.tag == ends.MET:
        if out.tag == ends.MET:  # a tile in shared memory, whose reader has the work-groups
            held = out.output(0)
        else:
            held = s.cache_write(out.output(0), "shared")
            final = s[out.output(0)]
            tiles = Tiles(final, choice["rows"], choice["columns"])
            tiles.nest(tiles.i, tiles.j)
            s[held].compute_at(final, tiles.bind(choice["group_m"]))
            _store(final, tiles, out, choice["columns"], threads)
        stage = s[held]
        *lead, i, j = stage.op.axis
        # Rows 16 bytes apart from whole banks: a warp writes 16 bytes of each of eight rows at once.
        stage.storage_align(i, choice["columns"], PIECE_BYTES // dtype_info(held.dtype).bytes)
        wi, i = stage.split(i, factor=ROWS)
        tj, j = stage.split(j, factor=choice["columns"])
        stage.reorder(*lead, wi, tj, i, j)
    else:
        stage = s[out.output(0)]
        tiles = Tiles(stage, choice["rows"], choice["columns"])
        wi, i = stage.split(tiles.i, factor=ROWS)
        tj, j = stage.split(tiles.j, factor=choice["columns"])  # whole, also where the product has less
        tiles.nest(wi, tj, i, j)
        tiles.bind(choice["group_m"])
    stage.bind(wi, thread_axis("threadIdx.y"))
    stage.pragma(wi, "min_blocks", choice["occupancy"])
    unit.on_tile(stage, i)
    acc.compute_at(stage, wi)
    *lead, x, y = acc.op.axis
    ko, ki = acc.split(acc.op.reduce_axis[0], factor=step)
    tx, x = acc.split(x, factor=ROWS)
    ty, y = acc.split(y, factor=choice["columns"])
    acc.reorder(*lead, ko, tx, ty, x, y, ki)
    acc.tensorize(x, unit.mma)
    acc.pragma(ko, "software_pipeline", (choice["stages"], 1, False, False, "behind", True))
    for tensor in (p.a, p.b):
        piece, wide = PIECE_BYTES // dtype_info(p.a.dtype).bytes, s[tensor].op.attrs.get("wide", 1)
        bring(s[tensor], acc, ko, threads, piece, wide)


def loops(c: Contraction, target: Target, group: Group, result: Tensor) -> Iterator[PaddedTiles]:
    """The main loops for a product by warpgroups that leave shared memory room for a tile of its sums, of each tile the one with the least price; none where the chip has no
    such unit for the types."""
    if not is_served(c, target):
        return
    space, best = PaddedWarpgroupProduct(group, target, c, result), set[tuple[int, int]]()
    for choice in sorted(space.drafts(), key=lambda x: space.cost(x).seconds):
        loop = PaddedTiles(choice, target, space.step)
        rows, columns, _ = loop.tile
        ring = choice["stages"] * (rows + columns) * BOX_BYTES
        held = ring + rows * (columns + ends.PIECE) * dtype_info(c.acc).bytes + _SLACK_BYTES
        if choice["split_k"] == 1 and not choice["copied"] and (rows, columns) not in best and held <= target.lds_bytes:
            best.add((rows, columns))
            yield loop


def is_served(c: Contraction, target: Target) -> bool:
    """Whether the chip has warpgroups that multiply such elements."""
    return bool(target.chip.warpgroup) and c.a.dtype == c.b.dtype in _TYPES and c.acc == accumulator(c.a.dtype)


def _store(final: Stage, tiles: Tiles, out: ComputeOp, columns: int, threads: list[tuple[IterVar, int]]) -> None:
    """A tile of results from shared memory, whole runs of neighbours by neighbouring threads."""
    size = const_shape(out.output(0))[-1] or 1
    piece = math.gcd(PIECE_BYTES // dtype_info(out.output(0).dtype).bytes, size, columns)
    rest, vec = final.split(final.fuse(tiles.i, tiles.j), factor=piece)
    rest, _ = deal(final, rest, threads)
    final.unroll(rest)
    final.vectorize(vec)
