"""Short groups that do not wait for each other run in one launch: a sum that only the network's caller waits for, the checks of indices above all, beside a group
that reads the same value; and work of few elements beside others such (the cosines and sines of a decoder's angles, a layer's new keys and values and their scales).

Groups -> one function: the loops of the first one's choice, then those of the others with as many threads a work-group. `ir/passes/join_launches` makes one kernel
of them where it can; else they are several, as they would be by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..choices import Scheduled, spaces
from ..ir import Buffer, Func
from ..ir import stmt as S
from ..ir.passes.rewrite_util import const_int
from ..ir.visit import visit
from ..ops.registry import COLLECTIVE, COMPLEX, REDUCTION
from ..target import Target
from .graph import Graph, Node, Value
from .passes.fuse import FusedGroup, sums_along_rows
from .programs import Program
from .regions import is_region
from .sizes import sizes_of_group
from .state import written

_MOST_RESULTS = 4096  # of a sum: more are work of their own
# Terms of a result, which one work-group adds up: of more a kernel of their own is quicker. An H200: 1.8 million took one 431 us beside a gather of 9 us.
_MOST_TERMS = 1 << 14
# Results of elementwise work that runs beside another: an H200 moves 4 MB in the microsecond that a launch takes in a captured graph, so these are short.
_MOST_SHORT = 1 << 16


# Elements that a group with sums along rows reads: one work-group each of its rows, which are made in one kernel.
_MOST_READ = 1 << 12
_MOST_GROUPS = 4  # in a launch: keys and values, each with scales


def neighbours(graph: Graph, groups: list[FusedGroup]) -> dict[FusedGroup, Sequence[FusedGroup]]:
    """The groups beside which others run, each with those."""
    found = {g: (other,) for g, other in _sums(graph, groups).items()}
    return found | _short_work(groups, {*found, *(g for others in found.values() for g in others)})


def _short_work(groups: Sequence[FusedGroup], taken: Set[FusedGroup]) -> dict[FusedGroup, Sequence[FusedGroup]]:
    """Short work, each with the next such whose values are there before it; none of `taken`, whose values others wait for all the same."""
    ready: dict[Value, int] = {}  # by value, the number of the last group that runs before it is there
    found: dict[FusedGroup, list[FusedGroup]] = {}
    waiting: list[tuple[int, FusedGroup]] = []
    for k, g in enumerate(groups):
        last = max((ready.get(v, -1) for v in g.inputs), default=-1)
        ready |= dict.fromkeys(g.outputs, last if g.is_alias else k)
        if g in taken or not _is_short(g):
            continue
        first = next(((n, h) for n, h in waiting if last < n), None)
        if first is None:
            waiting.append((k, g))
            continue
        others = found.setdefault(first[1], [])
        others.append(g)
        if len(others) + 1 == _MOST_GROUPS:
            waiting.remove(first)
        ready |= dict.fromkeys(g.outputs, first[0])
    return {**found}


def _is_short(g: FusedGroup) -> bool:
    """Whether a group is elementwise work, or moves elements, or sums along rows, of few elements: a number of them, since of an open one a function may be several."""
    if g.is_alias or len(g.outputs) != 1 or not (g.anchor is None or _sums_short_rows(g.anchor)):
        return False
    if any(is_region(n) or written(n) or COLLECTIVE in n.definition.traits for n in g.nodes):
        return False
    return _results(g) <= _MOST_SHORT


def _sums_short_rows(anchor: Node) -> bool:
    reads = (v.type.size for v in anchor.inputs)
    return sums_along_rows(anchor) and all(isinstance(n, int) and n <= _MOST_READ for n in reads)


def _results(g: FusedGroup) -> int:
    """What a group computes elements for: of rows of a state the new ones."""
    last = g.nodes[-1]
    size = (last.inputs[1] if last.op == "append" else g.outputs[0]).type.size
    return int(size) if isinstance(size, int) else _MOST_SHORT + 1


def _sums(graph: Graph, groups: list[FusedGroup]) -> dict[FusedGroup, FusedGroup]:
    """The groups beside which a sum runs, each with that sum's group. Sizes of both are numbers: of an open size a function may be several."""
    read, given = graph.users(), set(graph.outputs)
    shown: dict[Value, Value] = {}  # what a view shows, from its beginning on
    for g in groups:
        if g.view_at == 0:
            shown[g.outputs[0]] = shown.get(g.inputs[0], g.inputs[0])
    runs = [g for g in groups if not g.is_alias and not sizes_of_group(g).names]

    def is_left(g: FusedGroup) -> bool:
        """Whether the group is a small sum that nothing in the graph reads."""
        if g.anchor is None or g.anchor.definition.kind != REDUCTION or len(g.outputs) != 1:
            return False
        v = g.outputs[0]
        if v not in given or v in read or v.dtype != "bool" or int(v.type.size) > _MOST_RESULTS:
            return False
        terms = max(int(x.type.size) for x in g.anchor.inputs) // max(1, int(v.type.size))
        return terms <= _MOST_TERMS

    def takes_another(g: FusedGroup) -> bool:
        return g.anchor is None or g.anchor.definition.kind not in (COMPLEX, REDUCTION)

    left = [g for g in runs if is_left(g)]
    found: dict[FusedGroup, FusedGroup] = {}
    for check in left:
        asked = _read(check, shown)
        beside = (g for g in runs if g not in found and g not in left and takes_another(g) and asked <= _read(g, shown))
        if asked and (first := next(beside, None)) is not None:
            found[first] = check
    return found


def _read(group: FusedGroup, shown: dict[Value, Value]) -> set[Value]:
    return {shown.get(v, v) for v in group.inputs if not v.is_const}


def joined(first: Func, programs: Sequence[Program], target: Target) -> Func:
    """The function of `first` and of other programs: its arrays, then each one's, then the sizes, which are the same of all."""
    arrays = [p for p in first.params if isinstance(p, Buffer)]
    sizes = [p for p in first.params if not isinstance(p, Buffer)]
    bodies, writes, shapes = [first.body], [*first.attrs["writes"]], {**first.attrs.get("shapes", {})}
    for k, program in enumerate(programs, 1):
        other = program.loops(_scheduled(program, _threads(first), target))
        shapes |= {len(arrays) + j: s for j, s in other.attrs.get("shapes", {}).items()}
        writes += [f"beside{k}_{n}" for n in other.attrs["writes"]]
        for p in other.params:
            if isinstance(p, Buffer):  # two arrays of one name could not be told apart
                p.name = p.data.name = f"beside{k}_{p.name}"
                arrays.append(p)
        bodies.append(other.body)
    attrs = {**first.attrs, "writes": tuple(writes), "side_by_side": len(bodies)}
    if shapes:
        attrs["shapes"] = shapes
    return Func(first.name, (*arrays, *sizes), S.Seq(tuple(bodies)), attrs)


def _threads(func: Func) -> int:
    """Threads of a work-group of a function's kernels, the most; 1 where they lie along other axes than x."""
    found = {"threadIdx.x": 1}

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.For) and s.thread.startswith("threadIdx"):
            found[s.thread] = max(found.get(s.thread, 1), const_int(s.extent) or 1)

    visit(func.body, None, on_stmt)
    return found["threadIdx.x"] if len(found) == 1 else 1


def _scheduled(program: Program, threads: int, target: Target) -> Scheduled:
    """The other program by its first template, by work-groups of so many threads where that is legal."""
    space = spaces(program.outputs, target)[0]
    choice = space.default
    with_threads = {**choice, "threads": threads, "parts": 1, "rows": 1}
    is_legal = with_threads.keys() == choice.keys() and space.is_legal(with_threads)
    return space.build(with_threads if is_legal else choice)
