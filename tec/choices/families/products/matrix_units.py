"""Matrix products on matrix units: MFMA, WMMA, mma.sync, one template, whose schedule is made in `matrix_schedule`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from ....ir.dtype import dtype_info
from ....ir.matrix import MatrixInstr, instructions
from ....ops.contraction import Contraction, Operand
from ....ops.dims import is_symbolic
from ....ops.typical import is_unbounded
from ....target import Target, latency_ns, level_gbps
from ....te import ComputeOp, Tensor
from ...group import Group, const_shape, same_shape
from ...parts import ends, padding, split_k
from ...parts.operands import contraction, follows, operands
from ...space import Choice, Cost, Scheduled, Space, Value
from . import tile_order, tilings
from .matrix_schedule import MatrixUnits
from .tilings import Shape, Tiling

SPLITS = (1, 2, 4, 8, 16, 32)  # parts of the sum: each adds a matrix of float32 to write and read
_IN_HALVES = ("float8_e4m3", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_ENOUGH = 3  # work-groups a unit from which parts of the sum are not asked for
_UNEVEN = 256  # rows and columns from which a tile has wavefronts enough that half of them may come first
_WORTH = 0.9  # of the whole's time, that parts should take at most: a launch more is certain, the gain an estimate


class MatrixProduct(Space):
    """A product on the chip's matrix unit: the work-group's tile, its wavefronts, the instruction, how tiles lie in shared memory."""

    template: ClassVar[str] = "matrix product"
    neutral: ClassVar[Mapping[str, Value]] = {"slice_k": 1, "ping_pong": False, "direct_to_lds": False}
    outline: ClassVar[frozenset[str]] = frozenset({"rows", "columns", "waves_m", "waves_n", "split_k"})
    easiest: ClassVar[Mapping[str, Value]] = {
        "slice_k": 1, "split_k": 1, "stages": 0, "swizzle": True, "ping_pong": False, "interleave": False, "direct_to_lds": False, "prefetch_distance": 1,
        "group_m": 0,
    }  # fmt: skip
    former: ClassVar[Mapping[str | tuple[str, str], str]] = {"band": "group_m", "ahead": "prefetch_distance", "splits": "split_k", "slices": "slice_k", "uneven": "ping_pong", "direct": "direct_to_lds"}  # fmt: skip

    def __init__(
        self,
        group: Group,
        target: Target,
        shape: Shape,
        op: ComputeOp,
        contraction: Contraction | None,
        result: Tensor | None,
    ):
        super().__init__(group, target)
        self.shape, self.op, self.contraction, self.result = shape, op, contraction, result
        names = dict.fromkeys(_name(i, shape) for i in tilings.instructions(shape, target))
        most = tilings.steps(shape, target)[0]
        self.parameters = {
            "rows": (128, 64, 256, 32, 16, 96, 192), "columns": (128, 64, 256, 32, 16, 96, 192, 48), "step": tuple(2 * most >> k for k in range(4)),
            "waves_m": (2, 1, 4), "waves_n": (2, 1, 4), "instruction": tuple(names), "swizzle": (True, False), "stages": (1, 2, 0, 3, 4), "prefetch_distance": (1, 2, 3, 4), "group_m": (0, *tile_order.BANDS) if self._has_bands() else (0,),
            "split_k": SPLITS if self._may_split() else (1,), "interleave": (True, False) if target.chip.counts_loads else (False,),
            "ping_pong": (False, True) if target.chip.counts_loads and min(shape.m, shape.n) >= _UNEVEN else (False,),
            "direct_to_lds": (False, True) if target.chip.loads_lds_by_16 else (False,),
            "slice_k": (1, 2, 4, 8) if self._may_share() else (1,),
        }  # fmt: skip

    def _may_split(self) -> bool:
        """Whether the sum can be made in parts: a form whose sizes are numbers, but for rows of which there are no more than some number."""
        c = self.contraction
        return c is not None and not is_symbolic((*c.batch, c.n, c.k)) and not is_unbounded(c.m)

    def _may_share(self) -> bool:
        """Whether the wavefronts of a work-group can have a part of the sum each."""
        if self.target.chip.background_copies:
            return False
        known = "shared_groups" in self.figures
        return self._may_split() or (self.contraction is not None and self.shape.open_rows and known)

    def _has_bands(self) -> bool:
        """Whether tiles can go by bands: on AMD, where their number is known."""
        c = self.contraction
        return not self.target.chip.background_copies and (c is None or not is_symbolic((c.m, c.n)))

    def tiling(self, choice: Choice) -> Tiling:
        """The choice as a tiling."""
        return Tiling.of(choice)

    def of_tiling(self, t: Tiling, splits: int = 1) -> Choice:
        """A tiling as a choice."""
        return self.choice(**t.parameters(), split_k=splits)

    def why_not(self, choice: Choice) -> str | None:
        t, splits = self.tiling(choice), choice["split_k"]
        if splits > 1 and t.slice_k > 1:
            return "the sum is in parts already"
        if t.slice_k > 1 and self.shape.open_rows and not tilings.has_few(t, self.shape, self.target):
            return "wavefronts share sums where units have few tiles"
        if splits > 1 and not tilings.in_parts(self.shape.k, splits, t.k, self.target):
            return f"a sum of {self.shape.k} is not {splits} parts of whole steps"
        return tilings.why_not(t, self._part(splits, t.k), self.target)

    def _part(self, splits: int, step: int = 1) -> Shape:
        """The product that work-groups compute: parts of the sum beside each other."""
        each = padding.terms(self.shape.k, splits, step) if splits > 1 else self.shape.k
        return replace(self.shape, k=each, batch=self.shape.batch * splits, parts=splits > 1)

    def drafts(self) -> Iterator[Choice]:
        for splits in self.parameters["split_k"]:
            for t in self._drafts(splits):
                yield self.of_tiling(t, splits)

    def _drafts(self, splits: int) -> Iterator[Tiling]:
        """Tilings of the sum in so many parts."""
        part = self._part(splits)
        for t in tilings.drafts(part, self.target):
            if splits == 1 or (
                tilings.in_parts(self.shape.k, splits, t.k, self.target) and not self._is_all_filling(t, part.k)
            ):
                yield t

    def _is_all_filling(self, t: Tiling, k: int) -> bool:
        """Whether a part of the sum is hardly longer than filling its slots takes, of a tile that is not small."""
        if not self.target.chip.background_copies or t.m * t.n <= self.figures["small_tile"]:
            return False
        return k < self.figures["least_steps"] * t.k

    @property
    def default(self) -> Choice:
        """The cheapest tiling; in parts where that should be worth the second kernel."""
        found = tilings.cheapest(self.shape, self.target)
        assert found is not None  # `match` has seen one
        splits, least = 1, _WORTH * self._seconds(found, 1).seconds
        fills = tilings.groups(found, self.shape) >= _ENOUGH * self.target.machine.units
        for n in self.parameters["split_k"]:
            for t in self._drafts(n) if n > 1 and not fills else ():
                cost = self._seconds(t, n).seconds
                if cost < least:
                    found, splits, least = t, n, cost
        return self._ordered(self.of_tiling(found, splits))

    def _ordered(self, choice: Choice) -> Choice:
        """In bands where several dies have work enough that the order of tiles decides what their L2s share."""
        t = self.tiling(choice)
        part = self._part(choice["split_k"], t.k)
        machine = self.target.machine
        # Products of a batch share nothing: in bands all tiles of a die would wait for the same lines (480 of 216 x 256 by 60 in float16 28 us, row by row 23).
        if t.group_m or self.shape.batch > 1 or tilings.groups(t, part) // part.batch % machine.dies:
            return choice
        if machine.dies > 1 and not self.shape.guarded and tilings.groups(t, part) >= self.figures["banded_groups"] * machine.units:  # fmt: skip
            for band in (8, 4, 16):
                made = {**choice, "group_m": band}
                if self.why_not(made) is None:
                    return made
        return choice

    def cost(self, choice: Choice) -> Cost:
        found, known = self._seconds(self.tiling(choice), choice["split_k"]), self.figures
        if self.target.machine.priced_by_model:  # as other templates' prices
            return replace(found, seconds=found.seconds + self.target.machine.launch_seconds)
        if "over_price" not in known:
            return found
        seconds = found.seconds * known.along("over_price", self._copied_bytes())
        # A lane's results are two neighbours of a row each; behind long sums others' products go beside these stores.
        if choice["split_k"] == 1 and self.shape.k < known["short_sum"]:
            shape, machine = self.shape, self.target.machine
            stored = shape.batch * shape.m * shape.n * dtype_info(self.group.outputs[0].dtype).bytes
            seconds += stored / (known["out_bytes_a_clock"] * machine.units * machine.clock_hz)
        return replace(found, seconds=seconds)

    def _copied_bytes(self) -> int:
        """Bytes that one copy of an operand brings, of the one whose copies are shorter."""
        c = self.contraction
        if c is None:
            return tilings.PIECE_BYTES
        return min(tilings.PIECE_BYTES, *(padding.run(c, o) * dtype_info(o.dtype).bytes for o in (c.a, c.b)))

    def _seconds(self, t: Tiling, splits: int) -> Cost:
        m, part = self.target.machine, self._part(splits, t.k)
        seconds, limit = tilings.seconds(t, part, self.target)
        if splits > 1:
            # The parts, written and read, and the launch that adds them up, whose loads are all under way at once.
            results = part.batch * part.m * part.n
            if not m.priced_by_model:
                seconds += split_k.traffic_seconds(splits, results // splits, m)
            else:
                moved = 2 * results * dtype_info(part.acc).bytes
                seconds += (m.launch_us + 2e-3 * latency_ns(m, "memory")) * 1e-6 + moved / (
                    level_gbps(m, "memory") * 1e9
                )
        return Cost(seconds, limit)

    def build(self, choice: Choice) -> Scheduled:
        t, c, splits = self.tiling(choice), self.contraction, choice["split_k"]
        loop = MatrixUnits(
            t,
            self.target,
            self.shape.unit,
            turned=True,
            are_apart=c is not None and c.are_apart and splits * t.slice_k == 1,
        )
        if c is None or self.result is None:
            begun = ends.as_they_lie(loop, self.group, self.op)
        elif splits > 1:
            begun = ends.added(loop, self.group, c, self.result, splits)
        elif t.slice_k > 1:  # a part of the sum a wavefront
            dies = self.target.machine.dies
            begun = ends.shared(loop, self.group, c, self.result, t.slice_k, t.group_m, dies)
        else:
            begun = ends.stored(loop, self.group, c, self.result)
        return Scheduled(begun.s, begun.outputs, choice)


def _name(i: MatrixInstr, shape: Shape) -> str:
    return f"{i.m}x{i.n}x{tilings.instr_k(i, shape)}"


def _known(c: Contraction, target: Target) -> Contraction:
    """The product with 8-bit floats that no unit of the chip takes as float16, which holds them all: a chip may take the other 8-bit formats alone, or none."""
    if not all(o.dtype in _IN_HALVES for o in (c.a, c.b)) or any(i.in_dtype == c.a.dtype for i in instructions(target)):
        return c

    def wider(o: Operand) -> Operand:
        return replace(o, at=lambda *at: o.at(*at).astype("float16"), dtype="float16", wide=min(o.run(), 8))

    return replace(c, a=wider(c.a), b=wider(c.b))


def shape_of(c: Contraction, target: Target) -> Shape:
    """A contraction as a tiling of padded operands sees it."""
    turned, is_summed = not (c.a.k_last and c.b.k_last), not is_symbolic((*c.batch, c.n, c.k))
    fixed = is_summed and not is_symbolic(c.m)
    runs = (0, 0)
    if target.machine.priced_by_model and dtype_info(c.a.dtype).bytes <= 4:  # whose price asks
        runs = (_run(c, c.a), _run(c, c.b))
    return Shape(
        *padding.sizes(c), c.a.dtype, c.acc, padded=True, guarded=padding.guarded(c), fixed=fixed, open_rows=is_summed and not fixed,
        turned=turned, runs=runs,
        along_k=(c.a.k_last, c.b.k_last), anywhere=c.a.anywhere and c.b.anywhere, distinct=(c.a.distinct, c.b.distinct),
        taps=(c.a.tap, c.b.tap), sides=(c.a.sides, c.b.sides),
    )  # fmt: skip


def loops(c: Contraction, target: Target) -> Iterator[MatrixUnits]:
    """The main loops of the drafts for a product of which each wavefront has a part; none where no unit of the chip takes it."""
    shape = shape_of(c, target)
    yield from (MatrixUnits(t, target) for t in tilings.drafts(shape, target) if tilings.fills_wavefronts(t, shape))


def _run(c: Contraction, o: Operand) -> int:
    """Elements of an operand that one load brings; 0 for a whole piece."""
    run = padding.run(c, o)
    return 0 if run * dtype_info(o.dtype).bytes >= tilings.PIECE_BYTES else run


def match(group: Group, target: Target, op: ComputeOp) -> MatrixProduct | None:
    """The space of a group around the product `op`, whose operands may be padded where its form says what they are; None where no unit takes
    it, or other work stands in the way."""
    if len(group.output_ops) != 1 or group.reductions() != [op]:
        return None
    found, out = contraction(group, op), group.output_ops[0]
    if not follows(out, op if found is None else found[1].op):  # sums lie in lanes: each is ended where it is
        return None
    if found is None:
        p = operands(op)
        if p is None or p.m is None or p.n is None or p.k is None or not same_shape(out.output(0), op.output(0)):
            return None
        batch = math.prod(d or 1 for d in const_shape(op.output(0))[:-2])
        shape = Shape(p.m, p.n, p.k, batch, p.a.dtype, op.output(0).dtype, padded=False)
        space = MatrixProduct(group, target, shape, op, None, None)
    else:
        c = padding.anywhere(_known(found[0], target), target)
        if c.a.dtype != c.b.dtype:
            return None
        space = MatrixProduct(group, target, shape_of(c, target), op, c, found[1])
    return space if next(space.drafts(), None) is not None else None
