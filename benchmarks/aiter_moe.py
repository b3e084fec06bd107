"""aiter's mixtures of experts in assembly: both products of the experts that each token is sent to in one kernel (`fmoe`), or the first of them (`fmoe_stage1`).

Arguments as `asm_fmoe.cu` and `asm_moe_2stage.cu` have them. Tokens are sorted by expert beforehand, each expert's filled up to blocks of rows. A work-group has a block of rows and a
part of the inner dimension: gate and up, SiLU or GELU, and its part of the sum of the second product, which it adds to the result. Persistent kernels ("ps") deal these out themselves.
Routing is drawn: published tables do not say theirs; aiter's tuner draws it from equal scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tec
from benchmarks.aiter_results import Arguments, Launch, compared, folder_of, preshuffled, row_of

_BLOCK = 128  # of scales, in both directions


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel computes, by its name and its row in the tables: `out`, the element type of the results; `kind`, that of the weights; `gated`, whether the first product has a gate
    and an up half; `smooth`, 1 where the kernel smooths and quantizes the tokens, 2 where the host has done it for each choice of a token; `weighted_first`, whether a token's share
    multiplies the first product and not the second."""

    out: Any
    kind: Any
    blocks: bool
    gated: bool
    smooth: int
    weighted_first: bool
    gelu: bool
    wide_tokens: bool


def form(chip: str, name: str) -> Form:
    """Of the kernel `name`. Raises TecError where the callers do not say what its arguments are."""
    row = row_of(chip, name)
    words = name.split("_")
    if int(row.get("flat") or 0):
        raise tec.TecError(f"{name} takes tokens that are not sorted")
    if "noquant" in name or "_atm_" in name or ("tkw1" in name and "Int8" in name):
        raise tec.TecError(f"no caller has {name}")
    if "MXfp4" in name:
        raise tec.TecError(f"{name}: weights of 4 bits have no harness")
    float8 = ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn
    smooth = int(row.get("smf") or 0)
    if "Int8" in name and "g1u0" in words and not smooth:
        smooth = 2  # rows by choice and token, as the code reads them, and inner values smoothed
    return Form(
        np.float16 if "fp16" in words else ml_dtypes.bfloat16,
        np.int8 if "Int8" in name else float8,
        "blockscale" in name,
        "g1u1" in words,
        smooth,
        "tkw1" in words or "doweight" in words,
        "gelu" in words,
        smooth == 1 or "blockscaleBf16" in words or "a16" in words,
    )


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


def _rows(chip: str, name: str) -> int:
    row = row_of(chip, name)
    return int(row.get("subGU_m") or row["tile_m"])


def _given(args: Arguments, count: int) -> list[np.ndarray | None]:
    given = list(reversed(args.data or []))
    return given + [None] * (count - len(given))


def fused(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """Both products. `sizes`: tokens, dimension, inner dimension, experts, choices of a token, compute units. Of the arrays of `args` those of the routing are drawn here (seed 0)."""
    tokens, dim, inner, experts, choices, units = sizes
    chip = args.driver.chip.name
    row, f = row_of(chip, name), form(chip, name)
    r = routing(tokens, experts, choices, _rows(chip, name))
    width = 2 if f.wide_tokens else 1
    halves = 2 if f.gated else 1
    rows = halves * inner
    scales = (rows // _BLOCK * (dim // _BLOCK), dim // _BLOCK * (inner // _BLOCK)) if f.blocks else (rows, dim)
    out, x, gate_up, down, *scale, smooth = _given(args, 8)
    routed = [np.array([r.count, tokens], np.int32), r.ids, r.weights, r.experts]
    tokens_scales = (dim if f.smooth == 1 else choices if f.smooth == 2 else dim // _BLOCK if f.blocks else 1) * 4
    tokens_scales *= experts if f.smooth == 1 else tokens
    no_scales = f.wide_tokens and not f.smooth
    data = [out, x, gate_up, routed[0], down, *scale[no_scales:]]
    args.data = list(reversed([*data, *([smooth] if f.smooth else []), *routed[1:]]))
    args.pointers(
        tokens * dim * 2, tokens * dim * width * (choices if f.smooth == 2 else 1), experts * rows * dim, 8,
        experts * dim * inner, 0 if no_scales else tokens_scales, experts * scales[0] * 4, experts * scales[1] * 4,
        experts * inner * 4 if f.smooth else 0, r.ids.nbytes, r.weights.nbytes, r.experts.nbytes,
    )  # fmt: skip
    columns = int(row["subGU_n"])
    parts = -(-inner // columns)
    stay = int(row["tg_num_perCU"]) * units if int(row["ps"]) else 0
    args.numbers(dim, inner, tokens, experts, dim * width, dim, inner, dim * 2, dim * rows, inner * dim)
    args.numbers(scales[0] * 4, scales[1] * 4, inner * 4, choices, stay // parts * parts, parts)
    grid = (stay, 1, 1) if stay and stay // parts else (parts, len(r.experts), 1)
    return folder_of(chip, name), (grid[1], grid[0], 1) if f.smooth == 1 else grid, 256


def first(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """The first product and its activation; `sizes` as of `fused`. The results are (tokens, choices, inner), of 8 bits with a scale for each 128 behind them where the scales are of
    blocks."""
    tokens, dim, inner, experts, choices, _ = sizes
    chip = args.driver.chip.name
    row, f = row_of(chip, name), form(chip, name)
    r = routing(tokens, experts, choices, _rows(chip, name))
    rows = 2 * inner
    scales = rows // _BLOCK * (dim // _BLOCK) if f.blocks else rows
    out, x, gate_up, sx, s1 = _given(args, 5)
    count = np.array([r.count, tokens], np.int32)
    args.data = list(reversed([out, x, gate_up, count, sx, s1, r.ids, r.experts, r.weights]))
    results = tokens * choices * inner
    args.pointers(results + -(-tokens * 4 // 128) * choices * inner if f.blocks else results * 2)
    args.pointers(tokens * dim, experts * rows * dim, 8, tokens * (dim // _BLOCK if f.blocks else 1) * 4)
    args.pointers(experts * scales * 4, 0, r.ids.nbytes, r.experts.nbytes)
    args.numbers(dim, inner, tokens, experts, dim, dim, choices * inner * (1 if f.blocks else 2), dim * rows)
    args.numbers(scales * 4, inner * 4, choices, 0, int(f.gelu))
    args.pointers(r.weights.nbytes if f.weighted_first else 0)
    return folder_of(chip, name), (-(-inner // int(row["tile_n"])), len(r.experts), 1), 256


def _active(f: Form, first_product: np.ndarray) -> np.ndarray:
    gate, up = np.split(first_product, 2) if f.gated else (first_product, np.float32(1))
    if f.gelu:
        inner = 0.5 * gate * (1 + np.tanh(0.7978846 * (gate + 0.044715 * gate**3)))
    else:
        inner = gate / (1 + np.exp(-gate))
    return np.asarray(inner * up, np.float32)


def problem(chip: str, name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Arrays for `fused` or `first`, and what NumPy makes of them: see `aiter_check.Problem`. Scales keep the inner values near one, where 8 bits hold them best."""
    tokens, dim, inner, experts, choices, _ = sizes
    f = form(chip, name)
    both = not name.startswith("fmoe_stage1")
    r = routing(tokens, experts, choices, _rows(chip, name))
    halves = 2 if f.gated else 1

    def drawn(*shape: int) -> np.ndarray:
        if f.kind is np.int8:
            return rng.integers(-4, 5, shape).astype(np.int8)
        return (rng.integers(-4, 5, shape) / 4).astype(np.float32).astype(f.kind)

    def powers(*shape: int, unit: float = 1 / 16) -> np.ndarray:
        return (rng.integers(1, 4, shape) * unit).astype(np.float32)

    w1, w2 = drawn(experts, halves * inner, dim), drawn(experts, dim, inner)
    unit = 1 / 64 if f.kind is np.int8 else 1 / 16
    part = _BLOCK if f.blocks else 1
    s1, s2 = (powers(experts, w.shape[1] // part, w.shape[2] // part if f.blocks else 1, unit=unit) for w in (w1, w2))
    full1, full2 = (w.astype(np.float32) for w in (w1, w2))
    full1 *= np.repeat(np.repeat(s1, _BLOCK, 1), _BLOCK, 2) if f.blocks else s1
    full2 *= np.repeat(np.repeat(s2, _BLOCK, 1), _BLOCK, 2) if f.blocks else s2
    smooth1, smooth2 = powers(experts, dim, unit=0.5), powers(experts, inner, unit=0.5)
    if f.wide_tokens:
        x: np.ndarray = rng.standard_normal((tokens, dim)).astype(f.out)
        sx = smooth1
        seen = x.astype(np.float32)[:, None] * (smooth1[r.chosen] if f.smooth else 1.0)
        seen = np.broadcast_to(seen, (tokens, choices, dim))
    elif f.smooth == 2:
        x, sx = drawn(choices, tokens, dim), powers(choices, tokens)
        seen = (x.astype(np.float32) * sx[..., None]).transpose(1, 0, 2)
    else:
        x, sx = drawn(tokens, dim), powers(tokens, dim // part if f.blocks else 1)
        scaled = x.astype(np.float32) * (np.repeat(sx, _BLOCK, 1) if f.blocks else sx)
        seen = np.broadcast_to(scaled[:, None], (tokens, choices, dim))
        sx = np.ascontiguousarray(sx.T)
    middle = np.zeros((tokens, choices, inner), np.float32)
    want = np.zeros((tokens, dim), np.float32)
    for t in range(tokens):
        for c in range(choices):
            e = int(r.chosen[t, c])
            product = full1[e] @ seen[t, c]
            middle[t, c] = _active(f, product * r.shares[t, c] if f.weighted_first else product)
            act = middle[t, c] * smooth2[e] if f.smooth else middle[t, c]
            want[t] += (1 if f.weighted_first else r.shares[t, c]) * (full2[e] @ act)
    packed = [np.stack([preshuffled(m) for m in w]) for w in (w1, w2)]
    if both:
        out = np.zeros((tokens, dim), f.out)
        return [out, x, *packed, sx, s1, s2, smooth2], compared(0, f.out, want)
    arrays = [np.zeros((tokens, choices, inner), ml_dtypes.bfloat16), x, packed[0], sx, s1]
    if not f.blocks:
        return arrays, compared(0, ml_dtypes.bfloat16, middle)

    def scaled_blocks(read: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        n = tokens * choices * inner
        values = read(0)[:n].view(f.kind).astype(np.float32).reshape(tokens, choices, inner // _BLOCK, _BLOCK)
        scales = read(0)[n : n + 4 * (n // _BLOCK)].view(np.float32).reshape(tokens, choices, -1, 1)
        return [((values * scales).reshape(middle.shape), middle)]

    arrays[0] = np.zeros(tokens * choices * inner + -(-tokens * 4 // 128) * choices * inner, np.uint8)
    return arrays, scaled_blocks


def draw(chip: str, name: str, rng: np.random.Generator) -> tuple[tuple[int, ...], int]:
    """Sizes that the kernel's tile takes, and one split."""
    row = row_of(chip, name)
    columns = int(row.get("subGU_n") or row["tile_n"])
    inner = columns * (1 if columns >= 256 else int(rng.integers(1, 3)))
    if form(chip, name).blocks:
        inner = -(-inner // _BLOCK) * _BLOCK
    tokens = int(rng.integers(2, 9))
    return (tokens, 512, inner, 4, 2, 8), 1


WHERE = (Path("fmoe"), Path("fmoe_2stages"))
