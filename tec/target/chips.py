"""Chips by their LLVM name: what a kernel may count on, and what one compute unit does in a clock. What a product adds (how many units, clocks,
memory) stands in `machines`.

Sources, by column. Limits, registers, wave slots, instructions: LLVM's AMDGPU usage guide and AMDGPUBaseInfo; AMD's ISA manuals (CDNA 1 to 4,
RDNA 2 to 4); NVIDIA's table of compute capabilities. `vector_macs`: vendors' peak rates over units and clock (CDNA 1 to 4 white papers; Vega,
RDNA product pages; the CUDA programming guide's table of instruction throughput). `matrix_macs`: MFMA and WMMA from the cycles in AMD's matrix
instruction calculator (CDNA4: ROCm's origami), times four units a compute unit of CDNA and two of RDNA; gem5's model from the same cycles is
within 1.5 % of MI200 and MI300 (arXiv 2501.18113); NVIDIA from the architectures' white papers, dense. LDS: rocprofiler-compute's pipeline
descriptions (32 banks of 4 bytes, 128 bytes a clock; gfx950's 64 banks and 256 bytes: HipKittens' measurements).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from ..records import dataclass

KB = 1024
MatrixShape = tuple[str, str, int, int, int, int]  # in dtype, accumulator dtype, m, n, k, blocks


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip or GPU generation; a "unit" is a compute unit or streaming multiprocessor.

    >>> chip = tec.target.CHIPS["gfx942"]
    >>> chip.family, chip.wavefront_sizes, chip.lds_bytes
    ('cdna3', (64,), 65536)
    """

    name: str
    family: str  # "gcn", "cdna1".."cdna5", "rdna2".."rdna4", "sm"
    wavefront_sizes: tuple[int, ...]  # the first is the default
    lds_bytes: int  # that a work-group may have
    max_threads: int = 1024  # of a work-group
    vgprs: int = 256  # 32-bit registers that a thread may have
    dot4: bool = False
    dot4_mixed: bool = False  # v_dot4_i32_iu8: signedness by operand
    dot2: bool = False
    async_lds: bool = False
    matrix: tuple[MatrixShape, ...] = ()
    scaled_matrix: tuple[tuple[int, int, int], ...] = ()  # m, n, k of its products of microscaling formats
    atomic_fadd: bool = False
    # Wgmma: in dtype, accumulator dtype, k; with it come bulk copies (TMA).
    warpgroup: tuple[tuple[str, str, int], ...] = ()
    early_start: bool = False  # a kernel's work-groups may come before the kernel ahead ends, and wait for that themselves (griddepcontrol)
    # ---- rates of one unit
    simds: int = 4  # vector units
    simd_lanes: int = 16  # lanes that a vector unit starts in a clock: a wave64 takes four clocks on 16
    vector_macs: Mapping[str, int] = field(default_factory=dict, hash=False)  # dtype -> multiply-adds a clock, packed
    matrix_macs: Mapping[str, int] = field(default_factory=dict, hash=False)  # dtype -> multiply-adds a clock
    # ---- occupancy
    waves_a_simd: int = 8
    vgpr_file: int = 512  # registers a lane of a vector unit, for wavefronts of the default size
    vgpr_granule: int = 8  # in which they are given out, likewise
    # ---- shared memory
    lds_bytes_a_clock: int = 128
    lds_banks: int = 32  # of 4 bytes
    unit_lds_bytes: int = 0  # that a unit has for all its work-groups
    # Clocks from an access that meets no other to its data, LLVM's SISchedule.td: GCN and CDNA "between 2 and 64", RDNA 20.
    lds_latency: int = 64
    # ---- how a launch begins (AMDGPU usage guide, initial kernel execution state)
    packed_ids: bool = True  # work-item ids packed in v0
    ttmp_ids: bool = False  # work-group ids in ttmp7 and ttmp9
    architected_scratch: bool = True

    @property
    def loads_lds_by_16(self) -> bool:
        """Whether lanes load 16 bytes each straight into shared memory (LLVM's "lds-dma" of CDNA 4; CDNA 3's load 4)."""
        return self.family == "cdna4"

    @property
    def narrows_bf16(self) -> bool:
        """Whether one instruction makes bfloat16 of float32 (v_cvt_pk_bf16_f32 of gfx950 and gfx1250, cvt of NVIDIA's)."""
        return self.family in ("cdna4", "cdna5", "sm")

    @property
    def loads_anywhere(self) -> bool:
        """Whether a load of several elements may begin at any element: amdhsa turns unaligned access on (LLVM's "unaligned-access-mode")."""
        return self.family not in ("sm", "cpu")

    @property
    def adds_runs(self) -> bool:
        """Whether one atomic addition takes 16 bytes of neighbours in global memory: from sm_90 on (PTX ISA, "red"), as `early_start` is."""
        return self.early_start

    @property
    def background_copies(self) -> bool:
        """Whether copies into shared memory run by themselves, in groups that a thread waits for (cp.async)."""
        return self.family == "sm" and self.async_lds

    @property
    def counts_loads(self) -> bool:
        """Whether a wavefront waits for loads by their count, in the order that it asked for them (s_waitcnt), so that a program's order of loads and sums counts."""
        return self.family not in ("sm", "cpu")

    def registers(self, wave: int) -> tuple[int, int]:
        """(registers a lane of a vector unit, granule) for wavefronts of `wave` lanes: twice as wide, half as many."""
        times = wave // self.wavefront_sizes[0]
        return self.vgpr_file // times, self.vgpr_granule // times

    def occupancy(self, vgprs: int, lds_bytes: int, group_waves: int, wave: int) -> tuple[int, str]:
        """Waves of a vector unit at once, and what limits them: "waves" (the slots), "VGPRs" or "LDS".

        vgprs: of a thread, accumulation registers included; lds_bytes: of a work-group of `group_waves` wavefronts of `wave` lanes.
        """
        waves, limit = self.waves_a_simd, "waves"
        total, granule = self.registers(wave)
        by_registers = total // (-(-max(1, vgprs) // granule) * granule)
        if by_registers < waves:
            waves, limit = by_registers, "VGPRs"
        if lds_bytes:
            groups = self.unit_lds_bytes // lds_bytes
            by_lds = groups * group_waves // self.simds or min(groups, 1)
            if by_lds < waves:
                waves, limit = by_lds, "LDS"
        return waves, limit


def _mfma(dtype: str, *shapes: tuple[int, ...]) -> tuple[MatrixShape, ...]:
    acc = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
    return tuple((dtype, acc, s[0], s[1], s[2], s[3] if len(s) > 3 else 1) for s in shapes)


_F32 = _mfma("float32", (32, 32, 2), (16, 16, 4), (4, 4, 1, 16))
_F16 = _mfma("float16", (32, 32, 8), (16, 16, 16), (4, 4, 4, 16))
_BF16_1K = _mfma("bfloat16", (32, 32, 8), (16, 16, 16), (4, 4, 4, 16))
_F64 = _mfma("float64", (16, 16, 4))
_I8 = _mfma("int8", (32, 32, 8), (16, 16, 16))
_COMMON3 = _F32 + _F16 + _BF16_1K + _F64 + _mfma("int8", (32, 32, 16), (16, 16, 32))
_CDNA3 = (
    _COMMON3
    + _mfma("float8_e4m3fnuz", (32, 32, 16), (16, 16, 32))
    + _mfma("float8_e5m2fnuz", (32, 32, 16), (16, 16, 32))
)
_F8_SHAPES = (32, 32, 64), (16, 16, 128), (32, 32, 16), (16, 16, 32)  # the first two run at twice the rate
_CDNA4 = (
    _COMMON3
    + _mfma("float8_e4m3", *_F8_SHAPES)
    + _mfma("float8_e5m2", *_F8_SHAPES)
    + _mfma("float16", (32, 32, 16), (16, 16, 32))
    + _mfma("bfloat16", (32, 32, 16), (16, 16, 32))
    + _mfma("int8", (32, 32, 32), (16, 16, 64))
)
_WMMA = tuple((t, a, 16, 16, 16, 1) for t, a in (("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32")))
_MMA_SYNC = (
    ("float16", "float32", 16, 8, 16, 1),
    ("bfloat16", "float32", 16, 8, 16, 1),
    ("int8", "int32", 16, 8, 32, 1),
    ("tf32", "float32", 16, 8, 8, 1),  # float32 storage, of which the unit takes 19 bits
)


def rates(
    f64: int = 0, f32: int = 0, f16: int = 0, bf16: int = 0, i8: int = 0, f8: int = 0, tf32: int = 0
) -> dict[str, int]:
    """{dtype: multiply-adds a clock of a unit}, without those that there are none of."""
    named = {"float64": f64, "float32": f32, "float16": f16, "bfloat16": bf16, "int8": i8, "float8": f8, "tf32": tf32}
    return {k: v for k, v in named.items() if v}


def _gfx9() -> list[Chip]:
    gcn: dict[str, Any] = {
        "waves_a_simd": 10,
        "vgpr_file": 256,
        "vgpr_granule": 4,
        "architected_scratch": False,
        "packed_ids": False,
    }
    cdna: dict[str, Any] = {"dot4": True, "dot2": True, "atomic_fadd": True, "vgprs": 512}
    wave, lds = (64,), 64 * KB
    return [
        Chip("gfx900", "gcn", wave, lds, vector_macs=rates(4, 64, 128), unit_lds_bytes=lds, **gcn),
        Chip("gfx906", "gcn", wave, lds, dot4=True, dot2=True, vector_macs=rates(32, 64, 128), unit_lds_bytes=lds, **gcn),
        Chip(
            "gfx908", "cdna1", wave, lds, **cdna, **gcn, unit_lds_bytes=lds,
            matrix=_F32 + _F16 + _mfma("bfloat16", (32, 32, 4), (16, 16, 8)) + _I8,
            vector_macs=rates(32, 64, 128), matrix_macs=rates(0, 128, 512, 256, 512),
        ),
        Chip(
            "gfx90a", "cdna2", wave, lds, **cdna, unit_lds_bytes=lds, architected_scratch=False,
            matrix=_F32 + _F16 + _BF16_1K + _I8 + _F64,
            vector_macs=rates(64, 128, 128), matrix_macs=rates(128, 128, 512, 512, 512),
        ),
        Chip(
            "gfx942", "cdna3", wave, lds, **cdna, unit_lds_bytes=lds, async_lds=True, matrix=_CDNA3,
            vector_macs=rates(64, 128, 128), matrix_macs=rates(128, 128, 1024, 1024, 2048, 2048, tf32=512),
        ),
        Chip(
            "gfx950", "cdna4", wave, 160 * KB, **cdna, unit_lds_bytes=160 * KB, async_lds=True, matrix=_CDNA4,
            vector_macs=rates(64, 128, 128), matrix_macs=rates(64, 128, 2048, 2048, 4096, 4096),
            lds_banks=64, lds_bytes_a_clock=256, scaled_matrix=_F8_SHAPES[1::-1],
        ),
    ]  # fmt: skip


_LARGE_FILE = ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")  # 1,536 registers a lane in place of 1,024


def _rdna() -> list[Chip]:
    def chip(name: str, family: str, **more: Any) -> Chip:
        large = name in _LARGE_FILE
        fields: dict[str, Any] = {
            "dot4": True, "dot2": True, "simds": 2, "simd_lanes": 32, "waves_a_simd": 16, "vgpr_file": 1536 if large else 1024,
            "vgpr_granule": 24 if large else 16, "unit_lds_bytes": 64 * KB, "lds_latency": 20, **more,
        }  # fmt: skip
        return Chip(name, family, (32, 64), 64 * KB, **fields)

    matrix: dict[str, Any] = {"dot4_mixed": True, "matrix": _WMMA, "atomic_fadd": True}
    rdna3 = {**matrix, "vector_macs": rates(2, 128, 256), "matrix_macs": rates(0, 0, 256, 256, 256)}
    rdna4 = {
        **matrix,
        "matrix": _WMMA + tuple((t, "float32", 16, 16, 16, 1) for t in ("float8_e4m3", "float8_e5m2")),
        "vector_macs": rates(2, 128, 256),
        "matrix_macs": rates(0, 0, 512, 512, 1024, 1024),
    }
    return [
        chip("gfx1030", "rdna2", vector_macs=rates(4, 64, 128), packed_ids=False, architected_scratch=False),
        *[chip(f"gfx{n}", "rdna3", **rdna3) for n in (1100, 1101, 1102, 1103, 1150, 1151)],
        *[chip(f"gfx{n}", "rdna4", ttmp_ids=True, **rdna4) for n in (1200, 1201)],
    ]


def _cdna5() -> Chip:
    """MI400's generation: RDNA 4's instructions in wavefronts of 32 alone, on units of four SIMDs, with CDNA's matrix rates.

    Registers, slots and LDS are LLVM 22's (occupancy of kernels by registers and LDS); the layout of a unit is ROCm's rocjitsu's (gfx1250_mi455x.json).
    """
    shapes = {
        "float32": (4,),
        "float16": (32,),
        "bfloat16": (32,),
        "float8_e4m3": (128, 64),
        "float8_e5m2": (128, 64),
        "int8": (64,),
    }
    matrix = tuple(s for dtype, ks in shapes.items() for s in _mfma(dtype, *((16, 16, k) for k in ks)))
    return Chip(
        "gfx1250", "cdna5", (32,), 320 * KB, matrix=matrix, matrix_macs=rates(0, 256, 4096, 4096, 8192, 16384), vgprs=1024, dot4=True, dot4_mixed=True, atomic_fadd=True, simd_lanes=32, waves_a_simd=16,
        vgpr_file=1024, vgpr_granule=16, unit_lds_bytes=320 * KB, lds_latency=20, ttmp_ids=True, vector_macs=rates(64, 128, 256),
    )  # fmt: skip


# sm: (KB of shared memory for a work-group, for a multiprocessor, warps of a scheduler)
_SM_LIMITS = {
    70: (96, 96, 16), 72: (96, 96, 16), 75: (64, 64, 8), 80: (163, 164, 16), 86: (99, 100, 12), 87: (163, 164, 12), 89: (99, 100, 12),
    90: (227, 228, 16), 100: (227, 228, 16), 101: (227, 228, 16), 103: (227, 228, 16), 120: (99, 100, 12), 121: (99, 100, 12),
}  # fmt: skip
_VOLTA = rates(32, 64, 128), rates(f16=512)
_ADA = rates(2, 128, 128), rates(0, 0, 512, 512, 1024, tf32=256)
_BLACKWELL = rates(64, 128, 256), rates(64, 0, 4096, 4096, 8192, 8192, 2048)
_RTX = rates(2, 128, 128), rates(0, 0, 512, 512, 1024, 1024, 256)
_SM_RATES = {
    70: _VOLTA, 72: _VOLTA, 75: (rates(2, 64, 128), rates(f16=512, i8=1024)),
    80: (rates(32, 64, 256), rates(64, 0, 1024, 1024, 2048, tf32=512)), 86: _ADA, 87: (rates(2, 128, 128), rates(0, 0, 1024, 1024, 2048, tf32=512)),
    89: (_ADA[0], {**_ADA[1], "float8": 1024}), 90: (rates(64, 128, 256), rates(128, 0, 2048, 2048, 4096, 4096, 1024)),
    100: _BLACKWELL, 101: _BLACKWELL, 103: _BLACKWELL, 120: _RTX, 121: _RTX,
}  # fmt: skip


# PTX ISA, "wgmma.mma_async": m is 64, n any multiple of 8 up to 256.
_WGMMA = (
    ("float16", "float32", 16), ("bfloat16", "float32", 16), ("tf32", "float32", 8), ("int8", "int32", 32), ("float8_e4m3", "float32", 32),
    ("float8_e5m2", "float32", 32),
)  # fmt: skip


def _nvidia() -> list[Chip]:
    table = [
        Chip(
            f"sm_{sm}", "sm", (32,), group * KB, vgprs=255, dot4=True, async_lds=sm >= 80, matrix=_MMA_SYNC if sm >= 80 else (),
            atomic_fadd=True, simd_lanes=16 if sm <= 80 else 32, vector_macs=_SM_RATES[sm][0], matrix_macs=_SM_RATES[sm][1],
            waves_a_simd=warps, unit_lds_bytes=unit * KB, early_start=sm >= 90,
        )
        for sm, (group, unit, warps) in _SM_LIMITS.items()
    ]  # fmt: skip
    # What only this generation has: PTX made for sm_90a runs on no other.
    hopper = replace(next(c for c in table if c.name == "sm_90"), name="sm_90a", warpgroup=_WGMMA)
    return [*table, hopper]


CHIPS: dict[str, Chip] = {c.name: c for c in (*_gfx9(), *_rdna(), _cdna5(), *_nvidia())}


def chip_of_device(arch: str) -> str:
    """The chip to compile for on a device that calls itself `arch`: with what only this generation has, where it has such ("sm_90a" for "sm_90").

    >>> tec.target.chip_of_device("sm_90"), tec.target.chip_of_device("gfx942:sramecc+")
    ('sm_90a', 'gfx942')
    """
    name = arch.split(":")[0]
    return f"{name}a" if name.startswith("sm_") and f"{name}a" in CHIPS else name
