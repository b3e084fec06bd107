"""Branches and loops of torch with their gradients, and attention whose scores a function changes: all of a graph is tec's."""

import pytest
import tec_torch
import torch
from tec_torch import dynamo
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import tec

STRICT = {"strict": True}


def compiled(f):
    return torch.compile(f, backend=dynamo.backend, options=STRICT)


def branch(x):
    return torch.cond(x.sum() > 0, lambda x: (x.sin(), x.sum()), lambda x: (x.cos() * 2, x.mean()), (x,))


def rows(x):
    last, made = scan(lambda state, row: (state * 0.5 + row, state.sin() * row), torch.zeros(5), x)
    return last * made.sum(0)


def test_branches_with_their_gradients():
    fast = compiled(branch)
    for sign in (1, -1):
        values, found = torch.rand(4, 5) * sign, []
        for f in (branch, fast):
            x = values.clone().requires_grad_()
            a, b = f(x)
            (a.sum() + b).backward()
            found.append((a.detach(), b.detach(), x.grad))
        torch.testing.assert_close(found[1], found[0])


def test_rows_one_after_another_with_their_gradients():
    found = []
    for f in (rows, compiled(rows)):
        x = torch.linspace(-1, 1, 35).reshape(7, 5).requires_grad_()
        y = f(x)
        y.sum().backward()
        found.append((y.detach(), x.grad))
    torch.testing.assert_close(found[1], found[0])


def test_a_loop_until_a_condition_of_values():
    def halved(x):
        return while_loop(lambda n, x: x.abs().max() > 1, lambda n, x: (n + 1, x * 0.5), (torch.tensor(0), x))

    fast = compiled(halved)
    for size in (0.5, 3.0, 100.0):
        x = torch.linspace(-size, size, 12)
        torch.testing.assert_close(fast(x), halved(x))


def test_an_exported_branch():
    class Either(torch.nn.Module):
        def forward(self, x):
            return branch(x)

    x = torch.rand(3, 4)
    net = tec.compile(torch.export.export(Either(), (x,)), "llvm")
    for given in (x, -x):
        torch.testing.assert_close(net(given), branch(given))


def test_a_call_in_a_body_that_has_no_conversion_is_named():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: torch.special.zeta(x + 3, x + 1), (x,))

    x = torch.rand(3)
    with pytest.raises(tec.TecError, match=r"cond.*zeta"):
        compiled(f)(x)
    torch._dynamo.reset()
    tec_torch.report(reset=True)
    torch.testing.assert_close(torch.compile(f, backend=dynamo.backend)(x), f(x))
    assert "cond" in str(tec_torch.report())


@pytest.mark.parametrize("kind", ["scores", "mask"])
def test_attention_whose_scores_a_function_changes(kind):
    attention = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = torch.randn(1, 4, 128, 16), torch.randn(1, 2, 128, 16), torch.randn(1, 2, 128, 8)
    slopes = torch.linspace(0.1, 1, 4)

    def f(q, k, v):
        if kind == "scores":
            changed = lambda s, b, h, i, j: torch.tanh(s / 5) * 5 + slopes[h] * (j - i)  # noqa: E731
            return attention.flex_attention(q, k, v, score_mod=changed, enable_gqa=True)
        shown = attention.create_block_mask(
            lambda b, h, i, j: (i >= j) & (i - j < 40), None, None, 128, 128, device="cpu"
        )
        return attention.flex_attention(q, k, v, block_mask=shown, enable_gqa=True)

    torch.testing.assert_close(
        compiled(f)(q, k, v), f(q, k, v), rtol=1e-3, atol=1e-4
    )  # torch has no gradients of it on a CPU
