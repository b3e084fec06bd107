# %% [markdown]
# # Arrays
#
# `tec.array` is a namespace like NumPy's that follows the Python array API standard. Its arrays
# lie on a device: the CPU, an AMD or NVIDIA GPU, or the software AMD GPU, which this page uses.
# [The guide](../arrays.md) has the rules.

# %%
import numpy as np

import tec

xp = tec.array
dev = tec.rocm_emu("gfx942")

x = xp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=dev)
print(x)
print((x * 2 + 1).sum(axis=0))

# %% [markdown]
# ## Expressions
# An operator computes nothing. It records an expression. When a value is needed, the graph
# compiler turns the whole expression into as few kernels as it can. `tec.device_code` shows what
# is compiled. In this example one kernel computes the points of `linspace`, which are read twice,
# and another one computes everything else and the sum.

# %%
a = xp.linspace(0.0, 1.0, 1000, device=dev)
b = xp.ones((1000,), device=dev)
with tec.device_code("resources") as modules:
    total = (a * b + 0.5).sum()
    print("nothing compiled yet:", len(modules))
    print("sum:", float(total))
assert len(modules) == 1 and abs(float(total) - 1000.0) < 1e-2

# %% [markdown]
# The code depends on the form of the expression, and not on sizes or numbers. The same expression
# with another length and other numbers compiles nothing:

# %%
with tec.device_code("resources") as modules:
    c = xp.linspace(0.0, 2.0, 777, device=dev)
    float((c * xp.full((777,), 3.0, device=dev) + 0.25).sum())
print("compiled for another length and other numbers:", len(modules))

# %% [markdown]
# ## Values
# No two arrays share elements. An expression reads the values at the time it was written, whatever
# is assigned later.

# %%
m = xp.reshape(xp.arange(12, device=dev), (3, 4))
row, doubled = m[1, :], m * 2
m[1, :] = 0
m[m > 9] = -1
print(m.numpy())
assert row.tolist() == [4, 5, 6, 7] and doubled[1, 0].item() == 8

# %% [markdown]
# ## Softmax, and a check against NumPy


# %%
def softmax(v):
    e = xp.exp(v - xp.max(v, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


host = np.random.default_rng(0).standard_normal((5, 64), dtype=np.float32)
got = softmax(xp.asarray(host, device=dev)).numpy()
e = np.exp(host - host.max(-1, keepdims=True))
np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5)

# %% [markdown]
# Code that is written for the standard runs on the arrays of any library. It asks the array for
# its namespace.


# %%
def distances(p, q):
    ns = p.__array_namespace__()
    return ns.sqrt(ns.sum((p[:, None, :] - q[None, :, :]) ** 2, axis=-1))


p = np.random.default_rng(1).random((4, 3), dtype=np.float32)
want = np.sqrt(((p[:, None, :] - p[None, :, :]) ** 2).sum(-1))
np.testing.assert_allclose(distances(xp.asarray(p), xp.asarray(p)).numpy(), want, atol=1e-6)

# %% [markdown]
# ## No hidden copies
# NumPy's functions on an array call the functions of this namespace. If there is no such function,
# or if the array would have to leave the device, an error says what to write.

# %%
print(np.sin(x))
try:
    np.asarray(x)
except TypeError as error:
    print(error)

# %% [markdown]
# ## Random numbers
# Number i of a stream is a function of the seed and of i. Every device gives the same numbers.

# %%
here, there = xp.random.Generator(7), xp.random.Generator(7, device=dev)
assert (here.random((100,)).numpy() == there.random((100,)).numpy()).all()
print(there.integers(1, 7, (10,)))
