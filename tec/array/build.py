"""Making nodes: one function an operator, with the type and shape that it gives. Everything here is written down, and nothing computed.

What has no elements is there at once, so that no expression reads an empty value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..runtime.arrays.ndarray import NDArray, empty
from ..runtime.devices.device import Device
from . import dtypes
from .computing import cut, in_memory
from .dtypes import DType
from .errors import ArrayTypeError, ArrayValueError
from .forms import Attrs, form_of
from .node import MOST_NODES, Node, attributes, broadcast_shapes, leaf, scalar

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
    if sum([n.weight for n in inputs]) >= MOST_NODES:
        cut(inputs)
    return Node(form_of(op, tuple([n.form for n in inputs]), shape, dtype, where, attrs, ints, out), inputs)


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
        raise ArrayValueError(f"{what}: shapes {', '.join(str(n.shape) for n in nodes)} do not broadcast")
    return found


# ---- element by element


def cast(n: Node, dtype: DType) -> Node:
    if n.dtype == dtype:
        return n
    if dtype == "bool":
        return binary("not_equal", n, scalar(0, n.dtype, n.device), dtypes.bool)
    return make("cast", (n,), n.shape, dtype, (("dtype", str(dtype)),))


def unary(op: str, n: Node, dtype: DType | None = None, attrs: Attrs = ()) -> Node:
    return make(op, (n,), n.shape, dtype or n.dtype, attrs)


def binary(op: str, a: Node, b: Node, dtype: DType | None = None) -> Node:
    one_device((a, b))
    shape = a.shape if a.shape == b.shape else common_shape((a, b), op)
    return make(op, (a, b), shape, dtype or a.dtype)


def where(cond: Node, a: Node, b: Node) -> Node:
    one_device((cond, a, b))
    return make("where", (cond, a, b), common_shape((cond, a, b), "where"), a.dtype)


def broadcast_to(n: Node, shape: Shape) -> Node:
    if n.shape == shape:
        return n
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
    return make(f"reduce_{op}", (n,), shape, n.dtype, (("axes", axes), ("keepdims", keepdims)))


def best(op: str, n: Node, axis: int, keepdims: bool) -> Node:
    """argmax or argmin along an axis."""
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
    if n.data is None and [k for k in n.shape if k != 1] == [k for k in shape if k != 1]:
        return make("reshape", (n,), shape, n.dtype, (), (("shape", shape),))
    a = in_memory(n)
    if n.is_foreign:
        a = a.copyto(empty(a.shape, a.dtype, a.device))
        return leaf(NDArray(a.storage, a.address, shape, a.dtype))
    return leaf(NDArray(a.storage, a.address, shape, a.dtype), beside=n)


def transpose(n: Node, perm: tuple[int, ...]) -> Node:
    if perm == tuple(range(len(perm))):
        return n
    shape = tuple([n.shape[p] for p in perm])
    return make("transpose", (n,), shape, n.dtype, (("perm", perm),))


def slices(n: Node, starts: Shape, steps: Shape, sizes: Shape) -> Node:
    """Element k of each dimension is start + k * step."""
    if sizes == n.shape and all(s == 1 for s in steps):
        return n
    ints = (("starts", starts), ("sizes", sizes))
    return make("slice", (n,), sizes, n.dtype, (("steps", steps),), ints)


def concat(nodes: Sequence[Node], axis: int) -> Node:
    """`nodes` of one type, equal but along the axis."""
    parts = [n for n in nodes if n.shape[axis]] or [nodes[0]]
    if len(parts) == 1:
        return parts[0]
    size = sum(n.shape[axis] for n in parts)
    shape = (*parts[0].shape[:axis], size, *parts[0].shape[axis + 1 :])
    # A size that is a sum is no size of any input: what reads the result reads it from memory.
    return boundary(make("concat", tuple(parts), shape, parts[0].dtype, (("axis", axis),)))


def gather(n: Node, index: Node, axis: int) -> Node:
    """Slices along an axis, picked by an index of any shape."""
    shape = n.shape[:axis] + index.shape + n.shape[axis + 1 :]
    return make("gather", (n, index), shape, n.dtype, (("axis", axis),))


def gather_elements(n: Node, index: Node, axis: int) -> Node:
    return make("gather_elements", (n, index), index.shape, n.dtype, (("axis", axis),))


def boundary(n: Node) -> Node:
    """The node, computed: what is made of it begins another expression."""
    if n.data is None:
        in_memory(n)
    return n


def copy(n: Node) -> Node:
    """The same value in memory of its own."""
    a = in_memory(n)
    return leaf(a.copyto(empty(a.shape, a.dtype, a.device)))


def value(n: Node) -> Any:
    """The one element as a Python number. Waits for the device."""
    a = in_memory(n)
    if prod(a.shape) != 1:
        raise ArrayTypeError(
            f"an array of shape {n.shape} has no one value",
            hint="x.item() and bool(x) take one element; write tec.array.any(x) or all(x)",
        )
    return a.numpy().item()
