"""Devices: `cpu()`, `rocm(0)`, `cuda(0)`, `rocm_emu("gfx942")`, with their attributes, memory, streams and events.

A `Device` joins a driver (`surface.Driver`; none for the CPU) with an ordinal and a caching allocator. There is one
object a device, so devices compare by identity. Making one raises `DeviceError` when the device is not there.

`TEC_EMULATE=gfx942` makes `rocm(0)` the AMD GPU in software (`TEC_EMULATE_CHECK` names its checks).
"""

from __future__ import annotations

import os
import platform
import threading
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import ArgumentError, DeviceError, MissingPackageError
from ...locks import fork_safe_lock
from ..elsewhere import missing
from .allocator import CachingAllocator, MemoryStats
from .drivers import open_driver
from .host_memory import KeptBlocks, cpu_memory, host_memory
from .stream import Event, GraphCapture, Stream
from .surface import DeviceAttributes

if TYPE_CHECKING:
    import numpy as np

    from ..arrays.images import Image
    from ..modules.foreign import LoadedCode
    from .profiling import Profile
    from .stream import Event, GraphCapture, Stream
    from .surface import Driver


class _ThreadState(threading.local):
    """Per thread: the handle of the current stream (None is the device's default stream), and the graph that is captured there."""

    stream: Any = None
    capturing: GraphCapture | None = None


class Device:
    """One device. `kind` is "cpu", "rocm" or "cuda"; `index` its ordinal; `driver` its driver, None for the CPU.

    >>> dev = tec.device("cpu")
    >>> dev.kind, dev.index, dev.wavefront_size
    ('cpu', 0, 1)
    """

    __getattr__ = missing("device", "a device")

    def __init__(self, kind: str, index: int, driver: Driver | None, label: str):
        self.kind = kind
        self.index = index
        self.driver = driver
        self.label = label
        self.local = _ThreadState()
        self.profile: Profile | None = None  # the innermost `tec.profile(dev)`
        self.allocator = CachingAllocator(driver, index, label) if driver is not None else None
        self._attributes: DeviceAttributes | None = None

    def __repr__(self) -> str:
        return self.label

    @property
    def capturing(self) -> GraphCapture | None:
        """The graph that this thread captures; other threads' work goes on."""
        return self.local.capturing

    def __enter__(self) -> Device:
        """`with dev:` functions of `tec.array` that make arrays make them on this device, where they are given none."""
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(self, *exc: Any) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])

    def __reduce__(self) -> Any:
        raise TypeError(f"a device ({self.label}) cannot be pickled")

    @property
    def exist(self) -> bool:
        """True: a Device is only made for a device that is there (see `rocm_exists`, `cuda_exists`)."""
        return True

    @property
    def is_emulated(self) -> bool:
        """Whether it is an AMD GPU in software.

        >>> tec.rocm_emu("gfx942").is_emulated, tec.cpu().is_emulated
        (True, False)
        """
        return self.driver is not None and self.driver.kind == "emu"

    # ---- what the device is

    @property
    def attributes(self) -> DeviceAttributes:
        """All attributes, as the driver gave them."""
        if self._attributes is None:
            self._attributes = _cpu_attributes() if self.driver is None else self.driver.attributes(self.index)
        return self._attributes

    @property
    def name(self) -> str:
        """The product's name, as the driver or system gives it."""
        return self.attributes.name

    @property
    def arch(self) -> str:
        """The chip: "gfx942", "sm_90" or the CPU's architecture."""
        return self.attributes.arch

    @property
    def compute_units(self) -> int:
        """Compute units, multiprocessors, or cores of a CPU."""
        return self.attributes.compute_units

    @property
    def lds_bytes(self) -> int:
        """Shared memory a work-group may have."""
        return self.attributes.lds_bytes

    @property
    def wavefront_size(self) -> int:
        """Lanes of a wavefront (32 or 64); 1 on a CPU."""
        return self.attributes.wavefront_size

    @property
    def max_threads(self) -> int:
        """Threads a work-group may have."""
        return self.attributes.max_threads_per_block

    @property
    def total_memory_bytes(self) -> int:
        """The device's memory in bytes."""
        return self.attributes.total_memory_bytes

    @property
    def compute_version(self) -> str:
        """The chip's version as "major.minor" ("9.0" of sm_90, "9.4.2" of gfx942), as te programs ask for it; "0.0" of a CPU.

        >>> tec.rocm_emu("gfx942").compute_version, tec.cpu().compute_version
        ('9.4.2', '0.0')
        """
        digits = self.arch.rpartition("_")[2] if self.arch.startswith("sm_") else self.arch.removeprefix("gfx")
        if self.driver is None or len(digits) < 2:
            return "0.0"
        return f"{digits[:-1]}.{digits[-1]}" if self.arch.startswith("sm_") else ".".join([digits[:-2], *digits[-2:]])

    # ---- memory

    def memory(self) -> MemoryStats:
        """The bytes of device memory that are held, cached, and free.

        >>> stats = tec.cpu().memory()
        >>> 0 < stats.free <= stats.total
        True
        """
        if self.allocator is not None:
            return self.allocator.stats()
        return cpu_memory()

    def empty_cache(self) -> None:
        """Give memory that is kept for reuse back to the driver, or to the system."""
        if self.allocator is not None:
            self.allocator.empty_cache()
        else:
            KeptBlocks.empty()

    # ---- work

    def sync(self) -> None:
        """Wait until all work on the device is done. Launches are asynchronous; their errors may come out here."""
        if self.allocator is not None:
            self.allocator.synchronize()

    synchronize = sync

    def stream(self) -> Stream:
        """A new stream: `with dev.stream() as s:` makes this thread's copies and launches go to it.

        >>> dev = tec.cpu()
        >>> with dev.stream():
        ...     a = tec.nd.array(np.ones(4), dev)
        """
        return Stream(self)

    def event(self) -> Event:
        """A new event: `e.record()`, `e.sync()`, `start.elapsed_ms(stop)`.

        >>> start = tec.cpu().event().record()
        >>> start.elapsed_ms(tec.cpu().event().record()) >= 0.0
        True
        """
        return Event(self)

    def load(self, source: str | os.PathLike[str] | bytes, asm: str | None = None) -> LoadedCode:
        """Kernels that any compiler made: `dev.load("kernel.hsaco")["name"][grid, block](a, b, n)`.

        `source`: a file or its bytes: a linked code object (versions 4 to 6), a relocatable object, a clang offload bundle, or an executable
        with a fat binary; the code object for this device's chip is taken. `asm`: its assembly, which the AMD GPU in software
        runs; left out, `kernel.s` or `kernel.amdgcn` beside `kernel.hsaco`. Raises DeviceError where there is no code for this device.
        """
        from ..modules.foreign import load

        return load(self, source, asm)

    def image(
        self,
        data: np.ndarray[Any, Any],
        kind: str = "2D",
        *,
        read: str = "element",
        filter: str = "point",
        address: str | tuple[str, ...] = "clamp",
        border: str = "zero",
        normalized: bool = False,
    ) -> Image:
        """An image (texture) for kernels of `load`: an argument where a kernel takes a texture or surface object, on the AMD GPU in software.

        `data`: (width,), (height, width) or (depth, height, width), with an axis of 1, 2 or 4 channels behind them where there are several; `kind` "1D", "2D",
        "3D", "1D_ARRAY" (layers, width), "2D_ARRAY" (layers, height, width) or "CUBE" (six faces each). `read`: "element" as it is, "normalized" integers
        as numbers from 0 (or -1) to 1, "srgb" bytes as linear light. `filter`: "point" or "linear"; `address`: "clamp", "wrap", "mirror" or "border", of all
        axes or of each from x on; `border`: "zero", "black", "white"; `normalized`: coordinates from 0 to 1. `image.numpy()` reads it back. Raises
        ArgumentError for what no image can be, DeviceError on a device that makes none (gfx942 and gfx950 have no image instructions).
        """
        from ..arrays.images import make_image

        return make_image(self, data, kind, read, filter, address, border, normalized)

    def capture(self) -> GraphCapture:
        """`with dev.capture() as graph:` records the launches in the block; `graph.launch()` runs them all at once."""
        return GraphCapture(self)


def _cpu_attributes() -> DeviceAttributes:
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("model name"):
                    name = line.partition(":")[2].strip()
                    break
    except OSError:
        pass
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return DeviceAttributes(name, platform.machine(), cores, 0, 1, host_memory()[1], 1, (1, 1, 1), (1, 1, 1))


_LOCK = fork_safe_lock()
_DEVICES: dict[tuple[str, int, int], Device] = {}


def _get(kind: str, index: int, driver: Driver | None, label: str) -> Device:
    key = (kind, index, id(driver))
    device = _DEVICES.get(key)
    if device is None:
        with _LOCK:
            device = _DEVICES.setdefault(key, Device(kind, index, driver, label))
    return device


# Of `with dev:`, the innermost last.
_CURRENT: ContextVar[tuple[Device, ...]] = ContextVar("tec_current_devices", default=())


def place(value: DeviceLike) -> Device:
    """As `as_device`, but None is the device of the innermost `with dev:`."""
    held = _CURRENT.get()
    return held[-1] if value is None and held else as_device(value)


# The device of launches whose arguments name none: of `tec.tile.on_device`.
WITHOUT_ARRAYS: ContextVar[Device | None] = ContextVar("tec_device_without_arrays", default=None)


def without_arrays(kind: str) -> Device:
    """The device of a launch without arrays, of code for `kind`."""
    wanted = WITHOUT_ARRAYS.get()
    return wanted if wanted is not None and wanted.kind == kind else as_device(f"{kind}:0")


def _check_index(index: Any, what: str) -> int:
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise DeviceError(
            f"{what} takes a device number, not {index!r}", hint='tec.rocm(0), or a text: tec.device("rocm:0")'
        )
    number = index.__index__()
    if number < 0:
        raise DeviceError(f"{what}({number}): device numbers start at 0", hint="the first device is 0")
    return int(number)


def cpu(index: int = 0) -> Device:
    """The host CPU as a device. All indices name the same memory.

    >>> tec.nd.array(np.ones(3, "float32"), tec.cpu()).device
    cpu(0)
    """
    index = _check_index(index, "cpu")
    return _get("cpu", index, None, f"cpu({index})")


@lru_cache(maxsize=1)
def _hip() -> Driver:
    return open_driver("hip")


@lru_cache(maxsize=1)
def _cuda() -> Driver:
    return open_driver("cuda")


_EMULATE_HINT = "TEC_EMULATE=gfx942 in the environment makes tec.rocm(0) an AMD GPU in software"


def rocm(index: int = 0) -> Device:
    """An AMD GPU, through libamdhip64; with TEC_EMULATE=<chip> set, that chip in software.

    Raises DeviceError, which says what was looked for, when there is none.

    >>> tec.rocm(0)  # with TEC_EMULATE=gfx942
    rocm_emu('gfx942')
    """
    index = _check_index(index, "rocm")
    chip = os.environ.get("TEC_EMULATE", "").strip()
    if chip:
        if index:
            raise DeviceError(
                f"rocm({index}): TEC_EMULATE={chip} makes one GPU in software, rocm(0)",
                hint='tec.rocm_emu("gfx942", 1) is a second one',
            )
        checks = os.environ.get("TEC_EMULATE_CHECK", "").strip()
        return rocm_emu(chip, 0, **({"check": set(checks.replace(",", " ").split())} if checks else {}))
    try:
        driver = _hip()
        count = driver.device_count()
    except DeviceError as error:
        hint = f"{error.hint}\n{_EMULATE_HINT}" if error.hint else _EMULATE_HINT
        raise DeviceError(error.message, hint=hint) from None
    if count == 0:
        raise DeviceError(
            f"no AMD GPU was found: {getattr(driver, 'library', 'libamdhip64')} was loaded and sees no device"
            f"{_visible('ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'GPU_DEVICE_ORDINAL')}",
            hint=f"/dev/kfd and /dev/dri/renderD* must be there and readable (groups render, video); {_EMULATE_HINT}",
        )
    if index >= count:
        raise DeviceError(
            f"rocm({index}): there {'is one AMD GPU' if count == 1 else f'are {count} AMD GPUs'}, counted from 0",
            hint=f"the last one is tec.rocm({count - 1}); ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES hide GPUs",
        )
    return _get("rocm", index, driver, f"rocm({index})")


def rocm_emu(chip: str = "gfx942", index: int = 0, **options: Any) -> Device:
    """An AMD GPU in software: a device that executes AMDGPU machine code on the CPU (docs/emulator.md).

    chip: "gfx942", or a product, "mi325x", whose figures the time model then takes. index: which of several such GPUs.
    check: what is checked beside bounds, "race,init", a set of names, or "all". numerics: matrix instructions sum as the
    "chip" does where its rule is known (the default), or with one "fma" for each k. Raises DeviceError for an unknown chip.

    >>> tec.rocm_emu("gfx942", check="race")
    rocm_emu('gfx942', check='race')
    """
    if not isinstance(chip, str):
        raise ArgumentError(f"rocm_emu: chip is {type(chip).__name__}, not a name", hint='rocm_emu("gfx942")')
    chip = chip.split(":")[0]
    try:
        driver = open_driver("emu", chip, _check_index(index, "rocm_emu"), **options)
    except MissingPackageError as error:
        raise DeviceError(f"the AMD GPU in software cannot start: {error.message}", hint=error.hint) from None
    except ImportError as error:
        raise DeviceError(f"the AMD GPU in software cannot start: {error}", hint=f"pip install {error.name}") from None
    # The same device has one label, by default or by name, by text or by a set, which has "bounds" in any case.
    check = options.get("check", "bounds")
    names = check.replace(" ", "").split(",") if isinstance(check, str) else check
    said = {**options, "check": ",".join(sorted({*names} - {"bounds"}))}
    extra = "".join(f", {k}={v!r}" for k, v in said.items() if (k, v) != ("check", ""))
    which = f", {index}" if index else ""
    return _get("rocm", 0, driver, f"rocm_emu({chip!r}{which}{extra})")


def cuda(index: int = 0) -> Device:
    """An NVIDIA GPU, through libcuda. Raises DeviceError when there is none.

    >>> try:
    ...     tec.cuda(-1)
    ... except tec.DeviceError as error:
    ...     print(error.message)
    cuda(-1): device numbers start at 0
    """
    index = _check_index(index, "cuda")
    driver = _cuda()
    count = driver.device_count()
    if count == 0:
        raise DeviceError(
            f"no NVIDIA GPU was found: libcuda was loaded and sees no device{_visible('CUDA_VISIBLE_DEVICES')}",
            hint='build for "llvm" to run on the CPU',
        )
    if index >= count:
        raise DeviceError(
            f"cuda({index}): there {'is one NVIDIA GPU' if count == 1 else f'are {count} NVIDIA GPUs'}, counted from 0",
            hint=f"the last one is tec.cuda({count - 1}); CUDA_VISIBLE_DEVICES hides GPUs",
        )
    return _get("cuda", index, driver, f"cuda({index})")


def _visible(*names: str) -> str:
    found = [f"{n}={os.environ[n]}" for n in names if n in os.environ]
    return f" ({', '.join(found)})" if found else ""


def rocm_exists(index: int = 0) -> bool:
    """Whether `rocm(index)` would give a device.

    >>> tec.runtime.rocm_exists()  # with TEC_EMULATE=gfx942
    True
    """
    return _exists(rocm, index)


def cuda_exists(index: int = 0) -> bool:
    """Whether `cuda(index)` would give a device.

    >>> tec.runtime.cuda_exists(999)
    False
    """
    return _exists(cuda, index)


def _exists(make: Any, index: int) -> bool:
    try:
        make(index)
    except DeviceError:
        return False
    return True


DeviceLike: TypeAlias = Device | str | None  # None is the CPU, or where the data is


def as_device(value: DeviceLike = None, index: int | None = None) -> Device:
    """A Device from a Device, text such as "cpu", "rocm:1", "cuda:0", "rocm_emu:gfx942", or None (the CPU); `index` may stand apart
    from the kind: `tec.device("rocm", 1)`.

    >>> tec.device(), tec.device("rocm_emu:gfx942")
    (cpu(0), rocm_emu('gfx942'))
    """
    if index is not None and isinstance(value, str) and ":" not in value:
        value = f"{value}:{index}"
    if isinstance(value, Device):
        return value
    if value is None:
        return cpu()
    if isinstance(value, str):
        kind, _, rest = value.partition(":")
        if kind == "rocm_emu":
            return rocm_emu(rest or "gfx942")
        make = {"cpu": cpu, "llvm": cpu, "rocm": rocm, "hip": rocm, "cuda": cuda}.get(kind)
        if make is not None and (not rest or rest.isdigit()):
            return make(int(rest or 0))
    existing = getattr(type(value), "existing", None)
    if existing is not None:  # what a program of another library calls a device: it raises why this host lacks it
        return as_device(existing(value))
    raise DeviceError(
        f"not a device: {value!r}", hint='tec.cpu(), tec.rocm(0), tec.cuda(0), tec.rocm_emu("gfx942"), or "rocm:0"'
    )


def custom(driver: Driver, kind: str, index: int = 0, label: str | None = None) -> Device:
    """A device of any driver that implements the surface: for tests and for drivers from outside."""
    return _get(kind, index, driver, label or f"{kind}({index})")
