"""Networks in the disk cache: what is kept of them, and that what is not is made again, the same."""

from __future__ import annotations

import pytest
from onnx.parser import parse_model

import tec
from tec.codegen import cpu, device, llvm_util

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
    assert len(jobs) - count <= len(found.plan.steps)
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path / "other"))  # not the text that the other network left
    assert text == made.get_source("asm") and len(text) > 100
    found.save(tmp_path / "n.tec")
    assert tec.load(tmp_path / "n.tec").get_source("asm") == text


def test_assembly_of_a_cached_kernel_is_the_one_of_its_object(monkeypatch):
    """LLVM orders instructions otherwise after a parse of what it optimised, as the object's is: a kernel whose order shows it."""
    monkeypatch.setenv("TEC_CACHE_DIR", "0")
    asked = []
    monkeypatch.setattr(llvm_util, "begin", lambda text, machine, want, *rest: asked.append(want) or Nothing())
    device.assembly_of("", tec.Target("rocm -mcpu=gfx942"), "k")
    cpu.assembly_of("", tec.Target("llvm"), "f")
    assert asked == [("llvm", "asm"), ("asm",)]


class Nothing:
    def result(self):
        return {"asm": ""}
