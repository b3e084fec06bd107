"""Matrix instructions whose chips' sums are known (`matrix_sums`): the functions that compute them, in place of `matrix.mfma_function`."""

from __future__ import annotations

from ..translate.ops import Ops, Out
from .matrix import Mfma, element, function_name
from .matrix_sums import LEAST, Rule, Term, flush_positive, power, sums, unsafe


def ruled_function(s: Mfma, rule: Rule, ocp: bool) -> str:
    """`mfma_function` under a rule of `matrix_sums`: elements and the powers of their exponents as f32, then results 16 by 16.

    Where some factor is of an unsafe size, all go the careful way.
    """
    declares: set[str] = set()
    lines = [f"define internal void @{function_name(s)}(ptr %acc, ptr %a, ptr %b) noinline {{", "entry:"]
    pairs = rule.kind == "pairs"
    places = [x + y for x in "ab" for y in ("v", *(("p",) if not pairs else ()))]
    lines += [f"  %{p} = alloca [{64 * s.per_lane} x float], align 64" for p in places]
    flags = []
    for which, name in enumerate("ab"):
        o = Ops(Out(f"{name}t", declares), 64)
        words = []
        for r in range(s.regs(which)):
            at = o.out.emit(f"getelementptr i8, ptr %{name}, i64 {256 * r}")
            words.append(o.out.emit(f"load <64 x i32>, ptr {at}, align 64"))
        kind, odd = s.sources[which], ""
        for i in range(s.per_lane):
            value = element(o, words, i, kind, pairs, ocp)
            stored = {"v": value}
            if not pairs:
                stored["p"] = power(o, value, LEAST[kind])
                bad = unsafe(o, value)
                odd = o.or_(odd, bad, "i1") if odd else bad
            for tail, x in stored.items():
                at = o.out.emit(f"getelementptr i8, ptr %{name}{tail}, i64 {256 * i}")
                o.out.put(f"store <64 x float> {x}, ptr {at}, align 64")
        if odd:
            flags.append(o.out.emit(f"bitcast <64 x i1> {odd} to i64"))
        lines += o.out.lines
    ways = ["plain"] if pairs else ["plain", "careful"]
    if pairs:
        lines.append("  br label %plain")
    else:
        lines += [f"  %odd = or i64 {flags[0]}, {flags[1]}", "  %any = icmp ne i64 %odd, 0"]
        lines.append("  br i1 %any, label %careful, label %plain")
    for way in ways:
        lines += (_ruled_small if s.m == 4 else _ruled_strips)(s, rule, way, declares)
    return "\n".join([*lines, "done:", "  ret void", "}", *sorted(declares), ""])


def _ruled_strips(s: Mfma, rule: Rule, way: str, declares: set[str]) -> list[str]:
    """The results, 16 of one row at a time: their A is one number a k, their B sixteen in sequence."""
    o = Ops(Out(way[0] + "t", declares), 16)
    emit, put, w = o.out.emit, o.out.put, way[0]
    put(f"br label %{way}_strip")
    o.out.label(f"{way}_strip")
    put(f"%{w}n = phi i64 [ 0, %{way} ], [ %{w}n1, %{way}_strip ]")
    item, c = emit(f"lshr i64 %{w}n, 2"), emit(f"and i64 %{w}n, 3")
    block, q = emit(f"udiv i64 {item}, {s.m * s.m // 64}"), emit(f"urem i64 {item}, {s.m * s.m // 64}")
    lane = emit(f"shl i64 {c}, 4")
    rows = [
        f"mul i64 {emit(f'lshr i64 {q}, 2')}, {4 * (64 // s.m)}",
        f"and i64 {q}, 3",
        f"mul i64 {emit(f'udiv i64 {lane}, {s.m}')}, 4",
    ]
    row = emit(f"mul i64 {block}, {s.m}")
    for text in rows:
        row = emit(f"add i64 {row}, {emit(text)}")
    column = emit(f"add i64 {emit(f'mul i64 {block}, {s.m}')}, {emit(f'urem i64 {lane}, {s.m}')}")
    at = emit(f"getelementptr i8, ptr %acc, i64 {emit(f'shl i64 %{w}n, 6')}")
    acc = emit(f"load <16 x float>, ptr {at}, align 64")

    def one(place: str, base: int) -> str:
        pointer = emit(f"getelementptr float, ptr %{place}, i64 {emit(f'add i64 {row}, {base}')}")
        return o.splat("f32", emit(f"load float, ptr {pointer}"))

    def sixteen(place: str, base: int) -> str:
        pointer = emit(f"getelementptr float, ptr %{place}, i64 {emit(f'add i64 {column}, {base}')}")
        return emit(f"load <16 x float>, ptr {pointer}, align 64")

    terms = []
    for k in range(s.k):
        base = k % s.per_lane * 64 + s.m * s.blocks * (k // s.per_lane)
        powers = ("", "") if rule.kind == "pairs" else (one("ap", base), sixteen("bp", base))
        terms.append(Term(one("av", base), sixteen("bv", base), *powers))
    if rule.kind == "pairs":
        acc = flush_positive(o, acc)
    put(f"store <16 x float> {sums(o, rule, acc, terms, way == 'careful')}, ptr {at}, align 64")
    put(f"%{w}n1 = add i64 %{w}n, 1")
    put(f"br i1 {emit(f'icmp ult i64 %{w}n1, {4 * s.out_items}')}, label %{way}_strip, label %done")
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
                order = "<64 x i32> <" + ", ".join(f"i32 {l}" for l in lanes[place[0]]) + ">"
                whole = emit(f"load <64 x float>, ptr {pointer}, align 64")
                found.append(emit(f"shufflevector <64 x float> {whole}, <64 x float> poison, {order}"))
            terms.append(Term(*(found if len(found) == 4 else [*found, "", ""])))
        if rule.kind == "pairs":
            acc = flush_positive(o, acc)
        o.out.put(f"store <64 x float> {sums(o, rule, acc, terms, way == 'careful')}, ptr {at}, align 64")
    o.out.put("br label %done")
    return [f"{way}:", *o.out.lines]
