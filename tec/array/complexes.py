"""Complex numbers: in memory the real and the imaginary part of each element lie beside one another, as NumPy, DLPack and BLAS have them.

No kernel knows the type. A complex node that is not computed has the operator "complex" on two real nodes, its parts; every operator on complex
nodes is made of operators on parts (`build`, `complex_math`). What is asked for is woven: one kernel computes both parts and writes them to their
places. The parts of what is in memory are slices of the same memory as pairs of reals.
"""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.arrays.ndarray import NDArray
from . import dtypes
from .dtypes import PART, WHOLE, DType
from .forms import Attrs, form_of
from .node import RECORDERS, Node, leaf, note, scalar

# What `complex_math` makes of this package's operators, which ask for it here: it is made of them.
COMPLEX: dict[str, Callable[..., Node]] = {}


def is_complex(n: Node) -> bool:
    return n.form.dtype.name in PART


def _node(op: str, inputs: tuple[Node, ...], shape: tuple[int, ...], dtype: DType, attrs: Attrs, ints: Attrs) -> Node:
    device = inputs[0].device
    return Node(form_of(op, tuple([i.form for i in inputs]), shape, dtype, device, attrs, ints), inputs)


def as_pairs(a: NDArray) -> NDArray:
    """Complex memory as reals with one dimension more, of extent 2."""
    strides = (*[2 * s for s in a.strides], 1)
    return NDArray(a.storage, a.address, (*a.shape, 2), PART[a.dtype].name, strides, a.writable)


def as_complex(a: NDArray) -> NDArray:
    """Compact reals, whose last extent is 2, as complex memory."""
    return NDArray(a.storage, a.address, a.shape[:-1], WHOLE[a.dtype].name)


def pairs_of(n: Node) -> Node:
    """The node of reals that a complex node is in memory: on the same memory where it is computed."""
    if n.data is None:
        return woven(n)
    made = leaf(as_pairs(n.data), beside=n)
    if RECORDERS:
        note("pairs", made, (n,))
    return made


def woven(n: Node) -> Node:
    """The reals that a complex node which is not computed is in memory: its parts side by side."""
    real, imag = n.inputs
    shape = (*n.shape, 2)
    wide = [_node("reshape", (p,), (*n.shape, 1), p.dtype, (), (("shape", (*n.shape, 1)),)) for p in (real, imag)]
    place = form_of(
        "positions", (), (2,), dtypes.int64, n.device, (("axis", 0), ("dtype", "int64")), (("shape", (2,)),)
    )
    zero = scalar(0, dtypes.int64, n.device)
    first = _node("equal", (Node(place, ()), zero), (2,), dtypes.bool, (), ())
    return _node("where", (first, *wide), shape, real.dtype, (), ())
