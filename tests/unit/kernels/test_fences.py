"""Fences: what one block wrote before an atomic, another reads behind it; the race check of the software GPU follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec

BLOCK = 64


def last_block_adds(fenced: bool) -> Any:
    """A kernel whose last block adds up what all have left."""

    @tec.kernel
    def total(x, parts, done, out):
        mine = tec.block_reduce(x[tec.grid_idx(1)], "add")
        if tec.thread_idx.x == 0:
            parts[tec.block_idx.x] = mine
            if fenced:
                tec.fence()
            if tec.atomic_add(done, 0, 1) == tec.grid_dim.x - 1:
                if fenced:
                    tec.fence()
                s = 0
                for k in range(tec.grid_dim.x):
                    s += parts[k]
                out[0] = s

    return total


@tec.kernel
def counted_under_a_lock(lock, count):
    if tec.thread_idx.x == 0:
        while tec.atomic_cas(lock, 0, 0, 1) != 0:
            pass
        tec.fence()
        count[0] += 1
        tec.fence()
        tec.atomic_exchange(lock, 0, 0)


def arrays(dev: Any, *given: Any) -> list[Any]:
    return [tec.nd.array(np.asarray(a, np.int32), dev) for a in given]


@pytest.mark.parametrize("chip", ["", "gfx942", pytest.param("gfx1100", marks=pytest.mark.slow)])
def test_the_last_block_reads_what_the_others_wrote(chip: str) -> None:
    dev = tec.rocm_emu(chip, check={"race", "bounds"}) if chip else tec.cpu()
    x = np.random.default_rng(0).integers(-50, 50, 8 * BLOCK)
    given = arrays(dev, x, np.zeros(8), [0], [0])
    last_block_adds(True)[8, BLOCK](*given)
    assert given[3].numpy()[0] == x.sum()
    lock, count = arrays(dev, [0], [0])
    counted_under_a_lock[8, 32](lock, count)
    assert count.numpy()[0] == 8


def test_without_a_fence_the_race_is_found() -> None:
    given = arrays(tec.rocm_emu("gfx942", check={"race"}), np.ones(8 * BLOCK), np.zeros(8), [0], [0])
    with pytest.raises(tec.TecError, match="race"):
        last_block_adds(False)[8, BLOCK](*given)


@pytest.mark.parametrize(("scope", "amd", "ptx"), [
    ("block", "workgroup", "fence.sc.cta"), ("device", "agent", "fence.sc.gpu"), ("system", "", "fence.sc.sys"),
])  # fmt: skip
def test_scopes(scope: str, amd: str, ptx: str) -> None:
    @tec.kernel
    def k(x):
        x[0] = 1
        tec.fence(scope)
        x[1] = 2

    text = k.llvm_raw("int32[:]", target="rocm -mcpu=gfx942")
    assert (f'fence syncscope("{amd}") seq_cst' if amd else "fence seq_cst") in text
    assert ptx in k.asm("int32[:]", target="cuda -arch=sm_90")


@tec.kernel
def compacted(x, out, count):
    i = tec.grid_idx(1)
    keep = i < len(x) and x[i] > 0
    votes = tec.ballot(keep)
    first = 0
    if tec.lane() == 0:
        first = tec.atomic_add(count, 0, tec.popcount(votes))
    first = tec.shuffle(first, 0)
    if keep:
        out[first + tec.popcount(votes & tec.lanemask_lt())] = x[i]


@pytest.mark.parametrize("chip", ["", "gfx942"])
def test_lanes_below_give_a_place_to_each(chip: str) -> None:
    dev = tec.rocm_emu(chip) if chip else tec.cpu()
    x = np.random.default_rng(1).integers(-9, 9, 300)
    given = arrays(dev, x, np.zeros(300), [0])
    compacted[5, BLOCK](*given)
    assert sorted(given[1].numpy()[: given[2].numpy()[0]]) == sorted(x[x > 0])


@tec.kernel
def add_one(x):
    i = tec.grid_idx(1)
    if i < len(x):
        x[i] += 1


def test_launches_are_captured_on_the_software_gpu() -> None:
    dev = tec.rocm_emu("gfx942")
    (x,) = arrays(dev, np.zeros(10))
    with dev.capture() as graph:
        add_one[1, BLOCK](x)
        add_one[1, BLOCK](x)
    assert (x.numpy() == 0).all()  # recorded, not run
    for _ in range(2):
        graph.launch()
    assert (x.numpy() == 4).all()
    add_one[1, BLOCK](x)
    assert (x.numpy() == 5).all()
