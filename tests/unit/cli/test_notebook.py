"""What notebooks show: well-formed HTML with everything escaped, for schedules, loop IR, graphs, networks."""

from __future__ import annotations

import html.parser

import pytest

import tec
from tec import notebook
from tec.graph import Graph

_VOID = {"br", "hr", "img", "path", "rect", "line"}


class _Check(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(markup: str) -> str:
    """The text of well-formed markup."""
    check = _Check()
    check.feed(markup)
    assert check.open == []
    return check.text


@pytest.fixture(scope="module")
def program():
    a = tec.placeholder((64, 8), name="A")
    b = tec.compute((64, 8), lambda i, j: tec.if_then_else(a[i, j] < 0.0, 0.0, a[i, j]), name="B")
    return a, b, tec.create_schedule(b.op)


def test_schedule_and_ir(program):
    a, b, s = program
    assert str(s) in shown(s._repr_html_())
    module = tec.lower(s, [a, b], simple_mode=True, name="relu")
    assert str(module) in shown(module._repr_html_()) and "<b>for</b>" in module._repr_html_()
    assert str(module["relu"]) in shown(module["relu"]._repr_html_())


def test_code_escapes_and_cuts():
    text = shown(notebook.code("x = '<script>'  # a & b < c\n" + "y\n" * 1000))
    assert "x = '<script>'  # a & b < c" in text and "more lines" in text
    assert "<script>" not in notebook.code("<script>")


def test_graph_and_network():
    g = Graph("g")
    x = g.input("x<y", "float32", (4, 4))
    (y,) = g.add("exp", [x])
    (z,) = g.add("add", [x, y])
    g.set_outputs([z, y], ["z", "y&"])
    text = shown(g._repr_html_())
    assert "x<y" in text and "exp" in text and "y&" in text
    assert g._repr_html_().count('class="edge"') == 5
    net = tec.compile(g, target="llvm", cache=False)
    text = shown(net._repr_html_())
    assert all(f in text for f in net.report["functions"])
    assert Graph("empty")._repr_html_()


def test_layers_go_down():
    svg = notebook.layered_svg({0: ("in", "", ""), 1: ("f", "", "f"), 2: ("g", "", "g")}, {(0, 1), (1, 2), (0, 2)})
    import re

    tops = [float(m) for m in re.findall(r'<rect x="[\d.-]+" y="([\d.]+)"', svg)]
    assert tops == sorted(tops) and len(set(tops)) == 3
