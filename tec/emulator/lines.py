"""A launch line by line: how often each instruction ran, for how many lanes, what it moved, and what it waited for.

    with counted(driver) as launches:
        ...launches...
    launches[0].lines

Executions, lanes, bytes and conflicts are counted while the kernel runs; times and waits are the time model's. Arithmetic is that of the lanes that were
on: a fused multiply-add is 2, a matrix instruction all of its multiply-adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.devices.surface import Dim3
from .chips import DTYPES
from .decode.inst import Inst, KernelText
from .time.counters import LINE_BYTES
from .time.issue import matrix_type, matrix_work
from .time.model import Estimate
from .translate.translation import Row

if TYPE_CHECKING:
    from .driver import EmuDriver
    from .modules import EmuFunction

# Operations of one lane, by mnemonic; packed forms do two of them.
_ARITHMETIC = (
    (re.compile(r"v_(?:dual_|pk_)?(?:fma|fmac|fmaak|fmamk|mad|mac)\w*_(f16|f32|f64|bf16)"), 2),
    (re.compile(r"v_(?:dual_|pk_)?(?:add|sub|subrev|mul)_(f16|f32|f64|bf16)"), 1),
    (re.compile(r"v_(?:dual_)?dot2\w*_f32_(f16|bf16)"), 4),
)
_MATRIX = ("v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_")


@dataclass(slots=True)
class Line:
    """One instruction. `lanes`: mean of those that were on; `line_bytes`: bytes of the cache lines that its global accesses touched; LDS in clocks of its
    banks; `waited`: its share of the waves' time, by the model."""

    text: str
    line: int  # of the assembly
    where: str = ""  # "file:line" of the source, where the assembly says it
    labels: tuple[str, ...] = ()  # that stand before it
    executed: int = 0  # by waves
    lanes: float = 0.0
    bytes: int = 0
    line_bytes: int = 0
    lds_clocks: int = 0
    conflict_clocks: int = 0
    waited: float = 0.0


@dataclass(slots=True)
class CountedLaunch:
    """One launch of a kernel on `driver`."""

    function: EmuFunction
    grid: Dim3
    block: Dim3
    estimate: Estimate
    lines: list[Line]
    flops: dict[str, float] = field(default_factory=dict)  # by type


@contextmanager
def counted(driver: EmuDriver) -> Iterator[list[CountedLaunch]]:
    """Count every launch on `driver` within the block, line by line; kernels run in a form with counters, some times slower."""
    before = driver.profile, driver.observer
    launches: list[CountedLaunch] = []

    def observe(
        function: EmuFunction, compiled: Any, grid: Dim3, block: Dim3, estimate: Estimate, counters: Any, *times: float
    ) -> None:
        rows = compiled.translation.rows
        lines = _lines(function.text, rows, counters, estimate.held)
        launches.append(CountedLaunch(function, grid, block, estimate, lines, _flops(function.text, lines)))
        if before[1] is not None:
            before[1](function, compiled, grid, block, estimate, counters, *times)

    driver.profile, driver.observer = True, observe
    try:
        yield launches
    finally:
        driver.profile, driver.observer = before


def _lines(text: KernelText, rows: list[Row], counters: np.ndarray, waited: dict[int, float]) -> list[Line]:
    """A kernel's instructions with what was counted of them. rows: what each row of `counters` is of, a run of instructions ("block") or the accesses of one."""
    labels: dict[int, list[str]] = {}
    for name, at in text.labels.items():
        labels.setdefault(at, []).append(name)
    out = [
        Line(
            i.text.strip(), i.line, text.statements.get(i.line, ""), tuple(labels.get(n, ())), waited=waited.get(n, 0.0)
        )
        for n, i in enumerate(text.insts)
    ]
    starts = sorted({r.start for r in rows if r.kind == "block"})
    ends = dict(zip(starts, [*starts[1:], len(out)]))
    for row, counts in zip(rows, counters.tolist()):
        if row.kind == "block":
            waves, lanes = counts[:2]
            for line in out[row.start : ends[row.start]]:
                line.executed, line.lanes = int(waves), lanes / waves if waves else 0.0
        else:
            _count_access(out[row.start], row.kind, counts)
    return out


def _count_access(line: Line, kind: str, counts: list[float]) -> None:
    """Add what one row counted of an instruction's accesses: their number and bytes, then lines of the cache, or clocks of LDS and those of conflicts."""
    _, bytes_, touched, conflicts = counts
    line.bytes += int(bytes_)
    if kind.startswith("global"):
        line.line_bytes += LINE_BYTES * int(touched)
    else:
        line.lds_clocks += int(touched)
        line.conflict_clocks += int(conflicts)


def _flops(text: KernelText, lines: list[Line]) -> dict[str, float]:
    """Operations on floats of all waves, by type."""
    out: dict[str, float] = {}
    for inst, line in zip(text.insts, lines):
        for part in (inst, inst.dual):
            if part is not None and line.executed:
                kind, n = _work(part, line.lanes)
                if n:
                    out[kind] = out.get(kind, 0.0) + n * line.executed
    return out


def _work(inst: Inst, lanes: float) -> tuple[str, float]:
    """(type, operations) of one execution."""
    if inst.op.startswith(_MATRIX):
        macs, kind, _ = matrix_work(inst)
        return DTYPES.get(matrix_type(kind), kind), 2.0 * macs
    for pattern, n in _ARITHMETIC:
        found = pattern.match(inst.op)
        if found:
            return DTYPES[found[1]], n * lanes * (2 if "_pk_" in inst.op else 1)
    return "", 0.0
