"""A product by warpgroups as te and a schedule: bulk copies into a ring of tiles, wgmma, results out by bulk copies."""

from __future__ import annotations

from typing import Any

import tec
from tec import te


def gemm(
    m: Any, n: int, k: int, bm: int = 128, bn: int = 256, bk: int = 64, stages: int = 3, trans_b: bool = False, band: int = 16,
    dtype: str = "float16", acc: str = "float32", out: str | None = None, groups: int = 0, stage_out: bool = True, bulk: bool = True,
    turns: bool = False,
) -> tuple[tec.Target, Any, list[Any]]:  # fmt: skip
    """C[m, n] = A[m, k] B[k, n] (B[n, k] where trans_b), tiles of bm x bn in bands of rows; `groups` work-groups stay for all tiles
    (0: one a tile); `turns`: two warpgroups take the tiles in turn. Returns (target, schedule, [A, B, C])."""
    target = tec.Target("cuda -arch=sm_90a")
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((n, k) if trans_b else (k, n), dtype, name="B")
    kk = te.reduce_axis((0, k), "k")

    def product(i: Any, j: Any) -> Any:
        return te.sum(a[i, kk].astype(acc) * (b[j, kk] if trans_b else b[kk, j]).astype(acc), axis=kk)

    p = te.compute((m, n), product, name="P")
    c = te.compute((m, n), lambda i, j: p[i, j].astype(out or dtype), name="C")
    s = tec.create_schedule(c.op)
    unit = te.intrin.warpgroup(target, dtype, bn, bk, trans_b=trans_b)
    s[p].set_scope("fragment.acc")
    staged = [s.cache_read(x, "shared", [p]) for x in (a, b)]
    last = s.cache_write(c, "shared") if stage_out else None
    i, j = s[c].op.axis
    bi, i = s[c].split(i, factor=bm)
    bj, j = s[c].split(j, factor=bn)
    bo, bi = s[c].split(bi, factor=band)
    s[c].reorder(bo, bj, bi, i, j)
    at = tile = s[c].fuse(bo, bj, bi)
    if groups:
        at, tile = s[c].split(tile, factor=groups)
        s[c].reorder(tile, at)
    s[c].bind(tile, te.thread_axis("blockIdx.x"))
    stage = s[c]
    if last is not None:
        s[c].pragma(i, "bulk_copy")
        stage = s[last]
        stage.compute_at(s[c], at)
        i, j = stage.op.axis
    wi, i = stage.split(i, factor=64)
    unit.on_tile(stage, i)
    x, y = s[p].op.axis
    ko, ki = s[p].split(s[p].op.reduce_axis[0], factor=bk)
    if turns:
        s[p].compute_at(s[c], at)
        blocks, x = s[p].split(x, factor=64)
        s[p].reorder(ko, blocks, x, y, ki)
    else:
        stage.bind(wi, te.thread_axis("threadIdx.y"))
        s[p].compute_at(stage, wi)
        s[p].reorder(ko, x, y, ki)
    s[p].tensorize(x, unit.mma)
    s[p].pragma(ko, "warp_specialize", (stages, turns))
    for tensor in staged:
        s[tensor].compute_at(s[p], ko)
        if bulk:
            s[tensor].pragma(s[tensor].op.axis[0], "bulk_copy")
    return target, s, [a, b, c]
