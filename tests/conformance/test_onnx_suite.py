"""The ONNX backend suite: floors for the CPU, and that what passes on the CPU passes on the software GPU."""

import os

import pytest

from . import onnx_suite

CPU_FLOOR = 1860
SAMPLE = int(os.environ.get("TEC_ONNX_SAMPLE", "400"))


@pytest.fixture(scope="module")
def nodes():
    return onnx_suite.load_cases(["node"])


@pytest.fixture(scope="module")
def on_cpu(nodes):
    return onnx_suite.run(["node"], [c.name for c in nodes], "CPU")


@pytest.mark.slow
def test_node_cases_on_the_cpu(on_cpu):
    assert sum(not r for r in on_cpu.values()) >= CPU_FLOOR


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


def test_a_few_node_cases():
    """A quick look, in process; the whole suite runs in `make conformance`."""
    from tec_onnx.backend import runner_for

    wanted = (
        "test_add",
        "test_softmax_axis_1",
        "test_lstm_defaults",
        "test_reshape_negative_dim",
        "test_loop11",
        "test_nonzero_example",
    )
    cases = [c for c in onnx_suite.load_cases(["node"]) if c.name in wanted]
    assert len(cases) == len(wanted)
    for c in cases:
        onnx_suite.run_case(c, runner_for("CPU"))


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
