"""Every matrix instruction of a chip, by LLVM's intrinsics, so that kernels of them run on the chip and on the software GPU alike.

An instruction's registers are the opcode table's (`tec.emulator.decode.words`), which says them for LLVM's own assembler; a kernel takes A, B and C as registers of lanes and writes
the result's. Source of the intrinsics: LLVM's IntrinsicsAMDGPU.td.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from ..emulator.decode.words import encodings
from ..emulator.isa import opcodes
from ..emulator.isa.table import ROWS
from .gpu import kernels

_FORMATS = {"fp8": (0, 8), "bf8": (1, 8), "fp6": (2, 6), "bf6": (3, 6), "fp4": (4, 4)}  # code, registers of 32 elements
_MFMA = re.compile(r"v_mfma_(f32|i32|f64)_\d+x\d+x(\d+)_?(f32|f16|bf16|i8|f64|xf32|[fb]\w\d_[fb]\w\d)(_1k)?$")
_SMFMAC = re.compile(r"v_smfmac_(f32|i32)_\d+x\d+x\d+_(f16|bf16|i8|[fb]f?p?8_\w+)$")
_WMMA = re.compile(r"v_(wmma|swmmac)_(f32|f16|bf16|i32)_\d+x\d+x\d+_(f16|bf16|iu8|iu4|[fb]p?f?8_\w+)$")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction in one form: `name` (of its kernel too), the 32-bit registers of A, B, C and, of a sparse one, one of indices; the elements' types ("f16"; "" of bits alone)."""

    name: str
    call: str  # the intrinsic's name and its arguments: {a}, {b}, {c}, {i}
    types: tuple[str, str, str]  # LLVM's, of A, B and C
    regs: tuple[int, int, int]
    elements: tuple[str, str, str]
    sparse: bool = False

    @property
    def kernel(self) -> str:
        return re.sub(r"\W", "_", self.name)

    @property
    def declaration(self) -> str:
        """The intrinsic's, in LLVM IR."""
        name, _, words = self.call.partition("(")
        types = re.findall(r"(<\d+ x \w+>|\w+) (?:\{|\d)", words)
        return f"declare {self.types[2]} @{name}({', '.join(types)})"


def matrix_names(chip: str) -> list[str]:
    """The matrix instructions of a chip that the software GPU executes, in the opcode table's spelling."""
    opcodes.load()
    names = {e.name for e in encodings(chip).values()}
    generation = int(chip[3:-2])
    return sorted(
        n
        for n in names
        if n in ROWS and ROWS[n].kind == "matrix" and (not ROWS[n].generations or generation in ROWS[n].generations)
    )


def _registers(chip: str, name: str) -> tuple[int, ...]:
    """Of D, A, B, C (or indices); in wave32 where there are two forms."""
    found = [tuple(int(n) for _, n in e.operands) for e in encodings(chip).values() if e.name == name]
    return max(found)


def _vector(count: int, element: str) -> str:
    return f"<{count} x {element}>" if count > 1 else element


def _type(element: str, regs: int) -> str:
    """LLVM's type of so many registers of elements."""
    if element in ("f16", "bf16"):
        return _vector(2 * regs, {"f16": "half", "bf16": "bfloat"}[element])
    if element == "f64":
        return _vector(regs // 2, "double")
    return _vector(regs, "float" if element in ("f32", "xf32") else "i32")


@cache
def instructions(chip: str) -> tuple[list[Instruction], list[str]]:
    """(all instructions in their forms, names of those that are not tried). gfx1250's are not."""
    found, left = [], []
    for name in matrix_names(chip):
        made = [] if chip == "gfx1250" else _forms(chip, name)
        found += made
        if not made:
            left.append(name)
    return found, left


def _forms(chip: str, name: str) -> list[Instruction]:
    regs = _registers(chip, name)
    if m := _MFMA.match(name):
        return [_mfma(name, m, regs)]
    if name.endswith("f8f6f4"):
        return [_mixed(name, regs[0], a, b, scaled) for a in _FORMATS for b in _FORMATS for scaled in (False, True)]
    if m := _SMFMAC.match(name):
        return [_smfmac(name, m, regs)]
    if m := _WMMA.match(name):
        return _wmma(name, m, regs)
    return []


def _mfma(name: str, m: re.Match[str], regs: tuple[int, ...]) -> Instruction:
    out, source = m[1], m[3]
    a = _type(source, regs[1])
    if source == "bf16" and regs[1] < 4:
        a = f"<{2 * regs[1]} x i16>"
    elif source == "i8" or "_" in source:
        a = {1: "i32", 2: "i64", 4: "<4 x i32>"}[regs[1]]
    c = _type(out, regs[0])
    kinds = (*source.split("_"), *([source] if "_" not in source else []))
    call = f"llvm.amdgcn.{name[2:].replace('_', '.')}({a} {{a}}, {a} {{b}}, {c} {{c}}, i32 0, i32 0, i32 0)"
    return Instruction(name, call, (a, a, c), (regs[1], regs[2], regs[0]), (kinds[0], kinds[1], out))


def _mixed(name: str, result: int, a: str, b: str, scaled: bool) -> Instruction:
    (code_a, n), (code_b, k) = _FORMATS[a], _FORMATS[b]
    types = (f"<{n} x i32>", f"<{k} x i32>", _type("f32", result))
    scales = "i32 0, i32 {i}, i32 1, i32 {i}" if scaled else "i32 0, i32 0, i32 0, i32 0"
    shape = name[2:].replace("_", ".").replace("mfma.", "mfma.scale.").removesuffix(".f8f6f4")
    call = f"llvm.amdgcn.{shape}.f8f6f4.v{n}i32.v{k}i32({types[0]} {{a}}, {types[1]} {{b}}, {types[2]} {{c}}, i32 {code_a}, i32 {code_b}, {scales})"
    return Instruction(f"{name} {a} {b}{' scaled' * scaled}", call, types, (n, k, result), (a, b, "f32"), scaled)


def _smfmac(name: str, m: re.Match[str], regs: tuple[int, ...]) -> Instruction:
    source = m[2]
    kinds = (*source.split("_"), *([source] if "_" not in source else []))
    a, b, c = _type(source, regs[1]), _type(source, regs[2]), _type(m[1], regs[0])
    if source == "bf16" and regs[1] == 2:
        a, b = "<4 x i16>", "<8 x i16>"
    call = f"llvm.amdgcn.{name[2:].replace('_', '.')}({a} {{a}}, {b} {{b}}, {c} {{c}}, i32 {{i}}, i32 0, i32 0)"
    return Instruction(name, call, (a, b, c), (regs[1], regs[2], regs[0]), (kinds[0], kinds[1], m[1]), True)


def _wmma(name: str, m: re.Match[str], regs: tuple[int, ...]) -> list[Instruction]:
    """The calls of a WMMA or SWMMAC instruction, one for each pair of signs that it can be told."""
    sparse, out, source = m[1] == "swmmac", m[2], m[3]
    kinds = (*source.split("_"), *([source] if "_" not in source else []))

    def typed(element: str, count: int) -> tuple[str, str]:
        """LLVM's type, and how names of intrinsics spell it. bf16 is i16 in those of gfx11 and gfx12."""
        t = _type(element, count).replace("bfloat", "i16")
        n = re.match(r"<(\d+) x (\w+)>", t)
        element, short = n[2] if n else t, {"half": "f16", "float": "f32", "i16": "i16", "i32": "i32"}
        return t, f"v{n[1]}{short[element]}" if n else short[element]

    (c, c_), (a, a_), (b, b_) = typed(out, regs[0]), typed(source, regs[1]), typed(source, regs[2])
    base = f"llvm.amdgcn.{name[2:].replace('_', '.')}.{c_}.{a_}"
    made = []
    for signs in [(0, 0), (0, 1), (1, 0), (1, 1)] if source in ("iu8", "iu4") else [None]:
        first, second = (f"i1 {s}, " for s in signs) if signs else ("", "")
        words = f"{first}{a} {{a}}, {second}{b} {{b}}, {c} {{c}}"
        if sparse:
            index = "i32" if source == "iu8" or (source == "iu4" and "x64_" in name) else "i16"
            words += f", {index} {{i{index[1:]}}}" + (", i1 0" if signs else "")
            call = f"{base}.{b_}.{index}({words})"
        else:
            words += ", i1 0" if signs or out in ("f16", "bf16") else ""
            call = f"{base}({words})"
        label = f"{name} {'us'[signs[0]]}{'us'[signs[1]]}" if signs else name
        made.append(Instruction(label, call, (a, b, c), (regs[1], regs[2], regs[0]), (kinds[0], kinds[1], out), sparse))
    return made


def module(chip: str, found: list[Instruction]) -> str:
    """LLVM IR of a kernel for each instruction, `kernel(A, B, C, indices, D)`: each lane's registers in a row, a word of indices."""
    wave = 64 if chip.startswith("gfx9") else 32
    bodies, declarations = ["declare i32 @llvm.amdgcn.workitem.id.x()", "declare i32 @llvm.amdgcn.workgroup.id.x()"], []
    for x in found:
        lines = [
            f"define amdgpu_kernel void @{x.kernel}(ptr addrspace(1) %pa, ptr addrspace(1) %pb, ptr addrspace(1) %pc, ptr addrspace(1) %pi, ptr addrspace(1) %pd) #0 {{"
        ]
        lines += [
            f"  %t = call i32 @llvm.amdgcn.workitem.id.x()\n  %g = call i32 @llvm.amdgcn.workgroup.id.x()\n  %base = mul i32 %g, {wave}\n  %l = add i32 %base, %t"
        ]
        for name, t, regs in zip("abc", x.types, x.regs):
            words = _vector(regs, "i32")
            lines += [
                f"  %q{name} = getelementptr [{regs} x i32], ptr addrspace(1) %p{name}, i32 %l",
                f"  %w{name} = load {words}, ptr addrspace(1) %q{name}, align 4",
                f"  %{name} = bitcast {words} %w{name} to {t}" if t != words else f"  %{name} = or {words} %w{name}, {'0' if regs == 1 else 'zeroinitializer'}",
            ]  # fmt: skip
        lines += [
            "  %qi = getelementptr i32, ptr addrspace(1) %pi, i32 %l",
            "  %i = load i32, ptr addrspace(1) %qi, align 4",
            "  %i16 = trunc i32 %i to i16",
        ]
        call = x.call.format(a="%a", b="%b", c="%c", i="%i", i16="%i16", i32="%i")
        words = _vector(x.regs[2], "i32")
        lines += [f"  %r = call {x.types[2]} @{call}"]
        lines += [
            f"  %d = bitcast {x.types[2]} %r to {words}"
            if x.types[2] != words
            else f"  %d = or {words} %r, {'0' if x.regs[2] == 1 else 'zeroinitializer'}"
        ]
        lines += [
            f"  %qd = getelementptr [{x.regs[2]} x i32], ptr addrspace(1) %pd, i32 %l",
            f"  store {words} %d, ptr addrspace(1) %qd, align 4",
            "  ret void",
            "}",
        ]
        bodies.append("\n".join(lines))
        declarations.append(x.declaration)
    return kernels(bodies, declarations, wave, '"amdgpu-no-implicitarg-ptr"')
