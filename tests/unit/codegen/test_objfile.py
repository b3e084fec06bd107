"""The object loader: what LLVM emits loads and runs; what is damaged raises; AArch64 fields are right bit by bit."""

from __future__ import annotations

import ctypes
import math
import random
import struct

import numpy as np
import pytest

from tec.codegen import llvm_util
from tec.errors import PackageError, TecError
from tec.runtime.objects import elfobject
from tec.runtime.objects.elfobject import link_object, parse_object
from tec.runtime.objects.objfile import HOST, load_object, outside_symbol
from tests import seeds
from tests.counting import cost

SOURCE = """
@counter = global i32 5
@table = internal constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
@pointers = internal constant [2 x ptr] [ptr @counter, ptr @table]
@zeros = internal global [100 x i32] zeroinitializer
@elsewhere = external global i32
declare double @exp(double)
declare i32 @given(i32)
declare extern_weak void @nobody()

define i32 @bump() {
  %v = load i32, ptr @counter
  %w = add i32 %v, 1
  store i32 %w, ptr @counter
  store volatile i32 %w, ptr getelementptr (i32, ptr @zeros, i64 99)
  %z = load volatile i32, ptr getelementptr (i32, ptr @zeros, i64 99)
  ret i32 %z
}
define double @mix(i64 %k) {
  %p = getelementptr double, ptr @table, i64 %k
  %x = load double, ptr %p
  %y = call double @exp(double %x)
  %q = load volatile ptr, ptr getelementptr (ptr, ptr @pointers, i64 1)
  %r = load double, ptr %q
  %s = fadd double %y, %r
  ret double %s
}
define i32 @ask(i32 %x) {
  %v = call i32 @given(i32 %x)
  %e = load i32, ptr @elsewhere
  %s = add i32 %v, %e
  %n = icmp eq ptr @nobody, null
  %b = zext i1 %n to i32
  %t = add i32 %s, %b
  ret i32 %t
}
"""
X86 = llvm_util.LLVMMachine("x86_64-unknown-linux-gnu", "x86-64")
ARM = llvm_util.LLVMMachine("aarch64-unknown-linux-gnu", "generic")


@pytest.fixture(scope="module")
def image() -> bytes:
    machine = X86 if HOST == "x86_64" else ARM
    return llvm_util.compile_text(SOURCE, machine, "object", 0)


def test_functions_data_got_stubs_and_outside_symbols(image):
    given = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(lambda x: 10 * x)
    elsewhere = ctypes.c_int32(1000)
    o = load_object(
        image, {"given": ctypes.cast(given, ctypes.c_void_p).value, "elsewhere": ctypes.addressof(elsewhere)}
    )
    bump = o.function("bump")
    assert [bump(None, None) for _ in range(3)] == [6, 7, 8]
    mix = o.function("mix", ctypes.c_double, ctypes.c_int64)
    assert mix(2) == math.exp(4.0) + 1.0
    assert o.function("ask", ctypes.c_int32, ctypes.c_int32)(7) == 70 + 1000 + 1
    assert ctypes.c_int32.from_address(o.address("counter")).value == 8
    again = load_object(image, {"given": 1, "elsewhere": 1})
    assert again.function("bump")(None, None) == 6  # its own data


def test_missing_symbols_are_named(image):
    with pytest.raises(PackageError, match="given"):
        load_object(image)


def test_code_for_another_machine_is_refused():
    other = ARM if HOST == "x86_64" else X86
    obj = llvm_util.compile_text("define i32 @f() { ret i32 1 }", other, "object")
    with pytest.raises(PackageError, match="this machine is"):
        load_object(obj)


def test_no_damage_crashes_the_parser(image):
    """Truncations at every length, and random bytes overwritten, give an object or a TecError and nothing else."""
    rng = random.Random(seeds.first(1))

    def attempt(data: bytes) -> None:
        try:
            obj = parse_object(data)
            link_object(obj, 0x10000000, lambda name: 0x10010000)
        except TecError:
            pass

    for n in range(0, len(image), 7):
        attempt(image[:n])
    for _ in range(4000):
        data = bytearray(image)
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
        attempt(bytes(data))
    header = struct.unpack_from("<Q", image, 40)[0]
    for at in range(header, len(image), 4):  # every word of the section table
        data = bytearray(image)
        data[at : at + 4] = b"\xff\xff\xff\x7f"
        attempt(bytes(data))


def _a64_targets(data: bytes, base: int) -> set[int]:
    """Addresses that the ADRP+ADD/LDR pairs and branches of the code reach, decoded by hand from the Arm manual."""
    out = set()
    page: dict[int, int] = {}
    for at in range(0, len(data) - 3, 4):
        (w,) = struct.unpack_from("<I", data, at)
        if w & 0x9F000000 == 0x90000000:
            imm = (w >> 5 & 0x7FFFF) << 2 | w >> 29 & 3
            imm -= (imm >> 20) << 21
            page[w & 31] = ((base + at) & ~0xFFF) + (imm << 12)
        elif w & 0xFFC00000 == 0x91000000 and w >> 5 & 31 in page:
            out.add(page[w >> 5 & 31] + (w >> 10 & 0xFFF))
        elif w & 0x3B000000 == 0x39000000 and w >> 5 & 31 in page:
            out.add(page[w >> 5 & 31] + ((w >> 10 & 0xFFF) << (w >> 30)))
        elif w & 0x7C000000 == 0x14000000:
            imm = w & 0x3FFFFFF
            out.add(base + at + ((imm - (imm >> 25 << 26)) << 2))
    return out


def test_aarch64_relocations_reach_their_targets():
    obj = parse_object(llvm_util.compile_text(SOURCE, ARM, "object", 2))
    base = 0x7F00_0000_0000
    where = {"exp": 0x1234_5678_9ABC, "given": 0x7FFF_0000_1000, "elsewhere": 0x5555_0000_0010}
    linked = link_object(obj, base, where.get)
    reached = _a64_targets(bytes(linked.data[: linked.text_end]), base)
    assert linked.exports["counter"] in reached or any(
        struct.unpack_from("<Q", linked.data, t - base)[0] == linked.exports["counter"]
        for t in reached
        if base <= t < base + len(linked.data) - 8
    )
    stubs = {
        struct.unpack_from("<Q", linked.data, t - base + 8)[0]
        for t in reached
        if base <= t < base + linked.text_end - 16
    }
    assert {where["exp"], where["given"]} <= stubs
    cells = {
        struct.unpack_from("<Q", linked.data, t - base)[0] for t in reached if base <= t < base + len(linked.data) - 8
    }
    assert where["elsewhere"] in cells


def test_libm_and_libc_are_found():
    assert outside_symbol("exp") and outside_symbol("memcpy") and outside_symbol("no_such_function_anywhere") is None


def test_a_call_costs_little():
    """The whole way into an empty function from Python: nothing of ours lies between the caller and ctypes."""
    machine = X86 if HOST == "x86_64" else ARM
    f = load_object(llvm_util.compile_text("define i32 @f(ptr %a, ptr %b) { ret i32 0 }", machine, "object")).function(
        "f"
    )
    block = np.zeros(4, "u8")
    at = block.ctypes.data
    assert cost(lambda: f(at, at)).instructions < 12


def test_limits_on_sections():
    with pytest.raises(PackageError):
        parse_object(b"\x7fELF" + bytes(100))
    assert elfobject.PAGE % 4096 == 0


@pytest.mark.skipif(HOST != "x86_64", reason="the text is of x86-64")
def test_common_symbols_have_room_of_their_own():
    text = """
@before = common global i8 0, align 1
@count = common global i64 0, align 8
@behind = common global i64 0, align 8
define i64 @bump() {
  store volatile i8 -1, ptr @before
  store volatile i64 -1, ptr @behind
  %v = load volatile i64, ptr @count
  %w = add i64 %v, 1
  store volatile i64 %w, ptr @count
  ret i64 %w
}"""
    loaded = load_object(llvm_util.compile_text(text, X86, "object"))
    bump = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("bump"))
    assert [bump(), bump(), bump()] == [1, 2, 3]
    made = parse_object(llvm_util.compile_text(text, X86, "object"))
    assert sum(s.section == 0xFFF2 for s in made.symbols) == 3  # SHN_COMMON
