"""The CUDA driver on a real GPU, with PTX written by hand: no compiler is involved.

Under pytest it is skipped without a GPU. `python tests/gpu/test_cuda_smoke.py` runs it without pytest and prints
what was measured as JSON lines.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback

import numpy as np

from tec.errors import ArgumentError, DeviceError
from tec.runtime import Module, cuda, cuda_exists, nd, profile

try:
    import pytest

    pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_exists(), reason="needs an NVIDIA GPU")]
except ImportError:
    pass

HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"
INDEX = """
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.s32 %p1, %r4, %r5;
  @%p1 bra DONE;
  mul.wide.s32 %d4, %r4, 4;
"""
VADD = (
    """
.visible .entry vadd(.param .u64 A, .param .u64 B, .param .u64 C, .param .u32 n) {
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [A]; ld.param.u64 %d2, [B]; ld.param.u64 %d3, [C]; ld.param.u32 %r5, [n];
"""
    + INDEX
    + """
  add.s64 %d5, %d1, %d4; add.s64 %d6, %d2, %d4; add.s64 %d7, %d3, %d4;
  ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%d7], %f3;
DONE:
  ret;
}
"""
)
SCALE = (
    """
.visible .entry scale(.param .u64 A, .param .u64 B, .param .f32 f, .param .u32 n) {
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [A]; ld.param.u64 %d2, [B]; ld.param.f32 %f2, [f]; ld.param.u32 %r5, [n];
"""
    + INDEX
    + """
  add.s64 %d5, %d1, %d4; add.s64 %d6, %d2, %d4;
  ld.global.f32 %f1, [%d5];
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%d6], %f3;
DONE:
  ret;
}
"""
)
# Each thread writes its number to the last KiB of dynamic shared memory and reads its mirror's.
MIRROR = """
.extern .shared .align 16 .b8 dynamic[];
.visible .entry mirror(.param .u64 A, .param .u32 bytes) {
  .reg .b32 %r<9>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [A]; ld.param.u32 %r1, [bytes];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, dynamic;
  add.u32 %r3, %r3, %r1; sub.u32 %r3, %r3, 1024;
  shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4;
  st.shared.u32 [%r5], %r2;
  bar.sync 0;
  mov.u32 %r6, 1020; sub.u32 %r6, %r6, %r4; add.u32 %r6, %r6, %r3;
  ld.shared.u32 %r7, [%r6];
  mul.wide.u32 %d2, %r2, 4; add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r7;
  ret;
}
"""
GRID = [["floordiv", ["add", "n", 255], 256], 1, 1]
REPORT: dict[str, object] = {}


def tensor(name: str, shape: list, writes: bool = False, dtype: str = "float32") -> dict:
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dtype,
        "shape": shape,
        "strides": None,
        "writes": writes,
        "align": 4,
    }


def step(kernel: str, *args: object, grid: list | None = None, block: int = 256, shared: object = 0) -> dict:
    made = [{"buffer": a} if isinstance(a, str) else {"scalar": a[0], "dtype": a[1]} for a in args]  # type: ignore[index]
    return {
        "op": "launch",
        "kernel": kernel,
        "grid": grid or GRID,
        "block": [block, 1, 1],
        "dyn_shared": shared,
        "args": made,
    }


N = {"name": "n", "dtype": "int32"}
VADD_SIGNATURE = {"params": [tensor("A", ["n"]), tensor("B", ["n"]), tensor("C", ["n"], True)], "implicit": [N]}


def module(ptx: str, name: str, signature: dict, program: list, target: str = "cuda -arch=sm_70") -> Module:
    device = Module("cuda", image=ptx.encode(), sources={"ptx": ptx}, target=target)
    return Module("llvm", name, signature, program=program, imported=[device], target=target)


def vadd_module() -> Module:
    return module(HEADER + VADD, "vadd", VADD_SIGNATURE, [step("vadd", "A", "B", "C", ("n", "int32"))])


def arrays(n: int) -> tuple:
    dev = cuda(0)
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n)).astype("float32")
    return x, y, nd.array(x, dev), nd.array(y, dev), nd.zeros(n, "float32", dev)


def works() -> None:
    """The context still does right."""
    x, y, a, b, c = arrays(1000)
    vadd_module()(a, b, c)
    np.testing.assert_array_equal(c.numpy(), x + y)


def raises(kind: type, *words: str) -> object:
    """A context that wants an error with these words in it, and then checks that the device still works."""

    class Wanted:
        def __enter__(self) -> None: ...

        def __exit__(self, type_: type | None, error: BaseException | None, tb: object) -> bool:
            assert error is not None, f"no {kind.__name__}"
            assert isinstance(error, kind), repr(error)
            for word in words:
                assert word.lower() in str(error).lower(), f"{word!r} not in: {error}"
            works()
            return True

    return Wanted()


def test_attributes() -> None:
    dev = cuda(0)
    a = dev.attributes
    assert dev.exist and a.wavefront_size == 32 and a.compute_units > 0 and a.lds_bytes >= 48 << 10
    assert a.arch.startswith("sm_") and a.max_threads_per_block == 1024 and dev.total_memory_bytes > 1 << 30
    assert dev is cuda(0)
    REPORT["device"] = {"name": dev.name, "arch": dev.arch, "lds_bytes": a.lds_bytes, **a.extra}


def test_vadd() -> None:
    f = vadd_module()
    for n in (1, 255, 256, 257, 100_003):
        x, y, a, b, c = arrays(n)
        f(a, b, c)
        np.testing.assert_array_equal(c.numpy(), x + y)
    f(nd.empty(0, "float32", cuda(0)), nd.empty(0, "float32", cuda(0)), nd.empty(0, "float32", cuda(0)))


def test_views_and_copies() -> None:
    dev = cuda(0)
    x = np.arange(60, dtype="float32").reshape(3, 4, 5)
    a = nd.array(x, dev)
    np.testing.assert_array_equal(a[1:, ::2, ::-1].numpy(), x[1:, ::2, ::-1])
    a[:, 1:3] = np.float32(7)
    x[:, 1:3] = 7
    np.testing.assert_array_equal(a.numpy(), x)
    np.testing.assert_array_equal(a.copyto(dev).copyto(nd.empty(x.shape, "float32")).numpy(), x)


def test_scalar_argument_and_scratch() -> None:
    signature = {
        "params": [tensor("A", ["n"]), {"name": "f", "kind": "scalar", "dtype": "float32"}, tensor("C", ["n"], True)],
        "implicit": [N],
    }
    program = [
        {"op": "alloc", "name": "t", "dtype": "float32", "size": "n"},
        step("scale", "A", "t", ("f", "float32"), ("n", "int32")),
        step("vadd", "A", "t", "C", ("n", "int32")),
        {"op": "free", "name": "t"},
    ]
    f = module(HEADER + VADD + SCALE, "axpy", signature, program)
    x, _, a, _, c = arrays(3000)
    for factor in (2.0, -0.5):
        f(a, factor, c)
        np.testing.assert_array_equal(c.numpy(), x + x * np.float32(factor))


def test_bad_ptx() -> None:
    _, _, a, b, c = arrays(10)
    with raises(DeviceError, "nonsense"):
        module(HEADER + VADD.replace("add.f32", "nonsense.f32"), "vadd", VADD_SIGNATURE, vadd_module().program)(a, b, c)
    with raises(DeviceError, "no kernel"):
        module(HEADER + SCALE, "vadd", VADD_SIGNATURE, vadd_module().program)(a, b, c)


def test_ptx_newer_than_the_driver_is_lowered() -> None:
    x, y, a, b, c = arrays(10)
    module(HEADER.replace("7.0", "9.9") + VADD, "vadd", VADD_SIGNATURE, vadd_module().program)(a, b, c)
    np.testing.assert_array_equal(c.numpy(), x + y)


def test_code_for_a_newer_chip() -> None:
    _, _, a, b, c = arrays(10)
    ptx = HEADER.replace("sm_70", "sm_121").replace("7.0", "8.8") + VADD
    if cuda(0).arch not in ("sm_120", "sm_121"):
        with raises(DeviceError, "sm_121"):
            module(ptx, "vadd", VADD_SIGNATURE, vadd_module().program, "cuda -arch=sm_121")(a, b, c)
        with raises(DeviceError, "could not load"):
            module(ptx, "vadd", VADD_SIGNATURE, vadd_module().program, "")(a, b, c)


def test_dynamic_shared_memory_beyond_48_kb() -> None:
    dev = cuda(0)
    signature = {
        "params": [{"name": "bytes", "kind": "scalar", "dtype": "int32"}, tensor("A", [256], True, "int32")],
        "implicit": [],
    }
    program = [step("mirror", "A", ("bytes", "int32"), grid=[1, 1, 1], shared="bytes")]
    f = module(HEADER + MIRROR, "mirror", signature, program)
    a = nd.zeros(256, "int32", dev)
    for nbytes in (1024, 48 << 10, 64 << 10, dev.lds_bytes, 2048):
        a.copyfrom(np.zeros(256, "int32"))
        f(nbytes, a)
        np.testing.assert_array_equal(a.numpy(), np.arange(256)[::-1])
    with raises(DeviceError, "shared memory", str(dev.lds_bytes)):
        f(dev.lds_bytes + 1024, a)


def test_too_many_threads() -> None:
    _, _, a, b, c = arrays(10)
    f = module(HEADER + VADD, "vadd", VADD_SIGNATURE, [step("vadd", "A", "B", "C", ("n", "int32"), block=2048)])
    with raises(DeviceError, "2048 threads", "1024"):
        f(a, b, c)


def test_out_of_memory_and_cache() -> None:
    dev = cuda(0)
    with raises(DeviceError, "out of memory", "held here"):
        nd.empty(dev.total_memory_bytes // 4 + (64 << 30), "float32", dev)
    dev.empty_cache()
    before = dev.memory()
    x = nd.empty(1 << 28, "uint8", dev)
    assert dev.memory().used >= before.used + (1 << 28)
    del x
    assert dev.memory().cached >= 1 << 28
    dev.sync()  # with streams about, a freed block is used again after this only
    y = nd.empty(1 << 28, "uint8", dev)
    assert dev.memory().cache_hits > before.cache_hits
    del y
    dev.sync()
    dev.empty_cache()
    assert dev.memory().cached == 0
    # Fill the cache with blocks of one size, then ask for more than what is left beside them: the cache must go.
    free = dev.memory().free
    blocks = [nd.empty(free // 8 // 4, "uint8", dev) for _ in range(24)]
    del blocks
    big = nd.empty(int(free * 0.8), "uint8", dev)
    assert dev.memory().cached == 0
    del big
    dev.empty_cache()


def test_streams_and_events() -> None:
    dev = cuda(0)
    f = vadd_module()
    x, y, a, b, c = arrays(1 << 22)
    d = nd.zeros(1 << 22, "float32", dev)
    dev.sync()
    first, second = dev.stream(), dev.stream()
    with first:
        f(a, b, c)
        done = dev.event().record()
    second.wait(done)
    with second:
        f(c, b, d)
        result = d.numpy()
    np.testing.assert_array_equal(result, x + y + y)
    start, stop = dev.event(), dev.event()
    start.record()
    for _ in range(10):
        f(a, b, c)
    stop.record()
    assert 0 < start.elapsed_ms(stop) < 1000
    with raises(DeviceError, "never recorded"):
        dev.event().elapsed_ms(stop)


def test_another_thread() -> None:
    failures: list[str] = []

    def work() -> None:
        try:
            works()
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]


def test_graph() -> None:
    dev = cuda(0)
    f = vadd_module()
    x, y, a, b, c = arrays(1024)
    f(a, b, c)
    d = nd.zeros(1024, "float32", dev)
    dev.sync()
    with dev.capture() as graph:
        for _ in range(50):
            f(a, b, c)
            f(c, b, d)
    assert not d.numpy().any()  # recorded, not run
    for _ in range(3):
        graph.launch()
    np.testing.assert_array_equal(d.numpy(), x + y + y)
    a.copyfrom(y)
    graph.launch()
    np.testing.assert_array_equal(d.numpy(), y + y + y)
    with raises(DeviceError, "inside dev.capture"), dev.capture():
        a.numpy()
    start, stop = dev.event(), dev.event()
    dev.sync()
    start.record()
    for _ in range(100):
        graph.launch()
    stop.record()
    REPORT["graph_us_a_kernel"] = round(start.elapsed_ms(stop) * 1e3 / 100 / 100, 3)


def test_other_threads_run_during_a_capture() -> None:
    """Copies, allocations and launches of another thread; it waits for the device behind the capture."""
    dev, f = cuda(0), vadd_module()
    x, y, a, b, c = arrays(1000)
    out = nd.zeros(1000, "float32", dev)
    f(a, b, c)
    wrong: list[BaseException] = []

    def other() -> None:
        try:
            for _ in range(20):
                ones = nd.array(np.ones(1000, np.float32), dev)
                f(ones, ones, out)
                assert (out.numpy() == 2).all()
            dev.sync()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=other)
    with dev.capture() as graph:
        f(a, b, c)
        thread.start()
        thread.join(0.5)
    thread.join()
    assert not wrong, wrong
    graph.launch()
    np.testing.assert_array_equal(c.numpy(), x + y)


def test_launch_cost_and_bandwidth() -> None:
    dev = cuda(0)
    f = vadd_module()
    _, _, a, b, c = arrays(1024)
    f(a, b, c)
    best = 1e9
    for _ in range(5):
        dev.sync()
        start = time.perf_counter()
        for _ in range(500):
            f(a, b, c)
        best = min(best, (time.perf_counter() - start) / 500)
        dev.sync()
    REPORT["launch_us"] = round(best * 1e6, 2)
    n = 1 << 26
    big = [nd.zeros(n, "float32", dev) for _ in range(3)]
    seconds = f.time_evaluator("vadd", dev, number=20, repeat=5)(*big).median
    REPORT["vadd_GB_s"] = round(3 * 4 * n / seconds / 1e9, 1)
    assert best < 100e-6


def test_profile_and_sass() -> None:
    dev = cuda(0)
    f = vadd_module()
    _, _, a, b, c = arrays(1 << 20)
    f(a, b, c)
    with profile(dev) as p:
        f(a, b, c)
        f(a, b, c)
    (row,) = p.by_kernel()
    assert row["name"] == "vadd" and row["calls"] == 2 and 0 < row["mean_ns"] < 1e7 and row["grid"] == (4096, 1, 1)
    cubin = dev.driver.link(0, f.get_binary())  # type: ignore[union-attr]
    assert cubin[:4] == b"\x7fELF"
    try:
        assert "FADD" in f.get_source("sass")
        REPORT["sass"] = True
    except ArgumentError as error:
        assert "nvdisasm" in str(error)
    handle = f.imported_modules[0].kernel(dev, "vadd")
    REPORT["resources"] = dev.driver.function_resources(handle)  # type: ignore[union-attr]


def test_save_and_load(tmp_path: object = None) -> None:
    import tempfile
    from pathlib import Path

    from tec.runtime import load_module

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tecmod"
        vadd_module().save(path)
        x, y, a, b, c = arrays(777)
        load_module(path)(a, b, c)
        np.testing.assert_array_equal(c.numpy(), x + y)


def test_dlpack_with_torch() -> None:
    try:
        import torch
    except ImportError:
        REPORT["torch"] = "not installed"
        return
    f = vadd_module()
    s, t = torch.rand(1000, device="cuda"), torch.rand(1000, device="cuda")
    out = torch.zeros(1000, device="cuda")
    f(s, t, out)
    cuda(0).sync()
    assert torch.equal(out, s + t)
    back = torch.from_dlpack(nd.from_dlpack(out))
    assert back.data_ptr() == out.data_ptr()
    held = torch.from_dlpack(nd.array(np.arange(5, dtype="float32"), cuda(0)))
    assert held.tolist() == [0, 1, 2, 3, 4]
    REPORT["torch"] = torch.__version__


def main() -> int:
    if not cuda_exists():
        try:
            cuda(0)
        except DeviceError as error:
            print(error)
        return 2
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print(json.dumps({"test": name, "ok": True}))
            except BaseException as error:
                failed += 1
                print(json.dumps({"test": name, "ok": False, "error": repr(error)[:2000]}))
                traceback.print_exc(limit=6)
    print(json.dumps({"report": REPORT, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
