"""Shape arithmetic of exporters with open sizes: floats that scale sizes, quotients that divide back, paddings by maxima, ranges. Each model is compiled
once and held against ONNX Runtime at several sizes."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import tec
from tec.errors import ArgumentError, ImportModelError
from tests.thinned import thinned, thinned_rows

rng = np.random.default_rng(3)


def model(text):
    return parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text)


CASES = {
    # Swin's windows: padded to a multiple of the window, cut, and put together again.
    "windows and back": (
        """agraph (float[1,4,h,w] x) => (float[1,4,a,b] y) {
            s = Shape(x) i2 = Constant<value=int64[1] {2}>() i3 = Constant<value=int64[1] {3}>() h = Gather<axis=0>(s, i2) w = Gather<axis=0>(s, i3)
            one = Constant<value=int64[1] {1}>() four = Constant<value=int64[1] {4}>() zero = Constant<value=int64[1] {0}>()
            a0 = Mod(h, four) a1 = Sub(four, a0) ph = Mod(a1, four) b0 = Mod(w, four) b1 = Sub(four, b0) pw = Mod(b1, four)
            pads = Concat<axis=0>(zero, zero, zero, zero, zero, zero, ph, pw)
            q = Pad(x, pads) hh = Add(h, ph) ww = Add(w, pw) nh = Div(hh, four) nw = Div(ww, four) m1 = Constant<value=int64[1] {-1}>()
            t = Concat<axis=0>(one, four, nh, four, nw, four) r = Reshape(q, t) p = Transpose<perm=[0,2,4,1,3,5]>(r)
            t2 = Concat<axis=0>(m1, four, four, four) v = Reshape(p, t2) e = Softmax<axis=-1>(v)
            t3 = Concat<axis=0>(one, nh, nw, four, four, four) k = Reshape(e, t3) p2 = Transpose<perm=[0,3,1,4,2,5]>(k)
            t4 = Concat<axis=0>(one, four, hh, ww) full = Reshape(p2, t4) axes = Constant<value=int64[2] {2,3}>() z2 = Constant<value=int64[2] {0,0}>()
            end = Concat<axis=0>(h, w) cut = Slice(full, z2, end, axes) y = Add(cut, x)
        }""",
        [(1, 4, 8, 12), (1, 4, 7, 5), (1, 4, 1, 3)],
    ),
    "unit matrices": (
        """agraph (float[h,w] x) => (float[h,w] y, int64[h,w] z) { y = EyeLike(x) z = EyeLike<dtype=7, k=-1>(x) }""",
        [(3, 5), (4, 4), (1, 2)],
    ),
    "slices by steps": (
        """agraph (float[1,4,h,w] x) => (float[1,4,a,b] y, float[1,4,c,d] z) {
            s = Shape(x) i2 = Constant<value=int64[1] {2}>() i3 = Constant<value=int64[1] {3}>() h = Gather<axis=0>(s, i2) w = Gather<axis=0>(s, i3)
            one = Constant<value=int64[1] {1}>() four = Constant<value=int64[1] {4}>() zero = Constant<value=int64[1] {0}>()
            two = Constant<value=int64[1] {2}>() three = Constant<value=int64[1] {3}>() back = Constant<value=int64[1] {-2}>()
            last = Constant<value=int64[1] {-1}>() begin = Constant<value=int64[1] {-9223372036854775807}>()
            y = Slice(x, one, h, two, three) z = Slice(x, last, begin, three, back)
        }""",
        [(1, 4, 8, 12), (1, 4, 7, 5), (1, 4, 4, 1), (1, 4, 5, 2)],
    ),
    "grid sample": (
        """agraph (float[1,2,h,w] x, float[1,k,3,2] g) => (float[1,2,k,3] y, float[1,2,k,3] z, float[1,2,k,3] b) {
            y = GridSample(x, g)
            z = GridSample<padding_mode="reflection", align_corners=1>(x, g)
            b = GridSample<mode="bicubic", padding_mode="border">(x, g)
        }""",
        [(1, 2, 5, 7), (1, 2, 1, 4)],
    ),
    "Fourier transforms": (
        """agraph (float[1,h,2] x) => (float[1,a,2] y, float[1,b,2] z, float[1,c,2] half) {
            y = DFT<axis=1>(x) z = DFT<axis=1, inverse=1>(x)
            first = Constant<value=int64[1] {0}>() one = Constant<value=int64[1] {1}>() two = Constant<value=int64[1] {2}>()
            real = Slice(x, first, one, two) half = DFT<axis=1, onesided=1>(real)
        }""",
        [(1, 12, 2), (1, 7, 2), (1, 1, 2)],
    ),
    # What overhangs the last window is nothing for even sizes: compiling must not ask that it is something.
    "max pooling with ceil_mode": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            y = MaxPool <kernel_shape=[2,2], strides=[2,2], ceil_mode=1> (x)
        }""",
        [(1, 3, 6, 8), (1, 3, 7, 5), (1, 3, 2, 9)],
    ),
    "mean pooling with ceil_mode": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            y = AveragePool <kernel_shape=[2,2], strides=[2,2], ceil_mode=1> (x)
        }""",
        [(1, 3, 6, 8), (1, 3, 7, 5), (1, 3, 2, 9)],
    ),
    "resize x2 nearest": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            s = Constant<value = float[4] {1.0,1.0,2.0,2.0}>()
            y = Resize <mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric"> (x, , s)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 4)],
    ),
    "resize x2 linear": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            s = Constant<value = float[4] {1.0,1.0,2.0,2.0}>()
            y = Resize <mode="linear"> (x, , s)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 4)],
    ),
    "resize 1.5 cubic": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            s = Constant<value = float[4] {1.0,1.0,1.5,1.5}>()
            y = Resize <mode="cubic"> (x, , s)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 4)],
    ),
    "resize 0.5 linear pt": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            s = Constant<value = float[4] {1.0,1.0,0.5,0.5}>()
            y = Resize <mode="linear", coordinate_transformation_mode="pytorch_half_pixel"> (x, , s)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 4)],
    ),
    "resize corners": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            s = Constant<value = float[4] {1.0,1.0,2.0,2.0}>()
            y = Resize <mode="linear", coordinate_transformation_mode="align_corners"> (x, , s)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 4)],
    ),
    "resize to other's size": (
        """agraph (float[1,3,h,w] x, float[1,3,p,q] z) => (float[1,3,a,b] y) {
            sz = Shape(z)
            y = Resize <mode="linear"> (x, , , sz)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 9)],
    ),
    "resize to other's size nearest": (
        """agraph (float[1,3,h,w] x, float[1,3,p,q] z) => (float[1,3,a,b] y) {
            sz = Shape(z)
            y = Resize <mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric"> (x, , , sz)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 9)],
    ),
    "fpn": (
        """agraph (float[1,4,h,w] x) => (float[1,4,a,b] y) {
            p = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)
            sz = Shape(x)
            r = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"> (p, , , sz)
            y = Add(r, x)
        }""",
        [(1, 4, 6, 8), (1, 4, 7, 9)],
    ),
    "scale by shape ratio": (
        """agraph (float[1,4,h,w] x) => (float[1,4,a,b] y) {
            p = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)
            s = Constant<value = float[4] {1.0,1.0,2.0,2.0}>()
            r = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"> (p, , s)
            y = Relu(r)
        }""",
        [(1, 4, 6, 8), (1, 4, 7, 9)],
    ),
    "pad to multiple of 32": (
        """agraph (float[1,n] x) => (float[1,m] y) {
            sh = Shape(x)
            one = Constant<value=int64[1]{1}>()
            n = Gather<axis=0>(sh, one)
            k = Constant<value=int64[1]{32}>()
            r = Mod(n, k)
            d = Sub(k, r)
            d2 = Mod(d, k)
            z = Constant<value=int64[3]{0,0,0}>()
            pads = Concat<axis=0>(z, d2)
            p = Pad(x, pads)
            shp = Constant<value=int64[3]{1,-1,32}>()
            y0 = Reshape(p, shp)
            ax = Constant<value=int64[1]{2}>()
            y = ReduceSum<keepdims=0>(y0, ax)
        }""",
        [(1, 40), (1, 64)],
    ),
    "pad by max": (
        """agraph (float[1,n] x) => (float[1,m] y) {
            sh = Shape(x)
            one = Constant<value=int64[1]{1}>()
            n = Gather<axis=0>(sh, one)
            k = Constant<value=int64[1]{50}>()
            d = Sub(k, n)
            zero = Constant<value=int64[1]{0}>()
            d2 = Max(d, zero)
            z = Constant<value=int64[3]{0,0,0}>()
            pads = Concat<axis=0>(z, d2)
            y = Pad(x, pads)
        }""",
        [(1, 40), (1, 64)],
    ),
    "reshape back": (
        """agraph (float[b,n,8] x) => (float[b,m,8] y) {
            s = Constant<value=int64[2]{-1,8}>()
            f = Reshape(x, s)
            t = Tanh(f)
            sh = Shape(x)
            y = Reshape(t, sh)
        }""",
        [(2, 3, 8), (1, 5, 8)],
    ),
    "reshape floor back": (
        """agraph (float[1,4,h,w] x) => (float[1,a,b,c] y) {
            p = AveragePool<kernel_shape=[2,2],strides=[2,2]>(x)
            s = Constant<value=int64[3]{1,4,-1}>()
            f = Reshape(p, s)
            t = Tanh(f)
            sh = Shape(p)
            y = Reshape(t, sh)
        }""",
        [(1, 4, 6, 8), (1, 4, 7, 9)],
    ),
    "split half": (
        """agraph (float[1,n,8] x) => (float[1,m,16] y) {
            s = Constant<value=int64[3]{1,-1,16}>()
            y = Reshape(x, s)
        }""",
        [(1, 4, 8), (1, 6, 8)],
    ),
    "range int": (
        """agraph (float[1,n] x) => (float[n] y) {
            sh = Shape(x)
            one = Constant<value=int64{1}>()
            n = Gather<axis=0>(sh, one)
            z = Constant<value=int64{0}>()
            r = Range(z, n, one)
            y = Cast<to=1>(r)
        }""",
        [(1, 5), (1, 9)],
    ),
    "range float": (
        """agraph (float[1,n] x) => (float[n] y) {
            sh = Shape(x)
            one = Constant<value=int64{1}>()
            n = Gather<axis=0>(sh, one)
            nf = Cast<to=1>(n)
            z = Constant<value=float{0.0}>()
            o = Constant<value=float{1.0}>()
            y = Range(z, nf, o)
        }""",
        [(1, 5), (1, 9)],
    ),
    "range step": (
        """agraph (float[1,n] x) => (float[k] y) {
            sh = Shape(x)
            one = Constant<value=int64{1}>()
            n = Gather<axis=0>(sh, one)
            z = Constant<value=int64{0}>()
            st = Constant<value=int64{3}>()
            r = Range(z, n, st)
            y = Cast<to=1>(r)
        }""",
        [(1, 5), (1, 9)],
    ),
    "grid": (
        """agraph (float[1,3,h,w] x) => (float[1,3,h,w] y) {
            sh = Shape(x)
            i2 = Constant<value=int64{2}>()
            i3 = Constant<value=int64{3}>()
            h = Gather<axis=0>(sh,i2)
            w = Gather<axis=0>(sh,i3)
            z = Constant<value=int64{0}>()
            o = Constant<value=int64{1}>()
            rh = Range(z,h,o)
            rw = Range(z,w,o)
            m1 = Constant<value=int64[2]{-1,1}>()
            a = Reshape(rh, m1)
            g = Mul(a, w)
            s = Add(g, rw)
            f = Cast<to=1>(s)
            y = Add(x, f)
        }""",
        [(1, 3, 5, 7), (1, 3, 8, 4)],
    ),
    "half sizes": (
        """agraph (float[1,3,h,w] x) => (float[1,3,a,b] y) {
            sh = Shape<start=2,end=4>(x)
            f = Cast<to=1>(sh)
            k = Constant<value=float{0.5}>()
            g = Mul(f,k)
            fl = Floor(g)
            i = Cast<to=7>(fl)
            nc = Shape<start=0,end=2>(x)
            sz = Concat<axis=0>(nc,i)
            y = Resize <mode="linear"> (x, , , sz)
        }""",
        [(1, 3, 6, 8), (1, 3, 7, 9)],
    ),
    # Halved twice and doubled back: as tall as what was halved once, where sizes are multiples of 4 (or 3 beyond one).
    "a pyramid's levels meet": (
        """agraph (float[n,2,h,w] x) => (float[n,4,a,b] y, float[n,2,a,b] z) {
            p = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(x)
            q = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(p)
            s = Constant<value = float[4] {1.0,1.0,2.0,2.0}>()
            up = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"> (q, , s)
            y = Concat<axis=1>(up, p) z = Add(p, up)
        }""",
        [(1, 2, 8, 12), (2, 2, 7, 4), (1, 2, 16, 3)],
    ),
    "depth to space": (
        """agraph (float[1,8,h,w] x) => (float[1,2,a,b] y) {
            y = DepthToSpace<blocksize=2>(x)
        }""",
        [(1, 8, 3, 4), (1, 8, 5, 2)],
    ),
    "slice odd": (
        """agraph (float[1,n] x) => (float[1,m] y) {
            sh = Shape(x)
            one = Constant<value=int64[1]{1}>()
            n = Gather<axis=0>(sh, one)
            two = Constant<value=int64[1]{2}>()
            h = Div(n, two)
            z = Constant<value=int64[1]{0}>()
            a = Slice(x, z, h, one)
            b = Slice(x, h, n, one)
            e = Mul(h, two)
            y = Concat<axis=1>(b, a)
        }""",
        [(1, 6), (1, 9)],
    ),
    "tile": (
        """agraph (float[1,n] x, float[4] s) => (float[m,4] y) {
            sh = Shape(x)
            one = Constant<value=int64[1]{1}>()
            n = Gather<axis=0>(sh, one)
            r = Concat<axis=0>(n, one)
            o = Constant<value=int64[2]{1,4}>()
            q = Reshape(s, o)
            y = Tile(q, r)
        }""",
        [(1, 6), (1, 9)],
    ),
}  # fmt: skip


def feeds_of(m, shape):
    other = {"s": (4,), "g": (1, 4, 3, 2), "z": (1, 3, shape[-2] + 3 if len(shape) > 2 else 1, shape[-1] * 2)}
    return {i.name: rng.standard_normal(other.get(i.name, shape)).astype(np.float32) for i in m.graph.input}


def check(m, net, shapes, device=None):
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in shapes:
        feeds = feeds_of(m, shape)
        for got, want in zip(net.run(feeds, device), session.run(None, feeds), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@thinned_rows(10, "case", CASES)
def test_one_network_for_all_sizes(case):
    text, shapes = CASES[case]
    m = model(text)
    check(m, tec.compile(m, cache=False), shapes)


@thinned_rows(
    2, "case", ["resize x2 linear", "fpn", "a pyramid's levels meet", "pad by max", "split half", "slices by steps"]
)
def test_on_the_software_gpu(case):
    text, shapes = CASES[case]
    m = model(text)
    check(m, tec.compile(m, "rocm -mcpu=gfx942", cache=False), shapes, "rocm_emu:gfx942")


@thinned(  # pairs of them at sizes of numbers: the node cases of the suite
    1,
    ("mode", ["nearest", "linear", "cubic"]),
    ("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]),
    ("scale", [0.6, 1.0 / 3.0, 2.5]),
)
def test_resizing_is_what_it_is_with_numbers(mode, transform, scale):
    m = model(f"""agraph (float[1,2,h,w] x) => (float[1,2,a,b] y) {{
        s = Constant<value = float[4] {{1.0, 1.0, {scale}, 2.0}}>()
        y = Resize <mode = "{mode}", coordinate_transformation_mode = "{transform}", nearest_mode = "round_prefer_ceil"> (x, , s)
    }}""")
    net = tec.compile(m, cache=False)
    for h, w in ((3, 4), (10, 1)):
        x = rng.standard_normal((1, 2, h, w)).astype(np.float32)
        got, want = net.run({"x": x})[0], tec.compile(m, shapes={"h": h, "w": w}, cache=False).run({"x": x})[0]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_does_not_divide_back_is_refused_at_its_size():
    net = tec.compile(model(CASES["split half"][0]), cache=False)
    with pytest.raises(ArgumentError, match=r"compiled for sizes with .*takes the shape .*not for n = 5"):
        net.run({"x": np.zeros((1, 5, 8), np.float32)})
    net.run({"x": np.zeros((1, 6, 8), np.float32)})


def test_levels_that_do_not_meet_are_refused_at_their_size():
    net = tec.compile(model(CASES["a pyramid's levels meet"][0]), cache=False)
    with pytest.raises(
        ArgumentError, match=r"one dimension.*not for .*h = 6(?s:.*)hint: give sizes for which that holds"
    ):
        net.run({"x": np.zeros((1, 2, 6, 8), np.float32)})


@pytest.mark.parametrize("other", ["m", ""])
@pytest.mark.parametrize(
    ("node", "shapes", "feeds", "wrong"),
    [
        ("y = Concat<axis=0>(x, z)", "float[1,n] x, float[1,OTHER] z", [(1, 5), (1, 5)], (1, 4)),
        ("y = Add(x, z)", "float[1,n] x, float[OTHER] z", [(1, 5), (5,)], (4,)),
        ("y = MatMul(x, z)", "float[3,n] x, float[OTHER,2] z", [(3, 5), (5, 2)], (4, 2)),
    ],
)
def test_open_sizes_that_a_node_needs_equal_are_one(other, node, shapes, feeds, wrong):
    text = f"agraph ({shapes.replace('OTHER', other or 'q')}) => (float[a,b] y) {{ {node} }}"
    m = model(text)
    if not other:
        for d in m.graph.input[1].type.tensor_type.shape.dim:
            if d.dim_param:
                d.ClearField("dim_param")
    net = tec.compile(m, cache=False)
    x, z = (rng.random(s, dtype=np.float32) for s in feeds)
    want = ort.InferenceSession(model(text).SerializeToString()).run(None, {"x": x, "z": z})[0]
    np.testing.assert_allclose(net.run({"x": x, "z": z})[0], want, rtol=1e-6)
    with pytest.raises(ArgumentError, match="size n is 5 elsewhere and 4"):
        net.run({"x": x, "z": np.zeros(wrong, np.float32)})


def test_a_size_that_meets_a_number_is_that_number():
    m = model("""agraph (float[n,c,h,w] x, float[total] z) => (float[a,b,e,d] y)
        <float[4,3,1,1] k = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] more = {1,2,3,4}> {
        r = Conv(x, k) s = Transpose<perm=[0,2,3,1]>(r) v = Add(z, more) y = Add(s, v)
    }""")
    net = tec.compile(m, cache=False)
    assert [i["shape"][1:] for i in net.inputs] == [[3, "h", "w"], []]
    assert net.inputs[1]["shape"] == [4]
    feeds = {"x": rng.random((2, 3, 5, 6), dtype=np.float32), "z": rng.random(4, dtype=np.float32)}
    np.testing.assert_allclose(
        net.run(feeds)[0], ort.InferenceSession(m.SerializeToString()).run(None, feeds)[0], rtol=1e-5
    )


def test_a_total_is_the_sum_that_it_meets():
    m = model("""agraph (float[past,4] cache, float[seq,4] x, float[total,4] mask) => (float[a,4] y) {
        both = Concat<axis=0>(cache, x) y = Add(both, mask)
    }""")
    net = tec.compile(m, cache=False)
    feeds = {n: rng.random((k, 4), dtype=np.float32) for n, k in (("cache", 3), ("x", 2), ("mask", 5))}
    np.testing.assert_array_equal(net.run(feeds)[0], np.concatenate([feeds["cache"], feeds["x"]]) + feeds["mask"])
    with pytest.raises(ArgumentError, match="mask"):
        net.run({**feeds, "mask": feeds["mask"][:4]})


def test_dimensions_without_a_name_are_called_by_input_and_place():
    m = model("agraph (float[a,b,3] x, float[x_0] z) => (float[p,q,3] y, float[r] w) { y = Relu(x) w = Neg(z) }")
    for d in m.graph.input[0].type.tensor_type.shape.dim[:2]:
        d.ClearField("dim_param")
    net = tec.compile(m, cache=False)
    assert [i["shape"] for i in net.inputs] == [
        ["x_0_", "x_1", 3],
        ["x_0"],
    ]  # "x_0" is the model's own name for another
    x = rng.random((4, 5, 3), dtype=np.float32) - 0.5
    np.testing.assert_array_equal(net.run({"x": x, "z": x[0, 0]})[0], np.maximum(x, 0))
    assert tec.compile(m, shapes={"x_1": 7}, cache=False).inputs[0]["shape"] == ["x_0_", 7, 3]


def test_an_input_of_any_rank_needs_its_shape():
    m = model("agraph (float[n] x) => (float[m] y) { y = Relu(x) }")
    m.graph.input[0].type.tensor_type.ClearField("shape")
    m.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ImportModelError, match="how many dimensions input 'x' has") as error:
        tec.compile(m, cache=False)
    assert 'shapes={"x": (...)}' in error.value.hint
    net = tec.compile(m, shapes={"x": ("n", 2)}, cache=False)
    np.testing.assert_array_equal(net.run({"x": np.ones((3, 2), np.float32)})[0], np.ones((3, 2)))


def test_dimensions_of_other_names_do_not_become_equal():
    m = model("""agraph (float[n,8] x, float[m,4] z) => (float[a,b] y) {
        sh = Shape(z)
        y = Reshape(x, sh)
    }""")
    with pytest.raises(ImportModelError, match="not known while sizes are symbolic"):
        tec.compile(m, cache=False)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (
            "s = Constant<value = float[4] {1.0, 1.0, 0.12345678, 2.0}>() y = Resize (x, , s)",
            "0.12345678.* is no simple fraction",
        ),
        (
            's = Constant<value = float[4] {1.0, 1.0, 0.5, 0.5}>() y = Resize <mode = "linear", antialias = 1> (x, , s)',
            "antialias",
        ),
        (
            's = Constant<value = int64[4] {1, 2, 7, 7}>() y = Resize <mode = "linear", keep_aspect_ratio_policy = "not_larger"> (x, , , s)',
            "keeps the aspect ratio",
        ),
    ],
)
def test_what_stays_undecided_says_what_to_bind(node, says):
    with pytest.raises(ImportModelError, match=says):
        tec.compile(model(f"agraph (float[1,2,h,w] x) => (float[1,2,a,b] y) {{ {node} }}"), cache=False)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_of_open_length_is_written_at_each_entrys_place(mode):
    m = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 24]> agraph (float[b,2,s,4] cache, float[b,2,t,4] new, int64[b] at) => (float[b,2,s,4] y) {{
        y = TensorScatter <axis = -2, mode = "{mode}"> (cache, new, at)
    }}""")
    net = tec.compile(m, cache=False)
    for b, s, t in ((3, 9, 2), (1, 5, 1)):
        cache, new = (rng.standard_normal((b, 2, k, 4)).astype(np.float32) for k in (s, t))
        at = rng.integers(0, s - t + 1 if mode == "linear" else s, b)
        want = cache.copy()
        for e in range(b):
            for k in range(t):
                want[e, :, (at[e] + k) % s] = new[e, :, k]
        np.testing.assert_array_equal(net.run({"cache": cache, "new": new, "at": at})[0], want)


def test_a_signal_of_open_length_is_transformed_in_frames():
    m = model("""agraph (float[b,n,1] x, float[8] w) => (float[b,f,5,2] y) {
        step = Constant<value = int64 {4}>() y = STFT <onesided = 1> (x, step, w)
    }""")
    net, window = tec.compile(m, cache=False), np.hanning(8).astype(np.float32)
    for b, n in ((2, 24), (1, 35), (1, 8)):
        x = rng.standard_normal((b, n, 1)).astype(np.float32)
        frames = np.stack([x[:, k : k + 8, 0] * window for k in range(0, n - 7, 4)], axis=1)
        want = np.fft.rfft(frames)
        got = net.run({"x": x, "w": window})[0]
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-4)


@pytest.mark.parametrize(
    "axes, shape",
    [
        ([1], (2, 1 << 20)),
        ([0], (1 << 20, 5)),
        ([0], (1 << 19, 32)),
        ([1, 2], (2, 3, 1 << 19)),
    ],
    ids=str,
)
def test_means_of_open_length_lose_no_digits(axes, shape):
    """In one chain of additions a lane they are off by 1e-4 to 1e-2 of themselves."""
    sizes = ",".join("abc"[: len(shape)])
    m = model(
        f"agraph (float[{sizes}] x) => (float[d] y) {{"
        f" axes = Constant<value=int64[{len(axes)}] {{{','.join(map(str, axes))}}}>() y = ReduceMean<keepdims=0>(x, axes) }}"
    )
    x = np.full(shape, 0.1, "float32")
    (got,) = tec.compile(m, cache=False).run({"x": x})
    np.testing.assert_allclose(got, x.mean(tuple(axes), dtype="float64"), rtol=2e-5)


@pytest.mark.parametrize("length", ["n", 1 << 18], ids=str)
@pytest.mark.parametrize("axes, shape", [([0, 1, 2], (2, 2)), ([0, 2], (3, 8))], ids=str)
def test_sums_over_a_long_first_dimension_lose_no_digits(length, axes, shape):
    """The last dimensions are known, and too short for vectors: one chain of additions a result was off by 4e-3 to 6e-2 of itself."""
    m = model(
        f"agraph (float[{length},{shape[0]},{shape[1]}] x) => (float[d] y) {{"
        f" axes = Constant<value=int64[{len(axes)}] {{{','.join(map(str, axes))}}}>() y = ReduceSum<keepdims=0>(x, axes) }}"
    )
    x = np.full((1 << 18, *shape), 0.1, "float32")
    (got,) = tec.compile(m, cache=False).run({"x": x})
    np.testing.assert_allclose(got, x.sum(tuple(axes), dtype="float64"), rtol=2e-5)


@pytest.mark.parametrize(
    ("transform", "nearest", "is_copy"),
    [("asymmetric", "floor", True), ("half_pixel", "round_prefer_floor", True), ("asymmetric", "ceil", False), ("align_corners", "floor", False)],
)  # fmt: skip
def test_a_nearest_resize_by_a_whole_number_repeats_places(transform, nearest, is_copy):
    text = f"""agraph (float[1, 2, h, w] x) => (float[1, 2, h2, w2] y) {{
        s = Constant<value = float[4] {{1, 1, 2, 3}}>()
        y = Resize<mode = "nearest", coordinate_transformation_mode = "{transform}", nearest_mode = "{nearest}">(x, , s)
    }}"""
    resized = model(text)
    net = tec.compile(resized, "llvm", cache=False)
    assert is_copy == (len(net.report.functions) == 1)
    peer = ort.InferenceSession(resized.SerializeToString(), providers=["CPUExecutionProvider"])
    for h, w in [(1, 1), (3, 5), (2, 16), (4, 33)]:
        x = np.random.default_rng(h).standard_normal((1, 2, h, w)).astype("float32")
        np.testing.assert_array_equal(net.run({"x": x})[0], peer.run(None, {"x": x})[0])
