"""Random numbers under torch.compile: torch's own generator draws them, so a program gets the numbers that eager torch gives it."""

import pytest
import tec_torch
import torch
import torch.nn.functional as F
from tec_torch import dynamo
from torch import nn

STRICT = {"strict": True}


def both(f, *args, dynamic=None):
    """What eager torch and a compiled whole graph give from one state of the generator, and the states behind."""
    found = []
    for call in (f, torch.compile(f, backend=dynamo.backend, options=STRICT, dynamic=dynamic)):
        torch.manual_seed(7)
        found.append((call(*args), torch.get_rng_state()))
    (want, after), (got, own) = found
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert torch.equal(after, own)


NOISY = {
    "rand": lambda x: x + torch.rand(5, 8) * 2,
    "two in order": lambda x: torch.rand(5, 8) - torch.randn(8) + x,
    "around values": lambda x: (torch.normal(x, x.abs()) + torch.normal(x, 2.0) + torch.normal(1.0, x.abs())) * 3,
    "like": lambda x: (x.relu() + torch.randn_like(x.T).T) * 3,
    "integers": lambda x: x[torch.randperm(5)] + torch.randint(2, 9, (5, 1)),
    "exponential": lambda x: x + torch.empty_like(x).exponential_(2.0),
    "uniform": lambda x: x * torch.empty(8).uniform_(-1, 1),
    "gumbel": lambda x: F.gumbel_softmax(x, tau=0.7),
    "dropped": lambda x: F.dropout(x * 2, 0.3).relu(),
    "dropped channels": lambda x: F.dropout1d(x[None] + 1, 0.5),
    "all dropped": lambda x: F.dropout(x + 1, 1.0),
}


@pytest.mark.parametrize("name", NOISY)
def test_numbers_are_torchs(name):
    both(NOISY[name], torch.randn(5, 8))


def test_every_call_draws_anew():
    fast = torch.compile(lambda x: torch.rand(3) + x, backend=dynamo.backend, options=STRICT)
    assert not torch.equal(fast(torch.zeros(3)), fast(torch.zeros(3)))


def test_symbolic_sizes():
    f = torch.compile(
        lambda x: F.dropout(torch.cat([x, x]) * 2, 0.4) + torch.rand(x.shape[0], 1), backend=dynamo.backend, options=STRICT, dynamic=True
    )  # fmt: skip

    def eager(x):
        return F.dropout(torch.cat([x, x]) * 2, 0.4) + torch.rand(x.shape[0], 1)

    for rows in (1, 3):
        x = torch.randn(rows, 4)
        if rows == 1:
            torch.manual_seed(1)
            want = eager(x)
            torch.manual_seed(1)
            torch.testing.assert_close(f(x), want)


class Dropping(nn.Module):
    """A layer of a transformer that is trained: dropout of attention, of both residual paths and within the feed-forward part."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)

    def forward(self, x):
        return self.layer(x)


def test_training_steps_with_dropout():
    torch.manual_seed(0)
    m, x = Dropping().train(), torch.randn(4, 6, 16)
    found = []
    tec_torch.report(reset=True)
    for call in (m, torch.compile(m, backend=dynamo.backend, options=STRICT)):
        m.zero_grad()
        torch.manual_seed(3)
        call(x).square().mean().backward()
        found.append([p.grad.clone() for p in m.parameters()])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    report = tec_torch.report(reset=True)
    assert report.left_calls == 0 and not report.breaks and len(report.graphs) == 2


def test_draws_behind_one_that_values_decide_stay_in_order():
    def f(x):
        first = torch.rand(5, 8)
        chosen = torch.multinomial(x.softmax(-1) + first, 2)
        return x.gather(1, chosen) * 2 + 1 - torch.rand(5, 2)

    x, found = torch.randn(5, 8), []
    for call in (f, torch.compile(f, backend=dynamo.backend)):
        torch.manual_seed(7)
        found.append(call(x))
    torch.testing.assert_close(*found)
