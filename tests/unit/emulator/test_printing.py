"""What kernels print and ask of the host: C's conversions, the buffer of requests, the buffer of records, device malloc, assertions."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.errors import EmulationError
from tec.emulator.printing import Formats, Sized, Words, format_text, formats, records

from .harness import compile_ir, download, upload


def _words(*values: object) -> Words:
    out = b""
    for v in values:
        if isinstance(v, bytes):
            out += v + bytes(8 - len(v) % 8)
        else:
            out += struct.pack("<d", v) if isinstance(v, float) else (int(v) & (1 << 64) - 1).to_bytes(8, "little")  # type: ignore[call-overload]
    return Words(out)


@pytest.mark.parametrize(
    ("fmt", "args", "want"),
    [
        ("%d|%5d|%-5d|%05d|%+d", (-3, 42, 42, 42, 7), "-3|   42|42   |00042|+7"),
        ("%u %x %#x %#X %o %#o %#x", (2**32 - 1, 255, 255, 255, 8, 8, 0), "4294967295 ff 0xff 0XFF 10 010 0"),
        ("%hhd %hd %ld %lld %zu", (0x1FF, 0x1FFFF, -1, -(2**40), 2**40), "-1 -1 -1 -1099511627776 1099511627776"),
        (
            "%.3f %8.2f %e %g %G %.0f",
            (1.5, -2.25, 12345.678, 1e-5, 1e20, 2.5),
            "1.500    -2.25 1.234568e+04 1e-05 1E+20 2",
        ),
        ("%f %F %5.1f", (float("inf"), float("nan"), float("-inf")), "inf NAN  -inf"),
        ("%s|%10s|%-6s|%.2s", (b"a string", b"right", b"left", b"cut"), "a string|     right|left  |cu"),
        ("%c%c %p 100%%", (72, 105, 0x7F00), "Hi 0x7f00 100%"),
        ("%*d|%-*d|%.*f", (6, 42, 5, 7, 2, 1.0), "    42|7    |1.00"),
        ("no conversions\n", (), "no conversions\n"),
    ],
)
def test_conversions(fmt: str, args: tuple[object, ...], want: str) -> None:
    assert format_text(fmt.encode(), _words(*args)) == want


def test_records_of_opencl_and_hip() -> None:
    """Numbered formats with sizes, vectors and strings in place; hashed ones, and formats that come with the record."""
    known = formats(["1:3:4:16:8:i=%d v=%v4f s=%s\\n", "2:1:8:x=%ld\\72\\n"])
    first = struct.pack("<Ii4f8s", 1, -5, 1, 2, 3, 4, b"abc")
    text = [t for _, t in records(first + struct.pack("<Iq", 2, 2**40) + struct.pack("<I", 0), known)]
    assert text == ["i=-5 v=1.000000,2.000000,3.000000,4.000000 s=abc\n", f"x={2**40}:\n"]
    hip = formats(["0:0:1650c856bb0b564f,i=%d %s\\n"])
    body = struct.pack("<Qq8s", 0x1650C856BB0B564F, -7, b"odd")
    own = b"f=%.1f\0\0" + struct.pack("<d", 0.5)
    data = struct.pack("<I", (4 + len(body)) << 2 | 2) + body + struct.pack("<I", (4 + len(own)) << 2 | 1) + own
    assert list(records(data, hip)) == [(False, "i=-7 odd\\n"), (True, "f=0.5")]
    assert list(records(b"\xff" * 16, Formats({}, {}))) == []  # what nobody wrote whole is no record
    assert Sized(b"", 0, [])("i") == bytes(8)


# The device's side of a request, for one lane: take a packet, fill it, push it, send the message, wait, and read what came back.
_ASK = """
define void @ask(i32 %service, i64 %w0, i64 %w1, i64 %w2, i64 %w3, ptr addrspace(1) %result) alwaysinline {
  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %bp = getelementptr i8, ptr addrspace(4) %implicit, i64 80
  %buffer = load ptr addrspace(1), ptr addrspace(4) %bp
  %headers = load ptr addrspace(1), ptr addrspace(1) %buffer
  %pp = getelementptr i8, ptr addrspace(1) %buffer, i64 8
  %payloads = load ptr addrspace(1), ptr addrspace(1) %pp
  %fp = getelementptr i8, ptr addrspace(1) %buffer, i64 24
  %packet = load atomic i64, ptr addrspace(1) %fp syncscope("") acquire, align 8
  %mp = getelementptr i8, ptr addrspace(1) %buffer, i64 40
  %mask = load i64, ptr addrspace(1) %mp
  %n = and i64 %packet, %mask
  %ho = mul i64 %n, 24
  %h = getelementptr i8, ptr addrspace(1) %headers, i64 %ho
  %po = mul i64 %n, 4096
  %p = getelementptr i8, ptr addrspace(1) %payloads, i64 %po
  store i64 0, ptr addrspace(1) %h
  %h8 = getelementptr i8, ptr addrspace(1) %h, i64 8
  store i64 1, ptr addrspace(1) %h8
  %h16 = getelementptr i8, ptr addrspace(1) %h, i64 16
  store i32 %service, ptr addrspace(1) %h16
  %h20 = getelementptr i8, ptr addrspace(1) %h, i64 20
  store i32 1, ptr addrspace(1) %h20
  store i64 %w0, ptr addrspace(1) %p
  %p1 = getelementptr i8, ptr addrspace(1) %p, i64 8
  store i64 %w1, ptr addrspace(1) %p1
  %p2 = getelementptr i8, ptr addrspace(1) %p, i64 16
  store i64 %w2, ptr addrspace(1) %p2
  %p3 = getelementptr i8, ptr addrspace(1) %p, i64 24
  store i64 %w3, ptr addrspace(1) %p3
  %rp = getelementptr i8, ptr addrspace(1) %buffer, i64 32
  store atomic i64 %packet, ptr addrspace(1) %rp syncscope("") release, align 8
  call void @llvm.amdgcn.s.sendmsg(i32 1, i32 0)
  br label %wait
wait:
  %c = load atomic i32, ptr addrspace(1) %h20 syncscope("") acquire, align 4
  %ready = and i32 %c, 1
  %again = icmp ne i32 %ready, 0
  br i1 %again, label %wait, label %done
done:
  %r = load i64, ptr addrspace(1) %p
  store i64 %r, ptr addrspace(1) %result
  ret void
}
define amdgpu_kernel void @k(ptr addrspace(1) %q, i64 %w0, i64 %w1, i64 %w2, i64 %w3, i32 %service) #0 {
  call void @ask(i32 %service, i64 %w0, i64 %w1, i64 %w2, i64 %w3, ptr addrspace(1) %q)
  ret void
}
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare void @llvm.amdgcn.s.sendmsg(i32, i32)
attributes #0 = { "amdgpu-flat-work-group-size"="1,1" }"""
CHECKS = "race,init,wait,registers,hazards,barrier"
_BEGIN, _END = 1, 2


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100"])
def test_requests(chip: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A printf in two parts (control word, format, number), to stdout and to stderr; memory; a service that nobody has."""
    asm, image = compile_ir(_ASK, chip)
    driver = get_driver(chip, check=CHECKS)
    kernel = driver.get_function(driver.load_module(0, image, asm), "k")
    q = upload(driver, np.zeros(1, np.uint64))

    def ask(service: int, *words: int) -> int:
        data = struct.pack("<Q4Qi", q, *(*words, 0, 0, 0, 0)[:4], service)
        driver.launch(kernel, (1, 1, 1), (1, 1, 1), 0, data)
        return int(download(driver, q, np.zeros(1, np.uint64))[0])

    fmt = int.from_bytes(b"x = %d\n\0", "little")
    assert ask(2, _BEGIN | _END | 3 << 5, 0, fmt, 42) == 7  # characters
    assert ask(2, _BEGIN | _END | 3 << 5, 1, fmt, -1 & (1 << 64) - 1) == 7
    out, err = capfd.readouterr()
    assert (out, err) == ("x = 42\n", "x = -1\n")
    at = ask(3, 0, 4096)
    assert driver.memory.find(at).size == 4096
    ask(3, at)
    assert driver.memory.find(at) is None
    with pytest.raises(
        EmulationError, match=r"a request to the host that is not answered(.|\n)*a call of a function of the host"
    ):
        ask(1, 0x1234)


_PRINTF = """
@fmt = addrspace(4) constant [18 x i8] c"i=%d x=%.2f c=%c\\0A\\00"
define ptr addrspace(1) @__printf_alloc(i32 %n) {
  %implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %bp = getelementptr i8, ptr addrspace(4) %implicit, i64 72
  %buffer = load ptr addrspace(1), ptr addrspace(4) %bp
  %at = atomicrmw add ptr addrspace(1) %buffer, i32 %n syncscope("agent") monotonic
  %from = add i32 %at, 8
  %off = zext i32 %from to i64
  %p = getelementptr i8, ptr addrspace(1) %buffer, i64 %off
  ret ptr addrspace(1) %p
}
define amdgpu_kernel void @k(ptr addrspace(1) %q) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %h = uitofp i32 %t to double
  %x = fmul double %h, 0.25
  %c = add i32 %t, 97
  %n = call i32 (ptr addrspace(4), ...) @printf(ptr addrspace(4) @fmt, i32 %t, double %x, i32 %c)
  ret void
}
declare i32 @printf(ptr addrspace(4), ...)
declare i32 @llvm.amdgcn.workitem.id.x()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
attributes #0 = { "amdgpu-flat-work-group-size"="3,3" }
!opencl.ocl.version = !{!0}
!0 = !{i32 2, i32 0}"""


def test_opencl_printf(capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM's own lowering of OpenCL's printf: records in the kernel's buffer, formats in the metadata."""
    asm, image = compile_ir(_PRINTF, "gfx942")
    driver = get_driver("gfx942", check=CHECKS)
    kernel = driver.get_function(driver.load_module(0, image, asm), "k")
    driver.launch(kernel, (1, 1, 1), (3, 1, 1), 0, struct.pack("<Q", 0))
    assert capfd.readouterr().out == "i=0 x=0.00 c=a\ni=1 x=0.25 c=b\ni=2 x=0.50 c=c\n"


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
def test_a_trap_is_a_fault(chip: str) -> None:
    """RDNA3 follows s_trap by a request for its doorbell and a halt, in case the trap was passed over."""
    ir = """
declare void @llvm.trap()
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %a) #0 {
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  %bad = icmp eq i32 %x, 3
  br i1 %bad, label %no, label %yes
no:
  call void @llvm.trap()
  unreachable
yes:
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %x
  store i32 %x, ptr addrspace(1) %p
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
"""
    asm, image = compile_ir(ir, chip)
    driver = get_driver(chip)
    function = driver.get_function(driver.load_module(0, image, asm), "k")
    at = upload(driver, np.zeros(64, np.int32))
    with pytest.raises(EmulationError, match="trap"):
        driver.launch(function, (1, 1, 1), (64, 1, 1), 0, struct.pack("<Q", at))
