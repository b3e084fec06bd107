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
        monkeypatch.setattr(hostpool, "symbols", dict)
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
