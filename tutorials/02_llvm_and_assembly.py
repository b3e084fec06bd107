# %% [markdown]
# # Reading loop IR, LLVM IR and assembly
#
# You can print every stage of a build: the loops of the schedule, the loops after all passes, the
# LLVM IR, and the assembly.

# %%
import tec

A = tec.placeholder((1024, 256), name="A")
B = tec.compute((1024, 256), lambda i, j: tec.exp(A[i, j]) * 2.0, name="B")
s = tec.create_schedule(B.op)
row, col = B.op.axis
outer, inner = s[B].split(col, factor=4)
s[B].bind(row, tec.thread_axis("blockIdx.x"))
s[B].bind(outer, tec.thread_axis("threadIdx.x"))
s[B].vectorize(inner)

# %% [markdown]
# The loops of the schedule:

# %%
print(tec.lower(s, [A, B], simple_mode=True))

# %% [markdown]
# After all passes the buffers are flat, the inner loop is one vector of four, and `exp` is
# expressed by operations that the chip has.

# %%
f = tec.build(s, [A, B], "rocm -mcpu=gfx942", name="twice_exp")
device_module = f.imported_modules[0]
print(device_module.get_source("ir"))

# %% [markdown]
# This is the LLVM IR that LLVM's optimiser receives, and the instructions that it generates. One
# `global_load_dwordx4` loads the vector of four. `exp` is the chip's `v_exp_f32`, of an argument
# that packed multiply-adds reduce in two pieces of log2(e); its error is at most 2 ulp.

# %%
llvm = device_module.get_source("llvm")
print(llvm[llvm.index("define") :][:1200])

# %%
asm = device_module.get_source("asm")
code = asm[asm.index("twice_exp_kernel0:") : asm.index("s_endpgm")]
print(code)
assert "global_load_dwordx4" in code and "v_exp_f32" in code and "v_pk_fma_f32" in code

# %% [markdown]
# The code object records the resources that the kernel uses:

# %%
for name, facts in device_module.attrs["kernels"].items():
    print(name, {k: facts[k] for k in ("vgprs", "sgprs", "lds_bytes", "vgpr_spills", "threads")})

# %% [markdown]
# `TEC_DUMP=vectorize,unroll` in the environment prints the IR after those passes; `TEC_VERIFY=1`
# verifies it after each. For a network: `tec show model.onnx asm --kernel NAME`, or all of it in
# one page, `tec show model.onnx --html report.html`.
