"""Optimisers: how parameters follow their gradients. Parameters, gradients and states are trees: arrays in dicts, lists and tuples.

    rule = tec.array.optim.AdamW(1e-3)
    state = rule.init(params)
    value, grads = tec.value_and_grad(loss)(params, batch)
    params, state = rule.update(params, grads, state)

or, where the optimiser keeps the parameters and the state, as in PyTorch:

    opt = tec.array.optim.AdamW(params, lr=1e-3)
    value, grads = tec.value_and_grad(loss)(params, batch)
    opt.step(grads)              # the arrays of params have their new values

Their arithmetic and their names are PyTorch's. An update computes all parameters together.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import listed
from .array import Array
from .computing import compute
from .creation import zeros_like
from .dtypes import float32, float64
from .elementwise import sqrt
from .elsewhere import missing
from .errors import ArrayTypeError, ArrayValueError
from .manipulation import astype
from .node import TRACED
from .trees import leaves, mapped, placed, rebuilt

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]


def _updated(params: Any, rows: list[tuple[Array, ...]]) -> list[Any]:
    """Trees of the parts of rows, one row a parameter, computed at once."""
    if not TRACED:
        compute(*[x._node for row in rows for x in row])
    return [rebuilt(params, list(column)) for column in zip(*rows)]


def _slopes(rule: _Rule, params: Any, grads: Any) -> list[Array]:
    """The gradients in the order of the parameters. Raises ArrayTypeError where they are of another form."""
    held, found = placed(params), placed(grads)
    for at in (*held, *found):
        where = (
            f"{type(rule).__name__}: gradients and parameters of different forms: {{}} has nothing at {at or 'the top'}"
        )
        if at not in found:
            raise ArrayTypeError(where.format("the gradient"), hint=_FORM)
        if at not in held:
            raise ArrayTypeError(where.format("the parameters' tree"), hint=_FORM)
        if held[at].shape != found[at].shape:
            raise ArrayTypeError(
                f"{type(rule).__name__}: a gradient of shape {found[at].shape} for a parameter of shape {held[at].shape}"
                + (f" at {at}" if at else ""),
                hint=_FORM,
            )
    return list(found.values())


_FORM = "grads = tec.grad(loss)(params, ...), whose first argument is what the optimiser was given"
_USE = "state = rule.init(params); params, state = rule.update(params, grads, state)"


class _Rule:
    """What the rules share: `Rule(params, lr=...)` makes an `Optimizer`, and a rule without parameters says how it is used."""

    lr: float

    def __new__(cls, *args: Any, **options: Any) -> Any:
        params = args[0] if args and not isinstance(args[0], (int, float)) else options.get("params")
        if params is None:
            return super().__new__(cls)
        return Optimizer(cls(*args[1:], **{k: v for k, v in options.items() if k != "params"}), params)

    def __post_init__(self) -> None:
        given = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # each rule is a dataclass
        for name, value in given.items():
            if isinstance(value, (int, float)) and not value >= 0:
                raise ArrayValueError(f"{type(self).__name__}({name}={value})", hint="a number of at least 0")
        for b in given.get("betas", ()):
            if not 0 <= b < 1:
                raise ArrayValueError(
                    f"{type(self).__name__}(betas={given['betas']})", hint="each from 0 up to below 1"
                )

    def init(self, params: Any) -> Any:
        raise NotImplementedError

    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name in ("step", "zero_grad", "apply_updates", "state_dict"):
            kind = type(self).__name__
            raise AttributeError(f"a rule has no {name}: {_USE}; or opt = {kind}(params, lr=...); opt.step(grads)")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class Optimizer:
    """Parameters, a rule and its state: what `SGD(params, lr=...)`, `Adam(params)` and `AdamW(params)` make.

    params: the arrays, in dicts, lists and tuples as they were given. state: what the rule remembers. lr: the learning rate, which may be set between steps.
    """

    def __init__(self, rule: _Rule, params: Any):
        if not leaves(params):
            raise ArrayTypeError(
                f"{type(rule).__name__}({type(params).__name__}): no arrays among the parameters",
                hint="an array, or dicts, lists and tuples of arrays",
            )
        self.rule, self.params, self.state = rule, params, rule.init(params)

    @property
    def lr(self) -> float:
        return self.rule.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.rule = replace(self.rule, lr=value)  # type: ignore[type-var]  # each rule is a dataclass

    def step(self, *grads: Any) -> Any:
        """Take a step along `grads`, whose form is that of the parameters. The arrays of `params` get their new values in place; returns `params`.

        Raises ArrayTypeError where the gradients are missing or of another form.
        """
        if len(grads) != 1:
            given = "no gradients" if not grads else f"{len(grads)} arguments"
            raise ArrayTypeError(
                f"{type(self.rule).__name__}.step of {given}",
                hint="grads = tec.grad(loss)(params, ...); opt.step(grads)",
            )
        held = leaves(self.params)
        new, self.state = self.rule.update(self.params, grads[0], self.state)
        for x, y in zip(held, leaves(new)):
            x._become(y._node)
        return self.params

    def zero_grad(self) -> None:
        """Does nothing: gradients are the results of `tec.grad`, and are not added up."""

    def __repr__(self) -> str:
        return f"{self.rule!r} of {len(leaves(self.params))} arrays"


@dataclass(frozen=True)
class SGD(_Rule):
    """p -= lr v, where v = momentum v + g (g alone without momentum; g + momentum v with nesterov), g with weight_decay p added."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def init(self, params: Any) -> Any:
        """The state before the first update."""
        return {"step": 0, "velocity": mapped(zeros_like, params) if self.momentum else None}

    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        """(parameters, state) after a step."""
        velocity = leaves(state["velocity"]) if self.momentum else []
        rows: list[tuple[Array, ...]] = []
        for k, (p, g) in enumerate(zip(leaves(params), _slopes(self, params, grads))):
            if self.weight_decay:
                g = g + p * self.weight_decay
            if not self.momentum:
                rows.append((p - g * self.lr,))
                continue
            v = velocity[k] * self.momentum + g
            rows.append((p - (g + v * self.momentum if self.nesterov else v) * self.lr, v))
        made = _updated(params, rows)
        return made[0], {"step": state["step"] + 1, "velocity": made[1] if self.momentum else None}


def _corrections(step: Any, lr: float, a: float, b: float) -> tuple[Any, Any]:
    """The rate and the scale of a step of Adam; of its number as an array (`tec.array.jit`) in float64, of whose digits 1 - b**step loses some."""
    if type(step) is not Array:
        return lr / (1 - a**step), (1 - b**step) ** 0.5
    wide = astype(step, float64)
    return astype(lr / (1 - a**wide), float32), astype(sqrt(1 - b**wide), float32)


@dataclass(frozen=True)
class Adam(_Rule):
    """D. Kingma, J. Ba, "Adam", arXiv 1412.6980; weight_decay is added to the gradient."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def init(self, params: Any) -> Any:
        """The state before the first update."""
        return {"step": 0, "mean": mapped(zeros_like, params), "square": mapped(zeros_like, params)}

    def _decayed(self, p: Array, g: Array) -> tuple[Array, Array]:
        return p, g + p * self.weight_decay if self.weight_decay else g

    def update(self, params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        """(parameters, state) after a step."""
        slopes = _slopes(self, params, grads)
        a, b = self.betas
        step = state["step"] + 1
        size, root = _corrections(step, self.lr, a, b)
        rows: list[tuple[Array, ...]] = []
        for p, g, m, v in zip(leaves(params), slopes, leaves(state["mean"]), leaves(state["square"])):
            p, g = self._decayed(p, g)
            m = m * a + g * (1 - a)
            v = v * b + g * g * (1 - b)
            rows.append((p - m * size / (sqrt(v) / root + self.eps), m, v))
        new, mean, square = _updated(params, rows)
        return new, {"step": step, "mean": mean, "square": square}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with the decay taken from the parameters themselves: I. Loshchilov, F. Hutter, arXiv 1711.05101."""

    weight_decay: float = 1e-2

    def _decayed(self, p: Array, g: Array) -> tuple[Array, Array]:
        return p * (1 - self.lr * self.weight_decay), g


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, __all__)


__dir__ = listed(__name__)
