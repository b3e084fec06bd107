"""Comparisons of arrays, expressions and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tec.ir.arith import Analyzer
from tec.ir.build import sub
from tec.ir.expr import IntImm


def _numpy(a: Any) -> Any:
    return a.numpy() if hasattr(a, "numpy") else a


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, **named: Any) -> None:
    """numpy.testing.assert_allclose of arrays that broadcast to one shape."""
    actual, desired = np.asanyarray(_numpy(actual)), np.asanyarray(_numpy(desired))
    np.testing.assert_allclose(actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=True)


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raises ValueError where two integer expressions differ by what is not provably 0."""
    difference = Analyzer().simplify(sub(lhs, rhs))
    if not isinstance(difference, IntImm) or difference.value != 0:
        raise ValueError(f"{lhs} and {rhs} differ by {difference}")


_ROUNDINGS = 2  # steps of float32 that each of the two values of a difference may be off


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Sequence[Any] | Mapping[str, Any],
    grad_values: Any,
    function_value: Any = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
    acceptable_fail_fraction: float | None = None,
) -> None:
    """Compare gradients with central differences of `function`. Raises AssertionError where a gradient is off by more than
    rtol of it, atol of the root mean square of all, and what rounding of the function's float32 value can do to a difference."""
    if isinstance(input_values, Mapping):
        names = list(input_values)
        check_numerical_grads(
            lambda *v: function(**dict(zip(names, v))), [input_values[n] for n in names], [grad_values[n] for n in names],
            function_value, delta, atol, rtol, acceptable_fail_fraction,
        )  # fmt: skip
        return
    for k, (x, g) in enumerate(zip(input_values, grad_values)):
        want, largest = np.empty(np.shape(x)), 0.0
        for at in np.ndindex(*np.shape(x)):
            ends = []
            for sign in (1, -1):
                moved = [np.array(v) for v in input_values]
                moved[k][at] += sign * delta
                ends.append(float(function(*moved)))
            want[at] = (ends[0] - ends[1]) / (2 * delta)
            largest = max(largest, *map(abs, ends))
        scale = float(np.sqrt(np.mean(want**2))) if want.size else 0.0
        wrong = (
            np.abs(_numpy(g) - want)
            > rtol * np.abs(want) + atol * scale + _ROUNDINGS * float(np.spacing(np.float32(largest))) / delta
        )
        allowed = acceptable_fail_fraction if acceptable_fail_fraction is not None else 0.0
        assert wrong.mean() <= allowed, f"gradient {k} differs at {wrong.mean():.0%} of its places:\n{g}\nand\n{want}"
