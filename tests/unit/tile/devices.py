"""Devices for tests of tiles: arrays there and back, and NumPy's interpreter as one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec

DEVICES: list[Any] = ["interpreter", "cpu", "gfx942", "gfx1100", pytest.param("cuda", marks=pytest.mark.gpu)]


class On:
    """A device by name. `array` puts a NumPy array on it; `numpy` brings it back."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch):
        self.name = name
        if name == "interpreter":
            monkeypatch.setenv("TEC_INTERPRET", "1")
        self.device = None if name in ("interpreter", "cpu") else tec.cuda(0) if name == "cuda" else tec.rocm_emu(name)

    def array(self, x: np.ndarray) -> Any:
        return x.copy() if self.device is None else tec.nd.array(x, self.device)

    def zeros(self, *shape: int, dtype: str = "float32") -> Any:
        return self.array(np.zeros(shape, dtype))

    def numpy(self, x: Any) -> np.ndarray:
        return x if isinstance(x, np.ndarray) else x.numpy()
