"""Direct convolutions on the CPU: data NCHWc, weights OIHWio (or a window a channel: OHWo), output NCHWc; the same of volumes.

A register tile of some output columns times some vectors of output channels stays in registers over the whole reduction; each step broadcasts one
input value against the vectors of weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from ...ir import IterVar
from ...ir.dtype import dtype_info
from ...target import Target
from ...te import ComputeOp, Operation, intrin
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape, reduce_size, size_of
from ..parts.counts import moved_bytes
from ..parts.operands import accumulators, anchored
from ..parts.pointwise import begin_cpu
from ..space import Choice, Scheduled, Space
from .products import tile_clocks
from .products.tile_clocks import walk_clocks
from .products.tiles import TileConvolution

TAGS = ("blocked conv", "blocked depthwise")
_MOST_WRITTEN = 1024  # multiply-adds of an unrolled body: 10 KiB of code, and LLVM takes a millisecond of each
_OPEN_COLUMNS = 8  # of the register tile where the image's width is symbolic


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of a blocked convolution with its elementwise epilogue."""
    found = next((anchored(group, op) for op in group.reductions() if op.tag in TAGS), None)
    if target.is_gpu or found is None:
        return
    op, out = found
    tiled = TileConvolution.match(group, target, op, out)
    if tiled is not None:
        yield tiled
    if const_shape(op.output(0))[-1] is not None:
        yield BlockedConvolution(group, target, op, out)


class BlockedConvolution(Space):
    """`rows` and `columns` of the image by `blocks` of output channels in registers; `unroll` innermost loops of the sum written out; `outer`: what the
    tiles walk along last, a row of the image (weights stay near) or the channels (the image does)."""

    template: ClassVar[str] = "cpu convolution"

    def __init__(self, group: Group, target: Target, op: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.op, self.out = op, out
        _, self.channels, *_, self.rows, self.columns, block = const_shape(op.output(0))
        grouped = op.attrs.get("group", 1) > 1
        self.dot = intrin.vector_dot(target, op.inputs[0].dtype, block) if grouped else None
        self.is_sum = op.tag == "blocked conv"  # over channels: blocks of outputs share an input value
        usual = self.default["columns"]
        self.parameters = {
            "columns": (usual, *[w for w in range(1, 29) if w != usual and (self.columns is None or w <= self.columns)]),
            "rows": (1,) if self.rows is None else tuple(r for r in (1, 2, 3, 4) if self.rows % r == 0),
            "blocks": tuple(b for b in (1, 2, 4) if b <= (self.channels or 1)) if self.is_sum else (1,), "unroll": (0, 1, 2),
            "outer": ("channels", "rows"), "parallel": (True, False),
        }  # fmt: skip

    @property
    def default(self) -> Choice:
        """Tiles of equal size where a divisor of the width allows it, as wide as the registers have room beside the weights and the input, or as a rule says: so
        many `columns`, at `least` or at `most` so many, of so many `blocks` of channels."""
        ow, vectors = self.columns or _OPEN_COLUMNS, self._vectors()
        elements = size_of(self.op.output(0).shape)
        sums = None if elements is None else elements * (reduce_size(self.op) or 1)
        threads = sums is None or parallel.worth(sums / self.target.machine.macs("float32"))
        told = next((t for t in self.ruled(**self._features()) if t.keys() != {"unroll"}), {})
        blocks, registers = told.get("blocks", 1), self.target.core.registers
        if told.get("priced"):
            _, columns, blocks = tile_clocks.blocked_tile(self.target, self.channels or 1, ow, vectors)
        elif "columns" in told:
            columns = min(ow, told["columns"])
        elif "least" in told:
            # LLVM loads a step's input ahead, a register each.
            columns = two_block_tile(ow, told["least"], (registers - 2) // 3)
        else:
            own = blocks * vectors
            columns = column_tile(ow, min(told.get("most", 14), max(1, (registers - own - 1) // own)))
        written = self.rule("unroll", 0, **self._features())
        usual = {"columns": (columns,), "rows": (1,), "blocks": (blocks,), "unroll": (written,), "outer": (self._order(blocks),), "parallel": (threads,)}  # fmt: skip
        if self.is_sum:
            return self.choice(**{k: v for k, (v,) in usual.items()})
        # A window of its own for each channel is short: written out it needs no loop, and its weights want registers beside the columns.
        return next(self.legal({**usual, "unroll": (2, 1, 0)}))

    def _order(self, blocks: int) -> str:
        """What tiles walk along last: what brings less again."""
        sizes = const_shape(self.op.output(0))
        image, weights = (size_of(t.shape) for t in self.op.inputs)
        if not self.is_sum or image is None or weights is None or None in sizes:
            return "channels"
        n, co, *depth, oh, _, _ = (d or 1 for d in sizes)
        rows = n * math.prod(depth) * oh
        by_channels, by_rows = walk_clocks(self.target, 4.0 * image / n, 4.0 * weights, n, -(-co // blocks), rows)
        return "rows" if by_rows < by_channels else "channels"

    def _features(self) -> dict[str, Any]:
        """What rules may ask: whether the sum is over channels, by dot products; the vectors of a block, blocks of channels, columns of the image, and whether
        these are open; places of the window, 0 where their number is open."""
        around = len(const_shape(self.op.output(0))) - 3
        taps = size_of(self.op.inputs[1].shape[2 : 2 + around]) if self.is_sum else None
        return {"sum": self.is_sum, "dot": self.dot is not None, "vectors": self._vectors(), "channels": self.channels, "width": self.columns, "open": self.columns is None, "taps": taps or 0}  # fmt: skip

    def why_not(self, choice: Choice) -> str | None:
        vectors = self._vectors()
        tile = choice["columns"] * choice["rows"] * choice["blocks"] * vectors
        registers = tile + choice["blocks"] * vectors + 1
        most = self.target.core.registers
        if registers > most:
            return f"{registers} vector registers of {most}"
        if not choice["unroll"]:
            return None
        inner = [a.dom.extent for a in self._loops(self.op) if a.dom is not None][-choice["unroll"] :]
        written = tile * (size_of(inner) or _MOST_WRITTEN)
        if inner and written > _MOST_WRITTEN:
            return f"{written} multiply-adds written out, more than the {_MOST_WRITTEN} that instruction caches hold"
        return None

    def _loops(self, op: Operation) -> list[IterVar]:
        """The loops of the sum: its axes, but for the group that a dot product takes."""
        axes = list(op.reduce_axis)
        return axes if self.dot is None else axes[:-1]

    def _vectors(self) -> int:
        """Registers of a block of channels."""
        size = dtype_info(self.op.output(0).dtype).bytes
        return max(1, (const_shape(self.op.output(0))[-1] or 1) * size // self.target.vector_bytes)

    def sketch(self, choice: Choice) -> Footprint:
        """As a product of columns by channels (see `products`): multiply-adds, or loads, or the latency of too few sums; columns that a ragged end
        wastes."""
        core = self.target.core
        n, co, *depth, oh, ow, c = (d or _OPEN_COLUMNS for d in const_shape(self.op.output(0)))
        columns, rows, blocks, vectors = choice["columns"], choice["rows"], choice["blocks"], self._vectors()
        tiles = math.prod((n, *depth)) * -(-co // blocks) * (oh // rows) * -(-ow // columns)
        chains = columns * rows * blocks * vectors
        loads = columns * rows / (1 if self.is_sum else 0.5) + blocks * vectors
        spilled = max(0, chains + blocks * vectors + 1 - core.registers)
        clocks = tiles * (reduce_size(self.op) or c) * (max(chains / core.fma, loads / 2, 4.0) + spilled)
        return on_cores(clocks, moved_bytes(self.group), choice["parallel"], tiles)

    def build(self, choice: Choice) -> Scheduled:
        """Sums of columns by blocks of channels in registers, for `rows` rows of the image at a time."""
        s, op, out, blocks = begin_cpu(self.group, self.target), self.op, self.out, choice["blocks"]
        acc, final = s[accumulators(s, op, out, "local")], s[out.output(0)]
        n, co, *depth, oh, w, c = final.op.axis
        wo, wi = final.split(w, factor=choice["columns"])
        # Where they do not divide the blocks there are, the last ones begin earlier, and one block is computed twice.
        co, ci = final.split(co, factor=blocks, shift_inwards=True) if blocks > 1 else (co, None)
        oh, hi = final.split(oh, factor=choice["rows"]) if choice["rows"] > 1 else (oh, None)
        written = [axis for axis in (ci, hi) if axis is not None]
        outer = (n, *depth, oh, co) if choice["outer"] == "rows" else (n, co, *depth, oh)
        final.reorder(*outer, wo, *written, wi, c)
        for axis in written:
            final.unroll(axis)
        final.vectorize(c)
        # Weights of a block of channels stay near, also where the number of rows is open: a division a row.
        along = final.fuse(*outer)
        if choice["parallel"]:
            final.parallel(along)
        acc.compute_at(final, wo)
        an, aco, *ad, ah, aw, ac = acc.op.axis
        reduce = self._loops(acc.op)
        inside = [axis for axis, count in ((aco, blocks), (ah, choice["rows"])) if count > 1]
        group = acc.op.reduce_axis[len(reduce) :]
        if self.dot is not None:  # groups within a block of the image's channels, so that places are sums of products
            groups = (const_shape(op.inputs[0])[-1] or 1) // self.dot.group
            reduce = [*reduce[:-1], *acc.split(reduce[-1], factor=groups)] if groups > 1 else reduce
        around = [axis for axis in (an, aco, *ad, ah) if axis not in inside]
        if self.dot is not None:  # the blocks of channels innermost: they share a broadcast operand
            acc.reorder(*reduce, *around, *(a for a in (ah, aw, aco) if a is aw or a in inside), ac, *group)
            acc.tensorize(ac, self.dot.intrin)
        else:
            acc.reorder(*reduce, *around, *inside, aw, ac)
            acc.vectorize(ac)
        for axis in (*inside, aw, *(reduce[-choice["unroll"] :] if choice["unroll"] else ())):
            acc.unroll(axis)
        return Scheduled(s, self.group.outputs, choice)


def two_block_tile(ow: int, least: int, limit: int) -> int:
    """Columns of a tile of two blocks, from `least` on where there are as many: few pixels beyond the edge, and few tiles, each of which loads weights."""
    return min(range(min(ow, least), min(ow, limit) + 1), key=lambda c: (-(-ow // c) * (c + 1), -c))


def column_tile(ow: int, limit: int = 14) -> int:
    """Columns of the register tile: the largest divisor up to the limit, or the limit with a ragged end."""
    best = max(d for d in range(1, min(ow, limit) + 1) if ow % d == 0)
    return best if best >= min(4, ow) else min(ow, 8, limit)
