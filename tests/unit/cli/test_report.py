"""The report page: what is in it, that it needs nothing from outside, and that a browser can click through it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest


@pytest.fixture
def report(tec_cli, package, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    got = tec_cli("show", package, "--html", path)
    assert got.exit_code == 0, got.output
    return path


def _data(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def test_page_holds_every_kernel_and_nothing_from_outside(report):
    page = report.read_text()
    assert "@@" not in page.replace("@@attrs", "")
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|fetch\(", page)
    data = _data(page)
    assert len(data["kernels"]) >= 4
    for k in data["kernels"]:
        assert all(f"= {op}(" in k["source"] for op in k["ops"]) and k["source"].count("\n") == len(k["ops"]) - 1
        assert k["ir"] and k["llvm"] and k["asm"] and k["us"] > 0 and k["flops"] > 0
        assert f'data-kernel="{k["name"]}"' in page and f'data-function="{k["function"]}"' in page
    assert data["roofs"]["peaks"]["matrix f32"] == pytest.approx(163.4e3, rel=0.01)


def test_without_times(tec_cli, package, tmp_path, in_browser):
    path = tmp_path / "r.html"
    assert tec_cli("show", package, "--html", path, "--no-measure").exit_code == 0
    script = """return [[...document.querySelectorAll('#kernels th')].map(t => t.textContent), document.getElementById('name').textContent,
        [...document.querySelectorAll('#kernels tbody tr')].map(r => r.dataset.kernel)];"""
    heads, chosen, rows = in_browser(path.read_text(), script)
    assert {"time, us", "share"}.isdisjoint(heads) and "MFLOP ↓" in heads  # the largest first
    assert chosen == rows[0] == max(_data(path.read_text())["kernels"], key=lambda k: k["flops"])["name"]
    assert all(k["us"] is None for k in _data(path.read_text())["kernels"]) and "not measured" in path.read_text()


_CLICKS = """
const said = [];
const click = e => e.dispatchEvent(new MouseEvent("click", {bubbles: true}));
const name = () => document.getElementById("name").textContent;
for (const g of document.querySelectorAll(".step")) { click(g); said.push([g.dataset.function, name(), document.querySelectorAll(".step.on").length]); }
for (const c of document.querySelectorAll(".dot")) { click(c); said.push([c.dataset.kernel, name(), document.querySelectorAll(".dot.on").length]); }
const rows = () => [...document.querySelectorAll("#kernels tbody tr")].map(r => r.dataset.kernel);
click(document.querySelector("#kernels th")); const down = rows();
click(document.querySelector("#kernels th")); const up = rows();
click(document.querySelectorAll("#kernels tbody tr")[0]);
const pres = [...document.querySelectorAll("#codes pre")].map(p => p.textContent.slice(0, 400));
click(document.querySelector("#codes button"));
const visible = [...document.querySelectorAll("#codes > div")].filter(d => d.offsetParent !== null).length;
const source = document.getElementById("source").textContent;
return {source, said, down, up, first: name(), pres, visible};
"""


def test_a_browser_clicks_through_it(report, in_browser):
    got = in_browser(report.read_text(), _CLICKS)
    assert len(got["said"]) == 2 * len(_data(report.read_text())["kernels"])
    for wanted, shown, on in got["said"]:
        assert shown.startswith(wanted) and on == 1
    assert got["down"] == sorted(got["down"], reverse=True) and got["up"] == sorted(got["down"])
    assert got["first"] == got["up"][0] and got["visible"] == 1
    ir, llvm, asm = got["pres"]
    assert (
        f"def {got['first']}(" in ir
        and f"define amdgpu_kernel void @{got['first']}(" in llvm
        and f"\n{got['first']}:" in asm
    )
    assert got["source"] == next(k["source"] for k in _data(report.read_text())["kernels"] if k["name"] == got["first"])


@pytest.mark.parametrize("width", [500, 800, 1200, 1500, 2000])
def test_the_page_fits_its_window(report, in_browser, width):
    """Nothing runs out of the window sideways, at a phone's width or a desk's, and all parts have room."""
    got = in_browser(
        report.read_text(),
        """return {wide: document.documentElement.scrollWidth - innerWidth,
        sizes: ["graphbox", "roofline", "tablebox", "detail"].map(n => { const b = document.getElementById(n).getBoundingClientRect(); return Math.min(b.width, b.height); }),
        middle: (b => [b.scrollLeft, (b.scrollWidth - b.clientWidth) / 2])(document.getElementById("graphbox")),
        panes: [...document.querySelectorAll("#codes pre")].map(p => p.getBoundingClientRect().width)};""",
        width,
    )
    assert abs(got["middle"][0] - got["middle"][1]) <= 1
    assert got["wide"] <= 0 and min(got["sizes"]) > 140 and min(got["panes"]) > 290


def test_a_cpus_ceilings_are_measured(tec_cli, tiny, tmp_path):
    from tec.cli.host_peak import fma_gflops

    one = fma_gflops()
    assert 1 < one < 1000  # GFLOP/s of a core
    path = tmp_path / "cpu.html"
    assert tec_cli("show", tiny, "--html", path, "--input-dim", "batch", 1).exit_code == 0
    page = path.read_text()
    roofs = _data(page)["roofs"]
    assert roofs["source"].startswith("measured") and roofs["source"].split(":")[0] in page
    import tec

    assert roofs["peaks"]["vector f32"] == pytest.approx(tec.cpu().compute_units * one, rel=0.7) and roofs["gbps"] > 0.1
