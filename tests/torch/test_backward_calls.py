"""Backward calls that torch has one of for each forward call: all of a step is tec's, and its gradients are torch's."""

import pytest
import torch
import torch.nn.functional as F
from tec_torch import dynamo
from torch import nn

STRICT = {"strict": True}
PICTURE, SIGNAL, VOLUME = (2, 3, 8, 9), (2, 3, 10), (1, 2, 4, 5, 6)

CALLS = {
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
    "transposed convolution": (lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), PICTURE),
    "transposed convolution in groups": (lambda: nn.ConvTranspose1d(3, 6, 4, 2, groups=3), SIGNAL),
    "convolution of one entry": (lambda: nn.Conv2d(3, 4, 3), PICTURE[1:]),
    "normed weights": (lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)), SIGNAL),
}


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
