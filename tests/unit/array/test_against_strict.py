"""The namespace against array-api-strict, the standard's own implementation over NumPy: the same calls give the same types, shapes and values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tec
from tests import seeds

strict: Any = pytest.importorskip("array_api_strict")
strict.set_array_api_strict_flags(api_version="2024.12")
xp = tec.array

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]
FLOATS = ["float32", "float64"]
_SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=not seeds.number(),
    suppress_health_check=list(HealthCheck),
    database=None,
)
_FEW = settings(_SETTINGS, max_examples=5)

UNARY = {
    "ints": ["abs", "negative", "square", "sign", "bitwise_invert"],
    "floats": [
        "exp",
        "log1p",
        "sqrt",
        "tanh",
        "floor",
        "round",
        "trunc",
        "isnan",
        "isfinite",
        "signbit",
        "atan",
        "expm1",
    ],
}
BINARY = {
    "ints": ["add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "bitwise_xor", "less", "equal"],
    "floats": ["add", "multiply", "divide", "minimum", "atan2", "copysign", "hypot", "logaddexp", "nextafter", "greater", "not_equal"],
}  # fmt: skip


def _values(draw: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    if dtype in FLOATS:
        a = rng.standard_normal(shape) * 3
        special = rng.random(shape) < 0.1
        return np.where(special, rng.choice([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0], shape), a).astype(dtype)
    info = np.iinfo(dtype)
    small = rng.integers(max(info.min, -20), min(info.max, 20), shape, endpoint=True)
    edge = rng.random(shape) < 0.1
    return np.where(edge, rng.choice([info.min, info.max], shape), small).astype(dtype)


def _shape(draw: Any, least: int = 0) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0 if least == 0 else 1, 4), min_size=least, max_size=3)))


def _same(got: Any, want: Any, what: str, exact: bool = True) -> None:
    assert str(got.dtype) == str(want.dtype).rpartition(".")[2], what
    assert got.shape == want.shape, what
    a, b = got.numpy(), np.asarray(want._array)
    if exact or a.dtype.kind != "f":
        np.testing.assert_array_equal(a, b, err_msg=what)
    else:
        np.testing.assert_allclose(a, b, rtol=2e-6 if a.dtype == np.float32 else 1e-14, atol=1e-30, err_msg=what)


def _elementwise(data: Any, device: Any) -> None:
    kind = data.draw(st.sampled_from(["ints", "floats"]))
    dtypes = INTS if kind == "ints" else FLOATS
    shape = _shape(data.draw)
    with np.errstate(all="ignore"):
        if data.draw(st.booleans()):
            name = data.draw(st.sampled_from(UNARY[kind]))
            a = _values(data.draw, data.draw(st.sampled_from(dtypes)), shape)
            if name in ("abs", "negative") and a.dtype.kind == "i":
                a = np.maximum(a, np.iinfo(a.dtype).min + 1)
            got = getattr(xp, name)(xp.asarray(a, device=device))
            _same(got, getattr(strict, name)(strict.asarray(a)), f"{name} of {a!r}", exact=False)
            return
        name = data.draw(st.sampled_from(BINARY[kind]))
        a = _values(data.draw, data.draw(st.sampled_from(dtypes)), shape)
        b = _values(
            data.draw, data.draw(st.sampled_from(dtypes)), tuple(data.draw(st.sampled_from([1, n])) for n in shape)
        )
        if name in ("floor_divide", "remainder"):
            b[b == 0] = 3
            if np.promote_types(a.dtype, b.dtype).kind == "i":
                b[b == -1] = 2
        got = getattr(xp, name)(xp.asarray(a, device=device), xp.asarray(b, device=device))
        want = getattr(strict, name)(strict.asarray(a), strict.asarray(b))
        _same(got, want, f"{name} of {a!r} and {b!r}", exact=name in ("add", "multiply", "divide", "nextafter"))


@_SETTINGS
@given(st.data())
def test_elementwise(data: Any) -> None:
    _elementwise(data, tec.cpu())


@_FEW
@given(st.data())
def test_elementwise_on_the_software_gpu(data: Any) -> None:
    _elementwise(data, tec.rocm_emu("gfx942"))


def _reduced(data: Any, device: Any) -> None:
    shape = _shape(data.draw, 1)
    name = data.draw(
        st.sampled_from(
            [
                "sum",
                "prod",
                "max",
                "min",
                "mean",
                "var",
                "any",
                "all",
                "count_nonzero",
                "argmax",
                "argmin",
                "cumulative_sum",
            ]
        )
    )
    floats = name in ("mean", "var") or data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(FLOATS if floats else INTS))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    a = (rng.integers(0, 4, shape) if not floats else rng.integers(-8, 8, shape) / 4).astype(dtype)
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    options: dict[str, Any] = {"axis": axis, "keepdims": data.draw(st.booleans())}
    if name == "cumulative_sum":
        options = {"axis": axis if axis is not None else 0, "include_initial": data.draw(st.booleans())}
    got = getattr(xp, name)(xp.asarray(a, device=device), **options)
    _same(got, getattr(strict, name)(strict.asarray(a), **options), f"{name} of {a!r}, {options}", exact=False)


@_SETTINGS
@given(st.data())
def test_reductions(data: Any) -> None:
    _reduced(data, tec.cpu())


@_FEW
@given(st.data())
def test_reductions_on_the_software_gpu(data: Any) -> None:
    _reduced(data, tec.rocm_emu("gfx942"))


def _chained(data: Any, device: Any) -> None:
    """A chain with views, joins, order and a product: what one expression hands to the next."""
    m, n = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    a = rng.integers(-9, 9, (m, n)).astype(data.draw(st.sampled_from(["float32", "float64", "int32", "int64"])))
    pairs = [(xp.asarray(a, device=device), strict.asarray(a))]
    for _ in range(data.draw(st.integers(2, 5))):
        x, y = pairs[-1]
        step = data.draw(st.integers(0, 9))
        made = []
        for ns, v in ((xp, x), (strict, y)):
            made.append(
                [
                    lambda ns, v: v * 2 + 1,
                    lambda ns, v: v.mT,
                    lambda ns, v: v[::-1, :],
                    lambda ns, v: ns.concat([v, v + 1], axis=1)[:, : min(4, 2 * v.shape[1])],
                    lambda ns, v: ns.sort(v, axis=0, descending=True),
                    lambda ns, v: v - ns.max(v, axis=0, keepdims=True),
                    lambda ns, v: ns.take(v, ns.argsort(v[:, 0]), axis=0),
                    lambda ns, v: ns.roll(v, 1, axis=1),
                    lambda ns, v: ns.remainder(ns.matmul(v, v.mT), 7),
                    lambda ns, v: ns.where(v > 2, v, -v),
                ][step](ns, v)
            )
        pairs.append((made[0], made[1]))
    for k, (x, y) in enumerate(pairs):
        _same(x, y, f"step {k}")
    x, y = pairs[-1]
    got, want = xp.unique_all(x), strict.unique_all(y)
    for p, q in zip(got, want):
        _same(p, q, "unique_all")
    for p, q in zip(xp.nonzero(x), strict.nonzero(y)):
        _same(p, q, "nonzero")
    _same(x[x > 0], y[y > 0], "mask")


@settings(_SETTINGS, max_examples=4)
@given(st.data())
def test_chains(data: Any) -> None:
    _chained(data, tec.cpu())


@pytest.mark.slow
@settings(_SETTINGS, max_examples=100)
@given(st.data())
def test_many_chains(data: Any) -> None:
    _chained(data, tec.cpu())


@settings(_SETTINGS, max_examples=1)
@given(st.data())
def test_chains_on_the_software_gpu(data: Any) -> None:
    _chained(data, tec.rocm_emu("gfx942"))
