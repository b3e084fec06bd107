"""Parts of arrays in kernels: slices, rows and columns are read, stored, taken apart and looped over as NumPy does, on the CPU and on the software GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec

RNG = np.random.default_rng(11)


@tec.kernel
def rows(a, b, o):
    i = tec.grid_idx(1)
    if i < a.shape[0]:
        x, y, z = a[i]
        column = b[:, 1]
        o[i, :] = (x + column[i], y, z)
        o[i, 1:] += 10.0
        s = 0.0
        for v in a[i, ::2]:
            s += v
        for v in a[i, ::-1]:
            if v > 0.5:
                break
            s += v
        o[i, 0] = s


def rows_in_numpy(a: Any, b: Any, o: Any) -> None:
    for i in range(a.shape[0]):
        x, y, z = a[i]
        o[i, :] = (x + b[i, 1], y, z)
        o[i, 1:] += 10
        s = sum(a[i, ::2])
        for v in a[i, ::-1]:
            if v > 0.5:
                break
            s += v
        o[i, 0] = s


@tec.kernel
def own(a, o):
    t = tec.local((4, 2), np.float32)
    t[:] = 2.0
    t[1:3, 0] = a[-2:]
    t[..., 1] -= t[3, 0]
    o[0] = t[1, 0] + t[2, 0] * t[3, 0] + t[2, 1] + len(a[1:]) + sum(o.shape[:1]) + len(a[5:]) + len(a[-9:2])
    o[1:] = a[::-1]


def own_in_numpy(a: Any, o: Any) -> None:
    o[0] = a[-2] + a[-1] * 2 + (2 - 2) + len(a[1:]) + sum(o.shape[:1]) + len(a[5:]) + len(a[-9:2])
    o[1:] = a[::-1]


@tec.kernel
def blocks(m, out):
    r = tec.block_idx.x
    part = m[r * 8 : (r + 1) * 8, 1::2][:, 1:]
    for c in range(tec.thread_idx.x, part.shape[1], 8):
        total = m[0, 0] * 0
        for row in part:
            total += row[c]
        out[r, c] = total


TAPS = (0.25, 0.5, 0.25)


@tec.kernel
def folded(a, o):
    i = tec.grid_idx(1)
    if i < len(a):
        s = 0.0
        for k, w in enumerate(TAPS, 1):
            s += k * w * a[i, k]
        for w, c in zip(TAPS, (1.0, 2.0)):
            s += w * c
        last = 0.0
        for v in reversed(a[i, 1:]):
            last = last * 0.5 + v
        o[0, i], o[1, i], o[2, i], o[3, i], o[4, i] = sum(a[i]), min(a[i, 2:]), max(a[:, 1]), s, last


def folded_in_numpy(a: Any, o: Any) -> None:
    for i, row in enumerate(a):
        last = 0.0
        for v in reversed(row[1:]):
            last = last * 0.5 + v
        s = sum(k * w * row[k] for k, w in enumerate(TAPS, 1)) + 0.25 + 1.0
        o[:, i] = sum(row), min(row[2:]), max(a[:, 1]), s, last


WEIGHTS = np.asarray([0.25, 0.5, 0.125], np.float32)  # a table of constants


@tec.kernel
def joined(a, b, m, o):
    """Loops over several arrays and ranges at once, the shortest of which ends them."""
    if tec.grid_idx(1) == 0:
        s = np.float32(0)
        for k, v in enumerate(a, 5):
            s += k * v
        o[0] = 2
        for k, v in zip(range(int(o[0]), 9, int(o[0])), a):  # bounds are read once
            s += k * v
            o[0] = 7
        for k, (x, y) in enumerate(zip(a, b[::-1]), start=1):
            s += x * y * k
        for x, k in zip(a, range(10, 100, 3)):
            s += x * k
        for k in reversed(range(1, len(a), 3)):
            s = s * np.float32(0.5) + a[k]
        for k in reversed(range(len(a), 1, -2)):
            s = s * np.float32(0.5) + k
        for k in reversed(range(5, 5)):
            s += k
        for k, v in enumerate(reversed(a)):
            if k == 4:
                break
            s += v * k
        for k, row in enumerate(m):
            for j, v in enumerate(row):
                if v < 0.2:
                    continue
                s += v * k * j
        for k, w in enumerate(WEIGHTS):
            s += w * k
        o[0] = s


def joined_in_numpy(a: Any, b: Any, m: Any, o: Any) -> None:
    s = np.float32(0)
    for k, v in enumerate(a, 5):
        s += k * v
    for k, v in zip(range(2, 9, 2), a):
        s += k * v
    for k, (x, y) in enumerate(zip(a, b[::-1]), start=1):
        s += x * y * k
    for x, k in zip(a, range(10, 100, 3)):
        s += x * k
    for k in reversed(range(1, len(a), 3)):
        s = s * np.float32(0.5) + a[k]
    for k in reversed(range(len(a), 1, -2)):
        s = s * np.float32(0.5) + k
    for k in reversed(range(5, 5)):
        s += k
    for k, v in enumerate(reversed(a)):
        if k == 4:
            break
        s += v * k
    for k, row in enumerate(m):
        for j, v in enumerate(row):
            if v < 0.2:
                continue
            s += v * k * j
    for k, w in enumerate(WEIGHTS):
        s += w * k
    o[0] = s


@pytest.fixture(params=["cpu", "gfx942"])
def device(request: Any) -> Any:
    return tec.cpu() if request.param == "cpu" else tec.rocm_emu("gfx942")


@pytest.mark.parametrize(
    ("kernel", "in_numpy", "shapes"),
    [
        (rows, rows_in_numpy, [(20, 3), (20, 4), (20, 3)]),
        (own, own_in_numpy, [3, 4]),
        (folded, folded_in_numpy, [(9, 6), (5, 9)]),
        (joined, joined_in_numpy, [7, 9, (3, 4), 1]),
    ],
)
def test_as_in_numpy(kernel: Any, in_numpy: Any, shapes: Any, device: Any) -> None:
    arrays = [RNG.random(s).astype("float32") for s in shapes]
    given = [tec.nd.array(a, device) for a in arrays]
    kernel[1, 32](*given)
    in_numpy(*arrays)
    np.testing.assert_allclose(given[-1].numpy(), arrays[-1], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
def test_bounds_known_at_run_time(dtype: str, device: Any) -> None:
    """The last block's rows end where the matrix does; a slice of a slice."""
    m = (RNG.random((19, 11)) * 9).astype(dtype)
    out = tec.nd.zeros((3, 4), dtype, device)
    blocks[3, 8](tec.nd.array(m, device), out)
    np.testing.assert_allclose(out.numpy(), [m[r * 8 : (r + 1) * 8, 3::2].sum(0) for r in range(3)], rtol=1e-5)


def test_a_row_of_another_length_is_refused_at_the_launch(device: Any) -> None:
    """Also after launches whose rows fit."""
    good, bad = (tec.nd.array(np.zeros((20, n), "float32"), device) for n in (3, 4))
    rows[1, 32](good, bad, good)
    for _ in range(2):
        with pytest.raises(tec.TecError, match=r"a must have 3 elements.*test_slices\.py:\d+"):
            rows[1, 32](bad, bad, good)
        rows[1, 32](good, bad, good)


@tec.kernel
def copied(a, o):
    o[:, 0] = a[:]


def test_parts_of_other_lengths_are_refused_at_the_launch(device: Any) -> None:
    a, o = tec.nd.array(RNG.random(4).astype("float32"), device), tec.nd.zeros((4, 2), "float32", device)
    copied[1, 1](a, o)
    np.testing.assert_array_equal(o.numpy()[:, 0], a.numpy())
    for n in (3, 5):
        with pytest.raises(tec.TecError, match=r"a must have as many elements as o takes.*test_slices\.py:\d+"):
            copied[1, 1](a, tec.nd.zeros((n, 2), "float32", device))


@tec.kernel
def no_step(o):
    o[0] = TAPS[::0][0]


@tec.kernel
def counted_from_a_half(o):
    for k, w in enumerate(TAPS, 0.5):
        o[0] = k * w


@pytest.mark.parametrize("kernel", [no_step, counted_from_a_half])
def test_what_python_refuses_of_tuples_is_an_error_at_its_line(kernel: Any) -> None:
    with pytest.raises(tec.TecError, match=r"test_slices\.py:\d+"):
        kernel[1, 1](np.zeros(1, "float32"))


@tec.kernel
def nothing(o):
    t = tec.local((4,), np.float32)
    for v in t[2:2][:]:
        o[0] = v
    o[1] = len(t[2:2][::-1])


def test_a_part_of_no_elements() -> None:
    o = np.ones(2, "float32")
    nothing[1, 1](o)
    assert o.tolist() == [1, 0]
