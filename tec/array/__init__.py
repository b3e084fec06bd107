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

# A type checker takes as public what is imported as itself; ruff would write each such name as an import of its own.
# isort: off
import math as _math
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from ..errors import kind_of as _kind_of
from ..errors import meant_by_a_call as _meant_by_a_call
from . import (
    complex_math as _complex_math,
    fft as fft,
    linalg as linalg,
    nn as nn,
    numpy_names as _numpy_names,
    numpy_shapes as _numpy_shapes,
    optim as optim,
    random as random,
)
from .arguments import check_names as _check_names
from .array import Array as Array
from .computing import compute as _compute
from .contraction import einsum as einsum
from .creation import (
    arange as arange,
    asarray as asarray,
    empty as empty,
    empty_like as empty_like,
    eye as eye,
    from_dlpack as from_dlpack,
    full as full,
    full_like as full_like,
    linspace as linspace,
    meshgrid as meshgrid,
    ones as ones,
    ones_like as ones_like,
    tril as tril,
    triu as triu,
    zeros as zeros,
    zeros_like as zeros_like,
)
from .dtypes import (
    DType as DType,
    bfloat16 as bfloat16,
    bool as bool,
    can_cast as can_cast,
    complex64 as complex64,
    complex128 as complex128,
    finfo as finfo,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    iinfo as iinfo,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    isdtype as isdtype,
    result_type as result_type,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from .elementwise import (
    abs as abs,
    acos as acos,
    acosh as acosh,
    add as add,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bitwise_and as bitwise_and,
    bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift,
    bitwise_xor as bitwise_xor,
    ceil as ceil,
    clip as clip,
    conj as conj,
    copysign as copysign,
    cos as cos,
    cosh as cosh,
    divide as divide,
    equal as equal,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    floor_divide as floor_divide,
    greater as greater,
    greater_equal as greater_equal,
    hypot as hypot,
    imag as imag,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    less as less,
    less_equal as less_equal,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    logaddexp as logaddexp,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    negative as negative,
    nextafter as nextafter,
    not_equal as not_equal,
    positive as positive,
    pow as pow,
    real as real,
    reciprocal as reciprocal,
    remainder as remainder,
    round as round,
    sign as sign,
    signbit as signbit,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    subtract as subtract,
    tan as tan,
    tanh as tanh,
    trunc as trunc,
)
from .errors import ArrayTypeError as _ArrayTypeError
from .inspection import API_VERSION as __array_api_version__, __array_namespace_info__
from .manipulation import (
    astype as astype,
    broadcast_arrays as broadcast_arrays,
    broadcast_shapes as broadcast_shapes,
    broadcast_to as broadcast_to,
    concat as concat,
    expand_dims as expand_dims,
    flip as flip,
    moveaxis as moveaxis,
    permute_dims as permute_dims,
    repeat as repeat,
    reshape as reshape,
    roll as roll,
    squeeze as squeeze,
    stack as stack,
    take as take,
    take_along_axis as take_along_axis,
    tile as tile,
    unstack as unstack,
)
from .node import is_traced as _is_traced
from .products import matmul as matmul, matrix_transpose as matrix_transpose, tensordot as tensordot, vecdot as vecdot
from .searching import (
    argmax as argmax,
    argmin as argmin,
    nonzero as nonzero,
    searchsorted as searchsorted,
    where as where,
)
from .sets import (
    isin as isin,
    unique_all as unique_all,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from .sorting import argsort as argsort, sort as sort
from .statistical import (
    all as all,
    any as any,
    count_nonzero as count_nonzero,
    cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum,
    diff as diff,
    max as max,
    mean as mean,
    min as min,
    prod as prod,
    std as std,
    sum as sum,
    var as var,
)
from .whole import jit as jit

# isort: on

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
            raise _ArrayTypeError(f"block of {_kind_of(x)}", hint="arrays, which are computed; tec.array.concat joins")
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


_check_names(globals(), "tec.array")
_check_names(_numpy_names.FUNCTIONS, "tec.array")
for _part in (fft, linalg, random):
    _check_names(vars(_part), f"tec.array.{_part.__name__.rpartition('.')[2]}")
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
