"""The time model's parts against cases that can be worked out by hand."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import tec
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.analyses.skeleton import data_only
from tec.emulator.chips import CHIPS
from tec.emulator.profile import emulator_profile
from tec.emulator.time.model import Estimate, _beyond, model_launch
from tec.emulator.time.trace import Tracer
from tec.emulator.time.unit import _Server
from tests.thinned import thinned, thinned_rows
from tests.unit.emulator.harness import function


def _model(ir: str, chip: str, grid: int, block: int, args: bytes = b"", **how) -> Estimate:
    driver, f = function(ir, chip)
    return model_launch(driver, f, (grid, 1, 1), (block, 1, 1), 0, args, **how)


def _clocks(e: Estimate) -> float:
    return e.kernel_us * e.clock_mhz


def _loop(turns: int, state: str, zero: str, body: str, last: str, declares: str = "", head: str = "") -> str:
    """A kernel that carries `state` through `turns` of `body` (from %x to %y), and keeps it alive with `last`."""
    return f"""
{declares}
define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="1,1024" "amdgpu-agpr-alloc"="0" {{
  {head}
  br label %l
l:
  %i = phi i32 [ 0, %0 ], [ %j, %l ]
  %x = phi {state} [ {zero}, %0 ], [ %y, %l ]
  {body}
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, {turns}
  br i1 %more, label %l, label %e
e:
  {last}
  ret void
}}
"""


_MFMA = "declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half>, <4 x half>, <16 x float>, i32, i32, i32)"


@thinned(1, ("chip, clocks, units", [("gfx942", 32, 304), ("gfx90a", 64, 110)]), ("waves", [4, 8]))
def test_a_loop_of_matrix_instructions(chip, clocks, units, waves):
    """Each SIMD's pipe is never idle: instructions times waves of a SIMD times 8 or 16 passes of 4 clocks; one wave alone keeps a pipe busy."""
    turns = 200
    body, values = "", []
    for k in range(4):
        body += f"""%a{k} = extractvalue {{<16 x float>, <16 x float>, <16 x float>, <16 x float>}} %x, {k}
  %b{k} = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half> splat (half 1.0), <4 x half> splat (half 2.0), <16 x float> %a{k}, i32 0, i32 0, i32 0)
  """
        values.append(f"<16 x float> %b{k}")
    kind = "{<16 x float>, <16 x float>, <16 x float>, <16 x float>}"
    at = f"{kind} poison"
    for k, v in enumerate(values):
        body += f"%y{k} = insertvalue {at}, {v}, {k}\n  " if k < 3 else f"%y = insertvalue {at}, {v}, {k}\n"
        at = f"{kind} %y{k}"
    last = "\n  ".join(
        f'%f{k} = extractvalue {kind} %y, {k}\n  call void asm sideeffect "; keep $0", "v"(<16 x float> %f{k})'
        for k in range(4)
    )
    e = _model(_loop(turns, kind, "zeroinitializer", body, last, _MFMA), chip, units, 64 * waves)
    want = turns * 4 * clocks * waves / 4
    assert _clocks(e) == pytest.approx(want, rel=0.015)
    assert e.limit == "matrix" and e.macs["f16"] == units * waves * turns * 4 * 32 * 32 * 8


# Cycles of matrix instructions as they are published (AMD's matrix instruction calculator; CDNA 4 from ROCm's origami; gem5's model of the same cycles is within 1.5 %
# of MI200 and MI300, arXiv 2501.18113; gfx1250 from origami): (chip, instruction, 32-bit registers of a source and of the sums, clocks).
_PUBLISHED = [
    ("gfx90a", "v_mfma_f32_32x32x8f16", 2, 16, 64), ("gfx90a", "v_mfma_f32_16x16x16f16", 2, 4, 32),
    ("gfx90a", "v_mfma_i32_32x32x8i8", 1, 16, 64), ("gfx90a", "v_mfma_f32_32x32x2f32", 1, 16, 64),
    ("gfx90a", "v_mfma_f64_16x16x4f64", 2, 8, 32), ("gfx90a", "v_mfma_f64_4x4x4f64", 2, 2, 16),
    ("gfx942", "v_mfma_f32_32x32x8_f16", 2, 16, 32), ("gfx942", "v_mfma_f32_16x16x16_bf16", 2, 4, 16),
    ("gfx942", "v_mfma_i32_16x16x32_i8", 2, 4, 16), ("gfx942", "v_mfma_f32_16x16x32_fp8_fp8", 2, 4, 16),
    ("gfx942", "v_mfma_f32_16x16x4_f32", 1, 4, 32), ("gfx942", "v_mfma_f32_32x32x4_xf32", 2, 16, 32), ("gfx942", "v_mfma_f64_16x16x4_f64", 2, 8, 32),
    ("gfx950", "v_mfma_f32_32x32x16_f16", 4, 16, 32), ("gfx950", "v_mfma_f32_16x16x32_bf16", 4, 4, 16), ("gfx950", "v_mfma_f32_32x32x8_f16", 2, 16, 32),
    ("gfx950", "v_mfma_f64_16x16x4_f64", 2, 8, 64),
    ("gfx1100", "v_wmma_f32_16x16x16_f16", 8, 8, 32), ("gfx1100", "v_wmma_i32_16x16x16_iu8", 4, 8, 32), ("gfx1100", "v_wmma_i32_16x16x16_iu4", 2, 8, 16),
    ("gfx1250", "v_wmma_f32_16x16x4_f32", 2, 8, 16), ("gfx1250", "v_wmma_f32_16x16x32_f16", 8, 8, 8), ("gfx1250", "v_wmma_f32_16x16x32_bf16", 8, 8, 8),
    ("gfx1250", "v_wmma_f32_16x16x64_fp8_fp8", 8, 8, 4), ("gfx1250", "v_wmma_f32_16x16x128_fp8_fp8", 16, 8, 8), ("gfx1250", "v_wmma_i32_16x16x64_iu8", 8, 8, 8),
    ("gfx1201", "v_wmma_f32_16x16x16_f16", 4, 8, 16), ("gfx1201", "v_wmma_i32_16x16x16_iu8", 2, 8, 8), ("gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", 2, 8, 8),
]  # fmt: skip


@thinned_rows(10, ("chip", "op", "source", "sums", "clocks"), _PUBLISHED)
def test_matrix_instructions_alone_take_their_published_cycles(chip, op, source, sums, clocks):
    """Two waves a SIMD, four or eight chains each, nothing else: within 1.5 %."""
    turns, chains = 300, 8 if sums < 16 else 4
    kind, value = f"<{sums} x i32>", f"<{source} x i32>" if source > 1 else "i32"
    state = "{" + ", ".join([kind] * chains) + "}"
    body, at = "", f"{state} poison"
    for k in range(chains):
        body += f"%a{k} = extractvalue {state} %x, {k}\n  "
        body += f'%b{k} = call {kind} asm sideeffect "{op} $0, $1, $1, $0", "=v,v,0"({value} %s, {kind} %a{k})\n  '
    for k in range(chains):
        name = f"%y{k}" if k < chains - 1 else "%y"
        body += f"{name} = insertvalue {at}, {kind} %b{k}, {k}\n  "
        at = f"{state} {name}"
    last = "\n  ".join(
        f'%f{k} = extractvalue {state} %y, {k}\n  call void asm sideeffect "; keep $0", "v"({kind} %f{k})'
        for k in range(chains)
    )
    head = f'%s = call {value} asm sideeffect "; some $0", "=v"()'
    driver, f = function(_loop(turns, state, "zeroinitializer", body, last, head=head), chip)
    limits = driver.chip.limits
    waves = 2 * limits.simds
    e = model_launch(driver, f, (1, 1, 1), (waves * driver.chip.wavefront_size, 1, 1), 0, b"")
    assert _clocks(e) == pytest.approx(2 * turns * chains * clocks, rel=0.015)


@pytest.mark.parametrize(("chip", "waves_a_clock"), [("gfx942", 8 * 0.93), ("gfx90a", 1.9)])
def test_waves_start_no_faster_than_dies_start_them(chip, waves_a_clock):
    """Work-groups of one wave that do nothing: what their start takes."""
    driver, f = function('define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="1,1024" {\n  ret void\n}', chip)
    groups = driver.chip.machine.units * 64
    e = model_launch(driver, f, (groups, 1, 1), (64, 1, 1), 0, b"")
    assert _clocks(e) == pytest.approx(groups / waves_a_clock, rel=0.05)


def test_a_few_work_groups_more_than_units_start_a_little_later():
    """The units that get a second work-group get it of all that start, not as if each had two."""
    driver, f = function(
        'define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="1,1024" {\n  ret void\n}', "gfx90a"
    )
    units = driver.chip.machine.units
    for groups in (units, units + 6, 2 * units):
        e = model_launch(driver, f, (groups, 1, 1), (512, 1, 1), 0, b"")
        assert _clocks(e) == pytest.approx(8 * groups / 1.9, rel=0.1)


@pytest.mark.parametrize(("chip", "each", "waves"), [("gfx942", 4, 4), ("gfx1100", 1, 2)])
@pytest.mark.parametrize("priority", [0, 3])
def test_the_vector_lanes_go_to_the_wave_of_higher_priority(chip, each, waves, priority):
    """Two waves a SIMD want the lanes all the time; the second, when it has done, sleeps: at equal turns after both are done, at a higher priority after its own."""
    driver, f = function("define amdgpu_kernel void @k() {\n  ret void\n}", chip)
    count, slept = 400, 60
    work = "".join(f"  v_mov_b32 v{1 + n % 9}, 1\n" for n in range(count))
    ir = f"""
define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="1,1024" {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %w = lshr i32 %t, {8 if chip == "gfx942" else 6}
  %s = call i32 @llvm.amdgcn.readfirstlane(i32 %w)
  %second = icmp ne i32 %s, 0
  br i1 %second, label %b, label %a
a:
  call void asm sideeffect "WORK", ""()
  ret void
b:
  call void asm sideeffect "s_setprio {priority}", ""()
  call void asm sideeffect "WORK", ""()
  call void asm sideeffect "s_sleep {slept}", ""()
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.readfirstlane(i32)
"""
    driver, f = function(ir.replace("WORK", work.replace("\n", "\\0A")), chip)
    lanes = driver.chip.wavefront_size
    simds = driver.chip.limits.simds
    e = model_launch(driver, f, (1, 1, 1), (2 * simds * lanes, 1, 1), 0, b"")
    turns = count * each * (1 if priority else 2)
    assert _clocks(e) == pytest.approx(turns + 64 * (slept + 1), rel=0.05)


@pytest.mark.parametrize(("chip", "each"), [("gfx942", 4), ("gfx1100", 5)])
def test_a_chain_of_vector_instructions_waits_for_each_result(chip, each):
    """One wave, each instruction reads the last one's result: the latency alone counts."""
    body, at = "", "%x"
    for k in range(32):
        new = "%y" if k == 31 else f"%c{k}"
        body += f"{new} = call float @llvm.fma.f32(float {at}, float %one, float %one)\n  "
        at = new
    last = 'call void asm sideeffect "; keep $0", "v"(float %y)'
    head = '%one = call float asm sideeffect "v_mov_b32 $0, 1.0", "=v"()'
    e = _model(
        _loop(100, "float", "0.0", body, last, "declare float @llvm.fma.f32(float, float, float)", head), chip, 1, 32
    )
    assert _clocks(e) == pytest.approx(100 * 32 * each, rel=0.05)
    assert e.limit == "latency" if chip == "gfx1100" else e.kernel_us > 0


def test_bank_conflicts_cost_their_clocks():
    """32 lanes that all read one bank take 32 clocks, of each half of the wave: 64 and 4 more a load, of which 16 wait together."""
    ir = """
@buf = internal addrspace(3) global [4096 x i32] poison
define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="1,64" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %o = mul i32 %t, STRIDE
  %p = getelementptr i32, ptr addrspace(3) @buf, i32 %o
  br label %l
l:
  %i = phi i32 [ 0, %0 ], [ %j, %l ]
  %q = ptrtoint ptr addrspace(3) %p to i32
  LOADS
  call void asm sideeffect "s_waitcnt lgkmcnt(0)", ""()
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, 100
  br i1 %more, label %l, label %e
e:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""
    loads = "\n".join('call i32 asm sideeffect "ds_read_b32 $0, $1", "=v,v"(i32 %q)' for _ in range(12))
    clocks = {}
    for stride in (1, 32):
        text = ir.replace("STRIDE", str(stride)).replace("LOADS", loads)
        clocks[stride] = _clocks(_model(text, "gfx942", 1, 64))
    # 12 loads a turn, then the wait for the last: 8 clocks each without conflicts, 68 with; 64 of latency.
    assert clocks[1] == pytest.approx(100 * (12 * 8 + 64), rel=0.1)
    assert clocks[32] == pytest.approx(100 * (12 * 68 + 64), rel=0.1)


@pytest.mark.parametrize(("chip", "banks"), [("gfx942", 128), ("gfx950", 256)])
def test_loads_straight_to_lds_keep_its_banks(chip, banks):
    """Four wavefronts that read one bank of LDS all the time, and load into it: the banks serve both, one after the other."""
    ir = """
@buf = internal addrspace(3) global [16384 x i32] poison
define amdgpu_kernel void @k(ptr addrspace(1) noalias %a) "amdgpu-flat-work-group-size"="1,256" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %o = mul i32 %t, STRIDE
  %p = getelementptr i32, ptr addrspace(3) @buf, i32 %o
  %q = ptrtoint ptr addrspace(3) %p to i32
  %g = getelementptr i32, ptr addrspace(1) %a, i32 %t
  br label %l
l:
  %i = phi i32 [ 0, %0 ], [ %j, %l ]
  LOADS
  call void asm sideeffect "s_waitcnt vmcnt(0) lgkmcnt(0)", ""()
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, 50
  br i1 %more, label %l, label %e
e:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32, i32, i32)
"""
    ir = ir.replace("STRIDE", str(banks // 4))
    reads = "\n".join('call i32 asm sideeffect "ds_read_b32 $0, $1", "=v,v"(i32 %q)' for _ in range(12))
    into = "\n".join(
        "call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %g, ptr addrspace(3) @buf, i32 4, i32 0, i32 0)"
        for _ in range(32)
    )
    clocks = []
    for loads in (reads, reads + "\n" + into):
        driver, f = function(ir.replace("LOADS", loads), chip)
        where = driver.alloc(0, 1024)
        clocks.append(_clocks(model_launch(driver, f, (1, 1, 1), (256, 1, 1), 0, struct.pack("<Q", where))))
        driver.free(0, where)
    written = 50 * 4 * 32 * 2  # turns, waves, loads, each of two halves of a wave
    assert clocks[1] - clocks[0] == pytest.approx(written, rel=0.2)


def test_an_address_without_its_upper_bits_is_the_kernels_arguments():
    """Assembly by hand keeps 48 bits of the arguments' address: what is loaded from there is known before a launch."""
    text = "k:\n  s_and_b32 s1, s1, 0xffff\n  s_load_dword s4, s[0:1], 0x0\n  s_cmp_eq_u32 s4, 0\n  s_cbranch_scc1 .L\n.L:\n  s_endpgm\n"
    assert data_only(parse_kernel(text, "k"), 0) is not None
    assert data_only(parse_kernel(text.replace("0xffff", "0xfff0"), "k"), 0) is None


def _kernels(f, dev, args):
    found = []
    driver, launch = dev.driver, dev.driver.launch
    driver.launch = lambda function, grid, block, shared, kernargs, stream=None: found.append(
        (function, grid, block, shared, kernargs)
    )
    try:
        f(*args)
    finally:
        driver.launch = launch
    return found


@pytest.mark.parametrize(("chip", "reached"), [("gfx942", 4200), ("gfx90a", 1388.8), ("gfx1100", 732)])
def test_a_stream_takes_what_memory_gives(chip, reached):
    from tec.choices import schedule

    n = 1 << 24
    a = tec.placeholder((n,), "float32", name="A")
    b = tec.compute((n,), lambda i: a[i] * 2.0, name="B")
    target = tec.Target(f"rocm -mcpu={chip}")
    chosen = schedule([b], target)
    f = tec.build(chosen.schedule, [a, *chosen.outputs], target, name="scale")
    dev = tec.rocm_emu(chip)
    x, y = tec.nd.empty((n,), "float32", dev), tec.nd.empty((n,), "float32", dev)
    ((kernel, *launch),) = _kernels(f, dev, [x, y])
    e = model_launch(dev.driver, kernel, *launch)
    assert 8 * n / e.kernel_us / 1e3 == pytest.approx(reached, rel=0.1)
    assert e.traffic["memory"] == pytest.approx(8 * n, rel=0.02) and e.limit == "memory"


def test_traces_leave_memory_as_it_is_and_data_out():
    """What a work-group does is the same with and without its data; nothing is written."""
    from tec.choices import schedule

    n = 64
    a, b = tec.placeholder((n, n), "float32", name="A"), tec.placeholder((n, n), "float32", name="B")
    k = tec.reduce_axis((0, n), name="k")
    c = tec.compute((n, n), lambda i, j: tec.sum(a[i, k] * b[k, j], axis=k), name="C")
    target = tec.Target("rocm -mcpu=gfx942")
    chosen = schedule([c], target)
    f = tec.build(chosen.schedule, [a, b, *chosen.outputs], target, name="product")
    dev = tec.rocm_emu("gfx942")
    x = np.random.default_rng(0).standard_normal((n, n)).astype("float32")
    args = [tec.nd.array(x, dev), tec.nd.array(x, dev), tec.nd.array(np.full((n, n), 7, "float32"), dev)]
    for kernel, *launch in _kernels(f, dev, args):
        tracer = Tracer(dev.driver, kernel, *launch)
        assert tracer.compiled.options.skip and not kernel.needs_data
        (group,) = tracer.run([0], 1 << 14, 1 << 14)
        assert not group.cut and all(len(w.events) for w in group.waves)
        (short,) = tracer.run([0], 1 << 14, 64)
        assert short.cut
        for w, s in zip(group.waves, short.waves):
            assert np.array_equal(w.lines[: len(s.lines)], s.lines)
    assert (args[2].numpy() == 7).all()


def test_a_kernel_whose_addresses_are_data_runs_whole():
    ir = """
define amdgpu_kernel void @k(ptr addrspace(1) %index, ptr addrspace(1) %table, ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %index, i32 %t
  %i = load i32, ptr addrspace(1) %p
  %q = getelementptr i32, ptr addrspace(1) %table, i32 %i
  %v = load i32, ptr addrspace(1) %q
  %r = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %r
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""
    driver, f = function(ir, "gfx942")
    places = {}
    for name, step in (("near", 1), ("far", 32)):
        index = driver.alloc(0, 256)
        host = np.arange(64, dtype=np.int32) * step
        driver.copy_to_device(0, index, host.ctypes.data, 256)
        table, out = driver.alloc(0, 64 * 128), driver.alloc(0, 256)
        tracer = Tracer(driver, f, (1, 1, 1), (64, 1, 1), 0, struct.pack("<3Q", index, table, out))
        (group,) = tracer.run([0], 100, 1000)
        places[name] = len(group.waves[0].lines)
    assert f.needs_data and places["far"] - places["near"] == 64 - 2


def test_a_gather_whose_indices_no_kernel_made():
    """Modelled without running, only its launch is known; its fault is one where it runs."""
    from tec.emulator import emulator_profile

    ir = """
define amdgpu_kernel void @k(ptr addrspace(1) %index, ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %index, i32 %t
  %i = load i32, ptr addrspace(1) %p
  %q = getelementptr i32, ptr addrspace(1) %index, i32 %i
  %v = load i32, ptr addrspace(1) %q
  %r = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %r
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""
    driver, f = function(ir, "gfx942")
    args = struct.pack("<2Q", driver.alloc(0, 256), driver.alloc(0, 256))
    with emulator_profile(driver, run=False) as p:
        driver.launch(f, (1, 1, 1), (64, 1, 1), 0, args)
    assert p.launches[0].estimate.limit == "data" and p.launches[0].estimate.kernel_us == 0


def test_a_product_of_which_little_is_published_says_what_is_assumed():
    ir = 'define amdgpu_kernel void @k() "amdgpu-flat-work-group-size"="1,1024" {\n  ret void\n}'
    said = _model(ir, "gfx1250", 64, 64).assumed
    rates = CHIPS["gfx1250"].machine.vector_macs
    assert "latencies" in said and all(str(rates[t]) in said for t in ("float32", "float64", "float16"))
    assert not _model(ir, "gfx942", 64, 64).assumed
    driver, f = function(ir, "gfx1250")
    with emulator_profile(driver, run=False) as p:
        driver.launch(f, (64, 1, 1), (64, 1, 1), 0, b"")
    assert "assumptions: latencies" in str(p)


@pytest.mark.parametrize("dtype", ["bf16", "f8", "i8"])
def test_a_rate_beyond_all_published_ones_says_so(dtype):
    """Of an MI355X no product is known that sustains 0.66 of its peak."""
    machine = CHIPS["gfx950"].machine
    whole = machine.peak_tflops({"bf16": "bfloat16", "f8": "float8", "i8": "int8"}[dtype]) * 1e6 / 2  # in a microsecond
    assert "0.78 of the peak" in _beyond(machine, {dtype: 0.78 * whole}, 1.0)
    assert not _beyond(machine, {dtype: 0.6 * whole}, 1.0)
    assert not _beyond(CHIPS["gfx942"].machine, {dtype: whole}, 1.0)  # its clocks under products are published


def test_a_wait_for_asynchronous_copies_takes_their_time():
    """Eight of the same line, each after the one before: seven ways to the L1 and back more than one after another."""
    us = []
    for wait in ("", "s_wait_asynccnt 0x0\\0A"):
        copies = ("global_load_async_to_lds_b32 $1, $1, $0\\0A" + wait) * 8
        ir = f"""
define amdgpu_kernel void @k(ptr addrspace(1) %p) "amdgpu-flat-work-group-size"="1,1024" {{
  call void asm sideeffect "{copies}s_wait_asynccnt 0x0", "s,v"(ptr addrspace(1) %p, i32 0)
  ret void
}}
"""
        driver, f = function(ir, "gfx1250")
        e = model_launch(driver, f, (1, 1, 1), (32, 1, 1), 64, struct.pack("<Q", driver.alloc(0, 4096)))
        us.append(e.kernel_us)
    assert us[1] - us[0] == pytest.approx(7 * 0.057, rel=0.2)


def test_a_label_where_another_block_begins_costs_nothing():
    """As assemblers' own labels at a kernel's first instruction: what follows is executed once, and takes its clocks once."""
    chain = "\n  ".join("v_fma_f32 $0, $0, $0, $0" for _ in range(200))

    def kernel(label: str) -> str:
        asm = f'call float asm sideeffect "{label}{chain}", "=v,0"(float %z)'.replace("\n  ", "\\0A")
        return f"""
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k() {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %z = uitofp i32 %t to float
  %b = {asm}
  ret void
}}
"""

    plain, labelled = (_clocks(_model(kernel(x), "gfx942", 304, 64)) for x in ("", ".Lone:\\0A.Ltwo:\\0A"))
    assert labelled == pytest.approx(plain, rel=0.01)


def test_a_level_gives_at_once_what_a_unit_left_while_it_waited() -> None:
    """By parts where all ask at the same time; behind a wait as to a unit alone, for as much as stood in line before it and as the wait is worth."""
    level = _Server(alone=0.25)
    assert level.take(0.0, 60.0, True) == 60.0  # nobody has waited yet
    assert level.take(10.0, 40.0, False) == 100.0
    assert level.take(500.0, 80.0, True) == 520.0
    assert level.take(510.0, 60.0, False) == 572.5  # of the 90 that stood in line before 10 are left
    assert level.take(600.0, 100.0, False) == 679.375  # not waited for: 27.5 clocks were not taken
    assert level.take(680.0, 100.0, True) == 779.53125  # a wait of 0.625 clocks is worth as many
    steady = _Server(alone=1.0)
    assert [steady.take(t, 50.0, True) for t in (0.0, 500.0)] == [50.0, 550.0]
