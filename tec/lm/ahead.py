"""A text that a GPU writes without the host: lengths, choice and the next token's row stay on the device.

    step (token's row of the embedding table, where it stands) -> logits -> token -> its row of the table, where the next one stands -> step

`Chooser` is a small network of its own: it takes a model's logits and gives the token and its row, which the model's next step reads where they lie, counts on, and
writes the token behind those before it. Sizes are the same in every round while the caches have room (`LanguageModel.make_room`), so that a round is one captured
graph; the host queues a few rounds ahead of the token that it reads (`write`). What it queued beyond the last token that is asked for, the caches forget.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import Graph, Value
from ..graph.builders import Builder
from ..graph.compiler import compile_graph
from ..ops.dim_bounds import Empty
from ..ops.dims import Dim
from ..runtime.arrays.ndarray import array
from ..runtime.devices.stream import Stream
from ..runtime.networks.rounds import Rounds
from .sampling import Sampling, no_numbers

if TYPE_CHECKING:
    from .model import LanguageModel

MOST = 256  # likeliest tokens that are drawn from: `topk` has them in order
# Tokens that the device has room for. Then the host waits for all rounds and begins anew, which is a few small copies for 256 tokens' work.
LOG = 256
# Rounds that are queued ahead of the token that is read: the host wakes up, reads a token and queues a round in some 30 to 50 us, a small model's round takes as long.
_AHEAD = 4


def serves(sampling: Sampling, vocabulary: int) -> bool:
    """Whether the device chooses so: the likeliest token, or one of the `top_k` likeliest; logits as they are."""
    few = 1 < sampling.top_k <= min(MOST, vocabulary)
    return not sampling.counts_written and not sampling.logit_bias and (sampling.temperature == 0 or few)


def chooser_graph(vocabulary: int, hidden: int, dtype: str, count: int, rows: Sequence[str] = ("row",)) -> Graph:
    """The graph of a Chooser of the `count` likeliest tokens: of logits float32 [1, vocabulary], the table [vocabulary, hidden], where the text stands (`rows`) and
    how many tokens there are ("count"), int64 [1] each, and, for more than one, "draws", float32 [LOG], numbers from 0 up to 1 for token after token, and "settings",
    float32 [3]: 1 / temperature, top_p and min_p. It gives the token's row of the table, these numbers one higher, and the token at place `count` of a state of
    tokens, int64; -1 where logits are no numbers."""
    graph = Graph("chooser")
    b = Builder(graph)
    logits = graph.input("logits", "float32", (1, vocabulary))
    numbers = {n: graph.input(n, "int64", (1,)) for n in (*rows, "count")}
    number = numbers["count"]
    values, places = b.ops("topk", logits, axis=1, k=count, largest=True)
    values, places = b.reshape(values, (count,)), b.reshape(places, (count,))
    if count == 1:
        token = places
    else:
        u = b.op("gather", graph.input("draws", "float32", (LOG,)), number, axis=0)
        warmth, top_p, min_p = b.split(graph.input("settings", "float32", (3,)), 0, [1] * 3)
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
    chosen = b.op("gather", graph.deferred("table", dtype, (vocabulary, hidden)), token, axis=0)
    is_number = b.op("greater", b.slice(values, 0, 0, 1), b.const(np.full(1, -np.inf, np.float32)))
    told = b.op("where", is_number, token, b.const(np.full(1, -1, np.int64)))
    tokens = b.concat([graph.input("tokens", "int64", (Dim(Empty("written")),)), told], 0)
    graph.row_inputs, graph.state = {"written": "count"}, {"tokens": "written"}
    after = {f"next_{n}": _after(b, x) for n, x in numbers.items()}
    graph.set_outputs([chosen, *after.values(), tokens], ["embeddings", *after, "written"])
    return graph


def _after(b: Builder, x: Value) -> Value:
    return b.op("add", x, b.const(np.ones(1, np.int64)))


class Chooser:
    """See the module. lm: the model that it writes for."""

    def __init__(self, lm: LanguageModel, count: int):
        self.count = count
        assert lm._step is not None
        self._rows = [n for n in ("row", "near_row") if n in lm._step.network.plan.inputs]
        graph = chooser_graph(lm.config.vocabulary, lm.config.hidden, lm.dtype, count, self._rows)
        self.network = compile_graph(graph, lm.target, progress=lambda *a: None, state=graph.state)
        self.network.provide({"table": lm.table()})
        self.executor = self.network.executor(lm.executor.device, capacity=LOG, stream=lm.executor.stream)
        self.executor.reserve(LOG)
        self._written = self.executor.state["tokens"]
        self._count = array(np.zeros(1, np.int64), lm.executor.device)
        self._reading = Stream(lm.executor.device)  # beside that of the rounds, which goes on
        self._rounds: Rounds | None = None
        self._first = 0  # the number of the round that chooses the first token of a stretch

    def begin(self, lm: LanguageModel, token: int, draws: Any, settings: Any) -> None:
        """A stretch of LOG tokens at the most, behind `token`, which the caches know nothing of."""
        step = lm.executor.settle(lm.inputs([token], len(lm.ids), lm.executor))
        lm.executor.reserve(1)  # all rows count from here on: `write` says in the end which do
        lent = {"logits": step.arrays["logits"], "embeddings": step.arrays["embeddings"]}
        numbers = {n: step.arrays[n] for n in self._rows} | {"count": self._count}
        lent |= numbers | {f"next_{n}": x for n, x in numbers.items()}
        self._count.copyfrom(np.zeros(1, np.int64))
        self.executor.truncate(LOG - 1)
        given = {"draws": draws, "settings": settings} if self.count > 1 else {}
        choice = self.executor.settle(given, lent)
        self.executor.reserve(LOG)
        if self._rounds is None or self._rounds.parts != [step, choice]:
            stream = lm.executor.stream
            assert stream is not None
            self._rounds = Rounds(lm.executor.device, stream, [step, choice])
        self._first = self._rounds.queued

    def queue(self) -> None:
        """Queue the next step and its choice."""
        assert self._rounds is not None
        self._rounds.queue()

    def read(self, number: int) -> int:
        """A token of the stretch, by its number from 0 on; waits for it."""
        assert self._rounds is not None
        self._rounds.wait(self._first + number)
        with self._reading:
            return int(self._written[number : number + 1].numpy()[0])

    def wait(self) -> None:
        """Until all that was queued is done."""
        stream = self.executor.stream
        assert stream is not None
        stream.sync()


def write(
    lm: LanguageModel, chooser: Chooser, token: int, sampling: Sampling, rng: Any, most: int
) -> Generator[int, None, None]:
    """The tokens behind `token`, of which the caches know nothing yet, as many as `most`. The caches hold what was given to the caller when it goes on, and no
    token more once it stops. Raises ArgumentError where logits are no numbers."""
    settings = np.array([1 / (sampling.temperature or 1), sampling.top_p, sampling.min_p], np.float32)
    done = 0
    try:
        while done < most:
            chooser.wait()
            stretch = min(most - done, LOG, lm.make_room() - len(lm.ids))
            draws = np.zeros(LOG, np.float32)
            if chooser.count > 1:
                draws[:stretch] = rng.random(stretch)
            chooser.begin(lm, token, draws, settings)
            queued = 0
            for k in range(stretch):
                while queued < min(stretch, k + _AHEAD):
                    chooser.queue()
                    queued += 1
                found = chooser.read(k)
                lm.ids.append(token)
                if found < 0:
                    raise no_numbers()
                token, done = found, done + 1
                yield found
    finally:
        chooser.wait()
        lm.executor.truncate(len(lm.ids))
