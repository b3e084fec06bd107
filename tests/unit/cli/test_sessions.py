"""`tec run` of models whose shapes depend on values: networks are made as values come."""

import json

import numpy as np
import onnx
import pytest
from onnx import parser


@pytest.fixture
def saved(tmp_path):
    def save(text):
        path = tmp_path / "model.onnx"
        onnx.save(parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text), str(path))
        return path

    return save


NONZERO = """agraph (float[n, 3] x) => (int64[2, k] y, float[m] z) {
    y = NonZero(x)
    p = Transpose<perm = [1, 0]>(y)
    z = GatherND(x, p)
}"""


@pytest.mark.parametrize("device", [(), ("--device", "emu:gfx942")])
def test_nonzero_runs(tec_cli, saved, tmp_path, device):
    x = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
    np.save(tmp_path / "x.npy", x)
    got = tec_cli(
        "run",
        saved(NONZERO),
        "--inputs",
        tmp_path / "x.npy",
        "--save-outputs",
        tmp_path / "out",
        "--repeat",
        "2",
        "--json",
        *device,
    )
    assert got.exit_code == 0, got.output
    assert "depend on values" in got.stderr and "session" in got.stderr
    assert [o["shape"] for o in json.loads(got.stdout)["outputs"]] == [[2, 3], [3]]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), np.nonzero(x))
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "z.npy"), x[np.nonzero(x)])


def test_sequences_are_several_outputs(tec_cli, saved):
    path = saved("""agraph (float[6] x, int64[k] s) => (float[a] first, seq(float[b]) parts) {
        parts = SplitToSequence<axis = 0>(x, s)
        zero = Constant<value = int64 {0}>()
        first = SequenceAt(parts, zero)
    }""")
    refused = tec_cli("run", path, "--input-dim", "s", "2")
    assert refused.exit_code == 3 and "--freeze s=VALUE" in refused.stderr  # integers that decide are not made up


def test_an_integer_that_decides_is_taken_from_a_file(tec_cli, saved, tmp_path):
    path = saved("agraph (float[6] x, int64[2] to) => (float[a, b] y) { y = Reshape(x, to) }")
    np.save(tmp_path / "to.npy", np.array([3, 2]))
    got = tec_cli("run", path, "--inputs", f"to={tmp_path / 'to.npy'}", "--json")
    assert got.exit_code == 0, got.output
    assert json.loads(got.stdout)["outputs"][0]["shape"] == [3, 2]
