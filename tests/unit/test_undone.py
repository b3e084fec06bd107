"""tools/undone.py on made-up repositories: a commit from a stale working tree is found, moved and common lines are not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import undone

OLD = [f"def old_{k}(x):\n    return x + {k}00\n\n" for k in range(12)]
NEW = [f"def new_{k}(y):\n    return y * {k}11\n\n" for k in range(12)]
WHO = {f"GIT_{who}_{what}": f"{what}@here" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Repo:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "-q", "-b", "main", ".")

    def git(self, *args: str) -> str:
        env = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(
            ["git", *args], cwd=self.path, env=env, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, message: str, **files: str) -> str:
        for name, text in files.items():
            (self.path / f"{name}.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def check(self, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
        status = undone.main(args, self.path)
        return status, capsys.readouterr().out


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


def test_a_stale_tree_is_found(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    repo.commit("Old", a="".join(OLD), b="b = 1\n")
    deletes = repo.commit("New in place of old", a="".join(NEW))
    repo.commit("Another file", b="b = 2\n")
    assert repo.check(capsys)[0] == 0
    back = repo.commit("A feature", a="".join(OLD), c="".join(NEW))
    status, said = repo.check(capsys)
    assert status == 1 and f"{back[:9]} A feature" in said
    assert f"puts back what {deletes[:9]} deleted: New in place of old" in said and "24 lines of a.py" in said


@pytest.mark.parametrize("word, status", [("Reverts {}", 0), ("This reverts commit {}.", 0), ("Reverts 0123456789", 1)])
def test_one_that_says_so_passes(repo: Repo, capsys: pytest.CaptureFixture[str], word: str, status: int) -> None:
    repo.commit("Old", a="".join(OLD))
    deletes = repo.commit("New", a="".join(NEW))
    repo.commit(f"Old was better\n\n{word.format(deletes[:12])}", a="".join(OLD))
    assert repo.check(capsys)[0] == status


def test_lines_over_several_files_count_together(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    repo.commit("Old", a="".join(OLD[:6]), b="".join(OLD[6:]))
    repo.commit("New", a="".join(NEW[:6]), b="".join(NEW[6:]))
    repo.commit("Half of it back", a="".join(OLD[:6]))
    assert repo.check(capsys)[0] == 0
    repo.commit("The other half too", b="".join(OLD[6:]))
    assert repo.check(capsys)[0] == 0  # twelve lines each
    repo.commit("New again", a="".join(NEW[:6]), b="".join(NEW[6:]))
    repo.git("checkout", "-q", "HEAD~1", "--", ".")
    repo.commit("Both at once")
    assert repo.check(capsys)[0] == 1


def test_what_is_no_undoing(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    imports = "".join(f"import m{k}\nfrom n{k} import x{k}\n" for k in range(20))
    repo.commit("Old", a=imports + "".join(OLD), b="".join(["    )\n", "\n", "]\n"] * 20))
    repo.commit("Turned round, without imports", a="".join(reversed(OLD)), b="b\n")
    repo.commit("Turned again, with them; brackets", a=imports + "".join(OLD), b="".join(["    )\n", "\n", "]\n"] * 20))
    assert repo.check(capsys)[0] == 0
    repo.commit("Gone", a="a = 1\n")
    repo.commit("To another file", c="".join(OLD))
    assert repo.check(capsys)[0] == 0
    repo.commit("Back in another order", a="".join(reversed(OLD)))
    assert repo.check(capsys)[0] == 0


def test_only_so_far_back(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    repo.commit("Old", a="".join(OLD))
    repo.commit("New", a="".join(NEW))
    for k in range(undone.BACK):
        repo.commit(f"Step {k}")
    repo.commit("Back", a="".join(OLD))
    assert repo.check(capsys)[0] == 0


def test_commits_since_upstream(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    repo.commit("Old", a="".join(OLD))
    repo.commit("New", a="".join(NEW))
    repo.commit("Back", a="".join(OLD))
    repo.git("update-ref", "refs/remotes/upstream/main", "HEAD")
    repo.commit("Mine", b="b = 1\n")
    status, said = repo.check(capsys)
    assert status == 0 and said.startswith("1 commits looked at")  # what upstream has landed is not asked again
    assert repo.check(capsys, "--last", "2")[0] == 1


def test_a_shallow_clone_says_what_it_cannot_see(
    repo: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo.commit("Old", a="".join(OLD))
    repo.commit("New", a="".join(NEW))
    repo.commit("Between", b="b = 1\n")
    repo.commit("Back", a="".join(OLD))
    for depth, status, looked_at in (("4", 1, 3), ("3", 0, 2), ("1", 0, 0)):
        clone = tmp_path / f"clone{depth}"
        repo.git("clone", "-q", "--depth", depth, f"file://{repo.path}", str(clone))
        got = undone.main([], clone)
        said = capsys.readouterr().out
        assert got == status and said.startswith(f"{looked_at} commits looked at"), (depth, said)
        assert f"This clone is shallow: only {looked_at} commits are here" in said, said
