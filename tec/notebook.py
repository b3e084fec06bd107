"""HTML for notebooks and reports: code with its keywords marked, tables, bars, graphs drawn in layers, schedules as nested
boxes. Strings in, strings out; used by the `_repr_html_` of schedules, loop IR, graphs, networks and profiles, by the tutorials and by
`tec show --html`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .errors import one_line, printable

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


def escape(text: str, quote: bool = True) -> str:
    """A text within HTML: no tag, nor a control or mark of direction that turns what stands around it."""
    import html  # for notebooks alone

    return html.escape(printable(text), quote)


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
    cells = "".join("<tr>" + "".join(f"<td>{escape(one_line(str(c)))}</td>" for c in row) + "</tr>" for row in rows)
    titles = "".join(f"<th>{escape(h)}</th>" for h in head)
    title = (
        f'<caption style="text-align:left;white-space:nowrap;padding:4px 0">{escape(caption)}</caption>'
        if caption
        else ""
    )
    return f"<table>{title}<thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>"


def styled(svg: str) -> str:
    """A picture of `layered_svg` with the style that it needs outside a page of its own."""
    return _STYLE + f'<div style="overflow:auto;max-height:60em">{svg}</div>'


# ---- schedules

_ROW, _STEP, _NEST_W, _LETTER = 22, 12, 700, 7.3  # _LETTER: the width of one, a little more than it is
# What a loop is for -> its colour, and its words in the legend. The first that fits a loop's notes counts.
_LOOPS = (
    ("blockIdx", "#c9dcef", "work-groups"),
    ("threadIdx", "#cfe8d2", "threads"),
    ("vthread", "#dcefcb", "virtual threads"),
    ("tensorize", "#f3c9c0", "matrix unit"),
    ("vectorized", "#fbe0b5", "vector"),
    ("unrolled", "#f6eccb", "unrolled"),
    ("parallel", "#c9dcef", "parallel"),
    ("reduce", "#e6ddf0", "reduction"),
    ("", "#f4f4f2", "loop"),
)
_STAGE = "#ffffff"


def nest_svg(text: str) -> str:
    """A schedule's text (`str(s)`) as nested boxes: a box a stage and a loop, in the loop it stands in, coloured by what runs it.

    Needs no style from outside, so it can be written to a file: `Path("s.svg").write_text(nest_svg(str(s)))`.
    """
    rows = []
    for line in text.splitlines():
        body = line.strip()
        if body and not body.endswith((": placeholder", ": group")):
            rows.append(((len(line) - len(line.lstrip())) // 4, body))
    if not rows:
        return ""
    boxes, y = _nested(rows)
    out, used = [], {}
    for depth, top, bottom, body in sorted(boxes):
        colour, name, label = _labelled(depth, top, body)
        if name:
            used[name] = colour
        x, w = 6 + depth * _STEP, _NEST_W - 12 - 2 * depth * _STEP
        out.append(
            f'<rect x="{x}" y="{top:.0f}" width="{w}" height="{bottom - top:.0f}" rx="5" fill="{colour}" stroke="#b9bec5"/>{label}'
        )
    x = 8
    for _, colour, name in _LOOPS:
        if used.get(name) == colour:
            out.append(
                f'<rect x="{x}" y="{y + 8:.0f}" width="12" height="12" rx="2" fill="{colour}" stroke="#b9bec5"/>'
                f'<text x="{x + 17}" y="{y + 18:.0f}" fill="#666d78">{name}</text>'
            )
            x += 34 + 7 * len(name)
    height = y + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_NEST_W} {height:.0f}" width="{_NEST_W}" height="{height:.0f}" role="img" '
        'aria-label="loop nest" font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="12" fill="#1c1f24">'
        f'<rect width="{_NEST_W}" height="{height:.0f}" rx="8" fill="#fafaf8" stroke="none"/>{"".join(out)}</svg>'
    )


def _nested(rows: Sequence[tuple[int, str]]) -> tuple[list[tuple[int, float, float, str]], float]:
    """A box for each row, around those that are deeper behind it: (depth, top, bottom, text); and where the last one ends."""
    boxes = []
    y = 6.0
    tops: list[tuple[int, float, str]] = []  # open boxes: depth, top, text
    for depth, body in [*rows, (0, "")]:
        while tops and tops[-1][0] >= depth:
            at, top, text = tops.pop()
            y += 4
            boxes.append((at, top, y, text))
        if body:
            tops.append((depth, y, body))
            y += _ROW + (14 if _is_long(depth, body) else 0)
    return boxes, y


def _is_long(depth: int, body: str) -> bool:
    """Whether a loop and its notes do not fit into one row."""
    return body.startswith("for ") and len(body) * _LETTER > _NEST_W - 28 - 2 * depth * _STEP


def _labelled(depth: int, top: float, body: str) -> tuple[str, str, str]:
    """(colour, name in the legend, text) of a loop's or a stage's box; a stage is not in the legend."""
    x, w = 6 + depth * _STEP, _NEST_W - 12 - 2 * depth * _STEP
    words, _, notes = body.partition("  # ")
    if words.startswith("for "):
        _, colour, name = next(k for k in _LOOPS if k[0] in notes)
        label = f'<text x="{x + 8}" y="{top + 15:.0f}">{escape(words)}</text>'
        if notes:
            low = top + (29 if _is_long(depth, body) else 15)
            label += f'<text x="{x + w - 8}" y="{low:.0f}" text-anchor="end" fill="#4a5059">{escape(notes)}</text>'
        return colour, name, label
    stage, _, rest = words.partition(": ")
    label = (
        f'<text x="{x + 8}" y="{top + 15:.0f}"><tspan font-weight="700">{escape(stage)}</tspan>'
        f'<tspan fill="#666d78">  {escape(rest)}</tspan></text>'
    )
    return _STAGE, "", label


def schedule(text: str) -> str:
    """A schedule in a notebook: its picture, and its text to unfold."""
    return f'<div style="overflow:auto">{nest_svg(text)}</div><details><summary>as text</summary>{code(text)}</details>'


def bars_svg(rows: Sequence[tuple[str, float, str]], title: str = "") -> str:
    """A bar a row: (name, length, the words behind it). Needs no style from outside."""
    most = max((n for _, n, _ in rows), default=0.0) or 1.0
    side = 16 + max((len(name) for name, _, _ in rows), default=0) * 7.5
    behind = 20 + max((len(words) for _, _, words in rows), default=0) * 6.6
    room = max(60.0, 720 - side - behind)
    out = [f'<text x="8" y="17" font-weight="600">{escape(title)}</text>'] if title else []
    y = 26 if title else 6
    for name, n, words in rows:
        w = max(1.0, room * n / most)
        out.append(
            f'<text x="{side - 8:.0f}" y="{y + 14}" text-anchor="end">{escape(name)}</text><rect x="{side:.0f}" y="{y + 2}" width="{w:.1f}" '
            f'height="16" rx="2" fill="#c25a47"/><text x="{side + w + 7:.1f}" y="{y + 14}" fill="#666d78">{escape(words)}</text>'
        )
        y += 23
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {y + 6}" width="720" height="{y + 6}" role="img" '
        f'aria-label="{escape(title) or "bars"}" font-family="system-ui, DejaVu Sans, sans-serif" font-size="12" fill="#1c1f24">'
        f'<rect width="720" height="{y + 6}" rx="8" fill="#fafaf8"/>{"".join(out)}</svg>'
    )


# ---- graphs


def layered_svg(labels: Mapping[int, tuple[str, str, str]], edges: Iterable[tuple[int, int]]) -> str:
    """A directed graph, drawn downwards in layers.

    labels: node -> (title, line under it, function), in an order in which every edge goes forward; a node without a function
    is drawn as an input or output. edges: pairs of nodes. The function stands in each box's `data-function`.
    """
    if not labels:
        return ""
    labels = {n: (one_line(title), one_line(under), function) for n, (title, under, function) in labels.items()}
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
