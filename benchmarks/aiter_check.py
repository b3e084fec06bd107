"""aiter's assembly kernels run on the software GPU and held to NumPy: the arguments that `aiter_results` gives them are right. One JSON object a line.

AITER=aiter python benchmarks/aiter_check.py [--chip gfx942] [--kernel f4gemm]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tec
from benchmarks import aiter_attention_check, aiter_moe
from benchmarks.aiter_results import load

# (chip, code object, sizes, splits)
CASES: tuple[tuple[str, str, tuple[int, ...], int], ...] = (
    ("gfx950", "bf16gemm_bf16_tn_256x256", (256, 256, 256), 1),
    ("gfx950", "bf16gemm_fp32bf16_tn_64x64_splitk_clean", (64, 128, 512, 4), 2),
    ("gfx942", "bf16gemm_fp32bf16_tn_32x64_splitk_clean", (32, 128, 512), 2),
    ("gfx942", "I8gemm_bf16_perTokenI8_BpreShuffle_112x256", (112, 256, 512), 1),
    ("gfx942", "I8gemm_bf16_perTokenI8_BpreShuffle_32x128", (48, 256, 512), 2),
    ("gfx942", "fp8gemm_bf16_blockscale_BpreShuffle_128x128", (128, 256, 512), 1),
    ("gfx942", "fp8gemm_bf16_blockscale_BpreShuffle_32x128", (32, 128, 512), 2),
    ("gfx950", "fp8gemm_bf16_blockscale_BpreShuffle_48x128", (48, 128, 512), 1),
    ("gfx950", "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128", (32, 128, 512), 1),
    ("gfx950", "f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256", (256, 256, 512), 1),
    ("gfx950", "f4gemm_bf16_per1x32Fp4_BpreShuffle_96x256", (80, 256, 1024), 1),
    ("gfx950", "fwd_hd128_bf16", (1, 2, 2, 256, 128), 1),
    ("gfx950", "fwd_hd128_bf16_causal", (1, 2, 1, 512, 128), 1),
    ("gfx942", "fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256", (6, 512, 256, 4, 2, 8), 1),
    ("gfx942", "fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x128", (6, 512, 256, 4, 2, 8), 1),
    ("gfx950", "fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x192", (6, 512, 192, 4, 2, 8), 1),
)


def shuffled(w: np.ndarray) -> np.ndarray:
    """Bytes of B as the kernels that say "BpreShuffle" read them: blocks of 16 rows by 32 bytes, of each the halves of 16 bytes."""
    n, k = w.shape
    return np.ascontiguousarray(w.reshape(n // 16, 16, k // 32, 2, 16).transpose(0, 2, 3, 1, 4))


def shuffled_scales(s: np.ndarray) -> np.ndarray:
    """Scales of (rows, blocks), filled up to 256 rows and 8 blocks, in the order of a scaled MFMA's lanes."""
    rows, blocks = -(-s.shape[0] // 256) * 256, -(-s.shape[1] // 8) * 8
    whole = np.full((rows, blocks), 127, np.uint8)
    whole[: s.shape[0], : s.shape[1]] = s
    return np.ascontiguousarray(whole.reshape(rows // 32, 2, 16, blocks // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1))


Problem = tuple[list[np.ndarray], np.ndarray, Any]  # arrays in the order of the arguments, the result, its type


def bf16(m: int, n: int, k: int, rng: np.random.Generator, out: Any) -> Problem:
    a, b = (rng.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k)))
    return [np.zeros((m, n), out), a, b], a.astype(np.float32) @ b.astype(np.float32).T, out


def i8(m: int, n: int, k: int, rng: np.random.Generator) -> Problem:
    a, b = (rng.integers(-8, 9, s).astype(np.int8) for s in ((m, k), (n, k)))
    sa, sb, bias = (rng.integers(1, 5, s).astype(np.float32) / 4 for s in (m, n, n))
    want = (a.astype(np.float32) @ b.astype(np.float32).T) * sa[:, None] * sb + bias
    return [np.zeros((m, n), ml_dtypes.bfloat16), a, shuffled(b.view(np.uint8)), sa, sb, bias], want, ml_dtypes.bfloat16


def f8(m: int, n: int, k: int, rng: np.random.Generator, kind: Any) -> Problem:
    a, b = ((rng.integers(-4, 5, s) / 2).astype(np.float32).astype(kind) for s in ((m, k), (n, k)))
    sa, sb = (rng.integers(1, 5, s).astype(np.float32) / 4 for s in ((m, k // 128), (n // 128, k // 128)))
    wide = a.astype(np.float32) * np.repeat(sa, 128, 1)
    want = wide @ (b.astype(np.float32) * np.repeat(np.repeat(sb, 128, 0), 128, 1)).T
    arrays = [np.zeros((m, n), ml_dtypes.bfloat16), a, shuffled(b.view(np.uint8)), np.ascontiguousarray(sa.T), sb]
    return [*arrays, np.zeros(n, np.float32)], want, ml_dtypes.bfloat16


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def f4(m: int, n: int, k: int, rng: np.random.Generator) -> Problem:
    codes = [rng.integers(0, 16, s).astype(np.uint8) for s in ((m, k), (n, k))]
    scales = [rng.integers(126, 129, s).astype(np.uint8) for s in ((m, k // 32), (n, k // 32))]
    a, b = (
        FP4[c & 7] * np.where(c & 8, -1, 1) * np.repeat(2.0 ** (s.astype(np.float32) - 127), 32, 1)
        for c, s in zip(codes, scales)
    )
    packed = [c[:, ::2] | c[:, 1::2] << 4 for c in codes]
    out = np.zeros((-(-m // 32) * 32, n), ml_dtypes.bfloat16)
    return [out, packed[0], shuffled(packed[1]), *map(shuffled_scales, scales)], a @ b.T, ml_dtypes.bfloat16


def attention(sizes: tuple[int, ...], rng: np.random.Generator, causal: bool) -> Problem:
    batch, heads, of_keys, length, size = sizes
    q = rng.standard_normal((batch, length, heads, size)).astype(ml_dtypes.bfloat16)
    k, v = (rng.standard_normal((batch, length, of_keys, size)).astype(ml_dtypes.bfloat16) for _ in range(2))
    wide = [np.repeat(x.astype(np.float32), heads // x.shape[2], 2).transpose(0, 2, 1, 3) for x in (q, k, v)]
    s = wide[0] @ wide[1].transpose(0, 1, 3, 2) * size**-0.5
    if causal:
        s = np.where(np.tri(length, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = (p / p.sum(-1, keepdims=True)) @ wide[2]
    return [np.zeros_like(q), q, k, v], want.transpose(0, 2, 1, 3), ml_dtypes.bfloat16


def moe(chip: str, name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> Problem:
    """Fused experts of 8-bit floats with a scale a token, and a row of each expert's weights, or for each 128 by 128 of them (and 128 of a token)."""
    tokens, dim, inner, experts, choices, _ = sizes
    r = aiter_moe.routing(tokens, experts, choices, aiter_moe.tile(chip, name).rows)
    kind = ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn
    blocks = "blockscale" in name
    x, w1, w2 = (
        (rng.integers(-4, 5, s) / 4).astype(np.float32).astype(kind)
        for s in ((tokens, dim), (experts, 2 * inner, dim), (experts, dim, inner))
    )
    part = 128 if blocks else 1
    sx = rng.integers(1, 4, (tokens, dim // part if blocks else 1)).astype(np.float32) / 8
    s1, s2 = (
        rng.integers(1, 4, (experts, w.shape[1] // part, w.shape[2] // part if blocks else 1)).astype(np.float32) / 8
        for w in (w1, w2)
    )
    wide = [np.repeat(a.astype(np.float32), 1, -1) for a in (x, w1, w2)]
    full = [np.repeat(s, 128, -1) if blocks else s for s in (sx, s1, s2)]
    full[1:] = [np.repeat(s, 128, 1) if blocks else s for s in full[1:]]
    fx, f1, f2 = (a * s for a, s in zip(wide, full))
    want = np.zeros((tokens, dim), np.float32)
    for t in range(tokens):
        for c in range(choices):
            e = int(r.chosen[t, c])
            gate, up = np.split(f1[e] @ fx[t], 2)
            want[t] += r.shares[t, c] * (f2[e] @ (gate / (1 + np.exp(-gate)) * up))
    packed = [np.stack([shuffled(m) for m in w.view(np.uint8)]) for w in (w1, w2)]
    arrays = [np.zeros((tokens, dim), ml_dtypes.bfloat16), x, *packed, np.ascontiguousarray(sx.T), s1, s2]
    return arrays, want, ml_dtypes.bfloat16


def problem(chip: str, name: str, sizes: tuple[int, ...]) -> Problem:
    """Arrays for a kernel, drawn from the seed 0 so that sums are exact but for the last rounding, and what NumPy makes of them."""
    rng = np.random.default_rng(0)
    what = name.split("_")[0]
    if what == "fwd":
        return attention(sizes, rng, "causal" in name)
    if what == "fmoe":
        return moe(chip, name, sizes, rng)
    m, n, k, width = (*sizes, 2)[:4]
    if what == "bf16gemm":
        return bf16(m, n, k, rng, ml_dtypes.bfloat16 if width == 2 else np.float32)
    if what == "fp8gemm":
        return f8(m, n, k, rng, ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn)
    return i8(m, n, k, rng) if what == "I8gemm" else f4(m, n, k, rng)


def check(chip: str, name: str, sizes: tuple[int, ...], splits: int) -> dict[str, Any]:
    """Run one kernel; "error": the largest difference over the largest number of NumPy's result; fused experts have their inner values in 8 bits,
    of which three are the fraction."""
    start = time.process_time()
    if name.split("_")[0] in aiter_attention_check.KINDS:
        given, compared = aiter_attention_check.problem(name, sizes, splits)
    else:
        arrays, want, kind = problem(chip, name, sizes)
        given = list(arrays)

        def compared(read: aiter_attention_check.Read) -> list[tuple[np.ndarray, np.ndarray]]:
            got = read(0)[: arrays[0].nbytes].view(kind).astype(np.float32).reshape(arrays[0].shape)
            return [(got[: want.shape[0]] if got.ndim == want.ndim else got, want)]

    ready = load(chip, name, sizes, splits, given)
    try:
        ready.launch()
        pairs = compared(ready.args.read)
    finally:
        ready.args.free()
    error = max(float(np.abs(got - want).max() / np.abs(want).max()) for got, want in pairs)
    line = {
        "chip": chip,
        "kernel": name,
        "sizes": sizes,
        "splits": splits,
        "error": error,
        "right": error < (0.04 if name.startswith("fmoe") else 0.01),
    }
    return {**line, "seconds": round(time.process_time() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", default="")
    parser.add_argument("--kernel", default="", help="only kernels whose name begins so")
    args = parser.parse_args()
    for chip, name, sizes, splits in (*CASES, *aiter_attention_check.CASES):
        if args.chip in ("", chip) and name.startswith(args.kernel):
            try:
                print(json.dumps(check(chip, name, sizes, splits)), flush=True)
            except tec.TecError as e:
                print(json.dumps({"chip": chip, "kernel": name, "error": str(e).splitlines()[0]}), flush=True)


if __name__ == "__main__":
    main()
