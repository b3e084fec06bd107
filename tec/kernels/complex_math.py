"""Functions of complex numbers in kernels, of real and imaginary parts: plain functions, which the translator inlines.

Sources: R. L. Smith, "Algorithm 116: Complex division", 1962; W. Kahan, "Branch cuts for complex elementary functions", 1987 (the square root).
They work in the type of their parts: results are right to some units of the last digit.
"""

from __future__ import annotations

import math
from typing import Any

FUNCTIONS = ("exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "square", "reciprocal")


def truediv(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + b i) / (c + d i); the smaller part of the divisor over the larger one does not overflow."""
    by_real = abs(c) >= abs(d)
    large = c if by_real else d
    small = d if by_real else c
    ratio = small / large
    below = large + small * ratio
    re = (a + b * ratio) if by_real else (a * ratio + b)
    im = (b - a * ratio) if by_real else (b * ratio - a)
    zero = large == 0.0
    return (a / abs(large) if zero else re / below), (b / abs(large) if zero else im / below)


def reciprocal(a: Any, b: Any) -> Any:
    return truediv(a * 0.0 + 1.0, a * 0.0, a, b)


def square(a: Any, b: Any) -> Any:
    return (a - b) * (a + b), a * b * 2.0


def size(a: Any, b: Any) -> Any:
    return math.hypot(a, b)


def angle(a: Any, b: Any) -> Any:
    return math.atan2(b, a)


def rect(r: Any, phi: Any) -> Any:
    return r * math.cos(phi), r * math.sin(phi)


def exp(a: Any, b: Any) -> Any:
    r = math.exp(a)
    return r * math.cos(b), r * math.sin(b)


def log(a: Any, b: Any) -> Any:
    return math.log(math.hypot(a, b)), math.atan2(b, a)


def log2(a: Any, b: Any) -> Any:
    re, im = log(a, b)
    return re * 1.4426950408889634, im * 1.4426950408889634


def log10(a: Any, b: Any) -> Any:
    re, im = log(a, b)
    return re * 0.4342944819032518, im * 0.4342944819032518


def sqrt(a: Any, b: Any) -> Any:
    t = math.sqrt((abs(a) + math.hypot(a, b)) * 0.5)
    other = abs(b) / (t * 2.0) if t > 0.0 else t
    left = a < 0.0
    return (other if left else t), math.copysign(t if left else other, b)


def sinh(a: Any, b: Any) -> Any:
    return math.sinh(a) * math.cos(b), math.cosh(a) * math.sin(b)


def cosh(a: Any, b: Any) -> Any:
    return math.cosh(a) * math.cos(b), math.sinh(a) * math.sin(b)


def sin(a: Any, b: Any) -> Any:
    return math.sin(a) * math.cosh(b), math.cos(a) * math.sinh(b)


def cos(a: Any, b: Any) -> Any:
    return math.cos(a) * math.cosh(b), -(math.sin(a) * math.sinh(b))


def tanh(a: Any, b: Any) -> Any:
    # Beyond 20 the hyperbolic functions of 2 a overflow early, and the value is 1 to the last digit.
    x = min(max(a, -20.0), 20.0)
    below = math.cosh(x * 2.0) + math.cos(b * 2.0)
    return math.sinh(x * 2.0) / below, math.sin(b * 2.0) / below


def tan(a: Any, b: Any) -> Any:
    re, im = tanh(-b, a)
    return im, -re


def power(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + b i) ** (c + d i); a power of 0 is 0."""
    r = math.hypot(a, b)
    phi = math.atan2(b, a)
    zero = r == 0.0
    log_r = math.log(1.0 if zero else r)
    grown = math.exp(c * log_r - d * phi)
    turned = d * log_r + c * phi
    one = grown * 0.0 + 1.0 if c == 0.0 and d == 0.0 else grown * 0.0
    return (one if zero else grown * math.cos(turned)), (grown * 0.0 if zero else grown * math.sin(turned))
