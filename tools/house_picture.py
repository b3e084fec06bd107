"""Draw the house: rooms (folders of tec/) by imports among them, as a matrix.

    python -m tools.house_picture TREE OUT.svg

Rows and columns are the rooms in the order of their floors, the lowest first; a cell says how many files of the row's room import the column's. Below the diagonal
an import goes down; above it goes up, and is drawn in another colour. Beside each room stand its files and lines. Imports inside of functions count too.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from html import escape
from pathlib import Path

# Floors, the lowest first. Rooms of other names are left out.
FLOORS = (
    "errors", "target", "llvmworker", "runtime", "ir", "te", "schedule", "kernels", "autodiff", "ops", "codegen", "driver", "choices", "graph", "emulator", "jit",
    "tuning", "array", "generation", "report", "cli",
)  # fmt: skip
CELL, LEFT, TOP, FONT = 26, 250, 120, 12


def room_of(module: tuple[str, ...], folders: set[tuple[str, ...]]) -> tuple[str, ...]:
    """The folder that a module lies in, two deep at most; a file of the top is a room of its own name only where a floor is called so."""
    for depth in (2, 1):
        if module[:depth] in folders and len(module) > depth:
            return module[:depth]
    return module[:1]


def read(tree: Path) -> tuple[dict[tuple[str, ...], list[int]], dict[tuple[tuple[str, ...], tuple[str, ...]], int]]:
    """Files and lines of each room of `tree`/tec, and how many files of one import another."""
    base = tree / "tec"
    files = {p.relative_to(base).with_suffix("").parts: p for p in base.rglob("*.py")}
    folders = {m[:d] for m in files for d in (1, 2) if len(m) > d}
    rooms: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    arrows: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = defaultdict(int)
    for module, path in files.items():
        text = path.read_text()
        here = room_of(module, folders)
        rooms[here][0] += 1
        rooms[here][1] += text.count("\n")
        package = module[:-1]
        seen = set()
        for node in ast.walk(ast.parse(text)):
            names: list[tuple[str, ...]] = []
            if isinstance(node, ast.ImportFrom):
                lead = package[: len(package) - node.level + 1] if node.level else ()
                stem = tuple(node.module.split(".")) if node.module else ()
                if not node.level:
                    if stem[:1] != ("tec",):
                        continue
                    stem = stem[1:]
                names = [lead + stem + (a.name,) for a in node.names]
            elif isinstance(node, ast.Import):
                names = [tuple(a.name.split("."))[1:] for a in node.names if a.name.startswith("tec.")]
            for name in names:
                while name and name not in files and (*name, "__init__") not in files:
                    name = name[:-1]
                if name:
                    there = room_of(name if name in files else (*name, "__init__"), folders)
                    if there != here:
                        seen.add(there)
        for there in seen:
            arrows[here, there] += 1
    return dict(rooms), dict(arrows)


def drawn(tree: Path) -> str:
    """The picture as SVG."""
    rooms, arrows = read(tree)
    floor = {name: k for k, name in enumerate(FLOORS)}
    order: list[tuple[str, ...]] = []
    for name in sorted({r[0] for r in rooms} & set(floor), key=floor.__getitem__):
        left = sorted(r for r in rooms if r[0] == name)
        while left:  # within a folder the room comes first that needs the fewest of those left
            lowest = min(left, key=lambda r: sum(arrows.get((r, o), 0) for o in left))
            left.remove(lowest)
            order.append(lowest)
    size = LEFT + CELL * len(order) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size - LEFT + TOP}" font-family="sans-serif" font-size="{FONT}">',
        "<style>text{fill:#222}.d{fill:#2a7ab0}.u{fill:#c0392b}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>",
    ]
    most = max(arrows.values(), default=1)
    for k, row in enumerate(order):
        y, (files, lines) = TOP + CELL * k, rooms[row]
        name = escape("/".join(row))
        out.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{name} · {files} files · {lines:,}</text>')
        x = LEFT + CELL * k + 17
        out.append(f'<text transform="translate({x},{TOP - 8}) rotate(-60)">{name}</text>')
        out.append(
            f'<rect x="{LEFT + CELL * k}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="#888" opacity="0.35"/>'
        )
        for j, column in enumerate(order):
            count = arrows.get((row, column), 0)
            if count:
                shade = 0.2 + 0.7 * (count / most) ** 0.5
                kind = "d" if j < k else "u"
                at = LEFT + CELL * j
                out.append(
                    f'<rect class="{kind}" x="{at}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" opacity="{shade:.2f}"/>'
                )
                out.append(f'<text x="{at + 12}" y="{y + 16}" text-anchor="middle" font-size="10">{count}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.write_text(drawn(args.tree))


if __name__ == "__main__":
    main()
