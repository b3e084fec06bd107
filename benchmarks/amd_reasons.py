"""Why the modelled time of tec's kernel is far below a library's best published time: a class for each such row, from published rows alone.

A row's least time is what the chip's limits leave: its multiply-adds at the peak clock, or its operands and result once at memory's rate (the last cache's where that held them). The share
of a time is the least time over it. Classes, in this order:

- "tiny": tec's time is below what the shortest row of the source takes beside its work: the source does not say how long such a kernel takes.
- "clock", "bandwidth", "model": tec's share is above any published one of the chip and type, and above what libraries reach elsewhere: doubt the model first. The machine table has no clock of the chip
  under such work, or nothing that its memory reaches, and the peak stands for it; or neither is so.
- "launch": the time holds what the shortest time of the same source does beside its work, and without it the ratio is not below `FAR`.
- "layout": the library's convolution turns the operands into another layout and its result back, which its name says.
- "type": no published kernel of the chip and type is near the limits, whatever the problem.
- "few groups", "narrow", "batch", "shape": the library has good kernels of the chip and type, and takes none here: its share is half of its own best or less. The problem has too few tiles of 128 x 128 for
  the units and a long sum; or too few rows or columns for its tiles; or it is a batch of small products; or none of these.
- "both": none of these: the library is fair, and tec faster.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from math import ceil

from benchmarks.model_rows import Row, rows
from tec.target import CHIPS, find_product, level_gbps

FAR = 0.6  # a ratio below it needs a reason
HALF = 0.5
TILE = 128  # rows and columns of the tile that libraries take where a problem has room for it
NARROW = 32  # rows or columns below it leave most of any library's tile empty
NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "f8": "float8_e4m3",
}  # fmt: skip
FNUZ = "gfx942"  # whose matrix instructions take 8-bit floats of its own kind, as its libraries' kernels do
WIDTHS = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i8": 1, "f8": 1, "f4": 17 / 32}  # bytes, scales with them


def dtype_of(row: Row) -> str:
    """tec's name of the operands' type."""
    return "float8_e4m3fnuz" if row.dtype == "f8" and row.chip == FNUZ else NAMES[row.dtype]


WORDS = {
    "tiny": "tec's time is below the shortest that the source can show",
    "clock": "above every published rate: the chip's clock under such work is not known, and its peak stands for it",
    "bandwidth": "above every published rate: what its memory reaches is not known, and its peak stands for it",
    "model": "above every published rate: the model is doubted",
    "launch": "the time holds a launch",
    "layout": "the library converts the layout before and after",
    "type": "no published kernel of this chip and type is near the limits",
    "few groups": "the library has good kernels; here few tiles, a long sum",
    "narrow": "the library has good kernels; here few rows or columns",
    "batch": "the library has good kernels; here a batch of small products",
    "shape": "the library has good kernels, and takes none here",
    "both": "the library is fair, and tec faster",
}  # fmt: skip


def work(row: Row) -> tuple[float, float]:
    """Multiply-adds, and bytes of operands and result."""
    width = WIDTHS[row.dtype]
    out = WIDTHS.get(row.out, width)
    if row.op == "product":
        m, n, k, batch = row.sizes
        return float(m * n * k * batch), batch * ((m * k + k * n) * width + m * n * out)
    if row.op == "attention":
        b, heads, of_keys, length, size = row.sizes
        macs = 2.0 * b * heads * length * length * size * (0.5 if row.causal else 1.0)
        return macs, b * length * size * (2 * heads + 2 * of_keys) * width
    n, c, h, w, k, r, s, stride, pad = row.sizes
    oh, ow = ((x + 2 * pad - f) // stride + 1 for x, f in ((h, r), (w, s)))
    return float(n * k * oh * ow * c * r * s), (n * c * h * w + k * c * r * s) * width + n * k * oh * ow * out


def peak_tflops(row: Row) -> float:
    """10^12 operations a second that the chip does of the row's type at its highest clock. The machine table has bytes by matrix instructions; elsewhere a dot product of four does them."""
    machine = find_product(row.product)
    assert machine is not None, row.product
    fours = 4 if row.dtype == "i8" and "int8" not in machine.matrix_macs and CHIPS[machine.chip].dot4 else 1
    return fours * machine.peak_tflops(dtype_of(row))


def limits_us(row: Row) -> tuple[float, float]:
    """What the chip's arithmetic leaves, and what its memory does."""
    machine = find_product(row.product)
    assert machine is not None, row.product
    macs, nbytes = work(row)
    last = machine.level("MALL")
    held = row.warm and last is not None and nbytes <= last.size_bytes
    gbps = level_gbps(machine, "MALL" if held else "memory")
    return 2e-6 * macs / peak_tflops(row), nbytes / gbps * 1e-3


def least_us(row: Row) -> float:
    """What the chip's limits leave."""
    return max(limits_us(row))


def _beyond(row: Row) -> str:
    """Which peak stands for a figure that nobody measured, in the limit that a problem meets first."""
    machine = find_product(row.product)
    assert machine is not None, row.product
    arithmetic, memory = limits_us(row)
    if arithmetic >= memory:
        return (
            "clock"
            if machine.power is None and machine.matrix_clock(dtype_of(row).partition("_")[0]) is None
            else "model"
        )
    return "bandwidth" if machine.memory.gbps == machine.memory_gbps else "model"


@dataclass(frozen=True, slots=True)
class Known:
    """What the published rows say: the best share by (product, type, operation); what the shortest row of (product, operation, launched) takes beside its work, but not more than
    the median product's, for some sources have long rows alone; and the median of the best shares."""

    best: dict[tuple[str, str, str], float]
    beside: dict[tuple[str, str, bool], float]
    usual: float


@cache
def known() -> Known:
    best: dict[tuple[str, str, str], float] = defaultdict(float)
    shortest: dict[tuple[str, str, bool], tuple[float, float]] = {}
    for row in rows():
        if row.dtype not in NAMES or row.op not in ("product", "attention", "convolution"):
            continue
        least = least_us(row)
        key = row.product, row.dtype, row.op
        best[key] = max(best[key], least / row.us)
        at = row.product, row.op, row.launched
        shortest[at] = min(shortest.get(at, (row.us, least)), (row.us, least))
    left = {k: max(0.0, us - least) for k, (us, least) in shortest.items()}
    usual = {of: statistics.median(v for k, v in left.items() if k[1:] == of) for of in {k[1:] for k in left}}
    beside = {k: min(v, usual[k[1:]]) for k, v in left.items()}
    return Known(dict(best), beside, statistics.median(best.values()))


def shape(row: Row) -> str:
    """What is unusual about a product's sizes."""
    machine = find_product(row.product)
    assert machine is not None, row.product
    if row.op != "product":
        return "shape"
    m, n, k, batch = row.sizes
    if min(m, n) < NARROW:
        return "narrow"
    if batch > 1:
        return "batch"
    if ceil(m / TILE) * ceil(n / TILE) < machine.units and k >= max(m, n):
        return "few groups"
    return "shape"


def reason(row: Row, modelled_us: float) -> str:
    """The class of a row (above)."""
    found, least = known(), least_us(row)
    best = found.best[row.product, row.dtype, row.op]
    beside = found.beside[row.product, row.op, row.launched]
    if row.warm and modelled_us < beside:
        return "tiny"
    if least / modelled_us > max(best, found.usual):
        return _beyond(row)
    if row.warm and modelled_us >= FAR * max(row.us - beside, least):
        return "launch"
    if row.op == "convolution" and row.note.startswith("NCHW") and row.note.endswith("NHWC"):
        return "layout"
    if best < HALF:
        return "type"
    if least / row.us <= HALF * best:
        return shape(row)
    return "both"
