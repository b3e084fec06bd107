"""`tec doctor --amd`, tried on the stand-in for libamdhip64: nothing differs where nothing was changed, and each planted difference is found."""

from __future__ import annotations

import ctypes
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tec
from tec import bringup
from tec.bringup import constants, matrix, modelled
from tec.bringup.gpu import Gpu
from tec.bringup.instructions import instructions, matrix_names
from tec.cli import doctor
from tec.cli.errors import Refused
from tec.emulator import chips, get_driver
from tec.emulator.hip import base
from tec.emulator.hip.runtime import Runtime
from tec.errors import ArgumentError
from tec.runtime.devices.device import custom
from tec.runtime.devices.hip_driver import HipDriver
from tec.target import MACHINES, find_product, latency_ns
from tests import seeds

CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


class Library:
    """The stand-in's functions in this process; `planted` has other ones by their names, each given the real one."""

    def __init__(self, runtime: Runtime, planted: dict[str, Callable[..., int]] | None = None):
        self.runtime, self.planted = runtime, planted or {}

    def __getattr__(self, name: str) -> Any:
        if name not in self.runtime.functions:
            raise AttributeError(name)
        real = ctypes.CFUNCTYPE(ctypes.c_int)(self.runtime.functions[name])
        return Planted(self.planted[name], real) if name in self.planted else real


class Planted:
    """A function of a library, as ctypes has them."""

    def __init__(self, call: Callable[..., int], real: Any):
        self.call, self.real = call, real

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("argtypes", "restype"):
            setattr(self.real, name, value)
        object.__setattr__(self, name, value)

    def __call__(self, *args: Any) -> int:
        return self.call(self.real, *args)


def driver(chip: str = "gfx942", **planted: Callable[..., int]) -> HipDriver:
    return HipDriver(Library(Runtime(chip), planted))


def found(d: HipDriver, *sections: str, only: str = "") -> bringup.Report:
    return bringup.check(d, 0, sections, True, only)


def wrong(report: bringup.Report) -> dict[str, str]:
    return {f.name: f.text for f in report.findings if f.state in (bringup.DIFFERS, bringup.FAILED)}


def test_nothing_differs_from_itself(tmp_path: Path) -> None:
    report = found(driver(), "abi", "streams")
    assert not wrong(report) and report.product == "MI300X" and len(report.findings) == 19
    path = tmp_path / "r.json"
    path.write_text(report.to_json())
    assert bringup.read_report(path) == report
    html = bringup.page(report)
    assert "Nothing." in html and "a graph" in html and "MI300X" in html


@pytest.mark.parametrize("chip", CHIPS)
def test_every_matrix_instruction_has_a_kernel(chip: str) -> None:
    """And none is left out."""
    made, left = instructions(chip)
    assert not left and {x.name.split()[0] for x in made} == set(matrix_names(chip))
    assert len({x.kernel for x in made}) == len(made)


@pytest.mark.parametrize("chip", ["gfx942", pytest.param("gfx950", marks=pytest.mark.slow), pytest.param("gfx1201", marks=pytest.mark.slow)])  # fmt: skip
def test_kernels_hold_the_instruction_that_they_are_named_for(chip: str) -> None:
    drawn = random.Random(seeds.first(7)).sample(instructions(chip)[0], 3)
    image = bringup.gpu.code_object(chip, bringup.matrix.module(chip, drawn), "drawn")
    gpu = Gpu(get_driver(chip))
    for x in drawn:
        ops = {
            i.op for i in gpu.function(image, x.kernel).text.insts if "mfma" in i.op or "mac_" in i.op or "wmma" in i.op
        }
        assert len(ops) == 1 and ops.pop().replace("_scale", "") == x.name.split()[0]
    assert not [f for f in matrix.check(gpu, waves=1, only=drawn[0].name) if f.state != bringup.AGREES]


def _short(real: Any, event: Any, *rest: Any) -> int:
    return 0


def _memset(real: Any, p: Any, byte: int, n: int, *rest: Any) -> int:
    return int(real(p, byte ^ 1, n, *rest))


def _attribute(real: Any, out: Any, number: int, ordinal: int) -> int:
    status = real(out, number, ordinal)
    if number == 63:  # compute units
        ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = 300
    return int(status)


def _swapped(real: Any, f: Any, gx: int, gy: int, gz: int, *rest: Any) -> int:
    return int(real(f, gx, gz, gy, *rest)) if gy != gz else int(real(f, gy, gx, gz, *rest))


def _no_lds(real: Any, f: Any, gx: int, gy: int, gz: int, x: int, y: int, z: int, lds: int, *rest: Any) -> int:
    return int(real(f, gx, gy, gz, x, y, z, 0, *rest))


PLANTED = {
    "a graph that does nothing": ({"hipGraphLaunch": _short}, {"a graph"}, "streams"),
    "a fill with another byte": ({"hipMemsetAsync": _memset}, {"order within a stream"}, "streams"),
    "other units": ({"hipDeviceGetAttribute": _attribute}, {"compute units"}, "abi"),
    "sizes of a grid in another order": (
        {"hipModuleLaunchKernel": _swapped},
        {"ids of work-items and work-groups"},
        "abi",
    ),
    "no dynamic LDS": ({"hipModuleLaunchKernel": _no_lds}, {"dynamic LDS and barriers"}, "abi"),
    "copies that are not made": ({"hipMemcpyAsync": _short}, {"order within a stream"}, "streams"),
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_planted_differences_are_found(name: str) -> None:
    planted, said, section = PLANTED[name]
    assert said <= set(wrong(found(driver(**planted), section)))


class Lazy:
    """Streams whose work begins when somebody waits for them, and waits for no event: what an order that a program forgot looks like."""

    def __init__(self) -> None:
        self.work: dict[Any, list[Callable[[], int]]] = {}

    def later(self, real: Any, stream: Any, call: Callable[[], int]) -> int:
        if stream is None:
            return call()
        self.work.setdefault(stream, []).append(call)
        return 0

    def launch(self, real: Any, f: Any, *rest: Any) -> int:
        sizes, stream, extra = rest[:7], rest[7], rest[9]
        kept = ctypes.string_at(extra._obj.buffer, ctypes.cast(extra._obj.size, ctypes.POINTER(ctypes.c_size_t))[0]) if stream is not None else b""  # fmt: skip

        def call() -> int:
            from tec.runtime.devices.dynlib import Extra

            if stream is None:
                return int(real(f, *rest))
            size = ctypes.c_size_t(len(kept))
            return int(real(f, *sizes, stream, None, ctypes.byref(Extra(1, kept, 2, ctypes.addressof(size), 3))))

        return self.later(real, stream, call)

    def waited(self, real: Any, stream: Any) -> int:
        for call in self.work.pop(stream, []):
            call()
        return int(real(stream))


def test_a_stream_that_waits_for_no_event_is_found() -> None:
    lazy = Lazy()
    d = driver(hipModuleLaunchKernel=lazy.launch, hipStreamSynchronize=lazy.waited, hipStreamWaitEvent=_short)
    assert "a stream waits for another one's event" in wrong(found(d, "streams"))


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HipDriver]]:
    """A stand-in whose chip is another one than the table's: `machine` changes its data, options go to its driver."""

    def make(machine: Callable[[Any], Any] = lambda m: m, **options: Any) -> HipDriver:
        emulated = get_driver("gfx942", instance=99, **options)
        emulated.chip = replace(emulated.chip, machine=machine(emulated.chip.machine))
        monkeypatch.setattr(base, "get_driver", lambda chip, **_: emulated)
        return driver()

    before, kept = dict(MACHINES), dict(chips.CHIPS)
    yield make
    MACHINES.clear()
    MACHINES.update(before)
    chips.CHIPS.clear()
    chips.CHIPS.update(kept)


def test_sums_that_are_rounded_otherwise_are_found(other: Callable[..., HipDriver]) -> None:
    """gfx942's own sums are not one fma after another; integers and exact sums agree."""
    d = other(numerics="fma")
    report = found(d, "matrix", only="32x32x8f16")
    (f,) = report.findings
    assert f.state == bringup.DIFFERS and "normal:" in f.text and "integers:" not in f.text
    assert not wrong(found(d, "matrix", only="i32_32x32x16_i8"))


def _slower(m: Any) -> Any:
    levels = tuple(replace(x, latency_ns=180.0) if x.name == "L2" else x for x in m.levels)
    return replace(m, levels=levels, launch_us=4.0)


def test_constants_are_found_and_corrected(other: Callable[..., HipDriver], tmp_path: Path) -> None:
    """A chip with a slower L2 and slower launches; what the report says is read back, and agrees then."""
    d = other(_slower)
    report = found(d, "constants", only="latency, L|launch")
    named = {f.name: f for f in report.findings}
    assert set(wrong(report)) >= {"latency, L2", "launch after launch"} and named["latency, L1"].state == bringup.AGREES
    path = tmp_path / "r.json"
    path.write_text(report.to_json())
    m, said = bringup.corrected(bringup.read_report(path))
    assert latency_ns(m, "L2") == pytest.approx(180, rel=0.02) and m.launch_us == pytest.approx(4, rel=0.02)
    assert any("L2 latency_ns: 102 to 18" in s for s in said)
    bringup.use(bringup.read_report(path))
    again = find_product("MI300X")
    assert again is not None and again.launch_us == m.launch_us and chips.CHIPS["gfx942"].machine is again
    get_driver("gfx942", instance=1).chip = chips.CHIPS["gfx942"]
    try:
        assert "latency, L2" not in wrong(found(d, "constants", only="latency, L2"))
    finally:
        get_driver("gfx942", instance=1).chip = replace(chips.CHIPS["gfx942"], machine=before_use())


def before_use() -> Any:
    from tec.target.machines import _AMD

    return next(m for m in _AMD if m.name == "MI300X")


def test_a_kernel_that_takes_longer_and_one_that_is_wrong_are_found(other: Callable[..., HipDriver]) -> None:
    def longer(real: Any, out: Any, *events: Any) -> int:
        status = real(out, *events)
        value = ctypes.cast(out, ctypes.POINTER(ctypes.c_float))
        value[0] = value[0] * 2
        return int(status)

    report = found(driver(hipEventElapsedTime=longer), "kernels", only="softmax")
    result, timed = report.findings
    assert result.state == bringup.AGREES and timed.state == bringup.DIFFERS and timed.ratio == pytest.approx(2, rel=0.05)  # fmt: skip

    def fewer(real: Any, f: Any, gx: int, *rest: Any) -> int:
        return int(real(f, max(1, gx // 2), *rest))

    assert "result of softmax float32 64x512" in wrong(found(driver(hipModuleLaunchKernel=fewer), "kernels", only="softmax"))  # fmt: skip


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`tec doctor --amd` says what it finds, writes its files, and ends with 1 where something differs."""
    for planted, code in (({}, 0), ({"hipDeviceGetAttribute": _attribute}, 1)):
        device = custom(driver(**planted), "rocm", label=f"amd {code}")
        monkeypatch.setattr(tec, "rocm", lambda n, d=device: d)
        words = ["--amd", "--only", "abi", "--out", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")]
        done = CliRunner().invoke(doctor.command, words, standalone_mode=False)
        assert done.return_value == code, done.output
        report = bringup.read_report(tmp_path / "r.json")
        assert (
            report.good == (code == 0)
            and "ABI: scratch" in done.output
            and "compute units" in (tmp_path / "r.html").read_text()
        )
    for refused in (["--only", "abi"], ["--amd", "--only", "abu"], ["--amd", "--", "x"]):
        assert isinstance(CliRunner().invoke(doctor.command, refused, standalone_mode=False).exception, Refused)


def test_references_of_products_and_attention_are_the_cpus() -> None:
    for case in modelled.cases(True):
        if case.op in ("matmul", "attention") and case.types[0][1] != "int8":
            rng = np.random.default_rng(0)
            given = [modelled._operand(rng, s, d) for s, d in case.types]
            f, outs = modelled._built(case, tec.Target("llvm"))
            out = tec.nd.zeros(tuple(int(d.value) for d in outs[0].shape), outs[0].dtype)
            f(*map(tec.nd.array, given), out)
            want, part = modelled._reference(case, given, out.shape, outs[0].dtype)
            np.testing.assert_allclose(out.numpy()[part], want, rtol=2e-3, atol=2e-3 * np.abs(want).max())
    assert len({c.name for c in modelled.cases()}) == len(modelled.cases()) == 40


def test_operands_are_what_they_are_said_to_be() -> None:
    rng = np.random.default_rng(0)
    small = matrix.operand(rng, "integers", "f16", 64, 4)
    assert set(np.unique(small.view(np.float16))) == {-2, -1, 0, 1, 2}
    packed = matrix.operand(rng, "integers", "fp6", 4, 6)
    assert packed.shape == (4, 6) and packed.dtype == np.uint32
    assert int(packed[0, 0]) & 63 in {0x30, 0x28, 0, 0x08, 0x10}
    indices = matrix._indices(rng, 8)
    assert all((int(w) >> 4 * k & 3) < (int(w) >> 4 * k + 2 & 3) for w in indices for k in range(8))


def test_a_report_that_is_none(tmp_path: Path) -> None:
    for text, said in (("{", "no JSON"), ("{}", "version"), (json.dumps({"version": 1, "x": 2}), "no report")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ArgumentError, match=said):
            bringup.read_report(tmp_path / "x.json")
    with pytest.raises(ArgumentError, match="no product"):
        bringup.corrected(bringup.Report("gfx942", "", "some card"))


def test_rates_of_all_types() -> None:
    """Each type of a chip's products has a matrix instruction of one matrix."""
    assert set(constants._rates("gfx942")) == {"bfloat16", "float16", "float32", "float64", "float8", "int8"}
    assert set(constants._rates("gfx1100")) == {"bfloat16", "float16", "int8"}
