"""The interpreter's tile registers (AMX): a thread's eight tiles, loaded from memory, multiplied, stored.

Bytes multiply and add exactly; bfloat16 products are summed in float32, in pairs in order, as the instruction's page says but for denormals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import expr as E
from .interp_ops import Array

if TYPE_CHECKING:
    from .interp_calls import CallMachine


def _places(self: CallMachine, e: E.Call, at: int) -> tuple[Any, list[Any], tuple[int, int]]:
    attrs = e.attrs or {}
    rows, columns = int(attrs["rows"]), int(attrs["columns"])
    p = self.pointer(e.args[at])
    stride = self.uniform(e.args[at + 1], "the stride of a tile's rows")
    return p, [p.offset + r * stride + c for r in range(rows) for c in range(columns)], (rows, columns)


def tile_zero(self: CallMachine, e: E.Call) -> Array:
    attrs = e.attrs or {}
    self.tiles[int(attrs["tile"])] = np.zeros((int(attrs["rows"]), int(attrs["columns"])), attrs["acc"])
    return np.zeros(1, np.int32)


def tile_load(self: CallMachine, e: E.Call) -> Array:
    p, places, shape = _places(self, e, 0)
    values = [self.read(p.storage, p.storage, place, None, p.dtype)[0] for place in places]
    self.tiles[int((e.attrs or {})["tile"])] = np.array(values).reshape(shape)
    return np.zeros(1, np.int32)


def tile_dot(self: CallMachine, e: E.Call) -> Array:
    attrs, tiles = e.attrs or {}, self.tiles
    c, a, b = (tiles[int(attrs[k])] for k in "cab")
    group = int(attrs["group"])
    wide = np.float32 if c.dtype == np.float32 else np.int32
    b = b.reshape(len(b), -1, group).astype(wide)
    for k in range(a.shape[1] // group):
        for r in range(group):
            c = c + a[:, k * group + r, None].astype(wide) * b[k, None, :, r]
    tiles[int(attrs["c"])] = c
    return np.zeros(1, np.int32)


def tile_store(self: CallMachine, e: E.Call) -> Array:
    p, places, _ = _places(self, e, 0)
    tile = self.tiles[int((e.attrs or {})["tile"])].reshape(-1)
    for place, value in zip(places, tile):
        self.write(p.storage, p.storage, place, None, np.array([value]), p.dtype)
    return np.zeros(1, np.int32)


CALLS = {"tile_zero": tile_zero, "tile_load": tile_load, "tile_dot": tile_dot, "tile_store": tile_store}
