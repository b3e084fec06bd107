"""Drawn programs over tiles on the interpreter, the CPU and software GPUs, against the same text run by NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tec
from tests import seeds

from . import tile_programs as P
from .loading import module_of

PROGRAMS = 2


def run(seed: int, device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = P.Writer(seed)
    text = writer.text()
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 1024, (2, PROGRAMS, writer.rows, writer.columns)).astype(np.int32)
    want = P.expected(text, x, y, 5)
    module = module_of(text, folder / f"tiles_{seed}.py")
    if device == "interpreter":
        monkeypatch.setenv("TEC_INTERPRET", "1")
    dev = None if device in ("interpreter", "cpu") else tec.rocm_emu(device, check={"race"})
    arrays = [v.copy() if dev is None else tec.nd.array(v, dev) for v in (x, y, np.zeros_like(x))]
    module.kernel[(PROGRAMS,)](*arrays, 5, M=writer.rows, N=writer.columns, num_warps=1 + seed % 2)
    got = arrays[2] if isinstance(arrays[2], np.ndarray) else arrays[2].numpy()
    np.testing.assert_array_equal(got, want, err_msg=f"seed {seed} on {device}; {seeds.said()}\n{text}")


@pytest.mark.parametrize("seed", seeds.some(10 if seeds.number() else 5))
def test_on_the_host(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, "interpreter", tmp_path, monkeypatch)
    monkeypatch.undo()
    run(seed, "cpu", tmp_path, monkeypatch)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("seed", seeds.some(2 if seeds.number() else 1))
def test_on_software_gpus(seed: int, chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, chip, tmp_path, monkeypatch)
