"""Backward calls that torch has one of for each forward call: all of a step is tec's, and its gradients are torch's."""

import pytest
import torch
import torch.nn.functional as F
from tec_torch import dynamo
from torch import nn

STRICT = {"strict": True}
PICTURE, SIGNAL, VOLUME = (2, 3, 8, 9), (2, 3, 10), (1, 2, 4, 5, 6)

AT, ROWS = torch.tensor([[0, 2, 2, 1, 0, 0, 1, 2, 0, 0]]), torch.tensor([0, 2, 2])


def picked(x):
    m = x.reshape(6, 10)
    return torch.cat(
        [
            m.kthvalue(3, 0, True)[0],
            m.take(torch.tensor([[0, 7, -1, 3, 3, 9, 8, 2, 1, 5]])),
            m.put(ROWS, m[1, :3], True)[:1],
        ]
    )


def reduced(x):
    m = x.reshape(6, 10)
    kinds = [("mean", True), ("mean", False), ("amax", False), ("prod", False), ("sum", False)]
    made = [m.scatter_reduce(0, AT, m[1:2] * 3 + 1, kind, include_self=own) for kind, own in kinds]
    return torch.stack([*made, m.index_reduce(0, ROWS, m[:3] * 3, "mean", include_self=False)])


def to_steps(x):
    m, size = x.reshape(6, 10), torch.linspace(0.02, 0.1, 6)
    a = torch.fake_quantize_per_channel_affine(m, size, torch.arange(6, dtype=torch.int32), 0, -100, 27)
    return a + torch.fake_quantize_per_tensor_affine(m, 0.013, 3, 0, 200)


def bags(x):
    m, i = x.reshape(6, 10), torch.tensor([1, 2, 4, 5, 4, 3])
    a = F.embedding_bag(i, m, torch.tensor([0, 3, 3, 6]), mode="mean", include_last_offset=True, padding_idx=4)
    return torch.cat([a, F.embedding_bag(i.reshape(3, 2), m, mode="sum", per_sample_weights=m[:3, :2])])


def filtered(x):
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x.flip(-1))) + torch.fft.fft(x).abs()


CALLS = {
    "log of a sigmoid": (lambda x: F.logsigmoid(x * 9), SIGNAL),
    "picked places": (picked, SIGNAL),
    "reductions by place": (reduced, SIGNAL),
    "rounding to steps": (to_steps, SIGNAL),
    "bags": (bags, SIGNAL),
    "spectra": (filtered, SIGNAL),
    "average pooling": (lambda x: F.avg_pool2d(x, 3, 2, 1), PICTURE),
    "average pooling, borders out": (lambda x: F.avg_pool2d(x, (2, 3), 2, ceil_mode=True, count_include_pad=False), PICTURE),
    "average pooling of volumes": (lambda x: F.avg_pool3d(x, 2), VOLUME),
    "average pooling of signals": (lambda x: F.avg_pool1d(x, 4, 2), SIGNAL),
    "adaptive averages": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), PICTURE),
    "adaptive maxima": (lambda x: F.adaptive_max_pool2d(x.relu(), (3, 4)), PICTURE),  # zeros: the first of equals has the gradient
    "adaptive maxima of equal cells": (lambda x: F.adaptive_max_pool2d(x.relu(), (4, 3)), PICTURE),
    "replicated borders": (lambda x: F.pad(x, (1, 2, 0, 3), mode="replicate"), PICTURE),
    "reflected borders": (lambda x: F.pad(x, (1, 2, 0, 3), mode="reflect"), PICTURE),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), PICTURE),
    "bilinear, corners": (lambda x: F.interpolate(x, (5, 14), mode="bilinear", align_corners=True), PICTURE),
    "bilinear, smoothed": (lambda x: F.interpolate(x, (4, 5), mode="bilinear", antialias=True), PICTURE),
    "bicubic": (lambda x: F.interpolate(x, (11, 13), mode="bicubic"), PICTURE),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), PICTURE),
    "nearest, other sizes": (lambda x: F.interpolate(x, (5, 14), mode="nearest-exact"), PICTURE),
    "linear": (lambda x: F.interpolate(x, 25, mode="linear"), SIGNAL),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), VOLUME),
    "hard shrinking": (lambda x: F.hardshrink(x, 0.4), SIGNAL),
    "soft shrinking": (lambda x: F.softshrink(x, 0.4), SIGNAL),
    "distances": (lambda x: torch.cdist(x, x[:, :2] * 0.5 + 1), SIGNAL),
    "windows": (lambda x: F.unfold(x, 3, padding=1), PICTURE),
}  # fmt: skip

LAYERS = {
    "bilinear layer": (lambda: Twice(nn.Bilinear(9, 9, 3)), PICTURE),
    "transposed convolution": (lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), PICTURE),
    "transposed convolution in groups": (lambda: nn.ConvTranspose1d(3, 6, 4, 2, groups=3), SIGNAL),
    "convolution of one entry": (lambda: nn.Conv2d(3, 4, 3), PICTURE[1:]),
    "normed weights": (lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)), SIGNAL),
}


class Twice(nn.Module):
    """A layer of two inputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x + 1)


def held(call, own, x, near=1e-4):
    """A step of `call` and one of `own`, its compiled form: results and gradients."""
    found = []
    for f in (call, own):
        given = x.clone().requires_grad_()
        if isinstance(call, nn.Module):
            call.zero_grad()
        y = f(given)
        (y.sin() * torch.linspace(1, 2, y.numel()).reshape(y.shape)).sum().backward()
        found.append([y.detach(), given.grad, *(p.grad for p in call.parameters())] if isinstance(call, nn.Module) else [y.detach(), given.grad])  # fmt: skip
    torch.testing.assert_close(found[1], found[0], rtol=near, atol=near)


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    f, shape = CALLS[name]
    held(f, torch.compile(f, backend=dynamo.backend, options=STRICT), torch.randn(shape))


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, shape = LAYERS[name]
    m = make()
    held(m, torch.compile(m, backend=dynamo.backend, options=STRICT), torch.randn(shape))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_samples_of_a_grid(mode):
    """By the picture and by the places, for places that are no multiples of a pixel: there a bilinear sample has two gradients."""
    grid = torch.rand(2, 4, 5, 2) * 1.8 - 0.9
    x = torch.randn(PICTURE)

    def f(x, grid):
        return F.grid_sample(x, grid, mode, align_corners=False)

    found = []
    for call in (f, torch.compile(f, backend=dynamo.backend, options=STRICT)):
        given = [t.clone().requires_grad_() for t in (x, grid)]
        call(*given).sin().sum().backward()
        found.append([t.grad for t in given])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("own", [True, False], ids=["transformers", "torch"])
def test_grouped_products(own):
    """By the rows and by the experts' matrices, also of an expert without rows."""
    if own:
        pytest.importorskip("transformers.integrations.moe")
    dtype = torch.float32 if own else torch.bfloat16
    ends = torch.tensor([3, 3, 7, 11], dtype=torch.int32)
    x, w = torch.randn(11, 8).to(dtype), torch.randn(4, 8, 16).to(dtype)

    def f(x, w):
        return torch.ops.transformers.grouped_mm_fallback(x, w, ends) if own else torch._grouped_mm(x, w, offs=ends)

    found = []
    for call in (f, torch.compile(f, backend=dynamo.backend, options=STRICT)):
        given = [t.clone().requires_grad_() for t in (x, w)]
        (call(*given).float() * torch.linspace(1, 2, 16)).sum().backward()
        found.append([t.grad for t in given])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4 if own else 2e-2, atol=1e-4 if own else 2e-1)


def test_regions_and_shifted_windows_of_torchvision():
    try:
        ops = pytest.importorskip("torchvision.ops")
    except RuntimeError:  # of another build of torch
        pytest.skip("torchvision's operators")
    boxes = torch.tensor([[0, 0.0, 0, 5, 5], [1, 1, 2, 7, 6]])
    shifts, w = torch.randn(2, 27, 8, 9) * 0.3, torch.randn(4, 3, 3, 3)

    def f(x):
        shifted = ops.deform_conv2d(
            x, x.mean() + shifts[:, :18], w, torch.ones(4), padding=1, mask=shifts[:, 18:].sigmoid()
        )
        return torch.cat([ops.roi_align(x, boxes, (2, 3), 0.5, 2, True).flatten(), shifted.flatten()])

    held(f, torch.compile(f, backend=dynamo.backend, options=STRICT), torch.randn(PICTURE), near=1e-3)


def test_values_that_have_no_gradient():
    x = torch.randn(6, 10)

    def f(x):
        bounds, order = x.sort(1)[0], x.argsort(1)
        large = F.embedding_bag(torch.tensor([[1, 2], [4, 5]]), x, mode="max")
        found = torch.searchsorted(bounds, x * 0.9, right=True), torch.searchsorted(x, x * 0.9, sorter=order)
        small = (x * 9).to(torch.int8)
        return *found, large, torch._int_mm(small.repeat(4, 1)[:20, :8], small[:, :8].T.repeat(1, 4)[:, :16])

    torch.testing.assert_close(torch.compile(f, backend=dynamo.backend, options=STRICT)(x), f(x))
