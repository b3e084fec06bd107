"""Run single AMDGPU instructions on the emulator: a small kernel in LLVM IR with the instruction as inline assembly.

llvmlite prints the inline assembly into the text that the emulator runs; it cannot assemble it, so the code object (descriptor
and metadata, all that the loader reads) is compiled with the assembly left out.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest

from tec.codegen.objects.linking import link
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


def _block(chip: str, instruction: str, sources: tuple[str, ...], out: str, masked: bool, n: int) -> str:
    """The IR of one instruction as block `n`: operands from the job's places, the result to the job's."""
    lanes = LANES[chip]
    mask_type = f"i{lanes}"
    body, args, constraints = [f"case{n}:"], [], []
    out_ty = _WIDTHS[int(out[1])]
    for i, source in enumerate(sources):
        ty = _WIDTHS[int(source[1])]
        where = "%t" if source[0] == "v" else "0"
        body.append(f"  %p{n}.{i} = getelementptr i8, ptr addrspace(1) %in, i32 {8 * lanes * i}")
        body.append(f"  %g{n}.{i} = getelementptr {ty}, ptr addrspace(1) %p{n}.{i}, i32 {where}")
        body.append(f"  %x{n}.{i} = load {ty}, ptr addrspace(1) %g{n}.{i}")
        value = f"%x{n}.{i}"
        if source[0] == "s":
            body.append(f"  %u{n}.{i} = call {ty} @llvm.amdgcn.readfirstlane.{ty}({ty} %x{n}.{i})")
            value = f"%u{n}.{i}"
        args.append(f"{ty} {value}")
        constraints.append(source[0])
    body.append(f"  %go{n} = getelementptr {out_ty}, ptr addrspace(1) %o, i32 %t")
    body.append(f"  %old{n} = load {out_ty}, ptr addrspace(1) %go{n}")
    if out[0] == "s":
        body.append(f"  %olds{n} = call {out_ty} @llvm.amdgcn.readfirstlane.{out_ty}({out_ty} %old{n})")
    text = instruction
    if masked:
        m = len(sources) + 1
        wide = "b64" if lanes == 64 else "b32"
        save, ex = ("s[20:21]", "exec") if lanes == 64 else ("s20", "exec_lo")
        text = f"s_mov_{wide} {save}, {ex}\\0As_mov_{wide} {ex}, ${m + 1}\\0A{instruction}\\0As_mov_{wide} {ex}, {save}"
    constraint = f"=&{out[0]}," + "".join(c + "," for c in constraints) + "0"
    if masked:
        constraint += ",s"
    clobbers = ",~{s20},~{s21},~{vcc},~{scc}"
    operands = [*args, f"{out_ty} %old{'s' if out[0] == 's' else ''}{n}", *([f"{mask_type} %mask"] if masked else [])]
    body.append(f'  %r{n} = call {out_ty} asm sideeffect "{text}", "{constraint}{clobbers}"({", ".join(operands)})')
    body.append(f"  store {out_ty} %r{n}, ptr addrspace(1) %go{n}")
    return "\n".join([*body, "  br label %end"])


_Case = tuple[str, tuple[str, ...], str, bool]


@cache
def _kernel(chip: str, cases: tuple[_Case, ...]):
    """A kernel of many instructions: each work-group runs that of its job, so that all of them are compiled once.

    `sources` and `out` of a case are "v4", "v8", "s4", "s8": register file and bytes.
    """
    lanes, places = LANES[chip], max(len(c[1]) for c in cases)
    blocks = "\n".join(_block(chip, *c, n) for n, c in enumerate(cases))  # type: ignore[misc]
    table = " ".join(f"i32 {n}, label %case{n}" for n in range(len(cases)))
    ir = f"""define amdgpu_kernel void @k(ptr addrspace(1) %inputs, ptr addrspace(1) %outputs, ptr addrspace(4) %jobs) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %job = call i32 @llvm.amdgcn.workgroup.id.x()
  %jm = getelementptr [2 x i64], ptr addrspace(4) %jobs, i32 %job, i32 0
  %jc = getelementptr [2 x i64], ptr addrspace(4) %jobs, i32 %job, i32 1
  %mask = load i{lanes}, ptr addrspace(4) %jm
  %case = load i32, ptr addrspace(4) %jc
  %in = getelementptr [{8 * lanes * max(places, 1)} x i8], ptr addrspace(1) %inputs, i32 %job
  %o = getelementptr [{8 * lanes} x i8], ptr addrspace(1) %outputs, i32 %job
  switch i32 %case, label %end [ {table} ]
{blocks}
end:
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare i64 @llvm.amdgcn.readfirstlane.i64(i64)
attributes #0 = {{ "amdgpu-flat-work-group-size"="{lanes},{lanes}" "amdgpu-no-implicitarg-ptr" }}"""
    return function(ir, chip)


class Job(NamedTuple):
    """One instruction over one wave. `$0` is the result, `$1`... the sources; `old` is the result register before.

    `scalar` marks sources (by position, and "o" for the output) that are SGPRs: "o12". `mask`: EXEC for the instruction.
    """

    instruction: str
    sources: list[np.ndarray]
    old: np.ndarray
    mask: int | None = None
    scalar: str = ""

    @property
    def case(self) -> _Case:
        kinds = tuple(
            ("s" if str(i + 1) in self.scalar else "v") + str(a.dtype.itemsize) for i, a in enumerate(self.sources)
        )
        out = ("s" if "o" in self.scalar else "v") + str(self.old.dtype.itemsize)
        return self.instruction, kinds, out, self.mask is not None


def run_jobs(chip: str, jobs: list[Job]) -> list[np.ndarray]:
    """The result of each, from one launch of one kernel."""
    lanes = LANES[chip]
    cases = tuple(dict.fromkeys(j.case for j in jobs))
    driver, kernel = _kernel(chip, cases)
    places = max(1, *(len(c[1]) for c in cases), 1)
    inputs = np.zeros((len(jobs), places, 8 * lanes), np.uint8)
    outputs = np.zeros((len(jobs), 8 * lanes), np.uint8)
    table = np.zeros((len(jobs), 2), np.uint64)
    for k, j in enumerate(jobs):
        for i, a in enumerate(j.sources):
            inputs[k, i, : a.nbytes] = np.ascontiguousarray(a).view(np.uint8)
        outputs[k, : j.old.nbytes] = np.ascontiguousarray(j.old).view(np.uint8)
        table[k] = (j.mask or 0) & (1 << lanes) - 1, cases.index(j.case)
    addresses = [upload(driver, a) for a in (inputs, outputs, table)]
    try:
        driver.launch(kernel, (len(jobs), 1, 1), (lanes, 1, 1), 0, struct.pack("<3Q", *addresses))
        got = download(driver, addresses[1], outputs)
    finally:
        for address in addresses:
            driver.free(0, address)
    return [row[: j.old.nbytes].view(j.old.dtype).copy() for row, j in zip(got, jobs)]


def run_instruction(
    chip: str, instruction: str, sources: list[np.ndarray], old: np.ndarray, mask: int | None = None, scalar: str = ""
) -> np.ndarray:
    """One instruction over one wave, see `Job`."""
    return run_jobs(chip, [Job(instruction, sources, old, mask, scalar)])[0]


# What a test has asked for: (chip, job, verify). All of a chip run as one kernel, at the test's end: compiling each by itself takes ten times as long.
_ASKED: list[tuple[str, Job, Callable[[np.ndarray], None]]] = []


@pytest.fixture
def asked() -> Iterator[None]:
    """Runs and verifies what a test asked for when its body is through."""
    _ASKED.clear()
    yield
    run_asked()


def ask(chip: str, job: Job, verify: Callable[[np.ndarray], None]) -> None:
    """Have a job run with the others of its test; `verify` gets its result."""
    _ASKED.append((chip, job, verify))


def run_asked() -> None:
    todo = _ASKED[:]
    _ASKED.clear()
    for chip in dict.fromkeys(chip for chip, _, _ in todo):
        mine = [(job, verify) for c, job, verify in todo if c == chip]
        for got, (_, verify) in zip(run_jobs(chip, [job for job, _ in mine]), mine, strict=True):
            with np.errstate(all="ignore"):
                verify(got)
