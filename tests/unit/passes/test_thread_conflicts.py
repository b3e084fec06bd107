"""Which threads meet in an element: drawn pairs of accesses, held against a count of elements in plain Python; and the barriers that follow for global memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.ir import build as B
from tec.ir import expr as E
from tec.ir.buffer import Buffer
from tec.ir.index_values import evaluated
from tec.ir.passes.thread_conflicts import Conflicts, Meeting, SharedAccess
from tests import seeds
from tests.thinned import thinned

Env = dict[str, int]
Value = tuple[E.Expr, Callable[[Env], int]]


@dataclass(frozen=True)
class Drawn:
    """An access and its twin in Python: the element for given threads and loops, and whether it is made."""

    access: SharedAccess
    element: Callable[[Env], int]
    holds: Callable[[Env], bool]
    loops: dict[str, range]


def _trunc(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _term(r: random.Random, variables: dict[str, E.Var]) -> Value:
    """A term of one variable, or of two, below any operation that the enumeration knows; some values are below 0."""
    name = r.choice(list(variables))
    v, c, n = variables[name], r.randint(2, 5), r.randint(0, 6)
    other = variables[r.choice(list(variables))].name
    w = variables[other]
    return r.choice((
        (v, lambda e: e[name]),
        (B.mul(v, c), lambda e: e[name] * c),
        (E.FloorDiv(B.sub(v, n), B.const(c)), lambda e: (e[name] - n) // c),
        (E.FloorMod(B.sub(v, n), B.const(c)), lambda e: (e[name] - n) % c),
        (E.Div(B.sub(v, n), B.const(c)), lambda e: _trunc(e[name] - n, c)),
        (E.Div(B.sub(v, n), B.const(-c)), lambda e: _trunc(e[name] - n, -c)),
        (E.Mod(B.sub(v, n), B.const(c)), lambda e: e[name] - n - c * _trunc(e[name] - n, c)),
        (E.Min(v, w), lambda e: min(e[name], e[other])),
        (E.Max(v, B.const(n)), lambda e: max(e[name], n)),
        (E.Select(E.LT(v, w), w, B.mul(v, c)), lambda e: e[other] if e[name] < e[other] else e[name] * c),
        (B.call("bitxor", v, B.const(n)), lambda e: e[name] ^ n),
        (B.call("shl", v, B.const(1)), lambda e: e[name] << 1),
        (B.call("if_then_else", E.Or(E.GE(v, B.const(n)), E.EQ(v, w)), v, B.const(0)), lambda e: e[name] if e[name] >= n or e[name] == e[other] else 0),
        (E.Mul(E.Sub(v, w), B.const(c)), lambda e: (e[name] - e[other]) * c),
    ))  # fmt: skip


def _condition(r: random.Random, variables: dict[str, E.Var]) -> tuple[E.Expr, Callable[[Env], bool]]:
    x, f = _term(r, variables)
    n = r.randint(0, 5)
    return r.choice((
        (E.LT(x, B.const(n)), lambda e: f(e) < n),
        (E.GE(x, B.const(n)), lambda e: f(e) >= n),
        (E.Not(E.EQ(x, B.const(n))), lambda e: f(e) != n),
        (E.And(E.LE(x, B.const(n)), E.NE(x, B.const(0))), lambda e: f(e) <= n and f(e) != 0),
    ))  # fmt: skip


def _draw(r: random.Random, buffer: Buffer, threads: dict[str, E.Var], which: str) -> Drawn:
    loops = {f"{which}{k}": range(lo, lo + r.randint(1, 3)) for k in range(r.randrange(3)) for lo in (r.randrange(3),)}
    names = {n: E.Var(n) for n in loops}
    variables = {**threads, **names}
    parts = [_term(r, variables) for _ in range(r.randint(1, 3))]
    signs = [r.choice((1, 1, -1)) for _ in parts]
    shift = r.randint(-4, 8)
    index: E.Expr = B.const(shift)
    for sign, (x, _) in zip(signs, parts):
        index = B.add(index, x) if sign > 0 else B.sub(index, x)
    conds = [_condition(r, variables) for _ in range(r.choice((0, 0, 1)))]
    access = SharedAccess(
        buffer, index, r.random() < 0.6, None,
        [(names[n], B.const(v.start), B.const(len(v))) for n, v in loops.items()], [c for c, _ in conds],
        atomic=r.random() < 0.1, collective=r.random() < 0.1,
    )  # fmt: skip
    return Drawn(
        access,
        lambda e: shift + sum(s * f(e) for s, (_, f) in zip(signs, parts)),
        lambda e: all(f(e) for _, f in conds),
        loops,
    )


def _places(d: Drawn, extents: dict[str, int]) -> Iterator[tuple[int, int]]:
    """(element, thread): threads are numbered with the first index fastest."""
    for at in itertools.product(*(range(n) for n in reversed(extents.values()))):
        env = dict(zip(reversed(extents), at))
        thread = 0
        for name in reversed(extents):
            thread = thread * extents[name] + env[name]
        for values in itertools.product(*d.loops.values()):
            full = {**env, **dict(zip(d.loops, values))}
            if d.holds(full):
                yield d.element(full), thread


def _expected(a: Drawn, b: Drawn, extents: dict[str, int], wave: int, shifts: tuple[int, ...] = (0,)) -> Meeting:
    if not (a.access.is_write or b.access.is_write) or (a.access.atomic and b.access.atomic):
        return Meeting.NOWHERE
    if len(set(itertools.product(*(range(n) for n in extents.values())))) == 1:
        return Meeting.NOWHERE
    whole = a.access.collective or b.access.collective
    found = Meeting.NOWHERE
    left, right = list(_places(a, extents)), list(_places(b, extents))
    for (x, s), (y, t), shift in itertools.product(left, right, shifts):
        if x + shift == y and (whole or s != t):
            if whole or not wave or s // wave != t // wave:
                return Meeting.ANYWHERE
            found = Meeting.WITHIN
    return found


def _setting(seed: int) -> tuple[random.Random, Buffer, dict[str, E.Var], dict[str, int], int]:
    r = random.Random(seed)
    extents = {"tx": r.randint(1, 6), "ty": r.randint(1, 3)}
    buffer = Buffer("shared", "float32", (B.const(1 << 10),), (), 0, "shared")
    return r, buffer, {n: E.Var(n) for n in extents}, extents, r.choice((0, 2, 4))


@pytest.mark.parametrize("first", range(0, 1200, 300))
def test_drawn_pairs_meet_where_counting_says(first: int) -> None:
    seen: set[Meeting] = set()
    for seed in seeds.some(300, first):
        r, buffer, threads, extents, wave = _setting(seed)
        a, b = (_draw(r, buffer, threads, which) for which in "ab")
        conflicts = Conflicts([(threads[n], extents[n]) for n in extents], wave)
        want = _expected(a, b, extents, wave)
        assert conflicts.meet(a.access, b.access) == want, f"seed {seed}: {a.access.index} and {b.access.index}"
        assert conflicts.meet(a.access, b.access) == want, f"seed {seed}: asked again"
        seen.add(want)
    assert seen == set(Meeting)


def test_what_is_the_same_for_all_threads_cancels_or_has_a_period() -> None:
    """Block indices and outer loops: equal ones cancel, remainders take each of their values, others count as a meeting."""
    for seed in seeds.some(60):
        r, buffer, threads, extents, wave = _setting(seed)
        a, b = (_draw(r, buffer, threads, which) for which in "ab")
        a, b = (replace(d, access=replace(d.access, collective=False, atomic=False)) for d in (a, b))
        conflicts = Conflicts([(threads[n], extents[n]) for n in extents], wave)
        block, step, size = E.Var("block"), E.Var("step"), r.randint(1, 9)
        assert a.access.index is not None and b.access.index is not None

        def moved(d: Drawn, by: E.Expr) -> SharedAccess:
            assert d.access.index is not None
            return replace(d.access, index=B.add(by, d.access.index))

        far = B.mul(block, B.const(40))
        same = conflicts.meet(moved(a, far), moved(b, far))
        assert same == _expected(a, b, extents, wave), seed
        for period, ahead in ((2, 1), (3, 1), (3, 2)):
            slot = B.mul(E.FloorMod(step, B.const(period)), B.const(size))
            later = B.mul(E.FloorMod(B.add(step, ahead), B.const(period)), B.const(size))
            shifts = tuple((k % period - (k + ahead) % period) * size for k in range(2 * period))
            want = _expected(a, b, extents, wave, shifts)
            assert conflicts.meet(moved(a, slot), moved(b, later)) == want, (seed, period, ahead)
        if a.access.is_write or b.access.is_write:
            unknown = Meeting.ANYWHERE if conflicts.count > 1 else Meeting.NOWHERE
            assert conflicts.meet(moved(a, block), moved(b, step)) == unknown
            assert conflicts.meet(moved(a, block), moved(b, step), unknown=False) == Meeting.NOWHERE


def test_vectors_touch_every_lane() -> None:
    """A ramp is its base and each step; a broadcast its one element."""
    tx = E.Var("tx")
    buffer = Buffer("shared", "float32", (B.const(256),), (), 0, "shared")
    for n, stride, width, gap in itertools.product((2, 4), (1, 2, 3), (2, 4), range(7)):
        conflicts = Conflicts([(tx, n)])
        write = SharedAccess(buffer, E.Ramp(B.mul(tx, B.const(8)), B.const(stride), width), True)
        read = SharedAccess(buffer, E.Broadcast(B.add(B.mul(tx, B.const(8)), gap), width), False)
        own = {t: {8 * t + stride * k for k in range(width)} for t in range(n)}
        want = any(8 * t + gap in own[s] for s in own for t in own if s != t)
        assert conflicts.meet(write, read) == (Meeting.ANYWHERE if want else Meeting.NOWHERE), (n, stride, width, gap)


def test_loops_of_unknown_length_are_compared_by_their_steps() -> None:
    """Whatever the length, no meeting is missed; and steps that keep elements apart are seen to."""
    tx, k, n = E.Var("tx"), E.Var("k"), E.Var("n")
    buffer = Buffer("shared", "float32", (B.const(1 << 12),), (), 0, "shared")
    for threads, step_a, step_b, shift in itertools.product((1, 3, 4), (4, 6, 8), (4, 8, 12), range(-5, 6)):
        conflicts = Conflicts([(tx, threads)])
        a, b = (
            SharedAccess(buffer, B.add(B.add(tx, B.mul(k, B.const(step))), by), write, None, [(k, B.const(0), n)])
            for step, by, write in ((step_a, 0, True), (step_b, shift, False))
        )
        touched = [[(t + step * i + by, t) for t in range(threads) for i in range(12)] for step, by in ((step_a, 0), (step_b, shift))]  # fmt: skip
        meets = any(x == y and s != t for x, s in touched[0] for y, t in touched[1])
        got = conflicts.meet(a, b)
        assert got == Meeting.ANYWHERE or not meets, (threads, step_a, step_b, shift)
        apart = np.gcd(step_a, step_b)
        if not any((t - s - shift) % apart == 0 for s in range(threads) for t in range(threads) if s != t):
            assert got == Meeting.NOWHERE, (threads, step_a, step_b, shift)


def test_two_loops_of_unknown_length_step_by_what_divides_both() -> None:
    tx, j, k, n = E.Var("tx"), E.Var("j"), E.Var("k"), E.Var("n")
    buffer = Buffer("shared", "float32", (B.const(1 << 12),), (), 0, "shared")
    for first, second in itertools.permutations((4, 6, 9, 12), 2):
        index = B.add(B.add(tx, B.mul(j, B.const(first))), B.mul(k, B.const(second)))
        loops = [(v, B.const(0), n) for v in (j, k)]
        met = Conflicts([(tx, 3)]).meet(SharedAccess(buffer, index, True, None, loops), SharedAccess(buffer, tx, False))
        # Threads are 1 or 2 apart: a step of 1 or 2 brings two of them together.
        assert met == (Meeting.ANYWHERE if np.gcd(first, second) < 3 else Meeting.NOWHERE), (first, second)


def test_other_buffers_and_other_views() -> None:
    tx = E.Var("tx")
    one, two = (Buffer(n, "float32", (B.const(64),), (), 0, "shared") for n in ("one", "two"))
    halves = Buffer("halves", "float16", (B.const(128),), (), 0, "shared", data=one.data)
    conflicts = Conflicts([(tx, 8)])
    write = SharedAccess(one, tx, True)
    assert conflicts.meet(write, SharedAccess(two, B.const(0), True)) == Meeting.NOWHERE
    assert conflicts.meet(write, SharedAccess(halves, tx, False)) == Meeting.ANYWHERE
    assert conflicts.meet(write, SharedAccess(one, None, False)) == Meeting.ANYWHERE
    assert conflicts.meet(write, SharedAccess(one, E.BufferLoad(two, (tx,)), False)) == Meeting.ANYWHERE


def test_arithmetic_of_the_enumeration() -> None:
    """Every operation over all signs, against Python."""
    a, b = E.Var("a"), E.Var("b")
    pairs = [(x, y) for x in range(-7, 8) for y in range(-7, 8) if y]
    env = {a: np.array([x for x, _ in pairs]), b: np.array([y for _, y in pairs])}
    rows: list[tuple[E.Expr, Callable[[int, int], int]]] = [
        (E.Div(a, b), _trunc), (E.Mod(a, b), lambda x, y: x - y * _trunc(x, y)), (E.FloorDiv(a, b), lambda x, y: x // y),
        (E.FloorMod(a, b), lambda x, y: x % y), (E.Min(a, b), min), (E.Max(a, b), max), (E.Sub(a, b), lambda x, y: x - y),
        (E.EQ(a, b), lambda x, y: x == y), (E.NE(a, b), lambda x, y: x != y), (E.LT(a, b), lambda x, y: x < y),
        (E.LE(a, b), lambda x, y: x <= y), (E.GT(a, b), lambda x, y: x > y), (E.GE(a, b), lambda x, y: x >= y),
        (E.And(E.GT(a, B.const(0)), E.GT(b, B.const(0))), lambda x, y: x > 0 and y > 0),
        (E.Or(E.GT(a, B.const(0)), E.GT(b, B.const(0))), lambda x, y: x > 0 or y > 0),
        (E.Not(E.LT(a, b)), lambda x, y: x >= y), (E.Select(E.LT(a, b), a, b), min),
        (B.call("bitand", a, b), lambda x, y: x & y), (B.call("bitor", a, b), lambda x, y: x | y), (B.call("bitxor", a, b), lambda x, y: x ^ y),
        (B.call("shr", a, E.FloorMod(b, B.const(4))), lambda x, y: x >> y % 4), (B.call("likely", E.LT(a, b)), lambda x, y: x < y),
    ]  # fmt: skip
    for e, f in rows:
        np.testing.assert_array_equal(evaluated(e, env), [int(f(x, y)) for x, y in pairs], err_msg=str(e))


# ---- global memory


def _hand_over(n: int, shift: int, twice: bool) -> Any:
    """A kernel, by hand, that writes global memory, reads a neighbour's element, and writes it again in a loop."""

    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        a, c, held = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        tx = te.thread_axis("threadIdx.x")
        ib.scope_attr(tx, "thread_extent", n)

        def round_() -> None:
            held[tx.var] = a[tx.var] + c[tx.var]
            c[tx.var] = held[te.indexmod(tx.var + shift, n)]

        c[tx.var] = te.const(0.0, "float32")
        if twice:
            with ib.for_range(0, 3, name="k"):
                round_()
        else:
            round_()
        return ib.get()

    A = te.placeholder((n,), name="A")
    return A, te.extern([(n,), (n,)], [A], body, name="C", dtype=["float32", "float32"])


def _barriers(module: Any) -> list[str]:
    text = module.imported_modules[0].get_source("ir")
    return [line.strip() for line in text.splitlines() if "barrier(" in line]


@thinned(
    1,
    ("target", ["rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda -arch=sm_80"]),
    ("shift, twice, count", [(0, False, 0), (0, True, 0), (1, False, 1), (5, True, 2)]),
)
def test_global_memory_that_threads_hand_over(shift: int, twice: bool, count: int, target: str) -> None:
    """A barrier of global memory before the neighbour reads, and another before the next round writes; none where each keeps to its own. In a wavefront too:
    its loads of global memory may be ahead of its stores."""
    n = 16
    A, (C, held) = _hand_over(n, shift, twice)
    f = tec.build(te.create_schedule(C.op), [A, C, held], target)
    found = _barriers(f)
    assert len(found) == count and all("global" in b for b in found), found
    if target.startswith("rocm"):
        llvm = f.imported_modules[0].get_source("llvm")
        whole = [x for x in llvm.splitlines() if 'fence syncscope("workgroup")' in x]
        assert len(whole) == 2 * count and not any("mmra" in x for x in whole), "a fence of shared memory alone"
        assert llvm.count("call void @llvm.amdgcn.s.barrier") == count
        chip = target.split("=")[1]
        dev = tec.rocm_emu(chip, check="race")
        x = np.random.default_rng(0).integers(0, 9, n).astype(np.float32)
        out = [tec.nd.array(np.zeros(n, np.float32), dev) for _ in range(2)]
        f(tec.nd.array(x, dev), *out)
        want = np.zeros(n, np.float32)
        for _ in range(3 if twice else 1):
            want = np.roll(x + want, -shift)
        np.testing.assert_array_equal(out[0].numpy(), want)
    else:
        # Its loop is written out.
        assert f.imported_modules[0].get_source("asm").count("bar.sync") == count * (3 if twice else 1)


@pytest.mark.parametrize("picked", ["within a wavefront", "by data"])
def test_global_memory_within_a_wavefront_and_by_data(picked: str) -> None:
    """A wavefront's loads of global memory are not in order with its stores, and an index from memory may be anyone's: both wait for the work-group."""
    n = 128

    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        a, at, c, held = (ib.buffer_ptr(b) for b in (*ins, *outs))
        tx = te.thread_axis("threadIdx.x")
        ib.scope_attr(tx, "thread_extent", n)
        held[tx.var] = a[tx.var] + 1.0
        near = te.indexdiv(tx.var, 16) * 16 + te.indexmod(tx.var + 1, 16)
        c[tx.var] = held[near if picked == "within a wavefront" else at[tx.var]]
        return ib.get()

    A, P = te.placeholder((n,), name="A"), te.placeholder((n,), "int32", name="P")
    C, held = te.extern([(n,), (n,)], [A, P], body, name="C", dtype=["float32", "float32"])
    f = tec.build(te.create_schedule(C.op), [A, P, C, held], "rocm -mcpu=gfx942")
    found = _barriers(f)
    assert len(found) == 1 and "global" in found[0], found
    dev = tec.rocm_emu("gfx942", check="race")
    x, at = np.arange(n, dtype=np.float32), np.random.default_rng(0).permutation(n).astype(np.int32)
    out = [tec.nd.array(np.zeros(n, np.float32), dev) for _ in range(2)]
    f(tec.nd.array(x, dev), tec.nd.array(at, dev), *out)
    i = np.arange(n)
    np.testing.assert_array_equal(
        out[0].numpy(), x[i // 16 * 16 + (i + 1) % 16 if picked == "within a wavefront" else at] + 1
    )
