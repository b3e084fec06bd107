"""Tables of `benchmarks/amd_model.jsonl` for docs/amd-model.md: by product, type and kind, fit and judged rows apart, and a picture of every ratio."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.amd_model import summary
from benchmarks.amd_reasons import FAR, WORDS, least_us, reason
from benchmarks.model_rows import Row, rows
from tec.target.fitted import FITTED

MARK, GOOD_MARK, FITTED_MARK = "<!-- amd model -->", "<!-- tec beside libraries -->", "<!-- fitted constants -->"
REASONS_MARK = "<!-- reasons -->"
DATA = Path(__file__).resolve().parent.parent / "benchmarks" / "amd_model.jsonl"
WIDTH, LEFT, ROW = 640, 250, 18  # pixels of the picture
LEAST, MOST = 0.4, 1.6  # ratios at its ends
Line = dict[str, Any]


def lines() -> list[Line]:
    return [json.loads(x) for x in DATA.read_text().splitlines()]


def _table(found: list[Line]) -> list[str]:
    """By kind, then by product, type and kind: before and now, the median ratio, the median error, and the shares within 15 and 25 %."""
    out = [
        "| rows | product | type | kind | count | before: ratio | error | within 15, 25 % | now: ratio | error | within 15, 25 % |",
        "| --- " * 11 + "|",
    ]
    groups: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    for x in found:
        side = "judged" if x["judged"] else "fit"
        kind = x["kind"]
        for key in ((side, "all", "", ""), (side, "all", "", kind), (side, x["product"], x["dtype"], kind)):
            groups[key].append(x)
    for key in sorted(groups, key=lambda k: (k[0] != "judged", k[1] != "all", k)):
        cells = [*key]
        for when in ("before", "after"):
            s = summary([x for x in groups[key] if x["when"] == when])
            cells += [str(s["rows"])] * (when == "before") + [
                f"{s['median']:.2f}",
                f"{s['median_error']:.1%}",
                f"{s['within_15']:.0%}, {s['within_25']:.0%}",
            ]
        out.append("| " + " | ".join(cells) + " |")
    return out


def _x(ratio: float) -> float:
    return LEFT + (WIDTH - LEFT - 10) * (min(MOST, max(LEAST, ratio)) - LEAST) / (MOST - LEAST)


def picture(found: list[Line]) -> str:
    """Modelled over measured, a dot a row of the newest run, a line a group; filled dots are judged rows; the grey band is 15 %."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for x in found:
        if x["when"] == "after":
            groups[f"{x['product']} {x['dtype']} {x['kind']}"].append(x)
    height = ROW * (len(groups) + 2)
    out = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="modelled over measured time of each row" style="max-width: 100%">'
    ]
    out.append(
        f'<rect x="{_x(0.85):.0f}" y="0" width="{_x(1.15) - _x(0.85):.0f}" height="{ROW * len(groups)}" fill="#8884"/>'
    )
    for i, (name, of) in enumerate(sorted(groups.items())):
        y = ROW * i + ROW // 2
        out.append(f'<text x="4" y="{y + 4}" font-size="11" fill="currentColor">{name}</text>')
        for x in of:
            fill = "#3b6fb6" if x["judged"] else "none"
            title = f"<title>{x['shape']}: {x['modelled_us']:g} us for {x['measured_us']:g}</title>"
            out.append(
                f'<circle cx="{_x(x["ratio"]):.1f}" cy="{y}" r="4" fill="{fill}" stroke="#3b6fb6">{title}</circle>'
            )
    for tick in (0.5, 0.75, 1.0, 1.25, 1.5):
        out.append(
            f'<text x="{_x(tick):.0f}" y="{height - ROW // 2}" font-size="11" text-anchor="middle" fill="currentColor">{tick:g}</text>'
        )
    return "".join([*out, "</svg>"])


@cache
def _rows() -> dict[tuple[Any, ...], Row]:
    return {(r.product, r.dtype, r.shape, r.turned, r.us): r for r in rows()}


def _row(x: Line) -> Row:
    """The published row of a line."""
    return _rows()[x["product"], x["dtype"], x["shape"], x["turned"], x["measured_us"]]


def good_table(found: list[Line]) -> list[str]:
    """tec's default beside a library's best, by product and operation."""
    out = [
        "| product | operation | rows | median | 90 % | worst | below 0.6 |",
        "| --- " * 7 + "|",
    ]
    groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for x in found:
        groups[x["product"], x["shape"].split()[0]].append(x)
        groups["all", ""].append(x)
    for key in sorted(groups, key=lambda k: (k[0] != "all", k)):
        s = summary(groups[key])
        ratios = [x["ratio"] for x in groups[key]]
        cells = [*key, s["rows"], f"{s['median']:.2f}", f"{s['p90']:.2f}", f"{max(ratios):.2f}"]
        out.append("| " + " | ".join(map(str, cells)) + f" | {sum(r < FAR for r in ratios)} |")
    return out


def reasons_table(found: list[Line]) -> list[str]:
    """Of the rows where tec is far ahead: how many each reason has, with the median row of each."""
    out = [
        "| reason | rows | median ratio | a row: product, type, problem, operands | library, us | tec, us | least, us |",
        "| --- " * 7 + "|",
    ]
    groups: dict[str, list[Line]] = defaultdict(list)
    for x in found:
        if x["ratio"] < FAR:
            groups[reason(_row(x), x["modelled_us"])].append(x)
    for name in WORDS:
        of = sorted(groups.get(name, []), key=lambda x: float(x["ratio"]))
        if not of:
            continue
        x = of[len(of) // 2]
        row = ", ".join((x["product"], x["dtype"], x["shape"], x["turned"]))
        times = f"{x['measured_us']:.4g} | {x['modelled_us']:.4g} | {least_us(_row(x)):.4g}"
        out.append(f"| {WORDS[name]} | {len(of)} | {x['ratio']:.2f} | {row} | {times} |")
    return out


def fitted_table() -> list[str]:
    rows = (f"| {name} | {f.value:g} {f.unit} | {f.rows} | {f.how} |" for name, f in FITTED.items())
    return ["| constant | value | chosen by | how |", "| --- " * 4 + "|", *rows]


def with_tables(markdown: str) -> str:
    """A page with what its marks stand for."""
    if MARK not in markdown:
        return markdown
    found = lines()
    right = [x for x in found if x["part"] == "right"]
    text = markdown.replace(MARK, "\n".join([picture(right), "", *_table(right)]))
    good = [x for x in found if x["part"] == "good"]
    text = text.replace(GOOD_MARK, "\n".join(good_table(good)))
    text = text.replace(REASONS_MARK, "\n".join(reasons_table(good)))
    return text.replace(FITTED_MARK, "\n".join(fitted_table()))
