"""Operators as te definitions, by the names that te's users know: `topi.nn.conv2d_nchw`, `topi.sum`, `topi.transpose`, ...

Each takes tensors and gives a tensor that `tec.create_schedule` schedules like one of the user's own. The definitions are those of `tec.ops`, which
networks use; `topi.schedule` is the choice that networks get:

    A = tec.placeholder((1024, 1024), name="A")
    B = tec.topi.nn.softmax(A + 1.0)
    made = tec.topi.schedule(B, "llvm")
    f = tec.build(made.schedule, [A, *made.outputs], "llvm")
"""

from . import (
    backward,
    batches,
    broadcast,
    channels_last,
    deformable,
    fixed_point,
    generic,
    image,
    math,
    mx,
    nn,
    placing,
    recurrent,
    reduction,
    resizing,
    scatter,
    signals,
    sparse,
    tag,
    transform,
    utils,
    vision,
)
from .broadcast import *  # noqa: F403
from .door import check_names
from .fixed_point import fixed_point_multiply, fixed_point_multiply_per_axis
from .generic import schedule
from .math import *  # noqa: F403
from .placing import *  # noqa: F403
from .reduction import *  # noqa: F403
from .scatter import *  # noqa: F403
from .signals import *  # noqa: F403
from .transform import *  # noqa: F403
from .utils import InvalidShapeError as InvalidShapeError

__all__ = [
    "broadcast",
    "generic",
    "image",
    "math",
    "mx",
    "nn",
    "reduction",
    "schedule",
    "sparse",
    "tag",
    "transform",
    "utils",
    "vision",
]
__all__ += broadcast.__all__
__all__ += math.__all__
__all__ += reduction.__all__
__all__ += transform.__all__
__all__ += scatter.__all__
__all__ += placing.__all__
__all__ += signals.__all__
__all__ += ["InvalidShapeError", "fixed_point_multiply", "fixed_point_multiply_per_axis"]

_FIXED = [n for n in fixed_point.__all__ if not n.startswith("fixed_point_")]
for _part in (channels_last, batches, recurrent, deformable, backward):  # `nn` has them, which they are made of
    for _name in _part.__all__:
        setattr(nn, _name, getattr(_part, _name))
for _name in _FIXED:
    setattr(nn, _name, getattr(fixed_point, _name))
# where TVM has them
_SPARSE = ["sparse_add", "sparse_dense", "sparse_dense_sp_lhs", "sparse_dense_sp_rhs", "sparse_transpose"]
for _name in _SPARSE:
    setattr(nn, _name, getattr(sparse, _name))
nn.layout_transform, nn.softmax_common = transform.layout_transform, nn.softmax  # type: ignore[attr-defined]
nn.__all__ += [
    *channels_last.__all__, *batches.__all__, *recurrent.__all__, *deformable.__all__, *backward.__all__, *_FIXED, *_SPARSE, "layout_transform", "softmax_common",
]  # fmt: skip


for _name in resizing.__all__:
    setattr(image, _name, getattr(resizing, _name))
image.__all__ += resizing.__all__


check_names(globals(), "topi", __all__)
for _part in (nn, image, vision, sparse, mx, generic, utils):
    check_names(vars(_part), f"topi.{_part.__name__.rpartition('.')[2]}", _part.__all__)


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
