"""Classes of open sizes: drawn operators at sizes on both sides of every border, against NumPy; which loops run; what serves where a class cannot be made."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices import strictly
from tec.driver import Building, Lowered
from tec.errors import LoweringError
from tec.graph import Graph, run_graph, size_classes, units
from tec.graph.optimize import optimize
from tec.graph.parts import part_of
from tec.graph.programs import program_of
from tec.graph.size_classes import CLASSES
from tec.graph.sizes import sizes_of_group
from tec.ir import IRModule
from tec.ir.interp import run
from tec.ops.dims import Dim
from tec.ops.typical import typical, typically
from tests.seeds import stream
from tests.thinned import thinned, thinned_rows

BORDERS = (1, 2, 15, 16, 17, 61, 64, 65, 127, 512, 513)
GPU_SIZES = (1, 7, 16, 17, 67)


class Case:
    """A graph with one open size, and its arrays at a size. Half of the weights' sizes are no multiples of 8."""

    def __init__(self, seed: object, dtype: str = "float32"):
        self.rng, self.dtype = random.Random(stream(seed)), dtype
        self.values = np.random.default_rng(self.rng.randrange(1 << 30))
        self.graph, self.shapes = Graph(), dict[str, tuple[Any, ...]]()

    def size(self, low: int, high: int) -> int:
        n = self.rng.randint(low, high)
        return n if self.rng.random() < 0.5 else max(8, n // 8 * 8)

    def input(self, name: str, *shape: Any) -> Any:
        self.shapes[name] = shape
        return self.graph.input(name, self.dtype, [Dim(d) if isinstance(d, str) else d for d in shape])

    def weight(self, *shape: int) -> Any:
        return self.graph.constant(self.array(shape), "w", self.dtype)

    def array(self, shape: tuple[int, ...]) -> Any:
        return (self.values.standard_normal(shape) / 4).astype(self.dtype)

    def op(self, name: str, *inputs: Any, **attrs: Any) -> Any:
        return self.graph.add(name, list(inputs), attrs)[0]

    def done(self, y: Any) -> Case:
        self.graph.set_outputs([y])
        return self

    def at(self, n: int) -> dict[str, Any]:
        return {name: self.array(tuple(n if d == "n" else d for d in shape)) for name, shape in self.shapes.items()}


def dense(c: Case) -> Case:
    k, columns = c.size(8, 90), c.size(4, 100)
    y = c.op("add", c.op("matmul", c.input("x", "n", k), c.weight(k, columns)), c.weight(columns))
    return c.done(c.op("relu", y) if c.rng.random() < 0.5 else y)


def product(c: Case) -> Case:
    """Of two inputs, whose rows, columns or terms are open."""
    m, n, k = c.size(4, 40), c.size(4, 40), c.size(8, 40)
    shape = [m, n, k]
    shape[c.rng.randrange(3)] = "n"  # type: ignore[call-overload]
    m, n, k = shape
    return c.done(c.op("matmul", c.input("x", m, k), c.input("y", k, n)))


def batched(c: Case) -> Case:
    m, k, columns = c.size(1, 20), c.size(8, 40), c.size(8, 40)
    lead = c.rng.choice((("n", m), (3, "n")))
    return c.done(c.op("matmul", c.input("x", *lead, k), c.input("y", lead[0], k, columns)))


def rows(c: Case) -> Case:
    x = c.input("x", "n", c.size(3, 80))
    return c.done(c.op(c.rng.choice(("softmax", "log_softmax")), x, axes=(1,)))


def reduction(c: Case) -> Case:
    x = c.input("x", "n", c.size(3, 80))
    return c.done(c.op(c.rng.choice(("reduce_sum", "reduce_max")), x, axes=(c.rng.randrange(2),), keepdims=True))


KINDS: dict[str, Callable[[Case], Case]] = {f.__name__: f for f in (dense, product, batched, rows, reduction)}


def close(got: Any, want: Any, dtype: str, what: object) -> None:
    tol = 2e-2 if dtype == "float16" else 2e-4
    np.testing.assert_allclose(
        np.asarray(got, "f8"), np.asarray(want, "f8"), tol, tol * max(1.0, float(np.abs(want).max(initial=0))),
        err_msg=str(what),
    )  # fmt: skip


def reference(case: Case, feeds: dict[str, Any]) -> Any:
    """What the definition says of the numbers, in float64 where it is a product."""
    if [n.op for n in case.graph.nodes] == ["matmul"]:
        return feeds["x"].astype("f8") @ feeds["y"].astype("f8")
    return run_graph(case.graph, feeds)[0]


def check(case: Case, target: str, sizes: tuple[int, ...], device: Any = None) -> Any:
    with strictly():
        net = tec.compile(case.graph, target, cache=False)
    executor = net.executor(device) if device is not None else net.executor()
    for n in sizes:
        feeds = case.at(n)
        (got,) = executor.run(feeds)
        close(got.numpy() if hasattr(got, "numpy") else got, reference(case, feeds), case.dtype, n)
    return net


@thinned(1, ("kind", KINDS), ("seed", range(2)))
def test_on_the_cpu(kind: str, seed: int) -> None:
    check(KINDS[kind](Case(f"{kind} {seed}")), "llvm", BORDERS)


@pytest.mark.parametrize(
    ("kind", "dtype", "chip"),
    [("dense", "float16", "gfx942"), ("dense", "float32", "gfx1100"), ("product", "float32", "gfx942"), ("batched", "float16", "gfx1100"), ("rows", "float32", "gfx942"), ("reduction", "float32", "gfx942")],
)  # fmt: skip
def test_on_the_software_gpu(kind: str, dtype: str, chip: str) -> None:
    check(KINDS[kind](Case(f"{kind} gpu", dtype)), f"rocm -mcpu={chip}", GPU_SIZES, tec.rocm_emu(chip))


# ---- with borders near each other, on the interpreter


class Kept(Building):
    """What is added, of which no code is made."""

    low: Lowered

    def _set(self, low: Lowered) -> None:
        self.low = low


def made(case: Case, target: str) -> tuple[units.Unit, Lowered]:
    """The function of the one group of a graph, after all passes."""
    tgt = tec.Target(target)
    with tgt, strictly():
        graph = optimize(case.graph, tgt, None)
        (group,) = (g for g in part_of(graph, (), ()).groups if not g.is_alias)
        building = Kept(tgt)
        return units.make_unit(group, 0, building, sizes_of_group(group), list(graph.guards)), building.low


@thinned(
    1,
    ("target", ["rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda -arch=sm_80", "cuda -arch=sm_70"]),
    ("dtype", ["float32", "float16"]),
    ("seed", range(2)),
)
def test_every_class_on_the_interpreter(target: str, dtype: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_classes, "CLASSES", ((3, 16), (5, 64), (7, 256), (None, 2048)))
    monkeypatch.setattr(size_classes, "MIDDLE", 4)
    monkeypatch.setattr(size_classes, "WORTH", 0.0)  # whatever differs is kept
    c = Case(f"interpreted {seed}", dtype)
    k, columns = c.size(8, 24), c.size(8, 40)
    c.done(c.op("matmul", c.input("x", "n", k), c.input("y", k, columns)))
    unit, low = made(c, target)
    assert len(unit.chosen["classes"]) >= 2, unit.chosen
    ends = [int(e) for e in unit.chosen["classes"] if e != "more"]
    for n in sorted({1, 2, *ends, *(e + 1 for e in ends), 9}):
        feeds = c.at(n)
        out = np.zeros((n, columns), dtype)
        flat = [np.ascontiguousarray(a).reshape(-1) for a in (feeds["x"], feeds["y"], out)]
        func = low.host
        run(func, flat, [n], module=IRModule({p.name: p for p in low.parts}))
        close(flat[2].reshape(out.shape), reference(c, feeds), dtype, (target, n))


def in_parts(chosen: dict[str, Any]) -> bool:
    return any(max(choice.get("split_k", 1), choice.get("parts", 1)) > 1 for choice in chosen["classes"].values())


def test_a_tile_for_few_rows_does_not_serve_many() -> None:
    """Classes are judged by the price at the sizes that they would serve: tiles of 16 rows cost 2,048 rows several times what theirs do."""
    c = Case("wide", "float16")
    c.done(c.op("matmul", c.input("x", "n", 416), c.input("y", 416, 5768)))
    target = tec.Target("rocm -mcpu=gfx942")
    with target:
        graph = optimize(c.graph, target, None)
        (group,) = (g for g in part_of(graph, (), ()).groups if not g.is_alias)
        program = program_of(group, 0, sizes_of_group(group), list(graph.guards))
        found, _ = size_classes._apart(program, target, program.sizes.names[0])
    few, many = next(c for c in found if c.end is None or c.end >= 16), found[-1]
    assert few.end is not None and few.choice["rows"] < many.choice["rows"]


@thinned_rows(1, "target", ["cuda -arch=sm_90a", "cuda -arch=sm_70"])
def test_few_rows_are_summed_in_parts(target: str) -> None:
    """Where a class has a last size the memory for the parts has a bound too; where it has none the sum stays whole."""
    c = Case("parts")
    k, columns = 1032, 36
    c.done(c.op("matmul", c.input("x", "n", k), c.input("y", k, columns)))
    unit, low = made(c, target)
    classes = unit.chosen["classes"]
    assert in_parts({"classes": {e: v for e, v in classes.items() if e not in ("1", "more")}}), classes
    assert classes["more"].get("split_k", 1) == 1
    for n in (1, 3, 18):
        feeds = c.at(n)
        flat = [np.ascontiguousarray(a).reshape(-1) for a in (feeds["x"], feeds["y"], np.zeros((n, columns), "f"))]
        run(low.host, flat, [n], module=IRModule({p.name: p for p in low.parts}))
        close(flat[2].reshape(n, columns), reference(c, feeds), "float32", (target, n))


def test_few_rows_are_summed_in_parts_on_the_software_gpu() -> None:
    c = Case("splits", "float16")
    c.done(c.op("matmul", c.input("x", "n", 4096), c.input("y", 4096, 40)))
    (chosen,) = check(c, "rocm -mcpu=gfx942", (1, 3, 17, 65), tec.rocm_emu("gfx942")).report.choices.values()
    print(chosen["classes"])


def test_rows_just_above_a_class_have_loops_near_their_number() -> None:
    """72 rows are not served by what 8,192 want, and the sum of few tiles is shared by a work-group's wavefronts, whose length is known though the rows are open."""
    c = Case("shared")
    unit, _ = made(c.done(c.op("matmul", c.input("x", "n", 3240), c.weight(3240, 2296))), "rocm -mcpu=gfx942")
    *few, many = ((v.get("rows", 1), v.get("slice_k", 1)) for v in unit.chosen["classes"].values())
    assert min(int(e) for e in unit.chosen["classes"] if e != "more" and int(e) >= 72) <= 128
    assert max(slices for _, slices in few) > 1 and many[1] == 1
    assert max(rows for rows, _ in few) < many[0] or len(few) > 2


def test_wavefronts_share_the_sum_of_open_rows_on_the_software_gpu() -> None:
    c = Case("slices", "float16")
    c.done(c.op("matmul", c.input("x", "n", 712), c.input("y", 712, 64)))
    (chosen,) = check(
        c, "rocm -mcpu=gfx942", (2, 18, 70, 130), tec.rocm_emu("gfx942", check="all")
    ).report.choices.values()
    assert any(v.get("slice_k", 1) > 1 for v in chosen["classes"].values())


@pytest.mark.parametrize("target", ["rocm -mcpu=gfx942", "rocm -mcpu=gfx1100"])
def test_open_rows_are_loaded_without_a_branch(target: str) -> None:
    """The size of the operand is not known, but lanes read near a place that their work-group shares: a buffer load does what a branch would, which ends LLVM's basic block and waits for what
    came before it."""
    c = Case("branches", "float16")
    c.done(c.op("matmul", c.input("x", "n", 3000), c.weight(3000, 20)))
    net = tec.compile(c.graph, target, cache=False)
    *_, last = net.get_source("asm").split("_more_kernel0:\n")
    loads, multiplied = last.split("s_endpgm")[0].rsplit("mfma" if "gfx9" in target else "wmma", 1)
    assert "buffer_load_" in loads and "s_and_saveexec" not in loads and multiplied


@pytest.mark.parametrize(
    ("dtype", "turned", "end", "template"),
    [("float32", False, "4", "thin product"), ("float32", True, "4", "few rows"), ("float16", True, "16", "few rows by matrix units")],
)  # fmt: skip
def test_the_templates_of_few_rows_serve_a_class(dtype: str, turned: bool, end: str, template: str) -> None:
    """One kernel for up to so many rows: those beyond the last are made of the last one, and stored nowhere. One row has loops of its own, which do a part of the work."""
    c = Case("few open rows", dtype)
    w = c.input("y", *((72, 520) if turned else (520, 72)))
    c.done(c.op("relu", c.op("matmul", c.input("x", "n", 520), w, transpose_b=turned)))
    (chosen,) = check(
        c, "rocm -mcpu=gfx942", (1, 2, 3, 4, 5, 9, 16, 17), tec.rocm_emu("gfx942", check="all")
    ).report.choices.values()
    assert chosen["classes"][end]["template"] == template and "1" in chosen["classes"]


def test_no_condition_stands_between_the_loads_of_few_open_rows() -> None:
    """With one for each row, 3 x 13,295 x 717 would wait for memory step after step."""
    c = Case("loads of open rows")
    c.done(c.op("matmul", c.input("x", "n", 512), c.input("y", 512, 4096)))
    net = tec.compile(c.graph, "cuda -arch=sm_90a", cache=False)
    _, last = net.get_source("ptx").split("_4_kernel0(")[:2]
    loop = last.split("ret;")[0].split("ld.global.nc.v4")
    assert len(loop) > 8 and not any("bra" in part for part in loop[1:-1])


# ---- which loops run


def test_one_row_of_the_table_runs_in_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """All classes' kernels are rows of the table of launches, all but one with an empty grid; no function is called for one."""
    from tec.runtime.modules.program import HostProgram

    c = Case("table", "float16")
    c.done(c.op("matmul", c.input("x", "n", 256), c.weight(256, 512)))
    net = tec.compile(c.graph, "rocm -mcpu=gfx942", cache=False)
    (chosen,) = net.report.choices.values()
    classes = chosen["classes"]
    assert list(classes) == ["1", "64", "more"] or len(classes) >= 2
    executor = net.executor(tec.rocm_emu("gfx942"))
    monkeypatch.setattr(HostProgram, "specialise", lambda *_: pytest.fail("a call was planned"))
    used = []
    for n in (1, 5, 40, 600):
        feeds = c.at(n)
        (got,) = executor.run(feeds)
        close(got.numpy(), feeds["x"].astype("f8") @ np.asarray(c.graph.constants()[0].data, "f8"), "float16", n)
        table = executor._engine._table
        assert table.launches.sections == [(0, len(table.launches.rows))]
        grids = table._rows[:, 4:7].min(axis=1)
        used.append({r.kernel for r, g in zip(table.launches.rows, grids, strict=True) if g > 0})
    kernels = [next(iter(u)) for u in used]
    assert all(len(u) == 1 for u in used)
    assert kernels[0] != kernels[1] and kernels[0].endswith("_1_kernel0") and kernels[-1] != kernels[0]


def test_one_choice_for_all_sizes_is_one_function() -> None:
    """An operator without a sum has no classes, nor has one whose sizes are numbers, nor any on a CPU."""
    c = Case("plain")
    _, low = made(c.done(c.op("relu", c.input("x", "n", 8))), "rocm -mcpu=gfx942")
    assert len(low.parts) == 1
    unit, _ = made(product_of(), "llvm")  # a CPU
    assert "classes" not in unit.chosen
    c = Case("numbers")
    unit, _ = made(c.done(c.op("matmul", c.input("x", 4, 8), c.weight(8, 8))), "rocm -mcpu=gfx942")
    assert "classes" not in unit.chosen


def test_a_choice_is_judged_at_large_sizes_by_what_they_ask() -> None:
    """A tile of 16 by 16 takes as long as one of 64 by 64 where rows are few; of 8,192 rows it is four times as many work-groups."""
    c = Case("large", "float16")
    c.done(c.op("matmul", c.input("x", "n", 48), c.input("y", 48, 408)))
    unit, _ = made(c, "cuda -arch=sm_90a")
    many = unit.chosen["classes"]["more"]
    assert many["rows"] * many["columns"] >= 64 * 64, unit.chosen["classes"]


# ---- what serves where a class cannot be made


def product_of() -> Case:
    c = Case("fallback", "float16")
    return c.done(c.op("matmul", c.input("x", "n", 96), c.input("y", 96, 128)))


def one_serves(net: Any) -> None:
    (chosen,) = net.report.choices.values()
    assert "classes" not in chosen
    serves(net)


def serves(net: Any) -> None:
    executor = net.executor(tec.rocm_emu("gfx942"))
    for n in (1, 20):
        feeds = product_of().at(n)
        close(executor.run(feeds)[0].numpy(), feeds["x"].astype("f8") @ feeds["y"].astype("f8"), "float16", n)


def test_a_size_of_one_that_no_input_has() -> None:
    """Filters of 6 rows on images of one: the class of that size would have sizes below 0."""
    g = Graph("narrow")
    x = g.input("x", "float32", (Dim("n"), 3, Dim("h"), 4))
    w = g.constant(np.ones((8, 3, 6, 4), "f4"), "w")
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "groups": 1}
    g.set_outputs(list(g.add("conv", [x, w], attrs, "conv")), ["y"])
    with strictly():
        net = tec.compile(g, "rocm -mcpu=gfx942", cache=False)
    image = np.random.default_rng(0).standard_normal((2, 3, 9, 4)).astype("f")
    (out,) = net.run([image], tec.rocm_emu("gfx942"))
    (expected,) = run_graph(g, {"x": image})
    close(out, np.asarray(expected, "f8"), "float32", 9)


def test_a_class_that_cannot_be_made_is_served_by_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_classes, "_made", lambda *_: None)
    with strictly(False):
        net = tec.compile(product_of().graph, "rocm -mcpu=gfx942", cache=False)
    (chosen,) = net.report.choices.values()
    assert list(chosen["classes"]) == ["more"]
    serves(net)


@pytest.mark.parametrize("where", ["merged", "variants"])
def test_classes_that_fail_leave_one_function(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise LoweringError("no classes today")

    monkeypatch.setattr(units, where, fail)
    with strictly(False):
        one_serves(tec.compile(product_of().graph, "rocm -mcpu=gfx942", cache=False))
    with strictly(), pytest.raises(LoweringError, match="no classes today"):
        tec.compile(product_of().graph, "rocm -mcpu=gfx942", cache=False)


def test_where_llvm_refuses_the_classes_one_function_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that is asked for first is refused: all sizes then run on what the middle class has, and no choice is said to be refused."""
    begin = Building._set
    kernels: list[int] = []

    def first_fails(self: Building, low: Lowered) -> None:
        begin(self, low)
        kernels.append(len(low.parts))
        if len(kernels) == 1:
            for part in self._parts[low.func.name]:
                part.wait = lambda: (_ for _ in ()).throw(LoweringError("stack frame size exceeds limit"))

    monkeypatch.setattr(Building, "_set", first_fails)
    net = tec.compile(product_of().graph, "rocm -mcpu=gfx942", cache=False)
    assert len(kernels) == 2 and kernels[1] < kernels[0] and not net.report.refused
    one_serves(net)


# ---- what an open size is thought to be


def test_typically() -> None:
    a, b = Dim("a"), Dim("b")
    assert (typical(a), typical(a, 5), typical(7), typical(a * 3 + b)) == (32, 5, 7, 128)
    with typically({"a": 2}):
        assert (typical(a), typical(a, 5), typical(a * 3 + b)) == (2, 5, 38)
        with typically({"b": 1}):
            assert (typical(a), typical(b)) == (32, 1)
    assert typical(a) == 32


def test_classes_end_in_order() -> None:
    ends = [end for end, _ in CLASSES]
    assert ends[-1] is None and ends[:-1] == sorted(ends[:-1])  # type: ignore[type-var]
    assert all(end is None or size <= end for end, size in CLASSES)


def test_a_class_without_end_counts_its_work_groups() -> None:
    """Sums that a work-group each adds are cheap for few rows, and no rival of matrix units where rows have no end."""
    c = Case(0, "float16")
    c.done(c.op("matmul", c.input("x", "n", 2728), c.input("w", 2728, 64)))
    net = tec.compile(c.graph, target="cuda -arch=sm_90a")
    (found,) = net.report.choices.values()
    units = {"matrix product", "padded warpgroup product", "warpgroup product"}
    assert found["choice"]["template"] in units
    assert found["classes"]["more"]["template"] in units


def test_many_rows_come_by_bulk_copies() -> None:
    """The maps of a class are made for the number of rows of a call; a tile has a work-group of its own."""
    c = Case(0, "float16")
    c.done(c.op("matmul", c.input("x", "n", 512), c.input("w", 512, 1024)))
    net = tec.compile(c.graph, target="cuda -arch=sm_90a")
    (found,) = net.report.choices.values()
    last = found["classes"]["more"]
    assert (last["template"], last["group_m"], last["persistent"]) == ("warpgroup product", 1, False)
    launches = net._launches()
    binding = net._layout.bind({"n": 5000})
    sizes = {tuple(int(binding.numbers[r]) for r in m.sizes) for m in launches.maps}
    assert {(512, 5000), (1024, 512), (1024, 5000)} <= sizes
    columns = -(-1024 // last["columns"])
    assert any(math.prod(int(binding.numbers[r]) for r in rows[:3]) == -(-5000 // last["rows"]) * columns for rows in launches.geometry_rows)  # fmt: skip
