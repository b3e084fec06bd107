"""What programs written for TVM's te say, and what it means here."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import numpy as np
import pytest

import tec
from tec import te


def test_constants_are_numbers():
    assert int(te.const(3)) == 3 and float(te.const(0.5)) == 0.5
    assert [10, 20, 30, 40][te.const(2)] == 30


def test_whole_floats_are_extents():
    assert [int(d) for d in te.compute((32 / 4, 4), lambda i, j: te.const(1.0)).shape] == [8, 4]
    with pytest.raises(tec.ExprError, match=r"8\.5"):
        te.placeholder((8.5,))


def test_buffers():
    b = te.decl_buffer((4, 8), name="b")
    assert str(b[1, 2]) == "b[1, 2]"
    assert str(b.access_ptr("wr")) == str(b.access_ptr("rw"))


def test_arrays_name_their_device():
    dev = tec.device("llvm", 0)
    assert tec.nd.array(np.ones(2), device=dev).device == dev
    assert tec.nd.empty((2,), "int8", device=dev).device == tec.nd.zeros((2,), device=dev).device == dev


def test_errors_are_runtime_errors():
    with pytest.raises(RuntimeError):
        tec.build(None, [])
    with pytest.raises(ValueError, match="unknown target"):
        tec.Target("opencl")


def test_names_that_are_not_there():
    for name, hint in (
        ("auto_scheduler", "tec.tune"),
        ("relay", "tec.compile"),
        ("creat_schedule", "is tec.create_schedule meant"),
    ):
        with pytest.raises(AttributeError, match=hint):
            getattr(tec, name)


def test_memory_of_gpus_is_memory_on_a_cpu():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    x = np.arange(5000, dtype="float32")
    for scope in ("local", "shared"):
        s = te.create_schedule(C.op)
        s[B].set_scope(scope)
        y = tec.nd.zeros((5000,))
        tec.build(s, [A, C], "llvm")(x, y)
        np.testing.assert_array_equal(y.numpy(), (x + 1) * 2)
        with pytest.raises(tec.ScheduleError, match="a size that is not constant"):
            tec.lower(s, [A, C], target="rocm")


def test_a_reducer_combines_the_same_way_everywhere():
    X = te.placeholder((10,), name="X")

    def body(i):
        k = te.reduce_axis((0, 10), "k")
        clipped = te.comm_reducer(
            lambda x, y: te.max(x + y, i.astype("float32")), lambda t: te.const(0, t), name="clipped"
        )
        return clipped(X[k], axis=k)

    with pytest.raises(tec.ExprError, match="the reducer clipped of compute Y uses axis i"):
        te.compute((10,), body, name="Y")


def test_what_a_scan_alone_reads_is_computed_for_its_times():
    steps, n = 8, 4
    X = te.placeholder((steps - 1, n), name="X")
    state = te.placeholder((steps, n), name="state")
    init = te.compute((1, n), lambda t, i: te.const(0.0), name="init")
    doubled = te.compute((steps, n), lambda t, i: X[t - 1, i] * 2, name="doubled")  # of t >= 1 alone
    update = te.compute((steps, n), lambda t, i: state[t - 1, i] + doubled[t, i], name="update")
    out = te.scan(init, update, state, inputs=[X])
    s = te.create_schedule(out.op)
    x = np.random.default_rng(0).standard_normal((steps - 1, n)).astype("float32")
    y = tec.nd.zeros((steps, n))
    tec.build(s, [X, out], "llvm")(x, y)
    np.testing.assert_allclose(y.numpy(), np.concatenate([np.zeros((1, n)), np.cumsum(2 * x, 0)]), rtol=1e-5, atol=1e-6)


def test_loops_of_splits_fuses_and_layouts_have_domains():
    A = te.placeholder((6, 10), name="A")
    B = te.compute((6, 10), lambda i, j: A[i, j] + 1.0, name="B")
    s = tec.create_schedule(B.op)
    xo, xi = s[B].split(B.op.axis[1], 4)
    assert [int(v.dom.extent) for v in (xo, xi, s[B].fuse(B.op.axis[0], xo))] == [3, 4, 18]
    s = tec.create_schedule(B.op)
    loops = s[B].transform_layout(lambda i, j: [j // 5, i, j % 5])
    assert [int(v.dom.extent) for v in loops] == [2, 6, 5]


def test_rfactor_forgets_splits_of_data_loops():
    A = te.placeholder((10, 24), name="A")
    k = te.reduce_axis(24, "k")
    B = te.compute((10,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = tec.create_schedule(B.op)
    _, ki = s[B].split(k, 4)
    s[B].split(B.op.axis[0], 8)
    BF = s.rfactor(B, ki)
    assert [int(n) for n in BF.shape] == [4, 10] and len(s[B].leaf_iter_vars) == 2
    a = np.random.default_rng(0).random((10, 24)).astype("f")
    out = tec.nd.array(np.zeros(10, "f"))
    tec.build(s, [A, B], "llvm")(tec.nd.array(a), out)
    np.testing.assert_allclose(out.numpy(), a.sum(1), 1e-5)
    s = tec.create_schedule(B.op)
    s[B].parallel(B.op.axis[0])
    with pytest.raises(tec.ScheduleError, match="data loop i is bound or annotated already"):
        s.rfactor(B, k)


@pytest.mark.parametrize("scope", ["local", "warp"])
def test_threads_loops_of_a_stage_in_local_and_warp_memory(scope):
    A = te.placeholder((4, 32), name="A")
    B = te.compute((4, 32), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((4, 32), lambda i, j: B[i, 31 - j] * 2.0, name="C")
    s = tec.create_schedule(C.op)
    tx = te.thread_axis("threadIdx.x")
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    s[C].bind(C.op.axis[1], tx)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].set_scope(scope)
    s[B].bind(B.op.axis[1], tx)
    dev = tec.rocm_emu("gfx942")
    a = np.random.default_rng(0).random((4, 32)).astype("f")
    out = tec.nd.array(np.zeros((4, 32), "f"), dev)
    if scope == "local":
        with pytest.warns(UserWarning, match="each thread has for itself"):
            f = tec.build(s, [A, C], "rocm -mcpu=gfx942")
    else:
        f = tec.build(s, [A, C], "rocm -mcpu=gfx942")
    f(tec.nd.array(a, dev), out)
    np.testing.assert_allclose(out.numpy(), (a[:, ::-1] + 1) * 2, 1e-6)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize(("scope", "tag"), [("local", "vthread"), ("shared", "blockIdx.y")])
def test_memory_that_is_filled_outside_of_the_loop_whose_part_it_holds(scope, tag, bound):
    """Registers hold the parts of all virtual threads, and each work-group fills the shared memory that it reads."""
    A = te.placeholder((4, 3, 8), name="A")
    B = te.compute(A.shape, lambda i, j, k: A[i, j, k] + 1.0, name="B")
    C = te.compute(A.shape, lambda i, j, k: B[i, j, k] * 2.0 + B[i, j, 7 - k if scope == "shared" else k], name="C")
    s = tec.create_schedule(C.op)
    axis = te.thread_axis(tag)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    s[C].bind(C.op.axis[1], axis)
    s[C].bind(C.op.axis[2], te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].set_scope(scope)
    if bound:
        s[B].bind(B.op.axis[1], axis)
    dev = tec.rocm_emu("gfx942")
    a = np.random.default_rng(0).random((4, 3, 8)).astype("f")
    out = tec.nd.array(np.zeros(a.shape, "f"), dev)
    with pytest.warns(UserWarning, match="which each") if bound else nullcontext():
        f = tec.build(s, [A, C], "rocm -mcpu=gfx942")
    f(tec.nd.array(a, dev), out)
    np.testing.assert_allclose(out.numpy(), (a + 1) * 2 + (a[..., ::-1] if scope == "shared" else a) + 1, 1e-6)


def test_a_group_counts_the_stages_and_groups_right_inside_it():
    signal = te.placeholder((12,), name="signal")
    steps = [signal]
    for k, name in enumerate(("centred", "scaled", "clipped", "summed")):
        steps.append(te.compute((12,), lambda i, x=steps[-1], k=k: te.min(x[i] * (k + 1), 40.0), name=name))
    _, centred, scaled, clipped, summed = steps
    s = tec.create_schedule(summed.op)
    inner = s.create_group(outputs=clipped, inputs=centred)
    assert inner.num_child_stages == 2 and inner.group is None  # scaled and clipped: inputs stay outside
    assert s[scaled].group is inner and s[clipped].group is inner and s[centred].group is None
    outer = s.create_group(outputs=clipped, inputs=centred, include_inputs=True)
    assert inner.group is outer and s[centred].group is outer
    assert (outer.num_child_stages, inner.num_child_stages) == (2, 2)  # centred and the inner group as one
    out = tec.nd.array(np.zeros(12, "f"))
    x = np.arange(12, dtype="f")
    tec.build(s, [signal, summed], "llvm")(tec.nd.array(x), out)
    for k in range(4):
        x = np.minimum(x * np.float32(k + 1), 40)
    np.testing.assert_array_equal(out.numpy(), x)


@pytest.mark.parametrize(
    ("inline", "left"),
    [
        ("AutoInlineElemWise", ["S", "T", "R", "C"]),
        ("AutoInlineBroadcast", ["S", "R", "C"]),
        ("AutoInlineInjective", ["R", "C"]),
    ],
)
def test_auto_inline(inline, left):
    A = te.placeholder((4, 4), name="A")
    E = te.compute((4, 4), lambda i, j: A[i, j] + 1.0, name="E")
    S = te.compute((4, 4), lambda i, j: E[j, i] * 2.0, name="S")
    T = te.compute((4, 4), lambda i, j: S[i, 0] + E[i, j], name="T", tag="broadcast")
    k = te.reduce_axis(4, "k")
    R = te.compute((4,), lambda i: te.sum(T[i, k], axis=k), name="R")
    C = te.compute((4,), lambda i: R[i] + 1.0, name="C")
    s = tec.create_schedule(C.op)
    getattr(te.schedule, inline)(s)
    assert [x.name for x in s.stages if x.attach != "inline" and x.name != "A"] == left
    a = np.random.default_rng(0).random((4, 4)).astype("f")
    out = tec.nd.array(np.zeros(4, "f"))
    tec.build(s, [A, C], "llvm")(tec.nd.array(a), out)
    e = a + 1
    np.testing.assert_allclose(out.numpy(), ((e.T * 2)[:, :1] + e).sum(1) + 1, 1e-5)


def test_roundings_of_constants_are_constants():
    for name, wants in {
        "floor": (2.0, -3.0, 0.0), "ceil": (3.0, -2.0, 1.0), "trunc": (2.0, -2.0, 0.0),
        "round": (3.0, -3.0, 0.0), "nearbyint": (2.0, -2.0, 0.0),
    }.items():  # fmt: skip
        for x, want in zip((2.5, -2.5, 0.49999999999999994), wants):
            got = getattr(te, name)(te.const(x, "float64"))
            assert type(got).__name__ == "FloatImm" and got.value == want, (name, x)


def test_one_bit_is_a_bool():
    assert te.var("x", "uint1").dtype == "bool" and te.const(1, "uint1").dtype == "bool"


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_buffers_of_one_element_along_an_axis_broadcast(dtype):
    sizes = {name: tuple(te.size_var(f"{name}{k}") for k in range(3)) for name in ("weight", "image", "result")}
    weight, image = (te.placeholder(sizes[name], dtype, name=name) for name in ("weight", "image"))
    result = te.compute(sizes["result"], lambda *at: weight(*at) * image(*at) - weight(*at), name="result")
    binds = {t: te.decl_buffer(t.shape, t.dtype, t.name, buffer_type="auto_broadcast") for t in (weight, image)}
    f = tec.build(te.create_schedule(result.op), [weight, image, result], "llvm", binds=binds)
    full, rng = (2, 3, 5), np.random.default_rng(7)
    for whole in itertools.product((True, False), repeat=6):  # which axes of each are whole
        shapes = [tuple(n if w else 1 for n, w in zip(full, part)) for part in (whole[:3], whole[3:])]
        w, x = (rng.integers(-9, 10, shape).astype(dtype) for shape in shapes)
        got = np.full(np.broadcast_shapes(*shapes), 77, dtype)
        f(w, x, got)
        np.testing.assert_array_equal(got, w * x - w, err_msg=str(shapes))


def test_buffers_of_a_type_that_there_is_not_or_with_strides_do_not_broadcast():
    with pytest.raises(tec.ExprError, match="buffer_type 'rows'"):
        te.decl_buffer((6, 2), buffer_type="rows")
    with pytest.raises(tec.ExprError, match="without strides of its own"):
        te.decl_buffer((6, 2), strides=(2, 1), buffer_type="auto_broadcast")


def test_functions_of_numpy_and_math_say_tecs():
    import math

    A = te.placeholder((4,), name="A")
    i = te.var("i")
    for f, says in (
        (lambda: np.exp(A), "tec.exp"), (lambda: np.arctan2(A[i], 1.0), "tec.atan2"), (lambda: np.maximum(A, A), "tec.max"),
        (lambda: math.exp(A[i]), "tec.exp"), (lambda: np.add.reduce(A), "np.add"), (lambda: float(i), "no number yet"),
    ):  # fmt: skip
        for kind in (tec.ExprError, TypeError):
            with pytest.raises(kind, match=says):
                f()
    assert str(np.int32(3) + i) == str(3 + i) and str(np.float32(2) < A[i]) == str(A[i] > 2.0)
    assert isinstance(np.float32(2) * A, te.Tensor)
    assert [str(e) for e in np.array([1, 2]) + i] == [str(1 + i), str(2 + i)]
    assert float(te.const(0.5)) == 0.5 and int(te.const(3)) == 3 and float(te.const(3)) == 3.0


def test_texts_and_files_of_a_module(tmp_path):
    A = te.placeholder((4,), name="A")
    C = te.compute((4,), lambda i: A[i] + 1.0, name="C")
    f = tec.build(te.create_schedule(C.op), [A, C], "llvm")
    assert f.get_source("ll") == f.get_source("llvm") and f.get_source("s") == f.get_source("asm")
    f.export_library(tmp_path / "f.tecmod")
    out = np.zeros(4, "f")
    tec.load_module(tmp_path / "f.tecmod")(np.ones(4, "f"), out)
    assert (out == 2).all()
