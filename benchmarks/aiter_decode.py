"""aiter's kernels in assembly for one step of decoding, MLA and paged attention, and for the choice of experts: their arguments, as `asm_mla.cu`, `asm_pa.cu` and `asm_topksoftmax.cu`
have them, and problems to hold them to NumPy. Every argument takes 16 bytes; strides are in bytes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

import tec
from benchmarks.aiter_attention import BF16, block_tables
from benchmarks.aiter_results import Arguments, Launch, Pairs, Read, compared, folder_of, row_of, tables, values

LATENT, VALUES = 576, 512  # of a place of MLA's cache, and how many of them are the values
_TYPES: dict[str, Any] = {"bf16": BF16, "fp16": np.float16, "int8": np.int8}


def _has_harness(name: str, row: dict[str, str]) -> None:
    if row.get("ps") == "1":
        raise tec.TecError(f"{name}: kernels with a plan of their work have no harness")
    if row.get("prefill") == "1":
        raise tec.TecError(f"{name}: MLA of whole prompts has no harness")
    if (
        row.get("Mtp", "0") != "0" and row["Msk"] == "0"
    ):  # `asm_pa.cu` asks for a mask wherever there are several queries
        raise tec.TecError(f"{name}: no caller asks for several queries without a mask")


def kind_of(chip: str, word: str) -> Any:
    return _TYPES.get(word, ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn)


def latent(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """One step of MLA: for each of the `splits` of a sequence's places sums in float32 and the logarithm of their weights, which another kernel joins. `sizes`: sequences, heads, places of
    each; a page of the cache is one place, pages in order. A sequence has as many queries as the table says."""
    batch, heads, length = sizes
    chip = args.driver.chip.name
    row = row_of(chip, name)
    _has_harness(name, row)
    queries = max(int(row["qSeqLen"]), 1)
    qk, kk = kind_of(chip, row["qType"]), kind_of(chip, row["kvType"])
    wq, wk = np.dtype(qk).itemsize, np.dtype(kk).itemsize
    counts = np.arange(batch + 1, dtype=np.int32)
    tables = [counts * length, np.arange(batch * length, dtype=np.int32), np.ones(batch, np.int32)]
    scales = [np.ones(1, np.float32)] * 2 if wq == 1 else []
    block_tables(args, 4, [*tables, counts * queries, counts * splits, *scales])
    args.pointers(batch * queries * splits * heads * VALUES * 4, batch * queries * splits * heads * 4)
    args.pointers(batch * queries * heads * LATENT * wq, batch * length * LATENT * wk, *(t.nbytes for t in tables))
    # Kernels of eight heads and two queries are told the heads alone (`asm_mla.cu`).
    each = heads if heads == 8 and queries == 2 else heads * queries
    args.numbers(LATENT**-0.5, each, splits, heads * LATENT * wq * queries, LATENT * wk, 0)
    args.pointers(counts.nbytes, counts.nbytes, 0, *(s.nbytes for s in scales or [np.zeros(0), np.zeros(0)]))
    args.numbers(int(splits == 1)).pointers(0, 0).numbers(1, 0)
    rows = 128 if int(row["Gqa"]) == 128 else 16 * max(1, -(-heads * queries // 16))
    return folder_of(chip, name), (-(-heads * queries // rows), batch, splits), 256


def latent_problem(chip: str, name: str, sizes: tuple[int, ...], splits: int, rng: np.random.Generator) -> Any:
    """MLA's parts, joined by their weights."""
    batch, heads, length = sizes
    row = row_of(chip, name)
    queries = max(int(row["qSeqLen"]), 1)
    q = rng.standard_normal((batch, queries, heads, LATENT)).astype(kind_of(chip, row["qType"]))
    kv = rng.standard_normal((batch * length, LATENT)).astype(kind_of(chip, row["kvType"]))
    wide = kv.astype(np.float32).reshape(batch, 1, length, LATENT)
    s = q.astype(np.float32) @ wide.transpose(0, 1, 3, 2) * LATENT**-0.5
    # Of two kernels with alike rows the one whose name does not say "causal" has no mask, whatever its row says.
    if row["causal"] == "1" and f"{name}_causal" not in tables(chip):
        place = np.arange(length)[None] <= length - queries + np.arange(queries)[:, None]
        s = np.where(place[:, None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = ((p / p.sum(-1, keepdims=True)) @ wide[..., :VALUES]).reshape(batch * queries, heads, VALUES)
    parts = np.zeros((batch * queries, splits, heads, VALUES), np.float32)
    logs = np.full((batch * queries, splits, heads), -np.inf, np.float32)

    def joined(read: Read) -> Pairs:
        part, log = values(read, 0, np.float32, parts.shape), values(read, 1, np.float32, logs.shape)
        weight = np.exp(log - log.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        return [((part * weight[..., None]).sum(1), want)]

    return [parts, logs, q, kv], joined


class Paged:
    """A problem of paged attention: what the name and the row say."""

    def __init__(self, chip: str, name: str):
        row = row_of(chip, name)
        _has_harness(name, row)
        self.out, self.kind = kind_of(chip, row["qType"]), kind_of(chip, row["kvType"])
        self.block = int(row["blkSz"])
        self.queries = {"0": 1, "1": 2}.get(row["Mtp"], int(row["Mtp"]) - 10)
        self.scaled = np.dtype(self.kind).itemsize == 1
        self.piece = 16 // np.dtype(self.kind).itemsize


def paged(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """The last queries of each sequence over a cache in blocks. `sizes`: sequences, heads, heads of keys, places of each, size; keys lie as (blocks, heads, size / 16 bytes, places, 16
    bytes), values as (blocks, heads, places / 16 bytes, size, 16 bytes), blocks in order; scales of 8-bit elements as (blocks, heads, places)."""
    batch, heads, of_keys, length, size = sizes
    chip = args.driver.chip.name
    p = Paged(chip, name)
    width = np.dtype(p.kind).itemsize
    blocks = -(-length // p.block)
    head = p.block * size * width
    cache, scales = batch * blocks * of_keys * head, batch * blocks * of_keys * p.block * 4 if p.scaled else 0
    tables = [np.arange(batch * blocks, dtype=np.int32), np.full(batch, length, np.int32)]
    given = list(reversed(args.data or [])) + [None] * 6
    starts = [np.arange(batch + 1, dtype=np.int32) * p.queries] if p.queries > 1 else []
    args.data = list(reversed([*given[:4], *tables, *(given[4:6] if p.scaled else []), *starts]))
    whole = batch * p.queries * heads * size * 2
    args.pointers(whole, whole, cache, cache, *(t.nbytes for t in tables), scales, scales)
    args.numbers(math.log2(math.e) * size**-0.5, blocks, of_keys, heads * size * 2, of_keys * head, head)
    args.numbers(p.queries - 1, heads // of_keys).pointers(starts[0].nbytes if starts else 0)
    return folder_of(chip, name), (of_keys, batch, 1), 256


def paged_problem(chip: str, name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> Any:
    batch, heads, of_keys, length, size = sizes
    p = Paged(chip, name)
    blocks = -(-length // p.block)
    q = rng.standard_normal((batch, p.queries, heads, size)).astype(p.out)
    shape = (batch, blocks * p.block, of_keys, size)
    if p.scaled:
        k, v = ((rng.integers(-16, 17, shape) / (1 if p.kind is np.int8 else 4)).astype(p.kind) for _ in range(2))
        unit = 1 / 64 if p.kind is np.int8 else 1 / 8
        sk, sv = ((rng.integers(1, 5, shape[:3]) * unit).astype(np.float32) for _ in range(2))
    else:
        k, v = (rng.standard_normal(shape).astype(p.kind) for _ in range(2))
        sk = sv = np.ones(shape[:3], np.float32)
    wk, wv = (
        np.repeat((x.astype(np.float32) * s[..., None])[:, :length], heads // of_keys, 2).transpose(0, 2, 1, 3)
        for x, s in ((k, sk), (v, sv))
    )
    scores = q.astype(np.float32).transpose(0, 2, 1, 3) @ wk.transpose(0, 1, 3, 2) * size**-0.5
    seen = np.arange(length)[None] <= length - p.queries + np.arange(p.queries)[:, None]
    masked = row_of(chip, name)["Msk"] == "1"
    scores = np.where(seen, scores, -np.inf) if masked else scores
    w = np.exp(scores - scores.max(-1, keepdims=True))
    want = ((w / w.sum(-1, keepdims=True)) @ wv).transpose(0, 2, 1, 3)
    n = batch * blocks
    keys = k.reshape(n, p.block, of_keys, size // p.piece, p.piece).transpose(0, 2, 3, 1, 4)
    vals = v.reshape(n, p.block // p.piece, p.piece, of_keys, size).transpose(0, 3, 1, 4, 2)
    arrays = [np.zeros_like(q), q, np.ascontiguousarray(keys), np.ascontiguousarray(vals)]
    of_scales = [np.ascontiguousarray(s.reshape(n, p.block, of_keys).transpose(0, 2, 1)) for s in (sk, sv)]
    return [*arrays, *(of_scales if p.scaled else [])], compared(0, p.out, want)


def chosen(name: str, sizes: tuple[int, ...], splits: int, args: Arguments) -> Launch:
    """The best experts of each token by softmax, their shares made to sum to one. `sizes`: tokens, experts, choices."""
    tokens, experts, choices = sizes
    row = row_of(args.driver.chip.name, name)
    width = 4 if row["dtype"] == "fp32" else 2
    args.pointers(tokens * choices * 4, tokens * choices * 4, tokens * experts * width)
    args.numbers(tokens, experts, choices, 1, choices * 4)
    return folder_of(args.driver.chip.name, name), (-(-tokens // int(row["subm"])), 1, 1), 256


def chosen_problem(chip: str, name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> Any:
    tokens, experts, choices = sizes
    kind = np.float32 if row_of(chip, name)["dtype"] == "fp32" else BF16
    # scores of a token are all different in 16 bits: which of equal ones is taken is nowhere stated
    scores = np.stack([rng.permutation(experts) for _ in range(tokens)]).astype(np.float32) / 128 - 1
    scores = scores.astype(kind)
    wide = scores.astype(np.float32)
    best = np.argsort(-wide, 1, kind="stable")[:, :choices]
    share = np.exp(np.take_along_axis(wide, best, 1))
    share /= share.sum(1, keepdims=True)

    def pairs(read: Read) -> Pairs:
        ids = read(0)[: best.size * 4].view(np.int32).reshape(best.shape)
        return [(ids.astype(np.float32), best.astype(np.float32)), (values(read, 1, np.float32, share.shape), share)]

    return [np.zeros(best.shape, np.int32), np.zeros(share.shape, np.float32), scores], pairs


def draw(chip: str, name: str, rng: np.random.Generator) -> tuple[tuple[int, ...], int]:
    """Sizes and splits that a kernel takes."""
    row = row_of(chip, name)
    _has_harness(name, row)
    if name.startswith("topksoftmax"):
        return (int(rng.integers(5, 30)), int(row["num_experts"]), int(row["topk"])), 1
    if name.lower().startswith("mla"):
        return (2, int(row["Gqa"]), int(rng.integers(100, 300))), 2
    gqa = int(row["Gqa"])
    return (2, 2 * gqa, 2, int(rng.integers(100, 300)), 128), 1
