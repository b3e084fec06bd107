"""torch.compile(backend="tec"): whole graphs, open sizes, parts left to torch, training."""

import logging
import operator
import sys
import warnings

import pytest
import tec_torch
import torch
from tec_torch import dynamo, runner
from tec_torch.importer import convert
from torch import nn
from torch._inductor import config as inductor_config
from torch._subclasses.fake_tensor import FakeTensorMode

import tec

from .test_compile import Decoder, Small, close, settled


def test_a_backend_by_name():
    assert "tec" in torch._dynamo.list_backends(exclude_tags=())


def test_a_module_and_its_changed_weights():
    m, x = settled(Small()), torch.randn(2, 3, 32, 32)
    fast = torch.compile(m, backend=dynamo.backend)
    with torch.no_grad():
        close(fast(x), m(x))
        m.fc.weight.mul_(2)
        close(fast(x), m(x))


@pytest.fixture
def runners(monkeypatch):
    """The networks that were made."""
    made = []
    build = dynamo.Hybrid._runner
    monkeypatch.setattr(dynamo.Hybrid, "_runner", lambda *a: made.append(build(*a)) or made[-1])
    return made


def test_tied_weights_are_constants(runners):
    m, ids = Decoder().eval(), torch.randint(0, 31, (2, 6))
    with torch.no_grad():
        close(torch.compile(m, backend=dynamo.backend)(ids)["logits"], m(ids)["logits"])
    (runner,) = runners
    assert [tuple(i["shape"]) for i in runner.network.inputs] == [(2, 6)]


def test_weights_are_constants_where_torch_keeps_them_in_the_graph(runners):
    """As it does for every backend under inductor's setting."""
    m, x = settled(Small()), torch.randn(2, 3, 32, 32)
    with torch.no_grad(), inductor_config.patch(freezing=True):
        fast = torch.compile(m, backend=dynamo.backend)
        close(fast(x), m(x))
        assert [tuple(i["shape"]) for i in runners[0].network.inputs] == [(2, 3, 32, 32)]
        m.fc.weight.mul_(2)
        close(fast(x), m(x))
        m.fc.weight.data = m.fc.weight.data * 2
        close(fast(x), m(x))


@pytest.mark.parametrize("is_frozen", [False, True])
def test_calls_after_the_first_go_round_what_AOTAutograd_wraps(is_frozen):
    m, x = settled(nn.Sequential(nn.Linear(8, 9), nn.ReLU(), nn.Linear(9, 4))), torch.randn(3, 8)
    seen: list[str] = []
    with torch.no_grad(), inductor_config.patch(freezing=is_frozen):
        fast = torch.compile(m, backend=dynamo.backend)
        fast(x)
        sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_name))
        try:
            made = fast(x)
        finally:
            sys.setprofile(None)
        close(made, m(x))
    assert "checked" in seen and not any("runtime_wrapper" in name for name in seen)


def test_calls_on_a_cpu_read_and_write_memory_as_numpy_has_it(monkeypatch):
    """Outputs that somebody holds are not written again, and inputs of any layout are read."""
    fast = torch.compile(lambda x, y: (x * 2 + y, x - y), backend=dynamo.backend)
    x, y = (
        torch.randn(600, 700),
        torch.randn(600, 700),
    )  # more than a MB: memory of outputs that nobody holds is used again
    held = []
    with torch.no_grad():
        for k in range(4):
            if k == 2:  # from here on nothing goes by DLPack
                monkeypatch.setattr(runner, "as_array", None)
            held.append((fast(x + k, y), x + k))
    for (a, b), z in held:
        close(a, z * 2 + y)
        close(b, z - y)


@pytest.mark.parametrize(
    "given",
    [
        lambda: torch.randn(5, 4).t(),
        lambda: torch.randn(4, 5, requires_grad=True),
        lambda: torch.randn(8, 5)[::2],
        lambda: torch.randn(4, 10)[:, 1:6],
        lambda: torch.randn(4, 5).to(torch.bfloat16),
        lambda: torch.randint(0, 2, (4, 5)).bool(),
        lambda: torch.view_as_complex(torch.randn(4, 5, 2)).conj().imag,
    ],
    ids=["transposed", "with a gradient", "every second row", "columns", "bfloat16", "bool", "negative by a mark"],
)
def test_layouts_and_types_of_inputs(given):
    def plain(x):
        return torch.where(x > 0, x, x * 2)

    fast = torch.compile(plain, backend=dynamo.backend)
    with torch.no_grad():
        for _ in range(3):
            x = given()
            close(fast(x), plain(x))


def test_sizes_that_change():
    m = Decoder().eval()
    fast = torch.compile(m, backend=dynamo.backend, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 6), (3, 4), (5, 9)):
            ids = torch.randint(0, 31, shape)
            close(fast(ids)["logits"], m(ids)["logits"])


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("tau", torch.full((4,), 0.5))

    def forward(self, x):
        y = torch.relu(self.before(x) * 2 + 1)
        y = y + torch.linalg.householder_product(y, self.tau)  # torch's
        return torch.tanh(self.after(y)) - y.sum(-1, keepdim=True)


def test_what_is_missing_is_left_to_torch_and_said(caplog):
    m, x = Mixed().eval(), torch.randn(4, 4)
    with caplog.at_level(logging.WARNING, "tec.torch"), torch.no_grad():
        fast = torch.compile(m, backend=dynamo.backend)
        close(fast(x), m(x))
        m.after.bias.add_(1)
        close(fast(x), m(x))
    (line,) = [r.getMessage() for r in caplog.records if r.name == "tec.torch"]
    assert "1 of " in line and "aten.linalg_householder_product.default has no conversion (test_dynamo.py:" in line


def test_the_report_names_what_torch_runs():
    tec_torch.report(reset=True)
    m, x = Mixed().eval(), torch.randn(4, 4)
    with torch.no_grad():
        torch.compile(m, backend=dynamo.backend)(x)
    found = tec_torch.report(reset=True)
    ((call,),) = [g.left for g in found.graphs]
    assert (call.operator, call.times, found.left_calls) == ("aten.linalg_householder_product.default", 1, 1)
    assert call.where.file == __file__ and not found.breaks
    assert str(found).startswith(
        f"1 graph, {found.calls} calls: 1 left to torch, 0 graph breaks\n  graph 0: aten.linalg"
    )
    assert tec_torch.report() == type(found)()


class FewCalls(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("tau", torch.full((2,), 0.5))

    def forward(self, x):
        return torch.linalg.householder_product(x + 1, self.tau) * 2


def test_calls_beside_what_is_missing_are_counted_too():
    tec_torch.report(reset=True)
    with torch.no_grad():
        torch.compile(FewCalls(), backend=dynamo.backend)(torch.zeros(2, 2))
    found = tec_torch.report(reset=True)
    assert found.left_calls == found.calls == 3
    assert [c.reason for c in found.graphs[0].left][1:] == ["a part too small for a network"] * 2


def test_strict_makes_it_an_error():
    m, x = Mixed().eval(), torch.randn(4, 4)
    fast = torch.compile(m, backend=dynamo.backend, options={"strict": True})
    for _ in range(2):
        with (
            torch.no_grad(),
            pytest.raises(
                tec.ImportModelError, match=r"1 of \d+ calls are left to torch: aten.linalg_householder_product"
            ) as e,
        ):
            fast(x)
    assert e.value.where.file == __file__
    with pytest.raises(tec.ImportModelError, match="left to torch"):  # and where it learns
        fast(x).sum().backward()
    whole = torch.compile(nn.Linear(4, 4), backend=dynamo.backend, options={"strict": True})
    whole(x).sum().backward()
    with pytest.raises(Exception, match="strict='yes' is no option"):
        torch.compile(nn.Linear(4, 5), backend=dynamo.backend, options={"strict": "yes"})(x)


class Broken(nn.Module):
    def forward(self, x):
        y = torch.relu(x) * 2
        torch._dynamo.graph_break()
        return y + 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_number_that_is_no_size_of_an_argument_is_left_to_torch(strict):
    """No tensor of a call tells it: the network would have a size that nothing gives."""
    torch._dynamo.reset()

    def f(x, n):
        return torch.full((n,), 2.0).cumsum(0).sin().sum() + (x * n).exp().sum()

    fast = torch.compile(f, backend="tec", dynamic=True, options={"strict": strict})
    x = torch.rand(8, 8)
    if strict:
        with pytest.raises(tec.ImportModelError, match="a size that no tensor which the network takes has"):
            fast(x, 5)
        return
    for n in (5, 9):
        close(fast(x, n), f(x, n))


def test_elements_put_by_their_strides():
    def f(x, y):
        return torch.as_strided_scatter(x * 2, y.sin(), (2, 3), (4, 1), 5) + torch.as_strided(x, (4, 5), (0, 1), 3)

    torch._dynamo.reset()
    x, y = torch.rand(4, 5), torch.rand(2, 3)
    close(torch.compile(f, backend="tec", options={"strict": True})(x, y), f(x, y))


VIEWS = {
    "transposed": lambda t: t.permute(1, 0, 2),
    "sliced": lambda t: t[1:, ::2],
    "selected": lambda t: t.select(2, 1),
    "diagonal": lambda t: t.diagonal(0, 0, 1),
    "repeated": lambda t: t[:1].expand(3, 4, 2),
    "windows": lambda t: t.unfold(1, 2, 1).permute(3, 0, 1, 2),
    "copied": lambda t: t.permute(2, 1, 0).contiguous(),
}


@pytest.mark.parametrize("view", VIEWS)
def test_strides_are_of_the_memory_that_a_view_lies_in(view):
    """Sizes, strides and the offset of `as_strided` say nothing of its input but whose memory it is, and where it begins."""

    class Strided(torch.nn.Module):
        def __init__(self, offset):
            super().__init__()
            self.offset = offset

        def forward(self, x):
            return torch.as_strided(VIEWS[view](x * 2), (2, 3), (4, 1), self.offset)

    x = torch.rand(3, 4, 2)
    for offset in (None, 5):
        close(tec.compile(Strided(offset), "llvm", args=(x,))(x), Strided(offset)(x))
    picture = torch.rand(1, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    f = torch.compile(lambda t: torch.as_strided(t + 1, (4, 5, 3), (15, 3, 1)), backend="tec", options={"strict": True})
    close(f(picture), (picture + 1)[0].permute(1, 2, 0))


def test_integers_to_integer_powers_are_exact():
    class Power(torch.nn.Module):
        def forward(self, a, b):
            return a**b

    a, b = torch.tensor([0, 0, 3, -3, 1, -1, 2, 7]), torch.tensor([-2, 0, 39, 39, -3, -3, -1, 22])
    assert torch.equal(tec.compile(Power(), "llvm", args=(a, b))(a, b), a**b)


def test_a_sequence_with_time_first_is_convolved():
    class Convolved(torch.nn.Module):
        def forward(self, x, w, b):
            return torch.conv_tbc(x, w, b, 1)

    given = torch.rand(7, 2, 5), torch.rand(3, 5, 4), torch.rand(4)
    close(tec.compile(Convolved(), "llvm", args=given)(*given), Convolved()(*given))


def test_an_out_of_another_shape_is_resized():
    class Counted(torch.nn.Module):
        def forward(self, x):
            return torch.arange(1, 9, out=x)

    x, y = torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, 4, dtype=torch.int64)
    net = tec.compile(Counted(), "llvm", args=(x,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own of a resized output
        want = Counted()(x)
    assert torch.equal(net(y), want) and torch.equal(y, x)


def test_graph_breaks_are_told_with_their_line(caplog):
    tec_torch.report(reset=True)
    with caplog.at_level(logging.WARNING, "tec.torch"), torch.no_grad():
        close(torch.compile(Broken(), backend=dynamo.backend)(torch.ones(3)), torch.full((3,), 3.0))
    (broken,) = tec_torch.report(reset=True).breaks
    line = Broken.forward.__code__.co_firstlineno + 2
    assert (broken.where.file, broken.where.line) == (__file__, line)
    assert caplog.text.count(f"test_dynamo.py:{line}: ") == 1
    torch._dynamo.reset()
    strict = torch.compile(Broken(), backend=dynamo.backend, options={"strict": True})
    with torch.no_grad(), pytest.raises(tec.ImportModelError, match="a graph ends within the program"):
        strict(torch.ones(3))


def test_breaks_before_the_first_call_are_told():
    """No backend is given a graph without calls, so the breaks that end such graphs went untold: 0 graph breaks, and strict took the program."""

    def f(x):
        print("a word")
        return torch.relu(x * 2 + 1) - x.sum()

    torch._dynamo.reset()
    tec_torch.report(reset=True)
    x = torch.rand(6)
    close(torch.compile(f, backend=dynamo.backend)(x), f(x))
    (broken,) = tec_torch.report(reset=True).breaks
    assert (broken.where.file, broken.where.line) == (__file__, f.__code__.co_firstlineno + 1)
    torch._dynamo.reset()
    with pytest.raises(tec.ImportModelError, match=r"a graph ends within the program: test_dynamo\.py"):
        torch.compile(f, backend=dynamo.backend, options={"strict": True})(x)


def test_a_branch_on_a_value_is_told_in_words():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x

    torch._dynamo.reset()
    with pytest.raises(tec.ImportModelError, match="asks for a tensor's value"):
        torch.compile(f, backend=dynamo.backend, options={"strict": True})(torch.ones(3))


def test_errors_beneath_torch_name_the_users_line():
    torch._dynamo.reset()
    with pytest.raises(tec.DeviceError) as caught:
        torch.compile(nn.Linear(4, 4), backend=dynamo.backend, options={"target": "cuda"})(torch.ones(4, 4))
    assert caught.value.where.file == __file__


def test_training_goes_on():
    m = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    other = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    other.load_state_dict(m.state_dict())
    fast = torch.compile(m, backend=dynamo.backend)
    x, y = torch.randn(16, 4), torch.randn(16, 2)
    for module, call in ((m, fast), (other, other)):
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(call(x), y).backward()
            optimizer.step()
    for a, b in zip(m.parameters(), other.parameters()):
        close(a.detach(), b.detach())


def test_an_unknown_option():
    with pytest.raises(Exception, match="no option 'speed'"):
        torch.compile(nn.ReLU(), backend=dynamo.backend, options={"speed": 2})(torch.randn(3))
    assert issubclass(tec.ArgumentError, tec.TecError)


class Pictures(nn.Module):
    """Convolutions (one in groups, one with strides), batch normalization, pooling."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.pool, self.second = nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 16, 3, 1, 1, groups=4)
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        y = torch.relu(self.second(self.pool(torch.relu(self.norm(self.first(x))))))
        return self.last(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


class Words(nn.Module):
    """Embedding, attention, layer normalization."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(31, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 5)

    def forward(self, ids):
        return self.out(self.layer(self.embed(ids)).mean(1))


@pytest.mark.parametrize("make", [Pictures, Words])
def test_all_of_a_training_step_is_tecs(make, caplog):
    m, other = make(), make()
    other.load_state_dict(m.state_dict())
    x = torch.randn(4, 3, 16, 16) if make is Pictures else torch.randint(0, 31, (4, 6))
    y = torch.randint(0, 5, (4,))
    with caplog.at_level(logging.WARNING, "tec.torch"):
        for module, call in ((m, torch.compile(m, backend=dynamo.backend)), (other, other)):
            optimizer = torch.optim.SGD(module.parameters(), 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                nn.functional.cross_entropy(call(x), y).backward()
                optimizer.step()
    assert not [r.getMessage() for r in caplog.records if r.name == "tec.torch"]  # nothing is left to torch
    for (n, a), b in zip(m.state_dict().items(), other.state_dict().values()):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-5), n


@pytest.mark.parametrize(
    "groups,stride,padding,dilation", [(1, 1, 0, 1), (2, 2, 1, 1), (4, 1, 2, 2), (1, (2, 1), (0, 1), 1)]
)
def test_gradients_of_convolutions(groups, stride, padding, dilation):
    x, w = torch.randn(2, 4, 9, 7), torch.randn(8, 4 // groups, 3, 3)
    aten = torch.ops.aten.convolution_backward
    pair = [stride, stride] if isinstance(stride, int) else list(stride)
    pads = [padding, padding] if isinstance(padding, int) else list(padding)

    class Back(nn.Module):
        def forward(self, g, x, w):
            return aten(g, x, w, [8], pair, pads, [dilation, dilation], False, [0, 0], groups, [True, True, True])

    g = torch.randn_like(nn.functional.conv2d(x, w, None, stride, padding, dilation, groups))
    for got, want in zip(tec.compile(Back(), target="llvm", args=(g, x, w))(g, x, w), Back()(g, x, w)):
        close(got, want)


class Recurrent(nn.Module):
    def __init__(self, kind, **more):
        super().__init__()
        self.layers = kind(8, 16, **more)
        self.head = nn.Linear(32 if more.get("bidirectional") else 16, 4)

    def forward(self, x):
        return torch.relu(self.head(self.layers(x)[0]))


RECURRENT = [
    (nn.LSTM, {"batch_first": True}), (nn.LSTM, {"num_layers": 2, "bidirectional": True}), (nn.LSTM, {"bias": False}), (nn.LSTM, {"proj_size": 0}),
    (nn.GRU, {}), (nn.GRU, {"num_layers": 2, "batch_first": True}), (nn.RNN, {"nonlinearity": "relu"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "more"), RECURRENT, ids=str)
def test_recurrent_layers_are_compiled_and_not_left_eager(kind, more, monkeypatch, caplog):
    torch._dynamo.reset()
    made = []
    build = dynamo.Hybrid._runner
    monkeypatch.setattr(dynamo.Hybrid, "_runner", lambda *a: made.append(build(*a)) or made[-1])
    m, x = Recurrent(kind, **more).eval(), torch.randn(3, 5, 8)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        close(torch.compile(m, backend="tec")(x), m(x))
    assert len(made) == 1 and "left to torch" not in caplog.text


LONG = [(nn.GRU, {"num_layers": 2, "bidirectional": True}), (nn.LSTM, {"batch_first": True}), (nn.RNN, {"nonlinearity": "relu", "bias": False})]  # fmt: skip


@pytest.mark.parametrize(("kind", "more"), LONG, ids=str)
def test_recurrent_layers_of_many_steps_are_few_calls(kind, more, monkeypatch):
    """torch writes out every step: layers of 512 steps were never done."""
    torch._dynamo.reset()
    made = []
    convert_ = dynamo.convert
    monkeypatch.setattr(dynamo, "convert", lambda *a, **k: made.append(convert_(*a, **k)) or made[-1])
    m, x = kind(5, 7, **more).eval(), torch.randn(40, 3, 5)
    with torch.no_grad():
        close(torch.compile(m, backend="tec", options={"strict": True})(x)[0], m(x)[0])
        close(tec.compile(m, "llvm", args=(x,))(x)[0], m(x)[0])
    assert made[0].calls < 40


def test_recurrent_layers_with_projections_are_written_out():
    torch._dynamo.reset()
    m, x = nn.LSTM(5, 7, proj_size=3).eval(), torch.randn(4, 2, 5)
    with torch.no_grad():
        close(torch.compile(m, backend="tec", options={"strict": True})(x)[0], m(x)[0])
        close(tec.compile(m, "llvm", args=(x,))(x)[0], m(x)[0])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_learn(kind):
    torch._dynamo.reset()
    m, x = Recurrent(kind), torch.randn(3, 5, 8)
    torch.compile(m, backend="tec")(x).square().sum().backward()
    got = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    m(x).square().sum().backward()
    for a, p in zip(got, m.parameters(), strict=True):
        close(a, p.grad)


ATTENTIONS = ("flash", "efficient", "cudnn")


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_as_a_gpu_traces_it(kind):
    """torch chooses these calls by the GPU that it traces for; here a graph has them without one."""
    q, k, v, bias = (torch.randn(2, 3, 7, n) for n in (8, 8, 8, 7))
    biased = kind != "flash"
    call = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention").default
    graph, fakes = torch.fx.Graph(), FakeTensorMode()
    given = [q, k, v, *([bias] if biased else [])]
    places = []
    for n, t in enumerate(given):
        places.append(graph.placeholder(f"x{n}"))
        places[-1].meta["val"] = fakes.from_tensor(t)
    more = (False, 0.0, False) if biased else (0.0, True)
    all_of = graph.call_function(call, (*places, *more), {"scale": 0.3})
    all_of.meta["val"] = (fakes.from_tensor(q), *[None] * (len(call._schema.returns) - 1))
    first = graph.call_function(operator.getitem, (all_of, 0))
    first.meta["val"] = fakes.from_tensor(q)
    graph.output((first,))
    made = convert(graph, collect=True)
    assert not made.failed
    got = tec.compile(made.graph, "llvm").run([t.numpy() for t in given])[0]
    want = nn.functional.scaled_dot_product_attention(q, k, v, bias if biased else None, is_causal=not biased, scale=0.3)  # fmt: skip
    torch.testing.assert_close(torch.from_numpy(got), want, rtol=1e-4, atol=1e-5)
