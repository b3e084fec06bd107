"""Vendor libraries: AMD's by stand-ins that check each call (`stand_in`), oneDNN's own where its wheel is there; NVIDIA's on a GPU."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import spaces
from tec.choices.families.libraries import TEMPLATE
from tec.errors import ArgumentError, DeviceError, ExprError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.runtime.devices.device import rocm_emu
from tec.runtime.vendor import finding, handles
from tests import seeds

from .stand_in import StandIn, convolved

ROCM = "rocm -mcpu=gfx942"


@pytest.fixture
def amd(monkeypatch):
    """Stand-ins in the place of all of AMD's libraries; the software GPU."""
    monkeypatch.setenv("TEC_EMULATE", "gfx942")
    device = rocm_emu("gfx942")
    made = {n: StandIn(device) for n, k in finding.LIBRARIES.items() if k.kind == "rocm"}
    monkeypatch.setattr(finding, "_loaded", lambda name: (made[name], name, ()))
    for name in made:
        monkeypatch.setitem(finding.LIBRARIES, name, _versioned(finding.LIBRARIES[name]))
    handles.forget()
    yield made
    handles.forget()


def _versioned(known):
    return replace(known, version=lambda lib: "1.2.3")


def drawn_product(rng):
    """Shapes, flags and types of a product."""
    m, n, k = (int(x) for x in rng.integers(1, 20, 3))
    ta, tb = bool(rng.integers(2)), bool(rng.integers(2))
    lead = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 3)))
    a, b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
    shared = rng.integers(3)
    dtype, out = [("float32", None), ("float64", None), ("float16", None), ("float16", "float32")][rng.integers(4)]
    return a if shared == 1 else (*lead, *a), b if shared == 2 else (*lead, *b), ta, tb, dtype, out


def product(library, target, device, rng, case):
    shape_a, shape_b, ta, tb, dtype, out = case
    a, b = te.placeholder(shape_a, dtype, "a"), te.placeholder(shape_b, dtype, "b")
    c = te.libraries.matmul(a, b, library, ta, tb, out)
    f = tec.build(te.create_schedule(c.op), [a, b, c], target, name="f")
    x, y = rng.standard_normal(shape_a).astype(dtype), rng.standard_normal(shape_b).astype(dtype)
    got = tec.nd.empty(tuple(c.shape), out or dtype, device)
    f(tec.nd.array(x, device), tec.nd.array(y, device), got)
    x, y = x.astype("d"), y.astype("d")
    want = (np.swapaxes(x, -1, -2) if ta else x) @ (np.swapaxes(y, -1, -2) if tb else y)
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-2 if (out or dtype) == "float16" else 1e-4, atol=2e-2)


@pytest.mark.parametrize("library", ["rocblas", "hipblaslt"])
@pytest.mark.parametrize("seed", seeds.some(4))
def test_products_on_amd(library, seed, amd):
    rng = np.random.default_rng(seed)
    product(library, ROCM, rocm_emu("gfx942"), rng, drawn_product(rng))
    assert amd[library].calls[-1] in ("rocblas_gemm_strided_batched_ex", "hipblasLtMatmul")


@pytest.mark.skipif(bool(finding.find("onednn").why_not), reason="no oneDNN")
@pytest.mark.parametrize("seed", seeds.some(6))
def test_products_on_a_cpu(seed):
    rng = np.random.default_rng(seed)
    *shapes, _, _ = drawn_product(rng)
    product("onednn", "llvm", tec.cpu(), rng, (*shapes, "float32", None))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_on_amd(dtype, groups, amd):
    x, w = te.placeholder((2, 4, 9, 7), dtype, "x"), te.placeholder((6, 4 // groups, 3, 2), dtype, "w")
    y = te.libraries.conv2d(x, w, "miopen", (2, 1), (1, 2), (1, 2), groups)
    f = tec.build(te.create_schedule(y.op), [x, w, y], ROCM, name="f")
    rng, dev = np.random.default_rng(groups), rocm_emu("gfx942")
    a, b = rng.standard_normal((2, 4, 9, 7)).astype(dtype), rng.standard_normal((6, 4 // groups, 3, 2)).astype(dtype)
    got = tec.nd.empty(tuple(y.shape), dtype, dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), got)
    want = convolved(a.astype("d"), b.astype("d"), (2, 1), (1, 2), (1, 2), groups)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms_on_amd(dtype, amd):
    rng, dev = np.random.default_rng(0), rocm_emu("gfx942")
    z = rng.standard_normal((3, 2, 12, 2)).astype(dtype)
    for inverse in (False, True):
        x = te.placeholder(z.shape, dtype, "x")
        y = te.libraries.fft(x, "rocfft", inverse)
        f = tec.build(te.create_schedule(y.op), [x, y], ROCM, name="f")
        got = tec.nd.empty(z.shape, dtype, dev)
        f(tec.nd.array(z, dev), got)
        given = z[..., 0] + 1j * z[..., 1]
        want = np.fft.ifft(given, norm="forward") if inverse else np.fft.fft(given)
        np.testing.assert_allclose(got.numpy()[..., 0] + 1j * got.numpy()[..., 1], want, rtol=1e-4, atol=1e-4)


def dense(dtype="float32"):
    rng = np.random.default_rng(0)
    g = Graph("dense")
    x = g.input("x", dtype, (24, 40))
    b = Builder(g, "l")
    g.set_outputs([b.op("relu", b.op("matmul", x, b.const(rng.standard_normal((40, 32)).astype(dtype))))], ["y"])
    return g


def by_library(signature, target, machine):
    return {"template": TEMPLATE}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_network_by_a_library(dtype, amd, tmp_path):
    """The product is the library's, what follows is tec's own; a saved network calls it again, and a library of C refuses it."""
    x = np.random.default_rng(1).standard_normal((24, 40)).astype(dtype)
    own = tec.compile(dense(dtype), ROCM, cache=False).run([x])[0]
    net = tec.compile(dense(dtype), ROCM, cache=False, libraries=True, choices=by_library)
    assert [c["choice"]["template"] for c in net.report.choices.values()] == [TEMPLATE]
    for _ in range(2):
        np.testing.assert_allclose(net.run([x])[0].astype("f"), own.astype("f"), rtol=1e-2, atol=1e-2)
    assert amd["rocblas"].calls.count("rocblas_gemm_strided_batched_ex") == 2
    net.save(tmp_path / "net.tec")
    np.testing.assert_allclose(
        tec.load(tmp_path / "net.tec").run([x])[0].astype("f"), own.astype("f"), rtol=1e-2, atol=1e-2
    )
    with pytest.raises(ArgumentError, match="calls a function of Python"):
        net.export_library(tmp_path / "net.so")
    # What nobody asked for is not offered, and the records of a search with libraries are passed over.
    plain = tec.compile(dense(dtype), ROCM, cache=False, choices=by_library)
    assert all(c["choice"]["template"] != TEMPLATE for c in plain.report.choices.values())


def test_it_is_never_a_default(amd):
    net = tec.compile(dense(), ROCM, cache=False, libraries=True)
    assert all(c["choice"]["template"] != TEMPLATE for c in net.report.choices.values())
    a, b = te.placeholder((8, 8), "float32", "a"), te.placeholder((8, 8), "float32", "b")
    assert all(s.template != TEMPLATE for s in spaces([tec.topi.matmul(a, b)], ROCM))


@pytest.mark.slow
@pytest.mark.skipif(bool(finding.find("onednn").why_not), reason="no oneDNN")
def test_the_tuner_tries_it(tmp_path):
    """A search with libraries times it among others; which one wins is the machine's to say, and the network runs either way."""
    report = tec.tune(dense(), target="llvm", trials=6, db=tmp_path / "db.sqlite", libraries=True)
    net = tec.compile(dense(), "llvm", cache=False, libraries=True, tuned=tmp_path / "db.sqlite")
    x = np.random.default_rng(1).standard_normal((24, 40)).astype("f")
    want = tec.compile(dense(), "llvm", cache=False).run([x])[0]
    np.testing.assert_allclose(net.run([x])[0], want, rtol=1e-3, atol=1e-4)
    assert report.found


def test_what_is_absent_says_so(monkeypatch):
    monkeypatch.setenv("TEC_CUBLAS", "/nowhere/libcublas.so")
    finding.forget()
    with pytest.raises(
        DeviceError, match=r"cublas is not there: it was looked for as /nowhere/libcublas.so \(No such file"
    ) as e:
        finding.require("cublas")
    assert "TEC_CUBLAS=" in str(e.value)
    monkeypatch.setenv("TEC_CUBLAS", "libm.so.6")
    finding.forget()
    assert "is no cublas" in finding.find("cublas").why_not
    finding.forget()
    assert [f.name for f in finding.found()] == list(finding.LIBRARIES)
    with pytest.raises(DeviceError, match="no library 'mkl' is known"):
        finding.find("mkl")


def test_wrong_uses(amd):
    a, b = te.placeholder((4, 5), "float32", "a"), te.placeholder((6, 7), "float32", "b")
    for build, says in (
        (lambda: te.libraries.matmul(a, b, "rocblas"), "a product over 5 of a and 6 of b"),
        (lambda: te.libraries.matmul(a, b, "rocfft"), "'rocfft' has no products"),
        (lambda: te.libraries.conv2d(a, b, "rocblas"), "'rocblas' has no convolutions"),
        (lambda: te.libraries.fft(a, "cublas"), "has no Fourier transforms"),
    ):
        with pytest.raises(ExprError, match=says):
            build()
    dev = rocm_emu("gfx942")
    i = te.placeholder((4, 4), "int8", "i")
    c = te.libraries.matmul(i, i, "rocblas")
    f = tec.build(te.create_schedule(c.op), [i, c], ROCM, name="f")
    with pytest.raises(ArgumentError, match="rocBLAS multiplies no int8"):
        f(tec.nd.array(np.zeros((4, 4), "int8"), dev), tec.nd.empty((4, 4), "int8", dev))
    x = te.placeholder((4, 3), "float32", "x")
    y = te.libraries.fft(x, "rocfft")
    f = tec.build(te.create_schedule(y.op), [x, y], ROCM, name="f")
    with pytest.raises(ArgumentError, match="pairs of a real and an imaginary part"):
        f(tec.nd.array(np.zeros((4, 3), "f"), dev), tec.nd.empty((4, 3), "float32", dev))


def test_a_failure_of_a_library_is_told(amd, monkeypatch):
    monkeypatch.setattr(StandIn, "_rocblas_gemm_strided_batched_ex", lambda self, *a: 6)
    rng = np.random.default_rng(0)
    with pytest.raises(DeviceError, match="rocblas_gemm_strided_batched_ex failed: status 6"):
        product("rocblas", ROCM, rocm_emu("gfx942"), rng, ((3, 4), (4, 5), False, False, "float32", None))
    assert ctypes.sizeof(ctypes.c_void_p) == 8


def test_workspaces_grow_and_are_dropped(amd, monkeypatch):
    """One for a library's calls in a stream, as large as the largest asked for."""
    made, dev = [], rocm_emu("gfx942")
    own = handles.Storage
    monkeypatch.setattr(handles, "Storage", lambda device, nbytes: made.append(nbytes) or own(device, nbytes))
    first = handles.workspace("miopen", dev, 1000).value
    assert handles.workspace("miopen", dev, 1000).value == handles.workspace("miopen", dev, 10).value == first
    assert handles.workspace("miopen", dev, 0).value is None and made == [1000]
    other = handles.workspace("hipblaslt", dev, 500).value
    assert other != first and handles.workspace("miopen", dev, 3000).value and made == [1000, 500, 3000]
    handles.forget()
    assert handles.workspace("miopen", dev, 10).value and made == [1000, 500, 3000, 10]


@pytest.mark.parametrize(
    ("name", "function", "answer", "want"),
    [
        ("cublas", "cublasGetProperty", lambda which, out: _written(out, (13, 1, 5)[which.value]), "13.1.5"),
        ("cufft", "cufftGetVersion", lambda out: _written(out, 11203), "11.2.3"),
        ("cudnn", "cudnnGetVersion", lambda: 91002, "9.10.2"),
        ("miopen", "miopenGetVersion", lambda *out: [_written(o, n) for o, n in zip(out, (3, 4, 0))] and 0, "3.4.0"),
        ("miopen", "miopenGetVersion", lambda *out: 1, ""),
        ("rocblas", "rocblas_get_version_string", lambda buffer, n: _text(buffer, b"4.4.1-abc"), "4.4.1"),
        ("rocfft", "rocfft_get_version_string", lambda buffer, n: 1, ""),
    ],
)  # fmt: skip
def test_versions_are_read_as_the_libraries_give_them(name, function, answer, want):
    class Library:
        pass

    def call(*args):  # a function of Python's takes attributes, as ctypes' do
        return answer(*args)

    setattr(Library, function, staticmethod(call))
    assert finding.LIBRARIES[name].version(Library()) == want


def _written(out, number):
    out._obj.value = number
    return 0


def _text(buffer, text):
    buffer.value = text
    return 0
