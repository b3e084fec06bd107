"""Which lines of a kernel's loop IR, LLVM IR and assembly belong together.

In: the texts that a module keeps of a kernel or function. Out: the LLVM IR and the assembly as they are to be shown (no directives
of debug locations) and two lists of line numbers. Nothing of this is kept when a network is compiled:

- loop IR to LLVM IR: the emitter ends every instruction with a comment that has the line of the statement that it is of.
- LLVM IR to assembly: every instruction of the text gets its own line as its debug location, and LLVM's `.loc` directives say where
  it went. An instruction that LLVM made of several has the line of one of them, or none. Directives change no instruction; where
  they should, the assembly stays without links.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import TecError
from ..llvmworker.jobs import without_lines
from ..target import Target
from . import llvm_util
from .emit.line_info import FLAG, LINE_MARK

_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)")
_NOISE = re.compile(
    r"^\s*(?:\.loc|\.cfi_|\.file\b|\.addrsig|\.ident)|^\.L(?:tmp|func_begin|func_end|debug_|section|line_table)\w*:|^\$?L__(?:tmp|func_)\w*:"
)
_DEBUG_SECTION = re.compile(r"^\s*\.section\s+\"?\.debug_")
_COMMENT = re.compile(r"\s*(?:;|//|#).*$")


@dataclass(frozen=True, slots=True)
class Linked:
    """`of_llvm[k]`: the line of loop IR that line k + 1 of `llvm` is of; `of_asm[k]`: the line of `llvm` that line k + 1 of `asm` is of.
    0 where there is none; a list is empty where nothing is known."""

    llvm: str
    asm: str
    of_llvm: list[int] = field(default_factory=list)
    of_asm: list[int] = field(default_factory=list)


def begin_links(name: str, llvm: str, target: Target) -> Callable[[str], Linked]:
    """LLVM begins with the marked text now; a call of what is returned, with the kernel's assembly, waits for it."""
    bare, of_llvm = _unmarked(without_lines(llvm))
    compiling = None
    if llvm:
        home, want = _home(target)
        machine = home.machine_of(target)
        compiling = llvm_util.begin(_numbered(bare), machine, want, home.DEFAULT_SPEED, llvm_util.named([name]))

    def finish(asm: str) -> Linked:
        from .device import finished

        shown = clean(asm)
        found: list[int] = []
        if compiling is not None:
            try:
                marked = compiling.result()["asm"]
            except TecError:
                marked = ""
            found = _asm_lines(finished(marked, target), shown)
        return Linked(bare, shown, of_llvm, found)

    return finish


def _home(target: Target) -> tuple[Any, tuple[str, ...]]:
    """The module that makes code for a target, and what it asks LLVM for to have its assembly."""
    from . import cpu, device

    return (device, ("llvm", "asm")) if target.is_gpu else (cpu, ("asm",))


def clean(asm: str) -> str:
    """Assembly without the directives that are there for debuggers and unwinders."""
    lines = asm.rstrip("\0\n").splitlines()
    end = next((k for k, line in enumerate(lines) if _DEBUG_SECTION.match(line)), len(lines))
    rest = lines[end:]
    # What follows the debug sections (notes, the metadata of kernels) is kept.
    after = next(
        (k for k, line in enumerate(rest) if line.lstrip().startswith((".amdgpu_metadata", '.section\t".note'))),
        len(rest),
    )
    return "\n".join(line for line in [*lines[:end], *rest[after:]] if not _NOISE.match(line))


def _unmarked(llvm: str) -> tuple[str, list[int]]:
    """LLVM IR without the emitter's comments, and the line of loop IR for each of its lines; none where it has no comments."""
    texts, lines = [], []
    for line in llvm.splitlines():
        text, _, number = line.partition(LINE_MARK)
        texts.append(text)
        lines.append(int(number) if number.isdecimal() else 0)
    return "\n".join(texts), lines if any(lines) else []


# ---- assembly


def _numbered(llvm: str) -> str:
    """Each instruction with its line as its location."""
    lines = llvm.splitlines()
    numbers = [int(m) for m in re.findall(r"^!(\d+) = ", llvm, re.M)]
    base = max(numbers, default=-1) + 1
    nodes = [
        f"!{base} = {FLAG}",
        f'!{base + 1} = !DIFile(filename: "llvm", directory: "")',
        f"!{base + 2} = distinct !DICompileUnit(language: DW_LANG_C, file: !{base + 1}, isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly)",
        f"!{base + 3} = !DISubroutineType(types: !{base + 4})",
        f"!{base + 4} = !{{}}",
    ]
    at = base + 5
    scope = 0
    for k, line in enumerate(lines):
        if line.startswith("define "):
            scope = at
            nodes.append(
                f'!{at} = distinct !DISubprogram(name: "f{at}", scope: !{base + 1}, file: !{base + 1}, line: {k + 1}, type: !{base + 3}, '
                f"spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !{base + 2})"
            )
            # A function's attachments: `!dbg` goes before the brace.
            lines[k] = line.removesuffix("{") + f"!dbg !{at} {{"
            at += 1
        elif line == "}":
            scope = 0
        elif scope and _is_instruction(line):
            nodes.append(f"!{at} = !DILocation(line: {k + 1}, column: 0, scope: !{scope})")
            lines[k] = f"{line}, !dbg !{at}"
            at += 1
    text = "\n".join(lines)
    flags = f"!{base}"
    if "!llvm.module.flags = !{" in text:
        text = re.sub(r"(?m)^(!llvm\.module\.flags = !\{.+)\}$", rf"\1, {flags}}}", text)
    else:
        text += f"\n!llvm.module.flags = !{{{flags}}}"
    return text + f"\n!llvm.dbg.cu = !{{!{base + 2}}}\n" + "\n".join(nodes) + "\n"


def _is_instruction(line: str) -> bool:
    """Whether a line inside a function is a whole instruction: no label, none of a switch's cases."""
    if line[:2] != "  " or line[2:3] in (" ", "]", ""):
        return False
    return not line.endswith("[")


def _asm_lines(marked: str, shown: str) -> list[int]:
    """The line of LLVM IR for each line of `shown`, from the same assembly with `.loc` directives; empty where it is not the same."""
    found: list[tuple[str, int]] = []
    at = 0
    for line in marked.rstrip("\0\n").splitlines():
        loc = _LOC.match(line)
        if loc:
            at = int(loc[1])
        elif _instruction(line):
            found.append((_instruction(line), at))
    out: list[int] = []
    k = 0
    for line in shown.splitlines():
        text = _instruction(line)
        if not text:
            out.append(0)
            continue
        if k >= len(found) or found[k][0] != text:
            return []
        out.append(found[k][1])
        k += 1
    return out if k == len(found) else []


def _instruction(line: str) -> str:
    """An assembly line's instruction without comments; empty for labels, directives and what stands in metadata."""
    if line[:1] not in ("\t", " ") or (
        line.lstrip()[:1] in (".", "-", "/", ";", "", "@") and not line.lstrip().startswith("@%")
    ):
        return ""
    text = re.sub(r"\s+", " ", _COMMENT.sub("", line)).strip()
    return "" if re.match(r"[.\w]+:\s", text) else text
