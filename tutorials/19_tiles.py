# %% [markdown]
# # Tiles
#
# A te program defines an element, and a `@tec.kernel` defines a thread. A tile program lies
# between the two: it says what happens to blocks of an array, and the compiler chooses threads,
# registers, shared memory and matrix units. The functions have Triton's names. [The
# guide](../tiles.md) lists them.

# %%
import numpy as np

import tec
import tec.tile as tl

rng = np.random.default_rng(0)

# %% [markdown]
# ## Softmax: a row is a tile
# Each program takes one row. Its tile has the next power of two elements, and a mask leaves out
# what is beyond the row. `tl.max` and `tl.sum` reduce through registers, lanes and waves.


# %%
@tec.tile.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    here = tl.program_id(0) * columns + at
    row = tl.load(x + here, mask=at < columns, other=-float("inf"))
    e = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + here, e / tl.sum(e, axis=0), mask=at < columns)


x = rng.standard_normal((16, 300)).astype(np.float32)
e = np.exp(x - x.max(1, keepdims=True))
want = e / e.sum(1, keepdims=True)
for dev in (tec.cpu(), tec.rocm_emu("gfx942"), tec.rocm_emu("gfx1100")):
    out = tec.nd.zeros(x.shape, "float32", dev)
    softmax[(16,)](tec.nd.array(x, dev), out, 300, BLOCK=512)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)
    print("softmax on", dev)

# %% [markdown]
# The tile program of this kernel, before threads are chosen:

# %%
print(softmax.ir("*fp32", "*fp32", 300, BLOCK=512))

# %% [markdown]
# ## Matrix product
# Each program computes a tile of C. It walks along k, loads a tile of A and one of B, and adds
# their product. `tl.dot` is MFMA on this chip, WMMA on RDNA3, mma.sync on NVIDIA GPUs, and vectors
# on a CPU.


# %%
@tec.tile.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0)
        right = tl.load(
            b + ks[:, None] * N + columns[None, :], mask=(ks[:, None] < K) & (columns[None, :] < N), other=0
        )
        total = tl.dot(left, right, total)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=mask)


M, N, K = 100, 70, 50
a, b = rng.standard_normal((M, K)).astype(np.float16), rng.standard_normal((K, N)).astype(np.float16)
product = a.astype(np.float32) @ b.astype(np.float32)
for dev in (tec.cpu(), tec.rocm_emu("gfx942")):
    c = tec.nd.zeros((M, N), "float16", dev)
    matmul[(4, 3)](tec.nd.array(a, dev), tec.nd.array(b, dev), c, M, N, K, BM=32, BN=32, BK=32)
    np.testing.assert_allclose(c.numpy(), product, rtol=2e-3, atol=2e-3)
    print("matmul on", dev)

# %% [markdown]
# You can print the assembly of any target without its device. The sizes of the tiles decide how
# many matrix instructions a wave runs between two barriers:

# %%
for side in (32, 64, 128):
    constants = {"BM": side, "BN": side, "BK": 32}
    text = matmul.asm("rocm -mcpu=gfx942", "*fp16", "*fp16", "*fp16", 4096, 4096, 4096, **constants)
    print(
        side, "x", side, "tiles:", text.count("v_mfma"), "MFMA,", text.count("ds_read_b128"), "reads of 16 bytes a step"
    )
for target in ("rocm -mcpu=gfx1100", "cuda -arch=sm_80"):
    text = matmul.asm(target, "*fp16", "*fp16", "*fp16", 4096, 4096, 4096, BM=64, BN=64, BK=32)
    print(target, ":", text.count("v_wmma") + text.count("mma.sync"), "matrix instructions")
