"""Forms: what an expression is, but for the values that it reads from memory.

Nodes that are written down alike share one `Form`, so that what follows from it is found by one look-up: the form of an operator on two forms
(`ahead`), and what computes it (`computing`). Forms are found by their parts (`form_of`), which are forms themselves: nobody walks an
expression to learn whether it is known. The table of forms is emptied when it is full; a form that is made once more is another object then, and
what hangs on it is looked up by its signature (`trace`) once.
"""

from __future__ import annotations

from typing import Any

from ..runtime.arrays.ndarray import NDArray
from ..runtime.devices.device import Device
from ..runtime.devices.storage import ALIGN
from . import dtypes
from .dtypes import DType

Attrs = tuple[tuple[str, Any], ...]

_MOST = 1 << 14
LEAF = "leaf"


class Form:
    """An operator with its attributes on forms; or a value in memory (`op` is LEAF), of which `aligned` says whether it begins at 64 bytes.

    `weight`: operators in it, those that are read twice counted twice; none in what is in memory.
    """

    __slots__ = ("aligned", "attrs", "device", "dtype", "inputs", "ints", "op", "out", "shape", "weight")

    def __init__(
        self,
        op: str,
        inputs: tuple[Form, ...],
        shape: tuple[int, ...],
        dtype: DType,
        device: Device,
        attrs: Attrs,
        ints: Attrs,
        out: int,
        aligned: bool = True,
    ):
        self.op = op
        self.inputs = inputs
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.attrs = attrs
        self.ints = ints
        self.out = out
        self.aligned = aligned
        self.weight: int = (op != LEAF) + sum([f.weight for f in inputs])


_FORMS: dict[Any, Form] = {}
# What a function of two arrays (or one, and None) gives for their forms, where that is one operator on just those.
_AHEAD: dict[tuple[Any, Form, Form | None], Form] = {}


def form_of(
    op: str,
    inputs: tuple[Form, ...],
    shape: tuple[int, ...],
    dtype: DType,
    device: Device,
    attrs: Attrs = (),
    ints: Attrs = (),
    out: int = 0,
) -> Form:
    """The form of an operator on forms."""
    key = (op, inputs, shape, dtype.name, device, attrs, ints, out)
    found = _FORMS.get(key)
    if found is None:
        found = _keep(key, Form(op, inputs, shape, dtype, device, attrs, ints, out))
    return found


def leaf_form(data: NDArray) -> Form:
    """The form of a value in memory."""
    key = (data.dtype, data.shape, data.device, data.alignment == ALIGN)
    found = _FORMS.get(key)
    if found is None:
        found = _keep(key, Form(LEAF, (), data.shape, dtypes.ALL[data.dtype], data.device, (), (), 0, key[3]))
    return found


def _keep(key: Any, made: Form) -> Form:
    if len(_FORMS) >= _MOST:
        _FORMS.clear()
        _AHEAD.clear()
    return _FORMS.setdefault(key, made)


ahead = _AHEAD.get


def remember(function: Any, a: Form, b: Form | None, made: Form) -> None:
    """That the function gives `made` for values of these forms."""
    if len(_AHEAD) >= _MOST:
        _AHEAD.clear()
    _AHEAD[function, a, b] = made
