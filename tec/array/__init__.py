"""Arrays on devices: a namespace after the Python array API standard, version 2025.12.

    import tec
    xp = tec.array
    x = xp.linspace(0.0, 1.0, 1000, device=tec.cuda(0))
    y = xp.sum(x * x + 1.0)      # an expression: nothing has run
    print(float(y))              # one kernel

Operators and functions give expressions, which are fused and computed when they are needed; `x.block()` computes and waits. Complex
numbers are pairs of real ones to every kernel (`complexes`).
"""

# ruff: noqa: F401  (the names are the namespace)
from __future__ import annotations

import math as _math

from ..errors import meant_by_a_call as _meant_by_a_call
from . import complex_math as _complex_math
from . import fft, linalg, nn, optim, random
from . import numpy_names as _numpy_names
from . import numpy_shapes as _numpy_shapes
from .arguments import explain as _explain
from .array import Array
from .computing import compute as _compute
from .contraction import einsum
from .creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .dtypes import (
    DType,
    bfloat16,
    bool,
    can_cast,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from .errors import ArrayTypeError as _ArrayTypeError
from .inspection import API_VERSION as __array_api_version__
from .inspection import __array_namespace_info__
from .manipulation import (
    astype,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    take,
    take_along_axis,
    tile,
    unstack,
)
from .node import is_traced as _is_traced
from .products import matmul, matrix_transpose, tensordot, vecdot
from .searching import argmax, argmin, nonzero, searchsorted, where
from .sets import isin, unique_all, unique_counts, unique_inverse, unique_values
from .sorting import argsort, sort
from .statistical import (
    all,
    any,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from .whole import jit

array = _numpy_names.FUNCTIONS["array"]  # the modules of these names are found by imports alone
trace = _numpy_names.FUNCTIONS["trace"]
e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None
pi = _math.pi


def block(*arrays: Array) -> object:
    """Compute arrays together, and wait for their devices: what they share is computed once. Of one list, NumPy's `block`: an array of blocks.

    >>> x, y = xp.asarray([1, 2]) + 1, xp.asarray([3, 4]) * 2
    >>> made = xp.block(x, y)
    """
    if len(arrays) == 1 and isinstance(arrays[0], list):
        return _numpy_shapes._of_blocks(arrays[0])
    for x in arrays:
        if type(x) is not Array:
            raise _ArrayTypeError(
                f"block of a {type(x).__name__}", hint="arrays, which are computed; tec.array.concat joins"
            )
    by_device: dict[object, list[Array]] = {}
    for x in arrays:
        if _is_traced(x._node):  # under `jit`: nothing is there to wait for
            continue
        by_device.setdefault(x.device, []).append(x)
    for group in by_device.values():
        _compute(*(x._node for x in group))
        group[0].device.sync()
    return None


_meant_by_a_call(
    __name__, "tec.array.asarray(x) makes an array, as np.array does; tec.nd.array(x, dev) is memory of a device alone"
)


def __getattr__(name: str) -> object:
    """NumPy's names: functions that the standard leaves out, and other names of those that it has."""
    found = _numpy_names.FUNCTIONS.get(name)
    if found is not None:
        return found
    if name in _numpy_names.ALIASES:
        return globals()[_numpy_names.ALIASES[name]]
    raise AttributeError(f"module 'tec.array' has no attribute {name!r}{_numpy_names.near(name, globals())}")


_explain(globals())
_explain(_numpy_names.FUNCTIONS)
_PARTS = (fft, linalg, nn, optim, random)
# The modules that this one imports are attributes of it too, and no part of the namespace.
__all__ = sorted(
    n
    for n, x in globals().items()
    if n != "annotations"
    and (not n.startswith("_") or n.startswith("__array"))
    and (type(x) is not type(nn) or x in _PARTS)
) + ["__array_namespace_info__"]


def __dir__() -> list[str]:
    """The public names, which completion then offers: the standard's, and NumPy's beside them."""
    return sorted({*__all__, *_numpy_names.FUNCTIONS, *_numpy_names.ALIASES})
