"""BERT, RoBERTa and XLM-RoBERTa: encoders, whose tokens see the whole text; norms behind attention and network.

Source: arXiv 1810.04805, 1907.11692; transformers' modeling_bert.py, modeling_xlm_roberta.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def bert(m: Layers) -> Value:
    """Of words, places and the first type of segment; features of every token."""
    m.prefix, c = "encoder.layer", m.c
    x = m.add(m.embeddings(), m.graph.input("position_embeddings", m.dtype, (m.tokens, c.hidden)))
    types = "embeddings.token_type_embeddings.weight"
    if m.w.has(types):
        rows = m.w.tensor(types).shape[0]
        x = m.add(x, m.b.slice(m.w.vector(types, (rows, c.hidden), m.dtype), 0, 0, 1))
    x = m.layer_norm(x, "embeddings.LayerNorm")
    for _ in m.each_layer():
        at = m.name("attention.self")
        q, k, v = (
            m.heads(y, c.heads)
            for y in m.linear(x, *(f"{at}.{n}" for n in ("query", "key", "value")), sizes=[c.hidden] * 3)
        )
        y = m.out(m.attend_all(q, k, v), "attention.output.dense")
        x = m.layer_norm(m.add(x, y), m.name("attention.output.LayerNorm"))
        y = m.network(x, "intermediate.dense", "output.dense")
        x = m.layer_norm(m.add(x, y), m.name("output.LayerNorm"))
    return m.features(x)
