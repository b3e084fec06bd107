"""Machines: what a product has, and how fast it is. Cost functions, limits of code generation and the software GPU's time model read it.

A machine has units (compute units, multiprocessors, cores) that each do so many multiply-adds a clock (`Chip` for GPUs, `cpus` for CPUs), and
levels of memory, the nearest first. What no source gives is None, and never a guess.

Sources: compute units, clocks, sizes of memory and caches, peak bandwidth of memory: AMD's, NVIDIA's product pages and white papers. What is
reached, and latencies: the marks beside the rows,
  [G] RRZE-HPC/gpu-benches and te42kyfo/gpu-benches (gpu-latency, gpu-cache, gpu-l2-cache, gpu-stream: dependent loads of one thread;
      all units streaming), read on MI300X at 2092 MHz, MI210 at 1700, RX 6900 XT at 2560;
  [O] ROCm/rocm-libraries, shared/origami/include/origami/hardware.hpp: "determined through microbenchmarking", TB/s of L2, MALL, HBM;
  [P] ROCm/rocprofiler-compute's roofline.csv of one MI200 die;  [C] Chips and Cheese, "Latency Testing is Hard" (7900 XTX);
  [R] gpu-roofline: the clock of an MI300X under streams with 0.25 to 253 float32 operations a byte, 750 W; rocm-libraries issue 9453: MI210's SGEMM of 8192;
  [F] ROCm blogs, "Measuring Max-Achievable FLOPs - Part 2": median clocks under hipBLASLt's largest products, 94 % of the pipes' time busy;
  [L] gpu-small-kernels on an MI210: launches back to back in one stream; [H] this project's own measurement on one H200;
  [W] WMMA in a loop of its own: hipfire (float16 on gfx1201, 170.6 TFLOP/s), strix-halo-vulkan on a Radeon 8060S (55.5 TFLOP/s float16 and int8, DRAM
      236 GB/s, its last cache 805 copied);
  [M] MFMA in a loop of its own on an MI350X, by rocprofiler-compute: 1.8, 2.0 PFLOP/s, 4.2 POP/s of float16, bfloat16, int8 (rocm-systems 3837; peak 2.3, 2.3, 4.6);
  [I] C2SM/icon4py's profiles of an MI300A: 3,668 GB/s, of which its stencils reach 3,462;
  [J] ROCm's rocjitsu, configs/gfx1250_mi455x.json: units, dies, caches, memory of an MI455X; AMD announced 19.6 TB/s, and 20 PFLOP/s of 8-bit floats, which the
      cycles of [O] make at 2,400 MHz;
  [D] gpu-l2-stream, arrays that an L2 holds, 8 bytes a thread: MI300A 5,966 GB/s at 2,097 MHz, MI210 1,656, MI100 1,226, RX 6900 XT 1,718.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ..records import dataclass
from .chips import CHIPS, KB, Chip
from .fitted import fitted

MB, GB = KB * KB, KB * KB * KB


@dataclass(frozen=True, slots=True)
class Level:
    """One level of memory. Each instance holds `size_bytes` and serves `units` units; `gbps` is what all instances give together to all units."""

    name: str
    size_bytes: int
    units: int = 1
    gbps: float | None = None  # reached, or the peak where nothing was measured
    latency_ns: float | None = None  # of dependent loads
    line_bytes: int = 64


@dataclass(frozen=True, slots=True)
class Power:
    """The clock that a package's power allows, in GHz: clock^3 x (clocking + vector x share + matrix x share) = whole - memory x TB/s, a power of one
    what the package of reference has. Shares: of the time that the vector lanes (with two multiply-adds of float32 a lane) and the matrix pipes are busy."""

    whole: float
    clocking: float
    vector: float
    memory: float

    def matrix(self, mhz: float) -> float:
        """What a matrix pipe takes that lets the clock at `mhz` where the largest products keep it busy, whose operands come at `PRODUCT_TBPS`."""
        return ((self.whole - self.memory * PRODUCT_TBPS) / (mhz * 1e-3) ** 3 - self.clocking) / SUSTAINED

    def clock_mhz(self, vector: float, matrix: float, tbps: float) -> float:
        """`vector`, `matrix`: shares of time, the latter times what `matrix` says; `tbps`: from and to memory."""
        left = max(0.1 * self.whole, self.whole - self.memory * tbps)
        return float(1e3 * (left / (self.clocking + self.vector * vector + matrix)) ** (1 / 3))


SUSTAINED = 0.94  # [F]: of the matrix pipes' time, at the clocks that the machine table has
PRODUCT_TBPS = 0.25  # 8192 cubed in 16 bits reads and writes 0.4 GB, in 1.6 ms


@dataclass(frozen=True, slots=True)
class Machine:
    """One product. Rates in multiply-adds a clock of one unit; `levels` from the nearest cache to main memory.

    >>> machine = tec.target.find_product("MI300X")
    >>> machine.chip, machine.units
    ('gfx942', 304)
    """

    name: str
    chip: str  # LLVM's name
    units: int
    clock_mhz: int
    levels: tuple[Level, ...]
    memory_gbps: float  # peak of main memory
    memory_bytes: int
    vector_macs: Mapping[str, int] = field(hash=False)
    matrix_macs: Mapping[str, int] = field(default_factory=dict, hash=False)
    # MHz held under matrix work by operands' type, where it was measured.
    matrix_clocks: Mapping[str, int] = field(default_factory=dict, hash=False)
    launch_us: float = 0.0  # from one launch to the next in a stream; NVIDIA's in a captured graph, as networks run
    # Of a load under way with as many others as memory's rate needs; 0 where it was not measured.
    queued_ns: float = 0.0
    dies: int = 1  # that work-groups are dealt to in turn, each with an L2 of its own
    scratch_bytes_a_clock: int = 0  # of a unit's shared memory
    unit_share: float = 1.0  # of the memory's bandwidth, that one unit alone reaches
    power: Power | None = None  # where clocks under power were measured
    waves_a_clock: float = 0.0  # that a die starts; 0 where it is not known
    # What no source gives of this product, and stands here by another's: its times are shown as assumed.
    assumed: str = ""
    groups_a_clock: float = 0.0  # work-groups that the machine starts; 0 where it is not known
    published: float = 0.0  # of the matrix pipes' peak that the best published product sustains; 0 where nobody looked
    # By what clock `choices.cost.price` was held to rank candidates for this machine; "" where none was.
    judged: str = ""

    @property
    def memory(self) -> Level:
        """Main memory."""
        return self.levels[-1]

    def level(self, name: str) -> Level | None:
        """The level of that name ("L1", "L2", "L3", "MALL", "memory"), or None."""
        return next((x for x in self.levels if x.name == name), None)

    @property
    def clock_hz(self) -> float:
        return self.clock_mhz * 1e6

    @property
    def launch_seconds(self) -> float:
        """See `launch_us`."""
        return self.launch_us * 1e-6

    @property
    def reached_gbps(self) -> float:
        """What main memory gives: as it was measured, else its peak."""
        return self.memory.gbps or self.memory_gbps

    @property
    def priced_by_model(self) -> bool:
        """Whether prices for it stand on what a dependent load takes of each level (`latency_ns`), as the software GPU's time model does: an AMD GPU. Those of other GPUs were
        fitted to clocks."""
        return self.chip in CHIPS and CHIPS[self.chip].family[:4] in _LIKE_NS

    def matrix_clock(self, dtype: str) -> int | None:
        """MHz that the machine holds under matrix work of `dtype`; None where it was not measured, or holds its peak."""
        return self.matrix_clocks.get(dtype)

    def held_mhz(self, dtype: str, matrix: float, vector: float = 0.0, tbps: float = 0.0) -> float:
        """The clock under work that keeps the matrix pipes (of `dtype`) and the vector lanes busy for such shares of its time, and moves `tbps` TB/s.

        Where only the clock under large products is known, u f^3 is what it is there, the power of a circuit whose voltage follows its clock."""
        known = self.matrix_clock(dtype)
        mhz = float(self.clock_mhz)
        if self.power is not None:
            of = self.power.matrix(known) if known else 0.0
            mhz = self.power.clock_mhz(vector, of * matrix, tbps)
        elif known and matrix:
            mhz = known * (SUSTAINED / matrix) ** (1 / 3)
        return min(float(self.clock_mhz), mhz)

    def macs(self, dtype: str, matrix: bool = True) -> int:
        """Multiply-adds of `dtype` that one unit does in a clock: the matrix unit's where it takes the type, else the vector units'; those of
        float32 where the table has no figure for the type."""
        found = self.matrix_macs.get(dtype.partition("_")[0]) if matrix else None  # "float8" of either form
        return found or self.vector_macs.get(dtype) or self.vector_macs["float32"]

    def peak_tflops(self, dtype: str, matrix: bool = True) -> float:
        """10^12 operations a second at the peak clock, a multiply-add counted as two."""
        return 2e-6 * self.macs(dtype, matrix) * self.units * self.clock_mhz


# [L]: 64 KiB at 31 GB/s, launch after launch, are 2.11 us, of which 0.4 are the kernel's (arguments, then data from the L2, then waves' starts, by the latencies below).
# That size is none of those that judge the time model.
AMD_LAUNCH_US = 1.7
NVIDIA_LAUNCH_US = 1.6  # [H]: a kernel more in a captured graph, 1.2 to 1.9 by the fit of 946 timed drafts
# [H]: rows of 64 by work-groups of 32 to 256 threads, 61,856 to 7,732 of them, 39.7 to 8.8 us; copies by 751,275 of 64 threads, 454 us: 0.53 to 0.60 ns each.
NVIDIA_GROUPS_A_CLOCK = 1.0
NVIDIA_QUEUED_NS = 600.0  # [H]: sums of 2^28 float32 by 256 to 4,096 parts, 0.301 to 0.244 ms


def _amd(
    name: str, chip: str, units: int, mhz: int, memory: float, gbps: float, *,
    l1: int = 16, l2: float, mall: float = 0, dies: int = 1,
    reached: tuple[float | None, ...] = (None, None, None, None), ns: tuple[float | None, ...] = (None, None, None, None),
    matrix_mhz: Mapping[str, int] | None = None, power: Power | None = None, assumed: str = "",
) -> Machine:  # fmt: skip
    """memory in GB, gbps its peak, l1 in KB a unit, l2 in MB a die, mall in MB. `reached` GB/s and `ns` of (L1, L2, MALL, memory)."""
    arch = CHIPS[chip]
    # An L1 gives a line's width a clock: 64 bytes up to CDNA 3 (60 to 61 measured [G]), the RDNA ISA manuals' 128 bytes else.
    width = 128 if arch.family.startswith(("rdna", "cdna5")) else 64
    line = 128 if arch.family in ("cdna3", "cdna4", "cdna5") or arch.family.startswith("rdna") else 64
    first = reached[0] or width * units * mhz * 1e-3
    levels = [
        Level("L1", l1 * KB, 1, first, ns[0], line),
        Level("L2", int(l2 * MB), units // dies, reached[1], ns[1], 128),
        Level("MALL", int(mall * MB), units, reached[2], ns[2], 64),
        Level("memory", int(memory * GB), units, reached[3] or gbps, ns[3], 64),
    ]
    return Machine(
        name, chip, units, mhz, tuple(x for x in levels if x.size_bytes), gbps, int(memory * GB), arch.vector_macs, arch.matrix_macs,
        matrix_mhz or {}, AMD_LAUNCH_US, 0.0, dies, arch.lds_bytes_a_clock, _UNIT_SHARE.get(chip, 1.0), power, _WAVES_A_CLOCK.get(arch.family, 0.0),
        assumed, published=_PUBLISHED.get(name, 0.0),
    )  # fmt: skip


# hipBLASLt's float8 8192 cubed, 3,328 TFLOP/s; bfloat16 1,611, 0.64 (HipKittens' tables, `benchmarks/amd_rows`). Above it nothing says what clock the power of a product leaves.
_PUBLISHED = {"MI355X": 0.66}
# [O], "mem_bw_per_wg": of the memory's bandwidth, what each work-group at work adds.
_UNIT_SHARE = {"gfx90a": 0.03, "gfx942": 0.015, "gfx950": 0.0345, "gfx1100": 0.11, "gfx1151": 0.22, "gfx1201": 0.17}
# [D], of a die, the clocks as above; other generations as the nearest.
_WAVES_A_CLOCK = {"cdna1": 1.6, "cdna2": 1.9, "cdna3": 0.93, "cdna4": 0.93, "rdna2": 2.8, "rdna3": 2.8, "rdna4": 2.8}
_MI210_NS = (73.6, 143.5, None, 337.3)  # [G]: 125, 236 to 252, 570 to 580 clocks at 1700 MHz
_MI300_NS = (57.0, 102.0, 218.0, 425.0)  # [G]: 119, 213, 457, 880 clocks at 2092 MHz
# [F], 8-bit integers as 8-bit floats; float32 [R], on the vector units
_MI300X_MHZ = {"float16": 1115, "bfloat16": 1207, "float8": 1230, "int8": 1230, "float32": 1400}
_MI325X_MHZ = {"float16": 1354, "bfloat16": 1447, "float8": 1464, "int8": 1464}
_MI200_GBPS = (10_600.0, 5_100.0, None, 1_388.8)  # [G] L1 and L2, [P] memory
# [G] L1, L2 and the read stream, [O] MALL. L2: all units read the same data, 128 kB to 3.4 MB, 27 to 28 TB/s at 2100 MHz, of a peak of 34.4 (16 channels a die of
# 128 bytes a clock). [O] has 17, without the clock at which it was read; at the clocks that matrix work leaves, [G]'s figure comes to the same.
# By least squares over the 55 clocks of [R] (5.5 % from them on the mean): of 750 W, a TB/s of memory takes 22 %.
_MI300X_POWER = Power(1.0, 0.049, 0.447, 0.218)
_MI325X_POWER = Power(1000 / 750, 0.049, 0.447, 0.218)  # the same dies, 1000 W
# [M]: over 2,048 and 4,096 multiply-adds a clock of 256 units.
_MI350X_MHZ = {"float16": 1717, "bfloat16": 1907, "float8": 2003, "int8": 2003}
# The same dies, 1,400 W for 1,000. In products operands come from memory, caches and LDS as well, which takes power too: what an MI355X holds there of what a loop alone holds is
# fitted in bfloat16, and taken for the other types.
_IN_PRODUCTS = fitted("MI355X bfloat16 clock") / (_MI350X_MHZ["bfloat16"] * (1400 / 1000) ** (1 / 3))
_MI355X_MHZ = {k: round(v * (1400 / 1000) ** (1 / 3) * _IN_PRODUCTS) for k, v in _MI350X_MHZ.items()} | {
    "float4": round(fitted("MI355X float4 clock"))
}
_WMMA_4 = {"float16": 2603, "bfloat16": 2603}  # [W]: 170.6 TFLOP/s of 64 units
_WMMA_35 = {"float16": 2710, "bfloat16": 2710, "int8": 2710}  # [W]: 55.5 of 40 units
_MI300_GBPS = (38_800.0, 27_000.0, 7_310.0, 4_200.0)
_MI455X_ASSUMED = (
    "latencies and the L2's bandwidth are MI300X's, by units and clock; memory and clock at their peaks; the L1's width is RDNA's; waves start without delay; "
    "multiply-adds of the vector units in a clock are MI300X's in float32 and float64 (128, 64), RDNA's in float16 (256)"
)
_MI355X_NS = (None, None, fitted("MI355X last cache latency"), fitted("MI355X memory latency"))
# [O], taken to be at the highest clock: 28 bytes a clock of each unit. The fastest of AMD's kernels, whose tiles live off the L2, take 14.4 TB/s from it at the clocks that power leaves them.
_MI350_L2 = 17_000.0 / 2400  # a megahertz
_MI350_MALL = fitted("MI355X last cache")

# The first of each chip is what `-mcpu=gfx...` stands for.
_AMD = (
    _amd("MI25", "gfx900", 64, 1500, 16, 484, l2=4),
    _amd("MI50", "gfx906", 60, 1725, 32, 1024, l2=4),
    _amd("MI60", "gfx906", 64, 1800, 32, 1024, l2=4),
    _amd("MI100", "gfx908", 120, 1502, 32, 1228.8, l2=8),
    _amd("MI250X", "gfx90a", 110, 1700, 64, 1638.4, l2=8, reached=_MI200_GBPS, ns=_MI210_NS),  # one of its two dies
    _amd("MI210", "gfx90a", 104, 1700, 64, 1638.4, l2=8, reached=_MI200_GBPS, ns=_MI210_NS, matrix_mhz={"float32": 1635}),  # [R]
    _amd("MI250", "gfx90a", 104, 1700, 64, 1638.4, l2=8, reached=_MI200_GBPS, ns=_MI210_NS),  # one die
    _amd("MI300X", "gfx942", 304, 2100, 192, 5300, l1=32, l2=4, mall=256, dies=8, reached=_MI300_GBPS, ns=_MI300_NS, matrix_mhz=_MI300X_MHZ,
         power=_MI300X_POWER),
    # Four dies of twenty units. Clock and memory: `fitted`. The MALL is MI300X's: it lies on the dies below, whose clock is their own, and all that memory gives goes through it.
    _amd("MI308X", "gfx942", 80, int(fitted("MI308X clock")), 192, 5300, l1=32, l2=4, mall=256, dies=4,
         reached=(None, 27_000.0 * 80 / 304 * fitted("MI308X clock") / 2100, 7_310.0, fitted("MI308X memory")), ns=_MI300_NS),
    _amd("MI300A", "gfx942", 228, 2100, 128, 5300, l1=32, l2=4, mall=256, dies=6, reached=(None, None, None, 3_668.0), ns=(57.0, 101.0, None, 392.0)),  # [I]; [G]: 813 to 830 clocks
    # Its memory reads 4287 GB/s in ROCm's validation tests.
    _amd("MI325X", "gfx942", 304, 2100, 256, 6000, l1=32, l2=4, mall=256, dies=8, reached=(38_800.0, 27_000.0, 7_310.0, 4_287.0), ns=_MI300_NS, matrix_mhz=_MI325X_MHZ,
         power=_MI325X_POWER),
    _amd("MI355X", "gfx950", 256, 2400, 288, 8000, l1=32, l2=4, mall=256, dies=8, reached=(None, _MI350_L2 * 2400, _MI350_MALL, 6_000.0), ns=_MI355X_NS, matrix_mhz=_MI355X_MHZ),  # [O]
    _amd("MI350X", "gfx950", 256, 2200, 288, 8000, l1=32, l2=4, mall=256, dies=8, reached=(None, _MI350_L2 * 2200, _MI350_MALL, 6_000.0), ns=_MI355X_NS, matrix_mhz=_MI350X_MHZ),  # [O]
    _amd("MI455X", "gfx1250", 256, 2400, 432, 19_600, l1=64, l2=24, dies=8, assumed=_MI455X_ASSUMED),  # [J]
    _amd("RX 6900 XT", "gfx1030", 80, 2250, 16, 512, l2=4, mall=128, ns=(28.5, 85.9, 162.5, None)),  # [G]: 73, 220, 416 clocks at 2560 MHz
    _amd("RX 6800 XT", "gfx1030", 72, 2250, 16, 512, l2=4, mall=128),
    _amd("RX 7900 XTX", "gfx1100", 96, 2500, 24, 960, l1=32, l2=6, mall=96, reached=(None, 7_120.0, 4_240.0, 732.0), ns=(None, None, 150.3, None)),
    _amd("RX 7900 XT", "gfx1100", 84, 2400, 20, 800, l1=32, l2=6, mall=80),
    _amd("RX 7900 GRE", "gfx1100", 80, 2245, 16, 576, l1=32, l2=6, mall=64),
    _amd("PRO W7900", "gfx1100", 96, 2495, 48, 864, l1=32, l2=6, mall=96),
    _amd("RX 7800 XT", "gfx1101", 60, 2430, 16, 624.1, l1=32, l2=4, mall=64),
    _amd("RX 7600", "gfx1102", 32, 2655, 8, 288, l1=32, l2=2, mall=32),
    _amd("Radeon 780M", "gfx1103", 12, 2700, 16, 89.6, l1=32, l2=2),  # with DDR5-5600, of which it takes half
    _amd("Radeon 890M", "gfx1150", 16, 2900, 16, 120, l1=32, l2=2),  # with LPDDR5X-7500
    _amd("Radeon 8060S", "gfx1151", 40, 2900, 32, 256, l1=32, l2=2, mall=32, reached=(None, 2_470.0, 1_130.0, 215.0), matrix_mhz=_WMMA_35),  # [O]; Strix Halo
    _amd("RX 9060 XT", "gfx1200", 32, 3130, 16, 322, l1=32, l2=4, mall=32, reached=(None, 3_280.0, 1_770.0, 280.0)),  # [O]
    _amd("RX 9070 XT", "gfx1201", 64, 2970, 16, 645, l1=32, l2=8, mall=64, reached=(None, 5_740.0, 2_940.0, 464.0), matrix_mhz=_WMMA_4),  # [O]
    _amd("RX 9070", "gfx1201", 56, 2520, 16, 645, l1=32, l2=8, mall=64),
    _amd("AI PRO R9700", "gfx1201", 64, 2920, 32, 645, l1=32, l2=8, mall=64),
)  # fmt: skip


def _nvidia(
    name: str, sm: int, units: int, mhz: int, memory: float, gbps: float, l1: int, l2: float, *, l2_gbps: float | None = None,
    reached: float | None = None, half: bool = False,
) -> Machine:  # fmt: skip
    """memory in GB, gbps its peak, l1 in KB (shared memory comes out of it), l2 in MB. `half`: sums of float32 at half the matrix rate."""
    arch = CHIPS[f"sm_{sm}"]
    matrix = {k: v // 2 if half and k in ("float16", "bfloat16", "tf32") else v for k, v in arch.matrix_macs.items()}
    # 128 bytes a clock of each multiprocessor (CUDA's tuning guides), 64 on Turing.
    levels = (
        Level("L1", l1 * KB, 1, (64 if sm == 75 else 128) * units * mhz * 1e-3, None, 128),
        Level("L2", int(l2 * MB), units, l2_gbps, None, 128),
        Level("memory", int(memory * GB), units, reached or gbps, None, 64),
    )
    return Machine(
        name, arch.name, units, mhz, levels, gbps, int(memory * GB), arch.vector_macs, matrix, {}, NVIDIA_LAUNCH_US, NVIDIA_QUEUED_NS, 1,
        arch.lds_bytes_a_clock, groups_a_clock=NVIDIA_GROUPS_A_CLOCK, judged="benchmarks/regret.py on an H200",
    )  # fmt: skip


_NVIDIA = (
    _nvidia("V100", 70, 80, 1530, 16, 900, 128, 6),
    _nvidia("Xavier", 72, 8, 1377, 32, 137, 128, 0.5),
    _nvidia("T4", 75, 40, 1590, 16, 320, 96, 4),
    _nvidia("A100", 80, 108, 1410, 80, 2039, 192, 40),
    _nvidia("A40", 86, 84, 1740, 48, 696, 128, 6),
    _nvidia("RTX 3090", 86, 82, 1695, 24, 936, 128, 6, half=True),
    _nvidia("AGX Orin", 87, 16, 1300, 64, 204.8, 192, 4),
    _nvidia("L40S", 89, 142, 2520, 48, 864, 128, 96),
    _nvidia("RTX 4090", 89, 128, 2520, 24, 1008, 128, 72, half=True),
    _nvidia("H100", 90, 132, 1830, 80, 3350, 256, 50),
    _nvidia("H200", 90, 132, 1830, 141, 4800, 256, 50, reached=4110),  # [H]: a copy of 2^28 float32
    _nvidia("B200", 100, 148, 1850, 180, 8000, 256, 126),
    _nvidia("Jetson Thor", 101, 20, 1575, 128, 273, 256, 32),
    _nvidia("B300", 103, 148, 1850, 288, 8000, 256, 126),
    _nvidia("RTX PRO 6000", 120, 188, 2617, 96, 1792, 128, 128),
    _nvidia("RTX 5090", 120, 170, 2407, 32, 1792, 128, 96, half=True),
    _nvidia("GB10", 121, 48, 2500, 128, 273, 128, 24),
)  # fmt: skip


def product_key(name: str) -> str:
    """A product's name as it is given in a target: "RX 7900 XTX" -> "7900xtx", "MI300X" -> "mi300x"."""
    words = [w for w in name.lower().split() if w not in ("rx", "radeon", "pro", "ai", "rtx")]
    return "".join(words) if any(c.isalpha() for w in words for c in w) else name.lower().replace(" ", "")


MACHINES: dict[str, Machine] = {product_key(m.name): m for m in (*_AMD, *_NVIDIA)}
_ALSO = {"strixhalo": "8060s", "h100sxm": "h100", "a10080gb": "a100"}  # other names that products go by


def find_product(name: str) -> Machine | None:
    """The GPU that goes by a name, in any case, with or without "rx", spaces and dashes; None where the table has none.

    >>> tec.target.find_product("RX 7900 XTX").chip
    'gfx1100'
    """
    key = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    short = key.removeprefix("radeon").removeprefix("rx")
    found = (_ALSO.get(k, k) for k in (key, short, "rx" + short, "rtx" + key))
    return next((MACHINES[k] for k in found if k in MACHINES), None)


def product_of_device(name: str) -> Machine | None:
    """The product that a driver's name for a device means, "NVIDIA A100-SXM4-80GB" -> A100: the longest run of its words that names one.

    >>> tec.target.product_of_device("NVIDIA A100-SXM4-80GB").name
    'A100'
    """
    words = name.lower().replace("-", " ").split()
    runs = ("".join(words[i : i + n]) for n in range(len(words), 0, -1) for i in range(len(words) - n + 1))
    return next((m for m in map(find_product, runs) if m is not None), None)


def machine_of_chip(chip: Chip) -> Machine:
    """The product that a chip's name stands for; of one that the table has none for, the last of its family's, or its kind's.

    >>> tec.target.machine_of_chip(tec.target.CHIPS["gfx942"]).name
    'MI300X'
    """
    name = chip.name.removesuffix("a") if chip.family == "sm" else chip.name  # sm_90a is sm_90's product
    for m in MACHINES.values():
        if m.chip == name:
            return m
    like = [m for m in MACHINES.values() if CHIPS[m.chip].family == chip.family] or [MACHINES["mi300x"]]
    return like[-1]


# Whose figures stand for a level that a machine has, and no source measured on it: a GPU of its kind that has them. Bandwidths go with units and
# clock. RDNA's way from the last cache to memory is not known at all: taken to be as long as MI300X's.
_LIKE_NS = {"gcn": "mi300x", "cdna": "mi300x", "rdna": "rx6900xt"}
_LIKE_GBPS = {"cdna": "mi300x", "rdna": "rx7900xtx"}


def _like(m: Machine, table: Mapping[str, str]) -> Machine | None:
    name = table.get(CHIPS[m.chip].family[:4]) if m.chip in CHIPS else None
    return find_product(name) if name else None


def latency_ns(m: Machine, name: str) -> float:
    """Of dependent loads that a level of an AMD GPU serves; of a level that it has not, that of the level before it.

    >>> m = tec.target.find_product("mi300x")
    >>> tec.target.latency_ns(m, "L2") < tec.target.latency_ns(m, "memory")
    True
    """
    found, before = m.level(name), {"L2": "L1", "MALL": "L2", "memory": "MALL"}.get(name, "")
    if found is None:
        return latency_ns(m, before)
    if found.latency_ns is not None:
        return found.latency_ns
    like = _like(m, _LIKE_NS) or MACHINES["mi300x"]
    other = like.level(name)
    if other is not None and other.latency_ns is not None:
        return other.latency_ns
    step = {n: x.latency_ns or 0.0 for n in (name, before) if (x := MACHINES["mi300x"].level(n)) is not None}
    return latency_ns(m, before) + step[name] - step[before]


_L2_TIMES = 3.2  # an L2's rate over its memory's, on MI200 and MI300, for chips whose L2 nobody measured


def l2_gbps(m: Machine) -> float:
    """What the L2 gives to all units together, by its memory's rate where no source has it.

    >>> m = tec.target.find_product("mi300x")
    >>> tec.target.l2_gbps(m) > m.memory_gbps
    True
    """
    near = m.level("L2")
    return (near.gbps if near is not None else None) or _L2_TIMES * m.memory_gbps


def level_gbps(m: Machine, name: str) -> float:
    """What a level of an AMD GPU's memory gives to all units together.

    >>> m = tec.target.find_product("mi300x")
    >>> tec.target.level_gbps(m, "L2") > tec.target.level_gbps(m, "MALL")
    True
    """
    found = m.level(name)
    if found is not None and found.gbps is not None:
        return found.gbps
    like = _like(m, _LIKE_GBPS)
    other = like.level(name) if like is not None else None
    if name == "L2" and like is None:  # gfx900, gfx906: as prices have it
        return l2_gbps(m)
    if name == "memory" or like is None or other is None or other.gbps is None:
        return m.memory_gbps
    return other.gbps * m.units * m.clock_mhz / (like.units * like.clock_mhz)
