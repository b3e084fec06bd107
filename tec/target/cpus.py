"""CPU cores: vector width, multiply-adds a clock, registers, caches; of this host as it says itself, of others by LLVM's name (-mcpu).

Sources: vector units and caches from the vendors' optimization guides (Intel's, AMD's for families 17h to 1Ah, Arm's for Neoverse N1, V1, V2) and
LLVM's scheduling models. Caches of the host come from /sys; what it does not say is the table's.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ..errors import TargetError, one_line
from ..records import dataclass
from .chips import KB
from .machines import GB, MB, Level, Machine

# Clocks from a parallel loop's beginning to its end on tec's waiting threads, beside its work: 2.7 us at 3 GHz; of a loop that follows another at once, whose
# threads still wait for it, less.
THREADS_START_CLOCKS, THREADS_AGAIN_CLOCKS = 8192, 3000


@dataclass(frozen=True, slots=True)
class Core:
    """A kind of core. `fma` counts whole vectors of `vector_bytes` that it multiplies and adds in a clock.

    >>> tec.Target("llvm -mcpu=znver4").core.vector_bytes
    64
    """

    name: str
    vector_bytes: int
    fma: float
    registers: int = 16  # vector registers
    l1_bytes: int = 32 * KB
    l2_bytes: int = 512 * KB  # of one core
    l3_bytes: int = 2 * MB  # a core's share
    clock_mhz: int = 3000
    # Types of the first operand that its vector units multiply and add in groups of 32 bits: "uint8" (by int8), "int8" (by int8), "int16", "bfloat16".
    dots: frozenset[str] = frozenset()
    tiles: frozenset[str] = frozenset()  # the same of its tile registers (AMX)


def _core(name: str, width: int, fma: float, registers: int, l1: int, l2: int, l3: float, dots: str = "", tiles: str = "") -> Core:  # fmt: skip
    made = Core(name, width, fma, registers, l1 * KB, l2 * KB, int(l3 * MB))
    return replace(made, dots=frozenset(dots.split()), tiles=frozenset(tiles.split()))


_TABLE = (
    _core("x86-64", 16, 1, 16, 32, 256, 2, "int16"),  # SSE2: a multiplication and an addition
    _core("x86-64-v3", 32, 2, 16, 32, 512, 2, "int16"),
    _core("x86-64-v4", 64, 1, 32, 32, 1024, 1.5, "int16"),  # one unit of 64 bytes is what all have
    _core("haswell", 32, 2, 16, 32, 256, 2, "int16"),
    _core("skylake", 32, 2, 16, 32, 256, 2, "int16"),
    _core("alderlake", 32, 2, 16, 48, 1280, 2.5, "int16 uint8"),
    _core("skylake-avx512", 64, 2, 32, 32, 1024, 1.375, "int16"),
    _core("icelake-server", 64, 2, 32, 48, 1280, 1.5, "int16 uint8"),
    _core("sapphirerapids", 64, 2, 32, 48, 2048, 1.875, "int16 uint8 bfloat16", "uint8 bfloat16"),
    _core("graniterapids", 64, 2, 32, 48, 2048, 4, "int16 uint8 bfloat16", "uint8 bfloat16"),
    _core("znver1", 32, 1, 16, 32, 512, 2, "int16"),  # units of 16 bytes
    _core("znver2", 32, 2, 16, 32, 512, 4, "int16"),
    _core("znver3", 32, 2, 16, 32, 512, 4, "int16"),
    _core("znver4", 64, 1, 32, 32, 1024, 4, "int16 uint8 bfloat16"),  # units of 32 bytes take two steps
    _core("znver5", 64, 2, 32, 48, 1024, 4, "int16 uint8 bfloat16"),
    _core("generic", 16, 2, 32, 64, 512, 1),  # AArch64, as Cortex-A72 and later
    # RV64GC: no vectors, an f64 a clock. LLVM takes vectors of 16 bytes apart; loops of that width keep the compiler's choices simple.
    _core("generic-rv64", 16, 0.5, 32, 32, 512, 1),
    _core("neoverse-n1", 16, 2, 32, 64, 1024, 1, "int8"),
    _core("neoverse-v1", 16, 4, 32, 64, 1024, 1, "int8 bfloat16"),
    _core("neoverse-v2", 16, 4, 32, 64, 2048, 1.5, "int8 bfloat16"),
    _core("apple-m1", 16, 4, 32, 128, 3072, 2, "int8"),
)
CORES: dict[str, Core] = {c.name: c for c in _TABLE}
# LLVM's other names for cores that are alike here.
_LIKE = {
    "x86-64-v2": "x86-64", "nehalem": "x86-64", "westmere": "x86-64", "sandybridge": "haswell", "ivybridge": "haswell", "core-avx2": "haswell",
    "broadwell": "haswell", "skx": "skylake-avx512", "cascadelake": "skylake-avx512", "cooperlake": "skylake-avx512", "cannonlake": "skylake-avx512",
    "icelake-client": "icelake-server", "icelake": "icelake-server", "rocketlake": "icelake-server", "tigerlake": "icelake-server",
    "emeraldrapids": "sapphirerapids", "sapphire": "sapphirerapids", "graniterapids-d": "graniterapids", "diamondrapids": "graniterapids",
    "raptorlake": "alderlake", "meteorlake": "alderlake", "arrowlake": "alderlake", "arrowlake-s": "alderlake", "lunarlake": "alderlake",
    "pantherlake": "alderlake", "gracemont": "alderlake", "sierraforest": "alderlake", "grandridge": "alderlake", "clearwaterforest": "alderlake",
    "neoverse-n2": "neoverse-n1", "neoverse-512tvb": "neoverse-v1", "grace": "neoverse-v2", "apple-m2": "apple-m1", "apple-m3": "apple-m1",
    "apple-m4": "apple-m1", "apple-latest": "apple-m1",
}  # fmt: skip


def core_named(mcpu: str) -> Core | None:
    """The core that LLVM calls so; None where the table has none."""
    return CORES.get(_LIKE.get(mcpu, mcpu))


def with_features(core: Core, features: str) -> Core:
    """The core with features switched on and off, as -mattr says it ("+avx512f,-avx2"): they decide the width of vectors."""
    flags: dict[str, bool] = {}
    for word in re.split(r"[\s,]+", features):
        flags[word.lstrip("+-")] = not word.startswith("-")
    width = core.vector_bytes
    if flags.get("avx512f"):
        width = 64
    elif (flags.get("avx") or flags.get("avx2")) and width < 32:
        width = 32
    if width == 64 and flags.get("avx512f") is False:
        width = 32
    if width >= 32 and (flags.get("avx") is False or flags.get("avx2") is False):
        width = 16
    dots, tiles = _dots_with(core.dots, flags), _types_with(core.tiles, flags, _TILES)
    core = replace(core, dots=dots, tiles=tiles)
    if width == core.vector_bytes:
        return core
    # As many bytes a clock as before, at least one vector.
    fma = max(1.0, core.fma * core.vector_bytes / width)
    return replace(core, vector_bytes=width, fma=fma, registers=32 if width == 64 else core.registers)


# Features, as LLVM and as Linux call them, that give a dot product.
_DOTS = {
    "sse2": "int16",
    "avx512vnni": "uint8", "avx512_vnni": "uint8", "avxvnni": "uint8", "avx_vnni": "uint8", "avx512bf16": "bfloat16", "avx512_bf16": "bfloat16",
    "dotprod": "int8", "asimddp": "int8", "bf16": "bfloat16",
}  # fmt: skip
_TILES = {"amx-int8": "uint8", "amx_int8": "uint8", "amx-bf16": "bfloat16", "amx_bf16": "bfloat16"}


def _dots_with(dots: frozenset[str], flags: Mapping[str, bool]) -> frozenset[str]:
    """Dot products after features went on and off. Without AVX-512 its forms go, and it is not known which cores have others."""
    if flags.get("avx512f") is False:
        dots -= {"uint8", "bfloat16"}
    return _types_with(dots, flags, _DOTS)


def _types_with(types: frozenset[str], flags: Mapping[str, bool], features: Mapping[str, str]) -> frozenset[str]:
    on, off = ({features[f] for f, is_on in flags.items() if f in features and is_on is way} for way in (True, False))
    return (types - off) | on


@lru_cache(maxsize=1)
def _cpuinfo() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo; empty where there is none."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                key, _, value = line.partition(":")
                if not line.strip() and found:
                    break
                found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    return found


# Linux's names of features that narrower cores lack, by the bytes of a vector from which on a core may have them.
_WIDER = {
    64: ("avx512", "amx_"),
    32: ("avx", "fma", "f16c", "bmi", "vaes", "vpclmulqdq"),
}


def host_stand_in() -> str:
    """The CPU, by LLVM's name, that this host is to be taken for: TEC_HOST_CPU; "" for what it is. Code for it runs on every host of
    that kind or better.

    Raises: TargetError: no CPU in the table is called so, or this host cannot run its code.
    """
    name = os.environ.get("TEC_HOST_CPU", "")
    if not name:
        return ""
    core = core_named(name)
    if core is None:
        raise TargetError(
            f"TEC_HOST_CPU names {one_line(name)!r}, which is no CPU that tec knows",
            hint=f"one of {', '.join(sorted({*CORES, *_LIKE}))}; or unset it",
            locate=False,
        )
    own = set(_cpuinfo().get("flags", "").split())
    width = 64 if "avx512f" in own else 32 if "avx2" in own else 16
    has = dict.fromkeys(own, True)
    dots, tiles = _types_with(frozenset(), has, _DOTS), _types_with(frozenset(), has, _TILES)
    if core.vector_bytes > width or not core.dots <= dots or not core.tiles <= tiles:
        raise TargetError(
            f"TEC_HOST_CPU={name} has vectors or dot products that this host lacks: its code would not run here",
            hint="compile for it with the target 'llvm -mcpu=" + name + "', or unset TEC_HOST_CPU",
            locate=False,
        )
    return name


@lru_cache(maxsize=1)
def host_features() -> str:
    """The host CPU's feature names, from /proc/cpuinfo where there is one (no LLVM needed); of a host that stands for a lesser CPU
    (`host_stand_in`), those that both have.

    >>> isinstance(tec.target.host_features(), str)
    True
    """
    info = _cpuinfo()
    found = info.get("flags") or info.get("Features")
    if found is None:
        return "neon" if platform.machine() in ("arm64", "aarch64") else ""
    core = core_named(host_stand_in())
    if core is None:
        return found
    missing = {f for f, kind in _DOTS.items() if kind not in core.dots}
    missing |= {f for f, kind in _TILES.items() if kind not in core.tiles}
    lacks = tuple(head for width, heads in _WIDER.items() if core.vector_bytes < width for head in heads)
    return " ".join(f for f in found.split() if not f.startswith(lacks) and f not in missing)


@lru_cache(maxsize=1)
def host_core() -> Core:
    """This host's core: its kind by family, model and features, its caches as the system says them.

    >>> tec.target.host_core().vector_bytes in (16, 32, 64)
    True
    """
    info, flags = _cpuinfo(), set(host_features().split())
    stand_in = core_named(host_stand_in())
    if stand_in is not None:
        core = stand_in
    elif platform.machine() in ("arm64", "aarch64"):
        # Main ID register's part numbers (Arm's technical reference manuals): N1, V1, V2.
        part = {"0xd0c": "neoverse-n1", "0xd40": "neoverse-v1", "0xd4f": "neoverse-v2"}.get(
            info.get("CPU part", ""), "generic"
        )
        core = CORES["apple-m1" if platform.system() == "Darwin" else part]
    elif info.get("vendor_id") == "AuthenticAMD" and int(info.get("cpu family", 0)) >= 23:
        family, wide = int(info["cpu family"]), "avx512f" in flags
        core = CORES[
            "znver5" if family >= 26 and wide else "znver4" if wide else "znver3" if family >= 25 else "znver2"
        ]
    elif "avx512f" in flags:
        kind = (
            "sapphirerapids"
            if "amx_tile" in flags
            else "icelake-server"
            if "avx512_vbmi2" in flags
            else "skylake-avx512"
        )
        core = CORES[kind]
    else:
        core = CORES["x86-64-v3" if "avx2" in flags else "x86-64"]
    core = replace(core, dots=frozenset(), tiles=frozenset())  # what the system says, not the kind
    core = with_features(core, " ".join(f for f in flags if f in ("avx", "avx2", "avx512f", *_DOTS, *_TILES)))
    sizes = _host_caches()
    if not sizes:
        return core
    l3, shared = sizes.get(3, (core.l3_bytes, 1))
    l1, l2 = sizes.get(1, (core.l1_bytes, 1))[0], sizes.get(2, (core.l2_bytes, 1))[0]
    return replace(core, l1_bytes=l1, l2_bytes=l2, l3_bytes=l3 // max(1, shared))


def _host_caches() -> dict[int, tuple[int, int]]:
    """{level: (bytes, processors that share it)} of data caches, as Linux says it."""
    found: dict[int, tuple[int, int]] = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, level, size = ((folder / n).read_text().strip() for n in ("type", "level", "size"))
            shared = bin(int((folder / "shared_cpu_map").read_text().strip().replace(",", ""), 16)).count("1")
            if kind != "Instruction" and size.endswith("K"):
                found[int(level)] = int(size[:-1]) * KB, shared
        except (OSError, ValueError):
            continue  # a system that hides its caches
    return found


def loads_apart(lanes: int, stride: int, vector_bytes: int) -> bool:
    """Whether a register of every `stride`-th number of 32 bits is loaded as so many whole vectors, shuffled together: with AVX-512, where fewer than the half of the lanes need; with
    AVX2 of 8 lanes, where no two lanes lie at the same place of their vectors, each of which begins 7 elements behind the one before."""
    if vector_bytes == 64:
        return lanes == 16 and stride <= 8
    return lanes == 8 and stride < lanes - 1


def cpu_machine(core: Core, cores: int) -> Machine:
    """A machine of so many cores of a kind. Bandwidths a core: two vectors a clock from L1, one from L2, half a one from L3 (the guides' widths);
    memory at 20 GB/s a core, a two-channel desktop's or a server core's share."""
    lanes = core.vector_bytes // 4 * core.fma
    gbps = core.vector_bytes * cores * core.clock_mhz * 1e-3
    levels = (
        Level("L1", core.l1_bytes, 1, 2 * gbps),
        Level("L2", core.l2_bytes, 1, gbps),
        Level("L3", core.l3_bytes * cores, cores, gbps / 2),
        Level("memory", 16 * GB, cores, 20.0 * cores),
    )
    vector = {"float32": int(lanes), "float64": int(lanes / 2)}
    return Machine(core.name, core.name, cores, core.clock_mhz, levels, 20.0 * cores, 16 * GB, vector)


def host_threads() -> int:
    """Threads that parallel loops of this process run on: TEC_NUM_THREADS, else the processors that it may use."""
    text = os.environ.get("TEC_NUM_THREADS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1
