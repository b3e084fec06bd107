"""Places in arrays: of the elements that hold, and of numbers in a sorted array. By kernels, on nodes."""

from __future__ import annotations

from ..runtime.arrays.ndarray import empty
from . import build, dtypes, kernels
from .computing import in_memory
from .errors import ArrayTypeError
from .node import Node, decides, leaf, note, scalar
from .steps import apart


def places_of(mask: Node) -> Node:
    """The places, in a line, of the elements that hold. How many there are the host has to know: it waits for the device."""
    n = mask.size
    flat = build.reshape(mask, (n,))
    if not n:
        return build.full(0, (0,), dtypes.int64, mask.device)
    held = build.boundary(flat)
    count = build.boundary(
        build.make("cumsum", (build.boundary(build.cast(held, dtypes.int64)),), (n,), dtypes.int64, (("axis", 0),))
    )
    decides(count, "the number of elements that a mask picks")
    total = build.value(build.slices(count, (n - 1,), (1,), (1,)))
    places = empty((total,), "int64", mask.device)
    if total:
        kernels.pick(in_memory(held), in_memory(count), places)
    return leaf(places)


def coordinates_of(mask: Node) -> list[Node]:
    """For each dimension the indices of the elements that hold; as `places_of`, whose result stands for a mask of one dimension."""
    places, behind, found = places_of(mask), mask.size, []
    for k, m in enumerate(mask.shape):
        behind //= m or 1
        at = places
        if behind > 1 and at.size:
            at = build.binary("floor_divide", at, scalar(behind, dtypes.int64, mask.device))
        if k and at.size:
            at = build.binary("remainder", at, scalar(m, dtypes.int64, mask.device))
        found.append(at)
    return found


def searched(table: Node, sought: Node, right: bool, order: Node | None = None) -> Node:
    """For each of `sought` how many elements of the sorted `table` (in the order of `order`) come before it."""
    if not sought.size or not table.size:
        return build.full(0, sought.shape, dtypes.int64, sought.device)
    if order is not None:
        table = build.gather(table, order, 0)

    def places(lines: Node, numbers: Node) -> Node:
        found = empty((numbers.size,), "int64", numbers.device)
        kernels.search(in_memory(lines), in_memory(numbers), found, right)
        return leaf(found)

    made = apart(places, table, build.reshape(sought, (sought.size,)))
    note("none", made, (table, sought), name="searchsorted", again=lambda t, s: _of_a_batch(t, s, right))
    return build.reshape(made, sought.shape)


def _of_a_batch(table: Node, sought: Node, right: bool) -> Node:
    """In one table for all of the batch. Raises ArrayTypeError for a table of each element's own."""
    if len(table.shape) > 1:
        raise ArrayTypeError("vmap through searchsorted in arrays of each element's own", hint="a loop over the batch")
    return searched(table, sought, right)
