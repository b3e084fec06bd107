"""Convolutions on AMD's matrix units from boxes of the image in shared memory (`parts.boxes`): what neighbouring windows have in common comes once a box, where a product of gathered windows
(`matrix_units`) brings it for each place of the window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from .... import te
from ....ir.dtype import dtype_info
from ....ir.passes.pipeline.slots import MAX_REGISTER_BYTES
from ....locks import cached_property
from ....ops.contraction import Contraction, Convolved, Fold
from ....ops.conv import joined_place
from ....target import Target, latency_ns, level_gbps
from ....te import ComputeOp
from ...group import Group, same_shape
from ...parts import needs, split_k
from ...parts.boxes import Boxes
from ...parts.operands import begin_with, follows
from ...parts.threads import bind_all
from ...space import Choice, Cost, Scheduled, Space
from . import folded, halo_clocks, tilings
from .matrix_schedule import MatrixUnits
from .tilings import Shape, Tiling

_PIXELS = (128, 64, 256, 32)  # of a box
_OUTS = (64, 32, 128, 96, 16)
_BLOCKS = (64, 32, 16, 128)  # channels of a box
_PARTS = (1, 2, 4, 8, 16)
_MOST_WRITTEN, _MOST_PARTS = 72, 20  # instructions of a step, and terms that they take one after another, written out
_MOST_BROUGHT = 48  # loads of a thread for a box, written out
_LEAST_TILE, _MOST_TILE = 512, 128 * 256  # results of a work-group
_WAVES = ((2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (1, 1))
_KEPT = 12  # choices of one part that are tried in several


class HaloConvolution(Space):
    """`box` places of the images and the output's space by `outs` channels a work-group; a box has `channels` of the image, and the places of the window along the last `along` axes, those along the
    last `near` of them in one step."""

    template: ClassVar[str] = "halo convolution"

    def __init__(self, group: Group, target: Target, c: Contraction, of: Convolved):
        super().__init__(group, target)
        self.contraction, self.of, self.dtype = c, of, c.a.dtype
        self._boxes = dict[tuple[Any, ...], Boxes]()
        space = len(of.extents) - 1
        shape = self.shape(1)
        self.parameters = {
            "box": tuple(dict.fromkeys(_box(n, of.extents, of.taps, of.strides, of.dilations) for n in _PIXELS)),
            "outs": needs.parts_of(of.outs, _OUTS, tilings.LEAST), "channels": _BLOCKS,
            "along": tuple(range(space, 0, -1)), "near": tuple(range(space, -1, -1)), "waves_m": (2, 1, 4), "waves_n": (2, 1, 4),
            "instruction": tuple(dict.fromkeys(f"{i.m}x{i.n}x{tilings.instr_k(i, shape)}" for i in tilings.instructions(shape, target))),
            "swizzle": (True, False), "stages": (1, 0), "prefetch_distance": (1, 2), "interleave": (True, False) if target.chip.counts_loads else (False,),
            "split_k": _PARTS,
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> HaloConvolution | None:
        """Of a convolution of known sizes whose windows overlap, on AMD's matrix units."""
        found = group.form("product")
        if (
            found is None
            or not target.machine.priced_by_model
            or len(group.output_ops) != 1
            or group.reductions() != [op]
        ):
            return None
        c: Contraction = found[0].attrs["contraction"]
        of = c.convolved
        if (
            of is None
            or not any(r > 1 and step <= (r - 1) * d for r, step, d in zip(of.taps, of.strides, of.dilations))
            or math.prod(of.extents) == 1  # which has no neighbours
            or c.a.dtype != c.b.dtype
            or not same_shape(group.outputs[0], found[1][0])
        ):
            return None
        if of.channels < tilings.LEAST // 2 or of.outs < tilings.LEAST // 2 or not follows(group.output_ops[0], op):
            return None
        space = cls(group, target, c, of)
        return (
            space
            if space.parameters["instruction"] and space.parameters["outs"] and next(space.drafts(), None) is not None
            else None
        )

    def shape(self, parts: int) -> Shape:
        """The types alone."""
        return Shape(1, 1, 1, 1, self.dtype, self.contraction.acc, padded=True, parts=parts > 1)

    def boxes(self, choice: Choice) -> Boxes:
        sizes = tuple(map(int, choice["box"].split("x")))
        return Boxes(
            self.of, self.dtype, self.contraction.acc, sizes, choice["channels"], choice["along"], choice["near"]
        )

    def tiling(self, choice: Choice) -> Tiling:
        b = self.boxes(choice)
        rows, columns = (b.pixels, choice["outs"]) if self.of.channels_last else (choice["outs"], b.pixels)
        fixed = {"slice_k": 1, "ping_pong": False, "direct_to_lds": False, "group_m": 0}
        return Tiling.of({**choice, **fixed, "rows": rows, "columns": columns, "step": b.step})

    def why_not(self, choice: Choice) -> str | None:
        if choice["near"] > choice["along"]:
            return "a step has no more places of the window than its box"
        b, t = self.boxes(choice), self.tiling(choice)
        if (
            t.m // t.waves_m % t.instr_m
            or t.n // t.waves_n % t.instr_n
            or t.m < t.waves_m * t.instr_m
            or t.n < t.waves_n * t.instr_n
        ):
            return "a wavefront's part is not a whole number of instructions"
        if b.block % t.instr_k:
            return "a block of channels is not a whole number of instructions"
        threads, size = t.waves * self.target.wavefront_size, dtype_info(self.dtype).bytes
        piece = tilings.PIECE_BYTES // size
        each = t.m * t.n // t.waves // (t.instr_m * t.instr_n) * (t.k // t.instr_k)
        weights = choice["outs"] * t.k
        brought = (weights * choice["prefetch_distance"] + (b.elements if b.step == b.terms else 0)) * size // threads
        loads = -(-b.elements // (threads * self.of.wide))
        return needs.first(
            needs.dealt((weights // piece,), threads, "pieces"),
            needs.shared_memory(halo_clocks.shared_bytes(b, t, size), self.target.lds_bytes),
            needs.sums(t.m * t.n // threads, (self.target.chip.vgprs + 1) // 2),
            f"{each} instructions of a step" if each > _MOST_WRITTEN or t.k > _MOST_PARTS * t.instr_k else None,
            f"{loads} loads of a thread for a box" if loads > _MOST_BROUGHT else None,
            f"{brought} bytes of the next step in a thread's registers" if brought > MAX_REGISTER_BYTES else None,
            f"{choice['split_k']} parts of {b.count} boxes" if choice["split_k"] > b.count else None,
            "steps ahead are for pipelines" if not t.stages and (t.prefetch_distance > 1 or t.interleave) else None,
        )

    def drafts(self) -> Iterator[Choice]:
        for choice in self._whole():
            yield choice
            for parts in _PARTS[1:]:
                made = {**choice, "split_k": parts}
                if self.why_not(made) is None:
                    yield made

    def _whole(self) -> Iterator[Choice]:
        """Drafts that are no sum of parts."""
        p, space = self.parameters, len(self.of.extents) - 1
        swizzle, stages = tilings.usual(self.target, self.shape(1))
        weave = tilings.interleaves(self.target)
        places = {(space, n) for n in range(space + 1)} | {(1, 1)}
        # Of axes along which a window has one place more are no others.
        places = {
            (a, n) for a, n in places if all((n == 0 or self.of.taps[-n] > 1, a == space or self.of.taps[-a - 1] > 1))
        }
        total = math.prod(self.of.extents)
        for box, outs, block in itertools.product(p["box"], p["outs"], p["channels"]):
            pixels = math.prod(map(int, box.split("x")))
            if not _LEAST_TILE <= pixels * outs <= _MOST_TILE or (pixels > 32 and pixels > total):
                continue
            if block > 32 and block >= 2 * self.of.channels:
                continue
            for along, near in sorted(places, reverse=True):
                made = self._with_waves({
                    "template": self.template, "box": box, "outs": outs, "channels": block, "along": along, "near": near, "swizzle": True, "stages": stages,
                    "prefetch_distance": 1, "interleave": weave, "split_k": 1,
                })  # fmt: skip
                if made is not None and self.why_not(made) is None:
                    yield made
                    far = {**made, "prefetch_distance": 2}
                    if near < along and self.why_not(far) is None:
                        yield far

    def _with_waves(self, base: Choice) -> Choice | None:
        """With the wavefronts that read least of shared memory, four of them where the tile has work for as many, and the smallest instruction."""
        pixels = math.prod(map(int, base["box"].split("x")))
        m, n = (pixels, base["outs"]) if self.of.channels_last else (base["outs"], pixels)
        for (wm, wn), (im, i_n, ik) in itertools.product(
            sorted(_WAVES, key=lambda w: (-w[0] * w[1], m // w[0] + n // w[1])), self._instructions
        ):
            if m % (wm * im) == 0 and n % (wn * i_n) == 0 and base["channels"] % ik == 0:
                return {**base, "waves_m": wm, "waves_n": wn, "instruction": f"{im}x{i_n}x{ik}"}
        return None

    @cached_property
    def _instructions(self) -> list[tuple[int, ...]]:
        """Small instructions first, of one size those of the longest sum."""
        sizes = [tuple(map(int, name.split("x"))) for name in self.parameters["instruction"]]
        return sorted(sizes, key=lambda s: (s[0] * s[1], -s[2]))

    @property
    def default(self) -> Choice:
        found = sorted(((self.cost(c).seconds, k, c) for k, c in enumerate(self._whole())), key=lambda f: f[:2])
        best = found[0]
        for _, k, c in found[:_KEPT]:
            for parts in _PARTS[1:]:
                made = {**c, "split_k": parts}
                if self.why_not(made) is None and (seconds := self.cost(made).seconds) < 0.95 * best[0]:
                    best = seconds, k, made
        return best[2]

    @property
    def least_seconds(self) -> float:
        """Which no choice goes below, without trying them."""
        return halo_clocks.least_seconds(self.of, self.dtype, self.target) + self.target.machine.launch_seconds

    def cost(self, choice: Choice) -> Cost:
        parts, machine = choice["split_k"], self.target.machine
        b = self.boxes(choice)
        seconds, limit = halo_clocks.seconds(b, self.tiling(choice), choice["outs"], parts, self.target)
        if parts > 1:
            results = parts * math.prod(self.of.extents) * self.of.groups * self.of.outs
            moved = 2 * results * dtype_info(self.contraction.acc).bytes
            seconds += (machine.launch_us + 2e-3 * latency_ns(machine, "memory")) * 1e-6 + moved / (
                level_gbps(machine, "memory") * 1e9
            )
        return Cost(seconds + machine.launch_seconds, limit)

    def build(self, choice: Choice) -> Scheduled:
        of, b, parts = self.of, self.boxes(choice), choice["split_k"]
        product = b.product(parts, choice["outs"])
        assert isinstance(product.op, ComputeOp)
        shape = (of.groups, *b.tiles, *((b.pixels, of.outs) if of.channels_last else (of.outs, b.pixels)))
        loop, dtype = MatrixUnits(self.tiling(choice), self.target), self.contraction.out_dtype
        kept = [t.op for t in product.op.inputs]
        if parts > 1:
            each = te.compute((parts, *shape), lambda *i: product(*i), name="part")
            result, kept = split_k.total(each, parts, shape, dtype), [each.op, *kept]
        else:
            result = te.compute(shape, lambda *i: product(*i).astype(dtype), name="result")
        made = folded.placed(
            self.group, result, Fold(self.group.outputs[0].shape, self._index(b), self._index(b), True)
        )
        assert made is not None
        begun = begin_with(Group.of([made]), kept=kept)
        if parts > 1:
            assert isinstance(each.op, ComputeOp)
            loop.schedule(begun.s, product.op, each.op)
            split_k.end(begun.s, begun.group, product.op, bind_all(begun.s, begun.out))
        else:
            loop.schedule(begun.s, product.op, begun.out)
        begun.s[begun.outputs[0]].transform_layout(lambda *at: self._place(b, *at), keep_loops=True, within=of.kept)
        return Scheduled(begun.s, begun.outputs, choice)

    def _place(self, b: Boxes, g: Any, *at: Any) -> list[Any]:
        """Where a result of the product stands, axis by axis."""
        o, places = self._seen(b, at)
        return self.of.place(g, o, places)

    def _seen(self, b: Boxes, at: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The channel and the place of a result."""
        *boxes, i, j = at
        p, o = (i, j) if self.of.channels_last else (j, i)
        return o, b.places(boxes, p)

    def _index(self, b: Boxes) -> Callable[..., list[Any]]:
        """The same as an index of the result, of which several axes may be one dimension; where a box reaches beyond, of the last place that there is: what follows the sums may read there."""

        def index(g: Any, *at: Any) -> list[Any]:
            o, seen = self._seen(b, at)
            each = zip(seen, self.of.extents, b.sizes)
            inside = [te.min(p, n - 1) if n % size else p for p, n, size in each]
            places, made = iter(self.of.place(g, o, inside)), []
            for n in self.of.kept:
                sizes = n if isinstance(n, tuple) else (n,)
                made.append(joined_place([next(places) for _ in sizes], sizes))
            return made

        return index


@lru_cache(maxsize=1024)
def _box(
    pixels: int, extents: tuple[int, ...], taps: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> str:
    """The box of so many places that brings least of the image for all of them and works on fewest that are not there."""
    found: list[tuple[float, tuple[int, ...]]] = []

    def add(left: int, sizes: tuple[int, ...]) -> None:
        k = len(sizes)
        if k == len(extents) - 1:
            whole = (*sizes, left)
            tiles = math.prod(-(-n // b) for n, b in zip(extents, whole))
            seen = math.prod(
                (b - 1) * s + (r - 1) * d + 1 if r > 1 else b for b, r, s, d in zip(whole, taps, strides, dilations)
            )
            row = 8 / whole[-1] if whole[-1] < 8 and extents[-1] > whole[-1] else 1.0
            found.append((tiles * (pixels + 0.5 * seen) * row, whole))
            return
        part = 1
        while part <= left:
            if part == 1 or part < 2 * extents[k]:
                add(left // part, (*sizes, part))
            part *= 2

    add(pixels, ())
    return "x".join(map(str, min(found)[1]))
