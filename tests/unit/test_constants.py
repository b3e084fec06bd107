"""What counts as a constant of one machine: a number whose reason names a chip, a network or a time."""

from __future__ import annotations

import pytest

from tools.constants import constants_of

TOLD = """
A = 4  # ResNet-50's late layers want four
# One H200: 4.4 us by 32 threads
# a row.
B = (
    32,
    64,
)
def f(x):
    '''Two of them (gfx1100: 3 us).'''
    return x * 2
if A > 3:  # BERT's rows
    C = 1
"""
UNTOLD = """
D = 16  # bytes of the widest load
E = 0  # measured on an MI300X: none
F = "text"  # 3 us
def g(x):
    '''As an H200 does.'''
    return x + 1
"""


def test_numbers_with_such_a_reason_are_listed():
    assert [c.line for c in constants_of(TOLD, "x.py")] == [2, 5, 9, 12]


def test_other_numbers_are_not():
    assert list(constants_of(UNTOLD, "x.py")) == []


@pytest.mark.parametrize("words", ["MI250X", "H100", "sm_90a", "RX 7900 XTX", "Zen 4", "MobileNet-v2", "12.5 us", "3 GB/s"])  # fmt: skip
def test_each_kind_of_word_tells(words: str):
    (found,) = constants_of(f"A = 7  # {words}\n", "x.py")
    assert found.words and str(found).startswith("x.py:1: ")
