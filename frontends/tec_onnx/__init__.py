"""The ONNX frontend of tec: models become operator graphs.

    graph, params = tec_onnx.from_onnx("model.onnx", shape={"input": (1, 3, 224, 224)})

`backend` is an `onnx.backend.base.Backend`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from tec import ImportModelError
from tec.graph import Graph, Value
from tec.graph.passes.mixed_precision import mixed_precision
from tec.ops.registry import SizesMeet

from . import (  # noqa: F401  (the converters register themselves)
    backend,
    ops_attention,
    ops_contrib,
    ops_control,
    ops_experts,
    ops_fused,
    ops_group_attention,
    ops_host,
    ops_image,
    ops_linear,
    ops_math,
    ops_microsoft,
    ops_ml,
    ops_ml_prepare,
    ops_nn,
    ops_quant,
    ops_reduce,
    ops_rnn,
    ops_shape,
    ops_signal,
    ops_trees,
)
from .describe import describe, operators
from .importer import CONVERTERS, NeedsValue, import_model, unsupported
from .inputs import bind_shapes, input_info, with_equal
from .maps import Maps
from .quantization import quantize
from .reader import load_model
from .session import Session
from .state import find_state


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: str | None = None,
    freeze: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | bool = True,
) -> tuple[Graph, dict[str, Any]]:
    """The operator graph of an ONNX model, and its weights by name.

    model: a path, bytes or a ModelProto. shape: {input: shape}, or {dimension's name: size}. Dimensions without a size stay
    symbolic; one without a name is called by its input and its place there, "x_0". Open sizes that a node needs equal are
    one size. The rows of maps that ZipMap makes stay an array [rows, classes], in the order of its labels. freeze: {input: array} makes inputs constant, as those must be that decide on shapes.
    dtype: "float16" converts the network's arithmetic. state: {input: output} of what an input was in the run before; True: what the
    names say (`state.find_state`). The graph has it as `graph.state`. Raises ImportModelError.

    >>> from onnx import helper
    >>> x, y = (helper.make_tensor_value_info(n, 1, ("n", 4)) for n in "xy")
    >>> model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
    >>> graph, weights = tec_onnx.from_onnx(model)
    >>> print(graph.outputs[0].type, weights)
    float32[n, 4] {}
    """
    proto = load_model(model)
    frozen = dict(freeze or {})
    found = {} if state is False else find_state(proto) if state is True else dict(state)
    found = {i: o for i, o in found.items() if i not in frozen}
    given = {**(shape or {}), **{k: v.shape for k, v in frozen.items() if hasattr(v, "shape")}}
    while True:
        try:
            graph, outputs = import_model(proto, bind_shapes(proto, given, found), frozen)
            break
        except SizesMeet as known:
            more = with_equal(proto, given, known.pairs)
            if more is None:
                raise
            given = more
    outputs = [v.scores if isinstance(v, Maps) else v for v in outputs]
    for value, info in zip(outputs, proto.graph.output):
        if not isinstance(value, Value):
            raise ImportModelError(
                f"output {info.name!r} is a sequence or an optional", hint="such models run through tec_onnx.session"
            )
    graph.set_outputs(outputs, [o.name for o in proto.graph.output])
    graph.state = found
    if dtype is not None:
        graph = mixed_precision(graph, dtype)
    return graph, graph.params


def accepts(source: Any) -> bool:
    """Whether that may be an ONNX model: bytes, a ModelProto, a path of anything but an archive (packages, torch's files)."""
    if isinstance(source, (str, os.PathLike)):
        if os.fspath(source).endswith(".onnx"):
            return True
        try:
            with open(source, "rb") as f:
                return f.read(2) != b"PK"
        except (OSError, ValueError):
            return True  # reading it says what is wrong
    return isinstance(source, (bytes, bytearray, onnx.ModelProto))


def load(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dtype: str | None = None,
    freeze: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | bool = True,
) -> Graph:
    """The graph alone: what `tec.compile` calls for a path or a ModelProto."""
    return from_onnx(model, shapes, dtype, freeze, state)[0]


def session(model: Any, target: Any = "llvm", device: Any = None, dtype: str | None = None) -> Session:
    """What runs a model whatever decides on its shapes: networks for `target` are made as values come, and kept."""
    return Session(model, backend.compiled_runner(target, device, dtype))


def interface(model: Any) -> tuple[dict[str, tuple[str, list[int | str | None]]], list[str]]:
    """(dtype, dimensions) of each tensor that a model takes, by name, and the names of what it gives."""
    proto = load_model(model)
    return {n: entry for n, entry in input_info(proto).items() if entry is not None}, [
        o.name for o in proto.graph.output
    ]


__all__ = [
    "CONVERTERS",
    "NeedsValue",
    "Session",
    "backend",
    "bind_shapes",
    "describe",
    "from_onnx",
    "input_info",
    "interface",
    "load",
    "load_model",
    "quantize",
    "operators",
    "session",
    "unsupported",
]
