"""Elementwise work on a GPU whose operands lie along another axis than the result: tiles through shared memory, so that both sides touch whole lines.

The result's last two axes count as one where the operand has them so: pixels by channels become an image [n, c, h, w] by tiles of channels and of some
rows of pixels together, or of a part of a row where rows are long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from ...ir import Expr, IntImm, TensorRead
from ...ir.arith import Analyzer
from ...ir.dtype import dtype_info
from ...ir.shared_layout import PIECE_BYTES
from ...ir.visit import free_vars, walk_exprs
from ...target import Target, latency_ns
from ...te import ComputeOp, PlaceholderOp, Tensor, thread_axis
from ..cost import UNDER_WAY, Cost, Footprint, Kernel
from ..group import Group, begin, const_shape
from ..parts.pointwise import brought, moved_bytes
from ..space import Choice, Scheduled, Space

_OPERATIONS = 4  # of an element: its places on both sides
_LEAST = 16  # elements along both axes, from which tiles are worth their barrier


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of a group of one elementwise output that turns some operand round."""
    if target.is_gpu:
        space = Transpose.match(group, target)
        if space is not None:
            yield space


class Transpose(Space):
    """A work-group turns a tile of `tile` by `tile` elements round; a thread stores `piece` bytes at once (0: an element)."""

    template: ClassVar[str] = "gpu transpose"

    def __init__(self, group: Group, target: Target, out: ComputeOp, turned: list[Tensor], axis: int, merged: int = 1):
        super().__init__(group, target)
        self.out, self.turned, self.axis, self.merged = out, turned, axis, merged
        shape = [n or 1 for n in const_shape(out.output(0))]
        self.rows, self.width, self.height = shape[axis], shape[-1], shape[-2] if merged > 1 else 1
        self.bytes = min(dtype_info(t.dtype).bytes for t in (*turned, out.output(0)))
        pieces = tuple(self.rule("pieces", (4, 8, 16, 0), **self.features))  # the first of those that cost the same
        self.parameters = {"tile": (64, 32, 128, 16), "threads": (256, 128, 64, 512), "piece": pieces}

    @classmethod
    def match(cls, group: Group, target: Target) -> Transpose | None:
        if len(group.outputs) != 1 or group.reductions():
            return None
        (out,) = group.output_ops
        if not isinstance(out, ComputeOp) or len(out.axis) < 2 or group.ops != [out]:
            return None
        shape = const_shape(out.output(0))
        if None in shape:
            return None
        found: dict[Tensor, int] = {}
        merged = len(shape)
        for e in walk_exprs(out.body[0]):
            if not isinstance(e, TensorRead):
                continue
            own = [k for k, a in enumerate(out.axis[:-1]) if e.indices and e.indices[-1] is a.var]
            count = max((_run(i, out, own[0]) for i in e.indices[:-1]), default=0) if own else 0
            if count and isinstance(e.tensor.op, PlaceholderOp):
                if found.get(e.tensor, own[0]) != own[0] or not all(_is_affine(i, out) for i in e.indices):
                    return None
                found[e.tensor] = own[0]
                merged = min(merged, count)
        if len(set(found.values())) != 1:
            return None
        axis = next(iter(found.values()))
        merged = min(merged, 2)
        if min(shape[axis] or 0, math.prod(n or 0 for n in shape[-merged:])) < _LEAST:
            return None
        reads = [e.tensor for e in walk_exprs(out.body[0]) if isinstance(e, TensorRead)]
        if any(reads.count(t) != 1 for t in found):
            return None
        space = cls(group, target, out, list(found), axis, merged)
        return space if next(space.all, None) is not None else None

    @property
    def features(self) -> dict[str, Any]:
        """What rules may ask: elements of a row of the result, and tiles of 64 by 64."""
        (usual,) = self.sketch(self.choice(tile=64, threads=256, piece=0)).kernels
        return {"width": self.width, "tiles": usual.groups}

    def _lanes(self, choice: Choice) -> int:
        return max(1, int(choice["piece"]) // self.bytes)

    def _tiles(self, choice: Choice) -> tuple[int, int, int]:
        """Rows of a tile, rows of pixels and their width: no more than there are."""
        tile = int(choice["tile"])
        width = min(tile, self.width)
        return min(tile, self.rows), min(self.height, max(1, tile // width)) if width == self.width else 1, width

    def why_not(self, choice: Choice) -> str | None:
        rows, high, width = self._tiles(choice)
        columns = high * width
        lanes = self._lanes(choice)
        if self.rows % lanes or (self.width % lanes and self.height % high):
            return "pieces would be cut off at the edges"
        if rows % lanes or columns % lanes or rows * columns < lanes * choice["threads"]:
            return "a tile is no whole number of pieces, or has none for some threads"
        return None

    @property
    def default(self) -> Choice:
        """Of the cheapest the first; by its sketch, which knows how many units have work, where a rule says that tiles are few."""
        seconds = super().cost if self.rule("by_sketch", False, **self.features) else self.cost
        return min(self.all, key=lambda c: seconds(c).seconds)

    def sketch(self, choice: Choice) -> Footprint:
        """A tile by pieces into shared memory, and out of it; beyond the edges each load is under a condition, which the next waits for."""
        rows, high, width = self._tiles(choice)
        # Lines over those that the bytes need, of what is read and what is written.
        waste = sum(max(1.0, 128 / (n * self.bytes)) for n in (rows, high * width)) / 2
        for n, tile in ((self.rows, rows), (self.height, high), (self.width, width)):
            waste *= -(-n // tile) * tile / n  # beyond the edges
        moved, columns = moved_bytes(self.group) * waste, high * width
        groups = math.prod(const_shape(self.out.output(0))) // (self.rows * self.height * self.width)  # type: ignore[arg-type]
        groups *= -(-self.rows // rows) * -(-self.height // high) * -(-self.width // width)
        own = rows * columns / choice["threads"] / self._lanes(choice)
        is_cut = self.rows % rows or self.height % high or self.width % width
        shared = sum(self._staged(t, rows, columns) for t in self.turned)
        return Footprint((Kernel(
            groups, choice["threads"], shared, 0, moved, moved, 2 * groups * rows * columns * self.bytes, _OPERATIONS * own * self._lanes(choice),
            waits=(1 + self.figures["conditional"] * own * UNDER_WAY if is_cut else max(1.0, own)), barriers=1,
        ),))  # fmt: skip

    def cost(self, choice: Choice) -> Cost:
        machine = self.target.machine
        rows, high, width = self._tiles(choice)
        # Lines over those that the bytes need, of what is read and what is written.
        waste = sum(max(1.0, 128 / (n * self.bytes)) for n in (rows, high * width)) / 2
        for n, tile in ((self.rows, rows), (self.height, high), (self.width, width)):
            waste *= -(-n // tile) * tile / n  # beyond the edges
        memory = moved_bytes(self.group) * waste / ((machine.memory.gbps or machine.memory_gbps) * 1e9)
        own = rows * high * width / choice["threads"]
        latency = latency_ns(machine, "memory") * 1e-9
        waiting = max(0.0, own - self.figures["own_elements"]) / 8 * latency
        if machine.has_latencies and (self.rows % rows or self.height % high or self.width % width):
            waiting = own / self._lanes(choice) * self.figures["conditional"] * latency
        memory += waiting
        return Cost(machine.launch_us * 1e-6 + memory, "memory")

    def _staged(self, t: Tensor, rows: int, columns: int) -> int:
        """Bytes of a tile of an operand in shared memory, in rows a word apart."""
        size = dtype_info(t.dtype).bytes
        return -(-columns * (rows + max(1, 4 // size)) * size // PIECE_BYTES) * PIECE_BYTES

    def build(self, choice: Choice) -> Scheduled:
        s, out, threads, lanes = begin(self.group), self.out, choice["threads"], self._lanes(choice)
        rows, high, width = self._tiles(choice)
        stage = s[out]
        staged = [s.cache_read(t, "shared", [out]) for t in self.turned]
        axes = list(out.axis)
        p = axes[self.axis]
        rest = [a for a in axes[: -self.merged] if a is not p]
        columns: list[Any] = []
        for axis, tile in zip(axes[-self.merged :], (high, width)[-self.merged :]):
            far, near = stage.split(axis, factor=tile)
            rest.append(far)
            columns.append(near)
        po, pi = stage.split(p, factor=rows)
        stage.reorder(*rest, po, pi, *columns)
        block = stage.fuse(*rest, po)
        stage.bind(block, thread_axis("blockIdx.x"))
        tx = thread_axis((0, threads), "threadIdx.x")
        inner = stage.fuse(pi, *columns)
        if lanes > 1:
            inner, vec = stage.split(inner, factor=lanes)
        turns, inner = stage.split(inner, factor=threads)
        stage.bind(inner, tx)
        if lanes > 1:
            stage.vectorize(vec)
        for shared in staged:
            own = s[shared]
            own.compute_at(stage, block)
            # Rows of the tile in shared memory a word apart from whole banks: what lies below each other is read at once.
            pad = max(1, 4 // dtype_info(shared.dtype).bytes)
            own.storage_align(own.op.axis[-2], rows, pad)
            brought(own, threads, lanes, tx)
        return Scheduled(s, self.group.outputs, choice)


def _is_affine(index: Expr, out: ComputeOp) -> bool:
    """Whether an index is an axis, a constant, or axes times constants."""
    if any(index is a.var for a in out.axis) or not free_vars(index):
        return True
    found = Analyzer().detect_linear(index, [a.var for a in out.axis])
    return found is not None and all(isinstance(c, IntImm) for c in found)


def _run(index: Expr, out: ComputeOp, axis: int) -> int:
    """How many of the result's last axes, behind `axis`, lie in the operand one after another as in the result, along an index; 0 for none."""
    if index is out.axis[-1].var:
        return 1
    found = Analyzer().detect_linear(index, [a.var for a in out.axis])
    if found is None:
        return 0
    count, apart = 0, 1
    for k in range(len(out.axis) - 1, axis, -1):
        c = found[k]
        if not isinstance(c, IntImm) or c.value != apart:
            break
        count, apart = count + 1, apart * (const_shape(out.output(0))[k] or 1)
    return count
