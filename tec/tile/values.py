"""Tiles as a kernel's Python sees them: operators, methods and indexing of `tensor`, and what Python values stand beside them."""

from __future__ import annotations

from collections.abc import Sequence
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

    def __add__(self, o: Any) -> Any:
        return current().add(self, o)

    def __radd__(self, o: Any) -> Any:
        return current().add(o, self)

    def __sub__(self, o: Any) -> Any:
        return current().sub(self, o)

    def __rsub__(self, o: Any) -> Any:
        return current().sub(o, self)

    def __mul__(self, o: Any) -> Any:
        return current().arithmetic("mul", self, o)

    def __rmul__(self, o: Any) -> Any:
        return current().arithmetic("mul", o, self)

    def __truediv__(self, o: Any) -> Any:
        return current().divide(self, o)

    def __rtruediv__(self, o: Any) -> Any:
        return current().divide(o, self)

    def __floordiv__(self, o: Any) -> Any:
        return current().floordiv(self, o)

    def __rfloordiv__(self, o: Any) -> Any:
        return current().floordiv(o, self)

    def __mod__(self, o: Any) -> Any:
        return current().mod(self, o)

    def __rmod__(self, o: Any) -> Any:
        return current().mod(o, self)

    def __and__(self, o: Any) -> Any:
        return current().bits("and", self, o)

    def __rand__(self, o: Any) -> Any:
        return current().bits("and", o, self)

    def __or__(self, o: Any) -> Any:
        return current().bits("or", self, o)

    def __ror__(self, o: Any) -> Any:
        return current().bits("or", o, self)

    def __xor__(self, o: Any) -> Any:
        return current().bits("xor", self, o)

    def __rxor__(self, o: Any) -> Any:
        return current().bits("xor", o, self)

    def __lshift__(self, o: Any) -> Any:
        return current().bits("shl", self, o)

    def __rlshift__(self, o: Any) -> Any:
        return current().bits("shl", o, self)

    def __rshift__(self, o: Any) -> Any:
        return current().bits("shr", self, o)

    def __rrshift__(self, o: Any) -> Any:
        return current().bits("shr", o, self)

    def __neg__(self) -> Any:
        return current().negative(self)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return current().invert(self)

    def __lt__(self, o: Any) -> Any:
        return current().compare("lt", self, o)

    def __le__(self, o: Any) -> Any:
        return current().compare("le", self, o)

    def __gt__(self, o: Any) -> Any:
        return current().compare("gt", self, o)

    def __ge__(self, o: Any) -> Any:
        return current().compare("ge", self, o)

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
                    hint="tiles take : and None; tl.gather picks elements, tl.split halves",
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
        """As `to`."""
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
