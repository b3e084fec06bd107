"""Tiles of arrays: block pointers, which move, and tensor descriptors, which are asked for a tile at given offsets.

Both are bundles of values: a pointer, sizes, strides (in elements), offsets. `pointers` makes the tile of pointers and the mask of what is inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..records import dataclass
from . import grammar as G
from .access import atomic_word, load, store
from .builder import current, int32, int64, plain, uint32, uint64
from .values import sizes
from .words import arange, constant


@dataclass(frozen=True, slots=True)
class Corner:
    """Of a tile that a descriptor's load brings, with 0 outside of the array: the array, and where in it the tile begins."""

    base: Any
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offsets: tuple[Any, ...]

    def __repr__(self) -> str:
        return "of a descriptor"


def _scalars(values: Any) -> tuple[Any, ...]:
    b = current()
    return tuple(b.of_number(v) for v in plain(values))


def _extents(values: Any) -> tuple[Any, ...]:
    """Sizes of an array that a kernel computed. A negative one, of what is left behind an array's end, is 0: offsets are compared with it as unsigned numbers."""

    def extent(v: Any) -> Any:
        is_count = v.of is not None and v.of.name == "const" and v.of.attrs["value"] >= 0
        return v if is_count else current().arithmetic("max", v, 0)

    return tuple(map(extent, _scalars(values)))


class block_ptr:
    """A tile of an array in memory; see `make_block_ptr`. `flat`/`of` take it apart for loops. `narrow`: offsets have 32 bits."""

    narrow = False

    def __init__(
        self, base: Any, shape: Sequence[Any], strides: Sequence[Any], offsets: Sequence[Any], block: tuple[int, ...]
    ):
        self.base, self.sizes, self.steps, self.offsets, self.block = (
            base,
            tuple(shape),
            tuple(strides),
            tuple(offsets),
            block,
        )

    def flat(self) -> list[Any]:
        """The values in it."""
        return [self.base, *self.sizes, *self.steps, *self.offsets]

    def of(self, values: Sequence[Any]) -> block_ptr:
        """The same form with other values."""
        n = len(self.block)
        v = list(values)
        made = type(self)(v[0], v[1 : 1 + n], v[1 + n : 1 + 2 * n], v[1 + 2 * n :], self.block)
        made.narrow = self.narrow
        return made

    @property
    def strides(self) -> tuple[Any, ...]:
        """Elements from neighbour to neighbour along each dimension."""
        return tuple(current().cast(x, int64) for x in self.steps) if self.narrow else self.steps

    @property
    def type(self) -> Any:
        return self

    @property
    def dtype(self) -> Any:
        """Of the pointer. `.element_ty` is the type of the array's elements, as kernels write it in `x.to(p.dtype.element_ty)`."""
        return self.base.ty.dtype

    @property
    def element_ty(self) -> Any:
        return self.dtype.element_ty

    def pointers(self, checked: Sequence[int]) -> tuple[Any, Any]:
        """The tile of pointers, and the mask of those inside along the dimensions `checked` (None for none)."""
        b, rank = current(), len(self.block)
        start, offset, mask = b.const(0, int64), None, None
        index = int32 if self.narrow else int64
        for d in range(rank):
            along = arange(0, self.block[d])
            for k in range(rank):
                if k != d:
                    along = b.expand_dims(along, k)
            at = self.offsets[d] + along
            # Of 64 bits a sum is found once: the tile's own offsets are the same in each iteration of a loop.
            if not self.narrow:
                start = start + b.cast(self.offsets[d], int64) * b.cast(self.steps[d], int64)
            part = b.cast(at if self.narrow else along, index) * b.cast(self.steps[d], index)
            offset = part if offset is None else offset + part
            if d in {c % rank for c in checked}:
                inside = _inside(at, self.sizes[d])
                mask = inside if mask is None else b.bits("and", mask, inside)
        p = b.moved(self.base if self.narrow else b.moved(self.base, start), offset)
        return p, None if mask is None else b.broadcast_to(mask, p.ty.shape)


def _inside(at: Any, size: Any) -> Any:
    """0 <= at < size, in one comparison of unsigned numbers. The size is not negative."""
    b = current()
    wide = any(v.ty.dtype.primitive_bitwidth > 32 for v in (at, b.of_number(size)))
    signed, unsigned = (int64, uint64) if wide else (int32, uint32)
    return b.cast(b.cast(at, signed), unsigned) < b.cast(b.cast(size, signed), unsigned)


def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_ptr:
    """A pointer to a tile of an array.

    base: a pointer to the first element. shape, strides: of the array; strides in elements. offsets: where the tile
    begins. block_shape: of the tile. order: as in Triton. `tl.load(p, boundary_check=(0, 1))` checks that elements
    lie inside.

    >>> @tl.jit
    ... def show(a, out):
    ...     p = tl.make_block_ptr(a, (4, 4), (4, 1), (1, 2), (2, 2), (1, 0))
    ...     at = 2 * tl.arange(0, 2)[:, None] + tl.arange(0, 2)[None, :]
    ...     tl.store(out + at, tl.load(p))
    >>> a, out = np.arange(16, dtype="int32").reshape(4, 4), np.zeros((2, 2), "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([[ 6,  7],
           [10, 11]], dtype=int32)
    """
    b = current()
    if not isinstance(base, G.Value) or not base.ty.dtype.is_ptr() or base.ty.shape:
        raise b.error(
            "Expected `base` to be a pointer type (but not a block pointer type or others)",
            hint="pass the array itself: tl.make_block_ptr(x, ...)",
        )
    block = b.sized(sizes((block_shape,)))
    parts = [_extents(shape), _scalars(strides), _scalars(offsets)]
    if any(len(p) != len(block) for p in parts):
        raise b.error(
            f"a block pointer of {len(block)} dimensions with {', '.join(str(len(p)) for p in parts)} sizes, strides and offsets",
            hint="one size, stride and offset for each dimension of block_shape",
        )
    return block_ptr(base, parts[0], parts[1], parts[2], block)


def advance(base: block_ptr, offsets: Any) -> block_ptr:
    """A block pointer moved by `offsets` elements along each dimension.

    >>> @tl.jit
    ... def show(a, out):
    ...     p = tl.make_block_ptr(a, (4, 4), (4, 1), (0, 0), (2, 2), (1, 0))
    ...     at = 2 * tl.arange(0, 2)[:, None] + tl.arange(0, 2)[None, :]
    ...     tl.store(out + at, tl.load(tl.advance(p, (2, 0))))
    >>> a, out = np.arange(16, dtype="int32").reshape(4, 4), np.zeros((2, 2), "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([[ 8,  9],
           [12, 13]], dtype=int32)
    """
    by = _scalars(offsets)
    return block_ptr(base.base, base.sizes, base.strides, [x + y for x, y in zip(base.offsets, by)], base.block)


class tensor_descriptor(block_ptr):
    """An array that tiles of one shape are taken from; see `make_tensor_descriptor`.

    >>> @tl.jit
    ... def show(a):
    ...     d = tl.make_tensor_descriptor(a, (4, 4), (4, 1), (2, 2))
    ...     d.store((0, 0), d.load((2, 2)))
    >>> a = np.arange(16, dtype="int32").reshape(4, 4)
    >>> show[(1,)](a)
    >>> a
    array([[10, 11,  2,  3],
           [14, 15,  6,  7],
           [ 8,  9, 10, 11],
           [12, 13, 14, 15]], dtype=int32)
    """

    padding = "zero"

    @property
    def dtype(self) -> Any:
        return self.element_ty

    @property
    def block_shape(self) -> tuple[int, ...]:
        return self.block

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.sizes

    def _at(self, offsets: Any) -> tuple[Any, Any]:
        at = _scalars(offsets)
        if len(at) != len(self.block):
            raise current().error(
                f"expected {len(self.block)} offsets, but got {len(at)}",
                hint="one offset for each dimension of the block",
            )
        made = block_ptr(self.base, self.sizes, self.steps, at, self.block)
        made.narrow = self.narrow
        return made.pointers(range(len(self.block)))

    def load(self, offsets: Any) -> Any:
        """The tile at `offsets`. Elements outside the array are 0."""
        p, m = self._at(offsets)
        made = load(p, m, float("nan") if self.padding == "nan" else 0)
        if self.padding != "nan" and len(self.block) == 2:
            made.of.attrs["corner"] = Corner(self.base, self.sizes, self.steps, _scalars(offsets))
        return made

    def store(self, offsets: Any, value: Any) -> None:
        """Write a tile at `offsets`. Elements outside the array are left out."""
        p, m = self._at(offsets)
        store(p, current().reshape(value, self.block), m)

    def _rows(self, x_offsets: Any, y_offset: Any) -> tuple[Any, Any]:
        b = current()
        n = self.block[-1]
        rows = b.expand_dims(x_offsets, 1)
        columns = b.expand_dims(arange(0, n), 0) + y_offset
        at = b.cast(rows, int64) * b.cast(self.steps[0], int64) + b.cast(columns, int64) * b.cast(self.steps[1], int64)
        inside = b.bits(
            "and", b.bits("and", rows >= 0, rows < self.sizes[0]), b.bits("and", columns >= 0, columns < self.sizes[1])
        )
        p = b.moved(self.base, at)
        return p, b.broadcast_to(inside, p.ty.shape)

    def gather(self, x_offsets: Any, y_offset: Any) -> Any:
        """The rows `x_offsets`, from column `y_offset` on."""
        p, m = self._rows(x_offsets, y_offset)
        return load(p, m, 0)

    def scatter(self, value: Any, x_offsets: Any, y_offset: Any) -> None:
        """Write rows `x_offsets`, from column `y_offset` on."""
        p, m = self._rows(x_offsets, y_offset)
        store(p, value, m)


def _descriptor_atomic(fn: str) -> Any:
    word = atomic_word(fn)

    def method(self: tensor_descriptor, offsets: Any, value: Any) -> None:
        p, m = self._at(offsets)
        word(p, value, m)

    method.__doc__ = f"Atomic {fn} of a tile at `offsets`; what is outside of the array is left out."
    return method


for _fn in ("add", "min", "max", "and", "or", "xor"):
    setattr(tensor_descriptor, f"atomic_{_fn}", _descriptor_atomic(_fn))


def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero"
) -> tensor_descriptor:
    """An array from which `load` and `store` take tiles at offsets.

    base: a pointer to the first element. shape, strides: of the array; strides in elements, the last is 1.
    block_shape: of the tiles. padding_option: as of `load`.

    >>> @tl.jit
    ... def show(a, out):
    ...     d = tl.make_tensor_descriptor(a, (4, 4), (4, 1), (2, 2))
    ...     at = 2 * tl.arange(0, 2)[:, None] + tl.arange(0, 2)[None, :]
    ...     tl.store(out + at, d.load((1, 2)))
    >>> a, out = np.arange(16, dtype="int32").reshape(4, 4), np.zeros((2, 2), "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([[ 6,  7],
           [10, 11]], dtype=int32)
    """
    b = current()
    block = b.sized(sizes((block_shape,)))
    if len(plain(strides)) != len(block) or len(plain(shape)) != len(block):
        raise b.error(
            f"Expected {len(block)} strides but got {len(plain(strides))}",
            hint="one stride for each dimension of the block",
        )
    if constant(plain(strides)[-1], "the last stride of a tensor descriptor") != 1:
        raise b.error("Tensor descriptor last dim must be 1", hint="rows are contiguous: strides=[n, 1]")
    made = tensor_descriptor(base, _extents(shape), _scalars(strides), (), block)
    made.padding = plain(padding_option)
    return made


def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any) -> Any:
    """Load a block, as `desc.load` does.

    >>> @tl.jit
    ... def show(a, out):
    ...     d = tl.make_tensor_descriptor(a, (4, 4), (4, 1), (2, 2))
    ...     at = 2 * tl.arange(0, 2)[:, None] + tl.arange(0, 2)[None, :]
    ...     tl.store(out + at, tl.load_tensor_descriptor(d, (1, 2)))
    >>> a, out = np.arange(16, dtype="int32").reshape(4, 4), np.zeros((2, 2), "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([[ 6,  7],
           [10, 11]], dtype=int32)
    """
    return desc.load(offsets)


def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: Any) -> None:
    """Store a block, as `desc.store` does.

    >>> @tl.jit
    ... def show(out):
    ...     d = tl.make_tensor_descriptor(out, (2, 4), (4, 1), (2, 2))
    ...     tl.store_tensor_descriptor(d, (0, 2), tl.full((2, 2), 7, tl.int32))
    >>> out = np.zeros((2, 4), "int32")
    >>> show[(1,)](out)
    >>> out
    array([[0, 0, 7, 7],
           [0, 0, 7, 7]], dtype=int32)
    """
    desc.store(offsets, value)
