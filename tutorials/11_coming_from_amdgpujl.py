# %% [markdown]
# # Coming from AMDGPU.jl
#
# AMDGPU.jl compiles Julia functions as kernels. tec compiles Python functions as kernels, and also
# tensor expressions with schedules. The pieces around the kernels are the same, under these names:
#
# | AMDGPU.jl | tec |
# | --- | --- |
# | `@roc groupsize=64 gridsize=n kernel(a, b)` | `kernel[n, 64](a, b)` of a function under `@tec.kernel` ([guide](../kernels.md)); or a schedule binds axes to `blockIdx.x`, `threadIdx.x` |
# | `workitemIdx().x`, `workgroupIdx().x` | `tec.thread_idx.x`, `tec.block_idx.x` (from 0); in schedules `tec.thread_axis("threadIdx.x")` |
# | `@ROCStaticLocalArray(Float32, 256)` | `tec.shared(256, np.float32)`; in schedules `s.cache_read(A, "shared", [C])` |
# | `sync_workgroup()` | `tec.barrier()`; a schedule gets its barriers automatically |
# | `ROCArray(x)`, `Array(a)` | `tec.nd.array(x, dev)`, `a.numpy()` |
# | `AMDGPU.synchronize()` | `dev.sync()` |
# | `HIPStream`, `stream!` | `with dev.stream() as st:` |
# | `@device_code_typed`, `@device_code_llvm`, `@device_code_gcn` | `with tec.device_code("loop_ir", "llvm", "asm"):`; `f.get_source("ir")`, `"llvm"`, `"asm"` |
# | caching allocator, `AMDGPU.reclaim()`, `AMDGPU.Mem.info()` | caching allocator, `dev.empty_cache()`, `dev.memory()` |
# | `AMDGPU.@profile`, rocprof | `with tec.profile(dev) as p:`; `p.save_trace(...)` |
# | `AMDGPU.versioninfo()` | `tec doctor` |
# | `AMDGPU.functional()` | `tec.runtime.rocm_exists()` |
# | a GPU | a GPU, or `tec.rocm_emu("gfx942")`, a GPU in software |

# %%
import numpy as np

import tec

dev = tec.rocm_emu("gfx942")
N = 4096
A, B = tec.placeholder((N,), name="A"), tec.placeholder((N,), name="B")
C = tec.compute((N,), lambda i: A[i] * 2.0 + B[i], name="C")
s = tec.create_schedule(C.op)
group, item = s[C].split(C.op.axis[0], factor=256)
s[C].bind(group, tec.thread_axis("blockIdx.x"))
s[C].bind(item, tec.thread_axis("threadIdx.x"))
axpy = tec.build(s, [A, B, C], "rocm -mcpu=gfx942", name="axpy")

a, b = (tec.nd.array(np.random.default_rng(k).standard_normal(N).astype("float32"), dev) for k in (0, 1))
c = tec.nd.empty((N,), "float32", dev)

# %% [markdown]
# ## Launching on a stream, timed by events
# Launches are asynchronous.

# %%
start, stop = dev.event(), dev.event()
with dev.stream():
    start.record()
    axpy(a, b, c)
    stop.record()
stop.sync()
print(f"{start.elapsed_ms(stop):.3f} ms on {dev}")
np.testing.assert_allclose(c.numpy(), a.numpy() * 2 + b.numpy(), rtol=1e-6)

# %% [markdown]
# ## Reading the code
# `get_source` returns what `@device_code_*` prints.

# %%
print(axpy.imported_modules[0].get_source("ir"))
asm = axpy.get_source("asm")
print(asm[asm.index("axpy_kernel0:") : asm.index("s_endpgm")])

# %% [markdown]
# ## The allocator
# On a GPU, freed blocks are kept for reuse, and `dev.empty_cache()` returns them. If a request
# fails, the allocator does this itself and tries again. The software GPU frees memory at once, so
# that an access to freed memory is detected.

# %%
before = dev.memory()
scratch = [tec.nd.empty((1 << 20,), "float32", dev) for _ in range(4)]
print(dev.memory())
assert dev.memory().used >= before.used + (16 << 20)
del scratch
dev.empty_cache()
print(dev.memory())
assert dev.memory().used == before.used

# %% [markdown]
# ## Profiling

# %%
with tec.profile(dev) as p:
    for _ in range(3):
        axpy(a, b, c)
print(p)
assert len(p.launches) == 3
