"""`check="init"`: undefined registers and memory where they decide something, and where compilers rightly leave them."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.errors import KernelFault
from tests.thinned import thinned

from .harness import compile_ir, download, function, upload

_DECLARES = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }
"""
_BARRIER = """  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
"""
CHIPS = ("gfx90a", "gfx942", "gfx1100")


def kernel(body: str, top: str = "") -> str:
    return f"""{top}define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %n) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{body}  ret void
}}
{_DECLARES}"""


def out(value: str) -> str:
    return f"  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t\n  store i32 {value}, ptr addrspace(1) %c\n"


def asm(name: str, text: str, constraints: str = "=v", args: str = "", ty: str = "i32") -> str:
    return f'  %{name} = call {ty} asm sideeffect "{text}", "{constraints}"({args})\n'


BAD = asm("x", "v_mov_b32 $0, v77")
UNIFORM = asm("x", "s_mov_b32 $0, s77", "=s")


def run(
    ir: str, chip: str, lanes: int = 64, groups: int = 1, fresh: bool = False, n: int = 0, **options: object
) -> np.ndarray:
    driver, k = function(ir, chip, check="init", **options)
    p = driver.alloc(0, 4096) if fresh else upload(driver, np.arange(1024, dtype=np.int32))
    o = upload(driver, np.zeros(1024, np.int32))
    driver.launch(k, (groups, 1, 1), (lanes, 1, 1), 0, struct.pack("<QQi", p, o, n))
    return download(driver, o, np.zeros(1024, np.int32))


LOAD = "  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t\n  %x = load i32, ptr addrspace(1) %a\n"
FAULTS = {
    "stored register": (kernel(BAD + out("%x")), "uninitialized value stored"),
    "stored sum": (kernel(BAD + "  %y = mul i32 %x, 3\n  %z = add i32 %y, %t\n" + out("%z")), "value stored"),
    "stored SGPR": (kernel(UNIFORM + out("%x")), "uninitialized value stored"),
    "address": (
        kernel(BAD + "  %i = and i32 %x, 7\n  %q = getelementptr i32, ptr addrspace(1) %p, i32 %i\n  %y = load i32, ptr addrspace(1) %q\n" + out("%y")),
        "uninitialized value in an address",
    ),
    "scalar address": (
        kernel(UNIFORM + "  %i = and i32 %x, 7\n  %q = getelementptr i32, ptr addrspace(1) %p, i32 %i\n  %y = load i32, ptr addrspace(1) %q, !invariant.load !0\n" + out("%y")) + "!0 = !{}\n",
        "uninitialized value in an address",
    ),
    "branch": (
        kernel(UNIFORM + "  %b = icmp eq i32 %x, 5\n  br i1 %b, label %yes, label %no\nyes:\n" + out("%t") + "  br label %no\nno:\n"),
        "uninitialized value decides a branch",
    ),
    "divergent branch": (
        kernel(BAD + "  %b = icmp eq i32 %x, 5\n  br i1 %b, label %yes, label %no\nyes:\n" + out("%t") + "  br label %no\nno:\n"),
        "uninitialized value in EXEC",
    ),
    "atomic": (
        kernel(BAD + "  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t\n  %y = atomicrmw add ptr addrspace(1) %c, i32 %x syncscope(\"agent\") monotonic\n"),
        "uninitialized value stored",
    ),
    "float": (kernel(BAD + "  %f = bitcast i32 %x to float\n  %g = fadd float %f, 1.0\n  %y = bitcast float %g to i32\n" + out("%y")), "value stored"),
    "halves of two words": (kernel(asm("y", "v_mov_b32 v70, 0\\0Av_alignbit_b32 $0, v77, v70, 16", "=v,~{v70}") + out("%y")), "value stored"),
    "half of a word": (kernel(BAD + "  %h = lshr i32 %x, 16\n" + out("%h")), "value stored"),
    "through LDS": (
        kernel(BAD + "  %l = getelementptr i32, ptr addrspace(3) @lds, i32 %t\n  store i32 %x, ptr addrspace(3) %l\n" + _BARRIER + "  %y = load i32, ptr addrspace(3) %l\n" + out("%y"), "@lds = internal addrspace(3) global [256 x i32] poison\n"),
        "value stored",
    ),
    "across a barrier": (kernel(BAD + _BARRIER + out("%x")), "value stored"),
}  # fmt: skip
FINE = {
    "masked away": kernel(BAD + "  %y = and i32 %x, 0\n  %z = or i32 %y, %t\n" + out("%z")).replace("and i32 %x, 0", "and i32 %x, %n"),
    "not chosen": kernel(BAD + "  %b = icmp eq i32 %n, 1\n  %y = select i1 %b, i32 %x, i32 %t\n" + out("%y")),
    "not stored": kernel(BAD + "  %y = add i32 %x, 1\n" + asm("z", "v_mov_b32 $0, $1", "=v,v", "i32 %y") + out("%t")),
    "shifted out": kernel(BAD + "  %y = shl i32 %x, 16\n  %h = and i32 %n, 3\n  %w = shl i32 %y, 16\n  %z = or i32 %w, %t\n" + out("%z")),
    "the defined half": kernel(asm("y", "v_mov_b32 v70, $1\\0Av_and_b32 v71, 0xffff, v70\\0Av_lshl_or_b32 v71, v77, 16, v71\\0Av_and_b32 $0, 0xffff, v71", "=v,v,~{v70},~{v71}", "i32 %t") + out("%y")),
    "halves of two words": kernel(asm("y", "v_lshlrev_b32 v70, 16, $1\\0Av_mov_b32 v71, 0\\0Av_lshl_or_b32 v71, v77, 16, v71\\0Av_alignbit_b32 $0, v71, v70, 16", "=v,v,~{v70},~{v71}", "i32 %t") + out("%y")),
    "lanes that are off": kernel(BAD + "  %b = icmp slt i32 %t, 0\n  br i1 %b, label %yes, label %no\nyes:\n" + out("%x") + "  br label %no\nno:\n"),
    "compared with what is known": kernel(BAD + "  %y = or i32 %x, 1\n  %b = icmp eq i32 %y, 0\n  br i1 %b, label %yes, label %no\nyes:\n" + out("%t") + "  br label %no\nno:\n"),
}  # fmt: skip


@thinned(1, ("chip", CHIPS), ("name", FAULTS))
def test_undefined_value_decides(name: str, chip: str) -> None:
    ir, message = FAULTS[name]
    with pytest.raises(KernelFault, match=message) as e:
        run(ir, chip)
    assert "a register that was never written" in str(e.value) or name == "through LDS"


@thinned(1, ("chip", CHIPS), ("name", FINE))
def test_undefined_value_does_not_matter(name: str, chip: str) -> None:
    got = run(FINE[name], chip)
    assert (got[:64] == (0 if name.startswith(("lanes", "compared")) else np.arange(64))).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_partial_lanes(chip: str) -> None:
    """Lanes 0 to 9 write the register; the store by 10 lanes is right, the one by 12 names lane 10."""
    body = """  %b = icmp ult i32 %t, 10
  br i1 %b, label %yes, label %no
yes:
""" + asm("y", "v_mov_b32 v70, $1\\0Av_mov_b32 $0, v70", "=v,v,~{v70}", "i32 %t") + """  br label %no
no:
""" + asm("x", "v_mov_b32 $0, v70") + """  %d = icmp ult i32 %t, %n
  br i1 %d, label %more, label %end
more:
""" + out("%x") + "  br label %end\nend:\n"  # fmt: skip
    assert (run(kernel(body), chip, n=10)[:10] == np.arange(10)).all()
    with pytest.raises(KernelFault, match="value stored") as e:
        run(kernel(body), chip, n=12)
    assert e.value.fault.lane == 10


@pytest.mark.parametrize("chip", CHIPS)
def test_spills_to_lanes(chip: str) -> None:
    """v_writelane and v_readlane: one lane of a register that is undefined elsewhere."""
    ir = kernel(
        asm("x", "v_writelane_b32 v70, $1, 3\\0As_nop 4\\0Av_readlane_b32 $0, v70, LANE", "=s,s,~{v70}", "i32 %n")
        + out("%x")
    )
    assert (run(ir.replace("LANE", "3"), chip, n=5)[:64] == 5).all()
    with pytest.raises(KernelFault, match="value stored"):
        run(ir.replace("LANE", "4"), chip, n=5)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_agprs(chip: str) -> None:
    with pytest.raises(KernelFault, match="value stored"):
        run(kernel(asm("x", "v_accvgpr_read_b32 $0, a9") + out("%x")), chip)
    good = kernel(
        asm("x", "v_accvgpr_write_b32 a9, $1\\0Av_accvgpr_read_b32 $0, a9", "=v,v,~{a9}", "i32 %t") + out("%x")
    )
    assert (run(good, chip)[:64] == np.arange(64)).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_scratch(chip: str) -> None:
    """A local array of four with the first two written; element n is read."""
    body = "  %l = alloca [64 x i32], addrspace(5)\n"
    for k in (0, 1):
        body += f"  %l{k} = getelementptr i32, ptr addrspace(5) %l, i32 {k}\n  store volatile i32 {k + 7}, ptr addrspace(5) %l{k}\n"
    body += "  %lx = getelementptr i32, ptr addrspace(5) %l, i32 %n\n  %x = load volatile i32, ptr addrspace(5) %lx\n"
    assert (run(kernel(body + out("%x")), chip, n=1)[:64] == 8).all()
    with pytest.raises(KernelFault, match="value stored") as e:
        run(kernel(body + out("%x")), chip, n=2)
    assert "last load of memory that was never written" in str(e.value)


@pytest.mark.parametrize("chip", CHIPS)
def test_loads_of_fresh_memory(chip: str) -> None:
    with pytest.raises(KernelFault, match="uninitialized value stored") as e:
        run(kernel(LOAD + out("%x")), chip, fresh=True)
    assert re.search(r"last load of memory that was never written: line \d+: \w+_load_\w+ ", str(e.value))
    assert re.search(r"lane 0, 0 bytes into allocation \d+ \(4096 bytes", str(e.value))
    # A load that is thrown away, as one that a compiler moved up.
    unused = LOAD + "  %b = icmp eq i32 %n, 1\n  %y = select i1 %b, i32 %x, i32 %t\n" + out("%y")
    assert (run(kernel(unused), chip, fresh=True)[:64] == np.arange(64)).all()
    uniform = (
        "  %x = load i32, ptr addrspace(1) %p\n  %b = icmp eq i32 %x, 5\n  br i1 %b, label %yes, label %no\nyes:\n"
    )
    with pytest.raises(KernelFault, match="branch"):
        run(kernel(uniform + out("%t") + "  br label %no\nno:\n"), chip, fresh=True)
    add = kernel("  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t\n  %x = atomicrmw add ptr addrspace(1) %a, i32 1 syncscope(\"agent\") monotonic\n")  # fmt: skip
    with pytest.raises(KernelFault, match="uninitialized memory in an atomic"):
        run(add, chip, fresh=True)
    run(add, chip)
    swap = add.replace("atomicrmw add", "atomicrmw xchg")
    run(swap, chip, fresh=True)
    with pytest.raises(KernelFault, match="value stored"):
        run(swap.replace("  ret void", out("%x") + "  ret void"), chip, fresh=True)


def test_what_the_host_does() -> None:
    driver, k = function(kernel(LOAD + out("%x")), "gfx942", check="init")
    p, q, o = driver.alloc(0, 256), driver.alloc(0, 256), upload(driver, np.zeros(64, np.int32))

    def launch(source: int) -> None:
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", source, o, 0))

    driver.memset(0, p, 1, 252)
    with pytest.raises(KernelFault) as e:
        launch(p)
    assert e.value.fault.lane == 63
    driver.copy_on_device(0, q, p, 256)
    with pytest.raises(KernelFault) as e:
        launch(q)
    assert e.value.fault.lane == 63
    driver.memset(0, q, 0, 256)
    launch(q)
    launch(o)  # written by kernels
    driver.free(0, o)
    o = driver.alloc(0, 256)
    with pytest.raises(KernelFault):
        launch(o)  # memory that is handed out again is fresh


def test_first_registers() -> None:
    y = kernel("  %u = call i32 @llvm.amdgcn.workitem.id.y()\n  %g = call i32 @llvm.amdgcn.workgroup.id.x()\n  %x = add i32 %u, %g\n  %z = add i32 %x, %t\n" + out("%z"))  # fmt: skip
    for chip in (*CHIPS, "gfx1200", "gfx1030"):
        assert (run(y, chip)[:64] == np.arange(64)).all(), chip
        with pytest.raises(KernelFault, match="value stored"):
            run(
                kernel(asm("x", "v_mov_b32 $0, v2", "=v,~{v2}") + out("%x"))
                .replace("%t = ", "%t0 = ")
                .replace("i32 %t\n", "i32 0\n"),
                chip,
            )


def test_several_threads() -> None:
    body = """  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %gb = mul i32 %g, 64
  %i = add i32 %gb, %t
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %i
  %x = load i32, ptr addrspace(1) %a
  %l = getelementptr i32, ptr addrspace(3) @lds, i32 %t
  store i32 %x, ptr addrspace(3) %l
  %y = load volatile i32, ptr addrspace(3) %l
  %c = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %y, ptr addrspace(1) %c
"""
    ir = kernel(body, "@lds = internal addrspace(3) global [64 x i32] poison\n")
    for _ in range(3):
        assert (run(ir, "gfx942", groups=16, threads=4) == np.arange(1024)).all()
    with pytest.raises(KernelFault, match="value stored"):
        run(ir, "gfx942", groups=16, fresh=True, threads=4)


@pytest.mark.parametrize(
    ("op", "regs", "outs", "rows"),
    [
        ("v_mfma_f32_32x32x8_f16", 2, 16, 32), ("v_mfma_f32_32x32x2_f32", 1, 16, 32), ("v_mfma_i32_16x16x32_i8", 2, 4, 16),
        ("v_mfma_f64_16x16x4_f64", 2, 8, 16),
    ],
)  # fmt: skip
def test_matrix_instructions(op: str, regs: int, outs: int, rows: int) -> None:
    """Row 5 of A undefined: exactly the results of row 5 are. Lane l holds row l mod 32 (or 16) of A.

    One kernel, which stores the result that %n names from the lane that it names.
    """
    is_wide = "f64" in op
    taken = range(0, outs, 2 if is_wide else 1)
    sources = "".join(f"v_mov_b32 v{40 + k}, 0\\0Av_mov_b32 v{50 + k}, 0\\0A" for k in range(regs))
    zeros = "".join(f"v_mov_b32 v{60 + k}, 0\\0A" for k in range(outs))
    undefined = f"v_cmp_eq_u32 vcc, 5, ${len(taken)}\\0Av_cndmask_b32 v40, v40, v99, vcc\\0A"
    mfma = f"{op} v[60:{59 + outs}], v[40:{39 + regs}], v[50:{49 + regs}], v[60:{59 + outs}]\\0As_nop 15"
    moves = "".join(f"\\0Av_mov_b32 ${k}, v{60 + q}" for k, q in enumerate(taken))
    clobbers = ",".join(f"~{{v{i}}}" for i in (*range(40, 40 + regs), *range(50, 50 + regs), *range(60, 60 + outs)))
    results = f"{{ {', '.join(['i32'] * len(taken))} }}"
    body = f"  %row = and i32 %t, {rows - 1}\n" + asm(
        "x",
        sources + zeros + undefined + mfma + moves,
        f"{'=v,' * len(taken)}v,{clobbers},~{{vcc}}",
        "i32 %row",
        results,
    )
    lanes = [lane for lane in range(0, 64, 16) if rows < 32 or lane % 32 == 0]
    stored = [(k, lane) for k in range(len(taken)) for lane in lanes]
    table = " ".join(f"i32 {n}, label %case{n}" for n in range(len(stored)))
    body += "".join(f"  %x{k} = extractvalue {results} %x, {k}\n" for k in range(len(taken)))
    body += f"  switch i32 %n, label %no [ {table} ]\n"
    for n, (k, lane) in enumerate(stored):
        body += f"case{n}:\n  %b{n} = icmp eq i32 %t, {lane}\n  br i1 %b{n}, label %yes{n}, label %no\nyes{n}:\n"
        body += f"  %c{n} = getelementptr i32, ptr addrspace(1) %o, i32 {n}\n  store i32 %x{k}, ptr addrspace(1) %c{n}\n  br label %no\n"
    driver, made = function(kernel(body + "no:\n"), "gfx942", check="init")
    o = upload(driver, np.zeros(1024, np.int32))
    bad_rows = set()
    for n, (k, lane) in enumerate(stored):
        row = 8 * (k // 4) + 4 * (lane // 32) + k % 4 if rows == 32 else 4 * (lane // 16) + k
        try:
            driver.launch(made, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", o, o, n))
        except KernelFault:
            bad_rows.add(4 * k + lane // 16 if is_wide else row)
    assert bad_rows == {5}


def test_every_check_at_once() -> None:
    text, image = compile_ir(kernel(LOAD + out("%x")), "gfx942")
    driver = get_driver("gfx942", check="all")
    assert (
        driver.get_function(driver.load_module(0, image, text), "k").compiled(True, False).translation.ir.count("%u.")
        > 5
    )
