"""What stands in the way of a release is said; `make release` itself takes minutes and is run by whoever releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import release

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tec").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0.3.0"\n')
    (tmp_path / "tec" / "__init__.py").write_text('"""."""\n__version__ = "0.3.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 0.3.0, 2027-01-31\n\n## 0.2.0, 2026-12-31\n")
    return tmp_path


def test_a_tree_that_is_ready(tree: Path) -> None:
    assert release.faults(tree, ["v0.2.0"], []) == []


def test_what_is_not_ready_is_said(tree: Path) -> None:
    assert "tag v0.3.0 exists" in " ".join(release.faults(tree, ["v0.3.0"], []))
    assert "not committed: a.py" in " ".join(release.faults(tree, [], ["a.py"]))
    (tree / "tec" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    assert release.faults(tree, [], []) == ["tec/__init__.py says 0.2.0, pyproject.toml 0.3.0"]


@pytest.mark.parametrize(
    "heading, said", [("0.3.0, unreleased", "its date"), ("0.2.0, 2026-12-31", "CHANGELOG.md says 0.2.0")]
)
def test_the_changelog_has_a_dated_section(tree: Path, heading: str, said: str) -> None:
    (tree / "CHANGELOG.md").write_text(f"# Changes\n\n## {heading}\n")
    (wrong,) = release.faults(tree, [], [])
    assert said in wrong


def test_this_tree_has_one_version() -> None:
    (version,) = set(release.versions(ROOT).values())
    assert f'version: "{version}"' in (ROOT / "packaging" / "recipe.yaml").read_text("utf-8")


def test_the_demo_brings_what_it_imports() -> None:
    for name in release._DEMO:
        assert (ROOT / name).is_file()
        for line in (ROOT / name).read_text("utf-8").splitlines():
            if line.startswith(("from .", "from tools import")):
                at = line.split()[1] if line.startswith("from .") else "." + line.split()[3]
                assert f"tools/{at[1:]}.py" in release._DEMO, line
