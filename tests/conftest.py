"""In CI a package that is not there is an error: `make setup` installs all that tests need, so a skip would hide whole files."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
import sys
import tempfile
from typing import Any

import pytest

from tests import seeds
from tests.thinned import night_rows


def required(modname: str, minversion: str | None = None, reason: str | None = None, **_: Any) -> Any:
    """As `pytest.importorskip`, but that a missing package fails."""
    try:
        return importlib.import_module(modname)
    except ImportError as error:
        pytest.fail(f"{modname} is missing here, and would skip tests in CI; it belongs in the extra `test`: {error}")


if os.environ.get("CI", "").lower() not in ("", "0", "false"):
    pytest.importorskip = required

if sys.dont_write_bytecode:
    # Containers switch bytecode off; every process that a test starts would compile the compiler's sources once more, 0.8 s or more of
    # processor time each. It lies beside the sources: packages have theirs there from pip, and a folder of its own
    # (`sys.pycache_prefix`) would ask each worker to compile them all again, 27 s.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # As shells start what runs in the background of a script. Children inherit it, and some tests press Ctrl-C in theirs.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["TEC_TUNE_DB"] = "off"  # what a user of this host tuned is not what is tested
# A refused default is a fault of tec, which the candidates behind it would hide. Programs that tests start see this too.
os.environ["TEC_STRICT_CHOICES"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis draws by the night's number too; at the gate its settings are derandomized."""
    _keep_temporary_files_together(config)
    if seeds.number() and getattr(config.option, "hypothesis_seed", "") is None:
        config.option.hypothesis_seed = str(seeds.number())
    try:
        from hypothesis.internal.conjecture import providers
    except ImportError:
        return  # tests in an environment with little but a frontend
    # Hypothesis draws some values from constants that it finds in the sources of every module: each edit would draw other cases from the
    # same seed, and parsing all of tec takes 10 s of each worker.
    assert providers._get_local_constants
    providers._get_local_constants = lambda: providers._local_constants


def _keep_temporary_files_together(config: pytest.Config) -> None:
    """What tests, examples of docstrings and the programs that they start make in the system's folder goes into one of this run's, which it removes.

    Some of it is kept for a user to read, as a report that opens in a browser or the IR that LLVM died of. pytest's own folders stay where they
    are, since they outlive the run.
    """
    if hasattr(config, "workerinput"):
        return  # it has the environment of the run that started it
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ["TMPDIR"] = tempfile.tempdir = folder.name


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Little of what collecting makes is garbage: looking for it takes a fifth of collecting's time, 3 s of each worker."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Rows whose lines others reach run at night, where they are named, and where the lines that rows reach are noted (tools/night_rows.py)."""
    if seeds.number() or "TEC_LINES" in os.environ or any("::" in a for a in config.args):
        return
    waiting = [item for item in items if item.nodeid in night_rows()]
    if waiting:
        items[:] = [item for item in items if item.nodeid not in night_rows()]
        config.hook.pytest_deselected(items=waiting)


def pytest_collection_finish() -> None:
    """What was collected lives as long as the run: collections of garbage need not go through its millions of objects each time, nor come each 700 of
    a compiler's small objects (a sixth of the processor time of tests that lower; now a tenth)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> Any:
    """A test's walks ask the system for no memory (`tec.ir.frames`): a tenth of the processor's time of tests that lower or interpret."""
    from tec.ir.frames import with_room

    test = pyfuncitem.obj
    pyfuncitem.obj = functools.wraps(test)(functools.partial(with_room, test))
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test


def pytest_report_header() -> str:
    """What draws a night's cases again; nothing at the gate."""
    return seeds.said()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    report = yield
    if report.failed and seeds.said():
        report.sections.append(("the night's seed", f"{seeds.said()} python -m pytest '{item.nodeid}'"))
    return report
