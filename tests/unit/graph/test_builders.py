"""Layers built by hand against NumPy: no frontend and no model is involved."""

import numpy as np
import pytest

import tec
from tec.graph import Graph, run_graph
from tec.graph.builders import Builder, attention, conv, fourier, matmul, norm, quantize
from tec.graph.builders.recurrent import Layer, layer
from tec.ops.dims import Dim

rng = np.random.default_rng(7)


def rand(*shape):
    return rng.standard_normal(shape).astype(np.float32)


class Net:
    """A graph whose inputs hold given arrays."""

    def __init__(self):
        self.graph = Graph("main")
        self.b = Builder(self.graph, "t")
        self.feeds = {}

    def input(self, array):
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return self.graph.input(name, str(array.dtype), array.shape)

    def run(self, *values):
        self.graph.set_outputs(values)
        self.graph.check()
        return run_graph(self.graph, self.feeds)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_attention_with_grouped_heads_and_a_causal_mask():
    q, k, v = rand(2, 4, 3, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 8)
    net = Net()
    mask = attention.causal_mask(net.b, 3, 5)
    y = attention.attend(net.b, *(net.input(a) for a in (q, k, v)), mask, 8**-0.5)
    k2, v2 = (np.repeat(a, 2, 1) for a in (k, v))
    scores = q @ k2.swapaxes(2, 3) * 8**-0.5
    scores = np.where(np.arange(5)[None] <= np.arange(2, 5)[:, None], scores, -1e30)
    np.testing.assert_allclose(net.run(y)[0], softmax(scores) @ v2, rtol=1e-5, atol=1e-6)


def test_a_cache_is_written_at_each_entrys_own_position():
    past, new = rand(2, 1, 4, 3), rand(2, 1, 2, 3)
    position = np.array([[1, 2], [3, 4]])
    net = Net()
    y = attention.write_cache(net.b, net.input(past), net.input(new), net.input(position), 6)
    want = np.concatenate([past, np.zeros((2, 1, 2, 3), np.float32)], 2)
    for n in range(2):
        want[n, :, position[n]] = new[n].swapaxes(0, 1)
    np.testing.assert_array_equal(net.run(y)[0], want)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotated_pairs_turn_by_their_angle(interleaved):
    x, angles = rand(1, 3, 2, 6), rand(5, 2)  # 4 of 6 features are turned
    net = Net()
    place = net.b.const(np.array([[0, 2, 4]]))
    y = attention.rotary(net.b, net.input(x), place, net.input(np.cos(angles)), net.input(np.sin(angles)), interleaved)
    first, second = ((0, 2), (1, 3)) if interleaved else ((0, 1), (2, 3))
    z = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles[[0, 2, 4]])[:, None]
    want = x.copy()
    want[..., first], want[..., second] = z.real, z.imag
    np.testing.assert_allclose(net.run(y)[0], want, rtol=1e-5, atol=1e-6)


TANH, SIGMOID = ("tanh", 0.0, 0.0), ("sigmoid", 0.0, 0.0)


def weights(gates):
    """(gates * 4 rows; 5 features, 4 units), of one direction."""
    return rand(1, gates * 4, 5), rand(1, gates * 4, 4), rand(1, gates * 8)


def turned(w, r, bias):
    return w[0].T, r[0].T, *np.split(bias[0], 2)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_rnn_stops_each_entry_at_its_length(reverse):
    net, x, h0, lengths = Net(), rand(3, 2, 5), rand(2, 4), np.array([3, 1])
    parts = weights(1)
    kind = Layer("rnn", (reverse,), ((TANH,),))
    w, r, bias = map(net.input, parts)
    rows, last = layer(net.b, kind, net.input(x), w, r, [net.input(h0[None])], bias, lengths=net.input(lengths))
    w, r, wb, rb = turned(*parts)
    h, want = h0, np.zeros((3, 2, 4), np.float32)
    for t in reversed(range(3)) if reverse else range(3):
        inside = (t < lengths)[:, None]
        h = np.where(inside, np.tanh(x[t] @ w + wb + h @ r + rb), h)
        want[t] = np.where(inside, h, 0)
    got = net.run(rows, last)
    np.testing.assert_allclose(got[0][:, 0], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1][0], h, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("after", [False, True])
def test_a_gru_resets_before_or_after_the_product(after):
    net, x, h0 = Net(), rand(3, 2, 5), rand(2, 4)
    parts = weights(3)
    kind = Layer("gru", (False,), ((SIGMOID, TANH),), reset_after=after)
    w, r, bias = map(net.input, parts)
    _, last = layer(net.b, kind, net.input(x), w, r, [net.input(h0[None])], bias)
    w, r, wb, rb = turned(*parts)
    h = h0
    for xt in x:
        a, s = xt @ w + wb, h @ r + rb
        z, rs = sigmoid(a[:, :4] + s[:, :4]), sigmoid(a[:, 4:8] + s[:, 4:8])
        inner = rs * s[:, 8:] if after else (rs * h) @ r[:, 8:] + rb[8:]
        h = (1 - z) * np.tanh(a[:, 8:] + inner) + z * h
    np.testing.assert_allclose(net.run(last)[0][0], h, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("coupled", [False, True])
def test_an_lstm_with_peepholes(coupled):
    net, x, h0, c0, p = Net(), rand(3, 2, 5), rand(2, 4), rand(2, 4), rand(3, 4)
    parts = weights(4)
    kind = Layer("lstm", (False,), ((SIGMOID, TANH, TANH),), coupled=coupled)
    w, r, bias, peep = map(net.input, (*parts, p.reshape(1, 12)))
    _, *last = layer(net.b, kind, net.input(x), w, r, [net.input(h0[None]), net.input(c0[None])], bias, peep)
    w, r, wb, rb = turned(*parts)
    h, c = h0, c0
    for xt in x:
        i, o, f, n = np.split(xt @ w + wb + h @ r + rb, 4, 1)
        i, f = sigmoid(i + p[0] * c), sigmoid(f + p[2] * c)
        c = (1 - i if coupled else f) * c + i * np.tanh(n)
        h = sigmoid(o + p[1] * c) * np.tanh(c)
    for got, want in zip(net.run(*last), (h, c)):
        np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-5)


def test_normalizations():
    x, scale, bias = rand(2, 4, 3, 5), rand(4), rand(4)
    net = Net()
    b, v = net.b, net.input(x)
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    y0 = norm.batch_norm(b, v, *(net.input(a) for a in (scale, bias, mean, var)), 1e-5)
    y1 = norm.scale_channels(b, norm.group_norm(b, v, 2, 1e-5)[0], b.const(scale), b.const(bias))
    y2 = norm.rms_norm(b, v, b.const(scale[:3, None] * np.ones(5, np.float32)), -2, 1e-5)[0]
    at = (slice(None), None, None)
    want0 = (x - mean[at]) / np.sqrt(var[at] + 1e-5) * scale[at] + bias[at]
    g = x.reshape(2, 2, -1)
    g = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    want2 = x / np.sqrt((x**2).mean((2, 3), keepdims=True) + 1e-5) * scale[:3, None]
    for got, want in zip(net.run(y0, y1, y2), (want0, g * scale[at] + bias[at], want2)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_transposed_convolution_by_phases_is_the_operators():
    x, w = rand(1, 2, 4, 3), rand(2, 3, 3, 2)
    net = Net()
    args = net.input(x), net.input(w)
    fast = conv.conv_transpose(net.b, *args, [2, 3], [1, 1], [1, 0], [8, 9], 1)
    plain = net.b.op(
        "conv_transpose", *args, strides=(2, 3), dilations=(1, 1), before=(1, 0), out_space=(8, 9), groups=1
    )
    got = net.run(fast, plain)
    np.testing.assert_allclose(got[0], got[1], rtol=1e-5, atol=1e-6)


def test_products_and_determinants():
    x, y, m = rand(2, 3, 4), rand(4), rand(3, 3)
    net = Net()
    got = net.run(matmul.matmul(net.b, net.input(x), net.input(y)), matmul.determinant(net.b, net.input(m)))
    np.testing.assert_allclose(got[0], x @ y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], np.linalg.det(m), rtol=1e-4)
    with pytest.raises(tec.ImportModelError, match="determinant of float32"):
        matmul.determinant(net.b, net.input(rand(2, 3)))


def test_a_quantized_product_is_near_the_real_one():
    x, w, scale = rand(3, 16), rng.integers(-127, 128, (16, 5)).astype(np.int8), np.float32([0.1, 0.2, 0.3, 0.4, 0.5])
    net = Net()
    y = quantize.quantized_product(net.b, net.input(x), net.input(w), net.input(scale), None)
    want = x @ (w * scale)
    assert np.abs(net.run(y)[0] - want).max() < 0.02 * np.abs(want).max()


def test_heads_that_do_not_divide_are_refused():
    net = Net()
    with pytest.raises(tec.ImportModelError, match="3 heads of"):
        attention.split_heads(net.b, net.input(rand(1, 2, 8)), 3)


def test_a_transform_of_16_bits_has_lengths_that_these_lack():
    """70,001 is no float16: angles of an open length are made in float32, and rounded as those of a known one are."""
    n, rows, wave = 70_001, 8, 5
    x = np.cos(2 * np.pi * wave * np.arange(n) / n).astype("float16")[None]
    g = Graph("g")
    real, _ = fourier.transform(Builder(g), (g.input("x", "float16", (1, Dim("n"))), None), 1, rows=rows, scale=2 / n)
    g.set_outputs([real], ["y"])
    (y,) = tec.compile(g, "llvm", cache=False).run([x])
    np.testing.assert_allclose(y[0], np.arange(rows) == wave, atol=1e-3)
