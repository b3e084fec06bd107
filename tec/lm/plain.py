"""A checkpoint as a graph whose constants hold their numbers, each matrix under its own name: what is split over devices (`tec.shard`), exported, or changed by passes.

`compiled` makes code for sizes alone, and keeps packed formats packed; here every tensor is of the activations' type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Graph, Value
from ..target import Target, as_target
from ..te.numpy_dtype import np_dtype
from .architectures import find
from .checkpoint import Checkpoint
from .config import Config
from .layers import Layers
from .paged import PagedLayers
from .weights import WeightBuilder


class PlainWeights(WeightBuilder):
    """Constants with numbers in place of deferred ones; a product for each matrix."""

    def vector(self, name: str, shape: Sequence[int], dtype: str = "float32", shift: float = 0.0) -> Value:
        key = name, dtype, shift, tuple(shape)
        if key not in self._vectors:
            self.check_count(name, shape)
            value = self.tensor(name).dequantize().reshape(tuple(shape)) + np.float32(shift)
            self._vectors[key] = self.b.graph.constant(value.astype(np_dtype(dtype)), name, dtype)
        return self._vectors[key]

    def gathers(self, names: Sequence[str]) -> bool:
        return False  # what splits a graph over devices knows plain products

    def products(self, x: Value, names: Sequence[str], sizes: Sequence[int], beside: bool = False) -> list[Value]:
        return [self._product(x, name, n, beside) for name, n in zip(names, sizes)]

    def _product(self, x: Value, name: str, n: int, beside: bool) -> Value:
        key = name, x.dtype, 0.0, (n, x.shape[1])
        if key not in self._vectors:
            self.check_matrix(name, n, x.shape[1], beside)
            value = self.tensor(name).dequantize().astype(np_dtype(x.dtype), copy=False)
            value = value.swapaxes(0, 1) if beside else value  # experts' columns one beside the other
            self._vectors[key] = self.b.graph.constant(value.reshape(n, x.shape[1]), name, x.dtype)
        return self.b.graph.add("matmul", [x, self._vectors[key]], {"transpose_b": True}, name, name)[0]


def graph_of(
    checkpoint: Checkpoint,
    target: str | Target | None = None,
    dtype: str = "float32",
    all_logits: bool = False,
    tokens: int | None = None,
    block: int = 0,
) -> Graph:
    """A checkpoint's graph: "embeddings" [tokens, hidden] and caches to "logits" and the caches after. dtype: of weights, activations and caches. tokens: how
    many at a time, where that is not left open. block: tokens of a block, where tokens are of many texts (`paged`). Raises ImportModelError for an architecture or tensors that are not there."""
    config, tgt = Config(checkpoint.config, checkpoint.architecture), as_target(target)
    with tgt:
        if block:
            layers: Layers = PagedLayers(config, checkpoint.tensors, tgt, dtype, block)
        else:
            layers = Layers(config, checkpoint.tensors, tgt, dtype, all_logits)
        layers.w = PlainWeights(layers.b, checkpoint.tensors, tgt)
        if tokens is not None:
            layers.tokens = tokens
        return layers.finish(find(checkpoint.architecture)(layers))
