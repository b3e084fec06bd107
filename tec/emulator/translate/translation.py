"""What a translation gives, and the end of one: the function's text put together, with the registers that each barrier saves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..context import CTX, STATE_SCC
from .strips import entry_lines

if TYPE_CHECKING:
    from .kernel import Translator


@dataclass(slots=True)
class Translation:
    """What `translate` makes: the IR, and what is needed to run it and to tell of its faults."""

    ir: str
    symbol: str
    sites: list[tuple[int, str]]  # (assembly line, instruction) of each place that may fault
    symbols: list[str]  # the data symbols whose addresses it reads, in order
    vgprs: int  # vector registers in the state: VGPRs, then AGPRs
    agpr_base: int
    barriers: int
    barrier_sites: list[int]  # of each barrier by its number, from 1
    registers: list[tuple[str, int]]  # that it names
    synchronizes: bool  # whether it has atomics that order work-groups
    polls: bool  # whether an atomic or coherent load stands in a loop
    classes: dict[str, int]  # static count of instructions by class
    fills_lds: bool = False  # whether it checks what loads bring straight into LDS
    rows: list[Row] = field(default_factory=list)  # what each row of counters means (profile only)


@dataclass(slots=True)
class Row:
    """One row of four counters. A block: executions, active lanes. Global or LDS: see `support.track`. In a trace, what an event is of."""

    kind: str  # block, global_load, global_store, lds_load, ...
    classes: dict[str, int]  # of a block: its instructions by class
    line: int
    text: str
    matrix: dict[str, int] = field(default_factory=dict)  # of a block: its matrix instructions by mnemonic
    start: int = 0  # the instruction's place in the text; of a block, its first one's
    nbytes: int = 0  # of an access, for each lane


def _live(t: Translator) -> tuple[list[set[tuple[str, int]]], list[set[tuple[str, int]]]]:
    """For each segment, the registers whose memory it or a later one loads before a store (what a barrier must save),
    and those that a later one does (what it must leave stored)."""
    live = [set(s.loads) for s in t.segments]
    after = [[t.segment_of.get(n, -1) if isinstance(n, str) else n for n in s.next] for s in t.segments]
    changed = True
    while changed:
        changed = False
        for i in range(len(t.segments) - 1, -1, -1):
            needed = set().union(*(live[n] for n in after[i] if n >= 0)) - t.segments[i].stores
            if not needed <= live[i]:
                live[i] |= needed
                changed = True
    none: set[tuple[str, int]] = set()
    return live, [none.union(*(live[n] for n in goals if n >= 0)) for goals in after]


def finish(t: Translator, symbol: str) -> Translation:
    """The kernel's function: what was translated between loads of the registers that live where it begins and stores where it stops."""
    vgprs = t.agpr_base + max((i + 1 for k, i in t.regs if k == "a"), default=0)
    regs = sorted(t.regs)
    for segment in t.stops:
        t.segments[segment].loads |= t.regs
    live, live_after = _live(t)
    lines = _head(t, symbol, regs)
    lines += _moves(regs, True, "r0_", live[0])
    for line in t.out.lines:
        if line[0] != "\0":
            lines.append(line)
            continue
        verb, *words = line[1:].split(" ", 4)
        if verb == "put":
            if (words[0], int(words[1])) in live_after[int(words[2])]:
                lines.append("  " + words[3])
        elif verb == "give":
            lines += _moves(regs, False, f"give{len(lines)}_", t.regs)
        else:
            lines += _moves(regs, verb == "load", f"{verb}{words[0]}_", live[int(words[1])])
    lines += ["fault:", "  ret i32 -1", "}"]
    declares = set(t.out.declares)
    for text in (*t.functions.values(), *t.out.helpers.values()):
        for line in text.split("\n"):
            (declares.add if line.startswith("declare") else lines.append)(line)
    lines += sorted(declares)
    lines.append('!0 = !{!"branch_weights", i32 1, i32 1000}')
    lines.append('!1 = !{!"branch_weights", i32 1000, i32 1}')
    return Translation(
        "\n".join(lines),
        symbol,
        t.sites,
        t.symbols,
        vgprs,
        t.agpr_base,
        t.barrier_count,
        t.barrier_sites,
        regs,
        t.order is not None,
        bool(t.polling),
        t.classes,
        bool(t.fill_counter),
        t.rows,
    )


def _head(t: Translator, symbol: str, regs: Sequence[tuple[str, int]]) -> list[str]:
    """The function up to where its first instruction begins: its registers and buffers, and where it goes on after a stop."""
    vector = t.v.type("i32")
    lines = [
        f"define i32 @{symbol}(ptr noalias %st, ptr noalias %ctx, i32 %resume) {{",
        "entry:",
        *(
            f"  %s{i} = alloca i32" if k == "s" else f"  %{k}{i} = getelementptr i8, ptr %st, i64 {t.reg_offset(k, i)}"
            for k, i in regs
        ),
        "  %scc = alloca i1",
        f"  %mbuf = alloca [16 x {vector}], align 64",
    ]
    if t.functions:
        lines += [
            f"  %xacc = alloca [32 x {vector}], align 64",
            f"  %xa = alloca [18 x {vector}], align 64",  # gfx1250: 16 registers of elements, 2 of scales
            f"  %xb = alloca [18 x {vector}], align 64",
        ]
    if t.places:
        lines.append(f"  %places = alloca {t.v.type('i64')}, align 64")
    lines += [f"  %stage{n} = alloca [{size} x i8], align 64" for n, size in enumerate(t.staged.sizes)]
    lines += [f"  %stop_p = getelementptr i8, ptr %ctx, i64 {CTX['stop']}", "  %stop = load ptr, ptr %stop_p"]
    lines += entry_lines(t)
    cases = " ".join(f"i32 {n}, label %resume{n}" for n in range(1, t.barrier_count + 1))
    return [*lines, f"  switch i32 %resume, label %start [ {cases} ]", "start:"]


def _moves(regs: Sequence[tuple[str, int]], load: bool, tag: str, needed: Collection[tuple[str, int]]) -> list[str]:
    """SGPRs that are needed, and SCC, from the state or to it."""
    lines = []
    for i, (kind, index) in enumerate(regs):
        if kind != "s" or (kind, index) not in needed:
            continue
        name = f"%{tag}{i}"
        lines.append(f"  {name}p = getelementptr i8, ptr %st, i64 {4 * index}")
        source, goal = (f"{name}p", f"%s{index}") if load else (f"%s{index}", f"{name}p")
        lines.append(f"  {name} = load i32, ptr {source}")
        lines.append(f"  store i32 {name}, ptr {goal}")
    lines.append(f"  %{tag}sp = getelementptr i8, ptr %st, i64 {STATE_SCC}")
    if load:
        return [*lines, f"  %{tag}s = load i1, ptr %{tag}sp", f"  store i1 %{tag}s, ptr %scc"]
    return [*lines, f"  %{tag}s = load i1, ptr %scc", f"  store i1 %{tag}s, ptr %{tag}sp"]
