"""What notebooks show: well-formed HTML with everything escaped, for schedules, loop IR, graphs, networks."""

from __future__ import annotations

import html.parser

import pytest

import tec
from tec import notebook
from tec.graph import Graph
from tec.ir.notes import Note, registered

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


def test_stage_module_and_time(program):
    import numpy as np

    a, b, s = program
    assert str(s[b]) in shown(s[b]._repr_html_())
    f = tec.build(s, [a, b], "llvm", name="relu")
    text = shown(f._repr_html_())
    assert "relu(A: float32(64, 8), B: float32(64, 8))" in text and f.get_source("ir").splitlines()[-1] in text
    x = np.ones((64, 8), "float32")
    took = f.time_evaluator("relu", tec.cpu(), number=2, repeat=3)(x, np.empty_like(x))
    text = shown(took._repr_html_())
    assert str(took) in text and text.count(" us") >= 3


def plus():
    """a + 1 of 256 elements, in four work-groups."""
    a = tec.placeholder((256,), name="A")
    b = tec.compute((256,), lambda i: a[i] + 1.0, name="B")
    s = tec.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=64)
    s[b].bind(outer, tec.thread_axis("blockIdx.x"))
    s[b].bind(inner, tec.thread_axis("threadIdx.x"))
    return tec.build(s, [a, b], "rocm -mcpu=gfx942", name="plus")


def test_a_gpus_module_shows_its_kernels():
    text = shown(plus()._repr_html_())
    assert "plus_kernel0" in text and "VGPRs" in text and "64 x 1 x 1" in text


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
    assert all(f in text for f in net.report.functions)
    assert Graph("empty")._repr_html_()


def test_a_profile_has_a_bar_for_each_kernel(program):
    import numpy as np

    a, b, s = program
    f = tec.build(s, [a, b], "llvm", name="relu")
    x = np.ones((64, 8), "float32")
    with tec.profile(tec.cpu()) as p:
        f(x, np.empty_like(x))
    text = shown(p._repr_html_())
    assert text.count("relu") == 2 and "100.0%" in text and "share" in text
    with tec.profile(tec.cpu()) as nothing:
        pass
    assert "kernel" in shown(nothing._repr_html_())


def test_the_software_gpus_profile_has_a_row_for_each_launch():
    import numpy as np

    from tec.emulator import emulator_profile

    f = plus()
    dev = tec.rocm_emu("gfx942")
    x, y = tec.nd.array(np.ones(256, "float32"), dev), tec.nd.empty((256,), "float32", dev)
    with emulator_profile(dev.driver) as p:
        f(x, y)
        f(x, y)
    text = shown(p._repr_html_())
    assert (
        text.count("plus_kernel0") == 4 and "VMEM" in text and "4x1x1" in text and p.launches[0].estimate.limit in text
    )


def scheduled():
    """Every kind of loop, stages in loops of others, and names too long for a row."""
    a = tec.placeholder((64, 64), name="a_rather_long_name_of_a_tensor")
    k = tec.reduce_axis((0, 64), name="k")
    b = tec.compute((64, 64), lambda i, j: tec.sum(a[i, k] * 2.0, axis=k), name="B")
    s = tec.create_schedule(b.op)
    shared = s.cache_read(a, "shared", [b])
    i, j = b.op.axis
    bx, i = s[b].split(i, factor=16)
    tx, i = s[b].split(i, factor=4)
    jo, ji = s[b].split(j, factor=4)
    s[b].bind(bx, tec.thread_axis("blockIdx.x"))
    s[b].bind(tx, tec.thread_axis("threadIdx.x"))
    s[b].vectorize(ji)
    s[b].unroll(jo)
    s[shared].compute_at(s[b], i)
    word = "a_pragma_whose_name_is_so_long_that_it_takes_a_row_of_its_own_under_its_loop"
    with registered(word, type("Long", (Note,), {})):
        s[b].pragma(i, word)
    return s


def test_boxes_of_a_schedule_stand_in_their_loops():
    from tec.notebook import nest_svg

    s = scheduled()
    svg = nest_svg(str(s))
    text = shown(svg)
    for line in str(s).splitlines():
        words, _, notes = line.strip().partition("  # ")
        if not words.endswith(": placeholder"):
            assert words.replace(": ", "  ") in text and notes in text, line
    for name in ("work-groups", "threads", "vector", "unrolled", "reduction"):
        assert name in text
    assert "matrix unit" not in text and nest_svg("") == ""


_IN_PLACE = """
const bad = [], close = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
for (const svg of document.querySelectorAll("svg")) {
  const around = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([words, box]) => { if (!close(box, around)) bad.push(["outside", words]); });
  texts.forEach(([words, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) bad.push(["over", words, other]);
  }));
}
return {bad, svgs: document.querySelectorAll("svg").length, texts: document.querySelectorAll("svg text").length,
        sizes: [...document.querySelectorAll("svg")].map(s => [s.getBoundingClientRect().width > 100, s.getBoundingClientRect().height > 30])};
"""


def test_a_browser_draws_all_of_it_in_place(in_browser, program):
    """Words stand inside of their pictures and not over each other, as the browser lays them out."""
    import numpy as np

    g = Graph("g")
    x = g.input("x", "float32", (4, 4))
    (y,) = g.add("exp", [x])
    (z,) = g.add("add", [x, y])
    g.set_outputs([z], ["a_name_for_an_output_that_is_longer_than_the_box_in_which_it_stands"])
    net = tec.compile(g, target="llvm", cache=False)
    with tec.profile(tec.cpu()) as p:
        net.run([np.ones((4, 4), "float32")])
    parts = [scheduled(), program[2], g, p, net]
    page = "<!doctype html><meta charset=utf-8><body>" + "".join(x._repr_html_() for x in parts) + "</body>"
    got = in_browser(page, _IN_PLACE)
    assert got["bad"] == [] and got["svgs"] == 4 and got["texts"] > 30 and all(all(s) for s in got["sizes"])


def test_layers_go_down():
    svg = notebook.layered_svg({0: ("in", "", ""), 1: ("f", "", "f"), 2: ("g", "", "g")}, {(0, 1), (1, 2), (0, 2)})
    import re

    tops = [float(m) for m in re.findall(r'<rect x="[\d.-]+" y="([\d.]+)"', svg)]
    assert tops == sorted(tops) and len(set(tops)) == 3
