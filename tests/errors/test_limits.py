"""What a small file may ask for: pipes, names that are none, sizes beyond memory, loops without end. Refused with a word, at once."""

import hashlib
import os
import struct
import time
import tracemalloc
import zipfile
from contextlib import contextmanager

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tec
from tec import te
from tec.errors import DeviceError, ImportModelError, PackageError, TecError
from tec.runtime.modules.cpu_code import helpers
from tec.runtime.objects.codeobject import read_code_object
from tec.runtime.objects.objfile import load_object

info = helper.make_tensor_value_info
F, I = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, weights=(), opset=20):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def compiled(m):
    return tec.compile(m, target="llvm", cache=False)


@contextmanager
def within(seconds, nbytes=64 << 20):
    """Refused soon, and before memory is asked for."""
    tracemalloc.start()
    start = time.monotonic()
    try:
        yield
        assert time.monotonic() - start < seconds
        assert tracemalloc.get_traced_memory()[1] < nbytes
    finally:
        tracemalloc.stop()


# ---- files


def external(tmp_path, location):
    """A model with its weight in a file of its own."""
    w = onnx.TensorProto(name="w", data_type=F, dims=[4], data_location=TensorProto.EXTERNAL)
    w.external_data.add(key="location", value=location)
    m = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", F, [4])], [info("y", F, [4])], [w])
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return path


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@needs_pipes
@pytest.mark.parametrize("cache", [False, True])
def test_a_pipe_is_no_file_of_weights(tmp_path, cache):
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ImportModelError, match="no regular file"):
        tec.compile(external(tmp_path, "w.bin"), target="llvm", cache=cache)


@needs_pipes
@pytest.mark.parametrize("suffix", [".onnx", ".tec", ".tecmod"])
def test_a_pipe_is_no_model(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    os.mkfifo(path)
    read = {".onnx": lambda p: tec.compile(p, target="llvm"), ".tec": tec.load, ".tecmod": tec.load_module}[suffix]
    with pytest.raises(TecError, match="no regular file"):
        read(path)


def test_a_name_that_no_file_can_have(tmp_path):
    with pytest.raises(ImportModelError, match="no file's name"):
        compiled(external(tmp_path, "w\0.bin"))
    with pytest.raises(ImportModelError, match="cannot be one of a file"):
        tec.compile("m\0.onnx", target="llvm")
    with pytest.raises(PackageError, match="cannot be one of a file"):
        tec.load("m\0.tec")


def test_weights_may_be_a_hard_link(tmp_path):
    """A second name of a file is a name as good as the first; a symbolic link out of the folder is not."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    np.ones(4, "f").tofile(tmp_path / "elsewhere" / "w.bin")
    os.link(tmp_path / "elsewhere" / "w.bin", tmp_path / "here" / "w.bin")
    path = external(tmp_path / "here", "w.bin")
    assert tec.compile(path, target="llvm", cache=False).run({"x": np.zeros(4, "f")})[0].tolist() == [1] * 4
    (tmp_path / "here" / "w.bin").unlink()
    (tmp_path / "here" / "w.bin").symlink_to(tmp_path / "elsewhere" / "w.bin")
    with pytest.raises(ImportModelError, match="outside of the model's folder"):
        tec.compile(path, target="llvm", cache=False)


# ---- sizes in models


def sparse(index, dims, values=(5.0,)):
    m = model([helper.make_node("Identity", ["w"], ["y"])], [], [info("y", F, dims)])
    t = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, "f"), "w"), numpy_helper.from_array(np.array(index), "i"), dims
    )
    m.graph.sparse_initializer.append(t)
    return m


SPARSE = {
    "an index behind the end": (sparse([1 << 40], [4]), "an index outside"),
    "an index before the start": (sparse([-1], [4]), "an index outside"),
    "an index outside of a dimension": (sparse([[0, 3]], [4, 2]), "an index outside"),
    "indices of floats": (sparse([0.0], [4]), "indices of float64"),
    "more indices than values": (sparse([0, 1], [4]), "1 values and 2 indices"),
    "4 TiB": (sparse([0], [1 << 40]), "takes 4398046511104 bytes"),
    "more than there are addresses": (sparse([0], [1 << 40, 1 << 40]), "takes 4835703278458516698824704 bytes"),
    "a negative dimension": (sparse([0], [-4]), "negative dimension"),
}


@pytest.mark.parametrize("case", SPARSE)
def test_sparse_tensors(case):
    m, words = SPARSE[case]
    with within(2), pytest.raises(ImportModelError, match=words):
        compiled(m)


def test_a_sparse_tensor_that_is_right():
    (y,) = compiled(sparse([[0, 1], [3, 0]], [4, 2], (5.0, 6.0))).run({})
    assert y.tolist() == [[0, 5], [0, 0], [0, 0], [6, 0]]


def of_value(op, *values, **attrs):
    names = [f"v{k}" for k in range(len(values))]
    weights = [numpy_helper.from_array(np.array(v), n) for v, n in zip(values, names)]
    return model([helper.make_node(op, names, ["y"], **attrs)], [], [info("y", F, None)], weights)


@pytest.mark.parametrize(
    "m",
    [
        of_value("ConstantOfShape", [1 << 31]),
        of_value("ConstantOfShape", [1 << 40, 1 << 40]),
        of_value("Range", np.int64(0), np.int64(1 << 40), np.int64(1)),
        of_value("MelWeightMatrix", np.int64(8), np.int64(1 << 40), np.int64(8000), np.float32(0), np.float32(4000)),
        of_value("RandomNormal", shape=[1 << 20, 1 << 20]),
        of_value("HannWindow", np.int64(1 << 40)),
    ],
    ids=lambda m: m.graph.node[0].op_type,
)
def test_constants_that_no_file_holds(m):
    with within(2), pytest.raises(ImportModelError, match=r"takes \d+ bytes; a model may ask for"):
        compiled(m)


# ---- time


def regex(pattern, text):
    s = helper.make_tensor("s", TensorProto.STRING, [1], [text])
    return model([helper.make_node("RegexFullMatch", ["s"], ["y"], pattern=pattern)], [], [info("y", TensorProto.BOOL, [1])], [s])  # fmt: skip


def test_nested_stars_take_linear_time():
    with within(5):
        assert compiled(regex("(a+)+$", b"a" * 5000 + b"b")).run({})[0].tolist() == [False]
        assert compiled(regex("(a|b)*c?", b"abba")).run({})[0].tolist() == [True]
    with pytest.raises(ImportModelError, match="pattern"):
        compiled(regex("(a", b"a"))


def loop(steps, body_nodes=(), condition="c"):
    """x + steps, one at a time."""
    nodes = [
        helper.make_node("Identity", [condition], ["c2"]),
        helper.make_node("Add", ["a", "one"], ["b"]),
        *body_nodes,
    ]
    body = helper.make_graph(
        nodes, "body", [info("i", I, []), info("c", TensorProto.BOOL, []), info("a", F, [2])],
        [info("c2", TensorProto.BOOL, []), info("b", F, [2])],
    )  # fmt: skip
    weights = [np.int64(steps), np.bool_(True), np.ones(2, "f"), np.float32(9)]
    return model(
        [helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body)], [info("x", F, [2])], [info("y", F, [2])],
        [numpy_helper.from_array(w, n) for w, n in zip(weights, ("n", "t", "one", "nine"))],
    )  # fmt: skip


def test_an_endless_loop_is_refused_at_once():
    with within(2), pytest.raises(ImportModelError, match=f"a Loop of {1 << 62} "):
        compiled(loop(1 << 62))


def test_a_long_loop_runs():
    (y,) = compiled(loop(100_000)).run({"x": np.zeros(2, "f")})
    assert y.tolist() == [100_000, 100_000]


def test_a_loop_whose_condition_ends_it_may_have_any_trip_count():
    less = [helper.make_node("Less", ["b0", "nine"], ["go"]), helper.make_node("ReduceMax", ["b"], ["b0"], keepdims=0)]
    m = loop(1 << 62, less[::-1], "c")
    m.graph.node[0].attribute[0].g.output[0].name = "go"
    assert compiled(m).run({"x": np.zeros(2, "f")})[0].tolist() == [9, 9]


def test_a_concat_of_thousands():
    n = 1500
    names = [f"x{k}" for k in range(n)]
    m = model(
        [helper.make_node("Concat", names, ["y"], axis=1)], [info(x, F, [2, 1]) for x in names], [info("y", F, [2, n])]
    )
    net = compiled(m)
    assert len(net.module.specs) <= 6  # equal parts share a function
    (y,) = net.run({x: np.full((2, 1), k, "f") for k, x in enumerate(names)})
    np.testing.assert_array_equal(y, np.tile(np.arange(n, dtype="f"), (2, 1)))


def test_few_values_many_times():
    """Parts that are equal are made once; the tree does not come together again in one function."""
    m = model(
        [helper.make_node("Neg", ["x"], ["z"]), helper.make_node("Concat", ["x", "z"] * 600, ["y"], axis=1)],
        [info("x", F, [2, 3])], [info("y", F, [2, 3600])],
    )  # fmt: skip
    x = np.arange(6, dtype="f").reshape(2, 3)
    np.testing.assert_array_equal(compiled(m).run({"x": x})[0], np.tile(np.concatenate([x, -x], 1), (1, 600)))


# ---- packages and code


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    path = tmp_path_factory.mktemp("limits") / "good.tec"
    w = numpy_helper.from_array(np.ones(4, "f"), "w")
    compiled(model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", F, [4])], [info("y", F, [4])], [w])).save(
        path
    )
    return path


@pytest.mark.parametrize(
    "shape", [[10**13, "x"], ["x", 10**13], [10**30], [0, 10**30], [0, 1 << 61, 1 << 61], [1] * 65, [True, 4]]
)
def test_shapes_of_arrays_in_packages(package, tmp_path, shape):
    import json

    with zipfile.ZipFile(package) as z:
        entries = {n: z.read(n) for n in z.namelist()}
    manifest = json.loads(entries["manifest.json"])
    (array,) = manifest["arrays"].values()
    array["shape"] = shape
    if 0 in shape:
        array.update(size=0, file="data/none", sha256=hashlib.sha256(b"").hexdigest())
    entries |= {"manifest.json": json.dumps(manifest).encode(), "data/none": b""}
    with zipfile.ZipFile(tmp_path / "bad.tec", "w") as z:
        for name, data in entries.items():
            z.writestr(name, data)
    with within(2), pytest.raises(PackageError):
        tec.load(tmp_path / "bad.tec")


def built(target):
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    s = tec.create_schedule(B.op)
    if target != "llvm":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    return tec.build(s, [A, B], target)


@pytest.mark.parametrize(("count", "size"), [(1, 1 << 40), (5, 1 << 30), (1000, 1 << 30), (300, 1 << 20)])
def test_an_object_of_zeros(count, size):
    """Sections that a file need not hold: each may be small enough, and all together not."""
    image = bytearray(built("llvm").image)
    (table,), (n,) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<H", image, 60)
    sections = image[table : table + 64 * n] + count * struct.pack("<IIQQQQIIQQ", 0, 8, 3, 0, 0, size, 0, 0, 16, 0)
    struct.pack_into("<Q", image, 40, len(image))
    struct.pack_into("<H", image, 60, n + count)
    with within(2), pytest.raises(PackageError, match="bytes of zeros"):
        load_object(bytes(image + sections), dict(helpers()))


@pytest.mark.parametrize(
    ("at", "value"), [(40, 1 << 40), (40, 1), (16, 1 << 62)], ids=["memory", "less than it has", "address"]
)
def test_a_code_object_of_zeros(at, value):
    image = bytearray(built("rocm -mcpu=gfx942").imported_modules[0].image)
    (headers,) = struct.unpack_from("<Q", image, 32)
    (count,) = struct.unpack_from("<H", image, 56)
    loads = [headers + 56 * k for k in range(count) if struct.unpack_from("<I", image, headers + 56 * k)[0] == 1]
    struct.pack_into("<Q", image, loads[0] + at, value)
    with within(2), pytest.raises(DeviceError, match="asks for"):
        read_code_object(bytes(image))


def many_values(n):
    @tec.kernel
    def values(x, y):
        i = tec.block_idx.x
        s = y[i]
        for j in tec.static_range(n):
            s = s * 0.5 + x[i] * j
        y[i] = s

    return values


def many_stores(n):
    @tec.kernel
    def stores(x, y):
        i = tec.block_idx.x
        for j in tec.static_range(n):
            y[i] = y[i] * 0.5 + x[i] * j

    return stores


@pytest.mark.parametrize("kernel", [many_values(500), many_stores(500)], ids=["values", "stores"])
def test_hundreds_of_copies_of_a_loops_body(kernel):
    """Walks beyond Python's own depth; and accesses alike are compared once, not each with each (a minute for these)."""
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    kernel[4, 1](x, y)
    want = np.zeros(4, np.float32)
    for j in range(500):
        want = want * np.float32(0.5) + x * np.float32(j)
    np.testing.assert_allclose(y, want, rtol=1e-6)


def test_values_in_a_row_beyond_what_walks_reach_are_refused():
    with pytest.raises(TecError, match=r"(?s)nested too deeply.*static_range of thousands"):
        many_values(9000)[4, 1](np.ones(4, np.float32), np.zeros(4, np.float32))
