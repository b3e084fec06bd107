"""Functions that access memory, multiply tiles, and print or check. Names and arguments are Triton's."""

from __future__ import annotations

from math import prod
from typing import Any

from . import grammar as G
from .builder import current, describe, float32, int32, plain
from .grammar import TileType, dtype
from .words import constant, zeros


def _pointer(p: Any, what: str) -> Any:
    if not isinstance(p, G.Value) or not p.ty.dtype.is_ptr():
        raise current().error(f"{what} of {describe(p)}, no pointer", hint="it takes an array argument plus offsets")
    return p


def _masked(p: Any, mask: Any, what: str) -> tuple[Any, Any]:
    """Pointer and mask of one shape. Raises KernelError where the mask is no truth or larger than the pointer."""
    b = current()
    if plain(mask) is None:
        return p, None
    m = b.of_number(mask)
    if not m.ty.dtype.is_bool():
        m = b.truth(m)
    if m.ty.shape and not p.ty.shape:
        raise b.error(
            f"{what}: Mask argument cannot be block type if pointer argument is not a block",
            hint="make the pointer a tile: p + tl.arange(0, n)",
        )
    return p, b.broadcast_to(m, p.ty.shape) if b.joint(m.ty.shape, p.ty.shape) == p.ty.shape else _both(p, m)


def _both(p: Any, m: Any) -> Any:
    raise current().error(
        f"a mask of shape {list(m.ty.shape)} for pointers of shape {list(p.ty.shape)}",
        hint="a mask has the pointers' shape, or one that broadcasts to it: mask=(rows < m)[:, None] & (columns < n)[None, :]",
    )


def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    volatile: Any = False,
) -> Any:
    """The values at a pointer, a tile of pointers, or a block pointer; of the shape of `pointer`.

    mask: a tile of bools; where it is false nothing is read. other: the value of such elements, 0 by default.
    boundary_check: of a block pointer, the dimensions to check. padding_option: "zero" or "nan" for elements outside.

    >>> @tl.jit
    ... def show(a, out, n):
    ...     i = tl.arange(0, 8)
    ...     tl.store(out + i, tl.load(a + i, mask=i < n, other=-1))
    >>> a, out = np.arange(5, dtype="int32"), np.zeros(8, "int32")
    >>> show[(1,)](a, out, 5)
    >>> out
    array([ 0,  1,  2,  3,  4, -1, -1, -1], dtype=int32)
    """
    b, pointer = current(), plain(pointer)
    if hasattr(pointer, "pointers"):
        if plain(mask) is not None or plain(other) is not None:
            raise b.error(
                "`mask` and `other` arguments cannot be specified for loading block pointers",
                hint="boundary_check=(0, 1)",
            )
        p, m = pointer.pointers([constant(d, "boundary_check") for d in plain(boundary_check)])
        pad = plain(padding_option)
        return load(p, m, float("nan") if pad == "nan" and m is not None else 0 if m is not None else None)
    p = _pointer(pointer, "tl.load")
    if plain(other) is not None and plain(mask) is None:
        raise b.error(
            "`other` cannot be provided without `mask`", hint="give mask= as well: other stands where the mask is False"
        )
    shape = p.ty.shape if plain(mask) is None else b.joint(p.ty.shape, b.of_number(mask).ty.shape) if p.ty.shape else ()
    if shape != p.ty.shape:
        p = b.broadcast_to(p, shape)
    p, m = _masked(p, mask, "tl.load")
    element = p.ty.dtype.element_ty
    operands = [p] if m is None else [p, m]
    if m is not None and plain(other) is not None:
        operands.append(b.broadcast_to(b.cast(b.of_number(other), element), p.ty.shape))
    return b.value("load", operands, TileType(p.ty.shape, element))


def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Any = "",
    eviction_policy: Any = "",
) -> None:
    """Write a value, converted to the pointer's type, where `mask` holds. Arguments are as of `load`.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 8)
    ...     tl.store(out + i, 1, mask=i < 5)
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    >>> out
    array([1, 1, 1, 1, 1, 0, 0, 0], dtype=int32)
    """
    b, pointer = current(), plain(pointer)
    if hasattr(pointer, "pointers"):
        if plain(mask) is not None:
            raise b.error(
                "`mask` and `other` arguments cannot be specified for loading block pointers",
                hint="boundary_check=(0, 1)",
            )
        p, m = pointer.pointers([constant(d, "boundary_check") for d in plain(boundary_check)])
        return store(p, value, m)
    p = _pointer(pointer, "tl.store")
    v = b.of_number(value)
    if not p.ty.shape:
        if v.ty.shape:
            raise b.error(
                "Value argument cannot be block type if pointer argument is not a block", hint=f"the value is {v.ty}"
            )
        if plain(mask) is not None and b.of_number(mask).ty.shape:
            raise b.error(
                "Mask argument cannot be block type if pointer argument is not a block",
                hint="make the pointer a tile: p + tl.arange(0, n)",
            )
    else:
        p = b.broadcast_to(p, b.joint(p.ty.shape, v.ty.shape))
    v = b.cast(b.broadcast_to(v, p.ty.shape), p.ty.dtype.element_ty)
    p, m = _masked(p, mask, "tl.store")
    b.op("store", [p, v] if m is None else [p, v, m], [])
    return None


_ORDERS = {"acquire": "acquire", "release": "release", "acq_rel": "acq_rel", "relaxed": "monotonic"}


def _order(sem: Any) -> str:
    """LLVM's name of the order that an atomic operation asks for."""
    asked = plain(sem) or "acq_rel"
    if asked not in _ORDERS:
        raise current().error(f"Memory semantic {asked} not supported", hint=f"one of {', '.join(_ORDERS)}")
    return _ORDERS[asked]


def atomic_word(fn: str, doc: str = "", of_4_and_6: str = "") -> Any:
    """An atomic operation. of_4_and_6: what it leaves of 4 and 6 with 1 and 3, for the session in its docstring, which tests/docs runs."""

    def word(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any:
        b = current()
        p = _pointer(pointer, f"tl.atomic_{fn}")
        element = p.ty.dtype.element_ty
        if element.primitive_bitwidth < 16 or element.is_bool():
            raise b.error(f"atomic_{fn} does not support {element}", hint="atomics take 16, 32 and 64 bits")
        if element.is_floating() and fn in ("and", "or", "xor"):
            raise b.error(
                f"atomic_{fn} does not support {element}",
                hint="tl.atomic_add takes floats; and, or and xor take integers",
            )
        v = b.of_number(val)
        p = b.broadcast_to(p, b.joint(p.ty.shape, v.ty.shape)) if p.ty.shape else p
        v = b.cast(b.broadcast_to(v, p.ty.shape), element)
        p, m = _masked(p, mask, f"tl.atomic_{fn}")
        return b.value(
            "atomic", [p, v] if m is None else [p, v, m], TileType(p.ty.shape, element), fn=fn, order=_order(sem)
        )

    word.__name__ = word.__qualname__ = f"atomic_{fn}"
    word.__doc__ = f"""{doc} Returns what stood there before. Other programs see it at once, and what was stored before it.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 2)
    ...     tl.atomic_{fn}(out + i, 1 + 2 * i)
    >>> out = np.int32([4, 6])
    >>> show[(1,)](out)
    >>> out
    array([{of_4_and_6}], dtype=int32)
    """
    return word


atomic_add = atomic_word("add", "Add to what stands at a pointer.", "5, 9")
atomic_max = atomic_word("max", "The larger of what stands at a pointer and a value, stored there.", "4, 6")
atomic_min = atomic_word("min", "The smaller of what stands at a pointer and a value, stored there.", "1, 3")
atomic_and = atomic_word("and", "The bits that are set in both.", "0, 2")
atomic_or = atomic_word("or", "The bits that are set in one.", "5, 7")
atomic_xor = atomic_word("xor", "The bits that are set in one and not in the other.", "5, 5")
atomic_xchg = atomic_word("xchg", "Store a value.", "1, 3")


def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> Any:
    """Store `val` where `cmp` is the present value. Returns the old value.

    >>> @tl.jit
    ... def show(out):
    ...     tl.atomic_cas(out, 0, 5)
    ...     tl.atomic_cas(out + 1, 1, 5)
    >>> out = np.zeros(2, "int32")
    >>> show[(1,)](out)
    >>> out
    array([5, 0], dtype=int32)
    """
    b = current()
    p = _pointer(pointer, "tl.atomic_cas")
    element = p.ty.dtype.element_ty
    if element.primitive_bitwidth not in (16, 32, 64):
        raise b.error(
            "atomic_cas only supports elements with width {16, 32, 64}",
            hint="use an int32 or int64 array, or a float one of 32 bits",
        )
    c, v = (b.cast(b.broadcast_to(x, p.ty.shape), element) for x in (cmp, val))
    return b.value("atomic_cas", (p, c, v), TileType(p.ty.shape, element), order=_order(sem))


# ---- products


def _check_shapes(b: Any, x: Any, y: Any) -> None:
    """KernelError where two values are no tiles of which there is a product."""
    for v, name in ((x, "first"), (y, "second")):
        if not isinstance(v, G.Value) or len(v.ty.shape) < 2:
            raise b.error(
                f"tl.dot: Both inputs must be either 2D or 3D; the {name} is {describe(v)}",
                hint="x[:, None] gives a tile one dimension more",
            )
    if len(x.ty.shape) != len(y.ty.shape) or x.ty.shape[-1] != y.ty.shape[-2] or x.ty.shape[:-2] != y.ty.shape[:-2]:
        raise b.error(
            f"tl.dot of tiles {list(x.ty.shape)} and {list(y.ty.shape)}: First input shape and second input shape are not compatible for matmul "
            "(second index of first shape must be equal to first index of second shape)",
            hint="(M, K) and (K, N): tl.trans(b) turns (N, K)",
        )


def dot(
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = float32,
) -> Any:
    """acc + input @ other, of tiles (M, K) and (K, N), or both with a batch dimension in front. Sums are fp32, or
    int32 for int8. out_dtype: fp16 rounds them.

    >>> @tl.jit
    ... def show(a, out):
    ...     i = tl.arange(0, 16)
    ...     at = 16 * i[:, None] + i[None, :]
    ...     x = tl.load(a + at)
    ...     tl.store(out + at, tl.dot(x, x))
    >>> a, out = np.full((16, 16), 0.5, "float16"), np.zeros((16, 16), "float32")
    >>> show[(1,)](a, out)
    >>> out[0, :4]
    array([4., 4., 4., 4.], dtype=float32)
    """
    b, out = current(), plain(out_dtype)
    x, y = input, other
    _check_shapes(b, x, y)
    outer = x.ty.shape[:-2]
    if len(outer) > 1:  # several dimensions of products are one
        x, y = (b.reshape(v, (prod(outer), *v.ty.shape[-2:])) for v in (x, y))
        sums = None if plain(acc) is None else b.reshape(acc, (prod(outer), *acc.ty.shape[-2:]))
        made = dot(x, y, sums, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)
        return b.reshape(made, (*outer, *made.ty.shape[-2:]))
    a_type, b_type = x.ty.dtype, y.ty.dtype
    if a_type != b_type and not (a_type.is_fp8() and b_type.is_fp8()):
        raise b.error(f"Both operands must be same dtype. Got {a_type} and {b_type}", hint="convert one with .to()")
    if a_type.is_int() and a_type.primitive_bitwidth != 8:
        raise b.error(f"tl.dot of {a_type}", hint="integers have 8 bits there: .to(tl.int8)")
    total = int32 if a_type.is_int() else a_type if a_type.is_fp64() else float32
    out = total if total in (int32,) or a_type.is_fp64() else out
    shape = (*x.ty.shape[:-1], y.ty.shape[-1])
    if plain(acc) is None:
        start = zeros(shape, total)
    else:
        if acc.ty.shape != shape:
            raise b.error(
                f"tl.dot: a sum of shape {list(acc.ty.shape)} for a product of shape {list(shape)}",
                hint="acc has the rows of a and the columns of b",
            )
        out = acc.ty.dtype
        start = b.cast(acc, total)
    precision = plain(input_precision) or ("tf32" if plain(allow_tf32) is not False else "ieee")
    made = b.value("dot", (x, y, start), TileType(shape, total), precision=precision)
    return b.cast(made, out if isinstance(out, dtype) else float32)


# ---- what is said while compiling, and to the user


def static_assert(cond: Any, msg: Any = "") -> None:
    """Stop compiling if the condition, a constant, does not hold.

    >>> @tl.jit
    ... def show(out, BLOCK: tl.constexpr):
    ...     tl.static_assert(BLOCK >= 4, "blocks are too small")
    ...     tl.store(out + tl.arange(0, BLOCK), 1)
    >>> out = np.zeros(4, "int32")
    >>> show[(1,)](out, BLOCK=4)
    >>> out
    array([1, 1, 1, 1], dtype=int32)
    """
    if not constant(cond, "the condition of tl.static_assert"):
        raise current().error(f"tl.static_assert failed{': ' * bool(plain(msg))}{plain(msg) or ''}")


def static_print(*values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:
    """Print while compiling.

    >>> @tl.jit
    ... def show(out, BLOCK: tl.constexpr):
    ...     tl.static_print("BLOCK is", BLOCK)
    ...     tl.store(out + tl.arange(0, BLOCK), 1)
    >>> out = np.zeros(4, "int32")
    >>> show[(1,)](out, BLOCK=4)
    BLOCK is 4
    >>> out
    array([1, 1, 1, 1], dtype=int32)
    """
    print(*(plain(v) for v in values), sep=plain(sep), end=plain(end))


def device_print(prefix: Any, *args: Any, hex: Any = False) -> None:
    """Print numbers and tiles while the kernel runs: one line per element, with the index of the program.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.program_id(0)
    ...     tl.device_print("i is", i)
    ...     tl.store(out + i, i)
    >>> out = np.zeros(2, "int32")
    >>> show[(2,)](out)
    program (0, 0, 0) i is 0
    program (1, 0, 0) i is 1
    >>> out
    array([0, 1], dtype=int32)
    """
    b = current()
    b.op("print", [b.of_number(a) for a in args], [], prefix=str(plain(prefix)), hex=bool(plain(hex)))


def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Stop with an error if a condition does not hold in some element. It is on if TEC_DEBUG or TRITON_DEBUG is 1, or
    with debug=True.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.program_id(0)
    ...     tl.device_assert(i < 2, "one program too many")
    ...     tl.store(out + i, 1)
    >>> out = np.zeros(2, "int32")
    >>> show[(2,)](out)
    >>> out
    array([1, 1], dtype=int32)
    """
    b = current()
    if not b.options.get("debug"):
        return
    c = b.truth(cond)
    if plain(mask) is not None:
        c, m = b.same_shape(c, b.truth(mask))
        c = b.logical("or", c, b.invert(m))
    b.op("assert", [c], [], message=str(plain(msg)))


def assume(cond: Any) -> None:
    """A condition that the author promises. It is not checked. The compiler uses x % n == 0, x > 0 and x >= 0.

    >>> @tl.jit
    ... def show(out, n):
    ...     tl.assume(n % 4 == 0)
    ...     i = tl.arange(0, 4)
    ...     tl.store(out + n + i, i)
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out, 4)
    >>> out
    array([0, 0, 0, 0, 0, 1, 2, 3], dtype=int32)
    """
    c = plain(cond)
    op = c.of if isinstance(c, G.Value) else None
    if op is None or op.name != "binary":
        return
    x, y = op.operands
    if y.of is None or y.of.name != "const" or x.ty.shape:
        return
    n, fn = y.of.attrs["value"], op.attrs["fn"]
    if (fn == "gt" and n >= -1) or (fn == "ge" and n >= 0):
        _promise(x, "positive", ())
    rest = x.of if fn == "eq" and n == 0 else None
    if rest is not None and rest.name == "binary" and rest.attrs["fn"] == "imod":
        by = rest.operands[1].of
        if by is not None and by.name == "const" and by.attrs["value"] > 0:
            _promise(rest.operands[0], "divisibility", by.attrs["value"])


def _promise(x: Any, what: str, values: Any) -> Any:
    """What the author says of a value; the value."""
    x = plain(x)
    if isinstance(x, G.Value) and (x.ty.dtype.is_int() or x.ty.dtype.is_ptr()):
        values = plain(values)
        given = tuple(plain(v) for v in (values if isinstance(values, (tuple, list)) else (values,)))
        if not all(isinstance(v, int) and v > 0 for v in given):
            raise current().error(f"a promise of {describe(values)}", hint="whole numbers of at least 1")
        current().op("promise", [x], [], what=what, values=given)
    return x


def multiple_of(input: Any, values: Any) -> Any:
    """A promise: the first element of each run of neighbours is a multiple of this number. One number per dimension.

    >>> @tl.jit
    ... def show(out, n):
    ...     at = tl.multiple_of(n, 4)
    ...     i = tl.arange(0, 4)
    ...     tl.store(out + at + i, i)
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out, 4)
    >>> out
    array([0, 0, 0, 0, 0, 1, 2, 3], dtype=int32)
    """
    return _promise(input, "divisibility", values)


def max_contiguous(input: Any, values: Any) -> Any:
    """A promise: this many neighbours are consecutive. One number per dimension.

    >>> @tl.jit
    ... def show(out, n):
    ...     i = tl.arange(0, 4)
    ...     at = tl.max_contiguous((n + i) % 8, 4)
    ...     tl.store(out + at, i)
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out, 4)
    >>> out
    array([0, 0, 0, 0, 0, 1, 2, 3], dtype=int32)
    """
    return _promise(input, "contiguity", values)


def max_constancy(input: Any, values: Any) -> Any:
    """A promise: this many neighbours are equal. One number per dimension.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 8)
    ...     row = tl.max_constancy(i // 4, 4)
    ...     tl.store(out + i, row)
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    >>> out
    array([0, 0, 0, 0, 1, 1, 1, 1], dtype=int32)
    """
    return _promise(input, "constancy", values)


def debug_barrier() -> None:
    """A barrier of all threads of the program.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 4)
    ...     tl.store(out + i, i)
    ...     tl.debug_barrier()
    ...     tl.store(out + 4 + i, tl.load(out + 3 - i))
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    >>> out
    array([0, 1, 2, 3, 3, 2, 1, 0], dtype=int32)
    """
    current().op("barrier", [], [])
