"""Triton's own kernels for the rows of amd_results.csv whose result is Triton's: what the time model says of the code object of a kernel such as was measured.

`theirs(row)` compiles it for the row's chip, models it on the row's product, and takes the best configuration by the model among those that the source
names (its autotuner took the best on the chip): of products the tiles of facebookexperimental/triton's `amd_gemm_gfx942` (2891), with the compiler's pipeline in the
place of its ring by hand; of norms aiter's, a program a compute unit, four wavefronts; of attention Triton's tutorial. Needs the triton package (tried with 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton

import tec.emulator.triton as emulated
from benchmarks import triton_amd_kernels as kernels
from tec.emulator.profile import emulator_profile
from tec.target import CHIPS, Machine, find_product

Config = dict[str, Any]
NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "int8": "int8"}
# Rows, columns, step, wavefronts: `_configs` of the source, and of its `amd_gemm_warp_pipeline` (1825); what does not fit the LDS is left out.
TILES = (
    (64, 64, 64, 4),
    (128, 128, 32, 4),
    (128, 128, 32, 8),
    (128, 128, 64, 8),
    (256, 128, 32, 8),
    (128, 256, 32, 8),
    (256, 256, 32, 8),
    (256, 256, 64, 8),
)
BLOCKS = ((128, 64, 4, 1), (128, 64, 4, 2), (256, 64, 8, 2))


def array(shape: tuple[int, ...], dtype: str) -> Any:
    """Zeros; Triton is told of bfloat16 by name, since NumPy has none."""
    found = emulated.NumpyTensor(np.zeros(shape, np.uint16 if dtype == "bfloat16" else dtype))
    if dtype == "bfloat16":
        found.dtype = dtype
    return found


def product(sizes: tuple[int, ...], dtype: str, machine: Machine) -> Iterator[tuple[Config, Callable[[], Any]]]:
    m, n, k = sizes
    a, b, c = array((m, k), dtype), array((k, n), dtype), array((m, n), dtype)
    for bm, bn, bk, warps in TILES:
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
        if grid[0] < machine.units // 4 or 2 * (bm + bn) * bk * a.value.itemsize > CHIPS[machine.chip].lds_bytes:
            continue  # never the best of a chip; the source's two buffers do not fit
        config = {
            "BM": bm,
            "BN": bn,
            "BK": bk,
            "BAND": 8,
            "DIES": machine.dies,
            "num_warps": warps,
            "num_stages": 2,
            "matrix_instr_nonkdim": 16,
        }
        yield config, lambda config=config, grid=grid: kernels.product[grid](a, b, c, m, n, k, n, 1, **config)


def bands(
    peer: str, sizes: tuple[int, ...], dtype: str, machine: Machine
) -> Iterator[tuple[Config, Callable[[], Any]]]:
    """The tile of HipKittens' grid_micro (256 x 256 by 64, eight wavefronts) in its orders: "bands of 4" rows, dealt out die by die; "bands of 0": along rows, dies in turn."""
    m, n, k = sizes
    a, b, c = array((m, k), dtype), array((n, k), dtype), array((m, n), dtype)
    band = int(peer.split()[-1])
    config = {
        "BM": 256,
        "BN": 256,
        "BK": 64,
        "BAND": band or 1,
        "DIES": machine.dies if band else 1,
        "num_warps": 8,
        "num_stages": 2,
    }
    grid = (triton.cdiv(m, 256) * triton.cdiv(n, 256),)
    yield config, lambda: kernels.product[grid](a, b, c, m, n, k, 1, k, **config)


def rms_norm(sizes: tuple[int, ...], dtype: str, machine: Machine) -> Iterator[tuple[Config, Callable[[], Any]]]:
    m, n = sizes
    x, y, weight, scales = array((m, n), dtype), array((m, n), dtype), array((n,), dtype), array((m,), "float32")
    config = {"PROGRAMS": min(m, machine.units), "BLOCK": triton.next_power_of_2(n), "num_warps": 4}
    yield config, lambda: kernels.rms_norm[(config["PROGRAMS"],)](x, y, weight, scales, m, n, **config)


def attention(sizes: tuple[int, ...], dtype: str, machine: Machine) -> Iterator[tuple[Config, Callable[[], Any]]]:
    batch, heads, length, size = sizes
    q, k, v, out = (array((batch * heads, length, size), dtype) for _ in range(4))
    scale = float(size**-0.5 * 1.4426950408889634)
    for bm, bn, warps, stages in BLOCKS:
        config = {"BM": bm, "BN": bn, "num_warps": warps, "num_stages": stages}
        grid = (length // bm, batch * heads)
        yield (
            config,
            lambda config=config, grid=grid: kernels.attention[grid](q, k, v, out, scale, length, D=size, **config),
        )


KERNELS = {"product": product, "rms_norm": rms_norm, "attention": attention}


def theirs(work: str, product_name: str, warm: bool, with_launch: bool, peer: str = "") -> tuple[float, Config]:
    """Microseconds of the best configuration, and which that is."""
    what, dtype, sizes, *_ = work.split()
    machine = find_product(product_name)
    assert machine is not None, product_name
    driver = emulated.install(machine.chip)
    best: tuple[float, Config] | None = None
    try:
        numbers, kind = tuple(map(int, sizes.split("x"))), NAMES[dtype]
        candidates = (
            bands(peer, numbers, kind, machine) if "bands of" in peer else KERNELS[what](numbers, kind, machine)
        )
        for config, launch in candidates:
            with emulator_profile(driver.emulated, False, product_name, warm) as p:
                try:
                    launch()
                except triton.runtime.errors.OutOfResources:
                    continue  # as the source leaves out what does not fit the LDS
            us = sum(r.estimate.microseconds if with_launch else r.estimate.kernel_us for r in p.launches)
            if best is None or us < best[0]:
                best = us, config
    finally:
        emulated.uninstall()
    assert best is not None, work
    return best
