"""Gradients of array programs: `grad`, `value_and_grad`, `vjp`, `jvp`.

    def loss(w, x, y):
        return tec.array.mean((x @ w - y) ** 2)

    dw = tec.grad(loss)(w, x, y)

A program is any function of arrays. It runs with the values that it is given; `tape` writes down what it does, and the gradient goes back along that. So
Python's control flow is followed as it was taken, and a number that was taken out of an array (`float(x)`) is a constant. Gradients are array programs
themselves: they can be differentiated again.

What has no gradient is told by an ArrayTypeError: an argument of integers, complex numbers, a function of the host's LAPACK without a rule.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import kind_of
from ..graph.gradient import grad as graph_grad
from . import build, dtypes
from .array import Array
from .computing import in_memory
from .creation import ones_like, zeros_like
from .errors import ArrayTypeError, ArrayValueError
from .node import Node, is_traced, leaf, note
from .pullbacks import JOINS, RULES, STEPS, by_definition
from .tape import Entry, Tape, array_of, depends
from .trees import leaves, mapped, rebuilt

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


def is_program(f: Any) -> bool:
    """Whether it is a function of arrays, not a model to compile."""
    return isinstance(f, _FUNCTIONS) or hasattr(type(f), "__tec_program__")


def _watched(x: Array) -> Array:
    """The argument as a value of its own, whose gradient is asked for."""
    n = x._node
    if is_traced(n):  # no value yet: one of its own by name alone
        return Array(build.unary("identity", n))
    made = leaf(in_memory(n), beside=n)
    note("identity", made, (n,))
    return Array(made)


def _pulled(tape: Tape, moving: set[Node], heads: dict[Node, Array], wanted: Sequence[Node]) -> list[Array | None]:
    """The gradients by `wanted`, given those by the results."""
    adjoints = dict(heads)
    for e in reversed(tape.entries):
        g = adjoints.get(e.made)
        if g is None or e.made not in moving or not any(n in moving for n in e.inputs):
            continue
        for n, part in zip(e.inputs, _through(e, g, moving)):
            if part is not None and n in moving:
                have = adjoints.get(n)
                adjoints[n] = part if have is None else have + part
    return [adjoints.get(n) for n in wanted]


def _through(e: Entry, g: Array, moving: set[Node]) -> Sequence[Array | None]:
    needs = [n in moving for n in e.inputs]
    if e.op in STEPS:
        return [None] * len(needs)
    if e.op == "none":
        raise ArrayTypeError(f"no gradient through {e.more['name']}", hint="tec's arrays have none for it")
    # Operators on complex numbers are made of those on their parts; what joins and takes parts has rules.
    if e.op not in JOINS and (dtypes.is_complex(e.made.dtype) or any(dtypes.is_complex(n.dtype) for n in e.inputs)):
        raise ArrayTypeError(
            f"no gradient through {e.op} of complex numbers", hint="write real and imaginary parts out"
        )
    found = RULES.get(e.op)
    if found is None:
        return [by_definition(e, g, k) if need else None for k, need in enumerate(needs)]
    e.more["needs"] = needs
    return found(e, g, array_of(e.made), *[array_of(n) for n in e.inputs])


class _Run:
    """A program that ran, with what it was given and what came of it."""

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], argnums: Sequence[int], what: str, **rest: Any):
        self.given = [args[k] for k in argnums]
        flat = leaves(self.given)
        for x in flat:
            if not dtypes.is_float(x.dtype):
                raise ArrayTypeError(
                    f"{what} by an array of {x.dtype}",
                    hint='real floats have gradients: tec.array.astype(x, "float32")',
                )
        self.inputs = [_watched(x) for x in flat]
        trees = rebuilt(self.given, list(self.inputs))
        inside = list(args)
        for k, tree in zip(argnums, trees):
            inside[k] = tree
        self.wanted = [x._node for x in self.inputs]
        self.tape = Tape(differentiates=True)
        with self.tape.running():
            self.result = f(*inside, **rest)

    def pull(self, outputs: Sequence[Array], heads: Sequence[Array]) -> list[Array]:
        """The gradients by the inputs, given those by outputs."""
        moving = depends(self.tape, set(self.wanted))
        given: dict[Node, Array] = {}
        for x, g in zip(outputs, heads):
            n = x._node
            given[n] = given[n] + g if n in given else g
        made = _pulled(self.tape, moving, given, self.wanted)
        return [zeros_like(x) if g is None else g for x, g in zip(self.inputs, made)]


def _places(argnums: int | Sequence[int], args: Sequence[Any], what: str) -> tuple[int, ...]:
    found = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for k in found:
        if not -len(args) <= k < len(args):
            raise ArrayValueError(f"{what} by argument {k} of {len(args)}", hint="argnums counts positional arguments")
    return tuple(k % len(args) for k in found)


def _check_function(f: Any, what: str) -> None:
    if not callable(f):
        raise ArrayTypeError(f"{what} of {kind_of(f)}, no function", hint=f"tec.{what}(lambda x: ..., ...)")


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives (f(...), the gradient of f by the arguments `argnums`).

    f gives one float of no dimensions; with `has_aux` a pair of it and anything else, which is given back as it is. An argument is an array of floats, or dicts,
    lists and tuples of them; its gradient has the same form. Raises ArrayTypeError and ArrayValueError for what has no gradient.

    >>> value, slope = tec.value_and_grad(lambda x: xp.sum(x * x))(xp.asarray([1.0, 2.0]))
    >>> value.item(), slope.tolist()
    (5.0, [2.0, 4.0])
    """

    _check_function(f, "value_and_grad")

    @functools.wraps(f)
    def both(*args: Any, **rest: Any) -> Any:
        places = _places(argnums, args, "value_and_grad")
        run = _Run(f, args, places, "the gradient", **rest)
        result = run.result
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            raise ArrayTypeError(
                "with has_aux the function gives a pair: what is differentiated, and anything else",
                hint="return loss, more",
            )
        out = result[0] if has_aux else result
        if type(out) is not Array:
            raise ArrayTypeError(f"the gradient of {kind_of(out)}", hint="the function gives an array of no dimensions")
        if out.shape or not dtypes.is_float(out.dtype):
            raise ArrayValueError(
                f"the gradient of {out.dtype} of shape {out.shape}",
                hint="one float: its mean or sum; tec.vjp takes others",
            )
        made = rebuilt(run.given, list(run.pull([out], [ones_like(out)])))
        return result, made[0] if isinstance(argnums, int) else tuple(made)

    return both


def grad(f: Any, argnums: Any = 0, *args: Any, has_aux: bool = False, **options: Any) -> Any:
    """The gradient of a function of arrays, as a function; or of a model, as a graph.

    Of a function it gives the second result of `value_and_grad`; with `has_aux`, the pair (gradient, what else the
    function returned). Of anything else it is `tec.graph.grad(model, wrt, output, shapes, head)`: the graph of a
    network with the gradients of an output.

    >>> slope = tec.grad(lambda x: xp.sum(x ** 2))
    >>> slope(xp.asarray([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    names_given = isinstance(argnums, str) or (
        isinstance(argnums, (list, tuple)) and any(isinstance(k, str) for k in argnums)
    )
    if not is_program(f) or names_given or args or options:
        if "wrt" in options:
            return graph_grad(f, **options)
        return graph_grad(f, argnums, *args, **options)
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def gradient(*args: Any, **rest: Any) -> Any:
        value, made = both(*args, **rest)
        return (made, value[1]) if has_aux else made

    return gradient


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """f(*primals), and a function that multiplies the Jacobian from the left: weights of the form of the results give
    the gradients by the primals, a tuple. Raises ArrayTypeError and ArrayValueError for what has no gradient.

    >>> value, pull = tec.vjp(lambda x: x * x, xp.asarray([1.0, 2.0]))
    >>> pull(xp.ones(2))[0].tolist()
    [2.0, 4.0]
    """
    _check_function(f, "vjp")
    run = _Run(f, primals, tuple(range(len(primals))), "vjp")
    outputs = leaves(run.result)

    def pull(heads: Any) -> Any:
        given = leaves(heads)
        if [g.shape for g in given] != [x.shape for x in outputs]:
            raise ArrayValueError(
                f"vjp with weights of shapes {[g.shape for g in given]} for results of {[x.shape for x in outputs]}",
                hint="weights have the shapes of the results: tec.array.ones_like(y)",
            )
        return tuple(rebuilt(run.given, list(run.pull(outputs, given))))

    return run.result, pull


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """f(*primals), and its derivative along `tangents`, which have the shapes of the primals: the Jacobian multiplied from
    the right. It is the derivative of the gradient by its weights, in which the gradient is linear.

    >>> value, along = tec.jvp(lambda x: x * x, (xp.asarray([1.0, 2.0]),), (xp.asarray([1.0, 0.0]),))
    >>> along.tolist()
    [2.0, 0.0]
    """
    _check_function(f, "jvp")
    for given in (primals, tangents):
        if not isinstance(given, (list, tuple)):
            raise ArrayTypeError(
                f"jvp takes lists or tuples of arguments and of tangents, not {kind_of(given)}",
                hint="tec.jvp(f, (x,), (v,))",
            )
    moves = leaves(list(tangents))
    if [x.shape for x in moves] != [x.shape for x in leaves(list(primals))]:
        raise ArrayValueError(
            "jvp with tangents of other shapes than the primals",
            hint="a tangent has the shape of its primal: tec.array.ones_like(x)",
        )
    result, pull = vjp(f, *primals)
    weights = mapped(zeros_like, result)
    _, back = vjp(pull, weights)
    (made,) = back(tuple(rebuilt(tuple(primals), list(moves))))
    return result, made
