"""GPU rows and sums of numbers that nothing divides: several rows a work-group, and pieces of 16 bytes, all the same."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.choices import schedule, spaces
from tec.choices.families.sum_loops import equal_parts
from tec.ops.registry import TensorType, get_op

CHIP = "gfx942"
TARGET, HOPPER = tec.Target(f"rocm -mcpu={CHIP}"), tec.Target("cuda -arch=sm_90a")


def _program(op, shape, attrs, dtype):
    x, definition = tec.te.placeholder(shape, dtype, name="x"), get_op(op)
    return x, definition.compute(attrs, [x], definition.infer([TensorType(dtype, shape)], attrs))


@pytest.mark.parametrize("rows, each", [(37, 4), (5, 2), (41, 16)])
def test_rows_of_a_work_group_need_not_divide_all(rows, each):
    x, outs = _program("softmax", (rows, 16), {"axes": (1,)}, "float32")
    space = next(s for s in spaces(outs, TARGET) if s.template == "gpu rows")
    made = space.apply({"threads": 16, "piece": 16, "rows": each, "parts": 1})
    f, dev = tec.build(made.schedule, [x, *made.outputs], TARGET, name="f"), tec.rocm_emu(CHIP, check="all")
    a = np.random.default_rng(1).standard_normal((rows, 16)).astype("float32")
    out = tec.nd.empty(a.shape, "float32", dev)
    f(tec.nd.array(a, dev), out)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_short_rows_share_work_groups_whatever_their_number():
    """9,582 is twice an odd number: a row a work-group takes longer to begin than to be computed."""
    _, outs = _program("softmax", (9582, 16), {"axes": (1,)}, "float32")
    space = next(s for s in spaces(outs, HOPPER) if s.template == "gpu rows")
    assert min(space.drafts(), key=lambda c: space.cost(c).seconds)["rows"] >= 8


@pytest.mark.parametrize("shape, axes", [((17, 48, 2944), (0, 1, 2)), ((350, 27, 32), (1, 2))])
def test_sums_over_several_axes_come_in_pieces(shape, axes):
    """Their elements lie one after another, in parts as well, whose index into the axes is no plain one."""
    x, outs = _program("reduce_sum", shape, {"axes": axes, "keepdims": False}, "float16")
    made = schedule(outs, HOPPER)
    code = tec.build(made.schedule, [x, *made.outputs], HOPPER, name="f").get_source("asm")
    assert "ld.global.nc.v4" in code


def test_parts_are_whole_turns():
    """690 parts of 34,816 elements, each 17 turns of 256 threads that load 16 bytes, rather than 512 of 46,920."""
    (parts,) = (p for p in equal_parts(170 * 48 * 2944, 1) if 512 <= p < 1024)
    assert 170 * 48 * 2944 % (parts * 2048) == 0


@pytest.mark.parametrize("last, is_odd", [(179, True), (184, False)])
def test_elements_of_an_odd_number_are_priced_one_a_thread(last, is_odd):
    """As they are made: no vector divides them, and some rows a thread are quicker."""
    attrs = {"before": (0, 0, 3), "after": (0, 0, last - 173), "mode": "constant", "value": 0.0}
    definition, shape = get_op("pad"), (2229 * 3, 7, 170)
    x = tec.te.placeholder(shape, "float16", name="x")
    outs = definition.compute(attrs, [x], definition.infer([TensorType("float16", shape)], attrs))
    space = next(s for s in spaces(outs, HOPPER) if s.template == "gpu stages")
    wide, one, rows = (
        space.cost({**space.default, "threads": 256, **c}).seconds
        for c in ({"vector": 16, "rows": 0}, {"vector": 1, "rows": 0}, {"vector": 16, "rows": 4})
    )
    assert (wide == one) == is_odd and (rows < wide) == is_odd
