"""Whole Jacobians and Hessians of functions of arrays: `jacrev`, `jacfwd`, `hessian`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ..errors import kind_of
from .array import Array
from .batching import vmap
from .creation import eye
from .errors import ArrayTypeError
from .gradients import grad, jvp, vjp
from .manipulation import moveaxis, reshape


def _one(args: Any, argnums: int, what: str) -> Array:
    x = args[argnums] if -len(args) <= argnums < len(args) else None
    if type(x) is not Array:
        raise ArrayTypeError(f"{what} by argument {argnums}, which is {kind_of(x)}", hint="argnums names one array")
    return x


def _directions(x: Array) -> Array:
    """An array like x for each of its elements, which is 1 there and 0 elsewhere."""
    n = math.prod(x.shape)
    return reshape(eye(n, dtype=x.dtype, device=x.device), (n, *x.shape))


def _with(f: Callable[..., Any], args: Any, argnums: int) -> Callable[[Array], Any]:
    at = argnums % len(args)
    return lambda x: f(*args[:at], x, *args[at + 1 :])


def jacrev(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The Jacobian of a function of arrays, of shape (those of the result, those of the argument), a row at a time: for few results.

    >>> tec.jacrev(lambda x: x * x)(xp.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @functools.wraps(f)
    def jacobian(*args: Any) -> Array:
        x = _one(args, argnums, "jacrev")
        y, pull = vjp(_with(f, args, argnums), x)
        if type(y) is not Array:
            raise ArrayTypeError(f"jacrev of a function that gives {kind_of(y)}", hint="it gives one array")
        rows: Array = vmap(lambda g: pull(g)[0])(_directions(y))
        return reshape(rows, (*y.shape, *x.shape))

    return jacobian


def jacfwd(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The Jacobian as of `jacrev`, a column at a time: for few elements of the argument.

    >>> tec.jacfwd(lambda x: xp.sum(x * x))(xp.asarray([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """

    @functools.wraps(f)
    def jacobian(*args: Any) -> Array:
        x = _one(args, argnums, "jacfwd")
        inside = _with(f, args, argnums)
        columns: Array = vmap(lambda t: jvp(inside, (x,), (t,))[1])(_directions(x))
        return reshape(moveaxis(columns, 0, -1), (*columns.shape[1:], *x.shape))

    return jacobian


def hessian(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The second derivatives of a function that gives one float: of shape (those of the argument twice).

    >>> tec.hessian(lambda x: xp.sum(x ** 3))(xp.asarray([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacfwd(grad(f, argnums), argnums)
