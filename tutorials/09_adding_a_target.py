# %% [markdown]
# # Adding a target
#
# A target is a row of facts in `tec/target/` and, for a new kind of machine, a small subclass of the emitter in `tec/codegen/`.
# No pass asks for a target by name: it asks what the chip can do. This tutorial adds a chip to a running tec, and looks at what
# changes in the code.

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
# gfx1103 has the instructions of gfx1100. A chip that LLVM knows and tec does not is one row: its family, its wavefront sizes, its
# LDS, its matrix shapes. Here gfx1152, another RDNA 3.5 part.

# %%
try:
    tec.Target("rocm -mcpu=gfx1152")
except tec.TargetError as error:
    print(error.message)
CHIPS["gfx1152"] = dataclasses.replace(CHIPS["gfx1151"], name="gfx1152")
new = tec.Target("rocm -mcpu=gfx1152")

# %% [markdown]
# Everything follows from the row: a row sum, whose reduction over a wavefront is made of the lane exchanges that the chip has, for
# as many lanes as it has.

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
# `tec/codegen/nvptx/` is the example to read. The emitter holds parts (variables, arithmetic, memory, statements, the frame of a kernel); a target
# names a class of its own for a part that differs, and a table of calls: barriers, shuffles, atomics, matrix instructions. What it must not do is
# repeat a pass: where a pass needs to know, add a capability to `Target` and ask for that.

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
# Products (units, clocks, caches, bandwidths) are rows of `tec/target/machines.py`. A new chip of the software GPU is a name in
# `tec/emulator/chips.py`; a new opcode, a row in one of the tables of `tec/emulator/isa/` and a test against
# NumPy.
