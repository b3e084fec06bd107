"""One rank's graph along one mesh axis: placements are propagated in the order of nodes, and collectives stand where a reader wants another placement.

In: a graph, the axis and the rank's place on it, the placements that rules ask for. Out: the graph of the rank's parts. All ranks get graphs of one form, which
differ by their constants and by numbers.

A node is split by a label of its dimensions (`labels`). Of those labels that an operand is split by already, the one is taken that moves the fewest bytes; weights
that a rule has split stay as they are. An operator without labels runs whole on every rank. Source: arXiv 2105.04663, sections 3.3 to 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError, ImportModelError, TecError, one_line
from ..graph import Graph, Node, Value
from ..graph.builders import Builder
from ..ops.dims import Dim
from ..ops.registry import COMPLEX, TensorType, normalize_axis
from ..runtime.arrays.dtypes import itemsize
from .labels import Labels, labels_of
from .mesh import Partial, Placement, Replicate, Shard
from .moves import Moves

_STAYS = 1e3  # times the bytes of a weight that a rule has split: it is moved where nothing else is possible
_OPEN = 64  # what a size counts as that is not known


@dataclass(frozen=True)
class Line:
    """A mesh axis as one rank sees it."""

    axis: str
    ranks: int
    rank: int
    follows: bool = False  # another mesh axis has split the graph already


@dataclass
class Notes:
    """What is told of a split. placements: by the names of inputs, weights, outputs; replicated: (operator, origin, why) of nodes that run whole though an operand
    was split; moved: (collective, bytes of this rank's operand, origin)."""

    placements: dict[str, str] = field(default_factory=dict)
    replicated: list[tuple[str, str, str]] = field(default_factory=list)
    moved: list[tuple[str, int, str]] = field(default_factory=list)


def split(
    graph: Graph, line: Line, wanted: Mapping[Value, tuple[str, Placement]]
) -> tuple[Graph, Notes, dict[str, Placement]]:
    """The rank's graph, what is told of it, and how inputs, outputs and weights lie by their names. wanted: pattern and placement of values that rules are
    about. Raises TecError for a rule that cannot be followed, which names the node and the mesh axis."""
    splitter = Splitter(graph, line, wanted)
    return splitter.run(), splitter.notes, splitter.ends


class Splitter:
    """See the module."""

    def __init__(self, graph: Graph, line: Line, wanted: Mapping[Value, tuple[str, Placement]]):
        self.graph, self.line, self.wanted = graph, line, wanted
        self.new = Graph(graph.name)
        self.new.guards = list(graph.guards)
        self.at: dict[Value, Placement] = {}
        self.forms: dict[tuple[Value, Placement], Value] = {}
        self.inputs: dict[Value, Value] = {}
        self.notes = Notes()
        self.ends: dict[str, Placement] = {}
        names = {v.name: v for v in graph.inputs}
        # Inputs that are what an output was: they lie as is best for who reads them first.
        self.loose = {names[n] for n in graph.state if n in names and names[n] not in wanted}
        self.open: set[str] = set()  # names of sizes that stand for a rank's part
        self.moves = Moves(self.new, line, self._moved)
        self._origin = ""

    # ---- values

    def run(self) -> Graph:
        for v in self.graph.inputs:
            if v not in self.loose:
                self._input(v, self.rule_of(v, v.name) or Replicate())
        for node in self.graph.nodes:
            self._origin = node.origin or node.outputs[0].name
            try:
                self._node(node)
            except ImportModelError as error:
                raise self._lost(node, error) from error
        outputs = self._outputs()
        self.new.inputs = [self._entered(v) for v in self.graph.inputs]
        self.new.set_outputs(outputs, self.graph.output_names)
        self.new.state = dict(self.graph.state)
        self._note_ends()
        return self.new

    def _lost(self, node: Node, error: ImportModelError) -> TecError:
        return ArgumentError(
            f"{node.op} ({one_line(self._origin)}) cannot be split along mesh axis {self.line.axis!r}: {error.message}",
            hint="a rule for its operands or its result says another placement",
        )

    def _moved(self, kind: str, nbytes: int) -> None:
        self.notes.moved.append((kind, nbytes, self._origin))

    def rule_of(self, v: Value, name: str) -> Placement | None:
        """What a rule asks for, checked. None without one."""
        found = self.wanted.get(v)
        if found is None:
            return None
        pattern, placement = found
        why = why_not(v.type, placement, self.line.ranks) if isinstance(placement, Shard) else None
        if why is None:
            return placement
        if self.line.follows:  # the whole could be split so; an axis before left a part that cannot
            self.notes.replicated.append((f"rule {pattern!r}", name, f"of its part {v.type} {why}"))
            return None
        raise broken_rule(pattern, name, v.type, self.line.axis, why)

    def parts(self, p: Shard) -> int:
        return self.line.ranks // p.copies

    def local(self, shape: Sequence[Any], p: Placement) -> tuple[Any, ...]:
        """The shape of a rank's part. A size that is open stands for the part's where its dimension is split."""
        if not isinstance(p, Shard):
            return tuple(shape)
        size = shape[p.dim]
        own = size if isinstance(size, Dim) else size // self.parts(p)
        return (*shape[: p.dim], own, *shape[p.dim + 1 :])

    def _input(self, v: Value, p: Placement) -> None:
        if isinstance(p, Shard) and isinstance(v.shape[p.dim], Dim):
            size: Any = v.shape[p.dim]
            self.open |= {str(n) for n in size.names()}
        made = self.new.input(v.name, v.dtype, self.local(v.shape, p))
        self.new.inputs.clear()
        self.at[v], self.inputs[v], self.forms[v, p] = p, made, made

    def _entered(self, v: Value) -> Value:
        if v not in self.inputs:
            self._input(v, Replicate())
        return self.inputs[v]

    def place_of(self, v: Value) -> Placement:
        """Where a value lies. A constant without a rule is whole, and any part of it can be had."""
        if v in self.at:
            return self.at[v]
        if v.is_const:
            self.at[v] = self.rule_of(v, v.name) or Replicate()
            return self.at[v]
        return Replicate()  # an input that nobody has read

    def get(self, v: Value, want: Placement) -> Value:
        """A value as it is wanted."""
        found = self.forms.get((v, want))
        if found is not None:
            return found
        if v.is_const:
            made = self._constant(v, want)
        elif v in self.loose and v not in self.inputs and not isinstance(want, Partial):
            self._input(v, want)
            return self.inputs[v]
        else:
            if v in self.loose and v not in self.inputs:
                self._input(v, Replicate())
            have = self.at[v]
            made = self.moves.move(self.forms[v, have], v, have, want)
        self.forms[v, want] = made
        return made

    def _constant(self, v: Value, want: Placement) -> Value:
        rule = self.place_of(v)
        if isinstance(rule, Shard) and want != rule:
            return self.moves.move(self.get(v, rule), v, rule, want)
        if isinstance(want, Partial):
            raise ImportModelError(f"constant {v.name} as {want}")
        if not isinstance(want, Shard):
            made = Value(self._name(v), v.type, None, v.data)
            made.quantized, made.layout = v.quantized, v.layout
            return made
        size = v.shape[want.dim] // self.parts(want)
        first = self.line.rank // want.copies * size
        at = (slice(None),) * want.dim + (slice(first, first + size),)
        data = v.data[at]
        return Value(self._name(v), TensorType(v.dtype, data.shape), None, data)

    def _name(self, v: Value) -> str:
        """A constant's own name, by which rules for the next mesh axis know it; other parts of it get another."""
        if v.name in self.new._names:
            return self.new.unique_name(f"{v.name}.part")
        return self.new.unique_name(v.name)

    def cost(self, v: Value, want: Placement) -> float:
        """Bytes that a rank sends for it. Ring algorithms: a gathering or scattering moves (n - 1) / n of the whole value, a reduction twice that."""
        have = self.place_of(v)
        if have == want or (v.is_const and isinstance(have, Replicate)) or (v in self.loose and v not in self.inputs):
            return 0.0
        whole, n = nbytes(v.type), self.line.ranks
        share = (n - 1) / n * whole * (_STAYS if v.is_const else 1.0)
        if isinstance(have, Replicate):
            return 0.0
        if isinstance(have, Partial):
            return share if isinstance(want, Shard) and want.copies == 1 else 2 * share
        return share / n if isinstance(want, Shard) else share

    # ---- nodes

    def _node(self, node: Node) -> None:
        labels = labels_of(node)
        table = self._table(node)
        if table is not None:
            self.put(node, [table], [Partial()])
            return
        if labels is None:
            self._whole(node, "no rule splits it")
            return
        if self._terms(node, labels):
            return
        best: tuple[float, tuple[str, int]] | None = None
        options = self._options(node, labels)
        for option in options:
            found = self._price(node, labels, option)
            if found is not None and (best is None or found < best[0]):
                best = found, option
        alone = self._price_whole(node)
        if best is None or alone < best[0]:
            wants = isinstance(self.wanted.get(node.outputs[0], ("", Replicate()))[1], Shard)
            split = any(isinstance(self.place_of(v), Shard) for v in node.inputs)
            self._whole(node, "its parts would have to be moved" if split and not wants else None)
            return
        self._split(node, labels, *best[1])

    def _options(self, node: Node, labels: Labels) -> list[tuple[str, int]]:
        """Labels, and how many ranks hold the same part, that an operand is split by or that a rule asks for."""
        found: dict[tuple[str, int], None] = {}
        some = False
        for k, v in enumerate(node.inputs):
            p = self.place_of(v)
            if isinstance(p, Shard):
                some = True
                label = labels.inputs[k][p.dim]
                if label is not None:
                    found[label, 1 if k in labels.held else p.copies] = None
        wanted = self.wanted.get(node.outputs[0])
        if wanted is not None and isinstance(wanted[1], Shard) and wanted[1].dim < node.outputs[0].ndim:
            label = labels.outputs[0][wanted[1].dim]
            if label is not None:
                found[label, wanted[1].copies] = None
        if some:
            found |= {(label, 1): None for label in labels.also}
        return list(found)

    def _placements(self, node: Node, labels: Labels, label: str, copies: int) -> list[Placement] | None:
        """How the operands lie where a node is split by a label; None where that cannot be."""
        n, out = self.line.ranks, list[Placement]()
        for k, (v, row) in enumerate(zip(node.inputs, labels.inputs)):
            if label not in row:
                out.append(Replicate())
                continue
            dim, own = row.index(label), copies
            size = v.shape[dim]
            if k in labels.held and isinstance(size, int) and size % n:
                if n % size:
                    return None
                own = n // size
            p = Shard(dim, own)
            if why_not(v.type, p, self.line.ranks):
                return None
            out.append(p)
        for v, row in zip(node.outputs, labels.outputs):
            if label in row and why_not(v.type, Shard(row.index(label), copies), self.line.ranks):
                return None
        if copies > 1 and not any(label in row for row in labels.outputs):
            return None  # terms that several ranks hold would count several times
        return out

    def _price(self, node: Node, labels: Labels, option: tuple[str, int]) -> float | None:
        """What a label costs in bytes: what is moved, and the weights that are read."""
        label, copies = option
        if not any(label in row for row in labels.outputs) and label not in labels.summed:
            return None
        placements = self._placements(node, labels, label, copies)
        if placements is None:
            return None
        total = sum(self.cost(v, p) for v, p in zip(node.inputs, placements)) + self._read(node, placements)
        n = self.line.ranks
        for v, row in zip(node.outputs, labels.outputs):
            p: Placement = Shard(row.index(label), copies) if label in row else Partial(labels.summed.get(label, "sum"))
            want = self.wanted.get(v, ("", p))[1]
            share = (n - 1) / n * nbytes(v.type)
            if isinstance(p, Partial):
                total += share if isinstance(want, Shard) else 2 * share
            elif want != p:
                total += share
        return total

    def _price_whole(self, node: Node) -> float:
        placements: list[Placement] = [Replicate()] * len(node.inputs)
        return sum(self.cost(v, Replicate()) for v in node.inputs) + self._read(node, placements)

    def _read(self, node: Node, placements: Sequence[Placement]) -> float:
        """Bytes of weights that a product reads on each rank."""
        if node.definition.kind != COMPLEX:
            return 0.0
        return sum(
            nbytes(v.type) / (self.parts(p) if isinstance(p, Shard) else 1)
            for v, p in zip(node.inputs, placements)
            if v.is_const
        )

    def _split(self, node: Node, labels: Labels, label: str, copies: int) -> None:
        placements = self._placements(node, labels, label, copies)
        assert placements is not None
        inputs = [self.get(v, p) for v, p in zip(node.inputs, placements)]
        outs: list[Placement] = [
            Shard(row.index(label), copies) if label in row else Partial(labels.summed.get(label, "sum"))
            for row in labels.outputs
        ]
        shapes = [self.local(v.shape, p) for v, p in zip(node.outputs, outs)]
        attrs = self.attrs(node.op, node.attrs, shapes, inputs)
        if label in labels.alone and node.op == "attention":
            q = labels.inputs[0].index(label)
            attrs["offset"] = attrs.get("offset", 0) + self.line.rank // copies * inputs[0].shape[q]
        self.put(node, self.new.add(node.op, inputs, attrs, node.outputs[0].name, node.origin), outs)

    def attrs(
        self, op: str, attrs: Mapping[str, Any], outs: Sequence[tuple[Any, ...]], inputs: Sequence[Value]
    ) -> dict[str, Any]:
        """Attributes that hold shapes, for the shapes of a part."""
        made = dict(attrs)
        if op in ("reshape", "broadcast_to"):
            made["shape"] = outs[0]
        elif op == "slice":
            made["sizes"] = outs[0]
        elif op == "vjp":
            of, own = attrs["of"], dict(attrs["attrs"])
            made["attrs"] = tuple(sorted(self.attrs(of, own, [inputs[-1].shape], inputs[:-1]).items()))
        return made

    def _terms(self, node: Node, labels: Labels) -> bool:
        """Whether terms go through a linear operator as they are: the reduction comes later, or never."""
        partial = {k for k, v in enumerate(node.inputs) if isinstance(self.place_of(v), Partial)}
        if not partial or len(node.outputs) != 1 or node.outputs[0].type.size is None:
            return False
        kinds = {self.place_of(node.inputs[k]) for k in partial}
        if len(kinds) != 1 or tuple(sorted(partial)) not in labels.linear:
            return False
        (kind,) = kinds
        others = [v for k, v in enumerate(node.inputs) if k not in partial]
        if kind not in (Partial("sum"), Partial("avg")) or any(
            not isinstance(self.place_of(v), Replicate) for v in others
        ):
            return False
        if nbytes(node.outputs[0].type) > max(nbytes(node.inputs[k].type) for k in partial):
            return False
        if node.op == "einsum" or (node.op in ("matmul", "conv") and others):
            return False  # a product of terms repeats work that the reduction would save
        inputs = [self.get(v, kind if k in partial else Replicate()) for k, v in enumerate(node.inputs)]
        attrs = self.attrs(node.op, node.attrs, [node.outputs[0].shape], inputs)
        self.put(node, self.new.add(node.op, inputs, attrs, node.outputs[0].name, node.origin), [kind])
        return True

    def _whole(self, node: Node, why: str | None) -> None:
        """Run on every rank, on whole operands."""
        moved = [v for v in node.inputs if isinstance(self.place_of(v), Shard)]
        if moved and why:
            self.notes.replicated.append((node.op, self._origin, why))
        for v in node.inputs:
            self._check_open(v, node)
        inputs = [self.get(v, Replicate()) for v in node.inputs]
        outs = self.new.add(node.op, inputs, dict(node.attrs), node.outputs[0].name, node.origin)
        self.put(node, outs, [Replicate()] * len(outs))

    def _check_open(self, v: Value, node: Node) -> None:
        """A whole value of a size that stands for a rank's part would be another size."""
        sizes: list[Any] = [d for d in v.shape if isinstance(d, Dim)]
        names = {str(n) for d in sizes for n in d.names()} & self.open
        if names:
            raise ArgumentError(
                f"{node.op} ({one_line(self._origin)}) takes all of %{one_line(v.name)}, and mesh axis {self.line.axis!r} splits its size {min(names)}",
                hint="bind the size: shapes={name: number}; or split what the operator does not go along",
            )

    def _table(self, node: Node) -> Value | None:
        """Rows of a table that is split by rows: each rank looks its own up, zeros stand for the others'."""
        if node.op != "gather":
            return None
        table, index = node.inputs
        p, axis = self.place_of(table), normalize_axis(node.attrs["axis"], table.ndim)
        if p != Shard(axis) or "float" not in table.dtype:
            return None
        rows, size = table.shape[axis], table.shape[axis] // self.line.ranks
        b = Builder(self.new, f"{node.outputs[0].name}.table")
        at = self.get(index, Replicate())
        zero = b.like(0, at)
        at = b.op("where", b.op("less", at, zero), b.op("add", at, b.like(rows, at)), at)
        inside = b.op("logical_and", b.op("greater_equal", at, zero), b.op("less", at, b.like(rows, at)))
        every = b.op("reduce_all", inside, axes=tuple(range(at.ndim)), keepdims=False)
        at = b.op("require", at, every, text=f"an index of gather is outside of {rows} rows ({one_line(self._origin)})")
        own = b.op("subtract", at, b.like(self.line.rank * size, at))
        here = b.op("logical_and", b.op("greater_equal", own, zero), b.op("less", own, b.like(size, own)))
        looked = b.op("gather", self.get(table, p), b.op("where", here, own, zero), axis=axis)
        shape = [1] * axis + list(at.shape) + [1] * (table.ndim - axis - 1)
        operands = [b.reshape(here, shape), looked, b.like(0, looked)]
        return self.new.add("where", operands, {}, node.outputs[0].name, node.origin)[0]

    def put(self, node: Node, made: Sequence[Value], placements: Sequence[Placement]) -> None:
        """What a node makes, moved to where a rule wants it."""
        for v, new, p in zip(node.outputs, made, placements):
            want = self.local(v.shape, p)
            if new.shape != want:
                raise ImportModelError(f"its part is {new.type}, not {TensorType(v.dtype, want)}")
            self.at[v], self.forms[v, p] = p, new
            rule = self.rule_of(v, node.origin or v.name)
            if rule is not None and rule != p:
                self.get(v, rule)
                self.at[v] = rule

    # ---- ends

    def _outputs(self) -> list[Value]:
        """Outputs lie as their rules say, terms are reduced, and a state's as the input that it becomes."""
        inputs = {v.name: v for v in self.graph.inputs}
        becomes = {out: inputs[name] for name, out in self.graph.state.items() if name in inputs}
        outputs = []
        for v, name in zip(self.graph.outputs, self.graph.output_names):
            self._origin = f"output {name}"
            p = self.place_of(v)
            if name in becomes:
                before = becomes[name]
                if before in self.inputs:
                    p = self.at[before]
                else:
                    p = Replicate() if isinstance(p, Partial) else p
                    self._input(before, p)
            want = Replicate() if isinstance(p, Partial) else p
            outputs.append(self.get(v, want))
            self.ends[f"output {name}"] = want
        return outputs

    def _note_ends(self) -> None:
        for v in self.graph.inputs:
            self.ends[v.name] = self.at[v]
        for v in self.graph.constants():
            if v.ndim:
                self.ends[v.name] = self._held(v)
        self.notes.placements = {n: str(p) for n, p in self.ends.items()}

    def _held(self, v: Value) -> Placement:
        """What a rank keeps of a constant: the one part of it that is read, or all of it."""
        read = [p for u, p in self.forms if u is v]
        return read[0] if len(read) == 1 else self.place_of(v)


def why_not(t: TensorType, p: Shard, ranks: int) -> str | None:
    """Why a type cannot be split so among ranks; None where it can."""
    if not 0 <= p.dim < t.ndim:
        return f"it has no dimension {p.dim}"
    if p.copies < 1 or ranks % p.copies:
        return f"{ranks} ranks are no multiple of {p.copies} copies"
    size: Any = t.shape[p.dim]
    if isinstance(size, Dim):
        alone = size.is_product and len(size.names()) == 1 and p.copies == 1
        return None if alone else f"dimension {p.dim} ({size}) is no size of its own"
    parts = ranks // p.copies
    return None if size % parts == 0 else f"dimension {p.dim} ({size}) is no multiple of {parts} parts"


def broken_rule(pattern: str, name: str, t: TensorType, axis: str, why: str) -> ArgumentError:
    """What to raise for a rule that cannot be followed."""
    return ArgumentError(
        f"the rule for {pattern!r} splits {one_line(name)} ({t}) along mesh axis {axis!r}: {why}",
        hint="split a dimension that the ranks divide, or pad it",
    )


def nbytes(t: TensorType) -> int:
    """Bytes of a value; a size that is open counts as one of a usual number."""
    total = itemsize(t.dtype)
    for n in t.shape:
        total *= n if isinstance(n, int) else _OPEN
    return int(np.int64(total))
