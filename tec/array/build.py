"""Making nodes: one function an operator, with the type and shape that it gives. Everything here is written down, and nothing computed.

What has no elements is there at once, so that no expression reads an empty value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ..runtime.arrays.ndarray import NDArray, empty
from ..runtime.devices.device import Device
from . import dtypes
from .complexes import COMPLEX, is_complex, pairs_of
from .computing import cut, in_memory
from .dtypes import PART, WHOLE, DType
from .errors import ArrayTypeError, ArrayValueError
from .forms import Attrs, form_of
from .node import (
    MOST_NODES,
    RECORDERS,
    TRACED,
    Node,
    attributes,
    broadcast_shapes,
    is_traced,
    leaf,
    look_at,
    note,
    scalar,
)

Shape = tuple[int, ...]


def make(
    op: str,
    inputs: tuple[Node, ...],
    shape: Shape,
    dtype: DType,
    attrs: Attrs = (),
    ints: Attrs = (),
    out: int = 0,
    device: Device | None = None,
) -> Node:
    """A node of any operator."""
    where = inputs[0].device if device is None else device
    if 0 in shape:
        return leaf(empty(shape, dtype.name, where))
    if sum([n.weight for n in inputs]) >= MOST_NODES and not TRACED:
        cut(inputs)
    return Node(form_of(op, tuple([n.form for n in inputs]), shape, dtype, where, attrs, ints, out), inputs)


# ---- complex numbers: their operators are those of their parts

# Operators that a complex value is made of, from which on its parts are read from memory: each reader of an expression works all of it out for both parts.
_MOST_PARTS = 40


def parts(n: Node) -> tuple[Node, Node]:
    """The real and the imaginary part of a complex node."""
    if n.data is None and (n.weight < _MOST_PARTS or is_traced(n)):
        return n.inputs  # type: ignore[return-value]
    in_memory(n)
    if 0 in n.shape:
        none = leaf(empty(n.shape, PART[n.dtype.name].name, n.device))
        return none, none
    return _of_pairs(pairs_of(n))


def _of_pairs(pairs: Node) -> tuple[Node, Node]:
    last = len(pairs.shape) - 1
    return reshape(narrow(pairs, last, 0, 1), pairs.shape[:-1]), reshape(narrow(pairs, last, 1, 1), pairs.shape[:-1])


def of_pairs(pairs: Node) -> Node:
    """The complex node whose parts lie side by side."""
    return joined(*_of_pairs(pairs))


def joined(real: Node, imag: Node) -> Node:
    """The complex node of two real ones of one type and shape."""
    return make("complex", (real, imag), real.shape, WHOLE[real.dtype.name])


def _on_parts(f: Callable[..., Node], *nodes: Node) -> Node:
    """What treats both parts alike."""
    both = [parts(n) if is_complex(n) else (n, n) for n in nodes]
    return joined(f(*[p[0] for p in both]), f(*[p[1] for p in both]))


def one_device(nodes: Sequence[Node]) -> Device:
    """The device of all. Raises ArrayTypeError for two."""
    found = nodes[0].device
    for n in nodes[1:]:
        if n.device is not found:
            raise ArrayTypeError(
                f"arrays on {found} and on {n.device}", hint="x.to_device(dev) takes one to the other's device"
            )
    return found


def common_shape(nodes: Sequence[Node], what: str) -> Shape:
    """What the shapes broadcast to. Raises ArrayValueError."""
    found = broadcast_shapes([n.shape for n in nodes])
    if found is None:
        raise ArrayValueError(
            f"{what}: shapes {', '.join(str(n.shape) for n in nodes)} do not broadcast",
            hint="extents are equal or 1, counted from the last dimension: x[:, None] and tec.array.expand_dims add one",
        )
    return found


# ---- element by element


def cast(n: Node, dtype: DType) -> Node:
    if n.dtype == dtype:
        return n
    if dtype == "bool":
        return binary("not_equal", n, scalar(0, n.dtype, n.device), dtypes.bool)
    part = PART.get(dtype.name)
    if part is not None:
        if is_complex(n):
            return _on_parts(lambda p: cast(p, part), n)
        real = cast(n, part)
        return joined(real, full(0, n.shape, part, n.device))
    if is_complex(n):
        raise ArrayTypeError(f"{n.dtype} as {dtype}", hint="tec.array.real(x), imag(x) and abs(x) are real")
    return make("cast", (n,), n.shape, dtype, (("dtype", str(dtype)),))


def unary(op: str, n: Node, dtype: DType | None = None, attrs: Attrs = ()) -> Node:
    if is_complex(n):
        return COMPLEX["unary"](op, n)
    return make(op, (n,), n.shape, dtype or n.dtype, attrs)


def binary(op: str, a: Node, b: Node, dtype: DType | None = None) -> Node:
    one_device((a, b))
    if is_complex(a):
        return COMPLEX["binary"](op, a, b)
    shape = a.shape if a.shape == b.shape else common_shape((a, b), op)
    return make(op, (a, b), shape, dtype or a.dtype)


def where(cond: Node, a: Node, b: Node) -> Node:
    one_device((cond, a, b))
    if is_complex(a):
        (p, q), (r, s) = parts(a), parts(b)
        return joined(where(cond, p, r), where(cond, q, s))
    return make("where", (cond, a, b), common_shape((cond, a, b), "where"), a.dtype)


def broadcast_to(n: Node, shape: Shape) -> Node:
    if n.shape == shape:
        return n
    if is_complex(n):
        return _on_parts(lambda p: broadcast_to(p, shape), n)
    return make("broadcast_to", (n,), shape, n.dtype, (), (("shape", shape),))


def full(value: Any, shape: Shape, dtype: DType, device: Device) -> Node:
    return broadcast_to(scalar(value, dtype, device), shape)


def positions(axis: int, shape: Shape, device: Device, dtype: DType = dtypes.int64) -> Node:
    """Each element's place along an axis."""
    return make("positions", (), shape, dtype, attributes(axis=axis, dtype=str(dtype)), (("shape", shape),), 0, device)


# ---- reductions


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    return tuple([1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes])


def reduce(op: str, n: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """`axes` in order, counted from the front; none of them empty."""
    shape = reduced_shape(n.shape, axes, keepdims)
    if not axes:
        return n
    if is_complex(n):
        return _reduce_complex(op, n, axes, keepdims)
    return make(f"reduce_{op}", (n,), shape, n.dtype, (("axes", axes), ("keepdims", keepdims)))


def _reduce_complex(op: str, n: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    if op == "sum":
        return _on_parts(lambda p: reduce(op, p, axes, keepdims), n)
    if op != "prod":
        raise ArrayTypeError(f"{op} of {n.dtype}: complex numbers have no order", hint="tec.array.abs(x) is real")
    for k in axes:
        n = COMPLEX["product"](n, k)
    return reshape(n, reduced_shape(n.shape, axes, keepdims))


def running(op: str, n: Node, axis: int) -> Node:
    """cumsum or cumprod along an axis."""
    n = boundary(n)
    if not is_complex(n):
        return make(op, (n,), n.shape, n.dtype, (("axis", axis),))
    if op == "cumsum":
        return _on_parts(lambda p: running(op, p, axis), n)
    return COMPLEX["running_product"](n, axis)


def best(op: str, n: Node, axis: int, keepdims: bool) -> Node:
    """argmax or argmin along an axis."""
    if is_complex(n):
        raise ArrayTypeError(f"{op} of {n.dtype}: complex numbers have no order", hint="tec.array.abs(x) is real")
    shape = reduced_shape(n.shape, (axis,), keepdims)
    return make(op, (n,), shape, dtypes.int64, attributes(axis=axis, keepdims=keepdims))


# ---- moving elements


def reshape(n: Node, shape: Shape) -> Node:
    """The same elements in order. Where only extents of 1 come and go it is a part of the expression; else the same memory under another shape, or a copy
    of memory that others may write."""
    if n.shape == shape:
        return n
    if 0 in shape:
        return leaf(empty(shape, n.dtype.name, n.device))
    if n.data is None and is_complex(n) and (n.weight < _MOST_PARTS or is_traced(n)):
        return _on_parts(lambda p: reshape(p, shape), n)
    if n.data is None and not is_complex(n) and [k for k in n.shape if k != 1] == [k for k in shape if k != 1]:
        return make("reshape", (n,), shape, n.dtype, (), (("shape", shape),))
    if is_traced(n):
        return make("reshape", (n,), shape, n.dtype, (), (("shape", shape),))
    a = in_memory(n)
    if n.is_foreign:
        a = a.copyto(empty(a.shape, a.dtype, a.device))
        made = leaf(NDArray(a.storage, a.address, shape, a.dtype))
    else:
        made = leaf(NDArray(a.storage, a.address, shape, a.dtype), beside=n)
    if RECORDERS:
        note("reshape", made, (n,))
    return made


def transpose(n: Node, perm: tuple[int, ...]) -> Node:
    if perm == tuple(range(len(perm))):
        return n
    if is_complex(n):
        return _on_parts(lambda p: transpose(p, perm), n)
    shape = tuple([n.shape[p] for p in perm])
    return make("transpose", (n,), shape, n.dtype, (("perm", perm),))


def slices(n: Node, starts: Shape, steps: Shape, sizes: Shape) -> Node:
    """Element k of each dimension is start + k * step."""
    if sizes == n.shape and all(s == 1 for s in steps):
        return n
    if is_complex(n):
        return _on_parts(lambda p: slices(p, starts, steps, sizes), n)
    ints = (("starts", starts), ("sizes", sizes))
    return make("slice", (n,), sizes, n.dtype, (("steps", steps),), ints)


def narrow(n: Node, axis: int, first: int, count: int) -> Node:
    """`count` neighbours along an axis, all of the other dimensions."""
    starts, sizes = [0] * len(n.shape), list(n.shape)
    starts[axis], sizes[axis] = first, count
    return slices(n, tuple(starts), (1,) * len(n.shape), tuple(sizes))


def concat(nodes: Sequence[Node], axis: int) -> Node:
    """`nodes` of one type, equal but along the axis."""
    rows = [n for n in nodes if n.shape[axis]] or [nodes[0]]
    if len(rows) == 1:
        return rows[0]
    if is_complex(rows[0]):
        return boundary(_on_parts(lambda *p: concat(p, axis), *rows))
    size = sum(n.shape[axis] for n in rows)
    shape = (*rows[0].shape[:axis], size, *rows[0].shape[axis + 1 :])
    # A size that is a sum is no size of any input: what reads the result reads it from memory.
    return boundary(make("concat", tuple(rows), shape, rows[0].dtype, (("axis", axis),)))


def gather(n: Node, index: Node, axis: int) -> Node:
    """Slices along an axis, picked by an index of any shape."""
    if is_complex(n):
        return _on_parts(lambda p: gather(boundary(p), index, axis), n)
    shape = n.shape[:axis] + index.shape + n.shape[axis + 1 :]
    return make("gather", (n, index), shape, n.dtype, (("axis", axis),))


def gather_elements(n: Node, index: Node, axis: int) -> Node:
    if is_complex(n):
        return _on_parts(lambda p: gather_elements(boundary(p), index, axis), n)
    return make("gather_elements", (n, index), index.shape, n.dtype, (("axis", axis),))


def gather_points(n: Node, points: Node) -> Node:
    """Elements (or slices) at points, whose parts are the last dimension of `points`."""
    if is_complex(n):
        return _on_parts(lambda p: gather_points(boundary(p), points), n)
    return make("gather_nd", (n, points), points.shape[:-1] + n.shape[points.shape[-1] :], n.dtype)


def scatter_points(n: Node, points: Node, updates: Node) -> Node:
    """`n` with `updates` at points."""
    if is_complex(n):
        return _on_parts(lambda p, u: scatter_points(boundary(p), points, boundary(u)), n, updates)
    return make("scatter_nd", (boundary(n), points, boundary(updates)), n.shape, n.dtype, (("reduction", "none"),))


def matmul(a: Node, b: Node, shape: Shape, out: Attrs = ()) -> Node:
    """The product of the last two dimensions; of complex ones four products of parts."""
    if not is_complex(a):
        return make("matmul", (a, b), shape, a.dtype, out)
    (p, q), (r, s) = parts(a), parts(b)
    real = binary("subtract", matmul(p, r, shape), matmul(q, s, shape))
    return joined(real, binary("add", matmul(p, s, shape), matmul(q, r, shape)))


def boundary(n: Node) -> Node:
    """The node, computed: what is made of it begins another expression."""
    if n.data is None and not is_traced(n):
        in_memory(n)
    return n


def copy(n: Node) -> Node:
    """The same value in memory of its own."""
    if is_traced(n):
        return unary("identity", n)
    a = in_memory(n)
    made = leaf(a.copyto(empty(a.shape, a.dtype, a.device)))
    if RECORDERS:
        note("identity", made, (n,))
    return made


def value(n: Node, decides: bool = True) -> Any:
    """The one element as a Python number. Waits for the device. Those who write a program down hear of it where it `decides` what comes next."""
    if decides:
        look_at(n)
    a = in_memory(n)
    if prod(a.shape) != 1:
        raise ArrayTypeError(
            f"an array of shape {n.shape} has no one value",
            hint="x.item() and bool(x) take one element; write tec.array.any(x) or all(x)",
        )
    return a.numpy().item()
