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
from typing import TYPE_CHECKING, Any

from ..errors import meant_by_a_call
from . import language
from .language import *  # noqa: F403
from .layouts import show

if TYPE_CHECKING:  # what follows has types for checkers of users' programs; it is imported when it is first used
    from ..jit.tile_tuning import Config as Config
    from ..jit.tile_tuning import autotune as autotune
    from ..jit.tile_tuning import heuristics as heuristics
    from ..jit.tiles import TileKernel as TileKernel
    from ..jit.tiles import from_triton as from_triton
    from ..jit.tiles import jit as jit
    from ..jit.tiles import on_device as on_device
    from .host import next_power_of_2 as next_power_of_2

_LAUNCHING = ("jit", "from_triton", "TileKernel", "on_device")
_TUNING = ("autotune", "heuristics", "Config")


def __getattr__(name: str) -> Any:
    if name in _LAUNCHING:
        return getattr(import_module("tec.jit.tiles"), name)
    if name in _TUNING:
        return getattr(import_module("tec.jit.tile_tuning"), name)
    if name == "triton":
        return import_module("tec.jit.triton_names")
    if name in ("core", "standard", "semantic"):  # modules of Triton's language
        return language
    if hasattr(language, name):
        return getattr(language, name)
    if name == "next_power_of_2":
        return import_module("tec.tile.host").next_power_of_2
    raise AttributeError(f"tec.tile has no {name}")


meant_by_a_call(__name__, "tec.array.tile(x, repetitions) repeats an array; @tec.tile.jit makes a kernel over tiles")

__all__ = ["language", "show", *language.__all__]


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
