"""Modules on the CPU: calls, arguments of every kind, sources, timing, saving, profiles."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE, fake_device, scalar, tensor, vadd

from tec.errors import ArgumentError, PackageError, TecError
from tec.runtime import Module, cpu, load_module, nd, profile
from tec.runtime.modules.timing import TimeResult
from tests.counting import cost

CODE = """
#include <stdint.h>
int myadd(void **b, int64_t *s) {
  float *x = b[0], *y = b[1], *z = b[2];
  for (int64_t i = 0; i < s[0]; i++) z[i] = x[i] + y[i];
  return 0;
}
int scalars(void **b, int64_t *s) {
  int64_t *out = b[0];
  for (int i = 0; i < 8; i++) out[i] = s[i];
  return 0;
}
int strided(void **b, int64_t *s) {  /* s: n, stride */
  float *x = b[0], *y = b[1];
  for (int64_t i = 0; i < s[0]; i++) y[i] = x[i * s[1]];
  return 0;
}
int fails(void **b, int64_t *s) { return (int)s[0]; }
"""
N = {"name": "n", "dtype": "int32"}
SCALARS = [
    scalar("a", "int8"), scalar("b", "float32"), scalar("c", "bool"), scalar("d", "float16"), scalar("e", "bfloat16"),
    scalar("g", "uint64"), scalar("h", "float64"),
]  # fmt: skip
FUNCTIONS = {
    "myadd": {"signature": VADD_SIGNATURE},
    "scalars": {"signature": {"params": [*SCALARS, tensor("out", ["n"], "int64", True)], "implicit": [N]}},
    "strided": {
        "signature": {
            "params": [tensor("A", ["n"], strides=["s0"]), tensor("B", ["n"], writes=True)],
            "implicit": [N, {"name": "s0", "dtype": "int32"}],
        }
    },
    "fails": {
        "signature": {"params": [scalar("code", "int32")], "implicit": []},
        "asserts": ["a is too small", "b is too big"],
    },
}


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> bytes:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc for the test's object")
    folder = tmp_path_factory.mktemp("object")
    (folder / "f.c").write_text(CODE)
    flags = ["-O2", "-c", "-fPIC", "-fno-asynchronous-unwind-tables", "-fno-stack-protector"]
    subprocess.run(["gcc", *flags, "-o", folder / "f.o", folder / "f.c"], check=True)
    return (folder / "f.o").read_bytes()


@pytest.fixture
def module(image) -> Module:
    return Module(
        "llvm",
        "myadd",
        functions=FUNCTIONS,
        image=image,
        sources={"llvm": "define", "asm": lambda: "ret"},
        target="llvm",
    )


def test_call(module):
    a, b, c = nd.array(np.arange(9, dtype="float32")), nd.array(np.ones(9, "float32")), nd.zeros(9, "float32")
    for _ in range(3):
        assert module(a, b, c) is None
    np.testing.assert_array_equal(c.numpy(), np.arange(9) + 1)
    module["myadd"](a, a, c)
    np.testing.assert_array_equal(c.numpy(), np.arange(9) * 2)


def test_numpy_arguments_are_not_copied(module):
    x, y = np.arange(9, dtype="float32"), np.zeros(9, "float32")
    module(x, x, y)
    np.testing.assert_array_equal(y, 2 * x)
    module(x, nd.array(x), y)
    np.testing.assert_array_equal(y, 2 * x)


def test_misaligned_numpy_goes_through_a_copy(image):
    signature = {**VADD_SIGNATURE, "params": [{**p, "align": 64} for p in VADD_SIGNATURE["params"]]}
    f = Module("llvm", "myadd", signature, image=image)
    raw = np.zeros(200, "float32")
    for shift in range(3):
        x, y = raw[shift : shift + 50], raw[100 + shift : 150 + shift]
        x[:] = np.arange(50)
        y[:] = -1
        f(x, np.ones(50, "float32"), y)
        np.testing.assert_array_equal(y, np.arange(50) + 1)


def test_dlpack_arguments(module):
    class Foreign:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **kwargs):
            return self.x.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    x, y = np.arange(9, dtype="float32"), np.zeros(9, "float32")
    module(Foreign(x), Foreign(x), Foreign(y))
    np.testing.assert_array_equal(y, 2 * x)


def test_scalars_travel_as_their_bits(module):
    out = nd.zeros(8, "int64")
    for h in (0.1, 7, np.float32(2.5)):
        module["scalars"](-3, 0.1, True, 1.5, -2.0, 2**63 + 1, h, out)
        got = out.numpy().view("uint64")
        bits = [
            np.float32(0.1).view("u4"),
            1,
            np.float16(1.5).view("u2"),
            ml_dtypes.bfloat16(-2.0).view("u2"),
            2**63 + 1,
        ]
        assert got.tolist() == [2**64 - 3, *map(int, bits), int(np.float64(h).view("u8")), 8]
    module["scalars"](np.int32(5), float("inf"), 0, 1e9, float("nan"), 0, -0.0, out)
    got = out.numpy().view("uint64")
    assert got[1] == np.float32("inf").view("u4") and got[3] == np.float16("inf").view("u2") and got[4] == 0x7FC0


def test_strides_of_views(module):
    x = nd.array(np.arange(24, dtype="float32").reshape(6, 4))
    y = nd.zeros(6, "float32")
    for view in (x[:, 1], x[::-1, 2], nd.array(np.arange(6, dtype="float32"))):
        module["strided"](view, y)
        np.testing.assert_array_equal(y.numpy(), view.numpy())


def test_assertions_of_compiled_code(module):
    module["fails"](0)
    with pytest.raises(TecError, match="fails: b is too big"):
        module["fails"](2)
    with pytest.raises(TecError, match="assertion 4"):
        module["fails"](5)


def test_many_threads(module):
    failures = []

    def work(n):
        x, y = nd.array(np.full(n, n, "float32")), nd.zeros(n, "float32")
        for _ in range(300):
            module(x, x, y)
            if (y.numpy() != 2 * n).any():
                failures.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_a_call_costs_little(module):
    a, b, c = (nd.zeros(4, "float32") for _ in range(3))
    module(a, b, c)
    spent = cost(lambda: module(a, b, c))  # 172 instructions with CPython 3.11
    assert spent.instructions < 230 and spent.calls <= 12, spent


def test_sources_and_binary(module, image):
    assert module.get_source() == "define" and module.get_source("asm") == "ret" and module.get_binary() == image
    with pytest.raises(ArgumentError, match="no source of kind 'ptx'") as e:
        module.get_source("ptx")
    assert "llvm, asm" in str(e.value)
    assert module.entry_name == "myadd" and module.imported_modules == [] and "myadd(A: float32(n,)" in repr(module)
    device = Module("rocm", image=b"hsaco", sources={"asm": "s_endpgm"})
    outer = Module("llvm", "f", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[device])
    assert outer.get_source("asm") == "s_endpgm" and outer.get_binary() == b"hsaco" and outer.device_kind == "rocm"
    with pytest.raises(ArgumentError, match="cannot be called"):
        device()
    with pytest.raises(ArgumentError, match="no function 'g'"):
        outer["g"]
    with pytest.raises(ArgumentError, match="keeps no source"):
        Module("llvm").get_source()


def test_time_evaluator(module):
    a, b, c = (nd.zeros(4, "float32") for _ in range(3))
    result = module.time_evaluator("myadd", cpu(), number=5, repeat=4)(a, b, c)
    assert len(result.results) == 4 and 0 < result.min <= result.median <= result.max and result.std >= 0
    r = TimeResult((1.0, 2.0, 6.0))
    assert (r.mean, r.median, r.min, r.max) == (3.0, 2.0, 1.0, 6.0) and "median 2.000 s" in str(r)
    slow = module.time_evaluator(number=1, min_repeat_ms=2)
    assert slow(a, b, c).mean < 1e-3
    with pytest.raises(ArgumentError, match="number is 0"):
        module.time_evaluator("myadd", cpu(), number=0)
    with pytest.raises(ArgumentError, match="runs on cpu, not on rocm"):
        module.time_evaluator("myadd", fake_device())
    dev = fake_device({"vadd": vadd})
    f = Module("llvm", "f", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[Module("rocm", image=b"x")])
    x, y, z = (nd.zeros(4, "float32", dev) for _ in range(3))
    assert f.time_evaluator("f", dev, number=7, repeat=2, warmup=0)(x, y, z).results == (1e-3, 1e-3)  # the events' time


def test_save_and_load_without_the_compiler(module, tmp_path):
    path = tmp_path / "m.tecmod"
    module.save(path)
    again = load_module(path)
    assert again.get_source("asm") == "ret" and again.function_names == list(FUNCTIONS) and again.target == "llvm"
    out = tmp_path / "out.npy"
    code = f"""
import sys, numpy as np
from tec.runtime import load_module
x = np.arange(9, dtype="float32"); y = np.zeros(9, "float32")
load_module({str(path)!r})(x, x, y)
np.save({str(out)!r}, y)
print([m for m in sys.modules if m.startswith(("llvmlite", "tec.ir", "tec.te", "tec.codegen", "tec.schedule", "tec.driver"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert np.load(out).tolist() == [2.0 * i for i in range(9)]


def test_save_and_load_a_gpu_module(tmp_path):
    device = Module(
        "rocm",
        image=b"hsaco",
        sources={"asm": "s_endpgm"},
        target="rocm -mcpu=gfx942",
        attrs={"kernels": {"vadd": {"vgprs": 5}}},
    )
    f = Module("llvm", "myadd", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[device])
    f.save(tmp_path / "m.tecmod")
    g = load_module(tmp_path / "m.tecmod")
    dev = fake_device({"vadd": vadd})
    c = nd.zeros(5, "float32", dev)
    g(nd.array(np.ones(5, "float32"), dev), nd.array(np.ones(5, "float32"), dev), c)
    assert c.numpy().tolist() == [2.0] * 5 and g.imported_modules[0].attrs == device.attrs
    assert dev.driver.of("load") == [("load", b"hsaco", None)]
    dev.driver.calls.clear()
    del g
    import gc

    gc.collect()
    assert dev.driver.of("unload")


def test_the_software_gpu_gets_the_assembly():
    dev = fake_device({"vadd": vadd}, kind="rocm")
    dev.driver.kind = "emu"
    device = Module("rocm", image=b"hsaco", sources={"asm": lambda: "s_endpgm"})
    f = Module("llvm", "myadd", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[device])
    a, b, c = (nd.zeros(5, "float32", dev) for _ in range(3))
    f(a, b, c)
    assert dev.driver.of("load") == [("load", b"hsaco", "s_endpgm")]


def test_profile(tmp_path):
    dev = fake_device({"vadd": vadd})
    f = Module("llvm", "f", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[Module("rocm", image=b"x")])
    a, b, c = (nd.zeros(100, "float32", dev) for _ in range(3))
    counting = []
    dev.driver.set_counting = lambda ordinal, on: counting.append(on)
    dev.driver.last_counters = lambda ordinal: {"valu": 3, "bytes": 1200}
    f(a, b, c)
    with profile(dev) as p:
        f(a, b, c)
        with profile(dev) as inner:
            f(a, b, c)
        f(a, b, c)
    f(a, b, c)
    assert len(p.launches) == 3 and len(inner.launches) == 1
    (row,) = p.by_kernel()
    assert (
        row["calls"] == 3
        and row["mean_ns"] == 1e6
        and row["counters"] == {"valu": 9, "bytes": 3600}
        and row["share"] == 1.0
    )
    assert counting == [True, True, True, False] and "valu 9, bytes 3,600" in str(p)
    assert "vadd" in str(p) and "2 x 64" in str(p) and "<td>vadd</td>" in p._repr_html_()
    p.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X" and e["tid"] == 2]
    assert len(spans) == 3 and all(e["dur"] == 1000 for e in spans) and spans[0]["args"]["valu"] == 3
    assert all(x["ts"] + x["dur"] <= y["ts"] + 1e-6 for x, y in itertools.pairwise(spans))
    with pytest.raises(ArgumentError, match="cannot write"):
        p.save_trace(tmp_path / "no" / "trace.json")
    with profile(dev) as nothing:
        pass
    assert "no launches" in str(nothing)


def test_profile_of_the_cpu(module):
    a, b, c = (nd.zeros(4, "float32") for _ in range(3))
    with profile() as p:
        module(a, b, c)
    assert [x.name for x in p.launches] == ["myadd"] and p.total_ns > 0 and "myadd" in str(p)
    assert cpu().profile is None


def test_function_missing_from_the_object(image):
    f = Module("llvm", "nowhere", VADD_SIGNATURE, image=image)
    x = nd.zeros(4, "float32")
    with pytest.raises(PackageError, match="defines no function 'nowhere'"):
        f(x, nd.zeros(4, "float32"), nd.zeros(4, "float32"))
