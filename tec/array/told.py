"""Functions that tell their gradients themselves: those of the host's LAPACK and pocketfft, and a user's own (`custom_vjp`)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from .array import Array
from .creation import zeros_like
from .errors import ArrayTypeError, ArrayValueError
from .node import RECORDERS, Node
from .steps import alone, tell, unwritten
from .trees import leaves, mapped, rebuilt


def with_gradient(
    made: Array, nodes: tuple[Node, ...], pull: Callable[..., Any], again: Callable[..., Array] | None = None
) -> Array:
    """A result that tells its gradient: pull(weights, result, inputs...) gives those by the inputs. again: the function that made it, for a batch."""
    if RECORDERS:
        made = Array(alone(made._node))
        batch = None if again is None else lambda *whole: again(*map(Array, whole))._node
        tell("custom", made._node, nodes, pull=pull, again=batch)
    return made


class custom_vjp:
    """A function of arrays whose gradient is given by two others, as in JAX.

    `defvjp(forward, backward)`: forward(*args) gives (the result, what backward needs); backward(that, weights) gives, for each
    argument, the gradient: the weights, which have the form of the result, times the Jacobian. Of an argument without arrays it gives
    None. Where nothing is differentiated, and in `vmap`, the function itself runs. Raises ArrayTypeError where it is differentiated
    before `defvjp`, ArrayValueError for gradients of another number or shape than the arguments.

    >>> @tec.custom_vjp
    ... def clipped(x):
    ...     return xp.clip(x, -1.0, 1.0)
    >>> clipped.defvjp(lambda x: (clipped(x), None), lambda kept, g: (g,))
    >>> tec.grad(lambda x: xp.sum(clipped(x)))(xp.asarray([0.5, 3.0])).tolist()
    [1.0, 1.0]
    """

    def __init__(self, function: Callable[..., Any]):
        functools.update_wrapper(self, function)
        self.function = function
        self.name = getattr(function, "__name__", "the function")
        self._rule: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """The functions that give its gradient."""
        self._rule = forward, backward

    def __call__(self, *args: Any) -> Any:
        mine = [r for r in RECORDERS if r.thread == threading.get_ident()]
        if not mine or not any(r.differentiates for r in mine):
            return self.function(*args)
        if self._rule is None:
            raise ArrayTypeError(f"no gradient of {self.name} was given", hint="f.defvjp(forward, backward)")
        forward, _ = self._rule
        with unwritten():
            result, kept = forward(*args)
            outs = [Array(alone(y._node)) for y in leaves(result)]
        inputs = tuple(x._node for x in _arrays(args))
        for k, y in enumerate(outs):
            tell("custom", y._node, inputs, pull=functools.partial(self._pulled, args, kept, outs, k))
        return rebuilt(result, list(outs))

    def _pulled(self, args: Any, kept: Any, outs: list[Array], k: int, g: Array, y: Array, *xs: Array) -> list[Array]:
        assert self._rule is not None
        forward, backward = self._rule
        result = None
        if RECORDERS:  # the gradient is differentiated: what was kept depends on the arguments
            result, kept = forward(*_with_arrays(args, xs))
        weights = [g if i == k else zeros_like(v) for i, v in enumerate(outs)]
        form = result if result is not None else outs[0] if len(outs) == 1 else tuple(outs)
        made = backward(kept, weights[0] if len(outs) == 1 else rebuilt(form, weights))
        made = made if isinstance(made, (tuple, list)) else (made,)
        if len(made) != len(args):
            raise ArrayValueError(
                f"backward of {self.name} gives {len(made)} gradients for {len(args)} arguments",
                hint="a tuple: one for each, None for one without arrays",
            )
        found: list[Array] = []
        for place, (argument, part) in enumerate(zip(args, made)):
            mine = _arrays((argument,))
            parts = [zeros_like(x) for x in mine] if part is None else leaves(part)
            if [p.shape for p in parts] != [x.shape for x in mine]:
                raise ArrayValueError(
                    f"backward of {self.name}: gradient {place} has shapes {[p.shape for p in parts]}, the argument {[x.shape for x in mine]}",
                    hint="a gradient has the shape of its argument: broadcast_to, or a sum over what was stretched",
                )
            found += parts
        return found


def stop_gradient(tree: Any) -> Any:
    """The same values, which gradients take for constants. Computes them where something is differentiated.

    >>> tec.grad(lambda x: xp.sum(x * tec.stop_gradient(x)))(xp.asarray([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def stopped(x: Array) -> Array:
        if not RECORDERS:
            return x
        made = alone(x._node)
        tell("stop", made, (x._node,), again=lambda whole: whole)
        return Array(made)

    return mapped(stopped, tree)


def _arrays(args: Any) -> list[Array]:
    """The arrays among arguments that may be anything else too."""
    found: list[Array] = []
    for a in args:
        try:
            found += leaves(a)
        except ArrayTypeError:
            continue
    return found


def _with_arrays(args: Any, arrays: Any) -> list[Any]:
    """The arguments with these in the places of their arrays."""
    rest, made = list(arrays), []
    for a in args:
        count = len(_arrays((a,)))
        made.append(rebuilt(a, rest[:count]) if count else a)
        rest = rest[count:]
    return made
