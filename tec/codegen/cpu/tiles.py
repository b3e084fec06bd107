"""Tile registers of x86 CPUs (AMX): which shapes a function's tiles have, and the operations on them.

A thread configures its tiles before it uses them and gives them up at its end: code that uses tiles does so where it begins, the function itself and each
body of a parallel loop. The system grants tiles to a process that asks (`tec_tiles_on`, in the thread pool's object, asks once).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.dtype import dtype_info
from ...ir.visit import map_stmts

if TYPE_CHECKING:
    from .emitter import CpuEmitter

OPS = ("tile_zero", "tile_load", "tile_dot", "tile_store")
NO_TILES = -2  # the status of a function whose process may not use tiles
_ON = ("tec_tiles_on", "declare i32 @tec_tiles_on() nounwind")
_DOT = {"bfloat16": "llvm.x86.tdpbf16ps", "uint8": "llvm.x86.tdpbusd", "int8": "llvm.x86.tdpbssd"}


def tile_calls(s: S.Stmt, into_parallel: bool) -> Iterator[E.Call]:
    """The operations on tiles of a statement, those of parallel loops in it where asked for."""
    found: list[E.Call] = []

    def fs(x: S.Stmt) -> S.Stmt:
        if isinstance(x, S.Evaluate) and isinstance(x.value, E.Call) and x.value.op in OPS:
            found.append(x.value)
        one = isinstance(x, S.For) and isinstance(x.extent, E.IntImm) and x.extent.value <= 1
        if isinstance(x, S.For) and x.kind == S.ForKind.PARALLEL and not into_parallel and not one:
            return x
        return map_stmts(x, fs)

    fs(s)
    yield from found


class Tiles:
    """The tiles that the code which is being written has configured (`uses_tiles`)."""

    def __init__(self, em: CpuEmitter):
        self.em = em
        self.uses_tiles = False

    def begin_tiles(self, body: S.Stmt, into_parallel: bool) -> None:
        """Ask for tiles and configure those that `body` uses, at the place where it begins."""
        rows: dict[int, int] = {}
        for call in tile_calls(body, into_parallel):
            attrs = call.attrs or {}
            for key in ("tile", "c"):
                if key in attrs and rows.setdefault(int(attrs[key]), int(attrs["rows"])) != int(attrs["rows"]):
                    raise self.em.error(f"tile {attrs[key]} has {rows[int(attrs[key])]} rows and {attrs['rows']}")
        self.uses_tiles = bool(rows)
        if not rows:
            return
        self.em.declarations.setdefault(*_ON)
        failed, ok = self.em.label("notiles"), self.em.label("tiles")
        self.em.branch_if(
            self.em.op(f"icmp ne i32 {self.em.op('call i32 @tec_tiles_on()')}, 0"), failed, ok, self.em.expected(False)
        )
        self.em.place(failed)
        self.em.line(f"ret i32 {NO_TILES}")
        self.em.place(ok)
        data = [1, *[0] * 15, *(b for k in range(16) for b in ((64, 0) if k in rows else (0, 0)))]
        data += [rows.get(k, 0) for k in range(16)]
        name = f"@tiles.{len(self.em.globals)}"
        text = "".join(f"\\{b:02X}" for b in data)
        self.em.globals.append(f'{name} = private constant [{len(data)} x i8] c"{text}", align 64')
        self.em.intrinsic("llvm.x86.ldtilecfg", "void", [("ptr", name)])

    def end_tiles(self) -> None:
        """Before a return: give the tiles up."""
        if self.uses_tiles:
            self.em.intrinsic("llvm.x86.tilerelease", "void", [])

    def operate(self, name: str, numbers: list[int], args: list[tuple[str, str]]) -> str:
        """An operation whose tiles are given as immediate numbers."""
        kinds = ", ".join([*["i8 immarg"] * len(numbers), *(t for t, _ in args)])
        self.em.declarations.setdefault(name, f"declare void @{name}({kinds})")
        values = ", ".join([*(f"i8 {n}" for n in numbers), *(f"{t} {v}" for t, v in args)])
        self.em.line(f"call void @{name}({values})")
        return "0"


def tile(em: CpuEmitter, e: E.Call) -> str:
    """tile_zero, tile_load, tile_dot, tile_store."""
    attrs = e.attrs or {}
    if not em.tiles.uses_tiles:
        raise em.error(f"{e.op} outside of a function for a CPU with tile registers")
    if e.op == "tile_dot":
        return em.tiles.operate(_DOT[attrs["dtype"]], [int(attrs[k]) for k in "cab"], [])
    if e.op == "tile_zero":
        return em.tiles.operate("llvm.x86.tilezero", [int(attrs["tile"])], [])
    load = em.memory.load_of(e.args[0], e.op)
    pointer, type_ = em.memory.element_pointer(load)
    stride = em.arithmetic.convert(em.index(e.args[1]), e.args[1].dtype, "int64")
    size = dtype_info(load.buffer.dtype).bytes
    nbytes = em.op(f"mul nsw i64 {stride}, {size}")
    name = "llvm.x86.tileloadd64" if e.op == "tile_load" else "llvm.x86.tilestored64"
    return em.tiles.operate(name, [int(attrs["tile"])], [(type_, pointer), ("i64", nbytes)])
