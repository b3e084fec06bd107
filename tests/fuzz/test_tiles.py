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
    want, counts = P.expected(writer, text, x, y, 5)
    module = module_of(text, folder / f"tiles_{seed}.py")
    if device == "interpreter":
        monkeypatch.setenv("TEC_INTERPRET", "1")
    dev = None if device in ("interpreter", "cpu") else tec.rocm_emu(device, check={"race"})
    given = (x, y, np.zeros_like(x), np.zeros_like(counts))
    arrays = [v.copy() if dev is None else tec.nd.array(v, dev) for v in given]
    sizes = {"M": writer.rows, "N": writer.columns, "R": writer.down, "C": writer.right}
    module.kernel[(PROGRAMS,)](*arrays, 5, **sizes, num_warps=1 + seed % 2)
    for made, right in zip(arrays[2:], (want, counts)):
        got = made if isinstance(made, np.ndarray) else made.numpy()
        np.testing.assert_array_equal(got, right, err_msg=f"seed {seed} on {device}; {seeds.said()}\n{text}")


@pytest.mark.parametrize("seed", seeds.some(10 if seeds.number() else 5))
def test_on_the_host(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, "interpreter", tmp_path, monkeypatch)
    monkeypatch.undo()
    run(seed, "cpu", tmp_path, monkeypatch)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("seed", seeds.some(2 if seeds.number() else 1))
def test_on_software_gpus(seed: int, chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, chip, tmp_path, monkeypatch)
