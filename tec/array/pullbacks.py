"""Gradients of operators: what a change of an operator's result, weighed by `g`, is as changes of its inputs.

A rule takes what was written down (`Entry`), `g`, the result and the inputs as arrays, and gives an array for each input or None. Rules are array
programs, so they are written down too where somebody differentiates them. An operator without a rule has the gradient of its te definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import TecError
from . import build, dtypes
from .array import Array
from .creation import full, zeros
from .elementwise import (
    cos,
    cosh,
    exp,
    floor,
    log,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
)
from .errors import ArrayTypeError
from .indexing import key_of
from .manipulation import astype, broadcast_to, flip, permute_dims, reshape
from .node import attributes
from .products import matmul
from .searching import where
from .statistical import cumulative_sum
from .statistical import sum as _sum
from .tape import Entry

Rule = Callable[..., Sequence[Any]]
RULES: dict[str, Rule] = {}
# What changes by steps: its gradient is 0 wherever it has one.
STEPS = frozenset(("signum", "floor", "ceil", "trunc", "round_even", "floor_divide", "nextafter", "positions", "stop"))


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return add


def summed_to(g: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of what was broadcast from `shape`."""
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    axes = tuple(k for k in range(g.ndim) if k < lead or (shape[k - lead] == 1 and g.shape[k] != 1))
    return reshape(_sum(g, axis=axes, dtype=g.dtype), shape) if axes else reshape(g, shape)


def _one(f: Callable[[Array, Array, Array], Array]) -> Rule:
    """Of one input: f(g, y, x)."""
    return lambda e, g, y, x: [f(g, y, x)]


_FUNCTIONS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "identity": lambda g, y, x: g,
    "neg": lambda g, y, x: -g,
    "abs": lambda g, y, x: g * sign(x),
    "exp": lambda g, y, x: g * y,
    "expm1": lambda g, y, x: g * (y + 1.0),
    "log": lambda g, y, x: g / x,
    "log1p": lambda g, y, x: g / (x + 1.0),
    "log2": lambda g, y, x: g / (x * math.log(2.0)),
    "log10": lambda g, y, x: g / (x * math.log(10.0)),
    "sqrt": lambda g, y, x: g * 0.5 / y,
    "square": lambda g, y, x: g * (x * 2.0),
    "reciprocal": lambda g, y, x: -g * y * y,
    "sin": lambda g, y, x: g * cos(x),
    "cos": lambda g, y, x: -g * sin(x),
    "tan": lambda g, y, x: g * (y * y + 1.0),
    "sinh": lambda g, y, x: g * cosh(x),
    "cosh": lambda g, y, x: g * sinh(x),
    "tanh": lambda g, y, x: g * (1.0 - y * y),
    "asin": lambda g, y, x: g / sqrt(1.0 - x * x),
    "acos": lambda g, y, x: -g / sqrt(1.0 - x * x),
    "atan": lambda g, y, x: g / (x * x + 1.0),
    "asinh": lambda g, y, x: g / sqrt(x * x + 1.0),
    "acosh": lambda g, y, x: g / sqrt(x * x - 1.0),
    "atanh": lambda g, y, x: g / (1.0 - x * x),
    "erf": lambda g, y, x: g * exp(-x * x) * (2.0 / math.sqrt(math.pi)),
    "sigmoid": lambda g, y, x: g * (y * (1.0 - y)),
}
RULES.update({name: _one(f) for name, f in _FUNCTIONS.items()})


@rule("cast")
def _cast(e: Entry, g: Array, y: Array, x: Array) -> list[Array | None]:
    return [astype(g, x.dtype) if dtypes.is_float(x.dtype) else None]


# ---- of two, which broadcast


def _two(f: Callable[..., tuple[Callable[[], Array], Callable[[], Array]]]) -> Rule:
    """f(g, y, a, b) gives both gradients as functions, of which those are called that are needed."""

    def pull(e: Entry, g: Array, y: Array, a: Array, b: Array) -> list[Array | None]:
        made = f(g, y, a, b)
        return [summed_to(made[k](), x.shape) if e.more["needs"][k] else None for k, x in enumerate((a, b))]

    return pull


def _half(a: Array, b: Array) -> Array:
    """1 where a > b, 1/2 where they are equal."""
    return astype(a > b, a.dtype) + astype(a == b, a.dtype) * 0.5


_PAIRS: dict[str, Callable[..., tuple[Callable[[], Array], Callable[[], Array]]]] = {
    "add": lambda g, y, a, b: (lambda: g, lambda: g),
    "subtract": lambda g, y, a, b: (lambda: g, lambda: -g),
    "multiply": lambda g, y, a, b: (lambda: g * b, lambda: g * a),
    "divide": lambda g, y, a, b: (lambda: g / b, lambda: -(g / b) * y),
    "power": lambda g, y, a, b: (
        lambda: g * b * a ** (b - 1.0),
        lambda: g * where(a > 0.0, y * log(where(a > 0.0, a, 1.0)), 0.0),
    ),
    "atan2": lambda g, y, a, b: (lambda: g * b / (a * a + b * b), lambda: -(g * a) / (a * a + b * b)),
    "hypot": lambda g, y, a, b: (lambda: g * a / y, lambda: g * b / y),
    "logaddexp": lambda g, y, a, b: (lambda: g * exp(a - y), lambda: g * exp(b - y)),
    "maximum": lambda g, y, a, b: (lambda: g * _half(a, b), lambda: g * _half(b, a)),
    "minimum": lambda g, y, a, b: (lambda: g * _half(b, a), lambda: g * _half(a, b)),
    "remainder": lambda g, y, a, b: (lambda: g, lambda: -g * floor(a / b)),
    "copysign": lambda g, y, a, b: (lambda: where(signbit(a) == signbit(b), g, -g), lambda: g * 0.0),
}
RULES.update({name: _two(f) for name, f in _PAIRS.items()})


@rule("where")
def _where(e: Entry, g: Array, y: Array, c: Array, a: Array, b: Array) -> list[Array | None]:
    none = full((), 0, dtype=g.dtype, device=g.device)
    by = [where(c, g, none), where(c, none, g)]
    return [None, *(summed_to(v, x.shape) if k else None for v, x, k in zip(by, (a, b), e.more["needs"][1:]))]


# ---- shapes


@rule("reshape")
def _reshape(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    return [reshape(g, x.shape)]


@rule("broadcast_to")
def _broadcast(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    return [summed_to(g, x.shape)]


@rule("transpose")
def _transpose(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    return [permute_dims(g, tuple(int(k) for k in np.argsort(dict(e.attrs)["perm"])))]


@rule("slice")
def _slice(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    places = dict(e.ints)
    wide = zeros(x.shape, dtype=g.dtype, device=g.device)
    wide[key_of(places["starts"], dict(e.attrs)["steps"], places["sizes"])] = g
    return [wide]


@rule("put")
def _put(e: Entry, g: Array, y: Array, x: Array, value: Array) -> list[Array]:
    region = e.more["region"]
    key = key_of(region.starts, region.steps, region.sizes)
    rest = g + 0.0
    rest[key] = 0.0
    return [rest, summed_to(reshape(g[key], region.shape), value.shape)]


@rule("concat")
def _concat(e: Entry, g: Array, y: Array, *xs: Array) -> list[Array]:
    axis, at, out = dict(e.attrs)["axis"], 0, []
    for x in xs:
        out.append(g[(*(slice(None),) * axis, slice(at, at + x.shape[axis]))])
        at += x.shape[axis]
    return out


# ---- reductions


def _kept(e: Entry, v: Array, x: Array) -> Array:
    """A reduction's result with its axes, of extent 1."""
    axes = dict(e.attrs)["axes"]
    return reshape(v, tuple(1 if k in axes else n for k, n in enumerate(x.shape)))


@rule("reduce_sum")
def _reduce_sum(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    return [broadcast_to(_kept(e, g, x), x.shape)]


@rule("reduce_max", "reduce_min")
def _reduce_best(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    """Those that are equal share it."""
    same = astype(x == _kept(e, y, x), g.dtype)
    count = _sum(same, axis=dict(e.attrs)["axes"], keepdims=True)
    return [same * (_kept(e, g, x) / count)]


@rule("reduce_prod")
def _reduce_prod(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    """The product of the others: without zeros the product by the element, of one zero that of the rest."""
    axes = dict(e.attrs)["axes"]
    is_zero = x == 0.0
    zeros_there = _sum(astype(is_zero, g.dtype), axis=axes, keepdims=True)
    others = where(is_zero, full((), 1, dtype=g.dtype, device=g.device), x)
    made = Array(build.reduce("prod", others._node, axes, True))
    none = full((), 0, dtype=g.dtype, device=g.device)
    by = where(zeros_there == 0.0, made / others, where((zeros_there == 1.0) & is_zero, made, none))
    return [_kept(e, g, x) * by]


@rule("cumsum")
def _cumsum(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    axis = dict(e.attrs)["axis"]
    return [flip(cumulative_sum(flip(g, axis=axis), axis=axis, dtype=g.dtype), axis=axis)]


# ---- products


@rule("softmax")
def _softmax(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    both = g * y
    return [both - y * _sum(both, axis=dict(e.attrs)["axes"], keepdims=True)]


@rule("log_softmax")
def _log_softmax(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    return [g - exp(y) * _sum(g, axis=dict(e.attrs)["axes"], keepdims=True)]


@rule("matmul")
def _matmul(e: Entry, g: Array, y: Array, a: Array, b: Array) -> list[Array | None]:
    need = e.more["needs"]
    return [
        summed_to(matmul(g, b.mT), a.shape) if need[0] else None,
        summed_to(matmul(a.mT, g), b.shape) if need[1] else None,
    ]


# ---- picking


def _added(shape: tuple[int, ...], like: Array, points: Array, updates: Array) -> Array:
    """Zeros with updates added at points."""
    start = build.boundary(build.full(0, shape, like.dtype, like.device))
    inputs = (start, build.boundary(points._node), build.boundary(updates._node))
    return Array(build.make("scatter_nd", inputs, shape, like.dtype, (("reduction", "add"),)))


@rule("gather")
def _gather(e: Entry, g: Array, y: Array, x: Array, index: Array) -> list[Array | None]:
    axis, r = dict(e.attrs)["axis"], index.ndim
    front = permute_dims(g, (*range(axis, axis + r), *range(axis), *range(axis + r, g.ndim)))
    shape = (x.shape[axis], *x.shape[:axis], *x.shape[axis + 1 :])
    made = _added(shape, g, reshape(_inside(index, x.shape[axis]), (*index.shape, 1)), front)
    return [permute_dims(made, (*range(1, axis + 1), 0, *range(axis + 1, x.ndim))), None]


def _inside(index: Array, extent: int) -> Array:
    """Indices counted from the front."""
    wide = astype(index, dtypes.int64)
    return where(wide < 0, wide + extent, wide)


@rule("gather_elements")
def _gather_elements(e: Entry, g: Array, y: Array, x: Array, index: Array) -> list[Array | None]:
    axis = dict(e.attrs)["axis"]
    start = build.boundary(build.full(0, x.shape, g.dtype, g.device))
    inputs = (start, build.boundary(_inside(index, x.shape[axis])._node), build.boundary(g._node))
    attrs = attributes(axis=axis, reduction="add")
    return [Array(build.make("scatter_elements", inputs, x.shape, g.dtype, attrs)), None]


@rule("gather_nd")
def _gather_nd(e: Entry, g: Array, y: Array, x: Array, points: Array) -> list[Array | None]:
    return [_added(x.shape, g, points, g), None]


@rule("scatter_nd")
def _scatter_nd(e: Entry, g: Array, y: Array, x: Array, points: Array, updates: Array) -> list[Array | None]:
    read = Array(build.gather_points(build.boundary(g._node), build.boundary(points._node)))
    if dict(e.attrs)["reduction"] == "add":
        return [g, None, read]
    if dict(e.attrs)["reduction"] != "none":
        raise ArrayTypeError(
            f"no gradient through scatter_nd with {dict(e.attrs)['reduction']}",
            hint="tec.array.add.at has one; tec.stop_gradient takes a value for a constant",
        )
    none = build.full(0, updates.shape, g.dtype, g.device)
    rest = Array(build.scatter_points(g._node, build.boundary(points._node), build.boundary(none)))
    return [rest, None, read]


@rule("scatter_elements")
def _scatter_elements(e: Entry, g: Array, y: Array, x: Array, index: Array, updates: Array) -> list[Array | None]:
    axis = dict(e.attrs)["axis"]
    read = build.gather_elements(build.boundary(g._node), build.boundary(index._node), axis)
    return [g, None, Array(read)]


@rule("custom")
def _custom(e: Entry, g: Array, y: Array, *xs: Array) -> Sequence[Array | None]:
    """What tells its gradient itself."""
    return e.more["pull"](g, y, *xs)  # type: ignore[no-any-return]


# ---- complex numbers: a gradient is that by the real part, with that by the imaginary part as its own imaginary part

JOINS = frozenset(("complex", "pairs", "custom", "reshape", "transpose", "slice", "concat", "broadcast_to", "identity"))


@rule("complex")
def _complex(e: Entry, g: Array, y: Array, real: Array, imag: Array) -> list[Array]:
    return [Array(p) for p in build.parts(g._node)]


@rule("pairs")
def _pairs(e: Entry, g: Array, y: Array, x: Array) -> list[Array]:
    return [Array(build.joined(g[..., 0]._node, g[..., 1]._node))]


def by_definition(e: Entry, g: Array, wrt: int) -> Array:
    """The gradient of an operator's te definition. Raises ArrayTypeError where it has none."""
    n = e.inputs[wrt]
    attrs = attributes(of=e.op, attrs=tuple(sorted((*e.attrs, *e.ints))), wrt=wrt, out=e.out)
    try:
        node = build.make("vjp", tuple(build.boundary(v) for v in (*e.inputs, g._node)), n.shape, n.dtype, attrs)
        return Array(build.boundary(node))
    except TecError as error:
        raise ArrayTypeError(f"no gradient through {e.op}: {error.message}", hint=error.hint) from error


__all__ = ["JOINS", "RULES", "STEPS", "by_definition", "summed_to"]
