"""A loop over fused axes of symbolic sizes: no division is left in it, and a product past int32 is an error, not a silence."""

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import TecError


def _fused(factor=64):
    m, n = te.var("m"), te.var("n")
    a = te.placeholder((m, n), name="a", dtype="int8")
    b = te.compute((m, n), lambda i, j: a[i, j] + te.const(1, "int8"), name="b")
    s = tec.create_schedule(b.op)
    loop = s[b].fuse(*s[b].op.axis)
    outer, inner = s[b].split(loop, factor=factor)
    return s, a, b, outer, inner


def test_no_division_by_a_size_is_left():
    s, a, b, _, _ = _fused()
    text = str(tec.lower(s, [a, b]))
    assert "% n" not in text and "// n" not in text, text
    assert "assert int64(" in text


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (8, 8), (5, 64), (13, 129)])
def test_every_element_once(shape):
    s, a, b, _, _ = _fused()
    f = tec.build(s, [a, b], "llvm")
    x = np.arange(np.prod(shape), dtype=np.int8).reshape(shape)
    y = np.full(shape, 99, np.int8)
    f(x, y)
    np.testing.assert_array_equal(y, x + np.int8(1))


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_a_loop_longer_than_int32_is_refused(target):
    # Zero-filled pages that nobody touches cost nothing: 65536 * 65537 wraps to 65536, and all but those would stay as they were.
    shape = (65536, 65537)
    s, a, b, outer, inner = _fused()
    if target != "llvm":
        s[b].bind(outer, tec.thread_axis("blockIdx.x"))
        s[b].bind(inner, tec.thread_axis("threadIdx.x"))
    f = tec.build(s, [a, b], target)
    if target == "llvm":
        x, y = np.zeros(shape, np.int8), np.zeros(shape, np.int8)
        with pytest.raises(TecError, match=r"too long.*2147483648"):
            f(x, y)
    else:
        assert "assert" in f.get_source("ir")


def test_constant_sizes_have_no_check():
    a = te.placeholder((64, 64), name="a")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="b")
    s = tec.create_schedule(b.op)
    s[b].fuse(*s[b].op.axis)
    assert "assert" not in str(tec.lower(s, [a, b]))
