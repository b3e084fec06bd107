# %% [markdown]
# # A matrix product by picture, from naive to matrix cores
#
# This page shows one computation with three schedules. After each step you see its loop nest as a
# picture, which a notebook also shows for `s`. You also see the estimate for an MI300X by the
# software GPU's time model: what the step gained, and what limits it. The model simulates waves on
# a compute unit ([the software GPU](../emulator.md) describes it). It is not a measurement of
# hardware.

# %%
from pathlib import Path

import numpy as np

import tec
from tec.emulator import emulator_profile
from tec.notebook import bars_svg, nest_svg
from tec.te import intrin

N = 1024
target = tec.Target("rocm -mcpu=gfx942")
dev = tec.rocm_emu("gfx942")
rng = np.random.default_rng(0)
x, y = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
want = x.astype("float64") @ y
results = []


def product(dtype="float32"):
    a, b = tec.placeholder((N, N), dtype, name="A"), tec.placeholder((N, N), dtype, name="B")
    k = tec.reduce_axis((0, N), name="k")
    c = tec.compute(
        (N, N), lambda i, j: tec.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), name="C"
    )
    return a, b, c


def measure(title, s, args, dtype="float32", tolerance=1e-4):
    f = tec.build(s, args, target, name="matmul")
    da, db = tec.nd.array(x.astype(dtype), dev), tec.nd.array(y.astype(dtype), dev)
    dc = tec.nd.empty((N, N), "float32", dev)
    with emulator_profile(dev.driver) as p:
        f(da, db, dc)
    error = np.abs(dc.numpy() - want).max() / np.abs(want).max()
    assert error < tolerance, error
    r = p.launches[0]
    us = r.estimate.microseconds
    facts = f.imported_modules[0].attrs["kernels"]["matmul_kernel0"]
    results.append((title, us, 2 * N**3 / us / 1e6, r.estimate.limit))
    Path(f"matmul_{title.replace(' ', '_')}.svg").write_text(nest_svg(str(s)))
    print(
        f"{title}: {us:.0f} us by the model ({2 * N**3 / us / 1e6:.1f} TFLOP/s), limited by {r.estimate.limit}\n"
        f"{facts['vgprs']} VGPRs, {facts['lds_bytes']} bytes of LDS, {r.counts.global_line_bytes / 1e6:.0f} MB of cache lines\n"
        f"{r.counts.instructions}"
    )


# %% [markdown]
# ## Naive: one thread per output element
# Each element reads a row of A and a column of B. These are 2 N^3 loads from global memory.

# %%
A, B, C = product()
s = tec.create_schedule(C.op)
i, j = C.op.axis
io, ii = s[C].split(i, factor=16)
jo, ji = s[C].split(j, factor=16)
s[C].reorder(io, jo, ii, ji)
for axis, thread in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
    s[C].bind(axis, tec.thread_axis(thread))
measure("naive", s, [A, B, C])

# %% [markdown]
# ![the loops of the naive product](matmul_naive.svg)
#
# A box is a loop, inside the box of its outer loop. Blue loops are distributed over work-groups,
# green loops over the threads of a work-group. The loop that is left inside, the reduction, runs
# in each thread.
#
# ## Tiled: through shared memory and registers
# A work-group computes 64 x 64 elements, and a thread 4 x 4 of them. Each work-group loads tiles
# of A and B into LDS. Each thread loads values from there into registers and uses every value four
# times.

# %%
A, B, C = product()
s = tec.create_schedule(C.op)
TILE, THREADS, STEP = 64, 16, 16
sa, sb = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
acc = s.cache_write(C, "local")
la, lb = s.cache_read(sa, "local", [acc]), s.cache_read(sb, "local", [acc])
bx, by = tec.thread_axis("blockIdx.x"), tec.thread_axis("blockIdx.y")
tx, ty = tec.thread_axis((0, THREADS), "threadIdx.x"), tec.thread_axis((0, THREADS), "threadIdx.y")
i, j = s[C].op.axis
io, ii = s[C].split(i, factor=TILE)
jo, ji = s[C].split(j, factor=TILE)
ti, iv = s[C].split(ii, nparts=THREADS)
tj, jv = s[C].split(ji, nparts=THREADS)
s[C].reorder(io, jo, ti, tj, iv, jv)
for axis, thread in ((io, by), (jo, bx), (ti, ty), (tj, tx)):
    s[C].bind(axis, thread)
s[C].vectorize(jv)
s[acc].compute_at(s[C], tj)
ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=STEP)
ci, cj = s[acc].op.axis
s[acc].reorder(ko, ki, ci, cj)
for axis in (ci, cj):
    s[acc].unroll(axis)
for shared in (sa, sb):
    s[shared].compute_at(s[acc], ko)
    fused = s[shared].fuse(*s[shared].op.axis)
    rest, vector = s[shared].split(fused, factor=4)
    rest, fx = s[shared].split(rest, factor=THREADS)
    rest, fy = s[shared].split(rest, factor=THREADS)
    s[shared].bind(fy, ty)
    s[shared].bind(fx, tx)
    s[shared].vectorize(vector)
for local in (la, lb):
    s[local].compute_at(s[acc], ki)
measure("tiled", s, [A, B, C])

# %% [markdown]
# ![the loops of the tiled product](matmul_tiled.svg)
#
# White boxes are stages, drawn where they are computed. In each iteration of the outer reduction
# loop, all threads together fill the two tiles in LDS (`shared`). In each iteration of the inner
# one, a thread loads its share into registers (`local`).
#
# ## Matrix cores
# The tiling stays the same, and `tensorize` gives tiles of 16 x 16 x 16 to the matrix unit.
# `tec.te.intrin.matrix` returns the intrinsics of the target's unit: they load the tile of an
# operand into the registers of a wavefront, multiply and add, and store. Inputs are float16, sums
# are float32.

# %%
A, B, C = product("float16")
s = tec.create_schedule(C.op)
mx = intrin.matrix(target, "float16", 16, 16, 16)
print(mx.name)
TILE, STEP, WAVES = 64, 32, 2
acc = s.cache_write(C, "fragment.acc")
operands = []
for tensor, role in ((A, "a"), (B, "b")):
    shared = s.cache_read(tensor, "shared", [acc])
    operands.append((shared, s.cache_read(shared, f"fragment.{role}", [acc]), role))
lane = tec.thread_axis((0, 64), "threadIdx.x")
wy, wz = tec.thread_axis((0, WAVES), "threadIdx.y"), tec.thread_axis((0, WAVES), "threadIdx.z")
i, j = C.op.axis
bi, i = s[C].split(i, factor=TILE)
bj, j = s[C].split(j, factor=TILE)
wi, i = s[C].split(i, nparts=WAVES)
wj, j = s[C].split(j, nparts=WAVES)
ti, ii = s[C].split(i, factor=16)
tj, jj = s[C].split(j, factor=16)
s[C].reorder(bi, bj, wi, wj, ti, tj, ii, jj)
for axis, thread in ((bi, tec.thread_axis("blockIdx.y")), (bj, tec.thread_axis("blockIdx.x")), (wi, wz), (wj, wy)):
    s[C].bind(axis, thread)
s[C].tensorize(ii, mx.store)
s[acc].compute_at(s[C], wj)
i, j = s[acc].op.axis
ko, k = s[acc].split(s[acc].op.reduce_axis[0], factor=STEP)
ki, kk = s[acc].split(k, factor=16)
ti, ii = s[acc].split(i, factor=16)
tj, jj = s[acc].split(j, factor=16)
s[acc].reorder(ko, ki, ti, tj, ii, jj, kk)
s[acc].unroll(ki)
s[acc].pragma(ko, "software_pipeline", 1)  # the next step's loads run while this step computes
s[acc].tensorize(ii, mx.mma)
for shared, fragment, role in operands:
    s[fragment].compute_at(s[acc], ki)
    a0, a1 = s[fragment].op.axis
    o0, i0 = s[fragment].split(a0, factor=16)
    o1, i1 = s[fragment].split(a1, factor=16)
    s[fragment].reorder(o0, o1, i0, i1)
    s[fragment].tensorize(i0, mx.load_a if role == "a" else mx.load_b)
    stage = s[shared]
    stage.compute_at(s[acc], ko)
    stage.storage_align(stage.op.axis[0], STEP if role == "a" else TILE, 8)  # rows start in different LDS banks
    rest, vector = stage.split(stage.fuse(*stage.op.axis), factor=8)  # 16 bytes a lane
    for thread, count in ((lane, 64), (wy, WAVES), (wz, WAVES)):
        rest, part = stage.split(rest, factor=count)
        stage.bind(part, thread)
    stage.vectorize(vector)
measure("matrix cores", s, [A, B, C], "float16", 2e-3)

# %% [markdown]
# ![the loops of the product on matrix cores](matmul_matrix_cores.svg)
#
# A red loop and everything inside it become one instruction, or a few, of a whole wavefront. The
# outermost reduction loop is a pipeline.
#
# ## Comparison

# %%
print(f"{'schedule':14} {'us':>8} {'TFLOP/s':>8}  limited by")
for title, us, rate, limit in results:
    print(f"{title:14} {us:8.0f} {rate:8.2f}  {limit}")
assert results[0][1] > 1.5 * results[1][1] and results[1][1] > results[2][1]
bars = [(title, rate, f"{rate:.1f} TFLOP/s, {us:.0f} us, limited by {limit}") for title, us, rate, limit in results]
Path("matmul_rates.svg").write_text(bars_svg(bars, f"{N} x {N} x {N} by the time model of the MI300X"))

# %% [markdown]
# ![the rates of the three schedules](matmul_rates.svg)
#
# A product of size 1024 is small for this chip: it has 256 work-groups for 304 compute units.
# Larger products come nearer to the chip's peak rate.
