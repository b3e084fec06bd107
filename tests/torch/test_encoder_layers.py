"""nn.TransformerEncoder where nobody learns: torch makes one call of a layer, which is written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tec

STRICT = {"strict": True}


def _encoder(norm_first: bool = False, activation: str = "relu") -> nn.Module:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(16, 2, 24, activation=activation, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def _check(f: Any, *args: Any) -> None:
    torch._dynamo.reset()
    with torch.no_grad():
        got, want = torch.compile(f, backend="tec", options=STRICT)(*args), f(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want))):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("norm_first", "activation"), [(False, "gelu"), (True, "relu")])
def test_layers_without_a_mask_and_with_keys_left_out(norm_first: bool, activation: str) -> None:
    """All of them once stayed torch's."""
    x, out = torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    out[1, 3:] = True
    m = _encoder(norm_first, activation)
    _check(m, x)
    _check(lambda x: m(x, src_key_padding_mask=out), x)


def test_an_exported_encoder() -> None:
    x, m = torch.randn(2, 5, 16), _encoder()
    with torch.no_grad():
        network = tec.compile(torch.export.export(m, (x,)), "llvm")
        torch.testing.assert_close(network(x), m(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [None, 0, 1, 2])
@pytest.mark.parametrize(("weights", "mean"), [(True, True), (True, False), (False, True)])
def test_attention_with_masks_of_each_kind(kind: int | None, weights: bool, mean: bool) -> None:
    torch.manual_seed(4)
    m = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    shape = {0: (5, 5), 1: (3, 5), 2: (3, 2, 5, 5)}.get(kind or 0, (5, 5))
    mask = torch.rand(shape) > 0.6
    mask[..., 0] = False  # a query that sees nothing is torch's own affair
    call = torch.ops.aten._native_multi_head_attention

    def f(q: torch.Tensor, k: torch.Tensor) -> Any:
        own = (m.in_proj_weight, m.in_proj_bias, m.out_proj.weight, m.out_proj.bias)
        out = call(q, q, q, 16, 2, *own, None if kind is None else mask, weights, mean, kind)
        return (out[0] + k, *out[1:]) if weights else out[0] + k

    _check(f, torch.randn(3, 5, 16), torch.randn(16))
