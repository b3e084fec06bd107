"""Attention to keys and values of fewer bits than the queries: codes with a scale of each row, or floats, read as they lie by each template that takes them."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.errors import ImportModelError
from tec.graph import Graph
from tec.ops import get_op
from tec.ops.dims import Dim
from tec.ops.registry import TensorType
from tec.te.evaluation import evaluate
from tec.te.numpy_dtype import np_dtype
from tests import seeds
from tests.thinned import thinned_rows

HEADS, KEY_HEADS, SIZE = 4, 2, 32
MOST = {"int8": 127, "float8_e4m3": 448}


def packed(x, dtype):
    """Codes of rows and their scales; floats of 16 bits have none."""
    if dtype not in MOST:
        return x.astype(np_dtype(dtype)), None
    scale = np.abs(x).max(-1, keepdims=True).astype(np.float32) / MOST[dtype]
    codes = x / scale
    return (np.rint(codes) if dtype == "int8" else codes).astype(np_dtype(dtype)), scale


def drawn(rng, dtype, kind, queries, keys, places=0):
    """The inputs by name. places: of a block, where keys lie in blocks."""
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32) * 1.5  # noqa: E731
    made = {"q": draw(2, queries, HEADS, SIZE).astype(np_dtype(dtype))}
    shape = (2, KEY_HEADS, keys, SIZE)
    if places:
        blocks = -(-keys // places)
        shape = (2 * blocks + 1, KEY_HEADS, places, SIZE)
    scales = {}
    for name in "kv":
        made[name], scale = packed(draw(*shape), kind)
        if scale is not None:
            scales[f"{name}_scale"] = scale
    made |= scales
    made["start"] = np.array([keys - queries, keys - queries - 3])
    if places:
        made["table"] = rng.permutation(shape[0])[: 2 * blocks].reshape(2, blocks)
    return made


def expected(given, attrs):
    """By the operator's own NumPy, of the numbers that the codes stand for."""
    plain = {n: x.astype(np.float32) if n in "qkv" else x for n, x in given.items() if "scale" not in n}
    for name in "kv":
        plain[name] = plain[name] * given.get(f"{name}_scale", np.float32(1))
    attrs = {**attrs, "extras": tuple(n for n in attrs["extras"] if "scale" not in n)}
    out = TensorType("float32", plain["q"].shape)
    return get_op("attention").host(attrs, list(plain.values()), [out])[0]


def attributes(given, **more):
    extras = tuple(n for n in given if n not in "qkv")
    return {
        "scale": SIZE**-0.5,
        "right": 0,
        "q_order": (0, 2, 1, 3),
        "out_order": (0, 2, 1, 3),
        "extras": extras,
        **more,
    }


def built(given, attrs):
    op = get_op("attention")
    names = {v: k for k, v in (("float8_e4m3", "float8_e4m3fn"),)}
    xs = [te.placeholder(a.shape, names.get(str(a.dtype), str(a.dtype)), name=n) for n, a in given.items()]
    (out,) = op.infer([TensorType(x.dtype, a.shape) for x, a in zip(xs, given.values())], attrs)
    return xs, op.compute(attrs, list(xs), [out]), out


KINDS = [("float32", "int8"), ("float32", "float8_e4m3"), ("float32", "float16"), ("float32", "bfloat16"), ("float16", "int8"), ("float16", "float8_e4m3"), ("bfloat16", "int8")]  # fmt: skip
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 4e-2}


@pytest.mark.parametrize("places", [0, 8])
@thinned_rows(4, ("dtype", "kind"), KINDS)
def test_definition_host_and_cpu(dtype, kind, places):
    rng = np.random.default_rng(seeds.first(3))
    for queries, keys in ((1, 40), (19, 40)):
        given = drawn(rng, dtype, kind, queries, keys, places)
        attrs = attributes(given)
        want = expected(given, attrs)
        xs, made, out = built(given, attrs)
        own = get_op("attention").host(attrs, list(given.values()), [out])[0]
        (defined,) = evaluate(made, dict(zip(xs, given.values())))
        for space in spaces(made, "llvm"):
            done = schedule(made, "llvm", space.default)
            f, got = tec.build(done.schedule, [*xs, *done.outputs], "llvm"), tec.nd.empty(out.shape, out.dtype)
            f(*map(tec.nd.array, given.values()), got)
            for y in (own, defined, got.numpy()):
                np.testing.assert_allclose(y.astype(np.float32), want, atol=TOLERANCE[dtype], err_msg=space.template)


ON_GPUS = [
    ("gfx942", "few rows attention", "float16", "int8", 1, 0, {"splits": 4}),
    ("gfx942", "few rows attention", "float32", "float8_e4m3", 1, 0, {}),
    ("gfx1100", "few rows attention", "float32", "bfloat16", 1, 0, {}),
    ("gfx942", "few rows attention", "float16", "int8", 1, 8, {}),
    ("gfx1100", "few rows attention", "float16", "float8_e4m3", 1, 32, {"splits": 2}),
    ("gfx942", "few rows attention by matrix units", "float16", "int8", 1, 0, {"splits": 2}),
    ("gfx942", "few rows attention by matrix units", "bfloat16", "float8_e4m3", 1, 32, {"keys": 64}),
    ("gfx942", "matrix attention", "float16", "int8", 40, 0, {}),
    ("gfx1100", "matrix attention", "float16", "int8", 40, 16, {}),
    ("gfx942", "gpu attention", "float32", "int8", 20, 0, {}),
    ("gfx942", "gpu attention", "float32", "float8_e4m3", 20, 16, {}),
]


@thinned_rows(3, ("chip", "template", "dtype", "kind", "queries", "places", "choice"), ON_GPUS)
def test_on_the_software_gpu(chip, template, dtype, kind, queries, places, choice):
    given = drawn(np.random.default_rng(seeds.first(5)), dtype, kind, queries, 75, places)
    attrs = attributes(given, left=50)
    xs, made, out = built(given, attrs)
    target = f"rocm -mcpu={chip}"
    done = schedule(made, target, {"template": template, **choice})
    assert done.choice["template"] == template
    dev = tec.rocm_emu(chip, check="all")
    got = tec.nd.empty(out.shape, out.dtype, dev)
    tec.build(done.schedule, [*xs, *done.outputs], target)(*(tec.nd.array(a, dev) for a in given.values()), got)
    np.testing.assert_allclose(got.numpy().astype(np.float32), expected(given, attrs), atol=TOLERANCE[dtype])


@thinned_rows(2, "target", ["llvm", "rocm -mcpu=gfx942", "cuda -arch=sm_90a"])
def test_codes_are_what_memory_has(target):
    """No stage turns all keys into numbers of another type, for one query and for many, of open lengths."""
    for queries in (1, Dim("queries")):
        g, past = Graph(), Dim("past")
        q = g.input("q", "float16", (1, queries, HEADS, SIZE))
        k, v = (g.input(n, "int8", (1, KEY_HEADS, past, SIZE)) for n in "kv")
        scales = [g.input(n, "float32", (1, KEY_HEADS, past, 1)) for n in ("k_scale", "v_scale")]
        attrs = {
            "scale": 0.2,
            "right": 0,
            "offset": past - queries,
            "q_order": (0, 2, 1, 3),
            "extras": ("k_scale", "v_scale"),
        }
        g.set_outputs(g.add("attention", [q, k, v, *scales], attrs), ["y"])
        net = tec.compile(g, target, cache=False)
        assert all("attention" in c["choice"]["template"] for c in net.report.choices.values())
        assert not [n for n in net.plan.values if n not in ("q", "k", "v", "k_scale", "v_scale", "y")]


def test_what_does_not_fit_is_refused():
    g = Graph()
    q, k = g.input("q", "float16", (1, 4, 3, 8)), g.input("k", "int8", (1, 2, 5, 8))
    scale, wrong = g.input("s", "float32", (1, 2, 5, 1)), g.input("w", "float32", (1, 2, 1, 1))
    both = ("k_scale", "v_scale")
    for inputs, extras in (([q, k, k], ()), ([q, k, k, scale], both[:1]), ([q, k, k, scale, wrong], both)):
        with pytest.raises(ImportModelError, match="_scale"):
            g.add("attention", inputs, {"scale": 1.0, "extras": extras})
    wide = g.input("wide", "float32", (1, 2, 5, 8))
    with pytest.raises(ImportModelError, match="attention of"):
        g.add("attention", [q, wide, wide], {"scale": 1.0})
