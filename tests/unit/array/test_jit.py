"""Functions of arrays compiled whole: the same values as without, no Python from the second call on, and what cannot be is told."""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import TecWarning
from tests.thinned import thinned, thinned_rows

xp = tec.array
nn = xp.nn
RNG = np.random.default_rng(3)


def normal(*shape: int, dev: Any = None) -> Any:
    return xp.asarray(RNG.standard_normal(shape).astype("float32"), device=dev)


def loss(p: Any, x: Any, y: Any) -> Any:
    h = nn.max_pool(nn.relu(nn.conv(x, p["conv"], padding=1)), 2)
    h = nn.layer_norm(xp.reshape(h, (h.shape[0], -1)))
    return nn.cross_entropy(h @ p["out"] + p["bias"][0:3], y)


@thinned_rows(1, "rule", [xp.optim.SGD(0.1, momentum=0.9), xp.optim.Adam(0.01), xp.optim.AdamW(0.02)])
def test_a_training_step_is_the_same(rule: Any) -> None:
    x, y = normal(6, 2, 8, 8), xp.asarray(RNG.integers(0, 3, 6))
    params = {"conv": normal(4, 2, 3, 3), "out": normal(64, 3), "bias": normal(5)}
    calls = 0

    def step(p: Any, state: Any, x: Any, y: Any) -> Any:
        nonlocal calls
        calls += 1
        value, grads = tec.value_and_grad(loss)(p, x, y)
        return value, *rule.update(p, grads, state)

    whole = xp.jit(step)
    one = two = (params, rule.init(params))
    for _ in range(4):
        v, *one = step(*one, x, y)
        calls = 0
        w, *two = whole(*two, x, y)
        assert abs(float(v) - float(w)) < 1e-5
    assert calls == 0
    for k in params:
        np.testing.assert_allclose(one[0][k].numpy(), two[0][k].numpy(), rtol=1e-4, atol=1e-5)
    assert int(two[1]["step"]) == 4


@pytest.mark.parametrize("dev", [tec.cpu(), tec.rocm_emu("gfx942")], ids=str)
def test_forms_of_arguments_and_results(dev: Any) -> None:
    scale = normal(3, dev=dev)

    @xp.jit
    def f(tree: Any, k: float, name: str = "a") -> Any:
        x, (y, none) = tree["x"], tree["y"]
        return {"sum": x * scale + y, "same": x, "constant": scale, "one": [k * 2.0, none, name]}

    x, y = normal(2, 3, dev=dev), normal(3, dev=dev)
    for k in (1.5, 2.5):
        got = f({"x": x, "y": (y, None)}, k)
        np.testing.assert_allclose(got["sum"].numpy(), x.numpy() * scale.numpy() + y.numpy(), rtol=1e-6)
        assert float(got["one"][0]) == 2 * k and got["one"][1:] == [None, "a"]
    got["same"][0] = 9.0
    got["constant"][0] = 9.0
    assert not (x.numpy() == 9).any() and not (scale.numpy() == 9).any()
    assert f({"x": normal(4, 3, dev=dev), "y": (y, None)}, got["one"][0])["sum"].shape == (4, 3)


def test_results_that_are_passed_through_are_values_of_their_own() -> None:
    x, y = normal(3), normal(3)
    kept = y.tolist()
    f = xp.jit(lambda x: (x, y, 3))
    for _ in range(2):
        same, constant, number = f(x)
        assert same.tolist() == x.tolist() and constant.tolist() == kept and int(number) == 3
        same[0] = constant[0] = 9.0
    assert x.tolist()[0] != 9.0 and y.tolist() == kept


def test_a_step_on_a_device_takes_its_number_there() -> None:
    dev = tec.rocm_emu("gfx942")
    rule = xp.optim.Adam(0.1)
    params = {"w": normal(4, dev=dev)}
    start = params["w"].numpy()

    def step(p: Any, state: Any) -> Any:
        return rule.update(p, tec.grad(lambda p: xp.sum(p["w"] ** 2))(p), state)

    one = two = (params, rule.init(params))
    whole = xp.jit(step)
    for _ in range(2):
        one, two = step(*one), whole(*two)
    assert (two[0]["w"].numpy() != start).all() and two[0]["w"].device == dev
    np.testing.assert_allclose(one[0]["w"].numpy(), two[0]["w"].numpy(), rtol=1e-5)


def test_assignments_and_indices_are_expressions() -> None:
    def f(x: Any, v: Any, at: Any) -> Any:
        y = x + 0
        y[1:3, ::2] = v
        y[-1] = 7.0
        y[::-1, 1] = x[:, 0]
        return y, xp.take(y, at, axis=0), x

    x, v = xp.reshape(xp.arange(20, dtype="float32"), (5, 4)), xp.asarray([[9.0, 8.0], [6.0, 5.0]])
    at = xp.asarray([4, 0, 2])
    whole = xp.jit(f)
    for want, got in zip(f(x, v, at), whole(x, v, at)):
        np.testing.assert_array_equal(want.numpy(), got.numpy())
    assert x.tolist()[4] == [16.0, 17.0, 18.0, 19.0]
    for bad in ([4, 5, 0], [-6, 0, 0]):
        with pytest.raises(IndexError, match="outside of its extent, 5"):
            whole(x, v, xp.asarray(bad))
    assert whole(x, v, xp.asarray([-5, 4, 1]))[1].shape == (3, 4)


def test_what_asks_for_numbers_is_told() -> None:
    x = normal(4)
    for f in (
        lambda x: x if float(xp.sum(x)) > 0 else -x,
        lambda x: x.numpy(),
    ):
        with pytest.raises(tec.TecError, match="has no number") as e:
            xp.jit(f)(x)
        assert "xp.where" in str(e.value.hint)
    assert float(xp.sum(x)) == float(xp.sum(x))  # arrays compute as before
    with pytest.raises(tec.TecError, match="ndarray as argument"):
        xp.jit(lambda x: x)(np.ones(3))
    with pytest.raises(tec.TecError, match="object as result"):
        xp.jit(lambda x: object())(x)
    with pytest.raises(tec.TecError, match="no function"):
        xp.jit(3)
    with pytest.raises(tec.ArgumentError) as told:
        tec.jit(lambda x: x)
    assert "tec.array.jit" in str(told.value.hint)


@pytest.mark.parametrize("dev", [None, "gfx942"])
def test_shapes_that_follow_from_numbers_make_pieces(dev: Any) -> None:
    dev = tec.cpu() if dev is None else tec.rocm_emu(dev)
    a, n = np.asarray([2, 0, -1, 2, 5, -3], np.float32), np.asarray([2, 0, 1, 2, 5, 3])
    given = xp.asarray(a, device=dev), xp.asarray(n, device=dev), 2
    positive = a[a > 0]
    for f, want in (
        (lambda x, n, k: (x[x > 0] * k, k), (positive * 2, 2)),
        (lambda x, n, k: {"mean": xp.mean(x[(x > 0) & (n > 2)])}, {"mean": 5}),
        (lambda x, n, k: xp.unique_values(n), [0, 1, 2, 3, 5]),
        (lambda x, n, k: xp.nonzero(x)[0], [0, 2, 3, 4, 5]),
        (lambda x, n, k: xp.bincount(n, minlength=7), np.bincount(n, minlength=7)),
        (lambda x, n, k: xp.repeat(x, n), np.repeat(a, n)),
        (lambda x, n, k: xp.histogram(x, bins=3)[0], np.histogram(a, 3)[0]),
    ):
        whole = xp.jit(f)
        with pytest.warns(TecWarning, match=r"in pieces.*follows from numbers at .*test_jit.py:\d+"):
            first = whole(*given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is told once
            again = whole(*given)
        for got in (first, again):
            parts, wanted = (
                (got.values(), want.values())
                if isinstance(want, dict)
                else (got, want)
                if isinstance(got, tuple)
                else ([got], [want])
            )
            for g, w in zip(parts, wanted, strict=True):
                assert isinstance(g, xp.Array) and g.device == dev
                np.testing.assert_allclose(g.numpy(), w)
    # `histogram` with its range, and waiting, make no pieces.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = xp.jit(lambda x: xp.histogram((x + 1).block(), bins=3, range=(-3.0, 6.0))[0])(given[0])
    assert counts.tolist() == np.histogram(a + 1, 3, (-3, 6))[0].tolist()


def test_static_arguments_are_part_of_the_code() -> None:
    calls = []

    @xp.jit(static=(1, "scale"))
    def f(x: Any, n: int, scale: float = 1.0) -> Any:
        calls.append(n)
        return xp.reshape(x, (n, -1)) * scale if scale > 0 else x

    x = normal(6)
    for n in (2, 3, 2):
        np.testing.assert_allclose(f(x, n, scale=2.0).numpy(), x.numpy().reshape(n, -1) * 2, rtol=1e-6)
    assert f(x, 2, scale=-1.0).shape == (6,) and calls == [2, 3, 2]
    with pytest.raises(tec.TecError, match="list as static argument"):
        f(x, [2])
    with pytest.raises(tec.TecError, match="static="):
        xp.jit(lambda x, n: xp.reshape(x, (n, -1)))(x, 2)


def test_random_numbers_are_no_constants() -> None:
    with pytest.raises(tec.TecError, match="the same in every call"):
        xp.jit(lambda x: x + xp.random.randn(4))(normal(4))
    assert xp.random.randn(4).shape == (4,)


def test_functions_within_functions() -> None:
    inner = xp.jit(lambda x: xp.sum(x * x))
    outer = xp.jit(lambda x: tec.grad(inner)(x) + inner(x))
    x = normal(5)
    want = 2 * x.numpy() + (x.numpy() ** 2).sum()
    np.testing.assert_allclose(outer(x).numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(xp.jit(lambda x: xp.asarray([1.0, 2.0]))(x).numpy(), [1, 2])


def test_products_are_computed_once() -> None:
    """What expressions that are computed one after another ask for is kept where it takes long: a product under two of them."""
    a, b = normal(40, 50), normal(50, 30)
    made = a @ b
    first, second = xp.sum(made * 2.0, axis=0), xp.exp(made)
    node = made._node
    del made
    first.block()
    assert node.data is not None
    np.testing.assert_allclose(second.numpy(), np.exp(a.numpy() @ b.numpy()), rtol=1e-4)
    with tec.profile() as shown:
        tec.grad(lambda a: xp.sum(xp.exp(a @ b) * xp.tanh(a @ b)))(a).block()
    assert str(shown).count("matmul") <= 4


def positive(*shape: int) -> Any:
    """Symmetric and positive definite matrices."""
    a = RNG.standard_normal(shape)
    return (a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])).astype("float32")


def long_product(z: Any) -> Any:
    """More operators than are read twice: outside of jit its parts would lie in memory."""
    for _ in range(30):
        z = z * z / (1 + xp.abs(z) ** 2)
    return xp.reshape(z, (4, 4)), xp.sum(z)


ROW, MATRIX, SPD = (
    RNG.standard_normal(40).astype("float32"),
    RNG.standard_normal((6, 8)).astype("float32"),
    positive(5, 5),
)
COMPLEX = (RNG.standard_normal(16) + 1j * RNG.standard_normal(16)).astype("complex64")
# Functions of whole arrays, alone and between expressions, one behind another, and differentiated and mapped.
WHOLE = {
    "sort": (lambda x: xp.sort(x * 2, axis=0) + 1, MATRIX),
    "order": (lambda x: (x, xp.argsort(x), xp.take(x, xp.argsort(x))), ROW),
    "two behind one another": (lambda x: xp.sort(xp.cumulative_sum(xp.sort(x))) + xp.mean(x) + xp.sort(x), ROW),
    "not asked for": (lambda x: (xp.sort(x), x + 1)[1], ROW),
    "one result twice": (lambda x: (lambda s: (s, s, xp.reshape(s, (8, 5))))(xp.sort(x)), ROW),
    "median": (lambda x: xp.median(x, axis=1) + xp.percentile(x, 30), MATRIX),
    "searchsorted": (lambda x: xp.searchsorted(xp.sort(x), x[:7]), ROW),
    "fft": (lambda x: xp.abs(xp.fft.fft(x * 1.5)) ** 2, ROW),
    "fft of a prime length": (lambda x: xp.fft.fft(x, n=37), ROW),
    "irfft": (lambda x: xp.fft.irfft(xp.fft.rfft(x) * 2, n=40), ROW),
    "complex": (lambda z: (xp.fft.ifft(xp.fft.fft(z) * 2), xp.real(z * z), z + 1), COMPLEX),
    "complex, many operators": (long_product, COMPLEX),
    "factors": (lambda x: (xp.linalg.cholesky(x), xp.linalg.det(x), xp.linalg.inv(x) @ x), SPD),
    "solve": (lambda x: xp.linalg.solve(x + 1, x[:, :2]) * 2, SPD),
    "of the host": (lambda x: (xp.linalg.svdvals(x @ x.T), xp.linalg.eigh(x @ x.T).eigenvalues), MATRIX),
    "copy": (lambda x: xp.asarray(x, copy=True) + 1, ROW),
    "gradient of a sort": (tec.grad(lambda x: xp.sum(xp.sort(x) * xp.cumulative_sum(tec.stop_gradient(x)))), ROW),
    "gradient of solve": (tec.grad(lambda x: xp.sum(xp.linalg.solve(x, xp.ones_like(x[0])))), SPD),
    "gradient of rfft": (tec.grad(lambda x: xp.sum(xp.abs(xp.fft.rfft(x)) ** 2)), ROW),
    "gradient with a constant": (tec.grad(lambda x: xp.sum(tec.stop_gradient(x) * x)), ROW),
    "a batch of sorts": (tec.vmap(lambda r: xp.sort(r)[:3]), MATRIX),
    "a batch of transforms": (tec.vmap(lambda r: xp.abs(xp.fft.fft(r))), MATRIX),
}


def flat(tree: Any) -> list[Any]:
    return [x for t in tree for x in flat(t)] if isinstance(tree, (tuple, list)) else [tree]


@thinned(1, ("dev", [tec.cpu(), tec.rocm_emu("gfx942")]), ("name", WHOLE))
def test_functions_of_whole_arrays_are_steps(name: str, dev: Any) -> None:
    f, given = WHOLE[name]
    whole = xp.jit(f)
    for scale in (1.0, 1.1):  # the second time other numbers, with the code of the first
        x = xp.asarray((given * scale).astype(given.dtype), device=dev)
        for want, got in zip(flat(f(x)), flat(whole(x)), strict=True):
            assert (got.dtype, got.shape, got.device) == (want.dtype, want.shape, dev)
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-4, atol=2e-4)


def test_python_runs_once_where_there_are_steps() -> None:
    calls = []

    @xp.jit
    def f(x: Any) -> Any:
        calls.append(x)
        return xp.sort(x) * 2

    for _ in range(3):
        x = normal(9)
        np.testing.assert_allclose(f(x).numpy(), np.sort(x.numpy()) * 2, rtol=1e-6)
    assert len(calls) == 1


def test_what_a_step_refuses_is_told_by_each_run() -> None:
    factor = xp.jit(lambda x: xp.linalg.cholesky(x) + 0)
    assert np.isfinite(factor(xp.asarray(SPD)).numpy()).all()
    with pytest.raises(tec.TecError, match="positive definite"):
        factor(xp.asarray(-SPD))
    assert np.isfinite(factor(xp.asarray(SPD)).numpy()).all()


def test_code_holds_no_arguments() -> None:
    """The first call's arguments may be large, and are the caller's."""
    f = xp.jit(lambda x: (xp.sort(x) + 1, x * 2))
    x = normal(64)
    held = weakref.ref(x._node.data)
    f(x)
    del x
    gc.collect()
    assert held() is None


def test_a_custom_gradient_is_a_part_of_the_code() -> None:
    @tec.custom_vjp
    def clipped(x: Any) -> Any:
        return xp.clip(x, -1.0, 1.0)

    clipped.defvjp(lambda x: (clipped(x), xp.sort(x)), lambda kept, g: (g + kept,))
    slope = tec.grad(lambda x: xp.sum(clipped(x)))
    for _ in range(2):
        x = normal(5)
        np.testing.assert_allclose(xp.jit(slope)(x).numpy(), 1 + np.sort(x.numpy()), rtol=1e-6)


def test_a_static_argument_comes_by_its_place_or_by_its_name():
    x = xp.reshape(xp.arange(6.0), (2, 3))
    for static in ("axis", 1):
        f = xp.jit(lambda v, axis: xp.sum(v, axis=axis), static=static)
        for axis in (0, 1):
            assert f(x, axis).tolist() == f(x, axis=axis).tolist() == xp.sum(x, axis=axis).tolist()


@pytest.mark.parametrize(
    ("function", "static", "arguments"),
    [
        (lambda x, n: x * n, -1, {"n": 3}), (lambda x, *, n: x * n, "n", {"n": 3}), (lambda x, **more: x * more["n"], "n", {"n": 3}),
        (lambda x, *more: x * more[0], 1, [3]), (functools.partial(lambda k, x, n: x * n + k, 0.0), (1, "n"), [3]),
    ],
)  # fmt: skip
def test_static_arguments_of_all_kinds(function: Any, static: Any, arguments: Any) -> None:
    f = xp.jit(function, static=static)
    made = f(xp.ones(2), **arguments) if isinstance(arguments, dict) else f(xp.ones(2), *arguments)
    assert made.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("static", "says"),
    [
        ("scal", "static='scal': f has no such argument.*is scale meant"), ("axis", "its arguments are x, scale"), (2, "static=2: f has no such"),
        (-3, "static=-3"), (1.5, "static=1.5"), ((0, None), "a position, a name"),
    ],
)  # fmt: skip
def test_a_static_argument_that_the_function_has_not_is_told(static: Any, says: str) -> None:
    def f(x: Any, scale: float) -> Any:
        return x * scale

    with pytest.raises(tec.TecError, match=f"(?s){says}"):
        xp.jit(f, static=static)


@pytest.mark.parametrize("name", ["static_argnums", "static_argnames"])
def test_static_arguments_by_the_names_of_jax_are_told(name: str) -> None:
    with pytest.raises(tec.TecError, match=r"(?s)jit has no argument.*static=1"):
        xp.jit(lambda x, n: x * n, **{name: 1})
