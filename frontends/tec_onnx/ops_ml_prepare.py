"""Operators of ai.onnx.ml that prepare a model's inputs and hand over its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.errors import install
from tec.graph import Value

from .importer import Call, onnx_op
from .maps import Maps
from .ops_ml import ML, as_float


@onnx_op("Scaler", domain=ML)
def scaler(c: Call) -> Value:
    x = as_float(c, c[0])
    offset, scale = (np.asarray(c.attr(n) or [d], np.float64) for n, d in (("offset", 0.0), ("scale", 1.0)))
    y = c.op("subtract", x, c.const(offset, x.dtype))
    return c.cast(c.op("multiply", y, c.const(scale, x.dtype)), "float32")


@onnx_op("Normalizer", domain=ML)
def normalizer(c: Call) -> Value:
    """Rows of norm 1; a row of zeros stays as it is. MAX divides by the largest element, whatever its sign."""
    x = as_float(c, c[0])
    axis, kind = x.ndim - 1, c.attr("norm", "MAX")
    if kind == "L2":
        size = c.op("sqrt", c.op("reduce_sum_square", x, axes=(axis,), keepdims=True))
    elif kind in ("L1", "MAX"):
        size = c.op("reduce_sum_abs" if kind == "L1" else "reduce_max", x, axes=(axis,), keepdims=True)
    else:
        raise ImportModelError(f"norm {kind!r} of Normalizer", hint="L1, L2 or MAX")
    size = c.op("where", c.op("equal", size, c.like(0, size)), c.like(1, size), size)
    return c.cast(c.op("divide", x, size), "float32")


@onnx_op("Imputer", domain=ML)
def imputer(c: Call) -> Value:
    x = c[0]
    whole = x.dtype.startswith("int")
    kind = "int64" if whole else "float"
    values, gone = c.attr(f"imputed_value_{kind}s"), c.attr(f"replaced_value_{kind}", 0)
    if not values:
        raise ImportModelError(f"Imputer without imputed_value_{kind}s", hint=f"its input is {x.dtype}")
    lost = c.op("isnan", x) if gone != gone else c.op("equal", x, c.like(gone, x))
    return c.op("where", lost, c.const(np.asarray(values), x.dtype), x)


@onnx_op("OneHotEncoder", domain=ML)
def one_hot_encoder(c: Call) -> Value:
    """A last dimension of the categories; without `zeros` a run fails for an unknown one."""
    x, names = c[0], c.attr("cats_strings")
    keys = np.array(names, dtype=object) if names else np.asarray(c.attr("cats_int64s"), np.int64)
    strict = not c.attr("zeros", 1)

    def run(v: Any) -> Any:
        found = v[..., None] == keys if names else np.trunc(v.astype(np.float64))[..., None] == keys
        if strict and not found.any(-1).all():
            raise ImportModelError(
                f"OneHotEncoder is given a category that it does not know: {v[~found.any(-1)][0]!r}",
                hint="set zeros to 1 and unknown categories become rows of zeros; or feed only those of the encoder",
            )
        return found.astype(np.float32)

    if x.dtype == "string":
        return c.host(run, x)  # type: ignore[no-any-return]
    found = c.op("equal", c.unsqueeze(c.cast(x, "int64"), x.ndim), c.const(keys))
    y = c.cast(found, "float32")
    if not strict:
        return y
    known = c.op("reduce_any", found, axes=(x.ndim,), keepdims=False)
    known = c.op("reduce_all", known, axes=tuple(range(x.ndim)), keepdims=False)
    return c.op("require", y, known, text="OneHotEncoder is given a category that it does not know")


@onnx_op("FeatureVectorizer", domain=ML)
def feature_vectorizer(c: Call) -> Value:
    """The inputs' features side by side, cut or filled with zeros to `inputdimensions`."""
    parts = []
    for k, width in enumerate(c.attr("inputdimensions") or [c[k].shape[-1] for k in range(len(c.inputs))]):
        x = c.cast(c[k], "float32")
        x = c.reshape(x, (1, x.shape[0])) if x.ndim == 1 else x
        own = x.shape[1]
        if own < width:
            x = c.concat([x, c.broadcast(c.const(0.0, x.dtype), (x.shape[0], width - own))], 1)
        parts.append(c.slice(x, 1, 0, width) if own > width else x)
    return c.concat(parts, 1)


@onnx_op("CategoryMapper", domain=ML)
def category_mapper(c: Call) -> Value:
    names, numbers = c.attr("cats_strings") or [], c.attr("cats_int64s") or []
    if c[0].dtype == "string":
        of, unknown = dict(zip(names, numbers)), c.attr("default_int64", -1)
        return c.host(  # type: ignore[no-any-return]
            lambda x: np.array([of.get(s, unknown) for s in x.reshape(-1)], np.int64).reshape(x.shape), c[0]
        )
    back, text = dict(zip(numbers, names)), c.attr("default_string", "_Unused")
    return c.host(  # type: ignore[no-any-return]
        lambda x: np.array([back.get(k, text) for k in x.reshape(-1).tolist()], dtype=object).reshape(x.shape), c[0]
    )


@onnx_op("ZipMap", domain=ML)
def zip_map(c: Call) -> Maps:
    x = c[0]
    labels = c.attr("classlabels_strings") or [int(k) for k in c.attr("classlabels_int64s") or ()]
    if x.shape[-1] != len(labels):
        raise ImportModelError(
            f"ZipMap has {len(labels)} labels for {x.shape[-1]} scores a row",
            hint="classlabels_int64s or classlabels_strings has one label a column; without ZipMap (zipmap=False of skl2onnx) the scores are an array",
        )
    return Maps(c.reshape(x, (1, x.shape[0])) if x.ndim == 1 else x, list(labels))


@onnx_op("Tokenizer", domain="com.microsoft")
def tokenizer(c: Call) -> Value:
    """Each text's tokens in a row, filled up with `pad_value`: the parts that match `tokenexp`, or those between `separators`."""
    try:
        import re2  # as ONNX Runtime, in time linear in the text
    except ImportError:
        raise ImportModelError("Tokenizer needs google-re2", hint=install("onnx")) from None
    pad, least, expression = c.attr("pad_value", ""), int(c.attr("mincharnum", 1)), c.attr("tokenexp")
    separators = list(c.attr("separators") or ())
    try:
        patterns = [re2.compile(p) for p in ([expression] if expression else separators) if p]
    except re2.error as e:
        raise ImportModelError(
            f"a pattern of Tokenizer: {e}",
            hint="patterns are in RE2's syntax, which has no look-around and no back-references",
        ) from None

    def cut(text: str) -> list[str]:
        if expression:
            return [m.group(0) for m in patterns[0].finditer(text)]
        if not patterns:
            return list(text)
        parts = [text]
        for p in patterns:
            parts = [piece for part in parts for piece in p.split(part)]
        return parts

    def run(x: Any) -> Any:
        rows = [[t for t in cut(s) if len(t) >= least] for s in x.reshape(-1)]
        if c.attr("mark", 0):
            rows = [["\x02", *r, "\x03"] for r in rows]
        width = max((len(r) for r in rows), default=0)
        filled = [r + [pad] * (width - len(r)) for r in rows]
        return np.array(filled, dtype=object).reshape(*x.shape, width)

    return c.host(run, c[0])  # type: ignore[no-any-return]
