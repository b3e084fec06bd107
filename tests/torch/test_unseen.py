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
        within = near if (b.is_floating_point() or b.is_complex()) and b.numel() else 0
        torch.testing.assert_close(a, b, rtol=within, atol=within and within * float(b.abs().max()))


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
    check(nn.InstanceNorm2d(4, affine=True).half().eval(), x.half(), near=2e-3)
    check(nn.InstanceNorm2d(4, track_running_stats=True).eval(), x)
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("statistics", [False, True], ids=["results", "statistics"])
def test_norms_of_16_bits_through_the_backend(dtype, statistics):
    """Torch has their statistics in 16 bits or in float32, by the operator and the device."""
    aten = torch.ops.aten
    x, w = (torch.randn(2, 4, 6) + 1).to(dtype), torch.rand(4).to(dtype)

    def f(x, w):
        all_ = (
            aten.native_group_norm(x, w, w, 2, 4, 6, 2, 1e-5),
            aten.native_layer_norm(x, [6], None, None, 1e-5),
            aten._fused_rms_norm(x, [6], None, 1e-5),
        )
        return [y.float() for ys in all_ for y in (ys[1:] if statistics else ys[:1])]

    with torch.no_grad():
        for a, b in zip(torch.compile(f, backend="tec", options={"strict": True})(x, w), f(x, w)):
            torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_eight_bit_floats(dtype):
    """As inputs, results, constants and in between."""
    w = nn.Buffer(torch.randn(8).to(dtype))

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = w

        def forward(self, x, q):
            rounded = (x * 2).to(dtype)
            return rounded, rounded.float() * self.w.float(), q.half() + 1

    x, q = torch.randn(5, 8), torch.randn(3).to(dtype)
    run = torch.compile(Scaled(), backend="tec", options={"strict": True})
    with torch.no_grad():
        for a, b in zip(run(x, q), Scaled()(x, q)):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a.float(), b.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_results_of_types_that_only_some_arrays_have(dtype):
    """Inputs are integers, which NumPy has."""
    table = torch.randn(9, 5)

    def f(i):
        return (table[i] * 2).to(dtype)

    run = torch.compile(f, backend="tec", options={"strict": True})
    for n in (3, 3, 4):
        i = torch.randint(0, 9, (n,))
        torch.testing.assert_close(run(i).float(), f(i).float(), rtol=2e-2, atol=2e-2)


def test_primitives_and_norms_of_complex_numbers():
    def prims(x):
        return torch.ops.prims.collapse(x, 1, 2), torch.ops.prims.prod(x, (0, 1)), torch.ops.prims.sum(x, (2,))

    check(module(prims), torch.rand(2, 3, 4) + 0.5)
    z = torch.randn(3, 4, dtype=torch.complex64)
    check(module(lambda z: (z.norm(), torch.linalg.vector_norm(z, 3, 1), torch.linalg.vector_norm(z, 1, 0, True))), z)


def test_values_put_and_means_of_integers():
    at = torch.tensor([[0, 2, 2, 1], [1, 1, 0, 0]])

    def put(x, y):
        made = torch.ops.aten._index_put_impl(x, [at[0]], y, True, True)
        return made, x.scatter_reduce(0, at, y[:2], "mean"), x.index_reduce(0, at[0], y, "mean", include_self=False)

    x = torch.arange(-9, 3).reshape(3, 4)
    check(module(put), x, 3 * torch.arange(-8, 8).reshape(4, 4))


INTEGERS = torch.randint(-9, 90, (2, 3, 9, 10))


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda a, b: (a * b, a + b, a / b), (torch.randn(5, dtype=torch.complex64), torch.randn(5, dtype=torch.complex128))),
        (torch.mm, (torch.randint(-100, 100, (5, 7), dtype=torch.int8), torch.randint(-100, 100, (7, 4), dtype=torch.int8))),
        (torch.mm, (torch.zeros(3, 0, dtype=torch.int8), torch.zeros(0, 3, dtype=torch.int8))),
        (lambda x: F.avg_pool2d(x, (3, 4), 2, 1), (INTEGERS,)),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (INTEGERS,)),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=4), (INTEGERS,)),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=4), (INTEGERS.float(),)),
        (lambda x: F.avg_pool1d(x, 3), (INTEGERS[0] - (1 << 60),)),
        (lambda x: (x.unfold(0, 0, 1), x.unfold(0, 1, 3)), (torch.tensor(2.5),)),
    ],
    ids=["complex of two widths", "bytes", "no bytes", "integers", "borders out", "a divisor", "a divisor, floats", "large integers", "windows of a number"],
)  # fmt: skip
def test_types_that_few_networks_have(f, args):
    check(module(f), *args)
