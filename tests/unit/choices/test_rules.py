"""Rules: rows that are wrong are told with file and row, conditions mean what Python means by them, and a row serves its machines alone."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import fields
from pathlib import Path

import pytest

from tec.choices import rules
from tec.choices.families.products import tilings
from tec.choices.families.products.outlines import Outline
from tec.choices.rules import bugs, figures
from tec.choices.rules.conditions import Condition
from tec.errors import TecError
from tec.graph import cache
from tec.target import Target
from tests import seeds

CHOICES = Path(rules.__file__).parents[1]
ROW = {"machine": "H200", "template": "gpu rows", "when": "longest > 3", "prefer": {"threads": 64}, "seconds": 1e-6, "source": "made up"}  # fmt: skip


def read(**changed):
    row = {k: v for k, v in {**ROW, **changed}.items() if v is not None}
    return list(rules.read(json.dumps(ROW) + "\n" + json.dumps(row), "some.jsonl"))


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": "H2000"}, {"machine": None}, {"family": "sm"}, {"family": ["smx"]}, {"family": [""]}, {"template": ""}, {"when": "longest >"},
        {"when": "f(longest)"}, {"when": "longest.bit_length() > 3"}, {"when": "x[0] > 1"}, {"when": "(lambda: 1)()"}, {"when": "a if b else c"},
        {"prefer": {}}, {"prefer": [1]}, {"seconds": None}, {"seconds": -1.0}, {"seconds": True}, {"seconds": "1"}, {"source": ""}, {"sauce": "x"},
        {"ratio": 0},
    ],
)  # fmt: skip
def test_a_wrong_row_is_told_with_its_file_and_line(changed):
    with pytest.raises(TecError, match=r"some\.jsonl:2"):
        read(**changed)


@pytest.mark.parametrize("text", ["{", "[]", "3", "", "[" * 100_000])
def test_a_line_that_is_no_row(text):
    with pytest.raises(TecError, match=r"some\.jsonl:2"):
        list(rules.read(json.dumps(ROW) + "\n" + text + "\n", "some.jsonl"))


def test_a_feature_that_the_template_has_not_is_told():
    rule = read(when="widest > 3")[1]
    with pytest.raises(TecError, match=r"some\.jsonl:2.*widest") as error:
        rule.holds({"longest": 3})
    assert "longest" in str(error.value)


def test_a_row_serves_its_machine_and_the_families_that_it_names():
    alone, shared = read()[1], read(family=["sm"])[1]
    of_chip = read(machine="gfx942")[1]
    assert [alone.serves(Target(t)) for t in ("h200", "a100", "mi300x", "llvm")] == [True, False, False, False]
    assert [shared.serves(Target(t)) for t in ("h200", "a100", "mi300x", "llvm")] == [True, True, False, False]
    assert [of_chip.serves(Target(t)) for t in ("mi300x", "mi325x", "mi355x")] == [True, True, False]


def test_what_ships_is_read_and_each_row_can_be_asked():
    found = rules.shipped()
    assert len(found) > 10 and {r.template for r in found} >= {"gpu rows", "gpu reduction", "cpu convolution"}


FEATURES = {
    "gpu stages": {"run", "rest", "bytes", "picked", "asks", "lines", "near", "wide"},
    "largest": {"k", "n", "lines"},
    "gpu rows": {"longest", "bytes", "rows"},
    "gpu transpose": {"width", "tiles"},
    "cpu squares": {"columns", "bytes", "near", "apart"},
    "plain convolution": {"channels"},
    "gpu gather": {"table", "near"},
    "warpgroup attention": {"keys", "size", "tiles"},
    "attention in turns": {"size"},
    "bulk product": {"rows", "split_k", "turned"},
    "warpgroup product": {"n"},
    "running sum": {"lines", "usual", "bytes", "groups"},
    "gpu attention": {"keys", "rows"},
    "matrix attention": {"keys", "rows"},
    "gpu reduction": {"outputs", "length", "bytes", "results", "pixels", "inputs"},
    "cpu convolution": {"sum", "dot", "vectors", "channels", "width", "open", "taps"},
    tilings.TEMPLATE: {"m", "n", "k", "batch", "fixed", "summed", "guarded", "turned", "parts", "moved"},
}
PREFERENCES = {
    "gpu stages": {"vector", "rows"},
    "largest": {"algorithm", "by_wave", "counted"},
    "gpu rows": {"threads", "piece", "rows"},
    "gpu transpose": {"pieces", "by_sketch"},
    "cpu squares": {"inner", "side", "wide"},
    "plain convolution": {"sums"},
    "gpu gather": {"first", "threads", "piece", "strip_bytes"},
    "warpgroup attention": {"blocks"},
    "attention in turns": {"turns", "keys"},
    "bulk product": {"order", "prefetch", "steps"},
    "warpgroup product": {"rows", "columns", "stages"},
    "running sum": {"across", "words"},
    "gpu attention": {"blocks"},
    "matrix attention": {"blocks"},
    "gpu reduction": {"short_shared", "shared_below", "wide", "threads", "whole_by", "columns"},
    "cpu convolution": {"blocks", "columns", "least", "most", "priced", "unroll"},
    tilings.TEMPLATE: {"tiles", "shared", "slice_k", "least_steps", *(f.name for f in fields(Outline))},
}


@pytest.mark.parametrize("rule", rules.shipped(), ids=lambda r: r.place)
def test_a_row_asks_and_says_what_its_template_knows(rule):
    machine = rules.machine_features(Target("mi300x")).keys() | {"registers", "fma"}
    assert rule.when.names <= FEATURES[rule.template] | machine
    assert set(rule.prefer) <= PREFERENCES[rule.template]


def test_a_compilers_mistake_is_a_refusal_with_tool_and_versions():
    held = {"hold": True, "masked": True, "whole": True}
    assert "ptxas 13.0.88" in (bugs.why_not("warpgroup attention", held) or "")
    assert bugs.why_not("warpgroup attention", {**held, "masked": False}) is None
    assert bugs.why_not("gpu rows", held) is None
    with pytest.raises(TecError, match=r"some\.jsonl:1.*reproducer"):
        list(bugs.read(json.dumps({"tool": "ptxas", "versions": "1", "template": "x", "when": "a", "what": "b"}), "some.jsonl"))  # fmt: skip


FIGURE = {
    "machine": "H200",
    "template": "some product",
    "figures": {"step_clocks": 3, "rate": [[64, 0.5], [128, 1.0]]},
    "source": "made up",
}


def figure_rows(**changed):
    return list(figures.read(json.dumps(FIGURE) + "\n" + json.dumps({**FIGURE, **changed}), "some.jsonl"))


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": "H2000"}, {"family": ["smx"]}, {"figures": {}}, {"figures": [1]}, {"figures": {"x": True}}, {"figures": {"x": "3"}},
        {"figures": {"x": []}}, {"figures": {"x": [1]}}, {"figures": {"x": [[1, 2], [1, 3]]}}, {"figures": {"x": [[1, None]]}}, {"source": ""},
        {"seconds": 0}, {"when": "x > 1"},
    ],
)  # fmt: skip
def test_a_wrong_figure_is_told_with_its_file_and_line(changed):
    with pytest.raises(TecError, match=r"some\.jsonl:2"):
        figure_rows(**changed)


def test_random_bytes_are_no_figures():
    rng = random.Random(seeds.stream("rules: bytes of figures"))
    text = json.dumps(FIGURE)
    for _ in range(300):
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice('{}[],:"0x') + text[at + rng.randint(0, 3) :]
        with contextlib.suppress(TecError):
            list(figures.read(changed, "some.jsonl"))


def test_a_figure_goes_by_a_size_in_proportion():
    found = figures.Figures("some product", "H200", figure_rows()[0].figures)
    assert [found.along("rate", x) for x in (8, 64, 96, 128, 512)] == [0.5, 0.5, 0.75, 1.0, 1.0]
    assert found["step_clocks"] == 3 and found.count("step_clocks") == 3 and "rate" in found
    with pytest.raises(TecError, match=r"no row .*'other' of some product on H200"):
        found["other"]


def test_figures_of_the_machine_count_before_its_family():
    known = [figures.of("few packed rows", Target(chip)) for chip in ("7900xtx", "9070xt", "mi300x")]
    assert [f.count("wide") for f in known] == [64, 32, 64] and [f.count("most_rows") for f in known] == [64, 64, 64]


@pytest.mark.parametrize("row", figures.shipped(), ids=lambda r: r.place)
def test_a_figure_that_ships_is_read_by_its_template(row):
    """Its name stands in a file that names the template too, or in one whose templates take it from it."""
    texts = [p.read_text("utf-8") for p in sorted(CHOICES.rglob("*.py"))]
    for name in row.figures:
        assert any(f'"{name}"' in text for text in texts), name
    assert any(f'"{row.template}"' in text for text in texts), row.template


class Drawn:
    """An expression with the value that Python gives it; None for what an unknown makes unknown."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.features = {f"x{k}": rng.randint(-3, 40) for k in range(3)}

    def number(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.4:
            return self.rng.choice([*self.features, str(self.rng.randint(0, 20)), "-2", "0.5"])
        op = self.rng.choice(("+", "-", "*", "//", "%", "/"))
        right = str(self.rng.randint(1, 9)) if op in ("//", "%", "/") else self.number(depth - 1)
        return f"({self.number(depth - 1)} {op} {right})"

    def truth(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.3:
            parts = [self.number(2) for _ in range(self.rng.randint(2, 3))]
            text = parts[0]
            for p in parts[1:]:
                text += f" {self.rng.choice(('<', '<=', '>', '>=', '==', '!='))} {p}"
            return text
        if self.rng.random() < 0.2:
            return f"not ({self.truth(depth - 1)})"
        return f"({self.truth(depth - 1)}) {self.rng.choice(('and', 'or'))} ({self.truth(depth - 1)})"


def test_conditions_mean_what_python_means():
    held = 0
    for k in range(400):
        d = Drawn(random.Random(seeds.stream(f"conditions {k}")))
        text = d.truth(3)
        expected = eval(text, {"__builtins__": {}}, d.features)
        condition = Condition(text)
        assert condition.holds(d.features) is expected, text
        assert condition.names <= d.features.keys()
        held += expected
    assert 40 < held < 360


def test_of_what_is_unknown_only_what_it_cannot_change_holds():
    for k in range(200):
        d = Drawn(random.Random(seeds.stream(f"unknown {k}")))
        condition = Condition(d.truth(3))
        if condition.holds({**d.features, "x0": None}):  # then whatever it is
            assert all(condition.holds({**d.features, "x0": v}) for v in range(-5, 50))


def test_a_compiler_with_other_rules_is_another_compiler(monkeypatch, tmp_path):
    folder = tmp_path / "some_frontend"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cache.frontends, "modules", lambda: ["some_frontend"])
    before = cache._source_stamp()
    assert cache._source_stamp() == before
    (folder / "rules.jsonl").write_text("{}")
    assert cache._source_stamp() != before
