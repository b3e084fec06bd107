"""Pictures sampled at places that are computed: `affine_grid` and `grid_sample`."""

from __future__ import annotations

from typing import Any

from .. import te
from ..errors import ExprError, listed
from ..te import Tensor, compute
from .operators import output, sizes, tensor
from .tag import INJECTIVE
from .transform import transpose

__all__ = ["affine_grid", "grid_sample"]

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def affine_grid(data: Tensor, target_shape: Any) -> Tensor:
    """The places of a picture of `target_shape` (height, width) under affine maps `data` of shape (n, 2, 3): (n, 2, height, width), x first. The middles of
    the outermost pixels are -1 and 1.

    >>> topi.image.affine_grid(te.placeholder((4, 2, 3), name="m"), (8, 9)).shape
    (4, 2, 8, 9)
    """
    m = tensor(data, "affine_grid")
    rows, columns = sizes(list(target_shape), "affine_grid")

    def line(i: Any, n: int) -> Any:
        return te.cast(m.dtype, i) * (2.0 / (n - 1)) - 1.0 if n > 1 else te.const(-1.0, m.dtype)

    def place(b: Any, k: Any, i: Any, j: Any) -> Any:
        return m(b, k, 0) * line(j, columns) + m(b, k, 1) * line(i, rows) + m(b, k, 2)

    made: Tensor = compute((m.shape[0], 2, rows, columns), place, "affine_grid", INJECTIVE)
    return made


def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Tensor:
    """A picture (n, c, height, width) at the places of `grid` (n, 2, rows, columns), x first, from -1 to 1. method: bilinear, nearest, bicubic; padding_mode:
    zeros, border, reflection. Raises ExprError for others, and for another layout.

    >>> x, g = te.placeholder((1, 3, 8, 8), name="x"), te.placeholder((1, 2, 5, 6), name="g")
    >>> topi.image.grid_sample(x, g).shape
    (1, 3, 5, 6)
    """
    if layout != "NCHW":
        raise ExprError(f"grid_sample of layout {layout}", hint="topi.layout_transform(x, layout, 'NCHW')")
    if method not in _MODES:
        raise ExprError(f"grid_sample(method={method!r})", hint=", ".join(_MODES))
    places = transpose(tensor(grid, "grid_sample"), (0, 2, 3, 1))
    inputs = [tensor(data, "grid_sample"), places]
    return output(
        "grid_sample", inputs, INJECTIVE, mode=_MODES[method], padding=padding_mode, align=bool(align_corners)
    )


__dir__ = listed(__name__)
