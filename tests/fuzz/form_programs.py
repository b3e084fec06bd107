"""Random programs of the forms that ask the most of schedules, each with its result in plain NumPy.

Dilated convolutions, argmax, scans, several outputs, gathers, triangles, `where` that reads, atomics, windows, products
that an intrinsic fits. Each form takes 2-D tensors and gives one, so that they follow each other; values are small whole
numbers in floats or integers, which wrap around in NumPy as here, for which every order of summation gives the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tec import te

Array = Any
DTYPES = ["float32", "int32", "float32", "int32", "float64", "int64", "int16", "int8", "uint8", "uint32", "uint64"]
LIMIT = 20  # what a value of a form's input is at most


@dataclass
class Value:
    """A tensor and what it must hold."""

    t: Any
    x: Array


@dataclass
class Program:
    """Inputs and outputs with their arrays; `stages`: what may be scheduled; `kinds`: the forms, for reports."""

    seed: int
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    stages: list[Any] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    @property
    def args(self) -> list[Any]:
        return [v.t for v in (*self.inputs, *self.outputs)]


class Maker:
    """The state of one program's making."""

    def __init__(self, seed: int, gpu: bool) -> None:
        self.gpu = gpu
        self.several: dict[Any, list[Value]] = {}  # all outputs of operations that have several
        self.rng = random.Random(seed)
        self.noise = np.random.default_rng(seed)
        self.p = Program(seed)
        self.dtype = self.rng.choice(DTYPES)
        self.least = 0 if self.dtype.startswith("uint") else -LIMIT
        self.count = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def fresh(self, shape: tuple[int, ...], low: int = -3, high: int = 3, dtype: str = "") -> Value:
        t = te.placeholder(shape, dtype=dtype or self.dtype, name=self.name("A"))
        v = Value(
            t, self.noise.integers(max(low, 0) if t.dtype.startswith("uint") else low, high + 1, shape).astype(t.dtype)
        )
        self.p.inputs.append(v)
        return v

    def const(self, value: int) -> Any:
        return te.const(value, self.dtype)

    def small(self, v: Value) -> Value:
        """`v` within the limit: sums of a few hundred products stay exact."""
        if v.x.max(initial=0) <= LIMIT and v.x.min(initial=0) >= -LIMIT:
            return v
        most = self.const(LIMIT)
        t = te.compute(
            v.t.shape, lambda i, j: te.max(te.min(v.t[i, j], most), self.const(self.least)), name=self.name("small")
        )
        return Value(t, np.clip(v.x, self.least, LIMIT))

    def output(self, v: Value) -> None:
        """Give `v` out; with it go the other outputs of its operation, which a function cannot leave out."""
        for x in self.several.get(v.t.op, [v]):
            if all(x.t is not o.t for o in self.p.outputs):
                self.p.outputs.append(x)

    def together(self, *values: Value) -> None:
        """Several outputs of one operation."""
        self.several[values[0].t.op] = list(values)


# ---- forms: (maker, input) -> value


def conv(m: Maker, v: Value) -> Value:
    """A dilated, strided convolution of several channels, of an image that pads are put around or not."""
    rng = m.rng
    h, w = v.x.shape
    kh, kw = rng.randint(1, min(3, h)), rng.randint(1, min(3, w))
    dh, dw = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    sh, sw = rng.choice([1, 1, 2]), rng.choice([1, 2])
    ph, pw = rng.choice([0, 1, 2]), rng.choice([0, 1])
    while (kh - 1) * dh >= h + 2 * ph:
        dh -= 1
    while (kw - 1) * dw >= w + 2 * pw:
        dw -= 1
    co = rng.choice([1, 2, 3, 5])
    k = m.fresh((co, kh, kw))
    padded = np.pad(v.x, ((ph, ph), (pw, pw)))
    oh, ow = (h + 2 * ph - (kh - 1) * dh - 1) // sh + 1, (w + 2 * pw - (kw - 1) * dw - 1) // sw + 1
    x = v.t
    if ph or pw:
        x = te.compute(
            padded.shape,
            lambda i, j: te.if_then_else(
                te.all(i >= ph, i < h + ph, j >= pw, j < w + pw), v.t[i - ph, j - pw], m.const(0)
            ),
            name=m.name("pad"),
        )
    r, s = te.reduce_axis((0, kh), "r"), te.reduce_axis((0, kw), "s")
    t = te.compute(
        (co, oh, ow),
        lambda c, i, j: te.sum(x[i * sh + r * dh, j * sw + s * dw] * k.t[c, r, s], axis=[r, s]),
        name=m.name("conv"),
    )
    want = np.zeros((co, oh, ow), v.x.dtype)
    for a in range(kh):
        for b in range(kw):
            part = padded[a * dh : a * dh + (oh - 1) * sh + 1 : sh, b * dw : b * dw + (ow - 1) * sw + 1 : sw]
            want += k.x[:, a, b][:, None, None] * part
    if rng.random() < 0.3:
        m.output(Value(t, want))
    flat = te.compute((oh, ow * co), lambda i, j: t[j % co, i, j // co], name=m.name("flat"))
    return Value(flat, np.moveaxis(want, 0, 2).reshape(oh, ow * co))


def argmax(m: Maker, v: Value) -> Value:
    """Value and place of the largest of a row or column, the first of equals; a reduction of pairs."""
    x, rows = v.t, m.rng.random() < 0.5
    n, k_extent = v.x.shape if rows else v.x.shape[::-1]
    best = te.comm_reducer(
        lambda u, w: tuple(
            te.select(te.any(u[1] > w[1], te.all(u[1] == w[1], u[0] < w[0])), p, q) for p, q in zip(u, w)
        ),
        lambda t0, t1: (te.max_value(t0), te.min_value(t1)),
        name="best",
    )
    k = te.reduce_axis((0, k_extent), "k")
    at, most = te.compute((n,), lambda i: best((k.var, x[i, k] if rows else x[k, i]), axis=k), name=m.name("best"))
    axis = 1 if rows else 0
    where, top = v.x.argmax(axis), v.x.max(axis)
    m.together(Value(at, where.astype("int32")), Value(most, top))
    if m.rng.random() < 0.3:
        m.output(Value(at, where.astype("int32")))
    h, w = v.x.shape
    t = te.compute(
        (h, w),
        lambda i, j: (
            x[i, j] - most[i if rows else j] + te.select((at[i] == j) if rows else (at[j] == i), m.const(7), m.const(0))
        ),
        name=m.name("after"),
    )
    hot = np.zeros_like(v.x)
    np.put_along_axis(hot, np.expand_dims(where, axis), 7, axis)
    return Value(t, v.x - np.expand_dims(top, axis) + hot)


def scan(m: Maker, v: Value) -> Value:
    """A recurrence over the rows, with a stage inside of the step; or two that feed each other."""
    h, w = v.x.shape
    if h < 2:
        return stencil(m, v)
    x = v.t
    state = te.placeholder((h, w), dtype=m.dtype, name=m.name("state"))
    if m.rng.random() < 0.6:
        init = te.compute((1, w), lambda t, j: x[0, j], name=m.name("init"))
        turned = te.compute((h, w), lambda t, j: m.const(0) - state[t - 1, w - 1 - j], name=m.name("turned"))
        update = te.compute((h, w), lambda t, j: turned[t, j] + x[t, j], name=m.name("update"))
        t = te.scan(init, update, state, inputs=[x], name=m.name("scan"))
        want = v.x.copy()
        for i in range(1, h):
            want[i] = v.x[i] - want[i - 1][::-1]
        return Value(t, want)
    other = te.placeholder((h, w), dtype=m.dtype, name=m.name("state"))
    first = [te.compute((1, w), lambda t, j, c=c: x[0, j] + m.const(c), name=m.name("init")) for c in (0, 1)]
    low = te.compute((h, w), lambda t, j: te.min(state[t - 1, j], other[t - 1, j]) + x[t, j], name=m.name("low"))
    high = te.compute((h, w), lambda t, j: te.max(state[t - 1, j], other[t - 1, j]) - x[t, j], name=m.name("high"))
    a, b = te.scan(first, [low, high], [state, other], inputs=[x], name=m.name("scan"))
    p, q = v.x.copy(), v.x + 1
    for i in range(1, h):
        p[i], q[i] = np.minimum(p[i - 1], q[i - 1]) + v.x[i], np.maximum(p[i - 1], q[i - 1]) - v.x[i]
    m.together(Value(a, p), Value(b, q))
    m.output(Value(b, q))
    return Value(a, p)


def pair(m: Maker, v: Value) -> Value:
    """A compute of several outputs, all of them used or given out."""
    x = v.t
    h, w = v.x.shape
    a, b, c = te.compute(
        (h, w),
        lambda i, j: (x[i, j] + m.const(1), x[h - 1 - i, j] * m.const(2), m.const(0) - x[i, w - 1 - j]),
        name=m.name("tuple"),
    )
    m.together(Value(a, v.x + 1), Value(b, v.x[::-1] * 2), Value(c, -v.x[:, ::-1]))
    if m.rng.random() < 0.4:
        m.output(Value(b, v.x[::-1] * 2))
    t = te.compute((h, w), lambda i, j: a[i, j] + b[h - 1 - i, j] - c[i, w - 1 - j], name=m.name("joined"))
    return Value(t, v.x + 1 + 2 * v.x + v.x)


def product(m: Maker, v: Value) -> Value:
    """A matrix product, of the input's values and others."""
    h, k_extent = v.x.shape
    n = m.rng.choice([1, 4, 6, 8, 13])
    b = m.fresh((k_extent, n))
    k = te.reduce_axis((0, k_extent), "k")
    t = te.compute((h, n), lambda i, j: te.sum(v.t[i, k] * b.t[k, j], axis=k), name=m.name("mm"))
    return Value(t, v.x @ b.x)


def where(m: Maker, v: Value) -> Value:
    """Sums of what a condition on the values themselves lets through."""
    x = v.t
    h, w = v.x.shape
    k = te.reduce_axis((0, h), "k")
    how = m.rng.choice(["value", "both", "other"])
    mask = m.fresh((h, w), 0, 1, "int32") if how == "other" else None

    def row(i: Any, j: Any) -> Any:
        if mask is not None:
            cond = mask.t[k, j] > 0
        else:
            cond = x[k, j] > m.const(max(m.least, -1))  # unsigned zeros add nothing
        if how == "both":
            cond = te.all(cond, k.var <= i)
        return te.sum(x[k, j], axis=k, where=cond)

    t = te.compute((h, w), row, name=m.name("where"))
    on = (mask.x > 0) if mask is not None else (v.x > -1)
    if how == "both":
        return Value(t, np.where(on, v.x, 0).cumsum(0).astype(v.x.dtype))
    return Value(t, np.broadcast_to(np.where(on, v.x, 0).sum(0), (h, w)).astype(v.x.dtype))


def triangle(m: Maker, v: Value) -> Value:
    """A reduction as long as the row says: a lower or upper triangle, or a band."""
    x = v.t
    h, w = v.x.shape
    how = m.rng.choice(["lower", "upper", "band", "pairs"])

    def row(i: Any, j: Any) -> Any:
        if how == "lower":
            k = te.reduce_axis((0, te.min(j + 1, w)), "k")
        elif how == "upper":
            k = te.reduce_axis((j, w), "k")
        elif how == "band":
            k = te.reduce_axis((te.max(j - 2, 0), te.min(j + 2, w)), "k")
        else:
            k = te.reduce_axis((0, j + 1), "k")
            l = te.reduce_axis((0, k + 1), "l")
            return te.sum(x[i, l] * m.const(1), axis=[k, l])
        return te.sum(x[i, k], axis=k)

    t = te.compute((h, w), row, name=m.name("tri"))
    c = v.x.cumsum(1)
    if how == "lower":
        want = c
    elif how == "upper":
        want = v.x[:, ::-1].cumsum(1)[:, ::-1]
    elif how == "band":
        want = np.stack([v.x[:, max(j - 2, 0) : min(j + 2, w)].sum(1) for j in range(w)], 1)
    else:
        want = c.cumsum(1)
    return Value(t, want.astype(v.x.dtype))


def gather(m: Maker, v: Value) -> Value:
    """Rows, columns or single elements that memory names; indices that are computed too."""
    x = v.t
    h, w = v.x.shape
    how = m.rng.choice(["rows", "elements", "one", "computed", "clipped"])
    if how == "one":
        at = m.fresh((1,), 0, h - 1, "int32")
        t = te.compute((h, w), lambda i, j: x[at.t[0], j] + x[i, j], name=m.name("gather"))
        return Value(t, v.x[at.x] + v.x)
    if how == "elements":
        at = m.fresh((h, w), 0, w - 1, m.rng.choice(["int32", "int64"]))
        t = te.compute((h, w), lambda i, j: x[i, at.t[i, j]], name=m.name("gather"))
        return Value(t, np.take_along_axis(v.x, at.x.astype("int64"), 1))
    n = m.rng.randint(1, 9)
    at = m.fresh((n,), -4, h + 3, "int32") if how == "clipped" else m.fresh((n,), 0, h - 1, "int32")
    if how == "computed":
        turned = te.compute((n,), lambda i: h - 1 - at.t[i], name=m.name("turned"))
        t = te.compute((n, w), lambda i, j: x[turned[i], j], name=m.name("gather"))
        return Value(t, v.x[h - 1 - at.x])
    if how == "clipped":
        t = te.compute((n, w), lambda i, j: x[te.max(te.min(at.t[i], h - 1), 0), j] * m.const(2), name=m.name("gather"))
        return Value(t, v.x[np.clip(at.x, 0, h - 1)] * 2)
    t = te.compute((n, w), lambda i, j: x[at.t[i], j], name=m.name("gather"))
    return Value(t, v.x[at.x])


def stencil(m: Maker, v: Value) -> Value:
    """Neighbours, within the borders or cut off at them."""
    x = v.t
    h, w = v.x.shape
    d = m.rng.randint(1, 2)
    if h > d and w > 1 and m.rng.random() < 0.5:
        t = te.compute((h - d, w - 1), lambda i, j: x[i, j] + x[i + d, j + 1] * m.const(2), name=m.name("near"))
        return Value(t, v.x[:-d, :-1] + 2 * v.x[d:, 1:])
    t = te.compute(
        (h, w),
        lambda i, j: x[i, j] - te.if_then_else(te.all(i >= d, j + 1 < w), x[i - d, j + 1], m.const(3)),
        name=m.name("near"),
    )
    near = np.full_like(v.x, 3)
    near[d:, :-1] = v.x[: max(h - d, 0), 1:]
    return Value(t, v.x - near)


def window(m: Maker, v: Value) -> Value:
    """Maxima of windows that begin outside: the condition keeps them in."""
    x = v.t
    h, w = v.x.shape
    n = m.rng.choice([2, 3])
    r, s = te.reduce_axis((0, n), "r"), te.reduce_axis((0, 2), "s")
    t = te.compute(
        (h, w),
        lambda i, j: te.max(
            x[i + r - 1, j * 1 + s - 1],
            axis=[r, s],
            where=te.all(i + r >= 1, i + r <= h, j + s >= 1, j + s <= w),
        ),
        name=m.name("pool"),
    )
    least = -np.inf if m.dtype.startswith("float") else np.iinfo(m.dtype).min
    padded = np.pad(v.x, 1, constant_values=least)
    padded = np.pad(padded, ((0, n), (0, 2)), constant_values=least)
    want = np.full_like(v.x, least)
    for a in range(n):
        for b in range(2):
            want = np.maximum(want, padded[a : a + h, b : b + w])
    return Value(t, want)


def softmax(m: Maker, v: Value) -> Value:
    """A reduction that its own rows are held against."""
    x = v.t
    h, w = v.x.shape
    k = te.reduce_axis((0, w), "k")
    top = te.compute((h,), lambda i: te.max(x[i, k], axis=k), name=m.name("top"))
    t = te.compute((h, w), lambda i, j: top[i] - x[i, j], name=m.name("below"))
    return Value(t, v.x.max(1, keepdims=True) - v.x)


def histogram(m: Maker, v: Value) -> Value:
    """Sums into places that the values name, by atomics in a loop over all of them (hand-written)."""
    h, w = v.x.shape
    gpu = m.gpu

    def body(ins: list[Any], outs: list[Any]) -> Any:
        ib = te.ir_builder.create()
        a, o = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        if gpu:
            tx = te.thread_axis("threadIdx.x")
            ib.scope_attr(tx, "thread_extent", 32)
            with ib.if_scope(tx.var < 8):
                o[tx.var] = te.const(0, "int32")
            ib.emit(te.call_intrin("int32", "barrier"))
            with ib.for_range(0, (h * w + 31) // 32, name="e") as e:
                at = e * 32 + tx.var
                with ib.if_scope(at < h * w):
                    place = te.floormod(a[at // w, at % w].astype("int32"), 8)
                    ib.emit(te.call_intrin("int32", "atomic_add", o[place], te.const(1, "int32")))
        else:
            with ib.for_range(0, 8, name="z") as z:
                o[z] = te.const(0, "int32")
            with ib.for_range(0, h, name="r") as r, ib.for_range(0, w, name="c") as c:
                place = te.floormod(a[r, c].astype("int32"), 8)
                ib.emit(te.call_intrin("int32", "atomic_add", o[place], te.const(1, "int32")))
        return ib.get()

    t = te.extern((8,), [v.t], body, name=m.name("hist"), dtype="int32")
    counts = np.bincount((v.x.astype("int64") % 8).reshape(-1), minlength=8)
    if m.rng.random() < 0.3:
        m.output(Value(t, counts.astype("int32")))
    back = te.compute((h, w), lambda i, j: v.t[i, j] + t[j % 8].astype(m.dtype), name=m.name("counted"))
    return Value(back, v.x + counts[np.arange(w) % 8].astype(v.x.dtype))


FORMS: dict[str, Callable[[Maker, Value], Value]] = {
    f.__name__: f
    for f in (
        conv, argmax, scan, pair, product, where, triangle, gather, stencil, window, softmax, histogram,
    )
}  # fmt: skip


def program(seed: int, gpu: bool = False) -> Program:
    """One to three forms in a row, on an input of up to 14 by 14; hand-written parts for a CPU or for a GPU."""
    m = Maker(seed, gpu)
    v = m.fresh((m.rng.randint(1, 14), m.rng.randint(1, 14)))
    for _ in range(m.rng.choice([1, 1, 2, 2, 3])):
        kind = m.rng.choice(list(FORMS))
        m.p.kinds.append(kind)
        v = FORMS[kind](m, m.small(v))
    m.output(v)
    roots = [o.t for o in m.p.outputs]
    used = {id(t) for op in te.topo_order(roots) for t in (*op.inputs, *op.outputs)}
    m.p.inputs = [i for i in m.p.inputs if id(i.t) in used]
    m.p.stages = [op.output(0) for op in te.topo_order(roots) if not isinstance(op, te.PlaceholderOp)]
    return m.p
