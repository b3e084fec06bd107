"""`tec doctor --report`: the file holds what finds a fault, and nothing of a model's weights."""

from __future__ import annotations

import json
import sys

import pytest


@pytest.fixture(autouse=True)
def no_checks(monkeypatch):
    from tec.cli import doctor

    monkeypatch.setattr(doctor, "CHECKS", (("one", lambda: ("ok", "fine")),))


def test_a_faults_traceback_is_kept(tec_cli, tmp_path):
    program = (
        "import tec\ntry:\n    1 / 0\nexcept ArithmeticError as e:\n    raise tec.InternalError('of a test') from e"
    )
    out = tmp_path / "fault.json"
    got = tec_cli("doctor", "--report", out, "--", sys.executable, "-c", program)
    assert got.exit_code == 0 and "exit code 1; read it before you send it" in got.stdout
    facts = json.loads(out.read_text())
    assert facts["checks"] == [{"name": "one", "state": "ok", "text": "fine"}]
    assert "ZeroDivisionError" in facts["stderr"] and "a fault inside tec: of a test" in facts["stderr"]
    assert "tec doctor --report" in facts["stderr"]


def test_a_models_operators_without_weights_or_names(tec_cli, tiny, tmp_path):
    out = tmp_path / "fault.json"
    got = tec_cli("doctor", "--report", out, "--", "ops", str(tiny), "--no-such-option")
    assert got.exit_code == 0, got.stderr
    facts = json.loads(out.read_text())
    assert facts["exit_code"] == 2 and "no-such-option" in facts["stderr"].lower()
    (model,) = facts["models"]
    assert model["operators"] == dict.fromkeys(("Conv", "Relu", "GlobalAveragePool", "Flatten", "MatMul", "Softmax"), 1)
    assert model["inputs"] == ["float[batch, 3, 8, 8]"] and model["opsets"] == {"ai.onnx": 17}
    assert "pool" not in json.dumps({**model, "operators": 0})


def test_mistakes(tec_cli, tmp_path):
    got = tec_cli("doctor", "compile", "x.onnx")
    assert got.exit_code == 2 and "--report FILE" in got.stderr
    got = tec_cli("doctor", "--report", tmp_path / "no" / "such", "--", sys.executable, "-c", "")
    assert got.exit_code == 2 and "No such file or directory" in got.stderr
    got = tec_cli("doctor", "--report", tmp_path / "f", "--", "no-such-program")
    assert got.exit_code == 2 and "no-such-program" in got.stderr


def test_the_message_of_a_fault_names_the_command(tec_cli, monkeypatch):
    from tec.cli import cache

    monkeypatch.setattr(cache, "folders", lambda: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["tec", "cache", "a b"])
    assert "tec doctor --report fault.json -- cache 'a b'" in tec_cli("cache").stderr
