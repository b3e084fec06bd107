"""Computing expressions: what is asked for is looked up by its signature, compiled where it is new, and run.

Signatures stand at two levels. With its sizes, an expression has its calls ready (`Bound`). Without them, with names in their place, it
has its code (`ExpressionCode`): a new shape takes no compilation. Large arrays of one shape that comes again get code of their own, with the sizes as
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
from ..runtime.arrays.ndarray import NDArray, empty
from ..runtime.devices.device import Device
from ..target import Target
from .complexes import as_complex, is_complex, woven
from .forms import Form, form_of
from .node import COSTLY, MOST_NODES, TRACED, Node
from .program import Bound, ExpressionCode, NeedsSizes
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
# Those whose definitions take sizes apart: they are compiled for them.
_WINDOWS = frozenset(("conv", "max_pool", "avg_pool", "vjp"))
_WORTH = 1 << 15  # multiply-adds


_LOCK = fork_safe_lock()


class _Cache:
    """The signatures of one target; and what computes a form, by which of its leaves are one (`known`)."""

    def __init__(self, target: Target) -> None:
        self.own_code = OWN_CODE_GPU if target.is_gpu else OWN_CODE
        self.known: dict[Form, dict[tuple[int, ...] | None, Bound]] = {}
        self.bound: OrderedDict[Any, Bound] = OrderedDict()
        self.programs: OrderedDict[Any, ExpressionCode | None] = OrderedDict()
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
            found = _CACHES.setdefault(key, (target, _Cache(target)))
    return found


def compute(*nodes: Node) -> None:
    """Compute these nodes and what they need; work on a GPU is queued."""
    if TRACED and any(TRACED[-1].depends(n) for n in nodes):
        TRACED[-1].refuse()
    if len(nodes) == 1:
        node = nodes[0]
        if node.data is not None or _compute_known(node):
            return
    roots = [n for n in dict.fromkeys(nodes) if n.data is None]
    if not roots:
        return
    if any(is_complex(n) for n in roots):
        _compute_woven(roots)
        return
    if _settle_shared(roots) and len(roots) == 1 and _compute_known(roots[0]):
        return
    roots += _kept(roots)
    trace = Trace(roots)
    form = roots[0].form
    bound = _bound(trace, form.device)
    arrays = bound.run([n.data for n in trace.leaves])  # type: ignore[misc]
    leaves: list[Node] = []
    if len(roots) == 1 and _read(roots[0], leaves, []):
        _know(form, leaves, bound)
    for n in trace.order:
        n.computed += 1
    _settle(roots, arrays, trace.leaves, bound)


def _compute_woven(roots: Sequence[Node]) -> None:
    """Compute nodes some of which are complex: of those their parts, side by side."""
    real = [woven(n) if is_complex(n) else n for n in roots]
    compute(*real)
    for n, r in zip(roots, real):
        if r is not n:
            assert r.data is not None
            n.settle(as_complex(r.data))


def _settle(roots: Sequence[Node], arrays: Sequence[NDArray], leaves: Sequence[Node], bound: Bound) -> None:
    """The values are here. What is there already (an input under another shape, the same value twice, a constant) is no memory of the result's own: it
    lies beside the node that is there, or is copied where no node is, or where others may write."""
    there = {id(n.data.storage): n for n in leaves if n.data is not None}
    consts = {id(a.storage) for a in bound.consts.values()}
    for node, a in zip(roots, arrays):
        if a.shape != node.shape:
            a = NDArray(a.storage, a.address, node.shape, a.dtype)
        beside = there.get(id(a.storage))
        if id(a.storage) in consts or (beside is not None and beside.is_foreign):
            a = a.copyto(empty(a.shape, a.dtype, a.device))
        elif beside is not None:
            node.lie_beside(beside)
        there[id(a.storage)] = node
        node.settle(a)


def _read(n: Node, leaves: list[Node], inner: list[Node]) -> bool:
    """Gather what an expression reads from memory, as often as it does, and its inner nodes. False where its form is not the one that it was written down in
    (a part was computed since), or a part was computed inside of another expression before."""
    for i, f in zip(n.inputs, n.form.inputs):
        if i.form is not f:
            return False
        if i.data is None:
            if i.computed or (f.op in COSTLY and (i.taped or len(i.pending_readers()) > 1)):
                return False
            if not _read(i, leaves, inner):
                return False
            inner.append(i)
        else:
            leaves.append(i)
    return True


def _alike(leaves: list[Node]) -> tuple[int, ...] | None:
    """Which of the leaves are the same node: the place of each among those that differ; None where all differ."""
    if len(set(leaves)) == len(leaves):
        return None
    numbers: dict[Node, int] = {}
    return tuple([numbers.setdefault(n, len(numbers)) for n in leaves])


def _compute_known(root: Node) -> bool:
    """Compute a node of a form that is known, without a walk over entries. False where it is not known, or needs more than its calls."""
    form = root.form
    cache = cache_of(form.device)[1]
    found = cache.known.get(form)
    if found is None:
        return False
    leaves: list[Node] = []
    inner: list[Node] = []
    if not _read(root, leaves, inner):
        return False
    alike = _alike(leaves)
    bound = found.get(alike)
    if bound is None:
        return False
    if alike is not None:
        leaves = list(dict.fromkeys(leaves))
    made = bound.run_one([n.data for n in leaves])  # type: ignore[misc]
    for n in inner:
        n.computed += 1
    root.settle(made if made.shape == form.shape else NDArray(made.storage, made.address, form.shape, made.dtype))
    return True


def _know(form: Form, leaves: list[Node], bound: Bound) -> None:
    """Keep what computes a form, if it is what computes it the next time too."""
    cache = cache_of(form.device)[1]
    if bound.quick is None or (bound.runs == 1 and bound.elements >= cache.own_code):
        return
    if len(cache.known) >= _MOST_BOUND:
        cache.known.clear()
    cache.known.setdefault(form, {})[_alike(leaves)] = bound


def in_memory(node: Node) -> NDArray:
    """The array of a node, computed where it was not."""
    if node.data is None or (TRACED and TRACED[-1].depends(node)):
        compute(node)
    assert node.data is not None
    return node.data


def _settle_shared(roots: Sequence[Node]) -> bool:
    """Compute by itself, and keep, what was computed inside of another expression before, and is asked for again. Whether there was some.

    Without that, a loop that asks for a number in each step would read ever longer expressions, each of which is compiled anew.
    """
    again: list[Node] = []
    seen: set[int] = set()
    stack = [i for r in roots for i in r.inputs]
    while stack:
        n = stack.pop()
        if n.data is not None or id(n) in seen:
            continue
        seen.add(id(n))
        if n.computed and n not in roots and (_is_held(n) or n.computed > 1 or not _spreads(n)):
            again.append(n)
        else:
            stack.extend(n.inputs)
    for n in again:
        if n.data is None:
            compute(n)
    if again:
        _renew(roots)
    return bool(again)


def _renew(nodes: Sequence[Node]) -> None:
    """Give expressions whose parts were computed since the form that they have now."""
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        n = stack[-1]
        if n.data is None and n not in seen:
            seen.add(n)
            stack.extend(n.inputs)
            continue
        stack.pop()
        f = n.form
        if n.data is None and any(i.form is not g for i, g in zip(n.inputs, f.inputs)):
            forms = tuple([i.form for i in n.inputs])
            n.form = form_of(f.op, forms, f.shape, f.dtype, f.device, f.attrs, f.ints, f.out)


def _is_held(n: Node) -> bool:
    """Whether somebody holds an array that names it."""
    return n.owner is not None and n.owner() is not None


def _spreads(n: Node) -> bool:
    """Whether an expression has more elements than anything that it reads from memory: reading that again takes less than reading its value."""
    seen = {n}
    stack = [n]
    while stack:
        for i in stack.pop().inputs:
            if i.data is not None and i.size >= n.size:
                return False
            if i.data is None and i not in seen:
                seen.add(i)
                stack.append(i)
    return True


def _kept(roots: Sequence[Node]) -> list[Node]:
    """What is computed on the way to these, takes longer to compute than to keep, and is asked for again: by a gradient, or by an expression beside these."""
    seen = set(roots)
    costly: list[Node] = []
    stack = [i for r in roots for i in r.inputs]
    while stack:
        n = stack.pop()
        if n.data is None and n not in seen:
            seen.add(n)
            if n.form.op in COSTLY:
                costly.append(n)
            stack.extend(n.inputs)
    return [n for n in costly if n.taped or any(r not in seen for r in n.pending_readers())]


def cut(inputs: Sequence[Node]) -> None:
    """Keep expressions short: compute the longest inputs of one that would be too long."""
    if sum(n.weight for n in inputs) >= MOST_NODES:
        _renew(inputs)
    while sum(n.weight for n in inputs) >= MOST_NODES:
        compute(max(inputs, key=lambda n: n.weight))


def bound_whole(trace: Trace, device: Device) -> Bound:
    """The calls of a function that is compiled whole, with its sizes as numbers."""
    target, cache = cache_of(device)
    with cache.lock:
        return _make(trace, device, target, cache, numbers=True)


def _bound(trace: Trace, device: Device) -> Bound:
    target, cache = cache_of(device)
    found = cache.bound.get(trace.key)
    if found is not None:
        if found.runs != 1 or found.elements < cache.own_code:
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
                except NeedsSizes:
                    pass
    program = _program(cache, (tuple(entries), trace.roots), (), target)
    assert program is not None
    made = program.bind({}, device)
    made.runs = 2
    return made


def _made_for_sizes(entries: Sequence[Any]) -> bool:
    for e in entries:
        if not is_leaf(e) and e[0] in _WINDOWS:
            return True
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
) -> ExpressionCode | None:
    """The code of a signature, for `few` elements or many; None where it cannot be compiled with names for sizes."""
    key = (signature, few)
    if key in cache.programs:
        return cache.programs[key]
    made: ExpressionCode | None = None
    entries, roots = signature
    try:
        with expecting(FEW - 1 if few else 1 << 30):
            made = ExpressionCode(entries, roots, sizes, target)
    except TecError:
        if not sizes:
            raise
    cache.programs[key] = made
    if len(cache.programs) > _MOST_PROGRAMS:
        cache.programs.popitem(last=False)
    return made
