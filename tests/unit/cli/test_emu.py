"""`tec emu`: kernels of a code object listed, and run under checks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tec.codegen.objects.linking import link
from tests.unit.runtime.test_foreign import built, bundle


@pytest.fixture
def kernel_file(tmp_path):
    obj, asm = built("gfx942")
    path = tmp_path / "kernel.hsaco"
    path.write_bytes(link(obj, "own"))
    path.with_suffix(".s").write_text(asm)
    return path


def test_list(tec_cli, kernel_file, tmp_path):
    got = tec_cli("emu", str(kernel_file))
    assert got.exit_code == 0, got.output
    for words in (
        "gfx942: 2 kernels",
        "scale",
        "turn",
        "64x1x1 work-items",
        "by_value",
        "global_buffer",
        "8 waves per SIMD",
    ):
        assert words in got.stdout
    both = tmp_path / "both.bundle"
    both.write_bytes(bundle({f"hipv4-amdgcn-amd-amdhsa--{c}": built(c)[0] for c in ("gfx942", "gfx1100")}))
    facts = json.loads(tec_cli("emu", str(both), "--json").stdout)
    assert [e["target"] for e in facts["code_objects"]] == ["gfx942", "gfx1100"]
    scale = facts["code_objects"][0]["kernels"][0]
    assert [a["bytes"] for a in scale["args"][:6]] == [8, 8, 4, 4, 1, 12] and scale["wavefront_size"] == 64


def test_run(tec_cli, kernel_file, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(64, dtype=np.int32))
    saved = tmp_path / "out.npz"
    got = tec_cli("emu", "run", str(kernel_file), "--kernel", "turn", "--arg", str(tmp_path / "x.npy"), "--arg", "lds=256", "--check", "all",
                  "--save", str(saved))  # fmt: skip
    assert got.exit_code == 0 and "no fault" in got.stdout, got.output
    np.testing.assert_array_equal(np.load(saved)["arg0"], np.arange(64)[::-1])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "has 2 kernels (--kernel scale | turn)"),
        (["-k", "none"], 5, "no kernel 'none'"),
        (["-k", "turn", "-a", "i32:64", "-a", "lds=128"], 5, "LDS"),
        (["-k", "turn", "-a", "i32:32", "-a", "lds=256"], 5, "out of bounds"),
        (["-k", "turn", "-a", "q7:32", "-a", "lds=256"], 2, "argument 'q7:32'"),
        (["-k", "turn", "-a", "i8:32=300", "-a", "lds=256"], 2, "argument 'i8:32=300'"),
        (["-k", "turn", "-a", "i32:64"], 2, "1 argument given, 2 wanted"),
        (["-k", "turn", "-g", "0"], 2, "--grid '0'"),
        (["-k", "turn", "--check", "luck"], 5, "no emulator check called"),
        (["-k", "turn", "--chip", "gfx90a", "-a", "i32:64", "-a", "lds=256"], 5, "no code object for gfx90a"),
    ],
)
def test_mistakes(words, code, said, tec_cli, kernel_file):
    got = tec_cli("emu", "run", str(kernel_file), *words)
    assert got.exit_code == code and said in got.output, got.output
