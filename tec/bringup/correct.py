"""A report read back: the machine table's data of a product, corrected by what was measured on it."""

from __future__ import annotations

from dataclasses import replace

from ..emulator import chips
from ..errors import ArgumentError
from ..target import CHIPS, MACHINES, Machine, find_product, latency_ns, level_gbps, machine_of_chip
from ..target.machines import product_key
from .findings import Finding, Report


def corrected(report: Report) -> tuple[Machine, list[str]]:
    """(the product with its data corrected, what was changed and how). A latency gets the difference between chip and model, a rate their quotient. Data that agree stay.
    Raises ArgumentError for a report on a device that is no product of the table."""
    m = find_product(report.product) if report.product else None
    if m is None:
        raise ArgumentError(f"the report is of {report.device!r}, which is no product of the machine table")
    said = []
    for f in report.findings:
        if f.corrects and f.state == "differs" and f.expected and f.measured:
            changed, what = _one(m, f)
            if changed is not m:
                m = changed
                said.append(what)
    return m, said


def _one(m: Machine, f: Finding) -> tuple[Machine, str]:
    """The machine as one finding corrects it, and what changed in words."""
    assert f.expected is not None and f.measured is not None
    factor, more = f.measured / f.expected, f.measured - f.expected
    name, _, field = f.corrects.rpartition(" ")
    if name == "matrix_clocks":
        before = m.matrix_clock(field) or m.clock_mhz
        now = min(m.clock_mhz, round(before * factor))
        return replace(m, matrix_clocks={**m.matrix_clocks, field: now}), f"{field} under matrix work: {before} to {now} MHz"  # fmt: skip
    if field in ("latency_ns", "gbps", "size_bytes"):
        level = m.level(name)
        if level is None:
            return m, ""
        if field == "latency_ns":
            old: float = latency_ns(m, name)
            new: float = max(1.0, old + more)
            level = replace(level, latency_ns=new)
        elif field == "gbps":
            old = level_gbps(m, name)
            new = old * factor
            level = replace(level, gbps=new)
        else:
            old, new = level.size_bytes, f.measured
            level = replace(level, size_bytes=int(new))
        levels = tuple(level if x.name == name else x for x in m.levels)
        return replace(m, levels=levels), f"{name} {field}: {old:.4g} to {new:.4g}"
    if field in ("launch_us", "units", "clock_mhz", "memory_bytes", "scratch_bytes_a_clock"):
        was = getattr(m, field)
        value = was + more if field == "launch_us" else was * factor if field == "scratch_bytes_a_clock" else f.measured
        kept = type(was)(round(value) if isinstance(was, int) else value)
        return replace(m, **{field: kept}), f"{field}: {was} to {kept:.6g}"
    return m, ""


def use(report: Report) -> list[str]:
    """Put the corrected product in the place of the table's, for this process: costs, limits and the time model read it. Returns what was changed; see `corrected`."""
    m, said = corrected(report)
    MACHINES[product_key(m.name)] = m
    if m.chip in chips.CHIPS and machine_of_chip(CHIPS[m.chip]) is m:
        chips.CHIPS[m.chip] = chips.Chip(CHIPS[m.chip], m)
    return said
