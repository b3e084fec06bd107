"""No mistake of a user's ends with 70, the code of a fault inside tec: commands with drawn wrong files, values and pairs of options."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import tec
from tec.cli.app import app
from tests import seeds

FAULT = 70
_MODEL = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 3] x) => (float[batch, 3] y) { y = Relu (x) }"""
COMMANDS = ("run", "compile", "show", "bench", "verify", "ops", "quantize", "tune", "convert", "generate", "emu")
VALUES = {
    "--target": ("", "llvm -mcpu=", "rocm", "rocm -mcpu=gfx942 -mcpu=", "cuda -arch=sm_1", "llvm -num-cores=0", "llvm -num-cores=x", "rocm -mattr=+", "é", "-", "llvm\n", "rocm -mcpu=gfx942:xnack+"),
    "--device": ("", "cpu:1", "cpu:-1", "rocm:x", "cuda:99999999999999999999", "rocm_emu:", "rocm_emu:gfx1", "emu:3", "-1"),
    "--input-dim": ("x 0 3", "x -1 3", "x 9999999999999999999 3", "x 2 3 4", "batch x", "batch", "y 1", "x", "batch 1e9"),
    "--inputs": ("{npy}", "{text}", "{npz}", "{cut}", "{folder}", "x={text}", "=", "x=", "z={npy}", "{pickled}"),
    "--dtype": ("float8", "", "int", "float16=", "/a=float16", "float16/x"),
    "--html": ("{folder}", "", ".html", "{folder}/none/x.html", "/dev/full.html"),
    "--freeze": ("", "=", "x=", "x=nan,inf", "batch=1", "x=1e999", "x={npy}"),
    "--runs": ("-1", "x", "1e3", "99999999999999999999x"),
    "--kernel": ("", "[", "no"),
}  # fmt: skip
OUTPUTS = ("{folder}", "", ".tec", "{folder}/none/x.tec", "{text}", "x" * 300 + ".tec")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of each wrong kind, and a model and a package that are right."""
    at = tmp_path_factory.mktemp("files")
    model = onnx.parser.parse_model(_MODEL)
    made = {n: at / n for n in ("good.onnx", "good.tec", "text", "npy.npy", "npz.npz", "cut.npy", "pickled.npy", "cut.onnx", "cut.tec", "empty.onnx", "empty.tec", "zip.tec", "dir.onnx", "bits.onnx")}  # fmt: skip
    onnx.save(model, made["good.onnx"])
    tec.compile(model, cache=False).save(made["good.tec"])
    made["text"].write_text("some words\n")
    np.save(made["npy.npy"], np.zeros((2, 2), "c8"))
    np.savez(made["npz.npz"], z=np.zeros(3), x=np.array("a"))
    np.save(made["pickled.npy"], np.array([{}], object), allow_pickle=True)
    made["cut.npy"].write_bytes(made["npy.npy"].read_bytes()[:70])
    for kind in ("onnx", "tec"):
        whole = made[f"good.{kind}"].read_bytes()
        made[f"cut.{kind}"].write_bytes(whole[: len(whole) // 2])
        made[f"empty.{kind}"].write_bytes(b"")
    with zipfile.ZipFile(made["zip.tec"], "w") as z:
        z.writestr("manifest.json", '{"format": [], "functions": 3}')
    made["dir.onnx"].mkdir()
    made["bits.onnx"].write_bytes(random.Random(0).randbytes(400))
    short = {"npy": "npy.npy", "npz": "npz.npz", "cut": "cut.npy", "pickled": "pickled.npy", "text": "text"}
    return {**{n: str(p) for n, p in made.items()}, **{k: str(made[v]) for k, v in short.items()}, "folder": str(at)}


def exit_code(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        app.main(words, prog_name="tec")
    return end.value.code if isinstance(end.value.code, int) else int(end.value.code is not None)


def told(words: list[str], capfd: pytest.CaptureFixture[str]) -> str | None:
    """What is wrong with how a command line ended; None where nothing is."""
    code = exit_code(words)
    text = "".join(capfd.readouterr())
    wrong = code == FAULT or code not in range(6) or "Traceback" in text
    return f"tec {' '.join(map(repr, words))} ended with {code}: {text[-300:]}" if wrong else None


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_files(command: str, names: dict[str, str], capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    more = {"generate": ["--prompt", "a"], "tune": ["--trials", "1"], "compile": ["-o", str(tmp_path / "x.tec")]}.get(command, [])  # fmt: skip
    files = [n for n in names if n.startswith(("cut", "empty", "zip", "dir", "bits", "text", "npy", "npz"))]
    found = [told([command, names[n], *more], capfd) for n in files]
    assert not any(found), "\n".join(filter(None, found))


@pytest.mark.parametrize("batch", range(4))
def test_wrong_values(batch: int, names: dict[str, str], capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    r = random.Random(seeds.first(batch))
    found = []
    for _ in range(40):
        command = r.choice(("run", "show", "compile", "verify", "bench"))
        words = [command, names[r.choice(("good.onnx", "good.tec"))]]
        for option in r.sample(sorted(VALUES), r.choice((1, 1, 2))):
            value = r.choice(VALUES[option]).format_map(names)
            words += [option, *(value.split() if option == "--input-dim" else [value])]
        if command == "compile":
            words += ["-o", r.choice((str(tmp_path / "x.tec"), *OUTPUTS)).format_map(names)]
        found.append(told(words, capfd))
    assert not any(found), "\n".join(filter(None, found))


def test_a_fault_of_tecs_own_is_told_apart(
    names: dict[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **more: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("tec.cli.common.check_model", broken)
    assert "ended with 70" in (told(["run", names["good.onnx"]], capfd) or "")
