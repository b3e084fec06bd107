"""Products as data: sum over k of a(batch, i, k) * b(batch, j, k), with what is known of where the operands' elements lie.

`Contraction.tensors` is the te definition; it carries the contraction as a form ("product", see `forms`), from which a template makes the operands padded
tiles of shared memory. A convolution is one whose second operand is the windows of the image (im2col).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
from ..records import dataclass
from ..te import Tensor
from .dims import Size
from .forms import Form, carry
from .registry import TensorType

Element = Callable[..., Any]  # (batch index tuple, row, column) -> value


def piece_elems(dtype: str) -> int:
    """Elements that one 16-byte access moves."""
    return max(1, 16 // dtype_info(dtype).bytes)


@dataclass(frozen=True)
class Operand:
    """One side of a product: its element at (batch index, i, k), i counting rows of A or columns of B.

    `k_last`: the tile in shared memory is [i, k], else [k, i]; it should be as the operand lies in memory, `wide` of whose
    elements along the tile's rows lie side by side from a multiple of `wide` on (1: none are known to). `guarded`: elements
    come under conditions of their own. `pitch`: elements of a row of the tile that there are to read, zeros behind the product's own (0: just those of the product).
    `anywhere`: a load may begin at any element, so that rows need not be whole runs of `wide`. `distinct`: of all elements, the share that lies apart in memory: a
    convolution's windows overlap. `tap`: of such an operand, elements along the sum from one place of the window to the next; 0: no windows.
    `sides`: of a window, the axes along which it has several places. `unpacked`: elements are made of codes of fewer bits, each time that they are read.
    """

    at: Element
    dtype: str
    k_last: bool = True
    wide: int | Callable[[], int] = 1  # or how to find it out, where that takes work
    guarded: bool = False
    pitch: int = 0
    anywhere: bool = False
    distinct: float = 1.0
    tap: int = 0
    sides: int = 0
    unpacked: bool = False

    def run(self) -> int:
        """`wide` as a number."""
        return self.wide() if callable(self.wide) else self.wide


def one_after_another(parts: Sequence[tuple[Operand, int]]) -> Operand:
    """The operands of some sums, each with its number of terms, as the operand of the sum of them all."""
    (first, terms), *rest = parts
    if not rest:
        return first
    others = one_after_another(rest)

    def at(batch: Any, i: Any, k: Any) -> Any:
        return te.if_then_else(k < terms, first.at(batch, i, k), others.at(batch, i, k - terms))

    def wide() -> int:
        return math.gcd(first.run(), others.run(), terms) if first.k_last else math.gcd(first.run(), others.run())

    return replace(first, at=at, wide=wide, guarded=first.guarded or others.guarded)


@dataclass(frozen=True, eq=False)
class Convolved:
    """What the windows of a product are of, so that a template may have them as boxes of the image: for places p along the images and the output's space,

        y[g, o, p] = sum over c, r of pixel(g, c, p * strides + r * dilations) * weight(g, o, c, r)

    extents: images and the output's space; taps, strides, dilations: 1 along the images. channels, outs: of a group, the channels as weights have them, which may be filled up. pixel: at a place
    of the padded image, the last of which along each axis that is asked for is given too. wide, weights_wide: channels that lie side by side in memory; 1: the image's neighbours are those of a
    row. place: where a result stands, axis by axis; kept: sizes of the result's dimensions, a tuple of sizes for several axes that are one dimension. channels_last: whether they are the result's last axis.
    """

    extents: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    channels: int
    outs: int
    pixel: Callable[[Any, Any, Sequence[Any], Sequence[int]], Any]
    weight: Callable[[Any, Any, Any, Sequence[Any]], Any]
    wide: int
    weights_wide: int
    place: Callable[[Any, Any, Sequence[Any]], list[Any]]
    kept: tuple[int | tuple[int, ...], ...]
    channels_last: bool


@dataclass(frozen=True, eq=False)
class Fold:
    """Where the results of a product stand in a tensor of other dimensions (a convolution's groups are places along its channels).

    `place`: (batch..., i, j) -> the index into the tensor of `shape`; `find`: back. is_cut: some lie beyond the tensor, and are not kept.
    """

    shape: tuple[Size, ...]
    place: Callable[..., list[Any]]
    find: Callable[..., list[Any]]
    is_cut: bool = False


@dataclass(frozen=True, eq=False)
class Contraction:
    """A product of m rows by n columns, summed over k in `acc`, for each index of `batch`; the result is of type `out_dtype`, and of dimensions (batch..., m,
    n) but with a `fold`."""

    batch: tuple[Size, ...]
    m: Size
    n: Size
    k: Size
    a: Operand
    b: Operand
    acc: str
    out_dtype: str
    few_is_thin: bool = False  # few rows, columns or terms are better off as sums of their own
    fold: Fold | None = None
    channels: int | None = None  # of a convolution: those of a group's results
    are_apart: bool = False  # neighbours of a row of the result lie apart in memory
    convolved: Convolved | None = None  # of windows

    @property
    def shape(self) -> tuple[Size, ...]:
        """Of the result."""
        return self.fold.shape if self.fold is not None else (*self.batch, self.m, self.n)

    def tensors(self) -> list[Tensor]:
        """The te definition: one tensor."""
        r = te.reduce_axis((0, self.k), "k")

        def body(*at: Any) -> Any:
            *lead, i, j = self.fold.find(*at) if self.fold is not None else at
            return te.sum(self.a.at(lead, i, r).astype(self.acc) * self.b.at(lead, j, r).astype(self.acc), axis=r)

        y = te.compute(self.shape, body, name="product", tag="matmul")
        return self.carried(te.compute(self.shape, lambda *i: y(*i).astype(self.out_dtype), name="result"))

    def carried(self, result: Tensor) -> list[Tensor]:
        """`result`, another te definition of it, with the note that this is it."""
        out = TensorType(self.out_dtype, self.shape)
        return carry(Form("product", (), (out,), {"contraction": self}), [result])
