"""The words of tile programs, under the names of `triton.language`: `import tec.tile as tl` has them all.

Types, words that make and change tiles (`words`), reductions and places (`reductions`), random numbers (`random`), tiles of arrays (`blocks`).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from . import arithmetic as _arithmetic
from .access import (
    assume,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    debug_barrier,
    device_assert,
    device_print,
    dot,
    load,
    max_constancy,
    max_contiguous,
    multiple_of,
    static_assert,
    static_print,
    store,
)
from .arithmetic import (
    PropagateNan,
    abs,
    add,
    cdiv,
    ceil,
    clamp,
    condition,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    inline_asm_elementwise,
    log,
    log2,
    maximum,
    minimum,
    mul,
    range,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    sqrt_rn,
    static_range,
    sub,
    swizzle2d,
    tanh,
    umulhi,
)
from .blocks import (
    advance,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store_tensor_descriptor,
    tensor_descriptor,
)
from .builder import constexpr, plain
from .grammar import DTYPES, OF_NAME, dtype, pointer_type
from .libdevice import library as _more_of_library
from .microscaled import dot_scaled
from .random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from .reductions import (
    argmax,
    argmin,
    associative_scan,
    bitonic_merge,
    cumprod,
    cumsum,
    flip,
    gather,
    histogram,
    item,
    max,
    min,
    reduce,
    reduce_or,
    softmax,
    sort,
    sum,
    topk,
    xor_sum,
)
from .values import METHODS, block_type, tensor
from .words import (
    arange,
    broadcast,
    broadcast_to,
    cast,
    cat,
    expand_dims,
    full,
    interleave,
    join,
    num_programs,
    permute,
    program_id,
    ravel,
    reshape,
    split,
    squeeze,
    to_tensor,
    trans,
    unsqueeze,
    view,
    where,
    zeros,
    zeros_like,
)

int1, int8, int16, int32, int64 = (DTYPES[n] for n in ("int1", "int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (DTYPES[n] for n in ("uint8", "uint16", "uint32", "uint64"))
float8e5, float8e4nv, float8e4b8, float8e5b16 = (
    DTYPES[n] for n in ("float8e5", "float8e4nv", "float8e4b8", "float8e5b16")
)
float16, bfloat16, float32, float64 = (DTYPES[n] for n in ("float16", "bfloat16", "float32", "float64"))
# Triton's own: a name that no chip's unit and no array of tec's has.
float8e4b15 = dtype("fp8e4b15", "float8_e4b15", "float", 8)
pi32_t = pointer_type(int32)
void = None
TRITON_MAX_TENSOR_NUMEL = 1 << 20
CONSTEXPR_0 = constexpr(0)
tuple = tuple
const = pointer_type


def _log2(i: object) -> object:
    """The whole logarithm of a constant to base 2."""
    return plain(i).bit_length() - 1


def _unwrap_iterable(x: object) -> object:
    """The one argument that is a sequence, or all of them."""
    first = x[0] if isinstance(x, (builtins.tuple, list)) and len(x) == 1 else None
    return first if isinstance(first, (builtins.tuple, list)) else x


def str_to_ty(name: str, c: object = None) -> dtype | None:
    """The type that Triton's signatures name: "i32", "fp16", "*fp32". Raises KeyError for none.

    >>> tl.str_to_ty("i32"), tl.str_to_ty("*fp16")
    (int32, pointer<fp16>)
    """
    if name == "void":
        return None
    if name.startswith("*"):
        return pointer_type(_named(name.removeprefix("*").removeprefix("k")))
    return _named(name)


def _named(name: str) -> dtype:
    long = {"i": "int", "u": "uint"}.get(name[:1])
    return OF_NAME[f"{long}{name[1:]}" if long and name[1:].isdigit() else name]


def get_int_dtype(bitwidth: object, signed: object) -> dtype:
    """The integer type of so many bits; 1 bit is the type of truths. Raises KeyError for none.

    >>> tl.get_int_dtype(16, signed=False)
    uint16
    """
    bits = plain(bitwidth)
    return DTYPES["int1" if bits == 1 else f"{'int' if plain(signed) else 'uint'}{bits}"]


def _unwrap_if_constexpr(value: object) -> object:
    """What a constexpr holds; anything else as it is."""
    return plain(value)


def gdc_wait() -> None:
    """Wait for what the kernel ahead wrote. A launch of tec's begins after that kernel has ended, so that there is nothing to wait for."""


def gdc_launch_dependents() -> None:
    """Let the kernel behind begin early. It begins after this one has ended."""


def slice(start: object = None, stop: object = None, step: object = None) -> object:
    """Python's slice, of constants.

    >>> tl.slice(0, 4)
    slice(0, 4, None)
    """
    return builtins.slice(start, stop, step)


# `tl.math.exp` and the library of `triton.language.extra.libdevice`, as far as tec's own math goes.
def _library() -> SimpleNamespace:
    made = {
        n: getattr(_arithmetic, n)
        for n in "exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf floor ceil abs fma umulhi fdiv div_rn tanh clamp".split()
    }
    more = "tan asin acos atan sinh cosh asinh acosh atanh log10 log1p expm1 exp10 trunc round".split()
    made |= {n: _arithmetic.math_word(n, f"{n} of x.") for n in more}
    made["nearbyint"] = made["rint"] = _arithmetic.math_word("nearbyint", "Rounded to nearest, half to even.")
    made |= {f"fast_{n}f": made[n] for n in ("sin", "cos", "tan", "exp10", "log", "log2", "log10", "exp")}
    made |= {"fast_dividef": fdiv, "rcp_rn": lambda x: 1.0 / x, "max": maximum, "min": minimum, "sigmoid": sigmoid}
    return SimpleNamespace(**{**vars(_more_of_library()), **made})


_F = TypeVar("_F", bound=Callable[..., Any])


def builtin(f: _F) -> _F:
    """Marks a Python function that runs as Python while the kernel which calls it is read: on constants, or on tiles by the language's words."""
    f.__tec_constexpr__ = True  # type: ignore[attr-defined]
    return f


math, libdevice = _library(), _library()
for _n in ("exp", "exp2"):  # NVIDIA's library is within 2 units in the last place for arguments of any size
    setattr(libdevice, _n, _arithmetic.math_word(_n, f"{_n} of x.", exact=True))
extra = SimpleNamespace(
    libdevice=libdevice,
    cuda=SimpleNamespace(libdevice=libdevice, gdc_wait=gdc_wait, gdc_launch_dependents=gdc_launch_dependents),
    hip=SimpleNamespace(libdevice=libdevice),
    intel=SimpleNamespace(libdevice=libdevice),
)
core = standard = sys.modules[__name__]  # where Triton keeps the words themselves

METHODS.update(
    {
        n: globals()[n]
        for n in """
    abs ceil cos cumprod cumsum erf exp exp2 floor gather log log2 max min argmax argmin reduce associative_scan rsqrt sigmoid sin softmax
    sort split sqrt sqrt_rn store sum xor_sum ravel flip histogram cdiv div_rn fdiv where reduce_or atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor item expand_dims
""".split()
    }
)

__all__ = [
    "dot_scaled",
    "PropagateNan", "TRITON_MAX_TENSOR_NUMEL", "abs", "add", "advance", "arange", "argmax", "argmin",
    "associative_scan", "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
    "atomic_xchg", "atomic_xor", "bfloat16", "bitonic_merge", "block_type", "broadcast", "broadcast_to", "builtin", "cast", "cat", "cdiv", "ceil",
    "clamp", "condition", "const", "constexpr", "cos", "cumprod", "cumsum", "debug_barrier", "device_assert",
    "device_print", "div_rn", "dot", "dtype", "erf", "exp", "exp2", "expand_dims", "extra", "fdiv", "flip", "float16",
    "float32", "float64", "float8e4b15", "float8e4b8", "float8e4nv", "float8e5", "float8e5b16", "floor", "fma", "full", "gather", "get_int_dtype",
    "histogram", "inline_asm_elementwise", "int1", "int16", "int32", "int64", "int8", "interleave", "item", "join", "libdevice", "load",
    "load_tensor_descriptor", "log", "log2", "make_block_ptr", "make_tensor_descriptor", "math", "max",
    "max_constancy", "max_contiguous", "maximum", "min", "minimum", "mul", "multiple_of", "num_programs",
    "pair_uniform_to_normal", "permute", "philox", "philox_impl", "pi32_t", "pointer_type", "program_id", "rand",
    "rand4x", "randint", "randint4x", "randn", "randn4x", "range", "ravel", "reduce", "reduce_or", "reshape", "rsqrt",
    "sigmoid", "sin", "slice", "softmax", "sort", "split", "sqrt", "sqrt_rn", "squeeze", "static_assert", "static_print",
    "static_range", "store", "store_tensor_descriptor", "str_to_ty", "sub", "sum", "swizzle2d", "tanh", "tensor",
    "tensor_descriptor", "to_tensor", "topk", "trans", "tuple", "uint16", "uint32", "uint64", "uint8",
    "uint_to_uniform_float", "umulhi", "unsqueeze", "view", "void", "where", "xor_sum", "zeros", "zeros_like",
]  # fmt: skip
