"""Functions that kernels call: direct, recursive, by address; with barriers within, under every check; from machine code and from assembly."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.errors import KernelFault
from tests.thinned import thinned

from .harness import LANES, compile_ir, download, upload

CHIPS = ["gfx90a", "gfx942", "gfx1100", "gfx1200"]
CHECKS = "race,init,wait,registers,hazards,barrier,progress"
_IR = """
@shared = internal addrspace(3) global [256 x i32] undef
@table = addrspace(1) constant [2 x ptr] [ptr @triple, ptr @minus]

define internal i32 @poly(i32 %x, i32 %n) noinline {{
start:
  br label %loop
loop:
  %i = phi i32 [ 0, %start ], [ %i1, %loop ]
  %r = phi i32 [ 1, %start ], [ %r1, %loop ]
  %m = mul i32 %r, %x
  %r1 = add i32 %m, %i
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret i32 %r1
}}
define internal i32 @fib(i32 %n) noinline {{
  %small = icmp slt i32 %n, 2
  br i1 %small, label %leaf, label %on
leaf:
  ret i32 %n
on:
  %a = sub i32 %n, 1
  %b = sub i32 %n, 2
  %x = call i32 @fib(i32 %a)
  %y = call i32 @fib(i32 %b)
  %s = add i32 %x, %y
  ret i32 %s
}}
define internal i32 @triple(i32 %x) noinline {{
  %r = mul i32 %x, 3
  ret i32 %r
}}
define internal i32 @minus(i32 %x) noinline {{
  %r = sub i32 %x, 7
  ret i32 %r
}}
define internal i32 @neighbour(i32 %x, i32 %t) noinline {{
  %p = getelementptr i32, ptr addrspace(3) @shared, i32 %t
  store i32 %x, ptr addrspace(3) %p
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %o = xor i32 %t, 64
  %q = getelementptr i32, ptr addrspace(3) @shared, i32 %o
  %v = load i32, ptr addrspace(3) %q
  ret i32 %v
}}
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %x = load i32, ptr addrspace(1) %a
{body}
  %b = getelementptr i32, ptr addrspace(1) %q, i32 %t
  store i32 %w, ptr addrspace(1) %b
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
attributes #0 = {{ "amdgpu-flat-work-group-size"="128,128" }}"""
_BODIES = {
    "direct": """  %u = call i32 @poly(i32 %x, i32 4)
  %v = call i32 @poly(i32 %t, i32 3)
  %w = add i32 %u, %v""",
    "recursive": """  %n = and i32 %x, 7
  %w = call i32 @fib(i32 %n)""",
    "by address": """  %n = and i32 %x, 1
  %s = getelementptr [2 x ptr], ptr addrspace(1) @table, i32 0, i32 %n
  %f = load ptr, ptr addrspace(1) %s
  %w = call i32 %f(i32 %x)""",
    "barrier": """  %u = call i32 @neighbour(i32 %x, i32 %t)
  %w = add i32 %u, 1""",
}


def _poly(x: int, n: int) -> int:
    r = 1
    for i in range(n):
        r = r * x + i
    return r


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


_WANT = {
    "direct": lambda x: [_poly(v, 4) + _poly(t, 3) for t, v in enumerate(x)],
    "recursive": lambda x: [_fib(v & 7) for v in x],
    "by address": lambda x: [v - 7 if v & 1 else v * 3 for v in x],
    "barrier": lambda x: [x[t ^ 64] + 1 for t in range(len(x))],
}


@thinned(1, ("chip", CHIPS), ("kind", list(_BODIES)))
def test_calls(chip: str, kind: str) -> None:
    asm, image = compile_ir(_IR.format(body=_BODIES[kind]), chip)
    assert "s_swappc_b64" in asm
    x = np.random.default_rng(1).integers(-50, 50, 128).astype(np.int32)
    for text, check in ((asm, "bounds"), (None, CHECKS)):
        driver = get_driver(chip, check=check)
        kernel = driver.get_function(driver.load_module(0, image, text), "k")
        p, q = upload(driver, x), upload(driver, np.zeros_like(x))
        driver.launch(kernel, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQ", p, q))
        np.testing.assert_array_equal(
            download(driver, q, x), np.array(_WANT[kind]([int(v) for v in x]), np.int64).astype(np.int32)
        )
    assert 128 % LANES[chip] == 0


def test_a_call_of_no_function() -> None:
    """An address in data that is no function's: a fault at the call, by its line."""
    body = """  %w = call i32 %f(i32 %x)"""
    ir = _IR.format(
        body="  %s = getelementptr [2 x ptr], ptr addrspace(1) @table, i32 0, i32 5\n  %f = load ptr, ptr addrspace(1) @bad\n"
        + body
    )
    ir = ir.replace("@table =", "@bad = addrspace(1) global ptr inttoptr (i64 4096 to ptr)\n@table =")
    _, image = compile_ir(ir, "gfx942")
    driver = get_driver("gfx942")
    kernel = driver.get_function(driver.load_module(0, image), "k")
    p = upload(driver, np.zeros(128, np.int32))
    with pytest.raises(KernelFault, match="a call or return to a place that is no function's") as e:
        driver.launch(kernel, (1, 1, 1), (128, 1, 1), 0, struct.pack("<QQ", p, p))
    assert "s_swappc_b64" in e.value.fault.instruction
