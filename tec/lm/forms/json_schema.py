"""JSON Schema as a grammar: every text of it is JSON that the schema admits.

Objects have their properties in the schema's order; beside them others only where `additionalProperties` says so. What would narrow the texts and has no rule here is
refused by its name and place. Titles, descriptions, defaults, examples and formats narrow nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import ArgumentError, one_line
from .machine import Grammar, Item, literal, one_of

_NOTES = {
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "$defs", "definitions", "strict",
    "nullable", "discriminator",
}  # fmt: skip
_KEYS = {
    "object": {"properties", "required", "additionalProperties"}, "array": {"items", "prefixItems", "minItems", "maxItems"}, "string": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, "number": {"minimum", "exclusiveMinimum"}, "boolean": set(), "null": set(),
}  # fmt: skip
_ALL = tuple(_KEYS)
MOST_REPEATS = 4096  # of a string's characters and an array's items: each is a rule
MOST_DIGITS = 17  # of an integer, and behind a point: as many tell any float64 from all others
MOST_RULES = 1 << 16
DEEPEST = 64  # levels of a schema
_DIGIT = one_of(b"0123456789")


def grammar_of(schema: Any, before: str = "", behind: str = "") -> Grammar:
    """The grammar of a schema, between two texts. Raises ArgumentError."""
    return _Writer(schema, before, behind).grammar


class _Writer:
    def __init__(self, schema: Any, before: str, behind: str):
        self.root, self.grammar = schema, Grammar()
        g = self.grammar
        whole = g.rule()
        # Blanks and digits without a limit would let a model write nothing else.
        some = g.repeated(_DIGIT, 1, MOST_DIGITS)
        self.space = g.rule([], literal(" "), [*literal("\n"), g.repeated(one_of(b" \t"), 0, 16)])
        self.colon = g.rule(literal(":"), literal(": "))
        follow = one_of(range(0x80, 0xC0))
        hexadecimal = one_of(b"0123456789abcdefABCDEF")
        self.char = g.rule(
            [one_of(set(range(0x20, 0x80)) - set(b'"\\\x7f'))], [*literal("\\"), one_of(b'"\\/bfnrt')], [*literal("\\u"), one_of(b"0123456789abcefABCEF"), *[hexadecimal] * 3],
            [one_of(range(0xC2, 0xE0)), follow], [one_of((0xE0,)), one_of(range(0xA0, 0xC0)), follow],
            [one_of({*range(0xE1, 0xF0)} - {0xED}), follow, follow], [one_of((0xED,)), one_of(range(0x80, 0xA0)), follow],
            [one_of((0xF0,)), one_of(range(0x90, 0xC0)), follow, follow], [one_of(range(0xF1, 0xF4)), follow, follow, follow],
            [one_of((0xF4,)), one_of(range(0x80, 0x90)), follow, follow],
        )  # fmt: skip
        self.string = g.rule([*literal('"'), g.repeated(self.char), *literal('"')])
        self.natural = g.rule(literal("0"), [one_of(b"123456789"), g.repeated(_DIGIT, 0, MOST_DIGITS - 1)])
        self.minus = g.rule([], literal("-"))
        fraction = g.rule([], [*literal("."), some])
        power = g.rule([], [one_of(b"eE"), g.rule([], [one_of(b"+-")]), g.repeated(_DIGIT, 1, 2)])
        self.size = g.rule([self.natural, fraction, power])
        self.named: dict[str, int] = {}
        self.value: int | None = None
        made = self.of(schema, "$", 0)
        g.rules[whole] = [[*literal(before), made, *literal(behind)]]

    def of(self, schema: Any, at: str, depth: int) -> int:
        """The rule of a schema that stands at a place."""
        g = self.grammar
        if depth > DEEPEST or len(g.rules) > MOST_RULES:
            raise ArgumentError(
                f"the schema is too deep or too large at {at[:80]}",
                hint=f"a schema of at most {DEEPEST} levels; split it, or allow any object there: {{}}",
            )
        if schema is True or schema == {}:
            return self.anything()
        if not isinstance(schema, Mapping):
            raise ArgumentError(f"the schema at {at} is {one_line(repr(schema))[:60]}", hint="an object")
        if "$ref" in schema:
            return self.referred(schema["$ref"], at, depth)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                self.narrow(schema, {key, "type"}, at)
                parts = schema[key]
                if not isinstance(parts, list) or not parts:
                    raise ArgumentError(f"{key} at {at} is no list of schemas", hint=f"{key}: [{{...}}, {{...}}]")
                return g.rule(*[[self.of(s, f"{at}.{key}[{k}]", depth + 1)] for k, s in enumerate(parts)])
        if "allOf" in schema:
            self.narrow(schema, {"allOf", "type"}, at)
            parts = schema["allOf"]
            if not isinstance(parts, list) or len(parts) != 1:
                raise ArgumentError(f"allOf at {at} is no list of one schema", hint="one schema with the keys of all")
            return self.of(parts[0], f"{at}.allOf[0]", depth + 1)
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            if not isinstance(values, list) or not values:
                raise ArgumentError(
                    f"enum at {at} is no list of values", hint="enum: [value, ...], with one value at least"
                )
            return g.rule(*[literal(json.dumps(v, ensure_ascii=False)) for v in values])
        return self.typed(schema, at, depth)

    def typed(self, schema: Mapping[str, Any], at: str, depth: int) -> int:
        said = schema.get("type")
        if said is None:
            said = [t for t in _ALL if _KEYS[t] & set(schema) and t != "number"][:1] or list(_ALL)
        kinds = [said] if isinstance(said, str) else said
        if not isinstance(kinds, list) or not kinds or any(k not in _KEYS for k in kinds):
            raise ArgumentError(f"type at {at} is {one_line(repr(said))[:60]}", hint=f"one of {', '.join(_ALL)}")
        if schema.get("nullable") is True:
            kinds = [*kinds, "null"]
        self.narrow(schema, {"type"}.union(*(_KEYS[k] for k in kinds)), at)
        makers: dict[str, Callable[[], list[Item]]] = {
            "object": lambda: self.object(schema, at, depth), "array": lambda: self.array(schema, at, depth), "string": lambda: self.text(schema, at),
            "integer": lambda: self.integer(schema, at), "number": lambda: [*self.sign(schema, at), self.size],
        }  # fmt: skip
        plain = {"boolean": [literal("true"), literal("false")], "null": [literal("null")]}
        return self.grammar.rule(
            *[a for k in dict.fromkeys(kinds) for a in (plain[k] if k in plain else [makers[k]()])]
        )

    def narrow(self, schema: Mapping[str, Any], known: set[str], at: str) -> None:
        wrong = next((k for k in schema if k not in known and k not in _NOTES), None)
        if wrong is not None:
            raise ArgumentError(
                f"the schema has {one_line(str(wrong))[:60]!r} at {at}, which is not supported", hint="without it, and a check of the answer"
            )  # fmt: skip

    def anything(self) -> int:
        if self.value is None:
            self.value = self.grammar.rule()
            self.grammar.rules[self.value] = [[self.of({"type": list(_ALL)}, "$", 0)]]
        return self.value

    def referred(self, ref: Any, at: str, depth: int) -> int:
        """A part of the schema by its path; one that stands within itself is one rule."""
        if ref not in self.named:
            if not isinstance(ref, str) or not ref.startswith("#"):
                raise ArgumentError(
                    f"$ref at {at} is {one_line(repr(ref))[:60]}", hint='a place in the same schema: "#/$defs/name"'
                )
            part = self.root
            for step in [s.replace("~1", "/").replace("~0", "~") for s in ref[1:].split("/")[1:]]:
                part = part.get(step) if isinstance(part, Mapping) else None
            if part is None:
                raise ArgumentError(
                    f"$ref at {at} is {one_line(ref)[:60]!r}, and the schema has no such place",
                    hint="#/$defs/NAME, with NAME in the schema's $defs",
                )
            self.named[ref] = rule = self.grammar.rule()
            made = self.of(part, ref, depth + 1)
            if made == rule:
                raise ArgumentError(
                    f"$ref at {at} says itself alone", hint="a definition with a type, which may refer to itself inside"
                )
            self.grammar.rules[rule] = [[made]]
        return self.named[ref]

    # ---- kinds of values

    def object(self, schema: Mapping[str, Any], at: str, depth: int) -> list[Item]:
        """Properties in their order, those that are not required maybe left out."""
        g, own, required = self.grammar, schema.get("properties") or {}, schema.get("required") or []
        if not isinstance(own, Mapping) or not isinstance(required, list) or not set(required) <= {*own}:
            raise ArgumentError(
                f"required at {at} names what properties has not"
                if isinstance(own, Mapping)
                else f"properties at {at} is no object",
                hint="properties: {name: schema, ...}, and required: names of these",
            )
        more = schema.get("additionalProperties", not own)
        comma = [*literal(","), self.space]
        behind, first = [self.space, *literal("}")], [self.space, *literal("}")]
        if more is not False:
            pair = g.rule(
                [
                    self.string,
                    self.colon,
                    self.of(more, f"{at}.additionalProperties", depth + 1),
                ]
            )
            many = g.repeated(g.rule([*comma, pair]))
            behind, first = [many, *behind], [g.rule([], [pair, many]), *first]
        for name, part in reversed(list(own.items())):
            pair = g.rule(
                [
                    *literal(json.dumps(str(name), ensure_ascii=False)),
                    self.colon,
                    self.of(part, f"{at}.{name}", depth + 1),
                ]
            )
            following = g.rule(behind)
            least: list[list[Item]] = [] if name in required else [first]
            first = [g.rule([pair, following], *least)]
            least = [] if name in required else [behind]
            behind = [g.rule([*comma, pair, following], *least)]
        return [*literal("{"), self.space, *first]

    def array(self, schema: Mapping[str, Any], at: str, depth: int) -> list[Item]:
        g, fixed = self.grammar, schema.get("prefixItems") or []
        least, most = self.counts(schema, "minItems", "maxItems", at)
        each = schema.get("items", not fixed)
        comma = [*literal(","), self.space]
        items: list[Item] = [self.of(part, f"{at}.prefixItems[{k}]", depth + 1) for k, part in enumerate(fixed)]
        end: list[Item] = [self.space, *literal("]")]
        if items and (least > len(items) or each not in (False, True) or (most is not None and most < len(items))):
            raise ArgumentError(f"prefixItems at {at} beside items, minItems or maxItems", hint="one of them")
        if items:
            return [
                *literal("["),
                self.space,
                *[x for k, i in enumerate(items) for x in ([*comma, i] if k else [i])],
                *end,
            ]
        if each is False or most == 0:
            return [*literal("["), *end]
        one = self.of(each, f"{at}.items", depth + 1)
        others = g.repeated(g.rule([*comma, one]), max(least - 1, 0), None if most is None else most - 1)
        some: list[Item] = [one, others]
        return [*literal("["), self.space, *(some if least else [g.rule(some, [])]), *end]

    def text(self, schema: Mapping[str, Any], at: str) -> list[Item]:
        least, most = self.counts(schema, "minLength", "maxLength", at)
        if not least and most is None:
            return [self.string]
        return [*literal('"'), self.grammar.repeated(self.char, least, most), *literal('"')]

    def counts(self, schema: Mapping[str, Any], low: str, high: str, at: str) -> tuple[int, int | None]:
        least, most = schema.get(low, 0), schema.get(high)
        for key, n in ((low, least), (high, most)):
            if n is not None and (type(n) is not int or not 0 <= n <= MOST_REPEATS):
                raise ArgumentError(
                    f"{key} at {at} is {one_line(repr(n))[:40]}", hint=f"an int from 0 to {MOST_REPEATS}"
                )
        if most is not None and most < least:
            raise ArgumentError(f"{high} at {at} is {most}, and {low} {least}", hint=f"{low} at most {high}")
        return least, most

    def sign(self, schema: Mapping[str, Any], at: str) -> list[Item]:
        """Of a number: none where it is 0 at least. No other bound is a matter of how it is written."""
        low = schema.get("minimum")
        if (low not in (None, 0)) or schema.get("exclusiveMinimum") is not None:
            raise ArgumentError(f"bounds of a number at {at}", hint="minimum = 0, or bounds of an integer")
        return [] if low == 0 else [self.minus]

    def integer(self, schema: Mapping[str, Any], at: str) -> list[Item]:
        bounds = []
        for plain, outer, by in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
            said = [(schema[k], d) for k, d in ((plain, 0), (outer, by)) if schema.get(k) is not None]
            if any(
                isinstance(v, bool) or not isinstance(v, (int, float)) or v != int(v) or abs(v) > 10**18
                for v, _ in said
            ):
                raise ArgumentError(f"{plain} at {at} is {one_line(repr(said[0][0]))[:40]}", hint="a whole number")
            found = [int(v) + d for v, d in said]
            bounds.append((max(found) if by > 0 else min(found)) if found else None)
        low, high = bounds
        if low is None and high is None:
            return [self.minus, self.natural]
        if low is not None and high is not None and low > high:
            raise ArgumentError(
                f"no integer is from {low} to {high}, as {at} says",
                hint="minimum at most maximum, with an integer between them",
            )
        ways: list[list[Item]] = []
        if low is None or low < 0:  # its size from -min(high, -1) to -low
            ways.append(
                [*literal("-"), self.sizes(max(1, 1 if high is None else -high), None if low is None else -low)]
            )
        if high is None or high >= 0:
            ways.append([self.sizes(max(0, low or 0), high)])
        return [self.grammar.rule(*ways)]

    def sizes(self, low: int, high: int | None) -> int:
        """Numbers from `low` on, up to `high`, without leading zeros."""
        g = self.grammar
        shortest = len(str(low))
        longest = len(str(high)) if high is not None else shortest
        ways: list[list[Item]] = []
        for n in range(shortest, longest + 1):
            first = low if n == shortest else 10 ** (n - 1)
            last = high if n == longest and high is not None else 10**n - 1
            ways.append([self.between(str(first), str(last))])
        if high is None:
            more = g.repeated(_DIGIT, 0, max(MOST_DIGITS - 1 - shortest, 0))
            ways.append([one_of(b"123456789"), *[_DIGIT] * shortest, more])
        return g.rule(*ways)

    def between(self, low: str, high: str) -> int:
        """Numbers of as many digits, from one to another."""
        g = self.grammar
        if not low:
            return g.rule([])
        zero = ord("0")
        a, b = int(low[0]), int(high[0])
        if a == b:
            return g.rule([*literal(low[0]), self.between(low[1:], high[1:])])
        rest = len(low) - 1
        ways: list[list[Item]] = [
            [*literal(low[0]), self.between(low[1:], "9" * rest)],
            [*literal(high[0]), self.between("0" * rest, high[1:])],
        ]
        if b - a > 1:
            ways.append([one_of(range(zero + a + 1, zero + b)), *[_DIGIT] * rest])
        return g.rule(*ways)
