"""Elements put at places: `matrix_set_diag`, `strided_set`, `invert_permutation`, `adv_index`, `collapse_sum`, `reverse_sequence`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from . import reduction
from .operators import axis_of, compute, output, tensor, type_of
from .slices import number_of
from .tag import INJECTIVE
from .transform import reshape

__all__ = ["adv_index", "collapse_sum", "invert_permutation", "matrix_set_diag", "reverse_sequence", "strided_set"]


def matrix_set_diag(data: Tensor, diagonal: Tensor, k: Any = 0, align: str = "RIGHT_LEFT") -> Tensor:
    """Matrices, the last two dimensions, whose diagonal `k` above the main one is `diagonal`. Raises ExprError for several diagonals.

    >>> topi.matrix_set_diag(te.placeholder((2, 4, 5), name="a"), te.placeholder((2, 4), name="d"), 1).shape
    (2, 4, 5)
    """
    x, d = tensor(data, "matrix_set_diag"), tensor(diagonal, "matrix_set_diag")
    at = k[0] if isinstance(k, (list, tuple)) and len(set(k)) == 1 else k
    if not isinstance(at, int):
        raise ExprError(f"matrix_set_diag(k={k!r})", hint="one diagonal; a call for each sets several")

    def element(*i: Any) -> Any:
        *lead, r, c = i
        place = c if at < 0 else r
        return te.if_then_else(c - r == at, d(*lead, place), x(*i))

    return compute(x.shape, element, "matrix_set_diag", INJECTIVE)


def strided_set(
    a: Tensor,
    v: Tensor,
    begin: Sequence[int] | Tensor,
    end: Sequence[int] | Tensor,
    strides: Sequence[int] | Tensor | None = None,
) -> Tensor:
    """`a` with `a[begin:end:strides] = v`, negative bounds being counted from the end. Bounds may be tensors too, of integers. Raises ExprError where v has another shape.

    >>> topi.strided_set(te.placeholder((4, 6), name="a"), te.placeholder((2, 2), name="v"), [1, 0], [3, 6], [1, 3]).shape
    (4, 6)
    """
    x, values = tensor(a, "strided_set"), tensor(v, "strided_set")
    if any(isinstance(t, Tensor) for t in (begin, end, strides)):
        return _set_by_values(x, values, begin, end, strides)
    shape = type_of(x).shape
    steps = [*(strides or []), *[1] * x.ndim][: x.ndim]
    regions = []
    for k, n in enumerate(shape):
        if not isinstance(n, int):
            raise ExprError(
                f"strided_set of {x.name}, dimension {k} of which is open", hint="give the placeholder numbers"
            )
        regions.append(
            range(*slice(begin[k] if k < len(begin) else None, end[k] if k < len(end) else None, steps[k]).indices(n))
        )
    if tuple(len(r) for r in regions) != tuple(type_of(values).shape):
        raise ExprError(
            f"strided_set of {values.ndim} dimensions {type_of(values).shape} to a region of {tuple(map(len, regions))}",
            hint="values of the region's shape",
        )

    def element(*i: Any) -> Any:
        inside, place = [], []
        for p, r in zip(i, regions):
            off = (p - r.start) if r.step > 0 else (r.start - p)
            step = abs(r.step)
            inside.append(te.all(off >= 0, te.floormod(off, step) == 0, off < len(r) * step))
            place.append(te.max(te.min(te.floordiv(off, step), len(r) - 1), 0))
        return te.if_then_else(te.all(*inside), te.cast(x.dtype, values(*place)), x(*i))

    return compute(x.shape, element, "strided_set", INJECTIVE) if all(map(len, regions)) else x


def _set_by_values(x: Tensor, values: Tensor, begin: Any, end: Any, strides: Any) -> Tensor:
    """A region whose bounds are read when it runs."""
    count = type_of(begin).size if isinstance(begin, Tensor) else len(begin)

    def element(*i: Any) -> Any:
        inside, place = [], list(i)
        for k in range(min(count, x.ndim)):
            n, at, step = te.cast("int64", x.shape[k]), te.cast("int64", i[k]), number_of(strides, k)
            back = step < 0
            low, high = te.select(back, te.const(-1, "int64"), te.const(0, "int64")), te.select(back, n - 1, n)
            first, last = (
                te.max(te.min(te.select(b < 0, b + n, b), high), low) for b in (number_of(begin, k), number_of(end, k))
            )
            off, size = te.select(back, first - at, at - first), te.max(te.abs(step), te.const(1, "int64"))
            inside.append(te.all(off >= 0, te.floormod(off, size) == 0, te.select(back, at > last, at < last)))
            place[k] = te.max(te.min(te.floordiv(off, size), values.shape[k] - 1), te.const(0, "int64"))
        return te.if_then_else(te.all(*inside), te.cast(x.dtype, values(*place)), x(*i))

    return compute(x.shape, element, "strided_set", INJECTIVE)


def invert_permutation(data: Tensor) -> Tensor:
    """Where each number stands in a permutation of 0 to n - 1.

    >>> topi.invert_permutation(te.placeholder((5,), "int32", "p")).shape
    (5,)
    """
    p = tensor(data, "invert_permutation")
    r = te.reduce_axis((0, p.shape[0]), "r")
    zero = te.const(0, p.dtype)
    made: Tensor = te.compute(
        p.shape,
        lambda i: te.sum(te.select(p(r) == te.cast(p.dtype, i), te.cast(p.dtype, r), zero), axis=r),
        name="T_invert_permutation",
    )
    return made


def adv_index(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """`data[indices[0], indices[1], ...]` of integer tensors, which broadcast, along the first dimensions; -1 is the last element.

    >>> i = te.placeholder((3,), "int64", "i")
    >>> topi.adv_index(te.placeholder((4, 5, 6), name="a"), [i, i]).shape
    (3, 6)
    """
    x, at = tensor(data, "adv_index"), [tensor(i, "adv_index") for i in indices]
    if not at or len(at) > x.ndim:
        raise ExprError(
            f"adv_index by {len(at)} tensors of {x.ndim} dimensions", hint="one for each of the first dimensions"
        )
    ndim = max(i.ndim for i in at)
    shape: list[Any] = [1] * ndim
    for i in at:
        for k, n in enumerate(type_of(i).shape, ndim - i.ndim):
            if shape[k] == 1:
                shape[k] = n
            elif n not in (1, shape[k]):
                raise ExprError(
                    f"adv_index by tensors of shapes {[type_of(i).shape for i in at]}", hint="shapes that broadcast"
                )

    def element(*i: Any) -> Any:
        places = []
        for t, n in zip(at, x.shape):
            own = [te.const(0, "int32") if m == 1 else v for v, m in zip(i[ndim - t.ndim : ndim], type_of(t).shape)]
            v = t(*own)
            places.append(te.select(v < 0, v + te.cast(v.dtype, n), v))
        return x(*places, *i[ndim:])

    return compute((*shape, *x.shape[len(at) :]), element, "adv_index", INJECTIVE)


def collapse_sum(data: Tensor, target_shape: Any) -> Tensor:
    """The sum over the dimensions along which a tensor of `target_shape` would broadcast to `data`: the gradient of that.

    >>> topi.collapse_sum(te.placeholder((4, 5, 6), name="a"), (5, 1)).shape
    (5, 1)
    """
    x = tensor(data, "collapse_sum")
    have, want = type_of(x).shape, tuple(getattr(n, "value", n) for n in target_shape)
    lead = len(have) - len(want)
    if lead < 0 or any(n not in (1, m) for n, m in zip(want, have[max(lead, 0) :])):
        raise ExprError(f"collapse_sum of {have} to {want}", hint="a shape that broadcasts to it")
    axes = [k for k, m in enumerate(have) if k < lead or (want[k - lead] == 1 and m != 1)]
    made: Tensor = reduction.sum(x, axes) if axes else x
    return reshape(made, want)


def reverse_sequence(a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Tensor:
    """The first `seq_lengths[b]` steps along `seq_axis` of each entry of `batch_axis` in reverse order, or all where there are fewer.

    >>> a, n = te.placeholder((2, 3), name="a"), te.placeholder((2,), "int32", name="n")
    >>> te.evaluate([topi.reverse_sequence(a, n)], {a: np.float32([[1, 2, 3], [4, 5, 6]]), n: np.int32([2, 3])})[0]
    array([[2., 1., 3.],
           [6., 5., 4.]], dtype=float32)
    """
    what = "reverse_sequence"
    x, lengths = tensor(a, what), tensor(seq_lengths, what)
    batch, time = (axis_of(axis, x.ndim, what) for axis in (batch_axis, seq_axis))
    return output(what, [x, lengths], INJECTIVE, batch_axis=batch, time_axis=time)
