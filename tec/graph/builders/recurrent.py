"""Recurrent layers.

`layer` is a plain one: the input's product for all steps at once, and one `recurrence`. A `QuantizedLSTM` has weights that multiply rows which are
quantized as they come; its steps are nodes, run by a loop of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...ops.recurrent import Activation
from ...records import dataclass
from ..graph import Value
from .builder import Builder
from .quantize import quantized_product


@dataclass(frozen=True)
class Layer:
    """What a recurrent layer is: `cell` "rnn", "gru" or "lstm"; of each direction whether it runs from the end, and its activations (name, alpha,
    beta); `clip` bounds what goes into activations; `coupled`: an LSTM's forget gate is 1 - i; `reset_after`: a GRU's reset gate acts on the
    state's product, not on the state."""

    cell: str
    backward: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None = None
    coupled: bool = False
    reset_after: bool = False


def layer(
    b: Builder,
    kind: Layer,
    x: Value,
    w: Value,
    r: Value,
    starts: Sequence[Value | None],
    bias: Value | None = None,
    peepholes: Value | None = None,
    lengths: Value | None = None,
) -> list[Value]:
    """[all outputs (steps, directions, batch, hidden), the last of each state (directions, batch, hidden)].

    x (steps, batch, features), w (directions, gates * hidden, features), r (directions, gates * hidden, hidden), starts (directions, batch, hidden), None for 0;
    bias (directions, 2 * gates * hidden): the input's, then the state's; peepholes (directions, 3 * hidden). With `lengths` (batch,) an entry's
    states stay as they are once it has ended, and its outputs are 0 from there on.
    """
    (steps, batch, features), (directions, columns, hidden) = x.shape, r.shape
    fed = b.op(
        "matmul",
        b.reshape(x, (steps * batch, features)),
        b.transpose(b.reshape(w, (directions * columns, features)), (1, 0)),
    )
    extras: dict[str, Value] = {}
    if bias is not None:
        parts = b.split(bias, 1, [columns, columns])
        if kind.cell == "gru" and kind.reset_after:  # the last gate's own is reset with its product
            own = b.slice(parts[1], 1, 2 * hidden, hidden)
            extras["r_bias"] = own
            gates = b.slice(parts[1], 1, 0, 2 * hidden)
            parts[1] = b.concat([gates, b.const(np.zeros((directions, hidden)), x.dtype)], 1)
        fed = b.op("add", fed, b.reshape(b.op("add", *parts), (directions * columns,)))
    fed = b.reshape(fed, (steps, batch, directions * columns))
    if peepholes is not None:
        extras["peepholes"] = peepholes
    if lengths is not None:
        extras["lengths"] = lengths if lengths.is_const else b.within(lengths, steps, "a length of a sequence")
    if any(s is not None for s in starts):
        zero = b.broadcast(b.const(0, x.dtype), (directions, batch, hidden))
        extras.update(zip(("hidden_start", "cell_start"), (zero if s is None else s for s in starts)))
    return b.ops(
        "recurrence", fed, r, *extras.values(),
        cell=kind.cell, hidden=hidden, backward=kind.backward, activations=kind.activations, clip=kind.clip,
        coupled=kind.coupled, reset_after=kind.reset_after, extras=tuple(extras),
    )  # fmt: skip


@dataclass(frozen=True)
class QuantizedLSTM:
    """One direction of an LSTM with quantized weights (features, 4 * hidden) for rows times matrix, gates i, o, f, c side by side."""

    kind: Layer
    w: tuple[Value, Value, Value | None]  # matrix, scale, zero point
    r: tuple[Value, Value, Value | None]
    bias: Value | None = None  # (8 * hidden,)
    peepholes: Value | None = None  # (3 * hidden,)

    def fed(self, b: Builder, x: Value) -> Value:
        """The input's part of all gates, for all steps at once: x (steps, batch, features)."""
        steps, batch, features = x.shape
        y = quantized_product(b, b.reshape(x, (steps * batch, features)), *self.w)
        if self.bias is not None:
            y = b.op("add", y, b.op("add", *b.split(self.bias, 0, [y.shape[1]] * 2)))
        return b.reshape(y, (steps, batch, y.shape[1]))

    def step(self, b: Builder, fed: Value, hidden: Value, cell: Value) -> tuple[Value, Value]:
        """The next states, from the input's part of the gates and the states (batch, hidden)."""
        kind = self.kind
        f, g, h = (partial(activate, b, act) for act in kind.activations[0])

        def clipped(x: Value) -> Value:
            return x if kind.clip is None else b.op("clip", x, low=-float(kind.clip), high=float(kind.clip))

        gates = b.op("add", fed, quantized_product(b, hidden, *self.r))
        i, o, forget, new = b.split(gates, 1, [gates.shape[1] // 4] * 4)
        p = b.split(self.peepholes, 0, [hidden.shape[1]] * 3) if self.peepholes is not None else None
        if p is not None:
            i, forget = b.op("add", i, b.op("multiply", p[0], cell)), b.op("add", forget, b.op("multiply", p[2], cell))
        i = f(clipped(i))
        keep = b.op("subtract", b.like(1, i), i) if kind.coupled else f(clipped(forget))
        new = b.op("add", b.op("multiply", keep, cell), b.op("multiply", i, g(clipped(new))))
        if p is not None:
            o = b.op("add", o, b.op("multiply", p[1], new))
        return b.op("multiply", f(clipped(o)), h(new)), new


def activate(b: Builder, act: Activation, x: Value) -> Value:
    """An activation of a recurrent layer, as nodes."""
    name, alpha, beta = act
    if name == "affine":
        return b.op("add", b.op("multiply", x, b.like(alpha, x)), b.like(beta, x))
    if name == "scaled_tanh":
        return b.op("multiply", b.op("tanh", b.op("multiply", x, b.like(beta, x))), b.like(alpha, x))
    takes = {"leaky_relu": 1, "elu": 1, "thresholded_relu": 1, "hard_sigmoid": 2}.get(name, 0)
    return b.op(name, x, **dict(list({"alpha": alpha, "beta": beta}.items())[:takes]))
