"""Operators take as many inputs as they read: one more is refused, not ignored."""

from __future__ import annotations

import pytest

import tec.graph  # noqa: F401  registers the operators
from tec.errors import ImportModelError
from tec.graph.operators import infer_types
from tec.ops.registry import OPS, TensorType

MANY = 40
# Any number of inputs of one type.
VARIADIC = {"concat", "einsum"}
# Their attributes say which inputs there are, and inference counts them by those.
BY_ATTRIBUTES = {
    "attention",
    "choose",
    "conv_phases",
    "conv_sum",
    "loop",
    "projection",
    "recurrence",
    "resample",
    "resample_axes",
    "tap_sum",
    "vjp",
}


@pytest.mark.parametrize("name", sorted(set(OPS) - VARIADIC - BY_ATTRIBUTES))
def test_a_surplus_input_is_refused(name: str) -> None:
    with pytest.raises(ImportModelError, match=rf"{MANY} inputs|too many values to unpack"):
        infer_types(OPS[name], [TensorType("float32", (2, 2))] * MANY, {})
