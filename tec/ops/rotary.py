"""Rotary positions (Su and others, RoFormer): pairs of features turned by an angle that grows with the position.

`Rotation` says which features are a pair and where their angle stands; the operator reads by it, and so do loops that turn what they load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te
from ..records import dataclass
from ..te import Tensor
from .registry import (  # fmt: skip
    FOLLOWS_16,
    INJECTIVE,
    Attrs,
    TensorType,
    broadcast_index,
    broadcast_shapes,
    fail,
    register,
    static_shape,
)

Read = Callable[[Any], Any]  # of a feature


@dataclass(frozen=True)
class Rotation:
    """Features of `size`, the first 2 * `half` of them turned: d with d + half, or neighbours (`near`). Tables of cosines and sines have a column a
    pair, or a feature (`whole`)."""

    size: int
    half: int
    near: bool = False
    whole: bool = False

    @classmethod
    def of(cls, size: int, columns: Any, attrs: Attrs) -> Rotation | None:
        """For tables of so many columns; None where they don't fit."""
        whole = bool(attrs.get("whole", False))
        if not isinstance(columns, int) or not isinstance(size, int) or (whole and columns % 2):
            return None
        turn = cls(size, columns // 2 if whole else columns, bool(attrs.get("interleaved", False)), whole)
        return turn if 0 < 2 * turn.half <= size else None

    def pair(self, n: Any) -> tuple[Any, Any]:
        """The features of pair number `n`."""
        return (2 * n, 2 * n + 1) if self.near else (n, n + self.half)

    def columns(self, n: Any) -> tuple[Any, Any]:
        """Where the angles of pair number `n`'s features stand."""
        return self.pair(n) if self.whole else (n, n)

    def both(self, n: Any, x: Read, cos: Read, sin: Read) -> tuple[Any, Any]:
        """The features of pair number `n`, turned."""
        (a, b), (i, j) = (x(d) for d in self.pair(n)), self.columns(n)
        return a * cos(i) - b * sin(i), b * cos(j) + a * sin(j)

    def one(self, d: Any, x: Read, cos: Read, sin: Read, reach: tuple[int, int] | None = None) -> Any:
        """Feature d, turned. `reach`: the first feature that d may be, and the one behind the last."""

        def below(limit: int) -> Any:
            known = reach is not None and (reach[1] <= limit or reach[0] >= limit)
            return te.const(reach[1] <= limit, "bool") if known and reach is not None else d < limit

        columns = 2 * self.half if self.whole else self.half
        if self.near:
            first, other = te.indexmod(d, 2) == 0, d + 1 - 2 * te.indexmod(d, 2)
        else:
            first = below(self.half)
            other = te.select(first, d + self.half, d - self.half)
        if self.whole:
            column = d
        else:
            column = te.indexdiv(d, 2) if self.near else te.select(first, d, d - self.half)
        if 2 * self.half < self.size:  # what is read of those that stay is in bounds, too
            other, column = te.min(other, self.size - 1), te.min(column, columns - 1)
        turn = sin(column)
        y = x(d) * cos(column) + x(other) * te.select(first, -turn, turn)
        return y if 2 * self.half == self.size else te.select(below(2 * self.half), y, x(d))


def turned(x: Any, cos: Any, sin: Any, turn: Rotation) -> Any:
    """In NumPy: the last dimension of x turned by tables that broadcast to it."""
    n = np.arange(turn.half)
    (a, b), (i, j) = turn.pair(n), turn.columns(n)
    y = x.copy()
    y[..., a] = x[..., a] * cos[..., i] - x[..., b] * sin[..., i]
    y[..., b] = x[..., b] * cos[..., j] + x[..., a] * sin[..., j]
    return y


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, cos, sin = types
    turn = Rotation.of(x.shape[-1], cos.shape[-1], attrs) if x.ndim and cos.ndim else None
    fits = cos == sin and turn is not None and "float" in x.dtype
    if not fits or broadcast_shapes(x.shape[:-1], cos.shape[:-1]) != x.shape[:-1]:
        raise fail(f"rotary of {x} by {cos} and {sin}")
    return [x]


def _host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x, cos, sin = (np.asarray(a) for a in arrays)
    turn = Rotation.of(x.shape[-1], cos.shape[-1], attrs)
    assert turn is not None
    acc = np.float64 if x.dtype == np.float64 else np.float32
    return [turned(x.astype(acc), cos.astype(acc), sin.astype(acc), turn).astype(x.dtype)]


@register("rotary", INJECTIVE, _type, traits=[FOLLOWS_16], host=_host)
def _rotary(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x (..., size) with its first 2 * half features turned: pairs (a, b) become (a cos - b sin, b cos + a sin). cos and sin (..., half) broadcast to x;
    where `whole` they are (..., 2 * half), an angle for each feature. Pairs are d and d + half, or neighbours where `interleaved`. The arithmetic is
    float32 for 16-bit floats."""
    x, cos, sin = inputs
    turn = Rotation.of(static_shape(x)[-1], static_shape(cos)[-1], attrs)
    assert turn is not None
    acc = "float64" if x.dtype == "float64" else "float32"

    def body(*i: Any) -> Any:
        *lead, d = i
        at = broadcast_index(static_shape(cos)[:-1], lead)

        def table(t: Tensor) -> Read:
            return lambda column: t(*at, column).astype(acc)

        return turn.one(d, lambda p: x(*lead, p).astype(acc), table(cos), table(sin)).astype(x.dtype)

    return [te.compute(outputs[0].shape, body, name="rotary")]
