"""Lines of loop IR, LLVM IR and assembly that belong together, on three kinds of target; and what the marks leave alone."""

from __future__ import annotations

import re

import pytest

import tec
from tec.codegen.emit.line_info import LINE_MARK
from tec.codegen.linked import begin_links, clean
from tec.target import Target


def program(target: str):
    """Two stages in loops of their own: each line of assembly is of one or the other."""
    a, b = tec.placeholder((256,), name="A"), tec.placeholder((256,), name="B")
    c = tec.compute((256,), lambda i: a[i] * b[i], name="C")
    d = tec.compute((256,), lambda i: c[i] / b[i], name="D")
    s = tec.create_schedule(d.op)
    for x in (c, d):
        if Target(target).is_gpu:
            outer, inner = s[x].split(x.op.axis[0], factor=64)
            s[x].bind(outer, tec.thread_axis("blockIdx.x"))
            s[x].bind(inner, tec.thread_axis("threadIdx.x"))
    module = tec.build(s, [a, b, c, d], target, name="two")
    return next(iter(module.imported_modules), module)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda -arch=sm_80"])
def test_lines_are_linked(target):
    module = program(target)
    quotient = {"llvm": r"v?div[ps]s", "rocm": r"v_(rcp|div_scale)_f32", "cuda": r"div\.rn\.f32"}[target.split()[0]]
    product = {"llvm": r"v?mul[ps]s", "rocm": r"v_mul_f32", "cuda": r"mul\.(rn\.)?f32"}[target.split()[0]]
    found = set()
    for name, texts in module.texts.items():
        ir = module.get_source("ir", name).splitlines()
        asm = module.get_source("asm", name)
        got = begin_links(name, texts["llvm"], Target(target))(asm)
        assert LINE_MARK not in got.llvm and "!dbg" not in got.llvm and ".loc" not in got.asm
        assert len(got.of_llvm) == len(got.llvm.splitlines()) and len(got.of_asm) == len(got.asm.splitlines())
        llvm = got.llvm.splitlines()
        for line, at in zip(got.asm.splitlines(), got.of_asm):
            for what, pattern, opcode, statement in (
                ("div", quotient, "fdiv", r" / "),
                ("mul", product, "fmul", r"C\[.*\] = .* \* "),
            ):
                if re.search(r"\s" + pattern, line) and at and opcode in llvm[at - 1]:
                    assert re.search(statement, ir[got.of_llvm[at - 1] - 1]), (line, ir[got.of_llvm[at - 1] - 1])
                    found.add(what)
    assert found == {"div", "mul"}


def test_a_text_that_is_not_of_the_module_stays_without_links():
    module = program("llvm")
    llvm, asm = module.texts["two"]["llvm"], module.get_source("asm", "two")
    got = begin_links("two", llvm, Target("llvm"))(asm.replace("divps", "subps").replace("divss", "subss"))
    assert got.of_asm == [] and got.of_llvm
    assert begin_links("two", "", Target("llvm"))(asm).of_asm == []


def test_packages_keep_the_marks_and_code_is_as_without(tmp_path):
    """The comments change no instruction: a module's object is that of the text without them."""
    from tec.codegen import llvm_util
    from tec.codegen.cpu import DEFAULT_SPEED, machine_of

    module = program("llvm")
    llvm = module.texts["two"]["llvm"]
    assert LINE_MARK in llvm
    bare = re.sub(re.escape(LINE_MARK) + r"\d+", "", llvm)
    machine = machine_of(Target("llvm"))
    with_marks, without = (llvm_util.compile_text(t, machine, "object", DEFAULT_SPEED) for t in (llvm, bare))
    assert with_marks == without
    assert clean(module.get_source("asm", "two")).count("\n") > 5
