"""The two exporters of torch.onnx, at opsets with and without an operator for what a module does: one list of kernels."""

import contextlib
import importlib
import io

import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tec.graph.optimize import optimize
from tec.graph.parts import part_of
from tec.graph.programs import signature_of
from tec.graph.sizes import sizes_of_group
from tec.target import Target

tec_onnx = pytest.importorskip("tec_onnx")
pytest.importorskip("onnxscript")

WRITTEN = (("old", 14), ("old", 17), ("dynamo", 18), ("dynamo", 23))


class Attention(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(64, 64) for _ in range(4))
        self.causal = causal

    def forward(self, x, mask=None):
        q, k, v = (f(x).view(2, 10, 4, 16).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(2, 10, 64))


class PlacesFirst(nn.Module):
    """torch's own attention, whose heads are in the batch: places lie outermost."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        nn.init.normal_(self.attention.out_proj.bias)  # of zeros, one exporter leaves it out

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Gated(nn.Module):
    """Squeeze and excitation: an average over the picture, which the exporters write with axes from either end."""

    def __init__(self):
        super().__init__()
        self.conv, self.gate = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 1)

    def forward(self, x):
        y = F.hardswish(self.conv(x))
        return y * F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))


class RootMeanSquare(nn.Module):
    """As transformers writes it."""

    def __init__(self):
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(64)), nn.Linear(64, 64)

    def forward(self, x):
        return self.out(self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)))


class ChannelsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class DecoderStep(nn.Module):
    """A layer of a decoder for one token: rotary places, keys that heads share, and caches that a row is appended to."""

    def __init__(self):
        super().__init__()
        self.norm, self.q, self.kv, self.out = nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)
        self.forward_part = feed_forward(nn.SiLU())
        turns = torch.outer(torch.arange(12.0), 0.1 ** torch.arange(8.0)).repeat(1, 2)
        self.register_buffer("cos", turns.cos()[11:])
        self.register_buffer("sin", turns.sin()[11:])

    def turned(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x, keys, values):
        y = self.norm(x)
        q = self.turned(self.q(y).view(2, 1, 4, 16).transpose(1, 2))
        k, v = self.kv(y).view(2, 1, 4, 16).transpose(1, 2).chunk(2, 1)
        keys, values = torch.cat((keys, self.turned(k)), 2), torch.cat((values, v), 2)
        k, v = (t[:, :, None].expand(2, 2, 2, 12, 16).reshape(2, 4, 12, 16) for t in (keys, values))
        scores = (q @ k.transpose(2, 3)) * 0.25
        y = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 1, 64))
        return y + self.forward_part(y), keys, values


class Residual(nn.Module):
    """A block of a residual network: folded norms, a strided shortcut, a pooling ahead, and a class at the end."""

    def __init__(self):
        super().__init__()
        self.long = nn.Sequential(
            nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16)
        )  # fmt: skip
        self.short, self.out = nn.Sequential(nn.Conv2d(8, 16, 1, 2), nn.BatchNorm2d(16)), nn.Linear(16, 5)
        for norm in (self.long[1], self.long[4], self.short[1]):
            nn.init.normal_(norm.bias)  # a bias of zeros one exporter leaves out

    def forward(self, x):
        x = F.max_pool2d(x, 3, 1, 1)
        y = F.relu(self.long(x) + self.short(x))
        return self.out(y.mean((2, 3)))


class Masked(nn.Module):
    """A layer whose padded places are looked up by the numbers of texts and places, as transformers does, and whose class has no bias."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(64, 5, bias=False)

    def forward(self, x):
        kept = x[..., 0] > -1
        texts, places = torch.arange(2)[:, None, None, None], torch.arange(10)[None, None, None]
        y = torch.where(kept[texts, places], x[:, None].transpose(2, 3), 0.5)
        return self.out(y.squeeze(1).mean(2))


def feed_forward(act):
    return nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), act, nn.Linear(128, 64))


TEXT, PICTURE = (2, 10, 64), (1, 8, 8, 8)
MODULES = {
    "attention": (Attention, TEXT),
    "causal attention": (lambda: Attention(True), TEXT),
    "gelu": (lambda: feed_forward(nn.GELU()), TEXT),
    "gelu by tanh": (lambda: feed_forward(nn.GELU("tanh")), TEXT),
    "silu": (lambda: feed_forward(nn.SiLU()), TEXT),
    "root mean square": (RootMeanSquare, TEXT),
    "layer norm of channels": (ChannelsLast, PICTURE),
    "places first": (PlacesFirst, TEXT),
    "squeeze and excitation": (Gated, PICTURE),
    "decoder step": (DecoderStep, (2, 1, 64), (2, 2, 11, 16), (2, 2, 11, 16)),
    "residual block": (Residual, PICTURE),
    "masked places": (Masked, TEXT),
}


def export(module, xs, how, opset, path):
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            module, xs, str(path), dynamo=how == "dynamo", opset_version=opset, external_data=False,
            input_names=["x", "keys", "values"][: len(xs)],
        )  # fmt: skip


def kernels(path):
    """The signatures of the kernels of a file."""
    target = Target("llvm")
    with target:
        part = part_of(optimize(tec_onnx.load(path), target))
        return sorted(str(signature_of(g, sizes_of_group(g))) for g in part.groups if not g.is_alias)


@pytest.fixture
def plain_attention():
    """torch's attention by its parts: its own fused operator is one that the older exporter does not know."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("name", MODULES)
def test_one_list_of_kernels(name, tmp_path):
    make, *shapes = MODULES[name]
    torch.manual_seed(0)
    module, xs, path = make().eval(), tuple(torch.randn(s) for s in shapes), tmp_path / "m.onnx"
    found = []
    with torch.no_grad():
        for way in WRITTEN:
            export(module, xs, *way, path)
            found.append(kernels(path))
    assert found[0] and all(f == found[0] for f in found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("name", ["residual block"])
def test_simplified_files_give_the_same_list(name, tmp_path):
    """onnxslim and onnxsim, which fold and rename, each on the older exporter's file. Of linear layers they make Gemm, which is the same work in other words."""
    simplifiers = {"onnxslim": lambda m, name: m.slim(name), "onnxsim": lambda m, name: m.simplify(name)[0]}
    make, *shapes = MODULES[name]
    torch.manual_seed(0)
    module, path = make().eval(), tmp_path / "m.onnx"
    with torch.no_grad():
        export(module, tuple(torch.randn(s) for s in shapes), "old", 17, path)
    first, tried = kernels(path), 0
    for package, simplify in simplifiers.items():
        with contextlib.suppress(ImportError):
            onnx.save(simplify(importlib.import_module(package), str(path)), path.with_name("s.onnx"))
            assert kernels(path.with_name("s.onnx")) == first, package
            tried += 1
    if not tried:
        pytest.skip("neither onnxslim nor onnxsim is installed")
