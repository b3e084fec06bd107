"""Groups of one process: drawn calls against NumPy on the CPU and on GPUs in software; calls that do not agree, ranks that wait for each other, ranks that end."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tec
from tec.collectives import Communicator, local
from tec.errors import ArgumentError, DeviceError
from tests.seeds import some

REDUCED = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


def _parts(rng: np.random.Generator, size: int, rows: int, dtype: str) -> list[np.ndarray[Any, Any]]:
    """An array [size * rows, columns] for each rank, of numbers whose sums are exact in every order."""
    columns = int(rng.integers(1, 5))
    return [rng.integers(-2, 3, (size * rows, columns)).astype(dtype) for _ in range(size)]


@pytest.mark.parametrize("seed", some(12))
def test_drawn_calls_equal_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, rows = int(rng.choice([1, 2, 3, 4, 8])), int(rng.integers(0, 5))
    dtype = str(rng.choice(["float32", "float64", "int32", "int64", "int8", "float16"]))
    op = str(rng.choice(list(REDUCED)))
    root = int(rng.integers(size))
    parts = _parts(rng, size, rows, dtype)
    whole = REDUCED[op](np.stack(parts), axis=0).astype(dtype)

    def work(c: Communicator) -> dict[str, np.ndarray[Any, Any]]:
        x = tec.nd.array(parts[c.rank], c.device)
        own = tec.nd.array(parts[c.rank], c.device)
        return {
            "all_reduce": c.all_reduce(x, op).numpy(),
            "in place": c.all_reduce(own, op, out=own).numpy(),
            "reduce_scatter": c.reduce_scatter(x, op).numpy(),
            "all_gather": c.all_gather(x).numpy(),
            "all_to_all": c.all_to_all(x).numpy(),
            "broadcast": c.broadcast(tec.nd.array(parts[c.rank], c.device), root).numpy(),
        }

    with local(["cpu"] * size) as group:
        results = group.run(work)
    for r, got in enumerate(results):
        np.testing.assert_array_equal(got["all_reduce"], whole)
        np.testing.assert_array_equal(got["in place"], whole)
        np.testing.assert_array_equal(got["reduce_scatter"], whole[r * rows : (r + 1) * rows])
        np.testing.assert_array_equal(got["all_gather"], np.concatenate(parts))
        np.testing.assert_array_equal(got["all_to_all"], np.concatenate([p[r * rows : (r + 1) * rows] for p in parts]))
        np.testing.assert_array_equal(got["broadcast"], parts[root])


def test_all_ranks_get_the_same_bits_where_sums_are_rounded() -> None:
    values = [np.random.default_rng(r).standard_normal(1001).astype("float32") for r in range(5)]
    with local(["cpu"] * 5) as group:
        got = group.run(lambda c: c.all_reduce(values[c.rank], "avg").numpy())
    assert all(g.tobytes() == got[0].tobytes() for g in got)
    np.testing.assert_allclose(got[0], np.mean(values, axis=0), rtol=1e-5, atol=1e-6)


def test_bfloat16_is_added_as_bfloat16() -> None:
    def work(c: Communicator) -> np.ndarray[Any, Any]:
        x = tec.nd.array(np.full(3, 1.0 + c.rank, "float32"), c.device).astype("bfloat16")
        return c.all_reduce(x, "avg").astype("float32").numpy()

    with local(["cpu"] * 4) as group:
        assert all((g == 2.5).all() for g in group.run(work))


@pytest.mark.parametrize("size", [2, 4])
def test_on_gpus_in_software(size: int) -> None:
    """A product split by its terms: each rank multiplies its part on its own GPU, and the parts are added."""
    rng = np.random.default_rng(size)
    a, b = rng.standard_normal((16, 32)).astype("float32"), rng.standard_normal((32, 16)).astype("float32")
    k = 32 // size
    A, B = tec.placeholder((16, k), name="A"), tec.placeholder((k, 16), name="B")
    r = tec.reduce_axis((0, k), name="r")
    C = tec.compute((16, 16), lambda i, j: tec.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = tec.create_schedule(C.op)
    s[C].bind(C.op.axis[0], tec.thread_axis("blockIdx.x"))
    s[C].bind(C.op.axis[1], tec.thread_axis("threadIdx.x"))
    multiply = tec.build(s, [A, B, C], "rocm -mcpu=gfx942")

    def work(c: Communicator) -> np.ndarray[Any, Any]:
        at = slice(c.rank * k, (c.rank + 1) * k)
        x, y = tec.nd.array(a[:, at].copy(), c.device), tec.nd.array(b[at].copy(), c.device)
        out = tec.nd.empty((16, 16), "float32", c.device)
        multiply(x, y, out)
        return c.all_reduce(out, out=out).numpy()

    devices = [tec.rocm_emu("gfx942", r) for r in range(size)]
    assert len(set(devices)) == size
    with local(devices) as group:
        for got in group.run(work):
            np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)


def test_messages_between_two_ranks_keep_their_order() -> None:
    def work(c: Communicator) -> list[float]:
        if c.rank == 0:
            for n in range(5):
                c.send(np.full(3, n, "float32"), to=2)
        if c.rank != 2:
            return []
        return [float(c.receive(np.empty(3, "float32"), source=0).numpy()[0]) for _ in range(5)]

    with local(["cpu"] * 3) as group:
        assert group.run(work)[2] == [0, 1, 2, 3, 4]


# ---- what goes wrong


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda c: c.all_gather(np.ones(4, "float32")), "all_gather of 4 float32"),
        (lambda c: c.all_reduce(np.ones(5, "float32")), "all_reduce of 5 float32 by sum"),
        (lambda c: c.all_reduce(np.ones(4, "int32")), "all_reduce of 4 int32 by sum"),
        (lambda c: c.all_reduce(np.ones(4, "float32"), "max"), "all_reduce of 4 float32 by max"),
    ],
)
def test_ranks_that_make_other_calls_are_told(other: Any, said: str) -> None:
    with (
        local(["cpu"] * 3, timeout_s=20) as group,
        pytest.raises(DeviceError, match=r"do not make the same calls|group has failed") as e,
    ):
        group.run(lambda c: other(c) if c.rank == 1 else c.all_reduce(np.ones(4, "float32")))
    assert said in str(e.value) and "all_reduce of 4 float32 by sum" in str(e.value)


def test_a_deadlock_is_told_at_once() -> None:
    with local(["cpu"] * 2, timeout_s=3600) as group, pytest.raises(DeviceError, match="all ranks wait") as e:
        group.run(lambda c: c.receive(np.empty(1, "float32"), source=1 - c.rank))
    assert "rank 0 waits for rank 1 in send of 1 float32" in str(e.value)


def test_a_rank_that_raises_ends_the_others_calls() -> None:
    def work(c: Communicator) -> None:
        if c.rank == 1:
            raise ValueError("no more")
        c.all_reduce(np.ones(4, "float32"))

    before = threading.active_count()
    with local(["cpu"] * 3, timeout_s=3600) as group, pytest.raises((ValueError, DeviceError), match="no more"):
        group.run(work)
    assert threading.active_count() == before


def test_a_rank_that_has_ended_is_told() -> None:
    with local(["cpu"] * 2, timeout_s=3600) as group:
        group[1].close()
        with pytest.raises(DeviceError, match="rank 1 has ended"):
            group[0].all_reduce(np.ones(4, "float32"))
        with pytest.raises(DeviceError, match="is closed"):
            group[1].all_reduce(np.ones(4, "float32"))


def test_a_time_limit() -> None:
    with (
        local(["cpu"] * 2, timeout_s=0.05) as group,
        pytest.raises(DeviceError, match=r"rank 1 did not come within 0\.05 s"),
    ):
        group[0].all_reduce(np.ones(4, "float32"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.all_reduce("x"), "takes an array, not str"),
        (lambda c: c.all_reduce(np.ones((4, 4), "float32").T[:, :2]), "compact"),
        (lambda c: c.all_reduce(np.ones(4, "float32"), "mean"), "no reduction 'mean'"),
        (lambda c: c.all_reduce(np.ones(4, bool)), "does not reduce bool"),
        (lambda c: c.all_reduce(np.ones(4, "float32"), out=np.ones(5, "float32")), "`out` is float32"),
        (lambda c: c.reduce_scatter(np.ones(3, "float32")), "3 rows cannot be divided among 2 ranks"),
        (lambda c: c.broadcast(np.ones(4, "float32"), root=2), "ranks are 0 to 1"),
        (lambda c: c.send(np.ones(4, "float32"), to=c.rank), "does not send to itself"),
    ],
)
def test_arguments_are_checked_before_anything_is_sent(call: Any, said: str) -> None:
    with local(["cpu"] * 2) as group:
        with pytest.raises(ArgumentError, match=said):
            call(group[0])
        group.run(lambda c: c.barrier())  # nothing was lost


def test_groups_are_checked() -> None:
    with pytest.raises(ArgumentError, match="needs a device"):
        local([])
    with pytest.raises(ArgumentError, match="several kinds"):
        local(["cpu", tec.rocm_emu("gfx942")])
    with local(["cpu"] * 2) as group, pytest.raises(DeviceError, match="run in threads"), group.together():
        pass
