# %% [markdown]
# # Profiling
#
# `tec.profile(dev)` collects every launch in a block, on each kind of device: GPU events, the
# CPU's clock. The software GPU counts what a kernel does and estimates the time of the chip.

# %%
import tempfile
from pathlib import Path

import numpy as np

import tec
from tec.emulator import emulator_profile

N = 1 << 16
A = tec.placeholder((N,), name="A")
B = tec.compute((N,), lambda i: tec.sqrt(A[i] * A[i] + 1.0), name="B")


def build(factor, stride):
    """Each thread does `factor` elements: neighbours, or a stride apart."""
    s = tec.create_schedule(B.op)
    block, rest = s[B].split(B.op.axis[0], factor=64 * factor)
    if stride:
        each, thread = s[B].split(rest, factor=64)
    else:
        thread, each = s[B].split(rest, factor=factor)
    s[B].bind(block, tec.thread_axis("blockIdx.x"))
    s[B].bind(thread, tec.thread_axis("threadIdx.x"))
    return tec.build(s, [A, B], "rocm -mcpu=gfx942", name="strided" if stride else "blocked")


dev = tec.rocm_emu("gfx942")
a = tec.nd.array(np.linspace(0, 1, N, dtype="float32"), dev)
b = tec.nd.empty((N,), "float32", dev)

# %% [markdown]
# ## Coalesced accesses
# In the blocked version a thread owns 32 neighbours, so one load instruction of a wavefront
# touches 64 cache lines. In the strided version neighbouring threads read neighbouring words, and
# one load touches two lines.

# %%
with emulator_profile(dev.driver) as p:
    for stride in (False, True):
        build(32, stride)(a, b)
        np.testing.assert_allclose(b.numpy(), np.sqrt(a.numpy() ** 2 + 1), rtol=1e-6)
print(p)
blocked, strided = (r.counts.global_line_bytes for r in p.launches)
print(f"cache lines: {blocked / 1e6:.2f} MB blocked, {strided / 1e6:.2f} MB strided")
assert blocked > 3 * strided

# %% [markdown]
# ## The instructions that move the most
# The profile counts each memory instruction separately, with its line of the assembly.

# %%
for spot in sorted(p.launches[0].counts.spots, key=lambda h: -h.count.lines)[:3]:
    print(f"line {spot.line}: {spot.text.strip()}: {spot.count.bytes:,} bytes in {spot.count.lines:,} lines")

# %% [markdown]
# ## Any device
# The same block works on the CPU and on real GPUs; the trace opens in chrome://tracing and
# Perfetto.

# %%
s = tec.create_schedule(B.op)
s[B].parallel(s[B].split(B.op.axis[0], factor=4096)[0])
f = tec.build(s, [A, B], "llvm", name="cpu")
x, y = np.linspace(0, 1, N, dtype="float32"), np.zeros(N, "float32")
with tec.profile(tec.cpu()) as p:
    for _ in range(5):
        f(x, y)
print(p)
trace = Path(tempfile.mkdtemp()) / "trace.json"
p.save_trace(trace)
assert len(p.launches) == 5 and trace.stat().st_size > 100

# %% [markdown]
# `f.time_evaluator("cpu", tec.cpu(), number=10, repeat=5)(x, y)` gives statistics of one function;
# `tec bench model.onnx` those of a network, kernel by kernel.

# %%
print(f.time_evaluator("cpu", tec.cpu(), number=10, repeat=5)(x, y))
