"""What few rows are multiplied with, as `few_rows` and `few_rows_matrix` load it: a product's operands, or a projection's. Weights are numbers, or packed codes."""

from __future__ import annotations

import math
from typing import Any

from .... import te
from ....ir import IntImm, TensorRead
from ....ir.dtype import dtype_info
from ....ops.contraction import Contraction, Operand
from ....ops.dims import Dim
from ....ops.forms import Form
from ....ops.packed import PackedContraction, Weights
from ....ops.typical import most
from ....records import dataclass
from ....target import Target
from ....te import PlaceholderOp, Tensor
from ...group import Group
from ...parts import loops
from .few_rows_codes import Packed, is_served

TYPES = ("float16", "bfloat16", "float32")
PIECE_BYTES = 16  # of a lane's load
LEAST_COLUMNS, LEAST_DEPTH = 64, 256  # below which a sum is too short to be shared


@dataclass(frozen=True)
class Operands:
    """x [m, k] times w [n, k] transposed, both as they lie; of packed weights w are the codes. scale: of the norm of x's rows, [k]; gate: w has twice the columns.
    rows: of x where their number is symbolic, in a class that ends at m."""

    x: Tensor
    w: Tensor
    m: int
    n: int
    k: int
    out_dtype: str
    scale: Tensor | None = None
    eps: float = 0.0
    gate: bool = False
    packed: Packed | None = None
    rows: Dim | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """What a kernel reads: x, weights, the norm's scale, what packed weights have beside their codes."""
        beside = self.packed.tensors if self.packed is not None else []
        return [self.x, self.w, *([self.scale] if self.scale is not None else []), *beside]

    @property
    def last_row(self) -> Any:
        """Of x, those that there are."""
        return (self.m if self.rows is None else self.rows.asexpr()) - 1

    @property
    def weight_bytes(self) -> float:
        each = dtype_info(self.w.dtype).bytes if self.packed is None else self.packed.bytes_a_weight
        return self.n * (1 + self.gate) * self.k * each


def operands_of(group: Group, target: Target) -> tuple[Form, dict[int, Tensor], Operands] | None:
    """The form, what carries it, and the operands, where such a template can load them."""
    found = group.form("product", "projection") if target.is_gpu else None
    if found is None:
        return None
    form, carriers = found
    o = _of_product(form.attrs["contraction"]) if "contraction" in form.attrs else _of_projection(form)
    if o is None or o.n < LEAST_COLUMNS or o.k < LEAST_DEPTH or o.x.dtype not in TYPES:
        return None
    if o.packed is not None and not is_served(o.packed.weights):
        return None
    if (o.packed is None and o.w.dtype != o.x.dtype) or o.k % piece_of(o):
        return None
    if max(o.n * (1 + o.gate), o.m) * o.k >= loops.LIMIT:
        return None
    return form, carriers, o


def piece_of(o: Operands) -> int:
    """Weights of a lane's load."""
    return PIECE_BYTES // dtype_info(o.w.dtype).bytes if o.packed is None else o.packed.piece


def _of_projection(form: Form) -> Operands | None:
    attrs = form.attrs
    if not all(isinstance(t.op, PlaceholderOp) for t in form.inputs):
        return None
    x, *rest = form.inputs
    scale = rest.pop(0) if attrs.get("eps") is not None else None
    w, *beside = rest
    packed = Packed(Weights.of(attrs), *beside) if attrs.get("bits") else None
    (m, n), dtype = (int(d) for d in form.outputs[0].shape), form.outputs[0].dtype
    return Operands(
        x, w, m, n, int(attrs["depth"]), dtype, scale, attrs.get("eps") or 0.0, bool(attrs.get("gate")), packed
    )


def _of_packed(c: PackedContraction) -> Operands | None:
    if (
        c.weights is None
        or c.weights.are_numbers
        or not isinstance(c.m, int)
        or not all(isinstance(t.op, PlaceholderOp) for t in c.tensors_read)
    ):
        return None
    x, w, *beside = c.tensors_read
    if len(beside) > 2 or x.dtype == "int8":
        return None
    return Operands(x, w, c.m, c.weights.n, c.weights.k, c.out_dtype, packed=Packed(c.weights, *beside))


def _of_product(c: Contraction) -> Operands | None:
    if isinstance(c, PackedContraction):
        return _of_packed(c)
    m, sizes = most(c.m), [*c.batch, c.n, c.k]
    if type(c) is not Contraction or c.fold is not None or m is None or not all(isinstance(s, int) for s in sizes):
        return None
    rows = c.m if isinstance(c.m, Dim) else None
    if rows is not None and rows.bounds()[0] < 1:  # of no rows there is none to read in place of others
        return None
    if math.prod(c.batch) != 1 or c.acc != "float32":
        return None
    x, w = (_as_it_lies(o, len(c.batch)) for o in (c.a, c.b))
    if x is None or w is None:
        return None
    return Operands(x, w, m, int(c.n), int(c.k), c.out_dtype, rows=rows)


def _as_it_lies(operand: Operand, batch: int) -> Tensor | None:
    """The tensor of an operand that is [..., i, k] in memory, what stands before of one element."""
    i, k = te.var("i"), te.var("k")
    read = operand.at([IntImm(0)] * batch, i, k)
    if not isinstance(read, TensorRead) or not isinstance(read.tensor.op, PlaceholderOp) or len(read.indices) < 2:
        return None
    *first, row, column = read.indices
    alone = all(isinstance(e, IntImm) and e.value == 0 for e in first)
    ones = all(isinstance(d, IntImm) and d.value == 1 for d in read.tensor.shape[: len(first)])
    return read.tensor if alone and ones and row is i and column is k else None
