"""ONNX operators that move elements or make tensors: shapes, slices, gathers, scatters, padding, constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.slices import bounded_slice
from tec.graph.fold_sizes import fraction_of
from tec.ops.dims import Dim, UndecidedSize, as_size, bind_hint, is_symbolic, maximum, require
from tec.ops.registry import broadcast_shapes, unfit

from . import reader
from .importer import Call, Outputs, onnx_op

# ---- constants


@onnx_op("Constant")
def constant(c: Call) -> Value:
    for name, value in c.attrs.items():
        if name in ("value", "sparse_value"):
            array = np.asarray(value)
        elif name == "value_float":
            array = np.float32(value)
        elif name == "value_int":
            array = np.int64(value)
        elif name == "value_floats":
            array = np.array(value, np.float32)
        elif name == "value_ints":
            array = np.array(value, np.int64)
        elif name in ("value_string", "value_strings"):
            array = np.array(value, dtype=object)
        else:
            continue
        return c.graph.constant(array, "const", "string" if array.dtype == object else None)
    raise ImportModelError(
        "a Constant without a value",
        hint="set one of the attributes value, value_int, value_ints, value_float, value_floats, value_string, value_strings and sparse_value",
    )


@onnx_op("ConstantOfShape")
def constant_of_shape(c: Call) -> Value:
    shape = c.ints(0)
    if any(n < 0 for n in shape):
        raise ImportModelError(
            f"shape {shape} has a negative dimension",
            hint="sizes are 0 or more: check the node that computes the shape",
        )
    value = np.asarray(c.attr("value", np.zeros(1, np.float32))).reshape(-1)[0]
    if is_symbolic(shape):
        return c.broadcast(c.const(value), shape)
    reader.check_bytes("a constant", shape, value.dtype.itemsize)
    return c.const(np.broadcast_to(value, shape))


@onnx_op("EyeLike")
def eye_like(c: Call) -> Value:
    dtype = reader.dtype_name(c.attr("dtype")) if "dtype" in c.attrs else c[0].dtype
    if not is_symbolic(c[0].shape):
        reader.check_bytes("a unit matrix", c[0].shape)
    return c.eye(c[0].shape, dtype, c.attr("k", 0))


def _count(lo: Any, hi: Any, step: Any) -> Any:
    """How many numbers a Range has: the least not below (hi - lo) / step. Floats count as the fractions that they stand for."""
    parts = [v if isinstance(v, Dim) else fraction_of(v) for v in (lo, hi, step)]
    if isinstance(parts[2], Dim):
        if not all(isinstance(p, Dim) or p.denominator == 1 for p in parts[:2]):
            raise UndecidedSize(f"a Range from {lo} to {hi} by {step}", hint=bind_hint(step))
        lo, hi, step = (p if isinstance(p, Dim) else p.numerator for p in parts)
        return maximum((hi - lo + step - (1 if step > 0 else -1)) // step, 0)
    if parts[2] == 0:
        raise ImportModelError("a Range by steps of 0", hint="give a delta other than 0")
    whole = math.lcm(*(p.denominator for p in parts if not isinstance(p, Dim)))
    lo, hi, step = (p * whole if isinstance(p, Dim) else int(p * whole) for p in parts)
    if step < 0:
        lo, hi, step = -lo, -hi, -step
    return maximum((hi - lo + step - 1) // step, 0)


@onnx_op("Range")
def range_(c: Call) -> Value:
    start, limit = (np.asarray(c.array(k)).reshape(()) for k in range(2))
    # com.microsoft's may leave the step out.
    delta = np.ones((), start.dtype) if c.domain and not c.has(2) else np.asarray(c.array(2)).reshape(())
    if is_symbolic([v.item() for v in (start, limit, delta)]):
        lo, hi, step = (v.item() for v in (start, limit, delta))
        n = _count(lo, hi, step)
        return c.op("iota", size=n, start=lo, step=step, dtype=c[0].dtype)
    count = max(math.ceil((limit - start) / delta), 0)
    reader.check_bytes("a Range", [count])
    return c.const(start + np.arange(count).astype(start.dtype) * delta, c[0].dtype)


# ---- shapes


@onnx_op("Shape")
def shape(c: Call) -> Value:
    dims = c[0].shape
    n = len(dims)
    start, end = c.attr("start", 0), c.attr("end", n)
    start, end = (min(max(v + n if v < 0 else v, 0), n) for v in (start, end))
    return c.graph.sizes(np.array(dims[start : max(end, start)], object))


@onnx_op("Size")
def size(c: Call) -> Value:
    return c.graph.sizes(np.array(c[0].type.size, object))


@onnx_op("Reshape")
def reshape(c: Call) -> Value:
    x = c[0]
    want = list(c.attr("shape")) if c.opset < 5 else c.ints(1)
    if not c.attr("allowzero", 0):
        want = [x.shape[k] if n == 0 and k < x.ndim else n for k, n in enumerate(want)]
    if want.count(-1) > 1 or any(n < -1 for n in want):
        raise ImportModelError(
            f"shape {want} has more than one unknown dimension",
            hint="one -1 at most, and no other number below 0; a 0 keeps the input's size at its place",
        )
    if -1 in want:
        rest = math.prod(n for n in want if n != -1)
        if is_symbolic([rest, x.type.size]):
            have, known = list(x.shape), [n for n in want if n != -1]
            for n in [n for n in known if isinstance(n, Dim) and n in have]:  # a sum of sizes divides itself
                have.remove(n)
                known.remove(n)
            whole = as_size(math.prod(have)) // math.prod(known)
            rest = math.prod(have) - whole * math.prod(known)
            if rest != 0 and not require(rest, "<=", 0, f"{x.type} takes the shape {want}"):
                raise ImportModelError(
                    f"{x.type} cannot take the shape {want}",
                    hint=f"the sizes must multiply to {x.type.size}; a -1 stands for the size that is left over",
                )
            want[want.index(-1)] = whole
            return c.reshape(x, want)
        if rest == 0 or x.type.size % rest:
            raise ImportModelError(
                f"{x.type} cannot take the shape {want}",
                hint=f"the sizes must multiply to {x.type.size}; a -1 stands for the size that is left over",
            )
        want[want.index(-1)] = x.type.size // rest
    return _reshaped(c, x, want)


def _reshaped(c: Call, x: Value, shape: Sequence[int]) -> Value:
    if x.is_const and math.prod(shape) == x.type.size:
        return c.graph.constant(np.reshape(x.data, tuple(shape)), "reshape", x.dtype)
    return c.reshape(x, shape)


@onnx_op("Flatten")
def flatten(c: Call) -> Value:
    x = c[0]
    axis = c.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return c.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@onnx_op("Squeeze")
def squeeze(c: Call) -> Value:
    x = c[0]
    axes = c.ints(1) if c.opset >= 13 and c.has(1) else c.attr("axes")
    if axes is None:
        # A symbolic size may turn out to be 1; the network is then one of another rank, so it asks for more.
        what = f"Squeeze {c.node.name or c.node.output[0]!r} without axes keeps dimensions that are not 1"
        chosen = [k for k, n in enumerate(x.shape) if n == 1]
        for n in x.shape:
            if is_symbolic(n) and not require(2, "<=", n, what):
                raise UndecidedSize(f"{what}, and {n} is below 2", hint=bind_hint(n))
    else:
        chosen = [axis_of(a, x.ndim) for a in axes]
    for a in chosen:
        if x.shape[a] != 1:
            raise unfit(
                f"dimension {a} of {x.type} is not 1",
                (x.shape[a], 1),
                hint="Squeeze takes axes of size 1: correct axes, or leave them out for all of size 1",
            )
    return _reshaped(c, x, [n for k, n in enumerate(x.shape) if k not in chosen])


@onnx_op("Unsqueeze")
def unsqueeze(c: Call) -> Value:
    x = c[0]
    axes = c.ints(1) if c.opset >= 13 else c.attr("axes")
    ndim = x.ndim + len(axes)
    places = {axis_of(a, ndim) for a in axes}
    if len(places) != len(axes):
        raise ImportModelError(
            f"axes {axes} of Unsqueeze repeat one", hint=f"each of the new axes once, from {-ndim} to {ndim - 1}"
        )
    rest = iter(x.shape)
    return _reshaped(c, x, [1 if k in places else next(rest) for k in range(ndim)])


@onnx_op("Transpose")
def transpose(c: Call) -> Value:
    x = c[0]
    return c.transpose(x, c.attr("perm", list(range(x.ndim))[::-1]))


@onnx_op("Expand")
def expand(c: Call) -> Value:
    return c.broadcast(c[0], broadcast_shapes(c[0].shape, c.ints(1)))


@onnx_op("Tile")
def tile(c: Call) -> Value:
    return c.op("tile", c[0], repeats=tuple(c.ints(1)))


@onnx_op("DepthToSpace")
def depth_to_space(c: Call) -> Value:
    x, b = c[0], c.attr("blocksize")
    n, ch, h, w = x.shape
    if c.attr("mode", "DCR") == "DCR":
        y = c.transpose(c.reshape(x, (n, b, b, ch // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = c.transpose(c.reshape(x, (n, ch // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return c.reshape(y, (n, ch // (b * b), h * b, w * b))


@onnx_op("SpaceToDepth")
def space_to_depth(c: Call) -> Value:
    x, b = c[0], c.attr("blocksize")
    n, ch, h, w = x.shape
    y = c.reshape(x, (n, ch, h // b, b, w // b, b))
    perm = (0, 3, 5, 1, 2, 4) if c.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return c.reshape(c.transpose(y, perm), (n, ch * b * b, h // b, w // b))


# ---- concat, split, slice, pad


@onnx_op("Concat")
def concat(c: Call) -> Value:
    values = [c[k] for k in range(len(c.inputs))]
    return c.concat(values, c.attr("axis", 1))


@onnx_op("Split")
def split(c: Call) -> Outputs:
    x = c[0]
    axis = axis_of(c.attr("axis", 0), x.ndim)
    n = x.shape[axis]
    sizes = c.ints(1) if c.opset >= 13 and c.has(1) else c.attr("split")
    if sizes is None:
        parts = c.attr("num_outputs", c.num_outputs)
        if parts != c.num_outputs:
            raise ImportModelError(
                f"num_outputs {parts} of a Split with {c.num_outputs} outputs",
                hint="num_outputs is the number of the node's outputs: name an output for each part",
            )
        step = -(-n // parts)
        sizes = [min(step, max(n - k * step, 0)) for k in range(parts)]
    if sum(sizes) != n:
        raise ImportModelError(f"split of {x.type} along {axis} into {sizes}", hint=f"the parts must add up to {n}")
    return Outputs(c.split(x, axis, sizes))


@onnx_op("Slice")
def slice_(c: Call) -> Value:
    """Slices of any opset; along a symbolic extent, with bounds that may be expressions."""
    x = c[0]
    if c.opset < 10:
        starts, ends = c.attr("starts"), c.attr("ends")
        axes, steps = c.attr("axes"), None
    else:
        starts, ends = c.ints(1), c.ints(2)
        axes, steps = c.ints(3) if c.has(3) else None, c.ints(4) if c.has(4) else None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    begin, stride, count = [0] * x.ndim, [1] * x.ndim, list(x.shape)
    for a, lo, hi, s in zip(axes, starts, ends, steps):
        a = axis_of(a, x.ndim)
        if s == 0:
            raise ImportModelError("a slice with step 0", hint="a step of 1 keeps every element, -1 reverses")
        begin[a], stride[a], count[a] = bounded_slice(x.shape[a], lo, hi, s, c.node.name or c.node.output[0])
        if not is_symbolic(count[a]) and not count[a]:
            begin[a] = 0
    if begin == [0] * x.ndim and stride == [1] * x.ndim and count == list(x.shape):
        return x
    return c.op("slice", x, starts=tuple(begin), steps=tuple(stride), sizes=tuple(count))


@onnx_op("Pad")
def pad(c: Call) -> Value:
    x = c[0]
    mode = c.attr("mode", "constant")
    fill: list[Value] = []
    attrs: dict[str, Any] = {"mode": mode}
    if c.opset < 11:
        pads = c.attr("pads", c.attr("paddings"))
        attrs["value"] = c.attr("value", 0.0)
        axes = list(range(x.ndim))
    else:
        pads = c.ints(1)
        axes = [axis_of(a, x.ndim) for a in c.ints(3)] if c.has(3) else list(range(x.ndim))
        if c.has(2) and mode == "constant":
            if c[2].is_const and c[2].type.size == 1 and np.asarray(c[2].data).dtype.kind in "fiu":
                attrs["value"] = np.asarray(c[2].data).reshape(-1)[0].item()
            else:
                fill = [c.cast(c.reshape(c[2], ()), x.dtype)]
    before, after = [0] * x.ndim, [0] * x.ndim
    for k, a in enumerate(axes):
        before[a], after[a] = as_size(pads[k]), as_size(pads[k + len(axes)])
    if all(n == 0 for n in (*before, *after)):
        return x
    return c.op("pad", x, *fill, before=tuple(before), after=tuple(after), **attrs)


# ---- gather, scatter


@onnx_op("Gather")
def gather(c: Call) -> Value:
    x, index = c[0], c[1]
    axis = axis_of(c.attr("axis", 0), x.ndim)
    if index.is_const and index.ndim == 0 and not x.is_const:
        k = int(index.data)
        n = x.shape[axis]
        if not (require(-n, "<=", k, f"index {k}") and require(k, "<", n, f"index {k}")):
            raise ImportModelError(
                f"index {k} is outside of dimension {axis} of {x.type}",
                hint=f"indices go from {-n} to {n - 1}"
                if isinstance(n, int)
                else "check the size of that dimension, or the index",
            )
        return c.squeeze(c.slice(x, axis, k % n, 1), axis)
    if index.is_const:
        data = np.asarray(index.data)
        n = x.shape[axis]
        where = f"indices of node {c.node.name or c.node.output[0]!r}"
        if data.size and not (require(-n, "<=", int(data.min()), where) and require(int(data.max()), "<", n, where)):
            raise ImportModelError(
                f"indices {data.min()} to {data.max()} leave dimension {axis} of {x.type}",
                hint=f"indices go from {-n} to {n - 1}"
                if isinstance(n, int)
                else "check the size of that dimension, or the indices",
            )
    return c.op("gather", x, index, axis=axis)


@onnx_op("GatherElements")
def gather_elements(c: Call) -> Value:
    return c.op("gather_elements", c[0], c[1], axis=axis_of(c.attr("axis", 0), c[0].ndim))


@onnx_op("GatherND")
def gather_nd(c: Call) -> Value:
    return c.op("gather_nd", c[0], c[1], batch_dims=c.attr("batch_dims", 0))


@onnx_op("Scatter", "ScatterElements")
def scatter_elements(c: Call) -> Value:
    axis = axis_of(c.attr("axis", 0), c[0].ndim)
    return c.op("scatter_elements", c[0], c[1], c[2], axis=axis, reduction=c.attr("reduction", "none"))


@onnx_op("ScatterND")
def scatter_nd(c: Call) -> Value:
    x, index, update = c[0], c[1], c[2]
    if index.ndim and is_symbolic(index.shape[-1]):
        # How many dimensions an index names follows from what is left of them in the updates.
        named = x.ndim + index.ndim - 1 - update.ndim
        raise unfit(
            f"ScatterND of {update.type} by {index.type} into {x.type}",
            (index.shape[-1], named),
            hint="updates have the indices' dimensions but the last, and those of the data that an index does not name",
        )
    return c.op("scatter_nd", x, index, update, reduction=c.attr("reduction", "none"))


@onnx_op("TensorScatter")
def tensor_scatter(c: Call) -> Value:
    """Writes `update` into a cache along `axis`, from a place of its own for each batch entry; circular mode wraps."""
    cache, update = c[0], c[1]
    axis = axis_of(c.attr("axis", -2), cache.ndim)
    batch, n, length = cache.shape[0], cache.shape[axis], update.shape[axis]
    place, entries = c.reshape(c.count(length), (1, length)), 1
    if c.has(2):
        place, entries = c.op("add", c.reshape(c.cast(c[2], "int64"), (batch, 1)), place), batch
    if c.attr("mode", "linear") == "circular":
        place = c.op("floor_mod", place, c.graph.sizes(np.array(n, object)))
    shape = [1] * cache.ndim
    shape[0], shape[axis] = entries, length
    index = c.broadcast(c.reshape(place, shape), update.shape)
    return c.op("scatter_elements", cache, index, update, axis=axis, reduction="none")


@onnx_op("OneHot")
def one_hot(c: Call) -> Value:
    depth = int(np.asarray(c.array(1)).reshape(-1)[0])
    return c.op("one_hot", c.cast(c[0], "int64"), c[2], depth=depth, axis=c.attr("axis", -1))


@onnx_op("Trilu")
def trilu(c: Call) -> Value:
    k = int(np.asarray(c.array(1)).reshape(-1)[0]) if c.has(1) else 0
    return c.op("trilu", c[0], k=k, upper=bool(c.attr("upper", 1)))


@onnx_op("ReverseSequence")
def reverse_sequence(c: Call) -> Value:
    batch, time = c.attr("batch_axis", 1), c.attr("time_axis", 0)
    lengths = c.within(c[1], c[0].shape[time], "a length of a sequence")
    return c.op("reverse_sequence", c[0], lengths, batch_axis=batch, time_axis=time)


@onnx_op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(c: Call) -> Value:
    x = c[0]
    y = c.op("gather", x, c.reshape(c[1], (c[1].type.size,)), axis=x.ndim - 1)
    return c.reshape(y, (1, y.shape[0])) if x.ndim == 1 else y


@onnx_op("Col2Im")
def col2im(c: Call) -> Value:
    """Columns of windows added up into an image: a transposed convolution with one-hot weights."""
    x = c[0]
    image, block = c.ints(1), c.ints(2)
    nd = len(image)
    dil, st = c.attr("dilations", [1] * nd), c.attr("strides", [1] * nd)
    pads = c.attr("pads", [0] * 2 * nd)
    window = math.prod(block)
    channels = x.shape[1] // window
    space = [(n + pads[k] + pads[k + nd] - dil[k] * (block[k] - 1) - 1) // st[k] + 1 for k, n in enumerate(image)]
    cols = c.reshape(x, (x.shape[0] * channels, window, *space))
    weights = c.const(np.eye(window).reshape(window, 1, *block), x.dtype)
    y = c.op(
        "conv_transpose",
        cols,
        weights,
        strides=tuple(st),
        dilations=tuple(dil),
        before=tuple(pads[:nd]),
        out_space=tuple(image),
        groups=1,
    )
    return c.reshape(y, (x.shape[0], channels, *image))
