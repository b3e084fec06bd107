"""Products with the weights of chosen experts: each row names the matrices that it is multiplied with, and no other is read.

Inputs: x [rows, k], or x in bytes with its scales last (`round_blocks`); the matrices of all experts one below the other, packed (codes, scales, maybe zero points,
as `ops.packed.Weights` says) or as floats [experts * n, k], of 16 bits or x's type, `bits` 0; and places, int64 [rows, chosen], behind them. Output: [rows * chosen, n], those of a row one
below the other. A place that is no expert's reads the nearest one's matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import te
from ..te import Tensor
from .forms import Form, carry
from .matmul import accumulator
from .packed import HALVES, Weights, number_of, scale_of
from .registry import COMPLEX, SUMS, Attrs, TensorType, fail, register


class Parts(NamedTuple):
    """The inputs by what they are; `scale`, `zero` and `rounded` where there are some."""

    x: Any
    codes: Any
    scale: Any
    zero: Any
    places: Any
    rounded: Any


def parts_of(inputs: Sequence[Any], dtype: str) -> Parts:
    """dtype: of x."""
    own = list(inputs)
    rounded = own.pop() if dtype == "int8" else None
    places = own.pop()
    scale, zero = [*own[2:], None, None][:2]
    return Parts(own[0], own[1], scale, zero, places, rounded)


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    p = parts_of(types, types[0].dtype)
    experts, k, columns = attrs["experts"], attrs["depth"], attrs["columns"]
    fits = p.x.ndim == p.places.ndim == 2 and p.x.shape == (p.places.shape[0], k) and p.places.dtype == "int64"
    if not fits or columns % experts:
        raise fail(f"products of {p.x} with the experts {p.places} of {experts} matrices of {columns} columns")
    if attrs["bits"]:
        w = Weights.of(attrs)
        whole = (
            p.codes == TensorType(w.codes_dtype, w.codes_shape)
            and p.scale is not None
            and p.scale.shape == w.scales_shape
        )
        if not whole or (p.rounded is not None and p.rounded != TensorType("float32", (p.x.shape[0], w.blocks))):
            raise fail(f"products of {p.x} with experts: codes {p.codes} and scales {p.scale} for {w}")
    elif p.codes.shape != (columns, k) or p.codes.dtype not in (p.x.dtype, *HALVES):
        raise fail(f"products of {p.x} with experts {p.codes}")
    rows, chosen = p.places.shape
    return [TensorType("float32" if p.rounded is not None else p.x.dtype, (rows * chosen, columns // experts))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * int(attrs["depth"])


def _host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    p = parts_of([np.asarray(a) for a in arrays], str(np.asarray(arrays[0]).dtype))
    experts, n = attrs["experts"], attrs["columns"] // attrs["experts"]
    wide = np.dtype(accumulator(outs[0].dtype))
    x = p.x.astype(wide) if p.rounded is None else p.x * np.repeat(p.rounded, attrs["block"], 1)
    places = np.clip(p.places, 0, experts - 1)
    made = np.empty((*places.shape, n), wide)
    for e in np.unique(places):
        rows = np.arange(e * n, (e + 1) * n)
        at = np.nonzero(places == e)
        made[at] = x[at[0]] @ _matrix(p, rows, attrs).T.astype(wide)
    return [made.reshape(-1, n)]


def _matrix(p: Parts, rows: Any, attrs: Attrs) -> Any:
    """Some rows of all experts' weights, as numbers."""
    if not attrs["bits"]:
        return p.codes[rows].astype(np.float32) if p.codes.dtype.itemsize == 2 else p.codes[rows]
    w = Weights.of(attrs)
    n, k = np.meshgrid(rows, np.arange(w.k), indexing="ij")
    at = (n // w.panel, k // w.block, n % w.panel) if w.panel else (n, k // w.block)
    zero = p.zero[at].astype(np.float32) if p.zero is not None else np.float32(w.zero)
    return (w.codes_at(p.codes, n, k).astype(np.float32) - zero) * p.scale[at].astype(np.float32)


@register("expert_matmul", COMPLEX, _type, flops=_flops, traits=[SUMS], host=_host, takes=(3, 6))
def _expert_matmul(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Products of rows with the matrices of their experts. See the module. Attributes: `experts`; `bits` and those of `packed_matmul`, `depth` and `columns` of all
    experts together."""
    p = parts_of(inputs, inputs[0].dtype)
    experts, n = attrs["experts"], attrs["columns"] // attrs["experts"]
    chosen = getattr(p.places.shape[1], "value", p.places.shape[1])
    dtype = outputs[0].dtype
    acc = accumulator(dtype)
    r = te.reduce_axis((0, attrs["depth"]), "k")
    w = Weights.of(attrs) if attrs["bits"] else None

    def left(row: Any, k: Any) -> Any:
        if p.rounded is None or w is None:
            return p.x(row, k).astype(acc)
        return p.x(row, k).astype(acc) * p.rounded(row, te.indexdiv(k, w.block))

    def right(column: Any, k: Any) -> Any:
        if w is None:
            return p.codes(column, k).astype(acc)
        b = te.indexdiv(k, w.block)
        zero = (
            te.const(w.zero, "float32")
            if p.zero is None
            else w.of_block(lambda i: p.zero(*i), b, column).astype("float32")
        )
        code = number_of(w.code(lambda i: p.codes(*i), k, column), w.format)
        return ((code - zero) * scale_of(w.of_block(lambda i: p.scale(*i), b, column), w.format)).astype(acc)

    def one(i: Any, j: Any) -> Any:
        row = te.indexdiv(i, chosen)
        expert = place_of(p.places(row, te.indexmod(i, chosen)), experts)
        return te.sum(left(row, r) * right(expert * n + j, r), axis=r)

    made = te.compute(outputs[0].shape, one, name="experts")
    if acc != dtype:
        wide = made
        made = te.compute(outputs[0].shape, lambda *i: wide(*i).astype(dtype), name="experts_cast")
    return carry(Form("expert_matmul", tuple(inputs), tuple(outputs), dict(attrs)), [made])


def place_of(place: Any, experts: int) -> Any:
    """An expert's number, within their number."""
    return te.max(te.min(place.astype("int32"), experts - 1), 0)
