"""Products of few rows with constant matrices, and what stands around them in a decoder's step: a root-mean-square norm before, a gate behind.

    h = x / sqrt(mean(x^2) + eps) * g          (where there is a norm)
    y = h W^T                                  or, gated, silu(h W1^T) * (h W2^T) with W1 and W2 one behind the other

The norm's factor is the same for all of a row, so it is applied to the sums. x is [rows, depth].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..ir.microscaling import format_of, powers
from ..te import Tensor
from .forms import Form, carry
from .matmul import accumulator
from .packed import Weights, number_of, scale_of, unpacked
from .registry import COMPLEX, SUMS, Attrs, TensorType, fail, register
from .size_exprs import inverse as one_over

GATES = (None, "silu")


def _parts(attrs: Attrs, inputs: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
    """x, the norm's scale or None, and what the matrix is made of."""
    x, *rest = inputs
    return (x, rest[0], rest[1:]) if attrs.get("eps") is not None else (x, None, rest)


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, g, matrix = _parts(attrs, types)
    k, n = attrs["depth"], attrs["columns"]
    rows = x.shape[0] if x.ndim == 2 else 0
    fits = (
        isinstance(rows, int)
        and rows > 0
        and x.shape == (rows, k)
        and "float" in x.dtype
        and (g is None or g.shape == (k,))
        and attrs.get("gate") in GATES
    )
    if attrs.get("bits"):
        w = Weights.of(attrs)
        fits = fits and len(matrix) in (2, 3) and matrix[0] == TensorType(w.codes_dtype, w.codes_shape) and matrix[1].shape == w.scales_shape  # fmt: skip
    else:
        fits = fits and len(matrix) == 1 and matrix[0].shape == (n, k)
    if not fits or (attrs.get("gate") and n % 2):
        raise fail(f"projection of {', '.join(map(str, types))} with {attrs}")
    return [TensorType(x.dtype, (rows, n // 2 if attrs.get("gate") else n))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * int(types[0].shape[0]) * int(attrs["columns"]) * int(attrs["depth"])


def _host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x, g, matrix = _parts(attrs, [np.asarray(a) for a in arrays])
    acc = np.float64 if x.dtype == np.float64 else np.float32
    h = x.astype(acc)
    if g is not None:
        h = h / np.sqrt(np.mean(h * h, -1, keepdims=True) + acc(attrs["eps"])) * g.astype(acc)
    if attrs.get("bits"):
        w = Weights.of(attrs)
        codes = unpacked(np.ascontiguousarray(matrix[0]).view(np.uint8), w.bits, w.k)
        beside = [powers(matrix[1]), *matrix[2:]] if w.format else matrix[1:]
        numbers = format_of(w.format).numbers[codes] if w.format else codes
        blocks = [np.repeat(m.astype(acc), w.block, 1) for m in beside]
        rows = (numbers.astype(acc) - (blocks[1] if len(blocks) > 1 else acc(w.zero))) * blocks[0]
    else:
        rows = matrix[0].astype(acc)
    y = h @ rows.T
    if attrs.get("gate"):
        a, b = np.split(y, 2, 1)
        y = a / (1 + np.exp(-a)) * b
    return [y.astype(x.dtype)]


@register("projection", COMPLEX, _type, flops=_flops, traits=[SUMS], host=_host)
def _projection(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """See the module. Inputs: x [rows, depth]; with `eps` the norm's scale [depth]; the matrix, rows of [columns, depth] or packed with `bits`, `block`,
    `zero` and panel 0 (`packed_matmul`). gate "silu": of twice as many columns as the result. Sums in float32 at least."""
    x, g, matrix = _parts(attrs, inputs)
    k, acc, rows = attrs["depth"], accumulator(x.dtype), outputs[0].shape[0]
    run = 4

    if attrs.get("bits"):
        w = Weights.of(attrs)
        run = w.per

        def weight(n: Any, r: Any) -> Any:
            b = te.indexdiv(r, w.block)
            code = number_of(w.code(lambda i: matrix[0](*i), r, n), w.format).astype(acc)
            zero = te.const(w.zero, acc) if len(matrix) < 3 else matrix[2](n, b).astype(acc)
            return (code - zero) * scale_of(matrix[1](n, b), w.format).astype(acc)

    else:

        def weight(n: Any, r: Any) -> Any:
            return matrix[0](n, r).astype(acc)

    def element(i: Any, r: Any) -> Any:
        value = x(i, r).astype(acc)
        return value if g is None else value * g(r).astype(acc)

    def product(first: int, count: int) -> Tensor:
        r = te.reduce_axis((0, k), "k")
        made: Tensor = te.compute(
            (rows, count), lambda i, n: te.sum(element(i, r) * weight(n + first, r), axis=r), name="projected", tag="projected", attrs={"run": run}
        )  # fmt: skip
        return made

    square: Any = None
    if g is not None:
        s = te.reduce_axis((0, k), "s")
        square = te.compute(
            (rows,), lambda i: te.sum(x(i, s).astype(acc) * x(i, s).astype(acc), axis=s), name="squares"
        )

    def normed(p: Any, i: Any) -> Any:
        if square is None:
            return p
        return p / te.sqrt(square(i) * one_over(k, acc) + te.const(attrs["eps"], acc))

    count = outputs[0].shape[1]
    first = product(0, count)
    second = product(count, count) if attrs.get("gate") else None

    def body(i: Any, n: Any) -> Any:
        y = normed(first(i, n), i)
        if second is not None:
            y = y * te.sigmoid(y) * normed(second(i, n), i)
        return y.astype(x.dtype)

    made = te.compute(outputs[0].shape, body, name="projection")
    return carry(Form("projection", tuple(inputs), tuple(outputs), dict(attrs)), [made])
