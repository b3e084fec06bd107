"""The chips that the emulator stands for: limits that a launch is held against, and figures for the time model.

Sources: AMD CDNA2, CDNA3 and RDNA3 white papers and product pages (MI210/MI250X, MI300X, MI355X, RX 7900 XTX, RX 9070 XT, RX 6900 XT);
per-compute-unit rates from the ISA manuals and the CDNA3 white paper's table of peak rates. `fma_lanes` counts f32 lanes
a compute unit starts in one clock; `matrix` gives multiply-adds a clock a compute unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip. Sizes in bytes, clock in MHz, bandwidth in GB/s."""

    name: str
    product: str
    compute_units: int
    lds_bytes: int
    wavefront_size: int
    memory_bytes: int
    clock_mhz: int
    memory_gbps: float
    simds: int = 4  # vector units a compute unit
    simd_lanes: int = 16  # lanes of one vector unit: a wave64 instruction takes 4 clocks on 16
    lds_bytes_per_clock: int = 128
    packed_ids: bool = True  # work-item ids packed in v0
    ttmp_ids: bool = False  # work-group ids in ttmp7 and ttmp9 (gfx12)
    architected_scratch: bool = True
    matrix: dict[str, int] = field(default_factory=dict)  # dtype -> multiply-adds a clock a compute unit


CHIPS: dict[str, Chip] = {
    c.name: c
    for c in (
        Chip("gfx90a", "MI250X (one die)", 110, 65536, 64, 64 << 30, 1700, 1638.0, architected_scratch=False,
             matrix={"f64": 128, "f32": 128, "f16": 512, "bf16": 512, "i8": 512}),
        Chip("gfx942", "MI300X", 304, 65536, 64, 192 << 30, 2100, 5300.0,
             matrix={"f64": 128, "f32": 128, "xf32": 512, "f16": 1024, "bf16": 1024, "i8": 2048, "f8": 2048}),
        Chip("gfx950", "MI355X", 256, 163840, 64, 288 << 30, 2400, 8000.0,
             matrix={"f64": 64, "f32": 128, "f16": 2048, "bf16": 2048, "i8": 4096, "f8": 4096}),
        Chip("gfx1030", "RX 6900 XT", 80, 65536, 32, 16 << 30, 2250, 512.0, simds=2, simd_lanes=32, packed_ids=False,
             architected_scratch=False),
        Chip("gfx1100", "RX 7900 XTX", 96, 65536, 32, 24 << 30, 2500, 960.0, simds=2, simd_lanes=32,
             matrix={"f16": 256, "bf16": 256, "i8": 256}),
        Chip("gfx1151", "Radeon 8060S", 40, 65536, 32, 32 << 30, 2900, 256.0, simds=2, simd_lanes=32,
             matrix={"f16": 256, "bf16": 256, "i8": 256}),
        Chip("gfx1200", "RX 9060 XT", 32, 65536, 32, 16 << 30, 3130, 322.0, simds=2, simd_lanes=32, ttmp_ids=True,
             matrix={"f16": 512, "bf16": 512, "i8": 1024, "f8": 1024}),
        Chip("gfx1201", "RX 9070 XT", 64, 65536, 32, 16 << 30, 2970, 645.0, simds=2, simd_lanes=32, ttmp_ids=True,
             matrix={"f16": 512, "bf16": 512, "i8": 1024, "f8": 1024}),
    )
}  # fmt: skip
