"""ONNX recurrent layers, step by step: each time step becomes nodes of its own, equal steps share their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value

from .importer import Call, Outputs, onnx_op
from .ops_control import check_unrolled
from .ops_quant import quantized_product
from .ops_shape import concat_values

_ALPHA = {"LeakyRelu": 0.01, "Elu": 1.0, "HardSigmoid": 0.2, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "Affine": 1.0}
_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}


def activation(c: Call, name: str, alpha: float | None, beta: float | None) -> Callable[[Value], Value]:
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


class _Layer:
    """One direction of a layer: its weights (transposed for rows times matrix), bias, start state and activations."""

    def __init__(self, c: Call, gates: int, d: int, acts: list[Callable[[Value], Value]]):
        self.w, self.r = self.weights(c, 1, d), self.weights(c, 2, d)
        self.hidden = self.r.shape[0]
        n = gates * self.hidden
        zeros = c.const(np.zeros(n), c[0].dtype)
        if c.has(3):
            b = c.squeeze(c.slice(c[3], 0, d, 1), 0)
            self.wb, self.rb = c.slice(b, 0, 0, n), c.slice(b, 0, n, n)
        else:
            self.wb = self.rb = zeros
        self.acts = acts

    def weights(self, c: Call, k: int, d: int) -> Value:
        """Those of direction d from input k, for rows times matrix."""
        return c.transpose(c.squeeze(c.slice(c[k], 0, d, 1), 0), (1, 0))

    def fed(self, c: Call, x: Value) -> Value:
        """The input's part of all gates."""
        return c.op("matmul", x, self.w)

    def kept(self, c: Call, h: Value) -> Value:
        """The state's part of all gates."""
        return c.op("matmul", h, self.r)


class _QuantizedLayer(_Layer):
    """The same with weights in 8 bits, stored for rows times matrix; rows are quantized as they come."""

    def __init__(self, c: Call, gates: int, d: int, acts: list[Callable[[Value], Value]]):
        super().__init__(c, gates, d, acts)
        self.scales = [c.squeeze(c.slice(c[k], 0, d, 1), 0) if c.has(k) else None for k in (8, 9, 10, 11)]

    def weights(self, c: Call, k: int, d: int) -> Value:
        return c.squeeze(c.slice(c[k], 0, d, 1), 0)

    def fed(self, c: Call, x: Value) -> Value:
        return self._product(c, x, self.w, *self.scales[:2])

    def kept(self, c: Call, h: Value) -> Value:
        return self._product(c, h, self.r, *self.scales[2:])

    def _product(self, c: Call, x: Value, w: Value, scale: Value | None, zero: Value | None) -> Value:
        if scale is None:
            raise ImportModelError(f"{c.op_type} without the scales of its weights")
        return quantized_product(c, x, w, scale, zero)


def _state(c: Call, k: int, d: int, batch: int, hidden: int) -> Value:
    if c.has(k):
        v = c.transpose(c[k], (1, 0, 2)) if c.attr("layout", 0) else c[k]
        return c.squeeze(c.slice(v, 0, d, 1), 0)
    return c.const(np.zeros((batch, hidden)), c[0].dtype)


def _run(
    c: Call,
    gates: int,
    defaults: list[str],
    step: Callable[..., list[Value]],
    states: list[int],
    kind: type[_Layer] = _Layer,
) -> Outputs:
    """All directions and time steps. `states`: the input index of each state's start value."""
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
    names = c.attr("activations", defaults * len(backs))
    alphas, betas = c.attr("activation_alpha", []), c.attr("activation_beta", [])
    clip = c.attr("clip")
    finals: list[list[Value]] = [[] for _ in states]
    rows: list[list[Value]] = [[] for _ in range(seq)]
    for d, back in enumerate(backs):
        own = slice(d * len(defaults), (d + 1) * len(defaults))
        pad = [None] * (len(defaults) * len(backs))
        acts = [activation(c, n, a, b) for n, a, b in zip(names[own], [*alphas, *pad][own], [*betas, *pad][own])]
        layer = kind(c, gates, d, acts)
        now = [_state(c, k, d, batch, layer.hidden) for k in states]
        # The input's part of all gates, for all steps at once.
        flat = c.reshape(x, (seq * batch, x.shape[2]))
        fed = c.op("add", layer.fed(c, flat), layer.wb)
        fed = c.reshape(fed, (seq, batch, fed.shape[1]))
        for t in reversed(range(seq)) if back else range(seq):
            xt = c.squeeze(c.slice(fed, 0, t, 1), 0)
            new = step(c, layer, xt, now, clip)
            if lengths is not None:
                inside = c.op("less", c.const(np.int64(t)), c.reshape(lengths, (batch, 1)))
                new = [c.op("where", inside, n, o) for n, o in zip(new, now)]
                rows[t].append(c.op("where", inside, new[0], c.like(0, new[0])))
            else:
                rows[t].append(new[0])
            now = new
        for final, v in zip(finals, now):
            final.append(v)

    def stacked(values: list[Value]) -> Value:
        return concat_values(c, [c.unsqueeze(v, 0) for v in values], 0)

    y = None
    if c.wants(0):
        y = stacked([stacked(r) for r in rows])
        y = c.transpose(y, (2, 0, 1, 3)) if layout else y
    ends = [stacked(f) for f in finals]
    return Outputs([y, *[c.transpose(e, (1, 0, 2)) if layout else e for e in ends]])


def _clipped(c: Call, x: Value, clip: float | None) -> Value:
    return x if clip is None else c.op("clip", x, low=-float(clip), high=float(clip))


def _gates(c: Call, v: Value, count: int) -> list[Value]:
    n = v.shape[1] // count
    return [c.slice(v, 1, k * n, n) for k in range(count)]


def _rnn_step(c: Call, layer: _Layer, xt: Value, now: list[Value], clip: float | None) -> list[Value]:
    total = c.op("add", xt, c.op("add", layer.kept(c, now[0]), layer.rb))
    return [layer.acts[0](_clipped(c, total, clip))]


@onnx_op("RNN")
def rnn(c: Call) -> Outputs:
    return _run(c, 1, ["Tanh"], _rnn_step, [5])


@onnx_op("GRU")
def gru(c: Call) -> Outputs:
    before = not c.attr("linear_before_reset", 0)

    def step(c: Call, layer: _Layer, xt: Value, now: list[Value], clip: float | None) -> list[Value]:
        f, g = layer.acts
        h = now[0]
        xz, xr, xh = _gates(c, xt, 3)
        n = layer.hidden
        if before:
            rz = c.op("matmul", h, c.slice(layer.r, 1, 0, 2 * n))
            rz = c.op("add", rz, c.slice(layer.rb, 0, 0, 2 * n))
            z_, r_ = _gates(c, rz, 2)
            z, r = f(_clipped(c, c.op("add", xz, z_), clip)), f(_clipped(c, c.op("add", xr, r_), clip))
            inner = c.op("matmul", c.op("multiply", r, h), c.slice(layer.r, 1, 2 * n, n))
            inner = c.op("add", inner, c.slice(layer.rb, 0, 2 * n, n))
        else:
            z_, r_, h_ = _gates(c, c.op("add", layer.kept(c, h), layer.rb), 3)
            z, r = f(_clipped(c, c.op("add", xz, z_), clip)), f(_clipped(c, c.op("add", xr, r_), clip))
            inner = c.op("multiply", r, h_)
        new = g(_clipped(c, c.op("add", xh, inner), clip))
        # (1 - z) * new + z * h
        return [c.op("add", new, c.op("multiply", z, c.op("subtract", h, new)))]

    return _run(c, 3, ["Sigmoid", "Tanh"], step, [5])


@onnx_op("LSTM")
@onnx_op("DynamicQuantizeLSTM", domain="com.microsoft")
def lstm(c: Call) -> Outputs:
    kind = _Layer if c.op_type == "LSTM" else _QuantizedLayer
    directions = 2 if c.attr("direction", "forward") == "bidirectional" else 1
    peep: list[Any] = []
    for d in range(directions):
        p = c.squeeze(c.slice(c[7], 0, d, 1), 0) if c.has(7) else None
        n = p.shape[0] // 3 if p is not None else 0
        peep.append([c.slice(p, 0, k * n, n) for k in range(3)] if p is not None else None)
    seen: dict[int, int] = {}

    def step(c: Call, layer: _Layer, xt: Value, now: list[Value], clip: float | None) -> list[Value]:
        f, g, h = layer.acts
        d = seen.setdefault(id(layer), len(seen))
        hidden, cell = now
        gates = c.op("add", xt, c.op("add", layer.kept(c, hidden), layer.rb))
        i, o, fg, ct = _gates(c, gates, 4)
        p = peep[d]
        if p is not None:
            i, fg = c.op("add", i, c.op("multiply", p[0], cell)), c.op("add", fg, c.op("multiply", p[2], cell))
        i = f(_clipped(c, i, clip))
        keep = c.op("subtract", c.like(1, i), i) if c.attr("input_forget", 0) else f(_clipped(c, fg, clip))
        new = c.op("add", c.op("multiply", keep, cell), c.op("multiply", i, g(_clipped(c, ct, clip))))
        if p is not None:
            o = c.op("add", o, c.op("multiply", p[1], new))
        return [c.op("multiply", f(_clipped(c, o, clip)), h(new)), new]

    return _run(c, 4, ["Sigmoid", "Tanh", "Tanh"], step, [5, 6], kind)
