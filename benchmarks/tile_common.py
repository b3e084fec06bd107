"""Kernels as libraries write them (`triton_common`), by tec and by Triton in one run on the NVIDIA GPU at hand.

    python -m benchmarks.tile_common [launch] [SECTION...]         # PTX=FOLDER keeps both sides' assembly there

A row is a JSON line: medians of microseconds of a launch by the device's marks behind a write of all of the second-level cache, the sides in turn; and the largest
difference between the two results.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.tile_tutorials import Side, host, sides, us_in_turn
from benchmarks.turns import line

HERE = Path(__file__).parent
KERNELS = HERE / "triton_common.py"


def _randn(*shape: int, dtype: str = "float32") -> Any:
    import torch

    torch.manual_seed(0)
    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))


# A section: the kernel's grid, its arguments, of which the one called `out` or `losses` holds the results, and its constants.
Section = tuple[str, tuple[int, ...], dict[str, Any], dict[str, int]]


def recurrence(rows: int, columns: int, warps: int) -> Section:
    a, b = _randn(rows, columns).sigmoid(), _randn(rows, columns)
    return "recurrence", (rows,), {"a": a, "b": b, "out": b * 0}, {"BLOCK": columns, "num_warps": warps}


def running_sum(rows: int, columns: int) -> Section:
    x = _randn(rows, columns)
    return "running_sum", (rows // 4,), {"x": x, "out": x * 0}, {"ROWS": 4, "COLUMNS": columns, "num_warps": 4}


def sorted_rows(rows: int, columns: int) -> Section:
    x = _randn(rows, columns)
    return "sorted_rows", (rows,), {"x": x, "out": x * 0}, {"BLOCK": columns, "num_warps": 4}


def rms_norm(rows: int, columns: int) -> Section:
    x, w = _randn(rows, columns, dtype="float16"), _randn(columns, dtype="float16")
    arguments = {"x": x, "weight": w, "out": x * 0, "columns": columns, "eps": 1e-6}
    return "rms_norm", (rows,), arguments, {"BLOCK": 1 << (columns - 1).bit_length(), "num_warps": 8}


def rotary(tokens: int, heads: int, d: int) -> Section:
    x, angles = _randn(tokens, heads, d, dtype="float16"), _randn(tokens, d // 2)
    arguments = {"x": x, "cosines": angles.cos().half(), "sines": angles.sin().half(), "out": x * 0, "heads": heads}
    return "rotary", (tokens,), arguments, {"D": d, "HEADS": heads, "num_warps": 4}


def cross_entropy(rows: int, columns: int) -> Section:
    import torch

    x, targets = _randn(rows, columns, dtype="float16"), torch.arange(rows, device="cuda") * 7 % columns
    arguments = {"logits": x, "targets": targets, "losses": _randn(rows), "columns": columns}
    return "cross_entropy", (rows,), arguments, {"BLOCK": 4096, "num_warps": 8}


def convolution(images: int, side: int, c: int, k: int) -> Section:
    x, w = _randn(images, side, side, c, dtype="float16"), _randn(k, 3, 3, c, dtype="float16")
    out = _randn(images, side, side, k, dtype="float16") * 0
    grid = (images * side * side // 128, k // 128)
    arguments = {"x": x, "w": w, "out": out, "H": side, "W": side, "C": c, "K": k}
    return "convolution", grid, arguments, {"BM": 128, "BN": 128, "BK": 64, "num_warps": 4, "num_stages": 3}


def paged_decode(sequences: int, length: int, heads: int, group: int, d: int) -> Section:
    import torch

    page = 16
    pages = length // page
    q = _randn(sequences, heads * group, d, dtype="float16")
    keys, values = (_randn(sequences * pages, page, heads, d, dtype="float16") for _ in range(2))
    table = torch.randperm(sequences * pages, device="cuda").int().view(sequences, pages)
    lengths = torch.full((sequences,), length - 5, device="cuda", dtype=torch.int32)
    arguments = {
        "q": q, "keys": keys, "values": values, "table": table, "lengths": lengths, "out": q * 0, "scale": d**-0.5 * 1.4427, "pages": pages,
    }  # fmt: skip
    constants = {"HEADS": heads, "GROUP": group, "D": d, "PAGE": page, "BN": 64, "num_warps": 4, "num_stages": 2}
    return "paged_decode", (sequences, heads), arguments, constants


SECTIONS: dict[str, Callable[[], Section]] = {
    "recurrence f32 4096 x 8192, 4 warps": lambda: recurrence(4096, 8192, 4),
    "recurrence f32 4096 x 2048, 4 warps": lambda: recurrence(4096, 2048, 4),
    "running sum f32 16384 x 1024": lambda: running_sum(16384, 1024),
    "sort f32 4096 x 1024": lambda: sorted_rows(4096, 1024),
    "rms norm f16 4096 x 5120": lambda: rms_norm(4096, 5120),
    "rotary f16 8192 x 32 x 128": lambda: rotary(8192, 32, 128),
    "cross entropy f16 2048 x 50257": lambda: cross_entropy(2048, 50257),
    "convolution f16 32 x 56 x 56 x 128": lambda: convolution(32, 56, 128, 128),
    "convolution f16 32 x 28 x 28 x 256": lambda: convolution(32, 28, 256, 256),
    "paged decode f16 64 x 4096, 8 heads of 4 x 128": lambda: paged_decode(64, 4096, 8, 4, 128),
}


def section(name: str, both: tuple[Side, Side]) -> None:
    """A row: both sides' medians, the ratio, the largest difference of results."""
    import torch

    kernel, grid, arguments, constants = SECTIONS[name]()
    out = arguments["losses" if "losses" in arguments else "out"]
    runs: dict[str, Callable[[], Any]] = {}
    results: dict[str, Any] = {}
    for side in both:
        with side.active():
            f = side.of_file(KERNELS)[kernel]

            def run(f: Any = f) -> Any:
                return f[grid](*arguments.values(), **constants)

            made = run()
            torch.cuda.synchronize()
            runs[side.name], results[side.name] = run, out.float().clone()
            if folder := os.environ.get("PTX"):
                word = name.replace(" ", "_").replace(",", "")
                (Path(folder) / f"{word}.{side.name}.ptx").write_text(made.asm["ptx"], "utf-8")
    us = us_in_turn(both, runs)
    difference = float((results["tec"] - results["triton"]).abs().max())
    line(name, us["tec"], "us", "Triton", us["triton"], **{"largest difference": difference})


def main(words: list[str]) -> None:
    both = sides(HERE)
    if not words or "launch" in words:
        host("a launch from Python", both, lambda s: s.of_file(KERNELS)["add"])
    for name in SECTIONS:
        if words and not any(name.startswith(w) for w in words):
            continue
        try:
            section(name, both)
        except Exception as e:
            print(json.dumps({"name": name, "refused": f"{type(e).__name__}: {str(e)[:300]}"}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
