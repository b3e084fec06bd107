"""Published times as rows: the split into fit and judged ones, and that no constant was chosen by a judged one."""

from __future__ import annotations

import re

import pytest

from benchmarks.amd_model import drawn, good_rows, right_rows
from benchmarks.amd_reasons import known, least_us, peak_tflops, reason
from benchmarks.model_rows import Row, rows
from tec.target.fitted import FITTED


def judged(shape: str) -> bool:
    m, n, k = map(int, shape.split("x"))
    return Row("product", "", "", "", "", (m, n, k, 1), 1.0, "", False).judged


def test_a_third_of_the_shapes_is_judged_on_every_chip() -> None:
    found = rows()
    side: dict[str, set[bool]] = {}
    for r in found:
        side.setdefault(r.shape, set()).add(r.judged)
    assert all(len(s) == 1 for s in side.values())
    assert 0.28 < sum(next(iter(s)) for s in side.values()) / len(side) < 0.39


def test_constants_were_chosen_by_fit_rows_alone() -> None:
    named = {s for f in FITTED.values() for s in re.findall(r"(?:attention(?:_bwd)? )?\d+x\d+(?:x\d+)+", f.rows)}
    attention = {s for s in named if s.startswith("attention") or s.count("x") == 4}
    assert len(named) >= 8 and len(attention) == 3
    assert not [s for s in named - attention if judged(s)]
    sides = {r.shape: r.judged for r in rows() if r.op.startswith("attention")}
    assert not [s for s in attention if sides[s if s.startswith("attention") else f"attention {s}"]]


def test_draws_are_the_same_from_one_seed_and_take_every_group_in_turn() -> None:
    found = right_rows()
    first, second = drawn(found, 20, 3), drawn(found, 20, 3)
    assert [r.shape for r in first] == [r.shape for r in second]
    groups = {(r.product, r.dtype, r.kind) for r in found}
    assert {(r.product, r.dtype, r.kind) for r in drawn(found, len(groups), 3)} == groups


def test_rows_that_hold_a_launch_are_left_out_whichever_library_the_tuner_chose() -> None:
    launched = [r for r in rows() if r.launched]
    assert {r.impl for r in launched} == {"tensile", "hipblaslt", "rocblas", "default"}
    assert all(r.us >= 30 for r in good_rows() if r.launched)
    # The same libraries as other sources timed them, on the device alone.
    assert any(r.impl == "hipblaslt" and r.us < 30 for r in good_rows())


def published(product: str, dtype: str, shape: str) -> Row:
    return next(r for r in rows() if (r.product, r.dtype, r.shape) == (product, dtype, shape))


def test_least_times_are_of_the_limit_that_a_problem_meets_first() -> None:
    long = published("MI210", "bf16", "product 16384x4096x1024x1")
    assert least_us(long) == pytest.approx(2 * 16384 * 4096 * 1024 / (104 * 1024 * 1700), rel=0.01)
    thin = published("MI300X", "f16", "product 24x14336x8192x1")
    nbytes = 2 * (24 * 8192 + 14336 * 8192 + 24 * 14336)
    # A tuner that repeats the same buffers leaves them in the last cache, which holds 256 MiB of them.
    assert least_us(thin) == pytest.approx(nbytes / 7310e3, rel=0.01)


def test_dot_products_of_bytes_count_where_no_matrix_instruction_takes_them() -> None:
    # Data sheets: an MI60 does 59 TOPS of 8-bit integers, an MI300X 2,615 by its matrix pipes.
    found = {r.product: peak_tflops(r) for r in rows() if r.dtype == "i8"}
    assert found["MI60"] == pytest.approx(59, rel=0.01)
    assert found["MI300X"] == pytest.approx(2615, rel=0.01)


@pytest.mark.parametrize(
    ("product", "dtype", "shape", "modelled", "says"),
    [
        ("MI210", "bf16", "product 16384x4096x1024x1", 770.0, "clock"),
        ("MI100", "f32", "product 32x128x2048x8", 10.3, "bandwidth"),
        ("MI300X", "f16", "product 4096x4096x4096x1", 110.0, "model"),
        ("RX 7600", "i8", "product 128x64x2048x1", 2.1, "tiny"),
        ("RX 7600", "f16", "product 64x384x4096x1", 28.5, "few groups"),
        ("RX 7900 XTX", "bf16", "product 1536x4x1x4096", 112.5, "narrow"),
        ("MI100", "bf16", "product 512x512x128x8", 8.64, "type"),
    ],
)
def test_reasons_of_rows_where_a_library_is_far_behind(
    product: str, dtype: str, shape: str, modelled: float, says: str
) -> None:
    assert reason(published(product, dtype, shape), modelled) == says


def test_a_launch_is_the_reason_only_where_the_rest_of_the_time_is_near() -> None:
    row = min((r for r in good_rows() if r.launched and r.product == "MI300X"), key=lambda r: r.us)
    beside = row.us - known().beside["MI300X", "product", True]
    assert beside < row.us - 4
    assert reason(row, 0.61 * beside) == "launch"
    assert reason(row, 0.59 * beside) != "launch"


def test_a_convolution_that_turns_its_operands_says_so() -> None:
    turned = [r for r in good_rows() if r.note == "NCHW ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC"]
    far = [r for r in turned if 2 * least_us(r) < 0.3 * r.us and r.us > 100]
    assert len(far) > 10
    assert {reason(r, 0.3 * r.us) for r in far} == {"layout"}
