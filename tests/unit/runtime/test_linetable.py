"""Line tables of code objects: against the `.loc` of LLVM's assembly, in both versions of DWARF, and damaged."""

from __future__ import annotations

import random
import struct

import llvmlite.binding as llvm
import pytest

from tec.codegen.objects.linking import link
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.decode.disassemble import disassemble
from tec.runtime.objects.codeobject import read_code_object
from tec.runtime.objects.linetable import read_line_table
from tests import seeds
from tests.linkers import has_lld
from tests.unit.cli.test_kernel_report import IR


def row(*numbers: int) -> bytes:
    return bytes(numbers)


def table(version: int) -> bytes:
    """A program by hand: line 3 at 0x100, line 4 at 0x104 to 0x10c, line 2 of the second file at 0x110, its end at 0x118."""
    if version == 5:
        # Directories and files by strings in the table itself.
        names = row(1, 1, 8, 1) + b"/src\0" + row(2, 1, 8, 2, 0x0B, 2) + b"a.c\0\0" + b"b.c\0\0"
    else:
        names = b"/src\0\0" + b"a.c\0" + row(1, 0, 0) + b"b.c\0" + row(1, 0, 0) + b"\0"
    first = 0 if version == 5 else 1
    rest = row(4, 1, 1, 0xFB, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1) if version >= 4 else b""
    header = rest + names
    program = row(0, 9, 2) + struct.pack("<Q", 0x100) + row(4, first) + row(3, 2, 1)
    program += row(13 + 14 * 1 + 5 + 1)  # 4 bytes on, a line on
    program += row(2, 3, 3, 0x7E, 4, first + 1, 1)  # 12 bytes on, two lines back, the other file
    program += row(9) + struct.pack("<H", 8) + row(0, 1, 1)  # 8 bytes on, by the opcode of fixed advances: the end
    body = (
        struct.pack("<H", version)
        + (row(8, 0) if version == 5 else b"")
        + struct.pack("<I", len(header))
        + header
        + program
    )
    return struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("version", [4, 5])
def test_by_hand(version):
    got = read_line_table({".debug_line": table(version)})
    assert [got.where(a) for a in (0xFF, 0x100, 0x104, 0x10C, 0x110, 0x117, 0x118)] == [
        "", "/src/a.c:3", "/src/a.c:4", "/src/a.c:4", "/src/b.c:2", "/src/b.c:2", "",
    ]  # fmt: skip


def test_damaged_tables_give_no_lines():
    rng = random.Random(seeds.first())
    for _ in range(400):
        data = bytearray(table(rng.choice((4, 5))))
        for _ in range(rng.choice((1, 3))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        read_line_table({".debug_line": bytes(data[: rng.randrange(len(data) + 1)])})
    assert read_line_table({}).where(0) == ""


@pytest.mark.skipif(not has_lld(), reason="tec's own linker leaves debug information out")
@pytest.mark.parametrize("dwarf", [4, 5])
def test_against_the_assembly(dwarf, tmp_path):
    """Every instruction of the disassembled text has the line that `.loc` gives it in LLVM's."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx942", opt=2)
    text = IR.replace("FOLDER", str(tmp_path)).replace('"Dwarf Version", i32 5', f'"Dwarf Version", i32 {dwarf}')
    image = link(machine.emit_object(llvm.parse_assembly(text)), "lld")
    wanted = parse_kernel(machine.emit_assembly(llvm.parse_assembly(text)), "sums")
    got = parse_kernel(disassemble(read_code_object(image)), "sums")
    lines = [
        [t.statements.get(i.line, "").rpartition("/")[2] for i in t.insts if i.op != "s_nop"] for t in (wanted, got)
    ]
    assert [i.op for i in wanted.insts if i.op != "s_nop"] == [i.op for i in got.insts if i.op != "s_nop"]
    assert lines[0] == lines[1] and "sums.c:4" in lines[1]
