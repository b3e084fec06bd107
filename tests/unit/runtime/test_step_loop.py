"""The loop over a plan's steps: in the pool's machine code, and its plain stand-in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tec.runtime.modules import cpu_code, hostpool


@pytest.fixture(params=["pool", "stand-in"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], tuple[int, int]]:
    if request.param == "pool" and not hostpool.symbols():
        pytest.skip("this machine has no pool")
    if request.param == "stand-in":
        monkeypatch.setattr(cpu_code, "symbols", dict)
    return cpu_code.step_loop()


def table(*functions: Any) -> tuple[np.ndarray[Any, Any], list[Any]]:
    code = [cpu_code.POINTERS(f) for f in functions]
    rows = [(ctypes.cast(c, ctypes.c_void_p).value, 100 + k, 200 + k) for k, c in enumerate(code)]
    return np.array(rows, np.int64).reshape(-1, cpu_code.STEP_WORDS), code


def test_each_step_gets_its_arguments_in_order(loop: Any) -> None:
    seen: list[Any] = []
    rows, keep = table(*[lambda p, s, k=k: seen.append((k, p, s)) or 0 for k in range(5)])
    assert loop(rows.ctypes.data, 5) == (-1, 0)
    assert seen == [(k, 100 + k, 200 + k) for k in range(5)]
    assert loop(rows.ctypes.data, 0) == (-1, 0) and len(seen) == 5
    del keep


@pytest.mark.parametrize("status", [1, 7, -1, -(1 << 31), (1 << 31) - 1])
@pytest.mark.parametrize("at", [0, 2, 3])
def test_the_first_that_fails_ends_it(loop: Any, at: int, status: int) -> None:
    seen: list[int] = []
    rows, keep = table(*[lambda p, s, k=k: seen.append(k) or (status if k >= at else 0) for k in range(4)])
    assert loop(rows.ctypes.data, 4) == (at, status)
    assert seen == list(range(at + 1))
    del keep


def test_a_copy_is_a_step(loop: Any) -> None:
    source, target = np.arange(9, dtype="f4"), np.zeros(9, "f4")
    pointers, scalars = np.array([target.ctypes.data, source.ctypes.data], np.int64), np.array([20], np.int64)
    row = np.array([cpu_code.helpers()["tec_copy_bytes"], pointers.ctypes.data, scalars.ctypes.data], np.int64)
    assert loop(row.ctypes.data, 1) == (-1, 0)
    np.testing.assert_array_equal(target, [0, 1, 2, 3, 4, 0, 0, 0, 0])


@pytest.mark.parametrize("going", [None, 5, 2])
def test_trips_move_and_swap_what_the_cells_name(loop: Any, going: int | None) -> None:
    """Before trip t a cell is its start, t moves on, a swap further in every other trip; the loop ends where its condition is 0."""
    cells, flag = np.array([-1, -1], np.int64), np.array([1], np.uint8)
    seen: list[tuple[int, ...]] = []

    def step(p: Any, s: Any) -> int:
        seen.append(tuple(cells.tolist()))
        flag[0] = len(seen) != going
        return 0

    rows, keep = table(step)
    at = cells.ctypes.data
    moves = np.array([(at, 100, 7, 0), (at + 8, 50, -3, 10)], np.int64)
    asked = 0 if going is None else flag.ctypes.data
    words = np.array([rows.ctypes.data, 1, 4, asked, len(moves), moves.ctypes.data, 99], np.int64)
    assert cpu_code.trip_loop()(words.ctypes.data) == (-1, 0)
    assert seen == [(100, 50), (107, 57), (100, 70), (107, 77)][: going or 4] and words[6] == min(going or 4, 4)
    del keep


def test_a_step_that_fails_ends_the_trips(loop: Any) -> None:
    seen: list[int] = []
    rows, keep = table(lambda p, s: 0, lambda p, s: seen.append(1) or 3 * (len(seen) == 3))
    words = np.array([rows.ctypes.data, 2, 9, 0, 0, 0, 99], np.int64)
    assert cpu_code.trip_loop()(words.ctypes.data) == (1, 3) and words[6] == 2
    del keep
