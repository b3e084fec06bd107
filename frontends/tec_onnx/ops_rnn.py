"""ONNX recurrent layers: their inputs and attributes brought to `tec.graph.builders.recurrent`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import Builder
from tec.graph.builders.control import loop
from tec.graph.builders.recurrent import Layer, QuantizedLSTM, layer
from tec.ops.recurrent import Activation

from .importer import Call, Outputs, onnx_op

# ONNX's names, with the constants that stand where a node gives none.
_ACTIVATIONS: dict[str, Activation] = {
    "relu": ("relu", 0.0, 0.0),
    "tanh": ("tanh", 0.0, 0.0),
    "sigmoid": ("sigmoid", 0.0, 0.0),
    "softsign": ("softsign", 0.0, 0.0),
    "softplus": ("softplus", 0.0, 0.0),
    "leakyrelu": ("leaky_relu", 0.01, 0.0),
    "elu": ("elu", 1.0, 0.0),
    "thresholdedrelu": ("thresholded_relu", 1.0, 0.0),
    "hardsigmoid": ("hard_sigmoid", 0.2, 0.5),
    "affine": ("affine", 1.0, 0.0),
    "scaledtanh": ("scaled_tanh", 1.0, 1.0),
}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_TAKES = {"leaky_relu": 1, "elu": 1, "thresholded_relu": 1, "hard_sigmoid": 2, "affine": 2, "scaled_tanh": 2}


def _activations(c: Call, defaults: list[str], directions: int) -> tuple[tuple[Activation, ...], ...]:
    """Of each direction. Constants are given in order, to those activations that take any."""
    names = c.attr("activations", defaults * directions)
    if len(names) != len(defaults) * directions:
        raise ImportModelError(
            f"{c.op_type} with {len(names)} activations: {len(defaults)} a direction are wanted",
            hint=f"activations has {len(defaults) * directions} names for {directions} direction{'s' * (directions > 1)}; without it they are {', '.join(defaults)}",
        )
    alphas, betas = list(c.attr("activation_alpha", [])), list(c.attr("activation_beta", []))
    found = []
    for name in names:
        known = _ACTIVATIONS.get(str(name).lower())
        if known is None:
            raise ImportModelError(f"activation {name!r} of {c.op_type}", hint=f"one of {', '.join(_ACTIVATIONS)}")
        kind, alpha, beta = known
        takes = _TAKES.get(kind, 0)
        alpha = float(alphas.pop(0)) if takes and alphas else alpha
        beta = float(betas.pop(0)) if takes == 2 and betas else beta
        found.append((kind, alpha, beta))
    n = len(defaults)
    return tuple(tuple(found[d * n : (d + 1) * n]) for d in range(directions))


def _kind(c: Call, cell: str, defaults: list[str]) -> Layer:
    direction = c.attr("direction", "forward")
    if direction not in _DIRECTIONS:
        raise ImportModelError(f"direction {direction!r} of {c.op_type}", hint=f"one of {', '.join(_DIRECTIONS)}")
    backward = _DIRECTIONS[direction]
    clip = c.attr("clip")
    return Layer(
        cell,
        backward,
        _activations(c, defaults, len(backward)),
        None if clip is None else float(clip),
        bool(c.attr("input_forget", 0)),
        bool(c.attr("linear_before_reset", 0)),
    )


def _time_major(c: Call) -> Value:
    x = c[0]
    if x.ndim != 3:
        raise ImportModelError(
            f"{c.op_type} of {x.type}: three dimensions are wanted",
            hint="X is (steps, batch, features), or (batch, steps, features) with layout 1",
        )
    return c.transpose(x, (1, 0, 2)) if c.attr("layout", 0) else x


def _start(c: Call, k: int) -> Value | None:
    """A state's start, (directions, batch, hidden)."""
    if not c.has(k):
        return None
    return c.transpose(c[k], (1, 0, 2)) if c.attr("layout", 0) else c[k]


def _lengths(c: Call, steps: Any) -> Value | None:
    lengths = c[4] if c.has(4) else None
    if lengths is None or not lengths.is_const:
        return lengths
    values = np.asarray(lengths.data)
    if values.size and (values.min() < 0 or (isinstance(steps, int) and values.max() > steps)):
        raise ImportModelError(
            f"{c.op_type}: sequence_lens {values.tolist()} of sequences of {steps} steps",
            hint=f"each length is from 0 to {steps}, the number of steps of X",
        )
    return None if isinstance(steps, int) and np.all(values == steps) else lengths


def _results(c: Call, y: Value, ends: list[Value]) -> Outputs:
    if not c.attr("layout", 0):
        return Outputs([y, *ends])
    return Outputs([c.transpose(y, (2, 0, 1, 3)), *[c.transpose(e, (1, 0, 2)) for e in ends]])


def _plain(c: Call, cell: str, defaults: list[str], states: list[int]) -> Outputs:
    """`states`: the input index of each state's start value."""
    x = _time_major(c)
    bias, peepholes = (c.get(k) if c.has(k) else None for k in (3, 7))
    starts = [_start(c, k) for k in states]
    made = layer(c, _kind(c, cell, defaults), x, c[1], c[2], starts, bias, peepholes, _lengths(c, x.shape[0]))
    return _results(c, made[0], made[1:])


@onnx_op("RNN")
def rnn(c: Call) -> Outputs:
    return _plain(c, "rnn", ["Tanh"], [5])


@onnx_op("GRU")
def gru(c: Call) -> Outputs:
    return _plain(c, "gru", ["Sigmoid", "Tanh"], [5])


@onnx_op("LSTM")
def lstm(c: Call) -> Outputs:
    return _plain(c, "lstm", ["Sigmoid", "Tanh", "Tanh"], [5, 6])


@onnx_op("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(c: Call) -> Outputs:
    kind, x = _kind(c, "lstm", ["Sigmoid", "Tanh", "Tanh"]), _time_major(c)
    steps, batch, _ = x.shape
    if c.get(8) is None or c.get(10) is None:
        raise ImportModelError(
            f"{c.op_type} without the scales of its weights", hint="give W_scale and R_scale, inputs 8 and 10"
        )
    lengths = _lengths(c, steps)
    lengths = None if lengths is None else c.cast(lengths, "int64")
    rows, ends = [], []
    for d, back in enumerate(kind.backward):
        w, r = ((c.take(c[k], 0, d), c.take(c[k + s], 0, d), _of(c, k + s + 1, d)) for k, s in ((1, 7), (2, 8)))
        own = replace(kind, backward=(back,), activations=(kind.activations[d],))
        cell = QuantizedLSTM(own, w, r, _of(c, 3, d), _of(c, 7, d))
        starts = [_start(c, k) for k in (5, 6)]
        zero = c.broadcast(c.const(0, x.dtype), (batch, r[0].shape[0]))
        outs, last = _steps(c, cell, x, [zero if s is None else c.take(s, 0, d) for s in starts], lengths, back)
        rows.append(outs)
        ends.append(last)
    y = c.stack(rows, 1)
    return _results(c, y, [c.stack(e) for e in zip(*ends)])


def _of(c: Call, k: int, d: int) -> Value | None:
    """What input k holds for direction d."""
    return c.take(c[k], 0, d) if c.has(k) else None


def _steps(
    c: Call, cell: QuantizedLSTM, x: Value, states: list[Value], lengths: Value | None, back: bool
) -> tuple[Value, list[Value]]:
    """The outputs of all steps, in the order of time, and the last states."""
    steps, batch, _ = x.shape

    def step(b: Builder, number: Value, now: list[Value], rows: list[Value]) -> Any:
        new = list(cell.step(b, rows[0], now[0], now[1]))
        if lengths is None:
            return new, [new[0]], None
        t = b.op("subtract", b.graph.sizes(steps - 1, "last"), number) if back else number
        inside = b.op("less", t, b.reshape(lengths, (batch, 1)))
        new = [b.op("where", inside, n, o) for n, o in zip(new, now)]
        return new, [b.op("where", inside, new[0], b.like(0, new[0]))], None

    final, made = loop(c, step, states, steps, rows=[(cell.fed(c, x), back)], made=[back])
    return made[0], final
