"""Random numbers by counter: Philox 4x32-10. Number i of a stream is a function of the seed and of i, so that every device gives the same.

    g = tec.array.random.Generator(0, device=dev)
    g.random((3, 4)), g.normal((3, 4)), g.integers(0, 10, (5,)), g.permutation(7)

Bits, `random`, `integers` and `permutation` are equal on all devices, bit for bit; `normal` to the last digits of log and cos. A generator goes on where it
was; one of the same seed gives the same again.
"""

from __future__ import annotations

import math
import secrets
from typing import Any

from ..errors import listed
from ..runtime.arrays.dtypes import ShapeLike
from ..runtime.arrays.ndarray import empty
from ..runtime.devices.device import Device, DeviceLike, place
from . import build, dtypes, kernels
from .array import Array
from .creation import asarray, shape_of
from .dtypes import DTypeLike, as_dtype
from .elementwise import bitwise_right_shift, cos, log, sqrt
from .elsewhere import missing
from .errors import ArrayTypeError, ArrayValueError
from .manipulation import astype, reshape, take
from .node import TRACED, leaf
from .sorting import argsort


class Generator:
    """A stream of random numbers on a device. seed: an int; different seeds give independent streams.

    >>> g, h = xp.random.Generator(7), xp.random.Generator(7)
    >>> g.integers(0, 10, (5,)).tolist() == h.integers(0, 10, (5,)).tolist()
    True
    """

    def __init__(self, seed: int = 0, *, device: DeviceLike = None):
        if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= seed.__index__() < 1 << 64:
            raise ArrayValueError(f"the seed {seed!r}", hint="an int from 0 to 2**64 - 1")
        self.seed = int(seed)
        self.device = place(device)
        self.counter = 0  # of four words each

    def __repr__(self) -> str:
        return f"Generator({self.seed}, device={self.device})"

    def bits(self, shape: ShapeLike) -> Array:
        """Random bits, as uint32."""
        if TRACED:
            raise ArrayTypeError(
                "random numbers that are drawn while tec.array.jit writes a function down would be the same in every call",
                hint="draw them outside, and give them as an argument",
            )
        extents = shape_of(shape)
        held = empty((math.prod(extents),), "uint32", self.device)
        kernels.philox(held, self.counter, self.seed)
        self.counter += -(-held.size // 4)
        return Array(build.reshape(leaf(held), extents))

    def random(self, shape: ShapeLike = (), *, dtype: DTypeLike | None = None, size: ShapeLike | None = None) -> Array:
        """Floats from 0 to 1, without 1: of float32 with 24 random bits, of float64 with 53. `size` is NumPy's name for the shape."""
        shape = shape if size is None else size
        kind = dtypes.DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
        if kind == "float64":
            two = self.bits((2, *shape_of(shape)))
            high, low = (astype(bitwise_right_shift(two[k, ...], n), "float64") for k, n in ((0, 5), (1, 6)))
            return (high * 67108864.0 + low) * 2.0**-53
        if not dtypes.is_float(kind):
            raise ArrayTypeError(f"random floats of {kind}", hint="float32 or float64; x.astype(dtype) converts")
        made = astype(bitwise_right_shift(self.bits(shape), 8), "float32") * 2.0**-24
        return made if kind == "float32" else astype(made, kind)

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        shape: ShapeLike = (),
        *,
        dtype: DTypeLike | None = None,
        size: ShapeLike | None = None,
    ) -> Array:
        """Floats from low to high."""
        return self.random(shape, dtype=dtype, size=size) * float(high - low) + float(low)

    def normal(
        self,
        shape: Any = (),
        *numpys: Any,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike | None = None,
        loc: float | None = None,
        scale: float | None = None,
        size: ShapeLike | None = None,
    ) -> Array:
        """Normally distributed floats, by Box and Muller's method. NumPy's arguments are taken too: `normal(loc, scale, size)`, by place or by name."""
        if numpys:
            mean, std = float(shape), float(numpys[0])
            shape = numpys[1] if len(numpys) > 1 else ()
        elif size is not None or loc is not None or scale is not None:
            shape = shape if size is None else size
        mean, std = mean if loc is None else loc, std if scale is None else scale
        extents = shape_of(shape)
        two = self.random((2, *extents), dtype=dtype)
        radius = sqrt(log(1.0 - two[0, ...]) * -2.0)
        made = radius * cos(two[1, ...] * (2 * math.pi))
        return made * float(std) + float(mean) if (mean, std) != (0.0, 1.0) else made

    def standard_normal(
        self, shape: ShapeLike = (), *, dtype: DTypeLike | None = None, size: ShapeLike | None = None
    ) -> Array:
        """`normal` of mean 0 and standard deviation 1."""
        return self.normal(shape if size is None else size, dtype=dtype)

    def integers(
        self,
        low: int,
        high: int | None = None,
        shape: ShapeLike = (),
        *,
        dtype: DTypeLike = "int64",
        size: ShapeLike | None = None,
    ) -> Array:
        """Whole numbers from `low` (0 where one is given) up to `high`, which is left out: at most 2**32 different ones.

        A number is (64 random bits times the range) / 2**64 in 32-bit steps: no value is more frequent than another by more than 2**-32 of its share.
        """
        if high is None:
            low, high = 0, low
        span = high - low
        if not 0 < span <= 1 << 32:
            raise ArrayValueError(f"integers from {low} to {high}", hint="from 1 to 2**32 different numbers")
        two = self.bits((2, *shape_of(shape if size is None else size)))
        high_bits, low_bits = astype(two[0, ...], "uint64"), astype(two[1, ...], "uint64")
        whole = bitwise_right_shift(high_bits * span + bitwise_right_shift(low_bits * span, 32), 32)
        return astype(astype(whole, "int64") + low, dtype)

    def permutation(self, n: Any) -> Array:
        """The numbers 0 to n - 1 in random order; of an array its first dimension in random order."""
        if isinstance(n, Array):
            if not n.ndim:
                raise ArrayValueError(
                    "permutation of an array of 0 dimensions", hint="one or more dimensions, or an int"
                )
            return take(n, self.permutation(n.shape[0]), axis=0)
        return argsort(reshape(self.bits((n,)), (n,)))

    def shuffle(self, x: Array) -> None:
        """Puts the first dimension of an array in random order, in place."""
        x[...] = self.permutation(x)

    def choice(self, a: Any, shape: ShapeLike = (), *, replace: bool = True, size: ShapeLike | None = None) -> Array:
        """Elements of a vector or list (of the numbers 0 to a - 1 where it is an int), each as likely as the others. replace: whether one may come twice."""
        extents = shape_of(shape if size is None else size)
        if isinstance(a, (tuple, list)):
            a = asarray(a, device=self.device)
        n = len(a) if isinstance(a, Array) else int(a)
        if replace:
            drawn = self.integers(0, n, extents)
        else:
            if math.prod(extents) > n:
                raise ArrayValueError(
                    f"choice of {math.prod(extents)} from {n} without one twice",
                    hint="replace=True draws more than there are",
                )
            drawn = reshape(self.permutation(n)[: math.prod(extents)], extents)
        return take(a, drawn, axis=0) if isinstance(a, Array) else drawn


def default_rng(seed: int = 0, *, device: DeviceLike = None) -> Generator:
    """A generator, under NumPy's name for it."""
    return Generator(seed, device=device)


# ---- NumPy's functions without a generator: one for each device, which starts somewhere unless `seed` says where


_SHARED: dict[Device, Generator] = {}
_seed: int | None = None


def seed(number: int) -> None:
    """Set the seed of this module's functions."""
    global _seed
    Generator(number)  # which refuses what is no seed
    _seed = number
    _SHARED.clear()


def _shared(device: DeviceLike) -> Generator:
    where = place(device)
    if where not in _SHARED:
        _SHARED[where] = Generator(secrets.randbits(64) if _seed is None else _seed, device=where)
    return _SHARED[where]


def rand(*shape: int, device: DeviceLike = None) -> Array:
    """Floats from 0 to 1 of a shape: `rand(3, 4)`."""
    return _shared(device).random(shape)


def randn(*shape: int, device: DeviceLike = None) -> Array:
    """Normally distributed floats of a shape: `randn(3, 4)`."""
    return _shared(device).normal(shape)


def randint(
    low: int, high: int | None = None, size: ShapeLike = (), *, dtype: DTypeLike = "int64", device: DeviceLike = None
) -> Array:
    """Whole numbers from low (0 where one is given) up to high, which is left out."""
    return _shared(device).integers(low, high, size, dtype=dtype)


def random(size: ShapeLike = (), *, device: DeviceLike = None) -> Array:
    """Floats from 0 to 1, without 1."""
    return _shared(device).random(size)


def uniform(low: float = 0.0, high: float = 1.0, size: ShapeLike = (), *, device: DeviceLike = None) -> Array:
    """Floats from low to high."""
    return _shared(device).uniform(low, high, size)


def normal(loc: float = 0.0, scale: float = 1.0, size: ShapeLike = (), *, device: DeviceLike = None) -> Array:
    """Normally distributed floats."""
    return _shared(device).normal(size, mean=loc, std=scale)


def permutation(x: Any, *, device: DeviceLike = None) -> Array:
    """The numbers 0 to x - 1, or the first dimension of an array, in random order."""
    return _shared(x.device if isinstance(x, Array) else device).permutation(x)


def shuffle(x: Array) -> None:
    """Puts the first dimension of an array in random order, in place."""
    _shared(x.device).shuffle(x)


def choice(a: Any, size: ShapeLike = (), *, replace: bool = True, device: DeviceLike = None) -> Array:
    """Elements of a vector, or of the numbers 0 to a - 1."""
    return _shared(a.device if isinstance(a, Array) else device).choice(a, size, replace=replace)


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, __dir__())


__dir__ = listed(__name__)
