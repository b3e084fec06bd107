"""Hooks of the site: what the API pages describe is called as users write it (`tec.compile`, not `tec.graph.compiler.compile`).

The public names are read from `tec` itself, each with the place where it is defined; headings, the table of contents and with them the search
take the public name. Where an object has several, the shortest.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from pathlib import Path
from typing import Any

_HEADING = re.compile(r'<h(\d) id="(?P<id>[\w.]+)" class="doc doc-heading">(?P<inside>.*?)</h\1>', re.S)


@functools.cache
def public_names() -> dict[str, str]:
    """Where an object is defined -> its public name."""
    import tec

    found: dict[str, str] = {}
    homes = [("tec", tec, list(tec.__all__)), ("tec.te", tec.te, list(tec.te.__all__)), ("tec.nd", tec.nd, dir(tec.nd))]
    for prefix, home, names in homes:
        for name in names:
            what = getattr(home, name, None)
            module, own = getattr(what, "__module__", None), getattr(what, "__qualname__", None)
            if inspect.ismodule(what) or not module or not own or not str(module).startswith("tec."):
                continue
            found.setdefault(f"{module}.{own}", f"{prefix}.{name}")
    return found


def public_name(path: str) -> str | None:
    """The public name of a path, or of the class that it is a member of: `tec.Module.save`."""
    names = public_names()
    if path in names:
        return names[path]
    owner, _, member = path.rpartition(".")
    return f"{names[owner]}.{member}" if owner in names else None


def renamed(html: str) -> str:
    """The headings of a page with public names."""

    def heading(m: re.Match[str]) -> str:
        name = public_name(m["id"])
        if name is None:
            return m[0]
        short = m["id"].rpartition(".")[2]
        # The last part of the name stands in an element of its own, alone or behind the path.
        inside = re.sub(
            rf'(<span class="doc doc-object-name[^"]*">)(?:[\w.]+\.)?{re.escape(short)}(</span>)', rf"\g<1>{name}\g<2>", m["inside"], count=1
        )  # fmt: skip
        return m[0].replace(m["inside"], inside)

    return _HEADING.sub(heading, html)


def on_page_markdown(markdown: str, **more: Any) -> str:
    """Plots and tables of results, tables of passes and ONNX operators in the places of their marks."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    try:
        from tools import (
            amd_model_page,
            array_names_page,
            contrib_operators,
            operators_page,
            passes_page,
            readme_figures,
            results_page,
            results_plots,
        )
    finally:
        del sys.path[0]
    for fill in (
        results_page.with_tables,
        amd_model_page.with_tables,
        array_names_page.with_table,
        readme_figures.with_table,
        results_plots.with_plots,
        passes_page.with_table,
        operators_page.with_table,
        contrib_operators.with_table,
    ):
        markdown = fill(markdown)
    return markdown


def on_post_page(output: str, **more: Any) -> str:
    """The theme's dialog for the search has no name for those who hear it."""
    return output.replace(
        ' data-md-component="search" role="dialog">', ' data-md-component="search" role="dialog" aria-label="Search">'
    )


def on_page_content(html: str, page: Any, **more: Any) -> str:
    if not page.file.src_uri.startswith("api/"):
        return html

    def walk(items: Any) -> None:
        for item in items:
            name = public_name(item.id)
            if name is not None:
                item.title = re.sub(r"[\w.]+$|(?<=>)[\w.]+(?=<)", name, item.title, count=1)
            walk(item.children)

    walk(page.toc)
    return renamed(html)
