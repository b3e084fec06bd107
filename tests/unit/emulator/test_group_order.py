"""Where races are looked for, work-groups begin in an order drawn from a seed: a program that counts on the order of their numbers gives other values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.emulator.driver import EmuDriver
from tec.runtime.devices.device import Device

N = 24


@tec.kernel
def tickets(counter: Any, order: Any) -> None:
    """The place of each work-group in the order that they run in."""
    if tec.thread_idx.x == 0:
        order[tec.block_idx.x] = tec.atomic_add(counter, 0, 1)


@tec.kernel
def sums(total: Any, before: Any) -> None:
    """What the work-groups before this one added: by atomics alone, so that nothing races and the order decides."""
    if tec.thread_idx.x == 0:
        before[tec.block_idx.x] = tec.atomic_add(total, 0, tec.block_idx.x)


def _order(device: Any, groups: int = N) -> list[int]:
    counter, order = (tec.nd.array(np.zeros(n, np.int32), device) for n in (1, groups))
    tickets[groups, 64](counter, order)
    return [int(x) for x in order.numpy()]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_orders_are_drawn_and_come_again(chip: str) -> None:
    def drawn(seed: int) -> list[list[int]]:
        device = tec.rocm_emu(chip, check="race", threads=1, seed=seed)
        return [_order(device) for _ in range(6)]

    orders = drawn(101)
    assert all(sorted(o) == list(range(N)) for o in orders), "each runs once"
    assert len({tuple(o) for o in orders}) > 2 and any(o != list(range(N)) for o in orders)
    assert drawn(102) != orders
    for plain in (tec.rocm_emu(chip, threads=1), tec.rocm_emu(chip, check="race", threads=1, seed=None)):
        assert _order(plain) == list(range(N))
    for groups in (1, 2, 3, 7, 100):
        assert sorted(_order(tec.rocm_emu(chip, check="race", threads=1, seed=5), groups)) == list(range(groups))


def test_the_seed_alone_decides() -> None:
    found = []
    for _ in range(2):
        device = Device("rocm", 0, EmuDriver("gfx942", "race", threads=1, seed=7), "emu")
        found.append([_order(device) for _ in range(3)])
    assert found[0] == found[1]


def test_a_program_that_counts_on_the_order_is_noticed() -> None:
    want = np.arange(N) * (np.arange(N) - 1) // 2

    def run(**options: Any) -> Any:
        device = tec.rocm_emu("gfx942", threads=1, **options)
        total, before = (tec.nd.array(np.zeros(n, np.int32), device) for n in (1, N))
        sums[N, 64](total, before)
        return before.numpy()

    np.testing.assert_array_equal(run(), want)
    assert any((run(check="race", seed=33) != want).any() for _ in range(3))
