"""A language model's graph run in NumPy, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.graph import run_graph
from tec.lm.lookup import Lookup
from tec.lm.plain import graph_of

from .families import TOKENS


class Steps:
    """A checkpoint's graph, run in NumPy, with its caches."""

    def __init__(self, checkpoint: Any):
        self.lookup, self.graph, self.count = (
            Lookup(checkpoint.tensors),
            graph_of(checkpoint, "llvm", all_logits=True),
            0,
        )
        self.takes_length = any(v.name == "text_length" for v in self.graph.inputs)
        self.caches = {
            v.name: np.zeros([n if isinstance(n, int) else 0 for n in v.shape], np.float32) for v in self.graph.inputs if v.name.startswith("past.")
        }  # fmt: skip

    def read(self, tokens: list[int]) -> Any:
        length = {"text_length": np.full((1, 1), len(TOKENS), np.float32)} if self.takes_length else {}
        made = run_graph(self.graph, {**self.lookup(tokens, self.count), **length, **self.caches})
        named = dict(zip(self.graph.output_names, made))
        self.caches = {before: named[after] for before, after in self.graph.state.items()}
        self.count += len(tokens)
        return named["logits"]
