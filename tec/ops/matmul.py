"""Matrix products, batched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
from ..te import Tensor
from .contraction import Contraction, Operand, piece_elems
from .layouts import Layout
from .registry import (
    COMPLEX,
    SUMS,
    Attrs,
    TensorType,
    broadcast_index,
    broadcast_shapes,
    fail,
    register,
    static_shape,
    unfit,
)
from .views import apply_steps, contiguous_run, viewed_type


def accumulator(dtype: str, out: str | None = None) -> str:
    """The type that products of `dtype` are summed in, for results of type `out`."""
    if dtype in ("float16", "bfloat16") or dtype_info(dtype).is_float8:
        return "float32"
    if dtype == "int16" and out == "int32":
        return out
    return "int32" if dtype in ("int8", "uint8") else dtype


def _matmul_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    a, b = (viewed_type(t, attrs.get(key, ())) for t, key in zip(types, ("view_a", "view_b")))
    b = _plain_b(b, attrs)
    ta, tb = attrs.get("transpose_a", False), attrs.get("transpose_b", False)
    if a.ndim < 2 or b.ndim < 2:
        raise fail(
            f"matmul of {a} and {b}: at least two dimensions each",
            hint="add a dimension of size 1 to a vector (Unsqueeze, reshape); MatMul takes vectors",
        )
    m, ka = a.shape[-2:][::-1] if ta else a.shape[-2:]
    kb, n = b.shape[-2:][::-1] if tb else b.shape[-2:]
    small = {"int8", "uint8"}
    if ka != kb or (a.dtype != b.dtype and not {a.dtype, b.dtype} <= small):
        why = f"{ka} columns meet {kb} rows" if ka != kb else f"{a.dtype} meets {b.dtype}"
        raise unfit(
            f"matmul of {a}{' transposed' * ta} and {b}{' transposed' * tb}: {why}",
            (ka, kb),
            hint="transpose an operand, or reshape it: a's last dimension is b's last but one",
        )
    dtype = attrs.get("out_dtype") or ("int32" if a.dtype in small else a.dtype)
    return [TensorType(dtype, (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n))]


def _plain_b(b: TensorType, attrs: Attrs) -> TensorType:
    """The second operand as a matrix [k, n], where it lies otherwise."""
    layout: Layout | None = attrs.get("layout_b")
    if layout is None:
        return b
    sizes = layout.sizes(b.shape) if b.ndim == len(layout.dims) else {}
    full, columns, block = sizes.get("N", 0), attrs["columns"], layout.blocks.get("n", 1)
    if not full - block < columns <= full:
        raise fail(f"{b} does not lie as {layout} with {columns} columns")
    return TensorType(b.dtype, (sizes["K"], columns))


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return (
        2 * outs[0].size * viewed_type(types[0], attrs.get("view_a", ())).shape[-2 if attrs.get("transpose_a") else -1]
    )


@register("matmul", COMPLEX, _matmul_type, flops=_flops, traits=[SUMS], takes=2)
def _matmul(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Products of the last two dimensions; `transpose_a`, `transpose_b`; `out_dtype`. 16-bit floats and bytes accumulate in 32 bits.
    `view_a`, `view_b`: steps (tec/ops/views.py) through which an operand is read. `layout_b`: how the second operand lies where that is not rows (panels,
    NK32n, NK32n4k), of which `columns` are real."""
    runs: list[Any] = []
    operands = []
    for x, key in zip(inputs, ("view_a", "view_b")):
        shape, steps = static_shape(x), attrs.get(key, ())
        most = piece_elems(x.dtype)
        runs.append(partial(contiguous_run, shape, steps, most) if steps else most)
        operands.append(apply_steps(x, shape, steps))
    a, b = operands
    out = outputs[0]
    ta, tb = attrs.get("transpose_a", False), attrs.get("transpose_b", False)
    shape_a, shape_b = static_shape(a), static_shape(b)
    layout: Layout | None = attrs.get("layout_b")
    acc, depth = accumulator(a.dtype, out.dtype), shape_a[-2 if ta else -1]
    k = te.reduce_axis((0, depth), "k")

    def left(batch: Any, m: Any, k: Any) -> Any:
        return a(*broadcast_index(shape_a[:-2], batch), *((k, m) if ta else (m, k)))

    def right(batch: Any, n: Any, k: Any) -> Any:
        if layout is not None:
            return b(*layout.index({"N": n, "K": k}, {}))
        return b(*broadcast_index(shape_b[:-2], batch), *((n, k) if tb else (k, n)))

    def body(*i: Any) -> Any:
        *batch, m, n = i
        return te.sum(left(batch, m, k).astype(acc) * right(batch, n, k).astype(acc), axis=k)

    block = {"block": layout.blocks["n"], "group": layout.group} if layout is not None else {}
    c = te.compute(out.shape, body, name="matmul", tag="matmul", attrs=block)
    made = c if acc == out.dtype else te.compute(out.shape, lambda *i: c(*i).astype(out.dtype), name="matmul_cast")
    *lead, m, n = out.shape
    sides = Operand(left, a.dtype, not ta, runs[0]), Operand(right, b.dtype, tb, runs[1])
    return Contraction(tuple(lead), m, n, depth, *sides, acc, out.dtype, few_is_thin=True).carried(made)


# ---- einsum


def parse_einsum(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Labels of each operand's dimensions and of the output's; an ellipsis becomes the labels "...0", "...1", counted
    from the last, so that they broadcast."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise fail(
            f"einsum {equation!r} has {len(terms)} terms for {len(ranks)} operands",
            hint="one term for each operand, with commas between them",
        )
    labels: list[list[str]] = []
    for term, rank in zip(terms, ranks):
        head, dots, tail = term.partition("...")
        extra = rank - len(head) - len(tail)
        if extra < 0 or (extra and not dots) or (not (head + tail).isalpha() and head + tail):
            raise fail(
                f"einsum {equation!r}: term {term!r} for an operand of {rank} dimensions",
                hint=f"one letter for each of its {rank} dimensions; ... stands for any number of them",
            )
        labels.append([*head, *[f"...{k}" for k in reversed(range(extra))], *tail])
    widest = max((sum(x.startswith(".") for x in term) for term in labels), default=0)
    dots_labels = [f"...{k}" for k in reversed(range(widest))]
    if arrow:
        head, dots, tail = right.partition("...")
        out = [*head, *(dots_labels if dots else []), *tail]
    else:
        flat = [x for term in labels for x in term if not x.startswith(".")]
        out = [*dots_labels, *sorted(x for x in set(flat) if flat.count(x) == 1)]
    if len(set(out)) != len(out) or not set(out) <= {x for term in labels for x in term} | set(dots_labels):
        raise fail(
            f"einsum {equation!r}: the output's labels",
            hint="each letter of the output once, and in a term of an input too",
        )
    return labels, out


def _einsum_sizes(shapes: Sequence[Sequence[int]], labels: list[list[str]], equation: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for shape, term in zip(shapes, labels):
        for n, x in zip(shape, term):
            have = sizes.get(x, 1)
            if have != n and 1 not in (have, n):
                raise unfit(
                    f"einsum {equation!r}: dimension {x} is {have} and {n}",
                    (have, n),
                    hint="a letter stands for one size: rename it in one term, or reshape the operand",
                )
            sizes[x] = n if have == 1 else have
    return sizes


def _einsum_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    labels, out = parse_einsum(attrs["equation"], [t.ndim for t in types])
    sizes = _einsum_sizes([t.shape for t in types], labels, attrs["equation"])
    if len({t.dtype for t in types}) != 1:
        raise fail(
            f"einsum of {', '.join(map(str, types))}",
            hint="sizes under one letter are equal, and all operands have one type",
        )
    return [TensorType(attrs.get("out_dtype") or types[0].dtype, tuple(sizes[x] for x in out))]


@register("einsum", COMPLEX, _einsum_type, traits=[SUMS])
def _einsum(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`equation` in NumPy's notation: products over shared labels, summed over those that the output lacks; `out_dtype`."""
    labels, out = parse_einsum(attrs["equation"], [t.ndim for t in inputs])
    shapes = [static_shape(t) for t in inputs]
    sizes = _einsum_sizes(shapes, labels, attrs["equation"])
    summed = [x for x in sizes if x not in out]
    axes = {x: te.reduce_axis((0, sizes[x]), f"k{n}") for n, x in enumerate(summed)}
    dtype = outputs[0].dtype
    acc = accumulator(dtype) if dtype in ("float16", "bfloat16") else dtype

    def body(*i: Any) -> Any:
        place: dict[str, Any] = {**dict(zip(out, i)), **axes}
        value: Any = None
        for t, term, shape in zip(inputs, labels, shapes):
            e = t(*[0 if n == 1 and sizes[x] != 1 else place[x] for n, x in zip(shape, term)]).astype(acc)
            value = e if value is None else value * e
        return te.sum(value, axis=list(axes.values())) if axes else value

    c = te.compute(outputs[0].shape, body, name="einsum")
    return [c if acc == dtype else te.compute(outputs[0].shape, lambda *i: c(*i).astype(dtype), name="einsum_cast")]
