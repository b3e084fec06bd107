"""Reductions across memory by work-groups that share neighbouring columns, on AMD GPUs: of columns that are no whole number of work-groups' the last one begins earlier."""

from __future__ import annotations

import numpy as np

import tec
from tec import te
from tec.choices import spaces
from tec.choices.families.gpu_reductions import GpuReduction
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned


def space_of(op: str, shape: tuple[int, ...], target: str, **attrs: object) -> tuple[te.Tensor, GpuReduction]:
    known, x = get_op(op), te.placeholder(shape, "float16", name="x")
    outs = known.compute(attrs, [x], known.infer([TensorType("float16", shape)], attrs))
    space = next(s for s in spaces(outs, tec.Target(target)) if s.template == "gpu reduction")
    assert isinstance(space, GpuReduction)
    return x, space


@thinned(2, ("chip", ["gfx942", "gfx1100"]), ("columns", [65, 136, 200]), ("op", ["argmax", "reduce_sum"]))
def test_values(chip: str, columns: int, op: str) -> None:
    attrs = {"axis": 0} if op == "argmax" else {"axes": (0,), "keepdims": False}
    x, space = space_of(op, (130, columns), f"rocm -mcpu={chip}", **attrs)
    made = space.build(space.choice(shared=False, threads=256, parts=1, piece=0, wide=32, rows=1))
    f, dev = tec.build(made.schedule, [x, *made.outputs], f"rocm -mcpu={chip}", name="f"), tec.rocm_emu(chip, check="race,init,bounds")  # fmt: skip
    value = np.random.default_rng(columns).standard_normal((130, columns)).astype("float16")
    got = tec.nd.empty(tuple(int(n) for n in made.outputs[0].shape), made.outputs[0].dtype, dev)
    f(tec.nd.array(value, dev), got)
    want = value.argmax(0) if op == "argmax" else value.astype("f8").sum(0)
    np.testing.assert_allclose(got.numpy().reshape(-1).astype("f8"), want, rtol=1e-2, atol=5e-2)


def test_the_largest_of_columns_are_shared() -> None:
    """A thread a column waits for its elements one after another: 106 us by the time model of an RX 7900 XTX for 2,062 x 1,032 in float16, and 10 now."""
    _, space = space_of("argmax", (2062, 1032), "rocm -mcpu=gfx1100", axis=0)
    assert space.default["wide"] == 32
    _, space = space_of("argmax", (2062, 1032), "cuda -arch=sm_90a", axis=0)
    assert all(c["wide"] == 0 for c in space.all)  # where a clock judges, nobody has measured it


def test_halves_of_lines() -> None:
    """Lanes side by side that read half a line: the cache near by gives the other half again, and memory does not."""
    _, space = space_of("reduce_sum", (4096, 8192), "rocm -mcpu=gfx1100", axes=(0,), keepdims=False)
    one, two = (space.cost(space.choice(shared=False, threads=64, parts=16, piece=p, wide=0, rows=1)).seconds for p in (0, 4))  # fmt: skip
    assert one <= 1.5 * two
