"""Operators that networks of torchvision, timm and transformers brought, which were left to torch: all of each graph is tec's."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tec
from tests import seeds


def check(module, *args, near=2e-4):
    """As a network that is compiled whole (nothing left to torch), against torch."""
    with torch.no_grad():
        want = module(*args)
        got = tec.compile(module, "llvm", args=args)(*args)
    for a, b in zip(*(x if isinstance(x, (tuple, list)) else (x,) for x in (got, want))):
        assert a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=near, atol=near * float(b.abs().max()))


def module(f):
    class Of(nn.Module):
        def forward(self, *args):
            return f(*args)

    return Of().eval()


torch.manual_seed(seeds.number())


def spectra(x):
    full = torch.fft.fftn(x, dim=(-2, -1))
    half = torch.fft.rfft2(x, norm="ortho")
    return full.real, torch.view_as_real(half), torch.fft.irfft2(half * (0.5 + 1j), s=x.shape[-2:], norm="ortho")


@pytest.mark.parametrize("shape", [(2, 6, 5)])
def test_fourier_transforms(shape):
    check(module(spectra), torch.randn(shape))


def test_short_time_transforms():
    window = torch.hann_window(16)
    check(module(lambda x: torch.stft(x, 16, 4, window=window, return_complex=True).abs()), torch.randn(2, 100))


def test_positions_as_complex_numbers():
    turns = torch.polar(torch.ones(5, 4), torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.1, 0.01, 0.001])))

    def rotate(x):
        pairs = torch.view_as_complex(x.reshape(2, 3, 5, 4, 2))
        both = torch.cat([pairs * turns, pairs / (turns + 2), torch.conj(pairs) - 1])[:, 1:]
        return torch.view_as_real(both).flatten(3), both.angle(), both

    check(module(rotate), torch.randn(2, 3, 5, 8))


def test_statistics_whose_squares_float16_does_not_hold():
    x = (torch.rand(3, 2000) + 0.5) * 100
    check(module(lambda x: (x.norm(dim=1), x.norm(3, 1), *torch.std_mean(x, 1), x[:1, :8].var())), x.half(), near=2e-3)


def test_complex_arguments():
    z = torch.randn(3, 4, dtype=torch.complex64)
    check(module(lambda z, x: (z * x + z.conj(), (z @ z.mT).real, z.exp().imag)), z, torch.randn(3, 4))


def test_norms_by_their_own_statistics():
    x = torch.randn(3, 4, 5, 6) * 3 + 1
    check(nn.InstanceNorm2d(4, affine=True).eval(), x)
    w = torch.randn(8, 9)
    check(module(lambda w, x: F.batch_norm(w[None], None, None, training=True, momentum=0.0)), w, x)


def test_counts():
    i = torch.randint(0, 9, (40,))
    check(
        module(lambda i, x: (torch.histc(i.float(), 8, 0, 7), torch.histc(x, 5), torch.histc(x, 4, -1, 1))),
        i,
        torch.randn(30),
    )


@pytest.mark.parametrize("rows, experts", [(16, 4), (3, 8)])
def test_grouped_products(rows, experts):
    ends = torch.sort(torch.randint(0, rows + 1, (experts,)))[0].int()
    ends[-1] = rows
    x, w = torch.randn(rows, 8).bfloat16(), torch.randn(experts, 8, 16).bfloat16()
    check(module(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends)), x, w, ends, near=2e-2)


@pytest.mark.parametrize("p", [2.0, float("inf")])
def test_distances(p):
    check(module(lambda a, b: torch.cdist(a, b, p=p)), torch.randn(2, 5, 3), torch.randn(2, 4, 3))
