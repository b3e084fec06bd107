"""Each tutorial runs as a script: their own assertions are the test.

The gate runs one of them so, and all of them cell by cell where `make docs` draws their pages.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thinned import thinned_rows
from tools.render_tutorials import cells, render

# These load a trained network from a package registry on first use: run where it is there already.
NEEDS = {"12_super_resolution": "esrgan_slim_x4.onnx"}

TUTORIALS = sorted((Path(__file__).resolve().parents[3] / "tutorials").glob("[0-9][0-9]_*.py"))


# Training compiles a hundred expressions; tests/unit/array has the parts, and the site runs all pages.
LONG = ("22_gradients",)


@thinned_rows(1, "path", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem in LONG)) for p in TUTORIALS])
def test_runs(path: Path, tmp_path: Path) -> None:
    needed = path.parents[1] / ".models" / NEEDS.get(path.stem, "")
    if not needed.exists():
        pytest.skip(f"{needed.name} is not there; `make networks` makes it")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TEC_EMULATE")}
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    assert done.stdout.strip()


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_form(path: Path) -> None:
    found = cells(path.read_text())
    assert found[0].kind == "markdown" and found[0].text.startswith("# ")
    assert sum(c.kind == "code" for c in found) >= 2


def test_render_shows_real_output() -> None:
    text = '# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nx = 20 + 22\nprint("got", x)\n\n# %%\ny = x\n'
    page = render(text, "t")
    assert page.startswith("# Title\n\nWords.") and "```python\nx = 20 + 22" in page
    assert "```text\ngot 42\n```" in page and page.count("```text") == 1


def test_render_fails_where_a_cell_does() -> None:
    with pytest.raises(ZeroDivisionError):
        render("# %%\n1 / 0\n", "t")


def test_a_network_that_cannot_be_fetched_leaves_a_page_that_says_so(tmp_path, monkeypatch) -> None:
    from tools import archives, render_tutorials

    script = tmp_path / "t.py"
    script.write_text(
        "# %% [markdown]\n# # Title\n\n# %%\nfrom tools import archives\narchives.npm_archive('p', 'p.tgz')\n\n"
        "# %% [markdown]\n# ![the picture](made.png)\n"
    )
    monkeypatch.setattr(archives, "ROOT", tmp_path / "models")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert render_tutorials.main([str(tmp_path / "out"), str(script)]) == 0
    page = (tmp_path / "out" / "t.md").read_text()
    assert (
        page.startswith("# Title")
        and "there is no npm here" in page
        and "(the picture)" in page
        and "made.png" not in page
    )
