"""The ONNX operators as a Markdown table, read from the frontend's registry: how each is supported, by domain.

    python -m tools.operators_page

The site's hook puts the table in the place of its mark in docs/onnx.md.
"""

from __future__ import annotations

from itertools import groupby

from tec_onnx import operators

MARK = "<!-- operators -->"


def _parts(name: str) -> tuple[str, str]:
    """(domain, operator) of a name in the registry; the standard's own domain is ai.onnx."""
    domain, _, operator = name.rpartition(".")
    return domain or "ai.onnx", operator


def table() -> str:
    """One row for each domain and way of support, the standard's domain first."""
    known = sorted((_parts(name), how) for name, how in operators().items())
    order = sorted(known, key=lambda k: (k[0][0] != "ai.onnx", k[0][0], k[1] == "no", k[1], k[0][1]))
    rows = []
    for (domain, how), some in groupby(order, key=lambda k: (k[0][0], k[1])):
        names = [operator for (_, operator), _ in some]
        said = "not supported" if how == "no" else how
        rows.append(f"| {domain} | {said} | {len(names)} | {', '.join(names)} |")
    return "\n".join(["| domain | support | number | operators |", "| --- | --- | --- | --- |", *rows])


def with_table(markdown: str) -> str:
    """A page with the table in the place of its mark."""
    return markdown.replace(MARK, table()) if MARK in markdown else markdown


if __name__ == "__main__":
    print(table())
