"""Tensors: what operations produce and what expressions read.

`T[i, j]` and `T(i, j)` read one value. `T[i]` of a matrix is a `TensorSlice` that can be indexed further. A `Tensor`
is identified by object: an operation returns one object per output, and `==` between tensors compares identity, as in
te. The other operators of whole tensors (`A + B`, `2 * A`, `A < B`) compute a tensor (`tec.te.tensor_ops`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ExprError
from ..ir import build
from ..ir.dtype import dtype_info
from ..ir.expr import Expr, ExprOps, IntImm, TensorRead
from ..ir.expr_ops import Whole

if TYPE_CHECKING:
    from .operation import Operation


class Tensor(ExprOps, Whole):
    """An output of an operation.

    op: the operation. value_index: the number of the output. shape: a tuple of integer expressions. dtype: of one
    element.

    >>> A = tec.placeholder((4, 8), name="A")
    >>> A.ndim, A.dtype, A[1, 2].dtype
    (2, 'float32', 'float32')
    """

    __slots__ = ("__weakref__", "dtype", "op", "shape", "value_index")
    __hash__ = object.__hash__

    def __init__(self, op: Operation, value_index: int, shape: tuple[Expr, ...], dtype: str):
        self.op = op
        self.value_index = value_index
        self.shape = shape
        self.dtype = dtype

    @property
    def name(self) -> str:
        """The operation's name, with `.v1`, `.v2`, ... where it has several outputs."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def axis(self) -> Any:
        """The axes of the operation that computes this tensor."""
        return self.op.axis

    def __getitem__(self, indices: Any) -> Any:
        idx = indices if isinstance(indices, tuple) else (indices,)
        return read(self, idx)

    def __call__(self, *indices: Any) -> Any:
        if len(indices) == 1 and isinstance(indices[0], (tuple, list)):
            indices = tuple(indices[0])
        return read(self, indices, complete=True)

    def asexpr(self) -> Expr:
        """The value of a 0-dimensional tensor; ExprError for any other."""
        if not self.shape:
            return TensorRead(self, ())
        raise ExprError(
            f"tensor {self.name} has {self.ndim} dimension{'s'[: self.ndim > 1]} and stands here for one value",
            hint=f"index it: {self.name}[{', '.join('ijklmnopqrst'[: self.ndim])}] inside tec.compute",
        )

    def same_as(self, other: Any) -> bool:
        """Whether `other` is this very output of this very operation."""
        return self is other

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, Tensor) or other is None:
            return self is other
        return build.compare("eq", self.asexpr(), other)

    def __ne__(self, other: Any) -> Any:
        if isinstance(other, Tensor) or other is None:
            return self is not other
        return build.compare("ne", self.asexpr(), other)

    def __bool__(self) -> NoReturn:
        raise ExprError(
            f"tensor {self.name} used as a bool: its values are not known while the program is being built",
            hint="use tec.if_then_else(cond, a, b), tec.select, tec.all or tec.any; `T is None` tests for None",
        )

    def __iter__(self) -> Iterator[Any]:
        raise ExprError(f"tensor {self.name} cannot be iterated over", hint="loop by tec.compute over its shape")

    def __len__(self) -> int:
        raise ExprError(f"len() of tensor {self.name}", hint="use T.shape[0] (it may be symbolic) or T.ndim")

    def __repr__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(str, self.shape))}], dtype={self.dtype}, op={self.op.name})"

    __str__ = __repr__


class TensorSlice(ExprOps):
    """A tensor with its first few indices given; more are given by `[...]`.

    >>> A = te.placeholder((4, 8), name="A")
    >>> row = A[2]
    >>> row[3]
    A[2, 3]
    """

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Expr, ...]):
        self.tensor = tensor
        self.indices = indices

    def __getitem__(self, indices: Any) -> Any:
        idx = indices if isinstance(indices, tuple) else (indices,)
        return read(self.tensor, (*self.indices, *idx))

    @property
    def dtype(self) -> str:
        """The type of an element, which is that of the tensor."""
        return self.tensor.dtype

    def asexpr(self) -> Expr:
        """Raises ExprError, which says how many indices are missing: a slice has no value."""
        t = self.tensor
        raise ExprError(
            f"tensor {t.name} has {t.ndim} dimensions, only {len(self.indices)} indexed",
            hint=f"give {t.ndim - len(self.indices)} more: T[i, j] or T[i][j]",
        )

    def __iter__(self) -> Iterator[Any]:
        raise ExprError(f"a row of tensor {self.tensor.name} cannot be iterated over", hint="loop by tec.compute")

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(str, self.indices))}]"


class TensorRegion(ExprOps):
    """A region of a tensor, `A[i, 0:16]`: what a tensor intrinsic is called with. As a value it has no meaning, and says so."""

    __slots__ = ("begins", "sizes", "tensor")

    def __init__(self, tensor: Tensor, begins: tuple[Expr, ...], sizes: tuple[Expr | None, ...]):
        self.tensor = tensor
        self.begins = begins
        self.sizes = sizes  # None where the index is one place

    def extents(self, ndim: int) -> tuple[Expr, ...]:
        """Elements along the last `ndim` dimensions."""
        return tuple(build.const(1) if n is None else n for n in self.sizes[len(self.sizes) - ndim :])

    def element(self, at: Sequence[Expr]) -> TensorRead:
        """The element at a place of the region's last dimensions."""
        lead = len(self.begins) - len(at)
        tail = [build.add(b, i) for b, i in zip(self.begins[lead:], at)]
        return TensorRead(self.tensor, (*self.begins[:lead], *tail))

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    def asexpr(self) -> Expr:
        raise ExprError(
            f"slice as an index of tensor {self.tensor.name}",
            hint="compute the slice: tec.compute(shape, lambda i: T[begin + i])",
        )

    def __getitem__(self, indices: Any) -> Any:
        return self.asexpr()

    def __iter__(self) -> Iterator[Any]:
        raise ExprError(f"a region of tensor {self.tensor.name} cannot be iterated over", hint="loop by tec.compute")

    def __repr__(self) -> str:
        places = (str(b) if n is None else f"{b}:{build.add(b, n)}" for b, n in zip(self.begins, self.sizes))
        return f"{self.tensor.name}[{', '.join(places)}]"


def _region(tensor: Tensor, indices: tuple[Any, ...]) -> TensorRegion:
    if len(indices) != tensor.ndim:
        raise ExprError(
            f"tensor {tensor.name} has {tensor.ndim} dimensions, sliced with {len(indices)} indices",
            hint="at most one index a dimension",
        )
    begins: list[Expr] = []
    sizes: list[Expr | None] = []
    what = f"index of tensor {tensor.name}"
    for v, extent in zip(indices, tensor.shape):
        if isinstance(v, slice):
            if v.step not in (None, 1):
                raise ExprError(f"a region of tensor {tensor.name} with step {v.step}", hint="regions have step 1")
            first = as_index(0 if v.start is None else v.start, what)
            begins.append(first)
            sizes.append(build.sub(extent if v.stop is None else as_index(v.stop, what), first))
        else:
            begins.append(as_index(v, what))
            sizes.append(None)
    return TensorRegion(tensor, tuple(begins), tuple(sizes))


def as_index(value: Any, what: str) -> Expr:
    """An integer expression from what a user gave as an index."""
    if value is None or value is Ellipsis or isinstance(value, (str, list, tuple)):
        raise ExprError(f"{value!r} as an {what}", hint="an index is one integer expression a dimension")
    if isinstance(value, Tensor) and value.ndim:
        raise ExprError(
            f"tensor {value.name} as an {what}", hint="gather by indexing it: T[index_tensor[i]], one value at a time"
        )
    e = build.convert(value)
    info = dtype_info(e.dtype)
    if not info.is_int or info.lanes != 1:
        raise ExprError(
            f"{what} of type {e.dtype}: {e}",
            hint="an index is an integer; cast with .astype('int32') where that is meant",
        )
    return e


def read(tensor: Tensor, indices: tuple[Any, ...], complete: bool = False) -> Any:
    """`tensor[indices]`: a TensorRead, or a TensorSlice where indices are missing; bounds of constants are checked."""
    if any(isinstance(v, slice) for v in indices):
        return _region(tensor, indices)
    if len(indices) > tensor.ndim or (complete and len(indices) != tensor.ndim):
        raise ExprError(
            f"tensor {tensor.name} has {tensor.ndim} dimensions, indexed with {len(indices)}",
            hint=f"its shape is ({', '.join(map(str, tensor.shape))})",
        )
    out = []
    for k, value in enumerate(indices):
        e = as_index(value, f"index of tensor {tensor.name}")
        extent = tensor.shape[k]
        if isinstance(e, IntImm) and (e.value < 0 or (isinstance(extent, IntImm) and e.value >= extent.value)):
            raise ExprError(
                f"index {e.value} is outside of dimension {k} of tensor {tensor.name}, which has {extent} elements",
                hint="indices start at 0 and do not wrap"
                if e.value < 0
                else f"indices end at {extent} - 1; tec.if_then_else(i < {extent}, ...) guards a read",
            )
        out.append(e)
    if len(out) < tensor.ndim:
        return TensorSlice(tensor, tuple(out))
    return TensorRead(tensor, tuple(out))
