"""tvm.relay.frontend: from_onnx, over tec's own frontend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tec.errors import ArgumentError

from ..names import absent
from .build import RelayModule


def from_onnx(
    model: Any,
    shape: Any = None,
    dtype: Any = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    **options: Any,
) -> tuple[RelayModule, dict[str, Any]]:
    """A network from a ModelProto or a path. The weights stay in the network: the parameters that TVM hands out beside it are none."""
    if shape is not None and not isinstance(shape, Mapping):
        raise ArgumentError(f"from_onnx: the shapes are {shape!r}", hint="{input: shape}")
    return RelayModule(model, {k: tuple(v) for k, v in shape.items()} if shape else None), {}


__getattr__ = absent(__name__)
