"""Code: modules, kernels, launches.

A launch's arguments come one by one or as a block, and are laid out by the code object's metadata. A fault of a kernel is the answer of its launch, and
of the next call that waits.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeviceError, TecError
from ...runtime.devices.drivers import link_object
from ...runtime.devices.surface import Dim3 as Size
from ...runtime.objects.bundle import assembly_beside, choose, code_objects
from ...runtime.objects.codeobject import KernelInfo
from ..errors import EmulationError
from ..modules import EmuFunction, EmuModule
from ..time.model import model_launch
from .base import Base, need, pointer, put_int, put_size, refuse, status_of
from .entry import (
    FILE_NOT_FOUND,
    INVALID_CONFIGURATION,
    INVALID_IMAGE,
    INVALID_VALUE,
    NO_BINARY,
    NOT_FOUND,
    TOO_LARGE,
    HipError,
    entry,
)

_MOST = 1 << 32  # bytes of an image that is believed
_BUFFER, _SIZE, _END = 1, 2, 3  # HIP_LAUNCH_PARAM_*


# Declared in C++ by the real library.
_CXX_LAUNCHES = (
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j",
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_",
)


@dataclass(eq=False)
class Module:
    """A loaded code object."""

    code: EmuModule


@dataclass(eq=False)
class Function:
    """A kernel of a module. allowed: bytes of dynamic LDS as the program set them; None: it did not."""

    kernel: EmuFunction
    module: Module
    allowed: int | None = None

    @property
    def info(self) -> KernelInfo:
        return self.kernel.info


def image_at(address: int) -> bytes:
    """The bytes of an ELF file, a bundle or a compressed bundle in memory; they say themselves how many they are."""
    head = ctypes.string_at(need(address, "the image"), 24)
    if head.startswith(b"\x7fELF"):
        header = ctypes.string_at(address, 64)
        phoff, shoff = struct.unpack_from("<QQ", header, 32)
        phsize, phnum, shsize, shnum = struct.unpack_from("<HHHH", header, 54)
        size = max(shoff + shsize * shnum, phoff + phsize * phnum)
        if size > _MOST:
            raise HipError(INVALID_IMAGE, "the image's header is damaged")
    elif head.startswith(b"__CLANG_OFFLOAD_BUNDLE__"):
        (count,) = struct.unpack("<Q", ctypes.string_at(address + 24, 8))
        at, size = address + 32, 32
        for _ in range(min(count, 1024)):
            offset, length, name = struct.unpack("<QQQ", ctypes.string_at(at, 24))
            at += 24 + min(name, 4096)
            size = max(size, offset + length, at - address)
        if size > _MOST:
            raise HipError(INVALID_IMAGE, "the bundle's table is damaged")
    elif head.startswith(b"CCOB"):
        (version,) = struct.unpack_from("<H", head, 4)
        if version not in (2, 3):
            raise HipError(
                INVALID_IMAGE, f"a compressed bundle of version {version}, which does not say how long it is"
            )
        size = struct.unpack_from("<I" if version == 2 else "<Q", head, 8)[0]
    else:
        raise HipError(INVALID_IMAGE, f"the image begins with {head[:8]!r}: neither ELF nor a bundle of code objects")
    return ctypes.string_at(address, size)


class Modules(Base):
    """hipModule*, hipFunc*, hipModuleOccupancy*."""

    def __init__(self, chip: str, check: str):
        super().__init__(chip, check)
        self._functions: dict[EmuFunction, Function] = {}

    # ---- loading

    def _load(self, data: bytes, path: Path | None = None) -> Module:
        try:
            found = choose(code_objects(data), self.driver.chip.name)
        except DeviceError as e:
            raise HipError(NO_BINARY if "no code object for" in str(e) else INVALID_IMAGE, str(e)) from None
        asm = assembly_beside(path) if path is not None else None
        return Module(self.driver.load_module(0, link_object(found.image) if found.relocatable else found.image, asm))

    @entry("ps")
    def hipModuleLoad(self, out: int, name: bytes) -> None:
        path = Path((name or b"").decode(errors="surrogateescape"))
        try:
            data = path.read_bytes()
        except OSError as e:
            raise HipError(FILE_NOT_FOUND, f"{path}: {e.strerror or e}") from None
        pointer(out).value = self.handle(self._load(data, path))

    @entry("pp", "hipModuleLoadData", "hipModuleLoadFatBinary")
    def hipModuleLoadData(self, out: int, image: int) -> None:
        pointer(out).value = self.handle(self._load(image_at(image)))

    @entry("ppupp")
    def hipModuleLoadDataEx(self, out: int, image: int, count: int, options: int, values: int) -> None:
        self.hipModuleLoadData(out, image)

    @entry("p")
    def hipModuleUnload(self, module: int) -> None:
        self.driver.unload_module(self.drop(module, Module).code)

    def _function(self, module: Module, name: str) -> Function:
        if name not in module.code.code.kernels:
            raise HipError(
                NOT_FOUND, f"no kernel {name!r} in this module; it has: {', '.join(module.code.code.kernels) or 'none'}"
            )
        kernel = self.driver.get_function(module.code, name)
        found = self._functions.get(kernel)
        if found is None:
            found = self._functions[kernel] = Function(kernel, module)
        return found

    @entry("pps")
    def hipModuleGetFunction(self, out: int, module: int, name: bytes) -> None:
        pointer(out).value = self.handle(
            self._function(self.held(module, Module), (name or b"").decode(errors="replace"))
        )

    @entry("pp")
    def hipModuleGetFunctionCount(self, out: int, module: int) -> None:
        put_int(out, len(self.held(module, Module).code.code.kernels))

    def _global(self, module: Module, name: str) -> tuple[int, int]:
        symbol = module.code.code.symbols.get(name)
        if symbol is None or not symbol.defined:
            raise HipError(NOT_FOUND, f"no variable {name!r} in this module")
        return int(module.code.symbol_addresses([name])[0]), symbol.size

    @entry("ppps")
    def hipModuleGetGlobal(self, out: int, size: int, module: int, name: bytes) -> None:
        address, nbytes = self._global(self.held(module, Module), (name or b"").decode(errors="replace"))
        if out:
            pointer(out).value = address
        if size:
            put_size(size, nbytes)

    # ---- launches

    def _arguments(self, info: KernelInfo, params: int, extra: int) -> bytes:
        wanted = info.explicit_args
        size = info.explicit_bytes
        if extra:
            buffer, nbytes = _block(extra)
            if nbytes < size:
                raise HipError(INVALID_VALUE, f"{info.name}: {nbytes} bytes of arguments, its parameters take {size}")
            return ctypes.string_at(buffer, size) if size else b""
        data = bytearray(size)
        if wanted:
            each = (ctypes.c_void_p * len(wanted)).from_address(need(params, f"the arguments of {info.name}"))
            for a, address in zip(wanted, each):
                data[a.offset : a.offset + a.size] = ctypes.string_at(
                    need(address or 0, f"an argument of {info.name}"), a.size
                )
        return bytes(data)

    def _launch(
        self, f: Function, grid: Size, block: Size, shared: int, stream: int, params: int, extra: int, cooperative: bool = False
    ) -> None:  # fmt: skip
        if 0 in grid or 0 in block:
            raise HipError(INVALID_CONFIGURATION, f"{f.info.name}: grid {grid}, block {block}")
        most = self.driver.attributes(0).max_threads_per_block
        if block[0] * block[1] * block[2] > most:  # told at once, and not again by the next call that waits
            raise HipError(
                INVALID_CONFIGURATION, f"{f.info.name}: a work-group of {block}; {most} work-items are the most"
            )
        data = self._arguments(f.info, params, extra)
        if cooperative:
            room = self._groups(f.info, block[0] * block[1] * block[2], shared) * self.driver.chip.compute_units
            if grid[0] * grid[1] * grid[2] > room:
                raise HipError(
                    TOO_LARGE,
                    f"{f.info.name}: grid {grid}; {room} of its work-groups run at once on {self.driver.chip.name}",
                )
        self.submit(stream, lambda: self._run(f, grid, block, shared, data, cooperative))

    def _run(self, f: Function, grid: Size, block: Size, shared: int, data: bytes, cooperative: bool = False) -> None:
        if self.timers:
            try:
                self.clock_us += model_launch(self.driver, f.kernel, grid, block, shared, data).microseconds
            except EmulationError:  # the run says what is wrong
                self.clock_us += self.driver.chip.machine.launch_us
        try:
            self.driver.launch(f.kernel, grid, block, shared, data, cooperative=cooperative)
        except TecError as e:
            self.pending = status_of(e)
            raise

    @entry("puuuuuuuppp")
    def hipModuleLaunchKernel(
        self,
        f: int,
        gx: int,
        gy: int,
        gz: int,
        bx: int,
        by: int,
        bz: int,
        shared: int,
        stream: int,
        params: int,
        extra: int,
    ) -> None:
        self._launch(self.held(f, Function), (gx, gy, gz), (bx, by, bz), shared, stream, params, extra)

    @entry("puuuuuuupp")
    def hipModuleLaunchCooperativeKernel(
        self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, params: int
    ) -> None:  # fmt: skip
        self._launch(self.held(f, Function), (gx, gy, gz), (bx, by, bz), shared, stream, params, 0, True)

    @entry("puuuuuuzpppppu", "hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel", *_CXX_LAUNCHES)
    def hipExtModuleLaunchKernel(
        self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, params: int, extra: int,
        start: int, stop: int, flags: int,
    ) -> None:  # fmt: skip
        """The grid counts work-items here."""
        if any(b == 0 or g % b for g, b in zip((gx, gy, gz), (bx, by, bz))):
            raise refuse(
                f"a grid of {(gx, gy, gz)} work-items in work-groups of {(bx, by, bz)}: parts of work-groups are not modelled"
            )
        if start:
            self._event(start, stream)
        self._launch(
            self.held(f, Function), (gx // bx, gy // by, gz // bz), (bx, by, bz), shared, stream, params, extra
        )
        if stop:
            self._event(stop, stream)

    def _event(self, event: int, stream: int) -> None:
        self.hipEventRecord(event, stream)  # type: ignore[attr-defined]  # of the class that joins all parts

    # ---- what kernels are

    @entry("p", "hipKernelNameRef", value=True)
    def name_of_function(self, f: int) -> int:
        return self.text(self.held(f, Function).info.name)

    @entry("pip")
    def hipFuncGetAttribute(self, out: int, which: int, f: int) -> None:
        function = self.held(f, Function)
        i = function.info
        # hipFunction_attribute: most threads, LDS, constants, scratch, registers, PTX and binary versions, cache mode, most dynamic LDS
        most = self._most_dynamic(function)
        values = (i.max_workgroup_size, i.lds_bytes, 0, i.private_bytes, i.vgprs, 0, 0, 0, most)
        if not 0 <= which < len(values):
            raise HipError(INVALID_VALUE, f"{which} is no hipFunction_attribute")
        put_int(out, values[which])

    def _most_dynamic(self, f: Function) -> int:
        """Bytes of dynamic LDS that a launch may ask for: those that the program allowed (hipFuncSetAttribute), else all that the chip has beside the static
        ones."""
        return self.driver.chip.limits.lds_bytes - f.info.lds_bytes if f.allowed is None else f.allowed

    def _groups(self, info: KernelInfo, size: int, dynamic: int) -> int:
        """Work-groups that a compute unit holds."""
        limits = self.driver.chip.limits
        waves = -(-size // info.wavefront_size)
        by_simd = limits.occupancy(info.vgprs + info.agprs, info.lds_bytes + dynamic, waves, info.wavefront_size)[0]
        return by_simd * limits.simds // max(1, waves)

    @entry("ppiz", "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor")
    def groups_of_function(self, out: int, f: int, size: int, dynamic: int) -> None:
        put_int(out, self._groups(self.held(f, Function).info, size, dynamic))

    @entry("ppizu", "hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")
    def groups_of_function_flags(self, out: int, f: int, size: int, dynamic: int, flags: int) -> None:
        self.groups_of_function(out, f, size, dynamic)

    @entry("pppziu", "hipModuleOccupancyMaxPotentialBlockSizeWithFlags")
    def best_of_function_flags(self, grid: int, block: int, f: int, dynamic: int, limit: int, flags: int) -> None:
        self.best_of_function(grid, block, f, dynamic, limit)

    def _best(self, grid: int, block: int, info: KernelInfo, dynamic: int, limit: int) -> None:
        sizes = range(info.wavefront_size, min(limit or 1024, info.max_workgroup_size) + 1, info.wavefront_size)
        best = max(sizes, key=lambda n: (self._groups(info, n, dynamic) * n, n), default=info.wavefront_size)
        put_int(block, best)
        put_int(grid, self._groups(info, best, dynamic) * self.driver.chip.compute_units)

    @entry("pppzi", "hipModuleOccupancyMaxPotentialBlockSize")
    def best_of_function(self, grid: int, block: int, f: int, dynamic: int, limit: int) -> None:
        self._best(grid, block, self.held(f, Function).info, dynamic, limit)


def _block(extra: int) -> tuple[int, int]:
    """Address and bytes of the argument block that a launch's `extra` names."""
    at, buffer, nbytes = extra, 0, 0
    for _ in range(8):
        key = ctypes.c_uint64.from_address(at).value
        if key in (0, _END):
            break
        value = ctypes.c_uint64.from_address(at + 8).value
        if key == _BUFFER:
            buffer = value
        elif key == _SIZE:
            nbytes = ctypes.c_size_t.from_address(need(value, "the size of the arguments")).value
        else:
            raise HipError(INVALID_VALUE, f"key {key:#x} in a launch's extra")
        at += 16
    return buffer, nbytes
