"""Running sums and products, and the largest elements in order.

For a target they are loops: a running sum of n elements is n additions (on a GPU by chunks, whose sums are summed in turn), the
k largest are a heap's work on a CPU, n log k, and a bitonic sort's on a GPU, n log^2 n. In te each is a reduction an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..target import Target
from ..te import Tensor
from . import loops
from .dims import require
from .registry import OPAQUE, Attrs, TensorType, fail, normalize_axis, register, static_shape

_WIDE = {"float16": "float32", "bfloat16": "float32"}
CHUNK = 256  # elements that one GPU thread sums one after another
SMALL = 512  # elements of a line up to which a GPU counts ranks instead of sorting


# ---- running sums


def _cumulate_host(product: bool) -> Any:
    def host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
        x = np.asarray(arrays[0])
        axis = normalize_axis(attrs["axis"], x.ndim)
        wide = np.dtype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x.dtype
        y = np.flip(x, axis) if attrs.get("reverse", False) else x
        f = np.cumprod if product else np.cumsum
        y = f(y.astype(wide), axis=axis, dtype=wide)
        if attrs.get("exclusive", False):
            first = np.full([1 if k == axis else n for k, n in enumerate(x.shape)], 1 if product else 0, wide)
            y = np.concatenate([first, y], axis)[tuple(slice(0, n) for n in x.shape)]
        return [(np.flip(y, axis) if attrs.get("reverse", False) else y).astype(x.dtype)]

    return host


def _cumulate(name: str, reducer: Any, product: bool) -> None:
    identity = 1 if product else 0

    def compute(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
        x = inputs[0]
        axis = normalize_axis(attrs["axis"], x.ndim)
        strict, back = bool(attrs.get("exclusive", False)), bool(attrs.get("reverse", False))
        target = loops.code_target(x)
        if target is not None:
            return _running(name, x, axis, product, strict, back, target)
        n = static_shape(x)[axis]
        k = te.reduce_axis((0, n), "k")
        wide = _WIDE.get(x.dtype, x.dtype)

        def body(*i: Any) -> Any:
            a, b = (i[axis], k) if back else (k, i[axis])
            return reducer(x(*i[:axis], k, *i[axis + 1 :]).astype(wide), axis=k, where=a < b if strict else a <= b)

        y = te.compute(x.shape, body, name=name)
        return [y if wide == x.dtype else te.compute(x.shape, lambda *i: y(*i).astype(x.dtype), name=f"{name}_cast")]

    compute.__doc__ = (
        f"The running {'product' if product else 'sum'} along `axis` (of `x`, n elements {identity} at first); `exclusive` leaves the element "
        "itself out, `reverse` runs from the end."
    )
    host = _cumulate_host(product)
    register(name, OPAQUE, lambda types, attrs: [types[0]], flops=lambda types, outs, attrs: types[0].size, host=host)(
        compute
    )


def _running(name: str, x: Tensor, axis: int, product: bool, strict: bool, back: bool, target: Target) -> list[Tensor]:
    shape, dtype = static_shape(x), x.dtype
    lines = loops.Lines(shape, axis)
    wide = _WIDE.get(dtype, dtype)
    n = lines.n

    def both(a: Any, b: Any) -> Any:
        return a * b if product else a + b

    def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
        (src,), (dst,) = sources, results
        one = te.const(1 if product else 0, wide)

        def place(line: Any, k: Any) -> tuple[Any, ...]:
            return lines.at(line, n - 1 - k if back else k)

        def write(line: Any, begin: Any, count: Any, acc: Any) -> None:
            with ib.for_range(0, count, "k") as k:
                at = place(line, begin + k)
                value = src[at].astype(wide)
                if strict:
                    following = ib.let("following", both(acc[0], value))
                    dst[at] = acc[0].astype(dtype)
                    acc[0] = following
                else:
                    acc[0] = both(acc[0], value)
                    dst[at] = acc[0].astype(dtype)

        if not target.is_gpu or n <= 2 * CHUNK or lines.count >= 4096:
            with loops.each(ib, target, lines.count, "line") as line:
                write(line, 0, n, loops.scalar(ib, wide, "acc", one))
            return
        # Sums of chunks, of chunks of chunks, ... until a line of them is short; then each level starts from the one above.
        counts: list[int] = []
        while (counts[-1] if counts else n) > CHUNK:
            counts.append(-(-(counts[-1] if counts else n) // CHUNK))
        levels = [ib.allocate(wide, (lines.count * c,), f"sums{k}") for k, c in enumerate(counts)]
        for k, (level, c) in enumerate(zip(levels, counts)):
            length = n if k == 0 else counts[k - 1]
            with loops.each(ib, target, lines.count * c) as e:
                line, chunk = te.indexdiv(e, c), te.indexmod(e, c)
                acc = loops.scalar(ib, wide, "acc", one)
                with ib.for_range(0, te.min(CHUNK, length - chunk * CHUNK), "j") as j:
                    i = chunk * CHUNK + j
                    acc[0] = both(
                        acc[0], src[place(line, i)].astype(wide) if k == 0 else levels[k - 1][line * length + i]
                    )
                level[e] = acc[0]
        for k in reversed(range(len(levels))):
            length = counts[k]
            parts = counts[k + 1] if k + 1 < len(counts) else 1
            with loops.each(ib, target, lines.count * parts) as e:
                line, chunk = te.indexdiv(e, parts), te.indexmod(e, parts)
                acc = loops.scalar(ib, wide, "acc", levels[k + 1][e] if k + 1 < len(levels) else one)
                size = te.min(CHUNK, length - chunk * CHUNK) if parts > 1 else length
                with ib.for_range(0, size, "j") as j:
                    i = line * length + chunk * CHUNK + j
                    following = ib.let("following", both(acc[0], levels[k][i]))
                    levels[k][i] = acc[0]
                    acc[0] = following
        c = counts[0]
        with loops.each(ib, target, lines.count * c) as e:
            line, chunk = te.indexdiv(e, c), te.indexmod(e, c)
            write(line, chunk * CHUNK, te.min(CHUNK, n - chunk * CHUNK), loops.scalar(ib, wide, "acc", levels[0][e]))

    return loops.extern(name, [x], [(shape, dtype)], body)


_cumulate("cumsum", te.sum, False)
_cumulate("cumprod", te.prod, True)


# ---- the largest in order


def _topk_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x = types[0]
    axis = normalize_axis(attrs["axis"], x.ndim)
    if attrs["k"] < 0 or not require(attrs["k"], "<=", x.shape[axis], "the first along an axis"):
        raise fail(f"the first {attrs['k']} along axis {axis} of {x}")
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


@register("topk", OPAQUE, _topk_type, host=_topk_host)
def _topk(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The `k` largest (`largest`) or smallest elements along `axis` in order, and their indices; of equals the first comes first.

    NaN is above every number. In te by rank: an element's place is the number of elements that come before it.
    """
    x, out = inputs[0], outputs[0]
    axis, largest = normalize_axis(attrs["axis"], x.ndim), bool(attrs.get("largest", True))
    n = static_shape(x)[axis]
    target = loops.code_target(x, *outputs)
    if target is not None and not (target.is_gpu and n <= SMALL):
        make = _sorted if target.is_gpu else _heaps
        return make(x, axis, attrs["k"], largest, out, target)
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
    return [values, te.compute(out.shape, lambda *i: where(*i).astype("int64"), name="topk_index")]


def _heaps(x: Tensor, axis: int, k: int, largest: bool, out: TensorType, target: Target) -> list[Tensor]:
    """A heap of the k best of each line, the worst of them on top; then sorted in place, the worst to the end first."""
    dtype = x.dtype
    lines, kept = loops.Lines(static_shape(x), axis), loops.Lines(out.shape, axis)
    n = lines.n

    def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
        (src,), (values, index) = sources, results

        def better(a: Any, i: Any, b: Any, j: Any) -> Any:
            # In steps: one large condition is slow to simplify.
            u, v = ib.let("u", a), ib.let("v", b)
            first = ib.let("first", above(u, v, dtype) if largest else above(v, u, dtype))
            same, sooner = ib.let("same", alike(u, v, dtype)), ib.let("sooner", i < j)
            return te.any(first, te.all(same, sooner))

        with loops.each(ib, target, lines.count, "line") as line:
            top = ib.allocate(dtype, (1,), "top", scope="local")
            which = ib.allocate("int64", (1,), "which", scope="local")
            at = ib.allocate("int32", (1,), "at", scope="local")
            child = ib.allocate("int32", (1,), "child", scope="local")

            def sift(root: Any, size: Any) -> None:
                """`top`, `which` goes down from `root` until both children are better."""
                at[0] = root
                child[0] = root * 2 + 1
                with ib.while_loop(child[0] < size):
                    with ib.if_scope(child[0] + 1 < size):
                        a, b = kept.at(line, child[0]), kept.at(line, child[0] + 1)
                        with ib.if_scope(better(values[a], index[a], values[b], index[b])):
                            child[0] = child[0] + 1
                    c = kept.at(line, child[0])
                    with ib.if_scope(better(top[0], which[0], values[c], index[c])):
                        h = kept.at(line, at[0])
                        values[h] = values[c]
                        index[h] = index[c]
                        at[0] = child[0]
                        child[0] = at[0] * 2 + 1
                    with ib.else_scope():
                        child[0] = size
                h = kept.at(line, at[0])
                values[h] = top[0]
                index[h] = which[0]

            with ib.for_range(0, k, "j") as j:
                h = kept.at(line, j)
                values[h] = src[lines.at(line, j)]
                index[h] = j.astype("int64")
            with ib.for_range(0, k // 2, "r") as r:
                h = kept.at(line, k // 2 - 1 - r)
                top[0] = values[h]
                which[0] = index[h]
                sift(k // 2 - 1 - r, k)
            if k < n:
                worst = kept.at(line, 0)
                with ib.for_range(k, n, "j") as j:
                    top[0] = src[lines.at(line, j)]
                    which[0] = j.astype("int64")
                    with ib.if_scope(better(top[0], which[0], values[worst], index[worst])):
                        sift(0, k)
            with ib.for_range(0, k - 1, "e") as e:
                last, first = kept.at(line, k - 1 - e), kept.at(line, 0)
                top[0] = values[last]
                which[0] = index[last]
                values[last] = values[first]
                index[last] = index[first]
                sift(0, k - 1 - e)

    return loops.extern("topk", [x], [(out.shape, dtype), (out.shape, "int64")], body)


def _sorted(x: Tensor, axis: int, k: int, largest: bool, out: TensorType, target: Target) -> list[Tensor]:
    """A bitonic sort of each line, padded to a power of two: what is beyond the line comes last."""
    dtype = x.dtype
    lines, kept = loops.Lines(static_shape(x), axis), loops.Lines(out.shape, axis)
    n = lines.n
    steps = (n - 1).bit_length()
    size = 1 << steps

    def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
        (src,), (values, index) = sources, results
        key = ib.allocate(dtype, (lines.count * size,), "key")
        which = ib.allocate("int32", (lines.count * size,), "which")
        with loops.each(ib, target, lines.count * size) as e:
            line, p = te.indexdiv(e, size), te.indexmod(e, size)
            which[e] = p
            # What is beyond the line has the largest numbers, and stays behind by them.
            key[e] = te.if_then_else(p < n, src[lines.at(line, te.min(p, n - 1))], te.const(0, dtype))
        with ib.for_range(0, steps, "run") as run, ib.for_range(0, run + 1, "step") as step:
            with loops.each(ib, target, lines.count * size // 2) as e:
                apart = te.const(1, "int32") << (run - step)
                low = te.indexmod(e, apart)
                a = (e - low) * 2 + low
                b = a + apart
                # Runs of 2 << run elements are sorted up and down in turn, the last run up.
                up = te.bitwise_and(te.indexmod(a, size) >> (run + 1), 1) == 0
                u, v = ib.let("u", key[a]), ib.let("v", key[b])
                i, j = ib.let("i", which[a]), ib.let("j", which[b])
                first = ib.let("first", above(u, v, dtype) if largest else above(v, u, dtype))
                same, sooner = ib.let("same", alike(u, v, dtype)), ib.let("sooner", i < j)
                real = te.all(i < n, j < n)
                ahead = ib.let("ahead", te.select(real, te.any(first, te.all(same, sooner)), sooner))
                with ib.if_scope(ahead != up):
                    key[a] = v
                    which[a] = j
                    key[b] = u
                    which[b] = i
        with loops.each(ib, target, lines.count * k) as e:
            line, p = te.indexdiv(e, k), te.indexmod(e, k)
            h = kept.at(line, p)
            values[h] = key[line * size + p]
            index[h] = which[line * size + p].astype("int64")

    return loops.extern("topk", [x], [(out.shape, dtype), (out.shape, "int64")], body)
