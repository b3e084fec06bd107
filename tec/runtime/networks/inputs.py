"""What a network is given: its inputs by name or in order, held against their types, and the sizes that their shapes give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, one_line
from ..arrays.ndarray import NDArray, array, from_dlpack, from_numpy
from ..modules import exprs
from ..plans.plan import Allocation, Plan

SIZE_END = 1 << 31  # symbolic sizes and the places in arrays of such sizes are 32-bit numbers


class Feeds:
    """The inputs of a plan. `arrange(inputs)` gives one NDArray an input, `sizes(arrays)` the environment."""

    def __init__(self, plan: Plan, without: Collection[str] = ()):
        self.names = tuple(n for n in plan.inputs if n not in without)
        self._types: list[Allocation] = [plan.values[n] for n in self.names]
        self._empty = frozenset(plan.empty)
        self._symbols: list[tuple[int, int, str]] = []  # (input, dimension, name)
        self._numbers: list[tuple[int, int, exprs.Compiled]] = []
        for k, v in enumerate(self._types):
            for d, e in enumerate(v.shape):
                if isinstance(e, str):
                    self._symbols.append((k, d, e))
                else:
                    self._numbers.append((k, d, exprs.compile_expr(e)))

    def _least(self, size: str) -> int:
        return 0 if size in self._empty else 1

    def _expected(self) -> str:
        return "; ".join(f"{one_line(n)}: {v.dtype} {_shape(v)}" for n, v in zip(self.names, self._types))

    def arrange(self, inputs: Any) -> list[NDArray]:
        """The inputs in order, as NDArrays (of their owners' memory where that can be). Raises ArgumentError."""
        names = self.names
        if not isinstance(inputs, Mapping):
            if hasattr(inputs, "__dlpack__") or not isinstance(inputs, Sequence):
                inputs = [inputs]
            if len(inputs) != len(names):
                raise ArgumentError(
                    f"{len(inputs)} inputs given, the network has {len(names)}", hint=f"inputs: {self._expected()}"
                )
            given = list(inputs)
        else:
            missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
            if missing or unknown:
                what = [f"missing: {', '.join(map(one_line, missing))}"] * bool(missing) + [
                    f"unknown: {', '.join(one_line(str(n)) for n in unknown)}"
                ] * bool(unknown)
                raise ArgumentError(
                    f"the network's inputs do not fit ({'; '.join(what)})", hint=f"inputs: {self._expected()}"
                )
            given = [inputs[n] for n in names]
        out: list[NDArray] = []
        for name, v, x in zip(names, self._types, given):
            a = x if isinstance(x, NDArray) else as_array(f"input {one_line(name)}", v, x)
            if a.dtype != v.dtype:
                raise ArgumentError(
                    f"input {one_line(name)} is {a.dtype}, the network takes {v.dtype}", hint=f"x.astype({v.dtype!r})"
                )
            if len(a.shape) != len(v.shape):
                raise ArgumentError(
                    f"input {one_line(name)} has shape {a.shape}, the network takes {_shape(v)}",
                    hint="x[None] adds a dimension of 1 in front" if len(a.shape) == len(v.shape) - 1 else None,
                )
            out.append(a)
        return out

    def sizes(self, given: Sequence[NDArray], known: Mapping[str, int] | None = None) -> dict[str, int]:
        """The symbolic sizes, from the inputs' shapes and from what is `known`. Raises ArgumentError where they do not agree."""
        env: dict[str, int] = dict(known or {})
        for k, d, e in self._symbols:
            n = given[k].shape[d]
            if env.setdefault(e, n) != n:
                raise ArgumentError(
                    f"size {one_line(e)} is {env[e]} elsewhere and {n} in dimension {d} of input {one_line(self.names[k])}",
                    hint=f"the inputs share the size {one_line(e)}: give all of them arrays with one value for it",
                )
            if not self._least(e) <= n < SIZE_END:
                raise ArgumentError(
                    f"dimension {d} of input {one_line(self.names[k])}, {one_line(e)}, is {n}",
                    hint=f"a symbolic size is from {self._least(e)} to {SIZE_END - 1}; compile with shapes={{{e!r}: {n}}} for it",
                )
        for k, d, c in self._numbers:
            try:
                wanted = exprs.evaluate(c, env)
            except ZeroDivisionError:  # a size over one that is 0
                wanted = None
            if wanted != given[k].shape[d]:
                raise ArgumentError(
                    f"input {one_line(self.names[k])} has shape {tuple(given[k].shape)}, the network takes {_shape(self._types[k])}",
                    hint="a size that the model fixes, or shapes= at compilation, is the same in every run; a named one may vary",
                )
        return env


def _shape(v: Allocation) -> str:
    return f"({', '.join(exprs.text(d) for d in v.shape)})"


def as_array(what: str, v: Allocation, x: Any, share: bool = False) -> NDArray:
    """An array that is no NDArray as one; of its own memory where `share`. ArgumentError where it holds no numbers."""
    try:
        if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
            try:
                return from_dlpack(x)
            except (BufferError, RuntimeError, TypeError, ValueError):
                pass  # NumPy may know another way to it
        if share:
            if not isinstance(x, np.ndarray):
                raise TypeError
            return from_numpy(x)
        # ascontiguousarray would give a scalar a dimension
        host = np.asarray(x, order="C")
        return from_numpy(host) if host.dtype.isnative else array(host)
    except (ArgumentError, ValueError, TypeError, RuntimeError, OverflowError):
        kind = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise ArgumentError(
            f"{what} is {kind} that makes no array of numbers, the network takes {v.dtype}{exprs.shape_text(v.shape)}",
            hint=f"np.asarray(x, dtype={v.dtype!r}) must succeed: nested lists of equal lengths, or an array",
        ) from None
