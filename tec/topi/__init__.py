"""Operators as te definitions, by the names that te's users know: `topi.nn.conv2d_nchw`, `topi.sum`, `topi.transpose`, ...

Each takes tensors and gives a tensor that `tec.create_schedule` schedules like one of the user's own. The definitions are those of `tec.ops`, which
networks use; `topi.schedule` is the choice that networks get:

    A = tec.placeholder((1024, 1024), name="A")
    B = tec.topi.nn.softmax(A + 1.0)
    made = tec.topi.schedule(B, "llvm")
    f = tec.build(made.schedule, [A, *made.outputs], "llvm")
"""

from . import (
    batches,
    broadcast,
    channels_last,
    deformable,
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
    sparse,
    tag,
    transform,
    utils,
    vision,
)
from .broadcast import *  # noqa: F403
from .door import check_names
from .generic import schedule
from .math import *  # noqa: F403
from .placing import *  # noqa: F403
from .reduction import *  # noqa: F403
from .scatter import *  # noqa: F403
from .transform import *  # noqa: F403

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

for _part in (channels_last, batches, recurrent, deformable):  # `nn` has them, which they are made of
    for _name in _part.__all__:
        setattr(nn, _name, getattr(_part, _name))
nn.sparse_dense = sparse.sparse_dense  # type: ignore[attr-defined]  # where TVM has it
nn.__all__ += [*channels_last.__all__, *batches.__all__, *recurrent.__all__, *deformable.__all__, "sparse_dense"]


for _name in resizing.__all__:
    setattr(image, _name, getattr(resizing, _name))
image.__all__ += resizing.__all__


check_names(globals(), "topi", __all__)
for _part in (nn, image, vision, sparse, mx, generic, utils):
    check_names(vars(_part), f"topi.{_part.__name__.rpartition('.')[2]}", _part.__all__)


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
