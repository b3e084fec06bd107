"""Loops that are asked to be unrolled into more statements than a compiler can take: told at the user's line, at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import tec
from tec import te
from tec.errors import Loc, LoweringError, TecWarning
from tec.ir import Buffer
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.notes import FragmentsAhead
from tec.ir.passes.pipeline.leaves import leaves_of, pieces_of
from tec.ir.visit import visit

N = 8_811_226


def lower(change: Callable[[Any, Any], None], n: int = N) -> Any:
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="b")
    s = tec.create_schedule(b.op)
    change(s[b], b.op.axis[0])
    return tec.lower(s, [a, b], target="llvm")


def _whole(stage: Any, i: Any) -> None:
    stage.pragma(i, "auto_unroll_max_step", 10**8)


def _outer(stage: Any, i: Any) -> None:
    stage.pragma(stage.split(i, 16000)[0], "auto_unroll_max_step", 10**8)


@pytest.mark.parametrize("change", [_whole, _outer])
def test_a_pragma_that_would_write_millions_of_statements_is_refused(change: Any) -> None:
    start = time.process_time()
    with pytest.raises(
        LoweringError, match=r"would write loop i(_outer)? of .* out as 8,8\d\d,\d\d\d statements; 65,536 are the most"
    ) as e:
        lower(change)
    assert e.value.where is not None and e.value.where.file == __file__ and "split the loop" in str(e.value)
    assert time.process_time() - start < 20  # seconds, where it was minutes


def test_an_unrolled_loop_that_stays_one_is_told() -> None:
    with pytest.warns(
        TecWarning,
        match=r"loop i of 8,811,226 steps is not unrolled: .* 16,384 are the most(.|\n)*test_unroll_bounds.py",
    ):
        text = str(lower(lambda stage, i: stage.unroll(i)))
    assert f"{N}" in text


def test_what_is_below_the_bounds_is_written_out(recwarn: pytest.WarningsRecorder) -> None:
    def change(stage: Any, i: Any) -> None:
        outer, inner = stage.split(i, 64)
        stage.unroll(inner)
        stage.pragma(outer, "auto_unroll_max_step", 512)

    text = str(lower(change, 512))
    assert "for" not in text.replace("for each", "") and not [w for w in recwarn if issubclass(w.category, TecWarning)]


@pytest.mark.parametrize(("target", "left"), [("rocm -mcpu=gfx950", 1), ("cuda -arch=sm_90a", 0)])
def test_steps_that_are_written_out_stay_in_their_loop_on_amd(target: str, left: int) -> None:
    """LLVM wrote a loop of 8 x 8 loads out once more, and gfx950 then waited for each: a norm along 360 rows took 47 us, and takes 15."""
    x, k = te.placeholder((64, 128), name="x"), te.reduce_axis((0, 64), name="k")
    y = te.compute((128,), lambda j: te.sum(x[k, j], axis=k), name="y")
    s = tec.create_schedule(y.op)
    s[y].bind(y.op.axis[0], te.thread_axis("threadIdx.x"))
    s[y].unroll(s[y].split(s[y].op.reduce_axis[0], factor=8)[1])
    loops: list[S.Stmt] = []
    for f in tec.lower(s, [x, y], target=target):
        visit(f.body, stmt=loops.append)
    assert [f.unroll for f in loops if isinstance(f, S.For) and f.kind == S.ForKind.SERIAL] == [left]


@pytest.mark.parametrize("extents", [(300, 300), (8_811_226,), (3, 200, 200)])
def test_a_software_pipeline_writes_no_more_either(extents: tuple[int, ...]) -> None:
    """What a pipeline puts between the sums of a step is written out; the bound is told before the first statement is."""
    place = Loc(__file__, 7)
    a = Buffer("a", "float32", (E.IntImm(1),))
    nest: S.Stmt = S.BufferStore(a, E.FloatImm(1.0), (E.IntImm(0),), loc=place)
    for n in extents:
        nest = S.For(E.Var("i"), E.IntImm(0), E.IntImm(n), nest, S.ForKind.UNROLLED)
    marked = S.Attr(FragmentsAhead(), nest)
    start = time.process_time()
    for write in (pieces_of, leaves_of):
        with pytest.raises(LoweringError, match=r"would write .* out as [\d,]+ statements; 65,536 are the most") as e:
            write(nest if write is pieces_of else marked)
        assert e.value.where == place and "smaller tiles" in str(e.value)
    assert time.process_time() - start < 2  # seconds
    assert len(pieces_of(S.For(E.Var("i"), E.IntImm(2), E.IntImm(5), S.BufferStore(a, E.FloatImm(1.0), (E.IntImm(0),)), S.ForKind.UNROLLED))) == 5  # fmt: skip
