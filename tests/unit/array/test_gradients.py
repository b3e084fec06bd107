"""Gradients of array programs against differences: of drawn programs, of each rule, of control flow, and of one another."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tests import seeds

xp = tec.array
Program = Callable[[Any], Any]


def loop(x: Any) -> Any:
    total, k = xp.sum(x), 0
    while float(total) < 50 and k < 3:
        total, k = total * 2 + xp.sum(x * x), k + 1
    return total


def assigned(x: Any) -> Any:
    y = x * 2
    y[1] = x[0] * x[2]
    y[:, 0] = 3.0
    return xp.sum(y * y)


PROGRAMS: dict[str, Program] = {
    "functions": lambda x: xp.sum(xp.log1p(x * x) + xp.sqrt(x * x + 1) + xp.sin(x) * xp.atan(x) + xp.tanh(x)),
    "product": lambda x: xp.sum(xp.tanh(x @ x.T) ** 2),
    "softmax": lambda x: -xp.sum(xp.nn.log_softmax(x) * xp.nn.softmax(x, axis=0)),
    "shapes": lambda x: xp.sum(xp.concat([xp.reshape(x, (4, 3))[1:, ::2], xp.roll(x, 1)[:, 1:3]], axis=0) ** 3),
    "extrema": lambda x: xp.sum(xp.max(x, axis=0) * xp.min(x)) + xp.sum(xp.maximum(x, 0.3) * x),
    "product of all": lambda x: xp.prod(x) + xp.sum(xp.prod(x, axis=1)),
    "indices": lambda x: (
        xp.sum(x[:, xp.asarray([0, 2, 2])] ** 2) + xp.sum(x[xp.asarray([1, 1]), xp.asarray([0, -1])] ** 2)
    ),
    "mask": lambda x: xp.sum(x[x > 0] ** 2) + xp.sum(xp.where(x > 0, x * x, xp.exp(x))),
    "statistics": lambda x: xp.var(x) + xp.mean(xp.std(x, axis=0)) + xp.sum(xp.cumulative_sum(x, axis=1) ** 2),
    "sort": lambda x: xp.sum(xp.sort(x, axis=1) * xp.asarray([1.0, 2, 3, 4], dtype="float64")),
    "powers": lambda x: xp.sum(xp.abs(x) ** 2.5) + xp.sum(x**3) + xp.sum(2.0**x) + xp.sum(xp.hypot(x, x * x + 1)),
    "matrices": lambda x: (
        xp.linalg.det(x[:, :3] @ x[:, :3].T + xp.eye(3, dtype="float64"))
        + xp.sum(xp.linalg.solve(x[:, 1:] + 3 * xp.eye(3, dtype="float64"), x[:, 0]))
    ),
    "cholesky": lambda x: xp.sum(xp.linalg.cholesky(x @ x.T + xp.eye(3, dtype="float64")) ** 3),
    "loop": loop,
    "assignment": assigned,
}
QUICK = ["loop", "assignment", "indices"]


def against_differences(f: Program, x: Any, rng: Any) -> None:
    """The gradient along a direction, and the difference of two values along it."""
    move = rng.standard_normal(x.shape)
    g = tec.grad(f)(xp.asarray(x)).numpy()
    near = [float(f(xp.asarray(x + s * 1e-6 * move))) for s in (1, -1)]
    want = (near[0] - near[1]) / 2e-6
    assert abs(float((g * move).sum()) - want) < 1e-5 * max(1.0, abs(want))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PROGRAMS])
def test_rules(name: str) -> None:
    rng = np.random.default_rng(seeds.first(1))
    against_differences(PROGRAMS[name], rng.standard_normal((3, 4)), rng)


STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x * y, lambda x, y: x + y, lambda x, y: xp.sin(x), lambda x, y: xp.tanh(x - y), lambda x, y: x / (y * y + 1), lambda x, y: x[::-1] * y,
    lambda x, y: xp.concat([x[:1], y[1:]]), lambda x, y: xp.where(x > y, x, y * 2), lambda x, y: x - xp.mean(y, axis=0), lambda x, y: xp.max(x, axis=1, keepdims=True) * y,
    lambda x, y: x @ y.T @ y, lambda x, y: xp.reshape(x.T, y.shape), lambda x, y: xp.exp(-x * x), lambda x, y: xp.roll(x, 1, axis=1) + y,
]  # fmt: skip


def drawn(seed: int) -> Program:
    draw = random.Random(seeds.stream(seed))
    chosen = [(draw.randrange(len(STEPS)), draw.random() < 0.5) for _ in range(draw.randrange(2, 6))]

    def program(x: Any) -> Any:
        a, b = x, x * 0.5
        for k, other in chosen:
            a, b = STEPS[k](a, b), a if other else b
        return xp.mean(a * b)

    return program


@pytest.mark.parametrize("seed", seeds.some(1))
def test_drawn_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    against_differences(drawn(seed), rng.standard_normal((3, 4)), rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds.some(40, start=100))
def test_many_drawn_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    against_differences(drawn(seed), rng.standard_normal((3, 4)), rng)


def test_gradients_of_gradients_and_derivatives() -> None:
    a, v = np.random.default_rng(2).standard_normal((2, 5))
    x = xp.asarray(a)
    second = tec.grad(lambda y: xp.sum(tec.grad(lambda z: xp.sum(xp.sin(z) * z))(y) * 2.0))(x)
    np.testing.assert_allclose(second.numpy(), 2 * (2 * np.cos(a) - a * np.sin(a)), rtol=1e-10)
    value, move = tec.jvp(lambda y: xp.exp(y) * y, (x,), (xp.asarray(v),))
    np.testing.assert_allclose(value.numpy(), np.exp(a) * a, rtol=1e-12)
    np.testing.assert_allclose(move.numpy(), v * np.exp(a) * (a + 1), rtol=1e-10)


def test_trees_and_what_else_is_given() -> None:
    params = {"w": xp.ones((4, 2)), "rest": [xp.zeros(2), (xp.ones(2),)]}

    def loss(p: Any, x: Any) -> Any:
        y = x @ p["w"] + p["rest"][0] * p["rest"][1][0]
        return xp.sum(y), y

    (value, y), g = tec.value_and_grad(loss, has_aux=True)(params, xp.ones((3, 4)))
    assert float(value) == 24.0 and y.shape == (3, 2)
    assert g["w"].tolist() == [[3.0, 3.0]] * 4 and g["rest"][0].tolist() == [3.0, 3.0]
    assert g["rest"][1][0].tolist() == [0.0, 0.0]
    both = tec.grad(lambda a, b: xp.sum(a * b), argnums=(0, 1))(xp.ones(2), xp.full(2, 3.0))
    assert both[0].tolist() == [3.0, 3.0] and both[1].tolist() == [1.0, 1.0]


def test_the_arguments_stay_as_they_were() -> None:
    x = xp.asarray([1.0, 2.0])

    def f(y: Any) -> Any:
        z = y * y
        y[0] = 5.0
        return xp.sum(z) + xp.sum(y)

    assert tec.grad(f)(x).tolist() == [2.0, 5.0] and x.tolist() == [1.0, 2.0]


def test_a_model_still_has_its_graph() -> None:
    from tec.graph.graph import Graph

    g = Graph("g")
    x = g.input("x", "float32", (3,))
    g.set_outputs([g.add("square", [x], {})[0]], ["y"])
    assert tec.grad(g, "x").output_names == ["y", "grad_x"]


def test_activations_and_losses_of_other_libraries() -> None:
    a = np.asarray([-50.0, -1.0, 0.5, 90.0], np.float32)
    x = xp.asarray(a)

    def total(z: Any) -> Any:
        parts = [xp.nn.elu(z), xp.nn.leaky_relu(z, 0.1), xp.nn.softplus(z), xp.nn.rms_norm(z)]
        return xp.sum(xp.stack(parts)[:3]) + xp.nn.mse_loss(z, z * 0.5) + 0.0 * xp.sum(parts[3])

    value, slope = tec.value_and_grad(total)(x)
    wide = a.astype(np.float64)
    want = np.where(wide > 0, wide, np.expm1(np.minimum(wide, 0))) + np.where(wide > 0, wide, wide * 0.1)
    want = (want + np.logaddexp(wide, 0)).sum() + (wide * wide / 4).mean()
    np.testing.assert_allclose(float(value), want, rtol=1e-5)
    slopes = np.where(wide > 0, 1, np.exp(np.minimum(wide, 0))) + np.where(wide > 0, 1, 0.1) + 1 / (1 + np.exp(-wide))
    np.testing.assert_allclose(slope.numpy(), slopes + wide / 8, rtol=1e-5)
    np.testing.assert_allclose(xp.nn.rms_norm(x, x).numpy(), wide * wide / np.sqrt((wide**2).mean() + 1e-6), rtol=1e-5)
    assert xp.nn.one_hot(xp.asarray([1, 0, 3]), 2).tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]


def test_a_copy_on_another_device_has_a_gradient() -> None:
    x, chip = xp.asarray([1.0, 2.0]), tec.rocm_emu("gfx942")
    _, pull = tec.vjp(lambda v: v.to_device(chip), x)
    (back,) = pull(xp.asarray([3.0, 4.0], device=chip))
    assert back.tolist() == [3.0, 4.0] and back.device == x.device


@pytest.mark.parametrize("seed", seeds.some(3))
def test_optimisers_that_keep_their_parameters(seed: int) -> None:
    """`opt.step(grads)` does what `rule.update` does, in place, at learning rates that change."""
    rng = np.random.default_rng(seed)
    kind = [xp.optim.SGD, xp.optim.Adam, xp.optim.AdamW][seed % 3]
    options: dict[str, Any] = {"momentum": 0.9, "nesterov": True} if kind is xp.optim.SGD else {"betas": (0.8, 0.99)}
    values = [rng.standard_normal(s).astype(np.float32) for s in ((3, 2), (2,), ())]
    params, beside = ({"w": [xp.asarray(v) for v in values[:2]], "b": xp.asarray(values[2])} for _ in range(2))
    first = params["w"][0]
    opt, state = kind(params, lr=0.1, **options), kind(0.1, **options).init(beside)
    for k in range(4):
        slopes = [xp.asarray(rng.standard_normal(v.shape).astype(np.float32)) for v in values]
        grads = {"w": slopes[:2], "b": slopes[2]}
        opt.lr = 0.1 / (k + 1)
        opt.zero_grad()
        assert opt.step(grads) is params
        beside, state = kind(0.1 / (k + 1), **options).update(beside, grads, state)
    with pytest.raises(AttributeError, match=r"rule\.init"):
        kind(0.1).step(grads)
    assert params["w"][0] is first and opt.lr == 0.025
    for x, y in zip([*params["w"], params["b"]], [*beside["w"], beside["b"]]):
        np.testing.assert_array_equal(x.numpy(), y.numpy())
