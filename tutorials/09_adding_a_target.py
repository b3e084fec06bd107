# %% [markdown]
# # Adding a target
#
# A target is a row of facts in `tec/target/`. A new kind of machine also needs a small subclass of
# the emitter in `tec/codegen/`. No pass asks for a target by name; passes ask what the chip can
# do. This tutorial adds a chip to a running tec and looks at how the code changes.

# %%
import dataclasses

import tec
from tec.target import CHIPS

cdna3 = tec.Target("rocm -mcpu=gfx942")
rdna3 = tec.Target("rocm -mcpu=gfx1100")
for t in (cdna3, rdna3):
    print(
        t,
        t.wavefront_size,
        "lanes,",
        t.lds_bytes,
        "bytes of LDS; f16 matrix shapes:",
        [s[2:5] for s in t.matrix_shapes("float16")],
    )

# %% [markdown]
# ## A chip
# A chip that LLVM knows and tec does not is one row: its family, its wavefront sizes, its LDS, and
# its matrix shapes. The example adds gfx1152, another RDNA 3.5 part, with the facts of gfx1151.

# %%
try:
    tec.Target("rocm -mcpu=gfx1152")
except tec.TargetError as error:
    print(error.message)
CHIPS["gfx1152"] = dataclasses.replace(CHIPS["gfx1151"], name="gfx1152")
new = tec.Target("rocm -mcpu=gfx1152")

# %% [markdown]
# Everything else follows from the row. The example is a row sum. Its reduction over a wavefront
# uses the lane exchanges that the chip has, for the number of lanes that it has.

# %%
ROWS, COLS = 32, 256
A = tec.placeholder((ROWS, COLS), name="A")
k = tec.reduce_axis((0, COLS), name="k")
B = tec.compute((ROWS,), lambda i: tec.sum(A[i, k], axis=k), name="B")
for t in (cdna3, rdna3, new):
    s = tec.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=t.wavefront_size)
    s[B].bind(B.op.axis[0], tec.thread_axis("blockIdx.x"))
    s[B].bind(ki, tec.thread_axis("threadIdx.x"))
    asm = tec.build(s, [A, B], t, name="rows").get_source("asm")
    exchanges = [
        line.split(";")[0].strip()
        for line in asm.splitlines()
        if "dpp" in line or "ds_swizzle" in line or "permlane" in line
    ]
    print(f"{t}: {len(exchanges)} lane exchanges, such as {exchanges[0]}")
    assert f"amdgcn-amd-amdhsa--{t.mcpu}" in asm and exchanges

# %% [markdown]
# ## A kind of machine
# `tec/codegen/nvptx/` is the example to read. The emitter holds parts: variables, arithmetic,
# memory, statements, and the frame of a kernel. A target names its own class for each part that
# differs. It also has a table of calls: barriers, shuffles, atomics, matrix instructions. It must
# not repeat a pass. If a pass needs to know something, add a capability to `Target` and let the
# pass ask for it.

# %%
from tec.codegen.emit.calls import CALLS
from tec.codegen.emit.emitter import Parts
from tec.codegen.nvptx import NvptxEmitter

own = [name for name, part in vars(NvptxEmitter.parts).items() if part is not vars(Parts())[name]]
print("parts of its own:", ", ".join(own))
lowered = [op for op, f in NvptxEmitter.calls.items() if CALLS.get(op) is not f]
print(len(lowered), "calls of its own:", ", ".join(sorted(lowered)))
assert "memory" in own and "mma" in lowered

# %% [markdown]
# Products, with their units, clocks, caches and bandwidths, are rows of `tec/target/machines.py`.
# For the software GPU, a new chip is a name in `tec/emulator/chips.py`. A new opcode is a row in
# one of the tables of `tec/emulator/isa/`, with a test against NumPy.
