"""`EmuDriver`: the driver surface (`tec.runtime.devices.surface.Driver`) over an AMD GPU in software.

A launch runs at once and on the calling stream's behalf: streams order trivially, and a fault is raised where the launch
stands. Events carry the host's clock.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from tec.errors import DeviceError

from ..runtime.devices.surface import Assembly, DeviceAttributes, Dim3
from ..runtime.objects.codeobject import NEWEST_VERSION, read_code_object
from . import launch as launching
from .checks.names import parse_checks
from .checks.screening import FEWEST_WAVES
from .chips import named_chip
from .decode.disassemble import decode
from .device_memory import DeviceMemory
from .errors import EmulationError
from .hostcalls import Hostcalls
from .images.textures import Sampling, texture_words
from .modules import EmuFunction, EmuModule
from .profile import counters_of, record
from .stopping import Stop
from .time.model import Estimate, model_launch
from .translate.jit import Jit, get_jit


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
