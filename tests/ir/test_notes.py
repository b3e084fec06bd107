"""Notes on statements: every record goes to text and back, is compared by its values, and refuses values that do not fit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tec import ExprError
from tec.ir import Attr
from tec.ir.notes import NOTES, Fragment, MinBlocks, Note, SoftwarePipeline, UnrollExplicit, build, make, registered
from tec.ir.structural import structural_equal, structural_hash
from tests.ir.parser import ParseError, parse_func, parse_stmt

VALUES = {
    "min_blocks": (3,), "early_start": (), "software_pipeline": (1,), "software_pipeline_order": ((0, 1), (1, 0)), "warp_specialize": (4,), "auto_unroll_max_step": (8,),
    "auto_unroll_max_extent": (16,), "unroll_explicit": (False,), "fragment": ("acc", "f32 16x16x4"),
    "import_llvm": ("define void @f() {\n  ret void\n}\n",),
}  # fmt: skip


@pytest.mark.parametrize("word", sorted(NOTES))
def test_a_note_is_read_back(word):
    note = build(NOTES[word], VALUES.get(word, ()))
    f = parse_func('def f(A: Buffer((4,), "float32")):\n    for i in range(4):\n        A[i] = 1.0\n')
    marked = f.with_body(Attr(note, f.body))
    again = parse_func(str(marked))
    assert isinstance(again.body, Attr) and again.body.note == note
    assert structural_equal(marked, again) and structural_hash(marked) == structural_hash(again)
    assert not structural_equal(marked, f)


def test_notes_differ_by_their_values():
    body = parse_func('def f(A: Buffer((4,), "float32")):\n    A[0] = 1.0\n').body
    assert not structural_equal(Attr(SoftwarePipeline(2), body), Attr(SoftwarePipeline(3), body))
    assert not structural_equal(Attr(UnrollExplicit(), body), Attr(MinBlocks(1), body))


def test_defaults_and_roles():
    assert make("software_pipeline") == SoftwarePipeline(2)
    assert make("fragment.a", "text") == Fragment("a", "text")
    assert make("fragment", ("a", "text")) == Fragment("a", "text")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("with software_pipeline(0):\n    pass", "at least 1, not 0"),
        ("with swizle():\n    pass", "unknown scope 'swizle'"),
        ("with early_start(1):\n    pass", "takes no value"),
        ("with bulk_copy(2):\n    pass", "swizzle is True or False"),
        ("with swizzle(0):\n    pass", "at least 1, not 0"),
    ],
)
def test_text_with_a_wrong_note(text, says):
    with pytest.raises(ParseError, match=says):
        parse_stmt(text)


def test_a_plugin_adds_a_note_of_its_own():
    @dataclass(frozen=True, slots=True)
    class Priority(Note):
        level: int

    with registered("priority", Priority):
        s = parse_stmt("with priority(3):\n    pass")
        assert isinstance(s, Attr) and s.note == Priority(3) and "with priority(3):" in str(s)
        with pytest.raises(ExprError, match="two notes are called 'priority'"), registered("priority", Priority):
            pass
    with pytest.raises(ExprError, match="unknown pragma 'priority'"):
        make("priority", 3)
