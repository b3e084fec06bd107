"""What operators with windows (convolutions, poolings) share: which place of the input an output's place sees through a tap, in any layouts.

Attributes of theirs: `kernel`, `strides`, `dilations`, `before`, `after` (padding), one a spatial axis. `layouts`: how the operands and, last, the output
lie, where that is not NCHW; `space`: then (batch, spatial extents...) of the input where its layout has them as one dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .dims import Size, is_zero
from .layouts import Layout, Place, plain, space
from .registry import Attrs, number, static_shape


def conv_out(n: int, k: int, stride: int, dilation: int, before: int, after: int) -> int:
    """Extent of the output of a window of k over n."""
    return (n + before + after - dilation * (k - 1) - 1) // stride + 1


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], fill: Any = 0) -> Tensor:
    """`x` with its last dimensions padded by a constant; itself where there is nothing to pad."""
    if all(n == 0 for n in (*before, *after)):
        return x
    nd = len(before)
    shape = static_shape(x)
    extents = shape[-nd:]
    value = fill if not isinstance(fill, (int, float)) else number(fill, x.dtype)

    def body(*i: Any) -> Any:
        lead, at = i[:-nd], [k - b for k, b in zip(i[-nd:], before)]
        conds = []
        for k, n, b, a in zip(at, extents, before, after):
            # A symbolic size of padding is none at least.
            conds += [k >= 0] * (b != 0) + [k < n] * (a != 0)
        return te.if_then_else(te.all(*conds), x(*lead, *at), value)

    out = (*shape[:-nd], *[n + b + a for n, b, a in zip(extents, before, after)])
    y: Tensor = te.compute(out, body, name="pad", tag="pad")
    return y


def image_sizes(layout: Layout, shape: Sequence[Size], attrs: Attrs) -> dict[str, Size]:
    """Sizes of the axes of an input that lies in `layout`."""
    letters = spatial(attrs)
    return layout.sizes(shape, dict(zip("N" + letters, attrs["space"])) if layout.is_flat else None)


def spatial(attrs: Attrs) -> str:
    """Letters of the spatial axes that a window goes along."""
    return space(len(attrs["strides"]) + 2)


def layouts_of(attrs: Attrs, count: int) -> tuple[Layout, ...]:
    """Layouts of a window operator's images (`count` of them)."""
    return attrs.get("layouts") or (plain(len(attrs["strides"]) + 2),) * count


class Windows:
    """The input of a window operator, read at an output's place through a tap.

    Padding is a tensor of its own, which a template makes or inlines; or, `guarded`, each element is (where the output is flat in its pixels)."""

    def __init__(self, x: Tensor, attrs: Attrs, layout: Layout, guarded: bool, fill: Any = 0):
        self.attrs, self.layout, self.letters = attrs, layout, spatial(attrs)
        self.sizes = image_sizes(layout, static_shape(x), attrs)
        self.guarded = guarded
        self.fill, self.dtype = fill, x.dtype
        before, after = (dict(zip(self.letters, attrs[k])) for k in ("before", "after"))
        if not self.guarded:
            from_axis = layout.axis(self.letters[0])
            first, last = ([side.get(d, 0) for d in layout.dims[from_axis:]] for side in (before, after))
            x = padded(x, first, last, fill)
        self.x = x
        self.is_same = all(map(is_zero, (*before.values(), *after.values()))) and all(
            n == 1 for k in ("kernel", "strides") for n in attrs[k]
        )

    def read(self, at: Place, taps: Place) -> Any:
        """The element that the output's place `at` sees through `taps`; at["C"] is the input's channel."""
        if self.is_same and any(len(d) > 1 and d in at for d in self.layout.dims):
            return self.x(*self.layout.index(at, self.sizes))
        seen: Place = {"N": at["N"], "C": at["C"]}
        conds = []
        attrs = self.attrs
        for x, s, d, b, a in zip(self.letters, *(attrs[k] for k in ("strides", "dilations", "before", "after"))):
            i = at[x] * s + taps[x] * d
            if self.guarded:
                i = i - b
                conds += [i >= 0] * (b != 0) + [i < self.sizes[x]] * (a != 0)
            seen[x] = i
        return self._where(conds, seen)

    def seen(self, at: Place, last: Sequence[int]) -> Any:
        """The element of the padded image at a place of it, 0 at the earliest and `last` at most along each spatial axis."""
        conds: list[Any] = []
        seen: Place = {"N": at["N"], "C": at["C"]}
        for x, b, end in zip(self.letters, self.attrs["before"], last):
            i = at[x] - b if b else at[x]
            conds += [i >= 0] * (b != 0) + [i < self.sizes[x]] * (end - b >= self.sizes[x])
            seen[x] = i
        return self._where(conds, seen)

    def _where(self, conds: Sequence[Any], seen: Place) -> Any:
        """The element at a place of the image where conditions hold, else what padding holds."""
        value = self.x(*self.layout.index(seen, self.sizes))
        if not conds:
            return value
        fill = self.fill if not isinstance(self.fill, (int, float)) else number(self.fill, self.dtype)
        return te.if_then_else(te.all(*conds), value, fill)
