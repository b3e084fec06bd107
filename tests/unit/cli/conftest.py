"""A small network for the command line's tests, and a cache of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser import Browser

click_testing = pytest.importorskip("click.testing")
onnx = pytest.importorskip("onnx")


def make_tiny(path: Path) -> Path:
    """Conv, Relu, pool, MatMul, Softmax with an open batch dimension."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> Any:
        return numpy_helper.from_array((rng.standard_normal(shape) * 0.3).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "fc"], ["m"], name="fc"),
        helper.make_node("Softmax", ["m"], ["y"], name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [weight("w", 8, 3, 3, 3), weight("b", 8), weight("fc", 8, 5)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny.onnx")


@pytest.fixture(scope="session")
def open_sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture of any size and number to its means: three open dimensions, one of them the batch."""
    from onnx import TensorProto, helper

    def value(name: str, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"], name="mean")]
    graph = helper.make_graph(nodes, "open", [value("x", "n", 3, "?", None)], [value("y", "n", 3, 1, 1)])
    path = tmp_path_factory.mktemp("model") / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_CACHE_DIR", str(cache_folder))
    for name in ("TEC_EMULATE", "TEC_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tec_cli() -> Callable[..., Any]:
    """`tec_cli("run", path, ...)` gives click's result."""
    from tec.cli.app import app

    def call(*args: Any) -> Any:
        return click_testing.CliRunner().invoke(app, [str(a) for a in args])

    return call


@pytest.fixture
def package(tiny: Path, tmp_path_factory: pytest.TempPathFactory, tec_cli: Callable[..., Any]) -> Path:
    """The network compiled for gfx942."""
    path = tmp_path_factory.getbasetemp() / "tiny-gfx942.tec"
    if not path.exists():
        made = tec_cli("compile", tiny, "-o", path, "--target", "rocm -mcpu=gfx942", "--input-dim", "batch", "1")
        assert made.exit_code == 0, made.output
    return path


@pytest.fixture
def in_browser(tmp_path: Path, browser: Browser) -> Callable[..., Any]:
    """`in_browser(page, script, width)`: what `script`, the body of a function, returns in headless Chromium when the page has loaded."""

    def run(page: str, script: str, width: int = 1400) -> Any:
        file = tmp_path / "page.html"
        file.write_text(page, encoding="utf-8")
        with browser.tab(width) as tab:
            tab.open(file.as_uri())
            said = tab.run(script)
            assert tab.errors() == []
            return said

    return run
