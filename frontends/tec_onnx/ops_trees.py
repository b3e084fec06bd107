"""Tree ensembles of ai.onnx.ml: all trees become one table of nodes, which rows walk through (`tec.ops.trees`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.records import dataclass

from .importer import Call, Outputs, onnx_op
from .ops_ml import as_float, classified, post_transform

_MODES = {
    "BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5, "LEAF": -1,
}  # fmt: skip
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)
_HOW = {0: "AVERAGE", 1: "SUM", 2: "MIN", 3: "MAX"}
_POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LEAF = -1


@dataclass
class Nodes:
    """Inner nodes that ask whether a feature is at most `split`. `yes` and `no`: a node's number, or -1 less a leaf's."""

    dtype: Any
    feature: list[int] = field(default_factory=list)
    split: list[Any] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)

    def add(self, feature: int, split: Any, yes: int, no: int, missing: bool) -> int:
        for column, v in zip(
            (self.feature, self.split, self.yes, self.no, self.missing), (feature, split, yes, no, missing)
        ):
            column.append(v)  # type: ignore[attr-defined]
        return len(self.feature) - 1

    def ask(self, mode: int, feature: int, values: Sequence[Any], yes: int, no: int, missing: bool) -> int:
        """The first of the nodes that stand for a question of any mode; NaN goes to `yes` where `missing`, else to `no`."""
        v = np.asarray(values[0] if len(values) else 0, self.dtype)
        if mode in (_GT, _GTE, _NEQ):
            return self.ask({_GT: _LEQ, _GTE: _LT, _NEQ: _EQ}[mode], feature, [v], no, yes, not missing)
        if mode == _LEQ:
            return self.add(feature, v, yes, no, missing)
        below = np.nextafter(v, np.asarray(-np.inf, self.dtype))
        if mode == _LT:
            return self.add(feature, below, yes, no, missing)
        if mode == _EQ:  # at most v, and not at most the number before
            return self.add(feature, v, self.add(feature, below, no, yes, False), no, missing)
        if mode != _MEMBER:
            raise ImportModelError(
                f"mode {mode} of a node of a tree", hint="modes are numbered from 0 (BRANCH_LEQ) to 6 (BRANCH_MEMBER)"
            )
        for one in values:
            no = self.ask(_EQ, feature, [one], yes, no, missing)
        return no


def leaves(c: Call, x: Value, nodes: Nodes, roots: Sequence[int], count: int) -> Value:
    """(rows, trees): the leaf of each row, of `count`, in each tree."""
    depth = _depth(nodes, roots)
    own = np.arange(count)
    if nodes.feature and not 0 <= min(nodes.feature) <= max(nodes.feature) < x.shape[1]:
        raise ImportModelError(
            f"a tree asks for feature {max(nodes.feature)} of {x.shape[1]}",
            hint=f"the trees were fitted on {max(nodes.feature) + 1} features or more: feed as many columns",
        )

    def numbered(ends: Sequence[int]) -> Any:
        k = np.asarray(ends, np.int64).reshape(-1)
        return np.where(k < 0, -1 - k, k + count)

    def table(of_leaves: Any, of_nodes: Any, dtype: str) -> Value:
        return c.const(np.concatenate([of_leaves, np.asarray(of_nodes)]).astype(dtype), dtype)

    inputs = [
        table(0 * own, nodes.feature, "int32"),
        table(0 * own, nodes.split, x.dtype),
        table(own, numbered(nodes.yes), "int32"),
        table(own, numbered(nodes.no), "int32"),
        c.const(numbered(roots).astype("int32"), "int32"),
    ]
    if any(nodes.missing):
        inputs.append(table(0 * own, nodes.missing, "int32"))
    return c.op("tree_leaves", x, *inputs, depth=depth)


def _depth(nodes: Nodes, roots: Sequence[int]) -> int:
    """The most steps from a root to a leaf. Raises ImportModelError for a cycle."""
    level = {r for r in roots if r >= 0}
    steps = 0
    while level:
        steps += 1
        if steps > len(nodes.feature):
            raise ImportModelError(
                "a tree with a cycle",
                hint="nodes of a tree lead to nodes further down alone: check the ids of the true and false branches, or export the model again",
            )
        level = {k for n in level for k in (nodes.yes[n], nodes.no[n]) if k >= 0}
    return steps


def totals(c: Call, leaf: Value, table: Any, how: str, dtype: str) -> Value:
    """(rows, targets): what the leaves come to. `table`: (leaves, targets), NaN where a leaf has nothing for a target."""
    if how in ("SUM", "AVERAGE"):
        y = c.op("tree_sums", c.const(np.nan_to_num(table), dtype), leaf, how="sum")
        return c.op("multiply", y, c.like(1.0 / leaf.shape[1], y)) if how == "AVERAGE" else y
    y = c.op("tree_sums", c.const(table, dtype), leaf, how=how.lower())
    return c.op("where", c.op("isnan", y), c.like(0, y), y)


@onnx_op("TreeEnsemble", domain="ai.onnx.ml")
def tree_ensemble(c: Call) -> Value:
    """The sum of what trees say, whose nodes are put children first."""
    x, targets = c[0], int(c.attr("n_targets", 1))
    modes = [int(m) for m in np.asarray(c.attr("nodes_modes")).reshape(-1)]
    splits, weights = np.asarray(c.attr("nodes_splits")), np.asarray(c.attr("leaf_weights"))
    missing = c.attr("nodes_missing_value_tracks_true") or [0] * len(modes)
    nodes, members = Nodes(np.dtype(x.dtype)), _member_sets(c, modes)
    place: dict[int, int] = {}

    def end(k: int, leaf: int) -> int:
        return -1 - k if leaf else place[k]

    left, right = (
        list(zip(c.attr(f"nodes_{side}nodeids"), c.attr(f"nodes_{side}leafs"))) for side in ("true", "false")
    )
    for k in _children_first(len(modes), lambda k: [n for n, leaf in (left[k], right[k]) if not leaf]):
        values = members[k] if modes[k] == _MEMBER else [splits[k]]
        place[k] = nodes.ask(
            modes[k], c.attr("nodes_featureids")[k], values, end(*left[k]), end(*right[k]), bool(missing[k])
        )
    roots = [place[r] for r in c.attr("tree_roots")]
    if not roots:
        raise ImportModelError(
            "a TreeEnsemble without trees",
            hint="tree_roots names the first node of each tree; export the fitted model again",
        )
    table = np.full((len(weights), targets), np.nan)
    table[np.arange(len(weights)), c.attr("leaf_targetids")] = weights
    y = totals(
        c, leaves(c, x, nodes, roots, len(weights)), table, _HOW[int(c.attr("aggregate_function", 1))], c[0].dtype
    )
    return post_transform(c, y, _POST[int(c.attr("post_transform", 0))])


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


def _children_first(count: int, children: Any) -> list[int]:
    """The numbers below `count`, each behind its children. Raises ImportModelError for a cycle."""
    done: list[int] = []
    state = [0] * count  # 1: its children are being listed, 2: listed
    for start in range(count):
        todo = [start]
        while todo:
            k = todo[-1]
            if state[k] == 0:
                state[k] = 1
                below = [n for n in children(k) if state[n] != 2]
                if any(state[n] == 1 for n in below):
                    raise ImportModelError(
                        "a tree with a cycle",
                        hint="nodes of a tree lead to nodes further down alone: check the ids of the true and false branches, or export the model again",
                    )
                todo.extend(below)
            else:
                todo.pop()
                if state[k] == 1:
                    state[k] = 2
                    done.append(k)
    return done


# ---- ensembles as ai.onnx.ml had them before version 5


@dataclass
class _Old:
    """An ensemble by (tree, node), as a classifier and a regressor list it."""

    nodes: Nodes
    roots: list[int]
    table: Any  # (leaves, targets)


def _numbers(c: Call, name: str) -> Any:
    """An attribute of numbers, from its tensor of float64 where the model has one."""
    wide = c.attr(f"{name}_as_tensor")
    return np.asarray(wide if wide is not None else c.attr(name, ())).reshape(-1)


def _read(c: Call, dtype: str, prefix: str, targets: int) -> _Old:
    keys = list(zip(c.attr("nodes_treeids"), c.attr("nodes_nodeids")))
    index = {key: k for k, key in enumerate(keys)}
    modes = [_MODES[m] for m in c.attr("nodes_modes")]
    values = _numbers(c, "nodes_values")
    missing = c.attr("nodes_missing_value_tracks_true") or [0] * len(keys)
    kids = [
        [index[tree, n] for n in pair] if mode != _LEAF else []
        for (tree, _), mode, pair in zip(keys, modes, zip(c.attr("nodes_truenodeids"), c.attr("nodes_falsenodeids")))
    ]
    ends = [k for k, mode in enumerate(modes) if mode == _LEAF]
    place = {k: -1 - n for n, k in enumerate(ends)}
    nodes = Nodes(np.dtype(dtype))
    for k in _children_first(len(keys), kids.__getitem__):
        if modes[k] != _LEAF:
            yes, no = (place[n] for n in kids[k])
            place[k] = nodes.ask(modes[k], c.attr("nodes_featureids")[k], [values[k]], yes, no, bool(missing[k]))
    table = np.full((len(ends), targets), np.nan)
    what = zip(c.attr(f"{prefix}_treeids"), c.attr(f"{prefix}_nodeids"), c.attr(f"{prefix}_ids"))
    for (tree, n, target), weight in zip(what, _numbers(c, f"{prefix}_weights")):
        spot = (-1 - place[index[tree, n]], target)
        table[spot] = weight if table[spot] != table[spot] else table[spot] + weight
    inner = {n for below in kids for n in below}
    return _Old(nodes, [place[k] for k in range(len(keys)) if k not in inner], table)


@onnx_op("TreeEnsembleRegressor", domain="ai.onnx.ml")
def tree_ensemble_regressor(c: Call) -> Value:
    x, targets = as_float(c, c[0]), int(c.attr("n_targets", 1))
    old = _read(c, x.dtype, "target", targets)
    leaf = leaves(c, x, old.nodes, old.roots, len(old.table))
    y = c.cast(totals(c, leaf, old.table, c.attr("aggregate_function", "SUM"), x.dtype), "float32")
    base = _numbers(c, "base_values")
    y = c.op("add", y, c.const(base, y.dtype)) if base.size else y
    return post_transform(c, y, c.attr("post_transform", "NONE"))


@onnx_op("TreeEnsembleClassifier", domain="ai.onnx.ml")
def tree_ensemble_classifier(c: Call) -> Outputs:
    x = as_float(c, c[0])
    ids = c.attr("class_ids")
    labels = c.attr("classlabels_strings") or c.attr("classlabels_int64s")
    count = max(len(labels), max(ids) + 1)
    old = _read(c, x.dtype, "class", count)
    leaf = leaves(c, x, old.nodes, old.roots, len(old.table))
    base, one = _numbers(c, "base_values"), len(labels) == 2 and len(set(ids)) == 1
    table = old.table[:, ids[0] : ids[0] + 1] if one else old.table
    scores = c.cast(totals(c, leaf, table, "SUM", x.dtype), "float32")
    if base.size:
        scores = c.op("add", scores, c.const(base[-1:] if one else base, scores.dtype))
    positive = bool((_numbers(c, "class_weights") >= 0).all())
    return classified(c, scores, labels, c.attr("post_transform", "NONE"), threshold=0.5 if one and positive else 0.0)
