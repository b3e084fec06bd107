"""Special functions, sorted and running statistics, exponentials of matrices, regions of pictures: against torch, with gradients where it has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tec_torch import dynamo
from torch.nn import functional as F

import tec
from tec.graph.operators import run_op
from tec.ops import TensorType, get_op

S = torch.special
STRICT = {"strict": True}
rng = np.random.default_rng(5)

LINE = np.concatenate(
    [np.linspace(-5, 5, 201), np.linspace(-40, 200, 300) * 1.0037, [0.0, -0.0, np.inf, np.nan, 1e-30, 1e30, -3, 0.5]]
)
UNIT = np.concatenate([np.linspace(-1, 1, 201), [1 - 1e-7, 1 - 1e-12, -1 + 1e-10, 1.5, np.nan]])
FUNCTIONS = {
    "erfc": (LINE, S.erfc, {}), "erfcx": (LINE[LINE > -9], S.erfcx, {}), "erfinv": (UNIT, S.erfinv, {}),
    "ndtri": ((UNIT + 1) / 2, S.ndtri, {}), "lgamma": (LINE, torch.lgamma, {}), "digamma": (LINE, S.digamma, {}),
    "bessel_i 0": (LINE[LINE < 80], S.i0, {"order": 0, "scaled": False}), "bessel_i 1": (LINE[LINE < 80], S.i1, {"order": 1, "scaled": False}),
    "bessel_i 0e": (LINE, S.i0e, {"order": 0, "scaled": True}), "bessel_i 1e": (LINE, S.i1e, {"order": 1, "scaled": True}),
    "bessel_j 0": (LINE[abs(LINE) < 1e3], S.bessel_j0, {"order": 0}), "bessel_j 1": (LINE[abs(LINE) < 1e3], S.bessel_j1, {"order": 1}),
    # torch's own trigamma is off by 1e-5 below 0 and by 5e-10 above, and its zeta of infinity is no number.
    **{f"polygamma {n}": (np.abs(LINE) if n == 1 else LINE[LINE < 1e40], lambda t, n=n: torch.polygamma(n, t), {"n": n}) for n in range(4)},
}  # fmt: skip


@pytest.mark.parametrize("dtype, near", [("float32", 3e-6), ("float64", 1e-6)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, dtype, near):
    """In float64 torch's Bessel functions J are right to 2e-7 alone; the others are held to 1e-9."""
    points, f, attrs = FUNCTIONS[name]
    x, op = points.astype(dtype), get_op(name.split()[0])
    near = near if dtype == "float32" or "_j" in name else 1e-9
    types = [TensorType(dtype, x.shape)]
    with np.errstate(all="ignore"):
        (got,) = run_op(op, attrs, [x], types, op.infer(types, attrs))
    np.testing.assert_allclose(got, f(torch.from_numpy(x)).numpy(), rtol=near, atol=near)


def held(f, *given, near=1e-4, learns=True):
    """Values and gradients of a function of tensors, through the backend and not; `learns`: those of its first argument are asked for."""
    found = []
    for call in (f, torch.compile(f, backend=dynamo.backend, options=STRICT, fullgraph=True)):
        mine = [given[0].clone().requires_grad_(learns), *given[1:]]
        out = call(*mine)
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        if learns:
            torch.manual_seed(1)
            first = outs[0]
            outs.append(torch.autograd.grad(first, mine[0], torch.randn(first.shape))[0])
        found.append(outs)
    torch._dynamo.reset()
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=near, atol=near, equal_nan=True)


def drawn(*shape):
    return torch.from_numpy(rng.normal(size=shape).astype("float32"))


X = drawn(3, 21) * 3
P = X.abs() + 0.3
U = torch.from_numpy(rng.uniform(-0.95, 0.95, (3, 21)).astype("float32"))
GAPS = torch.where(X > 2, torch.nan, X)
FEW = torch.from_numpy(rng.integers(0, 6, (5, 30)))
COUNTS = torch.tensor([2, 0, 3, 4])
CASES = {
    "gamma functions": (lambda x: torch.lgamma(x) + torch.digamma(x) + torch.polygamma(2, x) * 1e-3, P),
    "inverses": (lambda x: torch.erfinv(x) + S.ndtri(x * 0.5 + 0.5), U),
    "tails": (lambda x: torch.erfc(x) + S.erfcx(x) + S.log_ndtr(x * 9), U),
    "Bessel functions": (lambda x: S.i0e(x) + S.i1e(x) + torch.i0(x * 0.3) + S.i1(x * 0.3), X),
    "a distribution": (lambda x: torch.distributions.Beta(x, x + 1, validate_args=False).log_prob(torch.tensor(0.3)), P),
    "median": (lambda x: tuple(x.median(1)), X), "median of all": (lambda x: x.median(), X),
    "nanmedian": (lambda x: x.nanmedian(1)[0], GAPS), "log of a running sum": (lambda x: x.logcumsumexp(1), X),
    "cummax": (lambda x: tuple(x.cummax(1)), FEW.float()), "cummin": (lambda x: tuple(x.cummin(0)), GAPS),
    "matrix_exp": (torch.matrix_exp, torch.stack([drawn(4, 4) * k for k in (0.1, 1, 3)])),
    "repeat_interleave": (lambda x: x.repeat_interleave(COUNTS, dim=0, output_size=9), drawn(4, 3)),
    "rrelu": (lambda x: F.rrelu(x, training=False), X), "pdist": (lambda x: F.pdist(x), X), "dist": (lambda x: torch.dist(x, P), X), "ldexp": (lambda x: torch.ldexp(x, FEW[:3, :21] - 3), X),
    "fractional windows": (lambda x: F.fractional_max_pool2d(x, 3, output_size=(4, 5), _random_samples=U[:2, :4].abs().reshape(2, 2, 2)), drawn(2, 2, 11, 12)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_calls_and_gradients(name):
    held(*CASES[name])


def test_what_has_no_gradient():
    bits = torch.cat([X, X * 1e-30, X * 1e30])
    some = FEW[:3, :21] * 12 - 30
    zeros = torch.where(X.abs() < 1.5, -0.0, torch.where(X > 4, torch.nan, X.relu())).half()

    def f(x):
        common = torch.gcd(some, some[:1] + 6), torch.lcm(some, FEW[:3, :21])
        wanted = torch.nonzero_static(x > 0, size=70), torch.nonzero_static(x > 4, size=5, fill_value=7)
        values, places = FEW.mode(1)
        at_places = FEW.gather(1, places.unsqueeze(1)), some.median(0).values
        return (
            *FEW.int().cummax(0), *FEW.cummin(1), *(FEW > 2).cummin(1), *zeros.cummax(1), *zeros.cummin(1), torch.nextafter(x, P), torch.signbit(x), torch.angle(x), *torch.frexp(bits), *common, *wanted, values, *at_places,
        )  # fmt: skip

    held(f, X, near=1e-6, learns=False)


def test_median_of_what_is_no_number():
    held(lambda x: tuple(x.median(1)), GAPS, learns=False)
    held(lambda x: tuple(x.nanmedian(1)), torch.full((2, 3), torch.nan), learns=False)


MASK = torch.from_numpy(rng.random((3, 21)) > 0.5)
ROWS = torch.tensor([True, False, True])


@pytest.mark.parametrize("name", ["each its own", "rows", "one row for all", "columns", "added"])
def test_values_put_where_a_mask_says(name):
    """With the gradients of the values, but of one row for all: its is a sum of as many rows as values decide."""
    mask, values, whole = {
        "each its own": ([MASK], drawn(int(MASK.sum())), X), "rows": ([ROWS], drawn(2, 21), X),
        "one row for all": ([ROWS], drawn(1, 21), X), "columns": ([None, MASK[0]], drawn(3, int(MASK[0].sum())), X),
        "added": ([MASK], drawn(int(MASK.sum())), X),
    }[name]  # fmt: skip
    held(lambda v: torch.ops.aten.index_put(whole, mask, v, name == "added"), values, learns=name != "one row for all")


def test_rows_of_scores_that_are_all_hidden():
    """They weigh nothing, as in torch's own attention where a mask hides all keys of a query; scores that are no numbers stay so."""
    scores = drawn(5, 4)
    scores[2] = scores[3, :2] = -torch.inf
    scores[4, 0] = torch.nan
    held(lambda x: torch.ops.aten._safe_softmax(x, -1), scores, learns=False)
    seen = torch.from_numpy(rng.random((2, 5, 5)) > 0.4)
    seen[0, 1] = False
    held(lambda q: F.scaled_dot_product_attention(q, q * 2, q + 1, attn_mask=seen), drawn(2, 5, 8))

    class Own(torch.nn.Module):
        def forward(self, q, hidden):
            return torch.ops.aten._safe_softmax(q @ (q * 2).mT / 3 + hidden, -1) @ q

    q, hidden = drawn(2, 3, 5, 8), torch.zeros(2, 1, 5, 5).masked_fill(~seen[:, None], -torch.inf)
    net = tec.compile(Own(), "llvm", args=(q, hidden))
    assert any("attention" in name for name in net.report.choices), "still one operator"
    torch.testing.assert_close(net(q, hidden), Own()(q, hidden), rtol=1e-4, atol=1e-5)


BOXES = torch.tensor(
    [[0, 1.3, 2.1, 9.7, 8.2], [1, 0, 0, 15, 11], [1, -3, -4, 22, 19], [0, 5.2, 5.1, 5.9, 5.3], [0, 3, 3, 2, 2.0]]
)


@pytest.mark.parametrize("name", ["means", "means, old corners", "largest", "channels of their own"])
def test_regions(name):
    try:
        ops = pytest.importorskip("torchvision.ops")
    except RuntimeError:  # of another build of torch
        pytest.skip("torchvision's operators")
    f = {
        "means": lambda x: ops.roi_align(x, BOXES, (3, 4), 0.7, -1, True),
        "means, old corners": lambda x: ops.roi_align(x, BOXES, (2, 3), 1.0, 0, False),
        "largest": lambda x: ops.roi_pool(x, BOXES, (3, 4), 0.7),
        "channels of their own": lambda x: ops.ps_roi_align(x, BOXES, (2, 3), 0.7, 2),
    }[name]
    held(f, drawn(2, 12, 12, 16), learns=name != "largest")
