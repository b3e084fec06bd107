"""Kernels of one operator on gfx942 by the software GPU's time model, as rows of results: products, attention, rows of a softmax and a norm.

The peer is Triton's best of the configurations that `triton_amd.py` names, by the same model, as the script gave it at 2b196fd
(`TRITON`): it models it again where Triton is installed. Operands are in the last cache.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.records import Maker, Record, four_digits

CHIP = "gfx942"
Types = list[tuple[tuple[int, ...], str]]
Case = tuple[str, dict[str, Any], Types]


def _product(m: int, n: int, k: int, dtype: str) -> Case:
    """m x k times the transpose of n x k."""
    return "matmul", {"transpose_b": True}, [((m, k), dtype), ((n, k), dtype)]


def _attention(heads: int, length: int, size: int, dtype: str) -> Case:
    return "attention", {"scale": size**-0.5}, [((1, heads, length, size), dtype)] * 3


def _rows(operator: str, m: int, n: int, dtype: str) -> Case:
    attrs: dict[str, Any] = {"axes": (-1,)} if operator == "softmax" else {"axis": -1, "epsilon": 1e-5}
    return operator, attrs, [((m, n), dtype)]


CASES: dict[str, Case] = {
    "product f16 4096": _product(4096, 4096, 4096, "float16"),
    "product bf16 2048": _product(2048, 2048, 2048, "bfloat16"),
    "product int8 4096": _product(4096, 4096, 4096, "int8"),
    "product f32 4096": _product(4096, 4096, 4096, "float32"),
    "product f16 1024": _product(1024, 1024, 1024, "float16"),
    "product f16 64 x 4096 x 4096": _product(64, 4096, 4096, "float16"),
    "product f16 512 x 4096 x 4096": _product(512, 4096, 4096, "float16"),
    "product f16 128 x 768 x 3072": _product(128, 768, 3072, "float16"),
    "product f16 4096 x 768 x 3072": _product(4096, 768, 3072, "float16"),
    "product f16 1 x 4096 x 4096": _product(1, 4096, 4096, "float16"),
    "attention f16 d 64": _attention(32, 2048, 64, "float16"),
    "attention f16 d 128": _attention(32, 2048, 128, "float16"),
    "softmax f16 4096 x 4096": _rows("softmax", 4096, 4096, "float16"),
    "softmax f32 2048 x 4096": _rows("softmax", 2048, 4096, "float32"),
    "layer norm f16 4096 x 4096": _rows("layer_norm", 4096, 4096, "float16"),
}
QUICK = ("product f16 1024", "product f16 64 x 4096 x 4096", "softmax f32 2048 x 4096")
# Microseconds by the same model.
TRITON = {
    "product f16 4096": 235.6,
    "product int8 4096": 111.4,
    "product f32 4096": 1374.0,
    "product f16 1024": 9.5,
    "product f16 64 x 4096 x 4096": 27.5,
    "product f16 512 x 4096 x 4096": 52.7,
    "attention f16 d 64": 93.9,
    "attention f16 d 128": 179.2,
    "softmax f16 4096 x 4096": 18.9,
    "softmax f32 2048 x 4096": 12.1,
    "layer norm f16 4096 x 4096": 9.7,
}
TRITON_SETTINGS = "3.9.0, the best of the configurations of benchmarks/triton_amd.py by the same model, at 2b196fd"


def rows_of(make: Maker, name: str, case: Case) -> Iterator[Record]:
    import tec
    from tec.choices import schedule
    from tec.codegen.static_report import report
    from tec.ops.registry import TensorType, get_op

    operator, attrs, types = case
    kinds = [TensorType(d, s) for s, d in types]
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(kinds)]
    known = get_op(operator)
    outs = known.compute(attrs, xs, known.infer(kinds, attrs))[:1]
    target = tec.Target(f"rocm -mcpu={CHIP}")
    chosen = schedule(outs, target)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    p = tec.model(f, [(tuple(int(d.value) for d in t.shape), t.dtype) for t in (*xs, *chosen.outputs)], warm=True)
    us = sum(r.estimate.kernel_us for r in p.launches) + sum(r.estimate.parts["launch"] for r in p.launches[1:])
    peer: dict[str, Any] = {}
    if name in TRITON:
        peer = {"peer": "Triton", "peer_value": TRITON[name], "ratio": four_digits(us / TRITON[name]), "peer_settings": TRITON_SETTINGS}  # fmt: skip
    kernels = report(f.imported_modules[0].get_source("asm"))
    yield make.modelled(name, "time", us, "us", target=CHIP, **peer)
    yield make.counted(name, "registers", max(r.vgprs + r.agprs for r in kernels), "VGPRs", target=CHIP, band=None)
    yield make.counted(name, "spills", sum(r.spills for r in kernels), "registers", target=CHIP, band=1.0)


def measure(make: Maker, quick: bool, only: list[str]) -> Iterator[Record]:
    for name, case in CASES.items():
        if (quick and name not in QUICK) or (only and not any(w in name for w in only)):
            continue
        start = time.process_time()
        try:
            yield from rows_of(make, name, case)
        except Exception as e:  # the others are measured
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
            yield make.failed(name, "time", "us", why, is_modelled=True, target=CHIP)
        print(f"{name}: {time.process_time() - start:.1f} s of this process", file=sys.stderr, flush=True)
