"""Every kernel of the table on every device that is there (see harness.py).

The gate runs a case on the CPU, and in turn on one of three chips or in one form of the interpreter; those of `SAMPLE` run on all of these, and on two of the
six other chips. A night runs all.
"""

from __future__ import annotations

import os

import pytest

import tec
from tec import driver
from tests import seeds
from tests.code_quality import check_code
from tests.conformance import arrays, elementwise, host_levels, kernels, matmuls, memory, networks, reductions  # noqa: F401  (they fill CASES)
from tests.conformance.harness import CASES, OTHER_CHIPS, run_case, targets

# Of the chips that the emulator has beside its three, and of host processors: one case of each kind of code.
SAMPLE = frozenset((
    "add_f64", "mul_add_f16", "wrap_int64", "floordiv_mod_int32", "cast_f32_to_bf16", "math_exp", "math_tanh_f16",
    "math_fmod", "gather_rows", "matmul_shared_16x16", "matmul_double_buffer", "matmul_f16_acc_f32", "matmul_int8",
    "transpose_shared", "local_array_reversed", "conv2d_shared", "rfactor_sum_64", "argmax_cross_thread", "layernorm",
    "kernel_reduce_waves", "kernel_bitonic_sort", "kernel_atomics", "kernel_lane_moves", "kernel_mixed_types",
    "array_softmax",
))  # fmt: skip


# Devices of which the gate takes one for a case: they differ in widths of a wavefront, or in a few instructions, which many cases have alike; each form of an
# instruction is also held by the emulator's own rows (tests/unit/emulator).
ALIKE = (("interp", "interp-gpu", "interp-gpu32"), ("gfx90a", "gfx1100", "gfx942"))


def _left_to_a_night(number: int, name: str, device: str) -> bool:
    """Whether the gate leaves the case of this number out on a device."""
    if seeds.number():
        return False
    if device in OTHER_CHIPS:
        return (sorted(SAMPLE).index(name) + sorted(OTHER_CHIPS).index(device)) % 3 != 0
    if name in SAMPLE:
        return False
    if any(device in group and group[number % len(group)] != device for group in ALIKE):
        return True
    # Of the interpreter and a chip one in turn: what both have is the program's, and the CPU's row has that too.
    return any(device in group and number // len(group) % len(ALIKE) != k for k, group in enumerate(ALIKE))


def _params() -> list[object]:
    rows = []
    for device, (text, kind) in targets().items():
        marks = []
        if device == "cuda":
            marks.append(pytest.mark.gpu)
        some = device in OTHER_CHIPS and not os.environ.get("TEC_ALL_CHIPS")
        some |= device.startswith("host-") and not host_levels.all_of_them()
        for number, (name, case) in enumerate(CASES.items()):
            if (some and name not in SAMPLE) or _left_to_a_night(number, name, device):
                continue
            if kind not in case.kinds or not case.needs(tec.Target(text)):
                continue
            rows.append(pytest.param(name, device, id=f"{device}-{name}", marks=marks))
    return rows


@pytest.mark.parametrize(("name", "device"), _params())
def test_conformance(name: str, device: str) -> None:
    made: list[tec.Module] = []
    with driver.watched(made.append):
        run_case(CASES[name], device)
    for module in made:
        check_code(module)


def test_levels_of_hosts() -> None:
    """This machine runs its own level, and says what keeps it from others."""
    from llvmlite import binding

    assert len(host_levels.runnable()) + sum(bool(host_levels.missing(level)) for level in host_levels.LEVELS) == len(
        host_levels.LEVELS
    )
    own = binding.get_host_cpu_name()
    assert own not in host_levels.LEVELS or own in host_levels.runnable(), host_levels.summary()
    for level in host_levels.runnable():
        assert tec.Target(f"llvm -mcpu={level}").mcpu == level


def test_table_size() -> None:
    assert len(CASES) >= 60 and SAMPLE <= CASES.keys()
