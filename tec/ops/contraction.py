"""Products as data: sum over k of a(batch, i, k) * b(batch, j, k), with what is known of where the operands' elements lie.

`Contraction.tensors` is the te definition; it carries the contraction as a form ("product", see `forms`), from which a template makes the operands padded
tiles of shared memory. A convolution is one whose second operand is the windows of the image (im2col).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
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
    come under conditions of their own.
    """

    at: Element
    dtype: str
    k_last: bool = True
    wide: int | Callable[[], int] = 1  # or how to find it out, where that takes work
    guarded: bool = False

    def run(self) -> int:
        """`wide` as a number."""
        return self.wide() if callable(self.wide) else self.wide


@dataclass(frozen=True, eq=False)
class Contraction:
    """A product of m rows by n columns, summed over k in `acc`, for each index of `batch`; the result is of type `out_dtype`."""

    batch: tuple[Size, ...]
    m: Size
    n: Size
    k: Size
    a: Operand
    b: Operand
    acc: str
    out_dtype: str
    few_is_thin: bool = False  # few rows, columns or terms are better off as sums of their own

    def tensors(self) -> list[Tensor]:
        """The te definition: one tensor (batch..., m, n)."""
        r = te.reduce_axis((0, self.k), "k")

        def body(*at: Any) -> Any:
            *lead, i, j = at
            return te.sum(self.a.at(lead, i, r).astype(self.acc) * self.b.at(lead, j, r).astype(self.acc), axis=r)

        shape = (*self.batch, self.m, self.n)
        y = te.compute(shape, body, name="product", tag="matmul")
        return self.carried(te.compute(shape, lambda *i: y(*i).astype(self.out_dtype), name="result"))

    def carried(self, result: Tensor) -> list[Tensor]:
        """`result`, another te definition of it, with the note that this is it."""
        out = TensorType(self.out_dtype, (*self.batch, self.m, self.n))
        return carry(Form("product", (), (out,), {"contraction": self}), [result])
