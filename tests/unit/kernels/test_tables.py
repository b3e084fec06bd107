"""Arrays of NumPy that a kernel names without being given them: tables of constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import KernelError
from tests import seeds

devices = pytest.mark.parametrize("dev", [tec.cpu(), tec.rocm_emu("gfx942", check="race,init")], ids=str)
N = 70
TYPES = ("float32", "float64", "float16", "int8", "int64", "uint16", "complex64", "bool")
ROWS = COLUMN = PAIR = np.zeros(0)  # drawn by each test
BIG = np.zeros(20_000, np.float32)


def looked_up(k: Any) -> Any:
    return COLUMN[k]


@tec.kernel
def reads(x, out):
    i = tec.grid_idx(1)
    if i < len(x):
        total = 0.0 * x[i] + ROWS[i % 3, 1] + ROWS[2, i % 4]  # an index that is known, and one that is not
        for v in COLUMN:
            total += v
        for j in range(len(COLUMN)):
            total += looked_up(j) * x[i]
        row = ROWS[i % 3]
        out[i] = total + row[3] + ROWS[1, 2] + ROWS[-1, 0] + PAIR[0].real + PAIR[i % 2].imag + len(ROWS) + ROWS.shape[1]


def expected(x: Any) -> Any:
    i, rows, column = np.arange(len(x)), ROWS.astype(float), COLUMN.astype(float)
    total = rows[i % 3, 1] + rows[2, i % 4] + column.sum() + column.sum() * x
    return total + rows[i % 3, 3] + rows[1, 2] + rows[-1, 0] + PAIR[0].real + PAIR[i % 2].imag + 3 + 4


@devices
@pytest.mark.parametrize("seed", seeds.some(4))
def test_elements_are_those_of_the_launch(dev: Any, seed: int) -> None:
    """Of tables that the program changes in place, and of others under the same name; views included."""
    global ROWS, COLUMN, PAIR
    rng = np.random.default_rng(seed)

    def table(dtype: str, *shape: int) -> Any:
        return rng.integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)

    ROWS = table(rng.choice(["float32", "int64", "int8"]), 4, 3).T  # not row-major
    COLUMN = table(rng.choice(["float32", "float16", "int16"]), 10)[::2]
    PAIR = table(rng.choice(["complex64", "complex128"]), 2) + 1j
    x = rng.integers(0, 4, N).astype(np.float32)
    for change in (None, "in place", "another", None):
        if change == "in place":
            ROWS[1] += 1
            COLUMN[0] = 9
        elif change == "another":
            COLUMN = table("float32", 7)
        out = tec.nd.zeros((N,), "float32", dev)
        reads[1, 128](tec.nd.array(x, dev), out)
        np.testing.assert_allclose(out.numpy(), expected(x), rtol=1e-3, err_msg=str(change))


@devices
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dev: Any, dtype: str) -> None:
    held = np.arange(12).astype(dtype).reshape(3, 4)

    @tec.kernel
    def copies(out):
        i, j = tec.thread_idx.x, tec.thread_idx.y
        out[i, j] = held[i, j]
        if i == 0 and j == 0:
            out[0, 0] = held[2, 3]

    out = tec.nd.zeros((3, 4), dtype, dev)
    copies[1, (3, 4)](out)
    want = held.copy()
    want[0, 0] = held[2, 3]
    np.testing.assert_array_equal(out.numpy(), want)


def test_beside_arguments_that_share_memory_and_messages(capsys: pytest.CaptureFixture[str]) -> None:
    weights = np.array([1.0, 2.0], np.float32)

    @tec.kernel
    def shifted(x, y, n):
        i = tec.grid_idx(1)
        if i < n:
            y[i] = x[i] * weights[i % 2]
            if i == 3:
                print("weight", weights[i % 2])

    held = np.arange(8, dtype=np.float32)
    shifted[1, 8](held[1:], held[1:], 7)
    np.testing.assert_array_equal(held, [0, 1, 4, 3, 8, 5, 12, 7])
    assert "weight 2.0" in capsys.readouterr().out
    shifted.launch(7)(held[1:], held[1:], 7)
    np.testing.assert_array_equal(held, [0, 1, 8, 3, 16, 5, 24, 7])


@tec.kernel
def writes(x):
    BIG[0] = x[0]


@tec.kernel
def counts(x):
    tec.atomic_add(COLUMN, 0, 1)


@tec.kernel
def writes_a_part(x):
    ROWS[1, :] = 0


@tec.kernel
def leaves(x):
    x[0] = COLUMN[5]


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (writes, "64 KiB"),
        (counts, "written to"),
        (writes_a_part, "make ROWS a parameter"),
        (leaves, "dimension 0 is 3"),
    ],
)
def test_what_is_refused(kernel: Any, says: str) -> None:
    global ROWS, COLUMN
    ROWS, COLUMN = np.ones((2, 2), np.float32), np.ones(3, np.int32)
    with pytest.raises(KernelError, match=says):
        kernel[1, 1](np.zeros(4, np.float32))
