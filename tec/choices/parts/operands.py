"""What a product multiplies, and what follows it.

Two forms of operands serve templates on GPUs. A contraction's (`contraction`) are padded tiles, computed where they are needed (`padding`): any layout, any window of an
image. Tensors as they lie in memory (`in_memory`) are what copy engines and tensor cores of Hopper take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...ir import Cast, Expr, IntImm, IterVar, Mul, Reduce, TensorRead
from ...ops.contraction import Contraction
from ...ops.typical import typical
from ...records import dataclass
from ...schedule import Schedule
from ...te import ComputeOp, Operation, PlaceholderOp, Tensor
from ..group import Group, begin, const_shape, depends, extent_of, reads_of, same_shape, substitute

IN_PLACE = ("tile",)  # tags of operands whose tiles are computed in shared memory (see `padding`)


@dataclass(frozen=True)
class Product:
    """The two operands of a product, and whether A is [k, m] and B is [n, k]; a size is None where it is symbolic."""

    a: Tensor
    b: Tensor
    trans_a: bool
    trans_b: bool
    m: int | None
    n: int | None
    k: int | None


def operands(mm: ComputeOp) -> Product | None:
    """The operands of sum_k A[..., i, k] * B[..., k, j] in any order of the last two indices; None for another form."""
    body = mm.body[0]
    if not isinstance(body, Reduce) or len(mm.body) != 1 or body.combiner.name != "sum" or len(mm.reduce_axis) != 1:
        return None
    source = body.source[0]
    if not isinstance(source, Mul) or len(mm.axis) < 2:
        return None
    i, j, k = mm.axis[-2].var, mm.axis[-1].var, mm.reduce_axis[0].var
    dims = const_shape(mm.output(0))
    size_k = extent_of(mm.reduce_axis[0])
    found: dict[str, tuple[Tensor, bool]] = {}
    for e in (source.a, source.b):
        read: Expr = e
        while isinstance(read, Cast):
            read = read.value
        if not isinstance(read, TensorRead) or len(read.indices) < 2:
            return None
        x, y = read.indices[-2:]
        for name, pair in (("a", (i, k)), ("b", (k, j))):
            for trans in (False, True):
                want = pair[::-1] if trans else pair
                if x is want[0] and y is want[1]:
                    found[name] = (read.tensor, trans)
    if set(found) != {"a", "b"} or found["a"][0].dtype != found["b"][0].dtype or found["a"][0] is found["b"][0]:
        return None
    (a, trans_a), (b, trans_b) = found["a"], found["b"]
    return Product(a, b, trans_a, trans_b, dims[-2], dims[-1], size_k)


def follows(out: Operation, mm: Operation, known: set[Operation] | None = None) -> bool:
    """Whether `out` reads the product, at any distance, at its own place alone: what an epilogue on the accumulators can do."""
    known = set() if known is None else known  # what is found to follow: an epilogue may read one value many times
    if out is mm or out in known:
        return True
    if not isinstance(out, ComputeOp) or out.reduce_axis:
        return False
    for read in reads_of(out):
        op = read.tensor.op
        if op is mm or depends(op, mm):
            own = len(read.indices) == len(out.axis) and all(map(is_own_place, read.indices, out.axis))
            if not own or not follows(op, mm, known):
                return False
    known.add(out)
    return True


def folds_rows(out: Operation, result: Operation) -> bool:
    """Whether `out` is a reduction over the last axis of `result`, or of what follows it elementwise, one for each row."""
    if not isinstance(out, ComputeOp) or len(out.reduce_axis) != 1:
        return False
    at = [a.var for a in (*out.axis, *out.reduce_axis)]
    own = [e for e in reads_of(out) if e.tensor.op is result or depends(e.tensor.op, result)]
    return bool(own) and all(
        len(e.indices) == len(at) and all(i is v for i, v in zip(e.indices, at)) and follows(e.tensor.op, result)
        for e in own
    )


def is_own_place(index: Expr, axis: IterVar) -> bool:
    """Whether an index reads at an axis's own place; along an axis of one element that is 0 too."""
    return index is axis.var or (extent_of(axis) == 1 and isinstance(index, IntImm) and index.value == 0)


@dataclass(frozen=True)
class InMemory:
    """A product of matrices that lie in memory: m (where that is symbolic, what it is thought to be), n, k, and how many of them a batch has."""

    p: Product
    out: ComputeOp
    m: int
    n: int
    k: int
    batch: int


def in_memory(group: Group, op: ComputeOp, shared_operands: bool = False, open_rows: bool = False) -> InMemory | None:
    """The group's one product `op` where its operands are inputs, and one output follows it elementwise; None for another. shared_operands: whether a matrix may
    serve all products of a batch; open_rows: whether the number of rows may be symbolic, which then is what it is thought to be."""
    p = operands(op) if group.reductions() == [op] and len(group.outputs) == 1 else None
    if p is None or p.n is None or p.k is None:
        return None
    form = group.form("product") if open_rows and p.m is None else None
    m = p.m if form is None else typical(form[0].attrs["contraction"].m)
    if m is None:
        return None
    out, shape = group.output_ops[0], const_shape(op.output(0))
    if not isinstance(out, ComputeOp) or not follows(out, op) or const_shape(out.output(0)) != shape:
        return None
    ranks = (2, len(shape)) if shared_operands else (len(shape),)
    lead = [d for d in shape[:-2] if d is not None]
    if len(lead) < len(shape) - 2 or not all(
        isinstance(t.op, PlaceholderOp) and len(t.shape) in ranks for t in (p.a, p.b)
    ):
        return None
    return InMemory(p, out, m, p.n, p.k, math.prod(lead))


def contraction(group: Group, op: ComputeOp) -> tuple[Contraction, Tensor] | None:
    """The contraction that the group's one product `op` is, and the tensor that has its result; None for another group."""
    found = group.form("product")
    if found is None or len(group.output_ops) != 1 or group.reductions() != [op]:
        return None
    return found[0].attrs["contraction"], found[1][0]


def anchored(group: Group, op: Operation) -> tuple[ComputeOp, ComputeOp] | None:
    """The group's one reduction `op` and the one output that it ends in, where that has the reduction's shape; None for another group."""
    if not isinstance(op, ComputeOp) or len(group.output_ops) != 1 or group.reductions() != [op]:
        return None
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp) or not same_shape(out.output(0), op.output(0)):
        return None
    return op, out


def accumulators(s: Schedule, mm: ComputeOp, out: ComputeOp, scope: str, stored: Tensor | None = None) -> Tensor:
    """The sums of a product in a scope of their own: those of `mm` where `out` follows it, else what is copied to `stored`, by default its result."""
    made: Tensor = mm.output(0)
    if out is mm:
        made = s.cache_write(made if stored is None else stored, scope)
    else:
        s[made].set_scope(scope)
    return made


@dataclass(frozen=True)
class Begun:
    """A schedule at its beginning: the group's outputs in it, and the operation that makes them."""

    s: Schedule
    group: Group
    outputs: list[Tensor]
    out: ComputeOp


def begin_with(
    group: Group, result: Tensor | None = None, made: Tensor | None = None, kept: Iterable[Operation] = ()
) -> Begun:
    """A schedule of the group with `made` in place of `result`, where they are given. Padded tiles and `kept` stay stages of their own."""
    outputs = group.outputs if result is None or made is None else substitute(group.outputs, {result: made})
    group = Group.of(outputs)
    s = begin(group, keep=[*kept, *(o for o in group.ops if o.tag in IN_PLACE)])
    out = group.output_ops[0]
    assert isinstance(out, ComputeOp)
    return Begun(s, group, outputs, out)
