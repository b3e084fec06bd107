"""Drawn models, tensors and ways to send them, through Triton's own clients; many clients at once; reloading and sequences under load."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.ops.dims import Dim
from tests import seeds

http = pytest.importorskip("tritonclient.http")
grpc = pytest.importorskip("tritonclient.grpc")
pytest.importorskip("uvicorn")

from tec.serve.batching import Batcher, Sequence  # noqa: E402
from tec.serve.errors import Refusal  # noqa: E402
from tec.serve.grpc_server import serve_grpc  # noqa: E402
from tec.serve.repository import Repository  # noqa: E402
from tec.serve.tensors import TYPES  # noqa: E402
from tests.unit.native.networks import cached_sum  # noqa: E402
from tests.unit.serve.test_inference import Server, network, row  # noqa: E402

DTYPES = [t for t in TYPES if t != "bfloat16"]  # NumPy has no bfloat16 of its own


def drawn_network(rng):
    """Each output is an input plus itself, or what it is; inputs of drawn types and ranks, with an open batch or without."""
    g = Graph("drawn")
    b = Builder(g, "l")
    first = (Dim("batch"),) if rng.integers(3) else (2,)
    ports, outputs = {}, []
    for k in range(int(rng.integers(1, 4))):
        dtype = str(rng.choice(DTYPES))
        shape = first + tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 3)))
        x = g.input(f"x{k}", dtype, shape)
        ports[f"x{k}"] = (dtype, shape[1:])
        outputs.append(b.op("logical_not", x) if dtype == "bool" else b.op("add", x, x))
    g.set_outputs(outputs, [f"y{k}" for k in range(len(outputs))])
    return tec.compile(g, "llvm"), ports


@pytest.fixture(scope="module")
def served():
    """A server with both faces, and clients."""
    repository = Repository()
    server = Server(repository)
    both = serve_grpc(repository, "127.0.0.1:0")
    clients = {
        http: http.InferenceServerClient(server.at, concurrency=8),
        grpc: grpc.InferenceServerClient(f"127.0.0.1:{both.port}"),
    }
    yield repository, clients
    for c in clients.values():
        c.close()
    both.stop(1)
    server.close()


@pytest.mark.parametrize("seed", seeds.some(12))
def test_drawn_requests(seed, served):
    repository, clients = served
    rng = np.random.default_rng(seed)
    net, ports = drawn_network(rng)
    repository.add("drawn", net)
    for _ in range(4):
        face = http if rng.integers(2) else grpc
        rows = int(rng.integers(1, 5)) if net.open_sizes else 2
        arrays, inputs = {}, []
        for name, (dtype, rest) in ports.items():
            a = rng.integers(0, 2 if dtype == "bool" else 60, (rows, *rest)).astype(dtype)
            arrays[name] = a if rng.integers(2) or a.ndim < 2 else np.asfortranarray(a)
            given = face.InferInput(name, list(a.shape), TYPES[dtype])
            binary = {"binary_data": bool(rng.integers(2)) or dtype == "float16"} if face is http else {}
            given.set_data_from_numpy(arrays[name], **binary)
            inputs.append(given)
        rng.shuffle(inputs)
        names = [f"y{k}" for k in rng.permutation(len(ports))[: int(rng.integers(1, len(ports) + 1))]]
        asked = None
        if rng.integers(3):
            asked = [
                face.InferRequestedOutput(n, **({"binary_data": bool(rng.integers(2))} if face is http else {}))
                for n in names
            ]
        more = (
            {"request_compression_algorithm": rng.choice(["gzip", "deflate"])}
            if face is http and rng.integers(2)
            else {}
        )
        found = clients[face].infer("drawn", inputs, outputs=asked, request_id=str(seed), **more)
        for n in names if asked else [f"y{k}" for k in range(len(ports))]:
            x = arrays["x" + n[1:]]
            made = found.as_numpy(n)
            assert made.dtype == x.dtype
            np.testing.assert_array_equal(made, ~x if x.dtype == bool else x + x)
        wrong = face.InferInput("x0", [rows, 9, 9, 9, 9], TYPES[ports["x0"][0]])
        wrong.set_data_from_numpy(np.zeros((rows, 9, 9, 9, 9), ports["x0"][0]))
        with pytest.raises((http.InferenceServerException, grpc.InferenceServerException), match="x0"):
            clients[face].infer("drawn", [wrong])


def test_sixty_four_clients_and_a_reload(served, tmp_path):
    """Every request is answered, by the network before or behind a reload; most run in batches."""
    repository, clients = served
    network(2.0).save(tmp_path / "model.tec")
    repository.open("many", tmp_path / "model.tec")
    network(3.0).save(tmp_path / "model.tec")
    rows, wrong, stop = [], [], threading.Event()
    ran = repository.metrics.ran
    repository.metrics.ran = lambda labels, requests, *more: (rows.append(requests), ran(labels, requests, *more))

    def ask(k):
        x = np.full((1, 3), k, "f")
        given = grpc.InferInput("x", [1, 3], "FP32")
        given.set_data_from_numpy(x)
        count = 0
        while not stop.is_set() or count < 3:
            got = clients[grpc].infer("many", [given]).as_numpy("y")
            count += 1
            if not any(np.array_equal(got, x * s) for s in (2, 3)):
                wrong.append(got)
        return count

    with ThreadPoolExecutor(64) as threads:
        asking = [threads.submit(ask, k) for k in range(64)]
        for _ in range(3):
            time.sleep(0.1)
            repository.reload("many")
        stop.set()
        answered = sum(f.result(60) for f in asking)
    repository.metrics.ran = ran
    assert not wrong and sum(rows) == answered >= 192


def test_a_batcher_that_closes_is_no_refusal():
    """Between the moment when a request asks who runs it and the moment when it is queued, a reload may come."""
    repository = Repository()
    model = repository.add("scaled", network(2.0))
    stop, answers = threading.Event(), []

    def ask():
        while not stop.is_set():
            begun = model.start(row(1), None)
            made = begun.made if begun.future is None else begun.future.result(20)
            answers.append(float(made[0][0, 0]))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for k in range(20):
        repository.add("scaled", network(float(k % 5 + 2)))
    stop.set()
    for t in threads:
        t.join()
    assert set(answers) <= {2.0, 3.0, 4.0, 5.0, 6.0} and len(answers) > 20
    repository.unload("scaled")
    with pytest.raises(Refusal, match="unloaded"):
        model.start(row(1), None)
    repository.close()


class Stepping:
    """A network with states whose runs wait until as many run side by side as are wanted."""

    def __init__(self, at_once):
        made = cached_sum()
        self.inputs, self.outputs, self.plan = made.inputs, made.outputs, made.plan
        self.barrier, self.made, self.order = threading.Barrier(at_once, timeout=20), made, []

    def executor(self):
        inner, outer = self.made.executor(), self

        class Executor:
            def reset(self):
                inner.reset()

            def run(self, inputs):
                outer.order.append(int(inputs["ids"].shape[1]))
                outer.barrier.wait()
                return inner.run(inputs)

        return Executor()


def test_sequences_run_side_by_side():
    """Two sequences at the same time; a sequence's own requests one after the other, in their order."""
    net = Stepping(2)
    batcher = Batcher(net, threads=4)
    expected = {k: net.made.executor() for k in (1, 2)}
    futures = {1: [], 2: []}
    rng = np.random.default_rng(0)
    for step in range(4):
        for k in (1, 2):
            ids = rng.integers(0, 5, (2, 1 + step))
            futures[k].append((ids, batcher.submit({"ids": ids}, Sequence(k, step == 0))))
    for k in (1, 2):
        for ids, future in futures[k]:
            np.testing.assert_array_equal(future.result(20)[0], expected[k].run([ids])[0].numpy())
    assert net.order == sorted(net.order)  # step by step
    batcher.close()


def test_a_caller_that_is_alone_runs_longer_requests_itself():
    """Handing a run over takes as long as a short one; where others came meanwhile, requests are queued for a while, and form batches."""
    batcher = Batcher(network())
    batcher.submit(row(1)).result(10)
    batcher._seconds = 1e-3
    assert batcher.run_here(row(2)) is None
    assert batcher.run_here(row(2), alone=True)[0][0, 0] == 4
    batcher._seconds = 1e-3
    batcher.crowd()
    waited = 0
    while batcher.run_here(row(2), alone=True) is None:
        waited += 1
        assert waited < 1000
    assert waited > 100
    batcher._seconds = 1e-2
    assert batcher.run_here(row(2), alone=True) is None
    batcher.close()
