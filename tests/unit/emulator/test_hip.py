"""The stand-in for libamdhip64: its functions in this process, programs in Python and C under it, tinygrad's HIP backend where tinygrad is."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

import numpy as np
import pytest

from tec.codegen.objects.linking import link
from tec.emulator import get_driver
from tec.emulator import hip as stand_in
from tec.emulator.hip import environment
from tec.emulator.hip.entry import ENTRIES, refused_names
from tec.emulator.hip.library import build_library, library_folder
from tec.emulator.hip.properties import DevicePropR0000, DevicePropR0600
from tec.emulator.hip.runtime import entry_names
from tec.errors import DeviceError
from tec.runtime.devices.hip_driver import HipDriver
from tests.thinned import thinned_rows
from tests.unit.runtime.test_foreign import built, bundle

from .harness import compile_ir

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an ELF library")


def code_object(chip="gfx942"):
    return link(built(chip)[0], "own")


class Hip:
    """The library with argument types that ctypes cannot guess."""

    def __init__(self):
        self.lib = ctypes.CDLL(str(library_folder() / "lib" / "libamdhip64.so"))
        self.lib.hipGetErrorString.restype = c_char_p
        self.lib.hipGetErrorName.restype = c_char_p

    def __getattr__(self, name):
        function = getattr(self.lib, name)

        def call(*args):
            return function(*[c_void_p(a) if isinstance(a, int) and a >= 1 << 16 else a for a in args])

        return call

    def made(self, name, *args):
        """The handle or the address that a function writes."""
        out = c_void_p()
        assert getattr(self, name)(byref(out), *args) == 0, name
        return out.value

    def upload(self, array):
        address = self.made("hipMalloc", c_size_t(array.nbytes))
        assert self.hipMemcpy(address, array.ctypes.data, c_size_t(array.nbytes), 1) == 0
        return address

    def download(self, address, like):
        out = np.empty_like(like)
        assert self.hipMemcpy(out.ctypes.data, address, c_size_t(out.nbytes), 2) == 0
        return out

    def function(self, name, image=None):
        image = code_object() if image is None else image
        return self.made("hipModuleGetFunction", self.made("hipModuleLoadData", c_char_p(image)), name)

    def launch(self, function, grid, block, shared, values, stream=None):
        """Arguments one by one, through pointers."""
        where = (c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        return self.hipModuleLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, where, None)


class Pair(ctypes.Structure):
    _fields_ = [("i", c_int), ("f", c_float), ("h", ctypes.c_int16)]


def scale_arguments(x, y, n):
    return [c_void_p(x), c_void_p(y), c_int(n), c_float(0.5), ctypes.c_int8(-3), Pair(7, 2.0, -9)]


def scaled(x):
    return (x * np.float32(0.5) - 3 + 7) * 2 - 9


@pytest.fixture(scope="module")
def hip():
    """The library on a software GPU with checks, whatever another test of this process took it for."""
    lib = Hip()
    assert lib.hipInit(0) == 0
    runtime = stand_in._runtime
    assert runtime is not None
    before, runtime.driver = runtime.driver, get_driver("gfx942", check="race,init")
    lib.hipGetLastError()
    yield lib
    runtime.driver = before


def test_the_table_of_sections_ends_the_library():
    """Link editors read it: its rows name what lies where."""
    data = build_library()
    (at,), (size, count, names) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
    assert size == 64 and at % 8 == 0 and at + size * count == len(data)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, at + size * k) for k in range(count)]
    text = data[rows[names][4] : rows[names][4] + rows[names][5]]
    found = {text[r[0] : text.index(b"\0", r[0])].decode(): r for r in rows}
    assert {".text", ".dynsym", ".dynstr", ".hash", ".dynamic", ".shstrtab"} <= found.keys()
    order, info = list(found), {name: r[7] for name, r in found.items() if r[7]}
    # Symbols from the first on are global; a definition of a version is 20 bytes and a name of 8.
    assert info == {".dynsym": 1, ".gnu.version_d": found[".gnu.version_d"][5] // 28}
    assert {order[found[name][6]] for name in (".dynsym", ".dynamic", ".gnu.version_d")} == {".dynstr"}
    offset, nbytes = found[".dynstr"][4:6]
    assert b"\0hipModuleLoadData\0" in data[offset : offset + nbytes]


def test_limits_are_kept_or_refused(hip):
    got = ctypes.c_size_t()

    def limit(which):
        assert hip.hipDeviceGetLimit(byref(got), which) == 0
        return got.value

    stack, fifo, heap = 0, 1, 2
    assert limit(stack) == 1024 and limit(heap) == 8 << 20
    assert hip.hipDeviceSetLimit(stack, c_size_t(4096)) == 0 and hip.hipDeviceSetLimit(heap, c_size_t(64 << 20)) == 0
    assert limit(stack) == 4096 and limit(heap) == 64 << 20
    assert hip.hipDeviceSetLimit(stack, c_size_t(1 << 20)) == 1 and limit(stack) == 4096
    unsupported = 215
    assert hip.hipDeviceSetLimit(fifo, c_size_t(1024)) == hip.hipDeviceGetLimit(byref(got), fifo) == unsupported
    assert hip.hipGetErrorName(unsupported) == b"hipErrorUnsupportedLimit"
    assert hip.hipDeviceSetLimit(7, c_size_t(1)) == 1
    flags = ctypes.c_uint()
    assert hip.hipSetDeviceFlags(8) == 0 and hip.hipGetDeviceFlags(byref(flags)) == 0 and flags.value == 8
    assert hip.hipDeviceReset() == 0
    assert limit(stack) == 1024 and hip.hipGetDeviceFlags(byref(flags)) == 0 and flags.value == 0


def test_every_function_is_in_the_library(hip):
    for name in entry_names():
        assert getattr(hip.lib, name), name
    assert not set(refused_names()) & set(ENTRIES)
    assert hip.lib.hipGraphAddKernelNode(None) == 801
    with pytest.raises(AttributeError):
        _ = hip.lib.hipNoSuchFunction


def test_names_of_the_real_library():
    """Every function that libamdhip64 of ROCm 5.2, 6.3 and 7.2 exports is there, so that no program stops at loading."""
    text = Path(__file__).with_name("libamdhip64.txt").read_text()
    real = {w for line in text.splitlines() if line[0] != "#" for w in line.split()}
    assert len(real) > 540 and not real - set(entry_names())


def test_addresses_of_functions(hip):
    """From HIP 6.0 on a name may mean a newer function: what Triton's own driver asks for."""
    found, status, props = c_void_p(), c_int(7), DevicePropR0600()
    for version, name in (
        (599, "hipGetDeviceProperties"),
        (600, "hipGetDevicePropertiesR0600"),
        (60443483, "hipGetDevicePropertiesR0600"),
    ):
        want = c_void_p()
        assert (
            hip.lib.hipGetProcAddress(b"hipGetDeviceProperties", byref(found), version, c_size_t(0), byref(status)) == 0
        )
        assert hip.lib.hipGetProcAddress(name.encode(), byref(want), 0, c_size_t(0), None) == 0
        assert status.value == 0 and found.value == want.value
    assert ctypes.CFUNCTYPE(c_int, c_void_p, c_int)(found.value)(ctypes.addressof(props), 0) == 0
    assert props.gcnArchName.decode().startswith("gfx942")
    assert (
        hip.lib.hipGetProcAddress(b"hipNoSuchFunction", byref(found), 600, c_size_t(0), byref(status)) == 500
        and status.value == 1
    )


def test_attributes_of_pointers(hip):
    address, host = hip.made("hipMalloc", c_size_t(1000)), hip.made("hipHostMalloc", c_size_t(64), 0)
    kind, value = c_uint(), c_void_p()
    assert hip.hipPointerGetAttribute(byref(kind), 2, address + 8) == 0 and kind.value == 2
    assert hip.hipPointerGetAttribute(byref(kind), 2, host) == 0 and kind.value == 1
    for which, want in ((3, address + 8), (11, address), (12, 1000)):
        assert hip.hipPointerGetAttribute(byref(value), which, address + 8) == 0 and value.value == want
    assert hip.hipPointerGetAttribute(byref(kind), 2, ctypes.addressof(kind)) == 1  # of the host alone
    wanted, out = (c_int * 2)(2, 12), (c_void_p * 2)(ctypes.addressof(kind), ctypes.addressof(value))
    assert hip.hipDrvPointerGetAttributes(2, wanted, out, address) == 0 and (kind.value, value.value) == (2, 1000)
    assert hip.hipFree(address) == 0 and hip.hipHostFree(host) == 0


def test_device(hip):
    count, value = c_int(), c_int(7)
    assert hip.hipGetDeviceCount(byref(count)) == 0 and count.value == 1
    assert hip.hipSetDevice(0) == 0 and hip.hipSetDevice(1) == 101
    assert hip.hipGetDevice(byref(value)) == 0 and value.value == 0
    # Offsets that programs are compiled with.
    assert (ctypes.sizeof(DevicePropR0600), DevicePropR0600.gcnArchName.offset) == (1472, 1160)
    assert (ctypes.sizeof(DevicePropR0000), DevicePropR0000.gcnArchName.offset) == (792, 396)
    new, old = DevicePropR0600(), DevicePropR0000()
    assert hip.hipGetDevicePropertiesR0600(byref(new), 0) == 0 and hip.hipGetDeviceProperties(byref(old), 0) == 0
    assert new.gcnArchName == old.gcnArchName == b"gfx942" and new.multiProcessorCount == old.multiProcessorCount == 304
    assert (new.warpSize, new.major, new.minor, new.sharedMemPerBlock) == (64, 9, 4, 65536)
    for number, expected in ((87, 64), (63, 304), (74, 65536), (56, 1024), (26, 1024), (29, 2**31 - 1), (16, 0)):
        assert hip.hipDeviceGetAttribute(byref(value), number, 0) == 0 and value.value == expected
    assert hip.hipGetErrorName(801) == b"hipErrorNotSupported"


def test_memory(hip):
    x = np.arange(1000, dtype=np.float32)
    a = hip.upload(x)
    np.testing.assert_array_equal(hip.download(a, x), x)
    assert hip.hipMemcpy(a, x.ctypes.data, c_size_t(x.nbytes + 1), 1) == 1
    assert b"not within one allocation" in hip.hipGetErrorString(1)
    b = hip.made("hipMallocAsync", c_size_t(x.nbytes), None)
    assert hip.hipMemcpyDtoD(b, a, c_size_t(x.nbytes)) == 0
    assert hip.hipMemcpy(b, x[::-1].copy().ctypes.data, c_size_t(40), 4) == 0  # the direction by the addresses
    np.testing.assert_array_equal(hip.download(b, x)[:12], [*x[::-1][:10], 10, 11])
    assert hip.hipMemsetD32(b, 0x3F800000, c_size_t(5)) == 0 and hip.hipMemset(b + 20, 0, c_size_t(4)) == 0
    np.testing.assert_array_equal(hip.download(b, x)[:7], [1, 1, 1, 1, 1, 0, x[-7]])
    rows = np.zeros((3, 4), np.float32)
    assert hip.hipMemcpy2D(rows.ctypes.data, c_size_t(16), a, c_size_t(40), c_size_t(8), c_size_t(3), 2) == 0
    np.testing.assert_array_equal(rows, [[0, 1, 0, 0], [10, 11, 0, 0], [20, 21, 0, 0]])
    free, total = c_size_t(), c_size_t()
    assert hip.hipMemGetInfo(byref(free), byref(total)) == 0 and 0 < free.value < total.value
    kind = (ctypes.c_uint8 * 32)()
    host = hip.made("hipHostMalloc", c_size_t(64), 0)
    for address, expected in ((a + 4, 2), (host, 1), (x.ctypes.data, 0)):
        assert hip.hipPointerGetAttributes(kind, address) == 0 and kind[0] == expected
        places = ctypes.cast(kind, ctypes.POINTER(c_void_p))
        assert places[1] == (address if expected else None)  # for kernels
        assert places[2] == (address if expected == 1 else None)  # for the host
    for address in (a, b, host, None):
        assert hip.hipFree(address) == 0
    assert hip.hipFree(a) == 1 and b"was freed before" in hip.hipGetErrorString(1)
    assert hip.hipGetLastError() == 1 and hip.hipGetLastError() == 0


def test_memory_pools(hip):
    default, value = hip.made("hipDeviceGetDefaultMemPool", 0), ctypes.c_uint64()
    pool = hip.made("hipMemPoolCreate", None)
    assert hip.made("hipDeviceGetMemPool", 0) == default and hip.hipDeviceSetMemPool(0, pool) == 0
    a, b = (
        hip.made("hipMallocAsync", c_size_t(1000), None),
        hip.made("hipMallocFromPoolAsync", c_size_t(24), pool, None),
    )

    def used(which):
        assert hip.hipMemPoolGetAttribute(pool, which, byref(value)) == 0
        return value.value

    assert used(7) == 1024 and hip.hipFreeAsync(a, None) == 0 and used(7) == 24 and used(8) == 1024
    threshold = ctypes.c_uint64(1 << 40)
    assert hip.hipMemPoolSetAttribute(pool, 4, byref(threshold)) == 0 and used(4) == 1 << 40
    assert hip.hipMemPoolTrimTo(pool, c_size_t(0)) == 0 and hip.hipFree(b) == 0 and used(7) == 0
    assert hip.hipMemPoolDestroy(pool) == 0 and hip.made("hipDeviceGetMemPool", 0) == default
    assert hip.hipMemPoolDestroy(default) == 1 and hip.hipMemPoolGetAttribute(default, 99, byref(value)) == 1
    flag = c_int()
    for number, expected in ((88, 1), (10, 1), (8, 1)):
        assert hip.hipDeviceGetAttribute(byref(flag), number, 0) == 0 and flag.value == expected


_GRID = """
define amdgpu_kernel void @exchange(ptr addrspace(1) %count, ptr addrspace(1) %data, ptr addrspace(1) %out, i32 %groups) #0 {
start:
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %p = getelementptr i32, ptr addrspace(1) %data, i32 %g
  %v = mul i32 %g, 10
  store i32 %v, ptr addrspace(1) %p
  %o = atomicrmw add ptr addrspace(1) %count, i32 1 syncscope("agent") acq_rel
  br label %spin
spin:
  %c = load atomic i32, ptr addrspace(1) %count syncscope("agent") acquire, align 4
  %items = shl i32 %groups, 6
  %all = icmp sge i32 %c, %items
  br i1 %all, label %on, label %spin
on:
  %next = add i32 %g, 1
  %other = urem i32 %next, %groups
  %q = getelementptr i32, ptr addrspace(1) %data, i32 %other
  %w = load i32, ptr addrspace(1) %q
  %r = getelementptr i32, ptr addrspace(1) %out, i32 %g
  store i32 %w, ptr addrspace(1) %r
  ret void
}
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }"""


def test_cooperative_launch(hip):
    """Every work-group waits for all others, then reads what its neighbour stored; races are looked for. More groups than run at once are refused."""
    f = hip.function(b"exchange", compile_ir(_GRID, "gfx942")[1])
    n = 6
    count, data, out = (hip.upload(np.zeros(k, np.int32)) for k in (1, n, n))
    values = [c_void_p(count), c_void_p(data), c_void_p(out), c_int(n)]
    where = (c_void_p * 4)(*[ctypes.addressof(v) for v in values])
    assert hip.hipModuleLaunchCooperativeKernel(f, n, 1, 1, 64, 1, 1, 0, None, where) == 0
    np.testing.assert_array_equal(hip.download(out, np.zeros(n, np.int32)), [10, 20, 30, 40, 50, 0])
    assert hip.hipModuleLaunchCooperativeKernel(f, 1 << 20, 1, 1, 64, 1, 1, 0, None, where) == 720
    assert b"of its work-groups run at once" in hip.hipGetErrorString(720)
    hip.hipGetLastError()


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", c_size_t), ("stream", c_void_p), ("attributes", c_void_p),
                ("count", ctypes.c_uint32)]  # fmt: skip


def test_launches_of_a_programs_own_kernels(hip):
    """hipLaunchCooperativeKernel, hipLaunchKernelExC with the attribute that asks for it, hipGetFuncBySymbol."""
    image = ctypes.create_string_buffer(compile_ir(_GRID, "gfx942")[1])
    wrapper = (ctypes.c_uint32 * 6)(
        0x48495046, 1, ctypes.addressof(image) & 0xFFFFFFFF, ctypes.addressof(image) >> 32, 0, 0
    )
    hip.lib.__getattr__("__hipRegisterFatBinary").restype = c_void_p
    fat = hip.lib.__getattr__("__hipRegisterFatBinary")(wrapper)
    stub = 0x7000_1000
    register = hip.lib.__getattr__("__hipRegisterFunction")
    register(c_void_p(fat), c_void_p(stub), b"exchange", b"exchange", -1, None, None, None, None, None)
    n = 4
    dim3 = ctypes.c_uint32 * 3

    class Dim(ctypes.Structure):
        _fields_ = [("v", dim3)]

    for way in range(2):
        count, data, out = (hip.upload(np.zeros(k, np.int32)) for k in (1, n, n))
        values = [c_void_p(count), c_void_p(data), c_void_p(out), c_int(n)]
        where = (c_void_p * 4)(*[ctypes.addressof(v) for v in values])
        if way == 0:
            assert hip.hipLaunchCooperativeKernel(stub, Dim(dim3(n, 1, 1)), Dim(dim3(64, 1, 1)), where, 0, None) == 0
        else:
            attribute = (ctypes.c_uint32 * 18)(2, 0, 1)
            config = Config(dim3(n, 1, 1), dim3(64, 1, 1), 0, None, ctypes.addressof(attribute), 1)
            assert hip.hipLaunchKernelExC(byref(config), stub, where) == 0
        np.testing.assert_array_equal(hip.download(out, np.zeros(n, np.int32)), [10, 20, 30, 0])
    own = hip.made("hipGetFuncBySymbol", stub)
    most_dynamic, got, lds = 8, c_int(), 65536
    assert hip.hipFuncGetAttribute(byref(got), most_dynamic, own) == 0 and got.value == lds
    assert hip.hipFuncSetAttribute(stub, most_dynamic, 4096) == 0
    assert hip.hipFuncGetAttribute(byref(got), most_dynamic, own) == 0 and got.value == 4096
    row = (ctypes.c_uint8 * 64)()
    assert hip.hipFuncGetAttributes(row, stub) == 0 and int.from_bytes(bytes(row[24:28]), "little") == 4096
    # more than the chip has, less than nothing, no attribute, a share of more than all; no kernel
    for which, value in ((most_dynamic, lds + 1), (most_dynamic, -1), (3, 64), (9, 101)):
        assert hip.hipFuncSetAttribute(stub, which, value) == 1
    assert hip.hipFuncSetAttribute(0x7000_2000, most_dynamic, 64) == 98
    assert hip.hipFuncGetAttribute(byref(got), 99, own) == 1


def test_fills_of_rows_and_hints(hip):
    a = hip.upload(np.zeros((3, 8), np.int32))
    assert hip.hipMemset2D(a, c_size_t(32), 1, c_size_t(8), c_size_t(2)) == 0
    assert hip.hipMemsetD2D32(a + 16, c_size_t(32), 7, c_size_t(2), c_size_t(3)) == 0
    got = hip.download(a, np.zeros((3, 8), np.int32))
    assert (got[:2, :2] == 0x01010101).all() and (got[:, 4:6] == 7).all() and got[2, :4].sum() == 0
    assert hip.hipMemset2D(a, c_size_t(4), 1, c_size_t(8), c_size_t(2)) == 1
    assert hip.hipMemPrefetchAsync(a, c_size_t(96), 0, None) == 0 and hip.hipMemAdvise(a, c_size_t(97), 1, 0) == 1
    b = hip.upload(np.ones(24, np.int32))
    assert hip.hipMemcpyPeer(a, 0, b, 0, c_size_t(96)) == 0 and hip.hipMemcpyPeer(a, 1, b, 0, c_size_t(96)) == 101
    assert (hip.download(a, np.zeros(24, np.int32)) == 1).all()


def test_launch_by_pointers_and_by_block(hip):
    x, scale = np.arange(100, dtype=np.float32), hip.function(b"scale")
    a, b = hip.upload(x), hip.upload(np.zeros_like(x))
    assert hip.launch(scale, 2, 64, 0, scale_arguments(a, b, 100)) == 0
    np.testing.assert_array_equal(hip.download(b, x), scaled(x))
    c = hip.upload(np.zeros_like(x))
    block = ctypes.create_string_buffer(
        bytes(c_void_p(a))
        + bytes(c_void_p(c))
        + bytes(c_int(100))
        + bytes(c_float(0.5))
        + b"\xfd\0\0\0"
        + bytes(Pair(7, 2.0, -9))
    )
    size = c_size_t(len(block) - 1)
    extra = (c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 3)
    assert hip.hipModuleLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, None, None, extra) == 0
    np.testing.assert_array_equal(hip.download(c, x), scaled(x))
    size.value = 20
    assert hip.hipModuleLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, None, None, extra) == 1
    assert b"20 bytes of arguments" in hip.hipGetErrorString(1)
    groups = c_int()
    assert (
        hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(byref(groups), scale, 64, c_size_t(0)) == 0
        and groups.value == 32
    )


def test_a_launch_that_counts_work_items(hip):
    """Of each dimension as many work-groups as fit, between two events; a part of one is refused."""
    x, scale = np.arange(100, dtype=np.float32), hip.function(b"scale")
    a, b = hip.upload(x), hip.upload(np.zeros_like(x))
    values = scale_arguments(a, b, 100)
    where = (c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    start, stop = hip.made("hipEventCreate"), hip.made("hipEventCreate")

    def launch(grid, *events):
        return hip.hipExtModuleLaunchKernel(
            scale, grid, 1, 1, 64, 1, 1, c_size_t(0), None, where, None, *(c_void_p(e) for e in events), 0
        )

    assert launch(128, start, stop) == 0
    np.testing.assert_array_equal(hip.download(b, x), scaled(x))
    took = c_float(-1)
    assert hip.hipEventElapsedTime(byref(took), c_void_p(start), c_void_p(stop)) == 0 and took.value >= 0
    assert hip.hipMemset(b, 0, c_size_t(400)) == 0 and launch(64, None, None) == 0
    assert (hip.download(b, x) == np.where(x < 64, scaled(x), 0)).all()
    assert launch(100, None, None) != 0


def test_faults(hip, capfd):
    x, scale = np.arange(100, dtype=np.float32), hip.function(b"scale")
    a, b = hip.upload(x), hip.upload(np.zeros(64, np.float32))
    assert hip.launch(scale, 2, 64, 0, scale_arguments(a, b, 100)) == 700
    assert b"out of bounds" in hip.hipGetErrorString(700)
    assert hip.hipDeviceSynchronize() == 700 and hip.hipDeviceSynchronize() == 0
    assert "tec: hipModuleLaunchKernel: hipErrorIllegalAddress: out of bounds" in capfd.readouterr().err
    fresh = hip.made("hipMalloc", c_size_t(400))  # nothing wrote it
    assert hip.launch(scale, 1, 64, 0, scale_arguments(fresh, b, 64)) == 719
    assert b"never written" in hip.hipGetErrorString(719)
    assert hip.hipDeviceSynchronize() == 719
    assert hip.launch(scale, 1, 2048, 0, scale_arguments(a, b, 1)) == 9  # refused at once, and nothing behind it fails
    assert hip.hipDeviceSynchronize() == 0
    assert hip.launch(scale, 0, 64, 0, scale_arguments(a, b, 1)) == 9
    hip.hipDeviceSynchronize()
    assert hip.launch(scale, 1, 64, 0, scale_arguments(a, b, 64)) == 0  # the device is usable


def test_modules(hip, tmp_path, capfd):
    path = tmp_path / "kernel.hsaco"
    path.write_bytes(code_object())
    path.with_suffix(".s").write_text(built("gfx942")[1])
    module = hip.made("hipModuleLoad", str(path).encode())
    assert hip.hipModuleGetFunction(byref(c_void_p()), module, b"none") == 500
    assert b"it has: scale, turn" in hip.hipGetErrorString(500)
    assert hip.hipModuleUnload(module) == 0 and hip.hipModuleUnload(module) == 400
    out = c_void_p()
    assert hip.hipModuleLoad(byref(out), str(tmp_path / "none").encode()) == 301
    assert hip.hipModuleLoadData(byref(out), c_char_p(b"luck" * 8)) == 200
    assert hip.hipModuleLoadData(byref(out), c_char_p(code_object("gfx90a"))) == 209
    both = bundle({f"hipv4-amdgcn-amd-amdhsa--{c}": code_object(c) for c in ("gfx90a", "gfx942")})
    assert hip.function(b"turn", both)
    assert hip.function(b"turn", built("gfx942")[0])  # a relocatable object
    program = c_void_p()
    assert hip.hiprtcCreateProgram(byref(program), b"", b"x", 0, None, None) == 0
    assert hip.hiprtcCompileProgram(program, 0, None) == 6 and "hipcc --genco" in capfd.readouterr().err


def test_streams_events_graphs(hip):
    x = np.arange(100, dtype=np.float32)
    a, b, scale = hip.upload(x), hip.upload(np.zeros_like(x)), hip.function(b"scale")
    stream, start, stop = (
        hip.made("hipStreamCreate"),
        hip.made("hipEventCreate"),
        hip.made("hipEventCreateWithFlags", c_uint(0)),
    )
    ms = c_float(-1)
    assert hip.hipEventElapsedTime(byref(ms), start, stop) == 400
    hip.hipEventRecord(start, stream)
    for _ in range(3):
        assert hip.launch(scale, 2, 64, 0, scale_arguments(a, b, 100), stream) == 0
    hip.hipEventRecord(stop, stream)
    assert hip.hipEventSynchronize(stop) == 0 and hip.hipEventElapsedTime(byref(ms), start, stop) == 0
    assert 3e-3 < ms.value < 0.1  # three launches of some microseconds
    assert hip.hipStreamBeginCapture(stream, 2) == 0
    assert hip.launch(scale, 2, 64, 0, scale_arguments(a, b, 100), stream) == 0
    assert hip.hipStreamSynchronize(stream) == 900
    graph = c_void_p()
    hip.hipMemset(b, 0, c_size_t(400))
    assert hip.hipStreamEndCapture(stream, byref(graph)) == 0
    ready = hip.made("hipGraphInstantiate", graph.value, None, None, c_size_t(0))
    np.testing.assert_array_equal(hip.download(b, x), 0 * x)
    assert hip.hipGraphLaunch(ready, stream) == 0
    np.testing.assert_array_equal(hip.download(b, x), scaled(x))
    assert hip.hipStreamDestroy(stream) == 0 and hip.hipStreamSynchronize(stream) == 400


def test_tecs_own_driver_for_hip(hip):
    """What tec calls of the real library."""
    driver = HipDriver(library=ctypes.CDLL(str(library_folder() / "lib" / "libamdhip64.so")))
    facts = driver.attributes(0)
    assert (facts.arch, facts.compute_units, facts.lds_bytes, facts.wavefront_size) == ("gfx942", 304, 65536, 64)
    x = np.arange(64, dtype=np.int32)
    address = driver.alloc(0, x.nbytes)
    driver.copy_to_device(0, address, x.ctypes.data, x.nbytes)
    module = driver.load_module(0, code_object())
    turn = driver.get_function(module, "turn")
    stream = driver.stream_create(0)
    # LDS of dynamic size comes behind none of fixed size: at 0.
    driver.launch(turn, (1, 1, 1), (64, 1, 1), 256, address.to_bytes(8, "little") + bytes(8), stream)
    driver.stream_synchronize(0, stream)
    out = np.empty_like(x)
    driver.copy_from_device(0, out.ctypes.data, address, x.nbytes)
    np.testing.assert_array_equal(out, x[::-1])
    with pytest.raises(DeviceError, match="no kernel 'none'"):
        driver.get_function(module, "none")
    with pytest.raises(DeviceError, match="hipErrorOutOfMemory"):
        driver.alloc(0, 1 << 50)


PROGRAM = '''
import ctypes, ctypes.util, sys
hip = ctypes.CDLL(ctypes.util.find_library("amdhip64") or "libamdhip64.so")
hip.hipGetErrorString.restype = ctypes.c_char_p
def check(status):
    if status:
        print("stopped:", hip.hipGetErrorString(status).decode())
        raise SystemExit(0 if sys.argv[2] == "ignore" else 3)
module, kernel, x = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(hip.hipModuleLoad(ctypes.byref(module), sys.argv[1].encode()))
check(hip.hipModuleGetFunction(ctypes.byref(kernel), module, b"turn"))
data = (ctypes.c_int * 64)(*range(64))
check(hip.hipMalloc(ctypes.byref(x), ctypes.c_size_t(256 if sys.argv[2] == "right" else 128)))
check(hip.hipMemcpy(x, data, ctypes.c_size_t(128), 1))
if sys.argv[2] == "right":
    check(hip.hipMemcpy(x, data, ctypes.c_size_t(256), 1))
lds = ctypes.c_int(0)
args = (ctypes.c_void_p * 2)(ctypes.addressof(x), ctypes.addressof(lds))
check(hip.hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 256, None, args, None))
check(hip.hipMemcpy(data, x, ctypes.c_size_t(256), 2))
print(list(data)[:3])
'''  # fmt: skip


@pytest.fixture(scope="module")
def kernel_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("hip") / "kernel.hsaco"
    path.write_bytes(code_object())
    return path


@thinned_rows(
    1,
    ("how", "code", "said"),
    [("right", 0, "[63, 62, 61]"), ("wrong", 3, "out of bounds"), ("ignore", 5, "1 fault of kernels")],
)
def test_program_in_python(how, code, said, kernel_file, tmp_path):
    """`tec emu -- python program.py`: its own status, or 5 where it ended well in spite of a fault."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "tec.cli",
        "emu",
        "--check",
        "race,init",
        "--",
        sys.executable,
        "program.py",
        str(kernel_file),
        how,
    ]
    got = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert got.returncode == code and said in got.stdout + got.stderr, got.stdout + got.stderr


# What hipcc makes of a program with a kernel: registration before main, and launches by the address of a stub.
C_PROGRAM = '''
#include <stdio.h>
#include <stddef.h>
typedef struct { unsigned x, y, z; } dim3;
extern void **__hipRegisterFatBinary(const void *);
extern int __hipRegisterFunction(void **, const void *, const char *, const char *, unsigned, void *, void *, void *, void *);
extern int __hipPushCallConfiguration(dim3, dim3, size_t, void *), __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, void **);
extern int hipLaunchKernel(const void *, dim3, dim3, void **, size_t, void *), hipMalloc(void **, size_t), hipMemcpy(void *, const void *, size_t, int);
extern int hipDeviceSynchronize(void), __hipUnregisterFatBinary(void **);
extern const char *hipGetErrorString(int);
__asm__(".section .hip_fatbin,\\"a\\"\\n.p2align 12\\nfatbin: .incbin \\"kernels.bundle\\"\\n.previous");
extern const char fatbin[];
struct { unsigned magic, version; const void *code, *unused; } wrapper = { 0x48495046, 1, fatbin, 0 };
static void **registered;
static char turn, gone;  /* the stubs: their addresses alone matter */
__attribute__((constructor)) static void before(void) {
  registered = __hipRegisterFatBinary(&wrapper);
  __hipRegisterFunction(registered, &turn, "turn", "turn", -1, 0, 0, 0, 0);
}
__attribute__((destructor)) static void after(void) { __hipUnregisterFatBinary(registered); }
int main(void) {
  int data[64], lds = 0, status;
  void *x, *stream;
  dim3 grid, block;
  size_t shared;
  for (int i = 0; i < 64; i++) data[i] = i;
  if (hipMalloc(&x, sizeof data) || hipMemcpy(x, data, sizeof data, 1)) return 2;
  __hipPushCallConfiguration((dim3){1, 1, 1}, (dim3){64, 1, 1}, 256, 0);
  __hipPopCallConfiguration(&grid, &block, &shared, &stream);
  if (grid.x != 1 || block.x != 64 || block.z != 1 || shared != 256) return 3;
  void *args[] = { &x, &lds };
  void **second = __hipRegisterFatBinary(&wrapper);
  __hipRegisterFunction(second, &gone, "turn", "turn", -1, 0, 0, 0, 0);
  __hipUnregisterFatBinary(second);
  if (!hipLaunchKernel(&gone, grid, block, args, shared, stream)) return 6;
  if ((status = hipLaunchKernel(&turn, grid, block, args, shared, stream))) { puts(hipGetErrorString(status)); return 4; }
  if (hipDeviceSynchronize() || hipMemcpy(data, x, sizeof data, 2)) return 5;
  printf("%d %d\\n", data[0], data[63]);
  return 0;
}
'''  # fmt: skip


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_program_in_c(tmp_path):
    """A program without Python: the library finds one. Kernels of a fat binary that was given up are no longer found, and those of others are."""
    from tec.emulator.hip.library import _python

    if not os.path.exists(_python()):
        pytest.skip("this Python has no shared library")
    (tmp_path / "kernels.bundle").write_bytes(
        bundle({"hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-": code_object()})
    )
    (tmp_path / "main.c").write_text(C_PROGRAM)
    lib = library_folder() / "lib"
    subprocess.run(["cc", "main.c", "-o", "main", f"-L{lib}", "-lamdhip64"], cwd=tmp_path, check=True, timeout=60)
    env = environment("gfx942", "race,init")
    env.pop("PYTHONPATH", None)  # the library finds tec and its packages
    got = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env)
    assert (got.returncode, got.stdout) == (0, "63 0\n"), got.stdout + got.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_program_that_was_linked_with_the_real_library(tmp_path):
    """Its symbols have versions (hip_4.2, hip_6.0): the loader must find them here."""
    (tmp_path / "real.c").write_text(
        "int hipInit(unsigned f) { return 77; } int hipGetDeviceCount(int *n) { return 77; }"
    )
    (tmp_path / "real.map").write_text(
        "hip_4.2 { global: hipInit; local: *; }; hip_6.0 { global: hipGetDeviceCount; } hip_4.2;"
    )
    (tmp_path / "main.c").write_text(
        "int hipInit(unsigned); int hipGetDeviceCount(int *); int main(void) { int n = 0; return hipInit(0) || hipGetDeviceCount(&n) || n != 1; }"
    )
    for command in ("cc -shared -fPIC real.c -o libamdhip64.so -Wl,-soname,libamdhip64.so.6 -Wl,--version-script=real.map",
                    "cc main.c -o main -L. -lamdhip64 -Wl,-z,now"):  # fmt: skip
        subprocess.run(command.split(), cwd=tmp_path, check=True, timeout=60)
    from tec.emulator.hip.library import _python

    if not os.path.exists(_python()):
        pytest.skip("this Python has no shared library")
    got = subprocess.run(
        ["./main"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment("gfx942")
    )
    assert (got.returncode, got.stderr) == (0, "")


def clang():
    """A clang that compiles HIP: `TEC_TEST_CLANG`, or the one on PATH where it knows AMD GPUs and has a linker for them."""
    found = os.environ.get("TEC_TEST_CLANG") or shutil.which("clang++")
    if not found:
        return None
    known = subprocess.run([found, "-print-targets"], capture_output=True, text=True, check=False).stdout
    return found if "amdgcn" in known and (shutil.which("ld.lld") or os.environ.get("TEC_TEST_CLANG")) else None


@pytest.mark.skipif(clang() is None, reason="no clang for HIP")
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_program_of_clang(chip, tmp_path):
    """Templates, constants, variables, dynamic LDS, structs by value, streams, events, threads: registered, bundled and launched by clang's code."""
    source = Path(__file__).with_name("program.hip")
    common = [
        clang(),
        "-x",
        "hip",
        "-std=c++17",
        "-nogpulib",
        "-nogpuinc",
        "-O2",
        "--offload-arch=gfx942",
        "--offload-arch=gfx1100",
    ]
    subprocess.run([*common, "-c", str(source), "-o", "program.o"], cwd=tmp_path, check=True, timeout=120)
    lib = library_folder() / "lib"
    subprocess.run(
        ["c++", "program.o", "-o", "program", f"-L{lib}", "-lamdhip64", "-lpthread"],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    env = environment(chip, "race,init,wait")
    got = subprocess.run(["./program"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env)
    assert got.returncode == 0 and "all right" in got.stdout, got.stdout + got.stderr
    got = subprocess.run(["./program", "wrong"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env)
    assert got.returncode == 2 and "out of bounds" in got.stdout, got.stdout + got.stderr


TINYGRAD = '''
import numpy as np
from tinygrad.renderer.llvmir import AMDLLVMRenderer
from tinygrad.runtime import ops_hip
ops_hip.HIPRenderer = AMDLLVMRenderer  # LLVM, in the place of ROCm's compiler library
from tinygrad import Device, Tensor
assert Device.DEFAULT == "HIP"
a = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
x = Tensor(a)
np.testing.assert_allclose((x @ x + 1).relu().sum(axis=1).numpy(), np.maximum(a @ a + 1, 0).sum(1), rtol=1e-4)
np.testing.assert_allclose(x.softmax().numpy(), np.exp(a) / np.exp(a).sum(1, keepdims=True), rtol=1e-4)
'''  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("tinygrad") is None, reason="no tinygrad")
def test_tinygrad(tmp_path):
    (tmp_path / "program.py").write_text(TINYGRAD)
    env = environment(
        "gfx942", "race", os.environ | {"DEV": "HIP", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    )
    got = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=env
    )
    assert got.returncode == 0, got.stderr


HIP_PYTHON = '''
import ctypes, sys
import numpy as np
from hip import hip

def check(answer):
    status, *rest = answer
    assert status == hip.hipError_t.hipSuccess, status
    return rest[0] if rest else None

properties = check(hip.hipGetDeviceProperties(0))
assert (properties.gcnArchName.partition(":")[0], properties.warpSize) == ("gfx942", 64)
module = check(hip.hipModuleLoadData(open(sys.argv[1], "rb").read()))
kernel = check(hip.hipModuleGetFunction(module, b"turn"))
data = np.arange(64, dtype=np.int32)
on = check(hip.hipMalloc(data.nbytes))
check(hip.hipMemcpy(on, data, data.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice))
stream = check(hip.hipStreamCreate())
check(hip.hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 256, stream, None, (on, ctypes.c_int(0))))
check(hip.hipStreamSynchronize(stream))
check(hip.hipMemcpy(data, on, data.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
print(list(map(int, data))[:3])
'''  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("hip") is None, reason="no HIP Python")
def test_hip_python(kernel_file, tmp_path):
    """AMD's own package, whose functions find the library by its name."""
    (tmp_path / "program.py").write_text(HIP_PYTHON)
    env = environment("gfx942", "all", os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
    got = subprocess.run(
        [sys.executable, "program.py", str(kernel_file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
    )
    assert got.returncode == 0 and "[63, 62, 61]" in got.stdout, got.stdout + got.stderr


def test_library_of_an_arm_host():
    """What would be loaded there, as LLVM's tools read it: names, and what the loader fills in."""
    import llvmlite.binding as llvm

    from tec.emulator.hip.library import _IMPORTS, _VERSIONS, library_ir
    from tec.runtime.objects.sharedobject import shared_object

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("aarch64-linux-gnu").create_target_machine(opt=2, reloc="pic", codemodel="small")
    image = shared_object(
        machine.emit_object(llvm.parse_assembly(library_ir())), "libamdhip64.so.6", _IMPORTS, _VERSIONS
    )
    assert image[18:20] == (183).to_bytes(2, "little")
    found = llvm.object_file.ObjectFileRef.from_data(image)
    sections = {bytes(s.name()): s.data() for s in found.sections() if s.name()}
    assert {b".text", b".dynsym", b".dynamic", b".gnu.version_d"} <= set(sections)
    rela = sections[b".rela.dyn"]
    assert [int.from_bytes(rela[k + 8 : k + 12], "little") for k in range(0, len(rela), 24)] == [257] * len(_IMPORTS)
