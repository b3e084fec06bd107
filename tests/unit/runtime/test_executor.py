"""Executors: arrays in and out without copies, runs side by side, jobs, graphs where shapes repeat, memory that is given back."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE, FakeDriver, fake_device, vadd

import tec
from tec.errors import ArgumentError, PackageError
from tec.graph import Graph
from tec.graph.graph import run_graph
from tec.ops.dims import Dim
from tec.runtime.devices.stream import GraphCapture
from tec.runtime.modules.module import Module
from tec.runtime.networks import device_engine
from tec.runtime.networks.network import Network
from tec.runtime.networks.state import States
from tec.runtime.plans.plan import Plan

RNG = np.random.default_rng(5)


def chain(steps: int = 3, open_size: bool = True) -> Graph:
    """y = softmax(... softmax(x @ w0) @ w1 ...), and x's last row sums as a second output."""
    g = Graph()
    x = v = g.input("x", "float32", (Dim("n") if open_size else 4, 8))
    for k in range(steps):
        w = g.constant(np.random.default_rng(k).standard_normal((8, 8)).astype("float32"))
        v = g.add("softmax", [g.add("matmul", [v, w])[0]], {"axes": (1,)})[0]
    total = g.add("reduce_sum", [x], {"axes": (1,), "keepdims": False})[0]
    g.set_outputs([v, total], ["y", "sums"])
    return g


@pytest.fixture(scope="module")
def net() -> Network:
    return tec.compile(chain(), target="llvm")


def want(x: Any) -> list[Any]:
    return run_graph(chain(), {"x": x})


def batch(n: int) -> Any:
    return np.random.default_rng(n).standard_normal((n, 8)).astype("float32")


def close(got: Any, expected: Any) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6)


def test_run_gives_arrays_of_the_device(net):
    ex = net.executor()
    for n in (3, 1, 7, 3):
        got = ex.run({"x": batch(n)})
        assert all(isinstance(r, tec.nd.NDArray) and r.device is ex.device for r in got)
        close(got, want(batch(n)))
    first = ex.run([batch(3)])
    ex.run([batch(5)])
    close(first, want(batch(3)))  # a later run leaves them alone


def test_takes_anything_with_dlpack(net):
    class Other:
        def __init__(self, x: Any):
            self.x = x

        def __dlpack__(self, **options: Any) -> Any:
            return self.x.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.x.__dlpack_device__()

    x = batch(4)
    for given in (x, tec.nd.array(x), Other(x), x.tolist() and np.asfortranarray(x), np.repeat(x, 2, 0)[::2]):
        close(net.executor().run({"x": given}), want(x))


def test_writes_into_given_arrays(net):
    ex, x = net.executor(), batch(6)
    y, sums = tec.nd.empty((6, 8)), np.zeros(6, "float32")
    got = ex.run([x], outputs={"y": y})
    assert got[0] is y
    close(got, want(x))
    close(ex.run([x], outputs=[None, sums])[:1], want(x)[:1])
    np.testing.assert_allclose(sums, want(x)[1], rtol=1e-5)
    wide = tec.nd.zeros((6, 16))  # not compact: written through a copy
    ex.run([x], outputs={"y": wide[:, 3:11]})
    close([wide.numpy()[:, 3:11]], want(x)[:1])
    assert not wide.numpy()[:, :3].any()


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ({"z": None}, "no output z"),
        ([None], "1 arrays given for outputs"),
        ({"y": np.zeros((6, 7), "float32")}, "the array for output y is float32"),
        ({"y": np.zeros((6, 8))}, "is float64"),
        ({"y": "text"}, "makes no array"),
        ({"y": tec.nd.zeros((6, 8)).read_only()}, "read-only"),
    ],
)
def test_wrong_outputs(net, outputs, says):
    with pytest.raises(ArgumentError, match=says):
        net.executor().run([batch(6)], outputs=outputs)


def test_outputs_that_share_memory(net):
    x = tec.nd.array(batch(6))
    with pytest.raises(ArgumentError, match="shares memory"):
        net.executor().run([x], outputs={"y": x})
    both = tec.nd.zeros((6, 9))
    with pytest.raises(ArgumentError, match="shares memory"):
        net.executor().run([x], outputs={"y": both[:, :8], "sums": both[:, 0]})


def test_threads_run_side_by_side(net):
    failed: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for n in range(1, 12):
                x = batch(n + k)
                close(net.run({"x": x}), want(x))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_two_runs_of_a_network_at_once(net):
    """A run that is held up does not hold up another."""
    x = batch(2)
    one = net._take(tec.cpu())
    other = net._take(tec.cpu())
    assert one is not other
    with one._lock:
        close(net.run([x]), want(x))
    net._give(one)
    net._give(other)
    assert net._take(tec.cpu()) is other


def test_launch_on_the_cpu(net):
    ex = net.executor()
    jobs = [(n, ex.launch([batch(n)])) for n in (2, 5, 3)]
    for n, job in jobs:
        close(job.sync(), want(batch(n)))
        assert job.done
    with pytest.raises(ArgumentError, match="missing: x"):
        ex.launch({}).sync()


def test_memory_is_given_back(net):
    ex = net.executor(memory_limit=0)
    close(ex.run([batch(40)]), want(batch(40)))
    assert ex.nbytes == 0
    close(ex.run([batch(3)]), want(batch(3)))
    kept = net.executor()
    kept.run([batch(40)])
    most = kept.nbytes
    assert most > 0
    for n in range(1, 40):
        kept.run([batch(n)])
    assert kept.nbytes <= most + 40 * 8 * 4  # an input that does not lie on 64 bytes is copied


def test_saved_and_loaded(net, tmp_path):
    net.save(tmp_path / "n.tec")
    close(tec.load(tmp_path / "n.tec").executor().run([batch(9)]), want(batch(9)))


def test_many_sizes_share_memory_rightly():
    """Values that live at once lie apart for all sizes, also for those that the layout was not thought out for."""
    g = Graph()
    a, b = Dim("a"), Dim("b")
    x, y = g.input("x", "float32", (a, 16)), g.input("y", "float32", (b, 16))
    w = g.constant(RNG.standard_normal((16, 16)).astype("float32"))
    vx, vy, made = x, y, []
    for _ in range(4):
        vx, vy = (g.add("softmax", [g.add("matmul", [v, w])[0]], {"axes": (1,)})[0] for v in (vx, vy))
        made += [g.add("matmul", [vx, g.add("transpose", [vy], {"perm": (1, 0)})[0]])[0]]
    g.set_outputs([g.add("add", [made[0], g.add("add", [made[1], g.add("add", made[2:])[0]])[0]])[0]], ["out"])
    net = tec.compile(g, target="llvm")
    ex = net.executor()
    for sizes in ((1, 1), (1, 300), (300, 1), (17, 33), (64, 64), (5, 129)):
        feeds = {"x": np.ones((sizes[0], 16), "float32"), "y": batch(sizes[1])[:, [0] * 16]}
        close(ex.run(feeds), run_graph(g, feeds))


# ---- devices


def sum_twice(n: Any) -> Network:
    """z = (x + y) + y by the kernel vadd."""
    values = {
        "x": {"dtype": "float32", "shape": [n], "place": "input"},
        "y": {"dtype": "float32", "shape": [n], "place": "input"},
        "t": {"dtype": "float32", "shape": [n], "place": "arena"},
        "z": {"dtype": "float32", "shape": [n], "place": "output"},
    }
    steps = [
        {"op": "call", "function": "vadd", "args": ["x", "y", "t"]},
        {"op": "call", "function": "vadd", "args": ["t", "y", "z"]},
    ]
    plan = Plan.from_json(
        {"inputs": ["x", "y"], "outputs": [{"name": "z", "value": "z"}], "values": values, "steps": steps, "guards": []}
    )
    device = Module("cuda", image=b"code")
    module = Module("llvm", "vadd", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[device])
    return Network(module, plan, {})


class CapturingDriver(FakeDriver):
    """Records launches between `capture_begin` and `capture_end`, and runs them at `graph_launch`."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.recording: list[Any] | None = None

    def capture_begin(self, ordinal: int, stream: Any) -> None:
        self.recording = []

    def capture_end(self, ordinal: int, stream: Any) -> Any:
        made, self.recording = self.recording, None
        return made

    def graph_launch(self, ordinal: int, graph: Any, stream: Any) -> None:
        self.calls.append(("graph", len(graph)))
        for args in graph:
            FakeDriver.launch(self, *args)

    def graph_destroy(self, ordinal: int, graph: Any) -> None:
        self.calls.append(("graph_destroy",))

    def launch(self, *args: Any) -> None:
        if self.recording is not None:
            self.recording.append(args)
        else:
            super().launch(*args)


def capturing_device() -> Any:
    return tec.runtime.devices.device.custom(CapturingDriver({"vadd": vadd}, arch="sm_90"), "cuda")


def test_captures_itself_where_shapes_repeat():
    dev = capturing_device()
    net = sum_twice("n")
    ex = net.executor(dev)
    rows = {n: [RNG.standard_normal(n).astype("float32") for _ in range(2)] for n in (100, 7)}

    def run(n: int) -> None:
        x, y = rows[n]
        np.testing.assert_allclose(ex.run([x, tec.nd.array(y, dev)])[0].numpy(), x + 2 * y, rtol=1e-5)

    run(100)
    assert not dev.driver.of("graph")
    run(100)
    run(100)
    run(7)  # another size: steps one by one
    run(100)
    assert dev.driver.of("graph") == [("graph", 2)] * 3
    before = len(dev.driver.of("graph_destroy"))
    rows[200] = [RNG.standard_normal(200).astype("float32") for _ in range(2)]
    run(200)  # memory grows: graphs over the old addresses are gone
    assert len(dev.driver.of("graph_destroy")) > before
    run(100)
    run(100)


class SlowCaptures(CapturingDriver):
    """Holds the launches of one stream, whose capture takes long enough that other threads run meanwhile."""

    def capture_begin(self, ordinal: int, stream: Any) -> None:
        self.held: tuple[Any, list[Any]] | None = (stream, [])

    def capture_end(self, ordinal: int, stream: Any) -> Any:
        assert self.held is not None
        made, self.held = self.held[1], None
        return made

    def launch(self, *args: Any) -> None:
        held = getattr(self, "held", None)
        if held is not None and args[-1] == held[0]:
            held[1].append(args)
            time.sleep(0.02)
        else:
            FakeDriver.launch(self, *args)


def test_threads_run_while_one_captures():
    """A thread's capture is its own: the copies and launches of others go on (a server's threads were refused on a real GPU)."""
    dev = tec.runtime.devices.device.custom(SlowCaptures({"vadd": vadd}, arch="sm_90"), "cuda")
    net = sum_twice("n")
    wrong: list[Any] = []

    def work(n: int) -> None:
        try:
            ex = net.executor(dev)
            for _ in range(5):
                x = np.full(n, n, "float32")
                np.testing.assert_array_equal(ex.run([x, x])[0].numpy(), 3 * x)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 50, 7, 200)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong
    assert len(dev.driver.of("graph")) >= 4


def test_nothing_comes_to_the_host():
    dev = fake_device({"vadd": vadd}, kind="cuda", arch="sm_90")
    ex = sum_twice("n").executor(dev)
    x, y = (tec.nd.array(RNG.standard_normal(50).astype("float32"), dev) for _ in range(2))
    z = ex.run([x, y])[0]
    out = tec.nd.empty((50,), "float32", dev)
    assert ex.run([x, y], outputs=[out])[0] is out
    assert z.device is dev
    assert not dev.driver.of("d2h")
    np.testing.assert_allclose(z.numpy(), x.numpy() + 2 * y.numpy(), rtol=1e-5)
    np.testing.assert_allclose(out.numpy(), z.numpy())


def test_launch_on_a_device():
    dev = fake_device({"vadd": vadd}, kind="cuda", arch="sm_90")
    ex = sum_twice("n").executor(dev)
    x = np.ones(9, "float32")
    waits = len(dev.driver.of("event_sync"))
    job = ex.launch([x, x])
    assert job.event is not None
    np.testing.assert_allclose(job.sync()[0].numpy(), 3.0)
    assert job.done
    assert len(dev.driver.of("event_sync")) > waits
    with pytest.raises(ArgumentError, match="the executor on"):
        ex.run([x, x], outputs=[tec.nd.empty((9,))])


def test_arrays_of_other_shapes_are_refused():
    net = sum_twice("n")
    plan = net.plan.to_json()
    plan["values"]["y"]["shape"] = ["m"]
    forged = Network(net.module, Plan.from_json(plan), {})
    ex = forged.executor(fake_device({"vadd": vadd}, kind="cuda", arch="sm_90"))
    ex.run([np.ones(4, "float32")] * 2)
    with pytest.raises(PackageError, match="does not take"):
        ex.run([np.ones(4, "float32"), np.ones(3, "float32")])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p["steps"].reverse(), "not made yet"),
        (lambda p: p["steps"].pop(), "no step makes output"),
        (lambda p: p["steps"][1]["args"].__setitem__(2, "t"), "over another of its arguments"),
        (lambda p: p["steps"][0]["args"].__setitem__(2, "x"), "which is an input"),
    ],
)
def test_open_plans_are_checked(change, says):
    net = sum_twice("n")
    plan = net.plan.to_json()
    change(plan)
    with pytest.raises(PackageError, match=says):
        Network(net.module, Plan.from_json(plan), {})


def test_on_the_software_gpu():
    net = tec.compile(chain(2), target="rocm -mcpu=gfx942")
    ex = net.executor(tec.rocm_emu("gfx942"))
    for n in (2, 5, 2):
        x = batch(n)
        close([r.numpy() for r in ex.run([x])], run_graph(chain(2), {"x": x}))


def test_large_outputs_are_the_callers_own() -> None:
    """They are handed over without a copy: an input or a constant that is an output, one value under two names, and a run after it."""
    g = Graph()
    x = g.input("x", "float32", (64, 512))
    doubled = g.add("add", [x, x], {})[0]
    table = g.constant(np.arange(64 * 512, dtype="float32").reshape(64, 512))
    g.set_outputs([x, table, doubled, doubled], ["same", "table", "twice", "again"])
    net = tec.compile(g, target="llvm")
    data = np.random.default_rng(1).standard_normal((64, 512)).astype("float32")
    kept = data.copy()
    first = net.run({"x": data})
    for r in first:
        assert r.flags.writeable
        r += 1
    np.testing.assert_array_equal(data, kept)
    same, again = net.run({"x": data}), kept + kept
    for got, want in zip(same, (kept, np.arange(64 * 512).reshape(64, 512), again, again)):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(first[2], again + 1)
    np.testing.assert_array_equal(first[3], again + 1)


def test_inputs_are_read_where_they_lie() -> None:
    """An input that begins at any element gives the right result, and one that begins within an element."""
    net = tec.compile(chain(1, open_size=False), target="llvm")
    raw = np.zeros(4 * 8 * 4 + 128, np.uint8)
    start = -raw.ctypes.data % 64
    for offset in (0, 4, 20, 1):
        x = raw[start + offset : start + offset + 128].view("float32").reshape(4, 8)
        x[:] = batch(4)
        close(net.run({"x": x}), run_graph(chain(1, open_size=False), {"x": batch(4)}))


def test_inputs_that_lie_otherwise_are_read_right() -> None:
    """Rows apart, rows backwards, and elements that begin between addresses of whole ones."""
    net = tec.compile(chain(3), target="llvm")
    executor, whole = net.executor(), RNG.standard_normal((12, 8)).astype("float32")
    raw = np.zeros(whole[:6].nbytes + 1, np.uint8)
    between = raw[1:].view(np.float32).reshape(6, 8)
    between[:] = whole[:6]
    for x in (whole[::2], whole[5::-1], np.asfortranarray(whole[:6]), between):
        want = executor.run([np.ascontiguousarray(x)])[0].numpy().copy()
        np.testing.assert_array_equal(executor.run([x])[0].numpy(), want)
        np.testing.assert_array_equal(
            executor.run([tec.nd.array(whole)[::2]])[0].numpy(), executor.run([whole[::2].copy()])[0].numpy()
        )


def test_the_sizes_of_late_are_kept() -> None:
    dev = capturing_device()
    executor = sum_twice("n").executor(dev)
    for n in range(device_engine._KEPT + 4, 0, -1):  # smaller and smaller: memory never grows
        x = np.ones(n, "float32")
        np.testing.assert_array_equal(executor.run([x, x])[0].numpy(), 3 * x)
    kept = [binding.env["n"] for binding, _ in executor._engine._bound.values()]
    assert kept == [*range(device_engine._KEPT, 0, -1)]


def test_a_graph_is_captured_once_and_a_thread_captures_one_at_a_time() -> None:
    dev = capturing_device()
    first, second = GraphCapture(dev), GraphCapture(dev)
    with first:
        with pytest.raises(tec.DeviceError, match="one at a time"):
            second.__enter__()
    with pytest.raises(tec.DeviceError, match="captured once"):
        first.__enter__()
    with second:
        pass


@pytest.mark.parametrize("indices", [[], [[0, 1]], [0.0, 1.0], 1])
def test_batches_are_reordered_by_a_row_of_whole_numbers(indices: Any) -> None:
    states = States.__new__(States)
    states.names = []
    with pytest.raises(tec.ArgumentError, match="a row of indices"):
        states.reorder(indices)
    states.reorder([1, 0])
    states.reorder(np.array([1, 1], np.uint8))
