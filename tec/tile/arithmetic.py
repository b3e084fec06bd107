"""Arithmetic on tiles, element by element, and the words of loops. Names and arguments are Triton's.

A tile argument may be a Python number if the other operand decides its type. Every function raises KernelError at the
user's line for operands that do not fit. The examples run as those of `tec.tile.words` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..door import of_tec
from ..errors import ArgumentError
from ..ir.assembly import packed, registers_of
from . import grammar as G
from .builder import current, describe, float32, int1, plain
from .examples import of_places
from .grammar import TileType
from .words import constant


@of_places("tl.add(i, 10)", "10, 11, 12, 13, 14, 15, 16, 17")
def add(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """x + y."""
    return current().add(x, y)


@of_places("tl.sub(i, 10)", "-10,  -9,  -8,  -7,  -6,  -5,  -4,  -3")
def sub(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """x - y."""
    return current().sub(x, y)


@of_places("tl.mul(i, 10)", " 0, 10, 20, 30, 40, 50, 60, 70")
def mul(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """x * y."""
    return current().arithmetic("mul", x, y)


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding.

    >>> @tl.jit
    ... def show(out):
    ...     x = tl.arange(0, 4).to(tl.float32)
    ...     tl.store(out + tl.arange(0, 4), tl.fma(x, x, 0.5))
    >>> out = np.zeros(4, "float32")
    >>> show[(1,)](out)
    >>> out
    array([0.5, 1.5, 4.5, 9.5], dtype=float32)
    """
    b = current()
    x, y = b.pair(x, y)
    z, x = b.pair(z, x)
    x, y, z = b.same_shape(x, b.cast(y, x.ty.dtype), z)
    return b.value("fma", (x, y, z), x.ty)


def inline_asm_elementwise(asm: Any, constraints: Any, args: Any, dtype: Any, is_pure: Any, pack: Any) -> Any:
    """A statement of the GPU's own assembly on the elements of tiles at the same place: $0, $1, ... are its results and then `args`, and `constraints` say in which registers
    they are, as LLVM spells it ("=r,r,r"). A register holds as many elements of fewer than 32 bits as fit, of `pack` that the statement works on. dtype: of the result; a
    tuple of them where there are several. is_pure: the statement does nothing but give its results.

    >>> @tl.jit
    ... def show(a, out):
    ...     x = tl.load(a + tl.arange(0, 4))
    ...     y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    ...     tl.store(out + tl.arange(0, 4), y)
    >>> "tanh.approx.f32" in str(show.ir("*fp32", "*fp32"))
    True
    """
    b = current()
    text, kinds = (str(constant(x, f"the {what} of tl.inline_asm_elementwise")) for x, what in ((asm, "text"), (constraints, "constraints")))  # fmt: skip
    count, pure = constant(pack, "pack"), bool(constant(is_pure, "is_pure"))
    if not isinstance(count, int) or count < 1:
        raise b.error(f"tl.inline_asm_elementwise: pack is {describe(pack)}", hint="it is a whole number from 1 on")
    given = plain(dtype)
    several = isinstance(given, (tuple, list))
    outs = [plain(t) for t in (given if several else [given])]
    xs = [b.of_number(x) for x in args]
    if not outs or any(t.is_ptr() or t == int1 for t in (*outs, *[x.ty.dtype for x in xs])):
        raise b.error("tl.inline_asm_elementwise of pointers or int1", hint="cast to tl.int64 or tl.int32 and back")
    if xs:
        xs = list(b.same_shape(*xs)) if len(xs) > 1 else xs
    _check_registers(kinds, outs, xs, count)
    shape, names = xs[0].ty.shape if xs else (), tuple(t.tec for t in outs)
    made = [
        b.value("assembly", xs, TileType(shape, t), text=text, constraints=kinds, pack=count, outs=names, which=k, pure=pure)
        for k, t in enumerate(outs)
    ]  # fmt: skip
    if not pure:  # once, also where several read it
        made = [b.value("hold", [y], y.ty) for y in made]
    return tuple(made) if several else made[0]


def _check_registers(constraints: str, outs: Sequence[Any], xs: Sequence[Any], pack: int) -> None:
    made, read = map(len, registers_of(constraints)[1:])
    want = [sum(packed(t.primitive_bitwidth, pack)[1] for t in ts) for ts in (outs, [x.ty.dtype for x in xs])]
    if [made, read] != want:
        raise current().error(
            f"tl.inline_asm_elementwise: the constraints {constraints!r} are {made} results and {read} operands; the types, {pack} elements at a time, are {want[0]} and {want[1]}",
            hint='a register for each result ("=r") and each operand ("r"); elements of 16 and 8 bits share registers of 32',
        )


def extremum(fn: str, x: Any, y: Any, propagate_nan: Any) -> Any:
    b = current()
    x, y = b.pair(x, y)
    if x.ty.dtype.tec == "bfloat16":
        return b.cast(extremum(fn, b.cast(x, float32), b.cast(y, float32), propagate_nan), x.ty.dtype)
    nan = x.ty.dtype.is_floating() and getattr(plain(propagate_nan), "name", "NONE") == "ALL"
    return b.binary(fn + "_nan" if nan else fn, x, y)


class PropagateNan:
    """Whether the larger or smaller of a number and NaN is the number (NONE) or NaN (ALL).

    >>> @tl.jit
    ... def show(a, out):
    ...     x = tl.load(a)
    ...     tl.store(out, tl.maximum(x, 1.0))
    ...     tl.store(out + 1, tl.maximum(x, 1.0, tl.PropagateNan.ALL))
    >>> a, out = np.full(1, np.nan, "float32"), np.zeros(2, "float32")
    >>> show[(1,)](a, out)
    >>> out
    array([ 1., nan], dtype=float32)
    """

    class _Mode:
        def __init__(self, name: str):
            self.name = name

    NONE, ALL = _Mode("NONE"), _Mode("ALL")


@of_places("tl.minimum(i, 3)", "0, 1, 2, 3, 3, 3, 3, 3")
def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The smaller of two values. Of a number and NaN it is the number, unless `propagate_nan` is ALL."""
    return extremum("min", x, y, propagate_nan)


@of_places("tl.maximum(i, 3)", "3, 3, 3, 3, 4, 5, 6, 7")
def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The larger of two values. Of a number and NaN it is the number, unless `propagate_nan` is ALL."""
    return extremum("max", x, y, propagate_nan)


@of_places("tl.clamp(i, 2, 5)", "2, 2, 2, 3, 4, 5, 5, 5")
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """x, but at least `min` and at most `max`."""
    return minimum(maximum(x, min, propagate_nan), max, propagate_nan)


def cdiv(x: Any, div: Any) -> Any:
    """x / div, rounded up, for whole numbers that are not negative.

    >>> tl.cdiv(1000, 256)
    4
    """
    x, div = plain(x), plain(div)
    if not isinstance(x, G.Value) and not isinstance(div, G.Value):
        return -(-x // div)
    return (x + (div - 1)) // div


cdiv = of_tec(ArgumentError).checked("cdiv", cdiv)  # programs call it beside kernels, too


@of_places("tl.fdiv(i.to(tl.float32), 4.0)", "0.  , 0.25, 0.5 , 0.75, 1.  , 1.25, 1.5 , 1.75", dtype="float32")
def fdiv(x: Any, y: Any, ieee_rounding: Any = False) -> Any:
    """x / y of floats."""
    return current().divide(x, y)


@of_places("tl.div_rn(i.to(tl.float32), 4.0)", "0.  , 0.25, 0.5 , 0.75, 1.  , 1.25, 1.5 , 1.75", dtype="float32")
def div_rn(x: Any, y: Any) -> Any:
    """x / y of floats, rounded to nearest."""
    return precise(current().divide(x, y))


def precise(v: Any) -> Any:
    """What an op made, marked as one that is not done by a chip's short way."""
    if isinstance(v, G.Value) and v.of is not None:
        v.of.attrs["precise"] = True
    return v


def umulhi(x: Any, y: Any) -> Any:
    """The upper half of the product of two integers, taken as unsigned.

    >>> @tl.jit
    ... def show(out):
    ...     x = tl.full((1,), 1 << 31, tl.uint32)
    ...     tl.store(out + tl.arange(0, 1), tl.umulhi(x, x))
    >>> out = np.zeros(1, "uint32")
    >>> show[(1,)](out)
    >>> out
    array([1073741824], dtype=uint32)
    """
    b = current()
    x, y = b.pair(x, y)
    if not x.ty.dtype.is_int():
        raise b.error(f"tl.umulhi of {x.ty.dtype}", hint="tl.umulhi takes int32, uint32, int64 and uint64")
    return b.binary("mulhi", x, y)


def math_word(name: str, doc: str, of_half_and_two: str = "", fn: str = "", exact: bool = False) -> Any:
    """A function of floats. of_half_and_two: what it gives for 0.5 and 2.0, for the session in its docstring, which tests/docs runs."""

    def word(x: Any) -> Any:
        b = current()
        x = b.of_number(x)
        dt = x.ty.dtype
        if dt.is_int():
            x = b.cast(x, float32)
        elif dt.primitive_bitwidth < 32:
            return b.cast(b.unary(fn or name, b.cast(x, float32)), dt)
        made = b.unary(fn or name, x)
        return precise(made) if exact else made

    word.__name__ = word.__qualname__ = name
    word.__doc__ = doc
    if of_half_and_two:
        word.__doc__ += f"""

    >>> @tl.jit
    ... def show(a, out):
    ...     i = tl.arange(0, 2)
    ...     tl.store(out + i, tl.{name}(tl.load(a + i)))
    >>> a, out = np.float32([0.5, 2.0]), np.zeros(2, "float32")
    >>> show[(1,)](a, out)
    >>> out.round(4)
    array([{of_half_and_two}], dtype=float32)
    """
    return word


exp = math_word("exp", "e to the power of x.", "1.6487, 7.3891")
exp2 = math_word("exp2", "2 to the power of x.", "1.4142, 4.    ")
log = math_word("log", "The natural logarithm of x.", "-0.6931,  0.6931")
log2 = math_word("log2", "The logarithm of x to base 2.", "-1.,  1.")
sin = math_word("sin", "The sine of x, in radians.", "0.4794, 0.9093")
cos = math_word("cos", "The cosine of x, in radians.", " 0.8776, -0.4161")
sqrt = math_word("sqrt", "The square root of x.", "0.7071, 1.4142")
sqrt_rn = math_word("sqrt_rn", "The square root of x, rounded to nearest.", "0.7071, 1.4142", "sqrt")
rsqrt = math_word("rsqrt", "1 / sqrt(x).", "1.4142, 0.7071")
erf = math_word("erf", "The error function of x.", "0.5205, 0.9953")
floor = math_word("floor", "The largest whole number that is at most x.", "0., 2.")
ceil = math_word("ceil", "The smallest whole number that is at least x.", "1., 2.")
tanh = math_word("tanh", "The hyperbolic tangent of x.", "0.4621, 0.964 ")


@of_places("tl.abs(i - 4)", "4, 3, 2, 1, 0, 1, 2, 3")
def abs(x: Any) -> Any:
    """The absolute value of x."""
    x = plain(x)
    if not isinstance(x, G.Value):
        return x if x >= 0 else -x
    return x if x.ty.dtype.is_int_unsigned() else current().unary("abs", x)


@of_places("tl.sigmoid(i.to(tl.float32))", "0.5   , 0.7311", count=2, dtype="float32", decimals=4)
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + exp(-x))


class static_range:
    """A loop that is unrolled: `for i in tl.static_range(4)`. i is a constant.

    >>> @tl.jit
    ... def show(out):
    ...     for i in tl.static_range(4):
    ...         tl.store(out + i, i * i)
    >>> out = np.zeros(4, "int32")
    >>> show[(1,)](out)
    >>> out
    array([0, 1, 4, 9], dtype=int32)
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = 1):
        low, high = (0, arg1) if arg2 is None else (arg1, arg2)
        self.range = (
            constant(low, "a bound of tl.static_range"),
            constant(high, "a bound of tl.static_range"),
            constant(step, "the step of tl.static_range"),
        )


class range:
    """A loop at run time, as Python's range; num_stages: how many turns' loads may be under way.

    >>> @tl.jit
    ... def show(out, n):
    ...     for i in tl.range(0, n, 2):
    ...         tl.store(out + i, 1)
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out, 8)
    >>> out
    array([1, 0, 1, 0, 1, 0, 1, 0], dtype=int32)
    """

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = 1,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = False,
        disable_licm: Any = False,
    ):
        self.low: Any = 0 if arg2 is None else arg1
        self.high: Any = arg1 if arg2 is None else arg2
        self.step, self.num_stages = step, plain(num_stages)


class condition:
    """The condition of a `while`; options are promises about speed.

    >>> @tl.jit
    ... def show(out):
    ...     i = 0
    ...     while tl.condition(i < 3):
    ...         tl.store(out + i, 1)
    ...         i += 1
    >>> out = np.zeros(4, "int32")
    >>> show[(1,)](out)
    >>> out
    array([1, 1, 1, 0], dtype=int32)
    """

    def __init__(self, arg1: Any, disable_licm: Any = False):
        self.value = arg1


def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
    """The new (i, j) for a walk over a grid of size_i x size_j in groups of size_g rows, column by column within a
    group.

    >>> @tl.jit
    ... def show(out):
    ...     i, j = tl.swizzle2d(tl.program_id(0), tl.program_id(1), 4, 2, 2)
    ...     tl.store(out + 2 * tl.program_id(0) + tl.program_id(1), 10 * i + j)
    >>> out = np.zeros((4, 2), "int32")
    >>> show[(4, 2)](out)
    >>> out  # 10 i + j of each program
    array([[ 0, 10],
           [ 1, 11],
           [20, 30],
           [21, 31]], dtype=int32)
    """
    ij = i * size_j + j
    group = size_g * size_j
    g = ij // group
    first = g * size_g
    rows = minimum(size_i - first, size_g)
    at = ij % group
    return first + at % rows, at // rows
