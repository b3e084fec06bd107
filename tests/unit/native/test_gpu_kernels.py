"""te functions for GPUs as libraries, on the software GPU through the stand-in for libamdhip64; libraries for several targets."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from ctypes import byref, c_int32, c_size_t, c_void_p

import numpy as np
import pytest

import tec
from tec import te
from tec.emulator.hip import environment
from tec.emulator.hip.library import library_folder
from tec.errors import ArgumentError
from tec.native.headers import identifier
from tec.runtime.arrays.dtypes import numpy_dtype
from tec.runtime.modules import exprs
from tests import seeds
from tests.thinned import thinned_rows
from tests.unit.graph.random_graphs import random_graph
from tests.unit.native.harness import Failed, Net, build, library, needs_cc, tensor
from tests.unit.native.networks import cached_sum, cnn
from tests.unit.native.test_gpu import hip, on_device
from tests.unit.native.test_kernels import aligned, caller
from tests.unit.native.test_programs import RUN_CNN, inputs, numbers

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an ELF library")
CHIP = "rocm -mcpu=gfx942"
ROCM = 10


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    """What Python runs on, and where a library finds the same chip."""
    monkeypatch.setenv("TEC_EMULATE", "gfx942")
    monkeypatch.setenv("TEC_HIP_LIBRARY", str(library_folder() / "lib" / "libamdhip64.so"))


def rows(target, schedule="two", name="f"):
    """Sums of rows times a number, plus another: two kernels with scratch memory between them, or a loop of the host over launches."""
    n, m, s = te.var("n"), te.var("m"), te.var("s", "float32")
    t = te.var("t")
    a = te.placeholder((n, m), "float32", "A")
    k = te.reduce_axis((0, m), "k")
    c = te.compute((n,), lambda i: te.sum(a[i, k] * s, axis=k), "C")
    d = te.compute((n,), lambda i: c[i] + te.cast("float32", t + i), "D")
    sch = te.create_schedule(d.op)
    if target.startswith("llvm"):
        sch[d].parallel(d.op.axis[0])
    else:
        for stage in (c, d):
            outer, inner = sch[stage].split(stage.op.axis[0], 32)
            sch[stage].bind(outer, te.thread_axis("blockIdx.x"))
            sch[stage].bind(inner, te.thread_axis("threadIdx.x"))
        if schedule == "loop":  # one launch for each row
            sch[c].compute_at(sch[d], outer)
    return tec.build(sch, [a, d, s, t], target, name=name)


def expected(a, s, t):
    return (a * np.float32(s)).sum(1) + np.float32(t) + np.arange(len(a), dtype="f")


RUN = r"""
#include <stdio.h>
#include "k.h"

int main(void) {
  _Alignas(64) static float a[5 * 7], d[5];
  int64_t sizes[2] = {5, 7};
  for (int i = 0; i < 35; i++) a[i] = (float)(i % 11) * 0.25f;
  DLTensor A = {a, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, sizes, NULL, 0}, D = {d, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, sizes, NULL, 0};
  tec_error error;
  for (int k = 0; k < 2; k++) {
    int32_t status = k_f(&A, &D, 1.5f, 3, NULL, &error);
    if (status) return fprintf(stderr, "%s\n", error.text), status;
    if (!k) k_release();
  }
  for (int i = 0; i < 5; i++) printf("%a ", d[i]);
  return 0;
}
"""


@needs_cc
@thinned_rows(1, "kind", [".so", ".a"])
def test_a_program_without_python(kind, tmp_path):
    """The same program: on the GPU, on the CPU where there is none; and what it says where the library has code for a GPU alone."""
    rows(CHIP).export_library(tmp_path / f"k{kind}", others=[rows("llvm")])
    program = build(tmp_path, RUN, tmp_path / f"k{kind}", "-std=c11")
    want = expected(((np.arange(35) % 11) * 0.25).astype("f").reshape(5, 7), 1.5, 3)
    for env in (environment("gfx942"), environment("gfx1100"), os.environ | {"TEC_HIP_LIBRARY": "/nowhere.so"}):
        done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False, env=env)
        assert done.returncode == 0, done.stderr[-2000:]
        np.testing.assert_allclose([float.fromhex(x) for x in done.stdout.split()], want, rtol=1e-6)
    if kind == ".so":
        rows(CHIP).export_library(tmp_path / "k.so")
        for env, says in (
            (environment("gfx1100"), "compiled for rocm -mcpu=gfx942, could not be loaded"),
            (os.environ | {"TEC_HIP_LIBRARY": "/nowhere.so"}, "no AMD GPU was found"),
        ):
            done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False, env=env)
            assert done.returncode == 4 and says in done.stderr


def test_the_header(tmp_path):
    rows(CHIP).export_library(tmp_path / "k.so")
    header = (tmp_path / "k.h").read_text()
    assert (
        "int32_t k_f(const DLTensor *A, DLTensor *D, float s, int32_t t, void *tec_stream, tec_error *tec_error_out);"
        in header
    )
    assert "void k_release(void);" in header and "in the host's memory or on one GPU" in header


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The library, and what Python runs."""
    path = tmp_path_factory.mktemp("rows") / "k.so"
    module = rows(CHIP)
    module.export_library(path)
    return path, module


def on_python(module, arrays, numbers):
    dev = tec.rocm(0)
    given = [tec.nd.array(x, dev) for x in arrays]
    module(*given, *numbers)
    return given[-1].numpy()


@pytest.mark.parametrize("where", ["host", "device", "mixed", "stream"])
def test_where_tensors_are(where, compiled):
    path, module = compiled
    call = library(path).k_f
    stream = c_void_p()
    if where == "stream":
        assert hip().hipStreamCreate(byref(stream)) == 0
    rng = np.random.default_rng(3)
    for n, m in ((5, 7), (1, 1), (70, 3), (0, 4), (5, 7)):
        a, d = rng.standard_normal((n, m)).astype("f"), aligned((n,))
        given = [tensor(a)[0] if where == "host" or not a.size else on_device(a)]
        given.append(tensor(d)[0] if where in ("host", "mixed") or not n else on_device(d))
        kept = (a, d, [tensor(a), tensor(d)])
        shapes = [(ctypes.c_int64 * 2)(n, m), (ctypes.c_int64 * 1)(n)]
        for t, s in zip(given, shapes):
            t.shape = s
        error = ctypes.create_string_buffer(500)
        status = call(byref(given[0]), byref(given[1]), ctypes.c_float(1.5), c_int32(2), stream, error)
        assert status == 0, error.value
        if where == "stream":
            assert hip().hipStreamSynchronize(stream) == 0
        if given[1].device_type == ROCM:
            assert hip().hipMemcpy(c_void_p(d.ctypes.data), c_void_p(given[1].data), c_size_t(d.nbytes), 2) == 0
        np.testing.assert_allclose(d, expected(a, 1.5, 2), rtol=1e-5, atol=1e-5)
        if n:
            np.testing.assert_array_equal(d, on_python(module, [a, np.zeros(n, "f")], (1.5, 2)))
        del kept


def test_what_is_refused(compiled, tmp_path):
    path, _ = compiled
    call = caller(path, "k_f")
    a, d = aligned((3, 4)), aligned((3,))
    s, t = ctypes.c_float(1), c_int32(0)
    for args, says in [
        ((a, aligned((2,))), "dimension 0 of argument D is 2, 3 is wanted"),
        ((a, aligned((3,), "i4")), "argument D is of type int32"),
        ((None, d), "argument A: the tensor is a null pointer"),
        ((aligned((3, 8))[:, ::2], d), "argument A has strides"),
        ((a, a[0, :3]), "argument D is written and shares memory with argument A"),
    ]:
        with pytest.raises(Failed, match=says) as e:
            call(*args, s, t, None)
        assert e.value.status == 1
    call(a, d, s, t, None)
    other, kept = tensor(a)
    function, error = library(path).k_f, ctypes.create_string_buffer(500)
    for changes, says in (
        ({"device_type": 2}, b"a tensor is on DLPack device 2:0, and the function was built for rocm"),
        ({"device_type": ROCM, "device_id": 99}, b"options.device is 99|there are"),
    ):
        for name, value in changes.items():
            setattr(other, name, value)
        assert function(byref(other), byref(tensor(d)[0]), s, t, None, error) in (1, 4)
        assert any(x in error.value for x in says.split(b"|")), error.value
    del kept
    two = rows("llvm", name="g")
    with pytest.raises(ArgumentError, match="has the functions g, that for"):
        rows(CHIP).export_library(tmp_path / "k.so", others=[two])
    with pytest.raises(ArgumentError, match="has other parameters"):
        x = te.placeholder((4,), "float32", "A")
        y = te.compute((4,), lambda i: x[i], "D")
        tec.build(te.create_schedule(y.op), [x, y], "llvm", name="f").export_library(
            tmp_path / "k.so", others=[rows(CHIP)]
        )
    with pytest.raises(ArgumentError, match="a package is for one target"):
        rows(CHIP).export_library(tmp_path / "k.tecmod", others=[rows("llvm")])
    with pytest.raises(ArgumentError, match="host="):
        rows("llvm").export_library(tmp_path / "k.so", host="llvm")


def test_several_targets(tmp_path):
    """CPUs, AMD's and NVIDIA's GPUs in one library: code that this machine cannot load is passed over, and the one before a device's tensors serves them."""
    chips = [
        "rocm -mcpu=gfx1100",
        "cuda -arch=sm_90",
        CHIP,
        "llvm -mcpu=sapphirerapids -mattr=+amx-tile",
        "llvm -mcpu=x86-64-v2",
    ]
    first, *others = [rows(c) for c in chips]
    first.export_library(tmp_path / "k.so", others=others)
    assert "rocm -mcpu=gfx1100, cuda -arch=sm_90, rocm -mcpu=gfx942, llvm " in (tmp_path / "k.h").read_text()
    a = np.random.default_rng(0).standard_normal((6, 9)).astype("f")
    d = aligned((6,))
    caller(tmp_path / "k.so", "k_f")(a, d, ctypes.c_float(2), c_int32(1), None)
    np.testing.assert_array_equal(d, on_python(others[1], [a, np.zeros(6, "f")], (2.0, 1)))
    code = f"""import ctypes, numpy as np, sys
sys.path[:0] = {sys.path!r}
from tests.unit.native.test_kernels import aligned, caller
a, d = aligned((6, 9)), aligned((6,))
a[...] = np.arange(54).reshape(6, 9) % 5
caller({str(tmp_path / "k.so")!r}, "k_f")(a, d, ctypes.c_float(2), ctypes.c_int32(1), None)
print(*d)
"""
    env = os.environ | {"TEC_HIP_LIBRARY": "/nowhere.so", "TEC_CUDA_LIBRARY": "/nowhere.so"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert done.returncode == 0, done.stderr[-2000:]
    given = (np.arange(54).reshape(6, 9) % 5).astype("f")
    np.testing.assert_allclose([float(x) for x in done.stdout.split()], expected(given, 2, 1), rtol=1e-6)


@needs_cc
def test_networks_for_several_targets(tmp_path):
    """A net is of the first target that the machine can run; the same program takes the CPU's where there is no GPU."""
    nets = [cnn(t) for t in ("rocm -mcpu=gfx1100", CHIP, "llvm")]
    nets[0].export_library(tmp_path / "cnn.so", others=nets[1:])
    net = Net(tmp_path / "cnn.so")
    net.lib.tec_net_target.restype = ctypes.c_char_p
    assert net.lib.tec_net_target(net.net) == b"rocm -mcpu=gfx942"
    net.close()
    program = build(tmp_path, RUN_CNN, tmp_path / "cnn.so")
    for env, of in ((environment("gfx942"), nets[1]), (os.environ | {"TEC_HIP_LIBRARY": "/nowhere.so"}, nets[2])):
        done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False, env=env)
        assert done.returncode == 0, done.stderr[-2000:]
        np.testing.assert_array_equal(numbers(done.stdout).reshape(2, 10), of.run([inputs()])[0])


def test_networks_that_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="lay their weights out differently"):
        cnn("llvm").export_library(tmp_path / "b.so", others=[cnn(CHIP, 1)], weights="beside")
    with pytest.raises(ArgumentError, match="other inputs, outputs or states"):
        cnn("llvm").export_library(tmp_path / "b.so", others=[cached_sum(CHIP)])
    cnn("rocm -mcpu=gfx1100").export_library(tmp_path / "no.so", others=[cnn("rocm -mcpu=gfx1100", 1)])
    with pytest.raises(Failed, match=r"(?s)gfx1100, could not be loaded.*; and .*gfx1100, could not be loaded") as e:
        Net(tmp_path / "no.so")
    assert e.value.status == 4


def test_threads(compiled):
    """Sixteen threads, sizes of their own: scratch memory goes from call to call, and no two calls have the same."""
    path, _ = compiled
    call, wrong = caller(path, "k_f"), []

    def work(k):
        rng = np.random.default_rng(k)
        for _ in range(3):
            a, d = rng.standard_normal((k + 1, 5)).astype("f"), aligned((k + 1,))
            call(a, d, ctypes.c_float(k), c_int32(k), None)
            if not np.allclose(d, expected(a, k, k), rtol=1e-5, atol=1e-4):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def drawn(rng):
    """A definition of drawn types, sizes and stages, and arrays for it."""
    dtype = rng.choice(["float32", "float16", "int32", "int8", "uint8", "int64", "float64"])
    width = int(rng.integers(1, 9))
    n, s = te.var("n"), te.var("s", dtype)
    a = te.placeholder((n, width) if rng.integers(2) else (n + 1, width), dtype, "A")
    stage, stages = a, []
    for k in range(int(rng.integers(1, 4))):
        made = te.compute(
            (n, width),
            lambda i, j, p=stage: te.max(p[i, j], p[i, (j + 1) % width]) + s if rng.integers(2) else p[i, j] - s,
            f"S{k}",
        )
        stages.append(made)
        stage = made
    sch = te.create_schedule(stage.op)
    group = int(rng.choice([1, 7, 32, 64]))
    for made in stages:
        outer, inner = sch[made].split(sch[made].fuse(*made.op.axis), group)
        sch[made].bind(outer, te.thread_axis("blockIdx.x"))
        sch[made].bind(inner, te.thread_axis("threadIdx.x"))
    size = int(rng.integers(1, 20))
    rows_of_a = size if str(a.shape[0]) == "n" else size + 1
    x = (rng.integers(0, 100, (rows_of_a, width)) - (0 if dtype[0] == "u" else 50)).astype(dtype)
    return sch, [a, stage, s], x, np.zeros((size, width), dtype), int(rng.integers(0, 9))


C_TYPES = {
    "float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32, "int64": ctypes.c_int64, "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
}  # fmt: skip


@pytest.mark.parametrize("seed", seeds.some(6))
def test_drawn_functions(seed, tmp_path):
    """What Python's call makes of the same arrays, to the bit."""
    rng = np.random.default_rng(seed)
    sch, args, x, y, number = drawn(rng)
    module = tec.build(sch, args, CHIP, name="f")
    module.export_library(tmp_path / "k.so")
    dtype = x.dtype.name
    given = ctypes.c_uint16(int(np.float16(number).view("u2"))) if dtype == "float16" else C_TYPES[dtype](number)
    out = aligned(y.shape, y.dtype)
    caller(tmp_path / "k.so", "k_f")(x, out, given, None)
    np.testing.assert_array_equal(out, on_python(module, [x, y], (number,)))


def sized(checker, rng):
    """Arrays and numbers for a signature, whose open sizes are 2."""
    sizes, arrays = {}, []
    for p in checker.tensors:
        sizes |= {n: 2 for e in p.shape for n in exprs.names(e)}
        shape = tuple(int(exprs.evaluate(exprs.compile_expr(e), sizes)) for e in p.shape)
        made = aligned(shape or (1,), numpy_dtype(p.dtype)).reshape(shape)
        made[...] = rng.integers(0, 2, shape) if made.dtype.kind in "biu" else rng.standard_normal(shape)
        arrays.append(made)
    return arrays, [sizes.get(p.name, 2) for p in checker.scalars]


@pytest.mark.parametrize("seed", [seeds.first(), *(pytest.param(k, marks=pytest.mark.slow) for k in seeds.some(10, 1))])
def test_functions_of_drawn_networks(seed, tmp_path):
    """The functions that a drawn network is made of, each called by itself from C and from Python."""
    module = tec.compile(random_graph(seed), CHIP).module
    module.export_library(tmp_path / "net.so")
    rng = np.random.default_rng(seed)
    for name in module.specs:
        checker = module[name].checker
        arrays, numbers = sized(checker, rng)
        given = [tec.nd.array(a, tec.rocm(0)) for a in arrays]
        values = {p.index: a for p, a in (*zip(checker.tensors, given), *zip(checker.scalars, numbers))}
        module[name](*(values[p.index] for p in checker.params))
        values |= {p.index: a for p, a in zip(checker.tensors, arrays)}
        values |= {p.index: C_TYPES[p.dtype](n) for p, n in zip(checker.scalars, numbers)}
        caller(tmp_path / "net.so", f"net_{identifier(name)}")(*(values[p.index] for p in checker.params), None)
        for p, ours, theirs in zip(checker.tensors, arrays, given):
            np.testing.assert_array_equal(ours, theirs.numpy(), err_msg=f"{name}: {p}")
