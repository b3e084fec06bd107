"""argmax and argmin along memory on a CPU: the extreme of each line, then its place; NaN beyond all, ties as NumPy's or the last of them."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import choices, te, topi
from tests import seeds

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64")


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different values, so that there are ties; of floats now and then NaN, infinities, or nothing else."""
    x = rng.integers(0, 5, shape).astype(dtype)
    if x.dtype.kind == "f":
        for value in (np.nan, -np.inf, np.inf):
            x[rng.random(shape) < rng.choice([0.0, 0.02, 1.0], p=[0.5, 0.4, 0.1])] = value
    return x


@pytest.mark.parametrize("seed", seeds.some(7))
def test_is_numpys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype, largest, last, keepdims = DTYPES[seed % len(DTYPES)], *(bool(rng.random() < 0.5) for _ in range(3))
    shape = (*(int(n) for n in rng.integers(1, 20, rng.integers(1, 3))), int(rng.integers(128, 300)))
    x = te.placeholder(shape, dtype, name="x")
    y = (topi.argmax if largest else topi.argmin)(x, axis=-1, keepdims=keepdims, select_last_index=last)
    assert choices.spaces([y], "llvm")[0].template == "cpu extreme index"
    found = choices.schedule([y], "llvm")
    values = _values(rng, shape, dtype)
    out = tec.nd.empty(shape[:-1] + (1,) * keepdims, "int64")
    tec.build(found.schedule, [x, *found.outputs], "llvm")(tec.nd.array(values), out)
    place = np.argmax if largest else np.argmin
    want = shape[-1] - 1 - place(values[..., ::-1], -1) if last else place(values, -1)
    np.testing.assert_array_equal(out.numpy().reshape(want.shape), want)


@pytest.mark.parametrize("seed", seeds.some(7))
def test_lines_beside_few_others(seed: int) -> None:
    """Some steps of all lines are a line of memory, which vectors read as it lies; lengths that fill no vectors too."""
    rng = np.random.default_rng(seed)
    dtype, largest, last, keepdims = DTYPES[seed % len(DTYPES)], *(bool(rng.random() < 0.5) for _ in range(3))
    shape = (
        *(int(n) for n in rng.integers(1, 9, rng.integers(1, 3))),
        int(rng.integers(128, 300)),
        int(rng.integers(2, 4)),
    )
    x = te.placeholder(shape, dtype, name="x")
    y = (topi.argmax if largest else topi.argmin)(x, axis=-2, keepdims=keepdims, select_last_index=last)
    assert keepdims or choices.spaces([y], "llvm -mcpu=haswell")[0].template == "cpu extreme index"
    found = choices.schedule([y], "llvm")
    values = _values(rng, shape, dtype)
    out = tec.nd.empty((*shape[:-2], *(1,) * keepdims, shape[-1]), "int64")
    module = tec.build(found.schedule, [x, *found.outputs], "llvm")
    module(tec.nd.array(values), out)
    place = np.argmax if largest else np.argmin
    want = shape[-2] - 1 - place(values[..., ::-1, :], -2) if last else place(values, -2)
    np.testing.assert_array_equal(out.numpy().reshape(want.shape), want)


def test_what_is_slow_to_make_again_is_made_once() -> None:
    """Two passes would take each exponential twice."""
    x = te.placeholder((8, 256), name="x")
    y = topi.argmax(te.compute(x.shape, lambda *i: te.exp(x(*i)), name="e"), axis=-1)
    assert choices.spaces([y], "llvm")[0].template == "cpu stages"


def test_short_lines_along_the_last_of_many_axes() -> None:
    """A lane has a line, of the lines of all axes; threads have the vectors, however many axes the lines were of."""
    x = te.placeholder((94, 16, 7, 4), "uint8", name="x")
    found = choices.schedule([topi.argmin(x, axis=-1, keepdims=True)], "llvm")
    values = np.random.default_rng(0).integers(0, 5, (94, 16, 7, 4)).astype("uint8")
    out = tec.nd.empty((94, 16, 7, 1), "int64")
    tec.build(found.schedule, [x, *found.outputs], "llvm")(tec.nd.array(values), out)
    np.testing.assert_array_equal(out.numpy(), values.argmin(-1, keepdims=True))
