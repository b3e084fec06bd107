"""What the code generator remembers of a node is about that node, as long as it remembers it."""

from __future__ import annotations

import numpy as np
import pytest

import tec.tile
import tec.tile as tl


@tec.tile.jit
def mean_of_windows(in_ptr0, out_ptr0, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x2 = (xindex // 256) % 16
    x1 = (xindex // 16) % 16
    x0 = xindex % 16
    x5 = xindex // 256
    x6 = xindex
    tmp0 = ((-1) + 2 * x2).to(tl.int32)
    tmp1 = tl.full([1], 0, tl.int64)
    tmp2 = tmp0 >= tmp1
    tmp3 = tl.full([1], 32, tl.int64)
    tmp4 = tmp0 < tmp3
    tmp5 = tmp2 & tmp4
    tmp6 = ((-1) + 2 * x1).to(tl.int32)
    tmp7 = tmp6 >= tmp1
    tmp8 = tmp6 < tmp3
    tmp9 = tmp7 & tmp8
    tmp10 = tmp5 & tmp9
    tmp11 = tl.load(in_ptr0 + ((-528) + x0 + 32 * x1 + 1024 * x5), tmp10, other=0.0)
    tmp12 = (2 * x1).to(tl.int32)
    tmp13 = tmp12 >= tmp1
    tmp14 = tmp12 < tmp3
    tmp15 = tmp13 & tmp14
    tmp16 = tmp5 & tmp15
    tmp17 = tl.load(in_ptr0 + ((-512) + x0 + 32 * x1 + 1024 * x5), tmp16, other=0.0)
    tmp18 = tmp11 + tmp17
    tmp19 = (1 + 2 * x1).to(tl.int32)
    tmp20 = tmp19 >= tmp1
    tmp21 = tmp19 < tmp3
    tmp22 = tmp20 & tmp21
    tmp23 = tmp5 & tmp22
    tmp24 = tl.load(in_ptr0 + ((-496) + x0 + 32 * x1 + 1024 * x5), tmp23, other=0.0)
    tmp25 = tmp18 + tmp24
    tmp26 = (2 * x2).to(tl.int32)
    tmp27 = tmp26 >= tmp1
    tmp28 = tmp26 < tmp3
    tmp29 = tmp27 & tmp28
    tmp30 = tmp29 & tmp9
    tmp31 = tl.load(in_ptr0 + ((-16) + x0 + 32 * x1 + 1024 * x5), tmp30, other=0.0)
    tmp32 = tmp25 + tmp31
    tmp33 = tmp29 & tmp15
    tmp34 = tl.load(in_ptr0 + (x0 + 32 * x1 + 1024 * x5), tmp33, other=0.0)
    tmp35 = tmp32 + tmp34
    tmp36 = tmp29 & tmp22
    tmp37 = tl.load(in_ptr0 + (16 + x0 + 32 * x1 + 1024 * x5), tmp36, other=0.0)
    tmp38 = tmp35 + tmp37
    tmp39 = (1 + 2 * x2).to(tl.int32)
    tmp40 = tmp39 >= tmp1
    tmp41 = tmp39 < tmp3
    tmp42 = tmp40 & tmp41
    tmp43 = tmp42 & tmp9
    tmp44 = tl.load(in_ptr0 + (496 + x0 + 32 * x1 + 1024 * x5), tmp43, other=0.0)
    tmp45 = tmp38 + tmp44
    tmp46 = tmp42 & tmp15
    tmp47 = tl.load(in_ptr0 + (512 + x0 + 32 * x1 + 1024 * x5), tmp46, other=0.0)
    tmp48 = tmp45 + tmp47
    tmp49 = tmp42 & tmp22
    tmp50 = tl.load(in_ptr0 + (528 + x0 + 32 * x1 + 1024 * x5), tmp49, other=0.0)
    tmp51 = tmp48 + tmp50
    tl.store(out_ptr0 + (x6), tmp51, None)


def test_conditions_that_load_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each becomes a branch within a branch, by a node that lives as long as its emission: the next one's got its id, and its value."""
    x = np.random.default_rng(0).random(32 * 1024, np.float32)
    out, want = np.zeros(8192, np.float32), np.zeros(8192, np.float32)
    mean_of_windows[(32,)](x, out, XBLOCK=256)
    monkeypatch.setenv("TEC_INTERPRET", "1")
    mean_of_windows[(32,)](x, want, XBLOCK=256)
    np.testing.assert_allclose(out, want, rtol=1e-5)
