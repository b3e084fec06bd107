"""The assembly that a module keeps (and that the emulator runs) assembles to the very bytes of its code object."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import tec
from tests.thinned import thinned

from ...conformance import elementwise, matmuls, memory, reductions  # noqa: F401  (they fill the table)
from ...conformance.harness import CASES

KERNELS = ["add_f32_symbolic", "mul_add_f16", "floordiv_mod_int32", "math_tanh", "gather_rows", "matmul_shared_16x16"]
CHIPS = ["gfx90a", "gfx942", "gfx1100"]


def assembler() -> str | None:
    """The newest llvm-mc on the PATH, LLVM 19 or later."""
    for version in range(30, 18, -1):
        found = shutil.which(f"llvm-mc-{version}")
        if found:
            return found
    plain = shutil.which("llvm-mc")
    if plain:
        told = re.search(r"version (\d+)", subprocess.run([plain, "--version"], capture_output=True, text=True).stdout)
        if told and int(told[1]) >= 19:
            return plain
    return None


def text_of(image: bytes) -> dict[str, bytes]:
    """The bytes of each kernel in a code object or an object file: function symbols with a size."""
    table, (width, count) = struct.unpack_from("<Q", image, 40)[0], struct.unpack_from("<HH", image, 58)
    # name, type, flags, address, offset, size, link, info, align, entry
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + k * width) for k in range(count)]
    found = {}
    for section in sections:
        if section[1] not in (2, 11):  # SHT_SYMTAB, SHT_DYNSYM
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, place, value, size = struct.unpack_from("<IBBHQQ", image, at)
            if info & 15 == 2 and size:  # STT_FUNC
                start = sections[place][4] + value - sections[place][3]
                text = image[names + name : image.index(0, names + name)].decode()
                found[text] = image[start : start + size]
    return found


@thinned(1, ("chip", CHIPS), ("name", KERNELS))
def test_assembly_gives_the_bytes_of_the_code_object(name: str, chip: str, tmp_path: Path) -> None:
    tool = assembler()
    if tool is None:
        pytest.skip("no llvm-mc of LLVM 19 or later on the PATH (Debian: llvm-19)")
    target = tec.Target(f"rocm -mcpu={chip}")
    with target:
        program = CASES[name].make()
        s = tec.create_schedule([t.op for t in program.outputs])
        assert program.gpu is not None
        program.gpu(s, target)
    device = tec.build(s, program.args, target, name="f").imported_modules[0]
    source, out = tmp_path / "f.s", tmp_path / "f.o"
    source.write_text(device.get_source("asm"))
    command = [tool, "-triple=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-filetype=obj", str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode and not tool.endswith("-22"):
        pytest.skip(f"{Path(tool).name} rejects the syntax of LLVM 22 for {name}: {done.stderr[:200]}")
    assert done.returncode == 0, done.stderr[:2000]
    want, got = text_of(device.get_binary()), text_of(out.read_bytes())
    assert want and got == want
