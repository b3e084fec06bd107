"""Extrema that keep NaN, on x86 CPUs."""

from __future__ import annotations

import re

import pytest

import tec
from tec import te


@pytest.mark.parametrize("cpu", ["haswell", "znver4"])
def test_a_running_extremum_asks_the_new_element_whether_it_is_nan(cpu: str) -> None:
    """A step that asked the extremum so far would wait for the answer, three times as long as for the maximum."""
    k, a = te.reduce_axis(64, name="k"), te.placeholder((64, 16), name="A")
    c = te.compute((16,), lambda i: te.maximum(a[k, i], axis=k), name="C")
    s = te.create_schedule(c.op)
    s[c].reorder(*c.op.reduce_axis, *c.op.axis)
    s[c].vectorize(c.op.axis[0])
    asm = tec.build(s, [a, c], f"llvm -mcpu={cpu}").get_source("asm")
    running = set(re.findall(r"vmaxps\s.*, (%[yz]mm\d+)\n", asm))
    asked = set(re.findall(r"vcmpunordps\s+(%[yz]mm\d+)", asm))
    assert running and asked and not running & asked
