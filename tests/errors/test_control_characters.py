"""Names of a model reach a terminal escaped, whatever they hold."""

from __future__ import annotations

import random

import onnx
import pytest
from onnx import TensorProto, helper

import tec
from tec.errors import TecError, printable
from tests import seeds

# A title, a colour, a bell, a C1 introducer, carriage return, turned text, separators.
HOSTILE = (
    "\x1b]0;t\x07",
    "\x1b[31m",
    "\x07",
    "\x9b2J",
    "\r",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u061c",
    "\u2028",
    "\x00",
    "\x7f",
    "\x85",
)


def is_clean(text):
    return all(c in "\n\t" or c.isprintable() for c in text)


def test_every_character():
    for code in [*range(0x3000), *range(0xD7F0, 0xE010), 0x1F600]:
        c = chr(code)
        got = printable(f"a{c}b")
        got.encode()
        escaped = c not in "\n\t" and (
            code < 32
            or 127 <= code < 160
            or 0xD800 <= code < 0xE000
            or c in "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
        )
        assert (got != f"a{c}b") == escaped, hex(code)
        if escaped:
            assert got.isascii() and is_clean(got)


def test_errors_escape_message_hint_and_place():
    e = TecError("name \x1b[31m", where=tec.errors.Loc("f\x07.py", 3), hint="not \u202e")
    assert str(e) == "name \\x1b[31m\n  at f\\x07.py:3\n  hint: not \\u202e" and e.message == "name \\x1b[31m"


def hostile_model(rng):
    """A model with one mistake drawn, and names that a terminal would obey."""

    def name(word):
        return word + rng.choice(HOSTILE) + rng.choice(HOSTILE) + word

    x, w, y, node, graph = (name(n) for n in ("x", "w", "y", "node", "graph"))
    op = rng.choice(["MatMul", "Add", "Conv", name("No"), "Reshape"])
    shape = rng.choice([[4, 5], [3], [name("batch"), 7]])
    inputs = [x, rng.choice([w, name("missing")])]
    made = helper.make_node(op, inputs, [y], name=node, **({name("attr"): 1} if rng.random() < 0.3 else {}))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ((x, [4, 4]), (w, shape))]
    return helper.make_model(
        helper.make_graph([made], graph, values, [helper.make_empty_tensor_value_info(y)]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.parametrize("seed", seeds.some(40))
def test_models_of_hostile_names(seed):
    model = hostile_model(random.Random(seed))
    try:
        tec.compile(model, target="llvm", cache=False)
    except TecError as e:
        assert is_clean(str(e)) and is_clean(e.message), ascii(str(e))


def test_the_command_line_says_it_escaped(tmp_path):
    from click.testing import CliRunner

    from tec.cli.app import app

    refused = 0
    for seed in range(6):
        path = tmp_path / f"{seed}.onnx"
        onnx.save(hostile_model(random.Random(seed)), str(path))
        got = CliRunner().invoke(app, ["compile", str(path), "--no-cache", "-o", str(tmp_path / "o.tec")])
        refused += got.exit_code != 0
        assert got.exit_code != 70 and is_clean(got.stderr), ascii(got.stderr)
    got = CliRunner().invoke(app, ["run", "no\x1b[31m.onnx"])
    assert got.exit_code == 2 and is_clean(got.stderr) and refused
