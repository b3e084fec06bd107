"""The disassembler against LLVM: instructions that LLVM's assembler encoded, and whole kernels against LLVM's own text of them."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tec
from tec.emulator import get_driver
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.decode import words
from tec.emulator.decode.asmparse import Parser
from tec.emulator.decode.disassemble import decoder, disassemble, encodings
from tec.emulator.decode.inst import Inst, KernelText
from tec.emulator.errors import UnsupportedInstruction
from tec.runtime.objects.codeobject import read_code_object
from tests.thinned import thinned

from ...conformance import elementwise, matmuls, memory, reductions  # noqa: F401  (they fill the table)
from ...conformance.harness import CASES
from .harness import compile_ir, download, upload
from .planted import image, text

CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201", "gfx1250"]
# "chip bytes instruction": forms of every opcode, which LLVM assembles to these bytes (tools/encodings.py makes them).
ENCODED = [
    line.split(" ", 2)
    for family in ("gfx9", "rdna")
    for line in (Path(__file__).parent / f"encodings_{family}.txt").read_text().splitlines()
]
KERNELS = ["add_f32_symbolic", "mul_add_f16", "floordiv_mod_int32", "math_tanh", "gather_rows", "matmul_shared_16x16"]


def meaning(inst: Inst) -> tuple[object, ...]:
    operands = []
    for o in inst.operands:
        value = ("c", np.float64(o.value)) if o.kind in ("int", "float") else (o.kind, o.index, o.count)
        text = o.text.replace(" ", "") if o.kind in ("call", "special", "symbol") else ""
        operands.append((value, text, o.neg, o.abs, o.sext))
    mods = {}
    for k, v in inst.mods.items():
        if k.startswith("op_sel") and set(v.strip("[]").split(",")) == {"0" if k == "op_sel" else "1"}:
            continue
        if k.startswith("offset") and v == "0":
            continue
        mods[k] = 1 if k == "bound_ctrl" else int(v, 0) if v[:1].isdigit() else v.replace(" ", "")
    return plain(inst.op), tuple(operands), tuple(sorted(mods.items()))


def plain(name: str) -> str:
    """One spelling of a mnemonic that LLVM takes in two: v_mfma_f32_32x32x4_2b_f16 is v_mfma_f32_32x32x4f16."""
    if name.startswith("v_mfma"):
        return re.sub(r"_\d+b_|_1k$|_", "", name)
    return {"v_mul_lo_i32": "v_mul_lo_u32"}.get(name, name)


def test_every_opcode_of_the_table_is_held_to_llvm() -> None:
    names = {plain(re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", line.split()[0])) for _, _, line in ENCODED}
    names |= {line.split()[2] for line in Path(words.__file__).with_name("encodings_amd.txt").read_text().splitlines()}
    assert not {e.name for chip in CHIPS for e in encodings(chip).values() if plain(e.name) not in names}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        # RDNA3 ISA, formats FLAT, MUBUF and DS with the opcodes of AMD's file: LLVM's assembler has no text to hold them to.
        (0xDC000000 | 49 << 18 | 2 << 16 | 16 | (5 | 124 << 16) << 32, "global_load_lds_b32 v[5:6], off offset:16"),
        (0xDC000000 | 45 << 18 | 2 << 16 | (5 | 8 << 16) << 32, "global_load_lds_u8 v5, s[8:9]"),
        (0xDC000000 | 42 << 18 | 2 << 16 | (8 << 16) << 32, "global_load_lds_addtid_b32 s[8:9]"),
        (0xDC000000 | 48 << 18 | 1 << 16 | (5 | 124 << 16 | 1 << 23) << 32, "scratch_load_lds_i16 v5, off"),
        (0xE0000000 | 47 << 18 | 12 | (5 | 2 << 16 | 1 << 22 | 128 << 24) << 32, "buffer_load_lds_u16 v5, s[8:11], 0 offen offset:12"),
        (0xDC000000 | 55 << 18 | (5 | 7 << 8 | 124 << 16) << 32, "flat_atomic_csub_u32 v[5:6], v7"),
        (0xD8000000 | 26 << 18 | 1 << 17, "ds_gws_sema_v gds"),
    ],
)  # fmt: skip
def test_opcodes_that_only_amd_lists(word: int, said: str) -> None:
    assert decoder("gfx1100", word.to_bytes(8, "little")).next().text == said


def test_loads_into_lds_by_amds_file() -> None:
    """gfx1100's, which LLVM has no name for: a dword a lane to M0 + offset."""
    body = (
        "s_mov_b32 m0, 64\nglobal_load_lds_b32 v1, s[4:5] offset:0\ns_waitcnt vmcnt(0)\n"
        "v_add_nc_u32_e32 v3, 64, v1\nds_load_b32 v4, v3\ns_waitcnt lgkmcnt(0)\nglobal_store_b32 v1, v4, s[6:7]"
    )
    driver = get_driver("gfx1100", seed=None)
    function = driver.get_function(driver.load_module(0, image("gfx1100"), text("gfx1100", body)), "k")
    p, o = upload(driver, np.arange(7, 39, dtype=np.int32)), upload(driver, np.zeros(32, np.int32))
    driver.launch(function, (1, 1, 1), (32, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    np.testing.assert_array_equal(download(driver, o, np.empty(32, np.int32)), np.arange(7, 39))


def test_encoded_instructions() -> None:
    """The assembler made these bytes of this text, and of no other that the decoder may print; its instruction is what the parser makes of the text."""
    parser = Parser("k")
    wrong = []
    for chip, code, line in ENCODED:
        program = decoder(chip, bytes.fromhex(code))
        program.local = ".L_m"  # in front of labels of either sign
        inst = program.next()
        assert program.at == len(program.data), line
        text = inst.text.replace(".L_m-", ".L_m")
        if parts(parser.instruction(text, 0)) != parts(inst):
            wrong.append(f"{chip}: {line}: read as {parser.instruction(text, 0)}, decoded as {inst}")
        if line.startswith(("s_branch", "s_cbranch", "s_call")):
            text = re.sub(r"\.L_m(-?\w+)", lambda m: str((int(m[1], 16) - 4) // 4 & 0xFFFF), inst.text)
        if text != line:
            wrong.append(f"{chip}: {line} | {text}")
    assert not wrong, "\n".join(wrong[:20])


def parts(inst: Inst) -> tuple[object, ...]:
    """What an instruction says, its line aside."""
    operands = [replace(o, text=o.text.replace(".L_m-", ".L_m")) for o in inst.operands]
    return inst.op, inst.encoding, operands, inst.mods, parts(inst.dual) if inst.dual else None


def test_a_sign_before_a_constant_is_the_operands() -> None:
    """neg(1) of a float opcode turns the sign of the bits 0x00000001 around, which -1 does not; LLVM prints `neg(1)`."""
    inst = decoder("gfx942", bytes.fromhex("000001d181020220")).next()
    assert inst.text == "v_add_f32_e64 v0, neg(1), v1"
    assert (inst.operands[1].kind, inst.operands[1].value, inst.operands[1].neg) == ("int", 1, True)
    assert parts(Parser("k").instruction(inst.text, 0)) == parts(inst)


def test_the_index_mode_has_a_mask_for_an_operand() -> None:
    """LLVM does not print it in a form that the table of encodings has; these bytes are its assembler's."""
    for code, said in (
        ("410111bf", "s65, gpr_idx(SRC0)"),
        ("280911bf", "s40, gpr_idx(SRC0,DST)"),
        ("7c0c11bf", "m0, gpr_idx(SRC2,DST)"),
    ):
        assert decoder("gfx942", bytes.fromhex(code)).next().text == f"s_set_gpr_idx_on {said}"


@thinned(1, ("chip", CHIPS), ("name", KERNELS))
def test_whole_kernels(name: str, chip: str) -> None:
    """Instruction by instruction, and the places of branches, what LLVM printed."""
    target = tec.Target(f"rocm -mcpu={chip}")
    with target:
        program = CASES[name].make()
        sch = tec.create_schedule([t.op for t in program.outputs])
        assert program.gpu is not None
        program.gpu(sch, target)
    module = tec.build(sch, program.args, target, name="f").imported_modules[0]
    mine = disassemble(read_code_object(module.image))
    for kernel in read_code_object(module.image).kernels:
        want, got = parse_kernel(module.get_source("asm"), kernel), parse_kernel(mine, kernel)
        theirs = [i for i in want.insts if i.op != "s_nop"]
        ours = [i for i in got.insts if i.op != "s_nop"]
        assert [plain(i.op) for i in ours] == [plain(i.op) for i in theirs]
        for a, b in zip(theirs, ours):
            if (
                a.op not in ("s_waitcnt", "s_delay_alu", "s_wait_alu", "s_waitcnt_depctr")
                and "branch" not in a.op
                and not any(o.kind == "symbol" for o in a.operands)
            ):
                assert meaning(a) == meaning(b), (a.text, b.text)
        assert _goals(want) == _goals(got)


def _goals(kernel: KernelText) -> list[str]:
    """Of each branch, the instruction that it leads to (s_nop apart)."""
    goals = []
    for inst in kernel.insts:
        if "branch" in inst.op:
            rest = [i.op for i in kernel.insts[kernel.labels[inst.operands[0].text] :] if i.op != "s_nop"]
            goals.append(f"{inst.op} {len(rest)}")
    return goals


@pytest.mark.parametrize("chip", CHIPS)
def test_runs_from_machine_code_alone(chip: str) -> None:
    """A table that the code finds relative to the program counter, and no assembly."""
    ir = """@table = internal unnamed_addr addrspace(4) constant [8 x i32] [i32 3, i32 1, i32 4, i32 1, i32 5, i32 9, i32 2, i32 6]
define amdgpu_kernel void @k(ptr addrspace(1) %o, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %m = and i32 %t, 7
  %p = getelementptr i32, ptr addrspace(4) @table, i32 %m
  %x = load i32, ptr addrspace(4) %p
  %c = icmp ult i32 %t, %n
  br i1 %c, label %go, label %end
go:
  %q = getelementptr i32, ptr addrspace(1) %o, i32 %t
  store i32 %x, ptr addrspace(1) %q
  br label %end
end:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }"""
    _, image = compile_ir(ir, chip)
    out = np.zeros(64, np.int32)
    tec.rocm_emu(chip).load(image)["k"][1, 64](out, 50)
    want = np.resize([3, 1, 4, 1, 5, 9, 2, 6], 64)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 50, want, 0))


def test_what_is_not_known_is_told() -> None:
    for code, match in (
        (b"\x00\x00\x00\xf8" * 2, "an encoding that is not known"),
        (b"\x00\x00\xff\xbf", "SOPP opcode 0x7f"),
        (b"\xff\x02\x02\x02", "ends within an instruction"),
    ):
        with pytest.raises(UnsupportedInstruction, match=match):
            decoder("gfx942", code, "k").next()
    for chip, code, match in (
        ("gfx1100", b"\x00\x00\x00\xf8" * 2, "an encoding that is not known"),
        ("gfx1030", b"\x00\x00\xff\xbf", "SOPP opcode 0x7f"),
        ("gfx1200", b"\x00\x00\x00\xee", "ends within an instruction"),
        ("gfx1100", b"\x00\x00\xcf\xcb\x00\x00\x00\x00", "VOPD opcode 0xf"),
    ):
        with pytest.raises(UnsupportedInstruction, match=match):
            decoder(chip, code, "k").next()


@pytest.mark.parametrize("chip", ["gfx1151", "gfx1201", "gfx1250"])
def test_scalar_multiply_adds_of_a_literal(chip: str) -> None:
    """LLVM's compiler writes them, and its assembler takes no list of operands that the tables' tool tries."""
    for data, line in (
        ("010305a341312111", "s_fmamk_f32 s5, s1, 0x11213141, s3"),
        ("010385a241312111", "s_fmaak_f32 s5, s1, s3, 0x11213141"),
    ):
        program = decoder(chip, bytes.fromhex(data))
        assert program.next().text == line and program.at == 8
