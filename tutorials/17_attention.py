# %% [markdown]
# # Attention in one pass
#
# Attention is the softmax of q times k transposed, times v. Computed in these three steps, the
# scores of all queries and keys are stored in memory. One pass over the keys avoids this. It keeps
# the largest score so far, the sum of the weights, and the weighted values of each query, and
# rescales the latter two whenever the largest score grows (Milakov and Gimelshein's online
# softmax).

# %%
import numpy as np

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.ops import get_op
from tec.ops.registry import TensorType

n, d = 48, 16
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((n, d)).astype(np.float32) for _ in range(3))
x = q.astype(np.float64) @ k.T * d**-0.5
p = np.exp(x - x.max(1, keepdims=True))
want = p @ v / p.sum(1, keepdims=True)

# %% [markdown]
# ## By hand
#
# te's reducers combine numbers. Here the combined value is (largest score, sum, a row of values),
# which is rescaled on the way. The loops are therefore written as the body of a `te.extern`. Each
# query's row is a parallel task.


# %%
def one_pass(ins, outs):
    ib = te.ir_builder.create()
    query, key, value, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
    with ib.for_range(0, n, "i", kind="parallel") as i:
        top = ib.allocate("float32", (1,), "top", scope="local")
        total = ib.allocate("float32", (1,), "total", scope="local")
        row = ib.allocate("float32", (d,), "row", scope="local")
        score = ib.allocate("float32", (1,), "score", scope="local")
        top[0], total[0] = -3e38, 0.0
        with ib.for_range(0, d, "c", kind="vectorize") as c:
            row[c] = 0.0
        with ib.for_range(0, n, "j") as j:
            score[0] = 0.0
            with ib.for_range(0, d, "c") as c:
                score[0] = score[0] + query[i, c] * key[j, c]
            fresh = ib.let("fresh", te.max(top[0], score[0] * d**-0.5))
            scale, weight = (
                ib.let("scale", te.exp(top[0] - fresh)),
                ib.let("weight", te.exp(score[0] * d**-0.5 - fresh)),
            )
            top[0] = fresh
            total[0] = total[0] * scale + weight
            with ib.for_range(0, d, "c", kind="vectorize") as c:
                row[c] = row[c] * scale + value[j, c] * weight
        with ib.for_range(0, d, "c", kind="vectorize") as c:
            out[i, c] = row[c] / total[0]
    return ib.get()


Q, K, V = (te.placeholder((n, d), name=name) for name in "QKV")
O = te.extern((n, d), [Q, K, V], one_pass, name="attention", dtype="float32")
f = tec.build(tec.create_schedule(O.op), [Q, K, V, O], "llvm")
got = tec.nd.empty((n, d))
f(*(tec.nd.array(a) for a in (q, k, v)), got)
np.testing.assert_allclose(got.numpy(), want, atol=1e-5)

# %% [markdown]
# ## As an operator
#
# The operator `attention` says what is computed: masks, biases, windows, heads that share keys,
# symbolic lengths. How it is computed is a choice for each target: vectors on a CPU, and on a GPU
# with matrix units scores and weights that stay in registers.

# %%
attrs = {"scale": d**-0.5, "extras": ()}
tensors = [te.placeholder((1, 1, n, d), "float16", name) for name in "qkv"]
made = get_op("attention").compute(attrs, tensors, [TensorType("float16", (1, 1, n, d))])
for target in ("llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda -arch=sm_80"):
    space = spaces(made, target)[0]
    print(f"{target:20} {space.default}")

# %% [markdown]
# Every legal choice computes the same result. This one is for an MI300, on the AMD GPU in
# software:

# %%
target = "rocm -mcpu=gfx942"
scheduled = schedule(
    made, target, {"template": "matrix attention", "rows": 16, "keys": 32, "waves": 2, "unit": "16x16"}
)
f = tec.build(scheduled.schedule, [*tensors, *scheduled.outputs], target)
device = tec.rocm_emu("gfx942")
got = tec.nd.empty((1, 1, n, d), "float16", device)
f(*(tec.nd.array(a.astype(np.float16)[None, None], device) for a in (q, k, v)), got)
np.testing.assert_allclose(got.numpy()[0, 0].astype(np.float64), want, atol=5e-3)
print([line.split()[0] for line in f.imported_modules[0].get_source("asm").splitlines() if "mfma" in line][:1])
