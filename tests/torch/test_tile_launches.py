"""Launches of kernels over tiles with tensors of torch: one like another before it is found by what tells arguments apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tec
import tec.tile as tl
from tec.tile import triton


@tl.jit
def _added(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.atomic_add(out + at % 8, tl.load(x + at), sem="relaxed")


@tl.jit
def _widened(x, out):
    at = tl.arange(0, 8)
    tl.store(out + at, tl.load(x + at).to(tl.int64))


@tl.jit
def _doubled(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


def test_launches_like_one_before_take_the_new_arguments() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.arange(64).to(dtype)
        for shift, n in ((0, 64), (1, 32), (0, 16)):
            sums, part = torch.zeros(8, dtype=dtype), x[shift : shift + n]
            _added[(1,)](part, sums, N=n)
            assert torch.equal(sums.float(), part.float().view(-1, 8).sum(0)), (dtype, shift, n)
    assert len(_added._known) >= 4
    wrapped = triton.reinterpret(torch.tensor([-1] * 16, dtype=torch.int32), tl.uint32)
    out = torch.zeros(8, dtype=torch.int64)
    _widened[(1,)](wrapped, out)
    assert out[0] == 2**32 - 1


def test_a_second_warmup_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **named: Any) -> None:
        raise AssertionError("made again")

    x, sums = torch.ones(64), torch.zeros(8)
    first = _added.warmup(x, sums, N=64, grid=(1,))
    for name in ("bound", "program", "compiled"):
        monkeypatch.setattr(type(_added), name, never)
    assert _added.warmup(torch.ones(64), torch.zeros(8), N=64, grid=(1,)) is first
    assert not sums.any()
    _added[(1,)](x, sums, N=64)  # a launch like it is found, too
    assert (sums == 8).all()
    with pytest.raises(AssertionError, match="made again"):
        _added.warmup(x.double(), sums.double(), N=64, grid=(1,))


def test_a_view_with_repeats_is_of_all_its_tensor_elsewhere() -> None:
    """A library restrides a tensor and goes further than the view does; an array without gaps ends where it ends."""
    x = torch.arange(8, dtype=torch.float32)
    first = x.as_strided((8,), (0,))
    out = torch.zeros(8)
    device = tec.rocm_emu("gfx942")
    with tl.on_device(device):
        _doubled[(1,)](first, out, BLOCK=8)
    assert (out == 2 * x).all()
    with tl.on_device(device), pytest.raises(tec.DeviceError, match="out of bounds"):
        _doubled[(1,)](x[:4], out, BLOCK=8)
