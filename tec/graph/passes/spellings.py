"""One spelling for what exporters write in several: operators in place of their parts, as rules (`patterns`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops import registry
from ..graph import Graph, Value
from .patterns import MADE, Either, Found, Named, Rule, apply_rule, last_axes, number
from .rewrite import const_of


def _norm(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a layer norm: its means are over the last dimensions, both over the same, and kept as dimensions of 1."""
    x, epsilon = found["x"], number(found["epsilon"])
    if epsilon is None or x.dtype not in ("float32", "float64", "float16") or out.shape != x.shape:
        return None
    least = found.get("least")
    if least is not None and number(least) != 0:
        return None
    axis = last_axes(found["mean"], found["variance"])
    return None if axis is None else {"axis": axis, "epsilon": epsilon}


def _one(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if number(found["one"]) == 1 and out.dtype.startswith("float") and out.shape == found["x"].shape else None


def _mean(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a sum that is divided by how many it sums."""
    total = found["total"].node
    assert total is not None
    x, n = found["x"], number(found["n"])
    axes = tuple(total.attrs["axes"])
    sizes = [x.shape[a] for a in axes]
    if (
        n is None
        or not x.dtype.startswith("float")
        or out.shape != found["total"].shape
        or any(not isinstance(s, int) for s in sizes)
    ):
        return None
    count = math.prod(sizes)
    is_mean = n == count if out.node is not None and out.node.op == "divide" else abs(n * count - 1) < 1e-6
    return {"axes": axes, "keepdims": total.attrs["keepdims"]} if count and is_mean else None


def _kept(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a reduction whose result gets its dimensions back as ones."""
    node = found["reduced"].node
    assert node is not None
    x = found["x"]
    axes = tuple(a % x.ndim for a in node.attrs["axes"])
    if node.attrs["keepdims"] or out.shape != tuple(1 if k in axes else n for k, n in enumerate(x.shape)):
        return None
    return {**node.attrs, "keepdims": True}


def _is_two(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if number(found["two"]) == 2 and out.shape == found["x"].shape else None


def _same(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if out.dtype.startswith(("float", "bfloat")) else None


def _constant_first(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if found["a"].is_const and not found["b"].is_const else None


def _axes_in_order(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a reduction whose axes do not stand in order, with axes that do."""
    assert out.node is not None
    axes = tuple(out.node.attrs["axes"])
    ordered = tuple(sorted(a % found["x"].ndim for a in axes))
    return {**out.node.attrs, "axes": ordered} if axes != ordered else None


_WINDOW = frozenset({"strides", "dilations", "before", "after", "groups"})


def _padded(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a convolution with the zeros that an operator before it puts around the picture."""
    assert out.node is not None
    attrs, node = out.node.attrs, found["padded"].node
    assert node is not None
    pad = node.attrs
    if set(attrs) - _WINDOW or pad.get("mode", "constant") != "constant" or pad.get("value", 0) != 0:
        return None
    around = {key: tuple(pad[key]) for key in ("before", "after")}
    sizes = [n for key in around for n in around[key]]
    if any(not isinstance(n, int) or n < 0 for n in sizes) or any(any(a[:2]) for a in around.values()):
        return None
    made = {key: tuple(a + b for a, b in zip(attrs[key], around[key][2:])) for key in around}
    reach = [(k - 1) * d for k, d in zip(found["w"].shape[2:], attrs["dilations"])]
    if any(n > most for key in made for n, most in zip(made[key], reach)):
        return None  # windows of zeros alone
    return {**attrs, **made}


def _last_two(found: Found, out: Value) -> dict[str, Any] | None:
    """The dimensions before the last two are one meanwhile, and come out as they were."""
    x = found["x"]
    turned = out.node.inputs[0].node if out.node is not None else None
    if turned is None or x.ndim < 4 or tuple(turned.attrs["perm"]) != (0, 2, 1):
        return None
    if turned.inputs[0].shape[1:] != x.shape[-2:] or out.shape != (*x.shape[:-2], x.shape[-1], x.shape[-2]):
        return None
    return {"perm": (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)}


def _is_norm_of_rows(found: Found, out: Value) -> dict[str, Any] | None:
    """As `_norm`, with a factor and a summand that broadcast to the rows."""
    attrs = _norm(found, found["x"])
    return attrs if attrs is not None and out.shape == found["x"].shape else None


def _is_choice(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if found["keep"].dtype == "bool" else None


def _as_it_is(found: Found, out: Value) -> dict[str, Any] | None:
    assert out.node is not None
    return dict(out.node.attrs)


def _plain(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a product, less what says that an operand is not transposed, as is so without it."""
    assert out.node is not None
    attrs = {k: v for k, v in out.node.attrs.items() if not (k.startswith("transpose_") and v is False)}
    return attrs if len(attrs) < len(out.node.attrs) else None


def _all_in_order(found: Found, out: Value) -> dict[str, Any] | None:
    """The shape of what picks each element of the first dimensions, or of one, once and in order."""
    assert out.node is not None
    x, index, attrs = found["x"], const_of(found["index"]), out.node.attrs
    if index is None or attrs.get("batch_dims"):
        return None
    if out.node.op == "gather":
        space = x.shape[attrs["axis"] % x.ndim :][:1]
        places = [np.asarray(index)]
    else:
        space = x.shape[: index.shape[-1]]
        places = list(np.moveaxis(np.asarray(index), -1, 0))
    if any(not isinstance(n, int) for n in space) or places[0].size != math.prod(space):
        return None
    want = np.unravel_index(np.arange(math.prod(space)), space)
    same = all(np.array_equal(p.reshape(-1) % max(n, 1), w) for p, n, w in zip(places, space, want))
    return {"shape": out.shape} if same else None


def _units_apart(found: Found, out: Value) -> dict[str, Any] | None:
    """The order of the dimensions of `x` that a transpose of it with more dimensions of 1 among them amounts to."""
    x, wide = found["x"], found["wide"]
    assert out.node is not None
    if wide.ndim <= x.ndim:
        return None
    stands: dict[int, int] = {}  # a dimension of `wide` -> that of `x`
    k = 0
    for place, n in enumerate(wide.shape):
        left = wide.ndim - place
        if k < x.ndim and n == x.shape[k] and (n != 1 or left == x.ndim - k):
            stands[place] = k
            k += 1
        elif n != 1:
            return None
    if k < x.ndim:
        return None
    return {"perm": tuple(stands[p] for p in out.node.attrs["perm"] if p in stands)}


def _exclusive(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of sums of all elements but the last, behind a zero."""
    sums, part, x = found["sums"].node, found["part"].node, found["x"]
    assert sums is not None and part is not None and out.node is not None
    axis, of_slice = sums.attrs["axis"], part.attrs
    if sums.attrs["exclusive"] or sums.attrs["reverse"] or out.node.attrs["axis"] != axis or out.type != x.type:
        return None
    if any(of_slice["starts"]) or set(of_slice["steps"]) != {1} or not _is_one_zero(found["zero"], axis):
        return None
    return {**sums.attrs, "exclusive": True}


def _shifted(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of sums of a zero and all elements but the last."""
    sums, part, joined, x = out.node, found["part"].node, found["joined"].node, found["x"]
    assert sums is not None and part is not None and joined is not None
    axis, of_slice = sums.attrs["axis"] % x.ndim, part.attrs
    if sums.attrs["exclusive"] or sums.attrs["reverse"] or joined.attrs["axis"] % x.ndim != axis or out.type != x.type:
        return None
    if any(of_slice["starts"]) or set(of_slice["steps"]) != {1} or not _is_one_zero(found["zero"], axis):
        return None
    return {**sums.attrs, "exclusive": True}


def _is_one_zero(v: Value, axis: int) -> bool:
    """Whether a value is a constant of zeros, one along the axis."""
    begun = v.node.inputs[0] if v.node is not None and v.node.op == "broadcast_to" else v
    data = const_of(begun)
    return v.shape[axis] == 1 and data is not None and not np.any(data)


_MEAN = Named("mean", ("reduce_mean", "x"))
GAP = ("subtract", "x", _MEAN)
_SQUARE = Either(("square", GAP), ("multiply", GAP, GAP))
_MOMENTS = ("subtract", Named("variance", ("reduce_mean", ("square", "x"))), ("square", _MEAN))
_VARIANCE = Either(Named("variance", ("reduce_mean", _SQUARE)), _MOMENTS, ("maximum", _MOMENTS, "least"))
_SPREAD = ("add", _VARIANCE, "epsilon")
ROOT = ("sqrt", _SPREAD)
INVERSE = Either(("rsqrt", _SPREAD), ("reciprocal", ROOT))
_SCALE = ("multiply", INVERSE, "gamma")


def _moved(scale: Any) -> Any:
    """x * scale + (beta - mean * scale), as TensorFlow's batch normalization is written."""
    beside = Either(
        ("add", ("multiply", ("neg", _MEAN), scale), "beta"), ("subtract", "beta", ("multiply", _MEAN, scale))
    )
    return ("add", ("multiply", "x", scale), beside)


def _with_dimensions(op: str) -> Rule:
    return Rule(
        f"{op} with its dimensions", ("reshape", Named("reduced", (op, "x"))), _kept, op, ("x",),
        "JAX puts dimensions of 1 back by a reshape, at which a norm would not be seen",
    )  # fmt: skip


RULES = (
    *(
        Rule(f"axes of {op} in order", (op, "x"), _axes_in_order, op, ("x",), "torch's newer exporter writes them as they were given, from the end")
        for op, made in sorted(registry.OPS.items())
        if registry.ALONG_AXES in made.traits and made.kind == registry.REDUCTION
    ),
    Rule(
        "a constant summand second", ("add", "a", "b"), _constant_first, "add", ("b", "a"),
        "the older exporter of torch writes bias + product, the newer one product + bias", is_ordered=True,
    ),
    Rule(
        "a constant factor second", ("multiply", "a", "b"), _constant_first, "multiply", ("b", "a"),
        "as for sums", is_ordered=True,
    ),
    Rule(
        "a product of what is not transposed", ("matmul", "a", "b"), _plain, "matmul", ("a", "b"),
        "a layer without a bias is a MatMul of torch's older exporter and a Gemm of the newer one",
    ),
    *(
        Rule(
            f"{op} of all places in order", (op, "x", "index"), _all_in_order, "reshape", ("x",),
            "transformers reads a mask by the numbers of its rows and columns, which the exporters write with one index or with two",
        )
        for op in ("gather", "gather_nd")
    ),
    _with_dimensions("reduce_sum"),
    _with_dimensions("reduce_sum_square"),
    *(
        Rule(
            f"mean by a {by} of {a}", (by, Named("total", (op, "x")), "n"), _mean, "reduce_mean", (operand,),
            "JAX has no operator for a mean",
        )
        for by in ("divide", "multiply")
        for op, a, operand in (("reduce_sum", "sum", "x"), ("reduce_sum_square", "sum of squares", ("square", "x")))
    ),
    _with_dimensions("reduce_mean"),
    Rule(
        "square of a product", ("multiply", "x", "x"), _same, "square", ("x",),
        "ONNX's own body of RMSNormalization multiplies x by itself, torch's takes a power",
    ),
    Rule(
        "a choice as a sum", ("add", ("multiply", ("cast", "keep"), "x"), ("multiply", ("cast", ("logical_not", "keep")), "y")), _is_choice,
        "where", ("keep", "x", "y"), "tf2onnx writes TensorFlow's Select so; a product with a low number is no mask to attention",
    ),
    Rule(
        "a transpose without dimensions of 1", ("transpose", Named("wide", ("reshape", "x"))), _units_apart, "transpose", ("x",),
        "tf2onnx and jax2onnx write a product along named axes with dimensions of 1 put in and taken out around it", around=("reshape", MADE),
    ),
    Rule(
        "one reshape", ("reshape", ("reshape", "x")), _as_it_is, "reshape", ("x",),
        "the same; what looks for heads or rows sees one step", is_repeated=True,
    ),
    Rule(
        "transpose of the last two", ("reshape", ("transpose", ("reshape", "x"))), _last_two, "transpose", ("x",),
        "the newer exporter of torch turns the keys of attention with batch and heads as one dimension: a copy, where the product reads them as they lie",
    ),
    Rule(
        "square", ("power", "x", "two"), _is_two, "square", ("x",),
        "a power with a constant exponent is a product; exporters write both",
    ),
    Rule(
        "an exclusive running sum", ("concat", "zero", Named("sums", ("cumsum", Named("part", ("slice", "x"))))), _exclusive, "cumsum", ("x",),
        "torch has none: its programs put a zero before the sums of all but the last, which are copied for it", is_ordered=True,
    ),
    Rule(
        "an exclusive running sum of what is shifted", ("cumsum", Named("part", ("slice", Named("joined", ("concat", "zero", "x"))))), _shifted, "cumsum", ("x",),
        "the same, with the zero before the elements",
    ),
    Rule(
        "mish", ("multiply", "x", ("tanh", ("softplus", "x"))), _same, "mish", ("x",),
        "ONNX has an operator from opset 18 on; its parts compute an exponential and a logarithm in a kernel of their own",
    ),
    Rule(
        "padding of a convolution", ("conv", Named("padded", ("pad", "x")), "w"), _padded, "conv", ("x", "w"),
        "the older exporter of torch and TensorFlow's write zeros around a picture as an operator: a copy of the whole picture",
    ),
    Rule(
        "reciprocal", ("divide", "one", "x"), _one, "reciprocal", ("x",),
        "the older exporter of torch writes 1 / sqrt(x) where the newer one writes Reciprocal",
    ),
    Rule(
        "layer norm", ("multiply", GAP, INVERSE), _norm, "layer_norm", ("x",),
        "one kernel in place of two reductions and what reads them; before opset 17, in Keras and in norms of channels there is no operator",
    ),
    Rule(
        "layer norm by a scale and a shift", _moved(_SCALE), _is_norm_of_rows, "layer_norm", ("x",),
        "Keras on TensorFlow normalizes layers by x * scale + shift, which reads x three times in kernels of their own",
        around=("add", ("multiply", MADE, "gamma"), "beta"),
    ),
    Rule(
        "layer norm by a scale and a shift, no factor", _moved(INVERSE), _is_norm_of_rows, "layer_norm", ("x",),
        "the same with scale=False", around=("add", MADE, "beta"),
    ),
    Rule(
        "layer norm by a quotient", ("divide", GAP, ROOT), _norm, "layer_norm", ("x",),
        "the same, as torch's exporters write it",
    ),
)  # fmt: skip


def one_spelling(graph: Graph) -> Graph:
    """The graph with each rule's pattern as its operator. A rule sees what those before it wrote."""
    for rule in RULES:
        graph = apply_rule(rule, graph)
    return graph
