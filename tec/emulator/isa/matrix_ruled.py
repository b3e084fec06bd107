"""Matrix instructions whose chips' sums are known (`matrix_sums`): products of staged operands in place of `matrix_product.product_function`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..translate.ops import Ops, Out
from .matrix import Mfma
from .matrix_product import Stage, lane_order, product_name
from .matrix_sums import LEAST, Group, Rule, flush_positive, sums

_TYPES = {"v": "float", "e": "i32"}  # of the numbers of an operand, and of words of their exponents


def ruled_function(s: Mfma, rule: Rule, staged: list[Stage]) -> str:
    """`product_function` under a rule of `matrix_sums`: results 16 by 16. Where some factor is of an unsafe size, all go the careful way."""
    declares: set[str] = set()
    lines = [f"define internal void @{product_name(s)}(ptr %acc, ptr %av, ptr %bv) noinline {{", "entry:"]
    ways = ["plain"]
    if rule.kind == "pairs":
        lines.append("  br label %plain")
    else:
        ways.append("careful")
        for name, stage in zip("ab", staged):
            lines += [
                f"  %{name}e = getelementptr i8, ptr %{name}v, i64 {stage.values_bytes}",
                f"  %{name}f = getelementptr i8, ptr %{name}v, i64 {stage.flag_at}",
                f"  %{name}o = load i64, ptr %{name}f",
            ]
        lines += ["  %odd = or i64 %ao, %bo", "  %any = icmp ne i64 %odd, 0"]
        lines.append("  br i1 %any, label %careful, label %plain")
    for way in ways:
        lines += (_ruled_small if s.m == 4 else _ruled_strips)(s, rule, way, declares)
    return "\n".join([*lines, "done:", "  ret void", "}", *sorted(declares), ""])


def _groups(s: Mfma, rule: Rule, of: Callable[[str, int, int], str]) -> list[Group]:
    """What is summed at once. `of`: place ("av", "bv" for numbers, "ae", "be" for words of exponents), which of a lane's, and the group of lanes, to a value."""
    found = []
    for first in range(0, s.k, rule.group):
        places = [(k % s.per_lane, k // s.per_lane) for k in range(first, min(first + rule.group, s.k))]
        words = [] if rule.kind == "pairs" else sorted({(i // 4, g) for i, g in places})
        found.append(
            Group([(of("av", *at), of("bv", *at)) for at in places], [(of("ae", *at), of("be", *at)) for at in words])
        )
    return found


def _least(s: Mfma, way: str) -> int | None:
    return LEAST[s.sources[0]] if way == "careful" else None


def _ruled_strips(s: Mfma, rule: Rule, way: str, declares: set[str]) -> list[str]:
    """The results, 16 each of two rows at a time: a row's A is one number a k, their B the same sixteen. Two chains of operations hide their latency."""
    o = Ops(Out(way[0] + "t", declares), 32)
    emit, put, w = o.out.emit, o.out.put, way[0]
    put(f"br label %{way}_strip")
    o.out.label(f"{way}_strip")
    put(f"%{w}n = phi i64 [ 0, %{way} ], [ %{w}n1, %{way}_next ]")
    item = emit(f"shl i64 {emit(f'lshr i64 %{w}n, 2')}, 1")
    block, q = emit(f"udiv i64 {item}, {s.m * s.m // 64}"), emit(f"urem i64 {item}, {s.m * s.m // 64}")
    lane = emit(f"shl i64 {emit(f'and i64 %{w}n, 3')}, 4")
    rows = [
        f"mul i64 {emit(f'lshr i64 {q}, 2')}, {4 * (64 // s.m)}",
        f"and i64 {q}, 3",
        f"mul i64 {emit(f'udiv i64 {lane}, {s.m}')}, 4",
    ]
    row = emit(f"mul i64 {block}, {s.m}")
    for text in rows:
        row = emit(f"add i64 {row}, {emit(text)}")
    column = emit(f"add i64 {emit(f'mul i64 {block}, {s.m}')}, {emit(f'urem i64 {lane}, {s.m}')}")
    goal = emit(f"add i64 {emit(f'shl i64 {item}, 8')}, {emit(f'shl i64 {lane}, 2')}")
    goals = [emit(f"getelementptr i8, ptr %acc, i64 {emit(f'add i64 {goal}, {256 * j}')}") for j in (0, 1)]
    half = "<16 x float>"

    def both(first: str, second: str, ty: str = "float") -> str:
        return emit(f"shufflevector <16 x {ty}> {first}, <16 x {ty}> {second}, {lane_order(range(32))}")

    def spread(place: str, i: int, g: int) -> str:
        ty, base, found = _TYPES[place[1]], 64 * i + s.m * s.blocks * g, []
        if place[0] == "b":
            pointer = emit(f"getelementptr {ty}, ptr %{place}, i64 {emit(f'add i64 {column}, {base}')}")
            value = emit(f"load <16 x {ty}>, ptr {pointer}, align 64")
            return both(value, value, ty)
        for j in (0, 1):
            pointer = emit(f"getelementptr {ty}, ptr %{place}, i64 {emit(f'add i64 {row}, {base + j}')}")
            low = emit(f"insertelement <16 x {ty}> poison, {ty} {emit(f'load {ty}, ptr {pointer}')}, i64 0")
            found.append(emit(f"shufflevector <16 x {ty}> {low}, <16 x {ty}> poison, <16 x i32> zeroinitializer"))
        return both(found[0], found[1], ty)

    acc = both(*(emit(f"load {half}, ptr {at}, align 64") for at in goals))
    if rule.kind == "pairs":
        acc = flush_positive(o, acc)
    acc = sums(o, rule, acc, _groups(s, rule, spread), _least(s, way))
    for j, at in enumerate(goals):
        part = f"shufflevector <32 x float> {acc}, <32 x float> poison, {lane_order(range(16 * j, 16 * j + 16))}"
        put(f"store {half} {emit(part)}, ptr {at}, align 64")
    put(f"br label %{way}_next")
    o.out.label(f"{way}_next")
    put(f"%{w}n1 = add i64 %{w}n, 1")
    put(f"br i1 {emit(f'icmp ult i64 %{w}n1, {2 * s.out_items}')}, label %{way}_strip, label %done")
    return [f"{way}:", *o.out.lines]


def _ruled_small(s: Mfma, rule: Rule, way: str, declares: set[str]) -> list[str]:
    """The 4x4 shapes: every lane its own row and column, by shuffles."""
    o = Ops(Out(way[0] + "t", declares), 64)
    emit = o.out.emit
    for q in range(s.out_items):
        at = emit(f"getelementptr i8, ptr %acc, i64 {256 * q}")
        acc = emit(f"load <64 x float>, ptr {at}, align 64")
        if rule.kind == "pairs":
            acc = flush_positive(o, acc)
        groups = _groups(s, rule, partial(_shuffled, o, s, q))
        o.out.put(f"store <64 x float> {sums(o, rule, acc, groups, _least(s, way))}, ptr {at}, align 64")
    o.out.put("br label %done")
    return [f"{way}:", *o.out.lines]


def _shuffled(o: Ops, s: Mfma, q: int, place: str, i: int, g: int) -> str:
    """Each lane's row of A, or column of B, for its result item `q`."""
    emit, ty, spots = o.out.emit, _TYPES[place[1]], [s.place(q, l) for l in range(64)]
    lanes = [s.a_lane(row if place[0] == "a" else column, g, block) for block, row, column in spots]
    whole = emit(f"load <64 x {ty}>, ptr {emit(f'getelementptr i8, ptr %{place}, i64 {256 * i}')}, align 64")
    return emit(f"shufflevector <64 x {ty}> {whole}, <64 x {ty}> poison, {lane_order(lanes)}")
