"""What a search found: tables for a terminal, plain data, and a page with pictures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..choices import Choice
from ..choices.space import text
from ..errors import one_line
from ..notebook import escape
from ..report.words import duration
from ..runtime.outputs import write_output

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;font-size:14px}th,td{padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid #ddd}td.n,th.n{text-align:right}
svg{max-width:100%;height:auto}.grid{stroke:#ddd}.line{fill:none;stroke:#1f6feb;stroke-width:2}.tick{font-size:11px;fill:#666}.was{fill:#c8ccd2}.now{fill:#1f6feb}
.axis{font-size:12px;fill:#444}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#15181c}th,td{border-color:#333}.grid{stroke:#333}.tick,.axis{fill:#999}.was{fill:#4a5058}}"""


@dataclass
class Found:
    """What the search says of one task. Seconds of one call, default and found, measured in turn; `trials` counts measurements, `failed` those that
    gave no time; `history` is the best share of the default's time after each trial."""

    name: str
    signature: str
    calls: int
    default: Choice
    choice: Choice
    default_seconds: float
    seconds: float
    trials: int = 0
    failed: int = 0
    history: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # of failed trials, each once

    @property
    def gain(self) -> float:
        """How many times as fast as the default; 1 where that stayed."""
        return self.default_seconds / self.seconds if self.seconds else 1.0

    @property
    def default_share_seconds(self) -> float:
        """Of all calls of a run."""
        return self.calls * self.default_seconds


@dataclass
class TuneReport:
    """A search's result: `found`, those that take the longest first. how: "measured" or "model-ranked"."""

    what: str
    target: str
    machine: str
    how: str
    found: list[Found] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0  # that the search took

    @property
    def choices(self) -> dict[str, Choice]:
        """{signature: choice}, as `tec.compile(choices=)` takes it."""
        return {f.signature: f.choice for f in self.found}

    @property
    def default_seconds(self) -> float:
        """Of the tuned groups in one run, by the defaults."""
        return sum(f.default_share_seconds for f in self.found)

    @property
    def tuned_seconds(self) -> float:
        """Of the tuned groups in one run, by what was found."""
        return sum(f.default_share_seconds / f.gain for f in self.found)

    @property
    def trials(self) -> int:
        return sum(f.trials for f in self.found)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "default_seconds": self.default_seconds, "tuned_seconds": self.tuned_seconds}

    def __str__(self) -> str:
        if not self.found:
            return "\n".join([self.summary, *map(one_line, self.notes)])
        lines = [f"{'':40} {'calls':>5} {'default':>10} {'found':>10} {'times':>6} {'trials':>6}"]
        for f in self.found:
            lines.append(f"{one_line(f.name)[:40]:40} {f.calls:5} {duration(f.default_seconds):>10} {duration(f.default_seconds / f.gain):>10} {f.gain:6.2f} {f.trials:6}  {text(f.choice) if f.gain > 1 else 'the default'}")  # fmt: skip
        lines.append(self.summary)
        return "\n".join([*lines, *map(one_line, self.notes)])

    @property
    def summary(self) -> str:
        """One line."""
        if not self.found:
            return f"{one_line(self.what)}: nothing to choose"
        return (
            f"{one_line(self.what)} on {one_line(self.machine)}, {self.how}: {duration(self.default_seconds)} by default, {duration(self.tuned_seconds)} found, "
            f"{self.default_seconds / self.tuned_seconds:.2f} times as fast; {self.trials} trials in {self.seconds:.0f} s"
        )

    def to_html(self) -> str:
        """A page that needs nothing else."""
        rows = "".join(
            f"<tr><td>{escape(f.name)}</td><td class=n>{f.calls}</td><td class=n>{duration(f.default_seconds)}</td><td class=n>{duration(f.default_seconds / f.gain)}</td>"
            f"<td class=n>{f.gain:.2f}</td><td class=n>{f.default_share_seconds / max(self.default_seconds, 1e-30):.1%}</td><td class=n>{f.trials}</td>"
            f"<td class=n>{f.failed}</td><td>{escape(text(f.choice))}</td></tr>"
            for f in self.found
        )  # fmt: skip
        notes = "".join(f"<p>{escape(n)}</p>" for n in self.notes)
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(self.what)}</title><style>{_STYLE}</style><body>"
            f"<h1>Tuning {escape(self.what)}</h1><p>{escape(self.summary)}</p><p>Target {escape(self.target)}. Times are {_MEANS[self.how]}.</p>"
            f"<h2>The best over trials</h2>{self.history_svg()}<h2>Default against found</h2>{self.bars_svg()}"
            f"<table><tr><th>group<th class=n>calls<th class=n>default<th class=n>found<th class=n>times<th class=n>share<th class=n>trials<th class=n>failed<th>choice</tr>{rows}</table>{notes}"
            "</body></html>"
        )

    def save(self, path: str | Path) -> None:
        """Write the page. Raises ArgumentError where it cannot be written."""
        write_output(path, self.to_html())

    def _repr_html_(self) -> str:
        return f"<style>{_STYLE}</style>{self.history_svg()}{self.bars_svg()}<p>{escape(self.summary)}</p>"

    # ---- pictures

    def history_svg(self) -> str:
        """The time of all groups together, as a share of the default's, over the trials of each."""
        w, h, left, right, top, bottom = 720, 260, 48, 12, 12, 36
        n = max((len(f.history) for f in self.found), default=0)
        if not n:
            return "<p>No trials.</p>"
        total = self.default_seconds
        shares = [
            sum(f.default_share_seconds * (f.history[min(k, len(f.history)) - 1] if k and f.history else 1.0) for f in self.found) / total
            for k in range(n + 1)
        ]  # fmt: skip
        low = min(0.9, min(shares)) - 0.02

        def x(k: float) -> float:
            return left + k / n * (w - left - right)

        def y(v: float) -> float:
            return top + (1.0 - v) / (1.0 - low) * (h - top - bottom)

        out = [f'<svg viewBox="0 0 {w} {h}" role="img" aria-label="time over trials">']
        for k in range(5):
            v = 1.0 - k * (1.0 - low) / 4
            out.append(f'<line class="grid" x1="{left}" x2="{w - right}" y1="{y(v):.1f}" y2="{y(v):.1f}"/><text class="tick" x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.2f}</text>')  # fmt: skip
        path = f"M{x(0):.1f} {y(shares[0]):.1f}" + "".join(f"H{x(k):.1f}V{y(shares[k]):.1f}" for k in range(1, n + 1))
        out.append(f'<path class="line" d="{path}"/>')
        for k in sorted({0, n // 2, n}):
            out.append(f'<text class="tick" x="{x(k):.1f}" y="{h - bottom + 16}" text-anchor="middle">{k}</text>')
        out.append(f'<text class="axis" x="{(left + w) / 2:.0f}" y="{h - 4}" text-anchor="middle">trials of each group; time over the default\'s</text></svg>')  # fmt: skip
        return "".join(out)

    def bars_svg(self) -> str:
        """Each group's time in a run: by default, and found."""
        shown = self.found[:24]
        w, line, left = 720, 26, 260
        longest = max((f.default_share_seconds for f in shown), default=0.0) or 1.0
        out = [f'<svg viewBox="0 0 {w} {line * len(shown) + 8}" role="img" aria-label="default against found">']
        for k, f in enumerate(shown):
            y = 4 + k * line
            scale = (w - left - 90) / longest
            was, now = f.default_share_seconds * scale, f.default_share_seconds / f.gain * scale
            out.append(f'<text class="axis" x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(f.name[:38])}</text>')
            out.append(f'<rect class="was" x="{left}" y="{y}" width="{was:.1f}" height="9"><title>default {duration(f.default_share_seconds)}</title></rect>')  # fmt: skip
            out.append(f'<rect class="now" x="{left}" y="{y + 10}" width="{now:.1f}" height="9"><title>found {duration(f.default_share_seconds / f.gain)}</title></rect>')  # fmt: skip
            out.append(f'<text class="tick" x="{left + max(was, now) + 6:.1f}" y="{y + 14}">{f.gain:.2f}</text>')
        return "".join(out) + "</svg>"


_MEANS = {
    "measured": "measured, default and candidate in turn",
    "model-ranked": "model-ranked: the software GPU's time model, no hardware was there",
}
