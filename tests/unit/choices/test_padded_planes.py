"""Poolings on a CPU: windows of any step, size and padding, whole or with their rows first, beside what te says they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import te
from tec.choices import spaces
from tests.thinned import thinned

from .test_spaces import CPU, feeds, program, run


def pooling(
    op: str, shape: tuple[int, ...], kernel: int, step: int, pad: int, hole: int = 1, dtype: str = "float32"
) -> Any:
    n = len(shape) - 2
    out = [(x + 2 * pad - hole * (kernel - 1) - 1) // step + 1 for x in shape[2:]]
    attrs: dict[str, Any] = {
        "kernel": (kernel,) * n, "strides": (step,) * n, "dilations": (hole,) * n, "before": (pad,) * n, "after": (pad,) * n, "out_space": tuple(out), "p": 2,
    }  # fmt: skip
    return program(op, attrs, (dtype, shape), bias=dtype == "float32")


CASES: dict[str, tuple[tuple[Any, ...], bool]] = {  # a pooling, and whether rows come first
    "steps of the window's size": (((2, 3, 13, 14), 2, 2, 1), False),
    "steps beyond the window": (((2, 3, 13, 29), 2, 3, 1), False),
    "large windows far apart": (((2, 3, 13, 30), 5, 3, 2), True),
    "large windows, side by side": (((1, 2, 9, 21), 5, 1, 2), True),
    "large windows without padding": (((1, 2, 17, 33), 5, 2, 0), True),
    "windows with holes": (((1, 2, 17, 33), 3, 2, 2, 2), True),
    "volumes": (((1, 2, 7, 9, 14), 3, 2, 1), True),
    "signals": (((2, 3, 40), 5, 3, 2), False),
    "rows of four": (((1, 5, 9, 9), 3, 2, 0), True),
}


@thinned(1, ("op", ["max_pool", "avg_pool", "lp_pool"]), ("name", CASES))
def test_windows(name: str, op: str) -> None:
    (shape, *numbers), first = CASES[name]
    xs, outs = pooling(op, shape, *numbers)
    values = feeds(xs)
    values[0] = np.random.default_rng(3).standard_normal(shape).astype("float32")
    (want,) = te.evaluate(outs, dict(zip(xs, values)))
    space = next(s for s in spaces(outs, CPU) if s.template == "cpu padded planes")
    assert space.default["rows_first"] is first
    for choice in {str(c): c for c in (space.default, *(c for c in space.all if c["vectors"] == 2))}.values():
        (got,) = run(xs, space.apply(choice), CPU, values)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=str(choice))


def test_nan_and_half_precision() -> None:
    """NaN in a window is its maximum; means of float16 are sums of float32."""
    xs, outs = pooling("max_pool", (1, 2, 13, 30), 5, 3, 2)
    x = np.random.default_rng(3).standard_normal((1, 2, 13, 30)).astype("float32")
    x[0, 0, 4, 7] = np.nan
    (want,) = te.evaluate(outs[:1], {xs[0]: x})
    space = next(s for s in spaces(outs, CPU) if s.template == "cpu padded planes")
    (got,) = run(xs, space.apply(space.default), CPU, [x])
    np.testing.assert_array_equal(got, want)
    xs, outs = pooling("avg_pool", (1, 2, 13, 30), 5, 3, 2, dtype="float16")
    x = (x * 1e3).clip(-6e4, 6e4).astype("float16")
    x[0, 0, 4, 7] = 1
    (want,) = te.evaluate(outs, {xs[0]: x})
    space = next(s for s in spaces(outs, CPU) if s.template == "cpu padded planes")
    (got,) = run(xs, space.apply(space.default), CPU, [x])
    np.testing.assert_allclose(got.astype("float32"), want.astype("float32"), rtol=2e-3)
