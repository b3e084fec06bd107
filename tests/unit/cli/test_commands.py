"""What each command does, on a small network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tec
from tec.cli.errors import Refused
from tec.cli.shapes import join_dims, parse_dims
from tec.cli.verify import compare
from tec.codegen import cpu, llvm_util
from tec.report.measure import percentile
from tec.target import Target


def assembled(text: str) -> bytes:
    """The object of a file of assembly."""
    lines = (line.replace("\\", "\\5C").replace('"', "\\22") for line in text.splitlines())
    ir = "\n".join(f'module asm "{line}"' for line in lines)
    return llvm_util.compile_text(ir, cpu.machine_of(Target("llvm")), "object", 0)


def test_a_library_for_two_targets(tec_cli, tiny, tmp_path):
    words = ["compile", tiny, "--input-dim", "batch", 1, "-t", "llvm -mcpu=x86-64-v2", "--also", "llvm -mcpu=x86-64"]
    made = tec_cli(*words, "-o", tmp_path / "a.so", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["target"] == "llvm -mcpu=x86-64-v2, llvm -mcpu=x86-64"
    assert "compiled for llvm -mcpu=x86-64-v2, llvm -mcpu=x86-64." in (tmp_path / "a.h").read_text()
    refused = tec_cli(*words, "-o", tmp_path / "a.tec")
    assert refused.exit_code == 2 and "--also is for libraries" in refused.output


def test_compile_then_run_agrees_with_onnxruntime(tec_cli, tiny, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    out = tmp_path / "a.tec"
    made = tec_cli("compile", tiny, "-o", out, "--input-dim", "x", 2, 3, 8, 8, "--dump-ir", tmp_path / "dump", "--json")
    assert made.exit_code == 0, made.output
    facts = json.loads(made.stdout)
    assert facts["file_bytes"] == out.stat().st_size and facts["code_bytes"] > 0
    assert {"graph.txt", "loops.ir", "code.ll", "code.s", "code.o"} <= {p.name for p in (tmp_path / "dump").iterdir()}
    assert "define" in (tmp_path / "dump" / "code.ll").read_text()
    parts = sorted((tmp_path / "dump" / "functions").glob("*.s"))
    assert parts and all(p.with_suffix(s).exists() for p in parts for s in (".ll", ".ir"))
    for p in parts:
        assert p.stem.encode() in assembled(p.read_text())
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    ran = tec_cli("run", out, "--inputs", f"x={tmp_path / 'x.npy'}", "--save-outputs", tmp_path / "o")
    assert ran.exit_code == 0, ran.output
    (want,) = ort.InferenceSession(str(tiny), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(np.load(tmp_path / "o" / "y.npy"), want, rtol=1e-4, atol=1e-6)


def test_run_on_the_software_gpu_saves_what_the_cpu_gives(tec_cli, tiny, package, tmp_path):
    for args, name in (([package, "-d", "emu"], "gpu.npz"), ([tiny, "--input-dim", "batch", 1], "cpu.npz")):
        ran = tec_cli("run", *args, "--seed", 5, "--save-outputs", tmp_path / name, "--json")
        assert ran.exit_code == 0, ran.output
    np.testing.assert_allclose(
        np.load(tmp_path / "gpu.npz")["y"], np.load(tmp_path / "cpu.npz")["y"], rtol=1e-4, atol=1e-6
    )


def test_seed_and_fill(tec_cli, tiny):
    def first(*args):
        return json.loads(tec_cli("run", tiny, "--input-dim", "batch", 1, "--json", *args).stdout)["outputs"][0]

    assert first("--seed", 1) == first("--seed", 1) != first("--seed", 2)
    assert first("--fill", "zeros") != first("--fill", "0.5")


def test_run_again_and_again(tec_cli, tiny, tmp_path):
    trace = tmp_path / "t.json"
    got = tec_cli("run", tiny, "--input-dim", "batch", 1, "--repeat", 4, "--profile", trace, "--json")
    assert len(json.loads(got.stdout)["later_seconds"]) == 3
    assert any("conv" in e["name"] for e in json.loads(trace.read_text())["traceEvents"])
    assert "3 more runs: median" in tec_cli("run", tiny, "--input-dim", "batch", 1, "--repeat", 4).output


@pytest.mark.parametrize(
    "name,target", [("gfx1100", "rocm -mcpu=gfx1100"), ("native", "llvm"), ("H200", "cuda -arch=h200")]
)
def test_targets_by_a_chips_name(tec_cli, tiny, tmp_path, name, target):
    out = tmp_path / "a.tec"
    made = tec_cli("compile", tiny, "-o", out, "--input-dim", "batch", 1, "-t", name, "--dtype", "bfloat16", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["target"] == str(Target(target))


def test_bench_reports_percentiles_and_kernels(tec_cli, tiny):
    got = tec_cli("bench", tiny, "--input-dim", "batch", 1, "--runs", 7, "--warmup", 1, "--json")
    facts = json.loads(got.stdout)
    s = facts["seconds"]
    assert facts["runs"] == 7 and s["min"] <= s["p50"] <= s["p90"] <= s["p99"] <= s["max"]
    assert any("conv" in k["name"] for k in facts["kernels"])
    assert sum(k["share"] for k in facts["kernels"]) == pytest.approx(1)


def test_bench_on_the_software_gpu_counts(tec_cli, package):
    # The same kernels run plain and then counted: two translations of one text.
    facts = json.loads(tec_cli("bench", package, "-d", "emu", "--json").stdout)
    assert facts["emulated"] and all(k["us"] >= 2.1 and k["limit"] for k in facts["kernels"])
    assert sum(k.get("VALU", 0) for k in facts["kernels"]) > 0


def test_verify_says_yes(tec_cli, tiny):
    got = tec_cli("verify", tiny, "--input-dim", "batch", 1, "--per-node", "--against", "interpreter", "--json")
    facts = json.loads(got.stdout)
    assert got.exit_code == 0 and facts["ok"] and facts["first_difference"] is None
    assert {"conv", "relu", "softmax"} <= {n["name"] for n in facts["nodes"]}


@pytest.fixture
def wrong_relu():
    """relu gives one and a half times what it should."""
    from tec import te
    from tec.ops import get_op

    relu = get_op("relu")
    right = relu.compute

    def wrong(attrs, inputs, types):
        (y,) = right(attrs, inputs, types)
        return [te.compute(y.shape, lambda *i: y(*i) * te.const(1.5, "float32"), name="wrong")]

    object.__setattr__(relu, "compute", wrong)  # operators may be frozen
    yield
    object.__setattr__(relu, "compute", right)


def test_verify_names_the_node_that_differs(tec_cli, tiny, wrong_relu):
    pytest.importorskip("onnxruntime")
    got = tec_cli("verify", tiny, "--input-dim", "batch", 1, "--against", "onnxruntime", "--no-cache", "--json")
    assert got.exit_code == 1, got.output
    first = json.loads(got.stdout)["first_difference"]
    assert (first["name"], first["op"]) == ("relu", "relu")


def test_verify_finds_the_node_in_another_branch(tec_cli, tmp_path, wrong_relu):
    """Nodes of a right branch stand between the wrong node and the one that brings both together."""
    import onnx
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        *[
            helper.make_node("Sin", [x], [y], name=f"sin_{y}")
            for x, y in (("x", "b"), ("b", "c"), ("c", "d"), ("d", "e"))
        ],
        helper.make_node("Add", ["a", "e"], ["y"], name="add"),
    ]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [16]) for n in "xy"]
    path = tmp_path / "branches.onnx"
    graph = helper.make_graph(nodes, "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    pytest.importorskip("onnxruntime")
    got = tec_cli("verify", path, "--against", "onnxruntime", "--no-cache", "--json")
    assert got.exit_code == 1 and json.loads(got.stdout)["first_difference"]["name"] == "relu", got.output


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        ([1.0, 2.0], [1.0, 2.0005], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([np.nan, np.inf], [np.nan, np.inf], True),
        ([np.nan], [1.0], False),
        ([np.inf], [-np.inf], False),
    ],
)
def test_compare(got, want, ok):
    assert compare("v", "", np.array(got, np.float32), np.array(want, np.float32), (1e-3, 1e-4)).ok is ok


def test_compare_integers_by_equality_and_shapes():
    assert not compare("v", "", np.array([1, 2]), np.array([1, 3]), (1.0, 1.0)).ok
    assert not compare("v", "", np.zeros((2, 1)), np.zeros((1, 2)), (1.0, 1.0)).ok


def test_show(tec_cli, tiny, package):
    assert re.search(r"conv\w* add relu", tec_cli("show", package).stdout)
    assert "v_" in tec_cli("show", package, "asm", "--kernel", "softmax").stdout
    assert tec_cli("show", package, "llvm", "--kernel", "softmax").stdout.count("define amdgpu_kernel") == 1
    assert tec_cli("show", "ir", package).stdout.count("\ndef ") >= 3
    assert "digraph" in tec_cli("show", tiny, "graph", "--dot", "--input-dim", "batch", 1).stdout
    rows = json.loads(tec_cli("show", package, "resources", "--json").stdout)
    assert all(r["vgprs"] > 0 and r["occupancy_waves"] >= 1 and r["vgpr_spills"] == 0 for r in rows)


def test_ops(tec_cli, tiny, tmp_path):
    assert tec_cli("ops", tiny).exit_code == 0
    names = {r["op"]: r["how"] for r in json.loads(tec_cli("ops", "--json").stdout)}
    assert names["Conv"] == "converted"
    import onnx
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["y"], domain="some.where")], "g", value[:1], value[1:]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("some.where", 1)]),
        str(tmp_path / "f.onnx"),
    )
    got = tec_cli("ops", tmp_path / "f.onnx", "--json")
    assert got.exit_code == 1 and json.loads(got.stdout)["missing"] == {"some.where.Frobnicate": 1}


def test_the_count_of_operators_is_one(tec_cli):
    counted = tec_cli("ops").stdout.splitlines()[-1]
    checks = {c["name"]: c for c in json.loads(tec_cli("doctor", "--json").stdout)["checks"]}
    assert re.fullmatch(r"\d+ of \d+ operators", counted) and counted in json.dumps(checks)


def test_doctor(tec_cli):
    got = tec_cli("doctor", "--json")
    facts = json.loads(got.stdout)
    assert got.exit_code == 0, got.output
    assert {c["name"]: c["state"] for c in facts["checks"]}["a kernel on emu:gfx942"] == "ok"


def test_doctor_says_no_where_a_check_fails(tec_cli, monkeypatch):
    monkeypatch.setenv("TEC_LLD", "/no/such/linker")
    got = tec_cli("doctor", "--json")
    assert got.exit_code == 1 and not json.loads(got.stdout)["ok"]


def test_cache(tec_cli, tmp_path, monkeypatch, tiny):
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path / "c"))
    (tmp_path / "c" / "networks").mkdir(parents=True)
    mine = tmp_path / "c" / "networks" / "notes.txt"
    mine.write_text("not the cache's")
    tec_cli("run", tiny, "--input-dim", "batch", 1)
    before = json.loads(tec_cli("cache", "--json").stdout)
    assert before["networks"]["files"] == 1 and before["networks"]["bytes"] > 1000
    assert tec_cli("cache", "clear").exit_code == 0
    after = json.loads(tec_cli("cache", "--json").stdout)
    assert after["networks"]["files"] == after["objects"]["files"] == 0
    assert mine.exists()


def test_completion(tec_cli):
    for shell in ("bash", "zsh", "fish"):
        assert "_TEC_COMPLETE" in tec_cli("completion", shell).stdout


def test_dims():
    assert join_dims(["--input-dim", "x", "1", "3", "--seed", "4"]) == ["--input-dim=x=1,3", "--seed", "4"]
    assert join_dims(["m.onnx", "--input-dim", "@x", "7"]) == ["m.onnx", "--input-dim=x=7"]
    assert join_dims(["--input-dim", "x", "batch", "3", "m.onnx"]) == ["--input-dim=x=batch,3", "m.onnx"]
    assert join_dims(["--input-dim", "n", "4", "model"]) == [
        "--input-dim=n=4",
        "model",
    ]  # the last word is no dimension
    assert parse_dims(["x=1,3,8", "a=b=2x4"]) == {"x": (1, 3, 8), "a=b": (2, 4)}
    assert parse_dims(["x=1,a,x"]) == {"x": (1, "a", "x")}
    for bad in ("x", "x=1,a!", "=1", "x=-1"):
        with pytest.raises(Refused):
            parse_dims([bad])


def test_percentile():
    assert (
        percentile([1.0, 2.0, 3.0], 50) == 2.0 and percentile([0.0, 10.0], 90) == 9.0 and percentile([4.0], 99) == 4.0
    )


def test_every_command_has_help_with_examples(tec_cli):
    from tec.cli.app import COMMANDS

    for name in COMMANDS:
        got = tec_cli(name, "--help")
        assert got.exit_code == 0 and "Examples:" in got.stdout and f"tec {name}" in got.stdout


def test_paths_in_reports_are_kept(package: Path):
    from tec.graph import load
    from tec.report.listing import kernels_of, steps_of

    net = load(str(package))
    kernels = kernels_of(net)
    for k in kernels:  # each has its own text, and nothing of the others
        assert f"def {k.name}(" in k.ir and f"@{k.name}(" in k.llvm and f"\n{k.name}:" in k.asm
        assert not any(f"@{other.name}(" in k.llvm for other in kernels if other is not k)
    assert len(kernels) > 1 and net.module.get_binary()[:4] == b"\x7fELF"
    steps = steps_of(net)
    conv = next(s for s in steps if s.ops[0].startswith("conv"))
    assert conv.flops >= 2 * 8 * 8 * 8 * 27 and conv.bytes >= 4 * (192 + 216 + 8 + 512)


def test_an_input_that_decides_on_the_shape_is_frozen(tec_cli, tmp_path):
    import onnx
    from onnx import TensorProto, helper

    ins = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
        helper.make_tensor_value_info("to", TensorProto.INT64, [2]),
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "to"], ["y"], name="reshape")], "g", ins, [out])
    path = tmp_path / "reshape.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    refused = tec_cli("run", path)
    assert refused.exit_code == 3 and "--freeze to=VALUE" in refused.stderr and refused.stderr.count("\n") == 1
    got = tec_cli("run", path, "--freeze", "to=3,2", "--json")
    assert got.exit_code == 0, got.output
    assert json.loads(got.stdout)["outputs"][0]["shape"] == [3, 2]
    assert tec_cli("verify", path, "--freeze", "to=3,2", "--against", "interpreter").exit_code == 0


def test_the_shell_completes_commands_and_options(monkeypatch):
    import os
    import subprocess
    import sys

    from click.shell_completion import BashComplete

    from tec.cli.app import app

    for words, at, want in (
        ("tec ver", "1", "plain,verify"),
        ("tec run --inp", "2", "plain,--inputs"),
        ("tec run m.onnx --device e", "4", "plain,emu"),
        ("tec run m.onnx --device emu:gfx9", "4", "plain,emu:gfx942"),
        ("tec run m.onnx -t mi3", "4", "plain,mi300x"),
        ("tec compile m.onnx --target gfx9", "4", "plain,gfx942"),
        ("tec show mod", "2", "file,mod"),
        ("tec show m.onnx res", "3", "plain,resources"),
    ):
        if at != "1":  # in this process: seven starts of Python take 3 s
            monkeypatch.setenv("COMP_WORDS", words)
            monkeypatch.setenv("COMP_CWORD", at)
            assert want in BashComplete(app, {}, "tec", "_TEC_COMPLETE").complete().split()
            continue
        code = "from tec.cli.app import app; app.main(prog_name='tec')"
        environment = {**os.environ, "_TEC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=environment
        )
        assert done.returncode == 0 and want in done.stdout.split(), done


def said(result):
    """Lines of standard error but those of progress, which come where a loaded host compiles for seconds."""
    return [line for line in result.stderr.splitlines() if not line.startswith("compiling ")]


def test_a_batch_that_nobody_gives_is_one_and_a_note_says_so(tec_cli, tiny):
    got = tec_cli("verify", tiny, "--against", "interpreter", "--json")
    assert got.exit_code == 0 and json.loads(got.stdout)["ok"]
    assert said(got) == ["tec: note: x (batch, 3, 8, 8): 'batch' is 1 (--input-dim NAME D... gives another)"]
    assert said(tec_cli("verify", tiny, "--input-dim", "batch", 3, "--against", "interpreter")) == []


def test_files_settle_the_sizes_that_a_model_leaves_open(tec_cli, open_sizes, tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    got = tec_cli("run", open_sizes, "--inputs", tmp_path / "x.npy", "--save-outputs", tmp_path / "o.npz")
    assert got.exit_code == 0 and said(got) == [], got.output
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["y"], x.mean((2, 3), keepdims=True), rtol=1e-5, atol=1e-6)


def test_open_sizes_are_settled_by_name_across_inputs():
    from tec.cli.shapes import _close

    known = {"a": ("float32", ["n", 4]), "b": ("float32", [2, "n"]), "c": ("float32", ["n", "m"])}
    shapes = {"m": 6}
    assert _close(known, shapes) == "note: a (n, 4): 'n' is 1 (--input-dim NAME D... gives another)"
    assert shapes == {"m": 6, "a": (1, 4)}  # b and c follow by name
    with pytest.raises(Refused, match=r"c \(n, m\).*--input-dim c 1 N"):
        _close(known, {})


def test_inputs_that_nothing_is_known_of():
    from tec.report.measure import random_array

    rng = np.random.default_rng(0)
    assert set(random_array(rng, (99,), "bool").tolist()) == {False, True}
    for dtype in ("int8", "uint8", "int64"):
        x = random_array(rng, (99,), dtype)
        assert x.dtype == dtype and set(x.tolist()) == set(range(10))
    x = random_array(rng, (99, 2), "float16")
    assert x.dtype == "float16" and x.shape == (99, 2) and x.min() < -1 and x.max() > 1


def test_verify_tells_of_nodes_that_the_reference_keeps_to_itself(tec_cli, tmp_path):
    """The nodes of a branch: ONNX Runtime gives no values of them."""
    pytest.importorskip("onnxruntime")
    import onnx
    from onnx import TensorProto, helper

    def value(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])

    def branch(op):
        return helper.make_graph([helper.make_node(op, ["x"], [op.lower()], name=op)], op, [], [value(op.lower())])

    nodes = [
        helper.make_node("If", ["c"], ["z"], name="if", then_branch=branch("Exp"), else_branch=branch("Sin")),
        helper.make_node("Neg", ["z"], ["y"], name="neg"),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [value("x"), condition], [value("y")])
    path = tmp_path / "if.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    words = ("verify", path, "--freeze", "c=1", "--per-node")
    facts = json.loads(tec_cli(*words, "--json").stdout)
    assert facts["ok"] and facts["nodes_not_compared"] == 1 and [n["op"] for n in facts["nodes"]] == ["neg"]
    assert "not compared: 1 node" in tec_cli(*words).stdout
    facts = json.loads(tec_cli(*words, "--against", "interpreter", "--json").stdout)
    assert facts["nodes_not_compared"] == 0 and [n["op"] for n in facts["nodes"]] == ["exp", "neg"]


def test_show_time_models_without_running(tec_cli, tiny):
    """Kernels with their time, what limits them and what the time is made of; only for chips that the model knows."""
    got = tec_cli("show", tiny, "time", "--target", "rocm -mcpu=mi325x", "--input-dim", "batch", 2, "--json")
    assert got.exit_code == 0, got.stderr
    rows = json.loads(got.stdout)
    assert rows and all(r["us"] > r["parts"]["launch"] > 0 and r["limit"] and r["traffic"]["memory"] > 0 for r in rows)
    text = tec_cli("show", tiny, "time", "--target", "rocm -mcpu=mi325x", "--input-dim", "batch", 2).stdout
    assert "by the time model of the MI325X" in text and "waves: " in text
    refused = tec_cli("show", tiny, "time", "--input-dim", "batch", 2)
    assert refused.exit_code != 0 and "AMD GPUs" in refused.stderr


def test_types_by_node(tec_cli, tiny, tmp_path):
    out = tmp_path / "t.tec"
    words = ["compile", tiny, "-o", out, "--input-dim", "batch", 1, "-t", "llvm"]
    made = tec_cli(*words, "--dtype", "float16", "--dtype", "fc=float32")
    assert made.exit_code == 0, made.output
    kinds = [str(p.dtype) for p in tec.load(str(out)).params.values()]
    assert "float16" in kinds and "float32" in kinds
    assert tec_cli("verify", tiny, "--input-dim", "batch", 1, "--dtype", "conv=float16", "--per-node").exit_code == 0
    for given, said in (
        (["int8"], "is not one of"),
        (["x=int4"], "is not one of"),
        (["float16", "float32"], "for all nodes"),
        (["nothing=float16"], "no node's name fits"),
    ):
        got = tec_cli(*words, *(w for g in given for w in ("--dtype", g)))
        assert got.exit_code in (2, 3) and said in got.output, got.output
