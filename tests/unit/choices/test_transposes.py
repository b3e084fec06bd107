"""Which tiles turn an operand round by default."""

from __future__ import annotations

from tec import te
from tec.choices import spaces


def test_a_ragged_tile_leaves_few_conditional_loads_to_a_thread() -> None:
    """85 channels at 13 x 13: each load waits for the one before. Whole tiles stay as they were."""

    def elements(channels: int, side: int) -> int:
        x = te.placeholder((side * side, channels), "float16", name="x")
        y = te.compute((1, channels, side, side), lambda n, c, i, j: x((n * side + i) * side + j, c), name="y")
        (space, *_) = spaces([y], "rocm -mcpu=mi300x")
        return int(space.default["tile"] ** 2 // space.default["threads"])

    assert elements(85, 13) <= 4
    assert elements(256, 56) == 16
