"""Attention on matrix units: every layout, mask and choice against float64, on the software GPUs and in the interpreter, and what its loops are made of."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.choices.families.attention.deal import longest
from tec.choices.families.attention.gpu import GpuAttention
from tec.choices.families.attention.matrix import MatrixAttention, fragments
from tec.choices.families.attention.warpgroup import WarpgroupAttention
from tec.codegen.static_report import report
from tec.ir.interp import run as interpret
from tec.ops import get_op
from tec.ops.dims import Dim
from tec.ops.registry import TensorType
from tec.target import Target
from tec.te.numpy_dtype import np_dtype
from tests.code_quality import check_code
from tests.thinned import thinned, thinned_rows
from tests.unit.ops.test_attention import build, dense, feeds

CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}
SMALL = {"waves": 2, "rows": 16, "keys": 32, "unit": "16x16", "stages": 1, "splits": 1, "hold": True}


def typed(f, dtype):
    """Float inputs but biases in the operator's type."""
    return {k: x.astype(np_dtype(dtype)) if x.dtype == np.float32 and "bias" not in k else x for k, x in f.items()}


def check(chip, attrs, extras, sizes, dtype="float16", checks="bounds", given=None, **choice):
    g = build(attrs, extras, sizes, dtype)
    f = typed(feeds(g), dtype) | (given or {})
    asked = {"template": "matrix attention", **SMALL, **choice}
    net = tec.compile(g, target=f"rocm -mcpu={chip}", cache=False, choices=lambda *_: asked if choice else None)
    (used,) = (c["choice"] for c in net.report.choices.values())
    assert used["template"] == "matrix attention" and all(used[k] == v for k, v in choice.items())
    (got,) = net.run(f, device=tec.rocm_emu(chip, check=checks))
    np.testing.assert_allclose(got.astype(np.float64), dense(f, attrs), atol=TOLERANCE[dtype])
    return net


def test_weights_lie_where_the_second_product_wants_them():
    """The keys that a lane's scores are of are those that it has in the second product's operand, for every unit and type."""
    seen = 0
    for chip in ("gfx908", *CHIPS):
        for dtype in ("float16", "bfloat16", "float32"):
            for f in fragments(dtype, Target(f"rocm -mcpu={chip}")).values():
                seen += 1
                lane, i = np.arange(f.instr.wave), np.arange(f.instr.acc_elems)[:, None]
                for tile in range(2 * f.period):
                    rows = f.instr.coords("acc", lane, i)[1] + np.zeros((len(i), len(lane)), int)
                    key_of_row = np.array([te_number(f.key_row(tile, r)) for r in range(f.keys)])
                    want = np.array(
                        [np.broadcast_to(f.key(lane, tile * len(i) + n), lane.shape) for n in range(len(i))]
                    )
                    np.testing.assert_array_equal(key_of_row[rows], want)
    assert seen > 20


def te_number(e):
    from tec.ir import build as ir
    from tec.ir.arith import Analyzer

    return e if isinstance(e, int) else ir.const_value(Analyzer().simplify(e))


MASKS = {
    "gfx90a": ({"right": 0, "offset": 30}, {}),
    "gfx942": ({"right": 2, "left": 25, "offset": 20}, {}),
    "gfx950": ({"softcap": 1.5}, {"bias": ("float32", (1, 4, 1, 70))}),
    "gfx1100": ({}, {"bias": ("float32", (2, 1, 40, 70)), "bias1": ("bool", (2, 1, 1, 70))}),
    "gfx1201": ({"right": 0}, {"start": ("int64", (2,)), "length": ("int32", (2,))}),
}


@pytest.mark.parametrize(
    "chip", [pytest.param(c, marks=() if c in ("gfx942", "gfx1100") else pytest.mark.slow) for c in CHIPS]
)
def test_masks_groups_and_edges(chip):
    """Neither queries nor keys fill their tiles; two heads share keys; without a choice, the default's."""
    attrs, extras = MASKS[chip]
    check(chip, attrs, extras, (2, 4, 2, 40, 70, 32, 32), checks="race,init")


@thinned_rows(
    4,
    "chip,dtype,size,value_size,choice",
    [
        ("gfx942", "float16", 40, 72, {"unit": "32x32", "rows": 32, "keys": 64}),
        ("gfx90a", "float16", 80, 96, {"stages": 2, "hold": False}),
        ("gfx942", "bfloat16", 64, 64, {"stages": 0, "waves": 1, "rows": 32}),
        ("gfx90a", "float32", 36, 32, {"unit": "32x32", "rows": 32}),
        ("gfx1100", "bfloat16", 128, 64, {"keys": 32, "splits": 2}),
        ("gfx1201", "float16", 24, 40, {"hold": False, "splits": 2}),
        ("gfx1151", "float16", 64, 64, {"hold": False, "stages": 0}),
    ],
)
def test_types_sizes_and_choices(chip, dtype, size, value_size, choice):
    check(chip, {"right": 0, "offset": 33}, {}, (1, 2, 1, 37, 70, size, value_size), dtype, **choice)


def test_each_batch_entry_has_the_blocks_of_its_own_length():
    """The second entry's keys go on where the first's have ended: one block of keys, and three."""
    lengths = np.array([5, 70], "int32")
    check("gfx942", {}, {"length": ("int32", (2,))}, (2, 1, 1, 16, 70, 32, 32), given={"length": lengths}, waves=1)


def test_rows_that_see_nothing_are_0():
    check("gfx942", {"right": 0, "offset": -20}, {}, (1, 1, 1, 40, 70, 32, 32), waves=1)


@pytest.mark.parametrize("splits", [1, 2])
def test_tiles_of_the_same_keys_run_on_one_die(splits):
    """Two batch entries of four key heads, each for two heads by three tiles (and by two splits): as many a die on eight dies."""
    check(
        "gfx942",
        {"right": 0} if splits == 1 else {},
        {},
        (2, 8, 4, 40, 70, 32, 32),
        waves=1,
        rows=16,
        keys=32,
        splits=splits,
    )


def test_tiles_of_keys_that_dies_do_not_divide():
    """Three key heads, each for two heads by three tiles and three splits of keys: 54 work-groups on eight dies."""
    check("gfx942", {}, {}, (1, 6, 3, 40, 150, 32, 32), checks="race,init", waves=1, rows=16, keys=32, splits=3)


def _space(sizes, chip, dtype="float16", kind=MatrixAttention):
    g = build({}, {}, sizes, dtype)
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    made = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    return next(s for s in spaces(made, f"rocm -mcpu={chip}") if isinstance(s, kind))


@pytest.mark.parametrize("heads, queries, keys, size, modelled", [
    (12, 792, 10798, 128, {(4, 16, 128, "16x16", 3): 103.7, (8, 32, 128, "32x32", 5): 88.9, (4, 32, 64, "32x32", 6): 77.2}),
    (12, 1896, 2336, 96, {(4, 16, 64, "16x16", 1): 51.6, (4, 32, 64, "32x32", 2): 45.6, (4, 32, 128, "32x32", 1): 37.0}),
])  # fmt: skip
def test_the_price_knows_what_reads_and_writes_of_shared_memory_hold_up(heads, queries, keys, size, modelled):
    """Microseconds of the time model of an MI355X."""
    space = _space((1, heads, heads, queries, keys, size, size), "gfx950")
    priced = {}
    for key, us in modelled.items():
        waves, rows, block, unit, splits = key
        choice = space.choice(waves=waves, rows=rows, keys=block, unit=unit, splits=splits, stages=1, hold=True)
        priced[key] = space.cost(choice).seconds * 1e6
        assert 0.7 <= priced[key] / us <= 1.3
    assert min(priced, key=lambda k: priced[k]) == min(modelled, key=lambda k: modelled[k])


@pytest.mark.parametrize("chip, sizes, modelled", [
    ("gfx1030", (1, 4, 4, 300, 300, 128, 128), {(64, 1, 4): 79.6, (64, 2, 4): 57.6, (64, 8, 4): 54.7, (32, 1, 1): 36.9, (32, 4, 1): 41.1}),
    ("gfx1201", (1, 8, 8, 200, 600, 64, 64), {(64, 1, 1): 45.7, (64, 2, 1): 33.5, (64, 8, 1): 49.0}),
])  # fmt: skip
def test_few_work_groups_of_vector_code_are_priced_as_they_are(chip, sizes, modelled):
    """Microseconds of the time model of Radeons by queries of a tile, splits of the keys and parts of heads; a tile of 64 queries left most units of the first without work."""
    space = _space(sizes, chip, "float32", GpuAttention)
    for (queries, splits, parts), us in modelled.items():
        choice = space.choice(queries=queries, keys=64, splits=splits, parts=parts)
        assert 0.75 <= space.cost(choice).seconds * 1e6 / us <= 1.25
    if chip == "gfx1030":
        assert space.default["queries"] < 64


def test_every_operand_in_another_order():
    orders = {"q_order": (0, 2, 1, 3), "k_order": (1, 0, 3, 2), "v_order": (3, 2, 1, 0), "out_order": (0, 2, 1, 3)}
    check("gfx942", orders, {}, (1, 2, 2, 40, 70, 32, 32), waves=1)


def test_open_sizes():
    """One network for all lengths of queries and keys."""
    b, s, t = Dim("b"), Dim("s"), Dim("t")
    net = tec.compile(
        build({"right": 0, "offset": t - s}, {}, (b, 4, 2, s, t, 32, 32), "float16"),
        target="rocm -mcpu=gfx942",
        cache=False,
    )
    assert [c["choice"]["template"] for c in net.report.choices.values()] == ["matrix attention"]
    for sizes in ((1, 4, 2, 40, 70, 32, 32), (2, 4, 2, 3, 131, 32, 32), (1, 4, 2, 1, 1, 32, 32)):
        f = typed(feeds(build({}, {}, sizes)), "float16")
        want = dense(f, {"right": 0, "offset": sizes[4] - sizes[3]})
        (got,) = net.run(f, device=tec.rocm_emu("gfx942"))
        np.testing.assert_allclose(got.astype(np.float64), want, atol=2e-3)


@pytest.mark.parametrize(
    "target,wave,dtype",
    [("rocm -mcpu=gfx942", 64, "float16"), ("rocm -mcpu=gfx1100", 32, "float16"), ("cuda -arch=sm_80", 32, "bfloat16")],
)
def test_in_the_interpreter(target, wave, dtype):
    g = build({"right": 0, "offset": 3}, {}, (1, 2, 1, 36, 40, 16, 16), dtype)
    f = typed(feeds(g), dtype)
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    made = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    space = spaces(made, target)[0]
    assert isinstance(space, MatrixAttention)
    choice = {"template": space.template, "waves": 2, "rows": 16, "keys": 32, "splits": 1}
    scheduled = schedule(made, target, choice)
    (func,) = tec.lower(scheduled.schedule, [*ins, *scheduled.outputs], target=target)
    out = np.zeros(g.outputs[0].shape, np_dtype(dtype))
    interpret(func, [*(f[v.name] for v in g.inputs), out], {}, wave=wave)
    np.testing.assert_allclose(out.astype(np.float64), dense(f, {"right": 0, "offset": 3}), atol=TOLERANCE[dtype])


@thinned_rows(1, "chip", ["gfx942", "gfx950"])
def test_heads_of_256_two_wavefronts_a_simd(chip):
    """32 queries a wavefront by 32 keys, in the 256 registers that a work-group of eight leaves each."""
    target = f"rocm -mcpu={chip}"
    large = [te.placeholder((4, 32, 2048, 256), "float16", x) for x in "qkv"]
    made = get_op("attention").compute({"scale": 1.0}, large, [TensorType("float16", large[0].shape)])
    choice = spaces(made, target)[0].default
    assert (choice["waves"], choice["rows"], choice["keys"]) == (8, 32, 32)
    asked = {k: v for k, v in choice.items() if k not in ("template", "splits")}
    net = check(chip, {"right": 0}, {}, (1, 1, 1, 256, 64, 256, 256), **asked)
    (r,) = report(net.get_source("asm"))
    assert r.vgprs <= 256 and r.spills == r.scratch_bytes == 0


def test_the_price_says_over_how_many_work_groups_keys_are_divided():
    """What a second kernel reads is part of it: with fewer parts than units have room for, of a causal attention whose results are many."""
    attrs, sizes = {"right": 0}, (2, 8, 8, 1024, 1024, 64, 64)
    g = build(attrs, {}, sizes, "float16")
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    outs = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    for chip, is_priced in (("gfx942", True), ("sm_80", False)):
        space = spaces(outs, f"rocm -mcpu={chip}" if is_priced else f"cuda -arch={chip}")[0]
        assert isinstance(space, MatrixAttention)
        offered = {(c["waves"], c["rows"], c["keys"], c["splits"]) for c in space.drafts()}
        tiles = {t[:3] for t in offered}
        assert (len(offered) > len(tiles)) == is_priced
        if is_priced:
            assert {n for *tile, n in offered if tile == [4, 16, 64]} >= {1, 2, 3}


HOPPER = "cuda -arch=sm_90a"


def definition(g):
    """The inputs and outputs of a graph's attention, as te defines it."""
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    return ins, get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])


def as_loops(g, target, choice, simple_mode):
    """The loops of a choice of a graph's attention, and the template's space."""
    ins, made = definition(g)
    scheduled = schedule(made, target, choice)
    (func,) = tec.lower(scheduled.schedule, [*ins, *scheduled.outputs], target=target, simple_mode=simple_mode)
    return func, next(s for s in spaces(made, target) if s.template == choice["template"])


@thinned_rows(
    3,
    "attrs,extras,sizes,choice",
    [
        ({}, {}, (1, 2, 1, 100, 128, 64, 64), {"groups": 1, "keys": 64, "hold": True}),
        (
            {},
            {},
            (1, 2, 2, 100, 64, 64, 64),
            {"groups": 1, "keys": 64, "hold": True},
        ),  # one block of keys: a ring of one slot
        ({"right": 0, "offset": 50}, {}, (1, 2, 1, 140, 200, 128, 96), {"groups": 2, "keys": 32, "hold": False}),
        (
            {"softcap": 1.5},
            {"bias": ("float32", (1, 2, 1, 90))},
            (2, 2, 1, 70, 90, 40, 24),
            {"groups": 1, "keys": 80, "hold": False},
        ),
        (
            {"right": 0},
            {"start": ("int64", (2,)), "length": ("int32", (2,))},
            (2, 2, 1, 64, 90, 64, 64),
            {"groups": 1, "keys": 64, "hold": False},
        ),
    ],
)
def test_warpgroups_in_the_interpreter(attrs, extras, sizes, choice):
    """The loops as bulk copies leave them; and code comes of them."""
    g = build(attrs, extras, sizes, "bfloat16")
    f = typed(feeds(g), "bfloat16")
    full = {"template": "warpgroup attention", "stages": 2, "resident": 1, **choice}
    func, _ = as_loops(g, HOPPER, full, simple_mode=True)
    out = np.zeros(g.outputs[0].shape, np_dtype("bfloat16"))
    interpret(func, [*(f[v.name] for v in g.inputs), out], {}, wave=32)
    np.testing.assert_allclose(out.astype(np.float64), dense(f, attrs), atol=TOLERANCE["bfloat16"])
    net = tec.compile(g, target=HOPPER, cache=False, choices=lambda *_: full)
    assert "wgmma.mma_async" in net.get_source("ptx") and "cp.async.bulk.tensor" in net.get_source("ptx")


@thinned_rows(
    2,
    "attrs,extras,sizes,choice",
    [
        ({}, {}, (1, 2, 1, 150, 128, 64, 64), {"keys": 64}),
        ({}, {}, (1, 2, 2, 128, 90, 64, 128), {"keys": 32, "stages": 3}),  # a ragged last block
        ({"right": 0, "offset": 50}, {}, (1, 4, 2, 140, 200, 128, 64), {"keys": 32, "turns": False}),
        ({"right": 3, "left": 40}, {}, (1, 1, 1, 200, 200, 64, 64), {"keys": 32}),
        ({"softcap": 1.5}, {"bias": ("float32", (1, 2, 1, 90))}, (2, 2, 1, 70, 90, 64, 64), {"keys": 80}),
        (
            {"right": 0},
            {"start": ("int64", (2,)), "length": ("int32", (2,))},
            (2, 2, 1, 64, 90, 64, 64),
            {"keys": 32},
        ),
    ],
)
def test_warpgroups_in_turns(attrs, extras, sizes, choice):
    """Fetching and working are one in the interpreter; the code has both, with barriers of their own for queries, keys and values."""
    g = build(attrs, extras, sizes, "bfloat16")
    f = typed(feeds(g), "bfloat16")
    full = {"template": "attention in turns", "stages": 2, "turns": True, **choice}
    func, _ = as_loops(g, HOPPER, full, simple_mode=True)
    out = np.zeros(g.outputs[0].shape, np_dtype("bfloat16"))
    interpret(func, [*(f[v.name] for v in g.inputs), out], {}, wave=32)
    np.testing.assert_allclose(out.astype(np.float64), dense(f, attrs), atol=TOLERANCE["bfloat16"])
    text = tec.compile(g, target=HOPPER, cache=False, choices=lambda *_: full).get_source("ptx")
    assert "wgmma.mma_async" in text and "setmaxnreg.inc" in text and ".local" not in text
    assert text.count("mbarrier.init") == 2 * (1 + 2 * full["stages"])
    assert ("bar.arrive" in text) == full["turns"]


@pytest.mark.parametrize("template,rest", [("warpgroup attention", {"groups": 1}), ("attention in turns", {})])
def test_tiles_by_their_length(monkeypatch, template, rest):
    """The heads of all batch entries side by side, the longest tiles first."""
    monkeypatch.setattr(WarpgroupAttention, "sorts", lambda *_: True)
    g = build({"right": 0}, {}, (2, 2, 1, 130, 130, 32, 32), "bfloat16")
    f = typed(feeds(g), "bfloat16")
    func, _ = as_loops(g, HOPPER, {"template": template, "keys": 64, "stages": 2, **rest}, simple_mode=True)
    out = np.zeros(g.outputs[0].shape, np_dtype("bfloat16"))
    interpret(func, [*(f[v.name] for v in g.inputs), out], {}, wave=32)
    np.testing.assert_allclose(out.astype(np.float64), dense(f, {"right": 0}), atol=TOLERANCE["bfloat16"])


@thinned(1, ("size,value", [(64, (1, 128)), (128, (2, 64)), (256, (2, 80))]), ("causal", [True, False]))
def test_what_hopper_takes(size, value, causal):
    """The choices measured on an H200; queries stay out of registers where blocks are masked."""
    g = build({"right": 0} if causal else {}, {}, (4, 32, 8, 2048, 2560, size, size), "float16")
    _, made = definition(g)
    space = next(s for s in spaces(made, HOPPER) if s.template == "warpgroup attention")
    d = space.default
    assert (d["groups"], d["keys"]) == value and not (causal and d["hold"])
    if causal:
        assert "masks" in (space.why_not({**d, "hold": True}) or "")


def test_few_work_groups_of_hopper_go_by_mma_sync():
    """Their keys can be split."""
    g = build({}, {}, (1, 8, 8, 64, 8192, 64, 64), "float16")
    assert [c["choice"]["template"] for c in tec.compile(g, target=HOPPER, cache=False).report.choices.values()] == [
        "matrix attention"
    ]


@thinned(1, ("chip", CHIPS), ("size", [64, 128]))
def test_loops_spill_nothing(chip, size):
    """Default choices for long sequences: nothing in scratch memory, wide reads of shared memory, two barriers a step."""
    g = build({}, {}, (4, 16, 4, 1024, 1024, size, size), "float16")
    net = tec.compile(g, target=f"rocm -mcpu={chip}", cache=False)
    (r,) = report(net.get_source("asm"))
    assert r.spills == r.scratch_bytes == 0 and r.has_loop and r.barriers == 2
    assert min(r.lds_reads) == 128 and r.matrix >= 16
    if chip in ("gfx90a", "gfx942"):
        assert r.load_cover is not None and r.load_cover > 0.5


@thinned_rows(1, "chip,dtype,waves", [("gfx1201", "float16", 4), ("gfx942", "float32", 8), ("gfx1100", "float16", 4)])
def test_heads_of_256_fill_the_unit(chip, dtype, waves):
    """Blocks of 16 keys leave room for a wavefront a SIMD at least, and nothing goes to scratch memory."""
    sizes = (4, 16, 4, 1024, 1024, 256, 256)
    net = tec.compile(build({}, {}, sizes, dtype), target=f"rocm -mcpu={chip}", cache=False)
    (used,) = (c["choice"] for c in net.report.choices.values())
    (r,) = report(net.get_source("asm"))
    assert used["template"] == "matrix attention" and (used["waves"], used["keys"]) == (waves, 16)
    assert r.spills == r.scratch_bytes == 0 and r.matrix >= 32
    small = build({"right": 0}, {}, (1, 2, 1, 65, 65, 256, 256), dtype)
    f = typed(feeds(small), dtype)
    (got,) = tec.compile(small, target=f"rocm -mcpu={chip}", cache=False).run(f, device=tec.rocm_emu(chip))
    # Scores are sums of 256 products, four times those of the other tests.
    np.testing.assert_allclose(got.astype(np.float64), dense(f, {"right": 0}), atol=2 * TOLERANCE[dtype])


def test_no_matrix_of_scores_is_kept():
    n = 2048
    net = tec.compile(build({}, {}, (1, 8, 8, n, n, 64, 64), "float16"), target="rocm -mcpu=gfx942", cache=False)
    assert net.plan.arena_bytes < n * n and all(np.prod(v.shape) < n * n for v in net.plan.values.values())


def test_what_does_not_fit_says_so():
    g = build({}, {}, (1, 2, 2, 256, 256, 64, 64), "float16")
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    made = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    space = spaces(made, "rocm -mcpu=gfx1100")[0]
    full = {**space.default, "rows": 64, "keys": 128}
    assert "registers" in (space.why_not(full) or "")
    assert space.units["16x16"].copies == 2
    assert all(space.why_not(c) is None for c in space.drafts())


@thinned_rows(
    2,
    ("chip", "dtype", "size", "causal"),
    [("gfx942", "float32", 64, False), ("gfx942", "float16", 64, True), ("gfx90a", "float16", 128, True)],
)
def test_loads_of_the_next_keys_stay_early(chip: str, dtype: str, size: int, causal: bool) -> None:
    """LLVM sank them behind the branch around masks, and turned float32 values where they are loaded: each step then waited for memory."""
    q = [te.placeholder((1, 4, 1024, size), dtype, x) for x in "qkv"]
    attrs = {"scale": size**-0.5, "extras": (), **({"right": 0} if causal else {})}
    made = get_op("attention").compute(attrs, q, [TensorType(dtype, (1, 4, 1024, size))])
    scheduled = schedule(made, f"rocm -mcpu={chip}")
    check_code(tec.build(scheduled.schedule, [*q, *scheduled.outputs], f"rocm -mcpu={chip}", name="attention"))


@thinned(2, ("size,value_size", [(64, 64), (20, 32), (16, 24), (48, 128)]), ("causal", [True, False]))
def test_float32_of_nvidia_in_the_interpreter(size, value_size, causal):
    """Queries, keys, weights and values are read several numbers at once where rows allow it."""
    attrs = {"right": 0, "offset": 3} if causal else {}
    g = build(attrs, {}, (1, 2, 1, 37, 40, size, value_size), "float32")
    f = typed(feeds(g), "float32")
    ins = [te.placeholder(v.shape, v.dtype, v.name) for v in g.inputs]
    made = get_op("attention").compute(g.nodes[0].attrs, ins, [v.type for v in g.outputs])
    choice = {"template": "gpu attention", "queries": 32, "keys": 32, "splits": 1}
    scheduled = schedule(made, "cuda -arch=sm_90a", choice)
    (func,) = tec.lower(scheduled.schedule, [*ins, *scheduled.outputs], target="cuda -arch=sm_90a")
    out = np.zeros(g.outputs[0].shape, np.float32)
    interpret(func, [*(f[v.name] for v in g.inputs), out], {}, wave=32)
    np.testing.assert_allclose(out.astype(np.float64), dense(f, attrs), atol=1e-5)


@thinned_rows(
    3,
    ("chip", "dtype", "size", "value_size", "tile"),
    [
        ("gfx1030", "float16", 64, 40, (32, 32, 1)),  # by pairs
        ("gfx1030", "float16", 64, 37, (64, 64, 4)),
        ("gfx1030", "bfloat16", 40, 24, (16, 32, 1)),
        ("gfx1201", "float32", 64, 20, (32, 64, 4)),  # the next part comes ahead
        ("gfx1100", "float32", 80, 36, (64, 32, 1)),
        ("gfx1100", "float32", 256, 48, (64, 64, 4)),  # queries come by parts too
        ("gfx1030", "float16", 36, 36, (32, 32, 1)),  # no whole pieces for pairs
    ],
)
def test_vector_code_by_parts(chip, dtype, size, value_size, tile):
    """Heads by parts, wide loads and pairs of float16: the same sums, under a mask, with a ragged block of queries and of keys."""
    attrs = {"right": 0, "offset": 9}
    g = build(attrs, {}, (1, 2, 1, 37, 70, size, value_size), dtype)
    f = typed(feeds(g), dtype)
    queries, keys, parts = tile
    asked = {"template": "gpu attention", "queries": queries, "keys": keys, "splits": 1, "parts": parts}
    net = tec.compile(g, target=f"rocm -mcpu={chip}", cache=False, choices=lambda *_: asked)
    assert [c["choice"] for c in net.report.choices.values()] == [asked]
    (got,) = net.run(f, device=tec.rocm_emu(chip, check="all"))
    np.testing.assert_allclose(got.astype(np.float64), dense(f, attrs), atol=TOLERANCE[dtype])


def test_large_heads_keep_large_tiles():
    """Where shared memory has no room for a block of whole heads they come by parts; and float16 without matrix units multiplies pairs."""
    for chip, dtype, size in (("gfx1201", "float32", 256), ("gfx1030", "float16", 64)):
        q = [te.placeholder((1, 4, 1024, size), dtype, n) for n in "qkv"]
        made = get_op("attention").compute({"scale": 0.1}, q, [TensorType(dtype, (1, 4, 1024, size))])
        scheduled = schedule(made, f"rocm -mcpu={chip}")
        assert scheduled.choice["template"] == "gpu attention" and scheduled.choice["keys"] == 64
        assert (scheduled.choice["parts"] > 1) is (size == 256)
        code = tec.build(
            scheduled.schedule, [*q, *scheduled.outputs], f"rocm -mcpu={chip}", name="attention"
        ).get_source("asm")
        assert ("v_dot2" in code) is (chip == "gfx1030")


def test_tiles_are_dealt_evenly():
    """Of four heads by 56 tiles, the longest of 56 blocks: by length nobody has more than one long tile; head by head one has two of 73 blocks together."""
    blocks = tuple(range(56, 0, -1))
    assert longest(blocks, 4, True, 132, 1, True) == (56, 1, 56)
    assert longest(blocks, 4, False, 132, 1, True)[0] == 73
    loads = [longest(blocks, 4, True, 132, resident, False)[0] for resident in (1, 2)]
    assert 56 * 57 // 2 * 4 / 132 <= loads[0] <= loads[1] <= 2 * 56
    assert longest((3, 2, 1), 1, False, 132, 2, False) == (3, 1, 3)


@pytest.mark.parametrize("sizes", [(1, 32, 32, 57, 57, 256, 256), (1, 12, 12, 600, 600, 256, 256)])
def test_defaults_ask_for_all_of_a_block_at_once(sizes: tuple[int, ...]) -> None:
    """Registers suffice for the next keys and values, so that a wavefront waits for all of them and not for one after another."""
    net = tec.compile(build({"right": 0}, {}, sizes, "float16"), target="rocm -mcpu=gfx950", cache=False)
    waits = net.get_source("asm").count("s_waitcnt vmcnt(0)")
    assert waits < 20  # 92 where they do not
