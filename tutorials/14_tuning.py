# %% [markdown]
# # Tuning
#
# A schedule contains numbers, such as the size of a tile, and decisions, such as which loop goes
# inside. `tec.tune` tries them on the machine and keeps the best for every later build.

# %%
import os
import tempfile
from pathlib import Path

import numpy as np

import tec

os.environ["TEC_TUNE_DB"] = str(Path(tempfile.mkdtemp()) / "tune.db")  # else a file among your own data

# %% [markdown]
# ## A schedule with holes
#
# A template is a function that makes a schedule. Its first argument fills the holes. `c.tile` is a
# factor of a loop, `c.choose` is one of several options, and `c.require` states a condition that
# must hold.


# %%
@tec.template
def matmul(c, n, m, k):
    """C = A B, in tiles of C that stay in registers."""
    A = tec.placeholder((n, k), name="A")
    B = tec.placeholder((k, m), name="B")
    r = tec.reduce_axis((0, k), name="r")
    C = tec.compute((n, m), lambda i, j: tec.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = tec.create_schedule(C.op)
    i, j = s[C].op.axis
    rows, columns = c.tile("rows", n, max=8), c.tile("columns", m, max=64)
    c.require(rows * columns <= 256, "the tile stays in registers")
    io, ii = s[C].split(i, rows)
    jo, ji = s[C].split(j, columns)
    if c.choose("order", ["sum inside", "sum outside"]) == "sum outside":
        s[C].reorder(io, jo, r, ii, ji)
        s[C].vectorize(ji)
    else:
        s[C].reorder(io, jo, ii, ji, r)
    if c.choose("unroll", [False, True]):
        s[C].unroll(ii)
    return s, [A, B, C]


N = 128
print(matmul.space((N, N, N), "llvm"))

# %% [markdown]
# ## The search
#
# Trials run in a separate process, in turn with the best candidate so far. Their results are
# compared with those of the default schedule. A better candidate is measured again for longer
# before it is accepted, so a lucky trial changes nothing.

# %%
report = tec.tune(matmul, (N, N, N), target="llvm", trials=24)
print(report)
assert report.tuned_seconds <= report.default_seconds
Path("tuning.svg").write_text(
    report.history_svg().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ').replace(
        'class="line"', 'fill="none" stroke="#1f6feb" stroke-width="2"'
    ).replace('class="grid"', 'stroke="#ccc"').replace('class="tick"', 'font-size="11" fill="#777"').replace('class="axis"', 'font-size="12" fill="#777"')
)  # fmt: skip

# %% [markdown]
# ![the best time over the trials](tuning.svg)
#
# `report.save("page.html")` writes a page with this plot, the share of each group, and the default
# and the tuned choice.
#
# ## Using the result
#
# The call of `tec.build` does not change. If you start the search again, it measures nothing new,
# because its trials are stored.

# %%
f = tec.build(matmul, (N, N, N), target="llvm")
a = np.random.default_rng(0).standard_normal((N, N), np.float32)
out = tec.nd.array(np.zeros((N, N), np.float32))
f(tec.nd.array(a), tec.nd.array(a), out)
np.testing.assert_allclose(out.numpy(), a @ a, rtol=1e-3, atol=1e-3)
print("right")

# %% [markdown]
# ## Networks
#
# tec has templates for the groups of a network. `tec tune model.onnx` searches in them, beginning
# with the groups that take the longest, and `tec.compile` uses the records. If the target is an
# AMD GPU that is not there, the software GPU's time model ranks the trials, and the report says
# "model-ranked".

# %%
from tec.graph import Graph

g = Graph("two products")
x = g.input("x", "float32", (64, 256))
w = [np.random.default_rng(k).standard_normal((256, 256)).astype(np.float32) for k in range(2)]
(y,) = g.add("matmul", [x, g.constant(w[0])])
(z,) = g.add("matmul", [y, g.constant(w[1])])
g.set_outputs([z])
report = tec.tune(g, target="llvm", trials=6)
print(report)
net = tec.compile(g, "llvm")
print({name: taken["choice"] for name, taken in net.report.choices.items()})
assert len(report.found) == 1 and report.found[0].calls == 2
