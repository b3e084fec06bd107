"""Ensembles of decision trees: which leaf of each tree a row falls into, and what the leaves of a row come to.

All trees lie in one table of nodes, its leaves first. A node sends a row to `yes` where its feature is at most `split`, else to `no`; NaN goes to `no`,
or to `yes` where the node's `missing` says so. A leaf sends every row to itself, so each tree takes the same number of steps, and lanes go side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..ir.expr import Let, Var
from ..te import Tensor
from .dims import product
from .registry import OPAQUE, Attrs, TensorType, fail, register


def _leaves_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, feature, split, yes, no, roots, *missing = types
    one = all(t.ndim == 1 for t in types[1:]) and {feature.shape, yes.shape, no.shape, *(m.shape for m in missing)} == {
        split.shape
    }
    if x.ndim != 2 or not one or any(t.dtype != "int32" for t in (feature, yes, no, roots)) or split.dtype != x.dtype:
        raise fail(f"trees of {', '.join(map(str, types))}", hint="the input is (rows, features) of float32 or float64")
    return [TensorType("int32", (x.shape[0], roots.shape[0]))]


def _leaves_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x, feature, split, yes, no, roots, *missing = (np.asarray(a) for a in arrays)
    node = np.broadcast_to(roots, outs[0].shape)
    for _ in range(attrs["depth"]):
        value = np.take_along_axis(x, feature[node], 1)
        hit = value <= split[node]
        if missing:
            hit = hit | (np.isnan(value) & missing[0][node].astype(bool))
        node = np.where(hit, yes[node], no[node])
    return [np.ascontiguousarray(node, np.int32)]


@register(
    "tree_leaves",
    OPAQUE,
    _leaves_type,
    flops=lambda types, outs, attrs: product(outs[0].shape) * attrs["depth"],
    host=_leaves_host,
    takes=(6, 7),
)
def _tree_leaves(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The leaf of each row in each tree, (rows, trees), of x (rows, features), the nodes' feature, split, yes and no, the roots (trees,), and which nodes
    take NaN for yes; `depth`: the steps from any root to its last leaf."""
    x, feature, split, yes, no, roots, *missing = inputs

    def hit(row: Any, node: Any, value: Any) -> Any:
        below = value <= split[node]
        return te.any(below, te.all(value != value, missing[0][node] != 0)) if missing else below

    def walk(row: Any, node: Any, steps: int) -> Any:
        if steps == 0:
            return node
        here = Var("node", "int32")
        value = Var("value", x.dtype)
        following = Var("next", "int32")
        step = te.select(hit(row, here, value), yes[here], no[here])
        rest = Let(following, step, walk(row, following, steps - 1))
        return Let(here, node, Let(value, x[row, feature[here]], rest))

    y = te.compute(outputs[0].shape, lambda i, j: walk(i, roots[j], attrs["depth"]), name="leaf")
    return [y]


def _sums_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    table, leaf = types
    if table.ndim != 2 or leaf.ndim != 2 or leaf.dtype != "int32" or attrs["how"] not in _HOW:
        raise fail(f"sums of leaves of {table} and {leaf}")
    return [TensorType(table.dtype, (leaf.shape[0], table.shape[1]))]


_HOW: dict[str, tuple[Any, Any]] = {
    "sum": (te.sum, np.sum),
    "max": (te.max, np.fmax.reduce),
    "min": (te.min, np.fmin.reduce),
}


def _sums_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    table, leaf = (np.asarray(a) for a in arrays)
    return [np.asarray(_HOW[attrs["how"]][1](table[leaf], axis=1), table.dtype)]


@register(
    "tree_sums",
    OPAQUE,
    _sums_type,
    flops=lambda types, outs, attrs: product(types[1].shape) * types[0].shape[1],
    host=_sums_host,
    takes=2,
)
def _tree_sums(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Of a row's leaves, (rows, trees), the sum, the largest or the smallest (`how`) of what `table` (leaves, targets) has for each target; a NaN of the
    table counts only where no tree has a number."""
    table, leaf = inputs
    t = te.reduce_axis((0, leaf.shape[1]), "tree")
    reducer = _HOW[attrs["how"]][0]
    return [te.compute(outputs[0].shape, lambda i, k: reducer(table[leaf[i, t], k], axis=t), name="tree_sums")]
