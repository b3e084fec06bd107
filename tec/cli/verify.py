"""`tec verify`: a model's results against ONNX Runtime or against the meaning of its operators; where they differ, the
first node that does.

The bisection takes the model's nodes in order and compiles the network up to the middle one, with the values that later nodes
read as outputs: fused as in the whole network. It goes on in the half where the difference begins. `--per-node` compiles one
network with every node's value as an output (unfused) and compares them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from . import common
from .errors import NO, Refused

_IR_VERSION = 12  # what ONNX Runtime 1.24 and later read
_TOLERANCE = {"float16": (2e-2, 2e-2), "bfloat16": (5e-2, 5e-2)}


def _least(dtype: str | None) -> str:
    """The type with the fewest bits of precision among those asked for."""
    return next((t for t in ("bfloat16", "float16") if t in (dtype or "")), "")


@click.command(
    cls=common.ModelCommand,
    epilog="""\b
Examples:
  tec verify model.onnx                                        # this CPU against ONNX Runtime
  tec verify model.onnx --device emu:gfx942                    # the software GPU
  tec verify model.onnx --against interpreter --per-node
  tec verify model.onnx --inputs x.npy --rtol 1e-4 --atol 1e-5 --json

Exit code 0 when all outputs agree, 1 when one differs.""",
)
@common.model_argument
@click.option("--against", type=click.Choice(["auto", "onnxruntime", "interpreter"]), default="auto", show_default=True,
              help="The reference: ONNX Runtime, or the operators' definitions in NumPy.")  # fmt: skip
@click.option("--rtol", type=click.FloatRange(0), help="Relative tolerance (1e-3; 2e-2 for float16).")
@click.option(
    "--atol",
    type=click.FloatRange(0),
    help="Absolute tolerance, times the largest reference value (1e-4; 2e-2 for float16).",
)
@click.option("--per-node", is_flag=True, help="Compare every node.")
@click.option("--bisect/--no-bisect", default=True, show_default=True, help="Look for the first node that differs.")
@common.input_options
@common.device_option
@common.compile_options
@common.json_option
def command(
    model: Path, against: str, rtol: float | None, atol: float | None, per_node: bool, bisect: bool, files: tuple[str, ...],
    fill: str, seed: int, device: str | None, target: str | None, input_dim: tuple[str, ...], freeze: tuple[str, ...], dtype: str | None,
    no_cache: bool, as_json: bool,
) -> int:  # fmt: skip
    """Hold a model's results against a reference; name the first node that differs."""
    common.check_model(model)
    if model.suffix == ".tec":
        raise Refused(f"{model} is compiled already, its reference is gone", "give the .onnx file")
    net = common.open_network(model, target, device, input_dim, dtype, no_cache, freeze, files)
    dev = common.device_for(net, device)
    inputs = common.make_inputs(net.inputs, files, fill, seed)
    half = _TOLERANCE.get(_least(dtype), (1e-3, 1e-4))
    limits = (half[0] if rtol is None else rtol, half[1] if atol is None else atol)
    graph = common.load_graph(model, input_dim, freeze, files)
    reference = Reference(model, graph, {**inputs, **(common.frozen_inputs(model, freeze) or {})}, against)
    got = net.run(inputs, device=dev)
    rows = [compare(o["name"], "", a, r, limits) for o, a, r in zip(net.outputs, got, reference.outputs())]
    ok = all(r.ok for r in rows)
    first: Row | None = None
    nodes: list[Row] = []
    checker = Checker(graph, reference, inputs, net.module.target, dev, dtype, limits)
    if per_node:
        nodes = checker.every()
        first = next((r for r in nodes if not r.ok), None)
        ok = ok and first is None
    if not all(r.ok for r in rows) and bisect:
        first = checker.first() or first
    hidden = checker.hidden() if per_node or (bisect and not ok) else 0
    if as_json:
        common.print_json({
            "ok": ok, "reference": reference.kind, "device": str(dev), "rtol": limits[0], "atol": limits[1],
            "outputs": [r.data() for r in rows], "nodes": [r.data() for r in nodes], "nodes_not_compared": hidden,
            "first_difference": first.data() if first else None,
        })  # fmt: skip
    else:
        _print(
            rows,
            nodes,
            first,
            ok,
            f"{net.module.target} on {dev} against {reference.kind}, rtol {limits[0]:g}, atol {limits[1]:g}",
        )
        if hidden:
            common.echo(
                f"not compared: {hidden} nodes in branches, loops and functions, of which ONNX Runtime gives no values "
                "(--against interpreter compares them)"
            )
    return 0 if ok else NO


def _print(rows: list[Row], nodes: list[Row], first: Row | None, ok: bool, what: str) -> None:
    out = common.console()
    common.echo(what)
    for title, some in (("outputs", rows), ("nodes", nodes)):
        if not some:
            continue
        t = common.table(
            "", title[:-1], "operator", "type", "largest difference", "relative", "values off", "", right=(3, 4, 5)
        )
        for r in some:
            t.add_row(r.name, r.op, r.type, f"{r.max_abs:.3g}", f"{r.max_rel:.3g}", str(r.off), common.coloured("ok", "green") if r.ok else common.coloured(r.why or "differs", "red"))  # fmt: skip
        out.print(t)
    if first is not None:
        common.echo(f"the first node that differs: {first.name} ({first.op}), {first.why or f'by {first.max_abs:.3g}'}")
    elif not ok:
        common.echo("no node that was compared differs by itself: the difference builds up, or comes from fusing")
    common.echo("all outputs agree" if ok else "the results differ")


# ---- comparing


@dataclass
class Row:
    """One comparison."""

    name: str
    op: str
    type: str
    max_abs: float
    max_rel: float
    off: int
    ok: bool
    why: str = ""

    def data(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in ("name", "op", "type", "max_abs", "max_rel", "off", "ok", "why")}


def compare(name: str, op: str, got: Any, want: Any, limits: tuple[float, float]) -> Row:
    """|got - want| <= atol * max(1, max|want|) + rtol * |want|, NaNs and infinities in the same places; integers by 0."""
    import numpy as np

    a, b = np.asarray(got), np.asarray(want)
    text = f"{b.dtype}{tuple(b.shape)}"
    if a.shape != b.shape:
        return Row(name, op, text, float("inf"), float("inf"), b.size, False, f"shape {a.shape}, not {b.shape}")
    if b.size == 0:
        return Row(name, op, text, 0.0, 0.0, 0, True)
    exact = b.dtype.kind in "biuOSU"
    if exact:
        wrong = a != b
        x, y = (
            (a.astype(np.float64), b.astype(np.float64))
            if b.dtype.kind in "biu"
            else (wrong.astype(float), np.zeros(b.shape))
        )
        difference = np.abs(x - y)
        return Row(name, op, text, float(difference.max()), 0.0, int(wrong.sum()), not wrong.any())
    x, y = a.astype(np.float64), b.astype(np.float64)
    special = ~(np.isfinite(x) & np.isfinite(y))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(special, np.where(same, 0.0, np.inf), np.abs(x - y))
    scale = float(np.abs(np.where(np.isfinite(y), y, 0)).max())
    bound = limits[1] * max(1.0, scale) + limits[0] * np.where(np.isfinite(y), np.abs(y), 0)
    wrong = difference > bound
    relative = float(difference.max()) / scale if scale else 0.0
    return Row(name, op, text, float(difference.max()), relative, int(wrong.sum()), not wrong.any())


class Reference:
    """Values of a model's outputs and nodes: by ONNX Runtime, or by the operators' definitions."""

    def __init__(self, model: Path, graph: Any, inputs: dict[str, Any], against: str):
        self.graph, self.inputs = graph, inputs
        self.proto = common.frontend().load_model(str(model))
        self.runtime = _onnxruntime(against == "onnxruntime") if against != "interpreter" else None
        self._values: dict[str, Any] | None = None
        self._outputs: list[Any] | None = None

    @property
    def kind(self) -> str:
        return "ONNX Runtime" if self.runtime is not None else "the operators' definitions"

    def _run(self, proto: Any, names: list[str]) -> list[Any]:
        assert self.runtime is not None
        options = self.runtime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = self.runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        # The version of the file format, which the installed onnx package may write newer than ONNX Runtime reads; what a
        # newer format adds beyond operators is not used by models that run.
        limited = type(proto)()
        limited.CopyFrom(proto)
        limited.ir_version = min(limited.ir_version, _IR_VERSION)
        try:
            session = self.runtime.InferenceSession(
                limited.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            known = {i.name for i in session.get_inputs()}
            result: list[Any] = session.run(names, {k: v for k, v in self.inputs.items() if k in known})
            return result
        except Exception as error:
            raise Refused(
                f"ONNX Runtime cannot run the model: {str(error).splitlines()[0]}",
                "--against interpreter does without it",
            ) from None

    def outputs(self) -> list[Any]:
        if self._outputs is None:
            if self.runtime is not None:
                self._outputs = self._run(self.proto, [o.name for o in self.proto.graph.output])
            else:
                values = self.values()
                self._outputs = [v.data if v.is_const else values[v] for v in self.graph.outputs]
        return self._outputs

    def values(self) -> dict[Any, Any]:
        """{graph value: array} of one value a node of the model, in order."""
        from ..graph.operators import run_op

        if self._values is not None:
            return self._values
        out: dict[Any, Any] = {}
        if self.runtime is None:
            out = {v: self.inputs[v.name] for v in self.graph.inputs}
            for n in self.graph.nodes:
                arrays = [v.data if v.is_const else out[v] for v in n.inputs]
                got = run_op(n.definition, n.attrs, arrays, [v.type for v in n.inputs], [v.type for v in n.outputs])
                out.update(zip(n.outputs, got))
            self._values = out
            return out
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        names = [o for n in proto.graph.node for o in n.output[:1] if o]
        given = {o.name for o in proto.graph.output}
        for name in names:
            if name not in given:
                proto.graph.output.add().name = name
        computed = dict(zip(names, self._run(proto, names)))
        last = {}
        for n in self.graph.nodes:
            last[n.origin] = n
        for n in self.proto.graph.node:
            made = last.get(n.name or next((o for o in n.output if o), ""))
            array = computed.get(n.output[0]) if n.output else None
            if made is not None and array is not None and tuple(made.outputs[0].shape) == tuple(array.shape):
                out[made.outputs[0]] = array
        self._values = out
        return out


def _onnxruntime(must: bool) -> Any:
    import importlib

    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        if must:
            raise Refused(
                "ONNX Runtime is not installed", "pip install onnxruntime; or --against interpreter"
            ) from None
        return None


class Checker:
    """Compares values inside the network."""

    def __init__(
        self, graph: Any, reference: Reference, inputs: dict[str, Any], target: str, dev: Any, dtype: str | None, limits: tuple[float, float]
    ):  # fmt: skip
        self.graph, self.reference, self.inputs, self.limits = graph, reference, inputs, limits
        self.target, self.dev, self.dtype = target, dev, None if dtype == "float32" else dtype

    def _candidates(self) -> list[Any]:
        values = self.reference.values()
        return [v for n in self.graph.nodes for v in n.outputs[:1] if v in values]

    def hidden(self) -> int:
        """How many nodes of the model the reference has no value of: those inside of branches, loops and functions."""
        values = self.reference.values()
        known = {v.node.origin for v in values if v.node is not None}
        return len({n.origin for n in self.graph.nodes} - known)

    def _run(self, wanted: list[Any]) -> list[Any]:
        import tec

        from ..graph.precision import within
        from ..graph.subgraph import subgraph

        piece = subgraph(self.graph, wanted)
        piece.output_names = [f"out{k}" for k in range(len(wanted))]
        options: dict[str, Any] = {"dtype": within(self.dtype, piece)} if self.dtype else {}
        net = tec.compile(piece, target=self.target, cache=False, progress=lambda *a: None, **options)
        result: list[Any] = net.run({i["name"]: self.inputs[i["name"]] for i in net.inputs}, device=self.dev)
        return result

    def _row(self, v: Any, got: Any) -> Row:
        return compare(v.node.origin or v.name, v.node.op, got, self.reference.values()[v], self.limits)

    def every(self) -> list[Row]:
        """A row for each node."""
        wanted = self._candidates()
        return [self._row(v, got) for v, got in zip(wanted, self._run(wanted))] if wanted else []

    def first(self) -> Row | None:
        """The first node whose value differs, by bisection; None where none does by itself.

        A cut after a node is right where every value that crosses it is: those computed before that something after it reads.
        So a difference in one branch is seen at cuts in another.
        """
        wanted = self._candidates()
        place = {id(n): k for k, n in enumerate(self.graph.nodes)}
        last_use = {id(v): place[id(n)] for n in self.graph.nodes for v in n.inputs}
        last_use |= {id(v): len(place) for v in self.graph.outputs}
        low, high = 0, len(wanted)  # cuts before `low` are right; `found` differs at the cut after `high`
        found: Row | None = None
        while low < high:
            middle = (low + high) // 2
            at = place[id(wanted[middle].node)]
            crossing = [v for v in wanted[:middle] if last_use.get(id(v), -1) > at] + [wanted[middle]]
            rows = [self._row(v, got) for v, got in zip(crossing, self._run(crossing))]
            wrong = next((r for r in rows if not r.ok), None)
            if wrong is None:
                low = middle + 1
            else:
                high, found = middle, wrong
        return found
