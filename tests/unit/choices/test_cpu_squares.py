"""Turned operands on a CPU, by squares: drawn permutations with what exporters put behind them, against te's meaning, by the interpreter for each width of vectors and on this host."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import preferred, spaces
from tec.ir.interp import run
from tests import seeds

LEVELS = ("llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4")


def drawn(rng: Random) -> tuple[list[te.Tensor], te.Tensor]:
    """A permutation, with work in front of it and behind it."""
    rank = rng.choice((2, 3, 4))
    shape = [rng.choice((1, 2, 3, 4, 5, 8, 9, 16, 17)) for _ in range(rank)]
    perm = rng.sample(range(rank), rank)
    dtype = rng.choice(("float32", "float32", "float64", "float16", "int8"))
    x = te.placeholder(tuple(shape), dtype, name="x")
    inner = te.compute(x.shape, lambda *i: x(*i) + x(*i), name="twice") if rng.random() < 0.3 else x
    y = te.compute(tuple(shape[p] for p in perm), lambda *i: inner(*[i[perm.index(k)] for k in range(rank)]), name="y")
    if rng.random() < 0.6:
        return [x], y
    b = te.placeholder(y.shape[-1:], dtype, name="b")
    return [x, b], te.compute(y.shape, lambda *i: te.max(y(*i), te.const(0, dtype)) + b(i[-1]), name="z")


def check(ins: list[te.Tensor], out: te.Tensor, rng: Random, targets: tuple[str, ...] = LEVELS) -> None:
    generator = np.random.default_rng(rng.randrange(2**31))
    data = {t: generator.integers(-9, 9, [d.value for d in t.shape]).astype(t.dtype) for t in ins}
    (want,) = te.evaluate([out], data)
    for target in targets:
        for space in spaces([out], target):
            choices = [space.default, *list(space.all)[:6]] if space.template == "cpu squares" else [space.default]
            for choice in choices:
                made = space.apply(choice)
                args = [*ins, *made.outputs]
                func = next(iter(tec.lower(made.schedule, args, name="f", target=target)))
                got = np.zeros(want.size, want.dtype)
                run(func, dict(zip([p.name for p in func.params], [*(d.reshape(-1).copy() for d in data.values()), got])), {}, check=True)  # fmt: skip
                np.testing.assert_array_equal(got.reshape(want.shape), want)
    made = spaces([out], "llvm")[0].apply()
    y = tec.nd.array(np.zeros(want.shape, want.dtype))
    tec.build(made.schedule, [*ins, *made.outputs], "llvm", name="f")(*(tec.nd.array(d) for d in data.values()), y)
    np.testing.assert_array_equal(y.numpy(), want)


@pytest.mark.parametrize("seed", seeds.some(8))
def test_drawn_permutations(seed: int) -> None:
    rng = Random(seed)
    check(*drawn(rng), rng)


def template(shape: tuple[int, ...], perm: tuple[int, ...], target: str = LEVELS[1]) -> str:
    x = te.placeholder(shape, "float32", name="x")
    y = te.compute(tuple(shape[p] for p in perm), lambda *i: x(*[i[perm.index(k)] for k in range(len(perm))]), name="y")
    found = preferred([y], target)
    assert found is not None
    return found[0].template


def test_where_squares_serve() -> None:
    assert template((104, 1598), (1, 0)) == "cpu squares"
    assert template((48, 48, 1, 16), (2, 3, 0, 1)) == "cpu squares"
    assert template((2, 8, 3, 5, 7), (0, 2, 3, 4, 1)) == "cpu squares"
    assert template((24, 6, 2, 208), (3, 0, 1, 2)) == "cpu squares"  # across lines of two, which are short
    assert template((24, 2, 208), (0, 2, 1)) == "cpu interleaving"
    assert template((12, 8, 64), (1, 0, 2)) == "cpu stages"  # rows stay rows
    assert template((1000, 3), (1, 0)) == "cpu stages"  # fewer than fill half a vector
    assert template((64, 64), (1, 0), "rocm -mcpu=gfx942") == "gpu transpose"


def test_axes_of_one_element_are_in_nobodys_way() -> None:
    assert template((92, 140, 1), (1, 0, 2)) == template((90, 1, 140), (2, 1, 0)) == "cpu squares"
    assert template((3, 20, 40, 1, 1), (0, 2, 1, 3, 4)) == "cpu squares"


def test_axes_that_stay_neighbours_are_one() -> None:
    rng = Random(1)
    x = te.placeholder((3, 8, 2, 5), "float32", name="x")
    y = te.compute((2, 5, 3, 8), lambda a, b, c, d: x[c, d, a, b], name="y")
    assert preferred([y], LEVELS[1])[0].template == "cpu squares"  # type: ignore[index]
    check([x], y, rng)
