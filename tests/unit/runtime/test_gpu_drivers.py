"""The HIP and CUDA drivers over recording fakes of their libraries: the whole path from a call to the launch."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
from fake_gpu_library import FakeCuda, FakeHip
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE, floats

from tec.errors import DeviceError
from tec.runtime import Module, nd
from tec.runtime.devices.allocator import round_size
from tec.runtime.devices.cuda_driver import CudaDriver
from tec.runtime.devices.device import custom
from tec.runtime.devices.hip_driver import HipDriver, library_names

PTX = b".version 8.0\n.target sm_90\n"


def vadd_kernel(grid, block, shared, packed) -> None:
    a, b, c, n = struct.unpack("<QQQi", packed)
    assert grid[0] * block[0] >= n
    floats(c, n)[:] = floats(a, n) + floats(b, n)


def vadd_module(kind: str, image: bytes, program=VADD_PROGRAM) -> Module:
    target = {"rocm": "rocm -mcpu=gfx942", "cuda": "cuda -arch=sm_90"}[kind]
    return Module("llvm", "vadd", VADD_SIGNATURE, program=program, imported=[Module(kind, image=image, target=target)])


@pytest.fixture(params=["rocm", "cuda"])
def setup(request):
    if request.param == "rocm":
        lib = FakeHip({"vadd": vadd_kernel})
        return lib, custom(HipDriver(lib), "rocm"), vadd_module("rocm", b"\x7fELF code")
    lib = FakeCuda({"vadd": vadd_kernel})
    return lib, custom(CudaDriver(lib), "cuda"), vadd_module("cuda", PTX)


def arrays(dev, n=100):
    x = np.arange(n, dtype="float32")
    return nd.array(x, dev), nd.array(x * 2, dev), nd.zeros(n, "float32", dev)


def test_call_packs_arguments_and_launches(setup):
    lib, dev, f = setup
    a, b, c = arrays(dev)
    f(a, b, c)
    np.testing.assert_array_equal(c.numpy(), np.arange(100) * 3)
    f(a, b, c)
    name = "hipModuleLaunchKernel" if dev.kind == "rocm" else "cuLaunchKernel"
    first, second = lib.named(name)
    assert first[1:7] == (2, 1, 1, 64, 1, 1) and first[0] == second[0]
    loads = lib.named("hipModuleLoadData") + lib.named("cuModuleLoadDataEx")
    assert len(loads) == 1  # the code is loaded once


def test_attributes(setup):
    lib, dev, _ = setup
    if dev.kind == "rocm":
        assert dev.arch == "gfx942:sramecc+:xnack-" and dev.compute_units == 304 and dev.wavefront_size == 64
        assert dev.lds_bytes == 65536 and dev.attributes.extra["runtime_version"] == 60342131
        assert dev.attributes.max_grid_dim == (2**31 - 1, 65536, 65536)
    else:
        assert dev.arch == "sm_90" and dev.compute_units == 132 and dev.wavefront_size == 32
        assert dev.lds_bytes == 232448 and dev.attributes.extra["driver_version"] == "12.2"
    assert dev.max_threads == 1024
    assert "MI300X" in dev.name or "H100" in dev.name


def test_streams_events_and_order(setup):
    lib, dev, f = setup
    a, b, c = arrays(dev)
    stream, start, stop = dev.stream(), dev.event(), dev.event()
    with stream:
        start.record()
        f(a, b, c)
        stop.record()
        c.numpy()
    assert start.elapsed_ms(stop) == 0.5
    launches = lib.named("hipModuleLaunchKernel") + lib.named("cuLaunchKernel")
    assert launches[0][8] == stream.handle
    assert dev.local.stream is None
    copies = lib.named("hipMemcpyAsync") + lib.named("cuMemcpyDtoHAsync_v2")
    assert copies[-1][-1] == stream.handle
    waits = lib.named("hipStreamSynchronize") + lib.named("cuStreamSynchronize")
    assert (stream.handle,) in waits  # the copy to the host is done when numpy() returns
    dev.stream().wait(stop)
    assert (lib.named("hipStreamWaitEvent") + lib.named("cuStreamWaitEvent"))[0][1] == stop.handle


def test_graph_capture_keeps_its_arrays(setup):
    lib, dev, f = setup
    a, b, c = arrays(dev)
    f(a, b, c)
    out = nd.zeros(100, "float32", dev)
    with dev.capture() as graph:
        f(a, c, out)
    assert not out.numpy().any()
    kept = a.address
    del a
    dev.empty_cache()
    assert kept in lib.memory  # the graph reads it at each launch
    graph.launch()
    np.testing.assert_array_equal(out.numpy(), np.arange(100) * 4)
    del graph
    dev.empty_cache()
    assert kept not in lib.memory


def test_a_graph_owns_its_scratch(setup):
    lib, dev, f = setup
    steps = [
        {"op": "alloc", "name": "t", "dtype": "float32", "size": "n"},
        {**VADD_PROGRAM[0], "args": [{"buffer": x} for x in ("A", "B", "t")] + VADD_PROGRAM[0]["args"][3:]},
        {**VADD_PROGRAM[0], "args": [{"buffer": x} for x in ("t", "B", "C")] + VADD_PROGRAM[0]["args"][3:]},
        {"op": "free", "name": "t"},
    ]
    g = vadd_module(dev.kind, f.get_binary(), steps)
    a, b, c = arrays(dev)
    with dev.capture() as graph:
        g(a, b, c)
    scratch = dev.memory().used
    taken = [nd.array(np.full(100, -1, "float32"), dev) for _ in range(20)]
    graph.launch()
    np.testing.assert_array_equal(c.numpy(), np.arange(100) * 5)
    assert all((t.numpy() == -1).all() for t in taken)  # none of them got the graph's scratch
    del taken, graph
    dev.sync()
    assert dev.memory().used == scratch - round_size(400)


def test_launch_errors_name_the_limit(setup):
    lib, dev, f = setup
    a, b, c = arrays(dev)
    wide = [{**VADD_PROGRAM[0], "block": [64, 32, 1]}]
    g = vadd_module(dev.kind, f.get_binary(), wide)
    with pytest.raises(DeviceError, match="2048 threads in a block; this device allows 1024"):
        g(a, b, c)
    f(a, b, c)


def test_a_failing_call_raises_with_the_drivers_words(setup):
    lib, dev, f = setup
    name = "hipMemcpy" if dev.kind == "rocm" else "cuMemcpyDtoH_v2"
    a, _, _ = arrays(dev)
    lib.fail[name] = 1
    with pytest.raises(DeviceError, match=f"{name} failed: .*says"):
        a.numpy()
    assert a.numpy()[3] == 3


def test_kernel_that_is_not_there(setup):
    lib, dev, f = setup
    a, b, c = arrays(dev)
    with pytest.raises(DeviceError, match="no kernel 'vadd'"):
        lib.kernels.clear()
        f(a, b, c)


def test_memory_goes_back(setup):
    lib, dev, f = setup
    a, b, c = arrays(dev)
    del a, b, c
    assert lib.memory
    dev.empty_cache()
    assert not lib.memory
    assert dev.memory().used == dev.memory().cached == 0


def test_hip_code_for_another_chip():
    dev = custom(HipDriver(FakeHip()), "rocm")
    a, b, c = arrays(dev)
    other = Module("rocm", image=b"\x7fELF", target="rocm -mcpu=gfx1100")
    f = Module("llvm", "vadd", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[other])
    with pytest.raises(DeviceError, match=r"built for gfx1100, and rocm\(0\) is a gfx942"):
        f(a, b, c)
    with pytest.raises(DeviceError, match="NoBinaryForGpu"):
        vadd_module("rocm", b"no code object")(a, b, c)


def test_hip_implausible_attributes_are_replaced():
    class Odd(FakeHip):
        attributes = {74: 7, 87: 1024}
        arch = b"gfx1100"

    dev = custom(HipDriver(Odd()), "rocm")
    assert dev.wavefront_size == 32 and dev.lds_bytes == 65536 and dev.max_threads == 1024 and dev.arch == "gfx1100"


def test_hip_no_device_is_a_count_of_zero():
    lib = FakeHip(devices=0)
    lib.fail["hipInit"] = 101
    assert HipDriver(lib).device_count() == 0


def test_hip_too_old_for_a_function():
    class Old(FakeHip):
        do_hipStreamBeginCapture = None

    dev = custom(HipDriver(Old()), "rocm")
    with pytest.raises(DeviceError, match="no hipStreamBeginCapture"), dev.capture():
        pass
    assert dev.capturing is None


def test_cuda_ptx_errors():
    lib = FakeCuda({"vadd": vadd_kernel})
    dev = custom(CudaDriver(lib), "cuda")
    a, b, c = arrays(dev)
    with pytest.raises(DeviceError, match="Parsing error near 'nonsense'"):
        vadd_module("cuda", PTX + b"nonsense")(a, b, c)
    vadd_module("cuda", PTX.replace(b"8.0", b"8.7"))(a, b, c)  # the driver knows 8.2: lowered
    images = [call[1] for call in lib.named("cuModuleLoadDataEx")]
    assert b".version 8.7" in images[-2] and b".version 8.2" in images[-1]
    lib.newest_ptx = (5, 0)
    with pytest.raises(DeviceError, match=r"PTX is version 8\.0, the driver is made for CUDA 12\.2"):
        vadd_module("cuda", PTX)(a, b, c)


@pytest.mark.parametrize("version", [(12, 2), (13, 0)])
def test_cuda_kernels_of_a_large_text_are_compiled_side_by_side(version):
    lib = FakeCuda({"vadd": vadd_kernel})
    lib.version = version
    dev = custom(CudaDriver(lib), "cuda")
    large = PTX + b"\n//" + b" " * (200 << 10)
    for image in (PTX, large):
        vadd_module("cuda", image)(*arrays(dev))
    assert [call[2] for call in lib.named("cuModuleLoadDataEx")] == [2, 3 if version == (13, 0) else 2]


def test_cuda_shared_memory_beyond_48_kb_is_asked_for_once():
    lib = FakeCuda({"vadd": vadd_kernel})
    dev = custom(CudaDriver(lib), "cuda")
    a, b, c = arrays(dev)
    for nbytes in (46 << 10, 100 << 10, 100 << 10):
        vadd = vadd_module("cuda", PTX, [{**VADD_PROGRAM[0], "dyn_shared": nbytes}])
        vadd(a, b, c)
        vadd(a, b, c)
    assert [call[1:] for call in lib.named("cuFuncSetAttribute")] == [(8, 100 << 10), (8, 100 << 10)]  # once a module
    with pytest.raises(DeviceError, match="this device allows 232448"):
        vadd_module("cuda", PTX, [{**VADD_PROGRAM[0], "dyn_shared": 232448}])(a, b, c)


def test_cuda_contexts_follow_the_device():
    lib = FakeCuda(devices=2)
    driver = CudaDriver(lib)
    one, two = driver.alloc(0, 64), driver.alloc(1, 64)
    driver.free(0, one)
    driver.free(1, two)
    driver.synchronize(1)  # PyTorch may have changed the context meanwhile
    assert [c[0] for c in lib.named("cuCtxSetCurrent")] == [0xC0 + 70, 0xC0 + 71, 0xC0 + 70, 0xC0 + 71, 0xC0 + 71]


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
@pytest.mark.parametrize("status", [0, 704, 217])  # enabled, by another library already, no link between the two
def test_copies_between_two_gpus_do_not_pass_the_host(kind, status):
    lib = FakeHip(devices=2) if kind == "rocm" else FakeCuda(devices=2)
    driver = HipDriver(lib) if kind == "rocm" else CudaDriver(lib)
    first, second = custom(driver, kind, 0), custom(driver, kind, 1)
    enable, copy, wait = (
        ("hipDeviceEnablePeerAccess", "hipMemcpyPeerAsync", "hipStreamWaitEvent")
        if kind == "rocm"
        else ("cuCtxEnablePeerAccess", "cuMemcpyPeerAsync", "cuStreamWaitEvent")
    )
    values = np.arange(100, dtype="float32")
    x = nd.array(values, first)
    lib.calls.clear()
    lib.fail[enable] = status
    with first.stream() as there, second.stream() as here:
        y = x.to(second)
        z = nd.empty((100,), "float32", second)
        x.copyto(z)
    assert y.device is second
    assert len(lib.named(enable)) == 1 and not lib.named("hipMemcpy") and not lib.named("cuMemcpyDtoH_v2")
    # The copies are in the source's stream, which waits for the target's; the target's waits for them.
    order = [c for c in lib.calls if c[0] in (copy, wait)]
    assert [c[0] for c in order] == [wait, copy, wait] * 2
    assert [c[1] if c[0] == wait else c[-1] for c in order] == [there.handle, there.handle, here.handle] * 2
    np.testing.assert_array_equal(y.numpy(), values)
    np.testing.assert_array_equal(z.numpy(), values)
    nd.empty((0,), "float32", first).to(second)  # nothing to copy
    np.testing.assert_array_equal(x[10:20].to(second).numpy(), values[10:20])  # a view with compact strides
    np.testing.assert_array_equal(x[::2].to(second).numpy(), values[::2])  # by the host
    with second.capture(), pytest.raises(DeviceError, match="another device inside"):
        x.copyto(z)


def test_library_names_follow_the_environment(monkeypatch, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamdhip64.so.6.3").touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.delenv("TEC_HIP_LIBRARY", raising=False)
    names = list(library_names())
    assert names[:4] == [f"libamdhip64.so{v}" for v in (".7", ".6", ".5", "")]
    assert str(tmp_path / "lib" / "libamdhip64.so.6.3") in names


def run(code: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


def test_no_library_says_what_was_looked_for():
    done = run("import tec.runtime as r; r.rocm(0)", TEC_HIP_LIBRARY="/nowhere/libamdhip64.so", TEC_EMULATE="")
    for words in ("no AMD GPU was found", "/nowhere/libamdhip64.so", "TEC_EMULATE=gfx942", "ROCM_PATH"):
        assert words in done.stderr
    done = run("import tec.runtime as r; r.cuda(0)", TEC_CUDA_LIBRARY="/nowhere/libcuda.so")
    assert "no NVIDIA GPU was found" in done.stderr and "/nowhere/libcuda.so" in done.stderr


def _has_real_hip() -> bool:
    """Whether the loader finds a libamdhip64; asked before any test put the stand-in's of the same name into this process."""
    for name in ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


# Libraries that stand before the driver's where LD_LIBRARY_PATH names a toolkit's folder: a stub, as CUDA's toolkit has it, and one of another program.
_STUB = """
int cuInit(unsigned f) { return 34; }
int cuLaunchKernel(void) { return 34; }
int cuGetErrorName(int e, const char **p) { *p = "CUDA_ERROR_STUB_LIBRARY"; return 0; }
int cuGetErrorString(int e, const char **p) { *p = "CUDA driver is a stub library"; return 0; }
"""
_OTHER = "int cuNothing(void) { return 0; }"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("kind", "file", "source", "says"),
    [
        ("cuda", "libcuda.so.1", _STUB, "no NVIDIA GPU was found: cuInit failed: CUDA_ERROR_STUB_LIBRARY (34)"),
        ("cuda", "libcuda.so.1", _OTHER, "libcuda.so.1 has no cuLaunchKernel"),
        ("cuda", "libcuda.so.1", None, "libcuda.so.1: file too short"),
        ("rocm", "libamdhip64.so.6", "int hipInit(void) { return 0; } int hipModuleLaunchKernel(void) { return 1; }", "libamdhip64.so.6 has no hipGetDeviceCount"),
        ("rocm", "libamdhip64.so.6", _OTHER, "libamdhip64.so.6 has no hipModuleLaunchKernel"),
    ],
)  # fmt: skip
def test_a_library_of_the_wrong_kind_before_the_drivers(kind, file, source, says, tmp_path):
    if source is None:
        (tmp_path / file).write_text("no library")
    else:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / file], input=source.encode(), check=True
        )
    program = f"import tec\nassert not tec.runtime.{kind}_exists()\ntry:\n    tec.{kind}(0).sync()\nexcept tec.DeviceError as e:\n    print(e)"
    hidden = ("TEC_CUDA_LIBRARY", "TEC_HIP_LIBRARY", "TEC_EMULATE")
    env = {k: v for k, v in os.environ.items() if k not in hidden} | {"LD_LIBRARY_PATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60).stdout
    assert says in said
    assert f"{tmp_path}" in said and (source is None or f"LD_LIBRARY_PATH names {tmp_path}" in said)


@pytest.mark.hip
@pytest.mark.skipif(
    not _has_real_hip() or os.path.exists("/dev/kfd"),
    reason="needs ROCm's own libamdhip64.so.5, .6 or .7 where the loader finds it, and no AMD GPU (/dev/kfd)",
)
def test_real_libamdhip64_without_a_gpu():
    done = run("import tec.runtime as r\nprint(r.rocm_exists())\nr.rocm(0)", TEC_EMULATE="")
    assert done.stdout.strip() == "False"
    loaded = run(
        "from tec.runtime.devices.hip_driver import HipDriver, _PROTOTYPES\nd = HipDriver()\nprint(d.lib.name)\n"
        "print([n for n in _PROTOTYPES if not d.lib.has(n) and 'Properties' not in n])"
    )
    name, lacking = loaded.stdout.split()  # which of several libraries is the first depends on the host
    assert name.startswith("libamdhip64.so") and lacking == "[]"
    for words in ("no AMD GPU was found", name, "sees no device", "TEC_EMULATE=gfx942"):
        assert words in done.stderr


def test_no_module_hides_a_public_name():
    """A submodule becomes an attribute of its package when it is imported: none may be called like a public function."""
    import pkgutil

    import tec.runtime

    hidden = {m.name for m in pkgutil.iter_modules(tec.runtime.__path__)} & set(tec.runtime.__all__)
    assert not hidden
