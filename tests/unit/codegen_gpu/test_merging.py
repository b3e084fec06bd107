"""Kernels and functions that are compiled one by one become one code object, one PTX text, one ELF object."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tec
from tec import te
from tec.codegen.nvptx import join_ptx
from tec.codegen.objects.linking import find_lld, link
from tec.codegen.objects.merging import merge_objects, pack
from tec.errors import CodegenError
from tec.runtime.objects.codeobject import _msgpack, read_code_object
from tests.linkers import has_lld

from .test_linking import IR, check_image, compile_object

NAMES = ("first", "second", "lds", "tab", "gv", "ptrs", "helper")


def renamed(ir: str) -> str:
    return re.sub(rf"@({'|'.join(NAMES)})\b", r"@\1_b", ir)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(
    "linker", ["own", pytest.param("lld", marks=pytest.mark.skipif(not has_lld(), reason="no ld.lld here"))]
)
def test_kernels_with_data_of_their_own(chip, linker):
    merged = merge_objects([compile_object(IR, chip), compile_object(renamed(IR), chip)])
    linked = link(merged, linker)
    image = read_code_object(linked)
    assert list(image.kernels) == ["first", "second", "first_b", "second_b"]
    assert (
        all(k.entry % 256 == 0 for k in image.kernels.values()) and len({k.entry for k in image.kernels.values()}) == 4
    )
    for suffix in ("", "_b"):  # each piece is as whole as a code object of its own
        check_image(image, suffix)


def test_what_cannot_be_one():
    a, b = compile_object(IR, "gfx942"), compile_object(renamed(IR), "gfx90a")
    with pytest.raises(CodegenError, match="different machines"):
        merge_objects([a, b])
    with pytest.raises(CodegenError, match=r"data called|define"):
        merge_objects([a, a])
    with pytest.raises(CodegenError, match=r"damaged|ELF"):
        merge_objects([a, a[:200]])
    assert merge_objects([a]) is a


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1, -1, -32, -33, -(2**63), "", "a" * 31, "a" * 32, "ä" * 200,
     "b" * 70000, list(range(15)), list(range(16)), list(range(70000)), {str(i): i for i in range(15)}, {str(i): [i, {"x": None}] for i in range(20)}],
    ids=lambda v: f"{type(v).__name__}-{str(v)[:12]}",
)  # fmt: skip
def test_metadata_comes_back(value):
    packed = pack(value)
    assert _msgpack(packed, 0) == (value, len(packed))


def two(target: str):
    """A module of two functions, each with constants, branches and shared memory of its own."""
    A = te.placeholder((8, 64), name="A")
    return tec.build([lowered(A, k, target) for k in (2, 3)], target=target)


def lowered(A: te.Tensor, k: int, target: str):
    S = te.compute((8, 64), lambda i, j: te.sin(A[i, j]) * float(k), name="S")
    B = te.compute((8, 64), lambda i, j: S[i, 63 - j] + 1.0, name="B")
    s = tec.create_schedule(B.op)
    if not target.startswith("llvm"):
        i, j = s[B].op.axis
        s[B].bind(i, tec.thread_axis("blockIdx.x"))
        s[B].bind(j, tec.thread_axis("threadIdx.x"))
        s[S].set_scope("shared")
        s[S].compute_at(s[B], i)
        s[S].bind(s[S].op.axis[1], tec.thread_axis("threadIdx.x"))
    return tec.lower(s, [A, B], name=f"fun{k}", target=target)


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx90a", "rocm -mcpu=gfx1100"])
def test_functions_of_a_module(target, tmp_path):
    device = tec.cpu(0) if target == "llvm" else tec.rocm_emu(target.partition("=")[2])
    module = two(target)
    module.save(tmp_path / "m.tecmod")
    a = np.random.default_rng(0).uniform(-60000, 60000, (8, 64)).astype("float32")  # both sides of sin's branch
    for m in (module, tec.load_module(tmp_path / "m.tecmod")):
        assert m.get_binary()[:4] == b"\x7fELF" and len(m.imported_modules) == (target != "llvm")
        for k in (2, 3):
            b = tec.nd.array(np.zeros_like(a), device)
            m[f"fun{k}"](tec.nd.array(a, device), b)
            np.testing.assert_allclose(b.numpy(), k * np.sin(a.astype("float64"))[:, ::-1] + 1, atol=1e-5)
            name = f"fun{k}" if target == "llvm" else f"fun{k}_kernel0"
            for kind, mark in (("ir", f"def {name}("), ("llvm", f"@{name}("), ("asm", f"\n{name}:")):
                assert m.get_source(kind, name).count(mark) == 1
                assert m.get_source(kind).count(mark) == (kind != "ir" or target == "llvm")  # the host's IR, of a GPU
                assert f"fun{5 - k}" not in m.get_source(kind, name)
        with pytest.raises(tec.TecError, match=r"(?s)no source of 'fun9'.*fun2") as refused:
            m.get_source("asm", "fun9")
        assert "fun3" in str(refused.value)


def test_one_ptx_of_many():
    module = two("cuda -arch=sm_90")
    text = module.get_binary().decode().rstrip("\0")
    assert text == module.get_source("ptx") == module.get_source("asm")
    assert text.count(".version") == text.count(".target sm_90") == text.count(".address_size 64") == 1
    assert re.findall(r"\.visible \.entry (\w+)", text) == ["fun2_kernel0", "fun3_kernel0"]
    shared = re.findall(r"\.shared \.align \d+ \.b8 (\S+)\[", text)
    labels = re.findall(r"(?m)^(\$L\w+):", text)
    assert len(shared) == len(set(shared)) == 2 and len(labels) == len(set(labels)) > 1
    assert set(re.findall(r"bra(?:\.uni)?\s+(\$L\w+);", text)) <= set(labels)


def test_the_dynamic_array_is_declared_once():
    head = "//\n// Generated\n//\n\n.version 7.8\n.target sm_90\n.address_size 64\n\n"
    texts = [
        f"{head}.extern .shared .align {n} .b8 tec_dynamic_shared[];\n\n.visible .entry k{n}()\n{{\nret;\n}}\n"
        for n in (16, 128)
    ]
    got = join_ptx(texts)
    assert got.count(".extern") == 1 and ".extern .shared .align 128 .b8 tec_dynamic_shared[];" in got
    assert got.index(".extern") < got.index("k16") < got.index("k128")


@pytest.mark.skipif(not has_lld(), reason="no ld.lld here")
def test_lld_takes_what_was_merged(monkeypatch):
    monkeypatch.setenv("TEC_LLD", "own")
    own = two("rocm -mcpu=gfx942").get_binary()
    monkeypatch.setenv("TEC_LLD", find_lld()[0])
    theirs = two("rocm -mcpu=gfx942").get_binary()
    assert read_code_object(own).text == read_code_object(theirs).text
    assert read_code_object(own).metadata == read_code_object(theirs).metadata
