# %% [markdown]
# # Coming from TVM's te
#
# The language is te's. [The guide](../tvm.md) describes the package that runs TVM programs with
# only their import changed, and lists all differences. This page writes a program with tec's own
# names. The differences are:
#
# | TVM | tec |
# | --- | --- |
# | `from tvm import te` | `import tec` (or `from tec import te`) |
# | `te.var`, `te.placeholder`, `te.compute`, `te.reduce_axis`, `te.comm_reducer`, `te.scan`, `te.extern` | the same, as `tec.*` and `te.*` |
# | `@te.hybrid.script` | the same; for the program of one thread `@tec.kernel` ([guide](../kernels.md)) |
# | `te.create_schedule(C.op)` | `tec.create_schedule(C.op)` |
# | `s[C].split(...)`, `compute_at`, `cache_read`, `rfactor`, `tensorize` | the same |
# | `tvm.lower(s, args, simple_mode=True)` | `tec.lower(s, args, simple_mode=True)` |
# | `tvm.build(s, args, "rocm")` | `tec.build(s, args, "rocm -mcpu=gfx942")`, which needs neither ROCm nor a linker |
# | `tvm.nd.array(x, tvm.rocm(0))` | `tec.nd.array(x, tec.rocm(0))`; without a GPU `tec.rocm_emu("gfx942")` |
# | `f.imported_modules[0].get_source()` | `f.get_source("llvm")`, `"asm"`, `"ir"` |
# | `f.time_evaluator(f.entry_name, dev, number=10)` | the same |
# | `relay.frontend.from_onnx`, `relay.build` and `GraphModule` | `tec.compile("model.onnx", target=...)`, `net.run({...})` |
# | `f.export_library("f.so")` | `f.save("f.tecmod")`, `net.save("net.tec")`; for C `f.export_library("f.so")` ([guide](../c-abi.md)) |
# | `tvmc compile`, `tvmc run` | `tec compile`, `tec run`, `tec bench`, `tec verify`, `tec show` |
# | `tvm.tir.call_intrin(...)` | `tec.call_intrin`, `tec.call_llvm_intrin` |
# | an assertion or ICHECK deep inside | a `tec.TecError` with your line and the loop nest |
#
# ## The same program

# %%
import numpy as np

import tec
from tec import te

n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
s = tec.create_schedule(C.op)
bx, tx = s[C].split(C.op.axis[0], factor=64)
s[C].bind(bx, te.thread_axis("blockIdx.x"))
s[C].bind(tx, te.thread_axis("threadIdx.x"))
fadd = tec.build(s, [A, B, C], tec.Target("rocm -mcpu=gfx90a"), name="myadd")

dev = tec.rocm_emu("gfx90a")
a = tec.nd.array(np.random.default_rng(0).uniform(size=1024).astype("float32"), dev)
b = tec.nd.array(np.ones(1024, "float32"), dev)
c = tec.nd.array(np.zeros(1024, "float32"), dev)
fadd(a, b, c)
np.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
print(fadd.imported_modules[0].get_source()[:200])

# %% [markdown]
# ## What is new
#
# You can print the schedule after any primitive. It prints as a loop nest, and `s.trace` prints
# the Python calls that made it:

# %%
print(s)

# %% [markdown]
# A primitive that cannot be applied raises an error at once, at its line in your program:

# %%
try:
    s[C].vectorize(bx)
except tec.ScheduleError as error:
    print(error)
else:
    raise SystemExit("vectorizing a bound axis was taken")

# %% [markdown]
# The software GPU checks a kernel for races, accesses outside buffers and uninitialized reads,
# without any GPU: see "Finding a bug".
