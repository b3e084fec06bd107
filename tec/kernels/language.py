"""What a kernel may name beside Python's own words: launch indices, memory, barriers, atomics, operations of a wavefront.

The functions here have no bodies: inside of a kernel `tec.kernels.words` says what each is, outside of one they raise. The
signatures and docstrings are the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import KernelError


def _outside(name: str) -> NoReturn:
    raise KernelError(
        f"tec.{name} has a meaning inside of a kernel alone",
        hint="put it in a function under @tec.kernel and launch that: f[grid, block](...)",
    )


class Index3:
    """Three launch numbers: `.x`, `.y`, `.z`."""

    __slots__ = ("name", "tag")

    def __init__(self, name: str, tag: str):
        self.name, self.tag = name, tag

    def __repr__(self) -> str:
        return f"tec.{self.name}"

    @property
    def x(self) -> Any:
        """Along the first dimension, in which neighbours are neighbours in a wavefront."""
        return _outside(self.name)

    @property
    def y(self) -> Any:
        """Along the second dimension."""
        return _outside(self.name)

    @property
    def z(self) -> Any:
        """Along the third dimension."""
        return _outside(self.name)


thread_idx = Index3("thread_idx", "threadIdx")  # the thread in its block
block_idx = Index3("block_idx", "blockIdx")  # the block in the grid
block_dim = Index3("block_dim", "blockDim")  # threads of a block: constants, as the kernel is compiled for them
grid_dim = Index3("grid_dim", "gridDim")  # blocks of the grid

WORDS: dict[Any, str] = {}  # function -> its name here


def _word(f: Callable[..., Any]) -> Callable[..., Any]:
    WORDS[f] = f.__name__
    return f


# ---- the launch


@_word
def grid_idx(ndim: int) -> Any:
    """The thread's place in the whole grid: an index, or a tuple of `ndim` (2, 3). Under `[grid, block]` x comes first; under
    `kernel.launch((m, n))` the indices are in the order of the extents given there, of which the last is x."""
    _outside("grid_idx")


@_word
def grid_size(ndim: int) -> Any:
    """Threads of the whole grid along each dimension, in the order of `grid_idx`."""
    _outside("grid_size")


# ---- memory


@_word
def shared(shape: Any, dtype: Any) -> Any:
    """An array that the threads of a block share. `shape`: constants (closure variables, `tec.block_dim.x`), or None for as many
    elements as fit the bytes that the launch gives: `kernel[grid, block, stream, shared_bytes]`. Its contents are undefined at first."""
    _outside("shared")


@_word
def local(shape: Any, dtype: Any) -> Any:
    """An array of the thread's own, of constant shape: registers where its indices are constants. Undefined at first."""
    _outside("local")


@_word
def barrier() -> None:
    """All threads of the block meet, and see what any of them wrote before, in shared and in global memory."""
    _outside("barrier")


@_word
def wave_barrier() -> None:
    """The lanes of a wavefront see what any of them wrote before."""
    _outside("wave_barrier")


@_word
def vload(array: Any, index: Any, lanes: int) -> Any:
    """A vector of `lanes` (2, 4, 8, 16) neighbours along the last dimension, from `array[index]` on; one access where it is aligned.
    `v[k]` is a lane of it, arithmetic goes lane by lane."""
    _outside("vload")


@_word
def vstore(array: Any, index: Any, vector: Any) -> None:
    """Stores a vector to neighbours along the last dimension, from `array[index]` on."""
    _outside("vstore")


@_word
def vector(*lanes: Any) -> Any:
    """A vector of these numbers, of their common type."""
    _outside("vector")


# ---- atomics: the old value; device scope for global memory, the block's for shared


@_word
def atomic_add(array: Any, index: Any, value: Any) -> Any:
    """`array[index] += value` as one step; gives the old value. `index` is a tuple for several dimensions. No order is implied for
    other memory."""
    _outside("atomic_add")


@_word
def atomic_sub(array: Any, index: Any, value: Any) -> Any:
    """`array[index] -= value` as one step; gives the old value."""
    _outside("atomic_sub")


@_word
def atomic_min(array: Any, index: Any, value: Any) -> Any:
    """The smaller of both stays; gives the old value. A NaN loses."""
    _outside("atomic_min")


@_word
def atomic_max(array: Any, index: Any, value: Any) -> Any:
    """The greater of both stays; gives the old value. A NaN loses."""
    _outside("atomic_max")


@_word
def atomic_and(array: Any, index: Any, value: Any) -> Any:
    """`array[index] &= value` as one step; gives the old value."""
    _outside("atomic_and")


@_word
def atomic_or(array: Any, index: Any, value: Any) -> Any:
    """`array[index] |= value` as one step; gives the old value."""
    _outside("atomic_or")


@_word
def atomic_xor(array: Any, index: Any, value: Any) -> Any:
    """`array[index] ^= value` as one step; gives the old value."""
    _outside("atomic_xor")


@_word
def atomic_exchange(array: Any, index: Any, value: Any) -> Any:
    """Puts `value` in place; gives the old value."""
    _outside("atomic_exchange")


@_word
def atomic_cas(array: Any, index: Any, expected: Any, desired: Any) -> Any:
    """Puts `desired` in place where `expected` stands; gives the old value."""
    _outside("atomic_cas")


# ---- the wavefront


@_word
def wave_size() -> int:
    """Lanes of a wavefront, a constant of the target: 64 or 32 on AMD, 32 on NVIDIA and on a CPU."""
    _outside("wave_size")


@_word
def lane() -> Any:
    """The thread's lane in its wavefront."""
    _outside("lane")


@_word
def shuffle(value: Any, lane: Any, width: Any = None) -> Any:
    """The value of another lane, of those of `width` (a power of two, by default the wavefront). All lanes must come here."""
    _outside("shuffle")


@_word
def shuffle_up(value: Any, delta: Any, width: Any = None) -> Any:
    """The value of the lane `delta` below; the lowest keep their own."""
    _outside("shuffle_up")


@_word
def shuffle_down(value: Any, delta: Any, width: Any = None) -> Any:
    """The value of the lane `delta` above; the highest keep their own."""
    _outside("shuffle_down")


@_word
def shuffle_xor(value: Any, mask: Any, width: Any = None) -> Any:
    """The value of the lane whose number differs in the bits of `mask`."""
    _outside("shuffle_xor")


@_word
def ballot(condition: Any) -> Any:
    """A uint64 with a bit for each lane that is here with a true condition."""
    _outside("ballot")


@_word
def wave_any(condition: Any) -> Any:
    """Whether the condition holds for a lane that is here."""
    _outside("wave_any")


@_word
def wave_all(condition: Any) -> Any:
    """Whether the condition holds for all lanes that are here."""
    _outside("wave_all")


@_word
def wave_reduce(value: Any, op: str = "add", width: Any = None) -> Any:
    """ "add", "min", "max", "and", "or" or "xor" of the values of all lanes (of each group of `width`), in every lane. All lanes of
    a full wavefront must come here."""
    _outside("wave_reduce")


# ---- compilation


@_word
def static_range(*bounds: int) -> Any:
    """As `range` of constants, with the loop written out: its variable is a constant in each copy of the body."""
    _outside("static_range")


@_word
def unrolled(*bounds: Any) -> Any:
    """As `range`, with the loop unrolled."""
    _outside("unrolled")


NAMES = ("thread_idx", "block_idx", "block_dim", "grid_dim", *WORDS.values())
