"""Recurrent layers: cells, and running one over time.

A cell has weights for its input and for its state, rows times matrix, with the columns of its gates side by side, a bias for each, and
its activations. `step` takes the input's part of the gates (bias included) and the states (batch, hidden), and gives the next states; the
first state is the output. Time is unrolled: each step becomes nodes of its own, and equal steps share their kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Value
from .builder import Builder
from .quantize import quantized_product

Activation = Callable[[Value], Value]


@dataclass(frozen=True)
class Weights:
    """(features, gates * hidden), for rows times matrix; `scale` and `zero` where they are quantized: rows are then quantized as they come."""

    matrix: Value
    scale: Value | None = None
    zero: Value | None = None

    def product(self, b: Builder, x: Value) -> Value:
        if self.scale is not None:
            return quantized_product(b, x, self.matrix, self.scale, self.zero)
        return b.op("matmul", x, self.matrix)

    def columns(self, b: Builder, begin: int, count: int) -> Weights:
        """Those of some gates; not of quantized weights."""
        assert self.scale is None
        return Weights(b.slice(self.matrix, 1, begin, count))


@dataclass(frozen=True)
class Cell:
    """What every cell has; `clip` bounds what goes into activations."""

    w: Weights
    r: Weights
    w_bias: Value
    r_bias: Value
    acts: Sequence[Activation]
    clip: float | None = None

    @property
    def hidden(self) -> int:
        return self.r.matrix.shape[0]

    def fed(self, b: Builder, x: Value) -> Value:
        """The input's part of all gates, for all steps at once: x (steps, batch, features)."""
        steps, batch, features = x.shape
        y = b.op("add", self.w.product(b, b.reshape(x, (steps * batch, features))), self.w_bias)
        return b.reshape(y, (steps, batch, y.shape[1]))

    def kept(self, b: Builder, h: Value) -> Value:
        """The state's part of all gates."""
        return b.op("add", self.r.product(b, h), self.r_bias)

    def clipped(self, b: Builder, x: Value) -> Value:
        return x if self.clip is None else b.op("clip", x, low=-float(self.clip), high=float(self.clip))

    def step(self, b: Builder, fed: Value, states: Sequence[Value]) -> list[Value]:
        raise NotImplementedError


@dataclass(frozen=True)
class RNNCell(Cell):
    """h = f(x + r h)."""

    def step(self, b: Builder, fed: Value, states: Sequence[Value]) -> list[Value]:
        return [self.acts[0](self.clipped(b, b.op("add", fed, self.kept(b, states[0]))))]


@dataclass(frozen=True)
class GRUCell(Cell):
    """Gates z, r, h side by side; `reset_after`: the reset gate acts on the state's product, not on the state."""

    reset_after: bool = False

    def step(self, b: Builder, fed: Value, states: Sequence[Value]) -> list[Value]:
        f, g = self.acts
        h, n = states[0], self.hidden
        xz, xr, xh = b.split(fed, 1, [n] * 3)
        if self.reset_after:
            hz, hr, hh = b.split(self.kept(b, h), 1, [n] * 3)
        else:
            both = self.r.columns(b, 0, 2 * n).product(b, h)
            hz, hr = b.split(b.op("add", both, b.slice(self.r_bias, 0, 0, 2 * n)), 1, [n] * 2)
        z, r = f(self.clipped(b, b.op("add", xz, hz))), f(self.clipped(b, b.op("add", xr, hr)))
        if self.reset_after:
            inner = b.op("multiply", r, hh)
        else:
            inner = self.r.columns(b, 2 * n, n).product(b, b.op("multiply", r, h))
            inner = b.op("add", inner, b.slice(self.r_bias, 0, 2 * n, n))
        new = g(self.clipped(b, b.op("add", xh, inner)))
        # (1 - z) * new + z * h
        return [b.op("add", new, b.op("multiply", z, b.op("subtract", h, new)))]


@dataclass(frozen=True)
class LSTMCell(Cell):
    """Gates i, o, f, c side by side; `peepholes`: the cell state's weights for i, o, f; `coupled`: the forget gate is 1 - i."""

    peepholes: Sequence[Value] | None = None
    coupled: bool = False

    def step(self, b: Builder, fed: Value, states: Sequence[Value]) -> list[Value]:
        f, g, h = self.acts
        hidden, cell = states
        gates = b.op("add", fed, self.kept(b, hidden))
        i, o, forget, new = b.split(gates, 1, [gates.shape[1] // 4] * 4)
        p = self.peepholes
        if p is not None:
            i, forget = b.op("add", i, b.op("multiply", p[0], cell)), b.op("add", forget, b.op("multiply", p[2], cell))
        i = f(self.clipped(b, i))
        keep = b.op("subtract", b.like(1, i), i) if self.coupled else f(self.clipped(b, forget))
        new = b.op("add", b.op("multiply", keep, cell), b.op("multiply", i, g(self.clipped(b, new))))
        if p is not None:
            o = b.op("add", o, b.op("multiply", p[1], new))
        return [b.op("multiply", f(self.clipped(b, o)), h(new)), new]


def run_cell(
    b: Builder, cell: Cell, x: Value, start: Sequence[Value], lengths: Value | None = None, reverse: bool = False
) -> tuple[list[Value], list[Value]]:
    """The output after each step, in the order of time, and the last states. x (steps, batch, features).

    With `lengths` (batch, int64) an entry's states stay as they are once it has ended, and its outputs are 0 from there on.
    """
    steps, batch, _ = x.shape
    states = list(start)
    fed = cell.fed(b, x)
    rows: list[Value] = []
    for t in reversed(range(steps)) if reverse else range(steps):
        new = cell.step(b, b.take(fed, 0, t), states)
        row = new[0]
        if lengths is not None:
            inside = b.op("less", b.const(np.int64(t)), b.reshape(lengths, (batch, 1)))
            new = [b.op("where", inside, n, o) for n, o in zip(new, states)]
            row = b.op("where", inside, new[0], b.like(0, new[0]))
        rows.append(row)
        states = new
    return rows[::-1] if reverse else rows, states
