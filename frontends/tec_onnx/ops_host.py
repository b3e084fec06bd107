"""ONNX operators whose result's shape depends on values, or that work on text: done on the host, in NumPy."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.errors import install
from tec.graph import Value
from tec.graph.builders import axis_of

from . import reader
from .importer import Call, Outputs, onnx_op


@onnx_op("NonZero")
def nonzero(c: Call) -> Value:
    return c.host(lambda x: np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1), c[0])


@onnx_op("Compress")
def compress(c: Call) -> Value:
    condition = np.asarray(c.array(1)).astype(bool)
    picked = np.nonzero(condition)[0].astype(np.int64)
    axis = c.attr("axis")
    x = c.reshape(c[0], (c[0].type.size,)) if axis is None else c[0]
    return c.op("gather", x, c.const(picked), axis=axis_of(axis or 0, x.ndim))


@onnx_op("Unique")
def unique(c: Call) -> Outputs:
    axis = c.attr("axis")

    def run(x: Any) -> tuple[Any, ...]:
        values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        inverse = inverse.reshape(-1)
        if not c.attr("sorted", 1):
            order = np.argsort(first)
            values = np.take(values, order, axis or 0)
            place = np.argsort(order)
            inverse, first, counts = place[inverse], first[order], counts[order]
        return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)

    return Outputs(c.host(run, c[0]))


@onnx_op("NonMaxSuppression")
def non_max_suppression(c: Call) -> Value:
    """Boxes that no better box covers, for each class of each image; computed on the host, since their number is not known."""

    def scalar(k: int, default: float) -> float:
        return float(np.asarray(c.array(k)).reshape(-1)[0]) if c.has(k) else default

    most, iou, floor = int(scalar(2, 0)), scalar(3, 0.0), scalar(4, -np.inf) if c.has(4) else -np.inf
    centre = c.attr("center_point_box", 0)

    def corners(b: Any) -> Any:
        if centre:
            x, y, w, h = b[..., 0], b[..., 1], b[..., 2], b[..., 3]
            return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
        return np.stack([np.minimum(b[..., 0], b[..., 2]), np.minimum(b[..., 1], b[..., 3]),
                         np.maximum(b[..., 0], b[..., 2]), np.maximum(b[..., 1], b[..., 3])], -1)  # fmt: skip

    def run(boxes: Any, scores: Any) -> Any:
        picked: list[tuple[int, int, int]] = []
        boxes = corners(boxes)
        for n, k in np.ndindex(scores.shape[0], scores.shape[1]):
            s, b = scores[n, k], boxes[n]
            area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
            order = np.argsort(-s, kind="stable")
            left = order[s[order] > floor]
            kept = 0
            while len(left) and kept < most:
                best, rest = left[0], left[1:]
                picked.append((n, k, int(best)))
                kept += 1
                lo, hi = np.maximum(b[best, :2], b[rest, :2]), np.minimum(b[best, 2:], b[rest, 2:])
                common = np.prod(np.maximum(hi - lo, 0), -1)
                union = area[best] + area[rest] - common
                with np.errstate(all="ignore"):
                    left = rest[~((union > 0) & (common / union > iou))]
        return np.array(picked, np.int64).reshape(-1, 3)

    return c.host(run, c[0], c[1])


@onnx_op("ImageDecoder")
def image_decoder(c: Call) -> Value:
    """A picture's file as (height, width, channels), by Pillow."""
    form = c.attr("pixel_format", "RGB")
    if form not in ("RGB", "BGR", "Grayscale"):
        raise ImportModelError(f"pixel_format {form!r}", hint="RGB, BGR or Grayscale")

    def run(data: Any) -> Any:
        try:
            from PIL import Image
        except ImportError:
            raise ImportModelError("ImageDecoder needs Pillow", hint="pip install pillow") from None
        try:
            with Image.open(io.BytesIO(np.asarray(data, np.uint8).tobytes())) as picture:
                pixels = np.asarray(picture.convert("L" if form == "Grayscale" else "RGB"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
            raise ImportModelError(
                f"the picture cannot be read: {e}",
                hint="feed the bytes of a whole picture file, in a format that Pillow reads",
            ) from None
        if form == "Grayscale":
            return pixels[:, :, None]
        return np.ascontiguousarray(pixels[:, :, ::-1] if form == "BGR" else pixels)

    return c.host(run, c[0])


# ---- text


@onnx_op("StringNormalizer")
def string_normalizer(c: Call) -> Value:
    case, stop = c.attr("case_change_action", "NONE"), c.attr("stopwords", [])
    sensitive = c.attr("is_case_sensitive", 0)

    def change(s: str) -> str:
        return s.upper() if case == "UPPER" else s.lower() if case == "LOWER" else s

    def run(x: Any) -> Any:
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        low = set(stop) if sensitive else {s.lower() for s in stop}
        kept = [[change(s) for s in row if (s if sensitive else s.lower()) not in low] for row in rows]
        if not kept[0]:
            kept = [[""]]
        out = np.array(kept, dtype=object)
        return out[0] if x.ndim == 1 else out

    return c.host(run, c[0])


@onnx_op("StringConcat")
def string_concat(c: Call) -> Value:
    return c.host(lambda a, b: np.array(np.add(a, b), dtype=object), c[0], c[1])


@onnx_op("StringSplit")
def string_split(c: Call) -> Outputs:
    by, most = c.attr("delimiter") or None, c.attr("maxsplit")

    def run(x: Any) -> tuple[Any, Any]:
        parts = [s.split(by, -1 if most is None else most) for s in x.reshape(-1)]
        width = max((len(p) for p in parts), default=0)
        table = np.array([p + [""] * (width - len(p)) for p in parts], dtype=object).reshape(*x.shape, width)
        return table, np.array([len(p) for p in parts], np.int64).reshape(x.shape)

    return Outputs(c.host(run, c[0]))


@onnx_op("RegexFullMatch")
def regex_full_match(c: Call) -> Value:
    try:
        import re2  # the standard's syntax, in time linear in the text
    except ImportError:
        raise ImportModelError("RegexFullMatch needs google-re2", hint=install("onnx")) from None
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(c.attr("pattern", ""), options)
    except re2.error as e:
        raise ImportModelError(
            f"pattern {c.attr('pattern')!r}: {e}",
            hint="the pattern is in RE2's syntax, which has no look-around and no back-references",
        ) from None
    return c.host(lambda x: np.array([bool(pattern.fullmatch(s)) for s in x.reshape(-1)], bool).reshape(x.shape), c[0])


@onnx_op("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(c: Call) -> Value:
    def table(kind: str) -> Any:
        for name in ("strings", "int64s", "floats", "tensor"):
            value = c.attr(f"{kind}_{name}")
            if value is not None:
                return np.asarray(value).reshape(-1), name
        raise ImportModelError(
            f"LabelEncoder without {kind}",
            hint=f"set one of the attributes {kind}_strings, {kind}_int64s, {kind}_floats and {kind}_tensor",
        )

    keys, _ = table("keys")
    values, kind = table("values")
    defaults = {
        "strings": ("default_string", "_Unused"),
        "int64s": ("default_int64", -1),
        "floats": ("default_float", -0.0),
    }
    name, plain = defaults.get(kind, ("default_tensor", np.zeros(1, values.dtype)))
    default = np.asarray(c.attr(name, plain)).reshape(-1)[0]
    out = {"strings": object, "int64s": np.int64, "floats": np.float32}.get(kind, values.dtype)
    known = {("nan" if k != k else k): v for k, v in zip(keys.tolist(), values.tolist())}

    if c[0].dtype != "string" and all(np.asarray(list(d)).dtype.kind in "fiu" for d in (keys, values)):
        return looked_up(c, known, default, out)

    def run(x: Any) -> Any:
        found = [known.get("nan" if k != k else k, default) for k in x.reshape(-1).tolist()]
        return np.array(found, dtype=out).reshape(x.shape)

    return c.host(run, c[0])


def looked_up(c: Call, known: dict[Any, Any], default: Any, dtype: Any) -> Value:
    """Numbers for numbers: of all keys the one that an element equals, compared one by one."""
    x, missing = c[0], known.get("nan")
    of = {k: v for k, v in known.items() if k != "nan"}
    y = c.broadcast(c.const(np.full((), default, dtype)), x.shape)
    if of:
        same = c.op("equal", c.unsqueeze(x, x.ndim), c.const(np.array(list(of)), x.dtype))
        given = c.op("where", same, c.const(np.array(list(of.values()), dtype)), c.const(np.zeros((), dtype)))
        total, any_of = c.op("reduce_sum", given, axes=(x.ndim,), keepdims=False), c.op("reduce_any", same, axes=(x.ndim,), keepdims=False)  # fmt: skip
        y = c.op("where", any_of, total, y)
    if missing is not None and x.dtype.startswith("float"):
        y = c.op("where", c.op("isnan", x), c.const(np.full((), missing, dtype)), y)
    return y


@onnx_op("TfIdfVectorizer")
def tfidf(c: Call) -> Value:
    """Counts of n-grams, with gaps, by their places in the pool; on the host."""
    mode, low, high = c.attr("mode"), c.attr("min_gram_length"), c.attr("max_gram_length")
    skips, starts, places = c.attr("max_skip_count"), c.attr("ngram_counts"), c.attr("ngram_indexes")
    pool = c.attr("pool_int64s") if c.attr("pool_int64s") is not None else c.attr("pool_strings")
    weights = c.attr("weights")
    spans = [
        (n, k) for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1) for k in range(begin, end, n)
    ]
    grams = {tuple(pool[k : k + n]): at for at, (n, k) in enumerate(spans)}

    reader.check_bytes("a vector of counts", [max(places) + 1])

    def seen(x: Any) -> Iterator[tuple[Any, ...]]:
        """The n-grams of a row, of neighbours and with gaps."""
        for n in range(low, min(high, len(x)) + 1):
            for step in range(1, 2 if n == 1 else min(skips, len(x)) + 2):
                yield from (tuple(x[k : k + n * step : step].tolist()) for k in range(len(x) - (n - 1) * step))

    def row(x: Any) -> Any:
        out = np.zeros(max(places) + 1, np.float32)
        for g in (grams[gram] for gram in seen(x) if gram in grams):
            out[places[g]] += 1
        scale = np.ones_like(out)
        if weights is not None:
            for g, p in enumerate(places):
                scale[p] = weights[g]
        if mode == "TF":
            return out
        return (out > 0) * scale if mode == "IDF" else out * scale

    def run(x: Any) -> Any:
        return row(x) if x.ndim == 1 else np.stack([row(r) for r in x])

    return c.cast(c.host(lambda x: run(x).astype(np.float32), c[0]), "float32")


# ---- random numbers: seeded where the model seeds them


def _random(c: Call, shape: Any, dtype: str, draw: Any) -> Value:
    rng = np.random.default_rng(int(c.attr("seed")) if "seed" in c.attrs else None)
    reader.check_bytes("a tensor of random numbers", shape)
    return c.const(draw(rng, tuple(shape)), dtype)


def _dtype(c: Call, default: str) -> str:
    return reader.dtype_name(c.attr("dtype")) if c.attr("dtype") else default


@onnx_op("RandomUniform", "RandomUniformLike")
def random_uniform(c: Call) -> Value:
    low, high = c.attr("low", 0.0), c.attr("high", 1.0)
    shape = c[0].shape if c.op_type.endswith("Like") else c.attr("shape")
    default = c[0].dtype if c.op_type.endswith("Like") else "float32"
    return _random(c, shape, _dtype(c, default), lambda r, s: r.uniform(low, high, s))


@onnx_op("RandomNormal", "RandomNormalLike")
def random_normal(c: Call) -> Value:
    mean, scale = c.attr("mean", 0.0), c.attr("scale", 1.0)
    shape = c[0].shape if c.op_type.endswith("Like") else c.attr("shape")
    default = c[0].dtype if c.op_type.endswith("Like") else "float32"
    return _random(c, shape, _dtype(c, default), lambda r, s: r.normal(mean, scale, s))


@onnx_op("Bernoulli")
def bernoulli(c: Call) -> Value:
    rng = np.random.default_rng(int(c.attr("seed")) if "seed" in c.attrs else None)
    reader.check_bytes("a tensor of random numbers", c[0].shape)
    draws = c.const(rng.uniform(0, 1, c[0].shape), c[0].dtype)
    return c.cast(c.op("less", draws, c[0]), _dtype(c, c[0].dtype))


@onnx_op("Multinomial")
def multinomial(c: Call) -> Value:
    rng = np.random.default_rng(int(c.attr("seed")) if "seed" in c.attrs else None)

    def run(x: Any) -> Any:
        reader.check_bytes("a tensor of random numbers", (x.shape[0], c.attr("sample_size", 1)))
        p = np.exp(x - x.max(1, keepdims=True))
        edges = np.cumsum(p / p.sum(1, keepdims=True), 1)
        draws = rng.uniform(0, 1, (x.shape[0], c.attr("sample_size", 1)))
        return np.stack([np.searchsorted(e, d) for e, d in zip(edges, draws)]).astype(np.int64)

    return c.cast(c.host(run, c[0]), _dtype(c, "int32"))
