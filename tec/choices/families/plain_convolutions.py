"""Convolutions of plain images (NCHW) on the CPU, as products: some output channels by some vectors of neighbouring columns stay in registers over the whole sum.

Nothing is copied into blocks of channels, and no channel is filled up: of few channels, of groups, and of one convolution between others that want plain images, this takes the
least. Each step broadcasts a weight for each channel against vectors of the image, of which neighbouring taps read the same lines. The last tile of a row, and of the
channels, begins earlier where sizes do not divide (`Stage.split`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ...ops.registry import TensorType
from ...records import dataclass
from ...target import Target
from ...target.cpus import loads_apart
from ...te import ComputeOp
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape, likely_shape
from ..parts import sums
from ..parts.counts import moved_bytes
from ..parts.operands import accumulators, anchored
from ..parts.pointwise import begin_cpu
from ..rules import figures
from ..space import Choice, Scheduled, Space
from .products import RegisterTiles, folded, tile_clocks

TEMPLATE = "cpu plain convolution"
TAGS = ("conv", "depthwise")
ORDERS = ("channels", "pixels")  # what tiles walk along last
FEWEST_COLUMNS = 4  # columns that are worth a vector
_VECTORS = (2, 1, 3, 4, 6, 8)  # of a tile's row
_LINE_BYTES, _PAGE_BYTES, _PAGES = 64, 4096, 64  # of a cache; whose places a core has at hand
_MOST_WRITTEN = 256  # multiply-adds of a body that is written out


@dataclass(frozen=True)
class Sizes:
    """Of a plain convolution. own_in, own_out: channels of a group; space: of the output; copied: elements of the image that is made with its padding, 0 for none; step: columns
    that the window moves by."""

    images: int
    groups: int
    own_in: int
    own_out: int
    taps: tuple[int, ...]
    space: tuple[int, ...]
    copied: int
    step: int

    @staticmethod
    def of(x: TensorType, w: TensorType, y: TensorType, attrs: Mapping[str, Any]) -> Sizes:
        """From the types of input, weights and output, all of known sizes."""
        around = [a + b for a, b in zip(attrs["before"], attrs["after"])]
        full = math.prod(x.shape[:2]) * math.prod(n + p for n, p in zip(x.shape[2:], around))
        groups = attrs["groups"]
        return Sizes(
            x.shape[0], groups, w.shape[1], w.shape[0] // groups, tuple(w.shape[2:]), tuple(y.shape[2:]),
            full if any(around) else 0, attrs["strides"][-1],
        )  # fmt: skip

    def legal(self, target: Target, rows: int, columns: int) -> bool:
        """Whether a tile lies in one group's channels and in the registers."""
        vectors = columns // self.lanes(target)
        one_group = self.groups == 1 or self.own_out % rows == 0
        return one_group and rows <= self.own_out and rows * vectors + vectors + 1 <= target.core.registers

    def lanes(self, target: Target) -> int:
        """Of vectors along a row of the output."""
        lanes = max(FEWEST_COLUMNS, target.vector_bytes // 4)
        while lanes > max(FEWEST_COLUMNS, self.space[-1]):
            lanes //= 2
        return lanes

    def widths(self, target: Target) -> tuple[int, ...]:
        """Columns that a tile may have."""
        lanes = self.lanes(target)
        return tuple(lanes * v for v in _VECTORS if lanes * v <= self.space[-1]) or (lanes,)

    def clocks(self, target: Target, rows: int, columns: int) -> float:
        """Of a core: multiply-adds and loads of all tiles, loops over the window, and the copy with padding."""
        told, vectors = figures.of(TEMPLATE, target), columns // self.lanes(target)
        step = tile_clocks.step(target, rows, vectors, self._load(target, told["apart"]))[0]
        turns = self.own_in * math.prod(self.taps[:-1])
        tile = turns * (self.taps[-1] * step + told["turn"]) + told["tile"] + rows * vectors
        channels = self.groups * -(-self.own_out // rows)
        tiles = self.images * channels * math.prod(self.space[:-1]) * -(-self.space[-1] // columns)
        return tiles * tile + self.copied * 8 / told["padded_bytes_a_clock"]

    def _load(self, target: Target, every_second: float) -> float:
        """Instructions of a vector of the window: a load; of every second column, as told; of every third and so on by a vector more each, or by a load and an insertion for each lane."""
        lanes = self.lanes(target)
        if self.step <= 2:
            return 1.0 if self.step == 1 else every_second
        return every_second + self.step - 2 if loads_apart(lanes, self.step, target.vector_bytes) else 2.0 * lanes - 1

    def order_clocks(self, target: Target, rows: int, columns: int, outer: str) -> float:
        """Of the order of tiles: lines of weights and of the image that come again for each tile, from the cache that holds what was read since they came last; and where tiles go
        along the channels, rows of the results, and of the groups' images, that lie in more pages than a core has at hand."""
        told = figures.of(TEMPLATE, target)
        high, turns = -(-self.own_out // rows), self.own_in * math.prod(self.taps[:-1])  # tiles of a group's channels
        tiles = self.images * self.groups * high * math.prod(self.space[:-1]) * -(-self.space[-1] // columns)
        weights = rows * turns * self.taps[-1] * 4 / _LINE_BYTES
        window = turns * (4 * columns * self.step / _LINE_BYTES + 1)
        tile_bytes, row_bytes = (weights + window) * _LINE_BYTES, 4 * turns * self.space[-1] * self.step
        if outer == "channels":
            weight_bytes = 4 * self.groups * self.own_out * self.own_in * math.prod(self.taps)
            read: tuple[float, float] = weight_bytes, row_bytes * self.groups
            first = 1 / high  # the tiles of the other channels find the window near
            planes = self.groups * self.own_out * min(1.0, 4 * math.prod(self.space) / _PAGE_BYTES)
            met = rows + (self.own_in / high if self.groups > 1 else 0)
            far = met * told["page"] if planes > _PAGES else 0.0
        else:
            image = 4 * self.own_in * math.prod(n * self.step for n in self.space)
            read, far, first = (tile_bytes, image if high > 1 else row_bytes), 0.0, 1.0
        lines = first * _line_clocks(target, read[1]) + (1 - first) * _line_clocks(target, tile_bytes)
        again = weights * _line_clocks(target, read[0]) + window * lines
        return float(tiles * (far + again))

    def best(self, target: Target) -> float:
        """Clocks of the cheapest tile, in the better order."""
        found = (
            self.clocks(target, r, c) + min(self.order_clocks(target, r, c, outer) for outer in ORDERS)
            for c in self.widths(target)
            for r in range(1, 17)
            if self.legal(target, r, c)
        )  # fmt: skip
        return min(found, default=math.inf)


def _line_clocks(target: Target, read: float) -> float:
    """Of a line behind which so many bytes were read."""
    core, told = target.core, figures.of(TEMPLATE, target)
    return told["far_line"] if read > core.l2_bytes / 2 else told["near_line"] if read > core.l1_bytes / 2 else 0.0


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of a plain convolution with its elementwise epilogue."""
    anchor = next((anchored(group, op) for op in group.reductions() if op.tag in TAGS), None)
    if target.is_gpu or anchor is None:
        return
    op, out = anchor
    if op.output(0).dtype != "float32" or len(op.inputs) != 2 or None in const_shape(op.inputs[1]):
        return
    x, y = op.inputs[0], op.output(0)
    if x.shape[1:2] and None in (const_shape(x)[1], const_shape(y)[1]):
        return
    is_open = None in (*const_shape(x), *const_shape(y))
    found: list[Space] = [] if is_open else [*_as_product(group, target)]
    if likely_shape(y)[-1] >= FEWEST_COLUMNS:
        found.append(PlainConvolution(group, target, op, out))
    yield from sorted(found, key=lambda s: s.seconds)


def _as_product(group: Group, target: Target) -> Iterator[Space]:
    """The convolution as weights times windows, which are copied into panels for all channels: rows of any width, strides and few pixels waste nothing."""
    found = folded.unfolded(group)
    if found is None or found[1].a.guarded:  # groups that are computed together, mostly zeros
        return
    flat, contraction = found
    (op,) = flat.reductions()
    space = RegisterTiles.match(flat, target, op)
    if space is not None and len(space.parameters["panels"]) > 1:
        space.gathered = contraction.b.run() == 1 or contraction.b.guarded
        space.parameters["panels"] = tuple(p for p in space.parameters["panels"] if p)
        yield folded.Folded(space, group, contraction)


class PlainConvolution(Space):
    """`rows` channels by `columns` of the image; `outer`: what tiles walk along last, the channels (the image stays near) or the pixels (the weights do)."""

    template: ClassVar[str] = TEMPLATE

    def __init__(self, group: Group, target: Target, op: ComputeOp, out: ComputeOp, width: int | None = None):
        """width: of a row, where it is open and this is for such rows."""
        super().__init__(group, target)
        self.op, self.out = op, out
        x, w, y = (likely_shape(t) for t in (*op.inputs, op.output(0)))
        groups = x[1] // w[1]
        copied = math.prod(x) if op.inputs[0].op.tag == "pad" else 0
        self.sizes = Sizes(
            x[0],
            groups,
            w[1],
            w[0] // groups,
            tuple(w[2:]),
            (*y[2:-1], width or y[-1]),
            copied,
            op.attrs["strides"][-1],
        )
        self.parameters = {
            "rows": tuple(range(1, min(16, self.sizes.own_out) + 1)), "columns": self.sizes.widths(target),
            "outer": ORDERS, "parallel": (True, False),
        }  # fmt: skip

    def drafts(self) -> Iterator[Choice]:
        """All tiles in both orders."""
        threads = parallel.worth(self.sizes.best(self.target))
        return self.legal({**self.parameters, "parallel": (threads,)})

    def why_not(self, choice: Choice) -> str | None:
        if self.sizes.legal(self.target, choice["rows"], choice["columns"]):
            return None
        return f"tiles lie within a group of {self.sizes.own_out} channels and in {self.target.core.registers} vector registers"

    def sketch(self, choice: Choice) -> Footprint:
        tile = self.target, choice["rows"], choice["columns"]
        clocks = self.sizes.clocks(*tile) + self.sizes.order_clocks(*tile, choice["outer"])
        return on_cores(clocks, moved_bytes(self.group), choice["parallel"])

    def build(self, choice: Choice) -> Scheduled:
        s, op, out, rows = begin_cpu(self.group, self.target, TAGS), self.op, self.out, choice["rows"]
        acc, final = s[accumulators(s, op, out, "local")], s[out.output(0)]
        n, o, *d, w = final.op.axis
        oo, oi = final.split(o, factor=rows, shift_inwards=True)
        wo, wi = final.split(w, factor=choice["columns"], shift_inwards=True, long=True)
        outer = (n, *d, wo, oo) if choice["outer"] == "channels" else (n, oo, *d, wo)
        final.reorder(*outer, oi, wi)
        tile = final.fuse(*outer)
        if choice["parallel"]:
            final.parallel(tile)
        sums.vectorize(final, wi, self.sizes.lanes(self.target), choice["columns"])
        acc.compute_at(final, tile)
        an, ao, *ad, aw = acc.op.axis
        *window, last = acc.op.reduce_axis
        awo, lane = acc.split(aw, factor=self.sizes.lanes(self.target))
        acc.reorder(an, *ad, *window, last, ao, awo, lane)
        acc.vectorize(lane)
        steps = rows * choice["columns"] // self.sizes.lanes(self.target)
        written = [ao, awo]
        for axis, count in zip(reversed(acc.op.reduce_axis), reversed((self.sizes.own_in, *self.sizes.taps))):
            steps *= count
            if steps > _MOST_WRITTEN:
                break
            written.append(axis)
        for axis in written:
            acc.unroll(axis)
        return Scheduled(s, self.group.outputs, choice, otherwise=self._for_narrower(choice))

    def _for_narrower(self, choice: Choice) -> Scheduled | None:
        """What serves where an open row is shorter than the tile: a vector of it, and by halves to the shortest."""
        lanes = self.sizes.lanes(self.target)
        width = lanes if choice["columns"] > lanes else choice["columns"] // 2
        if const_shape(self.out.output(0))[-1] is not None or width < FEWEST_COLUMNS:
            return None
        narrower = PlainConvolution(self.group, self.target, self.op, self.out, width)
        return narrower.build({**narrower.default, "parallel": choice["parallel"]})
