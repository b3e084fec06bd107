"""`tec.array` whose default device is another: what array-api-tests imports to run on the chip that TEC_ARRAY_API_CHIP names, in software."""

# ruff: noqa: F401, F403  (the names are tec.array's)
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tec
import tec.array as _xp
from tec.array import *
from tec.array import __array_api_version__, __array_namespace_info__

_DEVICE = tec.rocm_emu(os.environ.get("TEC_ARRAY_API_CHIP", "gfx942"))


def _there(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def call(*args: Any, **options: Any) -> Any:
        given = options.get("device")
        options["device"] = _DEVICE if given is None else given
        return f(*args, **options)

    return call


for _name in ("asarray", "arange", "empty", "eye", "full", "linspace", "ones", "zeros"):
    globals()[_name] = _there(getattr(_xp, _name))
linalg = _xp.linalg
fft = SimpleNamespace(**{n: getattr(_xp.fft, n) for n in _xp.fft.__all__})
fft.fftfreq, fft.rfftfreq = _there(_xp.fft.fftfreq), _there(_xp.fft.rfftfreq)
