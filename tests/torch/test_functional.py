"""Exported graphs are taken without a second trace where their writes are whole tensors; all others go through torch's decompositions, and all are right."""

import pytest
import torch
from tec_torch import export, functional
from torch import nn
from torch.nn import functional as F

import tec


class Chain(nn.Module):
    """Writes of values that nothing else sees, as networks have them."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)), inplace=True)
        y += x.mean()
        z = F.hardswish(y, inplace=True)
        return torch.flatten(F.dropout(z, 0.5, self.training) * y, 1)


class ReadBefore(nn.Module):
    """What was read before a write keeps its values."""

    def forward(self, x):
        y = x + 1
        z = y * 2
        y.mul_(3)
        return z + y, y


class Views(nn.Module):
    """A write through a view, and a view of what is written later."""

    def forward(self, x):
        y = x * 2
        y[:, 0] += 1
        flat = y.view(-1)
        y.relu_()
        return flat, y


class Parts(nn.Module):
    """One part of a split is written."""

    def forward(self, x):
        y = x * 2
        a, b = y.split(2)
        a.neg_()
        return y, b


class Inputs(nn.Module):
    """The argument itself is written."""

    def forward(self, x):
        x.add_(1)
        return x * 2


class Narrow(nn.Module):
    """A product in float64 that is written into float32."""

    def forward(self, x):
        y = x + 1
        y.mul_(torch.full(y.shape, 1 / 3, dtype=torch.float64))
        return y


class Differences(nn.Module):
    def forward(self, x):
        alone = torch.diff(x, n=0, prepend=x)  # torch leaves out what would go before
        return torch.diff(x, n=2, dim=1), torch.diff(x > 0), torch.diff(x, prepend=x[:, :1], append=x[:, 1:3]), alone


@pytest.mark.parametrize(
    "made, is_direct",
    [(Chain, True), (ReadBefore, True), (Differences, True), (Views, False), (Parts, False), (Inputs, False), (Narrow, False)],
)  # fmt: skip
def test_writes(made, is_direct):
    torch.manual_seed(0)
    module = made().eval()
    x = torch.randn(4, 3, 6, 6) if made is Chain else torch.randn(4, 6)
    with torch.no_grad():
        exported = torch.export.export(module, (x.clone(),), strict=False)
        assert (functional.functional(exported.graph_module.graph) is not None) == is_direct
        given = x.clone(), x.clone()
        want, got = module(given[0]), tec.compile(module, "llvm", args=(x.clone(),))(given[1])
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(given[1], given[0])


def test_the_users_program_stays_as_it_was():
    exported = torch.export.export(Chain().eval(), (torch.randn(2, 3, 4, 4),), strict=False)
    before = str(exported.graph_module.graph)
    program, made = export.program_of(exported)
    assert not made.failed and program.exported is exported and "relu_" in before
    assert str(exported.graph_module.graph) == before
