# %% [markdown]
# # Kernels as plain functions
#
# A schedule says how a computation runs. Sometimes it is simpler to write what each thread does,
# as in CUDA or HIP. `@tec.kernel` takes a plain Python function and compiles it when it is
# launched, for the device that its arrays are on: a CPU, an AMD or NVIDIA GPU, or the AMD GPU in
# software, which this page uses. [The guide](../kernels.md) lists the language.

# %%
import numpy as np

import tec

dev = tec.rocm_emu("gfx942", check={"bounds", "race"})


@tec.kernel
def saxpy(x, y, a, n):
    i = tec.grid_idx(1)  # block_idx.x * block_dim.x + thread_idx.x
    if i < n:
        y[i] = a * x[i] + y[i]


n = 1000
x = tec.nd.array(np.arange(n, dtype=np.float32), dev)
y = tec.nd.array(np.ones(n, np.float32), dev)
saxpy[(n + 255) // 256, 256](x, y, 2.0, n)
assert (y.numpy() == 2 * np.arange(n) + 1).all()
print(y.numpy()[:5], "on", dev)

# %% [markdown]
# With NumPy arrays the same kernel runs on the CPU, in place. `launch(n)` starts one thread for
# each item and chooses the block size by itself.

# %%
here = np.ones(n, np.float32)
saxpy.launch(n)(np.arange(n, dtype=np.float32), here, 2.0, n)
assert (here == y.numpy()).all()

# %% [markdown]
# ## Threads that work together
# To compute a sum, each block adds up its part in shared memory, in a tree, and adds the result to
# the total by an atomic operation. Between two steps of the tree `tec.barrier()` waits until all
# threads of the block have arrived.

# %%
BLOCK = 128


@tec.kernel
def total(x, out):
    part = tec.shared(BLOCK, np.float32)
    t, i = tec.thread_idx.x, tec.grid_idx(1)
    part[t] = x[i] if i < len(x) else 0.0
    tec.barrier()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        tec.barrier()
        half //= 2
    if t == 0:
        tec.atomic_add(out, 0, part[0])


out = tec.nd.array(np.zeros(1, np.float32), dev)
total[(n + BLOCK - 1) // BLOCK, BLOCK](x, out)
print("sum", out.numpy()[0])
assert out.numpy()[0] == n * (n - 1) / 2

# %% [markdown]
# ## What the software GPU finds
# Without the barrier a thread reads what another has not written yet. On a GPU this often goes
# unnoticed; here the check names the line.


# %%
@tec.kernel
def reversed_in_blocks(x):
    s = tec.shared(BLOCK, np.float32)
    t = tec.thread_idx.x
    s[t] = x[t]
    x[t] = s[BLOCK - 1 - t]


try:
    reversed_in_blocks[1, BLOCK](tec.nd.array(np.zeros(BLOCK, np.float32), dev))
    dev.sync()
    raise AssertionError("the race was not found")
except tec.TecError as error:
    print(error)

# %% [markdown]
# ## print and assert
# Both report the thread and the line, on every target.


# %%
@tec.kernel
def check(x, limit):
    i = tec.grid_idx(1)
    if i < len(x) and x[i] > limit - 2:
        print(f"x[{i}] = {x[i]:.1f}")
    assert i >= len(x) or x[i] < limit, f"x[{i}] is {x[i]}"


check[8, 128](x, 1000.0)
try:
    check[8, 128](x, 999.0)
    raise AssertionError("nothing failed")
except tec.KernelError as error:
    print(error)

# %% [markdown]
# ## Error messages name the line and say what to write instead


# %%
@tec.kernel
def wrong(x):
    x[1:] = x[:-1]


try:
    wrong[1, 1](x)
    raise AssertionError("a part was stored to the same array")
except tec.KernelError as error:
    print(error)

# %% [markdown]
# ## Looking inside
# A kernel shows its loop IR, LLVM IR, assembly and resources, for given arguments or for their
# types.

# %%
types = ("float32[:]", "float32[:]", "float", "int32")
print(saxpy.loop_ir(*types))
asm = saxpy.asm(*types, target="rocm -mcpu=gfx1100")
print(asm[asm.index("saxpy_kernel0:") : asm.index("s_endpgm")])
found = saxpy.resources(*types, target="rocm -mcpu=gfx942")
print({k: found[k] for k in ("vgprs", "sgprs", "lds_bytes", "occupancy", "limited_by")})
assert found["vgpr_spills"] == 0

# %% [markdown]
# `device_code` prints the code of everything that is compiled in its block, te functions and
# networks included.

# %%
with tec.device_code("resources"):
    total[1, 256 // 2](tec.nd.array(np.zeros(4), dev), tec.nd.array(np.zeros(1), dev))
