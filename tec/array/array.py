"""Array: a value on a device, with the operators of the Python array API standard.

    x = tec.array.asarray([1.0, 2.0, 3.0], device=tec.cuda(0))
    y = (x * 2 + 1).sum()     # written down: one kernel computes it
    float(y)                  # when it is asked for

No two arrays share elements as far as can be seen: an index gives a value, assignment changes the one array that it names, and expressions that were
written before keep what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..runtime.arrays.ndarray import NDArray
from ..runtime.arrays.ndarray import array as nd_array
from ..runtime.devices.device import Device, DeviceLike, as_device, cpu
from . import build, dtypes, foreign, indexing, inspection
from .computing import compute, in_memory
from .dtypes import DType
from .errors import ArrayTypeError, ArrayValueError
from .forms import Form, ahead, remember
from .node import Node, is_traced, leaf, look_at, note, scalar
from .numbers import NUMBERS, alone

_NUMBERS = (bool, int, float)  # complex ones go the long way


class Array:
    """An array of the namespace `tec.array`. Made by its functions (`asarray`, `zeros`, `arange`, ...), never directly.

    >>> x = xp.asarray([1.0, 2.0, 4.0])
    >>> y = x * x + 1.0  # an expression: nothing has run
    >>> y
    Array([ 2.,  5., 17.], dtype=float32)
    >>> y.shape, y.dtype, float(y.sum())
    ((3,), tec.array.float32, 24.0)
    """

    __slots__ = ("__weakref__", "_node")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000
    __array_ufunc__ = foreign.array_ufunc
    __array_function__ = foreign.array_function

    def __init__(self, node: Node):
        if not isinstance(node, Node):
            raise ArrayTypeError("Array(...) is not called", hint="tec.array.asarray(x) makes an array")
        if node.owner is not None and node.owner() is not None:
            node = build.unary("identity", node)
        self._node = node
        node.owner = ref(self)

    if TYPE_CHECKING:  # operators and methods are the functions of elementwise, products and statistical

        def __add__(self, other: Any, /) -> Array: ...
        def __radd__(self, other: Any, /) -> Array: ...
        def __iadd__(self, other: Any, /) -> Array: ...
        def __sub__(self, other: Any, /) -> Array: ...
        def __rsub__(self, other: Any, /) -> Array: ...
        def __isub__(self, other: Any, /) -> Array: ...
        def __mul__(self, other: Any, /) -> Array: ...
        def __rmul__(self, other: Any, /) -> Array: ...
        def __imul__(self, other: Any, /) -> Array: ...
        def __truediv__(self, other: Any, /) -> Array: ...
        def __rtruediv__(self, other: Any, /) -> Array: ...
        def __itruediv__(self, other: Any, /) -> Array: ...
        def __floordiv__(self, other: Any, /) -> Array: ...
        def __rfloordiv__(self, other: Any, /) -> Array: ...
        def __ifloordiv__(self, other: Any, /) -> Array: ...
        def __mod__(self, other: Any, /) -> Array: ...
        def __rmod__(self, other: Any, /) -> Array: ...
        def __imod__(self, other: Any, /) -> Array: ...
        def __divmod__(self, other: Any, /) -> tuple[Array, Array]: ...
        def __rdivmod__(self, other: Any, /) -> tuple[Array, Array]: ...
        def __pow__(self, other: Any, /) -> Array: ...
        def __rpow__(self, other: Any, /) -> Array: ...
        def __ipow__(self, other: Any, /) -> Array: ...
        def __and__(self, other: Any, /) -> Array: ...
        def __rand__(self, other: Any, /) -> Array: ...
        def __iand__(self, other: Any, /) -> Array: ...
        def __or__(self, other: Any, /) -> Array: ...
        def __ror__(self, other: Any, /) -> Array: ...
        def __ior__(self, other: Any, /) -> Array: ...
        def __xor__(self, other: Any, /) -> Array: ...
        def __rxor__(self, other: Any, /) -> Array: ...
        def __ixor__(self, other: Any, /) -> Array: ...
        def __lshift__(self, other: Any, /) -> Array: ...
        def __rlshift__(self, other: Any, /) -> Array: ...
        def __ilshift__(self, other: Any, /) -> Array: ...
        def __rshift__(self, other: Any, /) -> Array: ...
        def __rrshift__(self, other: Any, /) -> Array: ...
        def __irshift__(self, other: Any, /) -> Array: ...
        def __matmul__(self, other: Any, /) -> Array: ...
        def __rmatmul__(self, other: Any, /) -> Array: ...
        def __imatmul__(self, other: Any, /) -> Array: ...
        def __lt__(self, other: Any, /) -> Array: ...
        def __le__(self, other: Any, /) -> Array: ...
        def __gt__(self, other: Any, /) -> Array: ...
        def __ge__(self, other: Any, /) -> Array: ...
        def __eq__(self, other: Any, /) -> Array: ...  # type: ignore[override]
        def __ne__(self, other: Any, /) -> Array: ...  # type: ignore[override]
        def __abs__(self) -> Array: ...
        def __neg__(self) -> Array: ...
        def __pos__(self) -> Array: ...
        def __invert__(self) -> Array: ...
        def sum(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def prod(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def max(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def min(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def mean(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def var(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def std(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def all(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...
        def any(self, axis: int | Sequence[int] | None = None, **options: Any) -> Array: ...

    # ---- what it is

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self._node.dtype

    @property
    def device(self) -> Device:
        """The device that it is on."""
        return self._node.device

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each dimension."""
        return self._node.shape

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self._node.size

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self._node.nbytes

    @property
    def T(self) -> Array:
        """The transpose of a matrix; of other arrays the dimensions in the reverse order, as in NumPy."""
        return Array(build.transpose(self._node, tuple(range(self.ndim))[::-1]))

    @property
    def mT(self) -> Array:
        """The last two dimensions exchanged."""
        if self.ndim < 2:
            raise ArrayValueError(
                f".mT of an array of {self.ndim} dimensions",
                hint="it transposes the last two dimensions: x[None, :] makes a row of a vector",
            )
        n = self.ndim
        return Array(build.transpose(self._node, (*range(n - 2), n - 1, n - 2)))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`tec.array`."""
        return inspection.namespace(api_version)

    def __len__(self) -> int:
        if not self.shape:
            raise ArrayTypeError(
                "len() of an array without dimensions", hint="x.size is 1; x.reshape(1) has a dimension"
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        text = np.array2string(self.numpy(), threshold=50, separator=", ", prefix="Array(")
        where = "" if self.device is cpu() else f", device={self.device}"
        return f"Array({text}, dtype={self.dtype!s}{where})"

    # ---- computing, and what comes out

    def block(self) -> Array:
        """Compute it, and wait until the device is done. Returns it. Under `tec.array.jit` nothing is there to wait for."""
        if is_traced(self._node):
            return self
        compute(self._node)
        self.device.sync()
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in NumPy. Computes, and waits."""
        look_at(self._node)
        return in_memory(self._node).numpy()

    def item(self, *at: int) -> Any:
        """The one element, or that at an index, or at a place in the array laid flat, as a Python number. Computes, and waits. Raises ArrayIndexError for a place that is not there."""
        if not at:
            return build.value(self._node)
        return (self[at] if len(at) > 1 else Array(build.reshape(self._node, (self.size,)))[at[0]]).item()

    def __copy__(self, memo: Any = None) -> Array:
        """An array of its own, on the same device, as for `copy.deepcopy`."""
        return Array(build.copy(self._node))

    __deepcopy__ = __copy__

    def tolist(self) -> Any:
        """Python numbers in nested lists."""
        return self.numpy().tolist()

    @property
    def nd(self) -> NDArray:
        """The memory that it lies in, as a read-only `tec.NDArray`, for compiled functions and networks. Computes."""
        look_at(self._node)
        a = in_memory(self._node)
        self._node.held().lent = True
        return a.read_only()

    def __contains__(self, value: Any) -> bool:
        """Whether an element is equal to the value. Computes, and waits."""
        found = (self == value)._node
        return bool(build.value(build.reduce("any", found, tuple(range(len(found.shape))), False)))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else format(str(self), spec)

    def __bool__(self) -> bool:
        return bool(build.value(self._node))

    def __int__(self) -> int:
        return int(build.value(self._node))

    def __float__(self) -> float:
        return float(build.value(self._node))

    def __complex__(self) -> complex:
        return complex(build.value(self._node))

    def __index__(self) -> int:
        if not dtypes.is_int(self.dtype) or self.shape:
            raise ArrayTypeError(
                f"an array of {self.dtype} and shape {self.shape} as an index",
                hint="an integer array without dimensions is one",
            )
        return int(build.value(self._node))

    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Array:
        """A copy on another device; the array itself where it is there."""
        if stream is not None:
            raise ArrayValueError("to_device(stream=...)", hint="with stream: around it")
        target = as_device(device)
        if target is self.device:
            return self
        made = leaf(in_memory(self._node).copyto(target))
        home = self.device
        note(
            "custom", made, (self._node,),
            pull=lambda g, y, x: (g.to_device(home),), again=lambda whole: Array(whole).to_device(target)._node,
        )  # fmt: skip
        return Array(made)

    def __tec_nd__(self) -> NDArray:
        """Its memory, for kernels and compiled functions, which may write there."""
        return self._lent_out()

    __array__ = foreign.to_numpy
    __dlpack__ = foreign.dlpack
    __dlpack_device__ = foreign.dlpack_device
    __cuda_array_interface__ = property(foreign.cuda_interface)

    # ---- indices

    def __getitem__(self, key: Any, /) -> Array:
        return Array(indexing.take(self._node, _nodes_in(key, self.device)))

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self._become(indexing.put(self._node, _nodes_in(key, self.device), _assigned(self, value)))

    def _lent_out(self) -> NDArray:
        """Its memory for others, who may write there: no other array lies in it from now on."""
        look_at(self._node)
        a = in_memory(self._node)
        if len(self._node.held().holders) > 1 or self._node.readers is None:
            self._become(build.copy(self._node))
            a = in_memory(self._node)
        self._node.held().foreign = True
        return a

    def _become(self, node: Node) -> None:
        """Name another node."""
        if node is self._node:
            return
        if node.owner is not None and node.owner() is not None:
            node = build.unary("identity", node)
        self._node = node
        node.owner = ref(self)


def _nodes_in(key: Any, device: Device) -> Any:
    """An index with nodes in the place of arrays, and of NumPy's arrays and lists of integers or bools."""
    if isinstance(key, tuple):
        return tuple([_index(k, device) for k in key])
    return _index(key, device)


def _index(k: Any, device: Device) -> Any:
    if type(k) is Array:
        return k._node
    if type(k) is np.ndarray and k.dtype.kind in "biu":
        return leaf(nd_array(np.ascontiguousarray(k), device)) if k.shape or k.dtype == "bool" else k.item()
    return _listed(k, device) if type(k) is list else k


def _listed(key: list[Any], device: Device) -> Any:
    try:
        held = np.asarray(key if key else np.zeros(0, np.int64))
    except ValueError:  # lists of several lengths
        return key
    return leaf(nd_array(held, device)) if held.dtype.kind in "bi" else key


def _assigned(x: Array, value: Any) -> Node:
    """What is assigned to elements of `x`, of its type. Raises ArrayTypeError where that would lose what kind it is."""
    if type(value) is Array:
        found = value._node
        if dtypes.promote(x.dtype, found.dtype) != x.dtype:
            raise ArrayTypeError(
                f"values of {found.dtype} assigned to an array of {x.dtype}",
                hint=f'tec.array.astype(value, "{x.dtype}")',
            )
        build.one_device((x._node, found))
        return build.cast(found, x.dtype)
    made = number(value.item() if isinstance(value, np.generic) else value, x._node)
    if made.dtype != x.dtype:
        raise ArrayTypeError(
            f"the number {value} assigned to an array of {x.dtype}",
            hint=f'round it, or convert the array: tec.array.astype(x, "{made.dtype}")',
        )
    return made


def number(value: Any, beside: Node) -> Node:
    """A Python number next to an array. Raises ArrayTypeError where the array's type does not hold it."""
    if not isinstance(value, NUMBERS):
        raise foreign.no_array(value)
    kind = dtypes.of_scalar(value, beside.dtype)
    return scalar(value.item() if isinstance(value, np.generic) else value, kind, beside.device)


_BESIDE: dict[tuple[Any, Any, Form], Node] = {}
_MOST_BESIDE = 4096


def _number_beside(value: Any, beside: Node) -> Node:
    """As `number`, which is asked once for the same number next to arrays of the same form."""
    key = (type(value), value, beside.form)
    found = _BESIDE.get(key)
    if found is None:
        found = number(value, beside)
        if value:  # the two zeros of floats are equal
            if len(_BESIDE) >= _MOST_BESIDE:
                _BESIDE.clear()
            _BESIDE[key] = found
    return found


def fresh(form: Form, inputs: tuple[Node, ...]) -> Array:
    """The array of a new node."""
    made: Array = _new(Array)
    made._node = node = Node(form, inputs)
    node.owner = ref(made)
    return made


_new = object.__new__


def written(out: Any, made: Array) -> Array:
    """What NumPy does with `out=`: `out` has the values of `made` from now on. Raises ArrayTypeError, ArrayValueError where it cannot hold them."""
    if type(out) is not Array:
        raise ArrayTypeError(f"out={type(out).__name__}", hint="an array of tec.array, which gets the result")
    if out.shape != made.shape:
        raise ArrayValueError(
            f"out of shape {out.shape} for a result of shape {made.shape}",
            hint="out= takes an array of the result's shape, or leave it out",
        )
    if dtypes.kind_rank(made.dtype) > dtypes.kind_rank(out.dtype):
        raise ArrayTypeError(f"out of {out.dtype} for a result of {made.dtype}", hint="tec.array.astype(result, dtype)")
    build.one_device((out._node, made._node))
    n = made._node
    out._become(n if n.dtype == out.dtype else build.cast(n, out.dtype))
    return out


def of_two(function: Callable[[Any, Any], Array]) -> Callable[..., Array]:
    """A function of two arrays (one may be a number) that follows its rules once for arrays of the same forms, and then knows what it gives:
    where that is one operator on just the two."""

    def call(x1: Any, x2: Any, /, **options: Any) -> Array:
        if options:
            return _with_out(call, (x1, x2), options)
        if type(x1) is Array:
            a = x1._node
            if type(x2) is Array:
                b = x2._node
            elif type(x2) in _NUMBERS:
                b = _number_beside(x2, a)
            else:
                return function(x1, x2)
        elif type(x2) is Array and type(x1) in _NUMBERS:
            b = x2._node
            a = _number_beside(x1, b)
        else:
            made = alone(call.__name__, (x1, x2), {})
            return function(x1, x2) if made is NotImplemented else made
        f, g = a.form, b.form
        form = ahead((function, f, g))
        if form is not None:
            return fresh(form, (a, b))
        made = function(x1, x2)
        _learn(function, f, g, (a, b), made)
        return made

    return call


def of_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """The same for a function of one array without options."""

    def call(x: Any, /, **options: Any) -> Array:
        if type(x) is not Array:
            found = alone(call.__name__, (x,), options)
            return function(x, **options) if found is NotImplemented else found
        if options:
            return _with_out(call, (x,), options) if "out" in options else function(x, **options)
        a = x._node
        f = a.form
        form = ahead((function, f, None))
        if form is not None:
            return fresh(form, (a,))
        made = function(x)
        _learn(function, f, None, (a,), made)
        return made

    return call


def _with_out(call: Callable[..., Array], args: tuple[Any, ...], options: dict[str, Any]) -> Array:
    out = options.pop("out", None)
    if "dtype" in options and len(args) == 2:
        kind = options.pop("dtype")
        args = tuple(Array(build.cast(x._node, dtypes.as_dtype(kind))) if type(x) is Array else x for x in args)
    if options and len(args) == 2:
        raise TypeError(f"{call.__name__}() got an unexpected keyword argument {next(iter(options))!r}")
    made = call(*args, **options)
    return made if out is None else written(out, made)


def _learn(function: Any, f: Form, g: Form | None, given: tuple[Node, ...], made: Array) -> None:
    n = made._node
    forms = (f,) if g is None else (f, g)
    # Nodes and forms are equal where they are the same.
    if n.data is None and n.inputs == given and n.form.inputs == forms:
        remember(function, f, g, n.form)


def node_of(x: Any, what: str = "the argument") -> Node:
    """The node of an array. Raises ArrayTypeError for what is none."""
    if type(x) is not Array:
        raise foreign.no_array(x, what)
    return x._node


def pair(a: Any, b: Any) -> tuple[Node, Node]:
    """Two operands of one type, one of which may be a Python number. Raises ArrayTypeError."""
    if type(a) is Array:
        m = a._node
        n = b._node if type(b) is Array else number(b, m)
    elif type(b) is Array:
        n = b._node
        m = number(a, n)
    else:
        raise foreign.no_array(a)
    if m.dtype is not n.dtype and m.dtype != n.dtype:
        kind = dtypes.promote(m.dtype, n.dtype)
        m, n = build.cast(m, kind), build.cast(n, kind)
    return m, n
