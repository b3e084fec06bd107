"""Products with chosen experts (`tec.ops.experts`) on a CPU: panels of columns, or rows of floats, over threads; each row reads those of its own experts.

The loops of a block are those of packed products of few rows (`packed`, `packed_bytes`): the panel's number counts from its expert's first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from .... import te
from ....ops.experts import Parts, parts_of, place_of
from ....ops.forms import Form
from ....ops.matmul import accumulator
from ....ops.packed import Weights
from ....target import Target
from ....te import Tensor
from ....te.ir_builder import BufferVar, IRBuilder
from ...cost import Footprint, on_cores
from ...group import extent
from ...layouts import is_narrow, packed_group
from ...layouts import packed as packed_panel
from ...parts import loops
from ...parts.counts import lanes_for
from ...space import Choice
from . import packed, packed_bytes

_ROWS = 16  # where their number is open
_COLUMNS = 4  # of floats that are summed at once: as many additions as their latency has clocks


class _Matrix(NamedTuple):
    """What loops of packed products ask of a contraction."""

    weights: Weights
    acc: str
    m: Any = None


class CpuExperts(loops.LoopForm):
    """Panels over threads; `lanes` of a vector of floats."""

    template: ClassVar[str] = "cpu products with experts"
    kind: ClassVar[str] = "expert_matmul"
    stage = "experts"

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        attrs = form.attrs
        if target.is_gpu or not attrs["bits"]:
            return not target.is_gpu
        w, of_bytes = Weights.of(attrs), form.inputs[0].dtype == "int8"
        is_whole = w.panel == packed_panel(target) and w.n // attrs["experts"] % w.panel == 0
        return is_whole and (not of_bytes or w.group == packed_group(target))

    def read_form(self) -> None:
        attrs = self.form.attrs
        lanes = lanes_for("float32", self.target)
        if not attrs["bits"]:
            lanes = min(
                lanes_for(accumulator(self.form.inputs[0].dtype), self.target), attrs["depth"] & -attrs["depth"]
            )
        self.parameters = {"lanes": (lanes,)}

    def sketch(self, choice: Choice) -> Footprint:
        attrs = self.form.attrs
        rows, chosen = (extent(n) or _ROWS for n in self._parts(self.form.inputs).places.shape)
        work = float(rows * chosen * attrs["depth"] * (attrs["columns"] // attrs["experts"]))
        return on_cores(2 * work / self.target.machine.macs("float32", matrix=False))

    def _parts(self, inputs: Sequence[Any]) -> Parts:
        return parts_of(inputs, self.form.inputs[0].dtype)

    def tensors(self, choice: Choice) -> list[Tensor]:
        attrs, out = self.form.attrs, self.form.outputs[0]
        acc = accumulator(out.dtype)

        def body(ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
            p = self._parts(sources)
            if not attrs["bits"]:
                _floats(ib, p, results[0], attrs, acc, choice["lanes"])
                return
            matrix: Any = _Matrix(Weights.of(attrs), acc)
            own = [s for s in sources if s is not p.places]
            shape: Choice = {"rows": 1, "task": 1, "chunk": 1}
            if p.rounded is not None:
                _Bytes(matrix, is_narrow(self.target), ib, own, results[0], choice["lanes"], shape).over(p, attrs)
            else:
                _Numbers(matrix, ib, own, results[0], choice["lanes"], shape).over(p, attrs)

        made = loops.extern("experts", list(self.form.inputs), [(out.shape, acc)], body)
        if acc == out.dtype:
            return made
        return [te.compute(out.shape, lambda *i: made[0](*i).astype(out.dtype), name="experts_cast")]


def _chosen(p: Parts) -> Any:
    """Experts of a row."""
    return getattr(p.places.shape[1], "value", p.places.shape[1])


def _row_and_expert(ib: IRBuilder, p: Parts, i: Any, experts: int) -> tuple[Any, Any]:
    """Of product i: the row of x, and the expert whose matrix it is multiplied with."""
    chosen = _chosen(p)
    row = ib.let("row", te.indexdiv(i, chosen))
    return row, ib.let("expert", place_of(p.places[row, te.indexmod(i, chosen)], experts))


class _Over(packed.Panels):
    """The loops over panels and rows."""

    def over(self, p: Parts, attrs: Any) -> None:
        """All rows by the panels of their experts."""
        ib, experts = self.ib, attrs["experts"]
        self.m, self.sums_scope = self.x.shape[0], "global"
        panels, chosen = self.w.panels // experts, _chosen(p)
        sums = self._x_sums(self.m)
        with ib.for_range(0, panels, "panel", kind="parallel") as panel, ib.for_range(0, self.m * chosen, "i") as i:
            row, expert = _row_and_expert(ib, p, i, experts)
            own = ib.let("own", expert * panels + panel)
            total = self._zeroed(self.acc, self.vectors, "total")
            with ib.for_range(0, self.w.blocks, "b") as b:
                self._block(total, own, row, b, sums)
            for v in range(self.vectors):
                with self._lanes() as lane:
                    self.out[i, panel * self.w.panel + v * self.lanes + lane] = total[v * self.lanes + lane]


class _Numbers(_Over, packed.NumbersProduct):
    """Codes as numbers of the accumulator's type."""


class _Bytes(_Over, packed_bytes.BytesProduct):
    """Codes and x as bytes."""


def _floats(ib: IRBuilder, p: Parts, out: BufferVar, attrs: Any, acc: str, lanes: int) -> None:
    """`_COLUMNS` columns of a row's expert at once, over vectors along k; then the lanes of each sum."""
    experts, k = attrs["experts"], attrs["depth"]
    n = attrs["columns"] // experts
    per = next(c for c in (_COLUMNS, 2, 1) if n % c == 0)
    with (
        ib.for_range(0, n // per, "columns", kind="parallel") as group,
        ib.for_range(0, p.x.shape[0] * _chosen(p), "i") as i,
    ):
        row, expert = _row_and_expert(ib, p, i, experts)
        first = ib.let("first", expert * n + group * per)
        sums = ib.allocate(acc, (per * lanes,), "sums", scope="local")
        for c in range(per):
            with ib.for_range(0, lanes, "lane", kind="vectorize") as lane:
                sums[c * lanes + lane] = te.const(0, acc)
        with ib.for_range(0, k // lanes, "step") as step:
            for c in range(per):
                with ib.for_range(0, lanes, "lane", kind="vectorize") as lane:
                    at = step * lanes + lane
                    product = p.x[row, at].astype(acc) * p.codes[first + c, at].astype(acc)
                    sums[c * lanes + lane] = sums[c * lanes + lane] + product
        for c in range(per):
            total = sums[c * lanes]
            for j in range(1, lanes):
                total = total + sums[c * lanes + j]
            out[i, group * per + c] = total
