"""Ops of a tile program, made one after the other: types, promotion and broadcasting as Triton has them, and errors in tile terms.

One builder is current while a kernel is read (`current()`); the words of `language` and the operators of tiles go through it.
Promotion: a Python number takes the tile's type unless its kind is higher (bool, int, float); then the wider float wins (fp16 of fp16
and bf16), a float wins over integers, and of integers the wider, unsigned where both are as wide.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import KernelError, Loc, kind_of
from . import grammar as G
from .assigned import is_assigned, number_type, written
from .grammar import DTYPES, Block, Op, TileType, dtype

int1, int32, int64, uint32, uint64 = (DTYPES[n] for n in ("int1", "int32", "int64", "uint32", "uint64"))
float16, bfloat16, float32, float64 = (DTYPES[n] for n in ("float16", "bfloat16", "float32", "float64"))

MAX_ELEMENTS = 1 << 20  # of a tile, as Triton has it: a larger one is in no machine's registers
_LOCAL = threading.local()


def current() -> Builder:
    """The builder of the kernel that is being read. Raises KernelError outside of one."""
    found: Builder | None = getattr(_LOCAL, "builder", None)
    if found is None:
        raise KernelError("a word of tec.tile outside of a kernel", hint="use it in a function under @tec.tile.jit")
    return found


def is_building() -> bool:
    """Whether a kernel is being read."""
    return getattr(_LOCAL, "builder", None) is not None


@contextmanager
def building(b: Builder) -> Iterator[Builder]:
    """Make `b` the current builder."""
    before = getattr(_LOCAL, "builder", None)
    _LOCAL.builder = b
    try:
        yield b
    finally:
        _LOCAL.builder = before


class constexpr:
    """A value that is known when the kernel is compiled; as an annotation, a parameter that is.

    >>> @tl.jit
    ... def show(out, BLOCK: tl.constexpr):
    ...     tl.store(out + tl.arange(0, BLOCK), BLOCK)
    >>> out = np.zeros(4, "int32")
    >>> show[(1,)](out, BLOCK=4)
    >>> out
    array([4, 4, 4, 4], dtype=int32)
    """

    def __init__(self, value: Any):
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, constexpr) else other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


def plain(v: Any) -> Any:
    """A value without its `constexpr` around."""
    return v.value if isinstance(v, constexpr) else v


class Builder:
    """Makes ops in the block on top. `make`: the class of values; `where()`: the line that is being read."""

    def __init__(self, make: Callable[[TileType, Op | None], Any], where: Callable[[], Loc | None]):
        self.make, self.where = make, where
        self.blocks: list[Block] = [Block()]
        self.trace: Callable[[str], str] = lambda message: message
        self.options: dict[str, Any] = {}

    # ---- the ground

    def error(self, message: str, hint: str | None = None) -> KernelError:
        return KernelError(self.trace(message), where=self.where(), hint=hint, locate=False)

    @contextmanager
    def block(self, args: Sequence[TileType] = ()) -> Iterator[Block]:
        """A block that ops go into."""
        b = Block([self.make(t, None) for t in args])
        self.blocks.append(b)
        try:
            yield b
        finally:
            self.blocks.pop()

    def op(
        self, name: str, operands: Sequence[Any], types: Sequence[TileType], blocks: Sequence[Block] = (), **attrs: Any
    ) -> Op:
        """An op at the end of the block."""
        made = Op(name, tuple(operands), attrs, self.where(), (), tuple(blocks))
        made.results = tuple(self.make(t, made) for t in types)
        self.blocks[-1].ops.append(made)
        return made

    def value(self, name: str, operands: Sequence[Any], ty: TileType, **attrs: Any) -> Any:
        """The one result of an op."""
        return self.op(name, operands, [ty], **attrs).results[0]

    # ---- numbers

    def const(self, value: Any, dt: dtype) -> Any:
        """A scalar constant."""
        return self.value("const", (), TileType((), dt), value=value)

    def of_number(self, v: Any) -> Any:
        """A Python number as a scalar: int1, int32 (or the narrowest that holds it), fp32."""
        v = written(plain(v))
        if isinstance(v, G.Value):
            return v
        if isinstance(v, (int, float)):
            t = number_type(v)
            if t is None:
                raise self.error(f"{v} is beyond 64 bits", hint="numbers have at most 64 bits")
            return self.const(v, t)
        if hasattr(v, "__index__"):
            return self.of_number(v.__index__())
        raise self.error(f"{describe(v)} where a tile or a number is needed", hint="tl.full(shape, v, dtype)")

    def promoted(self, a: dtype, b: dtype, divides: bool = False) -> dtype:
        """The type of both."""
        for t in (float64, float32):
            if t in (a, b):
                return t
        if float16 in (a, b):
            return float32 if divides else float16
        if bfloat16 in (a, b):
            return bfloat16 if a == b and not divides else float32
        if a.is_fp8() or b.is_fp8():
            return a if a == b else float16
        if divides and a.kind != b.kind and "bool" not in (a.kind, b.kind):
            raise self.error(
                f"Cannot use / or % on {a} and {b} because they have different signedness",
                hint="one is signed and one is not: convert one with .to()",
            )
        if a.kind == b.kind or "bool" in (a.kind, b.kind):
            return a if a.primitive_bitwidth >= b.primitive_bitwidth else b
        unsigned, signed = (a, b) if a.kind == "uint" else (b, a)
        return unsigned if unsigned.primitive_bitwidth >= signed.primitive_bitwidth else signed

    def _typed(self, number: Any, other: dtype, divides: bool) -> tuple[dtype, bool]:
        """The type that a Python number takes beside a tile of a type, and whether it is the tile's."""
        level = {"bool": 0, "int": 1, "uint": 1, "float": 2}
        mine = 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2
        if other.is_ptr():
            return int32, False
        if mine <= level[other.kind] and not is_assigned(number):
            t = float32 if divides and other in (float16, bfloat16) else other
            return t, True
        return self.of_number(number).ty.dtype, False

    def pair(self, a: Any, b: Any, divides: bool = False, arithmetic: bool = True) -> tuple[Any, Any]:
        """Two operands of one type and shape."""
        a, b = plain(a), plain(b)
        a_number, b_number = not isinstance(a, G.Value), not isinstance(b, G.Value)
        if a_number != b_number and arithmetic:
            number, tile = (a, b) if a_number else (b, a)
            if not isinstance(number, (int, float)) and hasattr(number, "__index__"):
                number = number.__index__()
            if not isinstance(number, (int, float)):
                raise self.error(f"{describe(number)} beside a tile {tile.ty}", hint="numbers stand beside tiles")
            t, taken = self._typed(number, tile.ty.dtype, divides)
            if taken:
                self._fits(number, t)
                made = self.const(float(number) if t.is_floating() else number, t)
                tile = self.cast(tile, t)
            else:
                made = self.of_number(number)
            a, b = (made, tile) if a_number else (tile, made)
        a, b = self.of_number(a), self.of_number(b)
        if arithmetic:
            for x in (a, b):
                if x.ty.dtype.is_ptr():
                    raise self.error(f"arithmetic on a pointer ({x.ty})", hint="pointer + integer moves it")
            t = self.promoted(a.ty.dtype, b.ty.dtype, divides)
            a, b = self.cast(a, t), self.cast(b, t)
        return self.same_shape(a, b)

    def _fits(self, n: Any, t: dtype) -> None:
        if t.is_int() and not t.is_bool():
            bits = t.primitive_bitwidth
            low, high = (0, 2**bits) if t.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
            if not low <= n < high:
                raise self.error(
                    f"scalar {n} is out of range for type {t}",
                    hint=f"convert the tile to a wider type, or write tl.cast({n}, tl.{t})",
                )

    # ---- shapes

    def same_shape(self, *values: Any) -> tuple[Any, ...]:
        """Values broadcast to one shape."""
        shape: tuple[int, ...] = ()
        for v in values:
            shape = self.joint(shape, v.ty.shape)
        return tuple(self.broadcast_to(v, shape) for v in values)

    def joint(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that two broadcast to. Raises KernelError."""
        if len(a) < len(b):
            a = (1,) * (len(b) - len(a)) + a
        b = (1,) * (len(a) - len(b)) + b
        out = []
        for k, (x, y) in enumerate(zip(a, b)):
            if x != y and 1 not in (x, y):
                raise self.error(
                    f"tiles of shapes {list(a)} and {list(b)} do not broadcast: {x} and {y} elements along dimension {k}",
                    hint="a dimension of 1 stretches: x[:, None], x[None, :]",
                )
            out.append(max(x, y))
        return tuple(out)

    def broadcast_to(self, v: Any, shape: Sequence[int]) -> Any:
        shape = tuple(shape)
        v = self.of_number(v)
        if v.ty.shape == shape:
            return v
        self.sized(shape)
        t = TileType(shape, v.ty.dtype)
        if not v.ty.shape:
            return self.value("splat", (v,), t)
        while len(v.ty.shape) < len(shape):
            v = self.expand_dims(v, 0)
        if len(v.ty.shape) > len(shape) or any(x not in (1, y) for x, y in zip(v.ty.shape, shape)):
            raise self.error(
                f"a tile of shape {list(v.ty.shape)} does not broadcast to {list(shape)}", hint="sides are equal or 1"
            )
        return self.value("broadcast", (v,), t)

    def sized(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A checked shape. Raises KernelError for what is no tile."""
        n = 1
        for s in shape:
            if not isinstance(s, int) or s < 1 or s & (s - 1):
                raise self.error(
                    f"a tile of shape {list(shape)}: {describe(s)} is no power of two",
                    hint="take the next power of two (tl.next_power_of_2, tec.tile.next_power_of_2) and a mask",
                )
            n *= s
        if n > MAX_ELEMENTS:
            raise self.error(
                f"a tile of {n:,} elements, and {MAX_ELEMENTS:,} is the most", hint="loop over smaller tiles"
            )
        return tuple(shape)

    def expand_dims(self, v: Any, axis: int) -> Any:
        shape = list(v.ty.shape)
        shape.insert(axis, 1)
        if not v.ty.shape:
            return self.broadcast_to(v, shape)
        return self.value("expand_dims", (v,), TileType(tuple(shape), v.ty.dtype), axis=axis)

    def reshape(self, v: Any, shape: Sequence[int]) -> Any:
        t = TileType(self.sized(tuple(shape)), v.ty.dtype)
        if t.size != v.ty.size:
            raise self.error(
                f"a tile of shape {list(v.ty.shape)} reshaped to {list(shape)}: {v.ty.size} and {t.size} elements",
                hint="give a shape of as many elements",
            )
        if t.shape == v.ty.shape:
            return v
        return self.value("splat", (v,), t) if not v.ty.shape else self.value("reshape", (v,), t)

    def permute(self, v: Any, order: Sequence[int]) -> Any:
        rank = len(v.ty.shape)
        order = [int(plain(d)) % max(rank, 1) for d in order]
        if sorted(order) != list(range(rank)):
            raise self.error(f"a tile of {rank} dimensions in the order {list(order)}", hint="each dimension once")
        return self.value(
            "permute", (v,), TileType(tuple(v.ty.shape[d] for d in order), v.ty.dtype), order=tuple(order)
        )

    def axis(self, v: Any, axis: Any, what: str) -> int:
        """A dimension of a tile, counted from 0. Raises KernelError."""
        axis, rank = plain(axis), len(v.ty.shape)
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise self.error(f"{what} over axis {axis} of a tile of shape {list(v.ty.shape)}")
        return axis % rank

    # ---- arithmetic

    def unary(self, fn: str, v: Any, dt: dtype | None = None) -> Any:
        v = self.of_number(v)
        return self.value("unary", (v,), TileType(v.ty.shape, dt or v.ty.dtype), fn=fn)

    def binary(self, fn: str, a: Any, b: Any, dt: dtype | None = None, **attrs: Any) -> Any:
        return self.value("binary", (a, b), TileType(a.ty.shape, dt or a.ty.dtype), fn=fn, **attrs)

    def arithmetic(self, fn: str, a: Any, b: Any) -> Any:
        """add, sub, mul, min, max and so on of two operands."""
        a, b = self.pair(a, b)
        if fn in ("add", "sub", "mul") and a.ty.dtype.is_bool():
            fn = {"add": "xor", "sub": "xor", "mul": "and"}[fn]
        return self.binary(fn, a, b)

    def add(self, a: Any, b: Any) -> Any:
        a, b = plain(a), plain(b)
        if isinstance(b, G.Value) and b.ty.dtype.is_ptr():
            a, b = b, a
        if isinstance(a, G.Value) and a.ty.dtype.is_ptr():
            return self.moved(a, b)
        return self.arithmetic("add", a, b)

    def moved(self, p: Any, by: Any) -> Any:
        """A pointer so many elements on."""
        by = self.of_number(by)
        if by.ty.dtype.is_ptr() or not by.ty.dtype.is_int():
            raise self.error(f"a pointer {p.ty} moved by {by.ty}", hint="a pointer moves by whole elements")
        p, by = self.same_shape(p, by)
        return self.value("addptr", (p, by), p.ty)

    def sub(self, a: Any, b: Any) -> Any:
        a = plain(a)
        if isinstance(a, G.Value) and a.ty.dtype.is_ptr():
            return self.moved(a, self.negative(b))
        return self.arithmetic("sub", a, b)

    def negative(self, v: Any) -> Any:
        v = plain(v)
        if not isinstance(v, G.Value):
            return -v
        if v.ty.dtype.is_ptr():
            raise self.error(f"the negative of a pointer ({v.ty})", hint="load what it points to: -tl.load(p)")
        return self.unary("neg", v)

    def divide(self, a: Any, b: Any) -> Any:
        """`/`: of floats; integers become fp32."""
        a, b = plain(a), plain(b)
        tiles = isinstance(a, G.Value) and isinstance(b, G.Value)
        a, b = (
            self.of_number(x) if not isinstance(x, G.Value) and isinstance(y, G.Value) and y.ty.dtype.is_int() else x
            for x, y in ((a, b), (b, a))
        )
        kinds = [x.ty.dtype for x in (a, b) if isinstance(x, G.Value)]
        if all(k.is_int() for k in kinds):
            if tiles:
                self.promoted(kinds[0], kinds[-1], divides=True)  # raises for a mix of signs
            a, b = (self.cast(x, float32) if isinstance(x, G.Value) else float(x) for x in (a, b))
        else:
            float_type = next(k for k in kinds if k.is_floating())
            a, b = (self.cast(x, float_type) if isinstance(x, G.Value) and x.ty.dtype.is_int() else x for x in (a, b))
        a, b = self.pair(a, b, divides=True)
        return self.binary("div", a, b)

    def floordiv(self, a: Any, b: Any) -> Any:
        """`//`: of integers, toward zero as in C."""
        a, b = self.pair(a, b, divides=True)
        if not a.ty.dtype.is_int():
            raise self.error(f"// of {a.ty.dtype}", hint="tl.floor(a / b)")
        return self.binary("idiv", a, b)

    def mod(self, a: Any, b: Any) -> Any:
        """`%`: what is left of `//`; of floats as C's fmod."""
        a, b = self.pair(a, b, divides=True)
        return self.binary("fmod" if a.ty.dtype.is_floating() else "imod", a, b)

    def bits(self, fn: str, a: Any, b: Any) -> Any:
        """and, or, xor, shl, shr: of integers."""
        before = [describe_type(plain(x)) for x in (a, b)]
        signed = isinstance(plain(a), G.Value) and plain(a).ty.dtype.is_int_signed()
        a, b = self.pair(a, b)
        if not a.ty.dtype.is_int():
            raise self.error(
                f"invalid operands of type {before[0]} and {before[1]} for a bit operation",
                hint="x.to(tl.int32, bitcast=True) takes a float's bits",
            )
        if fn in ("shl", "shr") and a.ty.dtype.is_bool():
            a, b = self.cast(a, int32), self.cast(b, int32)
        if fn == "shr" and signed and a.ty.dtype.kind == "uint":  # the sign of what is shifted says what comes in
            t, wide = DTYPES[f"int{a.ty.dtype.primitive_bitwidth}"], a.ty.dtype
            return self.cast(self.binary(fn, self.cast(a, t), self.cast(b, t)), wide)
        return self.binary(fn, a, b)

    def compare(self, fn: str, a: Any, b: Any) -> Any:
        a, b = plain(a), plain(b)
        pointers = [isinstance(x, G.Value) and x.ty.dtype.is_ptr() for x in (a, b)]
        if any(pointers):
            pointer, other = (a, b) if pointers[0] else (b, a)
            if not all(pointers) and not (isinstance(other, int) and other == 0):
                raise self.error(
                    f"{describe(other)} compared with a pointer ({pointer.ty})",
                    hint="pass a size as a number: an array among the arguments is a pointer to its first element",
                )
            a, b = self.same_shape(*(self.cast(self.of_number(x), int64) for x in (a, b)))
        else:
            if isinstance(a, (int, float)) or isinstance(b, (int, float)):
                a, b = self._comparable(a, b)
            a, b = self.pair(a, b)
        return self.binary(fn, a, b, int1)

    def _comparable(self, a: Any, b: Any) -> tuple[Any, Any]:
        """A number that the tile's type does not hold is compared in a wider one."""
        for number, tile, order in ((a, b, 1), (b, a, -1)):
            if (
                isinstance(number, int)
                and isinstance(tile, G.Value)
                and tile.ty.dtype.is_int()
                and not tile.ty.dtype.is_bool()
            ):
                bits, signed = tile.ty.dtype.primitive_bitwidth, tile.ty.dtype.is_int_signed()
                low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
                if not low <= number < high:
                    wide = self.of_number(number)
                    return (wide, tile) if order == 1 else (tile, wide)
        return a, b

    def logical(self, fn: str, a: Any, b: Any) -> Any:
        """`and`, `or` of truths."""
        a, b = self.same_shape(self.truth(a), self.truth(b))
        return self.binary(fn, a, b)

    def truth(self, v: Any) -> Any:
        v = self.of_number(v)
        return v if v.ty.dtype.is_bool() else self.compare("ne", v, 0)

    def invert(self, v: Any) -> Any:
        v = self.of_number(v)
        if not v.ty.dtype.is_int():
            raise self.error(f"~ of {v.ty.dtype}", hint="~ is of integers: x.to(tl.int32, bitcast=True)")
        return self.unary("not", v)

    def select(self, c: Any, a: Any, b: Any) -> Any:
        c = self.of_number(c)
        if not c.ty.dtype.is_bool():
            c = self.truth(c)
        pointers = [plain(x) for x in (a, b) if isinstance(x, G.Value) and x.ty.dtype.is_ptr()]
        a, b = self.pair(a, b, arithmetic=not pointers)
        c, a, b = self.same_shape(c, a, b)
        return self.value("select", (c, a, b), a.ty)

    def cast(self, v: Any, to: Any, bitcast: bool = False, rounding: str | None = None) -> Any:
        v, to, bitcast = self.of_number(v), plain(to), plain(bitcast)
        if not isinstance(to, dtype):
            raise self.error(f"a conversion to {describe(to)}, no type of numbers", hint="tl.float32")
        have = v.ty.dtype
        if have == to or (have.is_ptr() and to.is_ptr() and have.tec == to.tec and _same_elements(have, to)):
            return v
        if bitcast and not have.is_ptr() and not to.is_ptr() and have.primitive_bitwidth != to.primitive_bitwidth:
            raise self.error(f"the bits of {have} as {to}: {have.primitive_bitwidth} and {to.primitive_bitwidth}")
        if to.is_ptr() and not have.is_ptr() and have.primitive_bitwidth != 64:
            raise self.error(f"{have} as a pointer", hint="an address has 64 bits: tl.int64")
        if have.is_ptr() and to.is_bool():
            return self.compare("ne", v, 0)
        if have.is_ptr() and not to.is_ptr() and not (to.is_int() and to.primitive_bitwidth == 64):
            raise self.error(f"a pointer as {to}", hint="an address has 64 bits: tl.int64")
        if v.of is not None and v.of.name == "const" and not (bitcast or to.is_ptr() or to.is_bool() or to.is_fp8()):
            value = v.of.attrs["value"]
            if to.is_floating() and (to != bfloat16 or value in (0, 1)):
                return self.const(float(value), to)
            if to.is_int() and isinstance(value, int) and -128 <= value < 128 and (value >= 0 or to.is_int_signed()):
                return self.const(int(value), to)
        if have.is_floating() and to.is_int() and not to.is_bool() and to.primitive_bitwidth < 32 and not bitcast:
            # Kernels rely on what Triton's AMD code does: 32 bits are made, and the low ones kept (-1.0 is 255 of uint8).
            v = self.cast(v, uint32 if to.kind == "uint" and to.primitive_bitwidth == 16 else int32)
        return self.value("cast", (v,), TileType(v.ty.shape, to), bitcast=bool(bitcast))


def _same_elements(a: Any, b: Any) -> bool:
    return bool(a.element_ty == b.element_ty)


def describe_type(v: Any) -> str:
    """The type of a value in words."""
    return str(v.ty.dtype) if isinstance(v, G.Value) else type(v).__name__


def describe(v: Any) -> str:
    """A value in words, for messages."""
    if isinstance(v, G.Value):
        return f"a tile {v.ty}" if v.ty.shape else f"a number of type {v.ty}"
    if isinstance(v, (int, float, str, tuple, type(None))):
        return repr(v)
    return f"{kind_of(v)}"
