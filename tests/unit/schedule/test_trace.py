"""The trace prints as Python and replays to the same loops; print(s) shows the nest."""

from __future__ import annotations

import ast
import dataclasses
import graphlib
import json
import re
from pathlib import Path

import pytest

import tec
from tec import te
from tec.errors import TecError
from tec.schedule import Trace, create_schedule, replay, to_loops
from tec.schedule.primitives import Ref, Split, StageOf

from .test_lowering import gpu_matmul, matmul, row_sum
from .test_regions import cumsum, matmul_intrin


def same(s, args, outputs, **kwargs):
    again = replay(str(s.trace), outputs, **kwargs)
    assert str(again.trace) == str(s.trace)
    assert str(to_loops(again, args)) == str(to_loops(s, args))
    assert str(again) == str(s)


def test_gpu_matmul():
    s, args = gpu_matmul(64, 64, 32)
    same(s, args, args[2])
    lines = str(s.trace).splitlines()
    assert lines[0] == "s = tec.create_schedule([C])"
    assert lines[1] == "A_shared = s.cache_read(A, 'shared', [C])"


def test_rfactor_predicate_and_symbols():
    s, args = row_sum(100, 16)
    same(s, args, args[1])
    assert "s[B].set_store_predicate((threadIdx_x.var == 0))" in str(s.trace)


def test_replay_on_a_new_computation():
    s, _ = gpu_matmul(64, 64, 32)
    A, B, C = matmul(128, 96, 40)
    again = replay(s.trace, C)
    assert "A_shared = alloc((16, 4)" in str(to_loops(again, [A, B, C]))


def test_scan_threads():
    X, init, update, R = cumsum(8, 16)
    s = create_schedule(R.op)
    s[R].env_threads([te.thread_axis((0, 2), "blockIdx.x")])
    for stage in (init, update):
        o, i = s[stage].split(stage.op.axis[1], nparts=2)
        s[stage].bind(o, te.thread_axis((0, 2), "blockIdx.x"))
    same(s, [X, R], R)


def test_tensorize_and_others():
    A, B, C = matmul(16, 24, 12)
    s = create_schedule(C)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 8)
    s[C].tensorize(xi, matmul_intrin(4, 8, 12))
    s[C].pragma(xo, "auto_unroll_max_step", 8)
    s[C].prefetch(A, yo, 1)
    s[C].software_pipeline(yo, (0,))
    s[C].parallel(xo)
    same(s, [A, B, C], C, intrins=s.trace.intrins)


def test_layout_group_and_buffers():
    A = te.placeholder((40, 8), name="A")
    B = te.compute((40, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((40, 8), lambda i, j: B[i, j] * 2, name="C")
    D = te.compute((40, 8), lambda i, j: C[i, j] + 3, name="D")
    s = create_schedule(D)
    g = s.create_group(outputs=C, inputs=A)
    s[B].transform_layout(lambda i, j: [j // 4, i, j % 4])
    o, i = s[D].split(D.op.axis[0], factor=8)
    g.compute_at(s[D], o)
    s[C].storage_align(C.op.axis[0], 8, 1)
    s[C].double_buffer()
    s[B].compute_root()
    same(s, [A, D], D)


def test_text_of_a_schedule():
    A, B, C = matmul(16, 16, 16)
    s = create_schedule(C)
    CL = s.cache_write(C, "local")
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 8)
    s[C].bind(xo, te.thread_axis("blockIdx.x"))
    s[C].vectorize(yi)
    s[CL].compute_at(s[C], yo)
    assert str(s) == (
        "A: placeholder\n"
        "B: placeholder\n"
        "C: compute, output\n"
        "    for i_outer in 4  # blockIdx.x\n"
        "        for j_outer in 2\n"
        "            C_local: compute, local\n"
        "                for i_c\n"
        "                    for j_c\n"
        "                        for k  # reduce\n"
        "            for i_inner in 4\n"
        "                for j_inner in 8  # vectorized"
    )
    assert str(s[C]) == str(s)[str(s).index("C: ") :]


def test_text_of_a_stage_whose_loop_is_no_more():
    """It stands behind the others, at the margin."""
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((16,), lambda i: B[i] * 2.0, name="C")
    s = create_schedule(C)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].attach_ivar = B.op.axis[0]  # as in the midst of a primitive that takes the loop away
    assert str(s) == "A: placeholder\nC: compute, output\n    for i in 16\nB: compute\n    for i"


def test_a_failed_primitive_leaves_no_trace():
    A, B, C = matmul(16, 16, 16)
    s = create_schedule(C)
    before = str(s.trace), str(s)
    for bad in (lambda: s[C].split(C.op.axis[0], 0), lambda: s[C].reorder(C.op.axis[0], C.op.axis[0])):
        try:
            bad()
        except Exception as e:
            assert type(e).__name__ == "ScheduleError"
        assert (str(s.trace), str(s)) == before


def test_lowering_leaves_the_schedule_as_it_is():
    s, args = gpu_matmul(32, 32, 16)
    before = str(s), str(s.trace)
    first = str(to_loops(s, args))
    assert (str(s), str(s.trace)) == before
    assert str(to_loops(s, args)) == first


def scaled(a="A", b="B", n=40, factor=2):
    A = te.placeholder((n, 8), name=a)
    B = te.compute((n, 8), lambda i, j: A[i, j] * factor, name=b)
    return A, B, create_schedule(B)


def test_records_are_data():
    _, B, s = scaled()
    o, _ = s[B].split(B.op.axis[0], factor=8)
    s[B].parallel(o)
    define, split, parallel = s.trace
    assert split == Split(StageOf("B"), Ref("i"), factor=8, out=("i_outer", "i_inner"))
    assert parallel.text() == "s[B].parallel(i_outer)" and define.text() == "i = s[B].op.axis[0]"
    assert {split: 1}[dataclasses.replace(split, factor=8)] == 1 and split != dataclasses.replace(split, factor=4)


def test_a_live_record_is_applied_like_its_method():
    _, B, s = scaled()
    _, B2, s2 = scaled()
    record = Split(s[B], B.op.axis[0], nparts=4)
    assert str(record) == "s[B].split(i, nparts=4)"
    outer, inner = s.apply(record)
    s2[B2].split(B2.op.axis[0], nparts=4)
    assert s.trace == s2.trace and s[B].leaf_iter_vars[:2] == (outer, inner)


def test_json_and_back():
    s, args = row_sum(100, 16)
    data = json.loads(json.dumps(s.trace.to_json()))
    trace = Trace.from_json(data)
    assert trace == s.trace and str(trace) == str(s.trace)
    assert str(to_loops(replay(trace, args[1]), args)) == str(to_loops(s, args))


def test_a_changed_step_is_replayed_with_the_rest():
    A, B, s = scaled()
    o, i = s[B].split(B.op.axis[0], factor=8)
    s[B].reorder(B.op.axis[1], o, i)
    trace = Trace.from_json(s.trace.to_json())
    k = next(k for k, r in enumerate(trace) if isinstance(r, Split))
    trace.records[k] = dataclasses.replace(trace[k], factor=5)
    fresh = create_schedule(B).replay(trace)
    assert "in range(5)" in str(to_loops(fresh, [A, B])) and str(fresh.trace) == str(s.trace).replace("=8", "=5")


def test_replay_on_other_names_goes_by_order():
    A, B, s = scaled()
    s.cache_read(A, "global", [B])
    s[B].split(B.op.axis[0], factor=8)
    P, Q, fresh = scaled("weights", "out", factor=3)
    fresh.replay(s.trace)
    want = str(to_loops(s, [A, B])).replace("2.0", "3.0")
    for old, new in ((r"\bB\b", "out"), (r"\bA(?=\b|_)", "weights")):
        want = re.sub(old, new, want)
    assert str(to_loops(fresh, [P, Q])) == want


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.update(version=99), "no trace of version 1"),
        (lambda d: d.update(steps="split"), "a list of steps"),
        (lambda d: d["steps"].append({"do": "explode", "args": {}}), "unknown primitive"),
        (lambda d: d["steps"].append(["split"]), "not a step"),
        (lambda d: d["steps"].append({"do": "split", "args": {"stage": {"stage": "B"}}}), "missing"),
        (lambda d: d["steps"].append({"do": "split", "args": {"stage": {"file": "x"}, "parent": 1}}), "not an argument"),
        (lambda d: d["steps"].append({"do": "unroll", "args": {"stage": {"stage": "Z"}, "iv": {"ref": "i"}}}), "unknown name: Z"),
        (lambda d: d["steps"].append({"do": "define", "args": {"value": {"code": "open('x')"}}, "out": "f"}), "not a primitive"),
        (lambda d: d["steps"].append({"do": "define", "args": {"value": {"code": "s.__class__"}}, "out": "f"}), "no attribute"),
        (lambda d: d["steps"].append({"do": "define", "args": {"value": {"code": "("}}, "out": "f"}), "is no Python"),
        (lambda d: d["steps"].append({"do": "split", "args": {"stage": 3, "parent": 4, "factor": 2}}), "3 .int. is no stage"),
        (lambda d: d["steps"].append({"do": "cache_read", "args": {"tensor": 3, "scope": "local", "readers": [4]}}), "3 .int."),
        (lambda d: d["steps"].append({"do": "reorder", "args": {"stage": {"stage": "B"}, "order": 7}}), "7 .int. is not a loop"),
    ],
)  # fmt: skip
def test_json_that_is_no_trace(change, match):
    _, B, s = scaled()
    s[B].split(B.op.axis[0], factor=8)
    data = s.trace.to_json()
    change(data)
    with pytest.raises(TecError, match=match):
        replay(Trace.from_json(data), B)


def test_varargs_layout_in_a_trace():
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, j] * 2, name="C")
    s = create_schedule(C)
    s[B].transform_layout(lambda *i, n: [*i, n // 4, te.AXIS_SEPARATOR, n % 4])
    assert str(s.trace).endswith("s[B].transform_layout(lambda i0, n: [i0, (n // 4), (n % 4)])")
    same(s, [A, C], C)


def test_expressions_in_a_trace():
    n = te.size_var("n", "int64")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    s = create_schedule(B)
    o, _ = s[B].split(B.op.axis[0], nparts=te.minimum(n, te.const(8, "int64")))
    s[B].set_store_predicate(
        te.all(o.var > te.truncmod(n, 3), ~(o.var == 1), te.select(o > 2, o.astype("int64"), n) < n)
    )
    same(s, [A, B], B)


def test_importing_the_schedule_has_no_circles():
    """Each file of tec.schedule imports on its own, and none imports another inside of a function."""
    folder = Path(tec.schedule.__file__).parent
    edges: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        module = ["tec", "schedule", *path.relative_to(folder).with_suffix("").parts]
        tree = ast.parse(path.read_text())
        hints = [n for node in tree.body if isinstance(node, ast.If) for n in ast.walk(node)]
        top = [n for n in tree.body if isinstance(n, ast.ImportFrom)]
        for n in ast.walk(tree):
            if isinstance(n, ast.ImportFrom) and n not in hints and n not in top:
                assert (n.module or "").startswith("notebook"), f"{path.name} imports {n.module} inside of a function"
        if path.name == "__init__.py":
            continue
        edges[".".join(module)] = {".".join(module[: len(module) - n.level] + [n.module or ""]) for n in top if n.level}
    order = graphlib.TopologicalSorter({m: to & edges.keys() for m, to in edges.items()})
    order.prepare()  # raises CycleError
