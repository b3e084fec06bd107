"""What kernels say to the host: `print` and `assert`, through a buffer of records that every kernel with one of them gets as its
last argument.

A record is 32-bit words: which place of the program, block and thread (linear), then the values' bits. The first word of the buffer
counts what was asked for, so that the host knows of records that did not fit. `Output` is the kernel's side; what stands in `Place`s
is all that `read` needs on the host, after the launch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import Loc
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info
from ..records import dataclass
from .values import Array, Weak, describe, is_number, is_scalar, settle

WORDS = 1 << 18  # of the buffer: 1 MiB, some tens of thousands of prints
HEADER = 4  # words before the records
_PREFIX = 3  # place, block, thread


@dataclass(frozen=True)
class Piece:
    """A part of a message: text, or a value of a dtype with how it is formatted."""

    text: str = ""
    dtype: str = ""
    spec: str = ""
    conversion: str = ""


@dataclass(frozen=True)
class Place:
    """A print or an assert: where it stands and what it says."""

    kind: str  # "print" or "assert"
    loc: Loc
    pieces: tuple[Piece, ...]
    end: str = "\n"


@dataclass(frozen=True)
class Message:
    """What one thread said: `text`; `block` and `thread` as (x, y, z)."""

    place: Place
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    text: str


class Output:
    """Records of a kernel under translation."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.buffer = Buffer("messages", "int32", (E.IntImm(WORDS),), align_bytes=4)

    def printed(self, t: Any, node: ast.Call) -> None:
        """`print(...)`."""
        sep, end = " ", "\n"
        for k in node.keywords:
            value = t.expr(k.value)
            if k.arg not in ("sep", "end") or not isinstance(value, str):
                raise t.error(
                    f"print takes sep and end, as constant text, not {k.arg}",
                    node=node,
                    hint='format the values in the text: print(f"{x}")',
                )
            sep, end = (value, end) if k.arg == "sep" else (sep, value)
        parts: list[tuple[Piece, Any]] = []
        for i, a in enumerate(node.args):
            if i and sep:
                parts.append((Piece(sep), None))
            parts += self._parts(t, a)
        self._record(t, "print", parts, end, node)

    def failed(self, t: Any, node: ast.Assert) -> None:
        """The record of an assertion that does not hold."""
        parts = (
            self._parts(t, node.msg) if node.msg is not None else [(Piece(f"assert {ast.unparse(node.test)}"), None)]
        )
        self._record(t, "assert", parts, "", node)

    def _parts(self, t: Any, node: ast.expr) -> list[tuple[Piece, Any]]:
        if isinstance(node, ast.JoinedStr):
            out: list[tuple[Piece, Any]] = []
            for x in node.values:
                if isinstance(x, ast.FormattedValue):
                    out += self._formatted(t, x)
                else:
                    assert isinstance(x, ast.Constant)
                    out.append((Piece(str(x.value)), None))
            return out
        return self._of_value(t, t.expr(node), "", "", node)

    def _formatted(self, t: Any, node: ast.FormattedValue) -> list[tuple[Piece, Any]]:
        spec = ""
        if node.format_spec is not None:
            parts = node.format_spec.values if isinstance(node.format_spec, ast.JoinedStr) else []
            for x in parts:
                value = x.value if isinstance(x, ast.Constant) else t.expr(x.value)  # type: ignore[attr-defined]
                if not isinstance(value, (str, int)):
                    raise t.error("a format that is known at run time alone", hint="write it out: {x:.3f}", node=node)
                spec += str(value)
        conversion = "" if node.conversion < 0 else chr(node.conversion)
        return self._of_value(t, t.expr(node.value), spec, conversion, node)

    def _of_value(self, t: Any, v: Any, spec: str, conversion: str, node: ast.AST) -> list[tuple[Piece, Any]]:
        if isinstance(v, tuple):
            parts: list[tuple[Piece, Any]] = [(Piece("("), None)]
            for k, x in enumerate(v):
                parts += [(Piece(", "), None)] * (k > 0) + self._of_value(t, x, spec, conversion, node)
            return [*parts, (Piece(",)" if len(v) == 1 else ")"), None)]
        if isinstance(v, (str, type(None))) or is_number(v):
            return [(Piece(_format(v, spec, conversion)), None)]
        if isinstance(v, Array) or not is_scalar(v):
            raise t.error(f"print of {describe(v)}", hint="print numbers and text", node=node)
        e = v.expr if isinstance(v, Weak) else settle(v)
        lanes = dtype_info(e.dtype).lanes
        if lanes == 1:
            return [(Piece("", e.dtype, spec, conversion), e)]
        e = t.let("vector", e)
        out: list[tuple[Piece, Any]] = [(Piece("("), None)]
        for k in range(lanes):
            out += [(Piece(", "), None)] * (k > 0)
            out.append((Piece("", dtype_info(e.dtype).element, spec, conversion), E.Shuffle((e,), (k,))))
        return [*out, (Piece(")"), None)]

    def _record(self, t: Any, kind: str, parts: list[tuple[Piece, Any]], end: str, node: ast.AST) -> None:
        loc = t.where(node)
        self.places.append(Place(kind, loc, tuple(p for p, _ in parts), end))
        words: list[E.Expr] = [E.IntImm(len(self.places) - 1), t.linear_block(), t.linear_thread()]
        for _, e in parts:
            if e is not None:
                words += words_of(t, e)
        at = t.effect(self.room_for(words), "at")
        t.perform(self.written(words, at, loc))

    def room_for(self, words: list[E.Expr]) -> E.Call:
        """Asks for as many words of the buffer; the place of the first."""
        return E.Call("atomic_add", (E.BufferLoad(self.buffer, (E.IntImm(0),)), E.IntImm(len(words))), "int32")

    def written(self, words: list[E.Expr], at: E.Expr, loc: Loc | None) -> S.Stmt:
        """A record from a place on, where there is room for it."""
        fits = B.all_of(B.compare("ge", at, 0), B.compare("le", at, WORDS - HEADER - len(words)))
        stores = [S.BufferStore(self.buffer, w, (B.add(at, HEADER + k),), None, loc) for k, w in enumerate(words)]
        return S.IfThenElse(fits, S.seq(*stores), None, loc)


def words_of(t: Any, e: E.Expr) -> list[E.Expr]:
    """A value's bits as words."""
    info = dtype_info(e.dtype)
    if info.bits == 64:
        bits = t.let("bits", B.reinterpret("int64", e) if e.dtype != "int64" else e)
        return [B.cast("int32", bits), B.cast("int32", B.right_shift(bits, 32))]
    if info.is_float:
        return [B.reinterpret("int32", B.cast("float32", e))]
    return [B.reinterpret("int32", e) if e.dtype == "uint32" else B.cast("int32", e)]


# ---- the host's side


def read(
    words: np.ndarray[Any, Any], places: tuple[Place, ...], block: tuple[int, int, int], grid: tuple[int, int, int]
) -> tuple[list[Message], bool]:
    """The messages of a launch, in the order of block and thread (each thread's own in its order); whether some did not fit."""
    asked = int(words[0])
    lost = not 0 <= asked <= len(words) - HEADER
    return sorted(_records(words, places, block, grid, lost), key=lambda m: (m.block[::-1], m.thread[::-1])), lost


def _records(
    words: np.ndarray[Any, Any], places: tuple[Place, ...], block: Any, grid: Any, lost: bool
) -> Iterator[Message]:
    at, end = HEADER, len(words) if lost else HEADER + int(words[0])
    while at + _PREFIX <= end:
        k, b, t = (int(x) for x in words[at : at + _PREFIX])
        if not 0 <= k < len(places):
            return
        place, at = places[k], at + _PREFIX
        size = sum(1 + (dtype_info(p.dtype).bits == 64) for p in place.pieces if p.dtype)
        if at + size > end or (lost and not _written(words, at, size)):
            return
        text = ""
        for p in place.pieces:
            if not p.dtype:
                text += p.text
                continue
            n = 1 + (dtype_info(p.dtype).bits == 64)
            text += _format(_value(words[at : at + n], p.dtype), p.spec, p.conversion)
            at += n
        yield Message(place, _place_of(b, grid), _place_of(t, block), text + place.end)


def _written(words: np.ndarray[Any, Any], at: int, size: int) -> bool:
    return at + size <= len(words)


def _place_of(k: int, extents: tuple[int, int, int]) -> tuple[int, int, int]:
    return k % extents[0], k // extents[0] % extents[1], k // (extents[0] * extents[1])


def _value(words: np.ndarray[Any, Any], dtype: str) -> Any:
    info = dtype_info(dtype)
    if info.bits == 64:
        return np.ascontiguousarray(words).view({"int": "int64", "uint": "uint64"}.get(info.kind, "float64"))[0].item()
    if info.is_float:
        value = np.ascontiguousarray(words).view("float32")[0]
        return np.float32(value) if info.bits == 32 else float(value)
    if info.kind == "bool":
        return bool(words[0])
    return int(np.ascontiguousarray(words).view("uint32" if info.kind == "uint" else "int32")[0])


def _format(v: Any, spec: str, conversion: str) -> str:
    if conversion:
        v = repr(v) if conversion == "r" else str(v) if conversion == "s" else ascii(v)
    if isinstance(v, np.float32) and not spec:
        return str(v)
    try:
        return format(float(v) if isinstance(v, np.float32) else v, spec)
    except ValueError as e:
        return f"{v} ({e})"
