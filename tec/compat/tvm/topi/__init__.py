"""tvm.topi: tec.topi, with TVM's modules for targets, whose schedules are the current target's here."""

import builtins
from math import prod as _product
from types import SimpleNamespace
from typing import Any

from tec import te
from tec import topi as _topi
from tec.errors import ExprError
from tec.te import Tensor
from tec.topi import broadcast, generic, image, reduction, sparse, tag, transform, utils, vision
from tec.topi.door import checked as _checked
from tec.topi.operators import compute

from ..names import absent
from . import nn

globals().update({name: getattr(_topi, name) for name in _topi.__all__ if name not in ("nn", "reshape")})


def reshape(a: Tensor, newshape: Any) -> Tensor:
    """The elements of `a`, row by row, in another shape; a smaller one takes the first of them, as in TVM."""
    wanted = list(newshape) if isinstance(newshape, (list, tuple)) else [newshape]
    sizes = [getattr(n, "value", n) for n in (*wanted, *a.shape)]
    known = builtins.all(isinstance(n, int) and n > 0 for n in sizes)
    count = _product(sizes[: len(wanted)]) if known else 0
    if not known or count >= _product(sizes[len(wanted) :]):
        return _topi.reshape(a, newshape)
    return _topi.reshape(_topi.strided_slice(_topi.reshape(a, (-1,)), [0], [count]), newshape)


def _index(name: str) -> Any:
    def function(data: Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False) -> Tensor:
        found = getattr(_topi, name)(data, axis, keepdims, select_last_index)
        return compute(found.shape, lambda *i: found(*i).astype("int32"), name, tag.INJECTIVE)

    function.__name__ = name
    function.__doc__ = f"tec.topi.{name}, whose index is int32, as in TVM."
    return _checked(f"topi.{name}", function)


argmax, argmin = _index("argmax"), _index("argmin")


def take(a: Tensor, indices: Tensor, axis: Any = None, batch_dims: int = 0, mode: str = "clip") -> Tensor:
    """tec.topi.take; indices outside are the nearest ("clip"), are counted around ("wrap"), or do not occur ("fast"): negative ones, too, as in TVM."""
    if batch_dims or mode not in ("clip", "wrap", "fast"):
        raise ExprError(f"take(batch_dims={batch_dims}, mode={mode!r})", hint="no batch dimensions; clip, wrap or fast")
    n = _product(getattr(s, "value", s) for s in a.shape) if axis is None else a.shape[axis]
    wide = "int64" if indices.dtype in ("int64", "uint64", "uint32") else "int32"  # narrower types do not hold a size
    size = te.cast(wide, n)

    def inside(*i: Any) -> Any:
        k = te.cast(wide, indices(*i))
        return te.floormod(k, size) if mode == "wrap" else te.max(te.min(k, size - 1), te.const(0, k.dtype))

    index = indices if mode == "fast" else compute(indices.shape, inside, "index", tag.INJECTIVE)
    made: Tensor = _topi.take(a, index, axis)
    return made


reshape, take = _checked("topi.reshape", reshape), _checked("topi.take", take)

# What TVM keeps for one target: here the definitions that all have, and schedules for the current target.
cuda = SimpleNamespace(
    **{
        n: globals().get(n, getattr(m, n))
        for m in (_topi, nn, generic, vision)
        for n in dir(m)
        if not n.startswith("_")
    }
)
rocm = x86 = gpu = arm_cpu = mali = bifrost = intel_graphics = hls = hexagon = adreno = cuda

__getattr__ = absent(__name__)
