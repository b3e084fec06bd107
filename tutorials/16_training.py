# %% [markdown]
# # Training
#
# `te.gradient` derives the computation of a gradient from that of a value. `tec.grad` does so for
# a whole network: one module computes the loss and the gradients of the weights. In this tutorial
# a small network learns to read digits on the CPU, and takes the same steps on an AMD GPU in
# software.

# %% [markdown]
# ## The gradient of a computation
#
# The head is the gradient of some value with respect to the product's result. The gradient of a
# product is a product: the equation `i == i'`, which says which elements read an element, has been
# solved.

# %%
import numpy as np
from sklearn.datasets import load_digits

import tec
from tec import te
from tec.graph import Graph
from tec.graph.builders import Builder

A = te.placeholder((4, 5), name="A")
B = te.placeholder((5, 3), name="B")
k = te.reduce_axis((0, 5), name="k")
C = te.compute((4, 3), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
head = te.placeholder((4, 3), name="head")
(dA,) = te.gradient(C, A, head)
print(tec.lower(te.create_schedule(dA.op), [B, head, dA], simple_mode=True))

# %% [markdown]
# ## A network and its loss
#
# The network has two layers, and its weights are inputs. Its output is the mean cross-entropy: the
# negative logarithm of the probability that it gave to the right digit.

# %%
BATCH, PIXELS, HIDDEN, DIGITS = 128, 64, 48, 10
graph = Graph("reader")
b = Builder(graph)
x = graph.input("x", "float32", (BATCH, PIXELS))
right = graph.input("right", "float32", (BATCH, DIGITS))  # 1 at the digit that it is
w1, b1 = graph.input("w1", "float32", (PIXELS, HIDDEN)), graph.input("b1", "float32", (HIDDEN,))
w2, b2 = graph.input("w2", "float32", (HIDDEN, DIGITS)), graph.input("b2", "float32", (DIGITS,))
hidden = b.op("relu", b.op("add", b.op("matmul", x, w1), b1))
scores = b.op("log_softmax", b.op("add", b.op("matmul", hidden, w2), b2), axes=(1,))
surprise = b.op("reduce_sum", b.op("multiply", scores, right), axes=(1,), keepdims=False)
loss = b.op("neg", b.op("reduce_mean", surprise, axes=(0,), keepdims=False))
graph.set_outputs([loss, scores], ["loss", "scores"])

# %%
WEIGHTS = ["w1", "b1", "w2", "b2"]
step = tec.compile(tec.grad(graph, WEIGHTS, output="loss"))
print(len(step.module.function_names), "functions:", ", ".join(o["name"] for o in step.outputs))

# %% [markdown]
# ## Learning

# %%
digits = load_digits()
pictures = (digits.data / 16).astype("float32")
rng = np.random.default_rng(0)
order = rng.permutation(len(pictures))
learn, keep = (
    order[: 11 * BATCH],
    order[11 * BATCH :][:BATCH],
)  # batches to learn from, and one that is never learned from


def feed(rows):
    return {"x": pictures[rows], "right": np.eye(DIGITS, dtype="float32")[digits.target[rows]]}


def start():
    r = np.random.default_rng(1)
    return {
        "w1": (r.standard_normal((PIXELS, HIDDEN)) / np.sqrt(PIXELS)).astype("float32"),
        "b1": np.zeros(HIDDEN, "float32"),
        "w2": (r.standard_normal((HIDDEN, DIGITS)) / np.sqrt(HIDDEN)).astype("float32"),
        "b2": np.zeros(DIGITS, "float32"),
    }


def train(steps, device=None, module=step, rate=0.5):
    weights, losses = start(), []
    for n in range(steps):
        rows = np.take(learn, range(n * BATCH, (n + 1) * BATCH), mode="wrap")
        out = module.run({**feed(rows), **weights}, device=device)
        losses.append(float(out[0]))
        for name, slope in zip(WEIGHTS, out[2:]):
            weights[name] = weights[name] - rate * slope
    return weights, losses


weights, losses = train(400)
found = step.run({**feed(keep), **weights})[1].argmax(1)
share = (found == digits.target[keep]).mean()
print(
    f"loss {losses[0]:.2f} at first, {losses[-1]:.3f} at last; {share:.1%} of the digits that it never saw are read right"
)
assert share > 0.95

# %% [markdown]
# ## The same steps on an AMD GPU in software
#
# The same network is compiled to one ROCm module. Ten steps from the same start have the same
# losses.

# %%
on_gpu = tec.compile(tec.grad(graph, WEIGHTS, output="loss"), target="rocm -mcpu=gfx942")
_, gpu_losses = train(10, device=tec.rocm_emu("gfx942"), module=on_gpu)
print("CPU", [f"{v:.4f}" for v in losses[:10]])
print("GPU", [f"{v:.4f}" for v in gpu_losses])
np.testing.assert_allclose(gpu_losses, losses[:10], rtol=1e-4)
