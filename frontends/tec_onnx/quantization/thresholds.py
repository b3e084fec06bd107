"""Where a tensor's values are cut off before they become bytes: from what calibration saw of them.

`minmax` keeps everything. The others give up the rarest values for finer steps: `percentile` a share of them, `entropy` (TensorRT's way: the
Kullback-Leibler divergence between the values and their quantized distribution) and `mse` (the mean squared error) by search over the threshold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.records import dataclass

BINS = 2048  # of a histogram: TensorRT's number
METHODS = ("minmax", "percentile", "entropy", "mse")
PERCENTILE = 99.99  # of the values are kept by default: what onnxruntime and TensorRT take
_STEPS = 100  # thresholds that the search by squared error tries


@dataclass(slots=True)
class Seen:
    """The values of one tensor over all samples: their range, and once that is known, how many fall into each of BINS equal parts of it."""

    low: float = np.inf
    high: float = -np.inf
    counts: Any = None

    def widen(self, x: Any) -> None:
        """Take the range of an array in. Values that are not finite are left out."""
        finite = x[np.isfinite(x)] if x.dtype.kind == "f" else x
        if finite.size:
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def count(self, x: Any) -> None:
        """Count the values of an array."""
        if self.counts is None:
            self.counts = np.zeros(BINS, np.int64)
        if self.high > self.low:
            self.counts += np.histogram(x[np.isfinite(x)], BINS, (self.low, self.high))[0]

    @property
    def centres(self) -> Any:
        """The middle of each part."""
        edges = np.linspace(self.low, self.high, BINS + 1)
        return (edges[1:] + edges[:-1]) / 2


def threshold(seen: Seen, method: str, percentile: float = PERCENTILE) -> tuple[float, float]:
    """(lowest, highest) value that stays as it is."""
    if seen.high < seen.low:
        return 0.0, 0.0  # nothing was seen
    if method == "minmax" or seen.counts is None or seen.high == seen.low or not seen.counts.any():
        return seen.low, seen.high
    return {
        "percentile": lambda: _percentile(seen, percentile),
        "entropy": lambda: _entropy(seen),
        "mse": lambda: _mse(seen),
    }[method]()


def _percentile(seen: Seen, percentile: float) -> tuple[float, float]:
    """All but so many of the largest magnitudes; the sign that lies nearer to 0 keeps what it has."""
    size, counts = np.abs(seen.centres), seen.counts
    order = np.argsort(size)
    share = np.cumsum(counts[order]) / counts.sum()
    top = float(size[order][min(int(np.searchsorted(share, percentile / 100)), BINS - 1)])
    return max(seen.low, -top), min(seen.high, top)


def _entropy(seen: Seen) -> tuple[float, float]:
    """The magnitude that loses the least information when the levels of a byte stand for what is below it.

    Zeros are left out: they are exact at any threshold, and after a ReLU there are so many that they would decide alone.
    """
    levels = 255 if seen.low >= 0 or seen.high <= 0 else 128
    most = max(abs(seen.low), abs(seen.high))
    counts = np.bincount(np.minimum((np.abs(seen.centres) / most * BINS).astype(int), BINS - 1), seen.counts, BINS)
    counts[0] = 0
    if not counts.any():
        return seen.low, seen.high
    best, found = np.inf, BINS
    for n in range(levels, BINS + 1, 16):
        kept = counts[:n].astype(np.float64)
        reference = kept.copy()
        reference[-1] += counts[n:].sum()
        # Each level stands for n / levels bins: its mass is spread over those of them that hold anything.
        level = np.arange(n) * levels // n
        filled = kept > 0
        mass, places = np.bincount(level, kept, levels), np.bincount(level, filled, levels)
        spread = np.where(filled, (mass / np.maximum(places, 1))[level], 0.0)
        lost = _divergence(reference, spread)
        if lost < best:
            best, found = lost, n
    top = found / BINS * most
    return max(seen.low, -top), min(seen.high, top)


def _divergence(p: Any, q: Any) -> float:
    """Kullback-Leibler, of two histograms; a little mass where q has none stands for what it cannot say."""
    p, q = p / p.sum(), q / max(q.sum(), 1e-30)
    at = p > 0
    return float(np.sum(p[at] * np.log(p[at] / np.maximum(q[at], 1e-4 / len(p)))))


def _mse(seen: Seen) -> tuple[float, float]:
    """The part of the range whose 255 steps and whose cut together cost the least in squares."""
    x, weight = seen.centres, seen.counts
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    best, found = np.inf, (low, high)
    for part in np.linspace(1.0, 0.2, _STEPS):
        a, b = low * part, high * part
        step = (b - a) / 255
        error = np.clip(np.round((x - a) / step), 0, 255) * step + a - x
        # Within a bin the values lie apart, so that a step finer than a bin costs its square over 12, as they do.
        cost = float(np.sum(weight * np.maximum(error**2, step**2 / 12)))
        if cost < best:
            best, found = cost, (a, b)
    return found
