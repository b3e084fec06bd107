"""The ONNX backend suite: every case by its name on the CPU, a drawn tenth of them at the gate, and that what passes on the CPU passes on the software GPU."""

import os
import random

import onnx
import pytest
from tec_onnx.session import Session

import tec
from tec.graph.graph import run_graph
from tec.graph.optimize import optimize
from tests import seeds

from . import onnx_suite
from .onnx_known import KNOWN

SAMPLE = int(os.environ.get("TEC_ONNX_SAMPLE", "400"))


@pytest.fixture(scope="module")
def nodes():
    return onnx_suite.load_cases(["node"])


@pytest.fixture(scope="module")
def on_cpu(nodes):
    return onnx_suite.run(["node"], [c.name for c in nodes], "CPU")


@pytest.mark.slow
def test_node_cases_on_the_cpu(on_cpu):
    assert len(on_cpu) > 1800 and not {n: r for n, r in on_cpu.items() if r}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simple", "pytorch-converted", "pytorch-operator", "real"])
def test_models_on_the_cpu(kind):
    cases = onnx_suite.load_cases([kind])
    results = onnx_suite.run([kind], [c.name for c in cases], "CPU", 300)
    failed = {n: r for n, r in results.items() if r and "Gradient" not in r}
    assert not failed


@pytest.mark.slow
def test_what_passes_on_the_cpu_passes_on_the_software_gpu(nodes, on_cpu):
    cases = onnx_suite.select([c for c in nodes if not on_cpu[c.name]], "", SAMPLE)
    assert len(cases) >= min(SAMPLE, 400)
    results = onnx_suite.run(["node"], [c.name for c in cases], "ROCM_EMU:gfx942", 300)
    assert not {n: r for n, r in results.items() if r}


# One of each way to run a model: compiled, by a session, a layer with a state, a loop, an output of a size that values decide.
ALWAYS = frozenset(("test_add", "test_softmax_axis_1", "test_lstm_defaults", "test_reshape_negative_dim", "test_loop11", "test_nonzero_example"))  # fmt: skip


def drawn(nodes):
    """A tenth of the cases, another one each night."""
    rest = sorted((c for c in nodes if c.name not in ALWAYS), key=lambda c: c.name)
    return [
        *(c for c in nodes if c.name in ALWAYS),
        *random.Random(seeds.stream("node cases")).sample(rest, len(nodes) // 10),
    ]


def failures(cases, runner):
    """{case: error}."""
    failed = {}
    for c in cases:
        try:
            onnx_suite.run_case(c, runner)
        except Exception as e:
            failed[c.name] = f"{type(e).__name__}: {e}"
    return failed


def test_a_drawn_tenth_of_the_node_cases(nodes):
    """In process; the whole suite runs in `make conformance`."""
    from tec_onnx.backend import runner_for

    cases = drawn(nodes)
    assert {c.name for c in cases} >= ALWAYS and len(cases) > 180
    assert not failures(cases, runner_for("CPU"))


def by_meaning(graph):
    return lambda feeds: run_graph(graph, dict(feeds))


MEANT_FOR = ("llvm -mcpu=x86-64-v4", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda -arch=sm_90a")


@pytest.mark.parametrize("k", range(len(MEANT_FOR)))
def test_every_node_case_by_what_operators_mean(nodes, k):
    """All of them at 5 ms each: imported, optimised for one of the targets, and run in NumPy by the operators' meaning, which compiled code is held against."""
    target = tec.Target(MEANT_FOR[k])

    def runner(graph):
        anything = [*graph.inputs, *graph.outputs, *(o for n in graph.nodes for o in n.outputs)]
        if all(0 not in v.shape for v in anything):  # as a compiler takes it
            graph = optimize(graph, target)
        return by_meaning(graph)

    cases = [c for c in nodes if not c.name.endswith("_expanded")][k :: len(MEANT_FOR)]
    assert len(cases) > 300
    assert not failures(cases, runner)


def test_defaults_said_are_those_left_out(nodes):
    """A node with each default of its schema written out gives what the node without gives."""
    seen, differ = set(), {}
    for c in nodes:
        if c.model is None or len(c.model.graph.node) != 1:
            continue
        (node,) = c.model.graph.node
        given = frozenset(a.name for a in node.attribute)
        opsets = {o.domain: o.version for o in c.model.opset_import}
        key = node.op_type, node.domain, given, len(node.input)
        if key in seen or node.domain not in opsets:
            continue
        seen.add(key)
        schema = onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain)
        # The activations of RNN are two by default, also for one direction, which takes one.
        more = [
            a.default_value
            for a in schema.attributes.values()
            if a.default_value.type and a.name not in given and a.name != "activations"
        ]
        said = onnx.ModelProto.FromString(c.model.SerializeToString())
        said.graph.node[0].attribute.extend(more)
        ins = [onnx_suite.plain(v) for v in onnx_suite.data_of(c)[1][0][0]]
        if not more:
            continue
        got, want = (Session(m, by_meaning).run(ins) for m in (said, c.model))
        try:
            for x, y in zip(got, want, strict=True):
                onnx_suite.compare(x, y, 1e-6, 1e-6)
        except AssertionError as e:
            differ[c.name] = [a.name for a in more], str(e)
    assert len(seen) > 300 and not differ, differ


def test_known_cases_are_cases_and_held_at_their_tolerance(nodes):
    """Each that is listed exists, computes within the tolerance that stands there, and is not let through whatever it gives."""
    from tec_onnx.backend import runner_for

    runner = runner_for("CPU")
    assert {c.name for c in nodes} >= KNOWN.keys()
    for c in (c for c in nodes if c.name in KNOWN and not c.name.endswith("_expanded")):
        onnx_suite.run_case(c, runner)
        why, rtol, atol = KNOWN[c.name]
        assert why and (rtol > c.rtol or atol > c.atol)
        for _, outputs in onnx_suite.data_of(c)[1]:
            want = onnx_suite.plain(outputs[0])
            with pytest.raises(AssertionError):
                onnx_suite.compare(want + (abs(want).max() + 3), want, rtol, atol)


def test_a_worker_that_dies_costs_its_case_alone(monkeypatch):
    results: dict[str, str] = {}
    import subprocess
    import sys

    lines = '{"start": "a"}\\n{"done": "a", "error": ""}\\n{"start": "b"}'
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; print('{lines}', flush=True); os.abort()"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert onnx_suite._follow(process, results, 10) == "b" and results == {"a": ""}
    process.wait()
