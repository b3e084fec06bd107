"""The door to the operators: wrong arguments are ExprErrors that name the function, the argument and the call's form."""

from __future__ import annotations

from typing import Any

from .. import door
from ..errors import ExprError
from ..ir.expr import Expr
from ..te import Tensor

__all__ = ["check_names", "checked"]


def _is_integer(x: Any) -> bool:
    return door.is_integer(x) or isinstance(x, Expr)


def _is_number(x: Any) -> bool:
    return door.is_number(x) or isinstance(x, Expr)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _shown(x: Any) -> str | None:
    return f"{x.dtype} ({', '.join(map(str, x.shape))})" if isinstance(x, Tensor) else None


_KINDS = {
    **door.plain_kinds(_is_integer, _is_number),
    "Tensor": (_is_tensor, "a tensor"),
    "Sequence[Tensor]": (door.several(_is_tensor), "a list of tensors"),
}
_DOOR = door.Door(
    __package__ or "tec.topi", _KINDS, _shown, lambda error, message, hint: ExprError(message, hint=hint), over_own=True
)
checked, check_names = _DOOR.checked, _DOOR.check_names
