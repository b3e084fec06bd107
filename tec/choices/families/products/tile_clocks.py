"""What a step along the sum takes of a CPU's core for a register tile of a product: the price that tiles, and the panels of packed weights, are chosen by.

The constants were chosen on a Zen 3 core over 50 drawn products with some 2,000 timed tiles: the cheapest tile takes 1.09 of the best one's time in the geometric mean. The largest
tile that divides the rows, of one or two vectors, took 1.26, and 3.1 at worst.
"""

from __future__ import annotations

from ....ops.dims import Size
from ....target.cpus import Core

OPEN_ROWS = 8  # that a product has whose number of rows is symbolic
_LATENCY = 4.0  # clocks from a multiply-add to the next of its sum
_WIDTH, _LOOP = 5.7, 2  # instructions a clock; of a step's loop


def step(core: Core, rows: int, vectors: int) -> tuple[float, int]:
    """Clocks of a step of `rows` by `vectors` sums, and its instructions: multiply-adds, a broadcast of each operand of A (of one vector it is part of the multiply-add), loads of B."""
    sums = rows * vectors
    instructions = sums + rows * (vectors > 1) + vectors + _LOOP
    return max(sums / core.fma, (rows + vectors) / 2, _LATENCY, instructions / _WIDTH), instructions


def panel_vectors(core: Core, lanes: int, m: Size, n: int) -> int:
    """Vectors of a panel of B for `m` rows (symbolic ones are some) and `n` columns: those with which the product takes the fewest clocks, of equal ones two."""
    high = m if isinstance(m, int) else OPEN_ROWS

    def clocks(vectors: int) -> float:
        most = max(1, (core.registers - vectors - 1) // vectors)
        rows = -(-high // -(-high // most))
        return -(-high // rows) * -(-n // (vectors * lanes)) * step(core, rows, vectors)[0]

    return min((2, 3, 4, 1), key=lambda v: (clocks(v), abs(v - 2)))
