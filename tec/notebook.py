"""HTML for notebooks and reports: code with its keywords marked, tables, graphs drawn in layers. Strings in, strings out; used
by the `_repr_html_` of schedules, loop IR, graphs and networks, and by `tec show --html`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape

_BOX_W, _BOX_H, _GAP_X, _GAP_Y = 250, 46, 28, 30
_SIDE = 40  # room at both sides for edges that bow out; a curve reaches three quarters of the way to its control points
_MOST_LINES = 400
_WORDS = re.compile(
    r"""(#[^\n]*)|("[^"\n]*"|'[^'\n]*')|"""
    r"\b(def|for|in|range|parallel|vectorized|unrolled|if|else|elif|alloc|return|assert|graph|const|launch_index|launch|barrier)\b"
)
_STYLE = (
    "<style>.tec-code{font:12px/1.5 ui-monospace,monospace;white-space:pre;overflow:auto;max-height:36em}.tec-code b{color:#a8371f;font-weight:600}"
    ".tec-code i{color:#7a7f87}.tec-code u{color:#2f6f4f;text-decoration:none}.tec rect{fill:#f3efe7;stroke:#cfd2d6}.tec .port rect{fill:#e6eef5}"
    ".tec text{font:12px sans-serif;text-anchor:middle;fill:#1c1f24}.tec text.small{font-size:10px;fill:#666d78}.tec .edge{fill:none;stroke:#8a9099}</style>"
)


def code(text: str) -> str:
    """Loop IR, a schedule or a graph as HTML; very long texts are cut."""
    lines = text.splitlines()
    more = [f"# ... {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []

    def mark(m: re.Match[str]) -> str:
        tag = "i" if m[1] else "u" if m[2] else "b"
        return f"<{tag}>{m[0]}</{tag}>"

    shown = escape("\n".join([*lines[:_MOST_LINES], *more]), quote=False)
    return _STYLE + '<div class="tec-code">' + _WORDS.sub(mark, shown) + "</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table of texts."""
    cells = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    titles = "".join(f"<th>{escape(h)}</th>" for h in head)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>"


def styled(svg: str) -> str:
    """A picture of `layered_svg` with the style that it needs outside a page of its own."""
    return _STYLE + f'<div style="overflow:auto;max-height:60em">{svg}</div>'


def layered_svg(labels: Mapping[int, tuple[str, str, str]], edges: Iterable[tuple[int, int]]) -> str:
    """A directed graph, drawn downwards in layers.

    labels: node -> (title, line under it, function), in an order in which every edge goes forward; a node without a function
    is drawn as an input or output. edges: pairs of nodes. The function stands in each box's `data-function`.
    """
    if not labels:
        return ""
    edges = set(edges)
    before: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        before[b].append(a)
    layer: dict[int, int] = {}
    order = list(labels)
    for n in order:
        layer[n] = 1 + max((layer[p] for p in before[n] if p in layer), default=-1)
    rows: dict[int, list[int]] = defaultdict(list)
    place: dict[int, float] = {}
    for n in order:
        rows[layer[n]].append(n)
    for k in sorted(rows):
        rows[k].sort(key=lambda n: sum(place.get(p, 0.0) for p in before[n]) / max(1, len(before[n])))
        for j, n in enumerate(rows[k]):
            place[n] = j - (len(rows[k]) - 1) / 2
    width = max(len(r) for r in rows.values()) * (_BOX_W + _GAP_X) + _GAP_X + 2 * _SIDE
    height = len(rows) * (_BOX_H + _GAP_Y) + _GAP_Y

    def xy(n: int) -> tuple[float, float]:
        return width / 2 + place[n] * (_BOX_W + _GAP_X) - _BOX_W / 2, _GAP_Y + layer[n] * (_BOX_H + _GAP_Y)

    out = [f'<svg id="graph" class="tec" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" aria-label="graph of fused groups">']  # fmt: skip
    for a, b in sorted(edges):
        (x1, y1), (x2, y2) = xy(a), xy(b)
        x1, x2, y1 = x1 + _BOX_W / 2, x2 + _BOX_W / 2, y1 + _BOX_H
        # An edge over several layers bows out so that it does not run through the boxes between.
        span = layer[b] - layer[a]
        bow = (_BOX_W / 2 + _SIDE / 3 + min(2 * span, _SIDE / 2)) / 0.75 if span > 1 and abs(x1 - x2) < 10 else 0.0
        middle = (y1 + y2) / 2
        path = (
            f"M{x1:.0f} {y1:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
            if not bow
            else f"M{x1:.0f} {y1:.0f} C{x1 + bow:.0f} {y1 + 20:.0f} {x2 + bow:.0f} {y2 - 20:.0f} {x2:.0f} {y2:.0f}"
        )
        out.append(f'<path class="edge" d="{path}"/>')
    for n, (title, under, function) in labels.items():
        x, y = xy(n)
        kind = "step" if function else "port"
        out.append(
            f'<g class="{kind}" data-function="{escape(function)}" tabindex="0"><title>{escape(title)}\n{escape(under)}</title>'
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_BOX_W}" height="{_BOX_H}" rx="7"/>'
            f'<text x="{x + _BOX_W / 2:.0f}" y="{y + 19:.0f}">{escape(_short(title, 34))}</text>'
            f'<text class="small" x="{x + _BOX_W / 2:.0f}" y="{y + 36:.0f}">{escape(_short(under, 42))}</text></g>'
        )
    return "".join(out) + "</svg>"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
