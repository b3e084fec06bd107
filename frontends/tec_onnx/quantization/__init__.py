"""Quantizes float32 models after training: `tec_onnx.quantize(model, samples)`, and `tec quantize` on the command line.

Samples are run through the model (by tec itself) to see the range of what each product reads. The result is an ONNX model in QDQ form, which tec
compiles to integer products on every target with a unit for bytes, and which other runtimes read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np
import onnx
from onnx import version_converter

from tec import ImportModelError
from tec.graph import compile as tec_compile
from tec.graph.precision import Precision, check_patterns, precision_of
from tec.records import dataclass

from ..inputs import input_info
from ..reader import load_model
from .rewrite import (
    ELEMENTS,
    FORMATS,
    OPSETS,
    Product,
    Rewriter,
    Scheme,
    fold_batch_norms,
    products,
    quantized,
    with_nodes,
)
from .samples import Feeds, samples_of
from .thresholds import METHODS, PERCENTILE, Seen, threshold

__all__ = ["Layer", "Result", "quantize"]

_AT_ONCE = 64  # tensors that one network gives: their memory is live together, and each network is compiled
_JUDGED = 32  # samples that sensitivities and the result are judged by, at most
DTYPES = ("int8", "float32", *FORMATS)  # what a product can be made of
OPSET = 13  # from which DequantizeLinear takes a scale a channel


@dataclass(slots=True)
class Layer:
    """A product, and what quantizing does to it. `signal_to_noise`: decibels of its output when it alone is quantized."""

    name: str
    op: str
    signal_to_noise: float
    low: float
    high: float
    is_quantized: bool = True
    why_not: str = ""


@dataclass(slots=True)
class Result:
    """A quantized model. `signal_to_noise`: decibels of each output on the samples; `agreement`: of those of two dimensions, how often the largest
    of a row stays the largest."""

    model: onnx.ModelProto
    layers: list[Layer]
    signal_to_noise: dict[str, float] = field(default_factory=dict)
    agreement: dict[str, float] = field(default_factory=dict)
    samples: int = 0


def quantize(
    model: Any,
    samples: Any = None,
    *,
    method: str = "minmax",
    percentile: float = PERCENTILE,
    per_channel: bool = True,
    activations: str = "uint8",
    keep: Iterable[str] = (),
    dtype: str | Mapping[str, str] | None = None,
    min_signal_to_noise: float | None = None,
    sensitivity: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Quantize the Conv, MatMul and Gemm nodes of a float32 model that have constant weights.

    model: a path, bytes or a ModelProto. samples: {input: array}, a list of such, or a path (`.npz`, `.npy`, a folder of them). method: "minmax",
    "percentile" (keeps `percentile` percent of the magnitudes), "entropy" or "mse". per_channel: one scale a channel of the weights. activations:
    "uint8" with a zero point, or "int8"; a microscaling format ("mxfp8", "mxfp4", ...) is what products with such weights round what they read to. keep: names of nodes that stay float32, and `min_signal_to_noise`: those below so many decibels do. dtype: "int8", "float32" or a
    microscaling format (of the weights of MatMul and Gemm alone: "mxfp4", "mxfp6", "mxfp6_e3m2", "mxfp8", "mxfp8_e5m2") by patterns of nodes' names, as `tec.compile` takes them; {"": "float32",
    "/features/*": "int8"} quantizes these alone. Without products of bytes `samples` may be left out; nothing is measured then.
    sensitivity: measure those decibels for each node (a network more to compile); without it they are NaN.
    progress: called with a line of text now and then. Raises ImportModelError.
    """
    sensitivity = sensitivity and samples is not None
    _check_options(method, activations, percentile, min_signal_to_noise is None or sensitivity)
    say = progress or (lambda line: None)
    precision = precision_of(dtype, DTYPES)
    formats = {precision.default, *(t for _, t in precision.nodes)} & FORMATS.keys()
    proto = fold_batch_norms(_opset(load_model(model), max((OPSETS[f] for f in formats), default=OPSET)))
    inputs = {n: entry for n, entry in input_info(proto).items() if entry is not None}
    found = _formatted(precision, products(proto))
    if not found:
        raise ImportModelError(
            "nothing to quantize: no Conv, MatMul or Gemm of float32 with constant weights",
            hint="convert a float16 model to float32 first; products of two inputs stay as they are",
        )
    kept = _kept(keep, found) | _float(precision, found)
    if samples is None and any(not p.format and p.name not in kept for p in found):
        raise ImportModelError("products of bytes need samples", hint="give some: they say how large values become")
    runs = samples_of(samples, inputs) if samples is not None else []
    if len(kept) == len(found):
        raise ImportModelError("nothing is left to quantize: every product stays float32", hint="see keep and dtype")
    say(f"{len(found)} products, {len(runs)} samples")
    ranges = _ranges(proto, sorted({p.reads for p in found if not p.format}), runs, method, percentile, say)
    scheme = Scheme(
        "uint8" if activations in ELEMENTS else activations, per_channel, activations if activations in ELEMENTS else ""
    )
    ratios = dict.fromkeys((p.name for p in found), float("nan"))
    if sensitivity:
        ratios = _sensitivities(proto, found, ranges, scheme, runs[:_JUDGED], say)
    none = (float("nan"), float("nan"))
    layers = [_layer(p, ratios[p.name], ranges.get(p.reads, none), kept, min_signal_to_noise) for p in found]
    chosen = [p for p, layer in zip(found, layers) if layer.is_quantized]
    result = Result(quantized(proto, chosen, ranges, scheme), layers, samples=len(runs))
    if runs:
        _judge(proto, result, runs[:_JUDGED], say)
    return result


def _check_options(method: str, activations: str, percentile: float, is_measured: bool) -> None:
    if method not in METHODS:
        raise ImportModelError(f"unknown method {method!r}", hint=", ".join(METHODS))
    if activations not in ("uint8", "int8", *ELEMENTS):
        raise ImportModelError(f"activations of {activations!r}", hint=", ".join(["uint8", "int8", *ELEMENTS]))
    if not 50 < percentile <= 100:
        raise ImportModelError(f"percentile={percentile}", hint="a number of percent up to 100, such as 99.99")
    if not is_measured:
        raise ImportModelError("min_signal_to_noise without sensitivity", hint="leave sensitivity on")


def _kept(keep: Iterable[str], found: list[Product]) -> set[str]:
    kept = set(keep)
    unknown = kept - {p.name for p in found}
    if unknown:
        raise ImportModelError(
            f"no node {sorted(unknown)[0]!r} to keep", hint=f"products: {', '.join(p.name for p in found)}"
        )
    return kept


def _float(precision: Precision, found: list[Product]) -> set[str]:
    """The products that stay float32 by what is said of their names."""
    names = {p.name for p in found}
    check_patterns(precision, names)
    convs = {p.name for p in found if p.node.op_type == "Conv"}  # whose windows no format's blocks lie along
    asked = {n: precision.named(n) or precision.default for n in names}
    return {n for n, t in asked.items() if t == "float32" or (t in FORMATS and n in convs)}


def _formatted(precision: Precision, found: list[Product]) -> list[Product]:
    """The products, those of a microscaling format with its name."""
    asked = ((p, precision.named(p.name) or precision.default) for p in found)
    return [replace(p, format=t) if t in FORMATS and p.node.op_type != "Conv" else p for p, t in asked]


def _layer(p: Product, ratio: float, span: tuple[float, float], kept: set[str], bound: float | None) -> Layer:
    why = "kept" if p.name in kept else f"below {bound:g} dB" if bound is not None and ratio < bound else ""
    return Layer(p.name, p.node.op_type, ratio, *span, is_quantized=not why, why_not=why)


def _opset(proto: onnx.ModelProto, least: int) -> onnx.ModelProto:
    version = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version >= least:
        return proto
    try:
        converted: onnx.ModelProto = version_converter.convert_version(proto, least)
    except Exception as e:  # whatever the converter raises: it is C++ beneath
        raise ImportModelError(
            f"the model has opset {version}, these weights need {least}, and onnx does not convert it: {e}",
            hint=f"export the model with opset {least}",
        ) from None
    return converted


# ---- running


def _outputs_of(proto: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    return with_nodes(proto, list(proto.graph.node), [], names)


def _run(proto: onnx.ModelProto, runs: list[Feeds], take: Callable[[dict[str, Any]], None]) -> None:
    """Hand the outputs of each run to `take`, by name. A network is compiled for each set of shapes."""
    nets: dict[Any, Any] = {}
    names = [o.name for o in proto.graph.output]
    for feeds in runs:
        key = tuple(x.shape for x in feeds.values())
        if key not in nets:
            nets[key] = tec_compile(proto, shapes={n: x.shape for n, x in feeds.items()})
        take(dict(zip(names, nets[key].run(feeds))))


def _ranges(
    proto: onnx.ModelProto,
    tensors: list[str],
    runs: list[Feeds],
    method: str,
    percentile: float,
    say: Callable[[str], None],
) -> dict[str, tuple[float, float]]:
    given = {n for n in (i.name for i in proto.graph.input) if n in tensors}
    seen = {t: Seen() for t in tensors}
    for widen in (True, False):
        if not widen and method == "minmax":
            break
        say("ranges" if widen else "histograms")

        def take(values: Mapping[str, Any], widen: bool = widen) -> None:
            for t, x in values.items():
                seen[t].widen(x) if widen else seen[t].count(x)

        for feeds in runs:
            take({n: np.asarray(feeds[n]) for n in given})
        rest = [t for t in tensors if t not in given]
        for k in range(0, len(rest), _AT_ONCE):
            _run(_outputs_of(proto, rest[k : k + _AT_ONCE]), runs, take)
    return {t: threshold(s, method, percentile) for t, s in seen.items()}


def _sensitivities(
    proto: onnx.ModelProto, found: list[Product], ranges: Mapping[str, tuple[float, float]], scheme: Scheme, runs: list[Feeds],
    say: Callable[[str], None],
) -> dict[str, float]:  # fmt: skip
    """Decibels of each product's output when it alone is quantized: the float32 model runs, with a quantized copy beside each."""
    say("sensitivity of each layer")
    ratios: dict[str, float] = {}
    for k in range(0, len(found), _AT_ONCE):
        some = found[k : k + _AT_ONCE]
        rewriter = Rewriter(proto, ranges, scheme)
        nodes = [*proto.graph.node]
        for tensor in dict.fromkeys(p.reads for p in some if not p.format):
            nodes += rewriter.activation(tensor)
        for p in some:
            nodes += rewriter.product(p, f"{p.gives}/in_bytes")
        names = [n for p in some for n in (p.gives, f"{p.gives}/in_bytes")]
        sums = {p.name: [0.0, 0.0] for p in some}

        def take(values: Mapping[str, Any], some: list[Product] = some, sums: dict[str, list[float]] = sums) -> None:
            for p in some:
                signal, noise = _powers(values[p.gives], values[f"{p.gives}/in_bytes"])
                sums[p.name][0] += signal
                sums[p.name][1] += noise

        _run(with_nodes(proto, nodes, rewriter.initializers, names), runs, take)
        ratios.update({name: _decibels(*both) for name, both in sums.items()})
    return ratios


def _judge(proto: onnx.ModelProto, result: Result, runs: list[Feeds], say: Callable[[str], None]) -> None:
    say("the whole model")
    both: list[list[dict[str, Any]]] = [[], []]
    for model, kept in zip((proto, result.model), both):
        _run(model, runs, kept.append)
    for name in (o.name for o in proto.graph.output):
        pairs = [(a[name], b[name]) for a, b in zip(*both)]
        powers = [_powers(a, b) for a, b in pairs]
        result.signal_to_noise[name] = _decibels(sum(s for s, _ in powers), sum(n for _, n in powers))
        if all(a.ndim == 2 and a.shape[1] > 1 for a, _ in pairs):
            result.agreement[name] = float(np.mean(np.concatenate([a.argmax(1) == b.argmax(1) for a, b in pairs])))


def _powers(want: Any, got: Any) -> tuple[float, float]:
    a, b = want.astype(np.float64), got.astype(np.float64)
    return float(np.sum(a * a)), float(np.sum((a - b) ** 2))


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(signal / noise)) if signal > 0 else float("-inf")
