"""Operators of FlagGems, which writes most of its kernels as text at run time and derives its tuners from Triton's; see `triton_libraries`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from .triton_libraries import R, case

FOLDER = "FlagGems/src"


def install(folder: Path) -> None:
    """Let the library find an NVIDIA GPU: it runs nothing there, for its operators are called with tensors of the host."""
    os.environ["GEMS_VENDOR"] = "nvidia"
    os.environ["FLAGGEMS_CACHE_DIR"] = tempfile.mkdtemp()  # of text and of times, which are one device's
    about = types.SimpleNamespace(
        multi_processor_count=132, major=9, minor=0, name="stand-in", L2_cache_size=50 << 20, warp_size=32
    )
    for name, value in {
        "device": lambda *args: contextlib.nullcontext(), "device_count": lambda: 1, "current_device": lambda: 0, "init": lambda: None,
        "get_device_capability": lambda *args: (9, 0), "get_device_properties": lambda *args: about, "is_available": lambda: False,
    }.items():  # fmt: skip
        setattr(torch.cuda, name, value)
    torch.cuda.default_generators = (torch.default_generator,)
    sys.path.insert(0, str(folder / FOLDER))


def ops() -> Any:
    import flag_gems.ops

    return flag_gems.ops


@case
def gems_broadcasts():
    a, b = R(5, 1, 33), R(7, 1)
    g = ops()
    return [g.add(a, b), g.mul(a, b), g.sub(b, a)], [a + b, a * b, b - a]


@case
def gems_flip():
    a = R(5, 6, 7)
    return [ops().flip(a, [0, 2])], [a.flip(0, 2)]


@case
def gems_remainders_of_integers():
    a, b = torch.randint(-50, 50, (200,)), torch.randint(1, 9, (200,))
    g = ops()
    return [g.floor_divide(a, b), g.remainder(a, -b)], [a // b, torch.remainder(a, -b)]


@case
def gems_sums_along_dimensions():
    a = R(5, 40, 77)
    g = ops()
    return [g.sum_dim(a, [1]), g.sum_dim(a, [0, 2], keepdim=True), *g.max_dim(a, 1)], [
        a.sum(1), a.sum((0, 2), keepdim=True), *a.max(1)
    ]  # fmt: skip


@case
def gems_layer_norm_backward():
    a, w, b, grad = R(30, 100), R(100), R(100), R(30, 100)
    g = ops()
    _, mean, scale = g.layer_norm(a, (100,), w, b)
    x, u, v = (t.clone().requires_grad_() for t in (a, w, b))
    F.layer_norm(x, (100,), u, v).backward(grad)
    return list(g.layer_norm_backward(grad, a, (100,), mean, scale, w, b, [True] * 3)), [x.grad, u.grad, v.grad]


@case
def gems_batch_norm():
    a, w, b = R(6, 8, 5, 5), R(8), R(8)
    got = ops().batch_norm(a, w, b, torch.zeros(8), torch.ones(8), True, 0.1, 1e-5)[0]
    return [got], [F.batch_norm(a, torch.zeros(8), torch.ones(8), w, b, True, 0.1, 1e-5)]


@case
def gems_products():
    a, b = R(70, 45), R(45, 90)
    g = ops()
    return [g.mv(a, b[:, 0]), g.vdot(b[0], b[1])], [a @ b[:, 0], b[0] @ b[1]]


@case
def gems_vstack():
    a, b = R(3, 5), R(4, 5)
    return [ops().vstack([a, b])], [torch.vstack([a, b])]


@case
def gems_gather():
    a, i = R(5, 7), torch.randint(0, 5, (4, 7))
    return [ops().gather(a, 0, i)], [a.gather(0, i)]


@case
def gems_sort_and_top_k():
    a = R(4, 600)
    g = ops()
    return [g.sort(a, 1)[0], *g.topk(a, 7, 1)], [a.sort(1)[0], *a.topk(7, 1)]


@case
def gems_pads():
    a = R(2, 3, 7, 9)
    kinds = ("constant", "reflect", "replicate")
    return [ops().pad(a, (1, 2, 3, 0), k) for k in kinds], [F.pad(a, (1, 2, 3, 0), k) for k in kinds]


@case
def gems_convolution():
    a, w, b = R(2, 8, 12, 12), R(16, 8, 3, 3), R(16)
    return [ops().conv2d(a, w, b, 1, 1)], [F.conv2d(a, w, b, 1, 1)]
