"""The site's parts are there: pages of the navigation, tutorials, modules of the API pages; and it builds without a warning."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = re.findall(r":\s(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
MODULES = [m for p in (ROOT / "docs" / "api").glob("*.md") for m in re.findall(r"^::: (\S+)$", p.read_text(), re.M)]


def test_navigation() -> None:
    written = [p for p in PAGES if not p.startswith("tutorials/")]
    assert len(written) > 10 and [p for p in written if not (ROOT / "docs" / p).exists()] == []
    there = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    assert {p for p in there if not p.startswith("tutorials/")} == set(written)
    tutorials = {f"tutorials/{p.stem}.md" for p in (ROOT / "tutorials").glob("[0-9][0-9]_*.py")}
    assert {p for p in PAGES if p.startswith("tutorials/")} == tutorials


@pytest.mark.parametrize("name", MODULES)
def test_api_pages_name_what_is_there(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("page", ["quickstart.md", "commandline.md"])
def test_commands_on_pages_exist(page: str) -> None:
    from tec.cli.app import COMMANDS

    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)
    named = re.findall(r"^tec ([a-z]+)", "\n".join(blocks), re.M)
    assert named and set(named) <= set(COMMANDS)


def test_the_program_on_the_first_page_runs() -> None:
    import numpy as np

    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.S)
    assert code is not None
    space: dict[str, object] = {}
    exec(code[1].replace('print(add.get_source("asm"))', ""), space)
    assert np.all(space["c"].numpy() == 2)


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    subprocess.run(
        [sys.executable, "-m", "tools.render_tutorials", "docs/tutorials"], check=True, timeout=600, cwd=ROOT
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "site" / "tutorials" / "03_matmul" / "index.html").exists()
