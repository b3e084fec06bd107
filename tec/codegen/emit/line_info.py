"""The user's lines in a kernel: `.loc` directives in its assembly, nothing in its object.

Every instruction that a statement became is given the line of the te operation or statement that it stands for, as LLVM debug
locations of a unit that is emitted as directives only. The emulator's reports read them back from the assembly. Objects are
made of the module without them, so that neither their bytes nor the cache of objects depends on where a program's lines are.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ...errors import Loc
from ...ir import stmt as S

LINE_MARK = " ;@"  # ends an instruction, before the line of loop IR that it is of (`Statements.stmt`)
FLAG = '!{i32 2, !"Debug Info Version", i32 3}'


class LineInfo:
    """The debug nodes of one module. `meta` interns a node's text, `distinct` makes one of its own; both return `!k`."""

    def __init__(self, meta: Callable[[str], str], distinct: Callable[[str], str]):
        self.meta, self.distinct = meta, distinct
        self.unit = ""

    def file(self, name: str) -> str:
        folder, base = os.path.split(name)
        return self.meta(f"!DIFile(filename: {_quoted(base)}, directory: {_quoted(folder)})")

    def subprogram(self, name: str, loc: Loc) -> str:
        """The node that a kernel's `define` line carries."""
        file = self.file(loc.file)
        if not self.unit:
            self.unit = self.distinct(
                f"!DICompileUnit(language: DW_LANG_C, file: {file}, isOptimized: true, runtimeVersion: 0, "
                "emissionKind: DebugDirectivesOnly)"
            )
        types = self.meta(f"!DISubroutineType(types: {self.meta('!{}')})")
        return self.distinct(
            f"!DISubprogram(name: {_quoted(name)}, scope: {file}, file: {file}, line: {loc.line}, type: {types}, "
            f"spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self.unit})"
        )

    def place(self, lines: list[str], marks: list[tuple[int, Loc]], name: str) -> str | None:
        """Give the instructions of a function their locations, in place; returns its subprogram. `marks`: (first line, where)."""
        if not marks:
            return None
        first = marks[0][1]
        scope = self.subprogram(name, first)
        for k, (start, loc) in enumerate(marks):
            end = marks[k + 1][0] if k + 1 < len(marks) else len(lines)
            inner = scope
            if loc.file != first.file:
                inner = self.meta(f"!DILexicalBlockFile(scope: {scope}, file: {self.file(loc.file)}, discriminator: 0)")
            tail = f", !dbg {self.meta(f'!DILocation(line: {loc.line}, column: 0, scope: {inner})')}"
            # What stands before the first mark (indices, sizes) goes with it.
            for i in range(start if k else 0, end):
                if lines[i][:2] == "  " and "\n" not in lines[i]:
                    text, mark, number = lines[i].partition(LINE_MARK)
                    lines[i] = f"{text}{tail}{mark}{number}"
        return scope


def _quoted(text: str) -> str:
    return (
        '"'
        + "".join(
            c if 32 <= ord(c) < 127 and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in text
        )
        + '"'
    )


def first_loc(s: S.Stmt) -> Loc | None:
    """Where the first store below a statement comes from."""
    while True:
        match s:
            case S.BufferStore():
                return s.loc
            case S.Seq():
                s = s.stmts[0]
            case S.IfThenElse():
                s = s.then
            case S.LetStmt() | S.Alloc() | S.For() | S.Attr():
                s = s.body
            case _:
                return None
