# %% [markdown]
# # The first kernel
#
# A kernel has two parts: a tensor expression says **what** is computed, and a schedule says
# **how**. This tutorial adds two vectors, on the CPU and on an AMD GPU in software.

# %%
import numpy as np

import tec

n = tec.var("n")  # a size that is only known at run time
A = tec.placeholder((n,), name="A")
B = tec.placeholder((n,), name="B")
C = tec.compute((n,), lambda i: A[i] + B[i], name="C")

# %% [markdown]
# A schedule begins as plain loops. `print(s)` shows the loop nest at any time.

# %%
s = tec.create_schedule(C.op)
print(s)

# %%
add = tec.build(s, [A, B, C], "llvm", name="add")
a, b = np.arange(10, dtype="float32"), np.full(10, 0.5, "float32")
c = np.zeros(10, "float32")
add(a, b, c)  # outputs are arguments; NumPy arrays are used where they lie
print(c)
assert (c == a + b).all()

# %% [markdown]
# On a GPU, loops become work-groups and threads: the schedule splits the loop and binds its parts.

# %%
s = tec.create_schedule(C.op)
block, thread = s[C].split(C.op.axis[0], factor=64)
s[C].bind(block, tec.thread_axis("blockIdx.x"))
s[C].bind(thread, tec.thread_axis("threadIdx.x"))
print(s)

# %%
add_gpu = tec.build(s, [A, B, C], "rocm -mcpu=gfx942", name="add")
dev = tec.rocm_emu("gfx942")  # tec.rocm(0) where there is a GPU
x = tec.nd.array(np.arange(1000, dtype="float32"), dev)
y = tec.nd.array(np.ones(1000, "float32"), dev)
z = tec.nd.empty((1000,), "float32", dev)
add_gpu(x, y, z)
print(z.numpy()[:5], "...", z.numpy()[-1])
assert (z.numpy() == np.arange(1000) + 1).all()

# %% [markdown]
# A mistake is an error that names the line of your program, before anything runs:

# %%
try:
    add(a, b, np.zeros(10, "float64"))
except tec.ArgumentError as error:
    print(error.message)
