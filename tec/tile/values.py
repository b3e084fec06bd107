"""Tiles as a kernel's Python sees them: operators, methods and indexing of `tensor`, and what Python values stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import grammar as G
from .builder import current, is_building, plain
from .grammar import TileType


class block_type:
    """What `x.type` of a tile is: `shape`, `scalar`, `element_ty`.

    >>> @tl.jit
    ... def show(out):
    ...     x = tl.arange(0, 4)
    ...     tl.static_print(x.type.is_block(), x.type.scalar)
    >>> out = np.zeros(4, "int32")
    >>> show[(1,)](out)
    True int32
    """

    def __init__(self, ty: TileType):
        self.shape, self.scalar, self.element_ty = ty.shape, ty.dtype, ty.dtype

    def is_block(self) -> bool:
        return True

    def is_ptr(self) -> bool:
        return False

    def get_block_shapes(self) -> tuple[int, ...]:
        """The shape."""
        return self.shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_type) and (self.shape, self.scalar) == (other.shape, other.scalar)

    def __hash__(self) -> int:
        return hash((self.shape, self.scalar))


def sizes(args: Sequence[Any]) -> tuple[int, ...]:
    """A shape of `f(2, 4)` or `f((2, 4))`, with constexprs opened."""
    if len(args) == 1 and not hasattr(plain(args[0]), "__index__"):
        args = tuple(plain(args[0]))
    out = []
    for a in args:
        a = plain(a)
        if isinstance(a, G.Value) or not hasattr(a, "__index__"):
            raise current().error(
                "a shape that is known at run time alone", hint="shapes are constants: make it a tl.constexpr"
            )
        out.append(a.__index__())
    return tuple(out)


_Method = Callable[[Any, Any], Any]


def _operators(word: str, *which: str) -> tuple[_Method, _Method]:
    """An operator of two values by a word of the program's builder, as a method of the left and of the right one."""

    def of_left(self: Any, other: Any) -> Any:
        return getattr(current(), word)(*which, self, other)

    def of_right(self: Any, other: Any) -> Any:
        return getattr(current(), word)(*which, other, self)

    return of_left, of_right


class tensor(G.Value):
    """A tile, or a scalar with the shape (): `dtype`, `shape`, Python's operators, and the methods of Triton's tensors.

    >>> @tl.jit
    ... def show(out):
    ...     x = tl.arange(0, 8)
    ...     tl.static_print(x.dtype, x.shape)
    ...     tl.store(out + x, (x * x).to(tl.int32))
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    int32 (8,)
    >>> out
    array([ 0,  1,  4,  9, 16, 25, 36, 49], dtype=int32)
    """

    __slots__ = ()
    __hash__ = G.Value.__hash__

    @property
    def dtype(self) -> G.dtype:
        """The type of an element."""
        return self.ty.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.ty.shape

    @property
    def numel(self) -> int:
        """Elements in all."""
        return self.ty.size

    @property
    def type(self) -> Any:
        """The type: `dtype` of a scalar, `block_type` of a tile."""
        return block_type(self.ty) if self.ty.shape else self.ty.dtype

    def __bool__(self) -> bool:
        raise current().error(
            f"the truth of {self.ty}, which is known at run time alone", hint="if x: and tl.where(x, a, b) take it"
        )

    def __index__(self) -> int:
        raise current().error(
            "a number that is known at run time alone, where a constant is needed", hint="tl.constexpr"
        )

    # ---- operators

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("arithmetic", "mul")
    __truediv__, __rtruediv__ = _operators("divide")
    __floordiv__, __rfloordiv__ = _operators("floordiv")
    __mod__, __rmod__ = _operators("mod")
    __and__, __rand__ = _operators("bits", "and")
    __or__, __ror__ = _operators("bits", "or")
    __xor__, __rxor__ = _operators("bits", "xor")
    __lshift__, __rlshift__ = _operators("bits", "shl")
    __rshift__, __rrshift__ = _operators("bits", "shr")
    __lt__, __le__, __gt__, __ge__ = (_operators("compare", how)[0] for how in ("lt", "le", "gt", "ge"))

    def __neg__(self) -> Any:
        return current().negative(self)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return current().invert(self)

    def __eq__(self, o: Any) -> Any:
        # Lists of values ask, once the program is read.
        return current().compare("eq", self, o) if is_building() else self is o

    def __ne__(self, o: Any) -> Any:
        return current().compare("ne", self, o) if is_building() else self is not o

    def logical_and(self, o: Any) -> Any:
        """Both are true."""
        return current().logical("and", self, o)

    def logical_or(self, o: Any) -> Any:
        """One at least is true."""
        return current().logical("or", self, o)

    # ---- shape

    def __getitem__(self, item: Any) -> Any:
        """`x[:, None]`: new dimensions of 1."""
        items = item if isinstance(item, tuple) else (item,)
        if any(x is Ellipsis for x in items):
            k = next(i for i, x in enumerate(items) if x is Ellipsis)
            rest = len(self.ty.shape) - sum(isinstance(x, slice) for x in items)
            items = (*items[:k], *[slice(None)] * rest, *items[k + 1 :])
        v: Any = self
        for axis, x in enumerate(items):
            x = plain(x)
            if x is None:
                v = current().expand_dims(v, axis)
            elif not (isinstance(x, slice) and x == slice(None)):
                raise current().error(
                    f"unsupported tensor index: {x!r}",
                    hint="tiles take : and None; tl.gather picks elements, tl.split halves, and tl.load(x + i) reads element i of memory",
                )
        return v

    @property
    def T(self) -> Any:
        """The transpose of a tile of two dimensions."""
        return current().permute(self, (1, 0))

    def to(self, dtype: Any, fp_downcast_rounding: Any = None, bitcast: bool = False) -> Any:
        """Converted to a dtype; `bitcast`: the same bits."""
        return current().cast(self, dtype, bitcast, fp_downcast_rounding)

    def cast(self, dtype: Any, fp_downcast_rounding: Any = None, bitcast: bool = False) -> Any:
        """Convert the elements, as `to` does."""
        return current().cast(self, dtype, bitcast, fp_downcast_rounding)

    def reshape(self, *shape: Any) -> Any:
        """The same elements, row by row, under another shape."""
        return current().reshape(self, sizes(shape))

    view = reshape

    def permute(self, *dims: Any) -> Any:
        """Dimensions in another order."""
        return current().permute(self, sizes(dims))

    trans = permute

    def expand_dims(self, axis: Any) -> Any:
        """A new dimension of 1."""
        return METHODS["expand_dims"](self, axis)

    def broadcast_to(self, *shape: Any) -> Any:
        """Stretched to a shape."""
        return current().broadcast_to(self, sizes(shape))

    def __getattr__(self, name: str) -> Any:
        word = METHODS.get(name)
        if word is None:
            raise AttributeError(f"tiles have no {name}")
        return lambda *args, **named: word(self, *args, **named)


METHODS: dict[str, Any] = {}  # words that are methods too; `language` fills it
