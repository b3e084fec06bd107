"""The software GPU's time model against published results on AMD GPUs. One JSON object a line.

    python benchmarks/time_model.py [--row 47] [--kind stream]

Each row is a result that others measured (its source beside it), the same work as tec compiles it today, and the model's time for that:
"ratio" is modelled over measured. The kernels are not the same ones, so a product of a library that was tuned for years is expected
below 1.3, and streams, where there is only one way to do it, near 1. No figure of the model was fitted to these. "wall": the result includes
the cost of a call from Python; those below `CALL_US` say more of that than of a kernel, and are counted apart. "warm": the benchmark repeats itself on the same operands, so the last cache keeps what fits. At the end: how many rows
lie within 25 %, by kind, and the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tec
from tec.choices import schedule
from tec.ops.registry import TensorType, get_op

CALL_US = 60.0  # torch's call in such tables takes 20 to 27 (1024 cubed, at 40 to 80 TFLOP/s of 600): a third and more of a time below this

Types = list[tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Row:
    """One measured result. `us`: microseconds; `peer`: what was measured."""

    number: int
    product: str
    chip: str
    kind: str
    work: str
    us: float
    peer: str
    make: Callable[[], tuple[Any, list[Any]]]  # (te outputs, placeholders)
    wall: bool = False
    warm: bool = False
    source: str = ""


def op(name: str, attrs: dict[str, Any], types: Types) -> Callable[[], tuple[Any, list[Any]]]:
    """An operator's te."""

    def make() -> tuple[Any, list[Any]]:
        kinds = [TensorType(d, s) for s, d in types]
        xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(kinds)]
        known = get_op(name)
        return known.compute(attrs, xs, known.infer(kinds, attrs))[:1], xs

    return make


def product(m: int, n: int, k: int, dtype: str, batch: int = 1) -> Callable[[], tuple[Any, list[Any]]]:
    """m x k times n x k transposed, as libraries have weights."""
    head = (batch,) if batch > 1 else ()
    return op("matmul", {"transpose_b": True}, [((*head, m, k), dtype), ((*head, n, k), dtype)])


def stream(what: str, n: int, dtype: str = "float64") -> Callable[[], tuple[Any, list[Any]]]:
    """Kernels over arrays of n elements: write one, read one, one to another, three to a fourth."""

    def make() -> tuple[Any, list[Any]]:
        xs = [
            tec.te.placeholder((n,), dtype, name=f"x{k}")
            for k in range({"init": 0, "read": 1, "scale": 1, "triad": 3}[what])
        ]
        if what == "read":
            known = get_op("reduce_sum")
            kinds, attrs = [TensorType(dtype, (n,))], {"axes": (0,), "keepdims": False}
            return known.compute(attrs, xs, known.infer(kinds, attrs))[:1], xs
        body = {
            "init": lambda i: tec.te.const(1.25, dtype),
            "scale": lambda i: xs[0][i] * tec.te.const(1.5, dtype),
            "triad": lambda i: xs[0][i] + xs[1][i] * xs[2][i],
        }[what]
        return [tec.te.compute((n,), body, name="y")], xs

    return make


def stream_us(what: str, n: int, gbps: float, size: int = 8) -> float:
    return {"init": 1, "read": 1, "scale": 2, "triad": 4}[what] * n * size / gbps / 1e3


def _squares() -> Iterator[Row]:
    def tflops(n: int, tf: float) -> float:
        return 2 * n**3 / tf / 1e6

    triton = {1024: 39.4, 2048: 285.6, 4096: 502.6, 8192: 514.0}
    library = {1024: 83.9, 2048: 330.4, 4096: 612.3, 8192: 635.3}
    for n in library:
        for number, peer, table in ((1, "hipBLASLt", library), (3, "Triton TLX", triton)):
            yield Row(number, "MI300X", "gfx942", "product", f"bf16 {n}", tflops(n, table[n]), peer, product(n, n, n, "bfloat16"),
                      warm=True, wall=n == 1024, source="facebookexperimental/triton 2891")  # fmt: skip
    for n, ms in {1024: 0.02715, 2048: 0.05287, 4096: 0.18263, 8192: 1.4001}.items():
        yield Row(7, "MI325X", "gfx942", "product", f"bf16 {n}", 1e3 * ms, "hipBLASLt", product(n, n, n, "bfloat16"), wall=True, warm=True,
                  source="HipKittens mi325x_bf16_gemm.json")  # fmt: skip
    yield Row(9, "MI300X", "gfx942", "product", "bf16 10240x15360x8192", 2e-6 * 10240 * 15360 * 8192 / 668.4, "hipBLASLt",
              product(10240, 15360, 8192, "bfloat16"), source="stas00/ml-engineering")  # fmt: skip
    for n, ms in {1024: 0.0404, 2048: 0.0523, 4096: 0.1234, 8192: 0.6912}.items():
        yield Row(25, "MI355X", "gfx950", "product", f"bf16 {n}", 1e3 * ms, "aiter asm", product(n, n, n, "bfloat16"), wall=True, warm=True,
                  source="HipKittens mi355x_bf16_gemm.json")  # fmt: skip
    yield Row(47, "RX 7900 XTX", "gfx1100", "product", "f32 4096", 4499.2, "rocBLAS", op("matmul", {}, [((4096, 4096), "float32")] * 2),
              warm=True, source="seb-v/fp32_sgemm_amd")  # fmt: skip
    for n, us in {4096: 1360.75, 8192: 11088.5}.items():
        yield Row(49, "RX 7900 XTX", "gfx1100", "product", f"f16 {n}", us, "rocBLAS", product(n, n, n, "float16"), warm=True,
                  source="tinygrad 1000")  # fmt: skip
    for dtype, rates in {
        "float16": (77.2, 113.9, 124.6, 90.5),
        "bfloat16": (75.0, 113.0, 125.2, 91.2),
        "float32": (15.3, 14.7, 14.9, 17.5),
    }.items():
        for n, tf in zip((1024, 2048, 4096, 8192), rates):
            if dtype != "float32" or n < 8192:
                yield Row(53, "RX 9070 XT", "gfx1201", "product", f"{dtype} {n}", tflops(n, tf), "torch", product(n, n, n, dtype), wall=True,
                          warm=True, source="zzc0721 issue 201")  # fmt: skip


def _skinny() -> Iterator[Row]:
    aiter = "aiter tuning tables"

    def rows(
        number: int, chip: str, peer: str, dtype: str, n: int, k: int, table: dict[int, float], batch: int = 1
    ) -> Iterator[Row]:
        name, gpu = ("gfx942", "MI300X") if chip == "gfx942" else ("gfx950", "MI355X")
        for m, us in table.items():
            what = f"{'int8' if dtype == 'int8' else 'bf16'} {f'{batch} x ' if batch > 1 else ''}{m}x{n}x{k}"
            yield Row(
                number,
                gpu,
                name,
                "product" if m > 512 else "skinny product",
                what,
                us,
                peer,
                product(m, n, k, dtype, batch),
                source=aiter,
            )

    yield from rows(
        11, "gfx942", "aiter asm", "int8", 1536, 5120, {64: 16.78, 256: 17.68, 1024: 21.01, 4096: 63.84, 16384: 211.7}
    )
    yield from rows(
        13,
        "gfx942",
        "CK",
        "bfloat16",
        1280,
        8192,
        {1: 111.9, 32: 123.5, 64: 133.1, 256: 256.7, 1024: 773.7, 4096: 2666.4},
        16,
    )
    yield from rows(15, "gfx942", "CK", "int8", 1280, 8192, {32: 68.98, 1024: 457.4, 4096: 1490.3}, 16)
    yield from rows(
        17, "gfx942", "CK", "int8", 25600, 5120, {16: 36.63, 64: 59.33, 256: 127.2, 1024: 361.0, 4096: 1290.2}
    )
    yield from rows(
        33,
        "gfx950",
        "hipBLASLt, asm",
        "bfloat16",
        1280,
        8192,
        {1: 6.98, 16: 7.54, 64: 11.53, 256: 18.84, 1024: 52.46, 4096: 95.0},
    )
    yield from rows(
        35,
        "gfx950",
        "hipBLASLt, asm",
        "bfloat16",
        8192,
        28672,
        {1: 75.52, 16: 76.63, 64: 85.61, 256: 127.2, 1024: 482.3, 4096: 1246.8},
    )


def _streams() -> Iterator[Row]:
    n = 1 << 26
    for number, gpu, table in (
        (57, "MI300X", {"init": 4801, "read": 4199, "scale": 3997, "triad": 3866}),
        (59, "MI300A", {"init": 3069, "read": 2677, "scale": 2956, "triad": 3034}),
    ):
        for what, gbps in table.items():
            yield Row(number, gpu, "gfx942", "stream", f"f64 {what}, 2^26", stream_us(what, n, gbps), "a stream", stream(what, n),
                      source="RRZE gpu-stream")  # fmt: skip
    m = 55_000_000 // 16  # kB of two arrays
    for what, gbps in {"scale": 4153, "triad": 4036}.items():
        yield Row(61, "MI300X", "gfx942", "stream", f"f64 {what}, 55 MB of two arrays", stream_us(what, m, gbps), "a stream", stream(what, m),
                  warm=True, source="RRZE gpu-l2-stream")  # fmt: skip
    for gpu, gbps in {"MI300X": 3910.62, "MI325X": 4287.31}.items():
        yield Row(63, gpu, "gfx942", "stream", "f32 read, 2^27", stream_us("read", 1 << 27, gbps, 4), "a stream", stream("read", 1 << 27, "float32"),
                  source="rocm-systems 2934")  # fmt: skip
    for kb, gbps in {64: 31, 236: 113, 875: 384, 3237: 1040, 11978: 1089, 44319: 1269, 606735: 1309}.items():
        elems = kb * 1000 // 8 // 64 * 64
        yield Row(105, "MI210", "gfx90a", "stream", f"f32 scale, {kb} kB in all", kb / gbps * 1e3 / 1e3, "a stream", stream("scale", elems, "float32"),
                  wall=True, warm=True, source="gpu-small-kernels mi210.txt")  # fmt: skip


def _others() -> Iterator[Row]:
    for n, ms in {1024: 0.166, 2048: 0.507, 4096: 1.816}.items():
        types = [((16, 16, n, 128), "bfloat16")] * 3
        yield Row(81, "MI355X", "gfx950", "attention", f"bf16 16 x 16 heads, {n}, d 128", 1e3 * ms, "aiter", op("attention", {"scale": 128**-0.5}, types),
                  source="HipKittens mi355x_mha_non_causal_fwd.json")  # fmt: skip
    for columns, gbps in {4096: 3131, 8192: 3911, 16384: 3618}.items():
        nbytes = 2 * 4096 * columns * 2
        types = [((4096, columns), "float16")]
        yield Row(73, "MI300X", "gfx942", "rows", f"f16 norm of 4096 x {columns} (RMS there, layer norm here)", nbytes / gbps / 1e3, "Triton",
                  op("layer_norm", {"axis": -1, "epsilon": 1e-5}, types), source="aiter 335")  # fmt: skip


def all_rows() -> list[Row]:
    rows = [*_squares(), *_skinny(), *_streams(), *_others()]
    return [replace(r, kind="a call") if r.kind == "product" and r.wall and r.us < CALL_US else r for r in rows]


def measure(row: Row) -> dict[str, Any]:
    """The model's line for a row."""
    start = time.perf_counter()
    target = tec.Target(f"rocm -mcpu={row.chip}")
    outs, xs = row.make()
    chosen = schedule(outs, target)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    args = [(tuple(int(d.value) for d in t.shape), t.dtype) for t in (*xs, *chosen.outputs)]
    p = tec.model(f, args, row.product, row.warm)
    us = sum(r.estimate.microseconds if row.wall or k else r.estimate.kernel_us for k, r in enumerate(p.launches))
    longest = max(p.launches, key=lambda r: r.estimate.microseconds)
    e = longest.estimate
    return {
        "row": row.number, "gpu": row.product, "kind": row.kind, "work": row.work, "peer": row.peer, "measured_us": round(row.us, 1),
        "modelled_us": round(us, 1), "ratio": round(us / row.us, 2), "limit": e.limit, "mhz": round(e.clock_mhz), "launches": len(p.launches),
        "groups": int(longest.grid[0] * longest.grid[1] * longest.grid[2]), "held": e.groups,
        "waits": {k: round(v, 2) for k, v in list(e.waits.items())[:3]}, "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", type=int, action="append", help="only rows of this number")
    parser.add_argument("--kind", default="", help="only rows of this kind")
    args = parser.parse_args()
    lines = []
    for row in all_rows():
        if (args.row and row.number not in args.row) or (args.kind and row.kind != args.kind):
            continue
        try:
            lines.append(measure(row))
        except tec.TecError as e:
            print(json.dumps({"row": row.number, "work": row.work, "error": str(e).splitlines()[0]}), flush=True)
            continue
        print(json.dumps(lines[-1]), flush=True)
    for kind in dict.fromkeys(x["kind"] for x in lines):
        ratios = [x["ratio"] for x in lines if x["kind"] == kind]
        near = sum(0.8 <= r <= 1.25 for r in ratios)
        print(
            json.dumps(
                {
                    "kind": kind,
                    "rows": len(ratios),
                    "within_25_percent": near,
                    "median": round(statistics.median(ratios), 2),
                }
            )
        )


if __name__ == "__main__":
    main()
