"""Computing expressions: what is asked for is looked up by its signature, compiled where it is new, and run.

Signatures stand at two levels. With its sizes, an expression has its calls ready (`Bound`). Without them, with names in their place, it
has its code (`Program`): a new shape takes no compilation. Large arrays of one shape that comes again get code of their own, with the sizes as
numbers: it is tiled and shared out to threads as suits them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from typing import Any

from ..choices.parallel import expecting
from ..errors import TecError
from ..jit.specialise import target_of
from ..locks import fork_safe_lock
from ..runtime.device import Device
from ..runtime.ndarray import NDArray
from ..target import Target
from .node import MOST_NODES, Node
from .program import Bound, Program, Refused
from .trace import Trace, collapsed, is_leaf, symbolic

# Elements from which on a shape that comes again gets code of its own: then a run takes some 50 us and more, and a compilation some 1000 of them.
OWN_CODE = 1 << 18
# The same on a GPU, where sums of open length are one work-group's: a launch is worth more elements there. From AT_ONCE on the first run, too, would take
# longer than a compilation.
OWN_CODE_GPU, AT_ONCE = 1 << 13, 1 << 20
# Elements below which threads are not worth starting for anything element by element (`tec.choices.parallel`).
FEW = 1 << 14
_MOST_BOUND = 4096
_MOST_PROGRAMS = 2048
_SIZE_END = 1 << 31  # named sizes are 32-bit numbers
# Operators whose templates are made for sizes: products get code of their own at once where they are worth it.
_PRODUCTS = frozenset(("matmul", "einsum"))
_WORTH = 1 << 15  # multiply-adds


_LOCK = fork_safe_lock()


class _Cache:
    """The signatures of one target."""

    def __init__(self) -> None:
        self.bound: OrderedDict[Any, Bound] = OrderedDict()
        self.programs: OrderedDict[Any, Program | None] = OrderedDict()
        self.lock = fork_safe_lock()


_CACHES: dict[tuple[Device, str | None], tuple[Target, _Cache]] = {}


def cache_of(device: Device) -> tuple[Target, _Cache]:
    """The target that code for a device is made for now, and what is compiled for it."""
    current = Target.current()
    key = (device, None if current is None else current.text)
    found = _CACHES.get(key)
    if found is None:
        target = target_of(device)
        with _LOCK:
            found = _CACHES.setdefault(key, (target, _Cache()))
    return found


def compute(*nodes: Node) -> None:
    """Compute these nodes and what they need; work on a GPU is queued."""
    roots = [n for n in dict.fromkeys(nodes) if n.data is None]
    if not roots:
        return
    _settle_shared(roots)
    trace = Trace(roots)
    bound = _bound(trace, roots[0].device)
    arrays = bound.run([n.data for n in trace.leaves])  # type: ignore[misc]
    for n in trace.order:
        n.computed += 1
    for node, a in zip(roots, arrays):
        if a.shape != node.shape:
            a = NDArray(a.storage, a.address, node.shape, a.dtype)
        node.settle(a)


def in_memory(node: Node) -> NDArray:
    """The array of a node, computed where it was not."""
    if node.data is None:
        compute(node)
    assert node.data is not None
    return node.data


def _settle_shared(roots: Sequence[Node]) -> None:
    """What was computed inside of another expression before, and is an array that somebody holds, is computed by itself, and kept."""
    again: list[Node] = []
    seen: set[int] = set()
    stack = [i for r in roots for i in r.inputs]
    while stack:
        n = stack.pop()
        if n.data is not None or id(n) in seen:
            continue
        seen.add(id(n))
        if n.computed and n.owner is not None and n.owner() is not None and n not in roots:
            again.append(n)
        else:
            stack.extend(n.inputs)
    for n in again:
        if n.data is None:
            compute(n)


def cut(inputs: Sequence[Node]) -> None:
    """Keep expressions short: compute the longest inputs of one that would be too long."""
    while sum(n.weight for n in inputs) >= MOST_NODES:
        compute(max(inputs, key=lambda n: n.weight))


def _bound(trace: Trace, device: Device) -> Bound:
    target, cache = cache_of(device)
    found = cache.bound.get(trace.key)
    if found is not None:
        if found.runs != 1 or found.elements < (OWN_CODE_GPU if target.is_gpu else OWN_CODE):
            return found
        # The second time of a large shape.
    with cache.lock:
        at_once = target.is_gpu and _elements(trace.entries) >= AT_ONCE
        made = _make(trace, device, target, cache, numbers=found is not None or at_once)
        if found is not None:
            made.runs = 2  # that is that
        cache.bound[trace.key] = made
        if len(cache.bound) > _MOST_BOUND:
            cache.bound.popitem(last=False)
    return made


def _make(trace: Trace, device: Device, target: Target, cache: _Cache, numbers: bool) -> Bound:
    entries = collapsed(trace.entries, trace.roots) or trace.entries
    if not numbers and not _made_for_sizes(entries):
        named, env = symbolic(entries)
        if all(n < _SIZE_END for n in env.values()):
            few = _elements(entries) < FEW
            program = _program(cache, (named, trace.roots), tuple(env), target, few)
            if program is not None:
                try:
                    return program.bind(env, device)
                except Refused:
                    pass
    program = _program(cache, (tuple(entries), trace.roots), (), target)
    assert program is not None
    made = program.bind({}, device)
    made.runs = 2
    return made


def _made_for_sizes(entries: Sequence[Any]) -> bool:
    for e in entries:
        if not is_leaf(e) and e[0] in _PRODUCTS:
            work = 1
            for k in e[3]:
                shape = entries[k][1] if is_leaf(entries[k]) else entries[k][4]
                for n in shape:
                    work *= n
            if work >= _WORTH * _WORTH:
                return True
    return False


def _elements(entries: Sequence[Any]) -> int:
    """Elements of the largest value."""
    return max([int(prod(e[1] if is_leaf(e) else e[4])) for e in entries])


def _program(
    cache: _Cache, signature: Any, sizes: tuple[str, ...], target: Target, few: bool = False
) -> Program | None:
    """The code of a signature, for `few` elements or many; None where it cannot be compiled with names for sizes."""
    key = (signature, few)
    if key in cache.programs:
        return cache.programs[key]
    made: Program | None = None
    entries, roots = signature
    try:
        with expecting(FEW - 1 if few else 1 << 30):
            made = Program(entries, roots, sizes, target)
    except TecError:
        if not sizes:
            raise
    cache.programs[key] = made
    if len(cache.programs) > _MOST_PROGRAMS:
        cache.programs.popitem(last=False)
    return made
