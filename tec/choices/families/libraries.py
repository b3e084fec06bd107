"""A product by a vendor's library, and what follows it by kernels of tec's own: a choice among others, where the user asks for libraries (`libraries=True`).

It is never a default: no price says how quick another's code is. The tuner measures it and keeps it where it wins; a record of it is passed over where libraries
are not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar

from ...ir import Cast, TensorRead
from ...ir.dtype import dtype_info
from ...ir.visit import walk_exprs
from ...schedule import create_schedule
from ...target import Target
from ...te import ComputeOp, cast, compute, libraries
from ..cost import Footprint, Kernel, on_cores
from ..group import Group
from ..parts.counts import computed, moved_bytes
from ..parts.operands import InMemory, begin_with, in_memory
from ..parts.pointwise import elementwise
from ..parts.threads import THREADS, bind_all
from ..space import Choice, Scheduled, Space

_TYPES = {"onednn": ("float32",)}  # of the operands and the result; the others:
_GPU_TYPES = ("float16", "bfloat16", "float32", "float64")
_ASKED: ContextVar[bool] = ContextVar("tec_libraries", default=False)
TEMPLATE = "library product"


@contextmanager
def using(asked: bool) -> Iterator[None]:
    """Whether groups that are scheduled inside of the block may be computed by libraries."""
    token = _ASKED.set(asked)
    try:
        yield
    finally:
        _ASKED.reset(token)


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of a group whose one reduction is a product of tensors as they lie."""
    if not _ASKED.get():
        return
    for op in group.reductions():
        space = LibraryProduct.match(group, target, op)
        if space is not None:
            yield space


class LibraryProduct(Space):
    """`library` makes the product; on a GPU `threads` of a work-group compute what follows, `vector` bytes of it a thread."""

    template: ClassVar[str] = TEMPLATE
    is_second = True

    def __init__(self, group: Group, target: Target, op: ComputeOp, x: InMemory, some: tuple[str, ...]):
        super().__init__(group, target)
        self.op, self.x = op, x
        self.parameters = {"library": some}

    @classmethod
    def match(cls, group: Group, target: Target, op: ComputeOp) -> LibraryProduct | None:
        x = in_memory(group, op, shared_operands=True)
        if x is None:
            return None
        result, given = op.output(0).dtype, x.p.a.dtype
        fits = result == given or (result == "float32" and given in ("float16", "bfloat16"))
        some = tuple(
            name for name, kind in libraries.serving("products").items() if kind == target.kind and fits and given in _TYPES.get(name, _GPU_TYPES)
        )  # fmt: skip
        return cls(group, target, op, x, some) if some else None

    @property
    def default(self) -> Choice:
        return self.choice(library=self.parameters["library"][0])

    def sketch(self, choice: Choice) -> Footprint:
        """As many operations and bytes as there are: for a comparison with nothing else."""
        moved = moved_bytes(self.group)
        if not self.target.is_gpu:
            return on_cores(self.x.batch * self.x.m * self.x.n * self.x.k / 8, moved, True)
        width = dtype_info(self.op.output(0).dtype).bytes
        threads = self.x.batch * self.x.m * self.x.n * width / 16
        return Footprint(
            (
                Kernel(
                    max(1.0, threads / THREADS),
                    THREADS,
                    memory_bytes=moved,
                    asked_bytes=moved,
                    issued=self.x.k,
                    waits=1,
                ),
            )
        )

    def build(self, choice: Choice) -> Scheduled:
        p = self.x.p
        wide = self.op.output(0).dtype
        # Sums in float32 that all readers round at once are rounded by the library: half of the bytes.
        dtype = p.a.dtype if _is_rounded(self.group, self.op, p.a.dtype) else wide
        made = libraries.matmul(p.a, p.b, choice["library"], p.trans_a, p.trans_b, dtype)
        if dtype != wide:
            rounded = made
            made = compute(made.shape, lambda *i: cast(wide, rounded[i]), "widened")
        if self.group.is_output(self.op):
            return Scheduled(create_schedule([made.op]), [made], choice)
        begun = begin_with(self.group, self.op.output(0), made)
        for op in computed(begun.group):
            if self.target.is_gpu:
                bind_all(begun.s, op, min(THREADS, self.target.max_threads), self.target.max_vector_bytes)
            else:
                elementwise(begun.s, op, self.target, 1, True)
        return Scheduled(begun.s, begun.outputs, choice)


def _is_rounded(group: Group, op: ComputeOp, dtype: str) -> bool:
    """Whether all that reads a product casts it to `dtype`, in which then nothing is lost."""
    reads = casts = 0
    for reader in group.consumers.get(op, []):
        for e in (x for body in getattr(reader, "body", ()) for x in walk_exprs(body)):
            reads += isinstance(e, TensorRead) and e.tensor.op is op
            casts += (
                isinstance(e, Cast) and e.dtype == dtype and isinstance(e.value, TensorRead) and e.value.tensor.op is op
            )
    return op.output(0).dtype != dtype and reads > 0 and reads == casts
