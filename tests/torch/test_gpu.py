"""On an NVIDIA GPU: modules, torch.compile and training on tensors of the device, nothing copied. `pytest -m gpu tests/torch`."""

import pytest
import tec_torch
import torch
from tec_torch import dynamo
from torch import nn

import tec

from .test_compile import Decoder, Small, close, settled
from .test_dynamo import Pictures

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device"),
]


def near(got, want):
    """Against torch's own kernels, whose sums have another order."""
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-4)


def test_a_module_on_the_device():
    m, x = settled(Small()).cuda(), torch.randn(2, 3, 32, 32, device="cuda")
    net = tec.compile(m, target="cuda", args=(x,))
    with torch.no_grad():
        got = net(x)
        assert got.is_cuda
        near(got, m(x))


def test_outputs_are_torchs_memory_and_inputs_are_read_where_they_lie():
    m, x = settled(Small()).cuda(), torch.randn(2, 3, 32, 32, device="cuda")
    net = tec.compile(m, target="cuda", args=(x,))
    net(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    first = net(x)
    made = torch.cuda.memory_allocated() - before
    # The output alone, rounded up: no copy of the input.
    assert first.is_cuda and first.nbytes <= made <= first.nbytes + 512
    kept = first.clone()
    second = net(x + 1)
    torch.cuda.synchronize()
    assert torch.equal(first, kept) and not torch.equal(first, second)  # a later call leaves an earlier output as it is


def test_a_call_waits_for_what_torch_has_queued():
    m = nn.Linear(512, 512).cuda().eval()
    net = tec.compile(m, target="cuda", args=(torch.randn(512, 512, device="cuda"),))
    big = torch.randn(512, 512, device="cuda")
    with torch.no_grad():
        for _ in range(20):
            x = big
            for _ in range(10):
                x = torch.tanh(x @ big) + 0.1
            got = net(x)
            near(got * 1.0, m(x))


def test_the_backend():
    m = Decoder().eval().cuda()
    fast = torch.compile(m, backend=dynamo.backend)
    ids = torch.randint(0, 31, (2, 6), device="cuda")
    with torch.no_grad():
        near(fast(ids)["logits"], m(ids)["logits"])


def test_another_stream():
    m, x = settled(Small()).cuda(), torch.randn(2, 3, 32, 32, device="cuda")
    net = tec.compile(m, target="cuda", args=(x,))
    with torch.no_grad():
        want = m(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            near(net(x), want)


def test_a_training_step():
    m, other = Pictures().cuda(), Pictures().cuda()
    other.load_state_dict(m.state_dict())
    x, y = torch.randn(4, 3, 16, 16, device="cuda"), torch.randint(0, 5, (4,), device="cuda")
    for module, call in ((m, torch.compile(m, backend=dynamo.backend)), (other, other)):
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(call(x), y).backward()
            optimizer.step()
    for a, b in zip(m.parameters(), other.parameters()):
        near(a.detach(), b.detach())


def test_changed_weights():
    m, x = settled(Small()).cuda(), torch.randn(2, 3, 32, 32, device="cuda")
    net = tec.compile(m, target="cuda", args=(x,))
    with torch.no_grad():
        m.fc.weight.mul_(2)
        near(net(x), m(x))
        close(net(x), net(x))


class Picks(nn.Module):
    def forward(self, x, y):
        return x.gather(1, y[:, None]).mean()


def test_an_index_outside_is_told_by_a_later_call():
    call = torch.compile(Picks().cuda(), backend=dynamo.backend, options={"strict": True})
    x, y = torch.randn(5000, 9, device="cuda"), torch.randint(0, 9, (5000,), device="cuda")
    bad = y.clone()
    bad[4321] = 9
    for _ in range(3):
        near(call(x, y), Picks()(x, y))
    call(x, bad)
    with pytest.raises(tec.ArgumentError, match="outside of -9 to 8"):
        tec_torch.synchronize()
    near(call(x, y), Picks()(x, y))
    call(x, bad)
    torch.cuda.synchronize()
    with pytest.raises(tec.ArgumentError, match="outside of -9 to 8"):
        call(x, y)
    near(call(x, y), Picks()(x, y))
    tec_torch.synchronize()


def test_a_captured_call_tells_of_an_index_too():
    call = torch.compile(Picks().cuda(), backend=dynamo.backend, options={"strict": True})
    x, y = torch.randn(5000, 9, device="cuda"), torch.randint(0, 9, (5000,), device="cuda")
    call(x, y), call(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(x, y)
    graph.replay()
    near(out, Picks()(x, y))
    y[17] = -10
    graph.replay()
    with pytest.raises(tec.ArgumentError, match="outside of -9 to 8"):
        tec_torch.synchronize()
    y[17] = 8
    graph.replay()
    tec_torch.synchronize()
    near(out, Picks()(x, y))
