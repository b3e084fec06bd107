"""Networks in the disk cache: what is kept of them, and that what is not is made again, the same."""

from __future__ import annotations

import pytest
from onnx.parser import parse_model

import tec
from tec.codegen import llvm_util

MODEL = parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 8] x) => (float[4, 8] y) { a = Exp(x) y = Softmax(a) }'
)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942", "cuda -arch=sm_90"])
def test_assembly_is_made_when_asked_for(target, tmp_path, monkeypatch):
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path))
    jobs = []
    begin = llvm_util.begin
    monkeypatch.setattr(
        llvm_util, "begin", lambda text, machine, want, *rest: (jobs.append(want), begin(text, machine, want, *rest))[1]
    )
    made = tec.compile(MODEL, target=target)
    assert ("asm",) not in jobs or target.startswith("cuda")
    found = tec.compile(MODEL, target=target)
    assert found is not made
    count = len(jobs)
    text = found.get_source("asm")
    assert text == made.get_source("asm") and len(text) > 100
    assert len(jobs) - count <= len(
        found.plan.steps
    )  # LLVM makes a function's assembly once: the second network has it from the disk
    found.save(tmp_path / "n.tec")
    assert tec.load(tmp_path / "n.tec").get_source("asm") == text
