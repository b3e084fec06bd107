"""NumPy's names in `tec.array` beyond the standard's as a Markdown table, read from the namespace.

    python -m tools.array_names_page

The site's hook puts the table in the place of its mark in docs/arrays.md.
"""

from __future__ import annotations

MARK = "<!-- numpy names -->"

# A row's title, and the modules of tec.array that define its functions.
ROWS = {
    "making, shapes, joining": ("numpy_shapes", "numpy_padding", "numpy_names"),
    "element by element": ("numpy_elementwise", "numpy_ufuncs"),
    "sums and statistics": ("numpy_statistics",),
    "picking, sets, indices": ("numpy_picking",),
    "calculus and polynomials": ("numpy_calculus",),
}


def table() -> str:
    """The table; other names of functions that the standard has are its last row."""
    from tec.array.numpy_names import ALIASES, FUNCTIONS

    lines = ["| | functions |", "| --- | --- |"]
    for title, modules in ROWS.items():
        names = sorted(n for n, f in FUNCTIONS.items() if f.__module__.removeprefix("tec.array.") in modules)
        lines.append(f"| {title} | {', '.join(f'`{n}`' for n in names)} |")
    others = ", ".join(f"`{theirs}` (`{ours}`)" for theirs, ours in sorted(ALIASES.items()))
    lines.append(f"| other names | {others} |")
    return "\n".join(lines)


def with_table(markdown: str) -> str:
    """A page with the table in the place of its mark; a page without the mark as it is."""
    return markdown.replace(MARK, table()) if MARK in markdown else markdown


if __name__ == "__main__":
    print(table())
