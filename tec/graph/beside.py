"""Two short groups that do not wait for each other run in one launch: a sum that only the network's caller waits for, the checks of indices above all, beside a group
that reads the same value; and elementwise work of few elements beside another such (the cosines and sines of a decoder's angles, a layer's new keys and values).

Two groups -> one function: the loops of the one's choice, then those of the other with as many threads a work-group. `ir/passes/join_launches` makes one kernel of
the two where it can; else they are two, as they would be by themselves.
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
from .graph import Graph, Value
from .passes.fuse import FusedGroup
from .programs import Program
from .regions import is_region
from .sizes import sizes_of_group
from .state import written

_MOST_RESULTS = 4096  # of a sum: more are work of their own
# Terms of a result, which one work-group adds up: of more a kernel of their own is quicker. An H200: 1.8 million took one 431 us beside a gather of 9 us.
_MOST_TERMS = 1 << 14
# Results of elementwise work that runs beside another: an H200 moves 4 MB in the microsecond that a launch takes in a captured graph, so these are short.
_MOST_SHORT = 1 << 16


def pairs(graph: Graph, groups: list[FusedGroup]) -> dict[FusedGroup, FusedGroup]:
    """The groups beside which another runs, each with that one."""
    found = _sums(graph, groups)
    return found | _neighbours(groups, {*found, *found.values()})


def _neighbours(groups: Sequence[FusedGroup], taken: Set[FusedGroup]) -> dict[FusedGroup, FusedGroup]:
    """Short elementwise work, each with the next such whose values are there before it; none of `taken`, whose values others wait for all the same."""
    ready: dict[Value, int] = {}  # by value, the number of the last group that runs before it is there
    found: dict[FusedGroup, FusedGroup] = {}
    waiting: list[tuple[int, FusedGroup]] = []
    for k, g in enumerate(groups):
        last = max((ready.get(v, -1) for v in g.inputs), default=-1)
        ready |= dict.fromkeys(g.outputs, last if g.is_alias else k)
        if g in taken or not _is_short(g):
            continue
        first = next(((n, h) for n, h in waiting if last < n), None)
        if first is None:
            waiting.append((k, g))
        else:
            waiting.remove(first)
            found[first[1]] = g
            ready |= dict.fromkeys(g.outputs, first[0])
    return found


def _is_short(g: FusedGroup) -> bool:
    """Whether a group is elementwise work, or moves elements, and makes few: a number of them, since of an open one a function may be several."""
    if g.is_alias or g.anchor is not None or len(g.outputs) != 1:
        return False
    if any(is_region(n) or written(n) or COLLECTIVE in n.definition.traits for n in g.nodes):
        return False
    return _results(g) <= _MOST_SHORT


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


def joined(first: Func, program: Program, target: Target) -> Func:
    """The function of `first` and of another program: its arrays, then the other's, then the sizes, which are the same of both."""
    second = program.loops(_scheduled(program, _threads(first), target))
    own, others = ([p for p in f.params if isinstance(p, Buffer)] for f in (first, second))
    sizes = [p for p in first.params if not isinstance(p, Buffer)]
    for p in others:  # two arrays of one name could not be told apart
        p.name = p.data.name = f"beside_{p.name}"
    attrs = {
        **first.attrs,
        "writes": (*first.attrs["writes"], *(f"beside_{n}" for n in second.attrs["writes"])),
        "side_by_side": True,
    }
    if shapes := second.attrs.get("shapes"):
        attrs["shapes"] = {**first.attrs.get("shapes", {}), **{len(own) + k: s for k, s in shapes.items()}}
    return Func(first.name, (*own, *others, *sizes), S.Seq((first.body, second.body)), attrs)


def _threads(func: Func) -> int:
    """Threads of a work-group of a function's kernels, the most; 1 where they lie along other axes than x."""
    found = {"threadIdx.x": 1}

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.For) and s.thread.startswith("threadIdx"):
            found[s.thread] = max(found.get(s.thread, 1), const_int(s.extent) or 1)

    visit(func.body, None, on_stmt)
    return found["threadIdx.x"] if len(found) == 1 else 1


def _scheduled(program: Program, threads: int, target: Target) -> Scheduled:
    """The sum by its first template, by work-groups of so many threads where that is legal."""
    space = spaces(program.outputs, target)[0]
    choice = space.default
    with_threads = {**choice, "threads": threads, "parts": 1, "rows": 1}
    is_legal = with_threads.keys() == choice.keys() and space.is_legal(with_threads)
    return space.build(with_threads if is_legal else choice)
