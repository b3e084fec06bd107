"""Elementwise work on a GPU whose operands lie along another axis than the result: tiles through shared memory, so that both sides touch whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..ir import TensorRead
from ..ir.dtype import dtype_info
from ..ir.visit import free_vars, walk_exprs
from ..target import Target
from ..te import ComputeOp, PlaceholderOp, Tensor, thread_axis
from .group import Group, begin, const_shape
from .pointwise import moved_bytes
from .space import Choice, Cost, Scheduled, Space

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

    def __init__(self, group: Group, target: Target, out: ComputeOp, turned: list[Tensor], axis: int):
        super().__init__(group, target)
        self.out, self.turned, self.axis = out, turned, axis
        self.bytes = min(dtype_info(t.dtype).bytes for t in (*turned, out.output(0)))
        # One H200, 16384 square in float32: pieces of 16 bytes 0.969 of a copy's rate, of 4 bytes 0.946.
        pieces = (16, 8, 4, 0) if target.kind == "cuda" else (4, 8, 16, 0)
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
        last = out.axis[-1].var
        found: dict[Tensor, int] = {}
        for e in walk_exprs(out.body[0]):
            if not isinstance(e, TensorRead):
                continue
            own = [k for k, a in enumerate(out.axis[:-1]) if e.indices and e.indices[-1] is a.var]
            if own and any(i is last for i in e.indices[:-1]) and isinstance(e.tensor.op, PlaceholderOp):
                if found.get(e.tensor, own[0]) != own[0] or any(
                    not any(i is a.var for a in out.axis) and free_vars(i) for i in e.indices
                ):
                    return None
                found[e.tensor] = own[0]
        if len(set(found.values())) != 1:
            return None
        axis = next(iter(found.values()))
        if min(shape[axis] or 0, shape[-1] or 0) < _LEAST:
            return None
        reads = [e.tensor for e in walk_exprs(out.body[0]) if isinstance(e, TensorRead)]
        if any(reads.count(t) != 1 for t in found):
            return None
        space = cls(group, target, out, list(found), axis)
        return space if next(space.all, None) is not None else None

    def _lanes(self, choice: Choice) -> int:
        return max(1, int(choice["piece"]) // self.bytes)

    def _tiles(self, choice: Choice) -> tuple[int, int]:
        """Rows and columns of a tile: no more than there are."""
        shape = const_shape(self.out.output(0))
        return min(int(choice["tile"]), shape[self.axis] or 1), min(int(choice["tile"]), shape[-1] or 1)

    def why_not(self, choice: Choice) -> str | None:
        if choice["threads"] > self.target.max_threads:
            return f"{self.target.max_threads} threads at most"
        rows, columns = self._tiles(choice)
        used = sum(dtype_info(t.dtype).bytes * columns * (rows + 4) for t in self.turned)
        if used > self.target.static_lds_bytes:
            return f"{used} bytes of shared memory"
        lanes = self._lanes(choice)
        shape = const_shape(self.out.output(0))
        if (shape[self.axis] or 1) % rows or (shape[-1] or 1) % columns:
            return "tiles would be cut off at the edges"
        if rows % lanes or columns % lanes or rows * columns % (lanes * choice["threads"]):
            return "a tile is no whole number of pieces for all threads"
        return None

    @property
    def default(self) -> Choice:
        return next(self.all)

    def cost(self, choice: Choice) -> Cost:
        machine = self.target.machine
        rows, columns = self._tiles(choice)
        waste = max(1.0, 128 / (min(rows, columns) * self.bytes))
        memory = moved_bytes(self.group) * waste / ((machine.memory.gbps or machine.memory_gbps) * 1e9)
        return Cost(machine.launch_us * 1e-6 + memory, "memory")

    def build(self, choice: Choice) -> Scheduled:
        s, out, threads, lanes = begin(self.group), self.out, choice["threads"], self._lanes(choice)
        rows, columns = self._tiles(choice)
        stage = s[out]
        staged = [s.cache_read(t, "shared", [out]) for t in self.turned]
        axes = list(out.axis)
        p, q = axes[self.axis], axes[-1]
        rest = [a for a in axes if a is not p and a is not q]
        po, pi = stage.split(p, factor=rows)
        qo, qi = stage.split(q, factor=columns)
        stage.reorder(*rest, po, qo, pi, qi)
        block = stage.fuse(*rest, po, qo)
        stage.bind(block, thread_axis("blockIdx.x"))
        tx = thread_axis((0, threads), "threadIdx.x")
        inner = stage.fuse(pi, qi)
        if lanes > 1:
            inner, vec = stage.split(inner, factor=lanes)
        turns, inner = stage.split(inner, factor=threads)
        stage.bind(inner, tx)
        if lanes > 1:
            stage.vectorize(vec)
        for shared in staged:
            own = s[shared]
            own.compute_at(stage, block)
            before = list(own.op.axis)
            # Rows of the tile in shared memory a word apart from whole banks: what lies below each other is read at once.
            pad = max(1, 4 // dtype_info(shared.dtype).bytes)
            own.storage_align(before[-2], rows, pad)
            fused = own.fuse(*before)
            if lanes > 1:
                fused, vec = own.split(fused, factor=lanes)
            _, part = own.split(fused, factor=threads)
            own.bind(part, tx)
            if lanes > 1:
                own.vectorize(vec)
        return Scheduled(s, self.group.outputs, choice)
