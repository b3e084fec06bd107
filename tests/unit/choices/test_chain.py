"""The chain of candidates: a template that fails, wherever it fails, costs a network nothing but its choice, and the report tells of it."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tec
from tec import choices, te, topi
from tec.choices import Choice, Cost, Group, Scheduled, Space, candidates, footprint, proof, spaces, strictly
from tec.choices.candidates import in_order
from tec.choices.cost import price
from tec.choices.group import begin
from tec.choices.mistakes import is_mistake
from tec.choices.stages import GpuStages
from tec.choices.store import records
from tec.codegen import cpu
from tec.errors import CodegenError, InternalError, ScheduleError, TecError, TecWarning, TemplateWarning
from tec.graph.graph import Graph
from tec.llvmworker import client
from tec.report import listing
from tec.runtime.networks.network import Network
from tec.target import Target
from tec.topi import nn
from tests import seeds
from tests.thinned import thinned

from .test_spaces import PROGRAMS, program

CPU = "llvm -mcpu=x86-64-v3"
GPU = "rocm -mcpu=gfx942"
FAST = 1e-9  # seconds that planted templates promise


class Planted(Space):
    """A template that says it is best and then does what `fails` says."""

    template = "planted"  # type: ignore[misc]

    def __init__(self, group: Group, target: Target, fails: Callable[[Planted], Any], at: str):
        super().__init__(group, target)
        self.fails, self.at = fails, at
        self.parameters = {"k": (1, 2)}

    @property
    def default(self) -> Choice:
        if self.at == "choice":
            self.fails(self)
        return self.choice(k=1)

    def cost(self, choice: Choice) -> Cost:
        return Cost(FAST, "hope")

    def build(self, choice: Choice) -> Scheduled:
        s = self.fails(self)
        return Scheduled(s, self.group.outputs, choice)


def plant(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Any], Any], at: str = "build", last: bool = False) -> None:
    """A family in front of (or behind) all others."""

    def match(group: Group, target: Target) -> Iterator[Space]:
        if at == "match":
            fails(None)
        yield Planted(group, target, fails, at)

    family = SimpleNamespace(__name__="tests.planted", match=match)
    own = choices.FAMILIES
    monkeypatch.setattr(choices, "FAMILIES", (*own, family) if last else (family, *own))


def raises(error: Exception) -> Callable[[Any], Any]:
    def fail(space: Any) -> Any:
        raise error

    return fail


def foreign(space: Planted) -> Any:
    """The schedule of another computation: its loops cannot be made with the group's parameters."""
    x = te.placeholder((4,), name="other")
    return tec.create_schedule(te.compute((4,), lambda i: x[i] + 1.0, name="more").op)


def staged(scope: str, factor: int) -> Callable[[Planted], Any]:
    """The operation reads `factor` elements of its input from `scope`, where a work-group or a lane copied them."""

    def make(space: Planted) -> Any:
        s = begin(space.group)
        (op,) = space.group.ops
        copy = s.cache_read(op.inputs[0], scope, [op.output(0)])
        blocks, inner = s[op].split(s[op].fuse(*s[op].op.axis), factor=factor)
        s[op].bind(blocks, te.thread_axis("threadIdx.x" if scope == "local" else "blockIdx.x"))
        if scope == "shared":
            s[op].bind(s[op].split(inner, factor=64)[1], te.thread_axis("threadIdx.x"))
        s[copy].compute_at(s[op], blocks)
        if scope == "shared":
            at = s[copy].fuse(*s[copy].op.axis)
            s[copy].bind(s[copy].split(at, factor=64)[1], te.thread_axis("threadIdx.x"))
        return s

    return make


def network(n: int = 24) -> Graph:
    """relu(x @ w), and the sum of its rows: more groups than the one that fails first."""
    g = Graph("small")
    x, w = g.input("x", "float32", (8, n)), g.constant(np.linspace(-1, 1, n * 32, dtype=np.float32).reshape(n, 32))
    (y,) = g.add("matmul", [x, w], {})
    (y,) = g.add("relu", [y], {})
    (z,) = g.add("reduce_sum", [y], {"axes": (1,), "keepdims": False})
    g.set_outputs([y, z])
    return g


def check(net: Network, target: str, n: int = 24) -> None:
    x = np.random.default_rng(1).standard_normal((8, n)).astype(np.float32)
    device = tec.rocm_emu("gfx942") if target == GPU else tec.cpu()
    y, z = net.run({"x": x}, device=device)
    want = np.maximum(x @ np.linspace(-1, 1, n * 32, dtype=np.float32).reshape(n, 32), 0)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(z, want.sum(1), rtol=1e-4, atol=1e-3)


FAULTS: dict[str, tuple[Callable[[Any], Any], str, str, str]] = {  # what fails, where it is planted, the stage and the error that are told
    "match": (raises(KeyError("tile")), "match", "match", "KeyError"),
    "default": (raises(ValueError("min() arg is an empty sequence")), "choice", "choice", "ValueError"),
    "assertion": (raises(AssertionError("matched what it cannot schedule")), "build", "build", "AssertionError"),
    "fault": (raises(KeyError("rows")), "build", "build", "KeyError"),
    "recursion": (lambda space: (lambda f: f(f))(lambda f: f(f)), "build", "build", "RecursionError"),
    "refusal": (raises(ScheduleError("no such tile")), "build", "build", "ScheduleError"),
    "loops": (foreign, "build", "loops", "ArgumentError"),
}  # fmt: skip


@thinned(1, ("target", [CPU, GPU]), ("name", FAULTS))
def test_a_template_that_fails_ends_no_compilation(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails, at, stage, error = FAULTS[name]
    plant(monkeypatch, fails, at)
    with strictly(False), warnings.catch_warnings():
        warnings.simplefilter("ignore", TecWarning)
        net = tec.compile(network(), target, cache=False)
    check(net, target)
    assert set(net.report.refused) == set(net.report.functions)
    for function, refused in net.report.refused.items():
        first = refused[0]
        assert (first["template"], first["rank"], first["stage"], first["error"]) == (
            "planted",
            "default",
            stage,
            error,
        )
        assert net.report.choices[function]["choice"]["template"] != "planted"
    with strictly(), pytest.raises((TecError, KeyError, ValueError, AssertionError, RecursionError)):
        tec.compile(network(), target, cache=False)


def test_a_mistake_behind_the_default_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default cannot be made, and the next choice meets a mistake in the template's code: no refusal hides that."""
    errors = itertools.cycle([ScheduleError("no such tile"), KeyError("rows")])
    plant(monkeypatch, lambda space: raises(next(errors))(space))
    with (
        strictly(False),
        pytest.warns(TemplateWarning, match=r"'planted'.* at build: KeyError: 'rows' \(.*test_chain.py"),
    ):
        net = tec.compile(network(), CPU, cache=False)
    check(net, CPU)
    x = te.placeholder((64,), name="x")
    with strictly(False), pytest.warns(TemplateWarning):
        topi.schedule(te.compute((64,), lambda i: x[i] + 1.0), CPU)
    monkeypatch.setattr(candidates, "is_strict", lambda: False)  # so that the refusal alone ends nothing
    with strictly(), pytest.raises(KeyError, match="rows"):
        tec.compile(network(), CPU, cache=False)


def test_what_is_no_mistake() -> None:
    for error in (ScheduleError("no such tile"), RecursionError(), MemoryError(), NotImplementedError()):
        assert not is_mistake(error)
    for wrong in (
        TypeError(),
        KeyError(),
        AttributeError(),
        AssertionError(),
        ZeroDivisionError(),
        InternalError("order"),
    ):
        assert is_mistake(wrong)


@pytest.fixture
def kept_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """The IR that LLVM died of lies in a folder of the test."""
    monkeypatch.setattr(client.tempfile, "tempdir", str(tmp_path))
    client._kept_folder.cache_clear()
    yield
    client._kept_folder.cache_clear()


@pytest.mark.usefixtures("kept_in")
def test_passes_and_llvm_refuse_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory beyond the chip's is refused by a pass; a lane's scratch beyond it by LLVM, in a worker, when all functions were handed over."""
    big = Graph("big")
    x = big.input("x", "float32", (160, 1024))
    (y,) = big.add("relu", [x], {})
    big.set_outputs([y])
    given = np.random.default_rng(0).standard_normal((160, 1024)).astype(np.float32)
    for scope, stage, words in (
        ("shared", "lowering", "of shared memory in a block"),
        ("local", "code", "stack frame size"),
    ):
        with monkeypatch.context() as patch, strictly(False):
            plant(patch, staged(scope, 160 * 1024 // 4))
            with pytest.warns(TecWarning, match="the default schedule cannot be made") as told:
                net = tec.compile(big, GPU, cache=False)
        assert len(told) == 1 and "times as long" in str(told[0].message)
        ((function, (first, *rest)),) = net.report.refused.items()
        assert (first["stage"], first["template"]) == (stage, "planted") and words in first["reason"]
        assert [(r["template"], r["rank"]) for r in rest] == [("planted", "draft")]  # its other choice is no better
        assert first["slower"] > 100  # of a promise of a nanosecond
        assert net.report.choices[function]["choice"]["template"] == "gpu stages"
        (got,) = net.run({"x": given}, device=tec.rocm_emu("gfx942"))
        np.testing.assert_array_equal(got, np.maximum(given, 0))


def test_code_generation_refuses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back from LLVM for one function of many, at the end: two candidates of it are refused one after the other."""
    begun, real = [], cpu.begin_cpu

    def begin_cpu(funcs: Any, *args: Any, **named: Any) -> Any:
        wait = real(funcs, *args, **named)
        (f,) = funcs
        begun.append(f.name)
        if "matmul" in f.name and begun.count(f.name) < 3:
            return raises_when_called(CodegenError(f"LLVM died at number {begun.count(f.name)}", locate=False))
        return wait

    def raises_when_called(error: Exception) -> Callable[[], Any]:
        return lambda: raises(error)(None)

    monkeypatch.setattr(cpu, "begin_cpu", begin_cpu)
    with strictly(False), warnings.catch_warnings():
        warnings.simplefilter("ignore", TecWarning)
        net = tec.compile(network(), CPU, cache=False)
    check(net, CPU)
    ((_, refused),) = net.report.refused.items()
    assert [r["reason"] for r in refused] == ["LLVM died at number 1", "LLVM died at number 2"]
    assert refused[0]["rank"] == "default" and {r["stage"] for r in refused} == {"code"}
    begun.clear()
    with pytest.raises(CodegenError, match="number 1"):  # a test is strict
        tec.compile(network(), CPU, cache=False)


def test_where_all_is_refused_the_defaults_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def match(group: Group, target: Target) -> Iterator[Space]:
        yield Planted(group, target, raises(ScheduleError("only this")), "build")

    monkeypatch.setattr(choices, "FAMILIES", (SimpleNamespace(__name__="tests.planted", match=match),))
    for strict in (False, True):
        with strictly(strict), pytest.raises(ScheduleError, match=r"while compiling .*only this"):
            tec.compile(network(), CPU, cache=False)


def test_a_record_that_does_not_lower_is_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, foreign, last=True)
    net = tec.compile(network(), CPU, cache=False)
    assert net.report.refused == {}
    default = {name: c["choice"] for name, c in net.report.choices.items()}
    recorded = {c["signature"]: {"template": "planted", "k": 2} for c in net.report.choices.values()}
    with pytest.warns(TecWarning, match="does not fit, and the default stands in"):
        again = tec.compile(network(), CPU, cache=False, choices=recorded)
    check(again, CPU)
    assert {name: c["choice"] for name, c in again.report.choices.items()} == default
    assert all([r["rank"] for r in rs] == ["recorded"] for rs in again.report.refused.values()) and again.report.refused


@pytest.mark.parametrize("target", [CPU, GPU])
def test_schedules_of_te_programs_lower(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, foreign)
    x, w = te.placeholder((8, 16), name="x"), te.placeholder((16, 12), name="w")
    y = topi.nn.dense(x, te.compute((12, 16), lambda i, j: w[j, i], name="t"))
    with strictly(False), pytest.warns(TecWarning, match="planted, refused at loops"):
        made = topi.schedule(y, target)
    assert made.choice["template"] != "planted"
    f = tec.build(made.schedule, [x, w, *made.outputs], target)
    device = tec.rocm_emu("gfx942") if target == GPU else tec.cpu()
    a, b = np.ones((8, 16), np.float32), np.arange(16 * 12, dtype=np.float32).reshape(16, 12)
    on = [tec.nd.array(v, device) for v in (a, b, np.zeros((8, 12), np.float32))]
    f(*on)
    np.testing.assert_allclose(on[2].numpy(), a @ b, rtol=1e-5)
    with pytest.raises(TecError):  # under strictness the default it is, and building it says what is wrong
        strict = topi.schedule(y, target)
        assert strict.choice["template"] == "planted"
        tec.build(strict.schedule, [x, w, *strict.outputs], target)


def test_schedules_by_te_names_lower_and_keep_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """`topi.generic.schedule_*` goes on behind a template that fails."""
    x = te.placeholder((8, 16), name="x")
    y = topi.nn.softmax(x)
    with strictly(False), tec.target.Target(CPU):
        own = topi.generic.schedule_softmax(y)
        plant(monkeypatch, foreign)
        with pytest.warns(TecWarning, match="planted, refused at loops"):
            behind = topi.generic.schedule_softmax(y)
    assert behind.trace == own.trace
    f = tec.build(behind, [x, y], CPU)
    a = np.arange(128, dtype=np.float32).reshape(8, 16) / 64
    on = [tec.nd.array(v) for v in (a, np.zeros_like(a))]
    f(*on)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(on[1].numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
    with strictly(), tec.target.Target(CPU), pytest.raises(TecError):
        tec.build(topi.generic.schedule_softmax(y), [x, y], CPU)


def test_the_report_is_kept_and_shown(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, raises(KeyError("rows")))
    with strictly(False), warnings.catch_warnings():
        warnings.simplefilter("ignore", TecWarning)
        net = tec.compile(network(), CPU, cache=False)
    net.save(str(tmp_path / "n.tec"))
    again = tec.load(str(tmp_path / "n.tec"))
    assert again.report.refused == net.report.refused != {}
    lines = listing.refusals_of(again)
    assert len(lines) == sum(map(len, net.report.refused.values()))
    defaults = [line for line in lines if ": default planted" in line]
    assert all(": default planted" in line or ": draft planted (k 2)" in line for line in lines)
    for line, function in zip(defaults, net.report.refused, strict=True):
        serves = net.report.choices[function]["choice"]["template"]
        assert line.startswith(f"{function}: default planted (k 1) refused at build: KeyError: 'rows'")
        assert f"served by {serves}" in line and "times as long" in line
    function = next(iter(net.report.refused))
    assert listing.refusals_of(again, function) == [line for line in lines if line.startswith(function + ":")]


def test_candidates_come_in_order_and_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _, outs = program("matmul", {}, ("float32", (24, 12)), ("float32", (12, 32)), bias=True)
    found = spaces(outs, CPU)
    for space in found:
        monkeypatch.setattr(type(space), "drafts", lambda self: pytest.fail("drafts were asked for"))
    assert next(in_order(found)).rank == "default"
    monkeypatch.undo()
    whole = list(in_order(found))
    order = [(c.rank, c.space is found[0]) for c in whole]
    ranks = [("default", True), ("draft", True), ("alternative", False), ("draft", False), ("stages", False)]
    assert {*ranks[:3], ranks[4]} <= set(order) and order == sorted(order, key=ranks.index)
    costs = [c.space.cost(c.choice or c.space.default).seconds for c in whole if c.space is found[0]]
    assert len(costs) == 3 and costs[1:] == sorted(costs[1:])
    assert whole[-1].space.template == "cpu stages" == found[-1].template
    for c in whole:
        assert c.choice is None or (c.choice != c.space.default and c.space.check(c.choice) == c.choice)


def test_stages_compute_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every family but the last fails, plain stages serve."""

    def broken(group: Group, target: Target) -> Iterator[Space]:
        raise RuntimeError("out of order")

    *others, stages = choices.FAMILIES
    monkeypatch.setattr(
        choices, "FAMILIES", (*(SimpleNamespace(__name__=f.__name__, match=broken) for f in others), stages)
    )
    for target in (CPU, GPU):
        with strictly(False), warnings.catch_warnings():
            warnings.simplefilter("ignore", TecWarning)
            net = tec.compile(network(), target, cache=False)
        check(net, target)
        assert {c["choice"]["template"] for c in net.report.choices.values()} == {
            "gpu stages" if target == GPU else "cpu stages"
        }
        assert all(len(r) == len(others) for r in net.report.refused.values())


@pytest.mark.parametrize("target", [CPU, GPU, "cuda -arch=sm_90a", "rocm -mcpu=gfx1201"])
def test_nothing_but_made_or_refused(target: str) -> None:
    """Choices that nobody called legal: any options of the parameters, with numbers that are none of them."""
    rng = random.Random(seeds.first(3))
    made = 0
    for name in ("product", "half product", "softmax", "sums of columns", "convolution", "add"):
        _, outs = PROGRAMS[name]()
        for space in spaces(outs, target):
            for _ in range(2):
                choice = space.choice(
                    **{k: rng.choice([*o, *o, 0, -1, 3, 7, None]) for k, o in space.parameters.items()}
                )
                found = proof.lower(space, choice, proof.alone)
                assert isinstance(found, (proof.Made, proof.Refused))
                made += isinstance(found, proof.Made)
                assert isinstance(found, proof.Made) or (found.reason and found.error and found.choice == choice)
    assert made


def test_a_proof_has_a_budget() -> None:
    """What would be unrolled beyond it is refused, unseen where loops say so, after unrolling where a note does."""
    x = te.placeholder((64, 128), name="x")
    y = te.compute((64, 128), lambda i, j: x[i, j] * 2.0, name="y")

    def unrolled(note: bool) -> Callable[[Planted], Any]:
        def make(space: Planted) -> Any:
            s = begin(space.group)
            i, j = s[y].op.axis
            if note:
                s[y].pragma(i, "auto_unroll_max_step", 1 << 14)
            else:
                s[y].unroll(i)
                s[y].unroll(j)
            return s

        return make

    group = Group.of([y])
    for note, words in ((False, "would be written out as 8,192"), (True, "is unrolled to 8,192")):
        space = Planted(group, Target(CPU), unrolled(note), "build")
        found = proof.lower(space, space.default, proof.alone)
        assert isinstance(found, proof.Refused) and found.stage == "lowering" and words in found.reason
        assert isinstance(proof.lower(space, space.default, proof.alone, most=None), proof.Made)


def test_records_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, outs = PROGRAMS["softmax"]()
    asked = []
    with records.using(lambda signature, target, machine: asked.append(signature)):
        assert next(in_order(spaces(outs, CPU))).rank == "default"
    assert asked == [Group.of(outs).signature]


# ---- rivals of the default


def _served(outputs: list[Any], target: str) -> tuple[Space, proof.Made]:
    """The space whose default comes first, and what serves."""
    first = spaces(outputs, target)[0]
    return first, choices.chain(outputs, target, proof.alone).first()


def _layer_norm(rows: int, columns: int) -> list[Any]:
    x = te.placeholder((rows, columns), "float32", name="x")
    return [nn.layer_norm(x, te.placeholder((columns,), name="g"), te.placeholder((columns,), name="b"), [-1])]


def test_many_short_rows_share_work_groups() -> None:
    """A GPU starts a work-group a clock: 61,856 rows of 64 as work-groups of one wavefront take 40 us on an H200, eight rows each 9."""
    space, made = _served(_layer_norm(61_856, 64), "cuda -arch=sm_90a")
    assert space.default["rows"] == 1 and made.choice["template"] == space.template and made.choice["rows"] >= 4


def test_no_rival_where_no_clock_has_judged_the_price() -> None:
    space, made = _served(_layer_norm(61_856, 64), GPU)
    assert made.choice == space.default


@pytest.mark.parametrize("seed", seeds.some(6))
def test_what_serves_is_no_dearer_by_its_loops(seed: int) -> None:
    rng = random.Random(seed)
    rows, columns = (round(2 ** rng.uniform(0, 12)) for _ in range(2))
    x = te.placeholder((rows, columns), rng.choice(("float32", "float16")), name="x")
    ends = [rng.choice((nn.softmax, lambda t: topi.sum(t, axis=0), lambda t: topi.sum(t, axis=1), nn.relu))(x)]
    space, made = _served(ends, "cuda -arch=sm_90a")
    default = proof.lower(space, space.default, proof.alone)
    assert isinstance(default, proof.Made)
    assert _loops_price(made) <= _loops_price(default)


def _loops_price(made: proof.Made) -> float:
    return price(footprint.read(made), made.space.target).seconds


@pytest.mark.parametrize("misleads", [False, True])
def test_no_more_drafts_are_lowered_where_loops_bear_the_sketch_out(
    monkeypatch: pytest.MonkeyPatch, misleads: bool
) -> None:
    """The first of a template's own rivals tells: where its loops are dearer as its sketch says, the others are left alone."""
    lowered: list[Choice] = []
    factors = (1.0, 0.98 if misleads else 1.1, 0.5, 0.5)

    def seconds(made: proof.Made, of: Space) -> tuple[float, ...]:
        lowered.append(made.choice)
        return (of.cost(of.default).seconds * factors[len(lowered) - 1],)

    monkeypatch.setattr(candidates, "_seconds", seconds)
    x, w = te.placeholder((700, 300), name="x"), te.placeholder((300, 500), name="w")
    space, made = _served([topi.matmul(x, w)], "cuda -arch=sm_90a")
    assert made.space.template == space.template == "blocked product"
    assert len(lowered) == (4 if misleads else 2)
    assert (made.choice == space.default) is not misleads


def test_a_rival_without_code_leaves_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compiler refuses of the rival, it need not refuse of the default; the report tells."""

    def accept(made: proof.Made) -> None:
        if made.choice["rows"] > 1:
            raise CodegenError("no code of this one")

    tries = choices.chain(_layer_norm(61_856, 64), "cuda -arch=sm_90a", proof.alone)
    assert tries.first(accept).choice["rows"] == 1
    (refused,) = tries.close()
    assert (refused.rank, refused.stage) == ("cheaper", "code")


def test_a_sketch_that_misleads_has_rivals_of_all_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops, an output a thread, that cost many times what their sketch says."""
    plant(monkeypatch, lambda space: GpuStages(space.group, space.target).apply().schedule)
    g = Graph()
    x, w = g.input("x", "float16", (13, 6616)), g.input("w", "float16", (6616, 1464))
    g.set_outputs(g.add("matmul", [x, w], {}))
    net = tec.compile(g, target="cuda -arch=h200")
    (found,) = net.report.choices.values()
    assert found["choice"]["template"] != "planted"
