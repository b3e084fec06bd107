"""A pytest plugin: `pytest --amd-chip=gfx942 --amd-check=race,init` runs the suite's Triton kernels on the software GPU.

A fault (a race, a value that nothing defined, an access out of bounds) fails the test that launched the kernel, and names the line of the Triton function.
The plugin does nothing without one of the two options.
"""

from __future__ import annotations

import sys
from typing import Any

from tec.errors import TecError

from .checks.names import HELP


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("amd", "Triton kernels on an AMD GPU in software (tec)")
    group.addoption(
        "--amd-chip",
        default=None,
        metavar="CHIP",
        help="the chip: gfx942 (the default with --amd-check), gfx950, gfx1100, ...",
    )
    group.addoption("--amd-check", default=None, metavar="CHECKS", help=f"checks, with commas between: {HELP}")


def pytest_configure(config: Any) -> None:
    chip, check = config.getoption("--amd-chip"), config.getoption("--amd-check")
    if chip is None and check is None:
        return
    import pytest

    from .triton import install

    try:
        install(chip or "gfx942", check or "bounds")
    except ImportError as error:
        # The package pytest-amd-gpu: its fixture takes the options, without Triton too.
        if config.pluginmanager.hasplugin("amd_gpu"):
            return
        raise pytest.UsageError(
            f"--amd-chip and --amd-check run Triton's kernels, and there is no Triton: {error}"
        ) from None
    except TecError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_unconfigure(config: Any) -> None:
    module = sys.modules.get("tec.emulator.triton")
    if module is not None:
        module.uninstall()


def pytest_report_header(config: Any) -> str | None:
    chip, check = config.getoption("--amd-chip"), config.getoption("--amd-check")
    if chip is None and check is None:
        return None
    return f"amd: Triton kernels on {chip or 'gfx942'} in software, checks: {check or 'bounds'}"
