"""The two exporters of torch.onnx, at opsets with and without an operator for what a module does: one list of kernels."""

import contextlib
import io

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
}


def kernels(module, x, how, opset, path):
    """The signatures of the kernels of a module as an exporter writes it."""
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            module, (x,), str(path), dynamo=how == "dynamo", opset_version=opset, input_names=["x"], external_data=False
        )
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
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        first, *others = (kernels(module, x, *way, tmp_path / "m.onnx") for way in WRITTEN)
    assert first and all(o == first for o in others)
