"""Networks of `tec.array` trained beside PyTorch's: the same parameters, data and optimisers, and the same losses over 100 steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec

torch = pytest.importorskip("torch")
xp, nn = tec.array, tec.array.nn
F = torch.nn.functional
pytestmark = pytest.mark.slow

TEXT = "a group waits at the barrier until all of its waves are there, and then all of its waves go on over the lanes. "
LETTERS = sorted(set(TEXT))
CODES = np.asarray([LETTERS.index(c) for c in TEXT * 2])
T, D, H = 16, 16, 2

Params = dict[str, Any]


def bars() -> tuple[Params, Any, Any]:
    """(parameters, images of bars with noise, whether they stand)."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 16)
    images = rng.normal(0, 0.3, (16, 1, 8, 8)).astype("float32")
    for image, label in zip(images, labels):
        image[0, rng.integers(8)] += label == 0
        image[0, :, rng.integers(8)] += label == 1
    params = {"conv": (4, 1, 3, 3), "bias": (4,), "out": (64, 2)}
    return {k: (rng.standard_normal(s) * 0.2).astype("float32") for k, s in params.items()}, images, labels


def conv_tec(p: Params, x: Any, y: Any) -> Any:
    h = nn.max_pool(nn.relu(nn.conv(x, p["conv"], p["bias"], padding=1)), 2)
    return nn.cross_entropy(xp.reshape(h, (h.shape[0], -1)) @ p["out"], y)


def conv_torch(p: Params, x: Any, y: Any) -> Any:
    h = F.max_pool2d(torch.relu(F.conv2d(x, p["conv"], p["bias"], padding=1)), 2)
    return F.cross_entropy(h.reshape(h.shape[0], -1) @ p["out"], y)


def text() -> tuple[Params, Any, Any]:
    """(parameters, letters, the letters behind them)."""
    rng = np.random.default_rng(1)
    shapes = {
        "letters": (len(LETTERS), D), "places": (T, D), "qkv": (3, H, D, D // H), "join": (D, D), "up": (D, 4 * D), "down": (4 * D, D), "out": (D, len(LETTERS)),
    }  # fmt: skip
    params = {k: (rng.standard_normal(s) * 0.25).astype("float32") for k, s in shapes.items()}
    starts = range(0, len(TEXT), 9)
    return (
        params,
        np.stack([CODES[s : s + T] for s in starts]),
        np.stack([CODES[s + 1 : s + T + 1] for s in starts]),
    )


MASK = np.triu(np.full((T, T), -1e9, "float32"), 1)


def transformer_tec(p: Params, x: Any, y: Any) -> Any:
    h = xp.take(p["letters"], x, axis=0) + p["places"]
    n = nn.layer_norm(h)
    q, k, v = (xp.expand_dims(n, 1) @ p["qkv"][i] for i in range(3))
    weights = nn.softmax(q @ k.mT * (D // H) ** -0.5 + xp.asarray(MASK, device=h.device))
    h = h + xp.reshape(xp.permute_dims(weights @ v, (0, 2, 1, 3)), h.shape) @ p["join"]
    h = h + nn.gelu(nn.layer_norm(h) @ p["up"]) @ p["down"]
    return nn.cross_entropy(nn.layer_norm(h) @ p["out"], y)


def transformer_torch(p: Params, x: Any, y: Any) -> Any:
    h = p["letters"][x] + p["places"]
    n = F.layer_norm(h, (D,))
    q, k, v = (n[:, None] @ p["qkv"][i] for i in range(3))
    weights = torch.softmax(q @ k.mT * (D // H) ** -0.5 + torch.tensor(MASK), -1)
    h = h + (weights @ v).permute(0, 2, 1, 3).reshape(h.shape) @ p["join"]
    h = h + F.gelu(F.layer_norm(h, (D,)) @ p["up"]) @ p["down"]
    return F.cross_entropy((F.layer_norm(h, (D,)) @ p["out"]).reshape(-1, len(LETTERS)), y.reshape(-1))


NETWORKS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], Any]]] = {
    "convolutions": (conv_tec, conv_torch, bars),
    "transformer": (transformer_tec, transformer_torch, text),
}
OPTIMISERS = {
    # A rate at which training is smooth: beyond it rounding grows to differences within 100 steps.
    "SGD": (xp.optim.SGD(0.02, momentum=0.9, nesterov=True, weight_decay=1e-3), lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True, weight_decay=1e-3)),
    "Adam": (xp.optim.Adam(5e-3, weight_decay=1e-3), lambda p: torch.optim.Adam(p, 5e-3, weight_decay=1e-3)),
    "AdamW": (xp.optim.AdamW(5e-3), lambda p: torch.optim.AdamW(p, 5e-3)),
}  # fmt: skip


def losses(network: str, optimiser: str, steps: int, device: Any) -> tuple[list[float], list[float]]:
    """(tec's, PyTorch's)."""
    ours, theirs, make = NETWORKS[network]
    params, x, y = make()
    rule, their_rule = OPTIMISERS[optimiser]
    p = {k: xp.asarray(v, device=device) for k, v in params.items()}
    q = {k: torch.tensor(v, requires_grad=True) for k, v in params.items()}
    state, other = rule.init(p), their_rule(list(q.values()))
    step = tec.value_and_grad(ours)
    given, theirs_given = [xp.asarray(a, device=device) for a in (x, y)], [torch.tensor(a) for a in (x, y)]
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        value, grads = step(p, *given)
        p, state = rule.update(p, grads, state)
        other.zero_grad()
        want = theirs(q, *theirs_given)
        want.backward()
        other.step()
        found[0].append(float(value))
        found[1].append(want.item())
    return found


@pytest.mark.parametrize(
    ("network", "optimiser"),
    [("convolutions", "SGD"), ("convolutions", "Adam"), ("transformer", "AdamW"), ("transformer", "SGD")],
)
def test_losses_over_100_steps(network: str, optimiser: str) -> None:
    got, want = losses(network, optimiser, 100, tec.cpu())
    assert want[-1] < 0.7 * want[0]
    print(
        f"{network} {optimiser}: {want[0]:.3f} to {want[-1]:.3f}, furthest apart {np.abs(np.subtract(got, want)).max():.1e}"
    )
    np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("network", list(NETWORKS))
def test_a_step_on_the_software_gpu(network: str) -> None:
    got, want = losses(network, "AdamW", 2, tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(got, want, atol=1e-4)
