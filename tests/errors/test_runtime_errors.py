"""Mistakes at the call of a compiled function and around devices: the message, the hint, and the user's own line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "runtime"))
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE, fake_device, scalar, tensor, vadd

import tec.runtime as rt
from tec.errors import ArgumentError, DeviceError, PackageError, TecError
from tec.runtime import Module, cpu, nd

N = {"name": "n", "dtype": "int32"}
MATMUL = {
    "params": [tensor("A", ["n", "k"]), tensor("B", ["k", "m"]), tensor("C", ["n", "m"], writes=True)],
    "implicit": [N, {"name": "k", "dtype": "int32"}, {"name": "m", "dtype": "int32"}],
}


def cpu_module(signature, name="f"):
    """A CPU function that does nothing: only the argument check is of interest."""
    f = Module("llvm", name, signature)
    f.cpu_function = lambda name: lambda pointers, scalars: 0  # type: ignore[method-assign]
    return f


def gpu_module(signature=VADD_SIGNATURE, program=VADD_PROGRAM):
    return Module("llvm", "myadd", signature, program=program, imported=[Module("rocm", image=b"x")])


def z(*shape, dtype="float32", dev=None):
    return nd.zeros(shape, dtype, dev)


def mistake(kind, call, *words):
    """The error of a call: it is of a kind, says the words, and names this file."""
    with pytest.raises(TecError) as e:
        call()
    assert isinstance(e.value, kind), repr(e.value)
    text = str(e.value)
    for word in words:
        assert word in text, f"{word!r} is not in:\n{text}"
    assert e.value.where is not None and e.value.where.file == __file__
    return text


VADD = cpu_module(VADD_SIGNATURE, "myadd")
ONE = cpu_module({"params": [tensor("A", ["n"]), scalar("k", "int8")], "implicit": [N]})

CALLS = {
    "too few": (lambda: VADD(z(4), z(4)), "myadd: 2 arguments given, 3 wanted", "myadd(A: float32(n,), B: float32(n,), C: float32(n,))", "outputs are arguments too"),
    "too many": (lambda: VADD(z(4), z(4), z(4), z(4)), "4 arguments given, 3 wanted"),
    "none": (lambda: VADD(), "0 arguments given"),
    "dtype": (lambda: VADD(z(4), z(4, dtype="int32"), z(4)), "argument 2 (B) has dtype int32, float32 is wanted", 'x.astype("float32")'),
    "numpy dtype": (lambda: VADD(np.zeros(4), z(4), z(4)), "argument 1 (A) has dtype float64"),
    "rank": (lambda: VADD(z(4), z(2, 2), z(4)), "argument 2 (B) has shape (2, 2), (n,) is wanted"),
    "symbolic shape": (lambda: VADD(z(4), z(4), z(5)), "dimension 0 is 5, not 4", "n is 4 by dimension 0 of argument 1 (A)"),
    "list": (lambda: VADD([1.0, 2.0], z(2), z(2)), "argument 1 (A) is list", "tec.nd.array(x, dev)"),
    "number for an array": (lambda: VADD(1.0, z(2), z(2)), "argument 1 (A) is a number"),
    "read-only": (lambda: VADD(z(4), z(4), z(4).read_only()), "argument 3 (C) is written by the function, and the array is read-only"),
    "read-only numpy": (lambda: VADD(z(4), z(4), _frozen(4)), "read-only"),
    "strides": (lambda: VADD(z(8)[::2], z(4), z(4)), "argument 1 (A) has strides (2,) for shape (4,), a compact array is wanted"),
    "transposed": (lambda: cpu_module(MATMUL)(z(4, 3).numpy().T, z(4, 5), z(3, 5)), "argument 1 (A) has strides (1, 3)"),
    "output is input": (lambda: _twice(VADD, z(4)), "argument 3 (C) is written and shares memory with argument 1 (A)"),
    "output overlaps": (lambda: _overlapping(VADD), "shares memory"),
    "inner dimension": (lambda: cpu_module(MATMUL)(z(2, 3), z(4, 5), z(2, 5)), "argument 2 (B) has shape (4, 5), (k, m) is wanted", "k is 3 by dimension 1 of argument 1 (A)"),
    "array for a number": (lambda: ONE(z(4), z(1)), "argument 2 (k) is an array, a int8 number is wanted"),
    "text for a number": (lambda: ONE(z(4), "3"), "argument 2 (k)"),
    "fraction for an integer": (lambda: ONE(z(4), 1.5), "argument 2 (k) is 1.5, a int8 number is wanted"),
    "out of range": (lambda: ONE(z(4), 128), "128 is out of the range of int8 (-128 to 127)"),
    "None": (lambda: ONE(z(4), None), "argument 2 (k) is None"),
}  # fmt: skip


def _frozen(n):
    x = np.zeros(n, "float32")
    x.flags.writeable = False
    return x


def _twice(f, a):
    f(a, z(4), a)


def _overlapping(f):
    a = z(8)
    f(a[:4], z(4), a[2:6])


@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    call, *words = CALLS[name]
    mistake(ArgumentError, call, *words)


def test_alignment():
    signature = {"params": [{**tensor("A", ["n"]), "align": 64}], "implicit": [N]}
    f = cpu_module(signature)
    f(z(8))
    mistake(
        ArgumentError,
        lambda: f(z(8)[1:]),
        "argument 1 (A) starts at an address that is no multiple of 64 bytes",
        "data_alignment",
    )
    f(np.zeros(9, "float32")[1:])  # NumPy cannot promise alignment: copied


def test_constant_shape():
    f = cpu_module({"params": [tensor("A", [16, 4])], "implicit": []})
    f(z(16, 4))
    mistake(
        ArgumentError,
        lambda: f(z(16, 5)),
        "argument 1 (A) has shape (16, 5), (16, 4) is wanted; dimension 1 is 5, not 4",
    )


def test_computed_shapes():
    f = cpu_module({"params": [tensor("A", [["mul", "n", 4]]), tensor("B", [["add", "n", 2]])], "implicit": [N]})
    f(z(12), z(5))
    mistake(ArgumentError, lambda: f(z(12), z(6)), "argument 2 (B)", "not 5")
    mistake(ArgumentError, lambda: f(z(13), z(5)), "not 12")  # n is 3 by the second
    g = cpu_module({"params": [tensor("A", [["mul", "n", 4]])], "implicit": [N]})
    mistake(ArgumentError, lambda: g(z(13)), "no value of n makes (n * 4) (dimension 0) equal 13")
    h = cpu_module({"params": [tensor("A", [["mul", "n", "m"]])], "implicit": [N, {"name": "m", "dtype": "int32"}]})
    mistake(ArgumentError, lambda: h(z(12)), "no value of m, n makes (n * m)")


def test_explicit_variable():
    f = cpu_module({"params": [scalar("n", "int32"), tensor("A", ["n"])], "implicit": []})
    f(4, z(4))
    mistake(ArgumentError, lambda: f(5, z(4)), "dimension 0 is 4, not 5", "n is 5 by argument 1 (n)")


def test_variable_that_no_shape_tells():
    f = cpu_module({"params": [tensor("A", [4])], "implicit": [N]})
    mistake(ArgumentError, lambda: f(z(4)), "the shapes do not say what n is")


def test_size_beyond_its_variable():
    f = cpu_module({"params": [tensor("A", ["n"], "int8")], "implicit": [N]})
    huge = np.broadcast_to(np.int8(0), (1 << 31,))  # no memory behind it
    g = cpu_module(
        {"params": [tensor("A", ["n"], "int8", strides=["s"])], "implicit": [N, {"name": "s", "dtype": "int32"}]}
    )
    mistake(ArgumentError, lambda: g(huge), "n: 2147483648 is out of the range of int32", 'tec.var("n", "int64")')
    f(np.zeros(10, "int8"))


def test_stride_of_a_declared_buffer():
    f = cpu_module({"params": [tensor("A", [4, 4], strides=[8, 1])], "implicit": []})
    f(z(4, 8)[:, :4])
    mistake(
        ArgumentError, lambda: f(z(4, 4)), "argument 1 (A) has strides (4, 1), (8, 1) is wanted; stride 0 is 4, not 8"
    )


def test_wrong_device():
    dev = fake_device({"vadd": vadd})
    f = gpu_module()
    mistake(
        ArgumentError,
        lambda: f(z(4), z(4), z(4)),
        "argument 1 (A) is on cpu(0), and the function was built for rocm",
        'tec.nd.array(x, tec.rocm(0)), or tec.rocm_emu("gfx942") in its place',
    )
    mistake(
        ArgumentError,
        lambda: VADD(z(4, dev=dev), z(4), z(4)),
        "argument 1 (A) is on rocm(0), and the function was built for cpu",
        "tec.cpu()",
    )
    mistake(
        ArgumentError,
        lambda: f(np.zeros(4, "float32"), z(4, dev=dev), z(4, dev=dev)),
        "is a NumPy array, and the function runs on rocm",
    )
    other = fake_device({"vadd": vadd})
    mistake(
        ArgumentError,
        lambda: f(z(4, dev=dev), z(4, dev=other), z(4, dev=dev)),
        "argument 2 (B) is on rocm(0), but argument 1 (A) on rocm(0)",
    )
    nvidia = fake_device(kind="cuda")
    mistake(ArgumentError, lambda: f(*[z(4, dev=nvidia)] * 3), "is on cuda(0), and the function was built for rocm")


def test_the_check_holds_on_every_call():
    """The quick way may not let through what the full check refuses."""
    a, b, c = z(4), z(4), z(4)
    VADD(a, b, c)
    VADD(a, b, c)
    mistake(ArgumentError, lambda: VADD(a, b, a), "shares memory")
    mistake(ArgumentError, lambda: VADD(a, b, c.read_only()), "read-only")
    mistake(ArgumentError, lambda: VADD(a, b), "2 arguments")
    mistake(ArgumentError, lambda: VADD(a, b, z(4, dtype="int32")), "dtype")
    ONE(a, 1)
    mistake(ArgumentError, lambda: ONE(a, 1000), "out of the range")
    dev = fake_device({"vadd": vadd})
    f = gpu_module()
    x, y, w = z(4, dev=dev), z(4, dev=dev), z(4, dev=dev)
    f(x, y, w)
    mistake(ArgumentError, lambda: f(x, y, y), "shares memory")


def test_no_devices(monkeypatch):
    monkeypatch.setenv("TEC_EMULATE", "")
    monkeypatch.setenv("TEC_HIP_LIBRARY", "/nowhere/libamdhip64.so")
    monkeypatch.setenv("TEC_CUDA_LIBRARY", "/nowhere/libcuda.so")
    from tec.runtime.devices import device

    device._hip.cache_clear()
    device._cuda.cache_clear()
    try:
        mistake(
            DeviceError,
            lambda: rt.rocm(0),
            "no AMD GPU was found",
            "/nowhere/libamdhip64.so",
            "TEC_EMULATE=gfx942",
            "ROCM_PATH",
        )
        mistake(DeviceError, lambda: rt.cuda(0), "no NVIDIA GPU was found", "/nowhere/libcuda.so")
        assert not rt.rocm_exists() and not rt.cuda_exists()
    finally:
        device._hip.cache_clear()
        device._cuda.cache_clear()


def test_device_numbers(monkeypatch):
    mistake(DeviceError, lambda: rt.rocm(-1), "start at 0")
    mistake(DeviceError, lambda: rt.rocm("0"), "takes a device number")
    mistake(DeviceError, lambda: rt.rocm_emu("gfx000"), "no emulated chip 'gfx000'", "gfx942")
    mistake(DeviceError, lambda: rt.rocm_emu("sm_90"), "no emulated chip")
    mistake(DeviceError, lambda: rt.rocm_emu("gfx1310"), "no emulated chip 'gfx1310'", "one of: gfx90a")
    mistake(DeviceError, lambda: rt.rocm_emu("h100"), "no emulated chip 'h100'", "or a product: mi25")
    monkeypatch.setenv("TEC_EMULATE", "gfx1")
    mistake(DeviceError, lambda: rt.rocm(0), "no emulated chip 'gfx1'")
    monkeypatch.setenv("TEC_EMULATE", "gfx942")
    mistake(DeviceError, lambda: rt.rocm(1), "makes one GPU in software")


def test_events_and_graphs():
    dev, other = fake_device(), fake_device()
    mistake(DeviceError, lambda: dev.event().sync(), "never recorded", "event.record()")
    mistake(DeviceError, lambda: dev.event().record().elapsed_ms(other.event().record()), "events of two devices")
    mistake(DeviceError, lambda: dev.capture(), "no graph capture")
    mistake(DeviceError, lambda: cpu().capture(), "cpu(0) has no graph capture")
    a = cpu().event().record()
    assert a.elapsed_ms(cpu().event().record()) >= 0


def test_a_kernel_module_is_not_called():
    mistake(ArgumentError, lambda: Module("rocm", image=b"x")(), "cannot be called", "call the module that imports it")


def test_damaged_signatures():
    for broken in (
        None,
        {},
        {"params": 3},
        {"params": [{}]},
        {"params": [{"name": "A", "kind": "tensor", "dtype": "f", "shape": []}]},
    ):
        with pytest.raises(PackageError, match="damaged signature"):
            Module("llvm", "f", functions={"f": {"signature": broken}})
