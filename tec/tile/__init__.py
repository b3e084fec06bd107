"""Tiles: kernels that say what a program does to tiles of arrays, with Triton's names; the compiler picks threads, layouts and memory.

    import tec, tec.tile as tl

    @tec.tile.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

    add[(tl.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)

`language` has the words, `frontend` reads a function, `grammar` says what a tile program is, `layouts` where its elements lie, `lowering` makes loop IR of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from . import language
from .language import *  # noqa: F403
from .layouts import show

_LAUNCHING = ("jit", "from_triton", "TileKernel", "on_device")
_TUNING = ("autotune", "heuristics", "Config")


def __getattr__(name: str) -> Any:
    if name in _LAUNCHING:
        return getattr(import_module("tec.jit.tiles"), name)
    if name in _TUNING:
        return getattr(import_module("tec.jit.tile_tuning"), name)
    if name == "triton":
        return import_module("tec.jit.triton_names")
    if hasattr(language, name):
        return getattr(language, name)
    if name == "next_power_of_2":
        return import_module("tec.tile.host").next_power_of_2
    raise AttributeError(f"tec.tile has no {name}")


__all__ = ["language", "show", *language.__all__]
