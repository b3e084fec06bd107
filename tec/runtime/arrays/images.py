"""Images (textures) for kernels that other compilers made: `dev.image(array)` is an argument for a kernel that takes a texture or surface object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, DeviceError
from .ndarray import NDArray, array

if TYPE_CHECKING:
    from ..devices.device import Device

_AXES = {"1D": 1, "2D": 2, "3D": 3, "CUBE": 3, "1D_ARRAY": 2, "2D_ARRAY": 3}
_KINDS = {"u": "UINT", "i": "SINT", "f": "FLOAT"}
_ROW_BYTES = 256  # rows of an image begin at multiples


class Image:
    """An image on a device. `int(image)` is the address of its texture object (what HIP calls hipTextureObject_t), `bytes(image)` the object itself: an
    image resource of 32 bytes, 16 about it, and a sampler of 16."""

    def __init__(
        self,
        device: Device,
        kind: str,
        shape: tuple[int, ...],
        data: NDArray,
        pitch: int,
        words: list[int],
        dtype: np.dtype[Any],
    ):
        self.device, self.kind, self.shape, self.dtype = device, kind, shape, dtype
        self._data, self._pitch = data, pitch
        self._words = words
        self._object = array(np.array(words, np.uint32), device)

    def __index__(self) -> int:
        return self._object.address

    def __bytes__(self) -> bytes:
        return np.array(self._words, np.uint32).tobytes()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as they are now, as a NumPy array of `shape`."""
        rows = self._data.numpy().reshape(-1, self._pitch)
        axes = _AXES[self.kind]
        channels = self.shape[axes] if len(self.shape) > axes else 1
        width = self.shape[axes - 1]
        return (
            np.ascontiguousarray(rows[:, : width * channels * self.dtype.itemsize]).view(self.dtype).reshape(self.shape)
        )


def make_image(device: Device, data: np.ndarray[Any, Any], kind: str, read: str, filter: str, address: str | tuple[str, ...], border: str, normalized: bool) -> Image:  # fmt: skip
    """See `Device.image`."""
    words_of = getattr(device.driver, "image_words", None)
    if words_of is None:
        raise DeviceError(
            f"{device} makes no images",
            hint="images are the software GPU's; on hardware hipCreateTextureObject makes them",
        )
    data = np.ascontiguousarray(data)
    if kind not in _AXES:
        raise ArgumentError(f"an image of kind {kind!r}", hint=f"one of: {', '.join(_AXES)}")
    axes = _AXES[kind]
    channels = data.shape[-1] if data.ndim == axes + 1 else 1
    if data.ndim not in (axes, axes + 1) or channels not in (1, 2, 4) or 0 in data.shape:
        raise ArgumentError(
            f"an array of shape {data.shape} as a {kind} image",
            hint=f"{axes} axes, the width last, and one more of 1, 2 or 4 channels",
        )
    if data.dtype.kind not in _KINDS or data.dtype.itemsize > 4:
        raise ArgumentError(f"an image of {data.dtype}", hint="8, 16 or 32 bits of integers, or 16 or 32 of floats")
    if kind == "CUBE" and (data.shape[0] % 6 or data.shape[1] != data.shape[2]):
        raise ArgumentError(f"a cube of shape {data.shape}", hint="six square faces, +x -x +y -y +z -z, for each cube")
    numbers = {
        "element": _KINDS[data.dtype.kind],
        "normalized": {"u": "UNORM", "i": "SNORM"}.get(data.dtype.kind, "FLOAT"),
        "srgb": "SRGB",
    }
    modes = (address,) * 3 if isinstance(address, str) else (*address, *("clamp",) * 3)[:3]
    for name, value, known in (("read", read, numbers), ("filter", filter, ("point", "linear")), ("border", border, ("zero", "black", "white")),
                               *(("address", m, ("wrap", "mirror", "clamp", "border")) for m in modes)):  # fmt: skip
        if value not in known:
            raise ArgumentError(f"{name} {value!r}", hint=f"one of: {', '.join(known)}")
    width = data.shape[axes - 1]
    row = width * channels * data.dtype.itemsize
    pitch = -(-row // _ROW_BYTES) * _ROW_BYTES
    padded = np.zeros((int(np.prod(data.shape[: axes - 1], dtype=int)), pitch), np.uint8)
    padded[:, :row] = data.reshape(len(padded), -1).view(np.uint8)
    there = array(padded, device)
    outer = data.shape[: axes - 1]
    size = (
        (width, 1, outer[0])
        if kind == "1D_ARRAY"
        else (width, outer[-1] if outer else 1, outer[0] if len(outer) == 2 else 1)
    )
    words = words_of(
        kind=kind, address=there.address, channels=channels, bits=8 * data.dtype.itemsize, number_kind=numbers[read], size=size, pitch=pitch,
        linear=filter == "linear", normalized=normalized, modes=modes, border=border,
    )  # fmt: skip
    return Image(device, kind, data.shape, there, pitch, words, data.dtype)
