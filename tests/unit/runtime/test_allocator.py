"""The caching allocator: reuse, rounding, out of memory, streams, threads."""

from __future__ import annotations

import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_fakes import fake_device

from tec.errors import DeviceError
from tec.runtime import nd
from tec.runtime.devices.allocator import CachingAllocator, human, round_size


@given(st.integers(0, 1 << 40))
def test_rounding_wastes_at_most_an_eighth(n):
    size = round_size(n)
    assert size >= n and size % 512 == 0 and round_size(size) == size
    assert size - n <= max(512, n / 8)


def test_freed_blocks_are_used_again():
    dev = fake_device()
    address = nd.empty(1000, "float32", dev).address
    assert nd.empty(1000, "float32", dev).address == address
    assert nd.empty(990, "float32", dev).address == address  # the same size class
    stats = dev.memory()
    assert stats.driver_allocs == 1 and stats.cache_hits == 2 and stats.used == 0 and stats.cached == round_size(4000)
    assert stats.peak == round_size(4000) and stats.total == 1 << 30 and "cached" in str(stats)
    dev.empty_cache()
    assert dev.memory().cached == 0 and dev.driver.of("free")


def test_out_of_memory_empties_the_cache_and_tries_again():
    dev = fake_device(total=1 << 20)
    small = [nd.empty(100 << 10, "uint8", dev) for _ in range(9)]
    del small
    assert nd.empty(900 << 10, "uint8", dev).nbytes == 900 << 10


def test_out_of_memory_says_what_is_held():
    dev = fake_device(total=1 << 20)
    held = nd.empty(640 << 10, "uint8", dev)
    cached = nd.empty(100 << 10, "uint8", dev)
    del cached
    with pytest.raises(DeviceError) as e:
        nd.empty(700 << 10, "uint8", dev)
    for words in (
        "700.0 KiB asked for",
        "640.0 KiB in 1 blocks",
        "largest: ",
        "cache empty",
        "384.0 KiB of 1.0 MiB free",
        "fake: out of memory",
    ):
        assert words in str(e.value), str(e.value)
    assert held.numpy().shape == (640 << 10,)


def test_blocks_wait_for_a_synchronise_once_there_are_streams():
    dev = fake_device()
    dev.stream()
    a = nd.empty(1000, "uint8", dev)
    address = a.address
    del a
    b = nd.empty(1000, "uint8", dev)
    assert b.address != address  # work on the other stream may still use it
    dev.sync()
    assert nd.empty(1000, "uint8", dev).address == address


def test_pending_blocks_are_used_before_memory_runs_out():
    dev = fake_device(total=1 << 20)
    dev.stream()
    for _ in range(10):
        nd.empty(400 << 10, "uint8", dev)
    assert dev.driver.of("sync")


def test_exact_allocations_for_a_checking_driver():
    dev = fake_device(kind="rocm")
    dev.driver.exact_alloc = True
    from tec.runtime.devices.allocator import CachingAllocator

    allocator = CachingAllocator(dev.driver, 0, "fake")
    address = allocator.alloc(13)
    assert dev.driver.of("alloc")[-1] == ("alloc", 13)
    allocator.free(address)
    assert dev.driver.of("free")[-1] == ("free", address)
    assert allocator.stats().used == 0


def test_threads_and_cycles():
    dev = fake_device()
    failures = []

    def work(seed):
        try:
            for i in range(200):
                a = nd.empty(seed * 1000 + i % 7 * 600, "uint8", dev)
                ring = [a]
                ring.append(ring)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gc.collect()
    assert not failures
    stats = dev.memory()
    assert stats.used == 0 and stats.blocks == 0
    dev.empty_cache()
    assert not dev.driver.memory and dev.memory().cached == 0


def test_a_capture_has_its_own_threads_blocks_alone():
    """What the capturing thread frees is the graph's; another thread neither gets it nor gives to it, and waits for the device only behind the capture."""
    dev = fake_device()
    dev.stream()  # as a capture makes one
    allocator = dev.allocator
    mine, theirs = allocator.alloc(1000), allocator.alloc(2000)
    got, order = [], []

    def other():
        got.append(allocator.alloc(1000))
        allocator.free(theirs)
        dev.sync()
        order.append("synchronised")

    allocator.begin_capture()
    allocator.free(mine)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join(0.2)
    assert got != [mine] and thread.is_alive()
    assert not dev.driver.of("sync")
    assert allocator.alloc(1000) == mine and allocator.alloc(2000) != theirs
    allocator.free(mine)
    order.append("captured")
    assert allocator.end_capture() == [mine]
    thread.join()
    assert order == ["captured", "synchronised"]


def test_human_sizes():
    assert [human(x) for x in (0, 1023, 1536, 3 << 20, 5 << 30, 1 << 41)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 GiB",
        "2.0 TiB",
    ]


def test_the_last_bytes_are_given_without_rounding():
    dev = fake_device(total=(1 << 20) + 512)
    a = nd.empty((1 << 20) + 512, "uint8", dev)  # rounded up it would not fit
    assert dev.memory().used == (1 << 20) + 512
    del a
    dev.empty_cache()
    assert dev.memory().cached == 0 and not dev.driver.memory


def test_memory_is_given_back_while_another_thread_allocates():
    """A finalizer may run while the lock is held: it never waits, and what it gave back is taken at the next turn."""
    dev = fake_device(kind="rocm")
    dev.driver.exact_alloc = True
    allocator = CachingAllocator(dev.driver, 0, "fake")
    first, second = allocator.alloc(8), allocator.alloc(16)
    held, freed = threading.Event(), threading.Event()

    def hold():
        with allocator._lock:
            held.set()
            freed.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    giver = threading.Thread(target=allocator.free, args=(first,))
    giver.start()
    giver.join(10)
    stuck = giver.is_alive()
    freed.set()
    holder.join(20)
    giver.join(20)
    assert not stuck and not dev.driver.of("free")
    allocator.free(second)
    assert sorted(dev.driver.of("free")) == sorted([("free", first), ("free", second)])
