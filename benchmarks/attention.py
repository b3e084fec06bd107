"""Attention as one kernel: what its loops are made of on AMD chips, and against PyTorch on an NVIDIA GPU.

    python benchmarks/attention.py amd [chip...]       main loops of 4 x 32 heads of 2,048 by 64, 128 and 256
    python benchmarks/attention.py cuda [size...]      TFLOP/s beside cuDNN and FlashAttention through scaled_dot_product_attention

The second wants torch. Contenders take turns in random order with rests between, since the chip is held to its power: medians of bursts of 25 ms, and of
single launches.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import tec
from tec import te
from tec.choices import schedule
from tec.codegen.static_report import report
from tec.graph import Graph
from tec.ops import get_op

BATCH, HEADS = 4, 32
CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def graph(size: int, length: int, key_heads: int, causal: bool, dtype: str) -> Graph:
    """One attention over `length` tokens."""
    g = Graph()
    heads = {"q": HEADS, "k": key_heads, "v": key_heads}
    ins = [g.input(x, dtype, (BATCH, n, length, size)) for x, n in heads.items()]
    attrs: dict[str, Any] = {"scale": size**-0.5, "extras": ()}
    if causal:
        attrs["right"] = 0
    g.set_outputs(g.add("attention", ins, attrs))
    return g


def amd(chips: list[str]) -> None:
    """A line for each chip and size."""
    for chip in chips or CHIPS:
        for size in (64, 128, 256):
            net = tec.compile(graph(size, 2048, HEADS, False, "float16"), target=f"rocm -mcpu={chip}", cache=False)
            (r,) = report(net.get_source("asm"))
            (choice,) = (c["choice"] for c in net.report.choices.values())
            r.name = f"{chip} f16 {size}"
            print(r.line(), {k: v for k, v in choice.items() if k != "template"}, flush=True)


def built(g: Graph, target: str) -> tuple[Any, dict[str, Any]]:
    """The module of a graph's attention, and the choice that it was made by."""
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    made = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    scheduled = schedule(made, target)
    return tec.build(scheduled.schedule, [*ins, *scheduled.outputs], target, name="attention"), scheduled.choice


def cuda(sizes: list[int]) -> None:
    """One JSON object a case."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    device = tec.cuda(0)
    target = "cuda -arch=sm_90a" if torch.cuda.get_device_capability() == (9, 0) else "cuda -arch=sm_80"
    forms = [(n, HEADS, d) for n in (2048, 4096) for d in ("float16", "bfloat16")]
    forms += [(16384, HEADS, "float16"), (4096, HEADS // 4, "bfloat16")]
    cases = [(s, *form, c) for s in sizes or (64, 128, 256) for form in forms for c in (False, True)]
    for size, length, key_heads, dtype, causal in cases:
        heads = (HEADS, key_heads, key_heads)
        q, k, v = (torch.randn(BATCH, n, length, size, device="cuda", dtype=getattr(torch, dtype)) for n in heads)
        out = torch.empty_like(q)
        module, choice = built(graph(size, length, key_heads, causal, dtype), target)
        args = [tec.nd.from_dlpack(x) for x in (q, k, v, out)]

        if key_heads != HEADS:  # not every version of torch takes fewer key heads in all backends
            k, v = (x.repeat_interleave(HEADS // key_heads, dim=1) for x in (k, v))

        def peer(backend: Any, q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=causal)

        contenders: dict[str, Callable[[], Any]] = {"tec": lambda module=module, args=args: module(*args)}  # type: ignore[misc]
        contenders["cudnn"] = lambda peer=peer: peer(SDPBackend.CUDNN_ATTENTION)  # type: ignore[misc]
        contenders["flash"] = lambda peer=peer: peer(SDPBackend.FLASH_ATTENTION)  # type: ignore[misc]
        module(*args)
        device.sync()
        want = peer(SDPBackend.MATH) if length <= 2048 else contenders["cudnn"]()
        error = float((out.float() - want.float()).norm() / want.float().norm())
        bursts, singles = raced(contenders, device, torch)
        flops = 4 * BATCH * HEADS * length * length * size / (2 if causal else 1)
        row: dict[str, Any] = {
            "size": size,
            "length": length,
            "key_heads": key_heads,
            "dtype": dtype,
            "causal": causal,
            "error": error,
            "choice": choice,
        }
        for name in contenders:
            row[name] = round(flops / bursts[name] / 1e9), round(flops / singles[name] / 1e9)
        row["ratio"] = round(min(bursts["cudnn"], bursts["flash"]) / bursts["tec"], 3)
        print(json.dumps(row), flush=True)


def raced(
    contenders: dict[str, Callable[[], Any]], device: Any, torch: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds a launch of each: in bursts, alone."""
    begin, end = device.event(), device.event()

    def timed(name: str, count: int) -> float:
        torch.cuda.synchronize()
        events = (begin, end) if name == "tec" else tuple(torch.cuda.Event(enable_timing=True) for _ in "ab")
        events[0].record()
        for _ in range(count):
            contenders[name]()
        events[1].record()
        device.sync()
        torch.cuda.synchronize()
        return float(begin.elapsed_ms(end) if name == "tec" else events[0].elapsed_time(events[1])) / count

    names = list(contenders)
    bursts: dict[str, list[float]] = {n: [] for n in names}
    singles: dict[str, list[float]] = {n: [] for n in names}
    for n in names:
        timed(n, 2)
    for _ in range(7):
        random.shuffle(names)
        for n in names:
            time.sleep(0.03)
            singles[n].append(timed(n, 1))
            bursts[n].append(timed(n, max(2, int(25 / singles[n][-1]))))
    return {n: statistics.median(x) for n, x in bursts.items()}, {n: statistics.median(x) for n, x in singles.items()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["cuda"]:
        cuda([int(x) for x in sys.argv[2:]])
    elif sys.argv[1:2] == ["amd"]:
        amd(sys.argv[2:])
    else:
        raise SystemExit(__doc__)
