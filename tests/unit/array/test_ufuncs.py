"""NumPy's methods of functions of two arrays, `out=`, grids and integer functions, beside NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.errors import TecError
from tests.seeds import some

xp = tec.array
A = np.random.default_rng(2).integers(-9, 9, (5, 4)).astype("float32")
I = np.random.default_rng(3).integers(0, 99, (6, 3))


def same(ours, theirs, rtol=1e-6):
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=rtol)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "hypot", "logaddexp"])
@pytest.mark.parametrize("options", [{}, {"axis": 1}, {"axis": -1, "keepdims": True}])
def test_reduce(name, options):
    same(getattr(xp, name).reduce(xp.asarray(A), **options), getattr(np, name).reduce(A, **options), 1e-5)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_reduce_of_bits(name):
    same(getattr(xp, name).reduce(xp.asarray(I)), getattr(np, name).reduce(I))
    same(getattr(xp, name).reduce(xp.asarray(I), axis=None), getattr(np, name).reduce(I, axis=None))
    with pytest.raises(TecError, match="of no elements"):
        getattr(xp, name).reduce(xp.zeros((0, 2), dtype="int64"))


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "logical_or", "bitwise_xor"])
@pytest.mark.parametrize("axis", [0, 1])
def test_accumulate_and_outer(name, axis):
    x = I if name == "bitwise_xor" else A > 0 if name == "logical_or" else A
    same(getattr(xp, name).accumulate(xp.asarray(x), axis=axis), getattr(np, name).accumulate(x, axis=axis), 1e-5)
    same(getattr(xp, name).outer(xp.asarray(x), xp.asarray(x[0])), getattr(np, name).outer(x, x[0]))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_at_counts_each_place(name):
    places, values = np.array([0, 3, 3, -1, 3]), np.arange(5, dtype="float32") + 1
    for index, given in ((places, values), ((places, places % 4), values), (slice(1, 3), np.float32(2)), (A > 2, 3.0)):
        want, x = A.copy(), xp.asarray(A)
        before, index_here = xp.asarray(x), index
        if index is places:
            given = np.broadcast_to(values[:, None], (5, 4)).copy()
            index_here = xp.asarray(places)
        elif isinstance(index, tuple):
            index_here = tuple(map(xp.asarray, index))
        elif isinstance(index, np.ndarray):
            index_here = xp.asarray(index)
        getattr(np, name).at(want, index, given)
        getattr(xp, name).at(x, index_here, xp.asarray(given) if isinstance(given, np.ndarray) else given)
        same(x, want)
        assert before is x or (before.numpy() == A).all()


def test_at_of_lists_and_what_it_refuses():
    x = xp.zeros(4, dtype="int64")
    xp.add.at(x, [1, 1, 2], 1)
    assert x.tolist() == [0, 2, 1, 0]
    with pytest.raises(TecError, match=r"add\.at of int64 with float32"):
        xp.add.at(x, [0], xp.asarray([0.5]))
    with pytest.raises(TecError):
        xp.add.at(x, [7], 1)


def test_gradient_through_at():
    def loss(v):
        x = xp.zeros(3)
        xp.add.at(x, [0, 2, 0, 2], v)
        return xp.sum(x * x)

    assert tec.grad(loss)(xp.asarray([1.0, 2.0, 3.0, 4.0])).tolist() == [8.0, 12.0, 8.0, 12.0]


@pytest.mark.parametrize("seed", some(6))
def test_reduceat(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 5, (9, 3)).astype("float64")
    starts = rng.integers(0, 9, rng.integers(1, 7))
    for name in ("add", "multiply", "maximum", "minimum"):
        same(getattr(xp, name).reduceat(xp.asarray(x), starts), getattr(np, name).reduceat(x, starts))
        same(
            getattr(xp, name).reduceat(xp.asarray(x), starts % 3, axis=1),
            getattr(np, name).reduceat(x, starts % 3, axis=1),
        )


def test_out():
    x, out = xp.asarray(A), xp.zeros((5, 4))
    kept = xp.asarray(out, copy=True)
    assert xp.add(x, 1, out=out) is out
    same(out, A + 1)
    assert (kept.numpy() == 0).all()
    assert xp.exp(x, out=out) is out
    same(out, np.exp(A), 1e-5)
    wide = xp.zeros((5, 4), dtype="float64")
    xp.multiply(x, x, out=wide)
    assert wide.dtype == xp.float64
    same(wide, A * A)
    xp.add.reduce(x, out=(total := xp.zeros(4)))
    same(total, A.sum(0))
    with pytest.raises(TecError, match=r"out of shape \(2,\) for a result of shape \(5, 4\)"):
        xp.add(x, 1, out=xp.zeros(2))
    with pytest.raises(TecError, match="out of int64 for a result of float32"):
        xp.add(x, 1, out=xp.zeros((5, 4), dtype="int64"))
    with pytest.raises(TecError, match="out=ndarray"):
        xp.add(x, 1, out=np.zeros((5, 4)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'axis'"):
        xp.add(x, 1, axis=0)
    assert xp.add(xp.asarray([1]), xp.asarray([2]), dtype="float32").dtype == xp.float32


def test_grids():
    same(xp.mgrid[0:3, 1:7:2], np.mgrid[0:3, 1:7:2])
    same(xp.mgrid[0:5], np.mgrid[0:5])
    same(xp.mgrid[-1:1:5j, 0:1:3j], np.mgrid[-1:1:5j, 0:1:3j])
    for ours, theirs in zip(xp.ogrid[0:3, 0:4, 0:2], np.ogrid[0:3, 0:4, 0:2]):
        same(ours, theirs)
    with pytest.raises(TecError, match="slices with an end"):
        xp.mgrid[0:]


def test_integer_functions():
    a, b = np.array([12, -9, 0, 7]), np.array([18, 6, 5, 0])
    same(xp.gcd(xp.asarray(a), xp.asarray(b)), np.gcd(a, b))
    same(xp.lcm(xp.asarray(a), 6), np.lcm(a, 6))
    for kind in ("int8", "int32", "uint64", "int64"):
        info = np.iinfo(kind)
        x = np.array([info.min + 1, info.max, 0, 5], kind)
        same(xp.bitwise_count(xp.asarray(x)), np.bitwise_count(x))
    with pytest.raises(TecError, match="gcd of float32"):
        xp.gcd(xp.asarray([1.0]), 2)


def test_divmod():
    x, y = xp.asarray(A), xp.asarray(np.where(A == 0, 3, A[::-1]).astype("float32"))
    for got, want in (
        (divmod(x, 4), np.divmod(A, np.float32(4))),
        (divmod(7.5, y), np.divmod(np.float32(7.5), y.numpy())),
        (divmod(xp.asarray(I), 7), np.divmod(I, 7)),
    ):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
            assert a.dtype == str(b.dtype)
    with pytest.raises(TypeError):
        divmod(x, "a")


def test_numpys_functions_of_linalg_and_fft():
    x = xp.asarray(A)
    for f in (np.linalg.norm, np.linalg.svd, np.fft.rfft, np.linalg.pinv):
        for got, want in zip(f(x) if f is np.linalg.svd else (f(x),), f(A) if f is np.linalg.svd else (f(A),)):
            assert isinstance(got, type(x))
            np.testing.assert_allclose(abs(got.numpy()), abs(want), rtol=1e-3, atol=1e-4)
    with pytest.raises(TecError, match=r"np\.linalg\.tensorinv on an array") as e:
        np.linalg.tensorinv(x)
    assert "np.linalg.tensorinv(x.numpy())" in e.value.hint
