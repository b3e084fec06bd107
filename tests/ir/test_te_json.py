"""JSON of te computations: what is read back schedules, lowers and computes as what was written."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tec
from tec import te
from tec.schedule import Trace, create_schedule, to_loops
from tests.conformance import elementwise, matmuls, memory, networks, reductions  # noqa: F401  (they fill CASES)
from tests.conformance.test_replay import TARGETS, rows, scheduled


def again(x):
    return te.load_json(te.save_json(x))


@pytest.mark.parametrize(("name", "kind"), rows()[::3])
def test_programs_of_the_table(name: str, kind: str) -> None:
    """Computation and schedule go through JSON; the loops are those of the program itself."""
    program, s = scheduled(name, kind)
    want = str(to_loops(s, program.args, name="f"))
    args, outputs = again((program.args, program.outputs))
    trace = Trace.from_json(json.loads(json.dumps(s.trace.to_json())), s.trace.intrins)
    with tec.Target(TARGETS[kind]):
        fresh = create_schedule([t.op for t in outputs]).replay(trace, s.trace.intrins)
    assert all(a is not b for a, b in zip(args, program.args))
    assert str(to_loops(fresh, args, name="f")) == want


def run(args, feeds):
    out = args[-1]
    f = tec.build(create_schedule(out.op), args, target="llvm")
    y = tec.nd.array(np.zeros([int(n) for n in out.shape], out.dtype))
    f(*map(tec.nd.array, feeds), y)
    return y.numpy()


def test_a_scan_computes_the_same() -> None:
    X = te.placeholder((5, 3), name="X")
    state = te.placeholder((5, 3), name="state")
    init = te.compute((1, 3), lambda _, i: X[0, i], name="init")
    update = te.compute((5, 3), lambda t, i: state[t - 1, i] * 0.5 + X[t, i], name="update")
    Y = te.scan(init, update, state, inputs=[X], name="Y")
    x = np.arange(15, dtype="float32").reshape(5, 3)
    args = again([X, Y])
    assert isinstance(args[1].op, te.ScanOp) and args[1].op.update[0].op.name == "update"
    np.testing.assert_array_equal(run(args, [x]), run([X, Y], [x]))


def test_an_extern_that_reads_one_tensor_twice() -> None:
    A = te.placeholder((4,), name="A")

    def body(ins, outs):
        ib = te.ir_builder.create()
        a, b, c = (ib.buffer_ptr(x) for x in (*ins, *outs))
        with ib.for_range(0, 4, "i") as i:
            c[i] = a[i] + 2.0 * b[i]
        return ib.get()

    C = te.extern((4,), [A, A], body, name="C", dtype="float32")
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(run(again([A, C]), [x]), 3 * x)


def test_pairs_symbols_and_labels() -> None:
    n = te.var("n")
    A = te.placeholder((n, 4), name="A")
    best = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)), name="best",
    )  # fmt: skip
    k = te.reduce_axis((0, 4), "k")
    where, value = te.compute(
        (n,), lambda i: best((k.var, A[i, k]), axis=k), name="B", tag="mine", attrs={"a": (1, "b")}
    )
    m, a, w, v = again([n, A, where, value])
    assert w.op is v.op and (w.value_index, v.value_index) == (0, 1) and a.shape[0] is m
    assert w.op.tag == "mine" and w.op.attrs == {"a": (1, "b")} and w.op.reduce_axis[0].name == "k"
    assert w.op.loc == where.op.loc and again({"A": A})["A"].op.name == "A"


def test_a_long_chain() -> None:
    T = A = te.placeholder((4,), name="A")
    for k in range(600):
        T = te.compute((4,), lambda i, T=T: T[i] + 1.0, name=f"T{k}")
    assert len(te.topo_order(again([A, T])[1])) == 601


def damaged(change) -> str:
    A = te.placeholder((4,), name="A")
    data = json.loads(te.save_json(te.compute((4,), lambda i: A[i] + 1.0, name="B")))
    change({e["is"]: e for e in data["nodes"]})
    return json.dumps(data)


def test_mistakes() -> None:
    A = te.placeholder((4,), name="A")
    for call, says in (
        (lambda: te.save_json(3), "save_json of 3"),
        (lambda: te.save_json([A, None]), "save_json of"),
        (
            lambda: te.save_json(te.compute((4,), lambda i: A[i], attrs={"x": object()})),
            "attrs.'x'. of .* is an object",
        ),
        (lambda: te.load_json("{"), "no JSON"),
        (lambda: te.load_json(tec.ir.save_json(te.var("n"))), "no te computation of this version"),
        (lambda: tec.ir.load_json(te.save_json(A)), "no loop IR of this version"),
        (lambda: te.load_json(damaged(lambda e: e["ComputeOp"].update(axis=[3]))), "damaged"),
        (lambda: te.load_json(damaged(lambda e: e["ComputeOp"].pop("body"))), "damaged"),
        (lambda: te.load_json(damaged(lambda e: e["Tensor"].update(value_index=7))), "damaged"),
        (lambda: te.load_json(damaged(lambda e: e["Tensor"].update(op=3))), "damaged"),
        (lambda: te.load_json(damaged(lambda e: e["PlaceholderOp"].update({"is": "os.system"}))), "damaged"),
    ):
        with pytest.raises(tec.ExprError, match=says):
            call()
