"""aiter's kernels for the gradient of attention, MLA and paged attention, held to NumPy: `aiter_check` runs these problems beside its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.aiter_attention import BLOCK, LATENT, VALUES

BF16: Any = ml_dtypes.bfloat16
Arrays = list[np.ndarray | None]
Read = Callable[[int], np.ndarray]  # the bytes of an argument by its number among the pointers that are not null
Problem = tuple[
    Arrays, Callable[[Read], list[tuple[np.ndarray, np.ndarray]]]
]  # arrays in the order of the arguments; (what the kernel made, NumPy's) of what it left

CASES: tuple[tuple[str, str, tuple[int, ...], int], ...] = (
    ("gfx950", "bwd_hd128_odo_bf16", (1, 2, 1, 256, 128), 1),
    ("gfx950", "bwd_hd128_bf16_a32_psskddv", (1, 2, 1, 512, 128), 1),
    ("gfx950", "bwd_hd128_bf16_causal_br_a32_psskddv", (1, 1, 1, 256, 128), 1),
    ("gfx950", "bwd_hd128_dq_convert_bf16", (1, 2, 2, 256, 128), 1),
    ("gfx942", "mla_dec_stage1_bf16_a16w16_subQ16_mqa16", (2, 16, 200), 2),
    ("gfx942", "pa_bf16_noquant_gqa8_1tg_4w", (2, 16, 2, 200, 128), 1),
)


def _as(read: Read, which: int, kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    n = int(np.prod(shape)) * np.dtype(kind).itemsize
    return read(which)[:n].view(kind).astype(np.float32).reshape(shape)


def _drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(BF16)


def _wide(x: np.ndarray, times: int = 1) -> np.ndarray:
    """(batch, heads, places, size) in float32, each head so many times."""
    return np.repeat(x.astype(np.float32).transpose(0, 2, 1, 3), times, 1)


def gradient(name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> Problem:
    """One of the three kernels of the gradient, from the results of those before it by NumPy."""
    batch, heads, of_keys, length, size = sizes
    q, do = _drawn(rng, batch, length, heads, size), _drawn(rng, batch, length, heads, size)
    k, v = _drawn(rng, batch, length, of_keys, size), _drawn(rng, batch, length, of_keys, size)
    wq, wdo, (wk, wv) = _wide(q), _wide(do), (_wide(x, heads // of_keys) for x in (k, v))
    s = wq @ wk.transpose(0, 1, 3, 2) * size**-0.5
    if "causal" in name:
        s = np.where(np.tri(length, dtype=bool), s, -np.inf)
    top = s.max(-1, keepdims=True)
    lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True))
    p = np.exp(s - lse)
    o = (p @ wv).transpose(0, 2, 1, 3).astype(BF16)
    sums = (_wide(o) * wdo).sum(-1).astype(np.float32)
    out = np.zeros_like(q)
    if "_odo_" in name:
        return [o, do, np.zeros_like(sums)], lambda read: [(_as(read, 2, np.float32, sums.shape), sums)]
    ds = p * (wdo @ wv.transpose(0, 1, 3, 2) - sums[..., None]) * size**-0.5
    dq, dk, dv = ds @ wk, ds.transpose(0, 1, 3, 2) @ wq, p.transpose(0, 1, 3, 2) @ wdo
    back = [x.transpose(0, 2, 1, 3) for x in (dq, dk, dv)]
    if "_dq_convert_" in name:
        return [dq, out], lambda read: [(_as(read, 1, BF16, out.shape), back[0])]
    arrays: Arrays = [np.zeros(dq.shape, np.float32), out, out, q, k, v, do, lse[..., 0].astype(np.float32), sums]
    return arrays, lambda read: [
        (_as(read, 0, np.float32, dq.shape), dq), *((_as(read, 1 + i, BF16, out.shape), back[1 + i]) for i in range(2)),
    ]  # fmt: skip


def latent(sizes: tuple[int, ...], splits: int, rng: np.random.Generator) -> Problem:
    """MLA's parts, joined by their weights."""
    batch, heads, length = sizes
    q, kv = _drawn(rng, batch, heads, LATENT), _drawn(rng, batch * length, LATENT)
    wide = kv.astype(np.float32).reshape(batch, length, LATENT)
    s = q.astype(np.float32) @ wide.transpose(0, 2, 1) * LATENT**-0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    want = (p / p.sum(-1, keepdims=True)) @ wide[..., :VALUES]
    parts, logs = (
        np.zeros((batch, splits, heads, VALUES), np.float32),
        np.full((batch, splits, heads), -np.inf, np.float32),
    )

    def joined(read: Read) -> list[tuple[np.ndarray, np.ndarray]]:
        part, log = _as(read, 0, np.float32, parts.shape), _as(read, 1, np.float32, logs.shape)
        weight = np.exp(log - log.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        return [((part * weight[..., None]).sum(1), want)]

    return [parts, logs, q, kv], joined


def paged(sizes: tuple[int, ...], rng: np.random.Generator) -> Problem:
    batch, heads, of_keys, length, size = sizes
    blocks = -(-length // BLOCK)
    q = _drawn(rng, batch, heads, size)
    k, v = (_drawn(rng, batch, blocks * BLOCK, of_keys, size) for _ in range(2))
    wk, wv = (_wide(x, heads // of_keys)[:, :, :length] for x in (k, v))
    s = (q.astype(np.float32)[:, :, None] @ wk.transpose(0, 1, 3, 2))[:, :, 0] * size**-0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    want = ((p / p.sum(-1, keepdims=True))[:, :, None] @ wv)[:, :, 0]
    keys = k.reshape(batch * blocks, BLOCK, of_keys, size // 8, 8).transpose(0, 2, 3, 1, 4)
    values = v.reshape(batch * blocks, BLOCK // 8, 8, of_keys, size).transpose(0, 3, 1, 4, 2)
    out = np.zeros_like(q)
    return [out, q, np.ascontiguousarray(keys), np.ascontiguousarray(values)], lambda read: [
        (_as(read, 0, BF16, out.shape), want)
    ]


def problem(name: str, sizes: tuple[int, ...], splits: int) -> Problem:
    rng = np.random.default_rng(0)
    if name.startswith("bwd"):
        return gradient(name, sizes, rng)
    return latent(sizes, splits, rng) if name.startswith("mla") else paged(sizes, rng)


KINDS = ("bwd", "mla", "pa")
