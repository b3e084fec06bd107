"""Elementwise work on a GPU whose operands lie along other axes than the result: tiles through shared memory, so that both sides touch whole lines.

A tile has so many elements along the operand's lines, and so many along the result's: of the last axes of either, the innermost whole, a part of the first that
does not fit. So an image [n, c, h, w] becomes pixels by channels, and these an image, by tiles of channels and of some rows of pixels together. Axes that are read
by parts are taken apart first (`parts.digits`).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...ir import IntImm, TensorRead
from ...ir.arith import Analyzer
from ...ir.dtype import dtype_info
from ...ir.shared_layout import PIECE_BYTES
from ...ir.visit import free_vars
from ...records import dataclass
from ...schedule import create_schedule
from ...target import Target, latency_ns
from ...te import ComputeOp, Tensor, thread_axis
from ..cost import UNDER_WAY, Cost, Footprint, Kernel
from ..group import Group, const_shape, reads_of
from ..parts.counts import moved_bytes
from ..parts.digits import Place, by_digits
from ..parts.threads import brought, dealt, neighbours_on_a_die
from ..rules import figures
from ..space import Choice, Scheduled, Space

_OPERATIONS = 4  # of an element: its places on both sides
_LEAST = 16  # elements along both axes, from which tiles are worth their barrier
_ENOUGH = 128  # elements of a line, from which no further axis is wanted: the longest tile


@dataclass(frozen=True)
class Side:
    """The axes of the result that one side's lines lie along, the outermost first, and their extents."""

    axes: tuple[int, ...]
    extents: tuple[int, ...]
    follows: bool = False  # whether a tile's lines, where they are whole, lie one behind the other in memory
    together: int = 1  # elements that lie side by side at each place

    def line(self, most: int) -> float:
        """Elements that lie side by side in memory, of a tile that has at most so many along a line."""
        found = math.prod(self.tile(most)) * self.together
        return math.inf if self.follows and found == math.prod(self.extents) * self.together else found

    def tile(self, most: int) -> tuple[int, ...]:
        """Of each axis so much that a tile has at most so many elements: of the innermost first."""
        parts: list[int] = []
        for n in reversed(self.extents):
            parts.insert(0, min(n, most))
            most = most // n if n <= most else 1
        return tuple(max(1, p) for p in parts)

    def is_cut(self, most: int) -> bool:
        """Whether the last tile of an axis reaches beyond its end."""
        return any(n % part for n, part in zip(self.extents, self.tile(most)))

    def has_pieces(self, most: int, lanes: int) -> bool:
        """Whether no piece of so many neighbours reaches beyond an axis' end, or into another tile."""
        parts = self.tile(most)
        inner = math.prod(n for n, part in zip(self.extents, parts) if n == part)
        short = [n for n, part in zip(self.extents, parts) if n % part]
        return math.prod(parts) % lanes == 0 and (
            not short or (inner * short[-1] if short[-1] == self.extents[-1] else inner) % lanes == 0
        )

    def whole_tiles(self, most: int) -> float:
        """Elements of all tiles over those that there are."""
        return math.prod(-(-n // part) * part / n for n, part in zip(self.extents, self.tile(most)))


class Transpose(Space):
    """A work-group turns a tile of `tile` by `tile` elements round; a thread stores `piece` bytes at once (0: an element)."""

    template: ClassVar[str] = "gpu transpose"

    def __init__(
        self, group: Group, target: Target, out: ComputeOp, place: Place, turned: list[Tensor], sides: tuple[Side, Side]
    ):
        super().__init__(group, target)
        self.out, self.place, self.turned = out, place, turned
        self.rows, self.columns = sides
        self.bytes = min(dtype_info(t.dtype).bytes for t in (*turned, out.output(0)))
        pieces = tuple(self.rule("pieces", (4, 8, 16, 0), **self.features))  # the first of those that cost the same
        self.parameters = {"tile": (64, 32, 128, 16), "threads": (256, 128, 64, 512), "piece": pieces}

    @classmethod
    def match(cls, group: Group, target: Target) -> Transpose | None:
        """The space of a group of one elementwise output that turns some operand round."""
        if not target.is_gpu or len(group.outputs) != 1 or group.reductions():
            return None
        (out,) = group.output_ops
        apart = by_digits(out) if isinstance(out, ComputeOp) else None
        if apart is None:
            return None
        own = apart[0].op
        assert isinstance(own, ComputeOp)
        reads = {(e.tensor, str(e.indices)): e for e in reads_of(own)}
        told = figures.of(cls.template, target)
        most = told["most_together_bytes"] if "most_together_bytes" in told else 0.0
        turned = {e.tensor: sides for e in reads.values() if (sides := _sides(e, own, most)) is not None}
        if len(set(turned.values())) != 1 or any(sum(t is e.tensor for e in reads.values()) != 1 for t in turned):
            return None
        sides = next(iter(turned.values()))
        space = cls(group, target, own, apart[1], list(turned), sides)
        least, known = _LEAST, "least_whole" in space.figures
        if known and moved_bytes(group) >= space.figures["least_whole_bytes"]:
            least = space.figures.count("least_whole")
        if any(math.prod(s.extents) < (least if s.follows else _LEAST) for s in sides):
            return None
        return space if next(space.all, None) is not None else None

    @property
    def features(self) -> dict[str, Any]:
        """What rules may ask: elements of a row of the result, and tiles of 64 by 64."""
        (usual,) = self.sketch(self.choice(tile=64, threads=256, piece=0)).kernels
        return {"width": self.columns.extents[-1], "tiles": usual.groups}

    def _lanes(self, choice: Choice) -> int:
        return max(1, int(choice["piece"]) // self.bytes)

    def _tile(self, choice: Choice) -> tuple[int, int]:
        """Elements of a tile along the operand's lines and along the result's: no more than there are."""
        return math.prod(self.rows.tile(choice["tile"])), math.prod(self.columns.tile(choice["tile"]))

    def why_not(self, choice: Choice) -> str | None:
        lanes = self._lanes(choice)
        if lanes > 1 and self.rows.together > 1:
            return "elements that lie together are copied one by one"
        if not all(side.has_pieces(choice["tile"], lanes) for side in (self.rows, self.columns)):
            return "pieces would be cut off at the edges"
        if math.prod(self._tile(choice)) < lanes * choice["threads"]:
            return "a tile has no piece for some threads"
        return None

    @property
    def default(self) -> Choice:
        """Of the cheapest the first; by its sketch, which knows how many units have work, where a rule says that tiles are few."""
        seconds = super().cost if self.rule("by_sketch", False, **self.features) else self.cost
        return min(self.all, key=lambda c: seconds(c).seconds)

    def _moved(self, choice: Choice) -> float:
        """Bytes of lines that are read and written."""
        sides = self.rows, self.columns
        # Lines over those that the bytes need.
        waste = sum(max(1.0, 128 / (s.line(choice["tile"]) * self.bytes)) for s in sides) / 2
        return moved_bytes(self.group) * waste * math.prod(s.whole_tiles(choice["tile"]) for s in sides)

    def _groups(self, choice: Choice) -> int:
        """Tiles in all."""
        groups = math.prod(const_shape(self.out.output(0)))  # type: ignore[arg-type]
        for side in (self.rows, self.columns):
            for n, part in zip(side.extents, side.tile(choice["tile"])):
                groups = groups // n * -(-n // part)
        return groups

    def _has_parts(self, side: Side) -> bool:
        """Whether lines of a side end within one of a cache of one of several dies: two tiles have a part each, which the L2 of one die makes whole."""
        l2 = self.target.machine.level("L2")
        own = math.prod(side.extents) * side.together * self.bytes
        return self.target.machine.dies > 1 and l2 is not None and own % l2.line_bytes != 0

    def _is_cut(self, choice: Choice) -> bool:
        return self.rows.is_cut(choice["tile"]) or self.columns.is_cut(choice["tile"])

    def sketch(self, choice: Choice) -> Footprint:
        """A tile by pieces into shared memory, and out of it; beyond the edges each load is under a condition, which the next waits for."""
        rows, columns = self._tile(choice)
        moved, groups = self._moved(choice), self._groups(choice)
        own = rows * columns / choice["threads"] / self._lanes(choice)
        shared = sum(self._staged(t, rows, columns) for t in self.turned)
        return Footprint((Kernel(
            groups, choice["threads"], shared, 0, moved, moved, 2 * groups * rows * columns * self.bytes, _OPERATIONS * own * self._lanes(choice),
            waits=(1 + self.figures["conditional"] * own * UNDER_WAY if self._is_cut(choice) else max(1.0, own)), barriers=1,
        ),))  # fmt: skip

    def cost(self, choice: Choice) -> Cost:
        machine = self.target.machine
        memory = self._moved(choice) / (machine.reached_gbps * 1e9)
        own = math.prod(self._tile(choice)) / choice["threads"]
        latency = latency_ns(machine, "memory") * 1e-9
        waiting = max(0.0, own - self.figures["own_elements"]) / 8 * latency
        if machine.priced_by_model and self._is_cut(choice):
            waiting = own / self._lanes(choice) * self.figures["conditional"] * latency
        memory += waiting
        return Cost(machine.launch_seconds + memory, "memory")

    def _staged(self, t: Tensor, rows: int, columns: int) -> int:
        """Bytes of a tile of an operand in shared memory, in rows a word apart."""
        size = dtype_info(t.dtype).bytes
        each = self.rows.together
        return -(-columns // each * (rows * each + max(1, 4 // size)) * size // PIECE_BYTES) * PIECE_BYTES

    def build(self, choice: Choice) -> Scheduled:
        """Tiles through shared memory: read along the operand's lines, written along the result's."""
        s, out, threads, lanes = create_schedule([self.out]), self.out, choice["threads"], self._lanes(choice)
        stage = s[out]
        staged = [s.cache_read(t, "shared", [out]) for t in self.turned]
        far = dict(enumerate(out.axis))
        near: list[list[Any]] = []
        for side in (self.rows, self.columns):
            parts = []
            for k, n, part in zip(side.axes, side.extents, side.tile(choice["tile"])):
                if part == n and len(far) > 1:
                    parts.append(far.pop(k))
                else:
                    far[k], inner = stage.split(far[k], factor=part)
                    parts.append(inner)
            near.append(parts)
        # Tiles that follow one another along the operand's lines are neighbours, or along the result's where these alone are no whole lines of a cache.
        along = (self.columns if self._has_parts(self.columns) and not self._has_parts(self.rows) else self.rows).axes
        outer = [far[k] for k in sorted(far, key=lambda k: (k in along, k))]
        stage.reorder(*outer, *near[0], *near[1])
        block = stage.fuse(*outer)
        block = neighbours_on_a_die(stage, block, None, self.target.machine.dies)
        stage.bind(block, thread_axis("blockIdx.x"))
        tx = thread_axis((0, threads), "threadIdx.x")
        dealt(stage, stage.fuse(*near[0], *near[1]), threads, tx, lanes, vectorized=True)
        for shared, t in zip(staged, self.turned):
            own = s[shared]
            own.compute_at(stage, block)
            # Rows of the tile in shared memory a word apart from whole banks: what lies below each other is read at once.
            pad = max(1, 4 // dtype_info(shared.dtype).bytes)
            own.storage_align(own.op.axis[-1 - self._line(t)], self._tile(choice)[0] * self.rows.together, pad)
            brought(own, threads, lanes, tx)
        stage.transform_layout(self.place, keep_loops=True)
        return Scheduled(s, [self.out.output(0)], choice)

    def _line(self, t: Tensor) -> int:
        """How many of an operand's last dimensions a line of the tile takes."""
        read = next(e for e in reads_of(self.out) if e.tensor is t)
        return _line(read, self.out, self.rows)


def _sides(read: TensorRead, out: ComputeOp, most_together: float) -> tuple[Side, Side] | None:
    """The axes along an operand's lines, and those along the result's, where they are others; None where they are not, or the operand is read otherwise
    than at whole axes. most_together: bytes of an innermost axis that both have, below which what lies around it is turned round all the same."""
    shape = [n or 0 for n in const_shape(out.output(0))]
    apart = _strides(read, out)
    last = max((k for k, n in enumerate(shape) if n != 1), default=0)
    if not apart or apart[last] is None or 1 not in apart:  # a number has no sides
        return None
    together = 1
    if apart[last] == 1:
        together = shape[last]
        if together * dtype_info(read.tensor.dtype).bytes >= most_together or together not in apart:
            return None
    rows = [apart.index(together)]
    if rows == [last - 1] and together > 1:
        return None
    while math.prod(shape[k] for k in rows) < _ENOUGH:
        step = shape[rows[0]] * (apart[rows[0]] or 0)
        if step not in apart or apart.index(step) == last:
            break
        # Lines that are long enough for a tile leave an axis to short ones on the other side.
        if apart.index(step) == last - 1 and shape[last] < _LEAST <= math.prod(shape[k] for k in rows):
            break
        rows.insert(0, apart.index(step))
    columns = [last]
    while (
        math.prod(shape[k] for k in columns) < _ENOUGH
        and columns[0] - 1 not in rows
        and columns[0] > 0
        and apart[columns[0] - 1]
    ):
        columns.insert(0, columns[0] - 1)
    high, wide = (math.prod(shape[k] for k in axes) for axes in (rows, columns))
    # Elements of the result from one place of a line of the operand's to the next.
    own = math.prod(shape[rows[-1] + 1 :])
    sides = (
        Side(tuple(rows), tuple(shape[k] for k in rows), together == 1 and apart[last] == high, together),
        Side(tuple(columns), tuple(shape[k] for k in columns), own == wide),
    )
    return sides if 0 < _line(read, out, sides[0]) < len(read.indices) else None


def _strides(read: TensorRead, out: ComputeOp) -> list[int | None] | None:
    """Elements of the operand from one place of each axis of the result to the next, None for axes of one place or that it does not depend on; None where an index
    is not made of axes that follow one another in it, or reach into the next."""
    shape = const_shape(out.output(0))
    apart: list[int | None] = [None] * len(shape)
    below = 1
    for index, n in zip(reversed(read.indices), reversed(const_shape(read.tensor))):
        found = Analyzer().detect_linear(index, [a.var for a in out.axis])
        if found is None or n is None:
            return None
        steps = sorted(
            (c.value if isinstance(c, IntImm) else 0, k)
            for k, c in enumerate(found[:-1])
            if shape[k] != 1 and not (isinstance(c, IntImm) and c.value == 0)
        )
        step = 1
        for c, k in steps:
            # Less: channels of a group that are filled up reach into the next group's, which a condition leaves out.
            if c > step or apart[k] is not None:
                return None
            apart[k], step = c * below, step * (shape[k] or 0)
        below *= n
    return apart


def _line(read: TensorRead, out: ComputeOp, rows: Side) -> int:
    """How many of an operand's last dimensions are read along `rows`, 0 where one of them is read along another axis too."""
    axes = rows.axes if rows.together == 1 else (*rows.axes, len(out.axis) - 1)
    mine, count, is_along = {out.axis[k].var for k in axes}, 0, False
    for index, n in zip(reversed(read.indices), reversed(const_shape(read.tensor))):
        used = set(free_vars(index)) if n != 1 else set()
        if used and not used <= mine:
            return 0 if used & mine or not is_along else count
        is_along = is_along or bool(used)
        count += 1
    return count
