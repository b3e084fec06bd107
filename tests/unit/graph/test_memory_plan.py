"""The memory plan: no two values that live at one time share bytes; the arena is near the bound."""

import random

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.builders.builder import Builder
from tec.graph.builders.resample import pick
from tec.graph.compiler import compile_graph
from tec.runtime.plans.memory_plan import ALIGN, Lifetime, lifetimes, lower_bound, plan
from tests import seeds
from tests.unit.graph.random_graphs import random_graph


def up(n):
    return -(-max(n, 1) // ALIGN) * ALIGN


def check(lifetimes):
    offsets, total = plan(lifetimes)
    assert set(offsets) == {x.name for x in lifetimes}
    for k, a in enumerate(lifetimes):
        assert offsets[a.name] % ALIGN == 0 and 0 <= offsets[a.name] <= total - up(a.nbytes)
        for b in lifetimes[:k]:
            if a.first <= b.last and b.first <= a.last:
                apart = (
                    offsets[a.name] + up(a.nbytes) <= offsets[b.name]
                    or offsets[b.name] + up(b.nbytes) <= offsets[a.name]
                )
                assert apart, (a, b)
    assert lower_bound(lifetimes) <= total <= sum(up(x.nbytes) for x in lifetimes)
    return total / max(lower_bound(lifetimes), 1)


def any_lifetimes(r):
    n = r.randrange(1, 60)
    return [
        Lifetime(
            str(k),
            r.choice([0, 1, 255, 256, 257, 4000, 10**6, r.randrange(1, 10**7)]),
            f := r.randrange(60),
            f + r.randrange(20),
        )
        for k in range(n)
    ]


def network_lifetimes(r):
    """As networks have them: a chain, each value read by the next step, some kept for a residual sum a few steps on."""
    n, size, out = r.randrange(20, 120), r.randrange(10**5, 10**7), []
    for k in range(n):
        if r.random() < 0.15:
            size = max(4096, size // r.choice([2, 4]))
        keep = r.choice([1, 1, 1, 1, 3, 4])
        out.append(Lifetime(str(k), int(size * r.choice([1, 1, 0.5, 0.25, 2])), k, min(k + keep, n)))
    return out


@pytest.mark.parametrize("seed", seeds.some(60))
def test_random_lifetimes(seed):
    check(any_lifetimes(random.Random(seed)))


def test_networks_come_near_the_bound():
    ratios = sorted(check(network_lifetimes(random.Random(seed))) for seed in range(60))
    assert ratios[-1] <= 1.15, ratios[-5:]


def test_nothing_and_one():
    assert plan([]) == ({}, 0) and lower_bound([]) == 0
    assert plan([Lifetime("a", 1, 0, 0)]) == ({"a": 0}, ALIGN)


def test_touching_lifetimes_are_apart():
    """A value read at the step that makes another lives at that step: they may not share."""
    offsets, _ = plan([Lifetime("a", 512, 0, 1), Lifetime("b", 512, 1, 2), Lifetime("c", 512, 2, 3)])
    assert offsets["a"] != offsets["b"] != offsets["c"] and offsets["a"] == offsets["c"]


@pytest.mark.parametrize("seed", range(3))
def test_compiled_networks_report_theirs(seed):
    net = compile_graph(random_graph(seed, 16), tec.Target("llvm"))
    assert net.report.arena_bytes == net.plan.arena_bytes
    assert net.report.arena_lower_bound <= net.report.arena_bytes <= 1.15 * net.report.arena_lower_bound


def test_layers_that_take_turns_reach_the_bound():
    """A recurrent network unrolled: a large input, one state a step, all states joined for the next layer."""
    values, at, steps = [], 0, 40
    for layer in range(3):
        values.append(Lifetime(f"x{layer}", 4 * steps * 256, at, at + steps))
        end = at + steps + 1
        values += [Lifetime(f"h{layer}.{k}", 256, at + 1 + k, end) for k in range(steps)]
        values.append(Lifetime(f"all{layer}", steps * 256, end, end + 1))
        at = end + 1
    assert check(values) == 1


def test_lifetimes_of_open_sizes_need_numbers_unless_they_may_be_guessed():
    p = tec.compile(random_graph(2, 8, names="n"), target="llvm", cache=False).plan
    with pytest.raises(KeyError):
        lifetimes(p, {})
    guessed, known = lifetimes(p, {}, strict=False), lifetimes(p, {"n": 2})
    assert [x.name for x in guessed] == [x.name for x in known] and any(x.nbytes == 1 for x in guessed)


def test_an_output_under_another_shape_is_made_in_place():
    """No copy follows, and nothing lies in the arena; what is an output by itself too keeps its place."""
    g = Graph()
    x = g.input("x", "float32", (4, 6))
    y = g.add("exp", [x])[0]
    shown = g.add("reshape", [y], {"shape": (2, 12)})[0]
    g.set_outputs([shown], ["shown"])
    net = compile_graph(g, tec.Target("llvm"))
    values = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    assert net.plan.arena_bytes == 0 and len(net.plan.steps) == 1
    np.testing.assert_allclose(net.run([values])[0], np.exp(values).reshape(2, 12), rtol=1e-6)
    g.set_outputs([shown, y], ["shown", "y"])
    both = compile_graph(g, tec.Target("llvm")).run([values])
    np.testing.assert_array_equal(both[0].reshape(4, 6), both[1])


@pytest.mark.parametrize("seed", range(4))
def test_places_that_come_equally_often_are_copied_side_by_side(seed):
    """Any axes, factors and sizes; the same as NumPy's repeat."""
    rng = random.Random(seeds.stream(f"repeat {seed}"))
    shape = tuple(rng.randint(1, 11) for _ in range(rng.randint(1, 4)))
    times = {a: rng.choice((2, 3, 4, 9)) for a in range(len(shape)) if rng.random() < 0.6}
    g = Graph()
    x = g.input("x", "float32", shape)
    g.set_outputs([pick(Builder(g), x, {a: np.arange(shape[a] * n) // n for a, n in times.items()})], ["y"])
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    want = values
    for axis, n in times.items():
        want = np.repeat(want, n, axis)
    np.testing.assert_array_equal(compile_graph(g, tec.Target("llvm")).run([values])[0], want)
