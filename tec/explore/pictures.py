"""Pictures of loops: which thread writes which element of the first work-group's part, and a kernel's loops as the text of nested boxes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ..ir import Func
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.dtype import dtype_info
from ..ir.index_values import evaluated
from ..ir.printer import func_to_text
from ..notebook import escape

_MOST = 1 << 15  # elements that are worked out
_SIDE, _ORDERED = 48, 20  # rows and columns that are shown; of those that have a colour by their order
_LETTER = 7.8  # pixels of a bold one of 12 pixels, of the widest font that the pictures name
_ROWS = 60  # of a kernel's boxes
_LOOP = re.compile(r"for (\w+) in (\w+)\((.*)\):$")


# ---- who does what


def who_does_what(loops: Func) -> str:
    """The elements that the first work-group writes, coloured and numbered by the thread that writes them, as SVG; on a CPU by the order in which one core does. ""
    where indices are not worked out, or there is no output.
    """
    found = _last_store(loops)
    if found is None:
        return ""
    store, around = found
    loops_in, values = _ranges(around)
    if not loops_in:
        return ""
    counts = [n for _, n in loops_in]
    each = np.indices(counts).reshape(len(counts), -1)
    values |= {loop.var: each[k] for k, (loop, _) in enumerate(loops_in)}
    at = [evaluated(e, values) if dtype_info(e.dtype).lanes == 1 else None for e in store.indices]
    if any(x is None for x in at):
        return ""
    at = [np.broadcast_to(np.asarray(x), each.shape[1:]) for x in at]
    threads = [(k, loop) for k, (loop, _) in enumerate(loops_in) if loop.thread.startswith("threadIdx")]
    who = np.zeros(each.shape[1], np.int64)
    step = 1
    for k, _ in sorted(threads, key=lambda x: x[1].thread):  # x first
        who = who + each[k] * step
        step *= counts[k]
    if not threads:
        who = np.arange(each.shape[1])
    return _drawn(
        at, who, "thread" if threads else "order", store.buffer.name, tuple(str(n) for n in store.buffer.shape)
    )


def _last_store(loops: Func) -> tuple[S.BufferStore, list[S.For]] | None:
    """The last store to an output, and the loops around it from outside in."""
    written = set(loops.attrs.get("writes") or ())
    found: list[tuple[S.BufferStore, list[S.For]]] = []

    def walk(s: S.Stmt, around: list[S.For]) -> None:
        if isinstance(s, S.BufferStore) and s.buffer.name in written:
            found.append((s, around))
        inner = [*around, s] if isinstance(s, S.For) else around
        for child in _children(s):
            walk(child, inner)

    walk(loops.body, [])
    return found[-1] if found else None


def _children(s: S.Stmt) -> list[S.Stmt]:
    if isinstance(s, S.Seq):
        return list(s.stmts)
    if isinstance(s, S.IfThenElse):
        return [s.then, *([s.orelse] if s.orelse is not None else [])]
    body = getattr(s, "body", None)
    return [body] if isinstance(body, S.Stmt) else []


def _ranges(around: list[S.For]) -> tuple[list[tuple[S.For, int]], dict[E.Var, Any]]:
    """Loops with their counts, and the values of variables that stand still: work-groups' at the first, and outer loops' where all would be too many."""
    loops: list[tuple[S.For, int]] = []
    values: dict[E.Var, Any] = {}
    for loop in around:
        extent = evaluated(loop.extent, {})
        if loop.thread.startswith("blockIdx") or extent is None or evaluated(loop.min, {}) != 0:
            values[loop.var] = 0
        else:
            loops.append((loop, int(extent)))
    while loops and math.prod(n for _, n in loops) > _MOST:
        k = next((k for k, (loop, _) in enumerate(loops) if not loop.thread), 0)
        values[loops.pop(k)[0].var] = 0
    return loops, values


def _drawn(at: list[Any], who: Any, word: str, name: str, shape: tuple[str, ...]) -> str:
    """Cells of the last two dimensions where the others are at their first."""
    rows, columns = (at[-2], at[-1]) if len(at) > 1 else (np.zeros_like(at[-1]), at[-1])
    most_shown = _SIDE if word == "thread" else _ORDERED
    shown = (rows < rows.min() + most_shown) & (columns < columns.min() + most_shown)
    for x in at[:-2]:
        shown &= x == x.min()
    first: dict[tuple[int, int], int] = {}
    for r, c, w in zip(rows[shown].tolist(), columns[shown].tolist(), who[shown].tolist()):
        first.setdefault((r, c), w)
    if not first:
        return ""
    r0, c0 = min(r for r, _ in first), min(c for _, c in first)
    wide = max(c for _, c in first) - c0 + 1
    side = 30 if wide <= 20 else 14
    most = max(first.values()) + 1
    x0, y0 = 44, 44
    out = []
    for (r, c), w in sorted(first.items()):
        left, top = x0 + (c - c0) * side, y0 + (r - r0) * side
        hue = (w * 137.5) % 360 if word == "thread" else 215
        light = 82 if word == "thread" else 94 - 40 * w / most
        number = (
            f'<text x="{left + side / 2}" y="{top + side / 2 + 4}" text-anchor="middle">{w}</text>'
            if side == 30
            else ""
        )
        out.append(
            f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="hsl({hue:.0f} 65% {light:.0f}%)" stroke="#fff"/>{number}'
        )
    tall = max(r for r, _ in first) - r0 + 1
    title = f"{name}[{', '.join(shape)}]: " + (
        f"the first work-group's elements, by thread ({len(set(first.values()))} shown)"
        if word == "thread"
        else "elements in the order in which they are written"
    )
    width, height = max(x0 + wide * side + 10, 20 + round(_LETTER * len(title))), y0 + tall * side + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{escape(title)}" '
        f'font-family="system-ui, DejaVu Sans, sans-serif" font-size="12" fill="#1c1f24"><rect width="{width}" height="{height}" rx="8" fill="#fafaf8"/>'
        f'<text x="10" y="19" font-weight="600">{escape(title)}</text><text x="{x0}" y="38" fill="#5c636e">column {c0} →</text><text x="10" y="{y0 + 14}" fill="#5c636e">{r0} ↓</text>{"".join(out)}</svg>'
    )


# ---- boxes of a kernel


def nest_of(part: Func) -> str:
    """A flat function's loops, conditions and barriers as the text that `notebook.nest_svg` draws; stretches of other statements are one line."""
    rows: list[str] = [f"{part.name}: a thread's program"]
    waiting: list[str] = []

    def leave() -> None:
        if waiting:
            more = f"{len(waiting)} statements" if len(waiting) > 1 else "1 statement"
            pad = waiting[0][: len(waiting[0]) - len(waiting[0].lstrip())]
            first = waiting[0].strip()
            rows.append(f"{pad}{more}: {first[:60]}{'…' if len(first) > 60 else ''}")
            waiting.clear()

    for line in func_to_text(part).splitlines():
        body = line.strip()
        if not line.startswith("    ") or "launch_index(" in body:
            continue
        pad = line[: len(line) - len(body)]
        found = _LOOP.match(body)
        if waiting and len(waiting[0]) - len(waiting[0].lstrip()) != len(pad):
            leave()
        if found:
            leave()
            kind = {
                "range": "",
                "thread": "",
                "vectorized": "vectorized",
                "unrolled": "unrolled",
                "parallel": "parallel",
            }.get(found[2], found[2])
            rows.append(f"{pad}for {found[1]} in {found[3]}" + (f"  # {kind}" if kind else ""))
        elif body.startswith(("if ", "while ", "else:")):
            leave()
            rows.append(f"{pad}{body.split()[0].rstrip(':')}: {body.partition(' ')[2].rstrip(':')}")
        elif "barrier(" in body:
            leave()
            rows.append(f"{pad}barrier: threads of the work-group meet")
        else:
            waiting.append(line)
        if len(rows) >= _ROWS:
            waiting.clear()
            rows.append("    …: more")
            break
    leave()
    return "\n".join(rows)
