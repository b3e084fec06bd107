"""The propagations of each relation, held against each other over every value of small extents."""

from __future__ import annotations

import itertools

import pytest

from tec.ir import IntImm, IterVar, Range, Var
from tec.ir.arith.int_set import IntSet
from tec.ir.visit import substitute
from tec.schedule.index_arith import IndexArith
from tec.schedule.relations import Fuse, Rebase, Singleton, Split, guarded_loops
from tests.thinned import thinned


def iv(name, low=None, extent=None):
    return IterVar(Var(name), Range(IntImm(low), IntImm(extent)) if extent is not None else None)


def value(e, env=None):
    e = substitute(e, {k: IntImm(v) for k, v in (env or {}).items()}) if env else e
    assert isinstance(e, IntImm), e
    return e.value


SMALL = [1, 2, 3, 4, 7, 8]


def relations():
    for low, extent in itertools.product([0, 5], SMALL):
        for size in [1, 2, 3, 5, 8]:
            for how in ("factor", "nparts"):
                p, o, i = iv("p", low, extent), iv("o"), iv("i")
                yield f"split-{low}-{extent}-{how}-{size}", Split(p, o, i, **{how: IntImm(size)}), {p: p.dom}
        for size in [2, 3, 5, 8]:
            p, o, i = iv("p", low, extent), iv("o"), iv("i")
            yield f"shift-{low}-{extent}-{size}", Split(p, o, i, factor=IntImm(size), shift_inwards=True), {p: p.dom}
        p, r = iv("p", low, extent), iv("r")
        yield f"rebase-{low}-{extent}", Rebase(p, r), {p: p.dom}
    for (lo, eo), (li, ei) in itertools.product([(0, 3), (2, 4), (0, 1)], [(0, 5), (3, 2), (1, 1)]):
        o, i, f = iv("o", lo, eo), iv("i", li, ei), iv("f")
        yield f"fuse-{lo}-{eo}-{li}-{ei}", Fuse(o, i, f), {o: o.dom, i: i.dom}


CASES = list(relations())
IDS = [c[0] for c in CASES]


def ranges_of(relation, parents, fixed=frozenset()):
    ranges = dict(parents)
    relation.extents_down(ranges, fixed)
    return ranges


def steps(ranges, ivs):
    return itertools.product(
        *[range(value(ranges[x].min), value(ranges[x].min) + value(ranges[x].extent)) for x in ivs]
    )


def up(relation, ranges, child_values):
    values = {c: IntImm(v) for c, v in zip(relation.children, child_values)}
    relation.index_up(values, ranges)
    return tuple(value(values[p]) for p in relation.parents)


@pytest.mark.parametrize("name, relation, parents", CASES, ids=IDS)
def test_children_cover_the_parents_once(name, relation, parents):
    """Every parent value comes from exactly one child value (of a shifted split: from one at least); others are beyond the end, and are announced."""
    ranges = ranges_of(relation, parents)
    inside = set(steps(ranges, relation.parents))
    seen = [up(relation, ranges, c) for c in steps(ranges, relation.children)]
    hits = [v for v in seen if v in inside]
    assert set(hits) == inside and (len(hits) == len(inside) or relation.shift_inwards)
    over = dict.fromkeys(relation.children, False)
    assert relation.overrun_up(over, ranges, IndexArith()) == ()
    assert any(over[p] for p in relation.parents) == (len(hits) < len(seen))


@pytest.mark.parametrize("name, relation, parents", CASES, ids=IDS)
def test_index_down_inverts_index_up(name, relation, parents):
    ranges = ranges_of(relation, parents)
    for c in steps(ranges, relation.children):
        p = up(relation, ranges, c)
        values = {x: IntImm(v) for x, v in zip(relation.parents, p)}
        relation.index_down(values, ranges)
        found = tuple(value(values[x]) for x in relation.children)
        repeats = isinstance(relation, Split) and relation.shift_inwards
        assert found == c or (
            repeats and up(relation, ranges, found) == p and found[1] < value(ranges[relation.inner].extent)
        )


@pytest.mark.parametrize("name, relation, parents", CASES, ids=IDS)
def test_domain_up_covers(name, relation, parents):
    """Over every box of child values, the parents' intervals hold each parent value that is within range."""
    ranges = ranges_of(relation, parents)
    spans = []
    for c in relation.children:
        n = value(ranges[c].extent)
        spans.append([(a, b) for a in range(n) for b in range(a, n)])
    inside = set(steps(ranges, relation.parents))
    for box in itertools.product(*spans):
        intervals = {
            c: IntSet.point(IntImm(a)) if a == b else IntSet(IntImm(a), IntImm(b))
            for c, (a, b) in zip(relation.children, box)
        }
        relation.domain_up(intervals, ranges, IndexArith())
        for c in itertools.product(*[range(a, b + 1) for a, b in box]):
            p = up(relation, ranges, c)
            if p in inside:
                for x, v in zip(relation.parents, p):
                    assert value(intervals[x].min) <= v <= value(intervals[x].max), (box, c)


def test_fixed_loops_keep_their_extent():
    p, o, i = iv("p", 0, 10), iv("o"), iv("i")
    assert value(ranges_of(Split(p, o, i, factor=IntImm(16)), {p: p.dom})[i].extent) == 10
    assert value(ranges_of(Split(p, o, i, factor=IntImm(16)), {p: p.dom}, {i})[i].extent) == 16
    assert value(ranges_of(Split(p, o, i, nparts=IntImm(16)), {p: p.dom}, {o})[o].extent) == 16


def test_singleton():
    x = iv("x")
    r = Singleton(x)
    ranges = ranges_of(r, {})
    assert value(ranges[x].extent) == 1
    values = {}
    r.index_down(values, ranges)
    assert value(values[x]) == 0


@thinned(
    2,
    ("extent", range(1, 14)),
    ("first", [("factor", 3), ("nparts", 3), ("factor", 4)]),
    ("second", [("factor", 2), ("nparts", 2)]),
    ("which", ["outer", "inner", "fused"]),
)
def test_guards_make_every_value_come_once(extent, first, second, which):
    """Nested splits that do not divide: under the guards each value of the axis is reached by one set of loop values."""
    p, o, i, a, b = iv("p", 2, extent), iv("o"), iv("i"), iv("a"), iv("b")
    relations = [Split(p, o, i, **{first[0]: IntImm(first[1])})]
    if which == "fused":
        f = iv("f")
        relations.append(Fuse(o, i, f))
        target, rest = f, []
    else:
        target, rest = (o, [i]) if which == "outer" else (i, [o])
    relations.append(Split(target, a, b, **{second[0]: IntImm(second[1])}))
    ranges = {p: p.dom}
    for r in relations:
        r.extents_down(ranges)
    guards = guarded_loops(relations, (p,), ranges, IndexArith())
    seen = []
    leaves = [*rest, a, b]
    for step in steps(ranges, leaves):
        values = {x: IntImm(v) for x, v in zip(leaves, step)}
        for r in reversed(relations):
            r.index_up(values, ranges)
        if all(value(values[g]) < value(ranges[g].min) + value(ranges[g].extent) for g in guards):
            seen.append(value(values[p]))
    assert sorted(seen) == list(range(2, 2 + extent))
