"""A pytest plugin: the fixture `amd_gpu` is an AMD GPU in software, whose checks fail the test that launched a wrong kernel.

    def test_saxpy(amd_gpu):
        code = amd_gpu.load("build/saxpy.hsaco")
        code["saxpy"][(4,), 256](2.0, x, y, 1000)

Chips and checks: the marker `amd_gpu(chips=[...], check="...")`, else `--amd-chip` and `--amd-check`, else `amd_chips` and `amd_checks` of pytest's configuration. `--amd-html DIR` writes a page of each kernel that was launched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

CHIPS, CHECKS = "gfx942", "race,init"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("amd")
    group.addoption(
        "--amd-html", default=None, metavar="DIR", help="write a page of each kernel that a test launches on `amd_gpu`"
    )
    parser.addini("amd_chips", f"the chips of the fixture amd_gpu, with blanks between ({CHIPS})", default=CHIPS)
    parser.addini("amd_checks", f"its checks, with commas between ({CHECKS})", default=CHECKS)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "amd_gpu(chips, check): on which chips the fixture amd_gpu runs this test, and with which checks"
    )


def _marked(node: Any, name: str) -> Any:
    marker = node.get_closest_marker("amd_gpu")
    return None if marker is None else marker.kwargs.get(name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "amd_gpu" not in metafunc.fixturenames:
        return
    config = metafunc.config
    given = _marked(metafunc.definition, "chips") or config.getoption("--amd-chip", None) or config.getini("amd_chips")
    chips = re.split(r"[\s,]+", given.strip()) if isinstance(given, str) else list(given)
    metafunc.parametrize("amd_gpu", chips, indirect=True)


@pytest.fixture
def amd_gpu(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An AMD GPU in software: `load(path)` gives a code object's kernels. A fault is a `tec.DeviceError`."""
    import tec
    from tec.emulator.lines import counted
    from tec.report.kernel import page

    config = request.config
    check = _marked(request.node, "check") or config.getoption("--amd-check", None) or config.getini("amd_checks")
    try:
        device = tec.rocm_emu(request.param, check=check)
    except tec.TecError as error:
        raise pytest.UsageError(f"amd_gpu: {error}") from None
    folder = config.getoption("--amd-html")
    with ExitStack() as stack:
        launches = stack.enter_context(counted(device.driver)) if folder else []
        yield device
    for number, launch in enumerate(launches):
        name = re.sub(r"[^\w.\-]+", "_", request.node.name)
        path = Path(folder, f"{name}-{number}.html")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(launch, device.driver.chip), encoding="utf-8")
