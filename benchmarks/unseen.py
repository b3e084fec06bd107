"""Networks that nobody named (`unseen_networks`): what dies, is refused or is wrong, and tec's time over ONNX Runtime's.

    python -m benchmarks.unseen [--seed 1] [--count 40] [--steps old,dynamo,open,gpu,torch,half,train,export,time,int8,emulate]
                                [--names timm/focalnet_tiny_srf,...] [--write]

Each network runs in a process of its own under a limit of time, so that one that dies is a row. The steps: `old` and `dynamo` export by torch.onnx's two
exporters at an opset that the seed draws, run ONNX Runtime and tec (llvm) on the file, and compare the numbers; `gpu` lowers in float16 for
sm_90a and gfx942, compiling only; `torch` runs torch.compile(backend="tec") and counts what is left to torch; `time` is processor time on
one thread, in turn; `int8` times ONNX Runtime's static quantization (QDQ) of the same file. `open` exports with a symbolic batch, and compares three
batches; `half` and `train` run the backend in a drawn 16-bit type and through a training step (all gradients), `export` compiles torch.export's program
with a symbolic batch, and `emulate` runs the file on a software gfx942. One JSON object a step is printed; `--write` appends the
summary to the results (kind "network"). Needs torch, onnxscript, onnxruntime, timm, torchvision, transformers, diffusers.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import Maker, Record, append
from benchmarks.turns import in_turn

STEPS = ("old", "dynamo", "open", "gpu", "torch", "half", "train", "export", "time", "int8", "emulate")
DEFAULT_STEPS = ("old", "dynamo", "gpu", "torch", "time")
OPSETS = {"old": range(13, 21), "dynamo": range(18, 24)}  # what each exporter writes
GPUS = ("nvptx -mcpu=sm_90a", "rocm -mcpu=gfx942")
LIMIT_S = int(os.environ.get("TEC_UNSEEN_LIMIT_S", "600"))  # of one network, all steps
TOLERANCE = 2e-3  # of the largest value of an output; float32, and sums in another order
INT8_TOLERANCE = 0.05  # a sum in another order rounds some values to the next step of 8 bits
JITTER = 5e-7  # of a number: what sums of float32 in another order differ by
_TIMES_EAGER = 3  # what eager torch in float32 is off: sums in another order are off by another amount of the same size
TURN_S = 2.0  # of turns of tec and its peer
LEAST_ROUNDS = 7
PEER = "ONNX Runtime, one thread"


# ---- one network, in a process of its own


class Case:
    """A network, its arguments, and what eager torch gives."""

    def __init__(self, name: str, seed: int, folder: Path):
        import torch

        from benchmarks import unseen_networks

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.torch, self.seed, self.folder, self.name = torch, seed, folder, name
        self.rng = random.Random(f"{seed} {name}")
        self.module, self.args = unseen_networks.build(name, seed)
        self.want = [t.numpy() for t in self.module(*self.args)]

    @functools.cached_property
    def opset(self) -> dict[str, int]:
        return {k: self.rng.choice(list(v)) for k, v in OPSETS.items()}

    def export(self, how: str) -> Path:
        """The file of one exporter, at the drawn opset or the first above it that has the network's operators. Raises what torch raises."""
        path = self.folder / f"{how}.onnx"
        names = [f"in{k}" for k in range(len(self.args))]
        while not path.exists():
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    self.torch.onnx.export(
                        self.module, self.args, str(path), dynamo=how == "dynamo", opset_version=self.opset[how],
                        input_names=names, external_data=False,
                    )  # fmt: skip
            except self.torch.onnx.errors.UnsupportedOperatorError:
                if self.opset[how] == OPSETS[how][-1]:
                    raise
                self.opset[how] += 1
        return path

    def feeds(self, session: Any) -> dict[str, Any]:
        """The arguments by name; an exporter drops those that nothing reads."""
        given = {f"in{k}": t.numpy() for k, t in enumerate(self.args)}
        return {i.name: given[i.name] for i in session.get_inputs()}

    def onnx(self, how: str) -> dict[str, Any]:
        """Values of tec and ONNX Runtime on an exported file."""
        import tec

        start = time.process_time()
        try:
            path = self.export(how)
            session = peer_session(path)
            feeds = self.feeds(session)
            want = session.run(None, feeds)
        except Exception as e:
            return {"exporter": words(e)}
        row: dict[str, Any] = {"opset": self.opset[how], "export_s": seconds(start)}
        start = time.process_time()
        net = tec.compile(str(path), target="llvm")
        row |= {
            "compile_s": seconds(start),
            "kernels": len(net.report.kernels) if hasattr(net.report, "kernels") else None,
        }
        got = net.run(feeds)
        row |= {"error": worst(got, want), "peer_to_torch": worst(want, self.want)}
        if row["error"] > TOLERANCE:
            row["wrong"] = f"largest error {row['error']:.2e}; ONNX Runtime to torch {row['peer_to_torch']:.2e}"
        return row

    def exported(self) -> Path:
        """The first file that there is."""
        for how in ("dynamo", "old"):
            with contextlib.suppress(Exception):
                return self.export(how)
        raise RuntimeError("no exporter takes it")

    def gpu(self, target: str) -> dict[str, Any]:
        """Seconds of processor time of the whole and of the group that took longest, in this process: LLVM's own processes are not in it."""
        import tec

        path, begun = self.exported(), [(time.process_time(), "")]
        tec.compile(
            str(path), target=target, dtype="float16", cache=False,
            progress=lambda done, work, group: begun.append((time.process_time(), group)),
        )  # fmt: skip
        took = [(b - a, group) for (a, group), (b, _) in itertools.pairwise(begun[1:])]
        longest, group = max(took, default=(0.0, ""))
        return {"compile_s": seconds(begun[0][0]), "longest_s": round(longest, 2), "longest": group[:120]}

    def through_torch(self) -> dict[str, Any]:
        torch = self.torch
        left: list[str] = []
        log = logging.getLogger("tec.torch")
        handler = logging.Handler()
        handler.emit = lambda r: left.append(r.getMessage())  # type: ignore[method-assign]
        log.addHandler(handler)
        got = [t.numpy() for t in torch.compile(self.module, backend="tec")(*self.args)]
        return judged({"error": worst(got, self.want), "left": left}, TOLERANCE)

    def time(self, path: Path | None = None) -> dict[str, Any]:
        import tec

        path = path or self.exported()
        session = peer_session(path)
        feeds = self.feeds(session)
        net = tec.compile(str(path), target="llvm")
        start = time.process_time()
        net.run(feeds), session.run(None, feeds)
        rounds = max(LEAST_ROUNDS, min(200, int(TURN_S / max(time.process_time() - start, 1e-4))))
        mine, theirs = in_turn(
            lambda: net.run(feeds), lambda: session.run(None, feeds), rounds=rounds, clock=time.process_time
        )
        a, b = statistics.median(mine), statistics.median(theirs)
        return {"ms": round(a * 1e3, 4), "peer_ms": round(b * 1e3, 4), "ratio": round(a / b, 3)}

    def int8(self) -> dict[str, Any]:
        """ONNX Runtime's static quantization, calibrated on the arguments."""
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        path, out = self.exported(), self.folder / "int8.onnx"
        feeds = [self.feeds(peer_session(path))]

        class Once(CalibrationDataReader):  # type: ignore[misc]
            def get_next(self) -> Any:
                return feeds.pop() if feeds else None

        try:
            quantize_static(
                str(path), str(out), Once(), quant_format=QuantFormat.QDQ, per_channel=True, weight_type=QuantType.QInt8
            )
            session = peer_session(out)
        except Exception as e:
            return {"exporter": words(e)}
        import tec

        given = self.feeds(session)
        got, fused = tec.compile(str(out), target="llvm").run(given), session.run(None, given)
        # As the file says it: products of 8 bits of ONNX Runtime saturate their sums of two on CPUs without VNNI.
        exact = peer_session(out, optimized=False).run(None, given)
        # Of a maximum's padding, or 0 / 0: nothing says what that gives.
        if unsaid := rounds_no_number(out, given):
            return {"exporter": f"rounds what is no number to 8 bits: {unsaid}"}
        row = {
            "error": worst(got, exact),
            "peer_fused": worst(fused, exact),
            "to_peer": worst(got, fused),
            **self.time(out),
        }
        row = judged(row, most := max(INT8_TOLERANCE, row["peer_fused"]))
        if "wrong" not in row:
            return row
        del row["wrong"]
        row["sums_in_another_order"] = max(worst(jittered(out, given, seed), exact) for seed in range(4))
        return judged(row, max(most, row["sums_in_another_order"]))

    def grown(self, batch: int) -> tuple[Any, ...]:
        """The arguments with another first dimension where it was 1; floats differ between the rows."""
        torch = self.torch

        def one(t: Any) -> Any:
            if not t.dim() or t.shape[0] != 1:
                return t
            rows = t.repeat(batch, *[1] * (t.dim() - 1))
            return rows + 0.1 * torch.randn_like(rows) if rows.is_floating_point() else rows

        return tuple(one(t) for t in self.args)

    def open(self) -> dict[str, Any]:
        """A file with a symbolic batch at three batches. A network whose arguments do not grow together is none of these."""
        import tec

        path = self.folder / "open.onnx"
        names = [f"in{k}" for k in range(len(self.args))]
        grows = [n for n, t in zip(names, self.args) if t.dim() and t.shape[0] == 1]
        args = self.grown(2)
        try:
            self.module(*args)
            with contextlib.redirect_stdout(sys.stderr):
                self.torch.onnx.export(
                    self.module, args, str(path), dynamo=False, opset_version=self.opset["old"], input_names=names,
                    dynamic_axes={n: {0: "batch"} for n in grows}, external_data=False,
                )  # fmt: skip
            session = peer_session(path)
        except Exception as e:
            return {"exporter": words(e)}
        net = tec.compile(str(path), target="llvm")
        error = 0.0
        for batch in (2, 1, 5):
            given = {n: t.numpy() for n, t in zip(names, self.grown(batch))}
            feeds = {i.name: given[i.name] for i in session.get_inputs()}
            try:
                want = session.run(None, feeds)
            except Exception as e:
                return {"exporter": words(e), "error": error}
            error = max(error, worst(net.run(feeds), want))
        return judged({"error": error, "open": list(net.open_sizes)}, TOLERANCE)

    def half(self) -> dict[str, Any]:
        """The backend in a 16-bit type, against float32: as near as eager torch in that type, twice over."""
        import copy

        torch = self.torch
        dtype = self.rng.choice([torch.float16, torch.bfloat16])
        module = copy.deepcopy(self.module).to(dtype)
        args = tuple(t.to(dtype) if t.is_floating_point() else t for t in self.args)
        try:
            eager = worst([t.float().numpy() for t in module(*args)], self.want)
        except Exception as e:
            return {"exporter": words(e)}
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="tec", options={"strict": True})
        error = worst([t.float().numpy() for t in compiled(*args)], self.want)
        return judged({"dtype": str(dtype), "error": error, "eager": eager}, 2 * eager + TOLERANCE)

    def train(self) -> dict[str, Any]:
        """A training step of a batch of 2 in training mode: all gradients, with torch's random numbers, in the order of eager torch or of its backend "aot_eager". Statistics of so few values magnify rounding, so that eager torch
        too is off: what it is off from the gradients in float64, tec may be off several times."""
        import copy

        torch = self.torch
        args = self.grown(2)

        def grads(kind: str) -> tuple[list[Any], list[str]]:
            wide = kind == "float64"
            module = copy.deepcopy(self.module).train().requires_grad_(True)
            module = module.double() if wide else module
            run = module
            if kind == "tec":
                run = torch.compile(module, backend="tec", options={"strict": True})
            elif kind == "aot_eager":
                run = torch.compile(module, backend="aot_eager")
            torch.manual_seed(self.seed)
            with torch.enable_grad():
                outs = run(*[t.double() if wide and t.is_floating_point() else t for t in args])
                outs = [t if wide else t.float() for t in outs if t.is_floating_point() and t.requires_grad]
                sum(
                    (t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).reshape(t.shape)).mean() for t in outs
                ).backward()
            named = [(n, p.grad) for n, p in module.named_parameters() if p.grad is not None]
            return [g.numpy() for _, g in named], [n for n, _ in named]

        try:
            want, names = grads("eager")
        except Exception as e:
            return {"exporter": words(e)}
        torch._dynamo.reset()
        got, _ = grads("tec")
        if len(got) != len(want):
            return {"wrong": f"{len(got)} gradients for {len(want)}"}
        # A gradient that is nearly zero beside the others' is the rounding of those.
        scale = max((float(np.abs(w).max()) for w in want if w.size), default=0.0)

        def errors(some: list[Any], right: list[Any]) -> list[float]:
            return [float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-3 * scale, 1e-30)) if b.size else 0.0 for a, b in zip(some, right)]  # fmt: skip

        off, allowed = errors(got, want), 10 * TOLERANCE
        if (
            max(off) > allowed
        ):  # torch's own programs for backends may draw random numbers in another order than eager torch
            torch._dynamo.reset()
            with contextlib.suppress(Exception):
                want, _ = grads("aot_eager")
                off = errors(got, want)
        if max(off) > allowed:
            with contextlib.suppress(RuntimeError):  # a network that has no float64
                exact, _ = grads("float64")
                off, allowed = errors(got, exact), max(allowed, _TIMES_EAGER * max(errors(want, exact)))
        k = int(np.argmax(off))
        return judged({"error": float(f"{off[k]:.2e}"), "of": names[k], "gradients": len(got)}, allowed)

    def export_program(self) -> dict[str, Any]:
        """torch.export's program with a symbolic batch."""
        import tec

        torch = self.torch
        dim = torch.export.Dim("batch", min=1, max=64)
        args = self.grown(2)
        shapes = tuple({0: dim} if t.dim() and t.shape[0] == 1 else None for t in self.args)
        row: dict[str, Any] = {"open": True}
        try:
            try:
                program = torch.export.export(self.module, args, dynamic_shapes={"values": shapes})
            except Exception:
                row["open"] = False
                program = torch.export.export(self.module, args)
        except Exception as e:
            return {"exporter": words(e)}
        net = tec.compile(program, target="llvm")
        error = 0.0
        for batch in (2, 3) if row["open"] else (2,):
            given = self.grown(batch)
            got = net(*given)
            want = self.module(*given)
            error = max(error, worst([t.numpy() for t in (got if isinstance(got, tuple) else (got,))], [t.numpy() for t in want]))  # fmt: skip
        return judged({**row, "error": error}, TOLERANCE)

    def emulate(self) -> dict[str, Any]:
        """The file on a software GPU."""
        import tec

        path = self.exported()
        session = peer_session(path)
        feeds = self.feeds(session)
        net = tec.compile(str(path), target="rocm -mcpu=gfx942")
        error = worst(net.run(feeds, device=tec.rocm_emu("gfx942")), session.run(None, feeds))
        return judged({"error": error}, TOLERANCE)

    def step(self, name: str) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
        if name in OPSETS:
            yield name, lambda: self.onnx(name)
        elif name == "gpu":
            for target in GPUS:
                yield target, functools.partial(self.gpu, target)
        else:
            yield name, {
                "torch": self.through_torch, "time": self.time, "int8": self.int8, "open": self.open, "half": self.half, "train": self.train,
                "export": self.export_program, "emulate": self.emulate,
            }[name]  # fmt: skip


def peer_session(path: Path, optimized: bool = True) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options)


def rounds_no_number(path: Path, feeds: dict[str, Any]) -> str:
    """The first QuantizeLinear of a file that is given a NaN, as ONNX Runtime runs it node by node; "" for none."""
    import onnx

    model, folder = onnx.load(path), path.parent
    rounded = {n.input[0]: n.name for n in model.graph.node if n.op_type == "QuantizeLinear"}
    told = {o.name for o in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=v) for v in rounded if v not in told)
    onnx.save(model, folder / "rounded.onnx")
    session = peer_session(folder / "rounded.onnx", optimized=False)
    names = [o.name for o in session.get_outputs() if o.name in rounded]
    return next((rounded[n] for n, v in zip(names, session.run(names, feeds)) if np.isnan(v).any()), "")


def jittered(path: Path, feeds: dict[str, Any], seed: int) -> Any:
    """A quantized file's outputs, node by node, with what it rounds to 8 bits off by as much as a sum in another order: how far the network carries steps that fall the other way."""
    import onnx

    model, rng = onnx.load(path), random.Random(seed)
    weights = {i.name for i in model.graph.initializer}
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for k, n in enumerate(nodes):
        if n.op_type == "QuantizeLinear" and n.input[0] not in weights:
            factor = onnx.helper.make_tensor(
                f"jitter{k}", onnx.TensorProto.FLOAT, [], [1 + rng.choice((-1, 1)) * JITTER]
            )
            model.graph.initializer.append(factor)
            model.graph.node.append(onnx.helper.make_node("Mul", [n.input[0], factor.name], [f"jittered{k}"]))
            n.input[0] = f"jittered{k}"
        model.graph.node.append(n)
    onnx.save(model, path.parent / "jittered.onnx")
    return peer_session(path.parent / "jittered.onnx", optimized=False).run(None, feeds)


def worst(got: Sequence[Any], want: Sequence[Any]) -> float:
    """The largest difference of a pair of outputs, of the largest value; infinite where they differ in number, shape or in what is no number."""
    if len(got) != len(want):
        return float("inf")
    most = 0.0
    for a, b in zip(got, want):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        a, b = (np.where(np.isfinite(x), x, 0).astype(np.float64) for x in (a, b))
        if a.size:
            most = max(most, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6)))
    return float(f"{most:.2e}")


def judged(row: dict[str, Any], most: float) -> dict[str, Any]:
    """A row with its error, told as wrong where it is above `most`."""
    return {**row, "wrong": f"largest error {row['error']:.2e}, allowed {most:.2e}"} if row["error"] > most else row


def seconds(start: float) -> float:
    return round(time.process_time() - start, 2)


def words(e: BaseException) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return f"{type(e).__name__}: {' '.join(lines[:6])[:500]}"


def one(name: str, seed: int, steps: Sequence[str]) -> None:
    """All steps of a network: a line before each, and a line with what came of it."""
    warnings.simplefilter("ignore")

    def say(step: str, **row: Any) -> None:
        print(json.dumps({"name": name, "step": step, **row}), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        try:
            case = Case(name, seed, Path(folder))
        except Exception as e:
            say("build", no_network=words(e))
            return
        for step in steps:
            for label, run in case.step(step):
                say(label, begun=True)
                try:
                    say(label, **run())
                except Exception as e:
                    import traceback

                    traceback.print_exc()
                    say(label, failed=words(e))


# ---- many


def rows_of(name: str, seed: int, steps: Sequence[str]) -> list[dict[str, Any]]:
    """What a process of its own says of a network; where it ends or takes too long, the step that it was in.

    The process is a fork of this one, which has imported the libraries and run nothing: they take some fifteen seconds, more than most networks.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                os.setpgid(0, 0)
                one(name, seed, steps)
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = waited(child, LIMIT_S)
        ended = "" if code == 0 else f"not done after {LIMIT_S} s" if code is None else f"the process ended with {code}"
        out.seek(0)
        rows = [json.loads(line) for line in out if line.startswith('{"name"')]
        errors.seek(0)
        trace = errors.read()[-3000:]
    done = {r["step"] for r in rows if not r.get("begun")}
    if ended:
        last = next((r["step"] for r in reversed(rows) if r.get("begun") and r["step"] not in done), "build")
        rows.append({"name": name, "step": last, "failed": f"{ended}: {trace[-300:]}"})
    rows = [r for r in rows if not r.get("begun")]
    if trace and any("failed" in r for r in rows):
        rows[-1]["trace"] = trace
    return rows


def waited(child: int, limit_s: float) -> int | None:
    """The code that a process ended with; None where it had to be ended with all that it had started."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def import_all() -> None:
    """What every network needs, once, before the processes part. One thread each: the variables are read at import."""
    os.environ.update(TEC_NUM_THREADS="1", OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    warnings.simplefilter("ignore")
    from benchmarks.unseen_networks import torchvision

    torchvision()
    for module in ("tec_onnx", "onnxruntime", "onnxscript", "timm", "transformers", "diffusers", "torch_geometric.nn"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def summary(rows: Sequence[dict[str, Any]], make: Maker) -> Iterator[Record]:
    """Rows of results: how many fail, and the distribution of times."""
    networks = {r["name"] for r in rows if "no_network" not in r}
    what = f"{len(networks)} drawn networks"
    for step in sorted({r["step"] for r in rows if r["step"] != "build"}):
        of = [r for r in rows if r["step"] == step and "exporter" not in r]
        bad = [r for r in of if "failed" in r or "wrong" in r]
        yield make.counted(what, f"{step}: failed or wrong of {len(of)}", len(bad), "networks")
        ratios = sorted(r["ratio"] for r in of if "ratio" in r)
        if len(ratios) < 2:
            continue
        for label, share in (("median", 0.5), ("90 %", 0.9), ("worst", 1.0)):
            value = ratios[min(len(ratios) - 1, int(share * len(ratios)))]
            yield make.clocked(what, f"{step}: processor time over the peer's, {label} of {len(ratios)}", value, "of the peer's", target="llvm")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--steps", default=",".join(DEFAULT_STEPS))
    parser.add_argument("--names", default="")
    parser.add_argument("--one", default="")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    steps = given.steps.split(",")
    if unknown := [s for s in steps if s not in STEPS]:
        parser.error(f"no step {', '.join(unknown)}: {', '.join(STEPS)}")
    if given.one:
        one(given.one, given.seed, steps)
        return
    import_all()
    from benchmarks.unseen_networks import draw

    names = iter(given.names.split(",")) if given.names else draw(given.seed)
    count = len(given.names.split(",")) if given.names else given.count
    rows: list[dict[str, Any]] = []
    drawn = 0
    for name in names:
        if drawn >= count:
            break
        mine = rows_of(name, given.seed, steps)
        drawn += not any("no_network" in r for r in mine)
        rows += mine
        for r in mine:
            print(json.dumps(r), flush=True)
    make = Maker(
        "network", f"python -m benchmarks.unseen --seed {given.seed} --count {given.count} --steps {given.steps}"
    )
    records = list(summary(rows, make))
    for r in records:
        print(r.to_json(), flush=True)
    if given.write:
        append(records)


if __name__ == "__main__":
    main()
