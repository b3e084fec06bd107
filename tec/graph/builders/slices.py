"""Slices as frontends give them: places that count from the end, that lie outside, that are known when the network runs."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.dims import Size, UndecidedSize, is_symbolic, maximum, minimum, require
from ...ops.guards import recording
from ...ops.registry import unfit
from ..graph import Value
from .builder import Builder

_FAR = 1 << 16  # ends from here on stand for the end of whatever there is


def slice_range(n: Size, start: Size | None, count: Size) -> tuple[Size, Size]:
    """(first, count) of a slice of a dimension of n that begins at `start`, which may count from the end, and is known to have `count` elements."""
    if start is None:
        return 0, count
    if not is_symbolic([n, start]):
        first = start + n if start < 0 else start
        return min(max(first, 0), n), count
    if not is_symbolic(start):
        return (start if start >= 0 else maximum(n + start, 0)), count
    return start, count


def fitted(b: Builder, value: Value, shape: Sequence[Size]) -> Value:
    """What is to be broadcast to a shape, with that shape's sizes for open ones that only a run can tell to be equal to them: each run is held to that."""
    wanted = tuple(1 if n == 1 else size for n, size in zip(value.shape, shape[len(shape) - value.ndim :]))
    apart = [(n, size) for n, size in zip(value.shape, wanted) if n != size]
    if not apart:
        return value
    what = f"{value.type} takes the place of {tuple(shape)}"
    with recording(b.graph.guards):
        if not all(is_symbolic([m, n]) and require(m, "<=", n, what) and require(n, "<=", m, what) for m, n in apart):
            raise unfit(what, *apart, hint="sizes that are equal, or 1")
    return b.op("slice", value, starts=(0,) * value.ndim, steps=(1,) * value.ndim, sizes=wanted)


def _is_farthest(end: Size) -> bool:
    """Whether an end is the largest of 32 or 64 bits, which stands for the end in the direction of the step."""
    return not is_symbolic(end) and end in (2**31 - 1, 2**63 - 1)


def bounded_slice(n: Size, lo: Size, hi: Size, step: int, node: str) -> tuple[Size, int, Size]:
    """(first, step, count) of a slice of a dimension of n, as ONNX bounds it: backwards, a start before the first element is the first, where NumPy takes none. Of symbolic sizes an end
    past a table's is a condition."""
    if is_symbolic(step):
        raise UndecidedSize(
            f"a slice of {n} from {lo} to {hi} in steps of {step}", hint="bind the sizes: shapes={name: size}"
        )

    def place(v: Size, least: int, most: Size) -> Size:
        if v < 0:
            at = maximum(v + n, least)
            # Backwards, the last element of none is none: there the first would be behind it.
            return at if step > 0 else most if v == -1 else minimum(at, most)
        if (
            not is_symbolic(v)
            and is_symbolic(n)
            and v > _FAR
            and require(n, "<=", v, f"node {node!r} takes {lo} to {hi} of {n}")
        ):
            return most
        low = minimum(v, most)
        # Where the model runs past a table's end, what it makes of fewer rows would not fit what they are added to.
        if low in (v, most) or not is_symbolic(v):
            return low
        return v if require(v, "<=", most, f"node {node!r} takes {lo} to {hi} of {n}") else most

    if step > 0:
        first, end = place(lo, 0, n), n if not is_symbolic(hi) and hi >= 2**31 - 1 else place(hi, 0, n)
        return first, step, maximum((end - first + step - 1) // step, 0)
    first = place(lo, 0, n - 1)
    end = -1 if _is_farthest(hi) or (not is_symbolic(hi) and hi < -(2**31) + 2) else place(hi, -1, n - 1)
    return first, step, maximum((first - end - step - 1) // -step, 0)
