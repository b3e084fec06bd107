"""Long compilations: a bar on a terminal, lines in a log, Ctrl-C; and a cache that notices weights beside the model."""

import io
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tec
from tec.graph import Graph
from tec.graph.progress import default_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal():
    out = Terminal()
    show = default_progress(out)
    show(1, 4, "first")
    assert out.getvalue().endswith("compiling [######                  ] 1/4 first") and "\n" not in out.getvalue()
    show(4, 4, "code")
    assert out.getvalue().endswith("[########################] 4/4 code\n")


def test_lines_in_a_log_when_it_takes_long():
    out, now = io.StringIO(), [0.0]
    show = default_progress(out, lambda: now[0])
    for k in range(1, 101):
        now[0] += 0.3
        show(k, 100, f"step {k}")
    assert out.getvalue() == "compiling 34/100 step 34\ncompiling 68/100 step 68\n"


def test_a_compilation_says_how_far_it_is():
    g = Graph("g")
    x = g.input("x", "float32", (4, 4))
    g.set_outputs([g.add("softmax", [g.add("matmul", [x, x], {})[0]], {"axes": (1,)})[0]], ["y"])
    seen = []
    tec.compile(g, target="llvm", cache=False, progress=lambda *a: seen.append(a))
    assert [d for d, _, _ in seen] == list(range(1, len(seen) + 1)) and seen[-1][:2] == (seen[-1][1], seen[-1][1])
    assert len({total for _, total, _ in seen}) == 1


LONG = """
import sys, numpy as np, tec
from tec.graph import Graph
g = Graph("g")
v = g.input("x", "float32", (3, 40))
for k in range(400):  # every one another function
    v = g.add("pad", [v], {"before": (0, 1), "after": (0, k % 7), "mode": "edge"})[0]
    v = g.add("softmax", [v], {"axes": (1,)})[0]
g.set_outputs([v], ["y"])
print("go", flush=True)
try:
    tec.compile(g, target="llvm", cache=False)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    net = None
h = Graph("h")
x = h.input("x", "float32", (2,))
h.set_outputs(h.add("relu", [x]), ["y"])
print(tec.compile(h, target="llvm", cache=False).run({"x": np.array([-1, 2], "f")})[0])
"""


def test_ctrl_c_ends_a_long_compilation():
    p = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stdout is not None
    assert p.stdout.readline() == "go\n"
    time.sleep(1.5)
    heard = threading.Event()

    def press() -> None:  # again if need be: Python loses an interrupt that meets the callback of a weak reference
        while p.poll() is None:
            p.send_signal(signal.SIGINT)
            if heard.wait(3):
                return

    pressing = threading.Thread(target=press)
    pressing.start()
    first = p.stdout.readline()
    heard.set()
    pressing.join()
    out, err = p.communicate(timeout=60)
    assert [first, *out.split("\n")][:2] == ["interrupted\n", "[0. 2.]"], (first, out, err)
    assert p.returncode == 0


def test_weights_beside_the_model_are_part_of_what_is_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path / "cache"))
    path = str(tmp_path / "m.onnx")

    def save(value):
        w = numpy_helper.from_array(np.full((2, 1000), value, np.float32), "w")
        info = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 1000))
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])], "g", [info], [helper.make_empty_tensor_value_info("y")], [w]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        if os.path.exists(str(tmp_path / "w.bin")):
            os.unlink(str(tmp_path / "w.bin"))
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)

    save(1.0)
    before = open(path, "rb").read()
    assert tec.compile(path, target="llvm").run([np.zeros((2, 1000), np.float32)])[0][0, 0] == 1
    save(2.0)
    assert open(path, "rb").read() == before  # the same file, other weights
    assert tec.compile(path, target="llvm").run([np.zeros((2, 1000), np.float32)])[0][0, 0] == 2


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_no_progress_is_no_error(stream):
    default_progress(stream)(0, 0, "")
