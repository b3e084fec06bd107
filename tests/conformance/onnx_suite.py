"""The onnx package's own backend suite on tec, with its own tolerances; a table by operator comes out.

    python -m tests.conformance.onnx_suite                      # every node case on the CPU
    python -m tests.conformance.onnx_suite --device ROCM_EMU:gfx942 --sample 400
    python -m tests.conformance.onnx_suite --kind simple --kind real --match resnet

Cases run in worker processes, so that one which ends its process costs itself alone. Cases whose expected output is a
random number of the generating machine (Bernoulli without its generator) and a few more are held at a wider tolerance, each by its name (`onnx_known`).
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import json
import os
import pickle
import random
import re
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.conformance.onnx_known import KNOWN

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
ROOT = Path(__file__).resolve().parents[2]


def load_cases(kinds: list[str]) -> list[Any]:
    """The cases of the onnx package, by kind. A real one is the light model in the package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnx.backend.test.loader as loader

        return [c for k in kinds for c in (_node_cases() if k == "node" else loader.load_model_tests(kind=k))]


def _node_cases() -> list[Any]:
    """The node cases, which the package makes by running each operator's reference: 13 s of processor time, so they are made once for its version and NumPy's and kept
    in `build/`, or where TEC_TEST_DATA says."""
    import numpy
    import onnx
    from onnx.backend.test.loader import load_model_tests

    made_by = f"{onnx.__version__}-{numpy.__version__}"
    kept = Path(os.environ.get("TEC_TEST_DATA", ROOT / "build")) / f"onnx-node-cases-{made_by}.pickle"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{kept}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker waits for the one that makes them
        if kept.exists():
            with kept.open("rb") as f:
                found: list[Any] = pickle.load(f)
            return found
        made: list[Any] = load_model_tests(kind="node")
        new = kept.with_suffix(".new")
        new.write_bytes(pickle.dumps(made, 5))
        new.rename(kept)
        return made


def _light(case: Any) -> tuple[Any, list[Any]]:
    """A light model: all-ones input, expected outputs beside it."""
    import numpy as np
    import onnx
    import onnx.backend.test
    from tec_onnx.inputs import bind_shapes, input_info

    base = os.path.join(os.path.dirname(onnx.backend.test.__file__), "data", "light")
    path = os.path.join(base, os.path.basename(case.url))
    model = onnx.load(path)
    tensor = onnx.TensorProto()
    with open(path.replace(".onnx", "_output_0.pb"), "rb") as f:
        tensor.ParseFromString(f.read())
    shapes = bind_shapes(model, None)
    feeds = [np.ones(shapes[k], v[0]) for k, v in input_info(model).items() if v]
    return model, [(feeds, [tensor])]


def _read(path: str, info: Any) -> Any:
    import onnx
    from onnx import numpy_helper

    with open(path, "rb") as f:
        data = f.read()
    if info.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if info.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return onnx.TensorProto.FromString(data)


def data_of(case: Any) -> tuple[Any, list[Any]]:
    """(model, [(inputs, expected outputs)]) of a case."""
    import onnx

    if case.kind == "real":
        return _light(case)
    if case.data_sets is not None:
        return case.model, case.data_sets
    model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
    sets = []
    for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set_*"))):
        ins = [
            _read(p, i.type) for k, i in enumerate(model.graph.input) if os.path.exists(p := f"{folder}/input_{k}.pb")
        ]
        outs = [_read(f"{folder}/output_{k}.pb", o.type) for k, o in enumerate(model.graph.output)]
        sets.append((ins, outs))
    return model, sets


def plain(value: Any) -> Any:
    """Arrays in place of protos."""
    import onnx
    from tec_onnx.reader import tensor_array

    if isinstance(value, onnx.TensorProto):
        return tensor_array(value)
    return [plain(v) for v in value] if isinstance(value, list) else value


def compare(got: Any, want: Any, rtol: float, atol: float) -> None:
    """AssertionError where type, shape or values differ."""
    import numpy as np

    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)) and len(got) == len(want), "a sequence of another length"
        for a, b in zip(got, want):
            compare(a, b, rtol, atol)
        return
    if want is None:
        assert got is None, "an optional that should be empty"
        return
    a, b = np.asarray(got), np.asarray(want)
    if b.dtype.kind in "OUS":
        assert a.astype(str).tolist() == b.astype(str).tolist(), "other strings"
        return
    assert a.dtype == b.dtype, f"dtype {a.dtype}, not {b.dtype}"
    assert a.shape == b.shape, f"shape {a.shape}, not {b.shape}"
    if b.dtype.kind not in "fiub":
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def run_case(case: Any, runner: Any) -> None:
    """Runs one case, at the tolerance of `onnx_known` where it stands there; raises where it fails."""
    from tec_onnx.session import Session

    model, sets = data_of(case)
    rtol, atol = KNOWN[case.name][1:] if case.name in KNOWN else (case.rtol, case.atol)
    session = Session(model, runner)
    for ins, outs in sets:
        got = session.run([plain(v) for v in ins])
        assert len(got) == len(outs), "another number of outputs"
        for a, b in zip(got, outs):
            compare(a, plain(b), rtol, atol)


def operator_of(case: Any) -> str:
    """The operator that a node case is about; the kind of the others."""
    if case.kind != "node" or case.model is None:
        return f"({case.kind})"
    names = [n.op_type for n in case.model.graph.node]
    if len(names) == 1:
        return str(names[0])
    name = re.sub(r"^test_", "", case.name).replace("_", "")
    fits = sorted((n for n in set(names) if n.lower() in name.lower()), key=len)
    return str(fits[-1]) if fits else str(names[-1])


# ---- worker and driver


def worker(kinds: list[str], names: list[str], device: str) -> None:
    """Runs the named cases; a line of JSON before and after each."""
    from tec_onnx.backend import runner_for

    wanted = set(names)
    runner = runner_for(device)
    warnings.simplefilter("ignore")
    for case in load_cases(kinds):
        if case.name not in wanted:
            continue
        print(json.dumps({"start": case.name}), flush=True)
        begin, error = time.perf_counter(), ""
        try:
            run_case(case, runner)
        except Exception as e:
            text = str(getattr(e, "message", e)).strip().splitlines()
            error = f"{type(e).__name__}: {' '.join(text[:3])[:200]}"
        print(json.dumps({"done": case.name, "error": error, "seconds": time.perf_counter() - begin}), flush=True)


def run(kinds: list[str], names: list[str], device: str, case_seconds: float = 120.0) -> dict[str, str]:
    """{case: "" or what went wrong}. A worker that dies or hangs is replaced; its case has failed."""
    results: dict[str, str] = {}
    left = list(names)
    while left:
        command = [sys.executable, "-m", "tests.conformance.onnx_suite", "--worker", "--device", device]
        command += [x for k in kinds for x in ("--kind", k)]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n".join(left))
        process.stdin.close()
        current = _follow(process, results, case_seconds)
        code = process.wait()
        if current is not None:
            results[current] = (
                f"the process ended with {code}" if code >= 0 else f"the process was ended by signal {-code}"
            )
        before = len(left)
        left = [n for n in left if n not in results]
        if len(left) == before:
            raise RuntimeError(f"the worker ended with {code} before its first case")
    return results


def _follow(process: Any, results: dict[str, str], seconds: float) -> str | None:
    """Takes the worker's lines; gives the case that it was at when it ended, if any."""
    import threading

    current: str | None = None
    timer: threading.Timer | None = None
    for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if timer is not None:
            timer.cancel()
        if "start" in message:
            current = message["start"]
            timer = threading.Timer(seconds, process.kill)
            timer.daemon = True
            timer.start()
        else:
            results[message["done"]] = message["error"]
            current = None
    if timer is not None:
        timer.cancel()
    return current


def table(cases: list[Any], results: dict[str, str], device: str) -> str:
    """A page: totals, a line an operator, and the cases that fail with why."""
    by: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for c in cases:
        entry = by[operator_of(c)]
        entry[0] += not results[c.name]
        entry[1] += 1
    passed = sum(not r for r in results.values())
    lines = [
        f"# ONNX backend suite on {device}",
        "",
        f"{passed} of {len(cases)} cases pass.",
        "",
        "| operator | pass | of |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {name} | {ok} | {n} |" for name, (ok, n) in sorted(by.items())]
    failed = [(n, r) for n, r in sorted(results.items()) if r]
    if failed:
        lines += ["", "| case | what differs |", "| --- | --- |"]
        lines += [f"| {n} | {r.replace('|', '/')[:160]} |" for n, r in failed]
    return "\n".join(lines) + "\n"


def select(cases: list[Any], match: str, sample: int, seed: int = 20) -> list[Any]:
    """Cases whose name matches; a sample of them with a fixed seed."""
    chosen = [c for c in cases if re.search(match, c.name)]
    if sample and sample < len(chosen):
        chosen = sorted(random.Random(seed).sample(chosen, sample), key=lambda c: c.name)
    return chosen


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="CPU")
    p.add_argument("--kind", action="append", choices=KINDS, help="default: node")
    p.add_argument("--match", default="", help="regular expression on the case's name")
    p.add_argument("--sample", type=int, default=0, help="so many cases, chosen with a fixed seed")
    p.add_argument("--out", help="write the table to this file")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    kinds = args.kind or ["node"]
    if args.worker:
        worker(kinds, sys.stdin.read().split("\n"), args.device)
        return 0
    cases = select(load_cases(kinds), args.match, args.sample)
    begin = time.perf_counter()
    results = run(kinds, [c.name for c in cases], args.device)
    text = table(cases, results, args.device)
    if args.out:
        Path(args.out).write_text(text)
    else:
        print(text)
    passed = sum(not r for r in results.values())
    print(f"{passed} of {len(cases)} in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
