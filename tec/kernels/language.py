"""What a kernel may name besides Python's own names: launch indices, memory, barriers, atomics, wavefront operations.

The functions here have no bodies. `tec.kernels.words` defines what each means inside a kernel, and outside a kernel
they raise. The signatures and docstrings are the reference. The examples are launched on NumPy arrays, which is the
CPU, where a wavefront has 32 lanes.
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
    """Numbers `.x`, `.y`, `.z` of a launch: `tec.thread_idx` is the thread in its block, `tec.block_idx` the block in the grid,
    `tec.block_dim` the threads of a block (constants), `tec.grid_dim` the blocks of the grid."""

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
    """The position of the thread in the whole grid: an int for ndim 1, otherwise a tuple of `ndim` (2 or 3) ints.

    With `[grid, block]` x comes first. With `kernel.launch((m, n))` the indices have the order of the extents given
    there, of which the last is x.

    >>> @tec.kernel
    ... def show(out):
    ...     i = tec.grid_idx(1)
    ...     out[i] = i
    >>> out = np.zeros(6, "int32")
    >>> show[3, 2](out)
    >>> out
    array([0, 1, 2, 3, 4, 5], dtype=int32)
    """
    _outside("grid_idx")


@_word
def grid_size(ndim: int) -> Any:
    """The number of threads of the whole grid along each dimension, in the order of `grid_idx`.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.grid_idx(1)] = tec.grid_size(1)
    >>> out = np.zeros(6, "int32")
    >>> show[3, 2](out)
    >>> out
    array([6, 6, 6, 6, 6, 6], dtype=int32)
    """
    _outside("grid_size")


# ---- memory


@_word
def shared(shape: Any, dtype: Any) -> Any:
    """An array that the threads of a block share. Its contents are undefined at first.

    shape: constants (closure variables, `tec.block_dim.x`), or None for as many elements as fit the bytes that the
    launch gives: `kernel[grid, block, stream, shared_bytes]`. dtype: of an element.

    >>> @tec.kernel
    ... def show(out):
    ...     i, s = tec.thread_idx.x, tec.shared((4,), "int32")
    ...     s[i] = i
    ...     tec.barrier()
    ...     out[i] = s[3 - i]
    >>> out = np.zeros(4, "int32")
    >>> show[1, 4](out)
    >>> out
    array([3, 2, 1, 0], dtype=int32)
    """
    _outside("shared")


@_word
def local(shape: Any, dtype: Any) -> Any:
    """An array of the thread, of constant shape. It lies in registers if its indices are constants. Its contents are
    undefined at first.

    >>> @tec.kernel
    ... def show(out):
    ...     last = tec.local((2,), "int32")
    ...     last[0], last[1] = 10, tec.thread_idx.x
    ...     out[tec.thread_idx.x] = last[0] + last[1]
    >>> out = np.zeros(4, "int32")
    >>> show[1, 4](out)
    >>> out
    array([10, 11, 12, 13], dtype=int32)
    """
    _outside("local")


@_word
def barrier() -> None:
    """Waits for all threads of the block. After it they see what any of them wrote before, in shared and in global
    memory.

    >>> @tec.kernel
    ... def show(out):
    ...     i, s = tec.thread_idx.x, tec.shared((4,), "int32")
    ...     s[i] = 10 * i
    ...     tec.barrier()  # without it, s[3 - i] may not be written yet
    ...     out[i] = s[3 - i]
    >>> out = np.zeros(4, "int32")
    >>> show[1, 4](out)
    >>> out
    array([30, 20, 10,  0], dtype=int32)
    """
    _outside("barrier")


@_word
def wave_barrier() -> None:
    """After it, the lanes of a wavefront see what any of them wrote before.

    >>> @tec.kernel
    ... def show(out):
    ...     i, s = tec.lane(), tec.shared((32,), "int32")
    ...     s[i] = i
    ...     tec.wave_barrier()
    ...     out[i] = s[31 - i]
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4]
    array([31, 30, 29, 28], dtype=int32)
    """
    _outside("wave_barrier")


@_word
def fence(scope: str = "device") -> None:
    """Orders memory without waiting for other threads: what the thread wrote before it is seen by others before what it writes
    behind it, and what it reads behind it is as new. An atomic before or behind it tells the other side.

    scope: "block", "device" or "system" (the host and other devices too).

    >>> @tec.kernel
    ... def show(out):
    ...     i = tec.thread_idx.x
    ...     out[i] = i
    ...     tec.fence()  # the last thread to arrive sees all of out[0:4]
    ...     if tec.atomic_add(out, 4, 1) == 3:
    ...         out[5] = out[0] + out[1] + out[2] + out[3]
    >>> out = np.zeros(6, "int32")
    >>> show[1, 4](out)
    >>> out
    array([0, 1, 2, 3, 4, 6], dtype=int32)
    """
    _outside("fence")


@_word
def vload(array: Any, index: Any, lanes: int) -> Any:
    """A vector of `lanes` (2, 4, 8, 16) neighbours along the last dimension, beginning at `array[index]`. It is one
    access if the address is aligned.

    `v[k]` is one lane. Arithmetic works lane by lane.

    >>> @tec.kernel
    ... def show(a, out):
    ...     v = tec.vload(a, 4 * tec.thread_idx.x, 4)
    ...     out[tec.thread_idx.x] = v[0] + v[3]
    >>> a, out = np.arange(8, dtype="int32"), np.zeros(2, "int32")
    >>> show[1, 2](a, out)
    >>> out
    array([ 3, 11], dtype=int32)
    """
    _outside("vload")


@_word
def vstore(array: Any, index: Any, vector: Any) -> None:
    """Stores a vector to neighbours along the last dimension, beginning at `array[index]`.

    >>> @tec.kernel
    ... def show(out):
    ...     i = tec.thread_idx.x
    ...     tec.vstore(out, 2 * i, tec.vector(i, -i))
    >>> out = np.zeros(6, "int32")
    >>> show[1, 3](out)
    >>> out
    array([ 0,  0,  1, -1,  2, -2], dtype=int32)
    """
    _outside("vstore")


@_word
def vector(*lanes: Any) -> Any:
    """A vector of these numbers, of their common type.

    >>> @tec.kernel
    ... def show(out):
    ...     v = tec.vector(1, 2) * 10
    ...     out[0], out[1] = v[0], v[1]
    >>> out = np.zeros(2, "int32")
    >>> show[1, 1](out)
    >>> out
    array([10, 20], dtype=int32)
    """
    _outside("vector")


# ---- atomics: the old value; device scope for global memory, the block's for shared


@_word
def atomic_add(array: Any, index: Any, value: Any) -> Any:
    """`array[index] += value` as one step. Returns the old value. `index` is a tuple for several dimensions. Nothing
    is said about the order of accesses to other memory.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_add(out, 0, 1)
    >>> out = np.zeros(1, "int32")
    >>> show[1, 4](out)
    >>> out
    array([4], dtype=int32)
    """
    _outside("atomic_add")


@_word
def atomic_sub(array: Any, index: Any, value: Any) -> Any:
    """`array[index] -= value` as one step. Returns the old value.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_sub(out, 0, 1)
    >>> out = np.zeros(1, "int32")
    >>> show[1, 4](out)
    >>> out
    array([-4], dtype=int32)
    """
    _outside("atomic_sub")


@_word
def atomic_min(array: Any, index: Any, value: Any) -> Any:
    """Stores the smaller of both. Returns the old value. NaN is never stored if the other is a number.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_min(out, 0, tec.thread_idx.x - 2)
    >>> out = np.zeros(1, "int32")
    >>> show[1, 4](out)
    >>> out
    array([-2], dtype=int32)
    """
    _outside("atomic_min")


@_word
def atomic_max(array: Any, index: Any, value: Any) -> Any:
    """Stores the greater of both. Returns the old value. NaN is never stored if the other is a number.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_max(out, 0, tec.thread_idx.x)
    >>> out = np.zeros(1, "int32")
    >>> show[1, 4](out)
    >>> out
    array([3], dtype=int32)
    """
    _outside("atomic_max")


@_word
def atomic_and(array: Any, index: Any, value: Any) -> Any:
    """`array[index] &= value` as one step. Returns the old value.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_and(out, 0, ~(1 << tec.thread_idx.x))
    >>> out = np.full(1, 255, "int32")
    >>> show[1, 4](out)
    >>> out
    array([240], dtype=int32)
    """
    _outside("atomic_and")


@_word
def atomic_or(array: Any, index: Any, value: Any) -> Any:
    """`array[index] |= value` as one step. Returns the old value.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_or(out, 0, 1 << tec.thread_idx.x)
    >>> out = np.zeros(1, "int32")
    >>> show[1, 4](out)
    >>> out
    array([15], dtype=int32)
    """
    _outside("atomic_or")


@_word
def atomic_xor(array: Any, index: Any, value: Any) -> Any:
    """`array[index] ^= value` as one step. Returns the old value.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_xor(out, 0, tec.thread_idx.x)
    >>> out = np.zeros(1, "int32")
    >>> show[1, 4](out)
    >>> out
    array([0], dtype=int32)
    """
    _outside("atomic_xor")


@_word
def atomic_exchange(array: Any, index: Any, value: Any) -> Any:
    """Stores `value`. Returns the old value.

    >>> @tec.kernel
    ... def show(out):
    ...     old = tec.atomic_exchange(out, 0, 7)
    ...     out[1] = old
    >>> out = np.array([5, 0], "int32")
    >>> show[1, 1](out)
    >>> out
    array([7, 5], dtype=int32)
    """
    _outside("atomic_exchange")


@_word
def atomic_cas(array: Any, index: Any, expected: Any, desired: Any) -> Any:
    """Stores `desired` if the element is `expected`. Returns the old value.

    >>> @tec.kernel
    ... def show(out):
    ...     tec.atomic_cas(out, 0, 5, 7)
    ...     tec.atomic_cas(out, 1, 5, 7)
    >>> out = np.array([5, 6], "int32")
    >>> show[1, 1](out)
    >>> out
    array([7, 6], dtype=int32)
    """
    _outside("atomic_cas")


# ---- the wavefront


@_word
def wave_size() -> int:
    """The number of lanes of a wavefront, a constant of the target: 64 or 32 on AMD, 32 on NVIDIA and on a CPU.

    >>> @tec.kernel
    ... def show(out):
    ...     out[0] = tec.wave_size()
    >>> out = np.zeros(1, "int32")
    >>> show[1, 32](out)
    >>> int(out[0])
    32
    """
    _outside("wave_size")


@_word
def lane() -> Any:
    """The lane of the thread in its wavefront.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.thread_idx.x] = tec.lane()
    >>> out = np.zeros(64, "int32")
    >>> show[1, 64](out)
    >>> out[30:34]
    array([30, 31,  0,  1], dtype=int32)
    """
    _outside("lane")


@_word
def shuffle(value: Any, lane: Any, width: Any = None) -> Any:
    """The value of another lane among those of `width`, a power of two, by default the wavefront. All lanes must
    arrive here.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.shuffle(tec.lane(), 3, 4)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:8]
    array([3, 3, 3, 3, 7, 7, 7, 7], dtype=int32)
    """
    _outside("shuffle")


@_word
def shuffle_up(value: Any, delta: Any, width: Any = None) -> Any:
    """The value of the lane `delta` below. The lowest lanes keep their own.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.shuffle_up(tec.lane(), 1)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4]
    array([0, 0, 1, 2], dtype=int32)
    """
    _outside("shuffle_up")


@_word
def shuffle_down(value: Any, delta: Any, width: Any = None) -> Any:
    """The value of the lane `delta` above. The highest lanes keep their own.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.shuffle_down(tec.lane(), 2)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4], out[28:]
    (array([2, 3, 4, 5], dtype=int32), array([30, 31, 30, 31], dtype=int32))
    """
    _outside("shuffle_down")


@_word
def shuffle_xor(value: Any, mask: Any, width: Any = None) -> Any:
    """The value of the lane whose number differs in the bits of `mask`.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.shuffle_xor(tec.lane(), 1)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4]
    array([1, 0, 3, 2], dtype=int32)
    """
    _outside("shuffle_xor")


@_word
def ballot(condition: Any) -> Any:
    """A uint64 with one bit for each lane that arrives here with a true condition.

    >>> @tec.kernel
    ... def show(out):
    ...     out[0] = tec.ballot(tec.lane() < 3)
    >>> out = np.zeros(1, "uint64")
    >>> show[1, 32](out)
    >>> bin(out[0])
    '0b111'
    """
    _outside("ballot")


@_word
def lanemask_lt() -> Any:
    """A uint64 with one bit for each lane below this one: `tec.popcount(tec.ballot(c) & tec.lanemask_lt())` is this lane's
    place among those that vote.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.lanemask_lt()
    >>> out = np.zeros(32, "uint64")
    >>> show[1, 32](out)
    >>> [bin(x) for x in out[:3]]
    ['0b0', '0b1', '0b11']
    """
    _outside("lanemask_lt")


@_word
def wave_any(condition: Any) -> Any:
    """Whether the condition holds for a lane that arrives here.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.wave_any(tec.lane() == 5)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4]
    array([1, 1, 1, 1], dtype=int32)
    """
    _outside("wave_any")


@_word
def wave_all(condition: Any) -> Any:
    """Whether the condition holds for all lanes that arrive here.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.wave_all(tec.lane() == 5)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4]
    array([0, 0, 0, 0], dtype=int32)
    """
    _outside("wave_all")


@_word
def wave_reduce(value: Any, op: str = "add", width: Any = None) -> Any:
    """The sum or other combination of the values of all lanes, or of each group of `width` lanes, in every lane.

    op: "add", "min", "max", "and", "or" or "xor". All lanes of a full wavefront must arrive here.

    >>> @tec.kernel
    ... def show(out):
    ...     i = tec.lane()
    ...     out[i] = tec.wave_reduce(i, "max", 4)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:8]
    array([3, 3, 3, 3, 7, 7, 7, 7], dtype=int32)
    """
    _outside("wave_reduce")


@_word
def wave_scan(value: Any, op: str = "add", exclusive: bool = False) -> Any:
    """The combination of the values of all lanes up to this one; `exclusive`: without its own, 0 (or what changes nothing) in the first lane.

    op: "add", "mul", "min", "max", "and", "or" or "xor". All lanes of a full wavefront must arrive here.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.wave_scan(1, exclusive=True)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4]
    array([0, 1, 2, 3], dtype=int32)
    """
    _outside("wave_scan")


@_word
def match_any(value: Any) -> Any:
    """A uint64 with one bit for each lane that arrives here with the same bits in `value`.

    >>> @tec.kernel
    ... def show(out):
    ...     i = tec.lane()
    ...     out[i] = tec.match_any(i // 2)
    >>> out = np.zeros(32, "uint64")
    >>> show[1, 32](out)
    >>> [bin(x) for x in out[:4]]
    ['0b11', '0b11', '0b1100', '0b1100']
    """
    _outside("match_any")


@_word
def match_all(value: Any) -> Any:
    """Whether all lanes of the wavefront have the same value; all must arrive here.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.lane()] = tec.match_all(tec.lane() // 32)
    >>> out = np.zeros(32, "int32")
    >>> show[1, 32](out)
    >>> out[:4]
    array([1, 1, 1, 1], dtype=int32)
    """
    _outside("match_all")


# ---- the block


@_word
def block_reduce(value: Any, op: str = "add") -> Any:
    """The sum or other combination of the values of all threads of the block, in every thread, in the same order each time.

    op: "add", "mul", "min", "max", "and", "or" or "xor". All threads of the block must arrive here; it is a barrier.

    >>> @tec.kernel
    ... def show(out):
    ...     i = tec.thread_idx.x
    ...     out[i] = tec.block_reduce(i)
    >>> out = np.zeros(64, "int32")
    >>> show[1, 64](out)
    >>> out[:2], out[62:]
    (array([2016, 2016], dtype=int32), array([2016, 2016], dtype=int32))
    """
    _outside("block_reduce")


@_word
def block_scan(value: Any, op: str = "add", exclusive: bool = False) -> Any:
    """The combination of the values of all threads of the block up to this one, x first; `exclusive`: without its own.

    op: as for `block_reduce`. All threads of the block must arrive here; it is a barrier.

    >>> @tec.kernel
    ... def show(out):
    ...     out[tec.thread_idx.x] = tec.block_scan(2)
    >>> out = np.zeros(64, "int32")
    >>> show[1, 64](out)
    >>> out[:2], out[62:]
    (array([2, 4], dtype=int32), array([126, 128], dtype=int32))
    """
    _outside("block_scan")


# ---- compilation


@_word
def static_range(*bounds: int) -> Any:
    """Like `range` of constants, with the loop written out. Its variable is a constant in each copy of the body.

    >>> @tec.kernel
    ... def show(out):
    ...     for n in tec.static_range(3):
    ...         out[n] = n * n
    >>> out = np.zeros(3, "int32")
    >>> show[1, 1](out)
    >>> out
    array([0, 1, 4], dtype=int32)
    """
    _outside("static_range")


@_word
def unrolled(*bounds: Any) -> Any:
    """Like `range`, with the loop unrolled.

    >>> @tec.kernel
    ... def show(out):
    ...     for n in tec.unrolled(3):
    ...         out[n] = 2 * n
    >>> out = np.zeros(3, "int32")
    >>> show[1, 1](out)
    >>> out
    array([0, 2, 4], dtype=int32)
    """
    _outside("unrolled")


def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up, of whole numbers, b > 0: as many blocks of b as cover a. In kernels and outside.

    >>> tec.cdiv(1000, 256)
    4
    """
    return -(-a // b)


NAMES = ("thread_idx", "block_idx", "block_dim", "grid_dim", *WORDS.values())
