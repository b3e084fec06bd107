"""The Python blocks of README.md and every page of docs/ run, in page order, or say why not."""

from __future__ import annotations

import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages
from tests.docs.pages import run

ROOT = Path(__file__).parents[2]
# Not docs/tutorials: `make docs` draws those pages from tutorials/, whose scripts have tests of their own.
DRAWN = ROOT / "docs" / "tutorials"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if DRAWN not in p.parents),
]
BLOCK = re.compile(r"^```python$", re.M)
SHOWN = re.compile(r'^```text title="prints[^"]*"\n(.*?)^```$', re.M | re.S)  # what a page's programs print
# Pages whose blocks run elsewhere, and where.
ELSEWHERE = {"docs/pytorch.md": "tests/torch/test_page.py"}
# Fences with a title: what they hold, and which test holds it.
TITLED = {
    "docs/amd-kernels.md": "tests/unit/emulator/test_guide.py",
    "docs/primitives.md": "tests/unit/cli/test_primitives_guide.py",
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


WITH_BLOCKS = [name_of(p) for p in PAGES if BLOCK.search(p.read_text("utf-8")) and name_of(p) not in ELSEWHERE]


@pytest.fixture(scope="module")
def forks() -> Any:
    """Processes that have tec imported already: a page's own import takes half a second of processor time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["numpy", "onnx", "tec", "tec.driver", "tec.codegen.cpu", "tec_onnx", pages.__name__]
    )
    return context


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, forks: Any) -> None:
    blocks = len(BLOCK.findall((ROOT / page).read_text("utf-8")))
    process = forks.Process(target=pages.report_in, args=(str(tmp_path), str(ROOT / page)))
    process.start()
    process.join(1800)  # for one that hangs; a loaded machine takes minutes for a page of seconds
    out, err = ((tmp_path / name).read_text("utf-8") for name in ("out", "err"))
    assert process.exitcode == 0, err[-4000:]
    ran = int(re.findall(r"^(\d+) blocks ran$", out, re.M)[-1])
    assert ran + out.count("\nnot run: ") >= blocks
    check_what_is_shown(ROOT / page, out)


def check_what_is_shown(page: Path, out: str) -> None:
    """The lines of fences titled "prints" were printed, one after the other and in the page's order. A line of the page is one of `program.py`, counted from its block."""
    lines = page.read_text("utf-8").splitlines()
    begins = [k for k, line in enumerate(lines, 1) if line == "```python"]

    def in_block(m: re.Match[str]) -> str:
        line = int(m[1])
        return f"program.py:{line - max(b for b in begins if b < line)}"

    rest = re.sub(rf"[^\s:]*{re.escape(page.name)}:(\d+)", in_block, out)
    for shown in SHOWN.findall("\n".join(lines)):
        _, found, rest = rest.partition(shown)
        assert found, (
            f"{page.name} shows what is not printed (any more):\n{shown}\nleft of what was printed:\n{rest or out[-3000:]}"
        )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_is_fenced_or_says_what_it_is(page: Path) -> None:
    text, name = page.read_text("utf-8"), name_of(page)
    if "```python title=" in text:
        assert (ROOT / TITLED[name]).exists()
    assert not re.findall(r"^[ \t]+```python|^```py(thon3|con)?$", text, re.M), (
        "the test of the pages does not see this fence"
    )
    for reason in re.findall(r"(?m)^<!-- skip: \w+ ?(.*?) ?-->", text):
        assert len(reason) > 15, f"a fragment says why it does not run, not {reason!r}"
    plain = re.sub(r"^```.*?^```|^<!--.*?-->", "", text, flags=re.M | re.S)
    for block in re.findall(r"\n\n((?: {4}.*\n)+)", plain):
        lines = [line[4:] for line in block.splitlines()]
        assert not any(re.match(r"(import|from) \w+|@?tec\.\w+|\w+ = (tec|te|s)[.\[]", x) for x in lines), (
            f"fence this: {lines[0]}"
        )


def test_a_wrong_block_and_a_missing_name_are_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '<!-- invisible-code-block: python\nx = 1\n-->\n\n```python\nassert x == 1\n```\n\n<!-- skip: next "no GPU" -->\n\n```python\n1 / 0\n```\n'
    )
    assert run(page) == (2, ["no GPU"])
    page.write_text(page.read_text() + "\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run(page)


def test_where_other_pages_run() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text("utf-8")


def test_lines_that_nothing_prints_are_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# A page\n\n```python\nx = 1\nf(x)\n```\n\n```text title="prints"\nwrong at program.py:2\n```\n')
    check_what_is_shown(page, f"before\nwrong at {page}:5\nafter\n")
    for other in ("wrong at page.md:4\n", "nothing\n"):
        with pytest.raises(AssertionError, match="shows what is not printed"):
            check_what_is_shown(page, other)
