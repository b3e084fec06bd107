"""Running sums, products and maxima, and the largest elements in order.

In te each is a reduction an element; `tec.choices.families.sorts` has them as loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te
from ..te import Tensor
from .dims import require
from .forms import Form, carry
from .registry import CUMULATIVE, OPAQUE, Attrs, TensorType, fail, normalize_axis, register, static_shape

_WIDE = {"float16": "float32", "bfloat16": "float32"}


# ---- running sums


# How elements are joined: the reducer, NumPy's function, and what is made of two.
_JOINS: dict[str, tuple[Any, Any, Callable[[Any, Any], Any]]] = {
    "sum": (te.sum, np.add, lambda a, b: a + b), "product": (te.prod, np.multiply, lambda a, b: a * b), "maximum": (te.max, np.maximum, te.maximum)
}  # fmt: skip


def joined(join: str, a: Any, b: Any) -> Any:
    return _JOINS[join][2](a, b)


def neutral(join: str, dtype: str) -> Any:
    """What stands before the first element."""
    return te.min_value(dtype) if join == "maximum" else te.const(int(join == "product"), dtype)


def _cumulate_host(join: str) -> Any:
    def host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
        x = np.asarray(arrays[0])
        axis = normalize_axis(attrs["axis"], x.ndim)
        wide = np.dtype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x.dtype
        y = np.flip(x, axis) if attrs.get("reverse", False) else x
        y = _JOINS[join][1].accumulate(y.astype(wide), axis=axis, dtype=wide)
        if attrs.get("exclusive", False):
            first = np.full(
                [1 if k == axis else n for k, n in enumerate(x.shape)], neutral(join, wide.name).value, wide
            )
            y = np.concatenate([first, y], axis)[tuple(slice(0, n) for n in x.shape)]
        return [(np.flip(y, axis) if attrs.get("reverse", False) else y).astype(x.dtype)]

    return host


def _cumulate_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    normalize_axis(attrs["axis"], types[0].ndim)
    return [types[0]]


def _whole_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if not types[0].dtype.startswith(("int", "uint")):
        raise fail(f"running maxima of {types[0].dtype}", hint="compare integers that are in the elements' order")
    return _cumulate_type(types, attrs)


def _cumulate(name: str, join: str) -> None:
    """Define a running sum, product or maximum."""
    reducer = _JOINS[join][0]

    def compute(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
        x = inputs[0]
        axis = normalize_axis(attrs["axis"], x.ndim)
        strict, back = bool(attrs.get("exclusive", False)), bool(attrs.get("reverse", False))
        n = static_shape(x)[axis]
        k = te.reduce_axis((0, n), "k")
        wide = _WIDE.get(x.dtype, x.dtype)

        def body(*i: Any) -> Any:
            a, b = (i[axis], k) if back else (k, i[axis])
            return reducer(x(*i[:axis], k, *i[axis + 1 :]).astype(wide), axis=k, where=a < b if strict else a <= b)

        y = te.compute(x.shape, body, name=name)
        made = y if wide == x.dtype else te.compute(x.shape, lambda *i: y(*i).astype(x.dtype), name=f"{name}_cast")
        way = {"name": name, "axis": axis, "join": join, "exclusive": strict, "reverse": back, "acc": wide}
        return carry(Form("running", (x,), tuple(outputs), way), [made])

    compute.__doc__ = (
        f"The running {join} along `axis` (of `x`, n elements; before the first stands {'the least' if join == 'maximum' else int(join == 'product')}); "
        "`exclusive` leaves the element itself out, `reverse` runs from the end."
    )
    register(
        name,
        OPAQUE,
        _whole_type if join == "maximum" else _cumulate_type,
        flops=lambda types, outs, attrs: types[0].size,
        host=_cumulate_host(join),
        traits=[CUMULATIVE],
        takes=1,
    )(compute)


_cumulate("cumsum", "sum")
_cumulate("cumprod", "product")
_cumulate("cummax", "maximum")


# ---- the largest in order


def _topk_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x = types[0]
    axis = normalize_axis(attrs["axis"], x.ndim)
    if attrs["k"] < 0 or not require(attrs["k"], "<=", x.shape[axis], "the first along an axis"):
        raise fail(f"the first {attrs['k']} along axis {axis} of {x}", hint="k is from 0 to the size of that axis")
    shape = (*x.shape[:axis], attrs["k"], *x.shape[axis + 1 :])
    return [TensorType(x.dtype, shape), TensorType("int64", shape)]


def _topk_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x = np.asarray(arrays[0])
    axis = normalize_axis(attrs["axis"], x.ndim)
    keys = x.astype(np.float32) if x.dtype.kind not in "fiub" else x
    if attrs.get("largest", True):
        # Backwards, so that of equals the first comes first.
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis=axis, kind="stable")
    order = np.take(order, np.arange(attrs["k"]), axis=axis).astype(np.int64)
    return [np.take_along_axis(x, order, axis), order]


def _nan(v: Any) -> Any:
    return v != v


def above(a: Any, b: Any, dtype: str) -> Any:
    """a > b, where NaN is above every number."""
    return te.any(a > b, te.all(_nan(a), te.any(b == b))) if dtype.startswith(("float", "bfloat")) else a > b


def alike(a: Any, b: Any, dtype: str) -> Any:
    return te.any(a == b, te.all(_nan(a), _nan(b))) if dtype.startswith(("float", "bfloat")) else a == b


@register("topk", OPAQUE, _topk_type, host=_topk_host, takes=1)
def _topk(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The `k` largest (`largest`) or smallest elements along `axis` in order, and their indices; of equals the first comes first.

    NaN is above every number. In te by rank: an element's place is the number of elements that come before it.
    """
    x, out = inputs[0], outputs[0]
    axis, largest = normalize_axis(attrs["axis"], x.ndim), bool(attrs.get("largest", True))
    n = static_shape(x)[axis]
    kind = x.dtype
    j = te.reduce_axis((0, n), "j")

    def before(*i: Any) -> Any:
        mine, other = x(*i), x(*i[:axis], j, *i[axis + 1 :])
        ahead = above(other, mine, kind) if largest else above(mine, other, kind)
        return te.sum(te.any(ahead, te.all(alike(other, mine, kind), j < i[axis])).astype("int32"), axis=j)

    rank = te.compute(x.shape, before, name="topk_rank")
    m = te.reduce_axis((0, n), "m")
    where = te.compute(
        out.shape,
        lambda *i: te.max(te.select(rank(*i[:axis], m, *i[axis + 1 :]) == i[axis], m, 0), axis=m),
        name="topk_where",
    )
    values = te.compute(out.shape, lambda *i: x(*i[:axis], where(*i), *i[axis + 1 :]), name="topk")
    index = te.compute(out.shape, lambda *i: where(*i).astype("int64"), name="topk_index")
    return carry(
        Form("topk", (x,), tuple(outputs), {"axis": axis, "k": attrs["k"], "largest": largest}), [values, index]
    )
