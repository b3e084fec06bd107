"""Windows over pixels by channels with weights of their own for each channel (depthwise convolutions), on GPUs: a thread has a tile of neighbouring
pixels, rows by columns, of some channels, and what their windows have in common is loaded and converted once.

The sum is computed over (image, row, column, channel), where tiles are boxes; the result stays as it lies, pixels counted through.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...ir import Expr, Range, Reduce
from ...ir.arith import Analyzer
from ...ir.build import const
from ...ir.dtype import dtype_info
from ...schedule.rewrite import substitute_all
from ...target import Target, latency_ns, level_gbps
from ...te import ComputeOp, Tensor, compute
from ...te.like import Index
from ..group import Group, begin, const_shape, extent_of, substitute
from ..parts.counts import moved_bytes
from ..parts.threads import over_groups
from ..space import Choice, Cost, Scheduled, Space

# Multiply-adds of a thread, written out: more is long to compile (7x7 by 16 pixels 1.3 s of one core) and leaves the instruction cache.
_MOST = 1600
_NOT_HIDDEN = 0.3  # of what takes less, under what takes most
_BUSY = 0.4  # of the vector lanes' time: what such windows are at work of it, where power sets the clock


class PixelWindows(Space):
    """A thread makes `rows` by `columns` pixels of `channels` channels."""

    template: ClassVar[str] = "gpu pixel windows"

    def __init__(self, group: Group, target: Target, red: ComputeOp, pixels: tuple[int, int, int]):
        super().__init__(group, target)
        self.red, self.pixels = red, pixels
        self.channels = const_shape(red.output(0))[-1] or 1
        self.window = [extent_of(a) or 1 for a in red.reduce_axis]
        strides: tuple[int, ...] = red.attrs["strides"]
        self.strides = (*(1,) * (2 - len(strides)), *strides)[-2:]
        size = dtype_info(red.inputs[0].dtype).bytes
        # Loads of less than a word come one by one.
        lanes = [n for n in (4, 2, 8, 1) if self.channels % n == 0 and n * size >= 4]
        wide = [n for n in lanes if n * size * target.wavefront_size >= self.figures["side_by_side_bytes"]]
        sides = [[n for n in range(1, 9) if size % n == 0] for size in pixels[1:]]
        self.parameters = {
            "rows": tuple(sides[0]), "columns": tuple(sides[1]), "channels": tuple(wide or lanes),
            "threads": self.threads_up_to_limit(64, 128, 256),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target) -> PixelWindows | None:
        """Of one sum over a window, pixels by channels, whose result the output reads at its own place, on machines whose prices are a model's: on others none of the drawn ones was cheaper so."""
        found = group.ended_sum() if target.machine.priced_by_model else None
        pixels = found[0].attrs.get("pixels") if found is not None and found[0].tag == "pixels" else None
        if found is None or pixels is None or len(group.outputs) != 1:
            return None
        red, out = found
        shape = const_shape(red.output(0))
        if red.num_outputs != 1 or len(red.reduce_axis) > 2 or len(red.attrs["strides"]) > 2:
            return None
        if const_shape(out.output(0)) != shape or len(shape) != 2 or None in shape or shape[0] != math.prod(pixels):
            return None
        space = cls(group, target, red, (math.prod(pixels[:-2]), *pixels[-2:]))
        return space if any(_pixels(c) > 1 for c in space.all) else None

    def why_not(self, choice: Choice) -> str | None:
        if math.prod(self.window) * _pixels(choice) * choice["channels"] > _MOST:
            return "so long a window by so many pixels is too long to be written out"
        if self._registers(choice) > self.figures["registers"]:
            return "sums and the rows of a window do not fit into registers"
        return None

    def _read(self, choice: Choice) -> tuple[int, int]:
        """Rows and columns of the input that a thread's windows see."""
        window = self.window if len(self.window) == 2 else [1, *self.window]
        tile = choice["rows"], choice["columns"]
        rows, columns = (
            len({o * s + t * d for o in range(n) for t in range(k)})
            for n, s, k, d in zip(tile, self.strides, window, self.red.attrs.get("dilations", (1, 1)))
        )
        return rows, columns

    def _registers(self, choice: Choice) -> int:
        """Sums, the rows of the input that windows of several rows of pixels see at once, and a row of weights."""
        _, columns = self._read(choice)
        return int(choice["channels"]) * (_pixels(choice) + int(choice["rows"]) * columns + self.window[-1])

    def cost(self, choice: Choice) -> Cost:
        """Wavefronts one after another on the SIMD that has most of them, each its instructions; and the bytes."""
        machine, chip, lanes = self.target.machine, self.target.chip, int(choice["channels"])
        dtype = self.red.inputs[0].dtype
        inputs, taps = math.prod(self._read(choice)), math.prod(self.window)
        converted = lanes if dtype_info(dtype).bytes < 4 else 0
        packed = max(1.0, machine.macs("float32", matrix=False) / (chip.simds * chip.simd_lanes))
        # LLVM pairs few instructions on RDNA.
        packed = packed if self.target.wavefront_size == 64 and lanes > 1 else 1.0
        own = inputs * (converted + 3) + taps * (converted + 1) + taps * _pixels(choice) * lanes / packed
        own += _pixels(choice) * (lanes + 2) + 40
        waves = math.prod(self.pixels) * self.channels / (_pixels(choice) * lanes * self.target.wavefront_size)
        turns = math.ceil(math.ceil(waves) / (machine.units * chip.simds))
        clock = machine.held_mhz("float32", 0.0, _BUSY) * 1e6
        issue = turns * own * self.target.wavefront_size / chip.simd_lanes / clock
        # A load of a wavefront takes its bytes' clocks in the L1, and those of 16 lanes at least.
        loaded = max(lanes * dtype_info(dtype).bytes * self.target.wavefront_size / 64, self.target.wavefront_size / 16)
        near = math.ceil(waves / machine.units) * (inputs + taps) * loaded / clock
        memory = moved_bytes(self.group) / (level_gbps(machine, "MALL") * 1e9)
        waiting = 2 * latency_ns(machine, "memory") * 1e-9
        parts = sorted((issue, near, memory))
        most = "issue" if parts[-1] == issue else "memory"
        return Cost(machine.launch_seconds + waiting + parts[-1] + _NOT_HIDDEN * sum(parts[:-1]), most)

    def build(self, choice: Choice) -> Scheduled:
        flat, image = self._as_image()
        (result,) = substitute(self.group.outputs, {self.red.output(0): flat})
        s = begin(Group.of([result]))
        _, height, width = self.pixels
        final, own = s[result], s[image]
        p, c = final.op.axis
        n, p = final.split(p, factor=height * width)
        y, x = final.split(p, factor=width)
        (y, row), (x, column) = final.split(y, factor=choice["rows"]), final.split(x, factor=choice["columns"])
        c, vec = final.split(c, factor=choice["channels"])
        final.reorder(n, y, x, c, row, column, vec)
        items = math.prod(self.pixels) * self.channels // (_pixels(choice) * choice["channels"])
        dies = self.target.machine.dies
        own.compute_at(final, over_groups(final, final.fuse(n, y, x, c), choice["threads"], items=items, dies=dies))
        final.unroll(row)
        final.unroll(column)
        final.vectorize(vec)
        own.set_scope("local")
        n, y, x, c = own.op.axis
        # A row of windows after another: rows of the input are asked for when those before are used up.
        first, *rest = own.op.reduce_axis
        own.reorder(first, n, y, x, *rest, c)
        for axis in (first, n, y, x, *rest):
            own.unroll(axis)
        own.vectorize(c)
        return Scheduled(s, [result], choice)

    def _as_image(self) -> tuple[Tensor, Tensor]:
        """The sum over (image, row, column, channel), and its result as pixels by channels."""
        sizes, total = (*self.pixels, self.channels), self.red.body[0]
        assert isinstance(total, Reduce)
        _, height, width = self.pixels
        pixel, channel = (a.var for a in self.red.axis)

        def body(*at: Any) -> Expr:
            n, y, x, c = at
            known = Analyzer()
            for v, size in zip(at, sizes):
                known.bind(v, Range(const(0, v.dtype), const(size, v.dtype)))
            for a in self.red.reduce_axis:
                known.bind(a.var, a.dom)
            values = {pixel: (n * height + y) * width + x, channel: c}
            source = tuple(known.simplify(e) for e in substitute_all(total.source, values))
            return Reduce(total.combiner, source, total.axis, total.condition, total.value_index, total.init)

        image = compute(sizes, body, name=self.red.name)

        def flat(p: Expr, c: Index) -> Any:
            return image(p // (height * width), p // width % height, p % width, c)

        return compute(self.red.output(0).shape, flat, name="pixels"), image


def _pixels(choice: Choice) -> int:
    """Of a thread."""
    return int(choice["rows"]) * int(choice["columns"])
