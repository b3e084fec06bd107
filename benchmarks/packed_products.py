"""Products with packed weights, and of 8-bit floats, by the time model: microseconds against the bytes that they must read.

    python benchmarks/packed_products.py [--chips MI300X,MI355X,"7900 XTX"] [--bits 4,8] [-m 1,16] [--block 32,128] [--warm]
    python benchmarks/packed_products.py --float8 [--chips MI300X,MI355X]            4096 and 8192 cubed, 8-bit floats beside float16

"limit" is the time of the operands' and results' bytes at the bandwidth that the chip reaches. Nothing lies in caches unless --warm is given.
"""

from __future__ import annotations

import argparse
from typing import Any

import tec
from tec.choices import schedule
from tec.ops.packed import Weights
from tec.ops.registry import TensorType, get_op
from tec.target.machines import find_product

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336))  # n, k: of a decoder of 8 thousand million weights


def modelled(op: str, attrs: dict[str, Any], types: list[TensorType], product: str, warm: bool) -> tuple[float, Any, Any]:  # fmt: skip
    """Microseconds without the first launch, the choice, the profile."""
    found = find_product(product)
    assert found is not None, product
    target = tec.Target(f"rocm -mcpu={found.chip}")
    known = get_op(op)
    xs = [tec.te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
    outs = known.compute(attrs, list(xs), known.infer(types, attrs))
    s = schedule(outs, target)
    f = tec.build(s.schedule, [*xs, *s.outputs], target, name="kernel")
    args = [(tuple(int(d.value) for d in t.shape), t.dtype) for t in (*xs, *outs)]
    p = tec.model(f, args, product, warm)
    us = sum(r.estimate.microseconds if k else r.estimate.kernel_us for k, r in enumerate(p.launches))
    return us, s.choice, p


def packed(m: int, n: int, k: int, bits: int, block: int, product: str, warm: bool) -> str:
    attrs = {"bits": bits, "block": block, "panel": 0, "depth": k, "columns": n, "zero": float(1 << (bits - 1))}
    w = Weights.of(attrs)
    types = [
        TensorType("float16", (m, k)),
        TensorType(w.codes_dtype, w.codes_shape),
        TensorType("float16", w.scales_shape),
    ]
    us, choice, _ = modelled("packed_matmul", attrs, types, product, warm)
    machine = find_product(product)
    assert machine is not None
    moved = n * k * bits // 8 + 2 * (n * k // block + m * (n + k))
    limit = moved / ((machine.memory.gbps or machine.memory_gbps) * 1e3)
    return f"{product:9} int{bits} {m:4} x {n:5} x {k:5} block {block:3}  us {us:7.1f}  limit {limit:6.1f}  {us / limit:5.2f}  {choice}"


def float8(size: int, product: str) -> str:
    """Microseconds of float16, of the OCP's 8-bit floats, and of FNUZ where the chip's unit takes those; the two beside float16."""
    attrs = {"transpose_b": True}
    us = []
    found = find_product(product)
    assert found is not None
    fnuz = any(m[0] == "float8_e4m3fnuz" for m in tec.Target(f"rocm -mcpu={found.chip}").chip.matrix)
    names = ("float16", "float8_e4m3", *(("float8_e4m3fnuz",) if fnuz else ()))
    for dtype in names:
        types = [TensorType(dtype, (size, size))] * 2
        more = {} if dtype == "float16" else {"out_dtype": "float16"}
        us.append(modelled("matmul", {**attrs, **more}, types, product, True)[0])
    shown = (f"{name} {t:7.1f} us  {t / us[0]:.2f}" for name, t in zip(names, us))
    return f"{product:9} {size} cubed  {'  '.join(shown)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", default="MI300X,MI355X,7900 XTX")
    parser.add_argument("--bits", default="4,8")
    parser.add_argument("-m", default="1,16")
    parser.add_argument("--block", default="32,128")
    parser.add_argument("--float8", action="store_true")
    parser.add_argument("--warm", action="store_true")
    a = parser.parse_args()
    for product in a.chips.split(","):
        if a.float8:
            for size in (4096, 8192):
                print(float8(size, product), flush=True)
            continue
        for bits in map(int, a.bits.split(",")):
            for m in map(int, a.m.split(",")):
                for n, k in SHAPES:
                    for block in map(int, a.block.split(",")):
                        print(packed(m, n, k, bits, block, product, a.warm), flush=True)


if __name__ == "__main__":
    main()
