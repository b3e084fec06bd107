"""Sums that go in parts: any length, whole numbers of parts or not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices import spaces
from tec.choices.families.sum_loops import equal_parts
from tec.ops.registry import TensorType, get_op
from tests import seeds
from tests.thinned import thinned

TARGET = tec.Target("rocm -mcpu=gfx942")


def test_parts_divide_the_length_where_they_can() -> None:
    assert equal_parts(4096, 1) == tuple(1 << k for k in range(13))
    length = 504 * 197 * 165
    parts = equal_parts(length, 1)
    assert len(parts) == 13 and sum(length % p == 0 for p in parts) > 8
    assert all((1 << k) <= p < (2 << k) for k, p in enumerate(parts))


def test_parts_of_all_sums_are_counted_by_int32() -> None:
    """An image's convolution as a sum (76 million outputs): 140 parts of each are 10^10."""
    assert equal_parts(4200, 8 * 424 * 200 * 112)[-1] < 140 and equal_parts(4200, 1)[-1] > 140


def _sums(shape: tuple[int, ...], along: int) -> tuple[tec.te.Tensor, Any]:
    x = tec.te.placeholder(shape, "float32", name="x")
    known, attrs = get_op("reduce_sum"), {"axes": (along,), "keepdims": False}
    outs = known.compute(attrs, [x], known.infer([TensorType("float32", shape)], attrs))
    return x, next(s for s in spaces(outs, TARGET) if s.template == "gpu reduction")


def test_sums_of_a_work_group_each_are_no_more_than_a_launch_has() -> None:
    space = _sums((1 << 31, 300), 1)[1]
    shared = {**space.default, "shared": True, "threads": 64, "parts": 1, "rows": 1}
    assert not space.default["shared"] and "work-groups" in (space.why_not(shared) or "")
    assert space.why_not({**shared, "rows": 8}) is None  # a wavefront each, some of a work-group
    assert _sums(((1 << 31) - 1, 300), 1)[1].why_not(shared) is None


@pytest.mark.parametrize("length", [7919 * 101, 504 * 197 * 165, 1 << 20])
def test_a_few_long_sums_have_work_for_all_units(length: int) -> None:
    assert _sums((2, length), 1)[1].default["parts"] > 64


@thinned(1, ("number", range(3)), ("along", [0, 1]))
def test_parts_of_any_length_add_up(along: int, number: int) -> None:
    """A drawn choice of a drawn length computes NumPy's sum."""
    rng = random.Random(seeds.stream(f"parts {along} {number}"))
    length = rng.choice([997, 3 * 5**4, rng.randrange(600, 2000)])
    shape = (length, 3) if along == 0 else (2, length)
    x, space = _sums(shape, along)
    drafts = [c for c in space.drafts() if c["parts"] > 1 and c["threads"] <= 128 and space.why_not(c) is None]
    choice = rng.choice(drafts)
    chosen = space.apply(choice)
    f = tec.build(chosen.schedule, [x, *chosen.outputs], TARGET, name="sums")
    dev, value = tec.rocm_emu("gfx942"), np.random.default_rng(number).standard_normal(shape).astype("f")
    got = tec.nd.empty((shape[1 - along],), "float32", dev)
    f(tec.nd.array(value, dev), got)
    np.testing.assert_allclose(got.numpy(), value.astype("f8").sum(along), atol=1e-5 * length, err_msg=str(choice))


def test_wavefronts_of_a_work_group_have_a_sum_each() -> None:
    """100,000 sums of 256 would be as many work-groups, which take longer to begin than memory takes for what they read."""
    x = tec.te.placeholder((349 * 288, 256), "float32", name="x")
    known, attrs = get_op("reduce_sum"), {"axes": (1,), "keepdims": False}
    outs = known.compute(attrs, [x], known.infer([TensorType("float32", (349 * 288, 256))], attrs))
    space = next(s for s in spaces(outs, "cuda -arch=sm_90a") if s.template == "gpu reduction")
    assert space.default["rows"] > 1 and space.default["threads"] == 32
    x, space = _sums((24, 300), 1)
    choice = next(c for c in space.all if c["rows"] == 4)
    chosen = space.apply(choice)
    f = tec.build(chosen.schedule, [x, *chosen.outputs], TARGET, name="sums")
    dev, value = tec.rocm_emu("gfx942", check="all"), np.random.default_rng(1).standard_normal((24, 300)).astype("f")
    got = tec.nd.empty((24,), "float32", dev)
    f(tec.nd.array(value, dev), got)
    np.testing.assert_allclose(got.numpy(), value.astype("f8").sum(1), atol=1e-4)


@pytest.mark.parametrize("shape", [(1 << 21,), (3, 1 << 18), (3, (1 << 18) + 5)], ids=str)
def test_long_lines_of_a_cpu_lose_no_digits(shape: tuple[int, ...]) -> None:
    """In one chain of additions a lane, these sums are off by 1.5e-4 to 1e-3 of themselves: each addition is rounded the same way."""
    x = tec.te.placeholder(shape, "float32", name="x")
    known, attrs = get_op("reduce_sum"), {"axes": (len(shape) - 1,), "keepdims": False}
    outs = known.compute(attrs, [x], known.infer([TensorType("float32", shape)], attrs))
    chosen = tec.choices.schedule(outs, tec.Target("llvm"))
    f = tec.build(chosen.schedule, [x, *chosen.outputs], "llvm", name="sums")
    value, got = np.full(shape, 0.1, "float32"), tec.nd.empty(shape[:-1], "float32")
    f(tec.nd.array(value), got)
    np.testing.assert_allclose(got.numpy(), value.sum(-1, dtype="float64"), rtol=2e-5)
