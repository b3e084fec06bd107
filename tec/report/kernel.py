"""The page of `tec emu run --html`: one launch line by line, one self-contained file.

In: a `CountedLaunch` of the software GPU. Out: a page with the assembly and its source side by side, counts and waits at every line, what the time is made of,
the roofline and the occupancy; with another page's data beside it where two are compared. The template, style and script are `assets/kernel.*`; colours are those of the
networks' page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..target import level_gbps
from .template import DATA, assets, filled
from .words import duration, size

if TYPE_CHECKING:
    from ..emulator.chips import Chip
    from ..emulator.lines import CountedLaunch, Line
    from ..runtime.objects.codeobject import KernelInfo

_SOURCE_BYTES = 1 << 20  # of a source file that is shown
# What a line has, in this order.
_FIELDS = (
    "text",
    "line",
    "where",
    "labels",
    "executed",
    "lanes",
    "bytes",
    "line_bytes",
    "lds_clocks",
    "conflict_clocks",
    "waited",
)


def page(launch: CountedLaunch, chip: Chip, against: Path | None = None) -> str:
    """The page's text. against: a page of this kind, to compare with. Raises ArgumentError where that is none."""
    data = data_of(launch, chip)
    if against is not None:
        other = _read(against)
        data["against"] = other
        data["rows"] = _aligned([row[0] for row in data["lines"]], [row[0] for row in other["lines"]])
    return filled("kernel.html", data["title"], assets("palette.css", "kernel.css"), assets("kernel.js"), data)


def _read(path: Path) -> dict[str, Any]:
    """The data of an earlier page."""
    try:
        found = DATA.search(path.read_text(encoding="utf-8"))
        data: dict[str, Any] = json.loads(found[1]) if found else {}
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: {error}") from None
    if not {"lines", "facts", "time", "fields"} <= set(data) or tuple(data["fields"]) != _FIELDS:
        raise ArgumentError(
            f"{path} is no page of tec emu run --html of this version", hint="write it anew, then --compare"
        )
    for name in ("against", "rows", "sources"):
        data.pop(name, None)
    return data


def _aligned(new: list[str], old: list[str]) -> list[list[int]]:
    """Which line of either text stands beside which: [new, old], -1 where there is none. Registers may differ between two builds of one
    kernel, so lines count as the same by their mnemonic."""
    pairs = SequenceMatcher(None, [t.split()[0] for t in new], [t.split()[0] for t in old], autojunk=False)
    rows: list[list[int]] = []
    for tag, a, b, c, d in pairs.get_opcodes():
        if tag == "equal":
            rows += [[a + k, c + k] for k in range(b - a)]
        else:
            rows += [[-1, k] for k in range(c, d)] + [[k, -1] for k in range(a, b)]
    return rows


def data_of(launch: CountedLaunch, chip: Chip) -> dict[str, Any]:
    """What the page shows, as plain data."""
    info, estimate = launch.function.info, launch.estimate
    occupancy = _occupancy(launch, chip)
    flops = sum(launch.flops.values())
    kernel_us = estimate.kernel_us
    memory = estimate.traffic.get("memory", 0.0)
    facts = [
        ("chip", f"{chip.product} ({chip.name})"),
        ("grid", " x ".join(map(str, launch.grid)) + " work-groups"),
        ("work-group", " x ".join(map(str, launch.block)) + f", waves of {info.wavefront_size}"),
        ("time, modelled", duration(kernel_us / 1e6)),
        ("limited by", estimate.limit),
        ("occupancy", f"{occupancy['waves']} of {occupancy['slots']} waves per SIMD, by {'wave slots' if occupancy['limit'] == 'waves' else occupancy['limit']}"),
        ("registers", f"{info.vgprs} VGPRs, {info.agprs} AGPRs, {info.sgprs} SGPRs" + _spills(info)),
        ("LDS", f"{estimate.lds_bytes} bytes"),
        ("scratch", f"{info.private_bytes} bytes a lane"),
        ("arithmetic", f"{flops / 1e9:.4g} GFLOP" if flops else "no floating point"),
        ("from memory", size(memory)),
    ]  # fmt: skip
    if estimate.assumed:
        facts.append(("assumed", estimate.assumed))
    lines = [[getattr(x, f) for f in _FIELDS] for x in launch.lines]
    for row in lines:
        row[5], row[-1] = round(row[5], 2), round(row[-1], 6)
    return {
        "title": f"{info.name} on {chip.product}", "kernel": info.name, "facts": facts, "occupancy": occupancy, "roofline": _roofline(launch, chip, kernel_us),
        "time": {
            "us": kernel_us, "limit": estimate.limit, "parts": sorted(((n, us) for n, us in estimate.parts.items() if n != "launch"), key=lambda x: -x[1]),
            "waits": sorted(estimate.waits.items(), key=lambda x: -x[1]), "launch_us": estimate.parts.get("launch", 0.0),
        },
        "fields": _FIELDS, "lines": lines, "wave": info.wavefront_size, "sources": _sources(launch.lines),
    }  # fmt: skip


def _spills(info: KernelInfo) -> str:
    spilled = info.vgpr_spills + info.sgpr_spills
    return f", {spilled} spilled" if spilled else ""


def _occupancy(launch: CountedLaunch, chip: Chip) -> dict[str, Any]:
    """Waves of a SIMD, and how many each resource alone would let in."""
    info, limits = launch.function.info, chip.limits
    wave = info.wavefront_size
    group = -(-launch.block[0] * launch.block[1] * launch.block[2] // wave)
    vgprs = info.vgprs + info.agprs
    lds = launch.estimate.lds_bytes
    waves, limit = limits.occupancy(vgprs, lds, group, wave)
    total, granule = limits.registers(wave)
    by_lds = limits.unit_lds_bytes // lds * group / limits.simds if lds else None
    rows = [
        ("wave slots", f"{limits.waves_a_simd} per SIMD", limits.waves_a_simd),
        ("VGPRs", f"{vgprs} of {total}, in steps of {granule}", total // (-(-max(1, vgprs) // granule) * granule)),
        ("LDS", f"{lds} of {limits.unit_lds_bytes} bytes, {group} waves per work-group", by_lds),
    ]
    return {"waves": waves, "limit": limit, "slots": limits.waves_a_simd, "rows": rows}


def _roofline(launch: CountedLaunch, chip: Chip, kernel_us: float) -> dict[str, Any] | None:
    """Ceilings in GFLOP/s and GB/s, and the kernel by the bytes of each level; None where it does no floating point arithmetic."""
    flops = sum(launch.flops.values())
    if not flops or not kernel_us:
        return None
    machine = chip.machine
    main = max(launch.flops, key=lambda d: launch.flops[d])
    matrix = any(x.executed and x.text.startswith(("v_mfma", "v_wmma", "v_smfmac", "v_swmmac")) for x in launch.lines)
    peaks = {"vector float32": 1e3 * machine.peak_tflops("float32", matrix=False)}
    if matrix or main != "float32":
        peaks[f"{'matrix' if matrix else 'vector'} {main}"] = 1e3 * machine.peak_tflops(main, matrix=matrix)
    levels = {n: level_gbps(machine, n) for n in launch.estimate.traffic}
    points = [(n, flops / b, flops / kernel_us / 1e3) for n, b in launch.estimate.traffic.items() if b]
    return {"peaks": peaks, "levels": levels, "points": points, "machine": machine.name}


def _sources(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """The source files that the assembly names, as far as they are here: their text around the lines that are named."""
    named: dict[str, set[int]] = {}
    for x in lines:
        file, _, number = x.where.rpartition(":")
        if file and number.isdigit():
            named.setdefault(file, set()).add(int(number))
    out = []
    for file, numbers in named.items():
        text: list[str] | None = None
        try:
            if Path(file).stat().st_size <= _SOURCE_BYTES:
                text = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            pass
        first, last = max(1, min(numbers) - 8), max(numbers) + 8
        shown = text[first - 1 : last] if text is not None else None
        out.append({"file": file, "first": first, "text": shown, "lines": sorted(numbers)})
    return out
