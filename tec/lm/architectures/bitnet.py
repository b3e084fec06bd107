"""BitNet: Llama with a norm before the last product of attention and of the network each.

Source: arXiv 2504.12285; transformers' modeling_bitnet.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def bitnet(m: Layers) -> Value:
    """Matrices are taken as the file has them: packed in two bits, or as floats."""
    x, size = m.embeddings(), m.c.size("intermediate_size")
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = m.add(x, m.out(m.rms_norm(m.attend(q, k, v), m.name("self_attn.attn_sub_norm"))))
        h, at = m.rms_norm(x, m.name("post_attention_layernorm")), m.name("mlp")
        gate, up = m.linear(h, f"{at}.gate_proj", f"{at}.up_proj", sizes=[size, size])
        y = m.rms_norm(m.b.op("multiply", m.activation(gate), up), f"{at}.ffn_sub_norm")
        x = m.add(x, m.linear(y, f"{at}.down_proj", sizes=[m.c.hidden])[0])
    return m.logits(m.rms_norm(m.last(x), "model.norm"))
