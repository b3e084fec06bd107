"""What holds where nothing is said."""

from __future__ import annotations

import pytest

import tec
from tec.lm import asked
from tec.lm.asked import target_of


def test_a_kind_of_gpu_is_the_chip_of_the_device() -> None:
    device = tec.rocm_emu("gfx1100")
    assert target_of("rocm", device).mcpu == target_of("rocm -fast-math", device).mcpu == "gfx1100"
    assert "fast-math" in target_of("rocm -fast-math", device).options
    assert target_of("rocm -mcpu=gfx942", device).mcpu == "gfx942"  # what is said counts
    assert target_of("llvm", device).kind == "llvm" and target_of(None, None).kind == "llvm"
    assert target_of("cuda", device).mcpu == "sm_90"  # the device is none of this kind, which executors tell


def test_without_a_device_it_is_the_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "rocm_exists", lambda: False)
    assert target_of("rocm", None).mcpu == "gfx942"
    monkeypatch.setattr(asked, "rocm_exists", lambda: True)
    monkeypatch.setattr(asked, "as_device", lambda kind: tec.rocm_emu("gfx1201"))
    assert target_of("rocm", None).mcpu == "gfx1201"
