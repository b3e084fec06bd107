"""A PyTorch module split over ranks by rules for its parameters equals the module."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import tec
from tec.sharding import PartitionSpec as P


class Block(torch.nn.Module):
    """An embedding, attention of four heads and a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(12, 8), torch.nn.LayerNorm(8)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(8, 8) for _ in range(4))
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        y = self.norm(x)
        q, k, v = (m(y).view(2, 3, 4, 2).transpose(1, 2) for m in (self.q, self.k, self.v))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 3, 8)
        x = x + self.o(a)
        return self.down(torch.nn.functional.gelu(self.up(x))) + x


def test_a_module_by_columns_and_rows() -> None:
    torch.manual_seed(0)
    module, ids = Block().eval(), torch.randint(0, 12, (2, 3))
    rules = {"p_[qkv]_*": P("t"), "p_up_*": P("t"), "p_table_weight": P("t")}
    net = tec.shard(module, tec.Mesh({"t": 4}), rules, args=(ids,))
    kinds = [kind for kind, _, _ in net.notes["t"].moved]
    assert kinds == ["all_reduce"] * 3 and not net.notes["t"].replicated
    with torch.no_grad():
        np.testing.assert_allclose(net.run([ids.numpy()])[0], module(ids).numpy(), rtol=1e-4, atol=1e-5)
