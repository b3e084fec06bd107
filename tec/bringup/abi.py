"""What a launch hands to a kernel, and what a device says of itself: the machine table's word against the driver's, arguments of all sizes, ids, LDS, scratch, hidden arguments, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..errors import DeviceError
from ..target import CHIPS, Machine
from .findings import AGREES, DIFFERS, FAILED, NOTE, Finding
from .gpu import Gpu, code_object, kernels

SECTION = "ABI"
_IDS = [f"declare i32 @llvm.amdgcn.{what}.id.{axis}()" for what in ("workitem", "workgroup") for axis in "xyz"]
_IMPLICIT = "declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()"

# Each argument widened to 64 bits, one after another.
_ARGUMENTS = """define amdgpu_kernel void @arguments(i8 %a, i16 %b, i8 %c, i64 %d, float %e, i16 %f, double %g, half %h, ptr addrspace(1) %o) #0 {
  %a8 = zext i8 %a to i64
  %b8 = zext i16 %b to i64
  %c8 = zext i8 %c to i64
  %e4 = bitcast float %e to i32
  %e8 = zext i32 %e4 to i64
  %f8 = zext i16 %f to i64
  %g8 = bitcast double %g to i64
  %h2 = bitcast half %h to i16
  %h8 = zext i16 %h2 to i64
""" + "".join(
    f"  %p{k} = getelementptr i64, ptr addrspace(1) %o, i32 {k}\n  store i64 %{v}, ptr addrspace(1) %p{k}\n" for k, v in enumerate(("a8", "b8", "c8", "d", "e8", "f8", "g8", "h8"))
) + "  ret void\n}"  # fmt: skip


def _ids() -> str:
    """Work-item (x, y, z) of group (a, b, c) writes its ids at its place, of a grid of 3 x 2 x 2 groups of 4 x 3 x 2."""
    lines = ["define amdgpu_kernel void @ids(ptr addrspace(1) %o) #0 {"]
    for name, what in (("t", "workitem"), ("g", "workgroup")):
        lines += [f"  %{name}{a} = call i32 @llvm.amdgcn.{what}.id.{a}()" for a in "xyz"]
    lines += [
        "  %1 = mul i32 %tz, 3", "  %2 = add i32 %1, %ty", "  %3 = mul i32 %2, 4", "  %4 = add i32 %3, %tx",
        "  %5 = mul i32 %gz, 2", "  %6 = add i32 %5, %gy", "  %7 = mul i32 %6, 3", "  %8 = add i32 %7, %gx",
        "  %9 = mul i32 %8, 24", "  %at = add i32 %9, %4", "  %p = getelementptr [6 x i32], ptr addrspace(1) %o, i32 %at",
    ]  # fmt: skip
    for k, value in enumerate(("tx", "ty", "tz", "gx", "gy", "gz")):
        lines += [f"  %p{k} = getelementptr i32, ptr addrspace(1) %p, i32 {k}", f"  store i32 %{value}, ptr addrspace(1) %p{k}"]  # fmt: skip
    return "\n".join([*lines, "  ret void", "}"])


_LDS = """@lds = external addrspace(3) global [0 x i32], align 16
define amdgpu_kernel void @reverse(ptr addrspace(1) %p, i32 %last) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %n = add i32 %last, 1
  %b = mul i32 %g, %n
  %i = add i32 %b, %t
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %i
  %x = load i32, ptr addrspace(1) %q
  %l = getelementptr [0 x i32], ptr addrspace(3) @lds, i32 0, i32 %t
  store i32 %x, ptr addrspace(3) %l
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %r = sub i32 %last, %t
  %m = getelementptr [0 x i32], ptr addrspace(3) @lds, i32 0, i32 %r
  %y = load i32, ptr addrspace(3) %m
  store i32 %y, ptr addrspace(1) %q
  ret void
}"""
_SCRATCH = """define amdgpu_kernel void @scratch(ptr addrspace(1) %p, ptr addrspace(1) %o) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = shl i32 %g, 8
  %i = or i32 %b, %t
  %a = alloca [64 x i32], addrspace(5)
  br label %fill
fill:
  %k = phi i32 [ 0, %0 ], [ %k1, %fill ]
  %v = mul i32 %k, %i
  %s = getelementptr [64 x i32], ptr addrspace(5) %a, i32 0, i32 %k
  store volatile i32 %v, ptr addrspace(5) %s
  %k1 = add i32 %k, 1
  %c = icmp ult i32 %k1, 64
  br i1 %c, label %fill, label %pick
pick:
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %i
  %w = load i32, ptr addrspace(1) %q
  %d = getelementptr [64 x i32], ptr addrspace(5) %a, i32 0, i32 %w
  %x = load volatile i32, ptr addrspace(5) %d
  %z = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %x, ptr addrspace(1) %z
  ret void
}"""
# Code object v5: counts of blocks (3 x 32 bits), sizes of groups (3 x 16), remainders (3 x 16). Source: LLVM's AMDGPUUsage, "implicit kernel arguments".
_HIDDEN = """define amdgpu_kernel void @hidden(ptr addrspace(1) %o) #0 {
  %h = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
""" + "".join(
    f"  %q{k} = getelementptr i8, ptr addrspace(4) %h, i32 {at}\n  %x{k} = load {t}, ptr addrspace(4) %q{k}\n"
    + (f"  %w{k} = zext i16 %x{k} to i32\n" if t == "i16" else f"  %w{k} = add i32 %x{k}, 0\n")
    + f"  %p{k} = getelementptr i32, ptr addrspace(1) %o, i32 {k}\n  store i32 %w{k}, ptr addrspace(1) %p{k}\n"
    for k, (at, t) in enumerate([(0, "i32"), (4, "i32"), (8, "i32"), (12, "i16"), (14, "i16"), (16, "i16"), (18, "i16"), (20, "i16"), (22, "i16")])
) + "  ret void\n}"  # fmt: skip
_PLACES = """define amdgpu_kernel void @places(ptr addrspace(1) %o) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = shl i32 %g, 6
  %i = or i32 %b, %t
  %q = getelementptr i8, ptr addrspace(1) %o, i32 %i
  %v = trunc i32 %g to i8
  store i8 %v, ptr addrspace(1) %q
  ret void
}"""
_MODULES = {"plain": [_ARGUMENTS, _ids(), _SCRATCH, _PLACES], "lds": [_LDS], "hidden": [_HIDDEN]}


def _image(chip: str, which: str) -> bytes:
    barrier = "declare void @llvm.amdgcn.s.barrier()"
    return code_object(chip, kernels(_MODULES[which], [*_IDS, barrier, _IMPLICIT]), "the ABI's kernels")


def _attributes(gpu: Gpu, machine: Machine | None) -> Iterator[Finding]:
    a, chip = gpu.attributes, CHIPS.get(gpu.chip)
    if chip is None:
        yield Finding(SECTION, "chip", DIFFERS, f"{gpu.chip} is none that tec knows")
        return
    yield _number("wavefront", chip.wavefront_sizes[0], a.wavefront_size, "lanes")
    yield _number("LDS of a work-group", chip.lds_bytes, a.lds_bytes, "bytes")
    yield _number("work-items of a work-group", 1024, a.max_threads_per_block, "")
    if machine is None:
        yield Finding(SECTION, "product", NOTE, f"{a.name!r} is no product of the machine table; times are not judged")
        return
    yield _number("compute units", machine.units, a.compute_units, "", "units")
    if a.clock_khz:
        yield _number("highest clock", machine.clock_mhz, a.clock_khz / 1e3, "MHz", "clock_mhz", 0.02)
    yield _number("memory", machine.memory_bytes, a.total_memory_bytes, "bytes", "memory_bytes", 0.06)
    level = machine.level("L2")
    if level is not None and a.extra.get("l2_bytes"):
        yield _number("L2 of a die", level.size_bytes, float(a.extra["l2_bytes"]), "bytes", "L2 size_bytes", 0.02)


def _number(name: str, want: float, got: float, unit: str, corrects: str = "", within: float = 0.0) -> Finding:
    state = AGREES if abs(got - want) <= within * want else DIFFERS
    return Finding(SECTION, name, state, "", float(want), float(got), unit, corrects)


def _same(want: np.ndarray, got: np.ndarray) -> str:
    if np.array_equal(want, got):
        return ""
    at = tuple(int(i) for i in np.argwhere(want != got)[0])
    return f"{int((want != got).sum())} of {want.size} differ; at {at}: {got[at]}, {want[at]} expected"


def _arguments(gpu: Gpu) -> str:
    want = [0x81, 0xC003, 0x7F, 0x8123456789ABCDEF, np.float32(-2.5).view(np.uint32), 0x1234, np.float64(1 / 3).view(np.uint64), np.float16(1.5).view(np.uint16)]  # fmt: skip
    out = gpu.array(np.zeros(8, np.uint64))
    f = gpu.function(_image(gpu.chip, "plain"), "arguments")
    gpu.launch(f, 1, 1, "BHB0QQfH0QdH0QQ", 0x81, 0xC003, 0x7F, 0x8123456789ABCDEF, -2.5, 0x1234, 1 / 3, 0x3E00, out)
    return _same(np.array(want, np.uint64), gpu.read(out, np.zeros(8, np.uint64)))


def _check_ids(gpu: Gpu) -> str:
    grid, block = (3, 2, 2), (4, 3, 2)
    want = np.array(
        [(x, y, z, a, b, c) for c in range(2) for b in range(2) for a in range(3) for z in range(2) for y in range(3) for x in range(4)], np.int32,
    )  # fmt: skip
    out = gpu.array(np.full_like(want, -1))
    gpu.launch(gpu.function(_image(gpu.chip, "plain"), "ids"), grid, block, "Q", out)
    return _same(want, gpu.read(out, want))


def _lds(gpu: Gpu) -> str:
    f = gpu.function(_image(gpu.chip, "lds"), "reverse")
    for n, more in ((256, 0), (1024, 0), (64, gpu.attributes.lds_bytes - 256)):  # the last with all LDS that there is
        x = np.arange(5 * n, dtype=np.int32)
        p = gpu.array(x)
        gpu.launch(f, 5, n, "QI", p, n - 1, lds=4 * n + more)
        if why := _same(x.reshape(5, n)[:, ::-1].ravel(), gpu.read(p, x)):
            return f"{n} work-items, {4 * n + more} bytes: {why}"
    return ""


def _scratch(gpu: Gpu) -> str:
    pick = np.random.default_rng(0).integers(0, 64, 64 * 256).astype(np.int32)
    p, o = gpu.array(pick), gpu.array(np.zeros_like(pick))
    gpu.launch(gpu.function(_image(gpu.chip, "plain"), "scratch"), 64, 256, "QQ", p, o)
    return _same(pick * np.arange(len(pick), dtype=np.int32), gpu.read(o, pick))


def _hidden(gpu: Gpu) -> str:
    out = gpu.array(np.zeros(9, np.int32))
    gpu.launch(gpu.function(_image(gpu.chip, "hidden"), "hidden"), (3, 2, 1), (32, 2, 1), "Q", out)
    return _same(np.array([3, 2, 1, 32, 2, 1, 0, 0, 0], np.int32), gpu.read(out, np.zeros(9, np.int32)))


def _many(gpu: Gpu) -> str:
    """A grid of 2^17 work-groups along x: each writes at its own place."""
    groups = 1 << (10 if gpu.quick else 17)
    want = np.repeat(np.arange(groups).astype(np.uint8), 64)
    out = gpu.array(np.zeros_like(want))
    gpu.launch(gpu.function(_image(gpu.chip, "plain"), "places"), groups, 64, "Q", out)
    return _same(want, gpu.read(out, want))


def _refused(gpu: Gpu) -> str:
    """What cannot be is an error, and the device is usable after it."""
    driver, f = gpu.driver, gpu.function(_image(gpu.chip, "plain"), "places")
    out = gpu.array(np.zeros(64, np.uint8))
    cases: list[tuple[str, Callable[[], object]]] = [
        ("a work-group of 2,048", lambda: gpu.launch(f, 1, 2048, "Q", out)),
        ("code that is none", lambda: driver.load_module(gpu.ordinal, b"\x7fELF" + bytes(252))),
        ("a kernel that is not there", lambda: gpu.function(_image(gpu.chip, "plain"), "nothing")),
        ("more memory than there is", lambda: driver.alloc(gpu.ordinal, 1 << 47)),
    ]
    for name, call in cases:
        try:
            call()
            gpu.synchronize()
            return f"{name} was taken"
        except DeviceError:
            continue
    gpu.launch(f, 1, 64, "Q", out)
    return _same(np.zeros(64, np.uint8), gpu.read(out, np.ones(64, np.uint8)))


CHECKS: tuple[tuple[str, Callable[[Gpu], str]], ...] = (
    ("arguments of 1 to 8 bytes", _arguments),
    ("ids of work-items and work-groups", _check_ids),
    ("dynamic LDS and barriers", _lds),
    ("scratch", _scratch),
    ("hidden arguments", _hidden),
    ("a grid of many work-groups", _many),
    ("refusals", _refused),
)


def check(gpu: Gpu, machine: Machine | None) -> Iterator[Finding]:
    yield from _attributes(gpu, machine)
    yield from run(gpu, SECTION, CHECKS)


def run(gpu: Gpu, section: str, checks: tuple[tuple[str, Callable[[Gpu], str]], ...]) -> Iterator[Finding]:
    """A finding for each check, whose word is "" where all is as it should be."""
    for name, call in checks:
        try:
            with gpu.scope():
                why = call(gpu)
                gpu.synchronize()
            yield Finding(section, name, DIFFERS if why else AGREES, why)
        except Exception as error:  # a check that fails is told, and the next one goes on
            yield Finding(section, name, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0]}")
