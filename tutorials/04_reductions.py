# %% [markdown]
# # Reductions
#
# A reduction names its axes with `tec.reduce_axis`. The schedule decides how it is distributed
# over threads.

# %%
import numpy as np

import tec

ROWS, COLS = 64, 1000
A = tec.placeholder((ROWS, COLS), name="A")
k = tec.reduce_axis((0, COLS), name="k")
B = tec.compute((ROWS,), lambda i: tec.sum(A[i, k], axis=k), name="B")
x = np.random.default_rng(0).standard_normal((ROWS, COLS)).astype("float32")


def run(s, args, target="rocm -mcpu=gfx942"):
    dev = tec.rocm_emu("gfx942")
    out = tec.nd.empty((ROWS,), args[-1].dtype, dev)
    f = tec.build(s, args, target, name="reduce")
    f(tec.nd.array(x, dev), out)
    return f, out.numpy()


# %% [markdown]
# ## One row for each work-group: the threads share a reduction
# Binding part of a reduction axis to `threadIdx.x` makes a cross-lane reduction. It uses DPP and
# permutes within a wavefront and LDS between wavefronts.

# %%
s = tec.create_schedule(B.op)
ko, ki = s[B].split(B.op.reduce_axis[0], factor=64)
s[B].bind(B.op.axis[0], tec.thread_axis("blockIdx.x"))
s[B].bind(ki, tec.thread_axis("threadIdx.x"))
f, got = run(s, [A, B])
np.testing.assert_allclose(got, x.sum(1), rtol=1e-4, atol=1e-4)
asm = f.get_source("asm")
print(
    "lane exchanges:",
    asm.count("_dpp"),
    "DPP;",
    asm.count("ds_swizzle") + asm.count("ds_bpermute"),
    "through LDS hardware",
)
assert asm.count("_dpp") > 0

# %% [markdown]
# ## rfactor: partial results first
# `rfactor` turns part of a reduction axis into an axis of a new stage: partial sums that can be
# computed in parallel and are then added. On a CPU it lets one long sum use vectors.

# %%
s = tec.create_schedule(B.op)
ko, ki = s[B].split(B.op.reduce_axis[0], factor=8)
partial = s.rfactor(B, ki)
s[partial].compute_at(s[B], s[B].op.axis[0])
print(s)
f = tec.build(s, [A, B], "llvm", name="reduce")
out = np.zeros(ROWS, "float32")
f(x, out)
np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-4)

# %% [markdown]
# ## A reduction of your own: argmax
# `comm_reducer` takes a function that combines two elements, and the identity. Tuples make
# reductions of several values.

# %%
argmax = tec.comm_reducer(
    lambda p, q: (tec.if_then_else(p[1] >= q[1], p[0], q[0]), tec.if_then_else(p[1] >= q[1], p[1], q[1])),
    lambda t0, t1: (tec.const(-1, t0), tec.min_value(t1)),
    name="argmax",
)
best = tec.compute((ROWS,), lambda i: argmax((k.var.astype("int32"), A[i, k]), axis=k), name="best")
s = tec.create_schedule(best[0].op)
f = tec.build(s, [A, best[0], best[1]], "llvm", name="argmax")
where, value = np.zeros(ROWS, "int32"), np.zeros(ROWS, "float32")
f(x, where, value)
assert (where == x.argmax(1)).all() and (value == x.max(1)).all()
print(where[:8])
