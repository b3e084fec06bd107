"""Scatters by one kernel, whose work-groups look for the updates of their own places."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.choices import spaces
from tec.choices.families.scatters import Scatter
from tec.ir.interp import run
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned_rows

CHIP = "gfx942"
TARGET = tec.Target(f"rocm -mcpu={CHIP}")
_NUMPY = {"none": lambda a, b: b, "add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def _program(shape, index, reduction, dtype):
    types = [TensorType(dtype, shape), TensorType("int64", index), TensorType(dtype, (*index[:-1], *shape[index[-1] :]))]  # fmt: skip
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
    definition, attrs = get_op("scatter_nd"), {"reduction": reduction}
    outs = definition.compute(attrs, xs, definition.infer(types, attrs))
    return xs, outs, types


def _space(outs, target=TARGET):
    (space,) = [s for s in spaces(outs, target) if isinstance(s, Scatter)]
    return space


@thinned_rows(
    2,
    "shape, index, reduction, dtype, vectors",
    [
        ((50, 7), (70, 1), "add", "float32", 1),
        ((50, 7), (70, 1), "none", "float16", 2),
        ((300, 16), (40, 1), "max", "float16", 1),
        ((1000,), (90, 1), "none", "float32", 1),
        ((1000,), (90, 1), "add", "float16", 2),
        ((33, 86), (300, 1), "mul", "float32", 8),
        ((9, 11, 12), (64, 2), "add", "float32", 1),
        ((41, 3), (2500, 1), "add", "float32", 1),
    ],
)
def test_values(shape, index, reduction, dtype, vectors):
    """Places several times, from the end, and outside; places that work-groups share with no other; more updates than a work-group's threads ask for at once."""
    xs, outs, types = _program(shape, index, reduction, dtype)
    space = _space(outs)
    made = space.apply({"vectors": vectors})
    f, dev = tec.build(made.schedule, [*xs, *made.outputs], TARGET, name="f"), tec.rocm_emu(CHIP, check="all")
    rng = np.random.default_rng(5)
    x, update = (rng.integers(1, 3, t.shape).astype(dtype) for t in (types[0], types[2]))
    lead = shape[: index[-1]]
    at = np.stack([rng.integers(-n, n + 1, index[:-1]) for n in lead], -1)
    if reduction == "mul":
        at[4:] = -1 - np.arange(len(at) - 4)[:, None] % lead[0]
    out = tec.nd.empty(shape, dtype, dev)
    f(*(tec.nd.array(v, dev) for v in (x, at, update)), out)
    want = x.copy()
    for place, new in zip(at, update):
        if all(-n <= p < n for p, n in zip(place, lead)):
            want[tuple(place)] = _NUMPY[reduction](want[tuple(place)], new)
    np.testing.assert_array_equal(out.numpy(), want)


@pytest.mark.parametrize(
    "shape, index, axis, reduction, dtype",
    [
        ((60, 37), (50, 37), 0, "none", "float16"),  # in words
        ((900, 37), (40, 33), 0, "none", "float32"),
        ((3, 90, 5, 7), (2, 70, 5, 6), 1, "add", "float32"),
        ((40, 64), (35, 64), 0, "max", "float16"),
    ],
)
def test_strips_of_columns_keep_the_order_of_updates(shape, index, axis, reduction, dtype):
    """Columns behind an axis are taken a line of memory at a time, the last strip with fewer; of updates of one place the last one counts."""
    types = [TensorType(dtype, shape), TensorType("int64", index), TensorType(dtype, index)]
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
    definition, attrs = get_op("scatter_elements"), {"axis": axis, "reduction": reduction}
    made = _space(definition.compute(attrs, xs, definition.infer(types, attrs))).apply({"vectors": 0})
    f, dev = tec.build(made.schedule, [*xs, *made.outputs], TARGET, name="f"), tec.rocm_emu(CHIP, check="all")
    rng = np.random.default_rng(7)
    x, update = (rng.integers(-9, 9, t.shape).astype(dtype) for t in (types[0], types[2]))
    at = rng.integers(-shape[axis], shape[axis] + 1, index)
    out = tec.nd.empty(shape, dtype, dev)
    f(*(tec.nd.array(v, dev) for v in (x, at, update)), out)
    np.testing.assert_array_equal(out.numpy(), definition.host(attrs, [x, at, update], types[:1])[0])


def test_few_updates_are_one_kernel():
    """Three launches were most of what a small scatter takes; of many updates each work-group would read all."""
    for target in (TARGET, tec.Target("cuda -arch=sm_90a")):
        few, many = (_space(_program((4000, 86), (n, 1), "add", "float32")[1], target) for n in (72, 200_000))
        assert few.default["vectors"] and not many.default["vectors"]


@pytest.mark.parametrize("own", [1, 8])
def test_a_place_and_the_lists_fit(own):
    wide = _space(_program((5, 9001), (3, 1), "add", "float32")[1])  # single elements, since 9,001 are no vectors
    assert "more elements" in wide.refusal(wide.choice(vectors=own))
    long = _space(_program((50_000, 8), (9000, 1), "add", "float32")[1])
    assert "no room" in long.refusal(long.choice(vectors=own))
    last = _space(_program((50_000, 8), (9000, 1), "none", "float32")[1])  # no lists
    assert last.refusal(last.choice(vectors=own)) is None


@thinned_rows(
    3,
    "shape, index, dtype, reduction",
    [
        ((50, 7), (70, 1), "float32", "add"), ((13,), (90, 1), "float16", "add"), ((4, 11, 3), (100, 2), "int32", "add"), ((5, 8), (33, 1), "float64", "add"),
        ((50, 7), (70, 1), "float32", "max"), ((16,), (90, 1), "float16", "min"), ((4, 11, 3), (100, 2), "int32", "min"), ((5, 8), (33, 1), "uint8", "max"),
        ((5, 8), (33, 1), "float32", "min"),
    ],
)  # fmt: skip
def test_many_updates_are_combined_by_atomic_operations(shape, index, dtype, reduction):
    """Lists of as many would be walked one update after another. Places several times, from the end, and outside; of floats one that is no number."""
    types, combine = _by_atomics(shape, index, reduction, dtype)
    rng = np.random.default_rng(6)
    least = 1 if reduction == "add" or dtype.startswith("u") else -9
    x, update = (rng.integers(least, 9 if least < 0 else 3, t.shape).astype(dtype) for t in (types[0], types[2]))
    at = np.stack([rng.integers(-n, n + 1, index[:-1]) for n in shape[: index[-1]]], -1)
    if "float" in dtype:
        at[0], update[0] = 1, np.nan
    want = x.copy()
    for place, new in zip(at, update):
        if all(-n <= p < n for p, n in zip(place, shape)):
            want[tuple(place)] = _NUMPY[reduction](want[tuple(place)], new)
    np.testing.assert_array_equal(combine(x, at, update), want)


def _by_atomics(shape, index, reduction, dtype):
    """The types of a scatter's operands, and what it makes of them where a clock judged."""
    xs, outs, types = _program(shape, index, reduction, dtype)
    hopper = tec.Target("cuda -arch=sm_90a")
    made = _space(outs, hopper).apply({"vectors": 0})
    (host, *kernels) = tec.lower(made.schedule, [*xs, *made.outputs], target=hopper)
    how = "atomic_add" if reduction == "add" else "atomic_max"
    assert how in "".join(map(str, kernels)) + str(host) and "atomic_exch" not in str(host)

    def combine(*operands):
        out = np.zeros(shape, dtype)
        run(host, [*operands, out])
        return out

    return types, combine


@pytest.mark.parametrize("reduction", ["max", "min"])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "float16", "float32"])
def test_extrema_of_the_ends_of_a_type(dtype, reduction):
    """Keys of the least and greatest numbers, of infinities and NaN; a place without an update keeps the sign of its zero."""
    if dtype.startswith("float"):
        ends = [-0.0, 0.0, np.finfo(dtype).max, np.finfo(dtype).tiny, np.inf, -np.inf, np.nan]
    else:
        ends = [0, np.iinfo(dtype).min, np.iinfo(dtype).max, np.iinfo(dtype).min + 1, np.iinfo(dtype).max - 1]
    values = np.array(ends, dtype)
    n = len(values)
    pairs = np.stack(np.broadcast_arrays(values[:, None], values), -1).reshape(n * n, 2)
    _, combine = _by_atomics((n * n + n,), (2 * n * n, 1), reduction, dtype)
    x, at = np.concatenate([pairs[:, 0], values]), np.repeat(np.arange(n * n), 2)[:, None]
    got, want = combine(x, at, pairs.reshape(-1)), _NUMPY[reduction](pairs[:, 0], pairs[:, 1])
    np.testing.assert_array_equal(got[: n * n], want)
    np.testing.assert_array_equal(got[n * n :], values)
    np.testing.assert_array_equal(np.signbit(got[n * n :]), np.signbit(values))
