"""What the namespace promises beside its values: errors with the user's line, nothing copied in silence, others' memory, one compilation a kind."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tec
from tec.array.dtypes import ALL
from tec.errors import TecError
from tests import seeds

xp = tec.array
EMU = "gfx942"


def _x(*shape: int, dtype: str = "float32", device: Any = None) -> Any:
    return xp.asarray(np.arange(int(np.prod(shape, dtype=int)), dtype=dtype).reshape(shape), device=device)


MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda: _x(2, 3) + _x(4), ValueError, "do not broadcast"),
    (lambda: _x(3) + np.ones(3), TypeError, "asarray"),
    (lambda: np.ones(3) + _x(3), TypeError, "asarray"),
    (lambda: _x(3) + _x(3, device=tec.rocm_emu(EMU)), TypeError, "to_device"),
    (lambda: _x(3, dtype="int64") + _x(3, dtype="uint64"), TypeError, "no integer type"),
    (lambda: xp.asarray([True]) - xp.asarray([True]), TypeError, "numbers"),
    (lambda: _x(3, dtype="int8") + 300, TypeError, "-128 to 127"),
    (lambda: _x(3)[3], IndexError, "extent 3"),
    (lambda: _x(3)[xp.asarray([0, 5])], IndexError, "outside"),
    (lambda: _x(3)[[0, 5]], IndexError, "outside"),
    (lambda: _x(2, 2)[0, 0, 0], IndexError, "3 indices"),
    (lambda: _x(2, 2)[xp.asarray([True])], IndexError, "mask"),
    (lambda: _x(2, 2)[:, xp.asarray([True])], IndexError, "a mask of shape (1,)"),
    (lambda: xp.sum(np.float32(2)), TypeError, "is a number"),
    (lambda: _x(3)[np.ones(2)], IndexError, "an index of an array of float64"),
    (lambda: xp.min(_x(3), where=_x(3) > 1), ValueError, "nothing may be left"),
    (lambda: xp.block([]), TypeError, "block of a list"),
    (lambda: xp.nn.one_hot(_x(3), 2), TypeError, "labels"),
    (lambda: xp.histogram(_x(3), 2, weights=_x(2)), ValueError, "weights of shape"),
    (lambda: xp.reshape(_x(6), (4, 2)), ValueError, "cannot become"),
    (lambda: xp.matmul(_x(2, 3), _x(2, 3)), ValueError, "matmul"),
    (lambda: xp.max(_x(0)), ValueError, "no elements"),
    (lambda: xp.sum(_x(3), axis=1), ValueError, "axis 1"),
    (lambda: xp.expand_dims(_x(3), axis=2), IndexError, "axis 2"),
    (lambda: xp.asarray([1j], dtype="float32"), TypeError, "complex"),
    (lambda: xp.max(xp.asarray([1j])), TypeError, "order"),
    (lambda: xp.asarray([1j]) < 1, TypeError, "real"),
    (lambda: xp.astype(xp.asarray([1j]), "float32"), TypeError, "real"),
    (lambda: xp.linalg.inv(xp.zeros((2, 2))), ValueError, "singular"),
    (lambda: xp.linalg.inv(_x(2, 3)), ValueError, "square"),
    (lambda: xp.linalg.cholesky(-xp.eye(2)), ValueError, "positive definite"),
    (lambda: xp.linalg.svd(_x(2, 2, dtype="int32")), TypeError, "astype"),
    (lambda: xp.fft.rfft(xp.asarray([1j])), TypeError, "real"),
    (lambda: xp.fft.fft(_x(3), n=0), ValueError, "at least 1"),
    (lambda: xp.fft.fft(_x(3), norm="unit"), ValueError, "ortho"),
    (lambda: tec.grad(xp.sum)(_x(3, dtype="int32")), TypeError, "real floats"),
    (lambda: tec.grad(lambda x: x)(_x(3)), ValueError, "one float"),
    (lambda: tec.grad(lambda x: float(xp.sum(x)))(_x(3)), TypeError, "a float"),
    (lambda: tec.grad(lambda x: xp.sum(xp.real(xp.linalg.eigvals(x))))(_x(2, 2)), TypeError, "no gradient through eigvals"),
    (lambda: tec.grad(lambda x: xp.sum(xp.abs(xp.linalg.eig(x).eigenvectors)))(_x(2, 2)), TypeError, "no gradient through eig"),
    (lambda: tec.grad(xp.sum, argnums=2)(_x(3)), ValueError, "argument 2"),
    (lambda: tec.vjp(lambda x: x * 2, _x(3))[1](_x(4)), ValueError, "weights of shapes"),
    (lambda: xp.nn.conv(_x(1, 2, 4, 4), _x(3, 1, 3, 3)), ValueError, "conv of shapes"),
    (lambda: xp.nn.cross_entropy(_x(2, 3), _x(2)), TypeError, "labels"),
    (lambda: xp.optim.Adam({"w": _x(2)}, lr=0.1).step(), TypeError, "opt.step(grads)"),
    (lambda: xp.optim.Adam({"w": _x(2)}, lr=0.1).step({"w": _x(3)}), TypeError, "a gradient of shape (3,)"),
    (lambda: xp.optim.SGD({"w": _x(2)}, lr=0.1).step({"v": _x(2)}), TypeError, "the gradient has nothing at ['w']"),
    (lambda: xp.optim.Adam(0.1).update({"w": [_x(2)]}, {"w": [_x(2), _x(2)]}, None), TypeError, "nothing at ['w'][1]"),
    (lambda: xp.optim.SGD({"w": _x(2)}, lr=-0.1), ValueError, "SGD(lr=-0.1)"),
    (lambda: xp.optim.Adam(0.1, betas=(0.9, 1.0)), ValueError, "betas"),
    (lambda: xp.optim.SGD([], lr=0.1), TypeError, "no arrays"),
    (lambda: xp.asarray("text"), TypeError, "no array"),
    (lambda: xp.asarray([[1], [2, 3]]), ValueError, "no array"),
    (lambda: xp.zeros((2, -1)), ValueError, "negative"),
    (lambda: bool(_x(2)), TypeError, "any"),
    (lambda: -xp.asarray([True]), TypeError, "numbers"),
    (lambda: xp.bitwise_and(_x(2), 1.5), TypeError, "integers"),
    (lambda: np.roots(_x(4)), TypeError, "numpy()"),
    (lambda: np.asarray(_x(4, device=tec.rocm_emu(EMU))), TypeError, "x.numpy()"),
    (lambda: np.add.reduce(_x(4)), TypeError, "numpy()"),
    (lambda: xp.random.Generator(-1), ValueError, "seed"),
    (lambda: xp.concat([_x(2, 2), _x(2)]), ValueError, "concat"),
    (lambda: _x(2).__array_namespace__(api_version="1999.01"), ValueError, "version"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(MISTAKES)))
def test_a_mistake_is_an_error_at_the_users_line(k: int) -> None:
    call, kind, words = MISTAKES[k]
    with pytest.raises(TecError, match="test_namespace") as e:
        call()
    assert isinstance(e.value, kind) and words in str(e.value)


def test_a_mistake_in_an_assignment_changes_nothing() -> None:
    x = _x(4, dtype="int32")
    for key, value in (((slice(0, 2)), _x(3, dtype="int32")), (slice(0, 2), 1.5), (9, 1), (slice(None), _x(4))):
        with pytest.raises(TecError):
            x[key] = value
    assert x.tolist() == [0, 1, 2, 3]


def test_numpy_functions_are_the_namespaces() -> None:
    x = _x(4, device=tec.rocm_emu(EMU))
    for y, want in (
        (np.sin(x), np.sin(np.arange(4))),
        (np.sum(x), 6),
        (np.add(x, 1), np.arange(1, 5)),
        (np.concatenate([x, x]), [*range(4)] * 2),
    ):
        assert type(y) is type(x) and y.device is x.device
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-6)


def test_comparisons_are_element_by_element() -> None:
    x = _x(3)
    assert (x == 1).tolist() == [False, True, False]
    assert (x != x).tolist() == [False] * 3
    with pytest.raises(TypeError):
        hash(x)


OF_ONE = """sqrt exp log log1p expm1 sin cos tanh asinh atan abs negative square sign floor ceil trunc round isnan isfinite reciprocal arcsin cbrt exp2
deg2rad sinc rint fabs positive real conj absolute""".split()
OF_TWO = "add subtract multiply divide floor_divide remainder maximum minimum pow hypot atan2 equal less fmax fmin fmod isclose logaddexp copysign".split()


@pytest.mark.parametrize("seed", seeds.some(3))
def test_functions_of_numbers_alone_are_numbers(seed: int) -> None:
    """They have no device to be computed on, and a number takes the type of the array that it then meets."""
    rng = random.Random(seed)
    old = {"asinh": "arcsinh", "atan": "arctan", "pow": "power", "atan2": "arctan2"}
    for name, count in [(n, 1) for n in OF_ONE] + [(n, 2) for n in OF_TWO]:
        args = [
            rng.choice([rng.uniform(0.1, 4), rng.randint(1, 5), np.float32(rng.uniform(0.1, 4))]) for _ in range(count)
        ]
        with np.errstate(all="ignore"):
            want = getattr(np, old.get(name, name))(*args)
        got = getattr(xp, name)(*args)
        assert type(got) in (bool, int, float), name
        np.testing.assert_array_equal(got, want, err_msg=f"{name}{tuple(args)}")
    x = _x(3, dtype=rng.choice(["float16", "float32", "float64"]))
    assert (x / xp.sqrt(2 * xp.pi)).dtype == x.dtype and (xp.exp(1) * x).dtype == x.dtype
    device = tec.rocm_emu(EMU)
    assert (xp.ones(2, device=device) * xp.sqrt(4.0)).tolist() == [2.0, 2.0]


def test_numbers_beside_what_is_none() -> None:
    for call in (lambda: xp.add(1, "x"), lambda: xp.sqrt([1.0]), lambda: xp.sqrt("x"), lambda: xp.matmul(1, 2)):
        with pytest.raises(TecError, match="asarray"):
            call()
    both = xp.where(xp.asarray([True, False]), 1, 2.5)  # whose condition says where it lies
    assert (both.tolist(), both.dtype) == ([1.0, 2.5], xp.float32)
    assert xp.divmod(7, 2) == (3, 1) and np.isnan(xp.log(-1)) and xp.exp(1j) == np.exp(1j) and xp.clip(5, 0, 3) == 3


def test_exchange_of_memory() -> None:
    x = _x(2, 3) * 2
    y = np.from_dlpack(x)
    assert y.__array_interface__["data"][0] == x.nd.address
    assert xp.from_dlpack(y).nd.address == x.nd.address
    assert xp.from_dlpack(y[:, ::2]).tolist() == y[:, ::2].tolist()  # not compact: a copy
    with pytest.raises(BufferError):
        xp.from_dlpack(y[:, ::2], copy=False)
    assert x.__dlpack_device__() == (1, 0)
    assert not hasattr(x, "__cuda_array_interface__")
    on_gpu = x.to_device(tec.rocm_emu(EMU))
    with pytest.raises(BufferError):
        np.from_dlpack(on_gpu)
    assert (on_gpu + 1).to_device("cpu").tolist() == [[1, 3, 5], [7, 9, 11]]


def test_memory_that_begins_anywhere() -> None:
    whole = np.arange(9, dtype=np.float32)
    for k in (1, 2, 3):
        x = xp.asarray(whole[k:], copy=False)
        np.testing.assert_array_equal((x * 2 + 1).numpy(), whole[k:] * 2 + 1)
        assert float(xp.sum(x)) == whole[k:].sum()


def test_a_chain_of_ten_and_a_sum_is_one_function() -> None:
    a, b = _x(7, 11), _x(7, 11)
    met: list[Any] = []
    with tec.driver.watched(met.append):
        y = a
        for _ in range(5):
            y = y * b + 0.125
        float(y.sum())
        assert len(met) == 1 and len(met[0].specs) == 1
        for shape in ((5, 3), (40,), (2, 3, 4)):
            p, q = _x(*shape), _x(*shape)
            y = p
            for _ in range(5):
                y = y * q + 0.5
            float(y.sum())
        assert len(met) == 1  # other shapes, ranks and numbers: the same code
        for k in range(4):
            a[k].numpy()
            a[k, 2:].numpy()
        assert len(met) <= 5


def test_large_shapes_get_code_of_their_own() -> None:
    a = _x(1 << 18)
    met: list[Any] = []
    with tec.driver.watched(met.append):
        for _ in range(4):
            got = float((a * 2.0).sum())
        assert len(met) == 2
    assert got == pytest.approx(2 * ((1 << 18) - 1) * (1 << 18) / 2, rel=1e-5)


def test_sums_on_a_gpu_take_all_of_it_once_they_come_again() -> None:
    dev = tec.rocm_emu(EMU)
    a = _x(1 << 13, device=dev)
    float(a.sum())
    with tec.profile(dev) as p:
        assert float(a.sum()) == pytest.approx((1 << 12) * ((1 << 13) - 1), rel=1e-5)
    assert " 1 x 64" not in str(p)  # one wavefront for all


def test_device_code_shows_expressions(capsys: pytest.CaptureFixture[str]) -> None:
    with tec.device_code("loop_ir", "asm") as met:
        xp.exp(_x(9) * 3.25 - 1).block()
    assert met and "exp" in capsys.readouterr().out


def test_random_numbers_are_equal_on_devices() -> None:
    a, b = xp.random.Generator(5), xp.random.Generator(5, device=tec.rocm_emu(EMU))
    for draw in (
        lambda g: g.bits((7,)),
        lambda g: g.random((3, 3)),
        lambda g: g.integers(-5, 5, (9,)),
        lambda g: g.permutation(17),
    ):
        np.testing.assert_array_equal(draw(a).numpy(), draw(b).numpy())
    np.testing.assert_allclose(a.normal((50,)).numpy(), b.normal((50,)).numpy(), rtol=1e-5, atol=1e-6)
    x = xp.random.Generator(1).random((20000,), dtype="float64").numpy()
    assert 0 <= x.min() and x.max() < 1 and abs(x.mean() - 0.5) < 0.01 and len(np.unique(x)) == 20000
    z = xp.random.Generator(2).normal((20000,)).numpy()
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.03
    counts = np.bincount(xp.random.Generator(3).integers(0, 6, (12000,)).numpy(), minlength=6)
    assert len(counts) == 6 and abs(counts - 2000).max() < 200


@pytest.mark.parametrize("n", [1, 15, 16, 17, 100, 1000])
def test_sorting_is_stable(n: int) -> None:
    rng = np.random.default_rng(n)
    a = rng.integers(0, 9, (3, n)).astype(np.float32)
    a[rng.random((3, n)) < 0.1] = np.nan
    x = xp.asarray(a)
    np.testing.assert_array_equal(xp.sort(x).numpy(), np.sort(a))
    np.testing.assert_array_equal(xp.argsort(x).numpy(), np.argsort(a, kind="stable"))
    whole = rng.integers(-9, 9, (n, 3))
    want = np.argsort(-whole, axis=0, kind="stable")
    np.testing.assert_array_equal(xp.argsort(xp.asarray(whole), axis=0, descending=True).numpy(), want)


@pytest.mark.parametrize("name", list(ALL))
def test_every_type_adds_up(name: str) -> None:
    x = xp.astype(xp.asarray([0, 1, 1, 3]), name)
    y = x | x if name == "bool" else x + x
    assert y.dtype == name and xp.astype(xp.real(y) if "complex" in name else y, "int64").tolist() == (
        [0, 1, 1, 1] if name == "bool" else [0, 2, 2, 6]
    )


def test_integers_that_divide_by_zero_and_overflow() -> None:
    x = xp.asarray([7, -7, -128, 0], dtype="int8")
    assert (x // 0).tolist() == [0, 0, 0, 0] and (x % 0).tolist() == [0, 0, 0, 0]
    assert (x // -1).tolist() == [-7, 7, -128, 0]
    assert (x**3).tolist() == [343 - 256, 256 - 343, 0, 0]
    assert (xp.asarray([3, -2, 0]) ** xp.asarray([5, 63, 64])).tolist() == [243, -(2**63), 0]
    assert (xp.asarray([1, -1]) << 100).tolist() == [0, 0] and (xp.asarray([5, -5]) >> 100).tolist() == [0, -1]


def test_importing_tec_does_not_import_arrays() -> None:
    code = "import sys, tec; assert not any(m.startswith('tec.array') for m in sys.modules); tec.array.float32"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_to_negative_powers(dtype: str) -> None:
    """The quotient toward 0; a number that is known to be negative is refused, as NumPy refuses it."""
    base, power = (x.ravel() for x in np.meshgrid(np.arange(-3, 4), np.arange(-4, 5)))
    got = (xp.asarray(base.astype(dtype)) ** xp.asarray(power.astype(dtype))).numpy()
    want = [int(float(b) ** int(p)) if b else int(p == 0) for b, p in zip(base, power)]
    assert got.tolist() == want
    with pytest.raises(ValueError, match="to the power -1"):
        xp.asarray(base.astype(dtype)) ** -1
