"""A compiled kernel over tiles: its code, its texts, what a launch of it needs; and what a kernel's parameters are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import SimpleNamespace
from typing import Any, ClassVar

from ..kernels.translate import LaunchShape
from ..records import dataclass
from ..target import Target
from ..tile.grammar import Program
from ..tile.lowering import Lowered
from .reflection import resources_of
from .tile_tellers import Teller

_REGISTERS = 32  # a thread's share where a multiprocessor of 65,536 is full: 2,048 threads


class Texts(Mapping[str, str]):
    """A compiled kernel's texts by name, each made when it is asked for: its stages, and Triton's names for stages that are like them."""

    _LIKE: ClassVar[dict[str, str]] = {
        "tiles": "tiles", "loops": "loops", "llvm": "llvm", "asm": "asm", "ttir": "tiles", "ttgir": "loops", "llir": "llvm",
    }  # fmt: skip
    _ASSEMBLY: ClassVar[dict[str, str]] = {"cuda": "ptx", "rocm": "amdgcn"}

    def __init__(self, compiled: Compiled):
        self.compiled = compiled

    def __iter__(self) -> Iterator[str]:
        yield from self._LIKE
        if self.compiled.target.kind in self._ASSEMBLY:
            yield self._ASSEMBLY[self.compiled.target.kind]

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, name: str) -> str:
        c = self.compiled
        like = "asm" if name == self._ASSEMBLY.get(c.target.kind) else self._LIKE[name]
        if like == "tiles":
            return str(c.program)
        return str(c.lowered.func) if like == "loops" else text_of(c.module, like)


@dataclass(slots=True)
class Signature:
    """A kernel's parameters: their names, which are constants, their places, and the values of those that may be left out; and what tells launches with given
    types of arguments from each other (`tile_tellers`)."""

    names: list[str]
    constant: tuple[bool, ...]
    place: dict[str, int]
    defaults: dict[str, Any]
    tellers: dict[Any, Teller] = field(default_factory=dict)


@dataclass(repr=False)
class Compiled:
    """A kernel for one specialisation. `call` takes flat arrays, numbers, the grid's extents, and the message buffer."""

    lowered: Lowered
    program: Program
    module: Any
    target: Target
    grid_ndim: int
    options: dict[str, Any]
    kernel: Any = None
    call: Any = field(init=False)

    def __post_init__(self) -> None:
        self.call = self.module[self.lowered.func.name]

    def __repr__(self) -> str:
        return f"<{self.program.name}, compiled for {self.target}>"

    @property
    def places(self) -> Any:
        return self.lowered.places

    @property
    def launch(self) -> Any:
        return LaunchShape((self.lowered.block, 1, 1), self.grid_ndim)

    @functools.cached_property
    def asm(self) -> Texts:
        """The kernel in text: "tiles", "loops", "llvm", "asm"; and under Triton's names for the stages that are like these."""
        return Texts(self)

    @property
    def name(self) -> str:
        return self.program.name

    @functools.cached_property
    def metadata(self) -> Any:
        """`shared`: bytes of shared memory of a program; `num_warps`, `num_stages`."""
        # Less than the program's where buffers share.
        shared = self.resources.get("lds_bytes", self.lowered.shared_bytes)
        return SimpleNamespace(shared=max(1, shared), name=self.program.name, **self.options)

    @functools.cached_property
    def resources(self) -> dict[str, Any]:
        """What the device code takes, as `reflection.resources_of` says; read once."""
        return next(iter(resources_of(self.module).values()), {})

    @property
    def n_regs(self) -> int:
        """Registers of a thread, vector ones on AMD GPUs. Where nothing says (PTX without a GPU whose driver compiles it, a CPU), programs are sized as for _REGISTERS."""
        return self.resources.get("vgprs") or self.resources.get("registers") or _REGISTERS

    @property
    def n_spills(self) -> int:
        """Registers of a thread that lie in memory; 0 where nothing says. On NVIDIA GPUs also arrays of a thread, as Triton counts."""
        spilled = sum(self.resources.get(k, 0) for k in ("vgpr_spills", "sgpr_spills"))
        return int(spilled + self.resources.get("local_bytes", 0) // 4)

    def _init_handles(self) -> None:
        """Triton's programs load a kernel by it; tec's is loaded."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        place = self.kernel.shape.place
        options = {k: v for k, v in self.options.items() if v is not None and k not in place}
        return lambda *args, **named: self.kernel.run(*args, grid=grid, **{**options, **named})


def text_of(module: Any, what: str) -> str:
    """Assembly, LLVM IR or loop IR of a module's device code."""
    inner = module.imported_modules[0] if module.imported_modules else module
    texts = []
    for t in inner.texts.values():
        made = t.get(what)
        texts.append(made() if callable(made) else made or "")
    return "\n".join(texts)
