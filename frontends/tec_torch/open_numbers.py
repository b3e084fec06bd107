"""Numbers that open sizes give and that are not whole, as the scale of an image whose sides are open: scalars of float64 that the network computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import Builder
from tec.ops.dims import Size

from .remedies import FIX_THE_SIZE

# torch's words for an expression, and the operator; ToFloat has one part, which is it.
_OPERATORS = {
    "IntTrueDiv": "divide", "FloatTrueDiv": "divide", "FloatPow": "power", "Pow": "power", "Add": "add", "Mul": "multiply", "ToFloat": "add",
}  # fmt: skip


def number(e: Any, b: Builder, size_of: Callable[[Any], Size]) -> Value | float:
    """What an expression of torch's size symbols is. size_of: of a part that is a whole number. Raises ImportModelError for what no quotients, sums, products and powers make."""
    if e.is_number:
        return float(e)
    if e.is_integer:
        return b.cast(b.graph.sizes(size_of(e), "size"), "float64")
    name = _OPERATORS.get(type(e).__name__)
    if name is None:
        raise ImportModelError(f"the number {e}", hint=FIX_THE_SIZE)
    parts = [number(a, b, size_of) for a in e.args]
    return reduce(lambda x, y: b.op(name, x, y), (b.const(x, "float64") if isinstance(x, float) else x for x in parts))
