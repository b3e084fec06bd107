"""Matrix instructions whose chips' sums are known (`matrix_sums`): products of staged operands in place of `matrix_product.product_function`."""

from __future__ import annotations

from ..translate.ops import Ops, Out
from .matrix import Mfma
from .matrix_product import Stage, lane_order, product_name
from .matrix_sums import Rule, Term, flush_positive, sums


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
                f"  %{name}p = getelementptr i8, ptr %{name}v, i64 {stage.values_bytes}",
                f"  %{name}f = getelementptr i8, ptr %{name}v, i64 {2 * stage.values_bytes}",
                f"  %{name}o = load i64, ptr %{name}f",
            ]
        lines += ["  %odd = or i64 %ao, %bo", "  %any = icmp ne i64 %odd, 0"]
        lines.append("  br i1 %any, label %careful, label %plain")
    for way in ways:
        lines += (_ruled_small if s.m == 4 else _ruled_strips)(s, rule, way, declares)
    return "\n".join([*lines, "done:", "  ret void", "}", *sorted(declares), ""])


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

    def both(first: str, second: str) -> str:
        return emit(f"shufflevector {half} {first}, {half} {second}, {lane_order(range(32))}")

    def one(place: str, base: int) -> str:
        found = []
        for j in (0, 1):
            pointer = emit(f"getelementptr float, ptr %{place}, i64 {emit(f'add i64 {row}, {base + j}')}")
            low = emit(f"insertelement {half} poison, float {emit(f'load float, ptr {pointer}')}, i64 0")
            found.append(emit(f"shufflevector {half} {low}, {half} poison, <16 x i32> zeroinitializer"))
        return both(found[0], found[1])

    def sixteen(place: str, base: int) -> str:
        pointer = emit(f"getelementptr float, ptr %{place}, i64 {emit(f'add i64 {column}, {base}')}")
        value = emit(f"load {half}, ptr {pointer}, align 64")
        return both(value, value)

    acc = both(*(emit(f"load {half}, ptr {at}, align 64") for at in goals))
    if rule.kind == "pairs":
        acc = flush_positive(o, acc)
    for first in range(0, s.k, rule.group):
        terms = []
        for k in range(first, min(first + rule.group, s.k)):
            base = k % s.per_lane * 64 + s.m * s.blocks * (k // s.per_lane)
            powers = ("", "") if rule.kind == "pairs" else (one("ap", base), sixteen("bp", base))
            terms.append(Term(one("av", base), sixteen("bv", base), *powers))
        acc = sums(o, rule, acc, terms, way == "careful")
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
        terms = []
        for k in range(s.k):
            group, i = divmod(k, s.per_lane)
            spots = [s.place(q, l) for l in range(64)]
            lanes = {
                "a": [s.a_lane(row, group, block) for block, row, _ in spots],
                "b": [s.a_lane(column, group, block) for block, _, column in spots],
            }
            found = []
            for place in ("av", "bv") if rule.kind == "pairs" else ("av", "bv", "ap", "bp"):
                pointer = emit(f"getelementptr i8, ptr %{place}, i64 {256 * i}")
                whole = emit(f"load <64 x float>, ptr {pointer}, align 64")
                found.append(
                    emit(f"shufflevector <64 x float> {whole}, <64 x float> poison, {lane_order(lanes[place[0]])}")
                )
            terms.append(Term(*(found if len(found) == 4 else [*found, "", ""])))
        if rule.kind == "pairs":
            acc = flush_positive(o, acc)
        o.out.put(f"store <64 x float> {sums(o, rule, acc, terms, way == 'careful')}, ptr {at}, align 64")
    o.out.put("br label %done")
    return [f"{way}:", *o.out.lines]
