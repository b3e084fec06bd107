"""Finds commits that undo an earlier one: they put lines back that it deleted, as a commit from a stale working tree does.

    python -m tools.undone              # the commits since the merge base with upstream, or the last 25 where there is none
    python -m tools.undone --last 200

A commit undoes an earlier one where it adds, in the same files and in order, 20 or more lines that one of the 25 commits before it deleted there. Lines
without three letters or digits, imports, and lines that a commit moves within a file are not counted. A commit that means it says so in its message:
`Reverts <hash>`. Exit status 1 where one does not. A shallow clone has no history before its first commits: what cannot be looked at is said.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LINES = 20  # that a commit may put back of one earlier commit
BACK = 25  # commits before it that it is held against
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_REVERTS = re.compile(r"[Rr]everts (?:commit )?([0-9a-f]{7,40})")
_IMPORT = re.compile(r"\s*(import|from)\s+[\w.]+(\s+import\b|\s+as\b|\s*$|\s*,)")


@dataclass
class Commit:
    """A commit and what it changes: the lines that it deletes and adds of each file, in order."""

    hash: str
    message: str
    deleted: dict[str, list[str]] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        return self.message.strip().partition("\n")[0]

    def says_so(self, of: Commit) -> bool:
        """Whether the message says that it reverts that commit."""
        return any(of.hash.startswith(h) for h in _REVERTS.findall(self.message))


@dataclass(frozen=True)
class Undoing:
    """`by` puts back so many lines of each file that `of` deleted."""

    by: Commit
    of: Commit
    lines: dict[str, int]

    def __str__(self) -> str:
        by, of = self.by, self.of
        most = sorted(self.lines.items(), key=lambda x: -x[1])
        files = "".join(f"\n    {count:4} lines of {path}" for path, count in most[:8])
        return f"{by.hash[:9]} {by.subject}\n  puts back what {of.hash[:9]} deleted: {of.subject}{files}"


def counts(line: str) -> bool:
    """Whether a line says anything that tells it from others."""
    return len(re.findall(r"\w", line)) >= 3 and not _IMPORT.match(line)


def git(repo: Path, *args: str, given: str = "") -> str:
    """What git prints. Raises subprocess.CalledProcessError."""
    command = ["git", "-C", str(repo), *args]
    return subprocess.run(command, input=given, check=True, capture_output=True, text=True, errors="replace").stdout


def changes(repo: Path, commits: Sequence[str]) -> Iterator[Commit]:
    """The commits with their changes against their first parents, in this order."""
    how = (
        "--no-walk=unsorted",
        "--first-parent",
        "-m",
        "--no-renames",
        "-U0",
        "--no-color",
        "--no-ext-diff",
        "--stdin",
    )
    out = git(repo, "log", *how, "--format=%x00%H%x01%B%x01", given="\n".join(commits)) if commits else ""
    for part in out.split("\0")[1:]:
        name, message, diff = part.split("\x01", 2)
        commit = Commit(name, message)
        _read(commit, diff.splitlines())
        yield commit


def _read(commit: Commit, diff: Iterable[str]) -> None:
    deleted: dict[str, list[str]] = defaultdict(list)
    added: dict[str, list[str]] = defaultdict(list)
    path, inside = "", False
    for line in diff:
        if line.startswith("diff --git "):
            inside = False
        elif not inside and line.startswith(("--- a/", "+++ b/")):
            path = line[6:]
        elif _HUNK.match(line):
            inside = True
        elif inside and line[:1] in "+-" and counts(line[1:]):
            (added if line[0] == "+" else deleted)[path].append(line[1:].strip())
    for path in deleted.keys() | added.keys():
        moved = Counter(deleted[path]) & Counter(added[path])
        commit.deleted[path] = _without(deleted[path], moved)
        commit.added[path] = _without(added[path], moved)


def _without(lines: list[str], moved: Counter[str]) -> list[str]:
    """The lines but for these."""
    left = Counter(moved)
    out = []
    for line in lines:
        if left[line] > 0:
            left[line] -= 1
        else:
            out.append(line)
    return out


def in_order(a: Sequence[str], b: Sequence[str]) -> int:
    """How many lines the longest common subsequence of two lists has."""
    shared = set(a) & set(b)
    a, b = [x for x in a if x in shared], [x for x in b if x in shared]
    row = [0] * (len(b) + 1)
    for x in a:
        before = 0
        for j, y in enumerate(b):
            above = row[j + 1]
            row[j + 1] = before + 1 if x == y else max(above, row[j])
            before = above
    return row[-1]


def undone(commits: Sequence[Commit], looked_at: int) -> list[Undoing]:
    """Of commits, newest first: those of the first `looked_at` that undo one of the `BACK` behind it without a word."""
    found = []
    for k, by in enumerate(commits[:looked_at]):
        for of in commits[k + 1 : k + 1 + BACK]:
            both = of.deleted.keys() & by.added.keys()
            lines = {path: n for path in both if (n := in_order(of.deleted[path], by.added[path]))}
            if sum(lines.values()) >= LINES and not by.says_so(of):
                found.append(Undoing(by, of, lines))
    return found


def since_upstream(repo: Path) -> int:
    """How many commits of this branch upstream's does not have; 0 where there is no upstream."""
    for ref in ("upstream/HEAD", "upstream/main", "upstream/master"):
        try:
            return int(git(repo, "rev-list", "--first-parent", "--count", f"{ref}..HEAD"))
        except subprocess.CalledProcessError:
            continue
    return 0


def main(args: Sequence[str] | None = None, repo: Path = Path(".")) -> int:
    parser = argparse.ArgumentParser(description="Commits that put back what an earlier one deleted.")
    parser.add_argument(
        "--last", type=int, default=0, help=f"look at so many commits (default: since upstream, or {BACK})"
    )
    last = parser.parse_args(args).last or since_upstream(repo) or BACK
    hashes = git(repo, "rev-list", "--first-parent", f"--max-count={last + BACK}", "HEAD").split()
    is_shallow = git(repo, "rev-parse", "--is-shallow-repository").strip() == "true"
    cut = is_shallow and len(hashes) < last + BACK
    if cut:
        hashes.pop()  # the first commit of a shallow clone looks as if it had made every file
    found = undone(list(changes(repo, hashes)), last)
    looked_at = min(last, len(hashes))
    print(f"{looked_at} commits looked at, {len(found)} undo an earlier one")
    if cut:
        print(
            f"This clone is shallow: only {len(hashes)} commits are here, so {last - looked_at} were not looked at and {min(looked_at, BACK)} "
            f"not held against all {BACK} before them. Fetch more: git fetch --depth {last + BACK + 1}"
        )
    for x in found:
        print(x)
    if found:
        print(
            "If that is meant, say so in the message: Reverts <hash>. If not, the commit came from a stale working tree: take its other lines alone.",
            file=sys.stderr,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
