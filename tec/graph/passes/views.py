"""Transposes and reshapes move down the graph, meet and cancel, and end where they cost nothing.

    relu(transpose(x)) + c          ->  transpose(relu(x) + c'), c' turned round once here
    reshape(matmul(x, w)) + bias    ->  reshape(matmul(x, w) + bias), which is one kernel
    softmax(transpose(x), axes)     ->  transpose(softmax(x, axes'))
    transpose(transpose(x))         ->  one transpose, or none
    matmul(x[b, m, k], w[k, n])     ->  reshape(matmul(x[b*m, k], w)), all rows one product
    matmul(transpose(x), y)         ->  on GPUs a product that reads x where it lies (attributes view_a, view_b)

A value under way is (base, steps): what it is made of, and the steps ("transpose", perm) and ("reshape", shape) from there.
It becomes nodes where something reads it that steps cannot pass. A transpose passes elementwise work only where that work
is its one reader, so that none is repeated; a reshape is free and passes always. Empty values are left alone.

Where a network keeps channels last and has several readers of a value (squeeze and excitation, residual sums; Keras and JAX), transposes meet and cancel only if they
pass all readers. Both ways are tried, and the one that copies fewer elements is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ops.dims import Dim, at_most
from ...ops.registry import ALONG_AXES, SHAPED
from ...ops.typical import typical
from ...ops.views import Steps, apply_shape, normal_steps, squeezed_steps, swap_last
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild

_VECTOR = 16  # elements of the widest registers of a CPU, in float32: loops over fewer run without them


def move_views(graph: Graph, target: Target) -> Graph:
    """The graph with its transposes and reshapes where they cost least; the same graph where it has none to move."""
    if not any(n.op in ("transpose", "reshape") or _has_rows(n) for n in graph.nodes):
        return graph
    near = _Mover(graph, target).run()
    copied = _transposed(near)
    if not copied:
        return near
    far = _Mover(graph, target, passes_all=True).run()
    return far if _transposed(far) < copied else near


def _transposed(graph: Graph) -> int:
    """Elements that a graph's transposes copy at each run."""
    return sum(
        math.prod(typical(d) for d in n.outputs[0].shape)
        for n in graph.nodes
        if n.op == "transpose" and not n.inputs[0].is_const
    )


def _not_empty(*values: Value) -> bool:
    """Whether no extent is 0; a symbolic one is not where that is known."""
    return all(n.bounds()[0] > 0 if isinstance(n, Dim) else n > 0 for v in values for n in v.shape)


def _has_rows(node: Node) -> bool:
    """A product of several matrices with one, whose rows are as well one matrix."""
    if node.op != "matmul" or node.inputs[0].ndim < 3 or not _not_empty(*node.inputs):
        return False
    return math.prod(node.inputs[1].shape[:-2]) == 1 and not node.attrs.get("transpose_a")


class _Mover(Rebuild):
    """`views` holds old values that are under way; `map` those that stand as nodes."""

    def __init__(self, graph: Graph, target: Target, passes_all: bool = False):
        super().__init__(graph)
        self.target = target
        self.passes_all = passes_all
        self.views: dict[Value, tuple[Value, Steps]] = {}
        self.made: dict[tuple[Value, Steps], Value] = {}
        users = graph.users()
        self.single = {v for v, nodes in users.items() if len(nodes) == 1} - set(graph.outputs)

    def run(self) -> Graph:
        for node in self.old.nodes:
            if not self.place(node):
                self.copy(node)
        return self.finish()

    # ---- values

    def value(self, v: Value) -> Value:
        if v not in self.map and v in self.views:
            self.map[v] = self.build(*self.views[v], v.name)
        return super().value(v)

    def build(self, base: Value, steps: Steps, name: str) -> Value:
        """`base` after the steps, as nodes; one for equal ones."""
        done: Steps = ()
        x = base
        for step in steps:
            done = (*done, step)
            if (base, done) not in self.made:
                kind, to = step
                attrs = {"perm": to} if kind == "transpose" else {"shape": to}
                self.made[base, done] = self.new.add(kind, [x], attrs, name)[0]
            x = self.made[base, done]
        return x

    def under_way(self, v: Value) -> tuple[Value, Steps]:
        return self.views[v] if v in self.views else (self.value(v), ())

    def put(self, v: Value, base: Value, steps: Steps) -> None:
        steps = normal_steps(steps, base.shape)
        if steps:
            self.views[v] = base, steps
        else:
            self.map[v] = base

    # ---- nodes

    def place(self, node: Node) -> bool:
        """Put the node below the steps of its inputs; False leaves it to a plain copy."""
        x = node.inputs[0] if node.inputs else None
        if x is None or not _not_empty(*node.inputs, *node.outputs):
            return False
        if node.op == "matmul":
            return self.matmul(node)
        if node.op in ("transpose", "reshape"):  # of a constant where it was too large to fold
            base, steps = self.under_way(x)
            to = tuple(node.attrs["perm" if node.op == "transpose" else "shape"])
            self.put(node.outputs[0], base, (*steps, (node.op, to)))
            return True
        if not any(v in self.views for v in node.inputs):
            return False
        kind = node.definition.kind
        if kind in ("elementwise", "broadcast") and SHAPED not in node.definition.traits:
            return len(node.outputs) == 1 and self.elementwise(node)
        if ALONG_AXES in node.definition.traits:
            return self.along_axes(node)
        if node.op == "layer_norm":
            return self.layer_norm(node)
        if node.op in ("concat", "slice", "pad"):
            return self.permuted(node)
        return False

    def passes(self, v: Value) -> bool:
        """Whether the steps of v may move past a reader."""
        _, steps = self.views[v]
        return self.passes_all or all(kind == "reshape" for kind, _ in steps) or v in self.single

    def elementwise(self, node: Node) -> bool:
        out = node.outputs[0]
        for v in node.inputs:
            if v not in self.views or v.shape != out.shape or not self.passes(v):
                continue
            base, steps = self.views[v]
            operands = [self.operand(o, out, base, steps) for o in node.inputs]
            if all(o is not None for o in operands):
                made = self.new.add(node.op, [o for o in operands if o], node.attrs, out.name, node.origin)[0]
                self.put(out, made, steps)
                return True
        return False

    def operand(self, v: Value, out: Value, base: Value, steps: Steps) -> Value | None:
        """v as it stands before the steps, where that costs nothing."""
        if v in self.views and self.views[v][1] == steps and self.views[v][0].shape == base.shape:
            return self.views[v][0]
        back = _before(v.shape, steps, base.shape, out.shape)
        if back is None:
            return None
        if v.is_known:
            data = np.asarray(v.data)
            for kind, to in back:
                data = data.transpose(to) if kind == "transpose" else data.reshape(to)
            return self.new.constant(np.asarray(data, order="C"), v.name, v.dtype)
        if v.is_const and (shape := apply_shape(v.shape, back)) == (1,) * (len(shape) - v.ndim) + v.shape:
            return v  # it broadcasts as it lies; a reshape of a deferred constant would be copied at each run
        own, before = self.under_way(v)
        back = normal_steps((*before, *back), own.shape)
        if any(kind == "transpose" for kind, _ in back) and not at_most(v.type.size * 4, out.type.size):
            return None  # one transpose for another gains nothing
        return self.build(own, back, v.name)

    def along_axes(self, node: Node) -> bool:
        """Sums and softmax along some dimensions."""
        x, out = node.inputs[0], node.outputs[0]
        if len(node.inputs) != 1 or len(node.outputs) != 1 or x not in self.views or not self.passes(x):
            return False
        base, steps = self.views[x]
        axes = [a % x.ndim for a in node.attrs["axes"]]
        keep = node.attrs.get("keepdims", True)
        if len(steps) == 1 and steps[0][0] == "transpose":
            perm = steps[0][1]
            axes = sorted(perm[a] for a in axes)
            made = self.new.add(node.op, [base], {**node.attrs, "axes": tuple(axes)}, out.name, node.origin)[0]
            kept = [p for p in perm if keep or p not in axes]
            rank = {p: k for k, p in enumerate(sorted(kept))}
            self.put(out, made, (("transpose", tuple(rank[p] for p in kept)),))
            return True
        if len(steps) == 1:
            tail = _tail(base.shape, x.shape)
            if not axes or min(axes) < x.ndim - tail:
                return False
            axes = [a - x.ndim + base.ndim for a in axes]
            made = self.new.add(node.op, [base], {**node.attrs, "axes": tuple(axes)}, out.name, node.origin)[0]
            self.put(out, made, (("reshape", out.shape),))
            return True
        return False

    def layer_norm(self, node: Node) -> bool:
        x = node.inputs[0]
        if x not in self.views or len(self.views[x][1]) != 1 or self.views[x][1][0][0] != "reshape":
            return False
        base, _ = self.views[x]
        axis = node.attrs["axis"] % x.ndim
        if len(node.inputs) != 1:
            return False
        if axis >= x.ndim - _tail(base.shape, x.shape):
            axis += base.ndim - x.ndim
        elif (apart := _with_rows_apart(base.shape, math.prod(x.shape[:axis]))) is not None:
            shape, axis = apart
            base = self.build(base, normal_steps((("reshape", shape),), base.shape), x.name)
        else:
            return False
        attrs = {**node.attrs, "axis": axis}
        for v, made in zip(node.outputs, self.new.add(node.op, [base], attrs, node.outputs[0].name, node.origin)):
            self.put(v, made, (("reshape", v.shape),))
        return True

    def permuted(self, node: Node) -> bool:
        """Operators whose attributes go by dimension, behind one transpose."""
        x, out = node.inputs[0], node.outputs[0]
        if x not in self.views:
            return False
        _, steps = self.views[x]
        if len(steps) != 1 or steps[0][0] != "transpose" or (node.op != "concat" and len(node.inputs) != 1):
            return False
        perm = steps[0][1]
        inputs: list[Value] = []
        for v in node.inputs:
            if v.is_known:
                back = np.ascontiguousarray(np.asarray(v.data).transpose(_inverse(perm)))
                inputs.append(self.new.constant(back, v.name, v.dtype))
            elif v in self.views and self.views[v][1] == steps and self.passes(v):
                inputs.append(self.views[v][0])
            else:
                return False
        attrs = dict(node.attrs)
        if node.op == "concat":
            attrs["axis"] = perm[attrs["axis"] % out.ndim]
        for key in (
            ("starts", "steps", "sizes") if node.op == "slice" else ("before", "after") if node.op == "pad" else ()
        ):
            attrs[key] = tuple(attrs[key][k] for k in _inverse(perm))
        made = self.new.add(node.op, inputs, attrs, out.name, node.origin)[0]
        self.put(out, made, steps)
        return True

    def matmul(self, node: Node) -> bool:
        """Put views before a product into its operands. Whether there were any."""
        (x, y), out = node.inputs, node.outputs[0]
        attrs = dict(node.attrs)
        if attrs.get("view_a") or attrs.get("view_b"):
            return False
        rows = _has_rows(node)
        if not rows and not any(v in self.views for v in node.inputs):
            return False
        a, steps_a = self.under_way(x)
        b, steps_b = self.under_way(y)
        if rows:
            steps_a = normal_steps((*steps_a, ("reshape", (x.type.size // x.shape[-1], x.shape[-1]))), a.shape)
            steps_b = normal_steps((*steps_b, ("reshape", y.shape[-2:])), b.shape)
        operands = []
        for key, v, base, steps in (("a", x, a, steps_a), ("b", y, b, steps_b)):
            plain = squeezed_steps(steps, base.shape)
            steps = plain if swap_last(plain)[1] and len(plain) == 1 else steps
            own, swapped = swap_last(steps)
            # A CPU's product reads rows of B: columns would be gathered.
            if swapped and (self.target.is_gpu or key == "a" or attrs.get("transpose_b")):
                attrs[f"transpose_{key}"] = not attrs.get(f"transpose_{key}", False)
                steps = normal_steps(own, base.shape)
            moves = any(kind == "transpose" for kind, _ in steps)
            if moves and self.target.is_gpu and (v in self.single or v.node is None):
                attrs[f"view_{key}"] = steps
                operands.append(base)
            else:
                operands.append(self.build(base, steps, v.name))
        made = self.new.add("matmul", operands, attrs, out.name, node.origin)[0]
        self.put(out, made, (("reshape", out.shape),))
        return True


def _inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _with_rows_apart(shape: Sequence[int], rows: int) -> tuple[tuple[int, ...], int] | None:
    """A shape whose leading dimensions make so many rows, with one dimension divided in two and those behind it as one, and the number of the leading ones:
    (1, 32, 16, 16) in 8 rows is (1, 8, 4, 256), 2. What is one number for each channel broadcasts to that too, which it does not to rows of 1,024. None where the
    rows end between dimensions, where a size is symbolic, and where what is left innermost is shorter than a vector."""
    if any(isinstance(n, Dim) for n in (*shape, rows)):
        return None
    lead = 1
    for k, n in enumerate(shape):
        if lead * n > rows:
            own, inner = rows // lead, math.prod(shape[k + 1 :])
            if own == 1 or rows % lead or n % own or inner < _VECTOR:
                return None
            return (*shape[:k], own, n // own, inner), k + 1
        lead *= n
    return None


def _regrouped(now: Sequence[int], here: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """`now`, which broadcasts to `here`, as what broadcasts alike to `target`, a reshape of `here`; None where there is no such. Dimensions that are one product in
    both are looked at together: of each such part there is all, or one."""
    if any(isinstance(n, Dim) for n in (*now, *here, *target)):
        return _regrouped_behind(now, here, target)
    made: list[int] = []
    i = j = 0
    while i < len(here) or j < len(target):
        first, start = i, j
        a = b = 1
        while i == first or j == start or a != b:
            if (a <= b and i < len(here)) or j == len(target):
                if i == len(here):
                    break
                a, i = a * here[i], i + 1
            else:
                b, j = b * target[j], j + 1
        mine, whole, new = tuple(now[first:i]), tuple(here[first:i]), tuple(target[start:j])
        if whole == new:
            made += mine
        elif mine == whole:
            made += new
        elif all(n == 1 for n in mine):
            made += (1,) * len(new)
        else:
            return None
    return tuple(made)


def _regrouped_behind(now: Sequence[int], here: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """`_regrouped` where sizes in front are symbolic: the dimensions behind the last of these are looked at as there, those in front as one part."""
    if all(n == 1 for n in now):
        return (1,) * len(target)
    own, new = (next((k for k in range(len(s), 0, -1) if isinstance(s[k - 1], Dim)), 0) for s in (here, target))
    for i in range(own, len(here)):
        for j in range(new, len(target)):
            if math.prod(here[i:]) != math.prod(target[j:]) or any(isinstance(n, Dim) for n in now[i:]):
                continue
            behind = _regrouped(now[i:], here[i:], target[j:])
            if behind is not None and all(n == 1 for n in now[:i]):
                return (*(1,) * j, *behind)
            if behind is not None and tuple(now[:i]) == tuple(here[:i]):
                return (*target[:j], *behind)
    return None


def _tail(a: Sequence[int], b: Sequence[int]) -> int:
    """How many dimensions two shapes share at the end."""
    n = 0
    while n < min(len(a), len(b)) and a[-1 - n] == b[-1 - n]:
        n += 1
    return n


def _before(shape: Sequence[int], steps: Steps, base: Sequence[int], out: Sequence[int]) -> Steps | None:
    """Steps from an operand of `shape`, which broadcasts to `out`, to what broadcasts alike to `base`; None where there is no such."""
    if math.prod(shape) == 1:
        return (("reshape", ()),)
    back: list[tuple[str, tuple[int, ...]]] = []
    now = (1,) * (len(out) - len(shape)) + tuple(shape)
    if now != tuple(shape):
        back.append(("reshape", now))
    shapes = [tuple(base)]
    for step in steps:
        shapes.append(apply_shape(shapes[-1], (step,)))
    for (kind, to), target in reversed(list(zip(steps, shapes))):
        here = shapes[len(shapes) - 1]
        shapes.pop()
        if kind == "transpose":
            inverse = _inverse(to)
            back.append(("transpose", inverse))
            now = tuple(now[k] for k in inverse)
            continue
        if now == here:
            now = target
        else:
            # What broadcasts over a reshape lies in the dimensions that it leaves alone, at the end or at the front.
            tail = _tail(target, here)
            head = _tail(target[::-1], here[::-1])
            head = min(head, min(len(target), len(here)) - tail)
            end = len(here) - tail
            middle = _regrouped(now[head:end], here[head:end], target[head : len(target) - tail])
            if middle is None:
                return None
            now = (*now[:head], *middle, *now[len(now) - tail :])
        back.append(("reshape", now))
    return normal_steps(tuple(back), tuple(shape))
