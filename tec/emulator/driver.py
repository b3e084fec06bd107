"""`EmuDriver`: the driver surface (`tec.runtime.devices.surface.Driver`) over an AMD GPU in software.

A launch runs at once and on the calling stream's behalf: streams order trivially, and a fault is raised where the launch
stands. Events carry the host's clock.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tec.errors import CodegenError, DeviceError

from ..locks import fork_safe_lock
from ..runtime.devices.surface import Assembly, DeviceAttributes, Dim3
from ..runtime.objects.codeobject import NEWEST_VERSION, CodeObject, KernelInfo, read_code_object
from . import launch as launching
from .analyses.calls import decoded_kernel, parse_kernel
from .analyses.prologue import without_prologue
from .analyses.skeleton import data_only
from .checks.declared import check_registers
from .checks.hazards import check_hazards
from .checks.names import parse_checks
from .checks.order import waiting_places
from .checks.screening import FEWEST_WAVES, may_be_screened, screening_checks
from .checks.waits import check_waits
from .chips import named_chip
from .decode.asmparse import chip_of
from .decode.disassemble import SYMBOL, Disassembly, decode
from .decode.inst import KernelText, generation
from .device_memory import DeviceMemory
from .errors import EmulationError
from .hostcalls import Hostcalls, asks_the_host
from .images.textures import Sampling, texture_words
from .isa import opcodes
from .profile import counters_of, record
from .stopping import Stop
from .time.model import Estimate, model_launch
from .translate.jit import Jit, get_jit
from .translate.kernel import translate
from .translate.translation import Translation
from .translate.wave import Options


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
        launching.check_wave(module.driver.chip, info)
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


class EmuDriver:
    """One emulated chip behind the driver surface.

    `check`: which checks run ("bounds" always does): "race", "init", "wait", or "all". `budget`: how many instructions a
    work-group's loops may take. `threads`: how many host threads run work-groups. `host_cpu`: the CPU that kernels are translated
    for, in place of the machine's own (see `Jit`). `numerics`: "chip" sums in matrix instructions as the chip does where its rule is known
    (`matrix_sums`), "fma" by one fma a k on every chip. `seed`: of the orders that work-groups begin in, drawn for each launch where "race" is checked; None
    begins them by their numbers.
    """

    kind = "emu"

    def __init__(
        self,
        chip: str,
        check: str | Iterable[str] = "bounds",
        *,
        budget: int | None = None,
        threads: int | None = None,
        memory_bytes: int | None = None,
        host_cpu: str = "",
        numerics: str = "chip",
        seed: int | None = 0,
    ):
        self.chip = named_chip(chip)
        self.checks = parse_checks(check)
        if numerics not in ("chip", "fma"):
            raise DeviceError(
                f"no numerics called {numerics!r}", hint="chip (as the hardware sums, where that is known) or fma"
            )
        self.numerics = numerics
        self.seed = seed
        self.screened_from = FEWEST_WAVES
        self.profile = False
        # Whether launches are run, or modelled alone; how the model finds the last cache.
        self.runs, self.warm = True, False
        self.budget = budget or int(os.environ.get("TEC_EMULATOR_BUDGET", str(1 << 33)))
        self.threads = threads or launching.thread_count()
        self.memory = DeviceMemory(memory_bytes or self.chip.machine.memory_bytes, self.checks)
        self.host_cpu = host_cpu
        self.observer: Callable[..., None] | None = None
        # Launches end there with `Stopped`, which has the registers of the first wave that comes.
        self.stop: Stop | None = None
        self.notes: list[str] = []  # what the checks saw that is no fault, once each
        self._counters: dict[str, Any] = {}
        self._uncounted: tuple[bool, Callable[..., None] | None] | None = None
        self._jit: Jit | None = None
        self._hostcalls: Hostcalls | None = None
        self._captured: tuple[Any, list[Callable[[], None]]] | None = None  # a stream, and what was queued in it

    @property
    def hostcalls(self) -> Hostcalls:
        """What answers kernels that print."""
        if self._hostcalls is None:
            self._hostcalls = Hostcalls(self)
        return self._hostcalls

    @property
    def jit(self) -> Jit:
        if self._jit is None:
            self._jit = get_jit(self.host_cpu)
        return self._jit

    def note(self, function: EmuFunction, line: int, instruction: str) -> None:
        """Remember a store by several waves of one value, which is in order and often not meant."""
        statement = function.text.statements.get(line)
        text = (
            f"{function.info.name}, line {line}: {instruction.strip()}: several waves store the same value to one word"
        )
        text += f", from {statement}" if statement else ""
        if text not in self.notes:
            self.notes.append(text)

    def device_count(self) -> int:
        return 1

    def _ordinal(self, ordinal: int) -> None:
        if ordinal != 0:
            raise DeviceError(f"no emulated device {ordinal}: there is one, number 0")

    def attributes(self, ordinal: int) -> DeviceAttributes:
        self._ordinal(ordinal)
        c = self.chip
        return DeviceAttributes(
            name=f"{c.product} (emulated)", arch=c.name, compute_units=c.compute_units, lds_bytes=c.limits.lds_bytes,
            wavefront_size=c.wavefront_size, total_memory_bytes=self.memory.total_bytes, max_threads_per_block=1024,
            clock_khz=c.machine.clock_mhz * 1000, extra={"memory_gbps": c.machine.memory_gbps, "emulated": True},
        )  # fmt: skip

    # Code.
    def load_module(self, ordinal: int, image: bytes, asm: str | Assembly | None = None) -> EmuModule:
        self._ordinal(ordinal)
        code = read_code_object(image)
        if code.chip != self.chip.name:
            raise EmulationError(
                f"a code object for {code.chip} cannot run on {self.chip.name}", hint=f"compile it for {self.chip.name}"
            )
        if code.version > NEWEST_VERSION:
            raise EmulationError(
                f"code object version {code.version}; versions to {NEWEST_VERSION} are known",
                hint=f"compile it with -mcode-object-version={NEWEST_VERSION}, or update tec",
            )
        return EmuModule(self, code, decode(code) if asm is None else asm)

    def get_function(self, module: EmuModule, name: str) -> EmuFunction:
        found = module.functions.get(name)
        if found is None:
            info = module.code.kernels.get(name)
            if info is None:
                have = ", ".join(module.code.kernels) or "none"
                raise EmulationError(f"no kernel {name!r} in this module", hint=f"it has: {have}")
            found = module.functions[name] = EmuFunction(module, info)
        return found

    def unload_module(self, module: EmuModule) -> None:
        module.unload()

    # Memory.
    def alloc(self, ordinal: int, nbytes: int) -> int:
        self._ordinal(ordinal)
        return self.memory.alloc(nbytes)

    def free(self, ordinal: int, address: int) -> None:
        self.memory.free(address)

    def image_words(
        self,
        *,
        kind: str,
        address: int,
        channels: int,
        bits: int,
        number_kind: str,
        size: Dim3,
        pitch: int,
        linear: bool,
        normalized: bool,
        modes: tuple[str, str, str],
        border: str,
    ) -> list[int]:
        """The words of a texture object: see `textures.texture_words`."""
        how = Sampling(linear, normalized, modes, border)
        return texture_words(self.chip.name, kind, address, channels, bits, number_kind, size, pitch, how)

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        return self.memory.total_bytes - self.memory.used_bytes, self.memory.total_bytes

    def copy_to_device(self, ordinal: int, dst: int, src_host: int, nbytes: int, stream: Any = None) -> None:
        self.memory.check_range(dst, nbytes, "copy to device")
        with self.memory.quiet:
            ctypes.memmove(dst, src_host, nbytes)
            self.memory.mark_written(dst, nbytes)

    def copy_from_device(self, ordinal: int, dst_host: int, src: int, nbytes: int, stream: Any = None) -> None:
        self.memory.check_range(src, nbytes, "copy from device")
        ctypes.memmove(dst_host, src, nbytes)

    def copy_on_device(self, ordinal: int, dst: int, src: int, nbytes: int, stream: Any = None) -> None:
        if self._is_captured(stream, lambda: self.copy_on_device(ordinal, dst, src, nbytes)):
            return
        self.memory.check_range(src, nbytes, "copy on device, source")
        self.memory.check_range(dst, nbytes, "copy on device, destination")
        with self.memory.quiet:
            ctypes.memmove(dst, src, nbytes)
            self.memory.copy_undefined(dst, src, nbytes)

    def memset(self, ordinal: int, dst: int, byte: int, nbytes: int, stream: Any = None) -> None:
        if self._is_captured(stream, lambda: self.memset(ordinal, dst, byte, nbytes)):
            return
        self.memory.check_range(dst, nbytes, "memset")
        with self.memory.quiet:
            ctypes.memset(dst, byte & 255, nbytes)
            self.memory.mark_written(dst, nbytes)

    # Work.
    def launch(
        self, function: EmuFunction, grid: Dim3, block: Dim3, shared_bytes: int, kernargs: bytes, stream: Any = None,
        cooperative: bool = False,
    ) -> None:  # fmt: skip
        """Run a kernel to its end. `cooperative`: all work-groups at once, so that they may wait for each other."""
        if self._is_captured(
            stream,
            lambda: self.launch(function, grid, block, shared_bytes, kernargs, cooperative=cooperative),
        ):
            return
        estimate = None
        if self.observer is not None:
            # Before it runs: what it does may depend on what it overwrites.
            try:
                estimate = model_launch(self, function, grid, block, shared_bytes, kernargs, self.warm)
            except EmulationError:
                if not function.asks_the_host and (self.runs or not function.needs_data):
                    raise
                # Addresses out of memory that no kernel has filled: its launch is all that is known of it.
                estimate = Estimate(self.chip.machine.launch_us, "data", {"launch": self.chip.machine.launch_us})
        if self.runs:
            launching.run(self, function, grid, block, shared_bytes, kernargs, estimate, cooperative)
        elif self.observer is not None:
            now = time.perf_counter()
            self.observer(function, None, grid, block, estimate, None, now, now)

    # Graphs: what is queued in a stream, done again in its order.
    def capture_begin(self, ordinal: int, stream: Any) -> None:
        self._ordinal(ordinal)
        self._captured = (stream, [])

    def capture_end(self, ordinal: int, stream: Any) -> list[Callable[[], None]]:
        assert self._captured is not None
        steps, self._captured = self._captured[1], None
        return steps

    def graph_launch(self, ordinal: int, graph: list[Callable[[], None]], stream: Any = None) -> None:
        for step in graph:
            step()

    def graph_destroy(self, ordinal: int, graph: Any) -> None:
        pass

    def _is_captured(self, stream: Any, step: Callable[[], None]) -> bool:
        """Whether a stream is being captured, which then holds the step."""
        if self._captured is None or stream is None or stream is not self._captured[0]:
            return False
        self._captured[1].append(step)
        return True

    def set_counting(self, ordinal: int, on: bool) -> None:
        """Count what launches do from here on, for `last_counters` (see `tec.profile`)."""
        if on and self._uncounted is None:
            outer = self.observer

            def observe(*launch: Any) -> None:
                self._counters = counters_of(record(*launch))
                if outer is not None:
                    outer(*launch)

            self._uncounted = self.profile, outer
            self.profile, self.observer = True, observe
        elif not on and self._uncounted is not None:
            (self.profile, self.observer), self._uncounted = self._uncounted, None

    def last_counters(self, ordinal: int) -> dict[str, Any]:
        """The counters of the last launch under `set_counting`, once."""
        found, self._counters = self._counters, {}
        return found

    def synchronize(self, ordinal: int) -> None:
        self._ordinal(ordinal)

    def stream_create(self, ordinal: int) -> Any:
        self._ordinal(ordinal)
        return object()

    def stream_destroy(self, ordinal: int, stream: Any) -> None:
        pass

    def stream_synchronize(self, ordinal: int, stream: Any) -> None:
        pass

    def event_create(self, ordinal: int) -> Any:
        return [None]

    def event_destroy(self, ordinal: int, event: Any) -> None:
        pass

    def event_record(self, ordinal: int, event: Any, stream: Any = None) -> None:
        event[0] = time.perf_counter()

    def event_synchronize(self, ordinal: int, event: Any) -> None:
        pass

    def event_elapsed_ms(self, ordinal: int, start: Any, stop: Any) -> float:
        if start[0] is None or stop[0] is None:
            raise DeviceError("an event that was not recorded")
        return float(stop[0] - start[0]) * 1e3
