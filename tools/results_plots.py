"""Plots of the stored results as SVG: distributions over drawn operators, and rows that were measured more than once.

    python -m tools.results_plots          # the figures as HTML

The site's hook puts them in the places of their marks in docs/results.md. Colours come from docs/extra.css, so that they follow the site's light or dark scheme.
"""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape

from benchmarks.records import Record, newest, read

MARKS = ("<!-- plot: drawn operators -->", "<!-- plot: over time -->")
WIDTH, HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 46


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two bounds; powers alone where that would be too many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 3.5 else (1,)
    return [t for d in decades for s in steps if low <= (t := s * 10.0**d) <= high]


def _text(x: float, y: float, text: str, anchor: str = "middle", style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{f" class={style}" if style else ""}>{escape(text)}</text>'


def _line(x: float, y: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def _figure(svg: Iterable[str], width: float, height: float, label: str, caption: str) -> str:
    """One figure, without an empty line, which would end the block of HTML in a Markdown page."""
    body = "".join(svg)
    return (
        f'<figure class="plot"><svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">{body}</svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value at a share of an ordered sequence, as `benchmarks.cliffs` reads it."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _origins(rows: Iterable[Record]) -> str:
    """Each host once, with the commits that were measured there."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for r in rows:
        found[r.host][f"{r.source or f'commit {r.commit}'} ({r.date[:10]})"] = None
    return "; ".join(f"{host}: {', '.join(commits)}" for host, commits in found.items())


def distributions(rows: Iterable[Record]) -> str:
    """For each target and peer the share of drawn operators whose ratio is at most x, on a logarithmic axis."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for r in newest(rows).values():
        if r.kind == "cliff" and r.ratio is not None and "random operators" not in r.what:
            groups[r.target, r.peer].append(r)
    if not groups:
        return ""
    every = [r.ratio for some in groups.values() for r in some if r.ratio]
    low, high = 0.9 * min(every), 1.1 * max(every)
    inner, tall = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> float:
        return _LEFT + inner * math.log(value / low) / math.log(high / low)

    def y(share: float) -> float:
        return _TOP + tall * (1 - share)

    svg = []
    for t in _ticks(low, high):
        svg += [_line(x(t), _TOP, x(t), _TOP + tall, "grid"), _text(x(t), HEIGHT - 28, f"{t:g}")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        svg += [_line(_LEFT, y(share), WIDTH - _RIGHT, y(share), "grid"), _text(_LEFT - 6, y(share) + 4, f"{share:.0%}", "end")]  # fmt: skip
    if low < 1 < high:
        svg.append(_line(x(1), _TOP, x(1), _TOP + tall, "equal"))
    svg.append(_text(_LEFT + inner / 2, HEIGHT - 8, "time of tec / time of the peer (left of 1: tec is faster)"))
    legend = []
    for n, ((target, peer), some) in enumerate(groups.items()):
        ratios = sorted(r.ratio for r in some if r.ratio)
        points = [f"{x(ratios[0]):.1f},{y(0):.1f}"]
        for k, ratio in enumerate(ratios):
            points += [f"{x(ratio):.1f},{y(k / len(ratios)):.1f}", f"{x(ratio):.1f},{y((k + 1) / len(ratios)):.1f}"]
        title = f"{target} / {peer}: {len(ratios)} operators, median {quantile(ratios, 0.5):.2f}, 90 % {quantile(ratios, 0.9):.2f}, worst {ratios[-1]:.1f}"  # fmt: skip
        svg.append(
            f'<polyline points="{" ".join(points)}" class="curve c{n % 8}"><title>{escape(title)}</title></polyline>'
        )
        legend.append((n, title))
    for n, title in legend:
        at = HEIGHT + 18 * n + 6
        svg += [_line(_LEFT, at, _LEFT + 24, at, f"curve c{n % 8}"), _text(_LEFT + 32, at + 4, title, "start")]
    rows_shown = [r for some in groups.values() for r in some]
    caption = f"Source: benchmarks/results/cliff.jsonl. Measured on: {_origins(rows_shown)}."
    return _figure(svg, WIDTH, HEIGHT + 18 * len(legend), "shares of drawn operators by ratio", caption)


def _day(r: Record) -> float:
    """Days since 1970 of a row's date, with its time of day where it has one."""
    at = datetime.datetime.fromisoformat(r.date)
    return at.replace(tzinfo=datetime.UTC).timestamp() / 86400


def over_time(rows: Iterable[Record]) -> str:
    """One small plot for each row that was measured at several commits: its ratio to the peer by date."""
    series: dict[tuple[str, str, str, str], list[Record]] = defaultdict(list)
    for r in rows:
        if r.ratio is not None:
            series[r.kind, r.what, r.target, r.measure].append(r)
    shown = {k: sorted(v, key=_day) for k, v in series.items() if len({r.commit for r in v}) > 1}
    # A line joins measurements of one kind of machine: what another processor took says nothing about the commits between.
    shown = {k: v for k, v in shown.items() if len({r.host.split(",")[0] for r in v}) == 1}
    if not shown:
        return ""
    every = [r for v in shown.values() for r in v]
    first, last = min(map(_day, every)), max(map(_day, every))
    ratios = [r.ratio for r in every if r.ratio]
    low, high = min(0.8, *ratios) / 1.15, max(1.25, *ratios) * 1.15
    columns, wide, tall, gap = 3, 224, 48, 24
    svg = []
    for n, ((_, what, target, measure), some) in enumerate(shown.items()):
        left, top = (n % columns) * (wide + gap), (n // columns) * (tall + 38) + 14
        points = [
            (
                left + 6 + (wide - 12) * (_day(r) - first) / ((last - first) or 1),
                top + 8 + tall * (1 - math.log(r.ratio / low) / math.log(high / low)),
            )
            for r in some
            if r.ratio
        ]
        equal = top + 8 + tall * (1 - math.log(1 / low) / math.log(high / low))
        title = f"{what}, {target}, {measure}: " + ", ".join(f"{r.date[:10]} ({r.commit}) {r.ratio:.3g}" for r in some)
        svg += [
            _text(left, top, what if len(what) < 26 else what[:24] + "…", "start"),
            _line(left, top + 8, left, top + 8 + tall, "grid"),
            _line(left, equal, left + wide, equal, "equal"),
            f"<g><title>{escape(title)}</title>",
            f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" class="curve c0"/>',
            *(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" class="dot c0"/>' for a, b in points),
            "</g>",
            _text(left + wide, top + 21 + tall, f"{some[0].ratio:.2f} → {some[-1].ratio:.2f}", "end", "number"),
        ]
    height = (len(shown) + columns - 1) // columns * (tall + 38)
    dates = [datetime.datetime.fromtimestamp(d * 86400, datetime.UTC).date().isoformat() for d in (first, last)]
    caption = (
        f"Time of tec / time of the peer by date, from {dates[0]} to {dates[1]}; every plot has the same axes, logarithmic from {low:.2f} to {high:.2f}, and the dashed line is 1. "
        f"Source: benchmarks/results. Measured on: {_origins(every)}."
    )
    return _figure(svg, columns * (wide + gap) - gap, height, "ratios by date", caption)


def with_plots(markdown: str) -> str:
    """A page with the plots in the places of their marks."""
    for mark, draw in zip(MARKS, (distributions, over_time)):
        if mark in markdown:
            markdown = markdown.replace(mark, draw(read()))
    return markdown


if __name__ == "__main__":
    print(distributions(read()))
    print(over_time(read()))
