"""tec.compile of modules and of exported programs: called as the module is, right at every size, and honest about what it lacks."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tec


class Block(nn.Module):
    """A residual block, as resnets have them."""

    def __init__(self, n):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return F.relu(y)


class Small(nn.Module):
    """A resnet in small."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        self.block, self.pool, self.fc = Block(8), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.block(self.stem(x))), 1))


class Decoder(nn.Module):
    """Attention with a mask, embeddings, a gelu, tied weights; keyword arguments and a dict of results."""

    def __init__(self):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(31, 16), nn.LayerNorm(16)
        self.qkv, self.out, self.up = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, ids, mask=None):
        b, s = ids.shape
        x = self.tokens(ids)
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, 4, 4).permute(2, 0, 3, 1, 4)
        bias = None if mask is None else mask[:, None, None, :].bool()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, 16))
        return {"logits": F.linear(F.gelu(self.up(x)), self.tokens.weight), "hidden": x}


def settled(module):
    """In evaluation, its running statistics somewhere."""
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return module.eval()


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_module_is_called_as_it_was():
    m, x = settled(Small()), torch.randn(2, 3, 32, 32)
    net = tec.compile(m, "llvm", args=(x,))
    y = net(x)
    assert isinstance(y, torch.Tensor) and not y.requires_grad
    close(y, m(x).detach())
    np.testing.assert_allclose(net.run({"x": x.numpy()})[0], y.numpy(), rtol=1e-6)
    close(net(x.to(memory_format=torch.channels_last)), y)
    with pytest.raises(tec.ArgumentError, match="other arguments"):
        net(x, x)
    with pytest.raises(tec.ArgumentError, match="float64"):
        net(x.double())
    with pytest.raises(tec.ArgumentError, match="has shape"):
        net(x[:1])


def test_outputs_are_the_networks_memory():
    m, x = settled(Small()), torch.randn(1, 3, 32, 32)
    net = tec.compile(m, "llvm", args=x)
    first, second = net(x), net(2 * x)
    assert first.data_ptr() != second.data_ptr()
    close(first, m(x).detach())  # the second run left it alone


def test_an_open_batch_and_length():
    m, ids = Decoder().eval(), torch.randint(0, 31, (1, 6))
    net = tec.compile(m, "llvm", args={"ids": ids}, shapes={"ids": ("batch", "length")})
    assert sorted(net.open_sizes) == ["batch", "length"]
    for shape in ((1, 6), (3, 4), (2, 1), (5, 9)):
        ids = torch.randint(0, 31, shape)
        got, want = net(ids=ids), m(ids)
        assert list(got) == ["logits", "hidden"]
        close(got["logits"], want["logits"].detach())
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[1, 4:] = 0
    ids = torch.randint(0, 31, (2, 6))
    masked = tec.compile(m, "llvm", args=(ids, mask), shapes={"ids": ("batch", 6), "mask": ("batch", 6)})
    close(masked(ids, mask)["logits"], m(ids, mask)["logits"].detach())
    close(masked(ids, mask=mask)["hidden"], m(ids, mask)["hidden"].detach())


def test_an_exported_program_and_a_file_of_one(tmp_path):
    m, x = settled(Small()), torch.randn(2, 3, 32, 32)
    exported = torch.export.export(m, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n", max=8)}}, strict=False)
    net = tec.compile(exported, "llvm")
    close(net(x), m(x).detach())
    with pytest.raises(tec.ArgumentError, match="<= 8"):
        net(torch.randn(9, 3, 32, 32))
    torch.export.save(exported, tmp_path / "small.pt2")
    again = tec.compile(tmp_path / "small.pt2", "llvm")
    close(again(x), m(x).detach())
    again.save(tmp_path / "small.tec")
    np.testing.assert_allclose(
        tec.load(tmp_path / "small.tec").run([x.numpy()])[0], m(x).detach(), rtol=1e-4, atol=1e-5
    )


def test_changed_weights_are_noticed():
    m, x = settled(Small()), torch.randn(1, 3, 32, 32)
    net = tec.compile(m, "llvm", args=(x,))
    with torch.no_grad():
        m.fc.bias.add_(1)
    with pytest.raises(tec.ArgumentError, match=r"weights were changed.*p_fc_bias"):
        net.run([x.numpy()])
    close(net(x), m(x).detach())
    compiled = net._runner.network
    m.load_state_dict({k: v + 0.01 if k.startswith("fc") else v for k, v in m.state_dict().items()})
    close(net(x), m(x).detach())
    with torch.no_grad():
        m.fc.bias.mul_(3)  # an input by now: no compilation
    compiled = net._runner.network
    close(net(x), m(x).detach())
    assert net._runner.network is compiled


class Counter(nn.Module):
    """A buffer that every call writes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x.sum(0)
        return x * self.total


def test_buffers_that_a_call_writes():
    m, other = Counter(), Counter()
    x = torch.randn(2, 3)
    net = tec.compile(m, "llvm", args=(x,))
    for _ in range(3):
        close(net(x), other(x))
    close(m.total, other.total)


class Odd(nn.Module):
    def forward(self, x):
        y = torch.linalg.svdvals(x)  # tec has none
        return y + 1


def test_what_is_missing_is_named_with_the_users_line():
    with pytest.raises(tec.ImportModelError, match=r"no conversion of aten.*svd") as e:
        tec.compile(Odd(), "llvm", args=(torch.randn(3, 3),))
    assert e.value.where.file == __file__
    with open(__file__) as f:
        assert "svdvals" in f.read().splitlines()[e.value.where.line - 1]
    assert 'backend="tec"' in e.value.hint


def test_arguments_that_do_not_fit():
    m, x = Small().eval(), torch.randn(1, 3, 32, 32)
    with pytest.raises(tec.ImportModelError, match="traced with arguments"):
        tec.compile(m, "llvm")
    with pytest.raises(tec.ImportModelError, match=r"do not fit Small\.forward"):
        tec.compile(m, "llvm", args=(x, x, x))
    with pytest.raises(tec.ImportModelError, match="no argument image"):
        tec.compile(m, "llvm", args=(x,), shapes={"image": ("n", 3, 32, 32)})
    with pytest.raises(tec.ImportModelError, match="its example is of shape"):
        tec.compile(m, "llvm", args=(x,), shapes={"x": ("n", 3, 64, 64)})
    with pytest.raises(tec.ImportModelError, match=r"torch\.export cannot take"):
        tec.compile(m, "llvm", args=(torch.randn(1, 4, 32, 32),))


def test_the_remedy_of_what_a_network_does_not_take():
    class Sizes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0].sum()

    class Next(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    x = torch.randn(2, 5)
    with pytest.raises(tec.ImportModelError, match="a size that values decide on") as e:
        tec.compile(Sizes(), "llvm", args=(x,))
    assert 'backend="tec"' in e.value.hint
    with pytest.raises(tec.ArgumentError, match="argument x is ndarray") as e:
        tec.compile(Next(), "llvm", args=(x,))(x.numpy())
    assert e.value.hint == 'net.run({"x": x}) takes arrays of NumPy'


class AddOne(torch.nn.Module):
    def forward(self, x):
        return x + 1


@pytest.mark.parametrize(
    "mistake, remedy",
    [
        (lambda m, x: tec.compile(m, args=(x, x, x)), "in forward's order"),
        (lambda m, x: tec.compile(torch.export.export(m, (x,)), args=(x,)), "leave args out"),
        (lambda m, x: tec.compile(m, args=(x,), shapes={"x": ("a", "b")}), "for each dimension"),
        (lambda m, x: tec.compile(m, args=(x,), shapes={"x": (4,)}), "the example's sizes"),
    ],
)
def test_wrong_examples_are_told_with_a_remedy(mistake, remedy):
    with pytest.raises(tec.ImportModelError) as caught:
        mistake(AddOne(), torch.ones(3))
    assert remedy in caught.value.hint
