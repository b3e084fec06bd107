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
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ..errors import meant_by_a_call as _meant_by_a_call
from . import complex_math as _complex_math
from . import fft as fft
from . import linalg as linalg
from . import nn as nn
from . import numpy_names as _numpy_names
from . import numpy_shapes as _numpy_shapes
from . import optim as optim
from . import random as random
from .arguments import explain as _explain
from .array import Array as Array
from .computing import compute as _compute
from .contraction import einsum as einsum
from .creation import (
    arange as arange,
)
from .creation import (
    asarray as asarray,
)
from .creation import (
    empty as empty,
)
from .creation import (
    empty_like as empty_like,
)
from .creation import (
    eye as eye,
)
from .creation import (
    from_dlpack as from_dlpack,
)
from .creation import (
    full as full,
)
from .creation import (
    full_like as full_like,
)
from .creation import (
    linspace as linspace,
)
from .creation import (
    meshgrid as meshgrid,
)
from .creation import (
    ones as ones,
)
from .creation import (
    ones_like as ones_like,
)
from .creation import (
    tril as tril,
)
from .creation import (
    triu as triu,
)
from .creation import (
    zeros as zeros,
)
from .creation import (
    zeros_like as zeros_like,
)
from .dtypes import (
    DType as DType,
)
from .dtypes import (
    bfloat16 as bfloat16,
)
from .dtypes import (
    bool as bool,
)
from .dtypes import (
    can_cast as can_cast,
)
from .dtypes import (
    complex64 as complex64,
)
from .dtypes import (
    complex128 as complex128,
)
from .dtypes import (
    finfo as finfo,
)
from .dtypes import (
    float16 as float16,
)
from .dtypes import (
    float32 as float32,
)
from .dtypes import (
    float64 as float64,
)
from .dtypes import (
    iinfo as iinfo,
)
from .dtypes import (
    int8 as int8,
)
from .dtypes import (
    int16 as int16,
)
from .dtypes import (
    int32 as int32,
)
from .dtypes import (
    int64 as int64,
)
from .dtypes import (
    isdtype as isdtype,
)
from .dtypes import (
    result_type as result_type,
)
from .dtypes import (
    uint8 as uint8,
)
from .dtypes import (
    uint16 as uint16,
)
from .dtypes import (
    uint32 as uint32,
)
from .dtypes import (
    uint64 as uint64,
)
from .elementwise import (
    abs as abs,
)
from .elementwise import (
    acos as acos,
)
from .elementwise import (
    acosh as acosh,
)
from .elementwise import (
    add as add,
)
from .elementwise import (
    asin as asin,
)
from .elementwise import (
    asinh as asinh,
)
from .elementwise import (
    atan as atan,
)
from .elementwise import (
    atan2 as atan2,
)
from .elementwise import (
    atanh as atanh,
)
from .elementwise import (
    bitwise_and as bitwise_and,
)
from .elementwise import (
    bitwise_invert as bitwise_invert,
)
from .elementwise import (
    bitwise_left_shift as bitwise_left_shift,
)
from .elementwise import (
    bitwise_or as bitwise_or,
)
from .elementwise import (
    bitwise_right_shift as bitwise_right_shift,
)
from .elementwise import (
    bitwise_xor as bitwise_xor,
)
from .elementwise import (
    ceil as ceil,
)
from .elementwise import (
    clip as clip,
)
from .elementwise import (
    conj as conj,
)
from .elementwise import (
    copysign as copysign,
)
from .elementwise import (
    cos as cos,
)
from .elementwise import (
    cosh as cosh,
)
from .elementwise import (
    divide as divide,
)
from .elementwise import (
    equal as equal,
)
from .elementwise import (
    exp as exp,
)
from .elementwise import (
    expm1 as expm1,
)
from .elementwise import (
    floor as floor,
)
from .elementwise import (
    floor_divide as floor_divide,
)
from .elementwise import (
    greater as greater,
)
from .elementwise import (
    greater_equal as greater_equal,
)
from .elementwise import (
    hypot as hypot,
)
from .elementwise import (
    imag as imag,
)
from .elementwise import (
    isfinite as isfinite,
)
from .elementwise import (
    isinf as isinf,
)
from .elementwise import (
    isnan as isnan,
)
from .elementwise import (
    less as less,
)
from .elementwise import (
    less_equal as less_equal,
)
from .elementwise import (
    log as log,
)
from .elementwise import (
    log1p as log1p,
)
from .elementwise import (
    log2 as log2,
)
from .elementwise import (
    log10 as log10,
)
from .elementwise import (
    logaddexp as logaddexp,
)
from .elementwise import (
    logical_and as logical_and,
)
from .elementwise import (
    logical_not as logical_not,
)
from .elementwise import (
    logical_or as logical_or,
)
from .elementwise import (
    logical_xor as logical_xor,
)
from .elementwise import (
    maximum as maximum,
)
from .elementwise import (
    minimum as minimum,
)
from .elementwise import (
    multiply as multiply,
)
from .elementwise import (
    negative as negative,
)
from .elementwise import (
    nextafter as nextafter,
)
from .elementwise import (
    not_equal as not_equal,
)
from .elementwise import (
    positive as positive,
)
from .elementwise import (
    pow as pow,
)
from .elementwise import (
    real as real,
)
from .elementwise import (
    reciprocal as reciprocal,
)
from .elementwise import (
    remainder as remainder,
)
from .elementwise import (
    round as round,
)
from .elementwise import (
    sign as sign,
)
from .elementwise import (
    signbit as signbit,
)
from .elementwise import (
    sin as sin,
)
from .elementwise import (
    sinh as sinh,
)
from .elementwise import (
    sqrt as sqrt,
)
from .elementwise import (
    square as square,
)
from .elementwise import (
    subtract as subtract,
)
from .elementwise import (
    tan as tan,
)
from .elementwise import (
    tanh as tanh,
)
from .elementwise import (
    trunc as trunc,
)
from .errors import ArrayTypeError as _ArrayTypeError
from .inspection import API_VERSION as __array_api_version__
from .inspection import __array_namespace_info__
from .manipulation import (
    astype as astype,
)
from .manipulation import (
    broadcast_arrays as broadcast_arrays,
)
from .manipulation import (
    broadcast_shapes as broadcast_shapes,
)
from .manipulation import (
    broadcast_to as broadcast_to,
)
from .manipulation import (
    concat as concat,
)
from .manipulation import (
    expand_dims as expand_dims,
)
from .manipulation import (
    flip as flip,
)
from .manipulation import (
    moveaxis as moveaxis,
)
from .manipulation import (
    permute_dims as permute_dims,
)
from .manipulation import (
    repeat as repeat,
)
from .manipulation import (
    reshape as reshape,
)
from .manipulation import (
    roll as roll,
)
from .manipulation import (
    squeeze as squeeze,
)
from .manipulation import (
    stack as stack,
)
from .manipulation import (
    take as take,
)
from .manipulation import (
    take_along_axis as take_along_axis,
)
from .manipulation import (
    tile as tile,
)
from .manipulation import (
    unstack as unstack,
)
from .node import is_traced as _is_traced
from .products import matmul as matmul
from .products import matrix_transpose as matrix_transpose
from .products import tensordot as tensordot
from .products import vecdot as vecdot
from .searching import (
    argmax as argmax,
)
from .searching import (
    argmin as argmin,
)
from .searching import (
    nonzero as nonzero,
)
from .searching import (
    searchsorted as searchsorted,
)
from .searching import (
    where as where,
)
from .sets import (
    isin as isin,
)
from .sets import (
    unique_all as unique_all,
)
from .sets import (
    unique_counts as unique_counts,
)
from .sets import (
    unique_inverse as unique_inverse,
)
from .sets import (
    unique_values as unique_values,
)
from .sorting import argsort as argsort
from .sorting import sort as sort
from .statistical import (
    all as all,
)
from .statistical import (
    any as any,
)
from .statistical import (
    count_nonzero as count_nonzero,
)
from .statistical import (
    cumulative_prod as cumulative_prod,
)
from .statistical import (
    cumulative_sum as cumulative_sum,
)
from .statistical import (
    diff as diff,
)
from .statistical import (
    max as max,
)
from .statistical import (
    mean as mean,
)
from .statistical import (
    min as min,
)
from .statistical import (
    prod as prod,
)
from .statistical import (
    std as std,
)
from .statistical import (
    sum as sum,
)
from .statistical import (
    var as var,
)
from .whole import jit as jit

array = _numpy_names.FUNCTIONS["array"]  # the modules of these names are found by imports alone
trace = _numpy_names.FUNCTIONS["trace"]
e = _math.e
if _TYPE_CHECKING:  # `__getattr__` finds them by `numpy_names.FUNCTIONS`
    from .numpy_calculus import *  # noqa: F403
    from .numpy_elementwise import *  # noqa: F403
    from .numpy_padding import *  # noqa: F403
    from .numpy_picking import *  # noqa: F403
    from .numpy_shapes import *  # noqa: F403
    from .numpy_statistics import *  # noqa: F403
    from .numpy_ufuncs import *  # noqa: F403

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


def __getattr__(name: str) -> _Any:
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
