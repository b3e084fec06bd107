"""The site's parts are there: pages of the navigation, tutorials, modules of the API pages; and it builds without a warning."""

from __future__ import annotations

import importlib
import importlib.util
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
    except ModuleNotFoundError as e:
        if e.name == "torch":
            assert importlib.util.find_spec(name) is not None
            return
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


WRITTEN_FOR_USERS = (
    "tec.te.build", "tec.te.computation", "tec.te.tensor", "tec.te.operation", "tec.te.reducer", "tec.te.math", "tec.te.extern", "tec.te.intrin",
    "tec.te.ir_builder", "tec.driver", "tec.target", "tec.schedule.schedule", "tec.schedule.stage", "tec.runtime.devices.device",
    "tec.runtime.arrays.ndarray", "tec.runtime.modules.module", "tec.runtime.modules.function", "tec.runtime.devices.stream", "tec.runtime.devices.profiling",
    "tec.runtime.modules.timing", "tec.runtime.devices.allocator", "tec.kernels.language", "tec.jit.launching", "tec.jit.reflection", "tec.runtime.networks.network", "tec.errors",
)  # fmt: skip
# Not shown on the pages, or said by the base class.
_NO_WORDS = {"Tensor.axis", "TensorRegion.dtype", "TensorRegion.asexpr", "Stage.attr", "Schedule.unique_name", "Schedule.note", "IRBuilder.loc",
             "AttachKind", "check_name"}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN_FOR_USERS)
def test_what_users_call_has_words(name: str) -> None:
    """Every public function, class, method and property of the API pages has a docstring, its own or its base class's."""
    import inspect

    module = importlib.import_module(name)
    without = []
    for key, what in vars(module).items():
        if key.startswith("_") or getattr(what, "__module__", "") != name or not callable(what):
            continue
        if not what.__doc__:
            without.append(key)
        if inspect.isclass(what):
            for member, value in vars(what).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    if not inspect.getdoc(getattr(what, member)):
                        without.append(f"{key}.{member}")
    assert [w for w in without if w not in _NO_WORDS] == []


def test_the_table_of_math_functions_is_whole() -> None:
    """Functions that are made, not written, stand in a table: each with its own words."""
    import inspect

    from tec.te import math

    page = (ROOT / "docs" / "api" / "language.md").read_text()
    source = inspect.getsource(math)
    names = [
        n
        for n, f in vars(math).items()
        if not n.startswith("_") and getattr(f, "__module__", "") == math.__name__ and callable(f)
    ]
    made = [n for n in names if f"\ndef {n}(" not in source]
    assert len(made) > 30
    for name in made:
        words = " ".join(getattr(math, name).__doc__.partition(">>>")[0].split())
        assert f"| `{name}({', '.join(inspect.signature(getattr(math, name)).parameters)})` | {words} |" in page, name


def test_sessions_in_docstrings_become_code() -> None:
    pytest.importorskip("griffe")
    from tools.griffe_doctest import fenced

    text = "Does it.\n>>> f(\n...     1)\n2\n\nMore.\n    >>> g()\n"
    assert fenced(text) == "Does it.\n\n```pycon\n>>> f(\n...     1)\n2\n```\n\nMore.\n\n```pycon\n>>> g()\n```"
    assert fenced("No session.\n\n    code") == "No session.\n\n    code"


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


def test_parameters_become_a_list_with_their_types() -> None:
    pytest.importorskip("griffe")
    from tools.griffe_doctest import listed

    text = 'Make it.\n\npath: a file\nthat is there. low and high: bounds; what: "a: b" or more. Returns it. Raises TecError.\n\n    low: code'
    types = {"path": "str", "low": "int", "high": "int", "what": "Any", "other": "int"}
    assert listed(text, types) == (
        "Make it.\n\n- `path` (`str`): a file that is there.\n- `low`, `high` (`int`): bounds\n"
        '- `what`: "a: b" or more.\n\nReturns it. Raises TecError.\n\n    low: code'
    )
    assert listed("Nothing of it: here.", types) == "Nothing of it: here." and listed("low: x", {}) == "low: x"


def test_headings_are_named_as_users_write_them() -> None:
    from tools.docs_hooks import public_name, renamed

    assert (
        public_name("tec.graph.compiler.compile") == "tec.compile"
        and public_name("tec.runtime.modules.module.Module.save") == "tec.Module.save"
    )
    assert public_name("tec.graph.compiler.as_graph") is None
    heading = '<h2 id="tec.graph.compiler.compile" class="doc doc-heading">\n  <span class="doc doc-object-name doc-function-name">{}</span>\n</h2>'
    for shown in ("compile", "tec.graph.compiler.compile"):
        assert renamed(heading.format(shown)) == heading.format("tec.compile")


def test_the_search_has_a_name() -> None:
    from tools.docs_hooks import on_post_page

    page = '<div class="md-search" data-md-component="search" role="dialog">'
    assert (
        on_post_page(page).endswith('role="dialog" aria-label="Search">')
        and on_post_page("<p>other</p>") == "<p>other</p>"
    )


PUBLIC = ("tec", "tec.te", "tec.runtime.arrays.nd", "tec.tile", "tec.lm", "tec.graph", "tec.runtime", "tec.topi", "tec.schedule", "tec.jit")  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_completion_offers_public_names(name: str) -> None:
    module = importlib.import_module(name)
    offered = dir(module)
    assert offered == sorted(module.__all__)
    assert all(hasattr(module, n) for n in offered)


def test_completion_of_arrays_offers_numpys_names_too() -> None:
    import tec

    offered = dir(tec.array)
    assert {"sin", "asarray", "concatenate", "transpose"} <= set(offered) and "batching" not in offered
    assert all(hasattr(tec.array, n) for n in offered)
