"""ONNX recurrent layers: their inputs and attributes brought to the cells of `tec.graph.builders.recurrent`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.recurrent import Activation, Cell, GRUCell, LSTMCell, RNNCell, Weights, run_cell

from .importer import Call, Outputs, onnx_op
from .ops_control import check_unrolled

_ALPHA = {"LeakyRelu": 0.01, "Elu": 1.0, "HardSigmoid": 0.2, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "Affine": 1.0}
_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}


def activation(c: Call, name: str, alpha: float | None, beta: float | None) -> Activation:
    a = _ALPHA.get(name, 1.0) if alpha is None else alpha
    b = _BETA.get(name, 0.0) if beta is None else beta
    simple = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softsign": "softsign", "Softplus": "softplus"}
    if name in simple:
        return lambda x: c.op(simple[name], x)
    if name == "LeakyRelu":
        return lambda x: c.op("leaky_relu", x, alpha=a)
    if name == "Elu":
        return lambda x: c.op("elu", x, alpha=a)
    if name == "ThresholdedRelu":
        return lambda x: c.op("thresholded_relu", x, alpha=a)
    if name == "HardSigmoid":
        return lambda x: c.op("hard_sigmoid", x, alpha=a, beta=b)
    if name == "Affine":
        return lambda x: c.op("add", c.op("multiply", x, c.like(a, x)), c.like(b, x))
    if name == "ScaledTanh":
        return lambda x: c.op("multiply", c.op("tanh", c.op("multiply", x, c.like(b, x))), c.like(a, x))
    raise ImportModelError(f"activation {name!r} of {c.op_type}")


def _direction(c: Call, k: int, d: int) -> Value | None:
    """What input k holds for direction d."""
    return c.take(c[k], 0, d) if c.has(k) else None


def _cells(
    c: Call, kind: Callable[..., Cell], gates: int, defaults: list[str], directions: int, quantized: bool
) -> Iterator[Cell]:
    """The cell of each direction; the weights of quantized layers are stored for rows times matrix, the others turned."""
    names = c.attr("activations", defaults * directions)
    per, pad = len(defaults), [None] * (len(defaults) * directions)
    alphas, betas = [*c.attr("activation_alpha", []), *pad], [*c.attr("activation_beta", []), *pad]

    def weights(k: int, d: int) -> Value:
        w = c.take(c[k], 0, d)
        return w if quantized else c.transpose(w, (1, 0))

    for d in range(directions):
        own = slice(d * per, (d + 1) * per)
        acts = [activation(c, n, a, b) for n, a, b in zip(names[own], alphas[own], betas[own])]
        w, r = weights(1, d), weights(2, d)
        n = gates * r.shape[0]
        zeros = c.const(np.zeros(n), c[0].dtype)
        w_bias, r_bias = c.split(c.take(c[3], 0, d), 0, [n, n]) if c.has(3) else (zeros, zeros)
        scales: list[Any] = [None] * 4
        if quantized:
            scales = [_direction(c, k, d) for k in (8, 9, 10, 11)]
            if scales[0] is None or scales[2] is None:
                raise ImportModelError(f"{c.op_type} without the scales of its weights")
        more = {}
        if c.has(7):  # an LSTM's alone
            p = c.take(c[7], 0, d)
            more["peepholes"] = c.split(p, 0, [p.shape[0] // 3] * 3)
        yield kind(Weights(w, *scales[:2]), Weights(r, *scales[2:]), w_bias, r_bias, acts, c.attr("clip"), **more)


def _start(c: Call, k: int, d: int, batch: int, hidden: int) -> Value:
    if c.has(k):
        v = c.transpose(c[k], (1, 0, 2)) if c.attr("layout", 0) else c[k]
        return c.take(v, 0, d)
    return c.const(np.zeros((batch, hidden)), c[0].dtype)


def _run(
    c: Call, kind: Callable[..., Cell], gates: int, defaults: list[str], states: list[int], quantized: bool = False
) -> Outputs:
    """All directions. `states`: the input index of each state's start value."""
    layout = c.attr("layout", 0)
    x = c.transpose(c[0], (1, 0, 2)) if layout else c[0]
    seq, batch, _ = x.shape
    if isinstance(seq, int):
        check_unrolled(c, seq, 4 * gates)  # about as many nodes as a step has
    direction = c.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ImportModelError(f"direction {direction!r} of {c.op_type}")
    backs = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    lengths = c.cast(c[4], "int64") if c.has(4) else None
    if lengths is not None and lengths.is_const and np.all(lengths.data == seq):
        lengths = None
    rows, finals = [], []
    for (d, back), cell in zip(enumerate(backs), _cells(c, kind, gates, defaults, len(backs), quantized)):
        start = [_start(c, k, d, batch, cell.hidden) for k in states]
        outputs, last = run_cell(c, cell, x, start, lengths, back)
        rows.append(outputs)
        finals.append(last)
    y = None
    if c.wants(0):
        y = c.stack([c.stack(r) for r in zip(*rows)])
        y = c.transpose(y, (2, 0, 1, 3)) if layout else y
    ends = [c.stack(f) for f in zip(*finals)]
    return Outputs([y, *[c.transpose(e, (1, 0, 2)) if layout else e for e in ends]])


@onnx_op("RNN")
def rnn(c: Call) -> Outputs:
    return _run(c, RNNCell, 1, ["Tanh"], [5])


@onnx_op("GRU")
def gru(c: Call) -> Outputs:
    kind = partial(GRUCell, reset_after=bool(c.attr("linear_before_reset", 0)))
    return _run(c, kind, 3, ["Sigmoid", "Tanh"], [5])


@onnx_op("LSTM")
@onnx_op("DynamicQuantizeLSTM", domain="com.microsoft")
def lstm(c: Call) -> Outputs:
    kind = partial(LSTMCell, coupled=bool(c.attr("input_forget", 0)))
    return _run(c, kind, 4, ["Sigmoid", "Tanh", "Tanh"], [5, 6], c.op_type != "LSTM")
