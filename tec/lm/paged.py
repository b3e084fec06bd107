"""The layers of a network that takes tokens of many texts at once, whose keys and values lie in blocks of one pool (Kwon and others, arXiv 2309.06180).

    rows            tokens of all texts, one below the other: products, norms and networks take them as the tokens of one text
    places, slots   of each row: its place in its text, and where its keys and values go in the pools
    single_*        rows that attend alone, one of a text in most cases: which rows, their places, and the table of their texts' blocks
    chunk_*         pieces of prompts, as many rows each as the longest: which rows, the place of the first, the tables
    order           of each row: which of the attended rows [singles, then chunks] is its own
    wanted          the rows whose logits are wanted

Layers with a window may have pools of their own, whose blocks hold what it sees alone (`forget_beyond_windows`): "near_slots" and "*_near_tables" are slots and tables
of these.

A row's keys are written before any row attends, so a piece of a prompt sees itself in the pool. What a model keeps between tokens must be rows of keys and values:
others (convolutions, recurrences, frequencies that follow a text's length) are refused here, and their texts go on in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ImportModelError
from ..graph import Graph, Value
from ..ops.dim_bounds import Empty
from ..ops.dims import Dim
from .caches import Rows, scales_of
from .config import Config
from .layers import Layers
from .remedies import IN_TURN
from .rope import Frequencies

_HEADS = (0, 2, 1, 3)  # batch, heads, places, size of what lies as batch, places, heads, size


class PagedLayers(Layers):
    """See the module. block: tokens of a block."""

    def __init__(self, config: Config, tensors: Any, target: Any, dtype: str, block: int):
        super().__init__(config, tensors, target, dtype)
        if config.get("use_bidirectional_attention") is True:
            raise ImportModelError(f"{config.architecture} reads whole texts", hint="nothing of them is kept in blocks")
        self.block = block
        g, singles, chunks, longest = self.graph, *(Dim(Empty(n)) for n in ("singles", "chunks", "longest"))

        def whole(name: str, *shape: Any) -> Value:
            return g.input(name, "int64", shape)

        self._places = g.input("places", "float32", (self.tokens,))
        self._slots = whole("slots", self.tokens)
        self._singles = whole("single_rows", singles), whole("single_starts", singles)
        self._chunks = whole("chunk_rows", chunks, longest), whole("chunk_starts", chunks)
        self._tables = [
            whole(f"{of}_tables", n, Dim(f"{of}_blocks")) for of, n in (("single", singles), ("chunk", chunks))
        ]
        self._own_pools = False  # of layers with a window
        self._near_inputs: tuple[Value, list[Value]] | None = None
        self._order, self._wanted = whole("order", self.tokens), whole("wanted", Dim("wanted"))

    def forget_beyond_windows(self) -> None:
        """See `Layers.forget_beyond_windows`: such layers have pools of their own."""
        self._own_pools = True

    def _of_windows(self) -> tuple[Value, list[Value]]:
        """Slots and tables of these pools."""
        if self._near_inputs is None:
            slots = self.graph.input("near_slots", "int64", self._slots.shape)
            of_both = zip(("single", "chunk"), self._tables)
            self._near_inputs = slots, [self.graph.input(f"{of}_near_tables", "int64", t.shape) for of, t in of_both]
        return self._near_inputs

    def places(self) -> Value:
        """See `Layers.places`."""
        return self._places

    def _inverse(self, f: Frequencies) -> Value:
        if f.long is not None or f.growth is not None:
            raise ImportModelError(f"positions of {self.c.architecture} turn by the length of the text", hint=IN_TURN)
        return super()._inverse(f)

    def _behind(self, x: Value, name: str, window: int | None) -> Value:
        """x [1, tokens, heads, size] written into a pool of the layer: [blocks, heads, tokens of a block, size]."""
        _, _, heads, size = x.shape
        near = window is not None and self._own_pools
        blocks, slots = (Dim("near_blocks"), self._of_windows()[0]) if near else (Dim("blocks"), self._slots)
        pool = self.graph.input(name, x.dtype, (blocks, heads, self.block, size))
        whole = self.b.op("write_rows", pool, self.b.reshape(x, (self.tokens, heads, size)), slots)
        self._caches.append((name, whole))
        return whole

    def attend_to(
        self, q: Value, keys: Rows, values: Rows, *, scale: float | None = None, window: int | None = None, softcap: float = 0.0, sink: Value | None = None,
        chunk: int = 0, slopes: Sequence[float] = (),
    ) -> Value:  # fmt: skip
        """See `Layers.attend_to`: of every row to its own text."""
        if chunk:
            raise ImportModelError(
                f"tokens of {self.c.architecture} see those of their own chunk of a text alone", hint=IN_TURN
            )
        b, (_, _, heads, size), width = self.b, q.shape, values.codes.shape[3]
        flat = b.reshape(q, (self.tokens, heads * size))
        found = []
        both = self._of_windows()[1] if window is not None and self._own_pools else self._tables
        for (rows, starts), tables in zip((self._singles, self._chunks), both):
            count, each = (*rows.shape, 1)[:2]
            own = b.reshape(b.op("gather", flat, rows, axis=0), (count, each, heads, size))
            extras = {
                "start": starts,
                "table": tables,
                **self._of_heads(sink, slopes, heads),
                **scales_of(keys, values),
            }
            y = b.op(
                "attention", own, keys.codes, values.codes, *extras.values(), scale=size**-0.5 if scale is None else scale, softcap=softcap, right=0,
                left=None if window is None else window - 1, q_order=_HEADS, out_order=_HEADS, extras=tuple(extras),
            )  # fmt: skip
            found.append(b.reshape(y, (count * each, heads * width)))
        return b.op("gather", b.concat(found, 0), self._order, axis=0)

    def state(self, what: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        """Refused: see the module."""
        raise ImportModelError(
            f"{self.c.architecture} keeps a {what} of a text, which is no row of a token", hint=IN_TURN
        )

    def finish(self, logits: Value, **more: Value) -> Graph:
        """See `Layers.finish`. On a GPU the likeliest token of each row is an output too: it is a few bytes, where a row of logits takes some 100 us to the host."""
        return super().finish(logits, **({"likeliest": self._likeliest(logits)} if self.w.target.is_gpu else {}))

    def _likeliest(self, logits: Value) -> Value:
        """int64 [rows]; -1 where logits are no numbers."""
        b = self.b
        best = b.op("argmax", logits, axis=1, keepdims=False)
        largest = b.op("reduce_max", logits, axes=(1,), keepdims=False)  # no number where one of the logits is none
        return b.op("where", b.op("isfinite", largest), best, b.const(np.full(1, -1, np.int64)))

    def last(self, x: Value) -> Value:
        """The rows that are wanted."""
        return self.b.op("gather", x, self._wanted, axis=0)
