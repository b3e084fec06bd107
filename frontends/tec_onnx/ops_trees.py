"""Tree ensembles of ai.onnx.ml: each tree becomes comparisons and choices on whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value

from .importer import Call, onnx_op

_MODES = {0: "less_equal", 1: "less", 2: "greater_equal", 3: "greater", 4: "equal", 5: "not_equal"}
_MEMBER = 6


@onnx_op("TreeEnsemble", domain="ai.onnx.ml")
def tree_ensemble(c: Call) -> Value:
    x = c[0]
    rows = x.shape[0]
    targets = c.attr("n_targets", 1)
    features, modes = c.attr("nodes_featureids"), np.asarray(c.attr("nodes_modes")).reshape(-1)
    splits, weights = np.asarray(c.attr("nodes_splits")), np.asarray(c.attr("leaf_weights"))
    left, left_leaf = c.attr("nodes_truenodeids"), c.attr("nodes_trueleafs")
    right, right_leaf = c.attr("nodes_falsenodeids"), c.attr("nodes_falseleafs")
    leaf_target = c.attr("leaf_targetids")
    missing = c.attr("nodes_missing_value_tracks_true") or [0] * len(modes)
    members = _member_sets(c, modes)
    how = {0: "mean", 1: "sum", 2: "min", 3: "max"}[c.attr("aggregate_function", 1)]

    def condition(k: int) -> Value:
        column = c.slice(x, 1, features[k], 1)
        if modes[k] == _MEMBER:
            hit = None
            for v in members[k]:
                one = c.op("equal", column, c.like(float(v), x))
                hit = one if hit is None else c.op("logical_or", hit, one)
            assert hit is not None
        else:
            hit = c.op(_MODES[int(modes[k])], column, c.like(float(splits[k]), x))
        return c.op("logical_or", hit, c.op("isnan", column)) if missing[k] else hit

    def walk(k: int, leaf: bool, depth: int = 0) -> Value:
        """(rows, targets): what the tree below gives; targets that it has nothing for are NaN for min and max."""
        if depth > len(modes):
            raise ImportModelError("a tree with a cycle")
        if leaf:
            out = np.full((1, targets), 0.0 if how in ("sum", "mean") else np.nan)
            out[0, leaf_target[k]] = weights[k]
            return c.broadcast(c.const(out, x.dtype), (rows, targets))
        return c.op(
            "where",
            condition(k),
            walk(left[k], bool(left_leaf[k]), depth + 1),
            walk(right[k], bool(right_leaf[k]), depth + 1),
        )

    total = None
    roots = c.attr("tree_roots")
    for r in roots:
        y = walk(r, False)
        if total is None:
            total = y
        elif how in ("sum", "mean"):
            total = c.op("add", total, y)
        else:
            total = c.op("maximum" if how == "max" else "minimum", total, y)
    if total is None:
        raise ImportModelError("a TreeEnsemble without trees")
    if how == "mean":
        total = c.op("multiply", total, c.like(1.0 / len(roots), total))
    if how in ("min", "max"):
        total = c.op("where", c.op("isnan", total), c.like(0, total), total)
    return _post_transform(c, total)


def _member_sets(c: Call, modes: Any) -> dict[int, list[float]]:
    """The sets of the membership nodes, in order; in the attribute they are separated by NaN."""
    values = c.attr("membership_values")
    flat = [] if values is None else [float(v) for v in np.asarray(values).reshape(-1)]
    sets: list[list[float]] = [[]]
    for v in flat:
        if v != v:
            sets.append([])
        else:
            sets[-1].append(v)
    nodes = [k for k, m in enumerate(modes) if m == _MEMBER]
    return dict(zip(nodes, sets))


def _post_transform(c: Call, y: Value) -> Value:
    kind = c.attr("post_transform", 0)
    if kind == 0:
        return y
    if kind == 1:
        return c.op("softmax", y, axes=(1,))
    if kind == 2:
        return c.op("sigmoid", y)
    raise ImportModelError(f"post_transform {kind} of TreeEnsemble")
