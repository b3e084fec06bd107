"""Damaged, foreign and forged `.tec` files: a PackageError each, before any memory is taken or any code runs."""

import hashlib
import json
import random
import tracemalloc
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, PackageError, TecError
from tec.graph import Graph, run_graph
from tec.runtime.networks.network import Network
from tec.runtime.networks.report import Report
from tec.runtime.plans.plan import Copy, Output, Plan
from tests import seeds

CONV = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}


def small_graph():
    """Parameters, an arena with reuse, an alias, two outputs of which one is the other under a new shape."""
    g = Graph("small")
    rng = np.random.default_rng(0)
    x = g.input("x", "float32", (1, 3, 6, 6))
    (y,) = g.add("conv", [x, g.constant(rng.normal(size=(5, 3, 3, 3)).astype("f"), "w")], CONV, "conv")
    (y,) = g.add("relu", [y], {}, "relu")
    (m,) = g.add("transpose", [y], {"perm": (0, 2, 3, 1)}, "moved")
    (f,) = g.add("reshape", [m], {"shape": (36, 5)}, "flat")
    (z,) = g.add("matmul", [f, g.constant(rng.normal(size=(5, 8)).astype("f"), "v")], {}, "product")
    (s,) = g.add("softmax", [z], {"axes": (1,)}, "soft")
    (t,) = g.add("matmul", [s, g.constant(rng.normal(size=(8, 4)).astype("f"), "u")], {}, "last")
    g.set_outputs([t, f], ["out", "flat_out"])
    return g


X = np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype("f")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "good.tec"
    tec.compile(small_graph(), target="llvm").save(path)
    return path


@pytest.fixture
def forged(good, tmp_path):
    """A copy of the good package with its manifest changed by a function, or with other bytes for an entry."""

    def make(change=None, entries=None):
        with zipfile.ZipFile(good) as z:
            old = {n: z.read(n) for n in z.namelist()}
        if change is not None:
            manifest = json.loads(old["manifest.json"])
            change(manifest)
            old["manifest.json"] = json.dumps(manifest).encode()
        old.update(entries or {})
        path = tmp_path / "forged.tec"
        with zipfile.ZipFile(path, "w") as z:
            for name, data in old.items():
                z.writestr(name, data)
        return path

    return make


def test_the_good_one_runs(good):
    net = tec.load(good)
    places = {v.place for v in net.plan.values.values()}
    assert places >= {"input", "output", "param", "arena", "alias"}  # the forgeries below have something to forge
    for got, want in zip(net.run({"x": X}), run_graph(small_graph(), {"x": X})):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def plan(m):
    return m["meta"]["plan"]


def at(m, place, k=0):
    """The k-th value in a place."""
    return [v for v in plan(m)["values"].values() if v["place"] == place][k]


def name_at(m, place, k=0):
    return [n for n, v in plan(m)["values"].items() if v["place"] == place][k]


def last_of_arena(m):
    return max((v for v in plan(m)["values"].values() if v["place"] == "arena"), key=lambda v: v["offset"])


def sign(m, k=0):
    """The signature of step k's function."""
    return m["meta"]["module"]["functions"][plan(m)["steps"][k]["function"]]["signature"]


def set_(path, value):
    """A change of the plan: `path` of keys, the last set to `value`."""

    def change(m):
        at_ = plan(m)
        for key in path[:-1]:
            at_ = at_[key]
        at_[path[-1]] = value

    return change


def swap_steps(m):
    plan(m)["steps"][0], plan(m)["steps"][1] = plan(m)["steps"][1], plan(m)["steps"][0]


def write_weights(m):
    """The first step's output becomes its weights."""
    args = plan(m)["steps"][0]["args"]
    name = name_at(m, "param")
    plan(m)["values"][args[-1]] = {**plan(m)["values"][args[-1]], "place": "alias", "of": name}


def overlap_in_time(m):
    """The last two arena values at one place: the later one overwrites what is still read."""
    steps, values = plan(m)["steps"], plan(m)["values"]
    for step in steps:
        arena = [a for a in step["args"] if values.get(a, {}).get("place") == "arena"]
        if len(arena) > 1:
            values[arena[-1]]["offset"] = values[arena[0]]["offset"]
            return
    raise AssertionError("no step with two values of the arena")


def ring(m):
    values = plan(m)["values"]
    name = name_at(m, "alias")
    values["ring"] = {**values[name], "of": name}
    values[name]["of"] = "ring"


FORGED = {
    # tables that are not there, or of another kind
    "no plan": (lambda m: m["meta"].pop("plan"), "no plan"),
    "a plan that is a list": (lambda m: m["meta"].update(plan=[]), "no plan"),
    "no report": (lambda m: m["meta"].pop("report"), "no report"),
    "a report of other things": (lambda m: m["meta"]["report"].update(flops="a lot", functions=["f"]), "functions of its report"),
    "a count that is text without a meaning": (lambda m: m["meta"]["report"].update(flops=["power", 2, 3]), "flops of its report"),
    "no module": (lambda m: m["meta"].pop("module"), "damaged"),
    "no values": (lambda m: plan(m).pop("values"), "values"),
    "values as a list": (lambda m: plan(m).update(values=[1, 2]), "table of values"),
    "a value that is a number": (lambda m: plan(m)["values"].update(x=5), "damaged"),
    "no steps": (lambda m: plan(m).pop("steps"), "steps"),
    "steps that are text": (lambda m: plan(m).update(steps="abc"), "no list of the plan's steps"),
    "inputs as a table": (lambda m: plan(m).update(inputs={}), "no list of the plan's inputs"),
    "an output without a name": (lambda m: plan(m)["outputs"][0].pop("name"), "name"),
    "an output named by a number": (lambda m: plan(m)["outputs"][0].update(name=3), "has the name 3"),
    # the arena
    "an offset behind the arena": (lambda m: at(m, "arena").update(offset=1 << 40), "does not fit the arena"),
    "an end behind the arena": (lambda m: last_of_arena(m).update(offset=last_of_arena(m)["offset"] + 4096), "does not fit the arena"),
    "a negative offset": (lambda m: at(m, "arena").update(offset=-256), "offset of"),
    "an offset that is no number": (lambda m: at(m, "arena").update(offset=None), "offset of"),
    "an offset that is a fraction": (lambda m: at(m, "arena").update(offset=0.5), "offset of"),
    "an offset between elements": (lambda m: at(m, "arena").update(offset=3), "does not fit the arena"),
    "a symbolic offset": (lambda m: at(m, "arena").update(offset="n"), "which no input gives"),
    "a symbolic offset, hidden": (lambda m: at(m, "arena").update(offset=["mul", 64, ["add", "n", 1]]), "which no input gives"),
    "an offset that divides by 0": (lambda m: at(m, "arena").update(offset=["floordiv", 1, 0]), "divides by"),
    "a small arena": (lambda m: plan(m).update(arena_bytes=64), "does not fit the arena"),
    "a negative arena": (lambda m: plan(m).update(arena_bytes=-1), "arena's size"),
    "a huge arena": (lambda m: plan(m).update(arena_bytes=1 << 50), "are used"),
    "an arena of more than there are addresses": (lambda m: plan(m).update(arena_bytes=1 << 70), "arena's size"),
    "an arena of text": (lambda m: plan(m).update(arena_bytes="x"), "which no input gives"),
    "values that overlap in time": (overlap_in_time, "over another of its arguments"),
    # values
    "an unknown place": (lambda m: at(m, "arena").update(place="disk"), "lies in 'disk'"),
    "an unknown dtype": (lambda m: at(m, "arena").update(dtype="object"), "no dtype 'object'"),
    "a wider dtype": (lambda m: at(m, "arena").update(dtype="float64"), "does not take"),
    "a larger shape": (lambda m: at(m, "arena").update(shape=[1 << 20] * 2), "does not take"),
    "a negative shape": (lambda m: at(m, "arena")["shape"].__setitem__(0, -1), "shape of"),
    "a shape of many dimensions": (lambda m: at(m, "arena").update(shape=[1] * 1000), "shape of"),
    "a shape that is a number": (lambda m: at(m, "arena").update(shape=7), "shape of"),
    "a shape of fractions": (lambda m: at(m, "arena")["shape"].__setitem__(0, 1.5), "shape of"),
    "an alias of nothing": (lambda m: at(m, "alias").update(of="nothing"), "is no value"),
    "an alias of a list": (lambda m: at(m, "alias").update(of=["x"]), "is no value"),
    "aliases in a ring": (ring, "is no value"),
    "an alias that reaches behind what it shows": (lambda m: at(m, "alias").update(offset=4), "whose memory it is"),
    "an alias that is larger": (lambda m: at(m, "alias").update(of="x"), "whose memory it is"),
    "an input that is a parameter": (lambda m: plan(m)["values"]["x"].update(place="param"), "array of its own"),
    "an input that nobody gives": (lambda m: plan(m).update(inputs=[]), "does not name"),
    "an input twice": (lambda m: plan(m)["inputs"].append(plan(m)["inputs"][0]), "one name"),
    "an input that is a table": (lambda m: plan(m)["inputs"].append({}), "inputs are"),
    "an input of another shape": (lambda m: plan(m)["values"]["x"].update(shape=[1, 3, 6, 7]), "does not take"),
    "an input of another dtype": (lambda m: plan(m)["values"]["x"].update(dtype="int32"), "does not take"),
    "an output under a name that is none": (lambda m: plan(m)["outputs"][0].update(value="zzz"), "'zzz' is no value"),
    "a missing parameter": (lambda m: m["arrays"].pop(name_at(m, "param")), "parameter .* is missing"),
    "a parameter of another shape": (
        lambda m: m["arrays"][name_at(m, "param")].update(shape=[m["arrays"][name_at(m, "param")]["size"] // 4]), "the plan says"),
    "a parameter of another dtype": (lambda m: m["arrays"][name_at(m, "param")].update(dtype="int32"), "the plan says"),
    # steps
    "a function that is not there": (set_(["steps", 0, "function"], "f99"), "'f99' is missing"),
    "a function of another kind": (set_(["steps", 0, "function"], [1]), "no function"),
    "a step of a kind that is not there": (set_(["steps", 0, "op"], "jump"), "a step is 'jump'"),
    "a step without a kind": (lambda m: plan(m)["steps"][0].pop("op"), "a step is None"),
    "a copy of nothing": (lambda m: plan(m)["steps"].append({"op": "copy", "source": "x"}), "copies 'x' to None"),
    "a copy of what is no value": (lambda m: plan(m)["steps"].append({"op": "copy", "source": "x", "target": "q"}), "'q' is no value"),
    "a copy to another type": (lambda m: plan(m)["steps"].append({"op": "copy", "source": "x", "target": name_at(m, "param")}), "copies float32"),
    "a copy to the input": (lambda m: plan(m)["steps"].append({"op": "copy", "source": "x", "target": "x"}), "which is an input"),
    "a missing argument": (lambda m: plan(m)["steps"][0]["args"].pop(), "takes 3 arguments"),
    "one argument more": (lambda m: plan(m)["steps"][0]["args"].append("x"), "takes 3 arguments"),
    "arguments as text": (set_(["steps", 0, "args"], "xxxx"), "arguments of .* are 'xxxx'"),
    "an argument that is no value": (set_(["steps", 0, "args", 0], "q"), "'q' is no value"),
    "a number for an array": (set_(["steps", 0, "args", 0], {"scalar": 1}), "the plan gives a number"),
    "another value": (lambda m: plan(m)["steps"][0]["args"].__setitem__(0, name_at(m, "output")), "does not take"),
    "a step left out": (lambda m: plan(m)["steps"].pop(0), "not made yet"),
    "the last step left out": (lambda m: plan(m)["steps"].pop(), "no step makes output"),
    "steps in another order": (swap_steps, "not made yet"),
    "a step that writes to weights": (write_weights, "does not|whose memory|which is a"),
    "a step that writes to the input": (lambda m: sign(m)["params"][0].update(writes=True), "which is an input"),
    # signatures
    "a smaller argument": (lambda m: sign(m)["params"][0]["shape"].__setitem__(3, 5), "does not take"),
    "an output that is not written": (lambda m: sign(m)["params"][-1].update(writes=False), "not made yet"),
    "strides of its own": (lambda m: sign(m)["params"][0].update(strides=[1 << 30, 1 << 20, 1 << 10, 1]), "strides of its own"),
    "a signature that is a list": (lambda m: m["meta"]["module"]["functions"].update({plan(m)["steps"][0]["function"]: []}), "damaged"),
    "a parameter that is a number": (lambda m: sign(m)["params"].__setitem__(0, 3), "damaged"),
    "conditions that are a number": (lambda m: m["meta"]["module"]["functions"][plan(m)["steps"][0]["function"]].update(asserts=7), "are no texts"),
    "an offset that is a table": (lambda m: sign(m)["params"][0].update(offset={}), "not an expression"),
    "a name that is a list": (lambda m: sign(m)["params"][0].update(name=[]), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED)
def test_forged(forged, case):
    change, words = FORGED[case]
    with pytest.raises(PackageError, match=words):
        tec.load(forged(change))


def test_a_package_of_an_older_format_says_so(forged):
    with pytest.raises(PackageError, match="has format version 1, this tec reads version 3"):
        tec.load(forged(lambda m: m.update(version=1)))


def test_a_plan_is_the_same_after_json(good):
    net = tec.load(good)
    assert Plan.from_json(json.loads(json.dumps(net.plan.to_json()))) == net.plan
    assert Report.from_json(json.loads(json.dumps(net.report.to_json()))) == net.report


def test_a_copy_is_a_step_like_others(good):
    """One output's bytes as another output, too: copied after the step that makes them, refused before it."""
    net = tec.load(good)
    made = net.plan.outputs[0]
    values = {**net.plan.values, "twin": net.plan.values[made.value]}
    outputs, copy = (*net.plan.outputs, Output("twin", "twin")), Copy(made.value, "twin")
    plan = replace(net.plan, values=values, outputs=outputs, steps=(*net.plan.steps, copy))
    a, _, b = Network(net.module, plan, net.params).run({"x": X})
    np.testing.assert_array_equal(a, b)
    with pytest.raises(PackageError, match=r"a copy reads .* which is not made yet"):
        Network(net.module, replace(plan, steps=(copy, *net.plan.steps)), net.params)


def test_sizes_are_checked_before_memory_is_taken(forged):
    def huge(m):
        m["arrays"][name_at(m, "param")].update(shape=[1 << 38], size=1 << 40)

    for change in (FORGED["a huge arena"][0], huge):
        path = forged(change)
        tracemalloc.start()
        with pytest.raises(PackageError):
            tec.load(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20


def test_names_are_never_paths(forged, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"1234")
    digest = hashlib.sha256(b"1234").hexdigest()
    for file in (str(secret), "../secret", "data/../../secret"):
        entry = {"file": file, "size": 4, "sha256": digest, "dtype": "int32", "shape": [1]}
        with pytest.raises(PackageError, match="missing"):
            tec.load(forged(lambda m, e=entry: m["arrays"].update(stolen=e)))


def test_truncated_anywhere(good, tmp_path):
    data = good.read_bytes()
    path = tmp_path / "cut.tec"
    for n in [0, 1, 3, 100, *range(0, len(data), len(data) // 40), len(data) - 1]:
        path.write_bytes(data[:n])
        with pytest.raises(PackageError):
            tec.load(path)


def test_flipped_bits(good, tmp_path):
    """A flipped bit is found, or lies where nothing reads it: then the numbers are the same."""
    data, rng = good.read_bytes(), random.Random(seeds.first())
    want = tec.load(good).run({"x": X})
    path = tmp_path / "flipped.tec"
    refused = 0
    for _ in range(150):
        bad = bytearray(data)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        try:
            net = tec.load(path)
        except PackageError:
            refused += 1
            continue
        for a, b in zip(net.run({"x": X}), want):
            np.testing.assert_array_equal(a, b)
    assert refused > 100


def test_damaged_code_is_refused(forged):
    def of_image(m):
        module = m["meta"]["module"]
        while not module["image"]:
            module = module["imported"][0]
        return m["blobs"][module["image"]]

    def cut(m):
        digest = hashlib.sha256(b"\x7fELF").hexdigest()
        of_image(m).update(size=4, sha256=digest, file="data/x")

    path = forged(cut, {"data/x": b"\x7fELF"})
    with pytest.raises(TecError):
        tec.load(path).run({"x": X})
    with pytest.raises(PackageError, match="checksum"):
        tec.load(forged(lambda m: of_image(m).update(sha256="0" * 64)))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "no tec package"), (b"PK\x05\x06" + bytes(18), "no tec package"), (b"\x80\x04\x95pickle", "no tec package")],
)
def test_foreign_files(tmp_path, content, words):
    path = tmp_path / "x.tec"
    path.write_bytes(content)
    with pytest.raises(PackageError, match=words):
        tec.load(path)


def test_other_mistakes(good, tmp_path):
    with pytest.raises(PackageError, match="no such file"):
        tec.load(tmp_path / "none.tec")
    with pytest.raises(PackageError, match="a folder"):
        tec.load(tmp_path)
    with pytest.raises(PackageError, match=r"tec\.load\(path\) reads it"):
        tec.load_module(good)


INPUTS = {
    "a missing input": ({}, "missing: x"),
    "an unknown input": ({"x": X, "q": X}, "unknown: q"),
    "too many": ([X, X], "2 inputs given, the network has 1"),
    "another dtype": ({"x": X.astype("d")}, "float64, the network takes float32"),
    "another rank": ({"x": X[0]}, r"\(3, 6, 6\), the network takes \(1, 3, 6, 6\)(?s:.*)x\[None\]"),
    "another shape": (
        {"x": X[:, :, :5]},
        r"\(1, 3, 5, 6\), the network takes \(1, 3, 6, 6\)(?s:.*)the same in every run",
    ),
    "nothing": (None, "input x is NoneType"),
    "text": ({"x": "abc"}, "input x is str"),
    "an object": ({"x": object()}, "input x is object"),
    "a ragged list": ({"x": [[1], [2, 3]]}, "input x is list"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs(good, case):
    given, words = INPUTS[case]
    with pytest.raises(ArgumentError, match=words):
        tec.load(good).run(given)


def test_inputs_in_other_forms(good):
    """Byte order, memory order and containers are no mistakes: the numbers are the same."""
    net = tec.load(good)
    want = net.run({"x": X})
    for given in (X.astype(">f4"), np.asfortranarray(X), tec.nd.array(X), X[::-1][::-1]):
        for a, b in zip(net.run({"x": given}), want):
            np.testing.assert_array_equal(a, b)


def test_another_device(good):
    with pytest.raises(ArgumentError, match="was compiled for llvm"):
        tec.load(good).run({"x": X}, device=tec.rocm_emu("gfx942"))
