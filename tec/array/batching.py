"""`vmap`: a function of arrays, mapped over an axis of its arguments, without a loop.

The function runs once, on the first element of the batch; what it does is written down (`tape`) and done again on the whole batch, operator by operator. So
what it does must not depend on values: a number that is looked at and a mask are refused with an error that names them. What is no operator, such as sorting
or a function of LAPACK, says how it is done again on a batch (`again` of its note).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import build, dtypes
from .array import Array
from .complexes import pairs_of
from .errors import ArrayTypeError, ArrayValueError
from .indexing import checked, key_of, put
from .manipulation import axis_of, moveaxis
from .node import Node, attributes
from .tape import Entry, Tape
from .trees import leaves, mapped, rebuilt

# Operators on elements: inputs broadcast, and a batch is one dimension more in front.
_SAME = frozenset(("where", "cast"))
_SHAPED = frozenset(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all"))


class _Batch:
    """Nodes of one element of the batch, and those of the whole batch, whose first dimension is it."""

    def __init__(self, size: int):
        self.size = size
        self.whole: dict[Node, Node] = {}

    def of(self, n: Node, ndim: int | None = None) -> Node:
        """The whole of a node; of what is the same for all as it is. With `ndim` dimensions behind the batch's."""
        found = self.whole.get(n)
        if found is None:
            return n
        missing = 0 if ndim is None else ndim - (len(found.shape) - 1)
        return build.reshape(found, (self.size, *(1,) * missing, *found.shape[1:])) if missing > 0 else found

    def spread(self, n: Node) -> Node:
        """The whole of a node, with a batch where it has none."""
        found = self.whole.get(n)
        return build.broadcast_to(n, (self.size, *n.shape)) if found is None else found


def _again(b: _Batch, e: Entry) -> Node:
    """An operator on the whole batch."""
    rule = _RULES.get(e.op)
    if rule is not None:
        return rule(b, e)
    again = e.more.get("again")
    if again is not None:
        ndim = max(len(n.shape) for n in e.inputs)
        return again(*(b.of(n, ndim) for n in e.inputs))  # type: ignore[no-any-return]
    if e.op in _NOT_THERE or e.ints or (e.attrs and e.op not in _SAME):
        name = e.more.get("name", e.op)
        raise ArrayTypeError(
            f"vmap through {name}", hint="write it with operators on elements, reductions, products and gathers"
        )
    ndim = len(e.made.shape)
    inputs = tuple(b.of(n, ndim) for n in e.inputs)
    return build.make(e.op, inputs, (b.size, *e.made.shape), e.made.dtype, e.attrs)


_NOT_THERE = frozenset(("none", "custom"))


def _reduced(b: _Batch, e: Entry) -> Node:
    given = dict(e.attrs)
    axes = tuple(k + 1 for k in given["axes"])
    return build.reduce(e.op.removeprefix("reduce_"), b.of(e.inputs[0]), axes, given["keepdims"])


def _best(b: _Batch, e: Entry) -> Node:
    given = dict(e.attrs)
    return build.best(e.op, b.of(e.inputs[0]), given["axis"] + 1, given["keepdims"])


def _reshaped(b: _Batch, e: Entry) -> Node:
    return build.reshape(b.of(e.inputs[0]), (b.size, *e.made.shape))


def _broadcast(b: _Batch, e: Entry) -> Node:
    return build.broadcast_to(b.of(e.inputs[0], len(e.made.shape)), (b.size, *e.made.shape))


def _transposed(b: _Batch, e: Entry) -> Node:
    return build.transpose(b.of(e.inputs[0]), (0, *(k + 1 for k in dict(e.attrs)["perm"])))


def _sliced(b: _Batch, e: Entry) -> Node:
    places = dict(e.ints)
    steps = (1, *dict(e.attrs)["steps"])
    return build.slices(b.of(e.inputs[0]), (0, *places["starts"]), steps, (b.size, *places["sizes"]))


def _joined(b: _Batch, e: Entry) -> Node:
    return build.concat([b.spread(n) for n in e.inputs], dict(e.attrs)["axis"] + 1)


def _product(b: _Batch, e: Entry) -> Node:
    ndim = len(e.made.shape)
    inputs = [b.of(n, ndim) for n in e.inputs]
    return build.matmul(inputs[0], inputs[1], (b.size, *e.made.shape), e.attrs)


def _gathered(b: _Batch, e: Entry) -> Node:
    x, index = e.inputs
    axis = dict(e.attrs)["axis"]
    if index not in b.whole:
        return build.gather(build.boundary(b.of(x)), index, axis + 1)
    checked(b.of(index), x.shape[axis], axis)
    if x not in b.whole:
        made = build.gather(x, build.boundary(b.of(index)), axis)
        return build.transpose(made, (axis, *range(axis), *range(axis + 1, len(made.shape))))
    # Both: the batch and the axis become one, and index i of element k stands at k times the extent + i.
    whole = build.transpose(b.of(x), (0, axis + 1, *(k for k in range(1, len(x.shape) + 1) if k != axis + 1)))
    n = x.shape[axis]
    flat = build.boundary(build.reshape(whole, (b.size * n, *whole.shape[2:])))
    at = Array(build.cast(b.of(index), dtypes.int64))
    lead = Array(build.positions(0, at.shape, at.device)) * n
    at = lead + at + n * Array(build.cast((at < 0)._node, dtypes.int64))
    made = build.gather(flat, build.boundary(at._node), 0)
    r = len(index.shape)
    order = (0, *range(1 + r, 1 + r + axis), *range(1, 1 + r), *range(1 + r + axis, len(made.shape)))
    return build.transpose(made, order)


def _gathered_elements(b: _Batch, e: Entry) -> Node:
    x, index = (build.boundary(b.spread(n)) for n in e.inputs)
    return build.gather_elements(x, index, dict(e.attrs)["axis"] + 1)


def _put(b: _Batch, e: Entry) -> Node:
    """Assignment to a region: the same of each element."""
    region = e.more["region"]
    before, value = e.inputs
    key = (slice(None), *key_of(region.starts, region.steps, region.sizes))
    fitted = build.broadcast_to(b.of(value, len(region.shape)), (b.size, *region.shape))
    return put(build.copy(b.spread(before)), key, build.reshape(fitted, (b.size, *region.sizes)))


def _pairs(b: _Batch, e: Entry) -> Node:
    return pairs_of(build.boundary(b.of(e.inputs[0])))


def _joined_parts(b: _Batch, e: Entry) -> Node:
    real, imag = (b.spread(n) for n in e.inputs)
    return build.joined(real, imag)


def _at_points(b: _Batch, points: Node, extents: tuple[int, ...]) -> Node:
    """Points of each element of the batch as points of the whole, whose first part is the element's number. Raises ArrayIndexError for one outside."""
    whole = b.spread(points)
    for d, extent in enumerate(extents):
        checked(build.narrow(whole, len(whole.shape) - 1, d, 1), extent, d)
    number = build.positions(0, (b.size, *(1,) * (len(whole.shape) - 1)), whole.device)
    lead = build.broadcast_to(build.cast(number, whole.dtype), (*whole.shape[:-1], 1))
    return build.boundary(build.concat([lead, whole], len(whole.shape) - 1))


def _gathered_points(b: _Batch, e: Entry) -> Node:
    x, points = e.inputs
    at = _at_points(b, points, x.shape[: points.shape[-1]])
    return build.gather_points(build.boundary(b.spread(x)), at)


def _scattered_points(b: _Batch, e: Entry) -> Node:
    x, points, updates = e.inputs
    at = _at_points(b, points, x.shape[: points.shape[-1]])
    inputs = (build.boundary(b.spread(x)), at, build.boundary(b.spread(updates)))
    return build.make(e.op, inputs, (b.size, *e.made.shape), e.made.dtype, e.attrs)


def _scattered_elements(b: _Batch, e: Entry) -> Node:
    given = dict(e.attrs)
    inputs = tuple(build.boundary(b.spread(n)) for n in e.inputs)
    attrs = attributes(**{**given, "axis": given["axis"] + 1})
    return build.make(e.op, inputs, (b.size, *e.made.shape), e.made.dtype, attrs)


def _running(b: _Batch, e: Entry) -> Node:
    return build.running(e.op, b.of(e.inputs[0]), dict(e.attrs)["axis"] + 1)


def _over_axes(b: _Batch, e: Entry) -> Node:
    axes = tuple(k + 1 for k in dict(e.attrs)["axes"])
    return build.make(e.op, (b.of(e.inputs[0]),), (b.size, *e.made.shape), e.made.dtype, (("axes", axes),))


def _windowed(b: _Batch, e: Entry) -> Node:
    """Images of all elements are one batch; the weights are the same for all."""
    x, *rest = e.inputs
    if any(n in b.whole for n in rest):
        raise ArrayTypeError(
            f"vmap through {e.op} with weights of each element's own",
            hint="write it with tec.array.einsum or a loop over the batch",
        )
    whole = b.of(x)
    flat = build.boundary(build.reshape(whole, (b.size * x.shape[0], *x.shape[1:])))
    made = build.make(e.op, (flat, *rest), (b.size * e.made.shape[0], *e.made.shape[1:]), e.made.dtype, e.attrs)
    return build.reshape(made, (b.size, *e.made.shape))


_RULES: dict[str, Callable[[_Batch, Entry], Node]] = {
    **dict.fromkeys(_SHAPED, _reduced), **dict.fromkeys(("argmax", "argmin"), _best), "reshape": _reshaped, "broadcast_to": _broadcast,
    "transpose": _transposed, "slice": _sliced, "concat": _joined, "matmul": _product, "gather": _gathered, "gather_elements": _gathered_elements,
    "pairs": _pairs, "complex": _joined_parts, "put": _put, "gather_nd": _gathered_points, "scatter_nd": _scattered_points, "scatter_elements": _scattered_elements,
    **dict.fromkeys(("cumsum", "cumprod"), _running), **dict.fromkeys(("softmax", "log_softmax"), _over_axes),
    **dict.fromkeys(("conv", "max_pool", "avg_pool"), _windowed),
}  # fmt: skip


def vmap(
    f: Callable[..., Any], in_axes: int | Sequence[int | None] | None = 0, out_axes: int = 0
) -> Callable[..., Any]:
    """A function that maps `f` over an axis of its arguments.

    f: a function of arrays, or of dicts, lists and tuples of them, without that axis. in_axes: the axis of each
    argument, one number for all, or None for an argument that all calls share. out_axes: the axis of the results. `f`
    runs once, so what it does must not depend on values. Raises ArrayTypeError if it does, or if an operator has no
    such form, and ArrayValueError for extents that differ.

    >>> points, centre = xp.asarray([[0.0, 1.0], [3.0, 5.0]]), xp.asarray([0.0, 1.0])
    >>> distances = tec.vmap(lambda p, q: xp.sum((p - q) ** 2), in_axes=(0, None))(points, centre)
    >>> distances.tolist()
    [0.0, 25.0]
    """

    @functools.wraps(f)
    def over(*args: Any) -> Any:
        """The function, traced for one of the batch, and what it gives with the batch as first axis."""
        axes = [in_axes] * len(args) if in_axes is None or isinstance(in_axes, int) else list(in_axes)
        if len(axes) != len(args):
            raise ArrayValueError(
                f"vmap with {len(axes)} axes of {len(args)} arguments",
                hint="in_axes has one number or None for each argument",
            )
        moved = [a if k is None else mapped(functools.partial(_to_front, axis=k), a) for a, k in zip(args, axes)]
        sizes = {x.shape[0] for a, k in zip(moved, axes) if k is not None for x in leaves(a)}
        if len(sizes) != 1 or 0 in sizes:
            raise ArrayValueError(
                f"vmap over extents {sorted(sizes)}", hint="all mapped axes have one extent, of at least 1"
            )
        batch = _Batch(sizes.pop())
        inside = []
        for a, k in zip(moved, axes):
            if k is None:
                inside.append(a)
                continue
            firsts = []
            for x in leaves(a):
                first = x[0]
                batch.whole[build.boundary(first._node)] = x._node
                firsts.append(first)
            inside.append(rebuilt(a, firsts))
        tape = Tape()
        with tape.running():
            result = f(*inside)
        _replay(tape, batch, [y._node for y in leaves(result)])
        return mapped(lambda y: moveaxis(Array(batch.spread(y._node)), 0, out_axes), result)

    return over


def _to_front(x: Array, axis: int) -> Array:
    return moveaxis(x, axis_of(axis, x.ndim), 0)


def _replay(tape: Tape, batch: _Batch, results: list[Node]) -> None:
    """Do again what the results are made of. Raises ArrayTypeError where a value of the batch was looked at."""
    moving, entries = set(batch.whole), []
    for e in tape.entries:
        if any(n in moving for n in e.inputs):
            moving.add(e.made)
            entries.append(e)
    if moving.intersection(tape.looked_at):
        raise ArrayTypeError(
            "vmap of a function that looks at a value to decide something, or takes it out of an array",
            hint="tec.array.where(condition, a, b)",
        )
    wanted, needed = set(results), []
    for e in reversed(entries):
        if e.made in wanted:
            wanted.update(e.inputs)
            needed.append(e)
    for e in reversed(needed):
        batch.whole[e.made] = _again(batch, e)
