"""Networks of torchvision and transformers, with sizes as numbers, with an open batch, and as a backend. `TEC_TORCH_MODELS=name,name` takes some."""

import os

import pytest
import torch
from torch.utils import _pytree as pytree

import tec

from .models import MODELS

pytestmark = pytest.mark.slow
NAMES = [n for n in os.environ.get("TEC_TORCH_MODELS", "").split(",") if n] or list(MODELS)
QUICK = ("mobilenet_v3_small", "bert", "gpt2", "llama", "t5", "whisper", "clip")  # through torch.compile too


def check(call, module, args):
    with torch.no_grad():
        want = [t for t in pytree.tree_leaves(module(**args)) if isinstance(t, torch.Tensor)]
        got = [t for t in pytree.tree_leaves(call(**args)) if isinstance(t, torch.Tensor)]
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert float((a.double() - b.double()).abs().max()) <= 1e-4 * max(float(b.double().abs().max()), 1e-3)


def of_batch(x, n):
    return x[:1] if n == 1 else torch.cat([x, x.flip(0)[:1]])


@pytest.mark.parametrize("name", NAMES)
def test_sizes_as_numbers(name):
    module, args, _ = MODELS[name]()
    check(tec.compile(module, "llvm", args=args), module, args)


@pytest.mark.parametrize("name", NAMES)
def test_an_open_batch(name):
    module, args, shapes = MODELS[name]()
    net = tec.compile(module, "llvm", args=args, shapes=shapes)
    assert net.open_sizes == ["batch"]
    for n in (2, 1, 3):
        check(net, module, {k: x if n == 2 else of_batch(x, n) for k, x in args.items()})


@pytest.mark.parametrize("name", [n for n in QUICK if n in NAMES])
def test_as_a_backend(name):
    torch._dynamo.reset()
    module, args, _ = MODELS[name]()
    check(torch.compile(module, backend="tec"), module, args)
