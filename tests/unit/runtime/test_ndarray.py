"""NDArray: copies, views, NumPy, DLPack both ways, and that memory lives exactly as long as it is used."""

from __future__ import annotations

import gc
import re
import sys

import ml_dtypes
import numpy as np
import pytest
from runtime_fakes import fake_device

import tec
from tec.errors import ArgumentError, DeviceError
from tec.runtime import as_device, cpu, nd
from tec.runtime.arrays import dlpack
from tec.runtime.devices.host_memory import KeptBlocks

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 float8_e4m3 float8_e5m2".split()


@pytest.fixture(params=["cpu", "fake"])
def dev(request):
    return cpu() if request.param == "cpu" else fake_device()


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_of_every_dtype(dev, dtype):
    from tec.runtime.arrays.dtypes import numpy_dtype

    x = np.array([[0, 1, 2], [3, 1, 0]]).astype(numpy_dtype(dtype))
    a = nd.array(x, dev)
    assert a.dtype == dtype and a.shape == (2, 3) and a.strides == (3, 1) and a.nbytes == x.nbytes and a.device is dev
    assert a.numpy().dtype == x.dtype
    np.testing.assert_array_equal(a.numpy(), x)


def test_array_takes_anything(dev):
    assert nd.array([[1, 2], [3, 4]], dev).numpy().tolist() == [[1, 2], [3, 4]]
    assert nd.array(3.5, dev).shape == () and nd.array(3.5, dev).item() == 3.5
    assert nd.array([1, 2], dev, dtype="float16").dtype == "float16"
    swapped = np.arange(3, dtype=">i4")
    assert nd.array(swapped, dev).numpy().tolist() == [0, 1, 2]
    assert nd.array(nd.array([1.0], dev), cpu()).device is cpu()
    assert float(nd.array(2.0, dev)) == 2.0 and int(nd.array(2, dev)) == 2 and bool(nd.array(1, dev))


def test_zeros_empty_and_empty_shapes(dev):
    assert not nd.zeros((3, 5), "int16", dev).numpy().any()
    for shape in ((0,), (3, 0, 2), ()):
        a = nd.zeros(shape, "float32", dev)
        assert a.numpy().shape == shape and a.copyto(dev).shape == shape
    assert nd.empty(4, "float32", dev).shape == (4,)
    assert nd.empty(np.int64(4), np.float64, dev).dtype == "float64"


def test_views_match_numpy(dev):
    x = np.arange(120, dtype="int32").reshape(4, 5, 6)
    a = nd.array(x, dev)
    rng = np.random.default_rng(0)
    pool = [
        slice(None),
        slice(1, None),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(3, 0, -2),
        0,
        -1,
        2,
        None,
        slice(2, 2),
    ]
    for _ in range(200):
        key = tuple(pool[i] for i in rng.integers(len(pool), size=rng.integers(1, 4)))
        if rng.random() < 0.3:
            key = (*key[:1], Ellipsis, *key[1:2])
        np.testing.assert_array_equal(a[key].numpy(), x[key], err_msg=str(key))
    assert [v.numpy().tolist() for v in nd.array([[1, 2], [3, 4]], dev)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("value", "dtype", "says"),
    [
        (2.5, "int32", "2.5 is no whole number"), (float("nan"), "int64", "no whole number"), (300, "uint8", "holds 0 to 255"),
        (-1, "uint32", "holds 0 to"), (1e10, "int32", "outside of int32"), (1j, "float32", "no real number"), ("a", "float32", "no number|a number"),
        (10**30, "uint64", "0 is outside of uint64"), (-(2**63) - 1, "int64", "outside of int64"), (10**400, "bfloat16", "1329 bits is outside of bfloat16"),
    ],
)  # fmt: skip
def test_a_number_that_the_type_does_not_hold_is_refused(value, dtype, says):
    made = nd.zeros((3,), dtype)
    for fill in (nd.full, tec.array.full):
        with pytest.raises(tec.TecError, match=says):
            fill((2,), value, dtype)
    if value != "a":
        with pytest.raises(tec.ArgumentError, match=says):
            made[1:] = value
    assert not made.numpy().any()


def test_numbers_that_types_hold():
    for value, dtype in [
        (-3.0, "int8"),
        (2**64 - 1, "uint64"),
        (10**30, "float32"),
        (-(10**30), "bfloat16"),
        (255, "uint8"),
        (2 + 0j, "int32"),
        (7, "float16"),
        (2, "bool"),
        (True, "int32"),
        (1.5, "float32x4"),
    ]:
        got = nd.full((2,), value, dtype).numpy()
        want = value.real if abs(value) < 2**64 else float(value)
        assert (got == np.asarray(want).astype(got.dtype)).all()


def test_writes_through_views(dev):
    x = np.zeros((6, 8), "float32")
    a = nd.array(x, dev)
    for key, value in [
        ((slice(1, 4), slice(None, None, 2)), 5.0),
        ((Ellipsis, 3), np.arange(6.0)),
        ((slice(None, None, -1), 0), np.arange(6.0)),
    ]:
        a[key] = value
        x[key] = value
    a[2:3].copyfrom(np.full((1, 8), 9))
    x[2] = 9
    np.testing.assert_array_equal(a.numpy(), x)
    with pytest.raises(IndexError):
        a[7]
    with pytest.raises(IndexError):
        a[0, 0, 0]
    with pytest.raises(IndexError):
        a["x"]


def test_reshape(dev):
    a = nd.array(np.arange(12), dev)
    assert a.reshape(3, -1).shape == (3, 4)
    a.reshape((2, 6))[1, 0] = 77
    assert a.numpy()[6] == 77
    for shape in ((5, 2), (-1, 7)):
        with pytest.raises(ArgumentError, match="cannot become"):
            a.reshape(shape)
    with pytest.raises(ArgumentError, match="not compact"):
        a[::2].reshape(2, 3)


def test_copies_between_devices_and_dtypes(dev):
    other = fake_device()
    a = nd.array(np.arange(6, dtype="float32").reshape(2, 3), dev)
    assert a.copyto(other).device is other
    b = nd.empty((2, 3), "int32", other)
    assert a.copyto(b) is b and b.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert a.to(dev) is a and a.astype("float64").dtype == "float64"
    c = nd.empty((3, 2), "float32", dev)
    c[:].copyfrom(a.reshape(3, 2))
    assert c.numpy().ravel().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ArgumentError, match=r"shape \(2, 3\) into an array of shape \(3, 2\)"):
        a.copyto(c)
    with pytest.raises(ArgumentError, match="read-only"):
        a.copyto(b.read_only())
    with pytest.raises(ArgumentError, match="read-only"):
        a.read_only()[0] = 1


def test_cpu_shares_memory_with_numpy():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    a = nd.from_numpy(x)
    x[0, 0] = 9
    assert a.numpy()[0, 0] == 9
    view = np.asarray(a)
    view[1, 1] = 8
    assert x[1, 1] == 8 and np.shares_memory(view, x)
    assert not np.shares_memory(np.array(a, copy=True), x) and np.asarray(a, "float64").dtype == np.float64
    with pytest.raises(ValueError):
        np.array(a, dtype="float64", copy=False)
    assert np.shares_memory(np.asarray(nd.from_numpy(x.T)), x) and nd.from_numpy(x.T).strides == (1, 3)
    x.flags.writeable = False
    frozen = nd.from_numpy(x)
    assert not frozen.writable and not np.asarray(frozen).flags.writeable


def test_gpu_array_is_not_seen_without_a_copy():
    a = nd.array([1.0, 2.0], fake_device())
    assert np.asarray(a).tolist() == [1, 2] and np.asarray(a, "float32").dtype == np.float32
    with pytest.raises(ValueError, match="without a copy"):
        np.array(a, copy=False)


def test_cpu_memory_is_freed_with_its_last_user():
    gc.collect()
    before = cpu().memory()
    a = nd.zeros(1 << 20, "uint8")
    assert cpu().memory().used == before.used + (1 << 20)
    view, array, capsule = a[5:], np.asarray(a), a.__dlpack__()
    del a
    for name in ("view", "array", "capsule"):
        assert cpu().memory().used == before.used + (1 << 20), name
        del locals()[name]
        if name == "view":
            del view
        elif name == "array":
            del array
    del capsule
    gc.collect()
    assert cpu().memory().used == before.used and cpu().memory().blocks == before.blocks


def test_large_blocks_of_the_host_are_kept_for_the_next_of_their_size(monkeypatch):
    """A page that the system gives anew costs a fault, which takes longer than to fill it."""
    dev = cpu()
    dev.empty_cache()
    assert dev.memory().cached == 0
    a = nd.empty(300_000, "uint8")
    at = a.address
    del a
    gc.collect()
    assert dev.memory().cached == 303_104  # whole pages
    assert nd.empty(290_000, "uint8").address != at
    b = nd.empty(303_000, "uint8")
    assert b.address == at
    del b
    gc.collect()
    monkeypatch.setattr(KeptBlocks, "most", 4 << 20)
    for n in range(20):
        nd.empty((300 + n) << 10, "uint8")
    assert 0 < dev.memory().cached <= 4 << 20
    before = dev.memory().cached
    nd.empty(1 << 20, "uint8")  # so large that few would fit
    assert dev.memory().cached == before
    dev.empty_cache()
    assert dev.memory().cached == 0


def test_gpu_memory_is_freed_once():
    dev = fake_device()
    a = nd.zeros(1000, "float32", dev)
    b = a[1:]
    del a
    assert dev.memory().blocks == 1
    del b
    assert dev.memory().blocks == 0 and dev.memory().cached > 0
    dev.empty_cache()
    assert not dev.driver.memory


# ---- DLPack


class Producer:
    """Hands out a given capsule."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("dtype", [d for d in DTYPES if "bfloat" not in d and "float8" not in d])
def test_dlpack_to_numpy_and_back(dtype):
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    a = nd.array(x)
    y = np.from_dlpack(a)
    assert y.dtype == x.dtype and y.ctypes.data == a.address
    np.testing.assert_array_equal(y, x)
    b = nd.from_dlpack(y)
    assert b.address == a.address and b.dtype == dtype and b.shape == (2, 3)
    strided = np.from_dlpack(a[:, ::2])
    np.testing.assert_array_equal(strided, x[:, ::2])
    np.testing.assert_array_equal(nd.from_dlpack(x.T).numpy(), x.T)


def test_dlpack_lifetimes():
    held = len(dlpack._EXPORTED)
    a = nd.array(np.arange(5.0))
    capsule = a.__dlpack__()
    assert len(dlpack._EXPORTED) == held + 1
    del capsule  # never used
    assert len(dlpack._EXPORTED) == held
    b = nd.from_dlpack(a)
    c = b[1:]
    expected = a.numpy()[1:]
    del a, b
    gc.collect()
    assert len(dlpack._EXPORTED) == held + 1
    np.testing.assert_array_equal(c.numpy(), expected)
    del c
    assert len(dlpack._EXPORTED) == held
    x = np.from_dlpack(nd.array(np.arange(5.0)))
    gc.collect()
    assert x.tolist() == [0, 1, 2, 3, 4]
    del x
    assert len(dlpack._EXPORTED) == held


def test_foreign_memory_goes_back_to_its_producer_once():
    x = np.arange(10.0)
    before = sys.getrefcount(x)
    a = nd.from_dlpack(x)
    b = a[2:]
    assert sys.getrefcount(x) > before
    del a
    assert sys.getrefcount(x) > before
    del b
    assert sys.getrefcount(x) == before


def test_capsule_dies_with_an_exception_pending():
    held = len(dlpack._EXPORTED)

    def consumer(x):
        capsule = x.__dlpack__(max_version=(1, 0))
        raise KeyError(f"no use for {type(capsule).__name__}")

    for _ in range(100):
        try:
            consumer(nd.array([1.0]))
        except KeyError as error:
            assert "PyCapsule" in str(error)
    gc.collect()
    assert len(dlpack._EXPORTED) == held


def test_versioned_capsules_and_read_only():
    a = nd.array([1.0, 2.0]).read_only()
    with pytest.raises(BufferError, match="read-only"):
        a.__dlpack__()
    assert not np.from_dlpack(a).flags.writeable
    back = nd.from_dlpack(a)
    assert not back.writable
    x = np.arange(3.0)
    x.flags.writeable = False
    assert not nd.from_dlpack(x).writable
    assert "dltensor_versioned" in repr(a.__dlpack__(max_version=(1, 2)))
    assert '"dltensor"' in repr(nd.array([1.0]).__dlpack__(max_version=(0, 8)))


def test_copy_and_device_requests():
    a = nd.array([1.0, 2.0])
    copied = nd.from_dlpack(Producer(a.__dlpack__(max_version=(1, 0), copy=True)))
    assert copied.address != a.address and copied.numpy().tolist() == [1, 2]
    assert np.from_dlpack(a, device="cpu").tolist() == [1, 2]
    with pytest.raises(BufferError, match="stream must be None"):
        a.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="cannot be exported"):
        a.__dlpack__(dl_device=(2, 0))
    gpu = nd.array([1.0, 2.0], fake_device())
    assert gpu.__dlpack_device__() == (dlpack.ROCM, 0) and a.__dlpack_device__() == (dlpack.CPU, 0)
    assert nd.from_dlpack(Producer(gpu.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))).numpy().tolist() == [1, 2]
    with pytest.raises(BufferError, match="without a copy"):
        gpu.__dlpack__(dl_device=(1, 0), copy=False)
    emulated = nd.array([1.0], fake_device(kind="rocm"))
    emulated.device.driver.kind = "emu"
    with pytest.raises(BufferError, match="no device that others know"):
        emulated.__dlpack__()


def test_gpu_export_orders_the_streams():
    dev = fake_device()
    a = nd.array([1.0], dev)
    stream = dev.stream()
    with stream:
        a.__dlpack__(stream=7)
    assert ("stream_sync", stream.handle) in dev.driver.calls
    dev.driver.calls.clear()
    a.__dlpack__(stream=-1)  # the consumer asked for no ordering
    assert not dev.driver.of("stream_sync")


def test_bfloat16_through_dlpack():
    x = np.array([1.5, -2.0, 3.25], ml_dtypes.bfloat16)
    a = nd.array(x)
    b = nd.from_dlpack(a)
    assert b.dtype == "bfloat16" and b.address == a.address and b.numpy().tolist() == [1.5, -2.0, 3.25]


def test_bad_capsules():
    with pytest.raises(BufferError, match="not a capsule"):
        nd.from_dlpack(Producer(5))
    used = nd.array([1.0]).__dlpack__()
    first = nd.from_dlpack(Producer(used))
    with pytest.raises(BufferError, match="used already"):
        nd.from_dlpack(Producer(used))
    assert first.numpy().tolist() == [1.0]
    wide = Producer(nd.array([1.0]).__dlpack__())
    address = dlpack._get_pointer(id(wide.capsule), b"dltensor")
    dlpack.DLManagedTensor.from_address(address).tensor.bits = 128
    with pytest.raises(BufferError, match="no tec dtype"):
        nd.from_dlpack(wide)
    newer = nd.array([1.0]).__dlpack__(max_version=(1, 0))
    address = dlpack._get_pointer(id(newer), b"dltensor_versioned")
    dlpack.DLManagedTensorVersioned.from_address(address).major = 2
    with pytest.raises(BufferError, match=r"version 2\.0 is newer"):
        nd.from_dlpack(Producer(newer))


# ---- what is refused


def test_bad_arguments():
    for make in (
        lambda: nd.empty((2, -1)),
        lambda: nd.empty("ab"),
        lambda: nd.empty(2, "float31"),
        lambda: nd.empty(2, "complex256"),
    ):
        with pytest.raises(ArgumentError):
            make()
    with pytest.raises(ArgumentError, match="no dtype"):
        nd.array([object()])
    with pytest.raises(ArgumentError, match="from_numpy takes"):
        nd.from_numpy([1])
    with pytest.raises(ArgumentError, match="byte order"):
        nd.from_numpy(np.arange(3, dtype=">f4"))
    with pytest.raises(ArgumentError, match="no multiples"):
        nd.from_numpy(np.zeros(3, [("a", "f4"), ("b", "u1")])["a"])
    with pytest.raises(DeviceError, match="out of memory"):
        nd.empty((1 << 40, 1 << 20), "float64")
    with pytest.raises(ArgumentError, match="2 elements"):
        nd.array([1, 2]).item()


def test_device_text():
    assert as_device("cpu") is cpu() is as_device(None) is as_device("cpu:0")
    for bad in ("gpu", "rocm:x", 3, "cpu:-1"):
        with pytest.raises(DeviceError, match="not a device"):
            as_device(bad)
    with pytest.raises(DeviceError, match="start at 0"):
        cpu(-1)
    assert cpu().name and cpu().compute_units >= 1 and cpu().total_memory_bytes > 0 and cpu().wavefront_size == 1
    assert repr(nd.array([1, 2])).startswith("<tec.NDArray (2,) int64 on cpu(0)>")


def test_large_host_arrays_begin_at_a_page() -> None:
    """So that arrays made one after another do not lie a few lines apart within their pages, where loads wait for stores that are not theirs."""
    arrays = [nd.empty((n,), "uint8") for n in (1, 1 << 16, (1 << 16) + 100, 1 << 20)]
    assert [a.address % 4096 for a in arrays[1:]] == [0, 0, 0]
    assert arrays[0].address % 64 == 0


def test_whole_numbers_beyond_an_integer_type_are_refused():
    with pytest.raises(ArgumentError, match="300 does not fit uint8"):
        nd.array([1, 300], dtype="uint8")
    assert nd.array(np.array([300]), dtype="uint8").numpy().tolist() == [44]  # an array is cast, as NumPy does


@pytest.mark.parametrize(("copy", "flags"), [(None, 0), (False, 0), (True, dlpack.FLAG_COPIED)])
def test_dlpack_says_what_is_a_copy(copy, flags):
    a = nd.array(np.arange(4.0))
    before = set(dlpack._EXPORTED)
    capsule = a.__dlpack__(max_version=(1, 0), copy=copy)
    ((managed, _, _),) = (held for at, held in dlpack._EXPORTED.items() if at not in before)
    assert managed.flags == flags and (managed.tensor.data == a.address) == (not flags)
    del capsule


@pytest.mark.parametrize(
    ("sign", "use"),
    [
        ("-", lambda x: 2 - x), ("*", lambda x: np.float32(2) * x), ("//", lambda x: 2 // x), ("%", lambda x: x % 2),
        ("**", lambda x: 2**x), ("@", lambda x: x @ x), ("comparison", lambda x: 3 < x),
    ],
)  # fmt: skip
def test_arithmetic_of_memory_says_what_computes(sign, use):
    with pytest.raises(tec.ArgumentError, match=re.escape(f"{sign} of an NDArray, which is memory")):
        use(nd.zeros((2, 2)))


def test_arrays_of_numpy_take_memory_as_one_of_theirs():
    x = np.ones((2, 2), "float32")
    for made in (
        x + nd.array(x),
        nd.array(x) + x,
        x ** nd.array(x),
        x // nd.array(x),
        x @ nd.array(x),
        x % nd.array(x),
    ):
        assert type(made) is np.ndarray and made.shape == (2, 2)
