"""Tensors of 2**31 elements and more: right indices, by loops whose variables count as far as they go."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable

import pytest

import tec
from tec import choices, te, topi
from tec.errors import LoweringError
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.interp import eval_expr
from tec.ir.visit import visit
from tests import seeds
from tests.thinned import thinned

WIDE = [(3, 1 << 15, 1 << 16), (3, 1 << 16, 1 << 16), (1 << 16, 1 << 15), (1 << 20, 1 << 12), (7, 5, 1 << 14, 1 << 15)]


def _twice(shape: tuple[int, ...]) -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder(shape, name="A", dtype="int8")
    return a, te.compute(shape, lambda *i: a(*i) + a(*i), name="B")


@pytest.mark.parametrize("shape", WIDE)
def test_strides_do_not_wrap(shape: tuple[int, ...]) -> None:
    """Each axis counts with the product of those within, though that is more than int32 holds."""
    a, b = _twice(shape)
    text = str(tec.lower(te.create_schedule(b.op), [a, b], target="llvm"))
    total, stride = 1, []
    for extent in reversed(shape):
        stride.append(total)
        total *= extent
    assert f"int64({total})" in text
    for step in stride[1:]:
        assert re.search(rf"\* {step}\b|\* int64\({step}\)", text), (step, text)


def test_strides_of_a_symbolic_batch() -> None:
    n = te.var("n")
    a = te.placeholder((n, 1 << 16, 1 << 16), name="A", dtype="int8")
    b = te.compute((n, 1 << 16, 1 << 16), lambda *i: a(*i) + a(*i), name="B")
    assert "* 4294967296" in str(tec.lower(te.create_schedule(b.op), [a, b], target="llvm"))


@thinned(1, ("target", ["llvm", "gfx942", "nvptx"]), ("shape", WIDE))
def test_fused_loops_count_as_far_as_they_go(target: str, shape: tuple[int, ...]) -> None:
    """The product wrapped: to nothing of 2**32, which made an empty kernel, or to a negative size, which LLVM refused."""
    a, b = _twice(shape)
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(s[b].fuse(*s[b].op.axis), factor=256)
    assert outer.var.dtype == "int64"
    if target != "llvm":
        s[b].bind(outer, te.thread_axis("blockIdx.x"))
        s[b].bind(inner, te.thread_axis("threadIdx.x"))
    assert tec.build(s, [a, b], target=target) is not None


@pytest.mark.parametrize("seed", seeds.some(12))
def test_where_a_fused_loop_stands(seed: int) -> None:
    """Drawn splits of fused axes: each place of the loops is one of the tensor, or is left out."""
    rng = random.Random(seed)
    shape = rng.choice([*WIDE, (46341, 46349), (3, 46341, 5, 46349), (2, 1, 1 << 30, 3)])
    a, b = _twice(shape)
    s = te.create_schedule(b.op)
    loop = s[b].fuse(*s[b].op.axis)
    for _ in range(rng.randrange(3)):
        loop = s[b].split(loop, **{rng.choice(["factor", "nparts"]): rng.choice([2, 7, 256, 1000])})[rng.randrange(2)]
    func = tec.lower(s, [a, b], target="llvm", simple_mode=True)["main"]
    loops, guards, stores = [], [], []

    def look(stmt: S.Stmt) -> None:
        if isinstance(stmt, S.For):
            loops.insert(0, stmt)  # the inner ones are seen first
        elif isinstance(stmt, S.IfThenElse):
            guards.append(stmt.cond)
        elif isinstance(stmt, S.BufferStore):
            stores.append(stmt)

    visit(func.body, stmt=look)
    (store,), extents = stores, [f.extent.value for f in loops if isinstance(f.extent, E.IntImm)]
    assert len(extents) == len(loops)
    for _ in range(50):
        at = [rng.choice([rng.randrange(n), n - 1, 0]) for n in extents]
        env = {f.var: k for f, k in zip(loops, at)}
        flat = functools.reduce(lambda whole, part: whole * part[0] + part[1], zip(extents, at), 0)
        if all(eval_expr(g, env) for g in guards):
            index = [int(eval_expr(i, env)) for i in store.indices]
            place = functools.reduce(lambda whole, part: whole * part[0] + part[1], zip(shape, index), 0)
            assert all(0 <= i < n for i, n in zip(index, shape)), (at, index)
            assert place == flat or guards, (at, index)


def _largest(shape: tuple[int, int]) -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder(shape, name="A", dtype="int8")
    k, m = te.reduce_axis((0, shape[0]), "k"), te.reduce_axis((0, shape[1]), "m")
    return a, te.compute((1,), lambda i: te.max(a[k, m], axis=[k, m]), name="C")


@pytest.mark.parametrize("shape", [(48000, 50001), (1 << 16, 1 << 16)])
def test_parts_of_a_fused_reduction(shape: tuple[int, int]) -> None:
    """They were made of the wrapped product: of a negative size, with no step."""
    a, c = _largest(shape)
    s = te.create_schedule(c.op)
    inner = s[c].split(s[c].fuse(*c.op.reduce_axis), factor=64)[1]
    part = s.rfactor(c, inner)
    assert [int(n) for n in part.shape] == [64, 1]
    text = str(tec.lower(s, [a, c], target="llvm", simple_mode=True))
    assert f"range(int64({shape[0] * shape[1] // 64}))" in text


def test_a_cpu_reduces_a_line_as_far_as_it_can_count() -> None:
    a, c = _largest((48000, 50001))
    made = choices.schedule([c], "llvm")
    text = str(tec.lower(made.schedule, [a, *made.outputs], target="llvm"))
    assert "A[" in text and "range(48000)" in text


@pytest.mark.parametrize("target", ["gfx942", "nvptx"])
def test_rows_on_work_groups(target: str) -> None:
    """Without fusing, 2**31 elements compile: the buffer's size was negative in LLVM's text."""
    a, b = _twice((1 << 16, 1 << 15))
    s = te.create_schedule(b.op)
    i, j = s[b].op.axis
    s[b].bind(i, te.thread_axis("blockIdx.x"))
    s[b].bind(s[b].split(j, factor=256)[1], te.thread_axis("threadIdx.x"))
    assert tec.build(s, [a, b], target=target) is not None


@pytest.mark.parametrize("factor", [2, 256, 3, 1000, 1 << 20])
def test_a_split_of_the_longest_loop(factor: int) -> None:
    """2**31 - 1 steps: rounded up they wrapped, and no step ran; a multiple past the end is refused, or guarded if it can be counted."""
    extent = (1 << 31) - 1
    a, b = _twice((extent,))
    s = te.create_schedule(b.op)
    s[b].split(s[b].op.axis[0], factor=factor)
    parts = -(-extent // factor)
    if parts * factor > 1 << 31:
        with pytest.raises(LoweringError, match="its int32 variable counts to"):
            tec.lower(s, [a, b], target="llvm", simple_mode=True)
        return
    text = str(tec.lower(s, [a, b], target="llvm", simple_mode=True))
    assert f"range({parts})" in text and f"range({factor})" in text
    assert f"< {extent}" in text or parts * factor == extent


def test_an_axis_of_64_bits_is_split() -> None:
    """One axis of 2**33 has an int64 variable, which counts it."""
    a, b = _twice((1 << 33,))
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(s[b].op.axis[0], factor=1 << 10)
    assert outer.var.dtype == "int64"
    assert isinstance(b.op.axis[0].dom.extent, E.IntImm)
    assert f"range(int64({1 << 23}))" in str(tec.lower(s, [a, b], target="llvm", simple_mode=True))


def test_a_stage_computed_in_parts_may_be_fused() -> None:
    """What counts is the part that one step computes, not the whole stage."""
    a, b = _twice((1 << 16, 1 << 16))
    c = te.compute(b.shape, lambda i, j: b(i, j) + b(i, j), name="C")
    s = te.create_schedule(c.op)
    s[b].fuse(*s[b].op.axis)
    s[b].compute_at(s[c], s[c].op.axis[0])
    assert "range(65536)" in str(tec.lower(s, [a, c], target="llvm", simple_mode=True))


@pytest.mark.parametrize("target", ["gfx942", "nvptx"])
def test_more_work_groups_than_a_launch_has(target: str) -> None:
    """Their number wrapped to a negative one, and the kernel was empty."""
    a, b = _twice((1 << 16, 1 << 16))
    s = te.create_schedule(b.op)
    s[b].bind(s[b].fuse(*s[b].op.axis), te.thread_axis("blockIdx.x"))
    with pytest.raises(LoweringError, match=r"4,294,967,296 steps of blockIdx.x: a launch has 2,147,483,647 at most"):
        tec.build(s, [a, b], target=target)


@pytest.mark.parametrize("target", ["llvm", "gfx942", "nvptx"])
@pytest.mark.parametrize(("template", "made"), [
    ("running sum", lambda x: topi.cumsum(x, axis=1)),
    ("largest", lambda x: topi.topk(x, k=5, axis=1, ret_type="values")),
])  # fmt: skip
def test_lines_of_many_elements_in_all(template: str, made: Callable[[te.Tensor], te.Tensor], target: str) -> None:
    """Their definitions, a sum or a count of others for each element, take as many steps a line as it has elements, twice over."""
    x = te.placeholder((46400, 46500), name="x", dtype="float32")
    found = choices.spaces([made(x)], target)[0]
    assert found.template == template
    text = str(tec.lower((s := found.apply(found.default)).schedule, [x, *s.outputs], target=target))
    assert re.search(r"x\[[^\]]*\* 46500", text) and "int64" in text, text
