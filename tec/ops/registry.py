"""Operators of a graph: for each a name, type inference, a te definition and how it may be fused.

An operator works on tensors of known shape; a dimension is an int, or a `Dim` where it is known when the network runs (see `dims`). `infer(types, attrs) -> types` checks its inputs and gives the outputs' types;
`compute(attrs, inputs, outputs) -> tensors` writes it down in te. Attributes are plain data (ints, floats, strings,
tuples), so that equal operators can be found by comparing them. What an input's *value* decides (a shape, an axis) is an
attribute here: a frontend has to know it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from ..errors import ImportModelError, one_line
from ..ir import IntImm, build
from ..records import dataclass
from ..te import Tensor
from .dims import Dim, Size, UndecidedSize, bind_hint, is_symbolic, names_of
from .size_exprs import from_expr

# How an operator's output element depends on its inputs, from what fuses easiest to what does not fuse:
ELEMENTWISE = "elementwise"  # same index of inputs of the same shape
BROADCAST = "broadcast"  # same index, inputs may be smaller
INJECTIVE = "injective"  # one element of each input, found by index arithmetic
REDUCTION = "reduction"  # many elements of one input
COMPLEX = "complex"  # a contraction; elementwise work may follow it in the same kernel
OPAQUE = "opaque"  # several stages of its own
# What else graph passes ask of an operator; `OpDef.traits` holds those that hold for it.
VIEW = "view"  # shows its input's elements, in their order, under another shape
ROW = "row"  # several stages over rows of its first output, which what follows may be computed in
SHAPED = "shaped"  # an attribute is the output's shape: it does not follow operands into another layout
COSTLY = "costly"  # tens of instructions an element: not to be computed again for each copy of it
FINITE = "finite"  # finite numbers of any finite ones
SUMS = "sums"  # products that are summed in float32 whatever their type is: they gain by 16 bits
FOLLOWS_16 = "follows_16"  # loses little in 16 bits, or works in float32 inside: so it does where its inputs are
ALONG_AXES = "along_axes"  # works along `axes`, whatever order the dimensions have
WINDOWED = "windowed"  # reduces windows channel by channel, in any layout (`layouts`, `space`: see tec/ops/windows.py)
INDEXED = "indexed"  # its second input holds indices into its first, to be checked
# Gives its first input where its second, one bool, holds; else a run fails with its attribute `text`
CHECKED = "checked"
PACKED = "packed"  # makes more of its inputs than they are: where these are constants, it is left to whoever reads it
REGION = "region"  # its attributes hold graphs, which run many times or not at all (see tec.graph.regions)
# Exchanged between the ranks of a mesh axis: no function computes it (see tec.ops.collective).
COLLECTIVE = "collective"
CUMULATIVE = "cumulative"  # adds up, or multiplies, along `axis`, line by line
COMMUTES = "commutes"  # its two inputs may change places
PITCHED = "pitched"  # reads rows of its inputs as well where they lie apart as where one follows the other
TRAITS = (
    VIEW, ROW, SHAPED, COSTLY, FINITE, SUMS, FOLLOWS_16, ALONG_AXES, WINDOWED, INDEXED, CHECKED, PACKED, REGION,
    COLLECTIVE, CUMULATIVE, COMMUTES, PITCHED,
)  # fmt: skip
KINDS = (ELEMENTWISE, BROADCAST, INJECTIVE, REDUCTION, COMPLEX, OPAQUE)

Attrs = dict[str, Any]


class TensorType(NamedTuple):
    """dtype and shape of a value in a graph; dimensions are ints, or `Dim`s that stand for ints."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements; a `Dim` where the shape has one."""
        return math.prod(self.shape)

    @property
    def is_symbolic(self) -> bool:
        return any(isinstance(n, Dim) for n in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(repr, self.shape))}]"


Infer = Callable[[Sequence[TensorType], Attrs], list[TensorType]]
Compute = Callable[[Attrs, list[Tensor], list[TensorType]], list[Tensor]]


@dataclass(frozen=True, slots=True)
class OpDef:
    """An operator. `flops(types, out_types, attrs)`: its arithmetic, for reports; None counts one an output element.

    `traits`: what graph passes may count on (see above); an operator without them is right, and left as it stands.
    `host(attrs, arrays, out_types) -> arrays`: its meaning in NumPy, where evaluating the te definition would take quadratic work.
    `of_parts`: of a reduction the one that makes its result of those of equal parts; "" where there is none.
    """

    name: str
    infer: Infer
    compute: Compute
    kind: str
    doc: str = ""
    flops: Callable[[Sequence[TensorType], Sequence[TensorType], Attrs], int] | None = None
    traits: frozenset[str] = field(default_factory=frozenset)
    host: Callable[[Attrs, Sequence[Any], Sequence[TensorType]], list[Any]] | None = None
    of_parts: str = ""


OPS: dict[str, OpDef] = {}


def taking(count: int | tuple[int, int], infer: Infer) -> Infer:
    """The inference, for so many inputs (or from the least to the most of them) and no other number."""
    least, most = (count, count) if isinstance(count, int) else count

    def checked(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
        if not least <= len(types) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise fail(
                f"{len(types)} inputs, {wanted} are needed",
                hint="give each input that the operator needs; the standard lists a node's",
            )
        return infer(types, attrs)

    return checked


def register(
    name: str,
    kind: str,
    infer: Infer,
    *,
    flops: Any = None,
    traits: Iterable[str] = (),
    host: Any = None,
    takes: int | tuple[int, int] | None = None,
    of_parts: str = "",
) -> Callable[[Compute], Compute]:
    """Decorator: the decorated te definition, with its inference, becomes the operator `name`. `takes`: how many inputs it has, a number or the least
    and the most; None where the inference counts them. The other arguments: `OpDef`."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r} of operator {name}")
    held = frozenset(traits)
    if not held <= set(TRAITS):
        raise ValueError(
            f"unknown trait {sorted(held - set(TRAITS))[0]!r} of operator {name}; traits: {', '.join(TRAITS)}"
        )

    infer = infer if takes is None else taking(takes, infer)

    def add(compute: Compute) -> Compute:
        OPS[name] = OpDef(name, infer, compute, kind, (compute.__doc__ or "").strip(), flops, held, host, of_parts)
        return compute

    return add


def number(value: Any, dtype: str) -> Any:
    """An attribute as a constant of a tensor's type. A model's numbers are rounded to the type, beyond it to infinity, as a cast of theirs would be."""
    return build.const(value, dtype)


def get_op(name: str) -> OpDef:
    """The operator of that name; ImportModelError where there is none."""
    op = OPS.get(name)
    if op is None:
        raise ImportModelError(f"unknown operator {name!r}", hint="tec.ops.OPS lists the operators")
    return op


# ---- inference that many operators share


def fail(message: str, hint: str | None = None) -> ImportModelError:
    """The error of inputs or attributes that an operator does not take, with what it takes."""
    return ImportModelError(message, hint=hint)


class SizesMeet(UndecidedSize):
    """Sizes that have to be equal, and are not known to be; `pairs` are these. A frontend may take them for one size."""

    def __init__(self, message: str, pairs: Sequence[tuple[Size, Size]] = (), **more: Any):
        super().__init__(message, **more)
        self.pairs = list(pairs)


class UnequalSizes(SizesMeet):
    """Sizes of operands that lie side by side: some are one size of two forms."""


def unfit(message: str, *pairs: tuple[Size, Size], hint: str) -> ImportModelError:
    """What to raise for sizes that are not equal and have to be: a mistake, with its remedy, unless one of each unequal pair is symbolic."""
    apart = [p for p in pairs if p[0] != p[1]]
    return (
        SizesMeet(message, apart, hint=bind_hint(*apart))
        if apart and all(map(is_symbolic, apart))
        else fail(message, hint)
    )


def same_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    """The output is like the first input."""
    return [types[0]]


def to_bool(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [TensorType("bool", types[0].shape)]


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape under NumPy's rule; ImportModelError where there is none."""
    ndim = max((len(s) for s in shapes), default=0)
    out = []
    for k in range(ndim):
        dims = {s[k - ndim + len(s)] for s in shapes if k - ndim + len(s) >= 0} - {1}
        if len(dims) > 1:
            raise _no_broadcast(shapes, k, dims)
        out.append(dims.pop() if dims else 1)
    return tuple(out)


def _no_broadcast(shapes: Sequence[Sequence[int]], k: int, dims: set[int]) -> ImportModelError:
    texts = ", ".join(str(tuple(s)) for s in shapes)
    open_names = sorted(names_of(list(dims)))
    if not open_names:
        return fail(
            f"shapes {texts} do not broadcast: dimension {k} is {sorted(dims)}",
            hint="sizes meet from the right: each pair is equal, or one of them is 1 (Unsqueeze, Expand or reshape moves them)",
        )
    return UnequalSizes(
        f"whether shapes {texts} broadcast is not known while sizes are symbolic: dimension {k} is {' and '.join(sorted(map(repr, dims)))}",
        _pairs(dims),
        hint=f"bind {', '.join(map(one_line, open_names))} to numbers, or give equal dimensions one name: shapes={{input: (name, ...)}}",
    )


def _pairs(sizes: Iterable[Size]) -> list[tuple[Size, Size]]:
    """Each size with the first, which is a number where one of them is."""
    first, *rest = sorted(sizes, key=lambda n: (isinstance(n, Dim), str(n)))
    return [(first, n) for n in rest]


def broadcast_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    """All inputs of one dtype, which is the output's."""
    dtypes = {t.dtype for t in types}
    if len(dtypes) != 1:
        raise fail(
            f"inputs of different types: {', '.join(map(str, types))}",
            hint="cast them to one type: a Cast node, or x.astype(...)",
        )
    return [TensorType(types[0].dtype, broadcast_shapes(*(t.shape for t in types)))]


def broadcast_bool(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [TensorType("bool", broadcast_type(types, attrs)[0].shape)]


def normalize_axis(axis: int, ndim: int) -> int:
    """`axis` counted from the front; ImportModelError where there is no such dimension."""
    if not -ndim <= axis < ndim:
        raise fail(
            f"axis {axis} of a tensor of {ndim} dimensions",
            hint=f"axes go from {-ndim} to {ndim - 1}" if ndim else "a tensor without dimensions has no axis",
        )
    return axis % ndim if ndim else 0


# ---- index helpers for te definitions


def broadcast_index(shape: Sequence[int], index: Sequence[Any]) -> tuple[Any, ...]:
    """The index into a tensor of `shape` that broadcasts to where `index` points."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if n == 1 else i for n, i in zip(shape, tail))


def static_shape(t: Tensor) -> tuple[int, ...]:
    """The shape of a te tensor of a graph: ints and `Dim`s."""
    return tuple(d.value if isinstance(d, IntImm) else from_expr(d) for d in t.shape)
