"""JSON of loop IR: what is read back is the same structure, prints the same, and what was one thing is one again."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tec
from tec import te
from tec.ir import build, load_json, save_json
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.structural import structural_equal
from tests.conformance import elementwise, matmuls, memory, reductions
from tests.conformance.harness import CASES, Program
from tests.ir.parser import parse_func
from tests.ir.test_roundtrip import TEXTS
from tests.thinned import thinned

# Of the files above alone, in their names' order: the same tests whatever else is imported.
_FILES = {m.__name__ for m in (elementwise, matmuls, memory, reductions)}
PROGRAMS = sorted(name for name, case in CASES.items() if case.make.__module__ in _FILES)


@pytest.mark.parametrize("text", TEXTS[:4])
def test_every_node_of_the_grammar(text: str) -> None:
    f = parse_func(text)
    again = load_json(save_json(f))
    assert structural_equal(f, again) and str(f) == str(again)


def test_texts_of_before_notes_were_typed() -> None:
    f = parse_func(TEXTS[0])
    data = json.loads(save_json(f))
    notes = {k: n for k, n in enumerate(data["nodes"]) if n["is"] == "StorageNotes"}
    assert notes
    for node in data["nodes"]:
        if node["is"] == "Alloc":
            of = notes[node.pop("notes")["node"]]
            align = [[axis, [factor, offset]] for axis, factor, offset in of["storage_align"]]
            node["annotations"] = {"dict": [["double_buffer", of["double_buffer"]], ["storage_align", {"dict": align}]]}
        if node["is"] == "For":
            unroll = node.pop("unroll")
            node["annotations"] = {"dict": [["unroll", unroll]] * bool(unroll) + [["pipelined", node.pop("pipelined")]]}
    assert str(load_json(json.dumps(data))) == str(f)


@thinned(1, ("name", PROGRAMS[::11]), ("simple", [True, False]))
def test_programs(name: str, simple: bool) -> None:
    program, target = CASES[name].make(), tec.Target("llvm")
    if not isinstance(program, Program):
        pytest.skip("a kernel")
    s = tec.create_schedule([t.op for t in program.outputs])
    if program.cpu is not None:
        program.cpu(s, target)
    module = tec.lower(s, program.args, simple_mode=simple, target=target)
    again = load_json(save_json(module))
    assert str(again) == str(module) and all(structural_equal(a, b) for a, b in zip(module, again))


def test_a_function_builds_after_the_way_through_json() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: te.if_then_else(A[i] > 0.0, A[i], te.infinity("float32")), name="B")
    module = tec.lower(tec.create_schedule(B.op), [A, B], simple_mode=True)
    f = tec.build(load_json(save_json(module)), target="llvm")
    a, out = np.linspace(-1, 1, 8).astype("f"), tec.nd.array(np.zeros(8, "f"))
    f(tec.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), np.where(a > 0, a, np.inf).astype("f"))


def test_identity_is_kept() -> None:
    n = E.Var("n", "int32", True)
    both = load_json(save_json(build.add(n, build.mul(n, 2))))
    assert both.a is both.b.a and both.a is not n
    assert load_json(save_json(build.const(float("nan"), "float32"))).value != 0


def test_deep_expressions() -> None:
    x: E.Expr = E.Var("x", "int32")
    for k in range(3000):
        x = E.Add(x, E.IntImm(k, "int32"))
    again, depth = load_json(save_json(x)), 0
    while isinstance(again, E.Add):
        again, depth = again.a, depth + 1
    assert depth == 3000 and again.name == "x"


A1 = te.placeholder((4,), name="A")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"), ("[]", "no loop IR of this version"), (json.dumps({"tec_ir": 99, "root": 0, "nodes": []}), "this version"),
        (json.dumps({"tec_ir": 1, "root": {"node": 4}, "nodes": []}), "damaged"),
        (json.dumps({"tec_ir": 1, "root": {"node": 0}, "nodes": [{"is": "Var"}]}), "damaged"),
        (json.dumps({"tec_ir": 1, "root": {"node": 0}, "nodes": [{"is": "os.system"}]}), "damaged"),
        (json.dumps({"tec_ir": 1, "root": {"node": 0}, "nodes": [{"is": "Not", "a": {"node": 0}}]}), "damaged"),
    ],
)  # fmt: skip
def test_damaged_texts(text: str, says: str) -> None:
    with pytest.raises(tec.ExprError, match=says):
        load_json(text)


def test_what_is_no_ir() -> None:
    with pytest.raises(tec.ExprError, match="reads a te tensor"):
        save_json(A1[0] + 1.0)
    with pytest.raises(tec.ExprError, match="save_json of 3"):
        save_json(3)
    with pytest.raises(tec.ExprError, match="no part of loop IR"):
        save_json(S.Evaluate(E.Call("undef", (), "int32", {"x": object()})))
