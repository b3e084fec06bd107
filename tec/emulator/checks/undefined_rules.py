"""The rules of `undefined` for values: from an LLVM instruction as text to the instructions that make its result's shadow."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_TYPE = re.compile(r"(<\d+ x \w+>|\{[^}]*\}|\[[^\]]*\]|\w+) (.*)", re.S)
_FLAGS = frozenset(("nuw", "nsw", "exact", "disjoint", "nneg", "fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "inbounds", "samesign", "volatile", "tail"))  # fmt: skip
_INTS = {"float": "i32", "double": "i64", "half": "i16", "bfloat": "i16"}
_NO_SHADOW = frozenset(("%s126", "%s127", "%strip"))  # EXEC is checked where it is written


# What has no comma at the level of its text: plain text, or brackets without others in them.
_PIECE = re.compile(r"[^,<(\[{>)\]}]+|<[^<>()\[\]{}]*>|\([^<>()\[\]{}]*\)|\[[^<>()\[\]{}]*\]|\{[^<>()\[\]{}]*\}")


def split_args(text: str) -> list[str]:
    """Text at its commas outside brackets; of an empty text, which a call without arguments has, nothing."""
    if not text.strip():
        return []
    if "(" not in text and "<" not in text and "[" not in text and "{" not in text:
        return [p.strip() for p in text.split(",")]
    parts, depth, start, i, end = [], 0, 0, 0, len(text)
    while i < end:
        piece = _PIECE.match(text, i)
        if piece is not None:
            i = piece.end()
            continue
        ch = text[i]
        if ch in "<([{":
            depth += 1
        elif ch in ">)]}":
            depth -= 1
        elif depth == 0:  # a comma
            parts.append(text[start:i].strip())
            start = i + 1
        i += 1
    parts.append(text[start:].strip())
    return parts


def typed(text: str) -> tuple[str, str]:
    """ "<64 x i32> %a" to its type and value; flags before them are left out."""
    while True:
        m = _TYPE.match(text)
        if m is None:
            return text, ""
        if m[1] in _FLAGS:
            text = m[2]
            continue
        return m[1], m[2].strip()


def shadow_type(ty: str) -> str:
    if ty[0] == "<":
        n, _, element = ty[1:-1].partition(" x ")
        return f"<{n} x {_INTS.get(element, element)}>"
    if ty[0] == "[":
        n, _, element = ty[1:-1].partition(" x ")
        return f"[{n} x {shadow_type(element)}]"
    return _INTS.get(ty, ty)


def zero(ty: str) -> str:
    return "zeroinitializer" if ty[0] in "<[{" else "false" if ty == "i1" else "0"


def ones(ty: str) -> str:
    if ty[0] == "<":
        element = ty[1:-1].partition(" x ")[2]
        return f"splat ({element} {'true' if element == 'i1' else '-1'})"
    return "true" if ty == "i1" else "-1"


def mask_type(ty: str) -> str:
    """The type of a comparison of two values of type `ty`."""
    return f"<{ty[1:-1].partition(' x ')[0]} x i1>" if ty[0] == "<" else "i1"


@dataclass(slots=True)
class Shadows:
    """The text that is being written, and what has a shadow in it."""

    out: list[str] = field(default_factory=list)
    shadows: dict[str, str] = field(default_factory=dict)  # value -> its shadow; none where it is defined
    pointers: dict[str, str] = field(default_factory=dict)  # pointer -> pointer to the shadow of what it points to
    pairs: dict[str, str] = field(default_factory=dict)  # results {iN, i1}: the shadow of the first
    indices: dict[str, str] = field(default_factory=dict)  # vector of pointers -> shadow of its index
    count: int = 0

    def emit(self, text: str) -> str:
        self.count += 1
        name = f"%u.{self.count}"
        self.out.append(f"  {name} = {text}")
        return name

    def put(self, text: str) -> None:
        self.out.append("  " + text)

    def either(self, ty: str, *shadows: str | None) -> str | None:
        """Bits that are undefined in any."""
        some = [s for s in shadows if s is not None]
        if not some:
            return None
        total = some[0]
        for s in some[1:]:
            if s != total:
                total = self.emit(f"or {ty} {total}, {s}")
        return total

    def some(self, ty: str, shadow: str) -> str:
        """An i1 (or a vector of them): whether any bit is undefined."""
        if ty in ("i1",) or ty.endswith(" x i1>"):
            return shadow
        return self.emit(f"icmp ne {ty} {shadow}, {zero(ty)}")

    def smear(self, ty: str, shadow: str | None, to: str) -> str | None:
        """All bits of type `to` where any bit is undefined."""
        if shadow is None:
            return None
        bit = self.some(ty, shadow)
        if to[0] == "<" and ty[0] != "<":  # a scalar concerns all lanes
            n = to[1:-1].partition(" x ")[0]
            one = self.emit(f"insertelement <{n} x i1> poison, i1 {bit}, i64 0")
            bit = self.emit(f"shufflevector <{n} x i1> {one}, <{n} x i1> poison, <{n} x i32> zeroinitializer")
            ty = f"<{n} x i1>"
        return bit if to in ("i1",) or to.endswith(" x i1>") else self.emit(f"sext {mask_type(ty)} {bit} to {to}")

    def u(self, value: str) -> str | None:
        return self.shadows.get(value)


# Rules: (pass, op, result, operands as text) -> the result's shadow.


def _pointer(p: Shadows, op: str, name: str, rest: str) -> str | None:
    parts = split_args(rest)
    if op == "alloca":
        if name in _NO_SHADOW:
            return None
        ty = parts[0]
        p.out.append(f"  {name}.u = alloca {', '.join([shadow_type(ty), *parts[1:]])}")
        p.pointers[name] = f"{name}.u"
    elif op == "inttoptr":
        if rest.startswith("i64"):
            p.out.append(f"  {name}.u = getelementptr i8, ptr {name}, i64 %uoff")
            p.pointers[name] = f"{name}.u"
    else:
        ty, pointer = typed(parts[1])
        at = p.pointers.get(pointer)
        if at is not None:
            p.out.append(f"  {name}.u = getelementptr {parts[0]}, ptr {at}, {', '.join(parts[2:])}")
            p.pointers[name] = f"{name}.u"
            index = p.u(typed(parts[2])[1])
            if index is not None:
                p.indices[name] = index
    return None


def _load(p: Shadows, op: str, name: str, rest: str) -> str | None:
    parts = split_args(rest.removeprefix("volatile "))
    ty, pointer = parts[0], parts[1].removeprefix("ptr ")
    at = p.pointers.get(pointer)
    if at is None or ty == "ptr":
        return None
    return p.emit(f"load {', '.join([shadow_type(ty), f'ptr {at}', *parts[2:]])}")


def _binary(rest: str) -> tuple[str, str, str]:
    first, second = split_args(rest)
    ty, a = typed(first)
    return ty, a, second


def _bitwise(p: Shadows, op: str, name: str, rest: str) -> str | None:
    ty, a, b = _binary(rest)
    ua, ub = p.u(a), p.u(b)
    if op == "xor" or (ua is None and ub is None):
        return p.either(ty, ua, ub)
    terms: list[str | None] = []
    if ua is not None and ub is not None:
        terms.append(p.emit(f"and {ty} {ua}, {ub}"))
    for shadow, other in ((ua, b), (ub, a)):
        if shadow is not None:
            keeps = other if op == "and" else p.emit(f"xor {ty} {other}, {ones(ty)}")
            terms.append(p.emit(f"and {ty} {shadow}, {keeps}"))
    return p.either(ty, *terms)


def _shift(p: Shadows, op: str, name: str, rest: str) -> str | None:
    ty, a, b = _binary(rest)
    ua, ub = p.u(a), p.u(b)
    moved = p.emit(f"{op} {ty} {ua}, {b}") if ua is not None else None
    return p.either(ty, moved, p.smear(ty, ub, ty))


def _sum(p: Shadows, op: str, name: str, rest: str) -> str | None:
    ty, a, b = _binary(rest)
    return p.either(shadow_type(ty), p.u(a), p.u(b))


def _divide(p: Shadows, op: str, name: str, rest: str) -> str | None:
    ty, a, b = _binary(rest)
    return p.smear(ty, p.either(ty, p.u(a), p.u(b)), ty)


def _unary(p: Shadows, op: str, name: str, rest: str) -> str | None:
    return p.u(typed(rest)[1])


def _cast(p: Shadows, op: str, name: str, rest: str) -> str | None:
    source, _, to = rest.rpartition(" to ")
    ty, value = typed(source)
    shadow = p.u(value)
    if shadow is None or to == "ptr" or ty == "ptr":
        return None
    su, du = shadow_type(ty), shadow_type(to)
    if op in ("zext", "sext", "trunc"):
        return p.emit(f"{op} {su} {shadow} to {du}")
    if op == "bitcast":
        return shadow if su == du else p.emit(f"bitcast {su} {shadow} to {du}")
    return p.smear(su, shadow, du)


def _compare(p: Shadows, op: str, name: str, rest: str) -> str | None:
    words = rest.split(" ")
    while words[0] in _FLAGS:
        words.pop(0)
    predicate = words[0]
    ty, a, b = _binary(" ".join(words[1:]))
    if ty == "ptr":
        return None
    su = shadow_type(ty)
    both = p.either(su, p.u(a), p.u(b))
    if both is None:
        return None
    if op == "icmp" and predicate in ("eq", "ne"):
        open_ = p.some(su, both)
        differ = p.emit(f"xor {ty} {a}, {b}")
        known = p.emit(f"xor {su} {both}, {ones(su)}")
        certain = p.emit(f"and {su} {differ}, {known}")
        same = p.emit(f"icmp eq {su} {certain}, {zero(su)}")
        m = mask_type(su)
        return p.emit(f"and {m} {open_}, {same}")
    if op == "icmp" and ((predicate == "slt" and b in ("0", "zeroinitializer")) or (predicate == "sgt" and b == "-1")):
        return p.emit(f"icmp slt {su} {both}, {zero(su)}")
    return p.some(su, both)


def _select(p: Shadows, op: str, name: str, rest: str) -> str | None:
    parts = split_args(rest)
    (ct, c), (ty, a), (_, b) = (typed(x) for x in parts[:3])
    su = shadow_type(ty)
    ua, ub, uc = p.u(a), p.u(b), p.u(c)
    if ty == "ptr":
        return None
    picked: str | None = None
    if ua is not None or ub is not None:
        first, second = (x if x is not None else zero(su) for x in (ua, ub))
        picked = p.emit(f"select {ct} {c}, {su} {first}, {su} {second}")
    if uc is None:
        return picked
    if ty != su:
        a, b = p.emit(f"bitcast {ty} {a} to {su}"), p.emit(f"bitcast {ty} {b} to {su}")
    unsure = p.either(su, p.emit(f"xor {su} {a}, {b}"), ua, ub)
    return p.emit(f"select {ct} {uc}, {su} {unsure}, {su} {picked if picked is not None else zero(su)}")


def _shuffle(p: Shadows, op: str, name: str, rest: str) -> str | None:
    (ty, a), (_, b), order = *(typed(x) for x in split_args(rest)[:2]), split_args(rest)[2]
    ua, ub = p.u(a), p.u(b)
    if ua is None and ub is None:
        return None
    su = shadow_type(ty)
    first, second = (x if x is not None else zero(su) for x in (ua, ub))
    return p.emit(f"shufflevector {su} {first}, {su} {second}, {order}")


def _insert(p: Shadows, op: str, name: str, rest: str) -> str | None:
    (ty, v), (et, e), (it, i) = (typed(x) for x in split_args(rest))
    su, eu = shadow_type(ty), shadow_type(et)
    uv, ue, ui = p.u(v), p.u(e), p.u(i)
    if uv is None and ue is None and ui is None:
        return None
    base = uv if uv is not None else zero(su)
    got = p.emit(f"insertelement {su} {base}, {eu} {ue if ue is not None else zero(eu)}, {it} {i}")
    if ui is None:
        return got
    bad = p.some(it, ui)
    return p.emit(f"select i1 {bad}, {su} {ones(su)}, {su} {got}")


def _extract(p: Shadows, op: str, name: str, rest: str) -> str | None:
    (ty, v), (it, i) = (typed(x) for x in split_args(rest))
    su = shadow_type(ty)
    eu = su[1:-1].partition(" x ")[2]
    uv, ui = p.u(v), p.u(i)
    got = p.emit(f"extractelement {su} {uv}, {it} {i}") if uv is not None else None
    return p.either(eu, got, p.smear(it, ui, eu))


def _member(p: Shadows, op: str, name: str, rest: str) -> str | None:
    parts = split_args(rest)
    ty, value = typed(parts[0])
    shadow = p.pairs.get(value)
    if shadow is None:
        return None
    first = shadow_type(split_args(ty[1:-1])[0])
    return shadow if parts[1] == "0" else p.some(first, shadow)


def _phi(p: Shadows, op: str, name: str, rest: str) -> str | None:
    """Values that come from earlier in the text; one from later counts as defined."""
    ty, pairs = typed(rest)
    su, seen, terms = shadow_type(ty), False, []
    for pair in split_args(pairs):
        value, label = split_args(pair.strip()[1:-1])
        shadow = p.u(value)
        seen = seen or shadow is not None
        terms.append(f"[ {shadow if shadow is not None else zero(su)}, {label} ]")
    return p.emit(f"phi {su} {', '.join(terms)}") if seen else None


RULES: dict[str, Callable[[Shadows, str, str, str], str | None]] = {
    **dict.fromkeys(("alloca", "inttoptr", "getelementptr"), _pointer),
    **dict.fromkeys(("and", "or", "xor"), _bitwise),
    **dict.fromkeys(("shl", "lshr", "ashr"), _shift),
    **dict.fromkeys(("add", "sub", "mul", "fadd", "fsub", "fmul", "fdiv", "frem"), _sum),
    **dict.fromkeys(("udiv", "urem", "sdiv", "srem"), _divide),
    **dict.fromkeys(("fneg", "freeze"), _unary),
    **dict.fromkeys(("zext", "sext", "trunc", "bitcast", "fpext", "fptrunc", "sitofp", "uitofp", "fptosi", "fptoui", "ptrtoint"), _cast),
    **dict.fromkeys(("icmp", "fcmp"), _compare),
    "load": _load, "select": _select, "shufflevector": _shuffle, "insertelement": _insert, "extractelement": _extract,
    "extractvalue": _member, "phi": _phi,
}  # fmt: skip
