# %% [markdown]
# # Finding a bug with the software GPU's sanitizer
#
# The software GPU executes the kernel's machine code and checks it. It always checks every address
# against the live allocations. On request it also finds races between threads, reads of memory
# that nothing wrote, and missing waits.

# %%
import numpy as np

import tec

# %% [markdown]
# ## An index that runs past the end
# A kernel that shifts by one reads `A[n]`. On hardware this gives another array's value, or a
# fault without a location. The bounds are wrong on purpose: the placeholder claims one element
# more than the caller has.

# %%
N = 256
A = tec.placeholder((N + 64,), name="A")
B = tec.compute((N,), lambda i: A[i + 1] - A[i], name="B")
s = tec.create_schedule(B.op)
block, thread = s[B].split(B.op.axis[0], factor=64)
s[B].bind(block, tec.thread_axis("blockIdx.x"))
s[B].bind(thread, tec.thread_axis("threadIdx.x"))
f = tec.build(s, [A, B], "rocm -mcpu=gfx942", name="difference")
dev = tec.rocm_emu("gfx942")
a, b = tec.nd.array(np.arange(N, dtype="float32"), dev), tec.nd.empty((N,), "float32", dev)
try:
    f(a, b)  # the check of the arguments comes first
except tec.ArgumentError as error:
    print(error.message)

# %% [markdown]
# The next cell skips that check and launches the kernel directly, as a hand-written launcher
# would:

# %%
import struct

kernel = f.imported_modules[0].kernel(dev, "difference_kernel0")
raw_in, raw_out = (dev.driver.alloc(0, 4 * N) for _ in range(2))
try:
    dev.driver.launch(kernel, (N // 64, 1, 1), (64, 1, 1), 0, struct.pack("<QQ", raw_in, raw_out))
    raise SystemExit("the fault was not found")
except tec.DeviceError as error:
    print(error.message)

# %% [markdown]
# ## Memory that nothing wrote
# `check` names further checks. "init" finds reads of uninitialized memory: here, an input that was
# allocated and never filled.

# %%
C = tec.placeholder((N,), name="C")
D = tec.compute((N,), lambda i: C[i] * 2.0, name="D")
s = tec.create_schedule(D.op)
block, thread = s[D].split(D.op.axis[0], factor=64)
s[D].bind(block, tec.thread_axis("blockIdx.x"))
s[D].bind(thread, tec.thread_axis("threadIdx.x"))
double = tec.build(s, [C, D], "rocm -mcpu=gfx942", name="double")
strict = tec.rocm_emu("gfx942", check={"init", "race"})
empty, out = tec.nd.empty((N,), "float32", strict), tec.nd.empty((N,), "float32", strict)
try:
    double(empty, out)
    strict.sync()
    raise SystemExit("the fault was not found")
except tec.DeviceError as error:
    print(error.message)

# %% [markdown]
# Filled, it runs:

# %%
full = tec.nd.array(np.ones(N, "float32"), strict)
double(full, out)
print(out.numpy()[:4])

# %% [markdown]
# ## A race
# Each thread adds one to the bin of its value: a load, an addition, a store, and another thread's
# in between. The sums come out too small, on hardware differently in each run; nothing else tells.
# "race" names the two accesses.

# %%
from tec import te

BINS = 16


def histogram(atomic):
    values = te.placeholder((N,), "int32", name="values")

    def body(ins, outs):
        ib = te.ir_builder.create()
        group, item = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
        ib.scope_attr(group, "thread_extent", N // 64)
        ib.scope_attr(item, "thread_extent", 64)
        v, bins = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        mine = v[group * 64 + item]
        if atomic:
            ib.emit(tec.call_intrin("int32", "atomic_add", bins[mine], 1))
        else:
            bins[mine] = bins[mine] + 1
        return ib.get()

    counts = te.extern((BINS,), [values], body, name="counts", dtype="int32")
    return tec.build(tec.create_schedule(counts.op), [values, counts], "rocm -mcpu=gfx942", name="histogram")


data = np.random.default_rng(0).integers(0, BINS, N).astype("int32")
want = np.bincount(data, minlength=BINS)


def count(f, dev):
    bins = tec.nd.zeros((BINS,), "int32", dev)
    f(tec.nd.array(data, dev), bins)
    return bins.numpy()


print("wrong, and no error:", count(histogram(atomic=False), dev), "for", want)
racing = tec.rocm_emu("gfx942", check={"race"})
try:
    count(histogram(atomic=False), racing)
    raise SystemExit("the race was not found")
except tec.DeviceError as error:
    print(error.message)

# %% [markdown]
# An atomic addition is one access: nothing comes in between.

# %%
assert (count(histogram(atomic=True), racing) == want).all()

# %% [markdown]
# A program written for a GPU is checked unchanged with
# `TEC_EMULATE=gfx942 TEC_EMULATE_CHECK=race,init python program.py`.
