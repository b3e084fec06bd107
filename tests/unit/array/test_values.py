"""Expressions read what arrays were when they were written, whatever is assigned later: held against NumPy with a copy at every step."""

from __future__ import annotations

import copy
import gc
import pickle
import random
from typing import Any

import numpy as np
import pytest

import tec
from tec.array import computing
from tec.array.errors import ArrayIndexError
from tests import seeds

xp = tec.array


def _slice(r: random.Random, n: int) -> Any:
    kind = r.randrange(5)
    if kind == 0 and n:
        return r.randrange(-n, n)
    if kind == 1:
        return slice(None)
    a, b = sorted((r.randrange(0, n + 1), r.randrange(0, n + 1)))
    return slice(b - 1 if b else None, a - 1 if a else None, -1) if kind == 2 else slice(a, b, r.choice((1, 1, 2)))


def _key(r: random.Random, shape: tuple[int, ...]) -> Any:
    return tuple(_slice(r, n) for n in shape[: r.randrange(len(shape) + 1)])


def _program(seed: int, device: Any, steps: int) -> None:
    """Arrays and their NumPy doubles under random steps; some are computed on the way, some at the end alone."""
    r = random.Random(seed)
    numbers = np.random.default_rng(seed)
    start = numbers.integers(-50, 50, (4, 6)).astype(np.int32)
    pairs: list[tuple[Any, Any]] = [(xp.asarray(start, device=device), start.copy())]
    shared: list[tuple[Any, Any]] = []  # NumPy's views of arrays, and what they must go on saying
    for _ in range(steps):
        k = r.randrange(len(pairs))
        x, a = pairs[k]
        what = r.randrange(12)
        if what < 3:
            y, b = pairs[r.randrange(len(pairs))]
            try:
                np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                continue
            made = (x + y * 3 - 1, a + b * np.int32(3) - np.int32(1)) if what else (xp.maximum(x, y), np.maximum(a, b))
            pairs.append(made)
        elif what == 3 and a.ndim:
            key = _key(r, a.shape)
            pairs.append((x[key], a[key].copy()))
        elif what in (4, 5) and a.ndim:
            key = _key(r, a.shape)
            v = r.randrange(-9, 9)
            x[key] = v
            a[key] = v
        elif what == 6 and a.ndim:
            key = _key(r, a.shape)
            y, b = pairs[r.randrange(len(pairs))]
            try:
                np.broadcast_to(b, a[key].shape)
            except ValueError:
                continue
            x[key] = y
            a[key] = b.copy()
        elif what == 7:
            pairs.append((xp.reshape(x, (-1,)), a.reshape(-1).copy()))
        elif what == 8:
            x += 2
            a += np.int32(2)
            pairs[k] = (x, a)
        elif what == 9 and a.ndim:
            mask, held = x > 3, a > 3
            x[mask] = 1
            a[held] = 1
        elif what == 10:
            x.block()
        elif what == 11 and x.device.driver is None and a.size:
            shared.append((np.asarray(x), a.copy()))
        if len(pairs) > 6:
            del pairs[r.randrange(len(pairs))]
        if r.randrange(8) == 0:
            gc.collect()
    for x, a in pairs:
        np.testing.assert_array_equal(x.numpy(), a, err_msg=f"seed {seed}")
    for view, kept in shared:
        np.testing.assert_array_equal(view, kept, err_msg=f"seed {seed}: memory that NumPy sees was written")


@pytest.mark.parametrize("seed", seeds.some(4 if seeds.number() else 1))
def test_random_programs(seed: int) -> None:
    _program(seed, tec.cpu(), 30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(seeds.first(100), seeds.first(100) + 100))
def test_many_random_programs(seed: int) -> None:
    _program(seed, tec.cpu(), 80)


def test_random_program_on_the_software_gpu() -> None:
    _program(3, tec.rocm_emu("gfx942"), 16)


def _fresh() -> Any:
    return xp.asarray(np.arange(8, dtype=np.float32))


def test_an_expression_keeps_what_it_read() -> None:
    x = _fresh()
    y = x * 2
    z = y[1:4]
    x[0:4] = -1
    assert z.tolist() == [2, 4, 6]
    assert y.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert x.tolist() == [-1, -1, -1, -1, 4, 5, 6, 7]


def test_assignment_to_what_was_computed_and_is_read_by_an_expression() -> None:
    x = _fresh()
    y = x + 1
    z = y * 10
    y.block()  # z reads y, which is in memory now
    y[:] = 0
    y[2] = 5
    assert z.tolist() == [10 * (k + 1) for k in range(8)]
    assert y.tolist() == [0, 0, 5, 0, 0, 0, 0, 0]


def test_assignment_writes_in_place_where_nobody_sees() -> None:
    x = _fresh()
    address = x.nd.address  # shown: the next assignment goes elsewhere
    x[0] = 9
    moved = computing.in_memory(x._node).address
    assert moved != address
    x[1] = 9
    x[2:4] = 7
    assert computing.in_memory(x._node).address == moved


def test_a_reader_is_computed_before_where_that_moves_less() -> None:
    x = xp.asarray(np.zeros((64, 64), np.float32))
    x[0, 0] = 1
    address = computing.in_memory(x._node).address
    row = x[0, :]
    x[0, :] = 5
    assert computing.in_memory(x._node).address == address  # the row was taken out, the matrix stayed
    assert row.tolist() == [1] + [0] * 63
    whole = x + 1
    wide = xp.stack([x, x, x]) * 2
    more = x * 3
    x[1, :] = 6
    assert float(whole[1, 0]) == 1 and float(more[1, 0]) == 0 and float(wide[2, 1, 0]) == 0


def test_parts_of_itself() -> None:
    x = _fresh()
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    x[::-1] = x
    assert x.tolist() == [6, 5, 4, 3, 2, 1, 0, 0]
    x[2:5] += 10
    assert x.tolist() == [6, 5, 14, 13, 12, 1, 0, 0]


def test_another_shape_is_a_value_of_its_own() -> None:
    x = _fresh()
    m = xp.reshape(x, (2, 4))
    m[0, 0] = 100
    x[1] = 50
    assert m.tolist() == [[100, 1, 2, 3], [4, 5, 6, 7]]
    assert x.tolist() == [0, 50, 2, 3, 4, 5, 6, 7]


def test_names_share_and_values_do_not() -> None:
    x = _fresh()
    same = x
    other = +x
    x += 1
    x[0] = 7
    assert same is x and same.tolist()[0] == 7
    assert other.tolist()[0] == 0


def test_memory_that_others_see_is_not_written() -> None:
    x = _fresh()
    view = np.asarray(x)
    assert not view.flags.writeable
    capsule = np.from_dlpack(x)
    x[0] = 7
    x += 1
    assert view[0] == 0 and capsule[0] == 0 and x.tolist()[0] == 8


def test_memory_of_others_is_read_and_not_written() -> None:
    theirs = np.arange(4, dtype=np.float32)
    x = xp.from_dlpack(theirs)
    x[0] = 9
    assert theirs[0] == 0 and x.tolist() == [9, 1, 2, 3]
    y = xp.asarray(theirs, copy=False)
    theirs[1] = 5
    assert y.tolist() == [0, 5, 2, 3]
    z = xp.asarray(theirs)
    theirs[1] = 6
    assert z.tolist() == [0, 5, 2, 3]


def test_numbers_are_nobodys() -> None:
    x = xp.full((), 3.0)
    y = xp.full((), 3.0)
    x[...] = 4.0
    x[()] = 5.0
    assert float(y) == 3 and float(xp.full((), 3.0)) == 3 and float(x) == 5


def test_a_long_loop_compiles_one_piece() -> None:
    made: list[Any] = []

    def steps(n: int) -> int:
        """How many pieces of code a loop of so many steps wants that were not there."""
        x, g = xp.zeros((5,)), xp.ones((5,))
        want, before = np.zeros(5, np.float32), len(made)
        for _ in range(n):
            x = x * 0.5 + g
            want = want * np.float32(0.5) + np.float32(1)
        np.testing.assert_allclose(x.numpy(), want)
        return len(made) - before

    with tec.driver.watched(made.append):
        steps(300)
        assert steps(900) <= 1  # the end may fall elsewhere; what is between is the same


@pytest.mark.parametrize("spreads", [False, True])
def test_a_loop_that_asks_for_a_number_compiles_its_step_once(spreads: bool) -> None:
    """What a step makes is asked for inside of the next one: its expression must not become longer with every step."""
    made: list[Any] = []
    row = np.linspace(0, 1, 6, dtype=np.float32)
    x = xp.asarray(row)
    h, more = (x[:, None] + x, x[:, None]) if spreads else (x, xp.asarray(np.float32(0.1)))
    want, other = h.numpy(), more.numpy()
    counts = []
    with tec.driver.watched(made.append):
        for _ in range(12):
            h = xp.sin(h * 1.5) + more
            want = np.sin(want * np.float32(1.5)) + other
            np.testing.assert_allclose(float(xp.sum(h)), want.sum(), rtol=1e-4)
            counts.append(len(made))
    assert counts[-1] == counts[5]
    np.testing.assert_allclose(h.numpy(), want, rtol=1e-4)


def test_a_loop_of_several_values_compiles_its_step_once() -> None:
    """Adam's state: an expression knows how long it is once its parts are there."""
    made: list[Any] = []
    x, m, v = xp.zeros((5,)), xp.zeros((5,)), xp.zeros((5,))
    counts = []
    with tec.driver.watched(made.append):
        for _ in range(24):
            g = 2 * (x - 3)
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            x = x - 0.1 * m / (xp.sqrt(v) + 1e-8)
            float(xp.sum((x - 3) ** 2))
            counts.append(len(made))
    assert counts[-1] == counts[7]


def test_what_was_computed_inside_twice_is_kept() -> None:
    x = xp.asarray(np.linspace(0, 1, 50, dtype=np.float32))
    y = xp.exp(x)
    assert y._node.data is None
    float(xp.sum(y))
    assert y._node.data is None  # one reader: inside of its kernel
    float(xp.max(y))
    assert y._node.data is not None
    np.testing.assert_allclose(y.numpy(), np.exp(np.linspace(0, 1, 50)), rtol=1e-6)


def test_floats_beyond_their_type_are_infinity_with_numpys_warning() -> None:
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert xp.full((2,), 1e40, dtype="float32").tolist() == [np.inf] * 2
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert xp.asarray([1e41], dtype="float32").tolist() == [np.inf]
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert (_fresh() + 1e42).tolist() == [np.inf] * 8


def test_expressions_alike_but_for_who_is_read() -> None:
    """One form, and which of its leaves are the same: what is known of one must not compute another."""
    a, b, c = (xp.asarray(np.arange(8, dtype=np.float32) + k) for k in (1, 10, 100))
    for _ in range(3):
        assert (a * b + c).tolist() == [(1 + k) * (10 + k) + 100 + k for k in range(8)]
        assert (a * b + a).tolist() == [(1 + k) * (10 + k) + 1 + k for k in range(8)]
        assert (a * a + a).tolist() == [(1 + k) * (1 + k) + 1 + k for k in range(8)]
        assert (b * a + b).tolist() == [(1 + k) * (10 + k) + 10 + k for k in range(8)]


def test_a_part_that_was_computed_since_is_read_and_not_computed_again() -> None:
    a, b = _fresh(), _fresh()
    for _ in range(3):
        x = a * b
        y = x + 1
        (a * b + 1).block()  # the form of y is known
        x.block()
        a[:] = 7
        assert y.tolist() == [k * k + 1 for k in range(8)]
        a = _fresh()


def test_numbers_beside_arrays_keep_their_kind_and_sign() -> None:
    x = _fresh() + 1
    for _ in range(2):
        assert np.signbit((x * -0.0).numpy()).all() and not np.signbit((x * 0.0).numpy()).any()
        assert (x**2).tolist() == (x**2.0).tolist() and (x * 2).dtype == xp.float32
        assert (xp.asarray([1, 2]) * 2).dtype == xp.int64 and (xp.asarray([1, 2]) * 2.0).dtype == xp.float32
        assert (2 - x).tolist() == [1 - k for k in range(8)]


def test_small_blocks_of_the_host_are_used_again() -> None:
    from tec.runtime.devices.storage import Storage

    cpu = tec.cpu()
    gc.collect()
    before = cpu.memory()
    block = Storage(cpu, 1000)
    address = block.address
    assert cpu.memory().used - before.used == 1000
    del block
    gc.collect()
    assert Storage(cpu, 1020).address == address


def test_an_element_picked_by_an_element_of_indices() -> None:
    x, k = xp.asarray([5, 6], dtype="int32"), xp.asarray([1, 1], dtype="int32")
    out, wide = x[k], xp.broadcast_to(k, (2,))
    assert bool(out[0] == x[wide[0]]) and bool(out[1] == x[wide[1]])


def _any_key(r: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index of integers, slices, None, arrays of integers and masks in any order."""
    keys: list[Any] = []
    d = 0
    while d < len(shape) and (d == 0 or r.random() < 0.9):
        n, kind = shape[d], r.randrange(6)
        if kind == 0:
            keys.append(None)
            continue
        if kind == 1:
            keys.append(np.asarray([[r.randrange(-n, n)] for _ in range(2)][: r.randrange(1, 3)]))
        elif kind == 2:
            keys.append(np.asarray([r.randrange(-n, n) for _ in range(2)]))
        elif kind == 3:
            wide = shape[d : d + r.randrange(1, 3)]
            mask = np.zeros(wide, bool)
            mask.reshape(-1)[r.sample(range(mask.size), 2)] = True
            keys.append(mask)
            d += len(wide) - 1
        else:
            keys.append(_slice(r, n))
        d += 1
    return tuple(keys)


@pytest.mark.parametrize("seed", seeds.some(4))
def test_an_index_of_any_kinds_is_numpys(seed: int) -> None:
    r = random.Random(seed)
    a = np.arange(60, dtype=np.float32).reshape(4, 3, 5)
    key = _any_key(r, a.shape)
    ours = tuple(xp.asarray(k) if isinstance(k, np.ndarray) and r.random() < 0.5 else k for k in key)
    x = xp.asarray(a)
    try:
        want = a[key]
    except IndexError:
        with pytest.raises(IndexError):
            x[ours].block()
        return
    np.testing.assert_array_equal(x[ours].numpy(), want)
    times = np.zeros(a.shape, int)
    np.add.at(times, key, 1)
    # Which of several values an element gets is not said.
    value = np.full(want.shape, -1, np.float32) if times.max() > 1 else -want
    a[key] = value
    x[ours] = xp.asarray(value)
    np.testing.assert_array_equal(x.numpy(), a)


def test_an_array_in_a_format_and_asked_for_an_element() -> None:
    x = xp.asarray([1.5, 2.0])
    assert f"{x[0]:.2f}" == "1.50" and 2 in x and 3 not in x and f"{x}" == str(x)


def test_items_at_a_place_copies_and_pickles():
    x = xp.reshape(xp.arange(6, dtype=xp.bfloat16), (2, 3))
    assert x.item(4) == x.item(1, 1) == x.item(-2) == 4.0
    for at in ((6,), (-7,), (2, 0), (0, 0, 0)):
        with pytest.raises(ArrayIndexError):
            x.item(*at)
    for y in (copy.copy(x), copy.deepcopy({"x": x})["x"], pickle.loads(pickle.dumps(x))):
        assert y.dtype == x.dtype and y.tolist() == x.tolist()
        y[0, 0] = 9
        assert x.item(0) == 0
