"""Texts of a form: every text that a grammar lets through is JSON of its schema, and JSON of the schema gets through."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tec.errors import ArgumentError
from tec.lm.forms.form import Form, Forms, Vocabulary
from tec.lm.forms.json_schema import grammar_of
from tec.lm.forms.machine import Grammar, Machine, literal
from tec.lm.generation import Generation
from tec.lm.sampling import Sampling
from tec.lm.serve.calls import calls_of, form_of_call
from tests.seeds import first

from .tiny import Bytes

NODE = {"type": "object", "properties": {"v": {"type": "boolean"}, "next": {"$ref": "#/$defs/node"}}, "required": ["v"], "additionalProperties": False}  # fmt: skip
PERSON = {
    "type": "object", "title": "A person", "additionalProperties": False, "required": ["age", "tags"], "$defs": {"node": NODE},
    "properties": {
        "name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 129}, "weight": {"type": ["number", "null"], "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "bé", 3]}, "minItems": 1, "maxItems": 3}, "path": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
    },
}  # fmt: skip
# Of each schema, what it admits and what it does not.
VALUES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "a person": (
        PERSON, [{"age": 0, "tags": ["a"]}, {"name": "Zoé \"x", "age": 129, "weight": 1.5e3, "tags": [3, "bé", "a"], "path": {"v": True, "next": {"v": False}}}],
        [{"age": 130, "tags": ["a"]}, {"age": 1, "tags": []}, {"age": 1, "tags": ["c"]}, {"tags": ["a"]}, {"age": 1, "tags": ["a"], "more": 1}, {"age": 1.5, "tags": ["a"]},
         {"name": "toolong", "age": 1, "tags": ["a"]}, {"age": 1, "weight": -1, "tags": ["a"]}, {"age": 1, "tags": ["a"], "path": {"v": 1}}]),
    "anything": (True, [None, -1.5, "é🎉\n\\", [[], {}, [1, {"a": [True]}]], {"": {"x": 0}}], []),
    "an object": ({"type": "object"}, [{}, {"a": [1]}], [[], 1, "{}"]),
    "more properties": (
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}}, [{}, {"a": None}, {"a": None, "b": 2}, {"b": 2, "c": -3}],
        [{"b": "x"}, {"a": None, "b": None}]),
    "a pair": ({"type": "array", "prefixItems": [{"type": "string"}, {"const": 7}], "items": False}, [["a", 7]], [[], ["a"], ["a", 8], ["a", 77], ["a", 7, 1]]),
    "one of": ({"oneOf": [{"type": "string", "minLength": 2}, {"type": "boolean"}]}, ["ab", "abc", True], ["a", 1]),
    "a tree": ({"type": "array", "items": {"$ref": "#"}}, [[], [[], [[]]]], [[1]]),
}  # fmt: skip


def admits(machine: Machine, text: str) -> bool:
    state = machine.read(machine.start, text.encode())
    return state is not None and state.ends


@pytest.mark.parametrize("name", VALUES)
def test_what_a_schema_admits(name: str) -> None:
    schema, right, wrong = VALUES[name]
    machine = Machine(grammar_of(schema))
    for value in right:
        assert all(admits(machine, json.dumps(value, ensure_ascii=False, separators=s)) for s in ((", ", ": "), (",", ":"), (",\n\t", ": "))), value  # fmt: skip
    assert [v for v in wrong if admits(machine, json.dumps(v, ensure_ascii=False))] == []
    for text in (
        "",
        "{",
        '{"a" 1}',
        "01",
        "[1,]",
        '"\n"',
        "nul",
        '"\\x"',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        assert not admits(machine, text), text


def test_characters_of_strings() -> None:
    machine = Machine(grammar_of({"type": "string", "minLength": 1, "maxLength": 1}))
    for text in ("a", "é", "€", "🎉", "\\n", "\\u00e9", '\\"'):
        assert admits(machine, f'"{text}"'), text
    for raw in (
        b"",
        b"ab",
        b"\xc3",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf5\x80\x80\x80",
        b"\\ud800",
        b"\\u12",
        b"\x1f",
        b"\xff",
    ):
        assert machine.read(machine.start, b'"' + raw + b'"') is None, raw


def test_numbers_end() -> None:
    """A model that repeats a digit writes a number nevertheless."""
    for schema in ({"type": "integer"}, {"type": "number"}, {"type": "integer", "minimum": 7}):
        machine = Machine(grammar_of(schema))
        assert admits(machine, "1" * 17) and not admits(machine, "1" * 18)
    assert admits(Machine(grammar_of({"type": "number"})), "-0.12345678901234567e-30")


def test_every_text_is_json_of_the_schema() -> None:
    """Bytes drawn from those that may come."""
    rng = np.random.default_rng(first())
    machine = Machine(grammar_of(PERSON))
    for _ in range(20):
        state, text = machine.start, b""
        while not state.is_last:
            may = [b for b in range(256) if machine.after(state, b) is not None]
            closing = [b for b in may if len(text) > 200 and b in b'"}]']
            text += bytes((int(rng.choice(closing or may)),))
            state = machine.after(state, text[-1])  # type: ignore[assignment]
        made = json.loads(text.decode())
        assert list(made) == [n for n in PERSON["properties"] if n in made] and {"age", "tags"} <= {*made}  # type: ignore[call-overload]
        assert 0 <= made["age"] < 130 and 1 <= len(made["tags"]) <= 3 and len(made.get("name", "")) <= 6


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 1234), (-20, 7), (None, -3), (17, None), (None, 100), (-105, None), (-9, -2)])  # fmt: skip
def test_bounds_of_integers(low: int | None, high: int | None) -> None:
    said = {k: v for k, v in (("minimum", low), ("maximum", high)) if v is not None}
    machine = Machine(grammar_of({"type": "integer", **said}))
    outer = {k: v for k, v in (("exclusiveMinimum", low and low - 1), ("exclusiveMaximum", high and high + 1)) if v is not None}  # fmt: skip
    same = Machine(grammar_of({"type": "integer", **(outer if 0 not in (low, high) else said)}))
    for value in range(-130, 1300):
        want = (low is None or value >= low) and (high is None or value <= high)
        assert admits(machine, str(value)) == admits(same, str(value)) == want, value


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string", "pattern": "a+"}, "'pattern' at \\$,"),
        ({"properties": {"x": {"type": "array", "uniqueItems": True}}}, "'uniqueItems' at \\$.x"),
        ({"type": "text"}, "type at \\$"),
        ({"$ref": "#/$defs/none"}, "no such place"),
        ({"$ref": "https://x"}, "\\$ref at \\$"),
        ({"$ref": "#"}, "itself alone"),
        ({"type": "integer", "minimum": 5, "maximum": 2}, "from 5 to 2"),
        ({"type": "array", "maxItems": 10**9}, "maxItems at \\$"),
        ({"required": ["x"], "properties": {}}, "required at \\$"),
        ({"allOf": [{}, {}]}, "allOf at \\$"),
        ({"enum": []}, "enum at \\$"),
        (7, "the schema at \\$ is 7"),
    ],
)
def test_what_is_not_supported_is_told_by_name_and_place(schema: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        grammar_of(schema)


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ArgumentError, match="too deep"):
        grammar_of(schema)


def test_what_repeats_what_may_be_empty_ends() -> None:
    g = Grammar()
    whole = g.rule()
    g.rules[whole] = [[g.repeated(g.rule([], literal("a"))), *literal("b")]]
    machine = Machine(g)
    assert admits(machine, "b") and admits(machine, "aab") and not admits(machine, "a")


def test_masks_are_what_fits_token_by_token() -> None:
    """A vocabulary of drawn texts, with empty ones, equal ones, and the largest byte."""
    rng = np.random.default_rng(first())
    letters = np.frombuffer(b'{}[]",:aegt 0129\\\xc3\xa9\xff', np.uint8)
    texts = [bytes(rng.choice(letters, int(rng.integers(0, 6)))) for _ in range(400)] + [
        b'{"age',
        b'{"age":',
        b"1",
        b"",
    ]
    machine, vocabulary = Machine(grammar_of(PERSON)), Vocabulary(lambda t: texts[t], len(texts))
    form = Form(machine, vocabulary, [3])
    for _ in range(4):
        mask = np.isfinite(form.masked(np.zeros(len(texts) + 5, np.float32)))
        assert mask.tolist() == [t < len(texts) and form.fits(t) for t in range(len(texts) + 5)] and mask.any()
        form.take(int(rng.choice(np.flatnonzero(mask))))


def test_a_form_that_no_token_fits_is_told() -> None:
    form = Form(Machine(grammar_of({"const": "x"})), Vocabulary(lambda t: b"ab"[t : t + 1], 2), [])
    with pytest.raises(ArgumentError, match="no token of the model fits"):
        form.masked(np.zeros(2))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("<tool_call>", '<tool_call>\n{"name": "move", "arguments": {"by": -3}}\n</tool_call>'),
        ("[TOOL_CALLS]", '[TOOL_CALLS] [{"name": "move", "arguments": {"by": -3}}]'),
        ("python_tag", '{"name": "move", "parameters": {"by": -3}}'),
    ],
)
def test_calls_are_forced_in_the_form_that_is_read(template: str, text: str) -> None:
    by = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
    tools = [{"type": "function", "function": {"name": "move", "parameters": by}}, {"type": "function", "function": {"name": "stop"}}]  # fmt: skip
    schema, before, behind = form_of_call(tools, f"a template with {template}")
    machine = Machine(grammar_of(schema, before, behind))
    assert admits(machine, text) and not admits(machine, text.replace("move", "jump")) and not admits(machine, f"I {text}")  # fmt: skip
    rest, (call,) = calls_of(text, {"move", "stop"})
    assert (rest, call["function"]["name"], json.loads(call["function"]["arguments"])) == ("", "move", {"by": -3})


class Drawn:
    """Logits that are drawn anew for each token."""

    room = None

    def __init__(self, what: int):
        self.rng = np.random.default_rng(first(what))

    def begin(self, prompt: Any) -> Any:
        return self.next()

    def next(self, *tokens: int) -> Any:
        return self.rng.standard_normal(128).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_text_of_a_form(temperature: float) -> None:
    """Tokens that do not fit are never taken, and the text ends where nothing may follow, or where the model ends it."""
    schema = {"type": "object", "properties": {"a": {"enum": [True, None]}, "b": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["a", "b"]}  # fmt: skip
    ends = set()
    for what in range(5):
        form = Forms(Bytes()).of(schema)({0})
        run = Generation(Drawn(what), Bytes(), [1], 200, Sampling(temperature, seed=what), ends={0}, form=form)
        text = "".join(run)
        made = json.loads(text)
        assert made["a"] in (True, None) and 0 <= made["b"] < 100 and text == run.text
        ends.add(run.reason)
    assert ends == {"end"}
