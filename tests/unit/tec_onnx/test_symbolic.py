"""Networks whose dimensions stay open: one module, any size; against the reference at each size."""

import itertools

import numpy as np
import pytest
import tec_onnx
from onnx.parser import parse_model

import tec
from tec.errors import ArgumentError, ImportModelError
from tec.graph import run_graph
from tec.graph.builders.slices import bounded_slice
from tec.graph.passes.dead_code import dead_code

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def compiled(text, target="llvm", **options):
    model = parse_model(HEAD + text)
    graph, _ = tec_onnx.from_onnx(model, **options)
    graph.check()
    return tec.compile(model, target=target, shapes=options.get("shape"), cache=False), graph


def check(net, graph, feeds, tol=1e-5, device=None):
    got, want = net.run(feeds, device), run_graph(graph, feeds)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, tol, tol)


def data(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("f")


GEMM = """g (float[batch, 16] x, float[batch, 32] z, float[16, 32] w) => (float[batch, 32] y, float[batch] t) {
  axes = Constant<value_ints=[1]>()
  a = Gemm(x, w)
  b = Relu(a)
  y = Add(b, z)
  t = ReduceSum<keepdims=0>(y, axes)
}"""


def gemm_feeds(n):
    return {"x": data(n, 16), "z": data(n, 32), "w": data(16, 32)}


def test_one_module_for_any_batch_saved_and_loaded(tmp_path):
    net, graph = compiled(GEMM)
    assert net.inputs[0]["shape"] == ["batch", 16] and "batch" in repr(net)
    net.save(tmp_path / "n.tec")
    for n in (net, tec.load(tmp_path / "n.tec")):
        for batch in (1, 2, 7, 33, 64):
            check(n, graph, gemm_feeds(batch))


def test_sizes_that_do_not_fit_are_refused():
    net, _ = compiled(GEMM)
    with pytest.raises(ArgumentError, match="size batch is 4 elsewhere and 3"):
        net.run({**gemm_feeds(4), "z": data(3, 32)})
    with pytest.raises(ArgumentError, match="batch, is 0"):
        net.run({**gemm_feeds(4), "x": data(0, 16)})


def test_names_may_be_given_and_bound():
    text = "g (float[N, 4] x, float[M, 4] z) => (float[N, 4] y) { y = Add(x, z) }"
    net, graph = compiled(text, shape={"M": "N"})
    check(net, graph, {"x": data(5, 4), "z": data(5, 4)})
    net, graph = compiled(text, shape={"x": ("k", 4), "z": (1, 4)})
    check(net, graph, {"x": data(3, 4), "z": data(1, 4)})
    net, graph = compiled(text, shape={"N": 2, "M": 2})
    assert net.inputs[0]["shape"] == [2, 4]


ATTENTION = """g (float[b, s, 24] x, int64[b, s] mask, float[24, 24] w, float[1, 16, 24] table) => (float[b, s, 24] y, float[b, s, s] p, int64[3] n) {
  shape = Shape(x)
  zero = Constant<value_int=0>()
  one = Constant<value_int=1>()
  minus = Constant<value_ints=[-1]>()
  first = Constant<value_ints=[0]>()
  second = Constant<value_ints=[1]>()
  heads = Constant<value_ints=[4]>()
  width = Constant<value_ints=[6]>()
  b0 = Gather<axis=0>(shape, zero)
  s0 = Gather<axis=0>(shape, one)
  b1 = Unsqueeze(b0, first)
  s1 = Unsqueeze(s0, first)
  rows = Slice(table, first, s1, second)
  placed = Add(x, rows)
  q = MatMul(placed, w)
  split = Concat<axis=0>(b1, s1, heads, width)
  q4 = Reshape(q, split)
  qt = Transpose<perm=[0, 2, 1, 3]>(q4)
  kt = Transpose<perm=[0, 2, 3, 1]>(q4)
  raw = MatMul(qt, kt)
  float_mask = Cast<to=1>(mask)
  last = Constant<value_ints=[1, 2]>()
  wide = Unsqueeze(float_mask, last)
  low = Constant<value_float=-50.0>()
  unit = Constant<value_float=1.0>()
  off = Sub(unit, wide)
  bias = Mul(off, low)
  scores = Add(raw, bias)
  soft = Softmax<axis=-1>(scores)
  p = ReduceMean<axes=[1], keepdims=0>(soft)
  mixed = Mul(raw, soft)
  total = ReduceSum<keepdims=0>(mixed, minus)
  back = Transpose<perm=[0, 2, 1]>(total)
  merged = Concat<axis=0>(b1, minus, heads)
  again = Reshape(back, merged)
  picks = Range(zero, s0, one)
  numbers = Cast<to=1>(picks)
  steps = Unsqueeze(numbers, minus)
  some = Mul(again, steps)
  means = ReduceMean<axes=[1, 2], keepdims=1>(some)
  filled = Expand(means, shape)
  y = Add(placed, filled)
  n = Identity(shape)
}"""


def attention_feeds(b, s):
    mask = np.ones((b, s), np.int64)
    mask[:, s - s // 3 :] = 0
    return {"x": data(b, s, 24), "mask": mask, "w": data(24, 24), "table": data(1, 16, 24)}


def test_exporters_shape_arithmetic_stays_symbolic():
    net, graph = compiled(ATTENTION)
    ops = [n.op for n in dead_code(graph).nodes]
    assert ops.count("sizes") == 1 and "iota" in ops  # the one that is an output; no other decides on a shape
    for b, s in ((1, 1), (2, 5), (1, 16), (3, 9)):
        check(net, graph, attention_feeds(b, s), 2e-5)
    got = net.run(attention_feeds(2, 5))
    assert got[2].tolist() == [2, 5, 24]


def test_a_condition_on_sizes_is_checked_when_they_are_bound():
    net, _ = compiled(ATTENTION)
    with pytest.raises(
        ArgumentError,
        match=r"compiled for sizes with s <= 16 \(node 'rows' takes 0 to s of 16\), not for b = 1, s = 17",
    ):
        net.run(attention_feeds(1, 17))


def test_on_the_software_gpu():
    net, graph = compiled(ATTENTION, "rocm -mcpu=gfx942")
    device = tec.rocm_emu("gfx942")
    for b, s in ((1, 1), (2, 5), (1, 16)):
        check(net, graph, attention_feeds(b, s), 2e-5, device)


CONV = """g (float[n, 3, h, w] x, float[8, 3, 3, 3] k) => (float[n, 8, i, j] y, float[n, 8, 1, 1] z) {
  a = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(x, k)
  b = Relu(a)
  y = MaxPool<kernel_shape=[2, 2], strides=[1, 1]>(b)
  z = GlobalAveragePool(y)
}"""


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_images_of_any_size(target):
    k = data(8, 3, 3, 3)
    model = parse_model(HEAD + CONV)
    net = tec.compile(model, target=target, freeze={"k": k}, cache=False)
    graph, _ = tec_onnx.from_onnx(model, freeze={"k": k})
    device = tec.rocm_emu("gfx942") if "rocm" in target else None
    for n, h, w in ((1, 8, 8), (2, 5, 12), (1, 17, 3)):
        check(net, graph, {"x": data(n, 3, h, w)}, 1e-4, device)
    with pytest.raises(ArgumentError, match=r"\(h-1\)//2|h//2|\(h\+"):
        net.run({"x": data(1, 3, 2, 8)}, device)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("g (float[n, 4] x) => (float[m] y) { s = Constant<value_ints=[5, 4]>() y = Reshape(x, s) }", "Reshape"),
        ("g (float[n, 4] x, float[4, 8] z) => (float[m] y) { t = Flatten<axis=0>(x) y = Add(t, z) }", "Add"),
        ("g (float[n, 4] x) => (int64[m, k] y) { y = NonZero(x) }", "NonZero"),
        (
            "g (float[n, 1, 4] x, float[1, 8, 4] w, float[1, 8, 2] r) => (float[m] y) { y = RNN<hidden_size=8>(x, w, r) }",
            "RNN",
        ),
    ],
)
def test_what_stays_undecided_is_refused_with_the_node_and_the_name(text, what):
    with pytest.raises(ImportModelError, match=rf"\({what}\)") as error:
        tec_onnx.from_onnx(parse_model(HEAD + text))
    assert what == "NonZero" or "shapes={" in error.value.hint
    bound = {"n": 2 if what == "Add" else 6}
    if what in ("Add", "RNN"):
        tec_onnx.from_onnx(parse_model(HEAD + text.replace("[1, 8, 2]", "[1, 8, 8]")), shape=bound)


def test_bind_gives_a_network_of_fixed_sizes():
    net, graph = compiled(ATTENTION)
    assert net.open_sizes == ["b", "s"] and net.plan.arena_bytes is None
    fixed = net.bind(b=2, s=5)
    assert fixed.inputs[0]["shape"] == [2, 5, 24] and fixed.open_sizes == [] and fixed.plan.arena_bytes > 0
    assert isinstance(fixed.report.flops, int) and fixed.report.flops > 2 * 2 * 5 * 24 * 24
    check(fixed, graph, attention_feeds(2, 5), 2e-5)
    with pytest.raises(ArgumentError):
        fixed.run(attention_feeds(1, 5))
    with pytest.raises(ArgumentError, match="no size for s"):
        net.bind(b=2)
    with pytest.raises(ArgumentError, match="no size 't'"):
        net.bind(b=2, s=2, t=1)
    with pytest.raises(ArgumentError, match="size b is 0"):
        net.bind(b=0, s=2)
    with pytest.raises(ArgumentError, match="s <= 16"):
        net.bind(b=1, s=17)


def test_memory_is_shared_as_in_a_plan_of_numbers():
    net, _ = compiled(ATTENTION)
    model = parse_model(HEAD + ATTENTION)
    for b, s in ((1, 16), (4, 7)):
        static = tec.compile(model, target="llvm", shapes={"b": b, "s": s}, cache=False)
        assert net.bind(b=b, s=s).plan.arena_bytes <= 1.1 * static.plan.arena_bytes + 1024


def test_too_many_elements_are_refused_before_memory_is_taken():
    net, _ = compiled("g (float[n, m] x, float[m, n] z) => (float[n, n] y) { y = MatMul(x, z) }")
    with pytest.raises(ArgumentError, match="has 4294967296 elements"):
        net.run({"x": np.zeros((65536, 1), "f"), "z": np.zeros((1, 65536), "f")})


@pytest.mark.parametrize(
    "forge",
    [
        lambda p: p["values"]["y"]["shape"].__setitem__(0, ["mul", "batch", 2]),
        lambda p: p["values"]["y"]["shape"].__setitem__(0, "other"),
        lambda p: p["values"]["y"].update(shape=[["sub", "batch", 5], *p["values"]["y"]["shape"][1:]]),
        lambda p: p["steps"][0]["args"].__setitem__(-1, {"scalar": ["mul", "batch", 3]}),
        lambda p: p["steps"][0]["args"].__setitem__(-1, {"scalar": ["floordiv", "batch", 0]}),
        lambda p: p["steps"].pop(0),
        lambda p: p.__setitem__("guards", [{"size": ["add", "nobody", 1], "what": ""}]),
        lambda p: p.__setitem__("guards", [{"size": ["floordiv", 1, ["sub", "batch", "batch"]], "what": ""}]),
    ],
)
def test_a_forged_plan_of_open_sizes_is_stopped(forge):
    from tec.errors import PackageError
    from tec.runtime.networks.network import Network
    from tec.runtime.plans.plan import Plan

    net, _ = compiled(GEMM)
    plan = net.plan.to_json()
    forge(plan)
    with pytest.raises((PackageError, ArgumentError)):
        Network(net.module, Plan.from_json(plan), net.params).run(gemm_feeds(4))


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_slices_of_numbers_are_those_of_python(n: int) -> None:
    """But that a start before the first element is the first, also backwards."""
    ends = [0, 1, 3, -1, -3, -8, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
    for lo, hi, step in itertools.product(ends, ends, (1, 3, -1, -2)):
        begin = lo if step > 0 or lo >= -n else 0
        end = None if hi in (2**31 - 1, 2**63 - 1) else hi
        want = range(n)[begin:end:step]
        first, by, count = bounded_slice(n, lo, hi, step, "x")
        assert [first + k * by for k in range(int(count))] == list(want), (lo, hi, step)
