"""The time model where work-groups have unlike work: totals are of all of them, times of the unit that ends last, and no kernel beats the chip's peak."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
import pytest

from tec.emulator.chips import CHIPS
from tec.emulator.time.issue import decode
from tec.emulator.time.model import Estimate, _of_unit, model_launch
from tec.emulator.time.steps import Program
from tec.emulator.time.strata import Chosen, _deal, block_weights, choose
from tec.emulator.time.trace import Tracer
from tec.emulator.time.unit import UnitTime
from tests import seeds

from .harness import function, upload

_MFMA = "declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)"
_MACS = 16 * 16 * 16
# Work-group (x, y) makes `%turns` matrix instructions in each of four waves.
_CAUSAL = "%turns0 = mul i32 %x, %slope\n  %turns = add i32 %turns0, %least"
_LENGTHS = """%pl = getelementptr i32, ptr addrspace(1) %lengths, i32 %y
  %turns = load i32, ptr addrspace(1) %pl"""


@cache
def _kernel(turns: str):
    return function(
        f"""{_MFMA}
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
define amdgpu_kernel void @k(ptr addrspace(1) %lengths, i32 %slope, i32 %least) "amdgpu-flat-work-group-size"="256,256" "amdgpu-agpr-alloc"="0" {{
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  {turns}
  br label %l
l:
  %i = phi i32 [ 0, %0 ], [ %j, %l ]
  %s = phi <4 x float> [ zeroinitializer, %0 ], [ %r, %l ]
  %r = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> splat (half 1.0), <4 x half> splat (half 2.0), <4 x float> %s, i32 0, i32 0, i32 0)
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, %turns
  br i1 %more, label %l, label %e
e:
  call void asm sideeffect "; keep $0", "v"(<4 x float> %r)
  ret void
}}""",
        "gfx942",
    )


@cache
def _streaming():
    """Work-group x reads 64 KB of its own where x is less than `%busy`, else nothing."""
    return function(
        """declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %data, i32 %busy) "amdgpu-flat-work-group-size"="256,256" {
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %works = icmp ult i32 %x, %busy
  br i1 %works, label %b, label %e
b:
  %from = shl i32 %x, 14
  %first = or i32 %from, %t
  br label %l
l:
  %i = phi i32 [ 0, %b ], [ %j, %l ]
  %s = phi float [ 0.0, %b ], [ %r, %l ]
  %step = shl i32 %i, 8
  %place = or i32 %first, %step
  %p = getelementptr float, ptr addrspace(1) %data, i32 %place
  %v = load float, ptr addrspace(1) %p
  %r = fadd float %s, %v
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, 64
  br i1 %more, label %l, label %d
d:
  call void asm sideeffect "; keep $0", "v"(float %r)
  br label %e
e:
  ret void
}""",
        "gfx942",
    )


def _model(turns: str, grid: tuple[int, int], slope: int, least: int, lengths: np.ndarray | None = None) -> Estimate:
    driver, f = _kernel(turns)
    at = upload(driver, lengths if lengths is not None else np.zeros(1, np.int32))
    try:
        return model_launch(driver, f, (*grid, 1), (256, 1, 1), 0, struct.pack("<Qii", at, slope, least))
    finally:
        driver.free(0, at)


def _peak_us(macs: float) -> float:
    """Each SIMD's matrix pipe makes one of these products in 16 clocks (CDNA 3)."""
    machine = CHIPS["gfx942"].machine
    return macs / (machine.units * 4 * _MACS / 16) / machine.clock_mhz


@pytest.mark.parametrize("seed", range(2))
def test_causal_work_is_counted_for_all_work_groups(seed: int) -> None:
    """The number of turns grows with x. Multiply-adds are those of the sum over all work-groups, and times grow with them."""
    draw = np.random.default_rng(seed)
    x, y = int(draw.integers(2, 16)), int(draw.integers(1, 100))
    slope, least = int(draw.integers(4, 16)), int(draw.integers(8, 30))
    before = 0.0
    for more in (1, 2, 4):
        e = _model(_CAUSAL, (x, y), slope * more, least * more)
        turns = y * sum(more * (slope * i + least) for i in range(x))
        exact = 4 * turns * _MACS
        assert e.macs["f16"] == pytest.approx(exact, rel=0.03)
        longest = more * (slope * (x - 1) + least) * 16 / e.clock_mhz  # a wave's chain of products, alone
        assert e.kernel_us >= 0.99 * max(_peak_us(exact), longest) and e.kernel_us > 1.3 * before
        before = e.kernel_us


@pytest.mark.parametrize("seed", range(2 if seeds.number() else 1))
def test_ragged_lengths_that_lie_in_memory(seed: int) -> None:
    """Row y of the grid has a length that only memory knows: the mean and the longest both count."""
    draw = np.random.default_rng(10 + seed)
    x, y = int(draw.integers(1, 12)), int(draw.integers(20, 80))
    lengths = np.maximum(2, draw.lognormal(4, 1, y)).astype(np.int32)
    times = []
    for more in (1, 3):
        e = _model(_LENGTHS, (x, y), 0, 0, lengths * more)
        exact = 4 * x * int(lengths.sum()) * more * _MACS
        assert e.macs["f16"] == pytest.approx(exact, rel=0.06)
        longest = int(lengths.max()) * more * 16 / e.clock_mhz
        assert e.kernel_us >= 0.99 * max(_peak_us(exact), longest)
        times.append(e.kernel_us)
    assert times[1] > times[0]


def test_equal_work_groups_are_one_stratum() -> None:
    """Where all do alike nothing is chosen: the unit with most work-groups is run, as ever."""
    driver, f = _kernel(_CAUSAL)
    for slope, alike in ((0, True), (9, False)):
        tracer = Tracer(driver, f, (16, 40, 1), (256, 1, 1), 0, struct.pack("<Qii", 0, slope, 100))
        program = Program(decode(f.text, driver.chip, 64), tracer.rows)
        chosen = choose(tracer, program, driver.chip, 8, 64)
        assert (chosen is None) == alike
        if chosen is None:
            continue
        weight = tracer.count(range(640)) @ block_weights(program, driver.chip, len(tracer.rows))
        part = weight[chosen.groups].sum()
        assert chosen.share == pytest.approx(part / weight.sum(), rel=0.01)
        assert chosen.count == len(chosen.groups) and chosen.unit == pytest.approx(1.0)
        assert len({g % driver.chip.machine.dies for g in chosen.groups}) == 1  # one unit is on one die


def test_work_groups_are_dealt_to_the_place_that_is_free_first() -> None:
    """Two dies of one unit and one place: each takes every second work-group, and the longer die ends last; two units share by what they have left."""
    weights = np.array([5.0, 1.0, 5.0, 1.0, 5.0, 1.0])
    assert _deal(weights, 2, 2, 1) == [0, 2, 4]
    assert _deal(np.array([9.0, 1.0, 1.0, 1.0]), 1, 2, 1) == [0]
    assert _deal(np.array([3.0, 1.0, 1.0, 1.0, 9.0]), 1, 2, 1) in ([0, 4], [1, 2, 3, 4])


def test_memory_is_shared_by_those_who_work() -> None:
    """Experts without tokens: work-groups that end at once leave what memory gives to the others. A few that stream take as long with idle ones beside them as alone."""
    driver, f = _streaming()
    at = upload(driver, np.zeros(1 << 20, np.float32))
    try:
        alone, beside = (
            model_launch(driver, f, (n, 1, 1), (256, 1, 1), 0, struct.pack("<Qi", at, 64)).kernel_us for n in (64, 304)
        )
    finally:
        driver.free(0, at)
    assert alone <= beside <= 1.3 * alone


@pytest.mark.slow
def test_causal_attention_takes_longer_by_its_work() -> None:
    """Four times the queries, sixteen times the work: between 4 (a launch that fills the chip at last) and 20 times as long, within the peak."""
    import tec
    from tec import te
    from tec.choices import schedule
    from tec.ops.registry import TensorType, get_op

    us = {}
    for n in (512, 2048):
        kinds = [TensorType("float16", (4, 16, n, 64))] * 3
        xs = [te.placeholder(k.shape, k.dtype, name=f"x{i}") for i, k in enumerate(kinds)]
        attrs, op, target = {"scale": 0.125, "right": 0}, get_op("attention"), tec.Target("rocm -mcpu=gfx942")
        made = schedule(op.compute(attrs, xs, op.infer(kinds, attrs))[:1], target)
        module = tec.build(made.schedule, [*xs, *made.outputs], target, name="k")
        e = tec.model(module, [((4, 16, n, 64), "float16")] * 4, "MI300X", True).launches[0].estimate
        us[n] = e.kernel_us
        macs = sum(e.macs.values())
        assert macs >= 0.98 * 4 * 16 * n * n * 64  # two products of the half that is not masked
        assert e.kernel_us > 0.99 * _peak_us(macs)
    assert 4 < us[2048] / us[512] < 20


def test_a_trace_is_of_the_work_group_that_was_asked_for() -> None:
    """Work-group x makes 10 + 3 x turns of its loop; traces and counts of any of them, in any order, say so."""
    driver, f = _kernel(_CAUSAL)
    at = upload(driver, np.zeros(1, np.int32))
    asked = [7, 0, 31, 2]
    try:
        tracer = Tracer(driver, f, (32, 1, 1), (256, 1, 1), 0, struct.pack("<Qii", at, 3, 10))
        counts = tracer.count(asked)
        traces = tracer.run(asked, 1 << 12, 1 << 12)
    finally:
        driver.free(0, at)
    assert counts.max(axis=1).tolist() == [4 * (10 + 3 * g) for g in asked]  # of four waves
    assert [t.group for t in traces] == asked
    lengths = [sum(len(w.rows) for w in t.waves) for t in traces]
    assert sorted(lengths) == [lengths[k] for k in np.argsort(asked)] and len(set(lengths)) == len(asked)


@pytest.mark.parametrize(("unit", "clocks"), [(1.8, 500.0), (1.0, 900.0), (0.5, 1800.0)])
def test_drawn_work_groups_count_by_the_work_of_a_unit(unit: float, clocks: float) -> None:
    """Most of a mixture's work-groups may have no work, and three that were drawn have more than a unit gets."""
    got = UnitTime(900.0, [300.0, 600.0, 900.0], {}, 0.0, {})
    assert _of_unit(got, 1, 3, 3, Chosen([1, 2, 3], 0.01, unit, 3)) == clocks
