"""Buffers: typed storage with a shape, strides and a memory scope."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..errors import Loc
from ..records import dataclass
from . import build
from .expr import Var
from .spelling import Spelled

if TYPE_CHECKING:
    from .expr import Expr, Var

GLOBAL, SHARED, SHARED_DYN, LOCAL = "global", "shared", "shared.dyn", "local"
# Register tiles that a whole wavefront holds together, for matrix units: storage is per lane.
FRAGMENT_SCOPES = ("fragment.a", "fragment.b", "fragment.acc")
# The same scopes as TVM's programs name them.
WMMA_SCOPES = {"wmma.matrix_a": "fragment.a", "wmma.matrix_b": "fragment.b", "wmma.accumulator": "fragment.acc"}


@dataclass(slots=True, eq=False, repr=False)
class Buffer(Spelled):
    """Storage that BufferLoad and BufferStore name; known by identity.

    shape, in elements; strides, in elements, () for row-major; elem_offset, in elements from the data pointer;
    scope: "global", "shared" (LDS), "shared.dyn", "local" (registers or stack), "fragment.*".
    align_bytes is a promise about the data pointer. data is the pointer variable (dtype "handle").
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] = ()
    elem_offset: Any = 0  # int or Expr
    scope: str = GLOBAL
    align_bytes: int = 64
    data: Var = field(default=None)  # type: ignore[assignment]
    loc: Loc | None = None
    offset_factor: int = 0  # decl_buffer: elem_offset is a multiple of this; 0 says nothing

    def __post_init__(self) -> None:
        if self.data is None:
            self.data = Var(self.name, "handle")

    def __repr__(self) -> str:
        return self.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Expr:
        return self.vload(indices)

    # For kernels written by hand (extern, tensor intrinsics):
    def vload(self, indices: Any, dtype: str | None = None) -> Expr:
        """Load at `indices`; a vector `dtype` loads that many neighbours along the last axis."""
        return build.buffer_load(self, indices, dtype)

    def vstore(self, indices: Any, value: Any) -> Any:
        """The statement that stores `value` (scalar or vector) at `indices`."""
        return build.buffer_store(self, indices, value)

    def access_ptr(
        self,
        access_mask: str | int = "rw",
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: Any = 0,
        extent: Any = None,
    ) -> Expr:
        """A pointer to the first element (plus `offset` elements), for intrinsics; the mask says read ("r", 1), write ("w", 2) or both. ptr_type, content_lanes, extent
        (how many elements are used): as TVM's programs give them; nothing here reads them."""
        return build.access_ptr(self, access_mask, offset)
