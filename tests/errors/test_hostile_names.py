"""Names of a model, whatever they hold, are shown as text: no terminal obeys them, no line is theirs alone, no markup or tag is read in them."""

from __future__ import annotations

import html.parser
import io
import json
import random

import numpy as np
import onnx
import pytest
import tec_onnx
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import tec
import tec.lm
from tec.choices.store.records import warn_of_refused
from tec.cli import common
from tec.cli.app import app
from tec.errors import TecError, one_line, printable
from tec.graph.progress import default_progress
from tec.tuning.report import Found, TuneReport
from tests import seeds
from tests.thinned import thinned

LINE = "FORGED"  # what a name puts at the beginning of a line
PARTS = (
    "\x1b]0;t\x07",
    "\x1b[2J",
    "\x9b31m",
    "\x07",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u2028",
    f"\n{LINE}",
    f"\r\n{LINE}",
    "\r",
    "\t",
    "[red]",
    "[/red]",
    "[bold]b[/]",
    ":smile:",
    "</script><b>",
    "<img src=x onerror=f()>",
    "]]>",
    "&lt;",
    "'\"",
    "\\",
)
SEEDS = seeds.some(6 if seeds.number() else 3)


def drawn(rng, word):
    return word + "".join(rng.sample(PARTS, 4)) + word


def check(text, what=""):
    wrong = [c for c in text if not (c in "\n\t" or c.isprintable())]
    assert not wrong, (what, wrong, ascii(text))
    assert not any(line.lstrip().startswith(LINE) for line in text.split("\n")), (what, ascii(text))


class Tags(html.parser.HTMLParser):
    """The tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, [k for k, _ in attrs]))


def check_page(text, what=""):
    assert all(c in "\n\t" or c.isprintable() for c in text), what
    tags = Tags(text).found
    assert tags and not any(tag == "img" or "onerror" in attrs for tag, attrs in tags), what
    assert "<script><b>" not in text and "</script><b>" not in text


class Model:
    """A product and a Relu whose every name is drawn; its first size is open where `is_open`."""

    def __init__(self, seed, is_open=False):
        rng = random.Random(seed)
        self.x, self.w, self.y, self.z, self.size, graph, mm, relu = (
            drawn(rng, name) for name in ("x", "w", "y", "z", "size", "graph", "mm", "relu")
        )
        rows = self.size if is_open else 3
        made = helper.make_graph(
            [helper.make_node("MatMul", [self.x, self.w], [self.y], name=mm), helper.make_node("Relu", [self.y], [self.z], name=relu)],
            graph,
            [helper.make_tensor_value_info(self.x, TensorProto.FLOAT, [rows, 4])],
            [helper.make_tensor_value_info(self.z, TensorProto.FLOAT, [rows, 4])],
            [numpy_helper.from_array(np.eye(4, dtype="float32"), self.w)],
        )  # fmt: skip
        self.proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self.all = (self.x, self.z)


def errors_of(net, model):
    """The messages of calls with inputs that do not fit."""
    calls = [{}, {drawn(random.Random(1), "q"): 1}, {model.x: np.zeros(3, "float32")}, {model.x: np.zeros((3, 4))}]
    calls += [{model.x: "s"}, {model.x: np.zeros((3, 5), "float32")}, {model.x: np.zeros((0, 4), "float32")}]
    for inputs in calls:
        with pytest.raises(TecError) as caught:
            net.run(inputs)
        yield str(caught.value)


def mistaken(rng):
    """A model with one mistake drawn, and names drawn."""
    x, w, y, node, graph, size, other, domain = (
        drawn(rng, k) for k in ("x", "w", "y", "node", "graph", "size", "other", "domain")
    )
    op, shape, inputs, nodes, functions = "MatMul", [4, 4], [x, w], [], []
    mistake = rng.choice(["size", "sizes", "operator", "domain", "value", "cycle", "attribute", "twice", "function"])
    attrs, where = {}, ""
    if mistake == "size":
        op, shape = rng.choice(["MatMul", "Add", "Conv", "Reshape"]), rng.choice([[3, 4, 5, 6], [5], [size, 7]])
    elif mistake == "sizes":
        op, shape = "Add", [size, other]
    elif mistake == "operator":
        op = drawn(rng, "No")
    elif mistake == "domain":
        where = domain
    elif mistake == "value":
        inputs = [x, other]
    elif mistake == "cycle":
        nodes = [helper.make_node("Relu", [y], [other], name=node)]
        inputs = [x, other]
    elif mistake == "attribute":
        op, inputs, attrs = "Transpose", [x], {"perm": [0, 5], other: size}
    elif mistake == "twice":
        nodes = [helper.make_node("Relu", [x], [y], name=node)]
    else:
        op = drawn(rng, "Function")
        inside = [helper.make_node(op, ["a", "b"], ["c"], domain=domain)]
        functions = [helper.make_function(domain, op, ["a", "b"], ["c"], inside, [helper.make_opsetid(domain, 1)])]
        where = domain
    nodes.append(helper.make_node(op, inputs, [y], name=node, domain=where, **attrs))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ((x, [4, 4]), (w, shape))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    made = helper.make_graph(nodes, graph, values, [helper.make_empty_tensor_value_info(y)])
    return helper.make_model(made, opset_imports=opsets, ir_version=8, functions=functions)


def test_mistakes_in_models():
    refused = 0
    for seed in seeds.some(200):
        try:
            tec_onnx.from_onnx(mistaken(random.Random(seed)))
        except TecError as e:
            refused += 1
            check(str(e), seed)
            check(e.message, seed)
    assert refused > 120  # of 200, 140 to 170: some of what is drawn is no mistake


def test_sizes_are_exact_as_text_and_escaped_in_messages():
    graph = tec_onnx.from_onnx(Model(0, is_open=True).proto)[0]
    size = graph.inputs[0].shape[0]
    assert str(size) == Model(0).size and repr(size) == f"{size}" == one_line(Model(0).size) != Model(0).size
    assert f"{2 * size + 1!r}" == f"{2 * size + 1}" and size.data() == Model(0).size


@pytest.mark.parametrize("seed", SEEDS)
def test_warnings(seed):
    rng = random.Random(seed)
    with pytest.warns(tec.errors.TecWarning) as caught:
        warn_of_refused(drawn(rng, "group"), drawn(rng, "reason"))
    check(str(caught[0].message))


def test_one_line():
    assert one_line("a\tb\nc\x1b") == "a\\tb\\nc\\x1b" and printable("a\tb\nc\x1b") == "a\tb\nc\\x1b"
    assert one_line(one_line("\n")) == "\\n"


@thinned(1, ("is_open", [False, True]), ("seed", SEEDS))
def test_networks_and_graphs(seed, is_open):
    model = Model(seed, is_open)
    net = tec.compile(model.proto, target="llvm", cache=False)
    for what, text in {
        "network": repr(net), "report": str(net.report), "plan": str(net.plan), "module": repr(net.module), "ir": net.get_source("ir"),
        "llvm": net.get_source("llvm"),
    }.items():  # fmt: skip
        check(text, what)
    for text in errors_of(net, model):
        check(text)
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(net.run({model.x: x})[0], x)
    assert [i["name"] for i in net.inputs + net.outputs] == list(model.all), "names themselves stay exact"
    if is_open:
        assert net.open_sizes == [model.size] and net.bind({model.size: 3}).run([x])[0].shape == (3, 4)
        for sizes in ({}, {"q": 1}, {model.size: -1}, {model.size: "s"}):
            with pytest.raises(TecError) as caught:
                net.bind(sizes)
            check(str(caught.value))
    graph = tec_onnx.from_onnx(model.proto)[0]
    check(str(graph))
    check(graph.dot())
    for shown in (graph, net, net.module):
        check_page(shown._repr_html_(), type(shown))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_command_line(seed, tmp_path):
    model = Model(seed)
    path, page = tmp_path / "m.onnx", tmp_path / "p.html"
    onnx.save(model.proto, str(path))

    def output(*args, code=0):
        got = CliRunner().invoke(app, list(map(str, args)))
        assert got.exit_code == code, got.output
        check(got.output, args)
        return got.output

    for words in (["graph"], ["graph", "--dot"], ["ir"], ["resources"]):
        output("show", path, *words)
    steps = "".join(output("show", path).split())
    assert "MatMul".lower() in steps.lower()
    shown = "".join(output("run", path).split())
    assert "".join(one_line(model.z).split()) in shown, "markup is text, and the name is whole"
    output("verify", path)
    output("run", path, "--inputs", "q=none.npy", code=2)
    output("show", path, "--html", page, "--no-measure")
    check_page(page.read_text())
    facts = json.loads(output("show", path, "--json"))
    assert [i["name"] for i in facts["inputs"] + facts["outputs"]] == list(model.all), "JSON is exact"


@pytest.mark.parametrize("seed", SEEDS)
def test_progress_and_tuning(seed):
    name = drawn(random.Random(seed), "group")
    for is_terminal in (False, True):
        out = io.StringIO()
        out.isatty = lambda is_terminal=is_terminal: is_terminal
        clock = iter(range(0, 1000, 100))
        default_progress(out, lambda clock=clock: next(clock))(1, 2, name)
        text = out.getvalue().removeprefix("\r\x1b[K" if is_terminal else "")
        assert text.startswith("compiling")
        check(text)
    report = TuneReport(name, "llvm", name, "measured", [Found(name, "s", 1, {}, {}, 1.0, 0.5, 1, 0, [1.0])], [name])
    check(str(report))
    check(report.summary)
    check_page(report.to_html())
    check_page(report._repr_html_())


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_and_lines(seed, capsys):
    rng = random.Random(seed)
    names = [drawn(rng, str(k)) for k in range(4)]
    table = common.table("", "name", "mark")
    for name in names:
        table.add_row(name, common.coloured(name, "red"))
        common.echo(name)
        common.echo_text(name.replace("\n", " "))
    common.console().print(table)
    common.print_json(names)
    got = capsys.readouterr().out
    check(got)
    assert all(got.count(one_line(name)) >= 3 for name in names), "in both cells and in the line, markup as it stands"
    assert json.loads(got[got.rindex("[\n ") :]) == names


@pytest.mark.parametrize("name", ["y" * 5000, "a\0b"])
def test_names_that_no_file_can_have(name: str) -> None:
    for opened in (tec.compile, tec.load, tec.lm.open, tec.lm.open_adapter, lambda n: tec.lm.generate([n, "b"], "a")):
        with pytest.raises(tec.TecError):
            opened(name)
