"""Quantized programs: the operators in which torch.export writes them, one by one, and networks that torchao quantizes."""

import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tec

importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operators
Q = torch.ops.quantized_decomposed


def there_and_back(quantize, dequantize):
    """q and the numbers that it stands for, of x with a scale and a zero point."""
    return lambda x, s, z: (q := quantize(x, s, z), dequantize(q, s, z))


def by_tensor(x, s, z):
    q = Q.quantize_per_tensor.default(x, 0.043, 7, 3, 250, torch.uint8)
    return q, Q.dequantize_per_tensor.default(q, 0.043, 7, 3, 250, torch.uint8)


OPERATORS = {
    "by tensor": by_tensor,
    "by a tensor's scale": there_and_back(
        lambda x, s, z: Q.quantize_per_tensor.tensor(x, s[:1], z[:1], -128, 127, torch.int8),
        lambda q, s, z: Q.dequantize_per_tensor.tensor(q, s[:1], z[:1], -128, 127, torch.int8),
    ),
    "by channel": there_and_back(
        lambda x, s, z: Q.quantize_per_channel(x, s, z, 1, -100, 127, torch.int8),
        lambda q, s, z: Q.dequantize_per_channel(q, s, z, 1, -100, 127, torch.int8),
    ),
    "by channel without zero points": lambda x, s, z: Q.dequantize_per_channel(
        x.to(torch.int8), s, None, -1, -128, 127, torch.int8, out_dtype=torch.float16
    ),
    "by row": there_and_back(
        lambda x, s, z: Q.quantize_per_token(x, s[:5, None], z[:5, None], -128, 127, torch.int8),
        lambda q, s, z: Q.dequantize_per_token(q, s[:5, None], z[:5, None], -128, 127, torch.int8, torch.float32),
    ),
    "by group": lambda x, s, z: Q.dequantize_per_channel_group(
        x.to(torch.int8), s[:5, None] * s[:2], None, -8, 7, torch.int8, 3, torch.float32
    ),
    "chosen": lambda x, s, z: Q.choose_qparams.tensor(x + 2, 0, 255, 1e-5, torch.uint8),
    "chosen about zero": lambda x, s, z: Q.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8),
    "chosen by row": lambda x, s, z: Q._choose_qparams_per_token_asymmetric_impl(x, torch.int8),
}


class Call(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *given):
        return self.f(*given)


def check(f, *given):
    want, got = Call(f)(*given), tec.compile(Call(f), "llvm", args=given)(*given)
    for x, y in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_as_integers_times_a_scale(name):
    x, s, z = torch.randn(5, 6) * 3, torch.rand(6) * 0.1 + 0.01, torch.tensor([0, 3, -5, 1, 20, -20])
    check(OPERATORS[name], x, s, z)


def test_products_of_8_bit_floats_with_scales():
    a, b = (torch.randn(n, 32).to(torch.float8_e4m3fn) for n in (8, 16))

    def product(a, b, x, y):
        return torch._scaled_mm(a, b.t(), x, y, out_dtype=torch.bfloat16)

    check(product, a, b, torch.tensor(0.5), torch.tensor(0.25))
    x, y = torch.rand(8, 1), torch.rand(1, 16)  # torch's own CPU has no such product
    got = tec.compile(Call(product), "llvm", args=(a, b, x, y))(a, b, x, y)
    torch.testing.assert_close(got.float(), (a.float() @ b.float().t()) * x * y, rtol=1e-2, atol=1e-2)


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(16)
        self.last = nn.Linear(32, 10)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.second(F.relu(self.norm(self.first(x))))), 2)
        return self.last(y.mean((2, 3)))


def by_pt2e(module, x, **words):
    pytest.importorskip("torchao")
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(**words))
    prepared = quantize_pt2e.prepare_pt2e(torch.export.export(module.eval(), (x,)).module(), quantizer)
    prepared(x)
    return quantize_pt2e.convert_pt2e(prepared)


def test_a_network_quantized_after_export():
    """Its convolutions are products of bytes where the target has them."""
    x = torch.randn(2, 3, 32, 32)
    module = by_pt2e(Picture(), x)
    with torch.no_grad():
        want, got = module(x), tec.compile(module, "llvm", args=(x,))(x)
    assert float((got - want).abs().max()) <= 0.02 * float(want.abs().max())
    assert "vpdpbusd" in tec.compile(module, "llvm -mcpu=znver4", args=(x,)).get_source("asm")


def test_a_network_that_quantizes_what_comes():
    module, x = by_pt2e(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)), torch.randn(5, 64), is_dynamic=True), torch.randn(5, 64)  # fmt: skip
    with torch.no_grad():
        want, got = module(x), tec.compile(module, "llvm", args=(x,))(x)
    assert float((got - want).abs().max()) <= 0.02 * float(want.abs().max())
