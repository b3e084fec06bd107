"""The extension `fft` of the array API standard: discrete Fourier transforms of any length along one or several axes.

On the CPU pocketfft does them, through NumPy, on the array's memory. On a device they are tec's own kernels (`fft_kernels`): lengths of the primes 2, 3, 5
and 7 by Stockham's passes, others as a convolution (L. Bluestein, "A linear filtering approach to the computation of discrete Fourier transform", 1970).
Transforms of real arrays are cut from complex ones there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np

from ..errors import listed
from ..runtime.arrays.ndarray import array as nd_array
from ..runtime.devices.device import DeviceLike
from . import build, dtypes, fft_kernels
from .array import Array, node_of
from .complexes import is_complex
from .computing import in_memory
from .creation import asarray
from .dtypes import PART, WHOLE, DTypeLike, as_dtype
from .elsewhere import missing
from .errors import ArrayTypeError, ArrayValueError
from .host import on_host
from .manipulation import axes_of, axis_of, roll
from .node import Node, leaf, note, scalar
from .steps import apart
from .told import with_gradient

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq",
    "rfftn",
]  # fmt: skip

_NAME = "a Fourier transform"  # in errors
_NORMS = ("backward", "ortho", "forward")
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _given(name: str, x: Any, norm: str, real: bool = False) -> Node:
    n = node_of(x)
    if norm not in _NORMS:
        raise ArrayValueError(f"{name}(norm={norm!r})", hint=", ".join(map(repr, _NORMS)))
    if n.dtype == "bool":
        raise ArrayTypeError(f"{name} of bools", hint='tec.array.astype(x, "float32") converts')
    if real and is_complex(n):
        raise ArrayTypeError(f"{name} of {n.dtype}, which takes real numbers", hint="fft takes complex ones")
    if not n.shape:
        raise ArrayValueError(f"{name} of an array of 0 dimensions", hint="x.reshape(1) has a dimension")
    if not is_complex(n) and n.dtype not in WHOLE:
        n = build.cast(n, dtypes.DEFAULT_FLOAT)
    return n


def _length(name: str, n: int) -> int:
    if n < 1:
        raise ArrayValueError(f"{name} of length {n}", hint="the length is at least 1")
    return n


def _on_host(f: Callable[..., Any], given: Node, dtype: Any, **options: Any) -> Array:
    made: Array = on_host(_NAME, lambda a: f(a, **options).astype(dtype.name, copy=False), given, batched=True)
    return made


def _is_host(n: Node) -> bool:
    return n.device.driver is None


def _complex(n: Node) -> Node:
    return n if is_complex(n) else build.cast(n, WHOLE[n.dtype.name])


def _fitted(n: Node, size: int, axis: int) -> Node:
    """Cut or filled with zeros to `size` elements along an axis."""
    have = n.shape[axis]
    if have > size:
        return build.narrow(n, axis, 0, size)
    if have < size:
        rest = build.full(0, (*n.shape[:axis], size - have, *n.shape[axis + 1 :]), n.dtype, n.device)
        return build.concat([n, rest], axis)
    return n


def _factor(norm: str, inverse: bool, size: int) -> float:
    if norm == "ortho":
        return 1 / sqrt(size)
    return 1 / size if (norm == "backward") == inverse else 1.0


def _scaled(n: Node, factor: float) -> Node:
    if factor == 1.0:
        return n
    if is_complex(n):
        real, imag = (build.binary("multiply", p, scalar(factor, p.dtype, p.device)) for p in build.parts(n))
        return build.joined(real, imag)
    return build.binary("multiply", n, scalar(factor, n.dtype, n.device))


def _along(n: Node, size: int, axis: int, inverse: bool) -> Node:
    """The transform of a complex node along an axis on its device; not scaled."""
    n = _fitted(n, size, axis)
    if 0 in n.shape or size == 1:
        return n
    last = (*(k for k in range(len(n.shape)) if k != axis), axis)
    rows = build.transpose(n, last)
    made = _rows(rows, inverse)
    return build.transpose(made, tuple(last.index(k) for k in range(len(last))))


def _rows(n: Node, inverse: bool) -> Node:
    size = n.shape[-1]
    if fft_kernels.radices(size) is not None:
        made: Node = apart(lambda m: leaf(fft_kernels.transform(in_memory(m), inverse)), n)
        note("none", made, (n,), name=_NAME, again=lambda whole: _rows(whole, inverse))
        return made
    return _bluestein(n, size, inverse)


def _bluestein(n: Node, size: int, inverse: bool) -> Node:
    """jk = (j^2 + k^2 - (j - k)^2) / 2: the transform is a convolution with a chirp, of a length that is a power of two."""
    room = 1 << (2 * size - 2).bit_length()
    k = np.arange(size, dtype=np.int64)
    turn = (1 if inverse else -1) * np.pi * ((k * k) % (2 * size)) / size
    chirp = np.exp(1j * turn)
    back = np.zeros(room, np.complex128)
    back[:size] = chirp.conj()
    back[room - size + 1 :] = chirp.conj()[:0:-1]
    filters = np.fft.fft(back) / room

    def there(a: Any) -> Node:
        return leaf(nd_array(a.astype(n.dtype.name), n.device))

    turned = build.binary("multiply", n, there(chirp))
    spread = _rows(_fitted(turned, room, len(n.shape) - 1), False)
    joint = _rows(build.binary("multiply", spread, there(filters)), True)
    cut = build.narrow(joint, len(n.shape) - 1, 0, size)
    return build.binary("multiply", cut, there(chirp))


# ---- one axis


def _plain(name: str, x: Array, n: int | None, axis: int, norm: str, inverse: bool) -> Array:
    node = _given(name, x, norm)
    k = axis_of(axis, len(node.shape))
    size = _length(name, node.shape[k] if n is None else n)
    kind, at = _complex_type(node), k - len(node.shape)

    def pull(g: Array, y: Array, x: Array) -> tuple[Array]:
        return (_like(_plain(name, g, None, at, _OPPOSITE[norm], not inverse), x, k),)

    if _is_host(node):
        made = _on_host(np.fft.ifft if inverse else np.fft.fft, node, kind, n=size, axis=at, norm=norm)
    else:
        made = Array(_own(_scaled(_along(_complex(node), size, k, inverse), _factor(norm, inverse, size)), node))
    return with_gradient(made, (node,), pull, lambda a: _plain(name, a, size, at, norm, inverse))


def _like(g: Array, x: Array, axis: int) -> Array:
    """A gradient by what was cut or filled with zeros along an axis: as long as x, and real where x is."""
    n = _fitted(g._node, x.shape[axis], axis)
    return Array(n if is_complex(x._node) or not is_complex(n) else build.parts(n)[0])


def _own(made: Node, given: Node) -> Node:
    return build.unary("identity", made) if made is given else made


def _complex_type(n: Node) -> Any:
    return n.dtype if is_complex(n) else WHOLE[n.dtype.name]


def fft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform along an axis, cut or filled with zeros to length `n`. norm: where 1/n stands ("backward", "forward"), or "ortho"."""
    return _plain("fft", x, n, axis, norm, False)


def ifft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `fft`."""
    return _plain("ifft", x, n, axis, norm, True)


def rfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The first n // 2 + 1 elements of the transform of a real array; the others are their conjugates."""
    node = _given("rfft", x, norm, real=True)
    k = axis_of(axis, len(node.shape))
    size, at = _length("rfft", node.shape[k] if n is None else n), k - len(node.shape)

    def pull(g: Array, y: Array, x: Array) -> tuple[Array]:
        whole = Array(_fitted(g._node, size, k))
        return (_like(ifft(whole, axis=at, norm=_OPPOSITE[norm]), x, k),)

    if _is_host(node):
        made = _on_host(np.fft.rfft, node, _complex_type(node), n=size, axis=at, norm=norm)
    else:
        made = Array(
            _fitted(_scaled(_along(_complex(node), size, k, False), _factor(norm, False, size)), size // 2 + 1, k)
        )
    return with_gradient(made, (node,), pull, lambda a: rfft(a, size, at, norm))


def irfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `rfft`: real, of length `n` (2 (m - 1) of m elements where it is left out)."""
    node = _given("irfft", x, norm)
    k = axis_of(axis, len(node.shape))
    size = _length("irfft", 2 * (node.shape[k] - 1) if n is None else n)
    kind, at = PART[_complex_type(node).name], k - len(node.shape)

    def pull(g: Array, y: Array, x: Array) -> tuple[Array]:
        half = rfft(g, axis=at, norm=_OPPOSITE[norm])
        # All elements stand for two but the first and, of an even length, the last.
        twice = np.full((half.shape[k], *(1,) * (-at - 1)), 2, kind.name)
        twice[0] = 1
        if size % 2 == 0:
            twice[-1] = 1
        return (_like(half * asarray(twice, device=g.device), x, k),)

    if _is_host(node):
        made = _on_host(np.fft.irfft, node, kind, n=size, axis=at, norm=norm)
    else:
        whole = _along(_mirrored(_complex(node), size, k), size, k, True)
        made = Array(_scaled(build.parts(whole)[0], _factor(norm, True, size)))
    return with_gradient(made, (node,), pull, lambda a: irfft(a, size, at, norm))


def _mirrored(n: Node, size: int, axis: int) -> Node:
    """All `size` elements of the transform of a real array, of its first half."""
    half = _fitted(n, size // 2 + 1, axis)
    behind = size - size // 2 - 1
    if not behind:
        return half
    starts, steps = [0] * len(n.shape), [1] * len(n.shape)
    starts[axis], steps[axis] = behind, -1 if behind > 1 else 1
    sizes = (*half.shape[:axis], behind, *half.shape[axis + 1 :])
    back = build.slices(half, tuple(starts), tuple(steps), sizes)
    return build.concat([half, build.unary("conj", back)], axis)


def hfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform of a signal that is its own mirrored conjugate, of its first half: real, of length `n`."""
    node = _given("hfft", x, norm)
    turned = Array(build.unary("conj", _complex(node)))
    return irfft(turned, n=n, axis=axis, norm=_OPPOSITE[norm])


def ihfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `hfft`: the first n // 2 + 1 elements."""
    made = rfft(x, n=n, axis=axis, norm=_OPPOSITE[norm] if norm in _OPPOSITE else norm)
    return Array(build.unary("conj", made._node))


# ---- several axes


def _axes(name: str, x: Array, s: Sequence[int] | None, axes: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """(the axes, the lengths along them)."""
    ndim = len(node_of(x).shape)
    if axes is None:
        chosen = list(range(ndim)) if s is None else list(range(ndim - len(s), ndim))
    else:
        chosen = [axis_of(k, ndim) for k in axes]
    sizes = [x.shape[k] for k in chosen] if s is None else [int(v) for v in s]
    sizes = [x.shape[k] if v == -1 else v for k, v in zip(chosen, sizes)]
    if len(sizes) != len(chosen) or len(set(chosen)) != len(chosen):
        raise ArrayValueError(f"{name}(s={s}, axes={axes})", hint="a length for each axis, and no axis twice")
    return chosen, sizes


def _several(
    name: str, one: Callable[..., Array], x: Array, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str
) -> Array:
    for k, n in zip(*_axes(name, x, s, axes)):
        x = one(x, n=n, axis=k, norm=norm)
    return x


def fftn(
    x: Array, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Array:
    """The transform along several axes (all where they are left out), cut or filled with zeros to lengths `s`."""
    return _several("fftn", fft, x, s, axes, norm)


def ifftn(
    x: Array, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Array:
    """The inverse of `fftn`."""
    return _several("ifftn", ifft, x, s, axes, norm)


def rfftn(
    x: Array, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Array:
    """The transform of a real array along several axes, half of it along the last."""
    chosen, sizes = _axes("rfftn", x, s, axes)
    _given("rfftn", x, norm, real=True)
    x = rfft(x, n=sizes[-1], axis=chosen[-1], norm=norm)
    return fftn(x, s=sizes[:-1], axes=chosen[:-1], norm=norm) if len(chosen) > 1 else x


def irfftn(
    x: Array, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Array:
    """The inverse of `rfftn`: real."""
    chosen, sizes = _axes("irfftn", x, s, axes)
    if s is None:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if len(chosen) > 1:
        x = ifftn(x, s=sizes[:-1], axes=chosen[:-1], norm=norm)
    return irfft(x, n=sizes[-1], axis=chosen[-1], norm=norm)


def _two(f: Callable[..., Array], name: str) -> Callable[..., Array]:
    def function(
        x: Array, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str = "backward"
    ) -> Array:
        return f(x, s=s, axes=axes, norm=norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"NumPy's `{name}`: `{f.__name__}` along the last two axes."
    return function


fft2, ifft2 = _two(fftn, "fft2"), _two(ifftn, "ifft2")
rfft2, irfft2 = _two(rfftn, "rfft2"), _two(irfftn, "irfft2")


# ---- frequencies


def _frequencies(values: Any, dtype: DTypeLike | None, device: DeviceLike) -> Array:
    kind = dtypes.DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    if not dtypes.is_float(kind):
        raise ArrayTypeError(f"frequencies of {kind}", hint="a real float type")
    return asarray(values, dtype=kind, device=device)


def fftfreq(n: int, /, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
    """The frequencies of a transform of length n of samples `d` apart, in cycles per unit of `d`."""
    return _frequencies(np.fft.fftfreq(_length("fftfreq", n), d), dtype, device)


def rfftfreq(n: int, /, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
    """Return the frequencies of `rfft`'s results, from 0 up."""
    return _frequencies(np.fft.rfftfreq(_length("rfftfreq", n), d), dtype, device)


def fftshift(x: Array, /, axes: int | Sequence[int] | None = None) -> Array:
    """Frequency 0 in the middle of each axis."""
    chosen = axes_of(axes, len(node_of(x).shape))
    return roll(x, tuple(x.shape[k] // 2 for k in chosen), axis=chosen) if chosen else x


def ifftshift(x: Array, /, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`."""
    chosen = axes_of(axes, len(node_of(x).shape))
    return roll(x, tuple(-(x.shape[k] // 2) for k in chosen), axis=chosen) if chosen else x


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, __all__)


__dir__ = listed(__name__)
