"""Exported modules with open sizes that their operators tie together or count places from: one network, at several sizes, against torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export

import tec
from tests import seeds


def module(f):
    class Of(nn.Module):
        def forward(self, *args):
            return f(*args)

    return Of().eval()


def check(f, *cases):
    """All sizes of the first case's tensors but 1 are open; each case is run."""
    first, *_ = cases
    held = module(f)
    open_all = [{d: Dim.DYNAMIC for d, n in enumerate(x.shape) if n > 1} for x in first]
    network = tec.compile(export(held, first, dynamic_shapes={"args": tuple(open_all)}, strict=False), "llvm")
    for args in cases:
        got, want = network(*[x.clone() for x in args]), held(*[x.clone() for x in args])
        for a, b in zip(*(x if isinstance(x, (tuple, list)) else (x,) for x in (got, want))):
            assert a.shape == b.shape and a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=2e-4, atol=1e-5)
    return network


def drawn(*shapes):
    g = torch.Generator().manual_seed(seeds.number())
    return tuple(torch.randn(s, generator=g) for s in shapes)


def test_a_slice_that_ends_before_it_begins():
    check(lambda x: x[:-8], drawn((6, 4, 7)), drawn((3, 2, 5)))


def test_a_part_is_put_into_a_whole_of_its_sizes():
    network = check(lambda x, part: torch.slice_scatter(x, part, 1, 0, 1), drawn((6, 8), (6, 1)), drawn((3, 4), (3, 1)))
    with pytest.raises(tec.TecError, match="takes the place"):
        network(*drawn((6, 8), (5, 1)))


@pytest.mark.parametrize("accumulate", [False, True])
def test_values_are_put_at_as_many_indices(accumulate):
    def put(x, values, at):
        return x.index_put((at,), values, accumulate)

    def case(n, m, k):
        return *drawn((n, m), (k, m)), torch.randperm(n, generator=torch.Generator().manual_seed(n))[:k]

    check(put, case(9, 5, 4), case(6, 3, 5))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax"])
def test_updates_along_an_axis_are_reduced(reduce):
    def case(x, source, index):
        at = torch.randint(x[0], index, generator=torch.Generator().manual_seed(seeds.number()))
        return *drawn(x, source), at

    def scatter(x, source, index):
        return torch.scatter_reduce(x, 0, index, source, reduce, include_self=False)

    check(scatter, case((8, 6), (9, 7), (5, 6)), case((3, 7), (5, 9), (4, 5)))


def test_largest_of_windows_and_their_places():
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), drawn((2, 3, 11, 9)), drawn((3, 2, 8, 14)))


def test_adaptive_pooling_to_several_places():
    def pool(x):
        return F.adaptive_avg_pool2d(x, (3, 2)), *F.adaptive_max_pool2d(x, (2, 5), return_indices=True)

    check(pool, drawn((2, 3, 11, 9)), drawn((3, 2, 8, 14)), drawn((3, 2, 6, 10)))


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_diagonals(offset):
    check(lambda x: torch.diagonal(x, offset, 0, 2), drawn((7, 4, 9)), drawn((8, 3, 5)))


def test_values_are_put_where_a_mask_holds():
    def put(x, source, mask):
        return x.masked_scatter(mask, source), torch.index_put(x, (mask,), source[:1, 0])

    def case(n, m):
        x, source = drawn((n, m), (n, m))
        return x, source, x > 0.3

    check(put, case(6, 5), case(9, 4))


def test_windows_and_running_maxima_along_open_axes():
    check(lambda x: (x.unfold(1, 3, 2), *x.cummax(1), *x.cummin(0)), drawn((4, 9)), drawn((3, 14)))


def test_normalization_of_open_channels():
    def normalized(x, mean, variance):
        return F.batch_norm(x, mean, variance.exp())

    check(normalized, drawn((2, 5, 6), (5,), (5,)), drawn((3, 4, 7), (4,), (4,)))


def test_open_channels_are_shuffled_by_groups():
    check(lambda x: F.channel_shuffle(x, 4), drawn((2, 8, 5, 6)), drawn((3, 12, 4, 5)))


def test_causal_attention_of_open_heads():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    check(attend, drawn(*[(2, 3, 6, 8)] * 3), drawn(*[(3, 2, 5, 4)] * 3))


class _Skips(nn.Module):
    """Halved, doubled, and joined with what it was: the sides must be even, which torch's guards say."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.Conv2d(7, 2, 3, padding=1)

    def forward(self, x):
        y = self.middle(self.down(x).relu())
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        y = self.up(torch.cat([y, x], 1))
        return y + y.mean((2, 3), keepdim=True)


def test_sizes_that_guards_make_equal_are_one():
    """Once the joined image had another form of its sides than torch's, and most calls behind it stayed torch's."""
    m = _Skips().eval()
    fast = torch.compile(m, backend="tec", dynamic=True, options={"strict": True})
    with torch.no_grad():
        for shape in ((2, 3, 16, 12), (1, 3, 20, 20), (3, 3, 8, 30)):
            x = torch.randn(shape)
            torch.testing.assert_close(fast(x), m(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["bilinear", "nearest", "corners", "number"])
def test_quotients_of_open_sizes_are_numbers_of_the_network(how):
    """The scales of an image with open sides; multiplications by them once stayed torch's."""

    def f(x):
        h, w = x.shape[2:]
        if how == "number":
            return x * (h / w) ** 0.5 + x.mean((2, 3), keepdim=True) * (h * w) / (h * w - 1)
        mode = {"corners": "bilinear"}.get(how, how)
        y = F.interpolate(
            x.relu(), size=(h + 3, w * 2 - 1), mode=mode, align_corners=True if how == "corners" else None
        )
        return y.sigmoid()

    torch._dynamo.reset()
    fast = torch.compile(f, backend="tec", dynamic=True, options={"strict": True})
    with torch.no_grad():
        for shape in ((2, 3, 8, 9), (3, 3, 11, 6)):
            (x,) = drawn(shape)
            torch.testing.assert_close(fast(x), f(x), rtol=1e-5, atol=1e-5)


def test_a_size_that_guards_fix_is_a_number():
    """Channels that are only looked at, then convolved: the weights say how many they are."""
    conv = nn.Conv2d(4, 3, 3, padding=1)

    def f(x):
        return conv(x.flip(1) * x.shape[1])

    torch._dynamo.reset()
    fast = torch.compile(f, backend="tec", dynamic=True, options={"strict": True})
    with torch.no_grad():
        for shape in ((2, 4, 8, 9), (3, 4, 11, 6)):
            (x,) = drawn(shape)
            torch.testing.assert_close(fast(x), f(x), rtol=1e-5, atol=1e-5)


def test_an_adaptive_pool_that_leaves_an_open_side_as_it_is():
    pools = (nn.AdaptiveAvgPool2d((3, None)), nn.AdaptiveMaxPool2d((None, 2)))

    def f(x):
        return pools[0](x).sum((2, 3)) + pools[1](x).sum((2, 3))

    torch._dynamo.reset()
    fast = torch.compile(f, backend="tec", dynamic=True, options={"strict": True})
    for shape in ((2, 4, 8, 9), (3, 4, 11, 6)):
        (x,) = drawn(shape)
        torch.testing.assert_close(fast(x), f(x), rtol=1e-5, atol=1e-5)
