"""Random numbers that depend on a seed and an offset alone: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011), with the bits that Triton's words of these names give."""

from __future__ import annotations

import builtins
from typing import Any

from .arithmetic import cos, log, maximum, sin, sqrt, umulhi
from .builder import current, float32, int32, int64, plain, uint32, uint64
from .examples import of_places
from .words import where

ROUNDS = 10
# Key schedule and multipliers of Philox 4x32 and 4x64, from the paper.
_WORDS = {
    uint32: (0x9E3779B9, 0xBB67AE85, 0xD2511F53, 0xCD9E8D57),
    uint64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B, 0xD2E7470EE14C6C93, 0xCA5A826395121157),
}


def philox_impl(
    c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: Any = ROUNDS
) -> tuple[Any, Any, Any, Any]:
    """`n_rounds` rounds over the counter (c0 .. c3) with the key (k0, k1): unsigned tiles of 32 or 64 bits.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 4)
    ...     c, zero = i.to(tl.uint32), tl.zeros((4,), tl.uint32)
    ...     a, _, _, _ = tl.philox_impl(c, zero, zero, zero, zero + 7, zero)
    ...     tl.store(out + i, a)
    >>> out = np.zeros(4, "uint32")
    >>> show[(1,)](out)
    >>> out
    array([4099963437, 1747881627,   26092480, 1675892246], dtype=uint32)
    """
    b = current()
    if c0.ty.dtype not in _WORDS:
        raise b.error(f"dtype not supported in philox_impl: {c0.ty.dtype}", hint="uint32 or uint64: x.to(tl.uint32)")
    key_a, key_b, round_a, round_b = (b.const(n, c0.ty.dtype) for n in _WORDS[c0.ty.dtype])
    for _ in builtins.range(plain(n_rounds)):
        old0, old2 = c0, c2
        c0 = umulhi(old2, round_b) ^ c1 ^ k0
        c2 = umulhi(old0, round_a) ^ c3 ^ k1
        c1, c3 = old2 * round_b, old0 * round_a
        c0, c1, c2, c3 = (b.value("hold", (c,), c.ty) for c in (c0, c1, c2, c3))
        k0, k1 = k0 + key_a, k1 + key_b
    return c0, c1, c2, c3


@of_places(
    "tl.philox(7, i, 0 * i, 0 * i, 0 * i)[0]", "4099963437, 1747881627,   26092480, 1675892246", count=4, dtype="uint32"
)
def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = ROUNDS) -> tuple[Any, Any, Any, Any]:
    """Four tiles of random bits of a seed and a counter."""
    b = current()
    seed = b.of_number(seed)
    if not seed.ty.dtype.is_int():
        raise b.error(f"a seed of type {seed.ty.dtype}", hint="a seed is a whole number")
    seed = b.cast(seed, uint64)
    counters = [b.of_number(c) for c in (c0, c1, c2, c3)]
    wide = counters[0].ty.dtype.primitive_bitwidth == 64
    t = uint64 if wide else uint32
    if wide:
        low, high = seed, b.const(0, uint64)
    else:
        low, high = b.cast(seed & 0xFFFFFFFF, uint32), b.cast((seed >> 32) & 0xFFFFFFFF, uint32)
    c0, c1, c2, c3 = (b.cast(c, t) for c in counters)
    return philox_impl(c0, c1, c2, c3, low, high, n_rounds)


@of_places("tl.randint4x(7, i)[1]", "3221879260, 3415718931,   36305844, 1074293615", count=4, dtype="uint32")
def randint4x(seed: Any, offset: Any, n_rounds: Any = ROUNDS) -> tuple[Any, Any, Any, Any]:
    """Four tiles of random uint32, of a seed and a tile of offsets."""
    b = current()
    offset = b.of_number(offset)
    low = b.cast(offset, uint32)
    zero = b.broadcast_to(b.const(0, uint32), low.ty.shape)
    high = b.cast(offset >> 32, uint32) if offset.ty.dtype.primitive_bitwidth > 32 else zero
    return philox(seed, low, high, zero, zero, n_rounds)


@of_places("tl.randint(7, i)", "4099963437, 1747881627,   26092480, 1675892246", count=4, dtype="uint32")
def randint(seed: Any, offset: Any, n_rounds: Any = ROUNDS) -> Any:
    """Random uint32."""
    return randint4x(seed, offset, n_rounds)[0]


@of_places(
    "tl.uint_to_uniform_float(tl.randint(7, i))",
    "0.09080574, 0.81392074, 0.01215026, 0.7803981 ",
    count=4,
    dtype="float32",
)
def uint_to_uniform_float(x: Any) -> Any:
    """Random bits as a float32 from 0 up to, and without, 1."""
    b = current()
    wide = x.ty.dtype.primitive_bitwidth == 64
    x = b.cast(x, int64 if wide else int32)
    x = where(x < 0, -x - 1, x)
    return b.cast(x, float32) * (1.0842020432385337e-19 if wide else 4.6566127342e-10)


@of_places("tl.rand(7, i)", "0.09080574, 0.81392074, 0.01215026, 0.7803981 ", count=4, dtype="float32")
def rand(seed: Any, offset: Any, n_rounds: Any = ROUNDS) -> Any:
    """Uniform float32 in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@of_places("tl.rand4x(7, i)[1]", "0.49969554, 0.4094319 , 0.01690622, 0.5002569 ", count=4, dtype="float32")
def rand4x(seed: Any, offsets: Any, n_rounds: Any = ROUNDS) -> tuple[Any, ...]:
    """Four tiles of uniform float32 in [0, 1)."""
    return tuple(uint_to_uniform_float(i) for i in randint4x(seed, offsets, n_rounds))


@of_places(
    "tl.pair_uniform_to_normal(tl.rand(7, i), tl.rand(8, i))[0]",
    " 2.17,  0.64,  2.17, -0.3 ",
    count=4,
    dtype="float32",
    decimals=2,
)
def pair_uniform_to_normal(u1: Any, u2: Any) -> tuple[Any, Any]:
    """Two normal numbers of two uniform ones (Box and Muller, 1958)."""
    u1 = maximum(1.0e-7, u1)
    angle = 6.283185307179586 * u2
    r = sqrt(-2.0 * log(u1))
    return r * cos(angle), r * sin(angle)


@of_places("tl.randn(7, i)", "-2.19, -0.54,  2.95, -0.7 ", count=4, dtype="float32", decimals=2)
def randn(seed: Any, offset: Any, n_rounds: Any = ROUNDS) -> Any:
    """Normal float32."""
    i1, i2, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(i1), uint_to_uniform_float(i2))[0]


@of_places("tl.randn4x(7, i)[1]", " 0.  ,  0.35,  0.31, -0.  ", count=4, dtype="float32", decimals=2)
def randn4x(seed: Any, offset: Any, n_rounds: Any = ROUNDS) -> tuple[Any, Any, Any, Any]:
    """Four tiles of normal float32."""
    u = [uint_to_uniform_float(i) for i in randint4x(seed, offset, n_rounds)]
    return (*pair_uniform_to_normal(u[0], u[1]), *pair_uniform_to_normal(u[2], u[3]))
