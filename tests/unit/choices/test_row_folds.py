"""Products whose rows a reducer folds: drawn sizes, types, batches and tiles lower on every kind of target, and compute what NumPy does."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te, topi
from tec.choices import spaces
from tests import seeds
from tests.conformance.matmuls import top_two_of_rows

TARGETS = ("llvm", "llvm -mcpu=x86-64-v4", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1030", "rocm -mcpu=gfx1100", "rocm -mcpu=gfx1201", "cuda -arch=sm_70", "cuda -arch=sm_80", "cuda -arch=sm_90a")  # fmt: skip
FOLDED = "product with folded rows"
FOLDS = {"max": (te.max, np.max), "min": (te.min, np.min), "sum": (te.sum, np.sum)}


class Drawn:
    """A product, perhaps of a batch and with a bias behind it, and a fold of its rows."""

    def __init__(self, rng: random.Random):
        batch = rng.choice([(), (), (2,), (3, 1)])
        self.m, self.n, self.k = (rng.choice([16, 17, 31, 32, 64, 96, 130]) for _ in "mnk")
        self.dtype, self.fold = rng.choice(["float16", "float16", "bfloat16", "float32"]), rng.choice(list(FOLDS))
        a = te.placeholder((*batch, self.m, self.k), self.dtype, name="A")
        b = te.placeholder((*batch, self.k, self.n), self.dtype, name="B")
        c = product = topi.matmul(a, b)
        self.inputs, self.has_bias = [a, b], rng.random() < 0.5
        if self.has_bias:
            bias = te.placeholder((self.n,), self.dtype, name="bias")
            self.inputs.append(bias)
            c = te.compute(c.shape, lambda *i: product(*i) + bias(i[-1]), name="biased")
        j = te.reduce_axis((0, self.n), name="j")
        fold = FOLDS[self.fold][0]
        self.out = te.compute((*batch, self.m), lambda *i: fold(c(*i, j).astype("float32"), axis=j), name="folded")

    def __str__(self) -> str:
        shapes = " by ".join(str(tuple(int(d) for d in t.shape)) for t in self.inputs[:2])
        return f"{self.fold} of {shapes} in {self.dtype}{' with a bias' if self.has_bias else ''}"

    def reference(self, *arrays: Any) -> Any:
        """In steps of the element type, sums exact: the drawn values are whole."""
        a, b, *bias = (x.astype("d") for x in arrays)
        c = (a @ b).astype(arrays[0].dtype)
        c = (c + arrays[2]).astype(c.dtype) if bias else c
        return FOLDS[self.fold][1](c.astype("d"), axis=-1)


def computed(drawn: Drawn, target: str, choice: Any, device: Any, rng: random.Random) -> tuple[Any, Any]:
    """What a choice computes of drawn whole numbers, and what NumPy does."""
    made = next(s for s in spaces([drawn.out], target) if s.template == FOLDED).apply(choice)
    built = tec.build(made.schedule, [*drawn.inputs, *made.outputs], target)
    draws = np.random.default_rng(rng.randrange(1 << 30))
    kind = getattr(ml_dtypes, drawn.dtype) if drawn.dtype == "bfloat16" else np.dtype(drawn.dtype)
    arrays = [draws.integers(-3, 4, [int(d) for d in t.shape]).astype(kind) for t in drawn.inputs]
    result = tec.nd.array(np.zeros([int(d) for d in drawn.out.shape], "float32"), device)
    built(*(tec.nd.array(x, device) for x in arrays), result)
    return result.numpy(), drawn.reference(*arrays)


@pytest.mark.parametrize("seed", seeds.some(10))
def test_drawn_folds_lower_everywhere(seed: int) -> None:
    rng = random.Random(seeds.stream(f"row folds {seed}"))
    drawn, target = Drawn(rng), rng.choice(TARGETS)
    (space,) = (s for s in spaces([drawn.out], target) if s.template == FOLDED)
    made = space.apply(rng.choice(list(space.all)))
    assert tec.lower(made.schedule, [*drawn.inputs, *made.outputs], target=target)


@pytest.mark.parametrize("seed", seeds.some(4))
def test_a_cpu_computes_drawn_folds(seed: int) -> None:
    rng = random.Random(seeds.stream(f"row folds, computed {seed}"))
    drawn = Drawn(rng)
    (space,) = (s for s in spaces([drawn.out], "llvm") if s.template == FOLDED)
    got, want = computed(drawn, "llvm", rng.choice(list(space.all)), tec.cpu(), rng)
    np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=str(drawn))


@pytest.mark.parametrize(("chip", "dtype"), [("gfx942", "float16"), ("gfx1100", "float32"), ("gfx1030", "float16")])
def test_a_batch_with_a_bias_on_a_gpu(chip: str, dtype: str) -> None:
    """On matrix units, on vector units, and by dot products of words."""
    rng, target = random.Random(seeds.stream("row folds on a GPU")), f"rocm -mcpu={chip}"
    while not (
        (drawn := Drawn(rng)).has_bias
        and drawn.dtype == dtype
        and len(drawn.out.shape) > 1
        and drawn.m * drawn.n * drawn.k < 1 << 15
    ):
        pass
    (space,) = (s for s in spaces([drawn.out], target) if s.template == FOLDED)
    got, want = computed(drawn, target, space.default, tec.rocm_emu(chip), rng)
    np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=str(drawn))


@pytest.mark.parametrize("target", TARGETS)
def test_the_largest_two_are_first_of_their_group(target: str) -> None:
    """The product is not stored: no kernel writes as many elements as it has, and its tile is the template's."""
    inputs, outputs = top_two_of_rows(512, 1024, 256)
    first, *_ = spaces(outputs, target)
    assert first.template == FOLDED
    made = first.apply(first.default)
    text = str(tec.lower(made.schedule, [*inputs, *made.outputs], target=target))
    assert "524288" not in text.replace(" ", "")


def test_warpgroups_multiply_what_is_folded() -> None:
    inputs, outputs = top_two_of_rows(512, 1024, 256)
    space, *_ = spaces(outputs, "cuda -arch=sm_90a")
    made = space.apply({"tile": "128x128 by warpgroups"})
    assert "wgmma" in str(tec.lower(made.schedule, [*inputs, *made.outputs], target="cuda -arch=sm_90a"))


def test_what_reads_a_row_in_another_order_is_no_fold() -> None:
    a, b = (te.placeholder((64, 64), "float16", name=x) for x in "AB")
    c = topi.matmul(a, b)
    j = te.reduce_axis((0, 64), name="j")
    for out in (
        te.compute((64,), lambda i: te.max(c[i, 63 - j], axis=j), name="backwards"),
        te.compute((64,), lambda i: te.max(c[j, i], axis=j), name="columns"),
    ):
        assert FOLDED not in [s.template for s in spaces([out], "rocm -mcpu=gfx942")]
