"""What a step along the sum takes of a CPU's core for a register tile of a product: the price that tiles, and the panels of packed weights, are chosen by.

Its figures are rows of "cpu register tile" (`rules.figures`): `latency`, clocks from a multiply-add to the next of its sum; `width`, instructions a clock; `loop`, instructions of a step's
loop; `loads`, of a clock; `tile`, clocks of a tile beside its sums.
"""

from __future__ import annotations

from functools import lru_cache

from ....ops.dims import Size
from ....target import Target
from ...rules import figures

TEMPLATE = "cpu register tile"
LINE_BYTES = 64  # of a cache
_EMBEDDED = 64  # bytes of vectors from which on a multiply-add takes one element of memory for all lanes
OPEN_ROWS = 8  # that a product has whose number of rows is symbolic
SOME_ROWS = (8, 64, 512)  # by all of which the tile of such a product is judged


@lru_cache(maxsize=4096)  # a search asks for the same tiles for each product of a network
def step(target: Target, rows: int, vectors: int, load: float = 1, chains: int = 1) -> tuple[float, float]:
    """Clocks of a step of `rows` by `vectors` sums, and its instructions: multiply-adds, a broadcast of each operand of A (of one vector it is part of an AVX-512 core's
    multiply-add), loads of B, of `load` instructions each. chains: of additions for each sum."""
    told, sums, loads = figures.of(TEMPLATE, target), rows * vectors, vectors * load
    is_apart = vectors > 1 or target.core.vector_bytes < _EMBEDDED
    instructions = sums + rows * is_apart + loads + told["loop"]
    return max(
        sums / target.core.fma, (rows + loads) / told["loads"], told["latency"] / chains, instructions / told["width"]
    ), instructions


def panel_vectors(target: Target, lanes: int, m: Size, n: int) -> int:
    """Vectors of a panel of B for `m` rows (symbolic ones are some) and `n` columns: those with which the product takes the fewest clocks, of equal ones two. The lines of both operands
    come from the second-level cache, many under way, as in products that are worth panels. One vector is for few columns alone: sums would share no operand of A, whose rows often lie
    in the same places of a cache."""
    high = m if isinstance(m, int) else OPEN_ROWS
    told = figures.of("cpu product", target)
    line = told["l2_clocks"] / told["misses"]

    def clocks(vectors: int) -> float:
        most = max(1, (target.core.registers - vectors - 1) // vectors)
        rows = -(-high // -(-high // most))
        lines = 4 * (vectors * lanes + rows) / LINE_BYTES
        return -(-high // rows) * -(-n // (vectors * lanes)) * (step(target, rows, vectors)[0] + lines * line)

    return 1 if n <= lanes else min((2, 3, 4), key=lambda v: (clocks(v), v))


def blocked_tile(target: Target, channels: int, width: int, vectors: int = 1) -> tuple[float, int, int]:
    """Of a convolution of blocked channels: clocks of a step along the sum for a row of `width` columns of all `channels` (in blocks of so many vectors), and columns and blocks of the
    tile that takes the fewest. Of two blocks, or vectors, it has as many columns as LLVM, which loads a step's input ahead, has registers for."""
    registers = target.core.registers
    tiles = [(c, b) for b in (1, 2) if b <= channels for c in range(1, width + 1)]

    def fits(columns: int, blocks: int) -> bool:
        own = blocks * vectors
        return columns * own + (own + 1 if own == 1 else columns + own - 1) <= registers

    def clocks(columns: int, blocks: int) -> float:
        return -(-channels // blocks) * -(-width // columns) * step(target, columns, blocks * vectors)[0]

    return min((clocks(*t), *t) for t in tiles if fits(*t) or t == (1, 1))


def again_clocks(target: Target, held: float, times: float) -> float:
    """Of a core, of bytes that come again so many times, from the level that holds them."""
    core, told = target.core, figures.of("cpu product", target)
    away = told["memory_clocks"] if held > core.l2_bytes else told["l2_clocks"] if held > core.l1_bytes / 2 else 0.0
    return times * held / LINE_BYTES * away / told["misses"]


def walk_clocks(target: Target, image: float, weights: float, images: int, blocks: int, rows: int) -> tuple[float, float]:  # fmt: skip
    """Of a core, of what a convolution's tiles bring again: where they walk along blocks of channels last, each image (so many bytes) for each further block; where along rows of the
    result, of all images, all weights for each further row."""
    return again_clocks(target, image, images * (blocks - 1)), again_clocks(target, weights, rows - 1)
