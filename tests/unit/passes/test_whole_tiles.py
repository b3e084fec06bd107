"""Stores of ragged tiles, twice."""

from __future__ import annotations

from pass_util import CPU, apply, check_same, parse_func

from tec.target import Target

NVIDIA = Target("cuda -arch=sm_90a")
TILE = """
def f(A: Buffer((32,), "float32"), X: Buffer((32,), "float32"), n: int32, m: int32):
    for i in range(4):
        if likely(i * 8 < n):
            A[i * 8] = X[i * 8] + 1.0
        if likely(i * 8 + 1 < n):
            A[i * 8 + 1] = X[i * 8 + 1] + 2.0
        if likely(i * 8 < n):
            if likely(i < m):
                A[i * 8 + 2] = X[i * 8 + 2] + 3.0
        if likely(i * 8 + 1 < n) and likely(i < m):
            A[i * 8 + 3] = X[i * 8 + 3] + 4.0
"""


def test_a_whole_tile_is_stored_without_conditions() -> None:
    before = parse_func(TILE)
    after = apply(before, NVIDIA, "whole_tiles")
    for n, m in ((32, 4), (32, 2), (9, 4), (8, 1), (0, 4)):
        check_same(before, after, n=n, m=m)
    first = next(line.strip() for line in str(after.body).splitlines() if "if" in line)
    assert all(c in first for c in ("i * 8 < n", "i * 8 + 1 < n", "i < m"))
    assert str(after.body).count("A[i * 8 + 3] =") == 2


def test_what_stays_as_it_is() -> None:
    for text in (
        TILE.replace("likely(i < m)", "i < m"),  # no guard of a split
        TILE.replace("likely(i < m)", "likely(X[i] < 3.0)"),  # what the stores may change
        TILE.replace("X[i * 8", "0.0 * float32(i * 8").replace("] +", ") +"),  # nothing is read
    ):
        func = parse_func(text)
        assert str(apply(func, NVIDIA, "whole_tiles").body) == str(func.body)
    func = parse_func(TILE)
    assert apply(func, CPU, "whole_tiles") is func
