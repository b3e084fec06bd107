"""A report as one self-contained page."""

from __future__ import annotations

from ..notebook import escape, table
from .findings import AGREES, DIFFERS, FAILED, Finding, Report

_STYLE = """body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#1c1f24}table{border-collapse:collapse;margin:.6em 0}
td,th{padding:.2em .7em;border-bottom:1px solid #e2e4e7;text-align:left;vertical-align:top}.differs{color:#a8371f}.failed{color:#8a5a00}.agrees{color:#2f6f4f}
.bar{display:inline-block;height:.7em;background:#8a9099}details{margin:.4em 0}"""


def _value(f: Finding) -> tuple[str, str, str]:
    """Expected, measured, ratio."""
    if f.expected is None or f.measured is None:
        return "", "", ""
    ratio = f"{f.ratio:.3f}" if f.ratio is not None else ""
    return f"{f.expected:.6g} {f.unit}", f"{f.measured:.6g} {f.unit}", ratio


def _rows(found: list[Finding]) -> str:
    head = ("check", "state", "expected", "measured", "ratio", "")
    rows = [(escape(f.name), f.state, *map(escape, _value(f)), escape(f.text)) for f in found]
    body = "".join(
        f'<tr><td>{r[0]}</td><td class="{r[1]}">{r[1]}</td>' + "".join(f"<td>{x}</td>" for x in r[2:]) + "</tr>" for r in rows
    )  # fmt: skip
    return "<table><tr>" + "".join(f"<th>{h}</th>" for h in head) + f"</tr>{body}</table>"


def page(report: Report) -> str:
    """HTML: a summary, what differs or failed first, then all of each section."""
    counts = [(s, *(str(report.counts(s)[k]) for k in (AGREES, DIFFERS, FAILED))) for s in report.sections]
    wrong = [f for f in report.findings if f.state in (DIFFERS, FAILED)]
    title = f"{report.device} ({report.chip})"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>",
        f"<p>{escape(report.product or 'No product of the machine table')}: where the chip, its driver, the software GPU and the time model agree.</p>",
        table(("section", AGREES, DIFFERS, FAILED), counts),
        "<h2>What differs or failed</h2>" + (_rows(wrong) if wrong else "<p>Nothing.</p>"),
    ]
    for section in report.sections:
        found = list(report.of(section))
        parts.append(f"<details><summary>{escape(section)}: all {len(found)}</summary>{_rows(found)}</details>")
    facts = [(escape(str(k)), escape(str(v))) for k, v in report.facts.items()]
    parts.append("<h2>What the driver says</h2>" + table(("", ""), facts) + "</html>")
    return "\n".join(parts)
