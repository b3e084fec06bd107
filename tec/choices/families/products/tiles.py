"""Products and convolutions on a CPU's tile registers (AMX): blocks of one or two tiles of rows by 32 columns, summed 64 bytes of a row at a time.

The operands lie as for dot products of vectors (`layouts`), with as many channels in a block of the image as a tile's row has. A tile has a divisor of
the rows (an image's columns): none is guarded. The sums leave the tiles for memory once, behind the whole sum, and what follows the product works on
them there.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ....ops.dims import Size
from ....schedule import Schedule
from ....target import Target
from ....te import ComputeOp, Operation, intrin
from ... import parallel
from ...cost import Footprint, on_cores
from ...group import Group, const_shape, largest_divisor, reduce_size, size_of
from ...parts.counts import moved_bytes
from ...parts.pointwise import begin_cpu
from ...space import Choice, Scheduled, Space

_ROWS = 16  # of a tile, at most
_LEAST_ROWS = 6  # below, dot products of vectors are as fast
_RATE = 8  # multiply-adds of a tile unit to those of the core's float32 vectors, as far as operands arrive in time (FMA 32 a clock, tiles some 256)


def _tile_rows(n: int | None) -> int:
    """Rows of a tile where there are `n`: the largest divisor, 0 where that is too small."""
    rows = largest_divisor(n, _ROWS) if n else 0
    return rows if rows >= _LEAST_ROWS else 0


class _Tiles(Space):
    """What both have in common."""

    def __init__(self, group: Group, target: Target, op: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.op, self.out = op, out
        self.parameters = {"high": (2, 1) if self._most_high() == 2 else (1,), "parallel": (True, False)}

    def _most_high(self) -> int:
        raise NotImplementedError

    @property
    def default(self) -> Choice:
        elements = size_of(self.op.output(0).shape) or 0
        clocks = elements * (reduce_size(self.op) or 1) / self.target.machine.macs("float32") / _RATE
        return self.choice(high=self._most_high(), parallel=parallel.worth(clocks))

    def sketch(self, choice: Choice) -> Footprint:
        """Tiles of operands and their products, a row of a tile a clock, two of operands beside each other."""
        elements = size_of(self.op.output(0).shape) or 0
        per_step = max(16 * 2 * choice["high"], 8 * (2 + choice["high"]))  # clocks of products, of loads
        steps = elements / (16 * 32 * choice["high"]) * (reduce_size(self.op) or 1) / 32
        return on_cores(steps * per_step, moved_bytes(self.group), choice["parallel"])

    def _stages(self, s: Schedule) -> tuple[Any, Any, Any]:
        """The stages of the output, of the sums in tiles, and of the sums in memory."""
        out, op = self.out, self.op
        copied = s.cache_write(out.output(0), "local") if out is op else op.output(0)
        held = s.cache_write(copied, "local")
        s[copied].set_scope("local")
        return s[out.output(0)], s[held], s[copied]


class TileProduct(_Tiles):
    """A matrix product on tile registers: `high` tiles of rows by 32 columns."""

    template: ClassVar[str] = "cpu tile product"

    def _most_high(self) -> int:
        m = const_shape(self.op.output(0))[-2]
        rows = _tile_rows(m)
        return 2 if rows and m is not None and m // rows % 2 == 0 else 1

    @classmethod
    def match(cls, group: Group, target: Target, op: Operation, out: ComputeOp) -> TileProduct | None:
        if not isinstance(op, ComputeOp) or op.tag != "matmul" or op.attrs.get("group", 1) == 1:
            return None
        m, n = const_shape(op.output(0))[-2:]
        k = reduce_size(op)
        dtype = op.inputs[0].dtype
        rows = _tile_rows(m)
        found = intrin.tiles(target, dtype, rows) if rows else None
        wide = op.attrs.get("block") == intrin.TILE_COLUMNS and n is not None and n % intrin.TILE_COLUMNS == 0
        if found is None or not wide or not k or k % (found.steps * found.group):
            return None
        return cls(group, target, op, out)

    def build(self, choice: Choice) -> Scheduled:
        s = begin_cpu(self.group, self.target)
        rows, high = _tile_rows(const_shape(self.op.output(0))[-2]), choice["high"]
        unit = intrin.tiles(self.target, self.op.inputs[0].dtype, rows, high)
        assert unit is not None
        final, acc, copy = self._stages(s)
        *lead, i, j = final.op.axis
        io, ii = final.split(i, factor=rows * high)
        jo, ji = final.split(j, factor=intrin.TILE_COLUMNS)
        final.reorder(*lead, jo, io, ii, ji)  # a panel of B stays near while the rows go by
        final.vectorize(ji)
        outer = final.fuse(*lead, jo, io)
        if choice["parallel"]:
            final.parallel(outer)
        acc.compute_at(final, outer)
        copy.compute_at(final, outer)
        copy.tensorize(copy.op.axis[-2], unit.store)
        *around, ci, cj = acc.op.axis
        ko, ki = acc.split(acc.op.reduce_axis[0], factor=unit.steps * unit.group)
        acc.reorder(*around, ko, ci, cj, ki)
        acc.tensorize(ci, unit.mma)
        return Scheduled(s, self.group.outputs, choice)


class TileConvolution(_Tiles):
    """A blocked convolution on tile registers: `high` rows of the image, a divisor of its columns in a tile, by 32 channels of a block."""

    template: ClassVar[str] = "cpu tile convolution"

    def _most_high(self) -> int:
        height = const_shape(self.op.output(0))[-3]
        return 2 if height is not None and height % 2 == 0 else 1

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp, out: ComputeOp) -> TileConvolution | None:
        shape = const_shape(op.output(0))
        if op.tag != "blocked conv" or op.attrs.get("group", 1) == 1 or len(shape) != 5 or None in shape:
            return None
        step = _step(op.attrs["strides"])
        rows = _tile_rows(shape[-2])
        found = intrin.tiles(target, op.inputs[0].dtype, rows, 1, step, image=True) if rows and step else None
        if found is None or (shape[-1] or 0) % intrin.TILE_COLUMNS:
            return None
        if const_shape(op.inputs[0])[-1] != found.steps * found.group:
            return None
        return cls(group, target, op, out)

    def build(self, choice: Choice) -> Scheduled:
        s, op, high = begin_cpu(self.group, self.target), self.op, choice["high"]
        rows = _tile_rows(const_shape(op.output(0))[-2])
        unit = intrin.tiles(self.target, op.inputs[0].dtype, rows, high, _step(op.attrs["strides"]), image=True)
        assert unit is not None
        final, acc, copy = self._stages(s)
        n, co, h, w, c = final.op.axis
        ho, hi = final.split(h, factor=high)
        wo, wi = final.split(w, factor=rows)
        half, c = final.split(c, factor=intrin.TILE_COLUMNS)  # a block of bytes that the next layer reads is two wide
        final.reorder(n, co, half, ho, wo, hi, wi, c)
        final.vectorize(c)
        outer = final.fuse(n, co, half, ho)
        if choice["parallel"]:
            final.parallel(outer)
        acc.compute_at(final, wo)
        copy.compute_at(final, wo)
        copy.tensorize(copy.op.axis[-3], unit.store)
        an, aco, ah, aw, ac = acc.op.axis
        *taps, groups, one = acc.op.reduce_axis
        blocks, inside = acc.split(groups, factor=unit.steps)
        acc.reorder(an, aco, *taps, blocks, ah, aw, ac, inside, one)
        acc.tensorize(ah, unit.mma)
        return Scheduled(s, self.group.outputs, choice)


def _step(strides: tuple[Size, ...]) -> int:
    """The stride of a convolution that has one for both axes; 0 for another."""
    return strides[0] if len(set(strides)) == 1 and isinstance(strides[0], int) else 0
