"""Templates as spaces: every legal choice computes the same, what is not legal says what is, choices are plain data found again by signature."""

from __future__ import annotations

import itertools
import json
import random
import warnings
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import Space, schedule, spaces
from tec.choices.store import records
from tec.errors import ScheduleError
from tec.graph.graph import Graph
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op
from tests import seeds
from tests.thinned import thinned

CPU = "llvm -mcpu=x86-64-v3"
GPUS = ("rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda -arch=sm_90")


def program(
    op: str, attrs: dict[str, Any], *types: tuple[str, tuple[int, ...]], bias: bool = False
) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """(inputs, outputs) of an operator, with a bias and a relu behind it where asked."""
    xs = [te.placeholder(s, d, name=f"x{k}") for k, (d, s) in enumerate(types)]
    definition = get_op(op)
    outs = definition.compute(attrs, list(xs), definition.infer([TensorType(d, s) for d, s in types], attrs))
    if bias:
        y = outs[0]
        outs = [te.compute(y.shape, lambda *i: te.max(y(*i) + te.const(1, y.dtype), te.const(0, y.dtype)), name="relu")]
    return xs, list(outs)


WINDOW = {"kernel": (3, 3), "strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1)}


def lies(x: str, w: str, y: str = "") -> dict[str, Any]:
    return {"layouts": (Layout(x), Layout(w), Layout(y or x)), "groups": 1}


_ACTS = (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0))
GRU = {
    "cell": "gru",
    "hidden": 20,
    "backward": (False, True),
    "activations": (_ACTS, _ACTS),
    "clip": 0.9,
    "extras": ("lengths",),
}

PROGRAMS: dict[str, Any] = {
    "product": lambda: program("matmul", {}, ("float32", (24, 20)), ("float32", (20, 32)), bias=True),
    "thin product": lambda: program("matmul", {}, ("float32", (2, 40)), ("float32", (40, 24))),
    "product of two terms": lambda: program("matmul", {}, ("float16", (2, 33, 2)), ("float16", (2, 2, 24))),
    "product of odd lines": lambda: program("matmul", {"transpose_b": True}, ("float16", (19, 3)), ("float16", (37, 3))),
    "few columns": lambda: program("matmul", {}, ("float32", (10, 43)), ("float32", (43, 3)), bias=True),
    "few columns along the sum": lambda: program("matmul", {"transpose_b": True}, ("float16", (2, 9, 70)), ("float16", (2, 5, 70))),
    "half product": lambda: program("matmul", {"transpose_b": True}, ("float16", (40, 32)), ("float16", (48, 32)), bias=True),
    "packed product": lambda: program("packed_matmul", PACKED, ("float32", (24, 64)), ("uint8", (3, 64, 8)), ("float32", (3, 4, 16)), bias=True),
    "projection": lambda: program("projection", {"depth": 128, "columns": 24, "eps": 1e-5, "gate": "silu"}, ("float32", (1, 128)), ("float32", (128,)), ("float32", (24, 128)), bias=True),
    "convolution": lambda: program("conv", WINDOW | lies("NCHW8c", "OIHW8i8o"), ("float32", (1, 2, 5, 9, 8)), ("float32", (4, 2, 3, 3, 8, 8)), bias=True),
    "depthwise": lambda: program("conv", WINDOW | lies("NCHW8c", "OHW8o") | {"groups": 16}, ("float32", (1, 2, 5, 9, 8)), ("float32", (2, 3, 3, 8))),
    "image": lambda: program("conv", WINDOW | lies("NCHW", "O(IHW)", "NC(HW)"), ("float32", (1, 4, 6, 8)), ("float32", (16, 36))),
    "blocks": lambda: program("transform_layout", {"layouts": (Layout("NCHW"), Layout("NCHW8c")), "sizes": tuple(zip("NCHW", (1, 20, 3, 5)))}, ("float32", (1, 20, 3, 5))),
    "softmax": lambda: program("softmax", {"axes": (1,)}, ("float32", (6, 70))),
    "softmax of columns": lambda: program("softmax", {"axes": (1,)}, ("float32", (3, 40, 5))),
    "softmax of wide columns": lambda: program("softmax", {"axes": (1,)}, ("float32", (2, 33, 70))),
    "mean": lambda: program("reduce_mean", {"axes": (1,), "keepdims": False}, ("float32", (6, 300))),
    "mean of columns": lambda: program("reduce_mean", {"axes": (1,), "keepdims": False}, ("float32", (3, 33, 40))),
    "mean of few rows": lambda: program("reduce_mean", {"axes": (1,), "keepdims": False}, ("float32", (3, 11, 40))),
    "sums of columns": lambda: program("reduce_sum", {"axes": (0,), "keepdims": False}, ("float32", (33, 40))),
    "maxima of columns": lambda: program("reduce_max", {"axes": (1,), "keepdims": False}, ("float32", (3, 20, 7))),
    "maxima of windows": lambda: program("max_pool", POOL, ("float32", (2, 3, 9, 14))),
    "means of windows": lambda: program("avg_pool", POOL, ("float32", (2, 3, 9, 14))),
    "add": lambda: program("add", {}, ("float32", (5, 64)), ("float32", (64,))),
    "running sum": lambda: program("cumsum", {"axis": 1}, ("float32", (3, 300))),
    "largest": lambda: program("topk", {"axis": 1, "k": 5, "largest": True}, ("float32", (3, 40))),
    "recurrence": lambda: program("recurrence", GRU, ("float32", (3, 3, 120)), ("float32", (2, 60, 20)), ("int64", (3,))),
    "scatter": lambda: program("scatter_elements", {"axis": 0, "reduction": "add"}, ("float32", (9, 8)), ("int64", (4, 8)), ("float32", (4, 8))),
}  # fmt: skip
POOL = {
    "kernel": (3, 3),
    "strides": (2, 2),
    "dilations": (1, 1),
    "before": (1, 1),
    "after": (1, 1),
    "out_space": (5, 7),
}
PACKED = {"bits": 4, "block": 16, "panel": 16, "depth": 64, "columns": 40}
EXPECTED = {  # the default's template on a CPU, on a GPU
    "product": ("cpu product", "matrix product"), "thin product": ("cpu product", "gpu reduction"), "half product": ("cpu product", "matrix product"),
    "product of two terms": ("cpu product", "few terms"), "product of odd lines": ("cpu product", "few terms"),
    "few columns": ("cpu few columns", "gpu reduction"), "few columns along the sum": ("cpu few columns", "gpu reduction"),
    "packed product": ("cpu packed product", "matrix product"),
    "projection": ("cpu stages", "gpu projection"),
    "convolution": ("cpu convolution", "gpu reduction"), "depthwise": ("cpu convolution", "gpu reduction"), "image": ("cpu product", "blocked product"),
    "blocks": ("cpu relayout", "gpu stages"),
    "softmax": ("cpu softmax", "gpu rows"), "softmax of columns": ("cpu stages", "gpu columns"), "softmax of wide columns": ("cpu stages", "gpu columns"), "mean": ("cpu stages", "gpu reduction"), "mean of columns": ("cpu stages", "gpu reduction"), "mean of few rows": ("cpu reduction", "gpu reduction"), "sums of columns": ("cpu stages", "gpu reduction"),
    "maxima of columns": ("cpu stages", "gpu reduction"), "maxima of windows": ("cpu padded planes", "gpu reduction"), "means of windows": ("cpu padded planes", "gpu reduction"),
    "add": ("cpu stages", "gpu stages"), "running sum": ("running sum", "running sum"), "largest": ("largest", "largest"),
    "scatter": ("scatter", "scatter"), "recurrence": ("cpu recurrence", "gpu recurrence"),
}  # fmt: skip


def feeds(xs: list[te.Tensor]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    out = []
    for t in xs:
        shape = [int(d.value) for d in t.shape]
        out.append(rng.integers(0, 4, shape) if t.dtype == "int64" else rng.integers(-3, 4, shape).astype(t.dtype))
    return out


def run(xs: list[te.Tensor], chosen: Any, target: str, values: list[np.ndarray]) -> list[np.ndarray]:
    device = tec.rocm_emu(tec.Target(target).mcpu) if target.startswith("rocm") else tec.cpu()
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="group")
    # By the function's own parameters: a template may fold a result into another shape than its tensor's.
    shapes = [p["shape"] for p in f.signature["params"]][len(xs) :]
    outs = [np.zeros(shape, t.dtype) for shape, t in zip(shapes, chosen.outputs)]
    on = [tec.nd.array(v, device) for v in (*values, *outs)]
    f(*on)
    return [a.numpy() for a in on[len(values) :]]


def sample(space: Space, count: int) -> list[dict[str, Any]]:
    """The default and some other legal choices, the same ones in every run at the gate."""
    # A large space's first 4,000 take seconds to list; its parameters are drawn whole at night.
    some = list(itertools.islice(space.all, 4000 if seeds.number() else 200))
    return [space.default, *random.Random(seeds.first(1)).sample(some, min(count, len(some)))]


@thinned(1, ("name", PROGRAMS), ("target", [CPU, "rocm -mcpu=gfx942"]))
def test_every_choice_computes_the_same(name: str, target: str) -> None:
    xs, outs = PROGRAMS[name]()
    values = feeds(xs)
    want = te.evaluate(outs, dict(zip(xs, values)))
    found = spaces(outs, target)
    assert len({s.template for s in found}) == len(found)  # a recorded choice names its template
    for space in found:
        for choice in sample(space, 2 if seeds.number() else 1):
            got = run(xs, space.apply(choice), target, values)
            for a, b in zip(got, want):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3, err_msg=str(choice))


@pytest.mark.parametrize("name", PROGRAMS)
def test_defaults_are_legal_and_as_expected(name: str) -> None:
    _, outs = PROGRAMS[name]()
    for target in (CPU, *GPUS):
        found = spaces(outs, target)
        want = EXPECTED[name][target != CPU]
        if name in ("product", "packed product") and "gfx942" not in target and target != CPU:
            want = "blocked product"  # float32 has a matrix unit on CDNA alone
        if name == "image" and "rocm" in target:  # of few results
            want = "gpu reduction"
        if name.endswith(" of windows") and "rocm" in target:
            want = "gpu plain windows"
        assert found[0].template == want, target
        for space in found:
            default = space.default
            assert space.check(default) == default and json.loads(json.dumps(default)) == default
            cost = space.cost(default)
            assert 0 < cost.seconds < 1 and cost.limit


def test_costs_follow_the_machine() -> None:
    """The same product is thought to take less time on a larger chip, and more where it is larger."""

    def seconds(n: int, target: str) -> float:
        _, outs = program("matmul", {"transpose_b": True}, ("float16", (n, n)), ("float16", (n, n)))
        space = spaces(outs, target)[0]
        return space.cost(space.default).seconds

    assert seconds(2048, "rocm -mcpu=gfx942") < seconds(4096, "rocm -mcpu=gfx942")
    assert seconds(4096, "rocm -mcpu=gfx1100") > seconds(4096, "rocm -mcpu=gfx942")


def test_tiles_follow_the_number_of_units() -> None:
    """A product of 144 tiles of 128 x 128 fills a chip of 40 compute units four times; of 96 it leaves half idle the second time."""

    def tile(target: str) -> int:
        _, outs = program("matmul", {"transpose_b": True}, ("float16", (2048, 1024)), ("float16", (1152, 1024)))
        choice = spaces(outs, target)[0].default
        return int(choice["rows"] * choice["columns"])

    assert tile("rocm -mcpu=gfx1151") == 128 * 128 > tile("rocm -mcpu=gfx1100")


MISTAKES = [
    ({"template": "cpu product", "rows": 0}, "rows cannot be 0", "it is one of"),
    ({"template": "cpu product", "rows": 2.0}, "rows cannot be 2.0", "it is one of"),
    ({"template": "cpu product", "colums": 8}, "no parameter 'colums'", "columns"),
    (
        {"template": "cpu product", "rows": 24, "columns": 32, "unroll": 1, "parallel": True},
        "vector registers",
        "legal are",
    ),
    ({"template": "matrix product"}, "no template 'matrix product'", "cpu product"),
]


@pytest.mark.parametrize("choice,said,hint", MISTAKES)
def test_mistakes_say_what_is_legal(choice: dict[str, Any], said: str, hint: str) -> None:
    _, outs = PROGRAMS["product"]()
    with pytest.raises(ScheduleError, match=said) as caught:
        schedule(outs, CPU, choice)
    assert hint in (caught.value.hint or "")


def test_a_tile_beyond_the_chip_is_refused() -> None:
    _, outs = program("matmul", {"transpose_b": True}, ("float16", (512, 512)), ("float16", (512, 512)))
    space = spaces(outs, "rocm -mcpu=gfx942")[0]
    whole = {**space.default, "rows": 256, "columns": 256, "waves_m": 1, "waves_n": 1, "ahead": 1, "slices": 1}
    with pytest.raises(ScheduleError, match="registers of a thread"):
        space.check(whole)
    with pytest.raises(ScheduleError, match="shared memory"):
        space.check(
            {
                **space.default,
                "rows": 256,
                "columns": 256,
                "waves_m": 2,
                "waves_n": 4,
                "step": 128,
                "stages": 2,
                "ahead": 1,
                "slices": 1,
            }
        )
    largest = {
        **space.parameters,
        "rows": (256,),
        "columns": (256,),
        "step": (32,),
        "stages": (1,),
        "prefetch_distance": (1,),
    }
    assert any(c["waves_m"] * c["waves_n"] == 8 for c in space.legal(largest))
    assert any(c["ping_pong"] for c in space.legal({**largest, "ping_pong": (True,)}))


def test_signatures_name_the_computation() -> None:
    def of(n: int, name: str, dtype: str = "float32", factor: float = 2.0) -> str:
        a = te.placeholder((n, 8), dtype, name=name)
        r = te.reduce_axis((0, 8), name + "r")
        c = te.compute((n,), lambda i: te.sum(a[i, r] * te.const(factor, dtype), axis=r), name=name + "c")
        return spaces([c], CPU)[0].group.signature

    assert of(4, "a") == of(4, "b")
    assert len({of(4, "a"), of(5, "a"), of(4, "a", "float64"), of(4, "a", factor=3.0)}) == 4


def network() -> Graph:
    g = Graph()
    x, w = g.input("x", "float32", (24, 20)), np.random.default_rng(0).standard_normal((20, 32)).astype("f")
    (y,) = g.add("matmul", [x, g.constant(w, "w")], {})
    g.set_outputs([g.add("relu", [y], {})[0]])
    return g


def test_choices_from_outside() -> None:
    x = np.random.default_rng(1).standard_normal((24, 20)).astype("f")
    plain = tec.compile(network(), target=CPU, cache=False)
    (name,) = plain.report.choices
    signature, default = plain.report.choices[name]["signature"], plain.report.choices[name]["choice"]
    assert default["template"] == "cpu product"
    other = {**default, "rows": 2, "unroll": 2}
    net = tec.compile(network(), target=CPU, cache=False, choices={signature: other})
    assert net.report.choices[name] == {"signature": signature, "choice": other}
    assert net.get_source("asm") != plain.get_source("asm")
    np.testing.assert_allclose(net.run({"x": x})[0], plain.run({"x": x})[0], rtol=1e-5, atol=1e-5)
    seen: list[Any] = []
    again = tec.compile(network(), target=CPU, cache=False, choices=lambda *key: seen.append(key))
    assert seen[0][0] == signature and str(seen[0][1]) == CPU and seen[0][2].vector_macs["float32"] == 16
    assert again.get_source("asm") == plain.get_source("asm")


def test_records_that_no_longer_fit_are_left_aside() -> None:
    plain = tec.compile(network(), target=CPU, cache=False)
    (entry,) = plain.report.choices.values()
    for stale in ({"template": "cpu product", "rows": 999}, {"template": "gone"}, "nonsense"):
        with pytest.warns(UserWarning, match="the default stands in"):
            net = tec.compile(network(), target=CPU, cache=False, choices={entry["signature"]: stale})
        assert net.get_source("asm") == plain.get_source("asm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tec.compile(network(), target=CPU, cache=False, choices={"another": {"rows": 1}})
    with pytest.raises(ScheduleError, match="choices are a dict"):
        records.as_lookup(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "dtype", "before", "today"),
    [
        ("warpgroup product", "float16", {"rows": 64, "columns": 128, "stages": 4, "band": 4, "stays": True, "resident": 1, "turns": False}, {"rows": 64, "columns": 128, "stages": 4, "group_m": 4, "persistent": True, "occupancy": 1, "ping_pong": False}),
        ("bulk product", "float32", {"rows": 64, "columns": 64, "parts": 2, "blocks": 2, "step": 32, "order": "turns", "ahead": True}, {"rows": 64, "columns": 64, "split_k": 2, "occupancy": 2, "step": 32, "order": "serpentine", "prefetch": True}),
        ("blocked product", "float32", {"rows": 64, "parts": 4}, {"rows": 64, "split_k": 4}),
    ],
)  # fmt: skip
def test_records_of_before_have_todays_names(
    template: str, dtype: str, before: dict[str, Any], today: dict[str, Any]
) -> None:
    """Both where a record is full and where a user says some of it."""
    _, outs = program("matmul", {}, (dtype, (256, 512)), (dtype, (512, 256)))
    space = next(s for s in spaces(outs, "cuda -arch=sm_90a") if s.template == template)
    full = space.check(today)
    assert space.check(before) == full and all(full[k] == v for k, v in today.items())
    back = {new: old for old, new in space.former.items()}
    assert space.filled({back.get(k, k) if isinstance(back.get(k, k), str) else k: v for k, v in full.items()}) == full


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_matrix_units_take_no_product_that_is_read_elsewhere(dtype: str) -> None:
    """The space is not offered, where a choice of it could not be scheduled: sums lie in lanes, and each is ended where it is."""
    _, (y,) = program("matmul", {}, (dtype, (64, 64)), (dtype, (64, 64)))
    turned = te.compute((64, 64), lambda i, j: y[j, i] + te.const(1, y.dtype), name="turned")
    for target in ("rocm -mcpu=gfx942", "cuda -arch=sm_80"):
        assert all(s.template != "matrix product" for s in spaces([turned], target))
        assert any(s.template == "matrix product" for s in spaces([y], target)) or dtype == "float32"
