"""Run single AMDGPU instructions on the emulator: a small kernel in LLVM IR with the instruction as inline assembly.

llvmlite prints the inline assembly into the text that the emulator runs; it cannot assemble it, so the code object (descriptor
and metadata, all that the loader reads) is compiled with the assembly left out.
"""

from __future__ import annotations

import re
import struct
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from tec.codegen.linking import link
from tec.emulator import get_driver

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

_FLAGS = '\n!llvm.module.flags = !{!9000}\n!9000 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'
LANES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1030": 32, "gfx1100": 32, "gfx1200": 32, "gfx1250": 32}


def compile_ir(ir: str, chip: str, level: int = 2) -> tuple[str, bytes]:
    """(assembly, linked code object) of LLVM IR for a chip."""
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=3)

    def module(text: str) -> llvm.ModuleRef:
        m = llvm.parse_assembly('target triple = "amdgcn-amd-amdhsa"\n' + text + _FLAGS)
        m.verify()
        if level:
            builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level))
            builder.getModulePassManager().run(m, builder)
        return m

    asm = machine.emit_assembly(module(ir))
    obj = machine.emit_object(module(re.sub(r'asm sideeffect "[^"]*"', 'asm sideeffect ""', ir)))
    return asm, link(obj, "own")


def function(ir: str, chip: str, name: str = "k", **options: object):
    """(driver, function) of the kernel `name` in LLVM IR."""
    asm, image = compile_ir(ir, chip)
    driver = get_driver(chip, **options)
    return driver, driver.get_function(driver.load_module(0, image, asm), name)


def upload(driver, array: np.ndarray) -> int:
    array = np.ascontiguousarray(array)
    address = driver.alloc(0, array.nbytes)
    driver.copy_to_device(0, address, array.ctypes.data, array.nbytes)
    return address


def download(driver, address: int, like: np.ndarray) -> np.ndarray:
    out = np.empty_like(like)
    driver.copy_from_device(0, out.ctypes.data, address, out.nbytes)
    return out


_WIDTHS = {4: "i32", 8: "i64"}


@cache
def _kernel(chip: str, instruction: str, sources: tuple[str, ...], out: str, masked: bool):
    """`sources` and `out` are "v4", "v8", "s4", "s8": register file and bytes."""
    lanes = LANES[chip]
    mask_type = f"i{lanes}"
    body, args, constraints = [], [], []
    out_ty = _WIDTHS[int(out[1])]
    for i, source in enumerate(sources):
        ty = _WIDTHS[int(source[1])]
        where = "%t" if source[0] == "v" else "0"
        body.append(f"  %g{i} = getelementptr {ty}, ptr addrspace(1) %p{i}, i32 {where}")
        body.append(f"  %x{i} = load {ty}, ptr addrspace(1) %g{i}")
        value = f"%x{i}"
        if source[0] == "s":
            body.append(f"  %u{i} = call {ty} @llvm.amdgcn.readfirstlane.{ty}({ty} %x{i})")
            value = f"%u{i}"
        args.append(f"{ty} {value}")
        constraints.append(source[0])
    body.append(f"  %go = getelementptr {out_ty}, ptr addrspace(1) %o, i32 %t")
    body.append(f"  %old = load {out_ty}, ptr addrspace(1) %go")
    if out[0] == "s":
        body.append(f"  %olds = call {out_ty} @llvm.amdgcn.readfirstlane.{out_ty}({out_ty} %old)")
    text = instruction
    if masked:
        n = len(sources) + 1
        wide = "b64" if lanes == 64 else "b32"
        save, ex = ("s[20:21]", "exec") if lanes == 64 else ("s20", "exec_lo")
        text = f"s_mov_{wide} {save}, {ex}\\0As_mov_{wide} {ex}, ${n + 1}\\0A{instruction}\\0As_mov_{wide} {ex}, {save}"
    constraint = f"=&{out[0]}," + "".join(c + "," for c in constraints) + "0"
    extra = ""
    if masked:
        constraint += ",s"
        extra = f", {mask_type} %mask"
    clobbers = ",~{s20},~{s21},~{vcc},~{scc}"
    body.append(
        f'  %r = call {out_ty} asm sideeffect "{text}", "{constraint}{clobbers}"({", ".join(args)}{", " if args else ""}'
        f"{out_ty} %old{'s' if out[0] == 's' else ''}{extra})"
    )
    body.append(f"  store {out_ty} %r, ptr addrspace(1) %go")
    params = "".join(f"ptr addrspace(1) %p{i}, " for i in range(len(sources)))
    ir = f"""define amdgpu_kernel void @k({params}ptr addrspace(1) %o, {mask_type} %mask) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{chr(10).join(body)}
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare i64 @llvm.amdgcn.readfirstlane.i64(i64)
attributes #0 = {{ "amdgpu-flat-work-group-size"="{lanes},{lanes}" "amdgpu-no-implicitarg-ptr" }}"""
    return function(ir, chip)


def run_instruction(
    chip: str, instruction: str, sources: list[np.ndarray], old: np.ndarray, mask: int | None = None, scalar: str = ""
) -> np.ndarray:
    """One instruction over one wave. `$0` is the result, `$1`... the sources; `old` is the result register before.

    `scalar` marks sources (by position, and "o" for the output) that are SGPRs: "o12". `mask`: EXEC for the instruction.
    """
    lanes = LANES[chip]
    kinds = tuple(("s" if str(i + 1) in scalar else "v") + str(a.dtype.itemsize) for i, a in enumerate(sources))
    out = ("s" if "o" in scalar else "v") + str(old.dtype.itemsize)
    driver, kernel = _kernel(chip, instruction, kinds, out, mask is not None)
    addresses = [upload(driver, a) for a in sources]
    where = upload(driver, old)
    args = struct.pack(f"<{len(addresses) + 1}Q", *addresses, where)
    args += struct.pack("<Q" if lanes == 64 else "<I", mask or 0)
    try:
        driver.launch(kernel, (1, 1, 1), (lanes, 1, 1), 0, args)
        return download(driver, where, old)
    finally:
        for address in (*addresses, where):
            driver.free(0, address)
