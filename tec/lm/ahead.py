"""A text that a GPU writes without waiting for the host between its tokens.

    logits -> token -> its row of the embedding table -> the next step's input

`Chooser` is a small network of its own: it takes a model's logits and gives the token and its row, which the model's next step reads where they lie. So the host
queues each step before it has read the token of the one before (`write`): what the host does for a step runs beside the device's work. What it queued beyond the
last token that is asked for, the caches forget.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..graph import Graph
from ..graph.builders import Builder
from ..graph.compiler import compile_graph
from .sampling import Sampling

if TYPE_CHECKING:
    from .model import LanguageModel

MOST = 256  # likeliest tokens that are drawn from: `topk` has them in order


def serves(sampling: Sampling, vocabulary: int) -> bool:
    """Whether the device chooses so: the likeliest token, or one of the `top_k` likeliest; logits as they are."""
    few = 1 < sampling.top_k <= min(MOST, vocabulary)
    return not sampling.counts_written and not sampling.logit_bias and (sampling.temperature == 0 or few)


def chooser_graph(vocabulary: int, hidden: int, dtype: str, count: int) -> Graph:
    """The graph of a Chooser of the `count` likeliest tokens: of logits float32 [1, vocabulary], the table [vocabulary, hidden] and, for more than one, a draw
    float32 [4]: a number from 0 up to 1, 1 / temperature, top_p and min_p."""
    graph = Graph("chooser")
    b = Builder(graph)
    logits = graph.input("logits", "float32", (1, vocabulary))
    values, places = b.ops("topk", logits, axis=1, k=count, largest=True)
    values, places = b.reshape(values, (count,)), b.reshape(places, (count,))
    if count == 1:
        token = places
    else:
        u, warmth, top_p, min_p = b.split(graph.input("draw", "float32", (4,)), 0, [1] * 4)
        best = b.slice(values, 0, 0, 1)
        p = b.op("exp", b.op("multiply", b.op("subtract", values, best), warmth))
        p = b.op("divide", p, b.op("reduce_sum", p, axes=(0,), keepdims=True))
        before = b.op("cumsum", p, axis=0, exclusive=True, reverse=False)
        kept = b.op(
            "logical_and",
            b.op("less", before, top_p),
            b.op("less_equal", b.op("multiply", b.slice(p, 0, 0, 1), min_p), p),
        )
        kept = b.cast(kept, "float32")
        p = b.op("multiply", p, kept)
        reach = b.op("multiply", b.op("reduce_sum", p, axes=(0,), keepdims=True), u)
        passed = b.op("less_equal", b.op("cumsum", p, axis=0, exclusive=False, reverse=False), reach)
        last = b.op("subtract", b.op("reduce_sum", kept, axes=(0,), keepdims=True), b.const(np.ones(1, np.float32)))
        at = b.op("minimum", b.op("reduce_sum", b.cast(passed, "float32"), axes=(0,), keepdims=True), last)
        token = b.op("gather", places, b.cast(at, "int64"), axis=0)
    table = graph.deferred("table", dtype, (vocabulary, hidden))
    row = b.op("gather", table, token, axis=0)
    graph.set_outputs([token, b.slice(values, 0, 0, 1), row], ["token", "best", "embeddings"])
    return graph


class Chooser:
    """See the module. lm: the model that it writes for."""

    def __init__(self, lm: LanguageModel, count: int):
        self.count = count
        graph = chooser_graph(lm.config.vocabulary, lm.config.hidden, lm.dtype, count)
        self.network = compile_graph(graph, lm.target, progress=lambda *a: None)
        self.network.provide({"table": lm.table()})
        self.executor = self.network.executor(lm.executor.device, stream=lm.executor.stream)

    def launch(self, logits: Any, draw: Any) -> Any:
        """Queue the choice for logits on the device, behind what made them."""
        given = {"logits": logits}
        if self.count > 1:
            given["draw"] = draw
        return self.executor.launch(given)


def write(
    lm: LanguageModel, chooser: Chooser, token: int, sampling: Sampling, rng: Any, most: int
) -> Generator[int, None, None]:
    """The tokens behind `token`, of which the caches know nothing yet, as many as `most`. The caches hold what was given to the caller when it goes on, and no
    token more once it stops. Raises ArgumentError where logits are no numbers."""
    settings = np.array([0, 1 / (sampling.temperature or 1), sampling.top_p, sampling.min_p], np.float32)

    def queued(inputs: Any) -> tuple[Any, Any]:
        step = lm.executor.launch(inputs)
        if chooser.count > 1:
            settings[0] = rng.random()
        return step, chooser.launch(step.outputs[0], settings.copy())

    done, fed = 0, token
    ahead = [queued(lm.inputs([token], len(lm.ids)))]
    try:
        while done < most:
            if done + 1 < most:
                ahead.append(queued({"embeddings": ahead[-1][1].outputs[2]}))
            step, choice = ahead[0]
            step.sync()
            found, best, _ = choice.sync()
            del ahead[0]  # the next step has read its row: it was queued before, in one stream
            lm.ids.append(fed)
            if not best.numpy()[0] > -np.inf:
                raise ArgumentError(
                    "the model's logits are no numbers", hint="a range that float16 has not: try --dtype float32"
                )
            fed = int(found.numpy()[0])
            done += 1
            yield fed
    finally:
        for step, choice in ahead:
            step.sync()
            choice.sync()
        lm.executor.truncate(len(lm.ids))
