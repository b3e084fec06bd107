"""Warpgroup products of padded tiles that threads bring: against NumPy in the interpreter, with its check for races; and the PTX."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import spaces
from tec.choices.families.products.padded_warpgroups import PaddedWarpgroupProduct
from tec.choices.group import Group
from tec.ir.interp import run
from tec.ops.contraction import Contraction, Operand
from tests import seeds
from tests.thinned import thinned_rows
from tests.unit.choices.test_folded import convolved

HOPPER = tec.Target("cuda -arch=sm_90a")
ORDERS = [(False, True), (False, False), (True, False), (True, True)]


def product(
    sizes: tuple[int, int, int], order: tuple[bool, bool], batch: tuple[int, ...] = ()
) -> tuple[list[Any], list[Any]]:
    """A product of operands as they lie: A [k, m] and B [n, k] as `order` says. Returns (inputs, outputs)."""
    (m, n, k), (trans_a, trans_b) = sizes, order
    a = te.placeholder((*batch, *((k, m) if trans_a else (m, k))), "float16", "a")
    b = te.placeholder((*batch, *((n, k) if trans_b else (k, n))), "float16", "b")

    def x(lead: Any, i: Any, r: Any) -> Any:
        return a(*lead, *((r, i) if trans_a else (i, r)))

    def y(lead: Any, j: Any, r: Any) -> Any:
        return b(*lead, *((j, r) if trans_b else (r, j)))

    left = Operand(x, "float16", not trans_a, math.gcd(8, m if trans_a else k))
    right = Operand(y, "float16", trans_b, math.gcd(8, k if trans_b else n))
    return [a, b], Contraction(batch, m, n, k, left, right, "float32", "float16").tensors()


def made(outs: list[Any], choice: dict[str, Any]) -> Any:
    group = Group.of(outs)
    space = PaddedWarpgroupProduct.match(group, HOPPER, group.reductions()[0])
    assert space is not None
    return space.build(space.check(choice))


def check(
    sizes: tuple[int, int, int], order: tuple[bool, bool], choice: dict[str, Any], batch: tuple[int, ...] = ()
) -> None:
    """Build, lower and run; compare."""
    ins, outs = product(sizes, order, batch)
    built = made(outs, choice)
    (f,) = tec.lower(built.schedule, [*ins, *built.outputs], target=HOPPER).functions.values()
    rng = np.random.default_rng(sum(sizes))
    a, b = (rng.standard_normal([int(d) for d in t.shape]).astype("float16") for t in ins)
    y = np.full([int(d) for d in built.outputs[0].shape], np.nan, "float16")
    run(f, [a, b, y], races=True)
    left, right = (np.swapaxes(t, -1, -2) if turned else t for t, turned in zip((a, b), order))
    want = left.astype("f8") @ right.astype("f8")
    assert np.abs(y - want).max() <= 2e-3 * np.abs(want).max()


SHAPES: list[tuple[tuple[int, int, int], tuple[bool, bool], dict[str, Any], tuple[int, ...]]] = [
    ((100, 24, 200), (False, True), {"rows": 64, "columns": 24, "stages": 3}, ()),
    ((70, 40, 202), (False, True), {"rows": 64, "columns": 16, "stages": 4}, ()),  # pieces of 4 bytes
    (
        (65, 17, 201),
        (False, True),
        {"rows": 64, "columns": 8, "stages": 3},
        (),
    ),  # rows begin at odd places: through registers
    ((130, 16, 200), (False, True), {"rows": 128, "columns": 16, "stages": 2}, ()),
    ((72, 72, 136), (True, False), {"rows": 64, "columns": 64, "stages": 2}, ()),
    ((64, 70, 264), (False, False), {"rows": 64, "columns": 64, "stages": 3, "group_m": 4}, ()),
    ((64, 16, 40), (False, True), {"rows": 64, "columns": 16, "stages": 2}, ()),  # one step
    ((40, 16, 512), (False, True), {"rows": 64, "columns": 16, "stages": 3, "split_k": 2, "stage_out": False}, ()),
    ((66, 8, 144), (False, True), {"rows": 64, "columns": 8, "stages": 3}, (3,)),
    # Operands copied ahead: single elements, pairs, one of both, the sum in parts, a batch.
    ((65, 17, 201), (False, True), {"rows": 64, "columns": 8, "stages": 3, "copied": "ab"}, ()),
    ((65, 18, 202), (True, False), {"rows": 64, "columns": 64, "stages": 2, "copied": "ab"}, ()),
    ((66, 17, 100), (False, False), {"rows": 64, "columns": 64, "stages": 2, "copied": "b"}, ()),
    (
        (40, 17, 501),
        (False, True),
        {"rows": 64, "columns": 16, "stages": 3, "split_k": 3, "stage_out": False, "copied": "ab"},
        (),
    ),
    ((66, 9, 70), (False, True), {"rows": 64, "columns": 8, "stages": 2, "copied": "a"}, (3,)),
]


@thinned_rows(4, ("sizes", "order", "choice", "batch"), SHAPES)
def test_the_product_is_numpys(sizes: Any, order: Any, choice: dict[str, Any], batch: tuple[int, ...]) -> None:
    check(sizes, order, choice, batch)


@pytest.mark.parametrize("seed", seeds.some(1))
def test_drawn_products(seed: int) -> None:
    """Sizes, orders and legal choices as they come."""
    rng = random.Random(seed)
    sizes = rng.randint(1, 140), rng.randint(1, 80), rng.randint(1, 300)
    order = rng.choice(ORDERS)
    group = Group.of(product(sizes, order)[1])
    space = PaddedWarpgroupProduct.match(group, HOPPER, group.reductions()[0])
    assert space is not None
    check(sizes, order, rng.choice([c for c in space.drafts() if c["rows"] * c["columns"] <= 64 * 64]))


def ptx(outs: list[Any], ins: list[Any], choice: dict[str, Any]) -> str:
    built = made(outs, choice)
    text: str = (
        tec.build(built.schedule, [*ins, *built.outputs], HOPPER, name="p").imported_modules[0].get_source("ptx")
    )
    return text


def test_what_the_main_loop_is_made_of() -> None:
    """Copies in the background behind the wait for the step before; nothing is stored by threads, and nothing lies in local memory."""
    ins, outs = product((256, 40, 1024), (False, True))
    text = ptx(outs, ins, {"rows": 128, "columns": 40, "stages": 4, "occupancy": 2, "split_k": 1})
    loop = text[text.index("cp.async.wait_group \t2") :]
    order = ["fence.proxy.async", "bar.sync", "wgmma.fence", "wgmma.mma_async", "wgmma.commit_group", "wgmma.wait_group.sync.aligned 1", "bar.sync", "cp.async.cg"]  # fmt: skip
    at = 0
    for word in order:
        at = loop.index(word, at) + 1
    assert "st.shared" not in text and ".local" not in text and ".minnctapersm 2" in text
    assert "m64n40k16" in text and re.search(r"wgmma.wait_group.sync.aligned 0;\s", loop[at:])


@thinned_rows(
    2,
    "name",
    ["groups of 24, pixels", "more outputs than inputs, pixels", "plain, in groups", "a plain image"],
)
def test_convolutions(name: str) -> None:
    """Windows of an image with padding and strides, its channels side by side or its pixels."""
    xs, y = convolved(name, "float16")
    (space,) = [s for s in spaces([y], HOPPER) if s.template == PaddedWarpgroupProduct.template]
    choice = next(c for c in space.drafts() if c["rows"] == 64 and c["split_k"] == 1)
    built = space.apply(choice)
    (f,) = tec.lower(built.schedule, [*xs, *built.outputs], target=HOPPER).functions.values()
    rng = np.random.default_rng(7)
    values = [(rng.integers(-4, 5, [int(d) for d in x.shape]) / 4).astype(x.dtype) for x in xs]
    (want,) = te.evaluate([y], dict(zip(xs, values)))
    got = np.full_like(want, np.nan)
    run(f, [*values, got], races=True)
    np.testing.assert_allclose(got, want, rtol=2e-3)
