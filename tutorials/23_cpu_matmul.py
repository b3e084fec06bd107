# %% [markdown]
# # A matrix product on one CPU core
#
# TVM's tutorial `opt_gemm` ends with a schedule that reaches about three quarters of OpenBLAS's
# speed on one thread. This page has one that reaches it, in the same primitives. It needs three
# decisions: how many sums a core keeps in registers, where B lies while it is read, and how often A
# is read.

# %%
import os
import statistics
import time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # the comparison at the end is of one thread

import numpy as np

import tec
from tec import te

N = 1024
ROWS, COLUMNS = 6, 16  # of a tile of C in registers
GROUP = 16  # tiles beside each other that share rows of A

# %% [markdown]
# ## The computation
# B is read from panels of 16 columns, in which the rows lie behind each other: the inner loop reads
# memory in order. The panels are a stage of their own, so the schedule says when they are made.

# %%
A = te.placeholder((N, N), name="A")
B = te.placeholder((N, N), name="B")
k = te.reduce_axis((0, N), name="k")
P = te.compute((N // COLUMNS, N, COLUMNS), lambda panel, row, lane: B[row, panel * COLUMNS + lane], name="panels")
C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * P[j // COLUMNS, k, j % COLUMNS], axis=k), name="C")

# %% [markdown]
# ## The schedule
# - A core with AVX2 has 16 registers of 8 floats. A tile of 6 by 16 keeps 12 sums, two vectors of B
#   and one element of A in them. 12 sums also hide the 4 clocks that an FMA takes, at two in a clock.
# - `cache_write` makes the sums a stage in "local" memory, computed at each tile. Its loops over the
#   tile are unrolled and vectorized, so they become registers.
# - 6 rows of A (24 KB) stay in the first cache while they meet a group of panels. A group of 16 reads A
#   4 times in all; a group of 2 reads it 32 times, and takes about a third more time.
# - 1024 rows are no multiple of 6. The compiler gives the last tile a loop of its own.

# %%
s = te.create_schedule(C.op)
sums = s.cache_write(C, "local")
i, j = C.op.axis
group, j = s[C].split(j, GROUP * COLUMNS)
panel, lane = s[C].split(j, COLUMNS)
block, row = s[C].split(i, ROWS)
s[C].reorder(group, block, panel, row, lane)
s[C].unroll(row)
s[C].vectorize(lane)

s[P].compute_at(s[C], group)
s[P].vectorize(P.op.axis[2])

s[sums].compute_at(s[C], panel)
row, lane = sums.op.axis
outer, inner = s[sums].split(s[sums].op.reduce_axis[0], 8)
s[sums].reorder(outer, inner, row, lane)
s[sums].unroll(inner)
s[sums].unroll(row)
s[sums].vectorize(lane)
print(s)

# %% [markdown]
# ## The result

# %%
f = tec.build(s, [A, B, C], "llvm")
rng = np.random.default_rng(0)
a, b = (rng.random((N, N), np.float32) for _ in range(2))
c = np.zeros((N, N), np.float32)
f(a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-4)


def seconds(*calls, rounds=9):
    """The median processor time of each call, in turn."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, times):
            start = time.thread_time()
            call()
            own.append(time.thread_time() - start)
    return [statistics.median(t) for t in times]


mine, blas = seconds(lambda: f(a, b, c), lambda: np.matmul(a, b, out=c))
print(f"{2 * N**3 / mine / 1e9:.0f} GFLOP/s, {blas / mine:.2f} of the speed of NumPy's BLAS")

# %% [markdown]
# A core with AVX-512 has 32 registers of 16 floats, for a larger tile. `tec.topi.schedule` and
# `tec.compile` choose tiles for the processor by themselves.
