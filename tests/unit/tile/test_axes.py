"""Facts about runs of neighbours: what is claimed of drawn index arithmetic holds of its numbers, and accesses become vectors by it."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import tec.tile as tl
from tec.errors import Loc
from tec.tile import grammar as G
from tec.tile.axes import Axes
from tec.tile.builder import Builder, building
from tec.tile.evaluate import Machine
from tec.tile.values import tensor
from tests import seeds

LOC = Loc("drawn", 1)
INT32 = G.TileType((), G.DTYPES["int32"])


def drawn(r: random.Random, arguments: int) -> tuple[G.Program, list[Any]]:
    """A program of index arithmetic on scalars, rows and tiles; and its values."""
    b = Builder(tensor, lambda: LOC)
    made: list[Any] = []
    with building(b):
        made += [b.value("arg", (), INT32, index=k) for k in range(arguments)]
        made += [tl.program_id(0), *(b.of_number(r.choice([0, 1, 2, 8, 12, 16, 64, 100])) for _ in range(3))]
        start = r.choice([0, 0, 8, 24])
        rows = [tl.arange(0, 32), tl.arange(start, start + 16)]
        made += [*rows, rows[0][:, None], rows[1][None, :]]
        for _ in range(14):
            x, y = r.choice(made), r.choice(made)
            if len(x.shape) == 1 and len(y.shape) == 1 and x.shape != y.shape:
                continue
            if {len(x.shape), len(y.shape)} == {1, 2}:
                continue
            fn = r.choice(["add", "add", "sub", "mul", "mod", "div", "min", "less", "where"])
            if fn in ("mod", "div"):
                y = b.of_number(r.choice([1, 2, 8, 16, 24])) if r.random() < 0.7 else y
            word = {
                "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "mod": lambda x, y: x % y,
                "div": lambda x, y: x // y, "min": tl.minimum, "less": lambda x, y: r.choice([x < y, x >= y, x <= y, x > y]),
                "where": lambda x, y: tl.where(x < y, x, y),
            }[fn]  # fmt: skip
            v = word(x, y)
            made.append(v.to(tl.int32) if fn == "less" and r.random() < 0.3 else v)
            if fn == "less" and made[-1] is v:
                checked = made.pop()
                made.insert(0, tl.where(checked, 8, 16))
    params = [(f"n{k}", INT32) for k in range(arguments)]
    return G.Program("drawn", params, b.blocks[0], LOC), made


@pytest.mark.parametrize("seed", seeds.some(40))
def test_what_is_claimed_holds(seed: int) -> None:
    r = random.Random(seed)
    program, _ = drawn(r, 2)
    given = [r.choice([16, 48, 160, 7, 2, -32]) for _ in range(2)]
    alignment = {f"n{k}": (1 if n % 16 else 16) * (1 if n >= 0 else -1) for k, n in enumerate(given)}
    axes = Axes(program, alignment)
    machine = Machine(program, (r.randint(0, 9), 0, 0), (10, 1, 1), [np.asarray(n, np.int32) for n in given])
    with np.errstate(all="ignore"):
        machine.block(program.body)
    for op in program.body.ops:
        (v,) = op.results
        x = np.asarray(machine.get(v)).astype(np.int64)
        for d in range(x.ndim):
            facts, n = axes.of(v, d), x.shape[d]
            lines = np.moveaxis(x, d, -1).reshape(-1, n)
            c, k = min(facts.contiguity, n), min(facts.constancy, n)
            runs = lines.reshape(-1, n // c, c)
            assert (runs == runs[..., :1] + np.arange(c)).all(), (op, facts)
            assert (runs[..., 0] % facts.divisibility == 0).all(), (op, facts)
            equal = lines.reshape(-1, n // k, k)
            assert (equal == equal[..., :1]).all(), (op, facts)


@tl.jit
def scale(x, out, n, rows, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at % rows, mask=at < n), mask=at < n)


@tl.jit
def told(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    at = tl.max_contiguous(tl.multiple_of(at, 8), BLOCK)
    tl.assume(n % 16 == 0)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def widths(text: str) -> tuple[set[str], set[str]]:
    """Vectors of global loads and stores in PTX."""
    return tuple(set(re.findall(rf"{w}\.global(?:\.nc)?(?:\.L\S*?)?(\.v\d)?\.", text)) for w in ("ld", "st"))  # type: ignore[return-value]


def test_masked_accesses_are_vectors_where_the_mask_is_one() -> None:
    """By the arguments: addresses and sizes that 16 divides; by promises; and element by element where nothing is known."""
    target = "cuda -arch=sm_80"
    wide = scale.asm(target, "*fp32:16", "*fp32:16", 1024, 4096, BLOCK=512)
    assert widths(wide) == ({".v4"}, {".v4"})
    assert widths(scale.asm(target, "*fp32:16", "*fp32:16", 1023, 4096, BLOCK=512)) == ({""}, {""})
    assert widths(scale.asm(target, "*fp32", "*fp32", 1024, 4096, BLOCK=512)) == ({""}, {""})
    assert widths(scale.asm(target, "*fp32:16", "*fp32:16", 1024, 4095, BLOCK=512)) == ({""}, {".v4"})
    assert widths(told.asm(target, "*fp32:16", "*fp32:16", "i32", BLOCK=512)) == ({".v4"}, {".v4"})
    assert "global_load_dwordx4" in scale.asm("rocm -mcpu=gfx942", "*fp32:16", "*fp32:16", 1024, 4096, BLOCK=1024)
