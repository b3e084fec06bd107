"""Targets: what code is made for, parsed from text such as "rocm -mcpu=gfx942" or "llvm -mcpu=znver4".

A `Target` is frozen and answers questions about capabilities (wavefront size, LDS bytes, matrix shapes by dtype, vector
widths, thread limits); passes and operators ask those and never the target's name. Chip facts come from the LLVM AMDGPU
usage guide, AMD's ISA manuals (CDNA 1 to 4, RDNA 2 to 4) and NVIDIA's compute-capability tables.
"""

from __future__ import annotations

import platform
import re
import shlex
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from .errors import TargetError

KB = 1024
MatrixShape = tuple[str, str, int, int, int, int]  # in dtype, accumulator dtype, m, n, k, blocks


@dataclass(frozen=True, slots=True)
class Chip:
    """What one chip (or GPU generation) has."""

    name: str
    family: str  # "gcn", "cdna1".."cdna4", "rdna2".."rdna4", "sm"
    wavefront_sizes: tuple[int, ...]  # the first is the default
    lds_bytes: int
    max_threads: int = 1024
    vgprs: int = 256
    dot4: bool = False
    dot4_mixed: bool = False  # v_dot4_i32_iu8: signedness by operand
    dot2: bool = False
    async_lds: bool = False
    matrix: tuple[MatrixShape, ...] = ()
    atomic_fadd: bool = False


_MFMA_F32 = (
    ("float32", "float32", 32, 32, 2, 1),
    ("float32", "float32", 16, 16, 4, 1),
    ("float32", "float32", 4, 4, 1, 16),
)
_MFMA_F16 = (
    ("float16", "float32", 32, 32, 8, 1),
    ("float16", "float32", 16, 16, 16, 1),
    ("float16", "float32", 4, 4, 4, 16),
)
_MFMA_BF16_1K = (
    ("bfloat16", "float32", 32, 32, 8, 1),
    ("bfloat16", "float32", 16, 16, 16, 1),
    ("bfloat16", "float32", 4, 4, 4, 16),
)
_MFMA_I8 = (("int8", "int32", 32, 32, 8, 1), ("int8", "int32", 16, 16, 16, 1))
_MFMA_F64 = (("float64", "float64", 16, 16, 4, 1),)
_CDNA3 = (
    _MFMA_F32
    + _MFMA_F16
    + _MFMA_BF16_1K
    + _MFMA_F64
    + (("int8", "int32", 32, 32, 16, 1), ("int8", "int32", 16, 16, 32, 1))
)
_CDNA4 = _CDNA3 + (
    ("float16", "float32", 32, 32, 16, 1), ("float16", "float32", 16, 16, 32, 1),
    ("bfloat16", "float32", 32, 32, 16, 1), ("bfloat16", "float32", 16, 16, 32, 1),
    ("int8", "int32", 32, 32, 32, 1), ("int8", "int32", 16, 16, 64, 1),
)  # fmt: skip
_WMMA = tuple((t, a, 16, 16, 16, 1) for t, a in (("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32")))
_MMA_SYNC = (
    ("float16", "float32", 16, 8, 16, 1),
    ("bfloat16", "float32", 16, 8, 16, 1),
    ("int8", "int32", 16, 8, 32, 1),
    ("tf32", "float32", 16, 8, 8, 1),  # float32 storage, of which the unit takes 19 bits
)


def _chips() -> dict[str, Chip]:
    table = [
        Chip("gfx900", "gcn", (64,), 64 * KB),
        Chip("gfx906", "gcn", (64,), 64 * KB, dot4=True, dot2=True),
        Chip(
            "gfx908",
            "cdna1",
            (64,),
            64 * KB,
            vgprs=512,
            dot4=True,
            dot2=True,
            matrix=_MFMA_F32
            + _MFMA_F16
            + (("bfloat16", "float32", 32, 32, 4, 1), ("bfloat16", "float32", 16, 16, 8, 1))
            + _MFMA_I8,
            atomic_fadd=True,
        ),
        Chip(
            "gfx90a",
            "cdna2",
            (64,),
            64 * KB,
            vgprs=512,
            dot4=True,
            dot2=True,
            matrix=_MFMA_F32 + _MFMA_F16 + _MFMA_BF16_1K + _MFMA_I8 + _MFMA_F64,
            atomic_fadd=True,
        ),
        Chip(
            "gfx942",
            "cdna3",
            (64,),
            64 * KB,
            vgprs=512,
            dot4=True,
            dot2=True,
            async_lds=True,
            matrix=_CDNA3,
            atomic_fadd=True,
        ),
        Chip(
            "gfx950",
            "cdna4",
            (64,),
            160 * KB,
            vgprs=512,
            dot4=True,
            dot2=True,
            async_lds=True,
            matrix=_CDNA4,
            atomic_fadd=True,
        ),
        Chip("gfx1030", "rdna2", (32, 64), 64 * KB, dot4=True, dot2=True),
    ]
    for name in ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"):
        table.append(
            Chip(
                name, "rdna3", (32, 64), 64 * KB, dot4=True, dot4_mixed=True, dot2=True, matrix=_WMMA, atomic_fadd=True
            )
        )
    for name in ("gfx1200", "gfx1201"):
        table.append(
            Chip(
                name, "rdna4", (32, 64), 64 * KB, dot4=True, dot4_mixed=True, dot2=True, matrix=_WMMA, atomic_fadd=True
            )
        )
    shared = {
        70: 96,
        72: 96,
        75: 64,
        80: 163,
        86: 99,
        87: 163,
        89: 99,
        90: 227,
        100: 227,
        101: 227,
        103: 227,
        120: 99,
        121: 99,
    }
    for sm, kib in shared.items():
        table.append(
            Chip(
                f"sm_{sm}",
                "sm",
                (32,),
                kib * KB,
                vgprs=255,
                dot4=True,
                async_lds=sm >= 80,
                matrix=_MMA_SYNC if sm >= 80 else (),
                atomic_fadd=True,
            )
        )
    return {c.name: c for c in table}


CHIPS = _chips()
_KINDS = {
    "llvm": "llvm",
    "cpu": "llvm",
    "rocm": "rocm",
    "amdgpu": "rocm",
    "hip": "rocm",
    "cuda": "cuda",
    "nvptx": "cuda",
}
_DEFAULT_CHIP = {"rocm": "gfx942", "cuda": "sm_90"}
_OPTIONS = {
    "llvm": ("mcpu", "mattr", "mtriple", "num-cores"),
    "rocm": ("mcpu", "mattr", "wavefrontsize", "max-threads", "waves-per-eu"),
    "cuda": ("arch", "mcpu", "max-threads", "ptx"),
}
FAST_MATH_FLAGS = ("contract", "nnan", "ninf", "nsz", "arcp", "afn", "reassoc")


@dataclass(frozen=True)
class Target:
    """A parsed target. `Target("rocm -mcpu=gfx90a")`; equal text gives equal targets; usable as `with Target(...):`.

    kind: "llvm", "rocm" or "cuda". Options: -mcpu, -mattr, -mtriple, -wavefrontsize, -arch, -fast-math[=flags]
    (`-fast-math` alone means all of contract, nnan, ninf, nsz, arcp, afn, reassoc; contraction is on by default and
    `-fast-math=none` switches it off). Raises TargetError with the known names.
    """

    text: str = "llvm"
    kind: str = field(init=False)
    mcpu: str = field(init=False)
    mattr: str = field(init=False)
    mtriple: str = field(init=False)
    options: dict[str, str] = field(init=False, hash=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.text, Target):
            object.__setattr__(self, "text", self.text.text)
        if not isinstance(self.text, str) or not self.text.strip():
            raise TargetError(
                f"not a target: {self.text!r}",
                hint='a target is text such as "llvm", "rocm -mcpu=gfx942" or "cuda -arch=sm_90"',
            )
        name, *words = shlex.split(self.text)
        if name not in _KINDS:
            raise TargetError(f"unknown target {name!r}", hint=f"known targets: {', '.join(sorted(set(_KINDS)))}")
        kind = _KINDS[name]
        options: dict[str, str] = {}
        allowed = (*_OPTIONS[kind], "fast-math")
        for word in words:
            m = re.fullmatch(r"-{1,2}([\w-]+)(?:=(.*))?", word)
            if m is None or m[1] not in allowed:
                raise TargetError(
                    f"unknown option {word!r} of target {name!r}",
                    hint="options: " + ", ".join("-" + o for o in allowed),
                )
            options[m[1]] = m[2] if m[2] is not None else "1"
        mcpu = options.get("mcpu") or options.get("arch") or _DEFAULT_CHIP.get(kind, "")
        if kind != "llvm":
            mcpu = mcpu.split(":")[0].removesuffix("a") if kind == "cuda" else mcpu.split(":")[0]
            if mcpu not in CHIPS or (CHIPS[mcpu].family == "sm") != (kind == "cuda"):
                known = [c.name for c in CHIPS.values() if (c.family == "sm") == (kind == "cuda")]
                raise TargetError(f"unknown chip {mcpu!r} for target {name!r}", hint="known chips: " + ", ".join(known))
        set_ = object.__setattr__
        set_(
            self,
            "text",
            " ".join(
                [
                    kind,
                    *[
                        f"-{k}={v}" if v != "1" or k not in ("fast-math",) else f"-{k}"
                        for k, v in sorted(options.items())
                    ],
                ]
            ),
        )
        set_(self, "kind", kind)
        set_(self, "mcpu", mcpu)
        set_(self, "mattr", options.get("mattr", ""))
        set_(self, "mtriple", options.get("mtriple", ""))
        set_(self, "options", options)
        for f in self.fast_math:
            if f not in FAST_MATH_FLAGS:
                raise TargetError(f"unknown fast-math flag {f!r}", hint=f"flags: none, {', '.join(FAST_MATH_FLAGS)}")
        if "wavefrontsize" in options and options["wavefrontsize"] not in map(str, self.chip.wavefront_sizes):
            raise TargetError(
                f"{mcpu} has no wavefronts of {options['wavefrontsize']} lanes",
                hint=f"-wavefrontsize is one of {', '.join(map(str, self.chip.wavefront_sizes))}",
            )
        for o in ("max-threads", "waves-per-eu", "num-cores"):
            if o in options and not options[o].isdigit():
                raise TargetError(f"-{o} takes a number, not {options[o]!r}")

    def __str__(self) -> str:
        return self.text

    # ---- capabilities

    @property
    def is_gpu(self) -> bool:
        """Whether its code runs as kernels on a GPU."""
        return self.kind != "llvm"

    @cached_property
    def chip(self) -> Chip:
        if self.kind == "llvm":
            return Chip(self.mcpu or "host", "cpu", (1,), 0, max_threads=1)
        return CHIPS[self.mcpu]

    @cached_property
    def wavefront_size(self) -> int:
        """Lanes of a wavefront (warp); 1 on a CPU."""
        return int(self.options.get("wavefrontsize", self.chip.wavefront_sizes[0]))

    @cached_property
    def max_threads(self) -> int:
        """Threads a work-group may have."""
        return int(self.options.get("max-threads", self.chip.max_threads))

    @property
    def lds_bytes(self) -> int:
        """Shared memory a work-group may have, in bytes."""
        return self.chip.lds_bytes

    @property
    def static_lds_bytes(self) -> int:
        """Shared memory that needs no opt-in at launch, in bytes."""
        return 48 * KB if self.kind == "cuda" else self.chip.lds_bytes

    @property
    def max_vector_bytes(self) -> int:
        """The widest single memory access of a thread, in bytes."""
        return 16 if self.is_gpu else self.vector_bytes

    @cached_property
    def vector_bytes(self) -> int:
        """The width of a vector register, in bytes (16 for a GPU's widest access)."""
        if self.is_gpu:
            return 16
        feats = f"{self.mcpu} {self.mattr}"
        if self.is_host:
            feats += " " + host_features()
        if re.search(r"\+?avx512f|znver[45]|skylake-avx512|icelake|sapphire|x86-64-v4", feats):
            return 64
        if re.search(r"\+?avx\b|\+?avx2|znver|haswell|skylake|x86-64-v3", feats):
            return 32
        return 16

    @property
    def is_host(self) -> bool:
        """Whether this CPU target is the machine tec runs on."""
        return self.kind == "llvm" and not self.mtriple and self.mcpu in ("", "native", "host")

    @cached_property
    def fast_math(self) -> tuple[str, ...]:
        """LLVM fast-math flags that every float operation carries."""
        value = self.options.get("fast-math")
        if value is None:
            return ("contract",)
        if value == "1":
            return FAST_MATH_FLAGS
        return () if value == "none" else tuple(value.split(","))

    def matrix_shapes(self, in_dtype: str, acc_dtype: str | None = None) -> list[MatrixShape]:
        """Shapes (in, acc, m, n, k, blocks) of the chip's matrix unit for an input dtype."""
        return [s for s in self.chip.matrix if s[0] == in_dtype and acc_dtype in (None, s[1])]

    @property
    def device_kind(self) -> str:
        """The device this target's code runs on: "cpu", "rocm" or "cuda"."""
        return "cpu" if self.kind == "llvm" else self.kind

    # ---- the current target

    def __enter__(self) -> Target:
        _STACK.append(_CURRENT.set(self))
        return self

    def __exit__(self, *exc: Any) -> None:
        _CURRENT.reset(_STACK.pop())

    @staticmethod
    def current() -> Target | None:
        """The innermost `with Target(...)`, or None."""
        return _CURRENT.get()


_CURRENT: ContextVar[Target | None] = ContextVar("tec_target", default=None)
_STACK: list[Token[Target | None]] = []


@lru_cache(maxsize=1)
def host_features() -> str:
    """The host CPU's feature names, from /proc/cpuinfo where there is one (no LLVM needed)."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith(("flags", "Features")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return "neon" if platform.machine() in ("arm64", "aarch64") else ""


def as_target(value: Any = None) -> Target:
    """A Target from text, a Target or None (the current one, else "llvm")."""
    if value is None:
        return Target.current() or Target("llvm")
    return value if isinstance(value, Target) else Target(value)


def rocm(mcpu: str = "gfx942", **options: Any) -> Target:
    """`Target("rocm -mcpu=...")`; options by name, `_` for `-`."""
    return Target(" ".join(["rocm", f"-mcpu={mcpu}", *[f"-{k.replace('_', '-')}={v}" for k, v in options.items()]]))


def cuda(arch: str = "sm_90", **options: Any) -> Target:
    """`Target("cuda -arch=...")`."""
    return Target(" ".join(["cuda", f"-arch={arch}", *[f"-{k.replace('_', '-')}={v}" for k, v in options.items()]]))


def llvm(mcpu: str = "", **options: Any) -> Target:
    """`Target("llvm -mcpu=...")`."""
    return Target(
        " ".join(
            ["llvm", *([f"-mcpu={mcpu}"] if mcpu else []), *[f"-{k.replace('_', '-')}={v}" for k, v in options.items()]]
        )
    )
