"""Launches like one before: what they may take from it, and what they may not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tec
import tec.tile as tl
from tec.jit.tile_launches import told_of
from tests import seeds


@tl.jit
def _scaled(x, y, out, n, a, flag, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n) * a
    if flag:
        v += tl.load(y + at, mask=at < n)
    tl.store(out + at, v, mask=at < n)


def _wanted(x: Any, y: Any, n: int, a: float, flag: bool, before: Any) -> Any:
    out = before.copy()
    out[:n] = x[:n] * np.float32(a) + (y[:n] if flag else 0)
    return out


@pytest.mark.parametrize("name", ["cpu", "gfx1100"])
def test_launches_in_any_order_are_as_the_first(name: str) -> None:
    """Parts of one memory as arguments, which lie in one another or apart, of other sizes at the same place; numbers of other classes; arguments by name."""
    r = random.Random(seeds.first(31))
    device = tec.cpu() if name == "cpu" else tec.rocm_emu(name)
    held = np.random.default_rng(r.randrange(99)).standard_normal(640).astype(np.float32)
    memory = tec.nd.array(held, device)
    for _ in range(24):
        size = r.choice((32, 48, 96))
        x, y, out = (r.choice((0, 64, 128, 256)) for _ in range(3))
        n, a, flag = r.choice((1, 17)), r.choice((0.5, -2.0)), True
        if out in (x, y):  # in place is right; other overlaps have no order
            size = 32
        given = {k: memory[at : at + size] for k, at in (("x", x), ("y", y), ("out", out))}
        want = _wanted(held[x : x + size], held[y : y + size], n, a, flag, held[out : out + size])
        if r.random() < 0.3:
            _scaled[(1,)](flag=flag, a=a, n=n, out=given["out"], y=given["y"], x=given["x"], BLOCK=32)
        else:
            _scaled[(-(-n // 32), 1)](given["x"], given["y"], given["out"], n, a, flag=flag, BLOCK=32)
        held[out : out + size] = want
        np.testing.assert_array_equal(memory.numpy(), held)
    assert _scaled._known


def test_a_launch_again_goes_straight_to_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    device = tec.rocm_emu("gfx1100")
    x, y = (tec.nd.array(np.arange(64, dtype=np.float32), device) for _ in range(2))
    outs = [tec.nd.zeros((64,), "float32", device) for _ in range(3)]
    for out in outs[:2]:  # the first makes the code, the second leaves the plan of its grid
        _scaled[(2,)](x, y, out, 64, 2.0, True, BLOCK=32)
    monkeypatch.setattr(type(_scaled), "_call", lambda *args: pytest.fail("the long way"))
    _scaled[(2,)](x, y, outs[2], 64, 2.0, True, BLOCK=32)
    assert (outs[2].numpy() == 3 * np.arange(64)).all()
    _scaled[(2,)](x, y, outs[2], 64, 1e39, True, BLOCK=32)  # beyond float32: infinite, as by the long way
    assert np.isinf(outs[2].numpy()[1:]).all()


def test_launches_are_told_apart_by_all_that_code_depends_on() -> None:
    """Also by what `==` says is the same; by the arguments' names where they are given by name."""
    x = tec.nd.array(np.zeros(64, np.float32))

    def told(*args: Any, **named: Any) -> Any:
        found = told_of(_scaled, args, named)
        assert found is not None
        return found

    rows = [
        (64, 2.0, True),
        (64, 2.0, 1),
        (64, True, True),
        (1, 2.0, True),
        (17, 2.0, True),
        (-17, 2.0, True),
        (2**31, 2.0, True),
    ]
    keys = [told(x, x, x, *row, BLOCK=32).key for row in rows]
    keys += [told(x, x[1:], x, 64, 2.0, True, BLOCK=32).key, told(x, x, x, 64, 2.0, True, BLOCK=True).key]
    keys += [told(x, x, x, 64, 2.0, True, BLOCK=32, num_warps=1).key]
    assert len(set(keys)) == len(keys)
    assert told(x, x, x, 64, 3.0, False, BLOCK=32).key == keys[0]
    assert told(x, x, x, 1, 2.0, True, BLOCK=32).numbers == [2.0, True]  # an integer that is 1 is in the code
    backwards = told(BLOCK=32, flag=True, a=2.0, n=64, out=x, y=x[4:], x=x[8:])
    assert backwards.addresses == [x[8:].address, x[4:].address, x.address]
    assert backwards.sizes == (56, 60, 64) and backwards.numbers == [64, 2.0, True]
    for args, named in (
        ((x,), {"x": x}),
        ((x, x, x, 64, 2.0, [1]), {"BLOCK": 32}),
        ((x,) * 9, {}),
        ((x, x, x, 64, 2.0, True), {"BLOCK": []}),
    ):
        assert told_of(_scaled, args, named) is None  # the long way, which also says errors


def test_what_a_kernel_takes_from_outside_may_change() -> None:
    x, out = np.ones(16, np.float32), np.zeros(16, np.float32)
    for value in (2.0, 2.0, 2.0, 5.0):
        globals()["_FACTOR"] = tl.constexpr(value)
        _by_a_global[(1,)](x, out)
        assert (out == value).all()


_FACTOR = tl.constexpr(2.0)


@tl.jit
def _by_a_global(x, out):
    at = tl.arange(0, 16)
    tl.store(out + at, tl.load(x + at) * _FACTOR)


@tl.jit
def _twice(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for _ in range(2):
        tl.store(x + at, tl.load(x + at) * 2)


def test_waves_and_stages_make_no_other_code_on_a_cpu() -> None:
    def codes(target: str) -> int:
        made = {
            id(_twice.compiled_for(target, "*fp32", BLOCK=16, num_warps=w, num_stages=s))
            for w in (1, 4)
            for s in (2, 3)
        }
        return len(made)

    assert codes("llvm") == 1
    assert codes("rocm -mcpu=gfx942") == 4
