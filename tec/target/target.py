"""Targets: what code is made for, parsed from text such as "rocm -mcpu=gfx942" or "llvm -mcpu=znver4".

A `Target` is frozen and answers questions about capabilities (wavefront size, LDS bytes, matrix shapes by dtype, vector
widths, thread limits); passes and operators ask those and never the target's name. What chips and products have stands in `chips`,
`machines` and `cpus`: `Target.machine` is the product, with units, clocks, rates and caches, that a cost is reckoned for.
"""

from __future__ import annotations

import platform
import re
import shlex
from contextvars import ContextVar
from dataclasses import field
from typing import Any

from ..errors import TargetError
from ..likeness import meant, near
from ..locks import cached_property
from ..records import dataclass
from .chips import CHIPS, KB, Chip, MatrixShape
from .cpus import CORES, Core, core_named, cpu_machine, host_core, host_threads, with_features
from .machines import MACHINES, Machine, find_product, machine_of_chip, product_key

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
# TVM's names of ours, and its options that tell of the device what `machine` tells here: taken, and of no effect.
_ALIASES = {
    "thread_warp_size": "wavefrontsize",
    "max_num_threads": "max-threads",
    "max_threads_per_block": "max-threads",
}
_DESCRIPTIVE = ("device", "keys", "libs", "model", "tag")
FAST_MATH_FLAGS = ("contract", "nnan", "ninf", "nsz", "arcp", "afn", "reassoc")


def _text_of(entries: dict[str, Any]) -> str:
    """{"kind": "llvm", "mcpu": "znver4"} as text. Raises TargetError where no kind is named."""
    if not isinstance(entries.get("kind"), str):
        raise TargetError(f"not a target: {entries!r}", hint='a dict names a kind: {"kind": "llvm", "mcpu": "znver4"}')
    words = [entries["kind"]]
    for key, value in entries.items():
        if key in ("kind", "host", *_DESCRIPTIVE) or value is None or value is False:
            continue
        words.append(
            f"-{key}={','.join(map(str, value)) if isinstance(value, (list, tuple)) else 1 if value is True else value}"
        )
    return " ".join(words)


def _spelled_out(name: str, *words: str) -> tuple[str, ...]:
    """A target's words with the name of a chip or a product in front ("gfx942", "mi300x -max-threads=256") spelled out with its kind."""
    if name == "native":
        return ("llvm", *words)
    product = find_product(name) if name not in _KINDS else None
    plain = product.chip if product is not None else name.split(":")[0]
    chip = CHIPS.get(plain) or CHIPS.get(plain.removesuffix("a"))  # sm_100a
    if chip is None:
        return (name, *words)
    return ("cuda", f"-arch={name}", *words) if chip.family == "sm" else ("rocm", f"-mcpu={name}", *words)


def _options(name: str, words: list[str]) -> tuple[str, dict[str, str]]:
    """The kind and the options of a target's words. Raises TargetError with the known ones."""
    if name not in _KINDS:
        known = f"known targets: {', '.join(sorted(set(_KINDS)))}, native, or a chip's or a product's name (gfx942, mi300x, h200)"
        close = near(name.lower(), [*_KINDS, "native", *CHIPS, *MACHINES], 3)
        raise TargetError(f"unknown target {name!r}", hint=f"did you mean {' or '.join(close)}?" if close else known)
    kind = _KINDS[name]
    options: dict[str, str] = {}
    allowed = (*_OPTIONS[kind], "fast-math")
    for word in words:
        m = re.fullmatch(r"-{1,2}([\w-]+)(?:=(.*))?", word)
        key = _ALIASES.get(m[1], m[1]) if m is not None else ""
        if key in _DESCRIPTIVE:
            continue
        if m is None or key not in allowed:
            raise TargetError(
                f"unknown option {word!r} of target {name!r}", hint="options: " + ", ".join("-" + o for o in allowed)
            )
        options[key] = m[2] if m[2] is not None else "1"
    return kind, options


def _chip(kind: str, options: dict[str, str], name: str) -> tuple[str, Machine | None]:
    """The chip (a CPU: what -mcpu says), and the product where one is named, whose name in `options` becomes the one that caches know."""
    mcpu = options.get("mcpu") or options.get("arch") or _DEFAULT_CHIP.get(kind, "")
    if kind == "llvm":
        return mcpu, None
    product = find_product(mcpu)
    if product is not None:
        mcpu = product.chip
        # A chip's own product has one text, and so one place in caches.
        chosen = mcpu if product == machine_of_chip(CHIPS[mcpu]) else product_key(product.name)
        options.update({k: chosen for k in ("mcpu", "arch") if k in options})
    mcpu = mcpu.split(":")[0]
    if kind == "cuda" and mcpu not in CHIPS:
        mcpu = mcpu.removesuffix("a")
    if mcpu not in CHIPS or (CHIPS[mcpu].family == "sm") != (kind == "cuda"):
        known = [c.name for c in CHIPS.values() if (c.family == "sm") == (kind == "cuda")]
        products = [k for k, m in MACHINES.items() if m.chip in known]
        question = meant(mcpu, [*known, *products])
        raise TargetError(
            f"unknown chip {mcpu!r} for target {name!r}",
            hint=question or f"known chips: {', '.join(known)}; products: {', '.join(products)}",
        )
    return mcpu, product


@dataclass(frozen=True)
class Target:
    """What code is compiled for: `Target("rocm -mcpu=gfx90a")`, or a chip's or a product's name alone: `Target("gfx90a")`, `Target("mi300x")`; "native" is
    this CPU. Equal text gives equal targets. Inside `with Target(...):` it is the default.

    Also from a dict: `Target({"kind": "llvm", "mcpu": "znver4"})`; `host=` is the CPU target of what launches (tec.build's `target_host`).

    kind: "llvm", "rocm" or "cuda". Options: -mcpu, -mattr, -mtriple, -wavefrontsize, -arch, -fast-math[=flags]. -mcpu (-arch) of a GPU
    is a chip ("gfx942") or a product ("mi325x", "7900xtx", "h200"), whose chip `mcpu` then is and whose figures `machine` has.
    (`-fast-math` alone means all of contract, nnan, ninf, nsz, arcp, afn, reassoc; contraction is on by default and
    `-fast-math=none` switches it off). Raises TargetError with the known names.

    >>> t = tec.Target("mi300x")
    >>> t.kind, t.mcpu, t.wavefront_size, t.lds_bytes
    ('rocm', 'gfx942', 64, 65536)
    >>> with t:
    ...     tec.Target.current() is t
    True
    """

    text: str = "llvm"
    host: Target | None = field(default=None, compare=False, repr=False)
    kind: str = field(init=False)
    mcpu: str = field(init=False)
    mattr: str = field(init=False)
    mtriple: str = field(init=False)
    options: dict[str, str] = field(init=False, hash=False, compare=False)
    _product: Machine | None = field(init=False, hash=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Read the text of a target, or take another one's. Raises TargetError."""
        if isinstance(self.text, Target):
            object.__setattr__(self, "host", self.host or self.text.host)
            object.__setattr__(self, "text", self.text.text)
        elif isinstance(self.text, dict):
            object.__setattr__(self, "text", _text_of(self.text))
        if self.host is not None:
            object.__setattr__(self, "host", as_target(self.host))
        if not isinstance(self.text, str) or not self.text.strip():
            raise TargetError(
                f"not a target: {self.text!r}",
                hint='a target is text such as "llvm", "rocm -mcpu=gfx942" or "cuda -arch=sm_90"',
            )
        name, *words = _spelled_out(*shlex.split(self.text))
        kind, options = _options(name, words)
        mcpu, product = _chip(kind, options, name)
        set_ = object.__setattr__
        words = [f"-{k}" if (k, v) == ("fast-math", "1") else f"-{k}={v}" for k, v in sorted(options.items())]
        set_(self, "text", " ".join([kind, *words]))
        set_(self, "kind", kind)
        set_(self, "mcpu", mcpu)
        set_(self, "_product", product)
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
    def keys(self) -> tuple[str, ...]:
        """What kinds it is of: ("cpu",), ("rocm", "gpu") or ("cuda", "gpu").

        >>> tec.Target("gfx942").keys, tec.Target("llvm").keys
        (('rocm', 'gpu'), ('cpu',))
        """
        return (self.kind, "gpu") if self.is_gpu else ("cpu",)

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
    def machine(self) -> Machine:
        """The machine that costs are reckoned for: the product named, else the one that the chip's name stands for; this host with as many cores as
        parallel loops run on, or as many (-num-cores) of the kind that -mcpu names."""
        if self.kind != "llvm":
            return self._product or machine_of_chip(self.chip)
        return cpu_machine(self.core, int(self.options.get("num-cores", host_threads() if self.is_host else _CORES)))

    @property
    def names_product(self) -> bool:
        """Whether a GPU target says which product it is for, not an architecture alone."""
        return self._product is not None

    @cached_property
    def core(self) -> Core:
        """A CPU's core: vector width, multiply-adds a clock, registers, caches."""
        core = host_core() if self.is_host else core_named(self.mcpu) or CORES[_baseline(self.mtriple)]
        return with_features(core, self.mattr) if self.mattr else core

    @cached_property
    def vector_bytes(self) -> int:
        """The width of a vector register, in bytes (16 for a GPU's widest access)."""
        return 16 if self.is_gpu else self.core.vector_bytes

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
        """Shapes (in, acc, m, n, k, blocks) of the chip's matrix unit for an input dtype.

        >>> tec.Target("gfx942").matrix_shapes("float16", "float32")[0]
        ('float16', 'float32', 32, 32, 8, 1)
        """
        return [s for s in self.chip.matrix if s[0] == in_dtype and acc_dtype in (None, s[1])]

    @property
    def device_kind(self) -> str:
        """The device this target's code runs on: "cpu", "rocm" or "cuda"."""
        return "cpu" if self.kind == "llvm" else self.kind

    # ---- the current target

    def __enter__(self) -> Target:
        _ENTERED.set((self, *_ENTERED.get()))
        return self

    def __exit__(self, *exc: Any) -> None:
        _ENTERED.set(_ENTERED.get()[1:])

    @staticmethod
    def current() -> Target | None:
        """The innermost `with Target(...)` of this thread or asyncio task, or None."""
        entered = _ENTERED.get()
        return entered[0] if entered else None


# The targets entered, innermost first. A target may be entered by several threads and tasks at once, so nothing of it is kept
# in the target or in the module: the tuple belongs to the context alone.
_ENTERED: ContextVar[tuple[Target, ...]] = ContextVar("tec_target", default=())


_CORES = 8  # of a CPU that is named and not at hand: a desktop's


def _baseline(mtriple: str) -> str:
    """The core that code without -mcpu is for: what every processor of the architecture has."""
    if mtriple.startswith("riscv64"):
        return "generic-rv64"
    arm = mtriple.startswith(("aarch64", "arm64")) or (not mtriple and platform.machine() in ("arm64", "aarch64"))
    return "generic" if arm else "x86-64"


def as_target(value: Any = None) -> Target:
    """A Target from text, a Target or None (the current one, else "llvm").

    >>> print(tec.target.as_target("gfx90a"))
    rocm -mcpu=gfx90a
    """
    if value is None:
        return Target.current() or Target("llvm")
    return value if isinstance(value, Target) else Target(value)


def rocm(mcpu: str = "gfx942", **options: Any) -> Target:
    """`Target("rocm -mcpu=...")`; options by name, `_` for `-`.

    >>> print(tec.target.rocm("gfx1100", wavefrontsize=32))
    rocm -mcpu=gfx1100 -wavefrontsize=32
    """
    return Target(" ".join(["rocm", f"-mcpu={mcpu}", *[f"-{k.replace('_', '-')}={v}" for k, v in options.items()]]))


def cuda(arch: str = "sm_90", **options: Any) -> Target:
    """`Target("cuda -arch=...")`.

    >>> print(tec.target.cuda("sm_90"))
    cuda -arch=sm_90
    """
    return Target(" ".join(["cuda", f"-arch={arch}", *[f"-{k.replace('_', '-')}={v}" for k, v in options.items()]]))


def llvm(mcpu: str = "", **options: Any) -> Target:
    """`Target("llvm -mcpu=...")`.

    >>> print(tec.target.llvm("znver4"))
    llvm -mcpu=znver4
    """
    return Target(
        " ".join(
            ["llvm", *([f"-mcpu={mcpu}"] if mcpu else []), *[f"-{k.replace('_', '-')}={v}" for k, v in options.items()]]
        )
    )
