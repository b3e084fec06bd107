"""What a native library is given wrong: an error code and a text, never a dead process; files that were cut off or changed are refused."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys

import numpy as np
import pytest

import tec
from tec.native.data import checksum
from tec.runtime.arrays.dlpack import DLTensor
from tests import seeds
from tests.unit.native.harness import POINTER, Failed, Net, Options, library, tensor
from tests.unit.native.networks import cached_sum, cnn


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "cnn.so"
    cnn().export_library(path)
    made = Net(path)
    yield made
    made.close()


def run(net, t, n=1, outputs=None, n_outputs=0):
    rows = (POINTER * 1)(ctypes.pointer(t) if t is not None else None)
    net.check(net.lib.tec_net_run(net.net, rows, n, outputs, n_outputs))


def image(**changes):
    t, keep = tensor(np.zeros((2, 3, 12, 12), np.float32))
    t.keep = keep
    for k, v in changes.items():
        setattr(t, k, v)
    return t


def shape(*numbers):
    return (ctypes.c_int64 * len(numbers))(*numbers)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bits": 64}, r"input 0 \(x\) is of type float64, float32 is wanted"),
        ({"code": 0}, "is of type int32, float32 is wanted"),
        ({"lanes": 4}, "is of type float32x4"),
        ({"ndim": 3}, "has 3 dimensions, 4 are wanted"),
        ({"data": None}, "its data is a null pointer"),
        ({"device_type": 2}, "is on DLPack device 2"),
        ({"shape": shape(2, 3, 12, 13)}, r"has shape \(2, 3, 12, 13\), the network takes \(n, 3, 12, 12\)"),
        ({"shape": shape(0, 3, 12, 12)}, "dimension 0 of input x, n, is 0; it is from 1"),
        ({"shape": shape(-1, 3, 12, 12)}, "dimension 0 is -1"),
        ({"shape": shape(1 << 40, 3, 12, 12)}, "is from 1 to 2147483647"),
        ({"shape": shape(1 << 62, 1 << 62, 12, 12)}, r"asks for more than 2\^63 bytes"),
        ({"shape": shape(1 << 30, 3, 12, 12)}, "elements|memory"),
        ({"shape": None}, "its shape is a null pointer"),
    ],
    ids=lambda v: "" if isinstance(v, str) else "-".join(v),
)
def test_wrong_tensors(changes, says, net):
    with pytest.raises(Failed, match=says) as e:
        run(net, image(**changes))
    assert e.value.status == 1
    run(net, image())  # and it goes on


def test_wrong_calls(net):
    lib = net.lib
    for args, says in [
        ((None, 1, None, 0), "the array of inputs is a null pointer"),
        (((POINTER * 1)(), 1, None, 0), "input 0 .x.: the tensor is a null pointer"),
        (((POINTER * 1)(), 2, None, 0), "2 inputs given, the network has 1"),
        (((POINTER * 1)(), -1, None, 0), "-1 inputs given"),
    ]:
        with pytest.raises(Failed, match=says):
            net.check(lib.tec_net_run(net.net, *args))
    assert lib.tec_net_run(None, None, 0, None, 0) == 1 and b"null pointer" in lib.tec_net_error(None)
    assert lib.tec_net_create(None, None, None) == 1
    lib.tec_net_destroy(None)
    assert not lib.tec_net_input(net.net, 7) and not lib.tec_net_output(net.net, -1)
    with pytest.raises(Failed, match="output 3 of 1"):
        net.check(lib.tec_net_result(net.net, 3, ctypes.byref(DLTensor())))
    with pytest.raises(Failed, match="null pointer"):
        net.check(lib.tec_net_result(net.net, 0, None))
    with pytest.raises(Failed, match="has no states"):
        net.check(lib.tec_net_truncate(net.net, 0))
    with pytest.raises(Failed, match=r"options.bytes is 4"):
        _with_bytes(net, 4)
    assert Options.device.offset == 32  # a program of the interface before it had devices
    older = ctypes.c_void_p()
    net.check(lib.tec_net_create(None, ctypes.byref(Options(32)), ctypes.byref(older)))
    lib.tec_net_destroy(older)
    with pytest.raises(Failed, match="neither may be negative"):
        Net(net.lib._name, threads=-2)


def _with_bytes(net, n):
    made = ctypes.c_void_p()
    status = net.lib.tec_net_create(None, ctypes.byref(Options(n)), ctypes.byref(made))
    text = net.lib.tec_net_error(made).decode()
    assert (
        net.lib.tec_net_run(made, None, 0, None, 0) == 1
        and net.lib.tec_net_bytes(made) == 0
        and not net.lib.tec_net_input(made, 0)
    )
    net.lib.tec_net_destroy(made)
    raise Failed(status, text)


def test_outputs_of_the_caller(net):
    x = np.random.default_rng(0).standard_normal((2, 3, 12, 12)).astype(np.float32)
    want = cnn().run([x])[0]
    t, keep = tensor(x)

    def into(y):
        made, kept = tensor(y)
        run(net, t, 1, (POINTER * 1)(ctypes.pointer(made)), 1)

    out = np.zeros((2, 10), np.float32)
    into(out)
    np.testing.assert_array_equal(out, want)
    wide = np.zeros((2, 20), np.float32)
    into(wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], want)
    assert not wide[:, 1::2].any()
    for bad, says in [
        (np.zeros((3, 10), "f"), r"output 0 \(y\) has shape \(3, 10\), the network makes \(2, 10\)"),
        (np.zeros((2, 10), "d"), "is of type float64"),
        (x.reshape(-1)[:20].reshape(2, 10), "shares memory with an input"),
    ]:
        with pytest.raises(Failed, match=says):
            into(bad)
    with pytest.raises(Failed, match="2 outputs given"):
        run(net, t, 1, (POINTER * 2)(), 2)
    room = (ctypes.c_int64 * 2)()
    rows = (POINTER * 1)(ctypes.pointer(t))
    net.check(net.lib.tec_net_shape(net.net, rows, 1, 0, room, 2))
    assert list(room) == [2, 10]
    with pytest.raises(Failed, match="room for 1"):
        net.check(net.lib.tec_net_shape(net.net, rows, 1, 0, room, 1))


# ---- files

OPEN = """import ctypes, sys
lib, net = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
lib.tec_net_error.restype = ctypes.c_char_p
status = lib.tec_net_create(None, None, ctypes.byref(net))
print(status, lib.tec_net_error(net).decode())
lib.tec_net_destroy(net)
"""


def opened(path):
    """What a process of its own says of a library."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", OPEN, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_a_library_that_was_cut_off(tmp_path):
    """The loader reads the program headers first, and these come last: it refuses a file of which anything is missing."""
    cnn().export_library(tmp_path / "net.so")
    whole = (tmp_path / "net.so").read_bytes()
    assert opened(tmp_path / "net.so") == "0"
    rng = random.Random(seeds.first())
    for lost in (1, 1000, 12_000, len(whole) - 1000, *(rng.randrange(1, len(whole)) for _ in range(20))):
        cut = tmp_path / f"cut{lost}.so"
        cut.write_bytes(whole[:-lost])
        with pytest.raises(OSError, match=r"cannot read file data|file too short"):
            ctypes.CDLL(str(cut))
    changed = bytearray(whole)
    changed[-700] ^= 4
    (tmp_path / "changed.so").write_bytes(changed)
    assert opened(tmp_path / "changed.so") == "3 the weights are damaged: their checksum is wrong"


def test_weights_beside(tmp_path):
    cnn().export_library(tmp_path / "net.so", weights="beside")
    x = np.random.default_rng(0).standard_normal((2, 3, 12, 12)).astype(np.float32)
    net = Net(tmp_path / "net.so")
    np.testing.assert_array_equal(net.run([x])[0], cnn().run([x])[0])
    net.close()
    weights = tmp_path / "net.weights"
    whole = weights.read_bytes()
    for data, says in [
        (whole[:-1], "has .* bytes, the network's has"),
        (bytes(len(whole)), "checksum is wrong"),
        (whole + b"\0", "bytes, the network's"),
    ]:
        weights.write_bytes(data)
        with pytest.raises(Failed, match=says) as e:
            Net(tmp_path / "net.so")
        assert e.value.status == 3
    weights.rename(tmp_path / "elsewhere")
    with pytest.raises(Failed, match=r"net.weights cannot be read: No such file"):
        Net(tmp_path / "net.so")
    (tmp_path / "elsewhere").write_bytes(whole)
    Net(tmp_path / "net.so", weights=str(tmp_path / "elsewhere").encode()).close()
    with pytest.raises(Failed, match=r"bytes, the network's|cannot be"):
        Net(tmp_path / "net.so", weights=str(tmp_path).encode())


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 100_003, 300_000])
def test_the_checksum_sees_every_bit(n):
    data = np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8)
    total = checksum(data)
    for at in {0, n // 2, n - 1} if n else ():
        for bit in (0, 7):
            other = data.copy()
            other[at] ^= 1 << bit
            assert checksum(other) != total
    if n > 16:
        swapped = data.copy()
        swapped[:8], swapped[8:16] = data[8:16], data[:8]
        assert checksum(swapped) != total
    assert checksum(np.zeros(n + 1, np.uint8)) != checksum(np.zeros(n, np.uint8))


def test_a_processor_that_lacks_something(tmp_path):
    """AMX or AVX-512 with FP16: code for such a machine is refused elsewhere, before any of it runs."""
    with open("/proc/cpuinfo") as f:
        if "amx_tile" in f.read():
            pytest.skip("this processor has all that is asked for")
    cached_sum("llvm -mcpu=sapphirerapids -mattr=+amx-tile").export_library(tmp_path / "net.so")
    with pytest.raises(Failed, match=r"this processor has no (avx512|amx)") as e:
        Net(tmp_path / "net.so")
    assert e.value.status == 4


def test_names(net):
    lib = library(net.lib._name)
    lib.tec_library_model.restype = ctypes.c_void_p
    model = ctypes.c_void_p(lib.tec_library_model())
    assert lib.tec_model_name(model) == b"cnn" and lib.tec_model_target(model) == b"llvm"


def test_sizes_that_the_network_was_not_compiled_for_are_told(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2])
    ports = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
        for n, s in (("x", [1, 3, "length"]), ("y", [1, 3, None]))
    ]
    graph = helper.make_graph([pool], "pool", ports[:1], ports[1:])
    tec.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), "llvm").export_library(
        tmp_path / "pool.so"
    )
    net = Net(tmp_path / "pool.so")
    with pytest.raises(Failed, match=r"sizes with 0 <= length-2 .*, not for length = 1$"):
        net.run([np.zeros((1, 3, 1), np.float32)])
    assert net.run([np.ones((1, 3, 4), np.float32)])[0].shape == (1, 3, 2)
    net.close()
