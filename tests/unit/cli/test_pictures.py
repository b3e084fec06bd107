"""The README: its picture is made from a program that runs, its links lead somewhere, it is short (tests/docs runs its programs)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def test_the_picture_shows_what_the_program_gives() -> None:
    from tools import pictures

    text = pictures.pipeline()
    shown = "".join(ElementTree.fromstring(text).itertext())
    for part in ("tec.compute((N,), lambda i: A[i] * 2.0 + B[i]", "# threadIdx.x", "launch_index(", "global_load_dwordx4", "s_endpgm",
                 "results right", "spills", "100% coalesced"):  # fmt: skip
        assert part in shown, part
    for word in re.findall(r"[xy]\d?=\"(-?[\d.]+)\"", text):
        assert 0 <= float(word) <= 2000
    # The committed picture is this one, numbers and registers apart.
    names = {"pipeline.svg", "architecture.svg", "schedule.svg", "report.png"}
    assert names <= {p.name for p in (ROOT / "docs" / "pictures").iterdir()}
    kept = (ROOT / "docs" / "pictures" / "pipeline.svg").read_text()
    code = pictures.source().splitlines()
    assert all(line.strip() in "".join(ElementTree.fromstring(kept).itertext()) for line in code)


def test_long_lines_are_broken_after_operators() -> None:
    from tools.pictures import wrapped

    lines = wrapped(
        "    C[ramp(a * 1024, 1, 4)] = A[ramp(a * 1024, 1, 4)] * broadcast(2.0, 4) + B[ramp(a * 1024, 1, 4)]", 60
    )
    assert all(len(line) <= 60 for line in lines) and lines[0].endswith("=") and len(lines) >= 3


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose)
    assert [w for w in links if not w.startswith("http") and not (ROOT / w).exists()] == []


def test_the_readme_opens_with_words_a_picture_and_two_commands() -> None:
    words, picture, demo, test = (README.index(w) for w in ("tec is a compiler", "![", "make demo", "make test"))
    assert words < picture < demo < test
    assert len(re.findall(r"[.!?]\s", README[words:picture])) <= 4
    assert (ROOT / re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)[0]).exists()


def test_the_readme_is_short_in_lines_that_are_short() -> None:
    seen = re.sub(r"<!--.*?-->", "", README, flags=re.S)
    assert len(seen.splitlines()) <= 120
    own = re.sub(r"^```text.*?^```", "", seen, flags=re.M | re.S)  # what programs print is as wide as it is
    prose = [line for line in own.splitlines() if not line.startswith(("|", "!["))]
    assert [line for line in prose if len(line) >= 100] == []


def test_the_architecture_shows_every_pass() -> None:
    from tec.driver import PIPELINE, short_name
    from tools import pictures

    text = pictures.architecture()
    shown = "".join(ElementTree.fromstring(text).itertext())
    assert all(short_name(name) in shown for name, _ in PIPELINE)
    for package in (
        "tec_onnx",
        "tec.graph",
        "tec.ops",
        "tec.te",
        "tec.schedule",
        "tec.codegen",
        "tec.runtime",
        "tec.emulator",
    ):
        assert package in shown


def test_pictures_draw_in_place(in_browser) -> None:
    """As a browser lays them out: no words outside of the box they stand in, none over others."""
    from tools import pictures

    script = """
    const bad = [], texts = [...document.querySelectorAll("svg text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    const boxes = [...document.querySelectorAll("svg rect")].filter(b => !b.classList.contains("bar")).map(b => b.getBoundingClientRect());
    for (const [words, t] of texts) {
      const mine = boxes.filter(b => t.left >= b.left && t.left <= b.right && t.top >= b.top - 1 && t.bottom <= b.bottom + 1);
      if (!mine.length || mine.some(b => t.right > b.right)) bad.push(words);
    }
    texts.forEach(([words, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5) bad.push(words + " / " + other);
    }));
    return bad;"""
    for text in (pictures.pipeline(), pictures.architecture(), pictures.schedule()):
        assert in_browser(f"<!doctype html><meta charset=utf-8><body>{text}</body>", script, 1400) == []


def test_the_figures_stay_within_their_picture(in_browser) -> None:
    """No words leave the picture, none lie over others."""
    from tools import readme_figures

    script = """
    const page = document.querySelector("rect.page").getBoundingClientRect(), bad = [];
    const texts = [...document.querySelectorAll("svg text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    for (const [words, t] of texts) if (t.left < page.left || t.right > page.right || t.bottom > page.bottom) bad.push(words);
    texts.forEach(([words, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5) bad.push(words + " / " + other);
    }));
    return bad;"""
    drawn = readme_figures.PICTURE.read_text("utf-8")
    assert in_browser(f"<!doctype html><meta charset=utf-8><body>{drawn}</body>", script, 1400) == []
