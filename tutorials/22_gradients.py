# %% [markdown]
# # Gradients of arrays
#
# `tec.grad` differentiates functions of `tec.array`, as JAX does for NumPy's. This page trains a
# small convolutional network and a small transformer on the CPU, and takes a step on the software
# AMD GPU. [The guide](../arrays.md#gradients) has the rules.

# %%
import numpy as np

import tec

xp, nn = tec.array, tec.array.nn


def steps_needed(x):
    """Halves x until its sum is below 1: the loop runs as often as the values say."""
    while float(xp.sum(x)) > 1:
        x = x / 2
    return xp.sum(x)


print(tec.grad(steps_needed)(xp.asarray([3.0, 2.0])))
value, move = tec.jvp(lambda x: xp.sin(x) * x, (xp.asarray([1.0]),), (xp.asarray([1.0]),))
print(float(move[0]), np.cos(1.0) + np.sin(1.0))

# %% [markdown]
# ## A convolutional network
# It tells bars that stand from bars that lie, in images of 8 by 8 pixels with noise. Parameters
# are a dict of arrays. A gradient has the same form, and so has the state of an optimiser.

# %%
rng = np.random.default_rng(0)
labels = rng.integers(0, 2, 32)
images = rng.normal(0, 0.3, (32, 1, 8, 8)).astype("float32")
for image, label in zip(images, labels):
    k = rng.integers(8)
    image[0, k] += label == 0
    image[0, :, k] += label == 1
x, y = xp.asarray(images), xp.asarray(labels)


def normal(*shape, scale):
    return xp.asarray((rng.standard_normal(shape) * scale).astype("float32"))


params = {"conv": normal(4, 1, 3, 3, scale=0.3), "bias": xp.zeros(4), "out": normal(64, 2, scale=0.1)}


def loss(p, x, y):
    h = nn.max_pool(nn.relu(nn.conv(x, p["conv"], p["bias"], padding=1)), 2)
    return nn.cross_entropy(xp.reshape(h, (h.shape[0], -1)) @ p["out"], y)


rule = xp.optim.AdamW(0.02)
step, state = tec.value_and_grad(loss), rule.init(params)
losses = []
for _ in range(30):
    value, grads = step(params, x, y)
    params, state = rule.update(params, grads, state)
    losses.append(float(value))
print([round(v, 3) for v in losses[::6]])
assert losses[-1] < 0.2 * losses[0]

# %% [markdown]
# A step on the software GPU takes the same function. Its arrays are there.

# %%
dev = tec.rocm_emu("gfx942")
there = {k: v.to_device(dev) for k, v in params.items()}
on_gpu, gpu_grads = step(there, x.to_device(dev), y.to_device(dev))
on_cpu, cpu_grads = step(params, x, y)
print(float(on_gpu), float(on_cpu))
assert abs(float(on_gpu) - float(on_cpu)) < 1e-5
assert np.allclose(gpu_grads["conv"].numpy(), cpu_grads["conv"].numpy(), atol=1e-5)

# %% [markdown]
# ## A transformer
# One layer of attention with two heads and a feed-forward part predicts the next letter of a small
# text.

# %%
TEXT = """the wave runs over the lanes and the lanes run over the wave. a group waits at the barrier until
all of its waves are there, and then all of its waves go on. what a lane wrote to the shared
memory before the barrier, the other lanes read after the barrier."""
letters = sorted(set(TEXT))
codes = np.asarray([letters.index(c) for c in TEXT])
T, D, H = 16, 16, 2
starts = np.arange(0, len(codes) - T - 1, 8)
given = xp.asarray(np.stack([codes[s : s + T] for s in starts]))
wanted = xp.asarray(np.stack([codes[s + 1 : s + T + 1] for s in starts]))
mask = xp.asarray(np.triu(np.full((T, T), -1e9, "float32"), 1))
model = {
    "letters": normal(len(letters), D, scale=0.3),
    "places": normal(T, D, scale=0.1),
    "qkv": normal(3, H, D, D // H, scale=0.25),
    "join": normal(D, D, scale=0.25),
    "up": normal(D, 4 * D, scale=0.25),
    "down": normal(4 * D, D, scale=0.12),
    "out": normal(D, len(letters), scale=0.25),
}


def next_letters(p, given):
    h = xp.take(p["letters"], given, axis=0) + p["places"]
    n = nn.layer_norm(h)
    q, k, v = (xp.expand_dims(n, 1) @ p["qkv"][i] for i in range(3))  # (batch, heads, T, D / H)
    weights = nn.softmax(q @ k.mT * (D // H) ** -0.5 + mask)
    joined = xp.reshape(xp.permute_dims(weights @ v, (0, 2, 1, 3)), h.shape)
    h = h + joined @ p["join"]
    h = h + nn.gelu(nn.layer_norm(h) @ p["up"]) @ p["down"]
    return nn.layer_norm(h) @ p["out"]


step = tec.value_and_grad(lambda p: nn.cross_entropy(next_letters(p, given), wanted))
rule = xp.optim.Adam(0.01)
state, losses = rule.init(model), []
for _ in range(30):
    value, grads = step(model)
    model, state = rule.update(model, grads, state)
    losses.append(float(value))
print([round(v, 3) for v in losses[::6]])
assert losses[-1] < 0.6 * losses[0]

# %% [markdown]
# What has no gradient is told:

# %%
for f in (lambda x: xp.sum(xp.linalg.svdvals(x)), lambda x: x * 2):
    try:
        tec.grad(f)(xp.eye(2))
    except tec.TecError as error:
        print(error)
