"""NumPy's functions and methods that the standard leaves out give what NumPy gives; names of other libraries get a hint."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import tec
from tests import seeds

xp = tec.array
EMU = "gfx942"
RNG = np.random.default_rng(seeds.first(34))
M = (RNG.integers(-20, 20, (4, 6)) / 4).astype(np.float32)
N = (RNG.integers(-20, 20, (4, 6)) / 4).astype(np.float32)
V, W = M[0].copy(), np.array([1.0, 0.5, -2.0], np.float32)
I = RNG.integers(0, 9, 40)
EDGES = np.array([-2.0, 0.0, 2.5], np.float32)
HOLES = np.where(M > 3, np.float32(np.nan), M)
ONE, TWO, THREE = (f"f({x})" for x in ("m", "m, n", "v"))

# name -> the call, of f, the arrays below and k (NumPy or the namespace)
FUNCTIONS: dict[str, str] = {
    **dict.fromkeys("ravel transpose flipud fliplr rot90 ptp cumsum cumprod median exp2 deg2rad rad2deg amax amin average trace diagonal".split(), ONE),
    **dict.fromkeys("fmax fmin isclose array_equal allclose outer kron append inner vdot logaddexp2".split(), TWO),
    **dict.fromkeys("diag atleast_2d cbrt".split(), THREE),
    **dict.fromkeys("nansum nanmean nanmax nanmin nan_to_num".split(), "f(h)"),
    "vstack": "f([m, n])", "hstack": "f([v, w])", "column_stack": "f([v, v])", "concatenate": "f([m, n], axis=1)", "swapaxes": "f(m, 0, 1)",
    "array_split": "f(m, 4, axis=1)", "split": "f(m, [1, 3])", "pad": "f(m, ((1, 0), (2, 3)), constant_values=7)", "dot": "f(m, n.T)",
    "convolve": "f(v, w, 'same')", "quantile": "f(m, 0.3, axis=0)", "percentile": "f(m, 80)", "bincount": "f(i, minlength=12)",
    "histogram": "f(m, 7)[0]", "digitize": "f(v, e)", "interp": "f(v, e, w)",
    "unique": "f(i, return_counts=True)", "fmod": "f(m, 0.75)", "logspace": "f(0, 2, 5)", "identity": "f(3)", "absolute": "f(m)", "mod": "f(m, 0.75)",
    "power": "f(k.abs(m), 1.5)", "arctan2": "f(m, n)", "cumsum of rows": "f(m, axis=1)", "transpose of three": "f(k.reshape(m, (2, 2, 6)), (2, 0, 1))",
}  # fmt: skip
METHODS = """m.reshape(2, 3, 4).T|v.T|m.sum().T|m.reshape(3, 8)|m.reshape((8, 3))|m.T.reshape(-1)|m.flatten()|m.ravel()|m.transpose()|m.argmax()|m.argmin(axis=1)|m.astype('int32')|m.clip(-1, 1)|
m.round()|m.round(1)|m.cumsum(0)|m.copy()|m.swapaxes(0, 1)|m.repeat(2)|m.dot(n.T)|m.trace()|m.diagonal()|k.take_along_axis(m, m.argsort(), axis=1)|m.sum(axis=0)|m.std()|
m.reshape(4, 1, 6).squeeze()|m.take(i)|m.ptp() if k is x else k.ptp(m)|m.real|m.conj()""".replace("\n", "").split("|")
EDGE, BYTES, NONE = (
    np.array([np.inf, 1, np.nan, -np.inf], np.float32),
    np.array([100, 100, -128], np.int8),
    np.zeros((0, 3), np.float32),
)
# Infinities, NaN, bytes at their limits, no elements, negative axes, kept dimensions, integers where floats come out.
ODD = """k.diag(q)|k.diag(q > 0)|k.fmax(q, 2.0)|k.fmin(q, w[:1])|k.fmax(i, 3)|k.fmod(b, 3)|k.fmod(b, k.flip(b))|k.fmod(7.5, v + 9)|
k.exp2(-i)|k.rint(i)|k.fabs(i)|k.cbrt(i)|k.isclose(w[:1], np.inf)|k.isclose(q, q)|k.isclose(q, q, equal_nan=True)|k.isclose(b, b - 100)|k.isclose(q > 0, q > 0)|
k.array_equal(q, q, equal_nan=True)|k.average(m[:3, :3], axis=0, weights=w)|k.average(m, axis=-1, weights=v)|k.median(h, axis=-1)|k.median(m, axis=0, keepdims=True)|
k.median(k.abs(q[::3]))|k.nan_to_num(q * 1j)|k.nansum(i)|k.nansum(h, axis=-1, keepdims=True)|k.nanmax(q[2:3])|k.nanmin(h, axis=-1)|k.nanmean(i)|k.nanmax(i)|
k.bincount(i[:4], weights=q)|k.bincount(i[:4], weights=m[:, 0] * 1e8)|k.histogram(v[:0], 3)[0]|k.histogram(v, e)[0]|k.digitize(v, -e)|k.digitize(v, -e, right=True)|
k.concatenate([m, n], -1)|k.append(v, 3.0)|k.inner(v[0], w)|k.array_split(m, [2, -1], axis=-1)|i.round(-1)|i.round(1)|v.round(-1)|v.take([0, -1])|
w.repeat([2, 0, 1])|d.reshape(-1)|d.sum(axis=0)|d[:, 0].itemsize|m.T.reshape(8, -1)|m[::-1, ::2].flatten()|m.argmax(-1, keepdims=True)|
k.einsum('...i,...i->...', m[:1], n)|k.einsum('ij,kj->ik', d, w.reshape(1, 3))|k.linalg.norm(k.reshape(m, (2, 2, 6)), axis=(-1, 0), ord=1)|
k.linalg.norm(i)|k.unique(h, return_index=True, return_inverse=True, return_counts=True)""".replace("\n", "").split("|")  # fmt: skip
# Differences, covariances, orders, index arithmetic, sets, padding; arguments by position; bools as numbers.
MORE = """k.matvec(m, v)|k.matvec(k.reshape(m, (2, 2, 6)), v)|k.vecmat(m[:, 0], m)|k.piecewise(v, [v < 0, v > 1], [lambda x: x * x, 7])|
k.piecewise(v, [v < 0], [lambda x: -x, lambda x: x + 1])|k.histogram2d(v, m[1], bins=3)[0]|k.histogram2d(v, m[1], bins=(2, [-4, 0, 1, 4]))[0]|
k.histogram2d(v, m[1], bins=2, range=((-2, 2), (-3, 3)), weights=m[2])[0]|k.histogram2d(v, m[1], bins=3, density=True)[0]|
k.apply_over_axes(k.sum, m, [0, 1])|k.apply_over_axes(k.amax, m, 1)|k.block([[m, n], [n, m]])|k.block([v, w])|k.block([[v], [m]])|k.digitize(v, [-1, 0, 2])|
k.interp(v, [-2, 0, 3], [1.0, 5.0, 2.0])|k.choose([0, 1, 1, 0, 1, 0], [v, m[1]])|k.gradient(v)|k.gradient(m)|k.gradient(m, axis=0)|k.gradient(m, 2.0, 0.5)|k.gradient(v, c)|k.gradient(v, c, edge_order=2)|
k.gradient(m, 0.5, axis=1, edge_order=2)|k.gradient(i)|k.gradient(m, axis=(0, 1))|k.trapezoid(m)|k.trapezoid(m, dx=.5, axis=0)|k.trapezoid(v, c)|
k.trapezoid(m, c)|k.ediff1d(m)|k.cov(m)|k.cov(v)|k.cov(m, n)|k.cov(m, rowvar=False)|k.cov(m, bias=True)|k.cov(z)|k.cov(m, ddof=3)|k.corrcoef(m)|
k.corrcoef(m, n, rowvar=False)|k.corrcoef(v, v)|k.corrcoef(z)|k.correlate(v, w)|k.correlate(v, w, 'full')|k.correlate(w, v, 'same')|k.correlate(w[:2], v[:5], 'same')|k.correlate(z[0, :2], z[0, :5], 'same')|k.polyval(w, v)|
k.polyval(w, 2.0)|k.vander(v)|k.vander(v, 3)|k.vander(v, 3, increasing=True)|k.polyfit(v, c, 2)|k.unwrap(c)|k.unwrap(m)|
k.unwrap(m, axis=0, period=3.0)|k.unwrap(m, discont=4.0)|k.sort(k.partition(v, 2)[:2])|k.partition(m, 2)[:, 2]|k.partition(m, 2, axis=None)[2]|
k.sort(v[k.argpartition(v, 3)[:3]])|k.lexsort((v, c))|k.lexsort([i[:20]%3, i[20:]%4])|k.lexsort(k.round(m))|k.argwhere(m>1)|k.argwhere(z)|
k.flatnonzero(m>1)|k.extract(m>1, m)|k.compress(v>0, m, axis=1)|k.compress(v>0, v)|k.select([m>2, n>0], [m, n], 7.0)|k.select([m>2, n>0], [1.0, n])|
k.delete(m, 1, axis=0)|k.delete(m, [0, 2], axis=1)|k.delete(v, slice(1, 3))|k.delete(m, 3)|k.insert(v, 2, 9.0)|k.insert(m, 1, 5.0, axis=1)|
k.insert(m, 1, v, axis=0)|k.insert(m, -1, 3.0, axis=0)|k.insert(v, 1, w)|k.insert(m, 1, w[:1].repeat(4), axis=1)|k.insert(m, 1, m[:, :2].T, axis=1)|k.insert(m, 1, n[:2], axis=0)|k.unravel_index(i, (3, 3))|k.unravel_index(7, (3, 4))|
k.ravel_multi_index((i%3, i%4), (3, 4))|k.indices((2, 3))|k.tri(3)|k.tri(3, 4, 1)|k.tril_indices(3)|k.triu_indices(3, 1, 4)|
m[k.ix_([0, 2], [1, 3, 4])]|m[k.ix_([True, False, True, True], [1, 3])]|k.union1d(i, i+3)|k.intersect1d(i, i+3)|k.setdiff1d(i, i+3)|k.setxor1d(i, i+3)|
k.nanargmax(h)|k.nanargmin(h, axis=1)|k.trim_zeros(k.pad(v, 2))|k.float_power(i, 0.5)|k.float_power(v, 2)|k.float_power(z, 2)|k.radians(v)|
k.degrees(v)|k.divmod(m, 0.75)|k.divmod(i, 3)|k.modf(m)|k.modf(q)|k.sinc(m)|k.heaviside(k.round(m), 0.5)|k.heaviside(q, 0.5)|k.isposinf(q)|
k.isneginf(q)|k.isreal(z)|k.isreal(m)|k.iscomplex(z)|k.angle(z)|k.angle(m)|k.angle(z, deg=True)|k.ldexp(v, 3)|k.ldexp(v, i[:6])|k.ldexp(w * 1e-30, 150)|k.ldexp(w * 1e30, -200)|
k.geomspace(1, 1000, 4)|k.fromfunction(lambda a, b:a+b, (2, 3))|k.hanning(5)|k.blackman(6)|k.copy(m)|k.size(m, 0)|k.atleast_3d(v)|k.atleast_3d(m)|
k.rollaxis(m, 1)|k.cross(m[:, :3], n[:, :3])|k.dstack([m, n])|k.vsplit(m, 2)|k.hsplit(m, [2])|k.hsplit(v, 3)|k.diagflat(m[:2, :2], 1)|k.diff(m, 2)|m * np.float32(2)|v + np.int64(1)|k.where(v > 0, np.float32(1), np.float32(0))|k.repeat(m, [1, 0, 2, 3], axis=0)|k.tensordot(m, n, 2)|k.pad(i[:6] - 4, 3, mode='linear_ramp')|k.gradient(v, np.float32(2))|k.diag(v, -2)|
k.around(m, 1)|k.round(m, 1)|k.round(i, -1)|k.round(m*100, -2)|k.pad(m, 1, mode='edge')|k.pad(m, ((1, 2), (3, 4)), mode='reflect')|
k.pad(m, ((5, 0), (9, 7)), mode='reflect')|k.pad(v, (7, 8), mode='symmetric')|k.pad(m, 3, mode='wrap')|k.pad(v, (20, 13), mode='wrap')|
k.pad(m, ((0, 2), (1, 0)), mode='maximum')|k.pad(m, 2, mode='minimum')|k.pad(m, 2, mode='mean')|k.pad(i, 2, mode='mean')|
k.pad(v, (2, 3), mode='linear_ramp', end_values=(1, -2))|k.pad(m, 2, mode='linear_ramp')|k.pad(m, ((1, 2), (0, 1)), constant_values=((1, 2), (3, 4)))|
k.pad(d, ((1, 1), (0, 0)))|k.pad(t, 1)|k.pad(i, 1, mode='wrap')|k.quantile(m, [0.1, 0.5])|k.quantile(m, [0.25, 0.5], axis=1)|
k.percentile(m, [10, 90], axis=0)|k.nanprod(h)|k.nancumsum(h)|k.nanvar(h)|k.nanvar(h, axis=0)|k.nanstd(h, axis=1, ddof=1)|k.nanstd(i)|t.sum()|
k.sum(t, 0)|t.mean()|t.mean(axis=1)|t.max()|t.min(axis=0)|k.prod(t)|k.cumsum(t)|m*t|t*m|t+1|t*2.5|t-m|m+True|i*t[0, 0]|t+u|t*u|k.maximum(t, u)|
k.minimum(t, u)|t<u|t>=u|k.logical_and(m, n)|k.logical_or(i, 0)|k.logical_not(m)|k.logical_xor(i, t[0, 0])|k.where(m, 1.0, 2.0)|k.where(m>1)|
k.where(i%2, i, 0)|k.isnan(t)|k.sqrt(t)|t/2|t/u|k.argmax(t)|k.argmin(t, axis=1)|k.argmin(m[:, :0], 0)|k.any(i)|t.std()|k.var(m, 0)|k.std(m, axis=1, ddof=1)|m.std(ddof=1)|
m.var(axis=0, ddof=1)|k.concatenate([t, m])|k.abs(t)|t**2|2**t|k.clip(m, 0, t)|k.stack([m, n], 1)|k.flip(m, 1)|k.roll(m, 2, 1)|k.take(m, i[:3]%4, 0)|
k.repeat(m, 2, 1)|k.tile(v, 2)|k.squeeze(m[:1])|k.sum(m, 1)|k.mean(m, 1)|k.max(m, 0)|k.argmax(m, 1)|k.sort(m, 0)|k.argsort(m, 0)|k.all(m, 0)|
k.zeros((2, 3), 'int32')|k.ones(3, 'float64')|k.full((2, ), 7, 'int32')|k.arange(0, 5, 1, 'float32')|k.eye(3, 4, 1)|k.tril(m, 1)|k.triu(m, -1)|
k.asarray([1, 2], 'float32')|k.searchsorted(e, v, 'right')|k.count_nonzero(m, 0)|k.fft.fft(v, 8)|k.fft.rfft(m, 4, 0)|k.fft.fftfreq(5, 0.1)|
k.fft.fftshift(v, 0)|k.zeros_like(m, 'int32')|k.full_like(m, 3)|m.compress(v>0, axis=1)|True+m|t&u|~t|k.convolve(v, w)|k.array_equal(t, t)|k.unique(t)|
k.sort(v, kind='stable')|k.sort(m, None)|i.argsort(kind='stable')|k.nanmedian(h)|k.nanquantile(h, [0.2, 0.7], axis=0)|k.nanpercentile(h, 30, axis=1, keepdims=True)|
k.histogram(v, 3, weights=c)[0]|k.histogram(m, 4, density=True)[0]|k.unique(i.reshape(20, 2)%2, True, return_counts=True, axis=0)|k.unique(t, axis=1)|k.max(m, axis=1, initial=2.0)|
k.max(d, initial=1.0)|k.sum(m, where=m>0)|m.min(axis=0, initial=9.0, where=m>0)|k.prod(d, initial=3.0)|k.isin(i, [1, 2])|k.union1d(i, [100])|k.setdiff1d(i, [1, 2])|
k.compress([True, False, True], m, axis=1)|k.diff(m, prepend=0.0, append=m[:, :2])|k.choose(i%2, [i, -i])|k.resize(v, (3, 5))|k.resize(m, 7)|m[:, v>0]|m[m[:, 0]>0, 2]|m[t.any(1), ::-2]|
m[[0, 2], None, 1:3]|k.sort(t)|k.bincount(t[0]*1)|k.outer(t[0], v)|k.nan_to_num(q)|k.vdot(v, v)|k.sign(i)|k.cumsum(t, axis=0)|k.diff(t)|k.isclose(t, t)""".replace("\n", "").split("|")  # fmt: skip
HOST = """k.linalg.lstsq(m.T, v)|k.linalg.cond(m[:, :4])|k.linalg.cond(m[:, :4], 1)|k.linalg.multi_dot([w, m[:3], n.T])|k.fft.fft2(m)|k.fft.irfft2(k.fft.rfft2(m))"""
EINSUMS = [
    "ij,kj->ik",
    "ij,ij->",
    "ij->ji",
    "ij->j",
    "ij,ij,kj->ik",
    "ij,kl->il",
    "...j,kj->...k",
    "i...,i...",
    "ij,jk->ik",
    "ij,j,kj->ik",
    "i,j,k->ikj",
]


def given(k: Any, dev: Any) -> dict[str, Any]:
    arrays = {"m": M, "n": N, "v": V, "w": W, "i": I, "h": HOLES, "e": EDGES, "q": EDGE, "b": BYTES, "d": NONE}
    arrays |= {
        "z": (M + 1j * N).astype(np.complex64),
        "t": M > 0,
        "u": N > 1,
        "c": np.cumsum(np.abs(V) + 0.5, dtype=np.float32),
    }
    return {
        "k": k,
        "x": xp,
        "np": np,
        **({a: xp.asarray(v, device=dev) for a, v in arrays.items()} if k is xp else arrays),
    }


def same(got: Any, want: Any, what: str) -> None:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), what
        for g, w in zip(got, want):
            same(g, w, what)
        return
    got = got.numpy() if isinstance(got, xp.Array) else np.asarray(got)
    assert (got.shape, got.dtype.kind) == (np.shape(want), np.asarray(want).dtype.kind), what
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=what)


def check(dev: Any, calls: list[tuple[str, str]]) -> None:
    for name, text in calls:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = eval(text, {**given(np, dev), "f": getattr(np, name.split()[0], None)})
        with dev or tec.cpu():
            got = eval(text, {**given(xp, dev), "f": getattr(xp, name.split()[0], None)})
        same(got, want, f"{name}: {text}")


CALLS = [
    *FUNCTIONS.items(),
    *(("a method", m) for m in METHODS),
    *(("an odd one", o) for o in ODD + MORE + HOST.split("|")),
]
PARTS = 27  # of which the gate runs one, on the CPU, and a night all, on both


@pytest.mark.parametrize("dev", [None, pytest.param(EMU, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, PARTS))])
def test_functions_and_methods_give_what_numpy_gives(part: int, dev: str | None) -> None:
    order = CALLS.copy()
    random.Random(seeds.stream("names")).shuffle(order)
    check(dev and tec.rocm_emu(dev), order[part::PARTS])


@pytest.mark.parametrize("name", ["matvec", "vecmat", "piecewise", "histogram2d", "apply_over_axes", "block"])
def test_blocks_pieces_and_pairs(name: str) -> None:
    check(None, [("an odd one", call) for call in MORE if f"k.{name}(" in call])


@pytest.mark.parametrize("dev", [None, pytest.param(EMU, marks=pytest.mark.slow)])
def test_einsum_gives_what_numpy_gives(dev: str | None) -> None:
    rng = random.Random(seeds.stream("einsum"))
    drawn = []
    for _ in range(2 if not seeds.number() else 20):  # each index two to four wide
        terms = ["".join(rng.sample("abcd", rng.randint(1, 3))) for _ in range(rng.randint(2, 3))]
        result = "".join(c for c in sorted(set("".join(terms)), key=lambda _: rng.random()) if rng.random() < 0.6)
        drawn.append(f"{','.join(terms)}->{result}")
    sizes = {c: rng.randint(2, 4) for c in "abcdefgijkl"}
    for text in [*(rng.sample(EINSUMS, 3) if not seeds.number() else EINSUMS), *drawn]:
        shapes = [[sizes[c] for c in t.replace("...", "ab")] for t in text.split("->")[0].split(",")]
        arrays = [RNG.integers(-3, 4, s).astype(np.float32) for s in shapes]
        got = xp.einsum(text, *(xp.asarray(a, device=dev and tec.rocm_emu(dev)) for a in arrays))
        same(got, np.einsum(text, *arrays), text)


@pytest.mark.parametrize("call", [
    lambda x: xp.pad(x, 0), lambda x: xp.nan_to_num(x), lambda x: xp.atleast_1d(x), lambda x: xp.einsum("i->i", x), lambda x: xp.ravel(x), lambda x: x.round(1),
])  # fmt: skip
def test_what_is_assigned_to_a_result_does_not_change_its_argument(call: Any) -> None:
    x = xp.asarray([1, 2, 3])
    call(x)[0] = 9
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("key", [0, ..., slice(None), slice(0, 2), xp.asarray([True, False, True]), xp.asarray([0, 2])])
def test_a_number_that_the_type_does_not_hold_is_not_assigned(key: Any) -> None:
    x = xp.asarray([1, 2, 3])
    with pytest.raises(tec.TecError, match="assigned to an array of int64"):
        x[key] = 2.5
    y = xp.asarray([1.0, 2.0, 3.0])
    y[key] = np.float64(2.5)  # a number, of any width
    assert (x.tolist(), x.dtype, y.dtype) == ([1, 2, 3], xp.int64, xp.float32)


def test_einsum_takes_diagonals() -> None:
    a = RNG.integers(-3, 4, (4, 4, 3)).astype(np.float32)
    same(xp.einsum("iij->j", xp.asarray(a)), np.einsum("iij->j", a), "iij->j")


def test_arrays_are_made_where_a_with_says() -> None:
    dev = tec.rocm_emu(EMU)
    with dev:
        made = [xp.zeros(2), xp.asarray([1.0]), xp.asarray(M), xp.arange(3), xp.random.rand(2), xp.fft.fftfreq(4)]
        with tec.cpu():
            inner = xp.ones(2)
        elsewhere = xp.zeros(2, device=tec.cpu())
    assert all(x.device is dev for x in made)
    assert inner.device is elsewhere.device is xp.zeros(2).device is tec.cpu()


def test_random_numbers_by_numpys_names() -> None:
    g, h = xp.random.default_rng(3), xp.random.default_rng(3)
    assert xp.array_equal(g.normal(2.0, 0.5, (2, 3)), h.normal(size=(2, 3), loc=2.0, scale=0.5))
    x = xp.arange(10)
    g.shuffle(x)
    assert sorted(x.tolist()) == list(range(10)) and len(set(g.choice(x, 6, replace=False).tolist())) == 6
    xp.random.seed(4)
    first = xp.random.randint(0, 100, size=(5,)).tolist()
    xp.random.seed(4)
    assert xp.random.randint(0, 100, size=(5,)).tolist() == first
    assert g.choice([7], 3).tolist() == [7, 7, 7]
    with pytest.raises(ValueError, match="choice of 11"):
        g.choice(10, 11, replace=False)


@pytest.mark.parametrize(("call", "says"), [
    (lambda x: x.get(), "numpy"), (lambda x: x.unsqueeze(0), "expand_dims"), (lambda x: x.exp(), "tec.array.exp"), (lambda x: x.reshap(3), "reshape meant"),
    (lambda x: xp.ElementwiseKernel, "tec.kernel"), (lambda x: xp.Tensor, "asarray"), (lambda x: xp.get_default_memory_pool, "dev.memory"),
    (lambda x: xp.arrange(3), "arange meant"), (lambda x: xp.roots(x), "np.roots"),
    (lambda x: xp.nn.conv2d, "conv\\(x, weight"), (lambda x: xp.nn.relus, "relu meant"), (lambda x: xp.optim.RMSprop, "Adam"), (lambda x: xp.linalg.expm, "scipy"),
    (lambda x: xp.random.PRNGKey, "Generator"), (lambda x: xp.random.permutate, "permutation meant"),
    (lambda x: xp.fft.fft3, "fft"), (lambda x: xp.bitwise_count(x), "integers"),
    (lambda x: xp.einsum("ij,jk->ik", x), "one term for each"), (lambda x: xp.einsum("ij->i", x), "1 dimensions"),
    (lambda x: xp.array_split(x, 0), "one part"), (lambda x: xp.split(x, -1), "one part"), (lambda x: xp.diag(x[0]), "vectors and matrices"),
    (lambda x: xp.rot90(x.reshape(1, 3), 1, (0, -2)), "differ"), (lambda x: xp.average(x.reshape(1, 3), weights=x), "weights"), (lambda x: xp.histogram(x, 0), "at least one"),
    (lambda x: xp.histogram(x, 2, range=(1.0, 0.0)), "ascending"), (lambda x: xp.digitize(x, xp.asarray([1.0, 0.0, 2.0])), "neither"), (lambda x: xp.median(x[:0]), "no elements"),
    (lambda x: xp.bincount(xp.arange(3), weights=x[:2]), "weights of shape"), (lambda x: xp.einsum("...i->i", x.reshape(1, 3)), "no \"...\""),
    (lambda x: xp.linalg.norm(x, ord="fro"), "a number"), (lambda x: xp.linalg.norm(x.reshape(1, 1, 3), ord=1), "along two"),
    (lambda x: xp.split(x, 2), "array_split"), (lambda x: xp.bincount(x), "vector of integers"), (lambda x: xp.pad(x, 1, mode="wrp"), "constant"), (lambda x: xp.pad(x, 1, mode="edge", constant_values=1), "no constant_values"),
    (lambda x: xp.gradient(x, 1.0, 2.0), "one for all"), (lambda x: xp.gradient(x[:1]), "at least 2"), (lambda x: xp.partition(x, 3), "element 3 of 3"),
    (lambda x: xp.insert(x, [1, 2], 0.0), "one integer"), (lambda x: xp.delete(x, [3]), "from 3 elements"), (lambda x: xp.ix_(x.reshape(1, 3)), "vectors"),
    (lambda x: xp.ravel_multi_index((x,), (3, 4)), "1 indices in 2"), (lambda x: xp.polyfit(x, x[:2], 1), "as many values"), (lambda x: xp.pad(x, (1, 2, 3)), "a pair for each"),
    (lambda x: xp.repeat(x, [1, -1, 1]), "-1 times"), (lambda x: xp.linalg.multi_dot([]), "no arrays"), (lambda x: xp.random.permutation(x.sum()), "0 dimensions"),
    (lambda x: xp.zeros(1.5), "not a shape"), (lambda x: xp.cov(x.reshape(1, 1, 3)), "vectors and matrices"),
])  # fmt: skip
def test_what_is_not_there_gets_a_hint(call: Any, says: str) -> None:
    with pytest.raises((AttributeError, ValueError, TypeError, IndexError), match=says):
        call(xp.asarray([1.0, 2.0, 3.0]))
