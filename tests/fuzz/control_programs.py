"""Random ONNX models of control flow: loops, scans, branches and recurrent layers inside one another.

`program(seed)` gives a model and feeds for it. Its float inputs have an open leading size "n"; trip counts are constants, inputs, sizes, or made of
numbers; conditions too. Bodies read what is around them, states are tensors of several shapes, and what a body makes is gone over backwards or forwards.
Every value stays within a few units of 0, so that no rounding decides a condition but by a chance of 1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[Any, ...]
SHAPES: list[Shape] = [(4,), ("n", 4), (3, 4), ()]
FORMS = ("if", "loop", "scan", "lstm")
MOST_TRIPS = 12


@dataclass
class Program:
    """A model with what it is run on."""

    model: onnx.ModelProto
    feeds: list[dict[str, Any]]
    kinds: set[str]


@dataclass
class Scope:
    """A graph while it is made: its nodes, and the values that they may read, those of the graphs around it too."""

    values: list[tuple[str, Shape]]
    nodes: list[Any] = field(default_factory=list)
    number: str | None = None  # of the trip, an int64 scalar


class Maker:
    """Makes one model."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.kinds: set[str] = set()

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def one(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def node(self, s: Scope, op: str, inputs: list[str], outputs: int = 1, **attrs: Any) -> str:
        names = [self.name("v") for _ in range(outputs)]
        s.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names[0]

    def const(self, s: Scope, array: Any) -> str:
        return self.node(s, "Constant", [], value=numpy_helper.from_array(np.asarray(array)))

    def add(self, s: Scope, name: str, shape: Shape) -> str:
        s.values.append((name, shape))
        return name

    # ---- values

    def pick(self, s: Scope, shape: Shape) -> str:
        """A value of a shape: one that is there, or one made of one that is."""
        there = [n for n, x in s.values if x == shape]
        if there and self.rng.random() < 0.9:
            return str(self.one(there[-4:]))
        if shape == ("n", 4):
            base = self.pick(s, (4,))
            size = self.node(s, "Shape", ["x"])
            return self.add(s, self.node(s, "Expand", [base, size]), shape)
        if shape == ():
            return self.add(s, self.scalar(s), shape)
        if there:
            return str(self.one(there))
        array = self.rng.uniform(-1, 1, shape).astype(np.float32)
        return self.add(s, self.const(s, array), shape)

    def scalar(self, s: Scope) -> str:
        """The mean of something, a float of no dimension."""
        name, shape = self.one([v for v in s.values if v[1] != ()])
        mean = self.node(s, "ReduceMean", [name], keepdims=0)
        return self.node(s, "Tanh", [mean])

    def flag(self, s: Scope) -> str:
        """A condition: an input, a constant, or made of numbers."""
        kind = self.rng.integers(6)
        if kind == 0:
            return "flag"
        if kind == 1:
            return self.node(s, "Not", ["flag"])
        if kind == 2:
            return self.const(s, np.asarray(bool(self.rng.integers(2))))
        if kind == 3 and s.number is not None:
            return self.node(s, "Less", [s.number, self.const(s, np.int64(self.rng.integers(0, 6)))])
        limit = self.const(s, np.float32(self.rng.uniform(-0.3, 0.3)))
        return self.node(s, self.one(["Less", "Greater"]), [self.scalar(s), limit])

    def trips(self, s: Scope) -> tuple[str, bool]:
        """(a trip count, whether it is known before the numbers are)."""
        kind = self.rng.integers(5)
        if kind == 0:
            return "count", False
        if kind == 1:
            scaled = self.node(s, "Mul", [self.scalar(s), self.const(s, np.float32(5))])
            whole = self.node(s, "Cast", [self.node(s, "Abs", [scaled])], to=TensorProto.INT64)
            return whole, False
        if kind == 2:
            size = self.node(s, "Gather", [self.node(s, "Shape", ["x"]), self.const(s, np.int64(0))], axis=0)
            return size, True
        return self.const(s, np.int64(self.one([0, 1, 3, 9, MOST_TRIPS]))), True

    # ---- statements

    def plain(self, s: Scope) -> None:
        shape = self.one(SHAPES[:3])
        a, b = self.pick(s, shape), self.pick(s, self.one([shape, (4,), ()]))
        kind = self.rng.integers(8)
        if kind == 0:
            out = self.node(s, "Tanh", [self.node(s, "Add", [a, b])])
        elif kind == 1:
            out = self.node(s, "Mul", [a, b])
        elif kind == 2:
            out = self.node(s, "Sub", [self.node(s, "Sigmoid", [a]), b])
            out = self.node(s, "Tanh", [out])
        elif kind == 3:
            w = self.const(s, (self.rng.standard_normal((4, 4)) / 2).astype(np.float32))
            out = self.node(s, "Tanh", [self.node(s, "MatMul", [a, w])])
        elif kind == 4:
            out = self.node(s, "Where", [self.flag(s), a, self.node(s, "Neg", [a])])
        elif kind == 5:
            out = self.node(s, "Softmax", [a], axis=-1)
        elif kind == 6 and s.number is not None:
            t = self.node(s, "Cast", [s.number], to=TensorProto.FLOAT)
            out = self.node(s, "Sin", [self.node(s, "Add", [a, t])])
        else:
            axis = self.const(s, np.int64(0))
            out = self.node(s, "Tanh", [self.node(s, "CumSum", [a, axis])])
        self.add(s, out, shape)

    def statements(self, s: Scope, count: int, depth: int) -> None:
        for _ in range(count):
            kind = self.rng.random()
            if depth and kind < 0.45:
                form = self.one(FORMS)
                self.kinds.add(form)
                getattr(self, "_" + form)(s, depth - 1)
            else:
                self.plain(s)

    def body(
        self, s: Scope, depth: int, inputs: list[Any], given: list[tuple[str, Shape]], number: str | None = None
    ) -> Scope:
        inner = Scope([*s.values, *given], number=number or s.number)
        self.statements(inner, int(self.rng.integers(1, 4)), depth)
        return inner

    def outputs(self, inner: Scope, shapes: list[Shape]) -> list[Any]:
        infos = []
        for shape in shapes:
            name = self.node(inner, "Identity", [self.pick(inner, shape)])
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return infos

    def _if(self, s: Scope, depth: int) -> None:
        shapes = [self.one(SHAPES) for _ in range(self.rng.integers(1, 3))]
        branches = {}
        flag = self.flag(s)
        for which in ("then_branch", "else_branch"):
            inner = self.body(s, depth, [], [])
            outs = self.outputs(inner, shapes)
            branches[which] = helper.make_graph(inner.nodes, self.name(which), [], outs)
        first = self.node(s, "If", [flag], len(shapes), **branches)
        for name, shape in zip(s.nodes[-1].output, shapes):
            self.add(s, name, shape)
        assert first

    def _loop(self, s: Scope, depth: int) -> None:
        trips, known = self.trips(s)
        begins = self.flag(s) if self.rng.random() < 0.3 else ""
        states = [self.one(SHAPES) for _ in range(self.rng.integers(1, 4))]
        rows = [self.one(SHAPES) for _ in range(self.rng.integers(0, 3))]
        starts = [self.pick(s, x) for x in states]
        number, going = self.name("i"), self.name("c")
        given = [(self.name("s"), x) for x in states]
        inner = self.body(s, depth, [], given, number)
        outs = self.outputs(inner, [*states, *rows])
        more = self.node(inner, "Identity", [self.flag(inner) if self.rng.random() < 0.3 else going])
        infos = [helper.make_tensor_value_info(number, TensorProto.INT64, [])]
        infos.append(helper.make_tensor_value_info(going, TensorProto.BOOL, []))
        infos += [helper.make_tensor_value_info(n, TensorProto.FLOAT, x) for n, x in given]
        graph = helper.make_graph(
            inner.nodes, self.name("loop"), infos, [helper.make_tensor_value_info(more, TensorProto.BOOL, []), *outs]
        )
        self.node(s, "Loop", [trips, begins, *starts], len(states) + len(rows), body=graph)
        made = list(s.nodes[-1].output)
        for name, shape in zip(made, states):
            self.add(s, name, shape)
        for name, shape in zip(made[len(states) :], rows):  # as many as there were trips: their sum
            axis = self.const(s, np.array([0], np.int64))
            self.add(s, self.node(s, "Tanh", [self.node(s, "ReduceSum", [name, axis], keepdims=0)]), shape)

    def _scan(self, s: Scope, depth: int) -> None:
        over: list[tuple[str, int]] = []
        length = self.one(["n", 3, 20])
        for _ in range(self.rng.integers(1, 3)):
            if length == 20:
                name = self.const(s, self.rng.uniform(-1, 1, (20, 4)).astype(np.float32))
            else:
                name = self.pick(s, (length, 4))
            axis = int(self.rng.integers(2))
            over.append((self.node(s, "Transpose", [name], perm=[1, 0]) if axis else name, axis))
        states = [self.one(SHAPES) for _ in range(self.rng.integers(0, 3))]
        rows = [self.one([(4,), (4,), ()]) for _ in range(self.rng.integers(1, 3))]
        starts = [self.pick(s, x) for x in states]
        given = [(self.name("s"), x) for x in states] + [(self.name("r"), (4,)) for _ in over]
        inner = self.body(s, depth, [], given)
        outs = self.outputs(inner, [*states, *rows])
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x) for n, x in given]
        graph = helper.make_graph(inner.nodes, self.name("scan"), infos, outs)
        out_axes = [int(self.rng.integers(2)) if x else 0 for x in rows]
        self.node(
            s, "Scan", [*starts, *(n for n, _ in over)], len(states) + len(rows), body=graph, num_scan_inputs=len(over),
            scan_input_axes=[a for _, a in over], scan_input_directions=[int(x) for x in self.rng.integers(0, 2, len(over))],
            scan_output_axes=out_axes, scan_output_directions=[int(x) for x in self.rng.integers(0, 2, len(rows))],
        )  # fmt: skip
        made = list(s.nodes[-1].output)
        for name, shape in zip(made, states):
            self.add(s, name, shape)
        for name, shape, axis in zip(made[len(states) :], rows, out_axes):
            if shape == (4,) and length != 20:
                turned = self.node(s, "Transpose", [name], perm=[1, 0]) if axis else name
                self.add(s, turned, (length, 4))
            else:
                axis_ = self.const(s, np.array([axis], np.int64))
                total = self.node(s, "ReduceSum", [name, axis_], keepdims=0)
                self.add(s, self.node(s, "Tanh", [total]), shape)

    def _lstm(self, s: Scope, depth: int) -> None:
        """A recurrent layer over rows, each entry of the batch of its own length."""
        op, gates = self.one([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
        direction = self.one(["forward", "reverse", "bidirectional"])
        d = 2 if direction == "bidirectional" else 1
        hidden = 4 // d
        length = self.one(["n", 3])
        x = self.node(s, "Unsqueeze", [self.pick(s, (length, 4)), self.const(s, np.array([1], np.int64))])
        w = [
            self.const(s, (self.rng.standard_normal(shape) / 2).astype(np.float32))
            for shape in ((d, gates * hidden, 4), (d, gates * hidden, hidden), (d, 2 * gates * hidden))
        ]
        inputs = [x, *w]
        if length == 3 and self.rng.random() < 0.4:
            inputs.append(self.const(s, np.array([self.rng.integers(0, 4)], np.int32)))
        attrs = {"linear_before_reset": int(self.rng.integers(2))} if op == "GRU" else {}
        self.node(s, op, inputs, 2, hidden_size=hidden, direction=direction, **attrs)
        y, h = s.nodes[-1].output
        shape = self.const(s, np.array([-1, 4], np.int64))
        self.add(s, self.node(s, "Reshape", [self.node(s, "Transpose", [y], perm=[0, 2, 1, 3]), shape]), (length, 4))
        self.add(s, self.node(s, "Reshape", [h, self.const(s, np.array([4], np.int64))]), (4,))


def program(seed: int) -> Program:
    """The model of a seed, and what it is run on: one compilation is to serve them all."""
    m = Maker(seed)
    s = Scope([("x", ("n", 4)), ("y", (4,))])
    m.statements(s, int(m.rng.integers(2, 5)), int(m.rng.integers(1, 4)))
    outs = list(s.values[2:])[-4:]
    infos = []
    for name, shape in outs or s.values[:1]:
        out = m.node(s, "Identity", [name])
        infos.append(helper.make_tensor_value_info(out, TensorProto.FLOAT, shape))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]),
        helper.make_tensor_value_info("count", TensorProto.INT64, []),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(s.nodes, f"control{seed}", inputs, infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    feeds = []
    for n, count, flag in ((3, 4, True), (1, 0, False), (10, 11, bool(m.rng.integers(2)))):
        x, y = (m.rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((n, 4), (4,)))
        feeds.append({"x": x, "y": y, "count": np.array(count), "flag": np.array(flag)})
    return Program(model, feeds, m.kinds)
