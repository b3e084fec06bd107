"""Convolutions of few outputs as sums on AMD: right in the layouts that they are chosen in, and chosen where tiles of a product would wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.choices import Group
from tec.choices.families.window_sums import WindowSums
from tec.target import Target
from tests.thinned import thinned_rows

from .test_gathered_windows import _windows, lone
from .test_halo_convolutions import _lies, _numpy
from .test_spaces import program

# name: type, image, weights, attributes
CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "long": ("float16", (1, 31, 5, 5), (3, 31, 7, 7), {"strides": (2, 2), "dilations": (2, 2), "before": (6, 6), "after": (6, 6)}),
    "pixel": ("bfloat16", (3, 5, 8, 8), (12, 5, 1, 1), {"strides": (2, 2)}),
    "groups": ("float32", (2, 12, 5, 6), (8, 6, 3, 3), {"groups": 2}),
    "1-D": ("float16", (2, 40, 11), (9, 40, 3), {}),
}  # fmt: skip


@thinned_rows(
    3, "case,layout,chip",
    [
        ("long", "plain", "gfx942"), ("long", "pixels", "gfx1030"), ("pixel", "plain", "gfx950"), ("pixel", "pixels", "gfx1201"),
        ("groups", "plain", "gfx90a"), ("1-D", "pixels", "gfx942"), ("1-D", "plain", "gfx1100"),
    ],
)  # fmt: skip
def test_sums_are_right(case: str, layout: str, chip: str) -> None:
    """Wavefronts with a sum each, and all of a work-group's with one, or a thread."""
    dtype, image, weights, attrs = CASES[case]
    nd, rng = len(image) - 2, np.random.default_rng(3)
    reach = tuple(n // 2 for n in weights[2:])
    attrs = {
        "kernel": weights[2:], "strides": (1,) * nd, "dilations": (1,) * nd, "before": reach, "after": reach, "groups": 1, "out_dtype": dtype, **attrs,
    }  # fmt: skip
    x, w = (rng.standard_normal(s).astype("float32") for s in (image, weights))
    told, *lie = _lies(layout, attrs, x, w)
    xs, outs = program("conv", told, *((dtype, v.shape) for v in lie))
    target, dev = f"rocm -mcpu={chip}", tec.rocm_emu(chip, check="all")
    space = WindowSums.match(Group.of(outs), Target(target))
    assert space is not None
    given = [v.astype(_numpy(dtype)) for v in lie]
    want = _windows(x.astype(_numpy(dtype)).astype("f8"), w.astype(_numpy(dtype)).astype("f8"), attrs)
    few = list(space._few())
    for choice in (few[0], few[-1]):
        made = space.apply(choice)
        out = tec.nd.empty(tuple(int(n) for n in outs[0].shape), dtype, dev)
        f = tec.build(made.schedule, [*xs, *made.outputs], target, name="f")
        f(*(tec.nd.array(v, dev) for v in given), out)
        got = out.numpy().astype("f8")
        if layout == "pixels":
            got = np.moveaxis(got.reshape(want.shape[0], *want.shape[2:], -1), -1, 1)
        least = {"float32": 1e-5, "float16": 4e-3}.get(dtype, 3e-2)
        assert np.abs(got - want).max() <= least * np.abs(want).max(), choice


# 450 channels of 8 x 8 by 3 x 3 on an MI300X: 10 of them take 3.9 us by the time model, 5.9 by tiles whose sum is in 32 parts. Lanes that go along channels of a plain image ask for a line each:
# 152 channels of 10 x 10 to 40 on an RX 7900 XTX take 5.1 us so, 4.3 by tiles.
@pytest.mark.parametrize(
    "image,weights,chip,sums",
    [
        ((1, 450, 8, 8), (10, 450, 3, 3), "gfx942", True),
        ((1, 450, 8, 8), (256, 450, 3, 3), "gfx942", False),
        ((1, 152, 10, 10), (40, 152, 1, 1), "gfx1100", False),
    ],
)
def test_few_outputs_are_sums(image: tuple[int, ...], weights: tuple[int, ...], chip: str, sums: bool) -> None:
    net = tec.compile(lone(image, weights), f"rocm -mcpu={chip}", cache=False)
    names = [c["choice"]["template"] for c in net.report.choices.values()]
    assert (names == ["gpu reduction"]) == sums, names
