"""Code objects that are loaded on the software GPU, and their kernels: instructions, and translations of them that LLVM compiled."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tec.errors import CodegenError

from ..locks import fork_safe_lock
from ..runtime.devices.surface import Assembly
from ..runtime.objects.codeobject import CodeObject, KernelInfo
from .analyses.calls import decoded_kernel, parse_kernel
from .analyses.prologue import without_prologue
from .analyses.skeleton import data_only
from .checks.declared import check_registers
from .checks.hazards import check_hazards
from .checks.order import waiting_places
from .checks.screening import may_be_screened, screening_checks
from .checks.waits import check_waits
from .decode.asmparse import chip_of
from .decode.disassemble import SYMBOL, Disassembly
from .decode.inst import KernelText, generation
from .errors import EmulationError
from .hostcalls import asks_the_host
from .isa import opcodes
from .launch import check_wave
from .translate.kernel import translate
from .translate.translation import Translation
from .translate.wave import Options

if TYPE_CHECKING:
    from .driver import EmuDriver


@dataclass(slots=True)
class Compiled:
    """One translation of a kernel, loaded."""

    translation: Translation
    address: int
    lanes: int
    options: Options
    keep: object


class EmuModule:
    """A loaded code object: its kernels, its data in device memory, its assembly."""

    def __init__(self, driver: EmuDriver, code: CodeObject, asm: str | Assembly | Disassembly):
        self.driver, self.code, self.asm = driver, code, asm
        self.base: int | None = None
        self.functions: dict[str, EmuFunction] = {}
        self._load_data()

    def _load_data(self) -> None:
        """Map the segments that hold no code, so that constants have addresses."""
        end = max((s.vaddr + s.memory_bytes for s in self.code.segments), default=0)
        asm = self.asm
        named = asm.has_symbols if isinstance(asm, Disassembly) else isinstance(asm, str) and SYMBOL in asm
        if not named and not any(
            s.defined and not n.endswith(".kd") and n not in self.code.kernels for n, s in self.code.symbols.items()
        ):
            return
        self.base = self.driver.memory.alloc(max(1, end), "data of a code object")
        ctypes.memset(self.base, 0, end)
        for s in self.code.segments:
            ctypes.memmove(self.base + s.vaddr, s.data, len(s.data))
        self.driver.memory.mark_written(self.base, max(1, end))
        for r in self.code.relocations:
            symbol = self.code.symbols.get(r.symbol)
            if r.kind == 13:  # RELATIVE64
                value = self.base + r.addend
            elif r.kind == 3 and symbol is not None and symbol.defined:  # ABS64
                value = self.base + symbol.value + r.addend
            else:
                raise EmulationError(f"dynamic relocation {r.kind} against {r.symbol!r}")
            ctypes.c_uint64.from_address(self.base + r.offset).value = value

    def text_of(self, kernel: str) -> KernelText:
        """The instructions of a kernel. Raises EmulationError for another chip's assembly."""
        if isinstance(self.asm, Disassembly):
            return decoded_kernel(self.asm, kernel)
        asm = self.asm if isinstance(self.asm, str) else self.asm(kernel)
        named = chip_of(asm)
        if named is not None and named != self.code.chip:
            raise EmulationError(f"the assembly is for {named}, the code object for {self.code.chip}")
        return parse_kernel(asm, kernel)

    def symbol_addresses(self, names: list[str]) -> np.ndarray:
        out = np.zeros(len(names), np.uint64)
        for i, name in enumerate(names):
            if name.startswith(SYMBOL) and self.base is not None:
                out[i] = self.base + int(name.removeprefix(SYMBOL), 16)
                continue
            symbol = self.code.symbols.get(name)
            if symbol is None or not symbol.defined or self.base is None:
                raise EmulationError(
                    f"the code object exports no symbol {name!r}",
                    hint="keep the local symbols of constants in the linked object (.symtab)",
                )
            out[i] = self.base + symbol.value
        return out

    @property
    def formats(self) -> list[str]:
        """The formats of printf that the metadata has."""
        return [str(x) for x in self.code.metadata.get("amdhsa.printf", [])]

    def unload(self) -> None:
        if self.base is not None:
            self.driver.memory.free(self.base)
            self.base = None
        self.functions.clear()


# Wavefronts that a kernel runs as code that LLVM made without optimising instruction selection and registers, before it is worth
# more. Measured (Zen 4): it takes half of LLVM's time (0.1 to 0.3 s a kernel saved), and a wavefront of a product over k = 1,024
# takes 0.13 ms in place of 0.07. Most launches of tests and tutorials are of a few wavefronts.
QUICK_WAVES = 1024


class EmuFunction:
    """A kernel of a module; translated and compiled at its first launch, once for each assumption, and again for many wavefronts."""

    def __init__(self, module: EmuModule, info: KernelInfo):
        self.module, self.info = module, info
        check_wave(module.driver.chip, info)
        self.text: KernelText = without_prologue(module.text_of(info.name), info)
        if "wait" in module.driver.checks:
            check_waits(self.text, generation(module.driver.chip.name))
        if "registers" in module.driver.checks:
            check_registers(self.text, info, module.driver.chip.name)
        if "hazards" in module.driver.checks:
            opcodes.load()
            check_hazards(self.text, module.driver.chip)
        self.asks_the_host = asks_the_host(info, self.text)
        self._variants: dict[tuple[Any, ...], Compiled] = {}
        self._waves = 0  # launched so far
        self.estimates: dict[tuple[Any, ...], Any] = {}  # of launches that do the same (`model.model_launch`)
        self._lock = fork_safe_lock()
        self.launches = 0  # of those whose work-groups began in a drawn order
        self.needs_data = False  # what it does depends on what is in memory; known once `traced` was asked for
        self.lockstep = isinstance(module.asm, Disassembly)  # code of others, which may be handwritten
        self.screened: dict[bool, bool] = {}  # whether launches with and without full waves are screened first

    def compiled(self, full: bool, many: bool, waves: int = 0, screened: bool = False) -> Compiled:
        """The form for a launch of `waves` wavefronts."""
        driver = self.module.driver
        checks = screening_checks(driver.checks) if screened else driver.checks
        with self._lock:
            self._waves += waves
            level = int(self._waves > QUICK_WAVES)
            key = (full, many, checks, driver.profile, level, driver.stop)
            found = self._variants.get(key)
            if found is None:
                options = Options(
                    driver.chip.name, self.info.wavefront_size, full, checks, driver.profile, vgpr_count=self.info.vgprs,
                    rsrc1=self.info.rsrc1, numerics=driver.numerics, stop=driver.stop, fast=level > 0, lockstep=self.lockstep, strip=driver.jit.strip(level),
                )  # fmt: skip
                found = self._variants[key] = self._compile(options, many, level)
            return found

    def is_screened(self, full: bool, scalars: int, vectors: int) -> bool:
        """Whether a launch is worth a quick look first (`checks.screening`); the hardware fills so many scalar and vector registers."""
        driver = self.module.driver
        plain = not driver.profile and driver.observer is None and driver.stop is None and not self.asks_the_host
        if not plain or not driver.checks & {"race", "init"}:
            return False
        found = self.screened.get(full)
        if found is None:
            found = self.screened[full] = may_be_screened(
                self.text, driver.chip.name, self.info.wavefront_size, full, "init" in driver.checks, scalars, vectors
            )
        return found

    def traced(self, full: bool, many: bool) -> Compiled:
        """The form that records what it does (`trace`)."""
        key = (full, many, "trace")
        with self._lock:
            found = self._variants.get(key)
            if found is None:
                skip = data_only(self.text, self._kernarg(), waiting_places(self.text, self.module.driver.chip.name))
                options = Options(
                    self.module.driver.chip.name, self.info.wavefront_size, full, frozenset({"bounds"}), True, True, skip or frozenset(),
                    vgpr_count=self.info.vgprs, rsrc1=self.info.rsrc1, strip=self.module.driver.jit.strip(0),
                )  # fmt: skip
                # A few work-groups run, and without what depends on data alone.
                found = self._variants[key] = self._compile(options, many, 0)
                self.needs_data = skip is None
            return found

    def _kernarg(self) -> int:
        """The SGPR that the kernel arguments' address begins in, or -1."""
        p = self.info.properties  # user SGPRs come in this order: see `beginning.initial_sgprs`
        return (4 if p & 1 else 0) + (2 if p & 2 else 0) + (2 if p & 4 else 0) if p & 8 else -1

    def _compile(self, options: Options, many: bool, level: int) -> Compiled:
        driver = self.module.driver
        translation = translate(self.text.copy(), options, "wave", many)
        jit = driver.jit
        what = f"kernel {self.info.name!r} for the software GPU"
        # Of code that is worth time LLVM fits the helpers to the kernel.
        ir, helpers = (translation.ir, {}) if level else jit.helpers_of(translation.ir, level, what)
        needed = jit.support_for(ir) | helpers
        try:
            body = jit.compile(ir, level, "registers", what)
        except CodegenError:
            if level:
                raise
            # LLVM 22's code generator dies at -O0 of what it takes at -O1 (aiter's MLA of 16 heads: "UNREACHABLE" in SelectionDAG.cpp).
            body = jit.compile(ir, 1, "registers", what)
        addresses, keep = jit.link(body, ["wave"], needed)
        return Compiled(translation, addresses["wave"], self.info.wavefront_size, options, keep)
