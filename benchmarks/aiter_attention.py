"""aiter's kernels in assembly for the gradient of attention, decoding with a latent cache (MLA) and paged attention: their arguments, as `mha_bwd.cu`, `asm_mla.cu` and `asm_pa.cu` have them.

Every argument takes 16 bytes; strides are in bytes. `aiter_attention_check` holds each of them to NumPy.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from benchmarks.aiter_results import Arguments, Launch

ROWS_ODO, ROWS_KEYS, ROWS_CONVERT = (
    128,
    256,
    64,
)  # of a work-group: the tables `fmha_bwd_*.csv` beside the code objects, gfx950, heads of 128


def gradient(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """The gradient of attention by three kernels, by their names: "odo" (sums of the result times its gradient), the gradients of the keys and values with a sum in float32 of that
    of the queries, and "dq_convert" of that sum to 16 bits. `sizes`: batch, heads, heads of keys, places, size; in memory places before heads, the keys' gradients with a head for each of
    the queries'."""
    batch, heads, of_keys, length, size = sizes
    row, row_kv, head = heads * size * 2, of_keys * size * 2, size * 2
    whole, whole_kv, sums = batch * length * row, batch * length * row_kv, batch * heads * length * 4
    if "_odo_" in name:
        args.pointers(whole, whole, sums)
        args.numbers(head, length * row, row, head, length * row, row, length * 4, heads * length * 4, 4, length, size)
        args.pointers(0, 0)
        return Path("fmha_v3_bwd"), (-(-length // ROWS_ODO), heads, batch), 256
    if "_dq_convert_" in name:
        args.pointers(2 * whole, whole)
        args.numbers(length * size * 4, heads * length * size * 4, size * 4, head, length * row, row, length, size)
        args.pointers(0, 0)
        return Path("fmha_v3_bwd"), (-(-length // ROWS_CONVERT), heads, batch), 256
    args.zeros(2 * whole) if args.data is None else args.pointers(2 * whole)
    args.pointers(whole, whole, whole, whole_kv, whole_kv, whole, sums, sums)
    args.numbers(size**-0.5, math.log2(math.e), length, ROWS_KEYS * row_kv, head, length * row, row, heads // of_keys)
    args.numbers(head, length * row_kv, row_kv, row, length, size, size, heads, head, length * row_kv, row_kv)
    args.numbers(head, length * row, row, head, length * row, head, length * row, row, length * 4)
    args.pointers(0, 0, 0, 0).numbers(length, 0, 0)
    tiles = -(-length // ROWS_KEYS)
    return Path("fmha_v3_bwd"), (-(-tiles // 2) if "causal" in name else tiles, heads, batch), 256


LATENT, VALUES = 576, 512  # of a place of MLA's cache, and how many of them are the values
BLOCK = 16  # places of a block of a paged cache


def _tables(args: Arguments, places: int, tables: list[np.ndarray]) -> None:
    """Put the tables that say where a cache lies behind the `places` arrays that come before them: addresses depend on them, also where nobody gives data."""
    given = list(reversed(args.data or []))
    given += [None] * (places - len(given))
    args.data = list(reversed([*given[:places], *tables]))


def latent(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """One step of MLA in bfloat16, one query of 16 heads a sequence: for each of the `splits` of a sequence's places sums in float32 and the logarithm of their weights, which another
    kernel joins. `sizes`: sequences, heads, places of each; a page of the cache is one place, pages in order."""
    batch, heads, length = sizes
    counts = np.arange(batch + 1, dtype=np.int32)
    tables = [counts * length, np.arange(batch * length, dtype=np.int32), np.ones(batch, np.int32)]
    _tables(args, 4, [*tables, counts, counts * splits])
    args.pointers(batch * splits * heads * VALUES * 4, batch * splits * heads * 4)
    args.pointers(batch * heads * LATENT * 2, batch * length * LATENT * 2, *(t.nbytes for t in tables))
    args.numbers(LATENT**-0.5, heads, splits, heads * LATENT * 2, LATENT * 2, 0)
    args.pointers(counts.nbytes, counts.nbytes, 0, 0, 0).numbers(0).pointers(0, 0).numbers(1, 0)
    return Path("mla"), (1, batch, splits), 256


def paged(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """One query of each sequence over a cache in blocks of `BLOCK` places, in bfloat16. `sizes`: sequences, heads, heads of keys, places of each, size; keys lie as (blocks, heads, size / 8,
    places, 8), values as (blocks, heads, places / 8, size, 8), blocks in order."""
    batch, heads, of_keys, length, size = sizes
    blocks = -(-length // BLOCK)
    head = BLOCK * size * 2
    cache = batch * blocks * of_keys * head
    tables = [np.arange(batch * blocks, dtype=np.int32), np.full(batch, length, np.int32)]
    _tables(args, 4, tables)
    args.pointers(batch * heads * size * 2, batch * heads * size * 2, cache, cache, *(t.nbytes for t in tables), 0, 0)
    args.numbers(math.log2(math.e) * size**-0.5, blocks, of_keys, heads * size * 2, of_keys * head, head, 0)
    args.numbers(heads // of_keys).pointers(0)
    return Path("pa"), (of_keys, batch, 1), 256
