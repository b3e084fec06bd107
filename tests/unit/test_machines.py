"""The one table of chips and machines: its figures give the peaks that vendors publish, names find their products, hosts are read."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from tec.errors import TargetError
from tec.target import (
    CHIPS,
    CORES,
    MACHINES,
    Target,
    cpus,
    find_product,
    host_core,
    host_features,
    l2_gbps,
    level_gbps,
    machine_of_chip,
)
from tec.target.cpus import core_named, with_features

# TFLOP/s (TOP/s) of data sheets: matrix rates, dense; "vector" of float32.
PUBLISHED = [
    ("mi100", "float16", 184.6), ("mi100", "float32", 46.1), ("mi100", "vector", 23.1), ("mi100", "float64", 11.5),
    ("mi210", "float16", 181.0), ("mi210", "float64", 45.3), ("mi250x", "float16", 383.0 / 2), ("mi250x", "float32", 95.7 / 2),
    ("mi300x", "float16", 1307.4), ("mi300x", "int8", 2614.9), ("mi300x", "float8", 2614.9), ("mi300x", "tf32", 653.7), ("mi300x", "vector", 163.4),
    ("mi300x", "float64", 163.4), ("mi355x", "float16", 2516.6), ("mi355x", "float8", 5033.2), ("mi355x", "float64", 78.6),
    ("7900xtx", "float16", 122.8), ("7900xtx", "vector", 61.4), ("9070xt", "float16", 195.0), ("9070xt", "vector", 48.7), ("9070xt", "int8", 389.0),
    ("6900xt", "vector", 23.04), ("v100", "float16", 125.0), ("t4", "float16", 65.0), ("a100", "float16", 312.0), ("a100", "tf32", 156.0),
    ("a100", "float64", 19.5), ("a100", "int8", 624.0), ("h100", "float16", 989.4), ("h100", "int8", 1978.9), ("h100", "tf32", 494.7),
    ("b200", "float16", 2250.0), ("rtx4090", "float16", 165.2), ("l40s", "float16", 362.0),
]  # fmt: skip


@pytest.mark.parametrize("product,dtype,tflops", PUBLISHED)
def test_peaks_are_the_published_ones(product: str, dtype: str, tflops: float) -> None:
    m = MACHINES[product]
    found = m.peak_tflops("float32", matrix=False) if dtype == "vector" else m.peak_tflops(dtype)
    assert found == pytest.approx(tflops, rel=0.015)


# gpu-roofline on an MI300X, 750 W: share of the vector lanes' time (two multiply-adds of float32 a lane), TB/s, MHz.
ROOFLINE = [
    (0.01, 4.073, 1254),
    (0.26, 3.686, 1047),
    (0.486, 3.398, 1010),
    (0.752, 2.834, 981),
    (0.786, 1.851, 1052),
    (0.824, 1.334, 1202),
    (0.885, 0.381, 1401),
]


@pytest.mark.parametrize("vector,tbps,mhz", ROOFLINE)
def test_clocks_that_power_leaves_are_those_that_were_read(vector: float, tbps: float, mhz: float) -> None:
    assert MACHINES["mi300x"].held_mhz("", 0.0, vector, tbps) == pytest.approx(mhz, rel=0.13)


def test_clocks_under_the_largest_products_are_the_published_ones() -> None:
    for name in ("mi300x", "mi325x"):
        m = MACHINES[name]
        for dtype in ("float16", "bfloat16", "int8"):
            assert m.held_mhz(dtype, 0.94, 0.0, 0.25) == pytest.approx(m.matrix_clock(dtype), rel=0.001)
        assert (
            m.held_mhz("float16", 0.05)
            == m.clock_mhz
            > m.held_mhz("float16", 0.5, 0.1, 1.0)
            > m.held_mhz("float16", 0.5, 0.1, 3.0)
        )
    radeon = MACHINES["9070xt"]
    assert radeon.held_mhz("float16", 0.94) == 2603 and radeon.held_mhz("float32", 0.0, 1.0) == radeon.clock_mhz


@pytest.mark.parametrize(
    "name,chip,product",
    [
        ("mi300x", "gfx942", "MI300X"), ("MI325X", "gfx942", "MI325X"), ("7900xtx", "gfx1100", "RX 7900 XTX"), ("rx7900xtx", "gfx1100", "RX 7900 XTX"),
        ("rx-9070-xt", "gfx1201", "RX 9070 XT"), ("strix-halo", "gfx1151", "Radeon 8060S"), ("7600", "gfx1102", "RX 7600"), ("mi210", "gfx90a", "MI210"),
    ],
)  # fmt: skip
def test_product_names(name: str, chip: str, product: str) -> None:
    t = Target(f"rocm -mcpu={name}")
    assert t.mcpu == chip and t.machine.name == product
    assert Target(str(t)) == t and Target(str(t)).machine == t.machine


def test_a_chips_own_product_is_the_chip() -> None:
    assert Target("rocm -mcpu=mi300x") == Target("rocm -mcpu=gfx942")
    assert Target("rocm -mcpu=mi325x") != Target("rocm -mcpu=gfx942")
    assert Target("cuda -arch=h200").mcpu == "sm_90" and Target("cuda -arch=h200").machine.name == "H200"


def test_a_name_alone_is_a_target() -> None:
    for short, text in {
        "gfx942": "rocm -mcpu=gfx942", "mi325x": "rocm -mcpu=mi325x", "gfx90a:xnack-": "rocm -mcpu=gfx90a:xnack-", "native": "llvm",
        "sm_90a": "cuda -arch=sm_90a", "h200": "cuda -arch=h200", "7900xtx -wavefrontsize=64": "rocm -mcpu=7900xtx -wavefrontsize=64",
    }.items():  # fmt: skip
        assert Target(short) == Target(text)


@pytest.mark.parametrize("text", ["rocm -mcpu=h100", "cuda -arch=mi300x", "rocm -mcpu=mi999"])
def test_products_of_others_are_refused(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        Target(text)
    assert "products: " in str(caught.value)


def test_every_chip_has_a_machine_with_all_that_costs_need() -> None:
    for chip in CHIPS.values():
        m = machine_of_chip(chip)
        # sm_90a is sm_90 with what only it has.
        plain = chip.name.removesuffix("a") if chip.family == "sm" else chip.name
        assert m.chip == plain, f"no product has {chip.name}"
        assert m.units >= 8 and 1000 <= m.clock_mhz <= 4000 and m.launch_us > 0 and m.scratch_bytes_a_clock >= 128
        assert {s[0].partition("_")[0] for s in chip.matrix} <= set(m.matrix_macs), (
            f"{chip.name} has matrix shapes without a rate"
        )
        sizes = [x.size_bytes for x in m.levels]
        assert len(sizes) >= 3 and all(sizes) and m.memory.name == "memory" and m.memory.gbps is not None
        assert m.memory.gbps <= m.memory_gbps
        given = [x.gbps for x in m.levels if x.gbps]
        assert given == sorted(given, reverse=True), f"{m.name}: a farther level is faster"
        late = [x.latency_ns for x in m.levels if x.latency_ns]
        assert late == sorted(late)


def test_occupancy() -> None:
    cdna3, rdna3, small = CHIPS["gfx942"], CHIPS["gfx1100"], CHIPS["gfx1102"]
    assert cdna3.occupancy(64, 0, 4, 64) == (8, "waves")
    assert cdna3.occupancy(129, 0, 4, 64) == (3, "VGPRs")  # 136 of 512
    assert cdna3.occupancy(32, 40 << 10, 4, 64) == (1, "LDS")
    assert rdna3.occupancy(96, 0, 4, 32) == (16, "waves") and rdna3.occupancy(97, 0, 4, 32) == (12, "VGPRs")
    assert rdna3.occupancy(96, 0, 4, 64) == (8, "VGPRs")  # a wave of 64 lanes takes twice the file
    assert small.occupancy(97, 0, 4, 32) == (9, "VGPRs")
    assert rdna3.occupancy(32, 32 << 10, 8, 32) == (8, "LDS")  # two groups of eight waves on two vector units


@pytest.mark.parametrize(
    "mcpu,mattr,width",
    [
        ("x86-64", "", 16), ("x86-64-v2", "", 16), ("x86-64-v3", "", 32), ("x86-64-v4", "", 64), ("haswell", "", 32), ("broadwell", "", 32),
        ("skylake", "", 32), ("skylake-avx512", "", 64), ("cascadelake", "", 64), ("sapphirerapids", "", 64), ("emeraldrapids", "", 64),
        ("graniterapids", "", 64), ("alderlake", "", 32), ("znver3", "", 32), ("znver4", "", 64), ("znver5", "", 64), ("x86-64", "+avx2", 32),
        ("x86-64", "+avx512f", 64), ("znver4", "-avx512f", 32), ("znver4", "-avx", 16), ("neoverse-v2", "", 16),
    ],
)  # fmt: skip
def test_vector_widths(mcpu: str, mattr: str, width: int) -> None:
    assert Target(f"llvm -mcpu={mcpu}" + (f" -mattr={mattr}" if mattr else "")).vector_bytes == width


def test_cores_are_in_proportion() -> None:
    for c in CORES.values():
        assert c.l1_bytes < c.l2_bytes and c.registers == (
            32 if c.vector_bytes == 64 or (c.vector_bytes == 16 and "x86" not in c.name) else 16
        )
    v5 = core_named("znver5")
    assert v5 is not None
    assert with_features(v5, "-avx512f").vector_bytes == 32 and with_features(v5, "-avx512f").fma == 4


def test_the_host_is_itself() -> None:
    core, t = host_core(), Target("llvm")
    assert t.core == core and t.machine.units >= 1
    assert core.vector_bytes in (16, 32, 64) and 8 << 10 <= core.l1_bytes <= core.l2_bytes <= 64 << 20
    assert Target("llvm -num-cores=3").machine.units == 3


def test_a_host_stands_for_a_lesser_one() -> None:
    """TEC_HOST_CPU is asked by targets, by LLVM's machines and by the software GPU; what the host cannot run is refused."""
    code = (
        "import tec, numpy as np; from tec.codegen import llvm_util; from tec.emulator.translate.jit import get_jit; from tec.target import host_features\n"
        "t = tec.Target('llvm'); words = host_features().split()\n"
        "print(t.vector_bytes, sorted(t.core.dots), llvm_util.host_cpu(), get_jit().host, any(w.startswith('avx') for w in words))\n"
        "x = tec.array.arange(40); assert (x * 2).sum().item() == 1560"
    )

    def says(cpu: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "TEC_HOST_CPU": cpu}, capture_output=True, text=True
        )

    if platform.machine() in ("x86_64", "AMD64"):
        assert says("x86-64-v2").stdout.strip() == "16 ['int16'] ('x86-64-v2', '') x86-64-v2 False"
        if "amx_tile" not in host_features():
            assert "graniterapids has vectors or dot products that this host lacks" in says("graniterapids").stderr
    assert "TEC_HOST_CPU names 'nonesuch', which is no CPU that tec knows" in says("nonesuch").stderr


def test_a_stand_in_has_no_tiles_of_its_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dot products of vectors and of tile registers are told apart: a core may have the one and not the other."""
    flags = "sse2 sse4_2 avx avx2 fma avx512f avx512_vnni amx_tile amx_int8 amx_bf16 avx512_bf16"
    monkeypatch.setattr(cpus, "_cpuinfo", lambda: {"flags": flags})
    monkeypatch.setenv("TEC_HOST_CPU", "icelake-server")
    assert cpus.host_features.__wrapped__().split() == "sse2 sse4_2 avx avx2 fma avx512f avx512_vnni amx_tile".split()
    assert cpus.host_core.__wrapped__().tiles == frozenset()


def test_the_table_needs_no_compiler() -> None:
    """What runs a package reads it too."""
    code = "import sys, tec.target; assert not {'llvmlite', 'networkx', 'tec.ir', 'tec.te'} & set(sys.modules), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tvms_ways_to_write_a_target() -> None:
    assert Target({"kind": "llvm", "mcpu": "znver4"}) == Target("llvm -mcpu=znver4")
    assert Target("rocm -mcpu=gfx900 -thread_warp_size=64") == Target("rocm -mcpu=gfx900 -wavefrontsize=64")
    assert Target("cuda -model=v100 -max_num_threads=512") == Target("cuda -max-threads=512")
    hosted = Target("rocm", host="llvm -mcpu=znver4")
    assert (
        hosted.host == Target("llvm -mcpu=znver4") and hosted == Target("rocm") and Target(hosted).host == hosted.host
    )
    with pytest.raises(ValueError, match="a dict names a kind"):
        Target({"mcpu": "znver4"})


def test_an_l2_that_nobody_measured_has_one_rate_for_prices_and_for_the_time_model() -> None:
    machine = find_product("mi60")
    assert machine is not None
    assert level_gbps(machine, "L2") == l2_gbps(machine) > 2 * level_gbps(machine, "memory")
