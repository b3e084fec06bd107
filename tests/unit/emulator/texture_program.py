"""A program in Python over the HIP API's textures, as users write them with ctypes: run under `tec emu --chip CHIP`. Its argument is the code object."""

import ctypes
import sys
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_void_p

import numpy as np

hip = ctypes.CDLL("libamdhip64.so")


class Extent(ctypes.Structure):
    _fields_ = [(n, c_size_t) for n in ("width", "height", "depth")]


class Channels(ctypes.Structure):
    _fields_ = [(n, c_int) for n in "xyzwf"]


class Resource(ctypes.Structure):
    _fields_ = [
        ("kind", c_int),
        ("at", c_void_p),
        ("channels", Channels),
        ("a", c_size_t),
        ("b", c_size_t),
        ("c", c_size_t),
    ]


class Texture(ctypes.Structure):
    _fields_ = [("address", c_int * 3), ("filter", c_int), ("read", c_int), ("srgb", c_int), ("border", c_float * 4), ("normalized", c_int),
                ("anisotropy", c_uint), ("mip", c_int), ("levels", c_float * 3)]  # fmt: skip


hip.hipCreateChannelDesc.restype = Channels


def call(name, *args):
    status = getattr(hip, name)(*args)
    assert status == 0, (name, status)


def made(name, *args):
    out = c_void_p()
    call(name, byref(out), *args)
    return out


def texture(resource, **how):
    t = Texture(filter=how.get("linear", 0), read=how.get("read", 0), normalized=how.get("normalized", 0))
    t.address[:] = [how.get("mode", 1)] * 3
    return made("hipCreateTextureObject", byref(resource), byref(t), None)


def launch(function, lanes, *args):
    values = [c_void_p(a) if isinstance(a, int) else a for a in args]
    params = (c_void_p * len(values))(*(ctypes.cast(byref(v), c_void_p) for v in values))
    call("hipModuleLaunchKernel", function, 1, 1, 1, lanes, 1, 1, 0, None, params, None)
    call("hipDeviceSynchronize")


rng = np.random.default_rng(3)
lanes = 32
code = made("hipModuleLoad", sys.argv[1].encode())
kernels = {}
for name in ("sample", "copy", "fetch"):
    kernels[name] = made("hipModuleGetFunction", code, name.encode())
out = np.zeros((lanes, 4), np.float32)
there = made("hipMalloc", c_size_t(out.nbytes))


def results():
    call("hipMemcpy", out.ctypes.data_as(c_void_p), there, c_size_t(out.nbytes), 2)
    return out


# An array of bytes read as numbers from 0 to 1, filtered; its coordinates are in elements.
image = rng.integers(0, 256, (5, 7, 4), dtype=np.uint8)
desc = hip.hipCreateChannelDesc(8, 8, 8, 8, 1)
assert (desc.x, desc.w, desc.f) == (8, 8, 1)
array = made("hipMallocArray", byref(desc), c_size_t(7), c_size_t(5), c_uint(0))
call(
    "hipMemcpy2DToArray",
    array,
    c_size_t(0),
    c_size_t(0),
    image.ctypes.data_as(c_void_p),
    c_size_t(28),
    c_size_t(28),
    c_size_t(5),
    1,
)
back = np.zeros_like(image)
call(
    "hipMemcpy2DFromArray",
    back.ctypes.data_as(c_void_p),
    c_size_t(28),
    array,
    c_size_t(0),
    c_size_t(0),
    c_size_t(28),
    c_size_t(5),
    2,
)
assert (back == image).all()
told, extent = Channels(), Extent()
call("hipArrayGetInfo", byref(told), byref(extent), None, array)
assert (told.x, told.f, extent.width, extent.height) == (8, 1, 7, 5)
t = texture(Resource(0, array.value), linear=1, read=1)
launch(kernels["sample"], lanes, t, there)
x, y = np.arange(lanes, dtype=np.float32) * np.float32(0.25), np.arange(lanes, dtype=np.float32) * np.float32(0.125)
fx, fy = np.rint(x * 256).astype(int) - 128, np.rint(y * 256).astype(int) - 128
want = np.zeros((lanes, 4))
for j in (0, 1):
    for i in (0, 1):
        weight = (fx & 255 if i else 256 - (fx & 255)) * (fy & 255 if j else 256 - (fy & 255)) / 65536
        want += weight[:, None] * (image[np.clip((fy >> 8) + j, 0, 4), np.clip((fx >> 8) + i, 0, 6)] / 255)
np.testing.assert_allclose(results(), want, atol=3e-7)
kept = Texture()
call("hipGetTextureObjectTextureDesc", byref(kept), t)
assert kept.filter == 1 and kept.read == 1
call("hipDestroyTextureObject", t)

# Rows of linear memory as a texture; a surface that a kernel writes.
rows = np.zeros((5, 64, 4), np.float32)
rows[:, :7] = rng.random((5, 7, 4))
memory = made("hipMalloc", c_size_t(rows.nbytes))
call("hipMemcpy", memory, rows.ctypes.data_as(c_void_p), c_size_t(rows.nbytes), 1)
floats = hip.hipCreateChannelDesc(32, 32, 32, 32, 2)
t = texture(Resource(3, memory.value, floats, 7, 5, 1024))
launch(kernels["sample"], lanes, t, there)
assert (results() == rows[np.clip(y.astype(int), 0, 4), np.clip(x.astype(int), 0, 6)]).all()
target = made("hipMalloc3DArray", byref(floats), Extent(7, 5, 0), c_uint(2))
surface = made("hipCreateSurfaceObject", byref(Resource(0, target.value)))
call(
    "hipMemcpy2DToArray",
    target,
    c_size_t(0),
    c_size_t(0),
    np.zeros((5, 7, 4), np.float32).ctypes.data_as(c_void_p),
    c_size_t(112),
    c_size_t(112),
    c_size_t(5),
    1,
)
launch(kernels["copy"], lanes, t, surface)
got = np.zeros((5, 7, 4), np.float32)
call(
    "hipMemcpy2DFromArray",
    got.ctypes.data_as(c_void_p),
    c_size_t(112),
    target,
    c_size_t(0),
    c_size_t(0),
    c_size_t(112),
    c_size_t(5),
    2,
)
assert (got[:4] == rows[:4, :7]).all() and (got[4, :4] == rows[4, :4]).all() and (got[4, 4:] == 0).all()

# Linear memory by index, past its end too.
line = rng.random(20).astype(np.float32)
memory = made("hipMalloc", c_size_t(80))
call("hipMemcpy", memory, line.ctypes.data_as(c_void_p), c_size_t(80), 1)
t = texture(Resource(2, memory.value, hip.hipCreateChannelDesc(32, 0, 0, 0, 2), 80))
launch(kernels["fetch"], lanes, t, there)
assert (results()[:, 0] == np.concatenate([line, np.zeros(12)])).all()
assert (results()[:20, 3] == 1).all()

# What is not there says so.
bad = Texture(anisotropy=8)
assert hip.hipCreateTextureObject(byref(c_void_p()), byref(Resource(0, array.value)), byref(bad), None) == 801
call("hipFreeArray", array)
assert hip.hipFreeArray(array) == 400
print("textures are right")
