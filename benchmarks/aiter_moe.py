"""aiter's fused mixtures of experts in assembly: one kernel for both products of the experts that each token is sent to (`fused_moe.py`, `asm_fmoe.cu` of ROCm/aiter).

Tokens are sorted by expert beforehand, each expert's filled up to blocks of rows. A work-group has a block of rows and a part of the inner dimension: gate and up, SiLU, and its part of
the sum of the second product, which it adds to the result. Persistent kernels ("ps") deal these out themselves. Routing is drawn: published tables do not say theirs; aiter's tuner draws it
from equal scores.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tec
from benchmarks.aiter_results import Arguments, Launch, folder

WHERE = Path("fmoe/silu")
_BLOCK = 128  # of scales, in both directions


@dataclass(frozen=True, slots=True)
class Tile:
    """Of a kernel: rows and inner columns of a work-group; work-groups that stay on a compute unit (0: as many as there is work); its code object."""

    rows: int
    columns: int
    stay: int
    file: str


def tile(chip: str, name: str) -> Tile:
    """As the tables beside the code objects say. Raises TecError for a kernel that no table has, and for one that takes tokens unsorted."""
    for path in sorted((folder() / chip / WHERE).glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as f:
            for row in csv.DictReader(f):
                if row["knl_name"] == f"_ZN5aiter{len(name)}{name}E":
                    if int(row.get("flat") or 0):
                        raise tec.TecError(f"{name} takes tokens that are not sorted")
                    stay = int(row["tg_num_perCU"]) if int(row["ps"]) else 0
                    return Tile(int(row["subGU_m"]), int(row["subGU_n"]), stay, row["co_name"])
    raise tec.TecError(f"no table beside the code objects has {name}")


@dataclass(frozen=True, slots=True)
class Routing:
    """Tokens by expert in blocks: `ids` (token, and the number of its choice in the highest byte; past the last token in what is filled up), `weights`, `experts` of the blocks, as many
    as there could be; `count` of ids. `chosen` and `shares`: (tokens, choices)."""

    ids: np.ndarray
    weights: np.ndarray
    experts: np.ndarray
    count: int
    chosen: np.ndarray
    shares: np.ndarray


def routing(tokens: int, experts: int, choices: int, block: int, seed: int = 0) -> Routing:
    """Each token's experts, drawn from equal scores."""
    rng = np.random.default_rng(seed)
    chosen = np.argsort(rng.random((tokens, experts)), axis=1)[:, :choices].astype(np.int64)
    shares = rng.random((tokens, choices), dtype=np.float32)
    shares /= shares.sum(1, keepdims=True)
    most = -(-(tokens * choices + experts * block - choices) // block)
    ids = np.full(most * block, tokens | choices << 24, np.int32)
    weights, owners = np.zeros(most * block, np.float32), np.zeros(most, np.int32)
    at = 0
    for expert in range(experts):
        token, choice = np.nonzero(chosen == expert)
        n = len(token)
        if not n:
            continue
        ids[at : at + n] = token | choice << 24
        weights[at : at + n] = shares[token, choice]
        blocks = -(-n // block)
        owners[at // block : at // block + blocks] = expert
        at += blocks * block
    return Routing(ids, weights, owners, at, chosen, shares)


def fused(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """8-bit floats, or bfloat16 that the kernel makes such. `sizes`: tokens, dimension, inner dimension, experts, choices of a token, compute units. Of the arrays of `args` those of the
    routing are drawn here (seed 0)."""
    tokens, dim, inner, experts, choices, units = sizes
    t = tile(args.driver.chip.name, name)
    r = routing(tokens, experts, choices, t.rows)
    width = 2 if "Bf16_" in name else 1
    blocks = "blockscale" in name
    rows, columns = 2 * inner, dim
    scales = (rows // _BLOCK * (columns // _BLOCK), columns // _BLOCK * (inner // _BLOCK)) if blocks else (rows, dim)
    given = list(reversed(args.data or [])) + [None] * 7
    out, x, gate_up, down, *of = given[:7]
    routed = [np.array([r.count, tokens], np.int32), r.ids, r.weights, r.experts]
    args.data = list(reversed([out, x, gate_up, routed[0], down, *of, *routed[1:]]))
    args.pointers(tokens * dim * 2, tokens * dim * width, experts * rows * dim, 8, experts * dim * inner)
    args.pointers(
        tokens * (dim // _BLOCK if blocks else 1) * 4, experts * scales[0] * 4, experts * scales[1] * 4, 0
    ).pointers(r.ids.nbytes, r.weights.nbytes, r.experts.nbytes)
    parts = -(-inner // t.columns)
    stay = t.stay * units
    args.numbers(dim, inner, tokens, experts, dim * width, dim, inner, dim * 2, dim * rows, inner * dim)
    args.numbers(scales[0] * 4, scales[1] * 4, inner * 4, choices, stay // parts * parts, parts)
    grid = (stay, 1, 1) if stay and stay // parts else (parts, len(r.experts), 1)
    return WHERE / t.file, grid, 256
