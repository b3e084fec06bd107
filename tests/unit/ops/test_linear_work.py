"""Running sums, the largest in order, scatters: loops for a target against NumPy and the te definition, on every device there is."""

import random
import re
import time

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.operators import run_op
from tec.ops import OPS, TensorType
from tec.te.numpy_dtype import np_dtype
from tests import seeds
from tests.thinned import thinned


def graph_of(op, arrays, attrs):
    g = Graph("g")
    ins = [g.input(f"x{k}", str(a.dtype), a.shape) for k, a in enumerate(arrays)]
    outs = g.add(op, ins, attrs)
    g.set_outputs(list(outs), [f"y{k}" for k in range(len(outs))])
    return g


def run(op, arrays, attrs, chip=""):
    g = graph_of(op, arrays, attrs)
    net = tec.compile(g, target=f"rocm -mcpu={chip}" if chip else "llvm", cache=False)
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    return net.run(feeds, device=tec.rocm_emu(chip) if chip else None)


def host(op, arrays, attrs):
    types = [TensorType(str(a.dtype), a.shape) for a in arrays]
    return run_op(OPS[op], attrs, list(arrays), types, OPS[op].infer(types, attrs))


def in_te(op, arrays, attrs):
    """By the te definition, which has no target to be loops for."""
    from tec import te
    from tec.te.evaluation import evaluate

    types = [TensorType(str(a.dtype), a.shape) for a in arrays]
    tensors = [te.placeholder(t.shape, t.dtype) for t in types]
    outs = OPS[op].infer(types, attrs)
    got = evaluate(OPS[op].compute(attrs, tensors, outs), dict(zip(tensors, arrays)))
    return [np.asarray(a, np_dtype(t.dtype)) for a, t in zip(got, outs)]


def same(a, b, tolerance=0.0):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x.astype("f8"), y.astype("f8"), rtol=tolerance, atol=tolerance)


CHIPS = ["", "gfx942", "gfx1100"]
RNG = np.random.default_rng(0)


@thinned(
    1,
    ("shape, axis", [((7,), 0), ((3, 700), 1), ((2, 5, 4), 1), ((1400, 3), 0), ((5, 1), 1), ((300, 56), 1)]),
    ("flags", [{}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}]),
    ("dtype", ["float32", "int32"]),
    ("chip", CHIPS),
)
def test_running_sums(shape, axis, flags, dtype, chip):
    x = (RNG.standard_normal(shape) * 4).astype(dtype)
    attrs = {"axis": axis, **flags}
    want = host("cumsum", [x], attrs)
    same(run("cumsum", [x], attrs, chip), want, 1e-3 if dtype == "float32" else 0)
    same(in_te("cumsum", [x], attrs), want, 1e-3 if dtype == "float32" else 0)


@thinned(
    1,
    ("shape", [(130, 89), (64, 2), (1, 33), (200, 37), (65, 16)]),
    ("flags", [{}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}]),
    ("dtype", ["float16", "float32", "int8", "float64"]),
    ("chip", CHIPS[1:]),
)
def test_running_sums_of_lines_that_come_in_tiles(shape, flags, dtype, chip):
    """Many odd lines, which no thread loads as vectors; the last tile is not full."""
    x = (RNG.standard_normal(shape) * 4).astype(dtype)
    attrs = {"axis": 1, **flags}
    g = graph_of("cumsum", [x], attrs)
    target = f"rocm -mcpu={chip}"
    (entry,) = tec.compile(g, target=target, cache=False).report.choices.values()
    chosen = {"template": "running sum", "wave": 0, "parts": 1, "tile": 64}
    net = tec.compile(g, target=target, cache=False, choices={entry["signature"]: chosen})
    got = net.run({"x0": x}, device=tec.rocm_emu(chip, check="race,init,bounds"))
    same(got, host("cumsum", [x], attrs), 2e-2 if dtype == "float16" else 1e-3 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize(("shape", "threads"), [((10360, 56), 0), ((700, 63), 64)])
def test_a_thread_has_a_line_that_it_loads_as_vectors(shape, threads):
    """Single elements of a line each keep a GPU's first cache busy, and a wavefront shares the line."""
    net = tec.compile(graph_of("cumsum", [np.zeros(shape, "f")], {"axis": 1}), target="cuda -arch=sm_90a", cache=False)
    (made,) = net.report.choices.values()
    assert made["choice"]["template"] == "running sum" and made["choice"]["wave"] == threads


@pytest.mark.parametrize(
    ("shape", "axis", "flags", "dtype"),
    [
        ((5, 300), 0, {"exclusive": True}, "float32"),  # two cores have strips of 150
        ((3, 4, 2, 170), 1, {"reverse": True}, "float16"),  # sums of float32
        ((3, 70000), 0, {}, "int32"),  # strips of a cache's part; the last begins earlier
        ((4, 700), 0, {"reverse": True}, "float32"),  # some rows at once: all of them, parts of them, a rest
        ((8, 700), 0, {"exclusive": True}, "float32"),
        ((11, 700), 0, {}, "float32"),
        ((13, 700), 0, {"exclusive": True, "reverse": True}, "int32"),
    ],
)
def test_running_sums_of_wide_rows(shape, axis, flags, dtype):
    x = (np.random.default_rng(seeds.first(7)).standard_normal(shape) * 4).astype(dtype)
    attrs = {"axis": axis, **flags}
    same(run("cumsum", [x], attrs), host("cumsum", [x], attrs), 1e-2 if dtype == "float16" else 1e-4)


def test_running_sums_of_chunks_of_chunks():
    x = RNG.integers(-9, 9, (2, 70000)).astype(np.int32)
    for flags in ({}, {"reverse": True, "exclusive": True}):
        same(run("cumsum", [x], {"axis": 1, **flags}, "gfx942"), host("cumsum", [x], {"axis": 1, **flags}))


@pytest.mark.parametrize("chip", CHIPS[:2])
def test_running_products_and_16_bits(chip):
    x = RNG.uniform(0.9, 1.1, (4, 33)).astype(np.float32)
    same(run("cumprod", [x], {"axis": 1}, chip), host("cumprod", [x], {"axis": 1}), 1e-5)
    same(
        run("cumsum", [x.astype(np.float16)], {"axis": 0}, chip),
        host("cumsum", [x.astype(np.float16)], {"axis": 0}),
        1e-3,
    )
    words = RNG.integers(-(1 << 40), 1 << 40, (3, 70))
    for attrs in ({"axis": 1}, {"axis": 0, "exclusive": True, "reverse": True}):
        np.testing.assert_array_equal(run("cummax", [words], attrs, chip)[0], host("cummax", [words], attrs)[0])


@thinned(
    1,
    ("shape, axis, k", [((9,), 0, 4), ((2, 50), 1, 50), ((30, 4), 0, 1), ((2, 700, 2), 1, 9)]),
    ("largest", [True, False]),
    ("dtype", ["float32", "int64", "uint8"]),
    ("chip", CHIPS),
)
def test_the_largest_in_order(shape, axis, k, largest, dtype, chip):
    # Few values, so that there are equals, whose order is told.
    x = RNG.integers(0, 12, shape).astype(dtype)
    attrs = {"axis": axis, "k": k, "largest": largest}
    same(run("topk", [x], attrs, chip), host("topk", [x], attrs))
    same(in_te("topk", [x], attrs), host("topk", [x], attrs))


@pytest.mark.parametrize("chip", CHIPS[:2])
@pytest.mark.parametrize("n", [20, 600])
def test_nan_is_above_every_number(n, chip):
    x = RNG.standard_normal((2, n)).astype(np.float32)
    x[0, [3, 11]], x[1, 5] = np.nan, np.inf
    for largest in (True, False):
        attrs = {"axis": 1, "k": 6, "largest": largest}
        same(run("topk", [x], attrs, chip), host("topk", [x], attrs))
        same(in_te("topk", [x], attrs), host("topk", [x], attrs))


def scatters():
    x = RNG.standard_normal((6, 5, 4)).astype(np.float32)
    for axis in (0, 1, 2):
        shape = (3, 5, 4) if axis == 0 else (6, 4, 3)
        index = RNG.integers(-x.shape[axis], x.shape[axis], shape)
        yield "scatter_elements", [x, index, RNG.standard_normal(shape).astype(np.float32)], {"axis": axis}
    index = np.stack([RNG.integers(-6, 6, (40,)), RNG.integers(0, 5, (40,))], -1)
    yield "scatter_nd", [x, index, RNG.standard_normal((40, 4)).astype(np.float32)], {}
    yield "scatter_nd", [x, index[:3, :1], RNG.standard_normal((3, 5, 4)).astype(np.float32)], {}


@thinned(1, ("reduction", ["none", "add", "mul", "max", "min"]), ("chip", CHIPS))
def test_scatters(reduction, chip):
    for op, arrays, attrs in scatters():
        attrs = {**attrs, "reduction": reduction}
        want = host(op, arrays, attrs)
        same(run(op, arrays, attrs, chip), want, 1e-5)
        if not chip:
            same(in_te(op, arrays, attrs), want, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_many_single_elements_that_are_replaced_come_in_words(dtype):
    """Number and value of an update in one: the last one wins, also where values are negative."""
    x = RNG.integers(-9, 9, (24, 8)).astype(dtype)
    index, update = RNG.integers(-24, 24, (20, 8)), RNG.integers(-9, 9, (20, 8)).astype(dtype)
    attrs = {"axis": 0, "reduction": "none"}
    same(
        run("scatter_elements", [x, index, update], attrs, "gfx942"),
        host("scatter_elements", [x, index, update], attrs),
    )
    for rows, words in ((8, True), (1, False)):  # an update of five places, and of 24
        graph = graph_of("scatter_elements", [x, index[:rows], update[:rows]], attrs)
        source = tec.compile(graph, target="rocm -mcpu=gfx942", cache=False).get_source("asm")
        assert ("atomic_smax_x2" in source or "atomic_max_i64" in source) == words


def test_a_block_of_one_element_is_an_element():
    """ScatterND whose blocks have axes of one element: 257 updates of 40 places, which come in words, and of 3."""
    for shape, count in (((40, 1), 257), ((40, 1, 1), 257), ((40, 1), 3)):
        x, index = RNG.standard_normal(shape).astype(np.float32), RNG.integers(-40, 40, (count, 1))
        update = RNG.standard_normal((count, *shape[1:])).astype(np.float32)
        want = host("scatter_nd", [x, index, update], {"reduction": "none"})
        same(run("scatter_nd", [x, index, update], {"reduction": "none"}, "gfx942"), want)


def test_bits_stand_for_words_that_memory_would_take_longer_for():
    """8,088 x 744 places in float16, an eighth of them written, took 353 us by the time model of an RX 9070 XT, and take 170."""
    for rows, by_bits in ((600, True), (40, False)):
        x, update = (RNG.standard_normal((n, 512)).astype("float32") for n in (rows, rows // 10))
        index = RNG.integers(0, rows, update.shape)  # some places twice
        g = graph_of("scatter_elements", [x, index, update], {"axis": 0, "reduction": "none"})
        net = tec.compile(g, target="rocm -mcpu=gfx1030", cache=False)
        assert ("global_atomic_or" in net.get_source("asm")) == by_bits, rows
        got = net.run({"x0": x, "x1": index, "x2": update}, device=tec.rocm_emu("gfx1030"))
        same(got, host("scatter_elements", [x, index, update], {"axis": 0, "reduction": "none"}))


@pytest.mark.parametrize("double", [False, True])
def test_a_bit_tells_whether_a_place_was_written(double, monkeypatch):
    """Where words of places are more than the last cache holds. Each place is written once at first; the last of two updates is looked for only where there are two, by
    fewer threads than updates."""
    monkeypatch.setattr("tec.choices.families.scatters._WORD_BYTES", 1 << 10)
    rng = np.random.default_rng(5)
    x, update = (rng.integers(-9, 9, (n, 64), "int32") for n in (800, 500))
    index = np.argsort(rng.random((800, 64)), 0)[:500]
    if double:
        index[499] = index[7]
    g = graph_of("scatter_elements", [x, index, update], {"axis": 0, "reduction": "none"})
    net = tec.compile(g, target="rocm -mcpu=gfx1100", cache=False)
    assert "global_atomic_or" in net.get_source("asm")
    got = net.run({"x0": x, "x1": index, "x2": update}, device=tec.rocm_emu("gfx1100", check="race"))
    same(got, host("scatter_elements", [x, index, update], {"axis": 0, "reduction": "none"}))


@thinned(1, ("dtype", ["int8", "float16", "int64", "bool", "float64"]), ("chip", CHIPS[:2]))
def test_scatters_of_other_types(dtype, chip):
    x = RNG.integers(0, 2 if dtype == "bool" else 9, (50,)).astype(dtype)
    index = RNG.integers(0, 50, (30,))
    update = RNG.integers(0, 2 if dtype == "bool" else 3, (30,)).astype(dtype)
    for reduction in ("none", "max") if dtype == "bool" else ("none", "add", "max"):
        attrs = {"axis": 0, "reduction": reduction}
        same(
            run("scatter_elements", [x, index, update], attrs, chip),
            host("scatter_elements", [x, index, update], attrs),
        )


@pytest.mark.parametrize(
    ("columns", "dtype", "width"), [(24, "float16", "v4.b32"), (6, "float32", "v2.b32"), (7, "float16", "")]
)
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_a_thread_moves_neighbours_of_a_block(columns, dtype, width, reduction):
    """As many as it loads at once, or as divide a line; what is copied decides the time of a scatter of few rows."""
    x, index = RNG.integers(0, 9, (8000, columns)).astype(dtype), RNG.permutation(8000)[:2000].reshape(2000, 1)
    arrays, attrs = [x, index, RNG.integers(0, 9, (2000, columns)).astype(dtype)], {"reduction": reduction}
    net = tec.compile(graph_of("scatter_nd", arrays, attrs), target="cuda -arch=sm_90a", cache=False)
    assert [c["choice"]["template"] for c in net.report.choices.values()] == ["scatter"]
    ptx = net.get_source("ptx")
    assert bool(width) == ("st.global.v" in ptx) and (not width or f"st.global.{width}" in ptx)
    same(run("scatter_nd", arrays, attrs, "gfx942"), host("scatter_nd", arrays, attrs))


def test_large_ones_take_linear_time():
    """A hundred thousand elements: quadratic work would take half a minute each."""
    n = 100_000
    x = RNG.standard_normal(n).astype(np.float32)
    index = RNG.integers(0, n, n)
    cases = [
        ("cumsum", [x], {"axis": 0}, 1e-2), ("topk", [x], {"axis": 0, "k": 100}, 0), ("topk", [x], {"axis": 0, "k": n}, 0),
        ("scatter_elements", [x, index, x], {"axis": 0, "reduction": "none"}, 0),
        ("scatter_nd", [x, index[:, None], x], {"reduction": "add"}, 1e-4),
    ]  # fmt: skip
    for op, arrays, attrs, tolerance in cases:
        net = tec.compile(graph_of(op, arrays, attrs), target="llvm", cache=False)
        feeds = {f"x{k}": a for k, a in enumerate(arrays)}
        start = time.process_time()
        got = net.run(feeds)
        assert time.process_time() - start < 10  # seconds of the processor
        same(got, host(op, arrays, attrs), tolerance)


@pytest.mark.parametrize("chip", CHIPS[:2])
def test_an_index_that_is_outside_is_an_error_and_touches_nothing(chip):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    far = [3, -4, 10**9, -(10**9), 2**40 + 1]
    for k in far:
        cases = [
            ("gather", [x, np.array([0, k])], {"axis": 0}), ("gather_elements", [x, np.full((3, 4), k)], {"axis": 0}),
            ("gather_nd", [x, np.array([[0, 0], [k, 0]])], {}),
            ("scatter_elements", [x, np.full((1, 4), k), x[:1]], {"axis": 0, "reduction": "add"}),
            ("scatter_nd", [x, np.array([[k, 1]]), x[0, :1]], {"reduction": "none"}),
        ]  # fmt: skip
        for op, arrays, attrs in cases if k == far[0] or not chip else cases[:1]:
            net = tec.compile(graph_of(op, arrays, attrs), target=f"rocm -mcpu={chip}" if chip else "llvm", cache=False)
            assert [o["name"] for o in net.outputs] == ["y0"]
            feeds = {f"x{j}": a for j, a in enumerate(arrays)}
            with pytest.raises(tec.ArgumentError, match=f"index of {op} .* is outside of -3 to 2"):
                net.run(feeds, device=tec.rocm_emu(chip) if chip else None)
            feeds["x1"] = feeds["x1"] * 0 + (np.array([[2, 1]]) if op.endswith("_nd") else -3)
            assert len(net.run(feeds, device=tec.rocm_emu(chip) if chip else None)) == 1


@pytest.mark.parametrize("count", [2048, 2053])
def test_many_indices_are_checked_in_parts(count):
    """A flag a part, of which the last may have fewer indices: an index that is outside is found wherever it stands."""
    x, index = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(count) % 3
    net = tec.compile(graph_of("gather", [x, index], {"axis": 0}), target="llvm", cache=False)
    assert any("all_in_parts" in ops for ops in net.report.functions.values())
    check = net.get_source("ir").split("def f")[1]
    assert "all_in_parts" in check and re.search(r"ramp\(.*k_outer.*, 1, \d+\)", check)
    assert not re.search(r", (?:[2-9]|\d\d+), \d+\)", check), "a vector of indices lies along memory"
    np.testing.assert_array_equal(net.run({"x0": x, "x1": index})[0], x[index])
    for place in (0, 1023, 1024, count - 1):
        wrong = index.copy()
        wrong[place] = 3
        with pytest.raises(tec.ArgumentError, match=r"index of gather .* is outside of -3 to 2"):
            net.run({"x0": x, "x1": wrong})


def test_the_first_and_the_last_index_of_an_open_length():
    """Counted from either end, of whatever length comes; one further is an error."""
    from tec.ops.dims import Dim

    g = Graph("g")
    x, index = g.input("x", "float32", (Dim("n"), 2)), g.input("index", "int64", (2,))
    g.set_outputs(g.add("gather", [x, index], {"axis": 0}), ["y"])
    net = tec.compile(g, target="llvm", cache=False)
    for n in (1, 3):
        a = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        for k in ([-n, n - 1], [0, -1]):
            np.testing.assert_array_equal(net.run({"x": a, "index": np.array(k)})[0], a[k])
        for k in ([-n - 1, 0], [0, n]):
            with pytest.raises(tec.ArgumentError, match=r"index of gather .* is outside"):
                net.run({"x": a, "index": np.array(k)})


def test_a_constant_index_that_is_outside_is_refused():
    g = Graph("g")
    x = g.input("x", "float32", (3, 4))
    g.set_outputs(g.add("gather_nd", [x, g.constant(np.array([[0, 4]]))], {}), ["y"])
    with pytest.raises(tec.ImportModelError, match="outside of -3 to 2, -4 to 3: 4 to 4"):
        tec.compile(g, target="llvm")


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax"])
def test_running_sums_of_open_sizes_take_linear_work(op):
    """Drawn shapes of which any size is open, along any axis, from either end; no template of known sizes serves them."""
    from tec.ops.dims import Dim

    rng = random.Random(seeds.stream(f"open {op}"))
    for _ in range(4):
        shape = tuple(rng.randint(1, 40) for _ in range(rng.randint(1, 3)))
        is_open = [k == 0 or rng.random() < 0.5 for k in range(len(shape))]
        attrs = {"axis": rng.randrange(len(shape)), "exclusive": rng.random() < 0.5, "reverse": rng.random() < 0.5}
        if op == "cummax":
            a = RNG.integers(-50, 50, shape).astype(rng.choice(("int64", "int32", "uint8")))
        else:
            a = (RNG.standard_normal(shape) / 4 + (op == "cumprod")).astype(rng.choice(("float32", "float16", "int32")))
        g = Graph("g")
        x = g.input("x0", str(a.dtype), tuple(Dim(f"n{k}") if o else n for k, (n, o) in enumerate(zip(shape, is_open))))
        g.set_outputs(g.add(op, [x], attrs), ["y"])
        net = tec.compile(g, target="llvm", cache=False)
        assert {c["choice"]["template"] for c in net.report.choices.values()} == {"running sum by lines"}
        same(net.run({"x0": a}), host(op, [a], attrs), 2e-2 if a.dtype == np.float16 else 1e-3)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_what_stands_behind_a_refused_running_sum_takes_linear_work(target):
    """The next candidate gives the same, and costs no more than some steps an element."""
    from tec import te
    from tec.choices import spaces
    from tec.choices.candidates import in_order

    x = te.placeholder((3, 70), "float32", name="x")
    outs = OPS["cumsum"].compute({"axis": 1}, [x], [TensorType("float32", (3, 70))])
    _, behind, choice = list(in_order(spaces(outs, target)))[1]
    assert behind.template == ("running sum by lines" if target == "llvm" else "running sum")
    made = behind.apply(choice)
    f = tec.build(made.schedule, [x, *made.outputs], target)
    dev = tec.cpu() if target == "llvm" else tec.rocm_emu("gfx942")
    a = RNG.standard_normal((3, 70)).astype(np.float32)
    out = tec.nd.array(np.zeros((3, 70), np.float32), dev)
    f(tec.nd.array(a, dev), out)
    np.testing.assert_allclose(out.numpy(), np.cumsum(a, 1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("picked", "is_whole"), [(4, False), (60, True)])
def test_few_updates_leave_the_other_places_alone(picked: int, is_whole: bool) -> None:
    """What is written down about updates is begun for all places at once only where many of them have some."""
    g = Graph("scatter")
    x, u = (g.input(n, "float16", (rows, 512)) for n, rows in (("x", 400), ("u", picked)))
    index = g.input("i", "int64", (picked, 512))
    g.set_outputs(g.add("scatter_elements", [x, index, u], {"axis": 0, "reduction": "none"}), ["y"])
    by_place = {"template": "scatter", "vectors": 0}  # by ranges of places, `head` is a work-group's own
    (code,) = tec.compile(g, "rocm -mcpu=gfx942", cache=False, choices=lambda *_: by_place).module.imported_modules
    assert bool(re.search(r"head\[[^\n]*\] = -1", code.get_source("ir"))) == is_whole
