"""Mixtures of experts: a router gives each token a weight for some of the feed-forward networks, and 0 for the others.

`choose` makes a token's experts and their weights by the rule of a family; `mixture` runs them. On a CPU the chosen experts' weights alone are read
(`WeightBuilder.chosen`). Elsewhere all experts together are one wide gated network whose inner features are multiplied by their expert's weight: gates and ups one
below the other, downs one beside the other, so that experts whose weight is 0 are computed too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ImportModelError
from ..graph import Value
from .layers import Layers
from .remedies import FETCH_AGAIN

PARTS = ("gate_proj", "up_proj", "down_proj")
Inner = Callable[..., Value]


@dataclass(frozen=True)
class Chosen:
    """Numbers of a token's experts, int64 [tokens, chosen], and their weights, float32."""

    places: Value
    weights: Value


def experts_of(m: Layers) -> int:
    """Experts of a layer, by the names that configurations have for their number."""
    return m.c.size(
        "num_experts", m.c.get("num_local_experts", m.c.get("n_routed_experts", m.c.get("moe_num_experts")))
    )


def chosen_of(m: Layers) -> int:
    """Experts of a token. ImportModelError where they are more than there are."""
    chosen = m.c.size("num_experts_per_tok", m.c.get("top_k_experts", m.c.get("moe_topk", m.c.get("moe_k"))))
    if chosen > experts_of(m):
        raise ImportModelError(
            f"num_experts_per_tok = {chosen} of {experts_of(m)} experts in {m.c.architecture}", hint=FETCH_AGAIN
        )
    return chosen


def choose(
    m: Layers, x: Value, router: str = "mlp.gate", *, normed: bool, scoring: str = "softmax", bias: str = "", scale: float = 1.0, scale_of_each: str = "",
    groups: int = 1, kept: int = 1, best_of_group: int = 1, epsilon: float = 0.0,
) -> Chosen:  # fmt: skip
    """The experts with the largest scores of x [tokens, hidden].

    scoring: "softmax" or "sigmoid" of all experts' logits; "softmax of chosen": of those that were chosen alone. bias: a tensor that is added to scores where they
    choose, and not where they weigh. groups, kept: experts are chosen from the `kept` groups whose `best_of_group` largest scores add up to most. normed: weights
    add up to 1, before they are multiplied by `scale`, and by the experts' own of the tensor `scale_of_each`.
    """
    b, count, chosen = m.b, experts_of(m), chosen_of(m)
    logits = b.cast(m.linear(x, m.name(router), sizes=[count])[0], "float32")
    if scoring not in ("softmax", "sigmoid", "softmax of chosen"):
        raise ImportModelError(f"scoring_func {scoring!r} of {m.c.architecture}", hint="softmax or sigmoid")
    scores = (
        b.op("softmax", logits, axes=(1,))
        if scoring == "softmax"
        else b.op("sigmoid", logits)
        if scoring == "sigmoid"
        else logits
    )
    choice = b.op("add", scores, m.w.vector(m.name(bias), (count,))) if bias else scores
    if groups > 1:
        lowest = 0.0 if scoring == "softmax" and not bias else -1e30
        choice = _of_groups(m, choice, count, groups, kept, best_of_group, lowest)
    values, places = b.ops("topk", choice, k=chosen, axis=1)
    if scoring == "softmax of chosen":
        values = b.op("softmax", values, axes=(1,))
    elif bias:
        values = _of_chosen(m, b.reshape(scores, (m.tokens, 1, count)), places, count)
    if normed:
        total = b.op("reduce_sum", values, axes=(1,), keepdims=True)
        values = b.op("divide", values, b.op("add", total, b.like(epsilon, total)) if epsilon else total)
    if scale_of_each:
        values = b.op(
            "multiply", values, _of_chosen(m, m.w.vector(m.name(scale_of_each), (1, 1, count)), places, count)
        )
    return Chosen(places, m.scaled(values, scale))


def _of_chosen(m: Layers, values: Value, places: Value, count: int) -> Value:
    """Those of `values`, float32 [tokens or 1, 1, count], that stand at places [tokens, chosen]."""
    return m.b.op("reduce_sum", m.b.op("multiply", _marks(m, places, count), values), axes=(2,), keepdims=False)


def _of_groups(m: Layers, choice: Value, count: int, groups: int, kept: int, best: int, lowest: float) -> Value:
    """Scores, `lowest` outside of the groups that are best."""
    b, size = m.b, count // groups
    if count % groups or not 0 < kept <= groups or best > size:
        raise ImportModelError(
            f"n_group = {groups} and topk_group = {kept} for {count} experts of {m.c.architecture}", hint=FETCH_AGAIN
        )
    parts = b.reshape(choice, (m.tokens, groups, size))
    value = b.op("reduce_sum", b.ops("topk", parts, k=best, axis=2)[0], axes=(2,), keepdims=False)
    of = b.op("reduce_sum", _marks(m, b.ops("topk", value, k=kept, axis=1)[1], groups), axes=(1,), keepdims=False)
    inside = b.op("greater", b.reshape(of, (m.tokens, groups, 1)), b.like(0.5, of))
    return b.reshape(b.op("where", inside, parts, b.like(lowest, parts)), (m.tokens, count))


def _marks(m: Layers, places: Value, count: int) -> Value:
    """1 where a number stands for a place, float32 [tokens, chosen, count]."""
    b = m.b
    numbers = b.const(np.arange(count).reshape(1, 1, count), places.dtype)
    return b.cast(b.op("equal", b.reshape(places, (m.tokens, places.shape[1], 1)), numbers), "float32")


def mixture(
    m: Layers, x: Value, chosen: Chosen, *, prefix: str = "mlp.experts", size: int = 0, inner: Inner | None = None, bias: bool = False,
    activation: str | None = None, parts: Sequence[str] = PARTS, weighs_inputs: bool = False,
) -> Value:  # fmt: skip
    """x [tokens, hidden] through the layer's experts. size: inner features of one. parts: its matrices, of which the last one goes down. inner: of what the others
    make (gate and up) what goes down, else activation(gate) * up, by the configuration's activation where none is said. bias: whether experts have some. weighs_inputs: experts get x times their weights,
    and their results are added as they are."""
    size = size or m.c.size("moe_intermediate_size", m.c.get("intermediate_size"))

    def usual(gate: Value, up: Value) -> Value:
        return m.b.op("multiply", m.activation(gate, activation), up)

    names = [f"{m.name(prefix)}.{part}" for part in parts]
    run = _gathered if m.w.gathers([f"{n}.weight" for n in names]) else _wide
    return run(m, x, chosen, names, size, inner or usual, bias, weighs_inputs)


def _wide(m: Layers, x: Value, chosen: Chosen, names: list[str], size: int, inner: Inner, bias: bool, weighs_inputs: bool) -> Value:  # fmt: skip
    b, count, hidden = m.b, experts_of(m), m.c.hidden
    marks = _marks(m, chosen.places, count)
    weights = b.op(
        "reduce_sum",
        b.op("multiply", marks, b.reshape(chosen.weights, (m.tokens, chosen.weights.shape[1], 1))),
        axes=(1,),
        keepdims=False,
    )
    made = m.linear(x, *names[:-1], sizes=[count * size] * len(names[:-1]), bias=bias)

    def weighed(y: Value) -> Value:
        y = b.reshape(y, (m.tokens, count, size))
        y = b.op("multiply", y, b.cast(b.reshape(weights, (m.tokens, count, 1)), y.dtype))
        return b.reshape(y, (m.tokens, count * size))

    # A product of a multiple of x is that multiple of the product.
    y = inner(*map(weighed, made)) if weighs_inputs else weighed(inner(*made))
    y = m.linear(y, names[-1], sizes=[hidden], bias=False, beside=True)[0]
    if bias:
        own = m.w.vector(f"{names[-1]}.bias", (count, hidden), m.dtype)
        y = b.op("add", y, b.op("matmul", b.cast(weights, y.dtype), own))
    return y


def _gathered(m: Layers, x: Value, chosen: Chosen, names: list[str], size: int, inner: Inner, bias: bool, weighs_inputs: bool) -> Value:  # fmt: skip
    """Of each token the experts that it has chosen."""
    b, each, hidden = m.b, chosen.places.shape[1], m.c.hidden
    weights, places = [f"{n}.weight" for n in names], b.cast(chosen.places, "int64")
    rows = b.reshape(places, (m.tokens * each,))

    def with_bias(y: Value, name: str) -> Value:
        if not bias:
            return y
        return m.add(y, b.op("gather", m.w.vector(f"{name}.bias", (experts_of(m), y.shape[1]), m.dtype), rows, axis=0))

    def weighed(y: Value, shape: tuple[Any, ...]) -> Value:
        return b.op("multiply", y, b.cast(b.reshape(chosen.weights, shape), y.dtype))

    made = [with_bias(y, n) for y, n in zip(m.w.chosen(x, weights[:-1], places, size), names)]
    made = [weighed(y, (m.tokens * each, 1)) for y in made] if weighs_inputs else made
    (y,) = m.w.chosen(inner(*made), weights[-1:], b.reshape(places, (m.tokens * each, 1)), hidden)
    y = b.reshape(with_bias(y, names[-1]), (m.tokens, each, hidden))
    y = y if weighs_inputs else weighed(y, (m.tokens, each, 1))
    return b.op("reduce_sum", y, axes=(1,), keepdims=False)
