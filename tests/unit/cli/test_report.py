"""The report page: what is in it, that it needs nothing from outside, and that a browser can work with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tec
from tec.choices import strictly
from tec.errors import TecWarning
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.report.graph import repeats
from tec.report.limits import dots, limit_of
from tec.report.listing import refusals_of
from tec.report.page import read_page
from tests.unit.choices.test_chain import network, plant, raises


@pytest.fixture
def report(tec_cli, package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network's page, which all tests read and none writes."""
    path = tmp_path_factory.getbasetemp() / "report.html"
    if not path.exists():
        got = tec_cli("show", package, "--html", path)
        assert got.exit_code == 0, got.output
    return path


@pytest.fixture(scope="module")
def layered():
    """Eight equal layers with a residual each, and the input once more at the end: what is folded, and edges that skip."""
    g = Graph("layers")
    b = Builder(g)
    rng = np.random.default_rng(0)
    x = h = g.input("x", "float32", (4, 16))
    for _ in range(8):
        y = b.op("matmul", h, b.const(rng.standard_normal((16, 16)).astype("float32")))
        h = b.op("add", b.op("softmax", b.op("tanh", y), axes=(1,)), h)
    g.set_outputs([b.op("matmul", b.op("add", h, x), b.const(np.ones((16, 2), "float32")))], ["y"])
    return tec.compile(g, target="llvm", cache=False)


def test_page_holds_every_kernel_and_nothing_from_outside(report):
    page = report.read_text()
    assert "@@" not in page.replace("@@attrs", "")
    assert not re.search(r"(?:src|href)\s*=\s*[\"']|url\(|@import|fetch\(", page)
    data = read_page(report)
    assert len(data["kernels"]) >= 4
    for k in data["kernels"]:
        assert all(f"= {op}(" in k["source"] for op in k["ops"]) and k["source"].count("\n") == len(k["ops"]) - 1
        assert k["ir"] and k["llvm"] and k["asm"] and k["us"] > 0 and k["flops"] > 0
        assert f"\n{k['name']}:" in k["asm"] and ".loc" not in k["asm"] and "!dbg" not in k["llvm"]
    assert data["roofs"]["peaks"]["matrix f32"] == pytest.approx(163.4e3, rel=0.01)
    # Reached, not the data sheet's 5300.
    assert data["roofs"]["gbps"] == 4200 and data["where"].endswith("of the MI300X (gfx942)")


def test_texts_are_linked_with_registers_and_stalls_beside(report):
    found = 0
    for k in read_page(report)["kernels"]:
        ir, llvm, asm = (k[t].splitlines() for t in ("ir", "llvm", "asm"))
        assert len(k["of_llvm"]) == len(llvm) and len(k["of_asm"]) == len(k["live"]) == len(k["held"]) == len(asm)
        stores = [n for n, line in enumerate(asm) if re.match(r"\s+(global|buffer)_store", line)]
        known = [n for n in stores if k["of_asm"][n]]  # LLVM leaves a store that it made of several without a line
        found += len(known)
        for n in known:  # what a store is of: a store of LLVM's, and the loop IR's assignment to an output
            made = llvm[k["of_asm"][n] - 1]
            assert "store" in made
            assert re.search(r"\] = |^\s*store\(", ir[k["of_llvm"][k["of_asm"][n] - 1] - 1])
        assert 0 < max(k["live"]) <= k["vgprs"]
        assert 0 < sum(k["held"]) <= 1000 + len(asm)
    assert found >= 4


def test_limits_agree_with_where_dots_are(report):
    data = read_page(report)
    roofs = data["roofs"]
    for k in data["kernels"]:
        if k["dots"] and k["limit"] in roofs["levels"]:
            roof = roofs["levels"][k["limit"]] * k["dots"]["traffic"]
            assert k["flops"] / k["us"] / 1e3 / roof == pytest.approx(k["share"], rel=0.05)


@pytest.mark.parametrize(
    "us,flops,moved,limit",
    [(10.0, 1e6, 8e5, "memory"), (10.0, 4e6, 1e5, "arithmetic"), (100.0, 1e6, 1e5, "neither"), (1.0, 1e5, 8e5, "caches"), (None, 1e6, 1e6, "")],
)  # fmt: skip
def test_limits_of_measured_times(us, flops, moved, limit):
    roofs = {"gbps": 100.0, "peaks": {"vector f32": 500.0}, "levels": {}}
    row = {"us": us, "flops": flops, "bytes": moved, "limit": "", "traffic": {}}
    found, share = limit_of(row, roofs, {})
    assert found == limit and (share is None or 0 <= share <= 1)
    at = dots(row, found)
    assert at is not None and at["arguments"] == flops / moved and at["traffic"] is None


def test_layers_that_repeat_are_found():
    assert repeats(list("xabababy")) == [(1, 2, 3)]
    assert repeats(list("abcabcabcabcd")) == [(0, 3, 4)]
    assert repeats(list("aab")) == [] and repeats(list("aaab")) == [(0, 1, 3)]
    block = list("abcd")
    assert repeats([*block * 5, "t", *block * 11]) == [(0, 4, 5), (21, 4, 11)]
    assert repeats(list(range(30)) * 2) == []  # the whole network twice is no layer


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a network whose default was refused in every function, with a reason that has markup in it."""
    plant(monkeypatch, raises(KeyError("<b>rows</b></script>")))
    path = tmp_path / "refused.tec"
    with strictly(False), pytest.warns(TecWarning, match="the default schedule cannot be made"):
        tec.compile(network(), "llvm -mcpu=x86-64-v3", cache=False).save(str(path))
    return path


def test_refused_choices_stand_on_the_page_and_on_the_terminal(tec_cli, refused, tmp_path):
    net = tec.load(str(refused))
    lines = refusals_of(net)
    assert len(lines) == sum(map(len, net.report.refused.values())) > len(net.report.refused) > 1
    shown = tec_cli("show", refused)
    assert shown.exit_code == 0 and all(line in shown.output.splitlines() for line in lines)
    told = json.loads(tec_cli("show", refused, "--json").output)["refused"]
    assert told == net.report.refused
    path = tmp_path / "page.html"
    assert tec_cli("show", refused, "--html", path, "--no-measure").exit_code == 0
    data, page = read_page(path), path.read_text()
    assert ["choices refused", f"{len(lines)}, of {len(net.report.refused)} functions"] in data["facts"]
    for kernel in data["kernels"]:
        said = [v for name, v in kernel["facts"] if name == "choice refused"]
        assert said == refusals_of(net, kernel["function"]) and "<b>rows</b></script>" in said[0]
    assert "<b>rows" not in page  # a reason is text: no element of the page, and no end of its script


def test_a_page_without_refusals_has_no_line_of_them(report):
    data = read_page(report)
    facts = [name for some in (data["facts"], *(k["facts"] for k in data["kernels"])) for name, _ in some]
    assert facts and not [f for f in facts if "refused" in f]


def test_a_browser_shows_why_a_choice_was_refused(tec_cli, refused, tmp_path, in_browser):
    path = tmp_path / "page.html"
    assert tec_cli("show", refused, "--html", path, "--no-measure").exit_code == 0
    script = """return [[...document.querySelectorAll("#about dt, #about dd, #facts dt, #facts dd")].map(e => e.textContent),
        document.querySelectorAll("#facts b").length];"""
    texts, bold = in_browser(path.read_text(), script)
    assert "choices refused" in texts and bold == 0
    assert "refused at build: KeyError: '<b>rows</b></script>'" in texts[texts.index("choice refused") + 1]


def test_without_times(tec_cli, package, tmp_path, in_browser):
    path = tmp_path / "r.html"
    assert tec_cli("show", package, "--html", path, "--no-measure").exit_code == 0
    script = """return [[...document.querySelectorAll('#kernels th')].map(t => t.textContent), document.getElementById('name').textContent,
        [...document.querySelectorAll('#kernels tbody tr')].map(r => r.dataset.kernel)];"""
    heads, chosen, rows = in_browser(path.read_text(), script)
    assert {"time, us", "share"}.isdisjoint(heads) and "MFLOP ↓" in heads  # the largest first
    data = read_page(path)
    assert chosen == rows[0] == max(data["kernels"], key=lambda k: k["flops"])["name"]
    assert all(k["us"] is None for k in data["kernels"]) and ["time", "not measured"] in data["facts"]


_CLICKS = """
const said = [];
const click = e => e.dispatchEvent(new MouseEvent("click", {bubbles: true}));
const name = () => document.getElementById("name").textContent;
for (const g of document.querySelectorAll(".step")) { click(g); said.push([g.dataset.function, name(), document.querySelectorAll(".box.on").length]); }
for (const d of [...document.querySelectorAll(".dot")].map(d => d.dataset.kernel)) {
  click(document.querySelector(`.dot[data-kernel=${d}]`)); said.push([d, name(), document.querySelectorAll(".dot.on").length]);
}
const rows = () => [...document.querySelectorAll("#kernels tbody tr")].map(r => r.dataset.kernel);
click(document.querySelector("#kernels th")); const down = rows();
click(document.querySelector("#kernels th")); const up = rows();
click(document.querySelectorAll("#kernels tbody tr")[0]);
const texts = [...document.querySelectorAll("#codes ol")].map(p => [...p.querySelectorAll("code")].map(c => c.textContent).join("\\n"));
const stored = [...document.querySelectorAll("#codes [data-kind=asm] li")].find(l => /global_store|buffer_store/.test(l.textContent));
click(stored);
const lit = [...document.querySelectorAll("#codes li.on, #codes li.near")].map(l => [l.closest("[data-kind]").dataset.kind, l.querySelector("code").textContent]);
click(document.querySelector("#codes button"));
const visible = [...document.querySelectorAll("#codes > div")].filter(d => d.offsetParent !== null).length;
const heads = () => document.querySelectorAll("#kernels th").length, before = heads();
document.querySelector("#columns input:not(:checked)").click();
const source = document.getElementById("source").textContent;
return {source, said, down, up, first: name(), texts, lit, visible, heads: [before, heads()]};
"""


def test_a_browser_clicks_through_it(report, in_browser):
    got = in_browser(report.read_text(), _CLICKS)
    kernels = read_page(report)["kernels"]
    assert len(got["said"]) == 2 * len(kernels)
    for wanted, shown, on in got["said"]:
        assert shown.startswith(wanted) and on == 1
    assert got["down"] == sorted(got["down"], reverse=True) and got["up"] == sorted(got["down"])
    assert got["first"] == got["up"][0] and got["visible"] == 1
    chosen = next(k for k in kernels if k["name"] == got["first"])
    assert got["texts"] == [chosen["ir"], chosen["llvm"], chosen["asm"]]
    assert {kind for kind, _ in got["lit"]} == {"ir", "llvm", "asm"}
    assert any("store" in text for kind, text in got["lit"] if kind == "llvm")
    assert got["source"] == chosen["source"] and got["heads"][1] == got["heads"][0] + 1


def test_launches_memory_and_candidates(tec_cli, tiny, report, tmp_path):
    """What only the host's programs, the plan and the model's graph say."""
    data = read_page(report)
    assert data["units"] == {"name": "MI300X", "units": 304, "word": "compute units"}
    for k in data["kernels"]:
        said = dict(k["facts"])
        assert k["groups"] >= 1 and k["busy"] == pytest.approx(min(1.0, k["groups"] / 304))
        assert said["work-groups"].startswith(f"{k['groups']:,} on 304 units") and said["grid"].count(" x ") >= 2
        assert k["considered"] is None  # a package has no graph
    memory = data["memory"]
    steps = len(data["steps"])
    assert 0 < memory["bound"] <= memory["bytes"] and memory["blocks"]
    for _, _, at, nbytes, first, last in memory["blocks"]:
        assert 0 <= at and at + nbytes <= memory["bytes"] and 0 <= first <= last <= steps
    for k, a in enumerate(memory["blocks"]):  # what lives at one time lies apart
        for b in memory["blocks"][:k]:
            if a[4] <= b[5] and b[4] <= a[5]:
                assert a[2] + a[3] <= b[2] or b[2] + b[3] <= a[2]
    path = tmp_path / "model.html"
    words = ("--target", "rocm -mcpu=gfx942", "--input-dim", "batch", 1, "--no-measure")
    assert tec_cli("show", tiny, "--html", path, *words).exit_code == 0
    rows = [k["considered"] for k in read_page(path)["kernels"]]
    assert any(len(c["rows"]) > 2 for c in rows if c)
    for c in rows:
        assert c is not None and [r["chosen"] for r in c["rows"]].count(True) == 1 and c["why"].endswith(".")
        priced = [r["us"] for r in c["rows"] if r["us"] is not None]
        assert priced == sorted(priced)
    assert {s["main"] for s in data["steps"]} & {"conv", "matmul"}


_PANELS = """
const text = id => document.getElementById(id).textContent;
const slices = [...document.querySelectorAll(".slice")], ends = slices.map(r => +r.getAttribute("x") + +r.getAttribute("width"));
slices[1].onclick(); const chosen = [state.node, document.querySelectorAll(".slice.on").length, text("name")];
const by = [...document.getElementById("by").options].map(o => { document.getElementById("by").value = o.value; drawSources(); return [...document.querySelectorAll("#bars .sum")].map(e => parseFloat(e.textContent.split(",").at(-1))); });
document.querySelector("#bars button").click();
const wide = +document.getElementById("timeline").getAttribute("width"); document.getElementById("timein").click();
return {idle: text("idle"), marked: document.querySelectorAll("td.idle").length, chosen, slices: slices.length, inOrder: ends.every((e, k) => !k || e >= ends[k - 1] - 1),
  blocks: document.querySelectorAll(".block").length, by, zoomed: document.getElementById("timeline").getAttribute("width") / wide, choices: document.getElementById("choices").hidden};
"""


def test_a_browser_shows_idle_units_the_timeline_and_sums(report, in_browser):
    data = read_page(report)
    got = in_browser(report.read_text(), _PANELS)
    few = [k for k in data["kernels"] if k["busy"] < 0.5]
    assert (
        few
        and f"{len(few)} of {len(data['kernels'])} kernels leave more than half of the 304 compute units" in got["idle"]
    )
    assert got["marked"] == len(few) and f"{few[0]['groups']} of 304" in got["idle"]
    assert got["slices"] == len(data["steps"]) and got["inOrder"] and got["blocks"] == len(data["memory"]["blocks"])
    first = next(n for n, node in enumerate(data["graph"]["nodes"]) if node["kind"] == "step")
    assert got["chosen"][:2] == [first + 1, 1] and got["chosen"][2].startswith(data["steps"][1]["function"])
    assert got["zoomed"] == pytest.approx(2, rel=0.01) and got["choices"] is True
    for shares in got["by"]:
        assert sum(shares) == pytest.approx(100, abs=1) and shares == sorted(shares, reverse=True)


_FITS = """
const small = [], seen = e => { const b = e.getBoundingClientRect(); return b.width > 0 && getComputedStyle(e).display !== "none"; };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let t; (t = walk.nextNode());) {
  const e = t.parentElement;
  if (e.closest(".code li:nth-child(n+20)")) continue;  // as the first are; each would be laid out for itself
  if (!t.textContent.trim() || /SCRIPT|STYLE|OPTION|TITLE/i.test(e.tagName) || !seen(e)) continue;
  const zoom = e.ownerSVGElement ? e.getScreenCTM().a || Math.hypot(e.getScreenCTM().b, e.getScreenCTM().a) : 1;
  const turned = e.ownerSVGElement ? Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b) : zoom;
  const size = parseFloat(getComputedStyle(e).fontSize) * turned;
  if (size < 11.99) small.push([t.textContent.slice(0, 40), size]);
}
const out = [...document.querySelectorAll("#roofline text")].map(t => [t.textContent, t.getBoundingClientRect()]);
const frame = document.getElementById("roofline").getBoundingClientRect();
return {small, wide: document.documentElement.scrollWidth - innerWidth,
  beyond: out.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1).map(([t]) => t),
  sizes: ["graphbox", "roofplace", "tablebox", "detail"].map(n => { const b = document.getElementById(n).getBoundingClientRect(); return Math.min(b.width, b.height); }),
  stuck: [...document.querySelectorAll("body *")].filter(e => /auto|scroll/.test(getComputedStyle(e).overflow) && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)
    && e.tabIndex < 0 && !e.querySelector("button, a, input, select, summary, [tabindex='0']")).map(e => e.id || e.className),
  over: [...document.querySelectorAll("#timeline text")].filter(t => t.getBoundingClientRect().right > document.getElementById("timeplace").getBoundingClientRect().right + 1).map(t => t.textContent),
  cut: (t => t.scrollWidth - t.clientWidth)(document.getElementById("tablebox")),
  panes: [...document.querySelectorAll("#codes .code")].map(p => p.getBoundingClientRect().width)};
"""


@pytest.mark.parametrize(
    "width", [390, 1440, *(pytest.param(w, marks=pytest.mark.slow) for w in (500, 800, 1200, 2000))]
)
def test_the_page_fits_its_window(report, in_browser, width):
    """Nothing runs out of the window sideways, at a phone's width or a desk's, all parts have room, and no letter is below 12 pixels."""
    # Lines of code that are out of sight are laid out when their size is asked for, each by itself: thousands of layouts. All at once is the same page.
    at_once = "<style>.code li { content-visibility: visible !important; }</style></head>"
    got = in_browser(report.read_text().replace("</head>", at_once, 1), _FITS, width)
    assert got["small"] == [] and got["beyond"] == [] and got["over"] == []
    assert got["wide"] <= 0 and min(got["sizes"]) > 140 and min(got["panes"]) > 290
    assert got["stuck"] == [], "these scroll, and a keyboard does not reach them"
    if width >= 1440:
        assert got["cut"] <= 0, "a column of the table of kernels is out of sight"


_PIECES = """
const lines = () => document.querySelector("#codes [data-kind=asm] .code ol").children, want = byName.get(state.kernel).asm.split("\\n").length;
choose(state.kernel);
const at_first = lines().length;
while (rest.length) await new Promise(r => setTimeout(r, 20));
const later = lines().length;
choose(state.kernel);
pane("asm").querySelector("li.linked").click();
return {want, at_first, later, clicked: lines().length, numbers: [...lines()].every((l, i) => l.querySelector("span").textContent === String(i + 1))};
"""


def test_long_texts_are_made_in_pieces(report, in_browser):
    """A page opens before all lines of a long kernel are made; they come after it, and at once where one is clicked."""
    got = in_browser(report.read_text().replace("const AT_ONCE = 400;", "const AT_ONCE = 5;", 1), _PIECES)
    assert got["at_first"] < got["want"] == got["later"] == got["clicked"] and got["numbers"]


_NAMES = """
roofs.peaks = {"matrix f16": 1307e3, "vector f32": 163e3, "matrix f32": 163e3};  // as a report with products in float16 has them
drawRoofline();
const drawing = document.getElementById("roofline"), crossing = [];
const names = [...drawing.querySelectorAll("text:not(.tick):not(.axis)")].map(t => {  // along each, points of its middle, as the browser lays it out
  const b = t.getBBox(), m = t.getScreenCTM(), at = k => new DOMPoint(b.x + b.width * k / 20, b.y + b.height / 2).matrixTransform(m);
  return {text: t.textContent, turned: t.hasAttribute("transform"), box: t.getBoundingClientRect(), points: [...Array(21).keys()].map(at)};
});
const within = (p, b) => p.x > b.left && p.x < b.right && p.y > b.top + 1 && p.y < b.bottom - 1;
for (const a of names.filter(n => !n.turned)) {
  for (const b of names) if (a !== b && b.points.some(p => within(p, a.box))) crossing.push([a.text, b.text]);
  for (const line of drawing.querySelectorAll("path.roof")) {
    const n = line.getTotalLength(), m = line.getScreenCTM();
    if ([...Array(201).keys()].some(k => within(line.getPointAtLength(n * k / 200).matrixTransform(m), a.box))) crossing.push([a.text, line.getAttribute("d")]);
  }
}
return [names.length, crossing];
"""


@pytest.mark.parametrize("width", [390, 1400])
def test_names_of_the_roofline_stand_apart(report, in_browser, width):
    """No name of a roof lies over another or over a roof."""
    names, crossing = in_browser(report.read_text(), _NAMES, width)
    assert names >= 3 and crossing == []


_GRAPH = """
const rows = () => document.querySelectorAll(".box").length, folded = rows();
const zoom = drawn.scale;
document.getElementById("fold").click(); const all = rows();
const box = (e => e.getBoundingClientRect());
const boxes = [...document.querySelectorAll(".box rect")].map(box), crossing = [];
for (const line of document.querySelectorAll("path.edge:not(.end)")) {  // no line runs through a box
  const n = line.getTotalLength(), m = line.getScreenCTM();
  for (let i = 1; i < 40; i++) {
    const p = line.getPointAtLength(n * i / 40).matrixTransform(m);
    if (boxes.some(b => p.x > b.left + 1 && p.x < b.right - 1 && p.y > b.top + 1 && p.y < b.bottom - 1)) { crossing.push(line.getAttribute("d")); break; }
  }
}
const lanes = drawn.links.filter(l => l.lane >= 0), shared = [];
for (const a of lanes) for (const b of lanes) if (a !== b && a.lane === b.lane && a.from <= b.side.at(-1) && b.from <= a.side.at(-1) && a.from < b.from) shared.push([a.from, b.from]);
const find = document.getElementById("find"); find.value = "softmax"; find.oninput();
const found = document.getElementById("found").textContent, left = document.querySelectorAll("#kernels tbody tr").length;
find.onkeydown(new KeyboardEvent("keydown", {key: "Enter"}));
const at = document.querySelectorAll(".box.on").length, same = document.querySelectorAll(".box.same").length, ofChosen = [state.node, functionOf(state.node)];
const hot = document.querySelectorAll(".hot").length;
find.value = ""; find.oninput();
scaleTo(0.4); const far = [...document.querySelectorAll("#graph text")].filter(t => getComputedStyle(t).display !== "none").length;
scaleTo(1); document.getElementById("scroll").scrollTop = 1e6; window_();
const shown = document.querySelector("#map .window"), end = +shown.getAttribute("y") + +shown.getAttribute("height");
const colours = by => { const c = document.getElementById("colour"); c.value = by; c.onchange(); return new Set([...document.querySelectorAll(".box.step rect")].map(r => r.style.fill)).size; };
return {folded, all, crossing, lanes: lanes.length, shared, found, left, at, same, hot, ofChosen, far, end: end / drawn.height, colours: [colours("time"), colours("limit"), colours("none")], edges: drawn.links.reduce((n, l) => n + l.to.length, 0)};
"""


def test_steps_fold_and_their_edges_keep_apart(layered, in_browser, tmp_path):
    shown = _page(layered, tmp_path)
    data = read_page(shown)
    graph = data["graph"]
    steps = [n for n in graph["nodes"] if n["kind"] == "step"]
    assert graph["repeats"] and sum(r["period"] * r["count"] for r in graph["repeats"]) >= 14
    got = in_browser(shown.read_text().replace("nodes.length > 24", "true"), _GRAPH)
    assert got["folded"] < got["all"] == len(graph["nodes"])
    assert got["crossing"] == [] and got["lanes"] >= 8 and got["shared"] == [] and got["edges"] == len(graph["edges"])
    soft = [s for s in steps if "softmax" in s["title"]]
    assert got["found"] == f"{len(soft)} steps" and got["left"] < len(data["kernels"])
    assert (
        got["at"] == 1
        and got["same"] == len([s for s in steps if data["steps"][s["step"]]["function"] == got["ofChosen"][1]]) - 1
    )
    assert got["hot"] == sum(got["ofChosen"][0] in e for e in graph["edges"])
    assert got["far"] == 0 and got["end"] == pytest.approx(1.0, abs=0.02)
    assert got["colours"][0] > 1 and got["colours"][2] == 1


def _page(net, tmp_path: Path) -> Path:
    return net.show(tmp_path / "page.html", measure=True).path


@pytest.fixture(autouse=True)
def no_browser_opens(monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    return opened


def test_show_opens_the_page(layered, tmp_path, no_browser_opens):
    shown = layered.show(measure=False)
    assert no_browser_opens == [shown.path.resolve().as_uri()] and "<iframe" in shown._repr_html_()
    with pytest.raises(tec.TecError, match="ends in"):
        layered.show(tmp_path / "x.txt")
    with pytest.raises(tec.TecError, match="no open size 'batch'"):
        layered.show(batch=2)


def test_an_open_network_is_shown_at_sizes(tiny, tmp_path):
    net = tec.compile(str(tiny))
    assert "x1x3x8x8" in json.dumps(read_page(net.show(tmp_path / "a.html", measure=False).path)["graph"]).replace(
        "float32 ", "x"
    )
    data = read_page(net.show(tmp_path / "b.html", measure=False, batch=3).path)
    assert "batch = 3" in data["title"] and data["graph"]["nodes"][0]["under"] == "float32 3x3x8x8"


def test_two_reports_are_compared(report, tec_cli, package, tmp_path, in_browser):
    data = read_page(report)
    old = json.loads(json.dumps(data))
    for k in old["kernels"]:
        k["us"] *= 2
        k["name"] = "other_" + k["name"]
    gone = old["kernels"].pop()
    page = report.read_text()
    before = tmp_path / "old.html"
    before.write_text(
        page.replace(
            json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"), json.dumps(old).replace("<", "\\u003c")
        )
    )
    assert read_page(before)["kernels"][0]["us"] == 2 * data["kernels"][0]["us"]
    new = tmp_path / "new.html"
    got = tec_cli("show", package, "--html", new, "--against", before)
    assert got.exit_code == 0, got.output
    script = """return [document.getElementById("comparison").hidden, document.getElementById("compared").textContent,
        [...document.querySelectorAll("#changes tbody tr")].map(r => [...r.children].map(c => c.textContent))];"""
    hidden, words, rows = in_browser(new.read_text(), script)
    assert not hidden and f"{len(old['kernels'])} kernels are of both, 1 only of this, 0 only of the other" in words
    ratios = {r[0]: r[3] for r in rows}
    assert sorted(ratios) == sorted(k["name"].removesuffix("_kernel0") for k in data["kernels"])
    lost = gone["name"].removeprefix("other_").removesuffix("_kernel0")
    assert ratios.pop(lost) == "" and set(ratios.values()) == {"0.50"}
    bad = tec_cli("show", package, "--html", new, "--against", package)
    assert bad.exit_code == 2 and "report" in bad.output


def test_a_cpus_ceilings_are_measured(tec_cli, tiny, tmp_path):
    from tec.report.host_peak import fma_gflops

    one = fma_gflops()
    assert 1 < one < 1000  # GFLOP/s of a core
    path = tmp_path / "cpu.html"
    got = tec_cli("bench", tiny, "--html", path, "--input-dim", "batch", 1, "--runs", 3)
    assert got.exit_code == 0, got.output
    data = read_page(path)
    assert "median of 3 runs" in [name for name, _ in data["facts"]] and data["where"].startswith("measured on")
    assert data["units"] is None and all(k["groups"] is None and k["considered"] for k in data["kernels"])
    roofs = data["roofs"]
    assert roofs["source"].startswith("measured")
    assert roofs["peaks"]["vector f32"] == pytest.approx(tec.cpu().compute_units * one, rel=0.7) and roofs["gbps"] > 0.1
    assert all(k["of_asm"] and k["of_llvm"] and "live" not in k for k in data["kernels"])
