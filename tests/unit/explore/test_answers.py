"""What the explorer says of programs: what they become, and each mistake at its line."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from tec.explore.inside import explain
from tec.explore.page import EXAMPLE, targets
from tec.target import Target
from tests import seeds

KERNEL = """import tec
@tec.kernel
def saxpy(x, y, a, n):
    i = tec.grid_idx(1)
    if i < n:
        y[i] = a * x[i] + y[i]
show(saxpy, (4096, "float32"), (4096, "float32"), 2.0, 4096, grid=16, block=256)
"""
TILES = """import tec
import tec.tile as tl
@tec.tile.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)
show(add, (4096, "float32"), (4096, "float32"), (4096, "float32"), 4096, grid=16, BLOCK=256)
"""


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    count = iter(range(1000))
    return lambda code, target="llvm": explain(code, target, str(tmp_path / f"program{next(count)}.py"))


@pytest.mark.parametrize("code, kind, line", [(EXAMPLE, "schedule", 6), (KERNEL, "kernel", 6), (TILES, "tiles", 7)])
@pytest.mark.parametrize("target", ["rocm -mcpu=mi300x", "cuda -arch=sm_90"])
def test_a_program_is_shown_with_its_lines_linked(ask, code, kind, line, target):
    got = ask(code, target)
    a = got["answer"]
    assert a["kind"] == kind and got["printed"] == ""
    (part,) = a["parts"]
    ir, llvm, asm = (part[k].splitlines() for k in ("ir", "llvm", "asm"))
    assert len(part["of_ir"]) == len(ir) and len(part["of_llvm"]) == len(llvm) and len(part["of_asm"]) == len(asm)
    # A store of the assembly leads back to the line that says it.
    stores = [
        n for n, text in enumerate(asm) if re.match(r"\s+(@\S+ )?(global_store|st\.global)", text) and part["of_asm"][n]
    ]
    assert stores and {part["of_ir"][part["of_llvm"][part["of_asm"][n] - 1] - 1] for n in stores} == {line}
    assert a["nest"].startswith("<svg") and dict(a["footprint"])["work-groups"].startswith(
        "64 of 32" if kind == "schedule" else "16 of "
    )
    assert a["estimate"]["us"] > 0 and bool(a["threads"]) == (kind == "schedule")
    if target.startswith("rocm"):
        assert 1 < a["model"]["us"] < 50 and a["machine"] == "MI300X"
        assert [row[1] for row in a["model"]["launches"]] == ["64 x 1 x 1" if kind == "schedule" else "16 x 1 x 1"]


def test_who_does_what_is_what_the_loops_say(ask):
    """Of 64 x 128 elements the first work-group has the first row, four neighbours a thread."""
    svg = ask(EXAMPLE, "cuda -arch=sm_90")["answer"]["threads"]
    colours = re.findall(r'<rect x="(\d+)" y="44" width="14" height="14" fill="(hsl\([^)]*\))"', svg)
    assert len(colours) == 48 and svg.count('width="14"') == 48 and "(12 shown)" in svg  # one row, 48 columns of it
    groups = [{c for _, c in colours[k : k + 4]} for k in range(0, 48, 4)]
    assert all(len(g) == 1 for g in groups) and len(set().union(*groups)) == 12


@pytest.mark.parametrize(
    "code, line, said",
    [
        ("import tec\nx = (\n", 2, "SyntaxError"),
        ("import tec\n\nprint(nothing)\n", 3, "NameError: name 'nothing'"),
        (EXAMPLE.replace("factor=4", "factor=0"), 10, "factor"),
        (EXAMPLE + "raise SystemExit(3)\n", 14, "SystemExit: 3"),
        (EXAMPLE + "show(3)\n", 14, "an int cannot be shown"),
        ("import tec\n", 0, "nothing to show"),
        (KERNEL.replace("show(", "# "), 0, "saxpy needs arguments"),
        (KERNEL.replace("2.0, 4096", "2.0"), 7, "takes 4 arguments, show got 3"),
        (KERNEL.replace("a * x[i]", "a * zz[i]"), 6, "zz"),
        (TILES.replace("BLOCK=256", "BLOCK=100"), 5, "power"),
        ("def f():\n    return f()\nf()\n", 2, "RecursionError"),
    ],
)  # fmt: skip
def test_a_mistake_stands_at_its_line(ask, code, line, said):
    got = ask(code)
    assert said in got["error"]["message"], got["error"]
    assert got["error"]["line"] == line
    assert "tec/" not in got["error"]["message"]


def test_what_is_printed_is_kept_up_to_a_limit(ask):
    assert ask("print('seen')\nimport sys\nprint('too', file=sys.stderr)\n")["printed"] == "seen\ntoo\n"
    assert len(ask("for _ in range(10000): print('0123456789')\n")["printed"]) == 20_000


def test_unknown_targets_and_each_listed_one(ask):
    assert "unknown" in ask(EXAMPLE, "rocm -mcpu=gfx1")["error"]["message"]
    listed = targets()
    assert len({t["text"] for t in listed}) == len(listed) > 30
    for t in listed:
        machine = Target(t["text"])
        assert t["text"] == "llvm" or machine.machine.chip in t["name"]


def test_drawn_mistakes_are_answers_or_errors_of_a_line(ask):
    """Programs with letters and lines changed: each is answered, and an error is of a line that the program has."""
    rng = random.Random(seeds.stream("explorer"))
    answered = 0
    for _ in range(16):
        code = list(rng.choice((EXAMPLE, KERNEL, TILES)))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(code))
            how = rng.randrange(3)
            if how == 0:
                del code[at : at + rng.randrange(1, 9)]
            elif how == 1:
                code[at] = rng.choice("()[]:,.0123456789 \nxij*")
            else:
                code.insert(at, rng.choice("()[]:,.0123456789 \nxij*"))
        text = "".join(code)
        got = ask(text, rng.choice(("llvm", "cuda -arch=sm_90")))
        assert ("answer" in got) != ("error" in got)
        if "error" in got:
            assert got["error"]["message"] and 0 <= got["error"]["line"] <= text.count("\n") + 1, (text, got)
            assert "a fault inside tec" not in got["error"]["message"], (text, got)
        answered += "answer" in got
    assert answered < 16
