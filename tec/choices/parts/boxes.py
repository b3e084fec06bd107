"""Convolutions as products whose windows are boxes of the image: a work-group's pixels are a box of places, and a step has the part of the image that they see, with its halo, in shared memory.

A window of places that lie side by side has most of its elements in common with the next one. Gathered for each place of the window (`padding`) an element of the image is brought so
many times; here once for some of these places, or for all. The sum goes by blocks of channels, by the places that are steps, by those within a step, and by the channels of a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import te
from ...locks import cached_property
from ...ops.contraction import Convolved, piece_elems
from ...ops.conv import split_place
from ...ops.dims import round_up
from ...records import dataclass
from ...te import Tensor
from . import split_k

WINDOWS = "windows"  # the tag of an operand that is read from a box in shared memory


@dataclass(frozen=True)
class Boxes:
    """sizes: places of a work-group along images and space; block: channels of a box; inner: of the axes the last ones, whose places of the window one box serves; near: those of them, the last ones
    again, whose places are in one step."""

    of: Convolved
    dtype: str
    acc: str
    sizes: tuple[int, ...]
    block: int
    inner: int
    near: int

    @cached_property
    def tiles(self) -> tuple[int, ...]:
        """Boxes along each axis."""
        return tuple(-(-n // b) for n, b in zip(self.of.extents, self.sizes))

    @cached_property
    def pixels(self) -> int:
        return math.prod(self.sizes)

    @cached_property
    def step(self) -> int:
        """Terms of a step."""
        return self.block * math.prod(self.of.taps[len(self.sizes) - self.near :])

    @cached_property
    def terms(self) -> int:
        """Of one box."""
        return self.block * math.prod(self.of.taps[-self.inner :])

    @cached_property
    def turns(self) -> int:
        """Boxes of a block of channels."""
        return math.prod(self.of.taps[: -self.inner])

    @cached_property
    def count(self) -> int:
        """Boxes along the sum."""
        return -(-self.of.channels // self.block) * self.turns

    @cached_property
    def seen(self) -> tuple[int, ...]:
        """Places of the image that a step has along each axis: where its windows have one place there, just theirs."""
        each = zip(self.sizes, self.of.taps, self.of.strides, self.of.dilations)
        first = len(self.sizes) - self.inner
        return tuple(
            (n - 1) * s + (r - 1) * d + 1 if k >= first and r > 1 else n for k, (n, r, s, d) in enumerate(each)
        )

    @cached_property
    def elements(self) -> int:
        """Of the image in a box."""
        return math.prod(self.seen) * self.block

    def places(self, boxes: Sequence[Any], p: Any) -> list[Any]:
        """Where a place of a box stands among all."""
        return [b * n + y for b, n, y in zip(boxes, self.sizes, split_place(p, self.sizes))]

    def _of_step(self, box: Any) -> tuple[Any, list[Any]]:
        """The block of channels of a box along the sum, and its place of the window along the first axes."""
        outer, turn = (te.indexdiv(box, self.turns), te.indexmod(box, self.turns)) if self.turns > 1 else (box, 0)
        return outer, split_place(turn, self.of.taps[: len(self.sizes) - self.inner])

    def read(self, terms: Any) -> Any:
        """The block of channels, the place of the window and the channel of a term of the sum, by its step and its place in it."""
        step, own = terms
        taps, first = self.of.taps, len(self.sizes) - self.inner
        outer, turn = self._of_step(step)
        tap = te.indexdiv(own, self.block)
        at = [*turn, *split_place(tap, taps[first:])]
        return outer * self.block + te.indexmod(own, self.block), at

    def _each(self, parts: int) -> int:
        """Boxes of a part of the sum."""
        return -(-self.count // parts)

    def _is_whole(self, parts: int) -> bool:
        """Whether all that boxes have are channels of the group; behind the last of these all is 0."""
        return self._each(parts) * parts == self.count and self.of.channels % self.block == 0

    def _split(self, at: Sequence[Any], step: Any, parts: int) -> tuple[Any, Sequence[Any], Any]:
        """The group, the box and its place along the sum, among those of all parts."""
        if parts > 1:
            part, *at = at
            step = part * self._each(parts) + step
        return at[0], at[1:], step

    def _lead(self, parts: int) -> tuple[int, ...]:
        return ((parts,) if parts > 1 else ()) + (self.of.groups, *self.tiles)

    def product(self, parts: int = 1, rows: int = 1) -> Tensor:
        """The sums of all boxes, (groups, boxes..., rows, columns): channels by pixels, or pixels by channels where these are the result's last. In so many parts, whose number is then the
        first dimension. rows: channels of a tile."""
        windows, weights = self._windows(self._image(parts), parts), self._weights(parts, rows)
        size, sides = (round_up(self.of.outs, rows), self.pixels), (weights, windows)
        if self.of.channels_last:
            size, sides = size[::-1], sides[::-1]
        a, b = sides
        shape, depth = (*self._lead(parts), *size), self._each(parts) * self.terms
        made: Tensor = split_k.sums(
            shape, depth, 1, lambda at, i, k: a(*at, i, k), lambda at, j, k: b(*at, j, k), self.acc, "product", "tiled_product",
        )  # fmt: skip
        return made

    def _image(self, parts: int) -> Tensor:
        """The boxes: (groups, boxes..., boxes along the sum, places..., channels)."""
        of, lead, first = self.of, self._lead(parts), len(self.sizes) - self.inner
        each = zip(self.tiles, self.sizes, of.taps, of.strides, of.dilations)
        last = [(n * b - 1) * s + (r - 1) * d for n, b, r, s, d in each]

        def box(*i: Any) -> Any:
            *head, step = i[: len(lead) + 1]
            *places, channel = i[len(lead) + 1 :]
            g, boxes, step = self._split(head, step, parts)
            outer, turn = self._of_step(step)
            at = []
            for k, (b, p, n, s, d) in enumerate(zip(boxes, places, self.sizes, of.strides, of.dilations)):
                if k < first or of.taps[k] == 1:
                    p = p * s + (turn[k] * d if k < first and of.taps[k] > 1 else 0)
                at.append(b * (n * s) + p)
            c = outer * self.block + channel
            conds = [c < of.channels] * (not self._is_whole(parts)) + [at[0] < of.extents[0]] * (
                last[0] >= of.extents[0]
            )
            return self._where(conds, of.pixel(g, c, at, last))

        turned = {"turn": (1, min(piece_elems(self.dtype), self.block))} if of.wide == 1 else {}
        shape, attrs = (
            (*lead, self._each(parts), *self.seen, self.block),
            {"wide": math.gcd(of.wide, self.block), **turned},
        )
        made: Tensor = te.compute(shape, box, name="box", tag="tile", attrs=attrs)
        return made

    def _windows(self, image: Tensor, parts: int) -> Tensor:
        """What places of a box see, (groups, boxes..., pixels, terms)."""
        of, first = self.of, len(self.sizes) - self.inner

        def window(*i: Any) -> Any:
            *head, p, k = i
            _, taps = self.read((0, te.indexmod(k, self.terms)))
            each = zip(split_place(p, self.sizes), taps, of.taps, of.strides, of.dilations)
            seen = [y * s + r * d if n >= first and count > 1 else y for n, (y, r, count, s, d) in enumerate(each)]
            return image(*head, te.indexdiv(k, self.terms), *seen, te.indexmod(k, self.block))

        shape = (*self._lead(parts), self.pixels, self._each(parts) * self.terms)
        made: Tensor = te.compute(shape, window, name="window", tag=WINDOWS, attrs={"terms": self.terms})
        return made

    def _weights(self, parts: int, rows: int) -> Tensor:
        """(groups, boxes..., channels of results, terms)."""
        of, outs = self.of, round_up(self.of.outs, rows)

        def weight(*i: Any) -> Any:
            *head, o, k = i
            g, _, step = self._split(head, te.indexdiv(k, self.terms), parts)
            c, at = self.read((step, te.indexmod(k, self.terms)))
            conds = [o < of.outs] * (outs != of.outs) + [c < of.channels] * (not self._is_whole(parts))
            return self._where(conds, of.weight(g, o, c, at[1:]))

        shape, attrs = (
            (*self._lead(parts), outs, self._each(parts) * self.terms),
            {"wide": math.gcd(of.weights_wide, self.block)},
        )
        made: Tensor = te.compute(shape, weight, name="weights", tag="tile", attrs=attrs)
        return made

    def _where(self, conds: Sequence[Any], value: Any) -> Any:
        return te.if_then_else(te.all(*conds), value, te.const(0, self.dtype)) if conds else value
