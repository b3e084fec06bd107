"""Products over TVM's wmma scopes and calls: values on software AMD chips, mma.sync on NVIDIA."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.compat.tvm import tir
from tec.errors import TecError

CHIPS = [("gfx942", 64), ("gfx1100", 32)]


def load(scope: str, shape=(16, 16, 16), layout="row_major"):
    m, n, k = shape
    rows, cols = (m, k) if scope.endswith("_a") else (k, n)
    size = (cols, rows) if layout == "col_major" else (rows, cols)
    src = te.placeholder(size, "float16", "src")
    dst = te.compute(size, lambda i, j: src[i, j], "dst")
    given = te.decl_buffer(size, "float16", "given", scope="shared", offset_factor=8)
    held = te.decl_buffer(size, "float16", "held", scope=scope, offset_factor=8)

    def body(ins, outs):
        pointer = ins[0].access_ptr("r")
        return tir.call_intrin(
            "handle", "tvm_load_matrix_sync", outs[0].data, m, n, k, 0, pointer, size[1], layout
        )  # fmt: skip

    return te.decl_tensor_intrin(dst.op, body, "load_" + scope[-1], binds={src: given, dst: held})


def product(shape=(16, 16, 16), trans_b=False):
    m, n, k = shape
    a = te.placeholder((m, k), "float16", "a")
    b = te.placeholder((n, k) if trans_b else (k, n), "float16", "b")
    kk = te.reduce_axis(k, "kk")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            a[i, kk].astype("float32") * (b[j, kk] if trans_b else b[kk, j]).astype("float32"), axis=kk
        ),
    )
    scopes = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
    held = [te.decl_buffer(t.shape, t.dtype, t.op.name, scope=s, offset_factor=8) for t, s in zip((a, b, c), scopes)]

    def body(ins, outs):
        d = outs[0].data
        fill = tir.call_intrin("handle", "tvm_fill_fragment", d, m, n, k, 0, 0.0)
        step = tir.call_intrin("handle", "tvm_mma_sync", d, 0, ins[0].data, 0, ins[1].data, 0, d, 0)
        return step, fill, step

    return te.decl_tensor_intrin(c.op, body, "product", binds=dict(zip((a, b, c), held)))


def store(shape=(16, 16, 16)):
    m, n, k = shape
    src = te.placeholder((m, n), "float32", "src")
    dst = te.compute((m, n), lambda i, j: src[i, j], "dst")
    held = te.decl_buffer((m, n), "float32", "held", scope="wmma.accumulator", offset_factor=8)
    out = te.decl_buffer((m, n), "float32", "out", scope="global", offset_factor=8)

    def body(ins, outs):
        pointer = outs[0].access_ptr("w")
        return tir.call_intrin("handle", "tvm_store_matrix_sync", ins[0].data, m, n, k, 0, pointer, n, "row_major")

    return te.decl_tensor_intrin(dst.op, body, "store", binds={src: held, dst: out})


def scheduled(size: int, wave: int, trans_b: bool = False, shape=(16, 16, 16)):
    m, n, k = shape
    A = te.placeholder((size, size), "float16", "A")
    B = te.placeholder((size, size), "float16", "B")
    r = te.reduce_axis(size, "r")
    C = te.compute(
        (size, size),
        lambda i, j: te.sum(A[i, r].astype("float32") * (B[j, r] if trans_b else B[r, j]).astype("float32"), axis=r),
        name="C",
    )
    s = te.create_schedule(C.op)
    AS, BS = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    AF, BF = s.cache_read(AS, "wmma.matrix_a", [C]), s.cache_read(BS, "wmma.matrix_b", [C])
    CF = s.cache_write(C, "wmma.accumulator")
    i, j, ii, ji = s[C].tile(*s[C].op.axis, m, n)
    s[C].bind(i, te.thread_axis("blockIdx.x"))
    s[C].bind(j, te.thread_axis("blockIdx.y"))
    s[CF].compute_at(s[C], j)
    x, y = s[CF].op.axis
    ko, ki = s[CF].split(s[CF].op.reduce_axis[0], k)
    s[CF].reorder(ko, x, y, ki)
    for t in (AF, BF, AS, BS):
        s[t].compute_at(s[CF], ko)
    for t in (AS, BS):
        lane = s[t].split(s[t].fuse(*s[t].op.axis), wave)[1]
        s[t].bind(lane, te.thread_axis("threadIdx.x"))
    s[AF].tensorize(s[AF].op.axis[0], load("wmma.matrix_a", shape))
    s[BF].tensorize(s[BF].op.axis[0], load("wmma.matrix_b", shape, "col_major" if trans_b else "row_major"))
    s[CF].tensorize(x, product(shape, trans_b))
    s[C].tensorize(ii, store(shape))
    return s, [A, B, C]


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("chip", "wave"), CHIPS)
def test_products_on_amd(chip: str, wave: int, trans_b: bool) -> None:
    try:
        dev = tec.rocm_emu(chip)
    except TecError as error:
        pytest.skip(str(error))
    s, args = scheduled(32, wave, trans_b)
    f = tec.build(s, args, f"rocm -mcpu={chip}")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 32)).astype("float16") for _ in "ab")
    c = tec.nd.zeros((32, 32), "float32", dev)
    f(tec.nd.array(a, dev), tec.nd.array(b, dev), c)
    want = a.astype("float32") @ (b.T if trans_b else b).astype("float32")
    np.testing.assert_allclose(c.numpy(), want, rtol=1e-4, atol=1e-4)


def test_nvidia_takes_two_instructions_a_tile() -> None:
    for shape in ((16, 16, 16), (32, 8, 16)):  # two steps along k, each tile two instructions of 16 x 8
        s, args = scheduled(32, 32, False, shape)
        ptx = tec.build(s, args, "cuda -arch=sm_80").imported_modules[0].get_source("asm")
        assert ptx.count("mma.sync.aligned.m16n8k16") == 4


def test_a_shape_that_the_chip_has_not() -> None:
    s, args = scheduled(32, 64, False, (32, 8, 16))
    with pytest.raises(TecError, match="no matrix instruction for wmma tiles of 32x8x16, float16 to float32"):
        tec.build(s, args, "rocm -mcpu=gfx942")


def test_a_tile_other_than_its_compute() -> None:
    with pytest.raises(TecError, match="moves 16 x 16 elements, the compute 16 x 8"):
        src = te.placeholder((16, 8), "float16", "src")
        dst = te.compute((16, 8), lambda i, j: src[i, j])
        held = te.decl_buffer((16, 8), "float16", "held", scope="wmma.matrix_a")
        te.decl_tensor_intrin(
            dst.op,
            lambda ins, outs: tir.call_intrin(
                "handle", "tvm_load_matrix_sync", outs[0].data, 16, 16, 16, 0, ins[0].access_ptr("r"), 8, "row_major"
            ),
            binds={dst: held},
        )
