"""Operators of ai.onnx.ml that sklearn's models become: linear models, support vector machines, and what prepares their inputs.

Where the standard leaves open what a binary classifier's scores are, they are as ONNX Runtime has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.matmul import matmul

from .coupling import coupled
from .importer import Call, Outputs, onnx_op

ML = "ai.onnx.ml"


def as_float(c: Call, x: Value) -> Value:
    """`x` in float32, or as it is in float64."""
    return x if x.dtype == "float64" else c.cast(x, "float32")


def post_transform(c: Call, y: Value, kind: str) -> Value:
    """Scores (rows, classes) as the attribute post_transform asks."""
    if kind == "NONE":
        return y
    if kind == "SOFTMAX":
        return c.op("softmax", y, axes=(1,))
    if kind == "LOGISTIC":
        return c.op("sigmoid", y)
    if kind == "SOFTMAX_ZERO":  # a score of 0 stays 0
        top = c.op("reduce_max", y, axes=(1,), keepdims=True)
        e = c.op("exp", c.op("subtract", y, top))
        e = c.op("where", c.op("equal", y, c.like(0, y)), c.like(0, y), e)
        return c.op("divide", e, c.op("reduce_sum", e, axes=(1,), keepdims=True))
    if kind == "PROBIT":
        return _probit(c, y)
    raise ImportModelError(
        f"post_transform {kind!r} of {c.op_type}", hint="NONE, SOFTMAX, SOFTMAX_ZERO, LOGISTIC or PROBIT"
    )


def _probit(c: Call, p: Value) -> Value:
    """sqrt(2) times the inverse of erf at 2 p - 1, by Winitzki's approximation, which ONNX Runtime takes too."""
    a = 0.147
    x = c.op("subtract", c.op("multiply", p, c.like(2, p)), c.like(1, p))
    one = c.like(1, p)
    w = c.op("log", c.op("multiply", c.op("subtract", one, x), c.op("add", one, x)))
    v = c.op("add", c.op("multiply", w, c.like(0.5, p)), c.like(2 / (math.pi * a), p))
    inner = c.op("subtract", c.op("multiply", v, v), c.op("multiply", w, c.like(1 / a, p)))
    root = c.op("sqrt", c.op("subtract", c.op("sqrt", inner), v))
    return c.op("multiply", c.op("multiply", c.op("sign", x), root), c.like(math.sqrt(2), p))


def labelled(c: Call, index: Value, labels: Sequence[Any]) -> Value:
    """The labels of classes (rows,). Text exists on the host alone: it is looked up when the network runs in a session."""
    if labels and isinstance(labels[0], str):
        names = np.array(list(labels), dtype=object)
        return c.host(lambda k: names[k], index, what="a label that is text")  # type: ignore[no-any-return]
    numbers = np.asarray(labels, np.int64)
    if (numbers == np.arange(len(numbers))).all():
        return index
    return c.op("gather", c.const(numbers), index, axis=0)


def classified(c: Call, scores: Value, labels: Sequence[Any], post: str, threshold: float = 0.0) -> Outputs:
    """Labels and scores of a classifier. One score for two labels is the second's: beyond `threshold` it wins; with a threshold above 0 it counts as a chance."""
    if scores.shape[1] == 1 and len(labels) == 2:
        wins = c.cast(c.op("greater", c.take(scores, 1, 0), c.like(threshold, scores)), "int64")
        if post == "PROBIT":
            return Outputs([labelled(c, wins, labels), post_transform(c, scores, post)])
        chance = threshold and post != "LOGISTIC"
        other = c.op("subtract", c.like(1, scores), scores) if chance else c.op("neg", scores)
        both = c.concat([other, scores], 1)
        if post == "LOGISTIC":
            both = c.op("sigmoid", both)
        return Outputs([labelled(c, wins, labels), both])
    best = c.op("argmax", scores, axis=1, keepdims=False, last=False)
    return Outputs([labelled(c, best, labels), post_transform(c, scores, post)])


# ---- linear models


def _rows(c: Call, x: Value) -> Value:
    """(rows, features): a vector is one row."""
    return c.reshape(x, (1, x.shape[0])) if x.ndim == 1 else x


def _linear(c: Call, count: int) -> Value:
    x = as_float(c, _rows(c, c[0]))
    weights = np.asarray(c.attr("coefficients"), np.float64).reshape(count, -1)
    if weights.shape[1] != x.shape[1]:
        raise ImportModelError(
            f"{c.op_type} has {weights.shape[1]} coefficients a score, its input {x.shape[1]} features",
            hint=f"the model was fitted on {weights.shape[1]} features: feed as many columns",
        )
    y = matmul(c, x, c.const(np.ascontiguousarray(weights.T), x.dtype))
    bias = c.attr("intercepts")
    return c.op("add", y, c.const(np.asarray(bias), y.dtype)) if bias is not None and len(bias) else y


@onnx_op("LinearRegressor", domain=ML)
def linear_regressor(c: Call) -> Value:
    return post_transform(c, _linear(c, int(c.attr("targets", 1))), c.attr("post_transform", "NONE"))


@onnx_op("LinearClassifier", domain=ML)
def linear_classifier(c: Call) -> Outputs:
    labels = c.attr("classlabels_strings") or c.attr("classlabels_ints")
    bias = c.attr("intercepts")
    count = len(bias) if bias else len(c.attr("coefficients")) // c[0].shape[-1]
    return classified(c, _linear(c, count), labels, c.attr("post_transform", "NONE"))


# ---- support vector machines


def _kernel(c: Call, x: Value, vectors: Any) -> Value:
    """(rows, vectors): the kernel of each row with each support vector."""
    kind = c.attr("kernel_type", "LINEAR")
    gamma, shift, degree = (*(c.attr("kernel_params") or ()), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        # By differences: squares that are subtracted would lose what near vectors differ in.
        apart = c.op("subtract", c.unsqueeze(x, 1), c.const(vectors[None], x.dtype))
        squares = c.op("reduce_sum_square", apart, axes=(2,), keepdims=False)
        return c.op("exp", c.op("multiply", squares, c.like(-gamma, squares)))
    y = matmul(c, x, c.const(np.ascontiguousarray(vectors.T), x.dtype))
    if kind == "LINEAR":
        return y
    y = c.op("add", c.op("multiply", y, c.like(gamma, y)), c.like(shift, y))
    if kind == "SIGMOID":
        return c.op("tanh", y)
    if kind == "POLY":
        return c.op("power", y, c.like(degree, y))
    raise ImportModelError(f"kernel_type {kind!r} of {c.op_type}", hint="LINEAR, POLY, RBF or SIGMOID")


@onnx_op("SVMRegressor", domain=ML)
def svm_regressor(c: Call) -> Value:
    x, count = as_float(c, _rows(c, c[0])), int(c.attr("n_supports", 0))
    weights = np.asarray(c.attr("coefficients"), np.float64)
    if count:
        k = _kernel(c, x, np.asarray(c.attr("support_vectors"), np.float64).reshape(count, -1))
        y = matmul(c, k, c.const(weights.reshape(count, 1), x.dtype))
    else:
        y = matmul(c, x, c.const(weights.reshape(-1, 1), x.dtype))
    y = c.op("add", y, c.const(np.asarray(c.attr("rho") or [0.0])[:1], y.dtype))
    if c.attr("one_class", 0):
        y = c.op("where", c.op("greater", y, c.like(0, y)), c.like(1, y), c.like(-1, y))
    return post_transform(c, y, c.attr("post_transform", "NONE"))


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


@onnx_op("SVMClassifier", domain=ML)
def svm_classifier(c: Call) -> Outputs:
    """One score a pair of classes, as libsvm: a class's vectors have a coefficient against each other class.

    The label is the class that wins most pairs, also where there are chances: these may favour another one."""
    x = as_float(c, _rows(c, c[0]))
    labels = c.attr("classlabels_strings") or c.attr("classlabels_ints")
    per, classes, post = c.attr("vectors_per_class"), len(labels), c.attr("post_transform", "NONE")
    weights = np.asarray(c.attr("coefficients"), np.float64)
    rho = np.asarray(c.attr("rho") or [0.0], np.float64)
    if not per:  # a linear machine: a score a class
        y = matmul(c, x, c.const(np.ascontiguousarray(weights.reshape(classes, -1).T), x.dtype))
        return classified(c, c.op("add", y, c.const(rho[:1], y.dtype)), labels, post)
    count = sum(per)
    weights = weights.reshape(classes - 1, count)
    of = np.repeat(np.arange(classes), per)
    pairs = _pairs(classes)
    mixed = np.zeros((count, len(pairs)))
    for p, (i, j) in enumerate(pairs):
        mixed[of == i, p] = weights[j - 1, of == i]
        mixed[of == j, p] = weights[i, of == j]
    k = _kernel(c, x, np.asarray(c.attr("support_vectors"), np.float64).reshape(count, -1))
    scores = c.op("add", matmul(c, k, c.const(mixed, x.dtype)), c.const(rho, x.dtype))
    won = c.cast(c.op("greater", scores, c.like(0, scores)), scores.dtype)
    ballots = np.zeros((len(pairs), classes))
    for p, (i, j) in enumerate(pairs):
        ballots[p, i], ballots[p, j] = 1.0, -1.0
    first = np.array([sum(j == k for _, j in pairs) for k in range(classes)], np.float64)
    votes = c.op("add", matmul(c, won, c.const(ballots, won.dtype)), c.const(first, won.dtype))
    best = c.op("argmax", votes, axis=1, keepdims=False, last=False)
    if c.attr("prob_a"):
        scores = coupled(c, _pair_chances(c, scores), classes)
    elif classes == 2:
        scores = c.concat([c.op("neg", scores), scores], 1)
    return Outputs([labelled(c, best, labels), post_transform(c, scores, post)])


def _pair_chances(c: Call, scores: Value) -> Value:
    """(rows, pairs): how likely the first class of a pair is against the second, by Platt's scaling."""
    a, b = (c.const(np.asarray(c.attr(n)), scores.dtype) for n in ("prob_a", "prob_b"))
    y = c.op("sigmoid", c.op("neg", c.op("add", c.op("multiply", scores, a), b)))
    return c.op("minimum", c.op("maximum", y, c.like(1e-7, y)), c.like(1 - 1e-7, y))
