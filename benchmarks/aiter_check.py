"""aiter's assembly kernels run on the software GPU and held to NumPy: the arguments that `aiter_results` gives them are right. One JSON object a line.

    AITER=aiter python benchmarks/aiter_check.py [--chip gfx942] [--kernel f4gemm]
    AITER=aiter python benchmarks/aiter_check.py --draw 200 --seed 1 --check all --processes 2

Without `--draw` the kernels that published results name run, each on one problem. With it code objects are drawn from the tables beside them, kind by kind in turn, and so are sizes that
their tiles take; each runs in a process of its own, for a compiler's end or a kernel's is then one line like another.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tec
from benchmarks import aiter_attention, aiter_decode, aiter_moe
from benchmarks.aiter_results import Pairs, Read, compared, load, preshuffled, row_of, tables, tile
from tec.emulator.checks.names import parse_checks
from tec.emulator.errors import EmulationError, UnsupportedInstruction

Case = tuple[str, str, tuple[int, ...], int]  # chip, code object, sizes, splits
CASES: tuple[Case, ...] = (
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
    ("gfx950", "bwd_hd128_odo_bf16", (1, 2, 1, 256, 128), 1),
    ("gfx950", "bwd_hd128_bf16_a32_psskddv", (1, 2, 1, 512, 128), 1),
    ("gfx950", "bwd_hd128_bf16_causal_br_a32_psskddv", (1, 1, 1, 256, 128), 1),
    ("gfx950", "bwd_hd128_dq_convert_bf16", (1, 2, 2, 256, 128), 1),
    ("gfx942", "mla_dec_stage1_bf16_a16w16_subQ16_mqa16", (2, 16, 200), 2),
    ("gfx942", "pa_bf16_noquant_gqa8_1tg_4w", (2, 16, 2, 200, 128), 1),
)

Problem = tuple[list[np.ndarray], Callable[[Read], Pairs]]  # arrays in the order of the arguments, and what to compare


def shuffled_scales(s: np.ndarray) -> np.ndarray:
    """Scales of (rows, blocks), filled up to 256 rows and 8 blocks, in the order of a scaled MFMA's lanes."""
    rows, blocks = -(-s.shape[0] // 256) * 256, -(-s.shape[1] // 8) * 8
    whole = np.full((rows, blocks), 127, np.uint8)
    whole[: s.shape[0], : s.shape[1]] = s
    return np.ascontiguousarray(whole.reshape(rows // 32, 2, 16, blocks // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1))


def bf16(name: str, m: int, n: int, k: int, rng: np.random.Generator, out: Any) -> Problem:
    a, b = (rng.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k)))
    want = a.astype(np.float32) @ b.astype(np.float32).T
    return [np.zeros((m, n), out), a, preshuffled(b) if "shuffle" in name else b], compared(0, out, want)


def i8(m: int, n: int, k: int, rng: np.random.Generator) -> Problem:
    a, b = (rng.integers(-8, 9, s).astype(np.int8) for s in ((m, k), (n, k)))
    sa, sb, bias = (rng.integers(1, 5, s).astype(np.float32) / 4 for s in (m, n, n))
    want = (a.astype(np.float32) @ b.astype(np.float32).T) * sa[:, None] * sb + bias
    out = np.zeros((m, n), ml_dtypes.bfloat16)
    return [out, a, preshuffled(b), sa, sb, bias], compared(0, ml_dtypes.bfloat16, want)


def f8(m: int, n: int, k: int, rng: np.random.Generator, kind: Any) -> Problem:
    a, b = ((rng.integers(-4, 5, s) / 2).astype(np.float32).astype(kind) for s in ((m, k), (n, k)))
    sa, sb = (rng.integers(1, 5, s).astype(np.float32) / 4 for s in ((m, k // 128), (n // 128, k // 128)))
    wide = a.astype(np.float32) * np.repeat(sa, 128, 1)
    want = wide @ (b.astype(np.float32) * np.repeat(np.repeat(sb, 128, 0), 128, 1)).T
    arrays = [np.zeros((m, n), ml_dtypes.bfloat16), a, preshuffled(b), np.ascontiguousarray(sa.T), sb]
    return [*arrays, np.zeros(n, np.float32)], compared(0, ml_dtypes.bfloat16, want)


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def f4(name: str, m: int, n: int, k: int, rng: np.random.Generator) -> Problem:
    codes = [rng.integers(0, 16, s).astype(np.uint8) for s in ((m, k), (n, k))]
    scales = [rng.integers(126, 129, s).astype(np.uint8) for s in ((m, k // 32), (n, k // 32))]
    a, b = (
        FP4[c & 7] * np.where(c & 8, -1, 1) * np.repeat(2.0 ** (s.astype(np.float32) - 127), 32, 1)
        for c, s in zip(codes, scales)
    )
    packed = [c[:, ::2] | c[:, 1::2] << 4 for c in codes]
    out = np.zeros((-(-m // 32) * 32, n), ml_dtypes.bfloat16)
    given = packed[1] if "noBpreShuffle" in name else preshuffled(packed[1])
    return [out, packed[0], given, *map(shuffled_scales, scales)], compared(0, ml_dtypes.bfloat16, a @ b.T)


def problem(chip: str, name: str, sizes: tuple[int, ...], splits: int) -> Problem:
    """Arrays for a kernel, drawn from the seed 0 so that sums of products are exact but for the last rounding, and what NumPy makes of them."""
    rng = np.random.default_rng(0)
    what = name.split("_")[0].lower()
    others: dict[str, Callable[..., Problem]] = {
        "fwd": aiter_attention.forward_problem,
        "bwd": aiter_attention.gradient_problem,
        "pa": aiter_decode.paged_problem,
        "topksoftmax": aiter_decode.chosen_problem,
        "fmoe": aiter_moe.problem,
    }
    if what in others:
        return others[what](chip, name, sizes, rng)
    if what == "mla":
        return aiter_decode.latent_problem(chip, name, sizes, splits, rng)
    m, n, k, width = (*sizes, 2)[:4]
    if what == "bf16gemm":
        return bf16(name, m, n, k, rng, ml_dtypes.bfloat16 if width == 2 else np.float32)
    if what == "fp8gemm":
        return f8(m, n, k, rng, ml_dtypes.float8_e4m3fnuz if chip == "gfx942" else ml_dtypes.float8_e4m3fn)
    return i8(m, n, k, rng) if what == "i8gemm" else f4(name, m, n, k, rng)


def tolerance(name: str) -> float:
    """Of the largest number of a result. Inner values of 8 bits have three or four bits of fraction, or seven of a whole row's largest, and differ where they are rounded; kernels that
    make 8-bit integers cut toward zero, which takes 1.5 % each time. Attention of 8 bits has its weights in 8 bits too."""
    if name.startswith("fmoe"):
        return 0.1 if "smf" in name or "Int8_g1u0" in name else 0.06
    return 0.05 if ("fp8" in name and name.startswith("fwd")) or "pertoken" in name or "a8w8" in name else 0.012


# by the words of a report, the check that made it
_MAKERS = {"race": "race", "lanes of one wave store": "race", "uninitialized": "init", "misaligned": "align"}
_MAKERS |= {"hazard": "hazards", "missing wait": "wait", "that the kernel declares": "registers"}
_MAKERS |= {"different barriers": "barrier", "forward progress": "progress", "across arrays": "arrays"}


def maker(report: str) -> str:
    """The check that made a report, or "" where it is none that may be left out."""
    return next((check for words, check in _MAKERS.items() if words in report.split("\n")[0]), "")


def check(chip: str, name: str, sizes: tuple[int, ...], splits: int, checks: str = "bounds") -> dict[str, Any]:
    """Run one kernel; "error": of each array the largest difference over the largest number of NumPy's; "reports": what the checks found, each left out from then on (bounds
    are those of PyTorch's allocator then), so that the kernel comes to its end."""
    start = time.perf_counter()
    arrays, pairs = problem(chip, name, sizes, splits)
    line: dict[str, Any] = {"chip": chip, "kernel": name, "sizes": sizes, "splits": splits}
    names, reports, grain = set(parse_checks(checks)), list[str](), 1
    ready = None
    while True:
        try:
            ready = load(chip, name, sizes, splits, list(arrays), grain, check=names)
            ready.launch()
            errors = [float(np.abs(got - want).max() / np.abs(want).max()) for got, want in pairs(ready.args.read)]
            line.update(error=errors, right=all(e < tolerance(name) for e in errors))
            break
        except UnsupportedInstruction:
            raise
        except EmulationError as e:
            reports.append(str(e))
            if "out of bounds" in str(e) and grain == 1:
                grain = 1 << 21  # of a segment, out of which PyTorch's allocator gives
                continue
            if maker(str(e)) not in names - {"bounds"}:
                line.update(right=False)
                break
            names.remove(maker(str(e)))
        finally:
            if ready is not None:
                ready.args.free()
                ready = None
    line.update({"reports": reports} if reports else {})
    return {**line, "seconds": round(time.perf_counter() - start, 1)}


def product_sizes(chip: str, name: str, rng: np.random.Generator) -> tuple[tuple[int, ...], int]:
    """Sizes of a product that the tile takes, and splits of k."""
    rows, columns = tile(name)
    m = rows - int(rng.integers(0, min(rows, 16)))
    if name.startswith("bf16gemm"):
        clean = row_of(chip, name)["splitK"] == "1"
        return (m, 2 * columns, 512, 4 if "fp32" in name else 2), 2 if clean else 1
    split = row_of(chip, name)["splitK"] == "1" and not name.startswith("f4")
    return (m, columns * (1 if columns >= 256 else 2), 512), 2 if split and rng.integers(2) else 1


def drawn(count: int, seed: int, chips: tuple[str, ...] = ("gfx942", "gfx950")) -> Iterator[Case]:
    """Kernels of the tables by their first folder in turn, and problems for them. A kernel that no harness takes stands with no sizes."""
    rng = np.random.default_rng(seed)
    kinds: dict[str, list[tuple[str, str]]] = {}
    for chip in chips:
        for name, (path, _) in sorted(tables(chip).items()):
            kinds.setdefault(path.parts[0], []).append((chip, name))
    turns = [[members[i] for i in rng.permutation(len(members))] for _, members in sorted(kinds.items())]
    order = [t[i] for i in range(max(map(len, turns))) for t in turns if i < len(t)]
    for chip, name in order[:count]:
        one = np.random.default_rng([seed, *name.encode()])
        what = name.split("_")[0].lower()
        draws = {"fwd": aiter_attention, "bwd": aiter_attention, "fmoe": aiter_moe}
        draws.update(mla=aiter_decode, pa=aiter_decode, topksoftmax=aiter_decode)
        try:
            sizes, splits = draws[what].draw(chip, name, one) if what in draws else product_sizes(chip, name, one)
        except tec.TecError:
            sizes, splits = (), 1
        yield chip, name, sizes, splits


def attempt(case: Case, checks: str) -> dict[str, Any]:
    chip, name, sizes, splits = case
    if not sizes:
        return {"chip": chip, "kernel": name, "refused": "no harness"}
    try:
        return check(chip, name, sizes, splits, checks)
    except Exception as e:  # one kernel's end is a line, not the end of the others
        what = "refused" if isinstance(e, tec.TecError) else "failed"
        return {"chip": chip, "kernel": name, "sizes": sizes, what: f"{type(e).__name__}: {str(e)[:400]}"}


def _one(case: Case, checks: str, queue: Any) -> None:
    queue.put(attempt(case, checks))


def apart(case: Case, checks: str, limit: float) -> dict[str, Any]:
    """`attempt` in a process of its own, which has `limit` seconds."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_one, args=(case, checks, queue), daemon=True)
    process.start()
    try:
        return queue.get(timeout=limit)
    except Exception:
        process.kill()
        return {"chip": case[0], "kernel": case[1], "sizes": case[2], "failed": f"no word in {limit} s"}
    finally:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", default="")
    parser.add_argument("--kernel", default="", help="only kernels whose name begins so")
    parser.add_argument("--check", default="bounds", help="the checks of the software GPU")
    parser.add_argument("--draw", type=int, default=0, help="how many kernels to draw from the tables")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a drawn kernel may take")
    args = parser.parse_args()
    cases = list(drawn(args.draw, args.seed)) if args.draw else list(CASES)
    cases = [c for c in cases if args.chip in ("", c[0]) and c[1].startswith(args.kernel)]
    if not args.draw:
        for case in cases:
            print(json.dumps(attempt(case, args.check)), flush=True)
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    with ThreadPoolExecutor(args.processes) as pool:
        for done in as_completed([pool.submit(apart, case, args.check, args.limit) for case in cases]):
            print(json.dumps(done.result()), flush=True)


if __name__ == "__main__":
    main()
