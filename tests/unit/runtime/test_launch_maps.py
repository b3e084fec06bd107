"""Tensor maps in a table of launches: one is made when its launch has a grid and its sizes or its address have changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tec.runtime.modules.program import TensorMap
from tec.runtime.networks.launch_table import LaunchTable
from tec.runtime.plans.launches import LaunchRow, MapArgument

NBYTES = 128  # of a map


class Function:
    """A kernel whose maps are the numbers that they were made of."""

    offsets: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def encode_tensor_map(self, address: int, dtype: str, sizes: Any, strides: Any, box: Any, swizzle: Any) -> bytes:
        self.made.append((address, sizes, strides))
        return np.array([address, *sizes, *strides, *[0] * 16], np.int64)[:16].tobytes()


def table_of(maps: list[MapArgument], function: Function) -> LaunchTable:
    """Launches of whose grids the numbers 0, 1, ... are the first sides."""
    count = len({m.launch for m in maps})
    rows = [LaunchRow("f", "k", k * NBYTES, NBYTES, "", (0,), False) for k in range(count)]
    geometry = np.tile(np.array([0, 1, 1, 32, 1, 1, 0], np.int64), (count, 1))
    moving = np.array([[7 * k for k in range(count)], list(range(count))], np.intp)
    launches: Any = SimpleNamespace(rows=rows, maps=maps, geometry=geometry, moving=moving, pointers=np.zeros((2, 0), np.intp), numbers=[], nbytes=count * NBYTES)  # fmt: skip
    module: Any = {"f": SimpleNamespace(module=SimpleNamespace(kernel=lambda device, name: function))}
    return LaunchTable(launches, module, SimpleNamespace(driver=SimpleNamespace()))  # type: ignore[arg-type]


def test_maps_are_made_where_they_are_read_and_have_changed() -> None:
    function, of = Function(), TensorMap("float16", [], [], (8, 8), False)
    maps = [
        MapArgument(0, 0, 0, of, [2, 3], [3]),
        MapArgument(1, NBYTES, 1, of, [2, 3, 3], [3, 2]),  # of another rank
    ]
    table, addresses = table_of(maps, function), np.array([1024, 2048], np.int64)

    def filled(*numbers: int) -> list[tuple[Any, ...]]:
        function.made.clear()
        table.fill(SimpleNamespace(numbers=np.array(numbers, np.int64)), addresses)  # type: ignore[arg-type]
        return list(function.made)

    first, second = (1024, (5, 7), (14,)), (2048, (5, 7, 7), (14, 10))
    assert filled(1, 0, 5, 7) == [first]
    assert filled(2, 0, 5, 7) == []
    assert filled(1, 3, 5, 7) == [second]
    assert filled(0, 0, 6, 7) == []
    assert filled(1, 3, 5, 7) == [], "what stands there is still of these sizes"
    assert filled(1, 1, 6, 7) == [(1024, (6, 7), (14,)), (2048, (6, 7, 7), (14, 12))]
    addresses[0] = 4096
    assert filled(1, 1, 6, 7) == [(4096, (6, 7), (14,))]
    held = table._block.view(np.int64)
    assert held[:3].tolist() == [4096, 6, 7] and held[NBYTES // 8 : NBYTES // 8 + 3].tolist() == [2048, 6, 7]
