"""Optimisers: how parameters follow their gradients. Parameters, gradients and states are trees: arrays in dicts, lists and tuples.

    rule = tec.array.optim.AdamW(1e-3)
    state = rule.init(params)
    value, grads = tec.value_and_grad(loss)(params, batch)
    params, state = rule.update(params, grads, state)

Their arithmetic and their names are PyTorch's. An update computes all parameters together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .array import Array
from .computing import compute
from .creation import zeros_like
from .elementwise import sqrt
from .errors import ArrayTypeError
from .trees import leaves, mapped, rebuilt

__all__ = ["SGD", "Adam", "AdamW"]


def _updated(params: Any, rows: list[tuple[Array, ...]]) -> list[Any]:
    """Trees of the parts of rows, one row a parameter, computed at once."""
    compute(*[x._node for row in rows for x in row])
    return [rebuilt(params, list(column)) for column in zip(*rows)]


_USE = "state = rule.init(params); params, state = rule.update(params, grads, state)"


class _Rule:
    """What is said to those who know optimisers that hold parameters."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        if args and not isinstance(args[0], (int, float)):
            raise ArrayTypeError(
                f"{cls.__name__}({type(args[0]).__name__}, ...): a rule holds no parameters",
                hint=f"rule = {cls.__name__}(lr=1e-3); {_USE}",
            )
        return super().__new__(cls)

    def __getattr__(self, name: str) -> Any:
        if name in ("step", "zero_grad", "apply_updates", "state_dict"):
            raise AttributeError(f"a rule has no {name}: {_USE}")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


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
        for k, (p, g) in enumerate(zip(leaves(params), leaves(grads))):
            if self.weight_decay:
                g = g + p * self.weight_decay
            if not self.momentum:
                rows.append((p - g * self.lr,))
                continue
            v = velocity[k] * self.momentum + g
            rows.append((p - (g + v * self.momentum if self.nesterov else v) * self.lr, v))
        made = _updated(params, rows)
        return made[0], {"step": state["step"] + 1, "velocity": made[1] if self.momentum else None}


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
        a, b = self.betas
        step = state["step"] + 1
        size, root = self.lr / (1 - a**step), (1 - b**step) ** 0.5
        rows: list[tuple[Array, ...]] = []
        for p, g, m, v in zip(leaves(params), leaves(grads), leaves(state["mean"]), leaves(state["square"])):
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
