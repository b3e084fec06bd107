"""Recurrent layers: the steps of an RNN, a GRU or an LSTM one after another, as one operator.

The input's part of the gates, biases included, comes as a product for all steps at once; what is left of a step is the state's product with the
recurrent weights, and the activations. `tec.choices.families.recurrent` has the loops that targets run; the te definition is the same element by element.

Inputs: fed (steps, batch, directions * gates * hidden), weights (directions, gates * hidden, hidden), then `extras`, a start (directions, batch,
hidden) for each state among them, which are 0 without one. Outputs: all outputs (steps, directions, batch, hidden), and the last of each state. Gates stand in ONNX's order: i o f c, z r h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te
from ..records import dataclass
from ..te import Tensor
from .dims import product
from .forms import Form, carry
from .matmul import accumulator
from .registry import OPAQUE, Attrs, TensorType, fail, number, register

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
ACTIVATIONS = {"rnn": 1, "gru": 2, "lstm": 3}  # that a cell takes
# Starts of the states; of a GRU with reset_after; of an LSTM; (batch,) integers.
EXTRAS = ("hidden_start", "cell_start", "r_bias", "peepholes", "lengths")

# What each does with an element in te; `a` and `b` are its constants.
_TE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relu": lambda x, a, b: te.max(x, te.const(0, x.dtype)),
    "tanh": lambda x, a, b: te.tanh(x),
    "sigmoid": lambda x, a, b: te.sigmoid(x),
    "softsign": lambda x, a, b: x / (te.abs(x) + te.const(1, x.dtype)),
    "softplus": lambda x, a, b: te.max(x, te.const(0, x.dtype)) + te.log1p(te.exp(-te.abs(x))),
    "leaky_relu": lambda x, a, b: te.select(x < 0, x * a, x),
    "elu": lambda x, a, b: te.select(x < 0, te.expm1(x) * a, x),
    "thresholded_relu": lambda x, a, b: te.select(x <= a, te.const(0, x.dtype), x),
    "hard_sigmoid": lambda x, a, b: te.max(te.const(0, x.dtype), te.min(te.const(1, x.dtype), x * a + b)),
    "affine": lambda x, a, b: x * a + b,
    "scaled_tanh": lambda x, a, b: te.tanh(x * b) * a,
}
_NP: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-np.clip(x, -80, 80))),
    "softsign": lambda x, a, b: x / (np.abs(x) + 1),
    "softplus": lambda x, a, b: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "leaky_relu": lambda x, a, b: np.where(x < 0, x * a, x),
    "elu": lambda x, a, b: np.where(x < 0, np.expm1(np.minimum(x, 0)) * a, x),
    "thresholded_relu": lambda x, a, b: np.where(x <= a, 0, x),
    "hard_sigmoid": lambda x, a, b: np.clip(x * a + b, 0, 1),
    "affine": lambda x, a, b: x * a + b,
    "scaled_tanh": lambda x, a, b: np.tanh(x * b) * a,
}

Activation = tuple[str, float, float]


@dataclass(frozen=True)
class Recurrence:
    """What the attributes say. `hidden`: units; `backward`: of each direction, whether it runs from the end; `panel`: how the weights lie (see `packed`)."""

    cell: str
    hidden: int
    backward: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None
    coupled: bool
    reset_after: bool
    extras: tuple[str, ...]
    panel: int

    @classmethod
    def of(cls, attrs: Attrs) -> Recurrence:
        return cls(
            attrs["cell"],
            attrs["hidden"],
            tuple(attrs["backward"]),
            tuple(tuple(map(tuple, acts)) for acts in attrs["activations"]),
            attrs.get("clip"),
            bool(attrs.get("coupled", False)),
            bool(attrs.get("reset_after", False)),
            tuple(attrs.get("extras", ())),
            int(attrs.get("panel", 0)),
        )

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def states(self) -> int:
        """Hidden, and an LSTM's cell."""
        return 2 if self.cell == "lstm" else 1

    @property
    def start_names(self) -> tuple[str, ...]:
        """The extras that states begin with."""
        return ("hidden_start", "cell_start")[: self.states]

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """Gates whose sums can be made together: a GRU that resets its state before the product makes its last gate of that."""
        if self.cell == "gru" and not self.reset_after:
            return (0, 1), (2,)
        return (tuple(range(self.gates)),)

    def alone(self, gate: int) -> bool:
        """Whether a gate's sum is the state's part alone: the input's is added behind the reset."""
        return self.cell == "gru" and self.reset_after and gate == 2

    # ---- a step, for one element or a vector of them

    def act(self, d: int, k: int, x: Any, kinds: Any = _TE) -> Any:
        """Activation k of a direction; what goes in is clipped."""
        name, a, b = self.activations[d][k]
        if kinds is _NP:
            x = x if self.clip is None else np.clip(x, -self.clip, self.clip)
            return kinds[name](x, x.dtype.type(a), x.dtype.type(b))
        if self.clip is not None:
            x = te.max(number(-self.clip, x.dtype), te.min(number(self.clip, x.dtype), x))
        return kinds[name](x, number(a, x.dtype), number(b, x.dtype))

    def reset(self, d: int, sums: Sequence[Any], h: Any, kinds: Any = _TE) -> tuple[Any, Any]:
        """After the first of two phases: the update gate, and the state that the second one multiplies."""
        return self.act(d, 0, sums[0], kinds), self.act(d, 0, sums[1], kinds) * h

    def step(self, d: int, sums: Sequence[Any], states: Sequence[Any], more: Any = None, kinds: Any = _TE) -> list[Any]:
        """The next states. `more`: of an LSTM with peepholes their three weights; of a GRU with reset_after the input's part of its last gate; of
        one without, the update gate (and `sums` its last gate's alone)."""
        if self.cell == "rnn":
            return [self.act(d, 0, sums[0], kinds)]
        if self.cell == "gru":
            if self.reset_after:
                z, r = self.act(d, 0, sums[0], kinds), self.act(d, 0, sums[1], kinds)
                new = self.act(d, 1, more + r * sums[2], kinds)
            else:
                z, new = more, self.act(d, 1, sums[0], kinds)
            return [new + z * (states[0] - new)]
        i, o, f, c = sums
        cell = states[1]
        if more is not None:
            i, f = i + more[0] * cell, f + more[2] * cell
        i = self.act(d, 0, i, kinds)
        keep = 1 - i if self.coupled else self.act(d, 0, f, kinds)
        new = keep * cell + i * self.act(d, 1, c, kinds)
        if more is not None:
            o = o + more[1] * new
        name, a, b = self.activations[d][2]  # of the new cell, which is not clipped
        shown = kinds[name](
            new, *((new.dtype.type(a), new.dtype.type(b)) if kinds is _NP else (_c(a, new), _c(b, new)))
        )
        return [self.act(d, 0, o, kinds) * shown, new]


def _c(value: float, like: Any) -> Any:
    return number(value, like.dtype)


# ---- how weights lie


def packed_size(r: Recurrence, hidden: int, panel: int) -> int:
    """Elements of one direction's weights in panels."""
    return r.gates * hidden * -(-hidden // panel) * panel


def packed(r: Recurrence, weights: Any, panel: int) -> Any:
    """Constant weights in panels of `panel` units: (directions, elements), each phase's panels one behind the other, in each for every element
    of the state the weights of its gates side by side; units are filled up with zeros. So a block of units reads one stream of memory."""
    directions, _, hidden = weights.shape
    full = -(-hidden // panel) * panel
    w = np.zeros((directions, r.gates, full, hidden), weights.dtype)
    w[:, :, :hidden] = weights.reshape(directions, r.gates, hidden, hidden)
    w = w.reshape(directions, r.gates, full // panel, panel, hidden)
    parts = [w[:, list(gates)].transpose(0, 2, 4, 1, 3).reshape(directions, -1) for gates in r.phases]
    return np.ascontiguousarray(np.concatenate(parts, 1))


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    """The types of a recurrence's results. Raises where its inputs do not fit."""
    cell = attrs.get("cell")
    if cell not in GATES:
        raise fail(f"a recurrence of cell {cell!r}")
    r = Recurrence.of(attrs)
    if len(types) != 2 + len(r.extras) or not set(r.extras) <= set(EXTRAS):
        raise fail(f"a recurrence of {len(types)} inputs with extras {r.extras}")
    directions, hidden = len(r.backward), r.hidden
    known = all(len(a) == ACTIVATIONS[cell] and all(x[0] in _TE for x in a) for a in r.activations)
    if directions not in (1, 2) or len(r.activations) != directions or not known:
        raise fail(f"a {cell} of directions {r.backward} with activations {r.activations}")
    fed, w = types[:2]
    if fed.ndim != 3 or "float" not in fed.dtype or fed.shape[2] != directions * r.gates * hidden:
        raise fail(f"a {cell} of {hidden} units that is fed {fed}")
    steps, batch, _ = fed.shape
    wanted = (directions, r.gates * hidden, hidden) if not r.panel else (directions, packed_size(r, hidden, r.panel))
    state = (directions, batch, hidden)
    shapes = {"r_bias": (directions, hidden), "peepholes": (directions, 3 * hidden), "lengths": (batch,)}
    if w != TensorType(fed.dtype, wanted):
        raise fail(f"a {cell} with weights {w}, not {TensorType(fed.dtype, wanted)}")
    for name, t in zip(r.extras, types[2:]):
        fits = "int" in t.dtype if name == "lengths" else t.dtype == fed.dtype
        if not fits or t.shape != shapes.get(name, state):
            raise fail(
                f"a {cell} that is fed {fed} with {name.replace('_', ' ')} {t}: its shape would be {shapes.get(name, state)}"
            )
    return [TensorType(fed.dtype, (steps, directions, batch, hidden)), *[TensorType(fed.dtype, state)] * r.states]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    total: int = 2 * GATES[attrs["cell"]] * product(outs[0].shape) * outs[0].shape[3]
    return total


def _host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    r = Recurrence.of(attrs)
    acc = np.dtype(accumulator(outs[0].dtype))
    fed, w = (np.asarray(a).astype(acc) for a in arrays[:2])
    extra = dict(zip(r.extras, arrays[2:]))
    steps, directions, batch, hidden = outs[0].shape
    starts = [np.array(extra.get(n, np.zeros((directions, batch, hidden))), acc) for n in r.start_names]
    y = np.zeros((steps, directions, batch, hidden), acc)
    for d, back in enumerate(r.backward):
        states = [s[d] for s in starts]
        weights = _plain(r, w[d], hidden)
        for t in range(steps)[::-1] if back else range(steps):
            x = fed[t].reshape(batch, directions, r.gates, hidden)[:, d].swapaxes(0, 1)
            new = _numpy_step(r, d, x, weights, states, extra, acc)
            inside = np.ones((batch, 1), bool) if "lengths" not in extra else t < extra["lengths"].reshape(-1, 1)
            states = [np.where(inside, n, s) for n, s in zip(new, states)]
            y[t, d] = np.where(inside, new[0], 0)
        for start, s in zip(starts, states):
            start[d] = s
    return [y, *starts]


def _plain(r: Recurrence, w: Any, hidden: int) -> Any:
    """One direction's weights, (gates, hidden, hidden)."""
    if not r.panel:
        return w.reshape(r.gates, hidden, hidden)
    at, out = 0, np.zeros((r.gates, hidden, hidden), w.dtype)
    full = -(-hidden // r.panel) * r.panel
    for gates in r.phases:
        part = w[at : at + len(gates) * full * hidden].reshape(full // r.panel, hidden, len(gates), r.panel)
        out[list(gates)] = part.transpose(2, 0, 3, 1).reshape(len(gates), full, hidden)[:, :hidden]
        at += len(gates) * full * hidden
    return out


def _numpy_step(r: Recurrence, d: int, x: Any, w: Any, states: Any, extra: Any, acc: Any) -> list[Any]:
    h = states[0]
    if len(r.phases) == 2:
        z, reset = r.reset(d, [x[g] + h @ w[g].T for g in (0, 1)], h, _NP)
        return r.step(d, [x[2] + reset @ w[2].T], states, z, _NP)
    sums = [h @ w[g].T + (0 if r.alone(g) else x[g]) for g in range(r.gates)]
    more = None
    if r.cell == "gru":
        more = x[2]
        if "r_bias" in extra:
            sums[2] = sums[2] + np.asarray(extra["r_bias"][d]).astype(acc)
    elif "peepholes" in extra:
        more = np.asarray(extra["peepholes"][d]).astype(acc).reshape(3, -1)
    return r.step(d, sums, states, more, _NP)


@register("recurrence", OPAQUE, _type, flops=_flops, host=_host)
def recurrence(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The outputs of all steps of a recurrent layer, and its last states. See the module."""
    shapes, dtypes = [t.shape for t in outputs], [t.dtype for t in outputs]

    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        Plain(Recurrence.of(attrs), ib, [ib.buffer_ptr(x) for x in ins], [ib.buffer_ptr(x) for x in outs]).run()
        return ib.get()

    made = te.extern(shapes, inputs, body, name="recurrence", dtype=dtypes)
    return carry(Form("recurrence", tuple(inputs), tuple(outputs), dict(attrs)), list(made))


class Plain:
    """The definition: an element after the other."""

    def __init__(self, r: Recurrence, ib: Any, sources: list[Any], results: list[Any]):
        self.r, self.ib = r, ib
        self.fed, self.w, *rest = sources
        self.extra = dict(zip(r.extras, rest))
        self.y, *self.ends = results
        self.acc = accumulator(self.fed.dtype)
        self.steps, self.batch = self.fed.shape[:2]
        self.hidden = r.hidden

    def run(self) -> None:
        for d in range(len(self.r.backward)):
            with self.ib.for_range(0, self.batch, "b") as b:
                self._row(d, b)

    def time(self, d: Any, step: Any) -> Any:
        """The place in time of a direction's step."""
        back = self.r.backward
        if len(set(back)) == 1 or isinstance(d, int):
            return self.steps - 1 - step if back[d if isinstance(d, int) else 0] else step
        return te.select(d == back.index(True), self.steps - 1 - step, step)

    def weight(self, d: int, gate: int, unit: Any, k: Any) -> Any:
        r, n = self.r, self.hidden
        if not r.panel:
            return self.w[d, gate * n + unit, k].astype(self.acc)
        full, at = -(-n // r.panel) * r.panel, 0
        for gates in r.phases:
            if gate in gates:
                block, lane = te.indexdiv(unit, r.panel), te.indexmod(unit, r.panel)
                place = at + ((block * n + k) * len(gates) + gates.index(gate)) * r.panel + lane
                return self.w[d, place].astype(self.acc)
            at += len(gates) * full * n
        raise AssertionError(gate)

    def _row(self, d: int, b: Any) -> None:
        r, ib, n, acc = self.r, self.ib, self.hidden, self.acc
        states = [ib.allocate(acc, (2 * n,), f"state{k}") for k in range(r.states)]
        vector, update = ib.allocate(acc, (n,), "reset"), ib.allocate(acc, (n,), "update")
        with ib.for_range(0, n, "j") as j:
            for k, s in enumerate(states):
                s[j] = self.start(k, d, b, j)
        with ib.for_range(0, self.steps, "step") as step:
            t = ib.let("t", self.time(d, step))
            now, after = ib.let("now", te.indexmod(step, 2) * n), ib.let("after", te.indexmod(step + 1, 2) * n)
            for phase in range(len(r.phases)):
                with ib.for_range(0, n, "j") as j:
                    old = [ib.let("old", s[now + j]) for s in states]
                    read = (lambda k: vector[k]) if phase else (lambda k: states[0][now + k])
                    sums = [ib.let("sum", x) for x in self._sums(d, b, t, j, r.phases[phase], read)]
                    if phase + 1 < len(r.phases):
                        update[j], vector[j] = r.reset(d, sums, old[0])
                        continue
                    more = update[j] if phase else self.more(d, b, t, j)
                    new = [ib.let("new", x) for x in r.step(d, sums, old, more)]
                    self._write(d, b, t, j, new, old, states, after)
        last = te.indexmod(self.steps, 2) * n
        with ib.for_range(0, n, "j") as j:
            for s, end in zip(states, self.ends):
                end[d, b, j] = s[last + j].astype(end.dtype)

    def _sums(self, d: int, b: Any, t: Any, j: Any, gates: Sequence[int], read: Any) -> list[Any]:
        ib, n = self.ib, self.hidden
        total = ib.allocate(self.acc, (len(gates),), "total", scope="local")
        for k, g in enumerate(gates):
            total[k] = self.first(d, b, t, g, j)
        with ib.for_range(0, n, "k") as k:
            for i, g in enumerate(gates):
                total[i] = total[i] + read(k) * self.weight(d, g, j, k)
        return [total[k] for k in range(len(gates))]

    def start(self, k: int, d: Any, b: Any, j: Any) -> Any:
        """What state k begins with."""
        given = self.extra.get(self.r.start_names[k])
        return te.const(0, self.acc) if given is None else given[d, b, j].astype(self.acc)

    def input(self, d: Any, b: Any, t: Any, gate: int, j: Any) -> Any:
        return self.fed[t, b, (d * self.r.gates + gate) * self.hidden + j].astype(self.acc)

    def first(self, d: Any, b: Any, t: Any, gate: int, j: Any) -> Any:
        """What a gate's sum begins with."""
        if not self.r.alone(gate):
            return self.input(d, b, t, gate, j)
        return self.extra["r_bias"][d, j].astype(self.acc) if "r_bias" in self.extra else te.const(0, self.acc)

    def more(self, d: Any, b: Any, t: Any, j: Any) -> Any:
        """What `Recurrence.step` takes beside sums and states."""
        if self.r.cell == "gru":
            return self.input(d, b, t, 2, j)
        if "peepholes" in self.extra:
            return [self.extra["peepholes"][d, g * self.hidden + j].astype(self.acc) for g in range(3)]
        return None

    def inside(self, b: Any, t: Any) -> Any:
        """Whether entry b has not ended at t; None where all have one length."""
        return t < self.extra["lengths"][b].astype("int32") if "lengths" in self.extra else None

    def _write(self, d: int, b: Any, t: Any, j: Any, new: Any, old: Any, states: Any, after: Any) -> None:
        inside = self.inside(b, t)
        for s, x, o in zip(states, new, old):
            s[after + j] = x if inside is None else te.select(inside, x, o)
        shown = new[0] if inside is None else te.select(inside, new[0], te.const(0, self.acc))
        self.y[t, d, b, j] = shown.astype(self.y.dtype)
