"""No two arrays share elements, whatever made the one of the other: chains of what NumPy gives views for, with assignments between, held against NumPy
with a copy at every step. What gives the array itself (`asarray(x)`, `astype(copy=False)`) is the same object, there and here."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec.array import computing
from tests import seeds
from tests.thinned import thinned_rows

xp = tec.array


def _perm(r: random.Random, ndim: int) -> tuple[int, ...]:
    return tuple(r.sample(range(ndim), ndim))


def _ones(a: Any) -> tuple[int, ...]:
    return tuple(k for k, n in enumerate(a.shape) if n == 1)


def _shapes(n: int) -> list[tuple[int, ...]]:
    pairs = [(k, n // k) for k in range(1, n + 1) if n % k == 0]
    return [(n,), *pairs, *((1, *p) for p in pairs)]


# What may give the memory of its argument: from (a random source, tec's array, NumPy's) to both results, or None where it does not fit.
Made = Any
RESHAPERS: dict[str, Callable[[random.Random, Any, Any], Made]] = {
    "None in front": lambda r, x, a: (x[None], a[None]),
    "None at the end": lambda r, x, a: (x[..., None], a[..., None]),
    "all of it": lambda r, x, a: (x[...], a[...]),
    "a slice that is all": lambda r, x, a: (x[:], a[:]) if a.ndim else None,
    "a slice": lambda r, x, a: (x[: a.shape[0] // 2 + 1], a[: a.shape[0] // 2 + 1]) if a.ndim else None,
    "the first": lambda r, x, a: (x[0], a[0]) if a.ndim > 1 else None,
    "the last, kept": lambda r, x, a: (x[-1:], a[-1:]) if a.ndim else None,
    "expand_dims": lambda r, x, a: (xp.expand_dims(x, axis=a.ndim), np.expand_dims(a, a.ndim)),
    "squeeze": lambda r, x, a: (xp.squeeze(x, axis=_ones(a)), np.squeeze(a, _ones(a))),
    "reshape": lambda r, x, a: (lambda s: (xp.reshape(x, s), a.reshape(s)))(r.choice(_shapes(a.size))),
    "reshape to itself": lambda r, x, a: (xp.reshape(x, a.shape), a.reshape(a.shape)),
    "reshape, copy": lambda r, x, a: (xp.reshape(x, (-1,), copy=True), a.reshape(-1)),
    "permute_dims": lambda r, x, a: (lambda p: (xp.permute_dims(x, p), a.transpose(p)))(_perm(r, a.ndim)),
    "moveaxis": lambda r, x, a: (xp.moveaxis(x, 0, -1), np.moveaxis(a, 0, -1)) if a.ndim else None,
    "mT": lambda r, x, a: (x.mT, a.swapaxes(-1, -2)) if a.ndim > 1 else None,
    "broadcast_to itself": lambda r, x, a: (xp.broadcast_to(x, a.shape), a),
    "broadcast_to one more": lambda r, x, a: (xp.broadcast_to(x, (1, *a.shape)), a[None]),
    "broadcast_arrays": lambda r, x, a: (xp.broadcast_arrays(x, x)[1], a),
    "flip along ones": lambda r, x, a: (xp.flip(x, axis=_ones(a)), a) if _ones(a) else None,
    "roll by 0": lambda r, x, a: (xp.roll(x, 0), a),
    "roll by all": lambda r, x, a: (xp.roll(x, a.size), a),
    "concat of one": lambda r, x, a: (xp.concat([x]), a) if a.ndim else None,
    "concat in a line": lambda r, x, a: (xp.concat([x], axis=None), a.reshape(-1)),
    "stack of one": lambda r, x, a: (xp.stack([x]), a[None]),
    "unstack": lambda r, x, a: (xp.unstack(x)[-1], a[-1]) if a.ndim > 1 else None,
    "tile once": lambda r, x, a: (xp.tile(x, (1,)), a) if a.ndim else None,
    "repeat once": lambda r, x, a: (xp.repeat(x, 1, axis=0), a) if a.ndim else None,
    "astype": lambda r, x, a: (xp.astype(x, "int32"), a),
    "asarray, copy": lambda r, x, a: (xp.asarray(x, copy=True), a),
    "positive": lambda r, x, a: (+x, a),
    "take all": lambda r, x, a: (xp.take(x, xp.arange(a.shape[0], device=x.device), axis=0), a) if a.ndim else None,
    "where all": lambda r, x, a: (xp.where(xp.full((), True, device=x.device), x, x), a),
    "clip by nothing": lambda r, x, a: (xp.clip(x), a),
    "maximum of itself": lambda r, x, a: (xp.maximum(x, x), a),
    "sum over ones": lambda r, x, a: (xp.max(x, axis=_ones(a)), a.max(_ones(a))),
    "sorted": lambda r, x, a: (xp.sort(x), np.sort(a)) if a.ndim else None,
    "tril of all": lambda r, x, a: (xp.tril(x, k=99), a) if a.ndim > 1 else None,
    "plus one": lambda r, x, a: (x + 1, a + np.int32(1)),
}
THE_SAME: dict[str, Callable[[Any], Any]] = {
    "asarray": lambda x: xp.asarray(x),
    "asarray, never a copy": lambda x: xp.asarray(x, copy=False),
    "astype, copy=False": lambda x: xp.astype(x, "int32", copy=False),
    "to_device": lambda x: x.to_device(x.device),
}


def _start(device: Any, shape: tuple[int, ...] = (1, 4), lazy: bool = True) -> tuple[Any, Any]:
    a = np.arange(1, 1 + int(np.prod(shape)), dtype=np.int32).reshape(shape)
    x = xp.asarray(a, device=device)
    return (x * 2, a * np.int32(2)) if lazy else (x, a)


def _assign(r: random.Random, x: Any, a: Any) -> None:
    """An assignment that writes a part in place where it can, from the array itself or a number."""
    how = r.randrange(5)
    if not a.ndim:
        x += 1
        a += np.int32(1)
    elif how == 0 and a.ndim:
        x[0], a[0] = x[-1] + 1, a[-1] + np.int32(1)
    elif how == 1:
        x[..., -1:], a[..., -1:] = 7, 7
    elif how == 2:
        x[...], a[...] = x[::-1], a[::-1].copy()
    elif how == 3:
        x *= 3
        a *= np.int32(3)
    else:
        x[x > 5], a[a > 5] = -1, -1


@thinned_rows(20, "name", RESHAPERS)
def test_a_result_and_its_source_are_two_values(name: str) -> None:
    """Assigned to either, computed before or not, the other keeps what it was."""
    for shape, lazy, settle, of_result in itertools.product(((1, 4), (3, 1)), (True, False), (True, False), (0, 1)):
        r = random.Random(shape[0])
        x, a = _start(None, shape, lazy)
        made = RESHAPERS[name](r, x, a)
        if made is None:
            continue
        y, b = made[0], made[1].copy()
        if settle:
            y.block()
        target, held = ((x, a), (y, b))[of_result]
        if held.ndim:
            target[..., -1:] = target[..., :1] + 1
            held[..., -1:] = held[..., :1] + np.int32(1)
        np.testing.assert_array_equal(x.numpy(), a, err_msg=f"{name}: the source")
        np.testing.assert_array_equal(y.numpy(), b, err_msg=f"{name}: the result")


def _program(seed: int, device: Any, steps: int) -> None:
    r = random.Random(seed)
    pairs: list[tuple[Any, Any]] = [_start(device, r.choice(((4,), (1, 4), (2, 1, 2))), r.random() < 0.5)]
    frozen: list[tuple[Any, Any]] = []
    trail: list[str] = []
    for _ in range(steps):
        k = r.randrange(len(pairs))
        x, a = pairs[k]
        what = r.randrange(10)
        if what < 5:
            name = r.choice(list(RESHAPERS))
            made = RESHAPERS[name](r, x, a) if a.ndim < 5 else None
            if made is not None:
                pairs.append((made[0], made[1].copy()))
                trail.append(f"{len(pairs) - 1} = {name} of {k}")
        elif what < 8:
            _assign(r, x, a)
            pairs[k] = (x, a)
            trail.append(f"{k} assigned")
        elif what == 8:
            xp.block(*(r.choice(pairs)[0] for _ in range(r.randrange(1, 4))))
            trail.append("computed")
        elif x.device.driver is None and len(pairs) > 1:
            if r.random() < 0.5:
                frozen.append((np.asarray(x), a.copy()))
                trail.append(f"NumPy reads {k}")
            else:
                del pairs[k]
                trail.append(f"{k} gone, later ones one down")
    for k, (x, a) in enumerate(pairs):
        np.testing.assert_array_equal(x.numpy(), a, err_msg=f"seed {seed}, array {k}: {'; '.join(trail)}")
    for k, (view, a) in enumerate(frozen):
        np.testing.assert_array_equal(view, a, err_msg=f"seed {seed}, NumPy's view {k}: {'; '.join(trail)}")


@pytest.mark.parametrize("seed", seeds.some(4))
def test_drawn_chains(seed: int) -> None:
    for k in range(25 if seeds.number() else 6):
        _program((1000 * seed + k) % seeds.LAST, None, 14)


def test_drawn_chains_on_a_gpu() -> None:
    for k in range(4):
        _program(k, tec.rocm_emu("gfx942"), 8)


@pytest.mark.parametrize("name", THE_SAME)
def test_what_never_copies_gives_the_array_itself(name: str) -> None:
    x, a = _start(None)
    y = THE_SAME[name](x)
    assert y is x
    y[0, 0] = 9
    assert x[0, 0] == 9 and a[0, 0] == 2


def test_a_copy_that_is_forbidden_and_needed_is_refused() -> None:
    held = tec.nd.array(np.arange(4, dtype=np.int32))
    shared = xp.asarray(held, copy=False)
    held.copyfrom(np.full(4, 5, np.int32))
    assert shared.tolist() == [5] * 4
    for given in (held, np.arange(4, dtype=np.int32), shared):
        with pytest.raises(tec.TecError, match="copy=False"):
            xp.asarray(given, dtype="float32", copy=False)


def test_values_that_are_one_value_inside_of_the_code() -> None:
    """Two results that the compiler finds equal, and a result that it finds constant, are memory of their own."""
    x, _ = _start(None)
    y, z = x + 1, x + 1
    xp.block(y, z)
    y[0, 0] = -1
    assert z[0, 0] == 3
    for _ in range(2):  # the code, and with it the constant, is used again
        c = xp.zeros((4,), dtype="int32") * 2
        c[0:2] = 1
        assert c.tolist() == [1, 1, 0, 0]


def test_what_others_write_shows_in_one_array() -> None:
    """NumPy writes to memory that it was given, and to memory that it gave."""
    x, _ = _start(None, lazy=False)
    rows = [RESHAPERS[name](random.Random(0), x, np.zeros((1, 4), np.int32)) for name in RESHAPERS]
    others = [row[0] for row in rows if row is not None]
    xp.block(*others)
    before = [y.numpy() for y in others]
    np.from_dlpack(x)  # given to others from here on
    view = np.ctypeslib.as_array((ctypes.c_int32 * 4).from_address(x.nd.address))
    view[:] = 77
    assert x.tolist() == [[77] * 4]
    for y, was in zip(others, before):
        np.testing.assert_array_equal(y.numpy(), was)
    own = np.arange(4, dtype=np.int32)
    taken = xp.asarray(own, copy=False)
    made = [xp.reshape(taken, (2, 2)), taken[None], taken[:], xp.stack([taken])]
    xp.block(*made)
    own[0] = 50
    assert taken[0] == 50
    assert all(y.numpy().reshape(-1)[0] == 0 for y in made)


def test_chains_share_memory_where_nobody_can_tell() -> None:
    """The rule costs nothing while nothing is assigned: a reshape of what is in memory moves nothing."""
    x = xp.asarray(np.zeros((64, 64), np.float32)).block()
    y = xp.reshape(x, (4096,))
    assert computing.in_memory(y._node).address == computing.in_memory(x._node).address
    y[0:2] = 1
    assert computing.in_memory(y._node).address != computing.in_memory(x._node).address
