"""What kernels compute with besides plain numbers: complex numbers, structs, tuples, random numbers; and what threads do together."""

from __future__ import annotations

import cmath
import collections
import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

import tec
from tec.jit import reflection
from tests import seeds

DEVICES = [tec.cpu(), tec.rocm_emu("gfx942")]
devices = pytest.mark.parametrize("dev", DEVICES, ids=str)
N = 96


def drawn(rng: random.Random, dtype: str, n: int = N) -> np.ndarray[Any, Any]:
    make = np.random.default_rng(rng.randrange(1 << 30))
    if dtype.startswith("complex"):
        return (make.uniform(-2, 2, n) + 1j * make.uniform(-2, 2, n)).astype(dtype)
    if dtype.startswith("float"):
        return make.uniform(-2, 2, n).astype(dtype)
    return make.integers(0, 9, n).astype(dtype)


# ---- complex numbers


@tec.kernel
def arithmetic(a, b, r, out, s, n):
    i = tec.grid_idx(1)
    if i < n:
        x, y = a[i], b[i]
        z = x
        for k in range(3):  # a variable that changes
            z = z * y - x.conjugate() * k if k != 1 else z / y + (1.5 - 0.5j)
        w = -z + s * r[i]
        if abs(w) > 4.0:
            w /= abs(w) + 1
        out[i] = w**3 + w.real - 1j * w.imag + r[i] * w - 2 / (y + 3j)


def arithmetic_of(a: Any, b: Any, r: Any, s: complex) -> Any:
    out = []
    for x, y, q in zip(a.astype(complex).tolist(), b.astype(complex).tolist(), r.astype(float).tolist()):
        z = x
        for k in range(3):
            z = z * y - x.conjugate() * k if k != 1 else z / y + (1.5 - 0.5j)
        w = -z + s * q
        if abs(w) > 4.0:
            w /= abs(w) + 1
        out.append(w**3 + w.real - 1j * w.imag + q * w - 2 / (y + 3j))
    return np.array(out)


@devices
@pytest.mark.parametrize("seed", seeds.some(1))
def test_complex_numbers_compute_as_pythons(dev: Any, seed: int) -> None:
    rng = random.Random(seed)
    dtype, real = rng.choice([("complex64", "float32"), ("complex128", "float64"), ("complex64", "int32")])
    a, b, r = drawn(rng, dtype), drawn(rng, dtype), drawn(rng, real)
    s = complex(rng.uniform(-2, 2), rng.uniform(-2, 2))
    out = tec.nd.array(np.zeros(N, dtype), dev)
    arithmetic.launch(N)(*[tec.nd.array(x, dev) for x in (a, b, r)], out, s, N)
    want = arithmetic_of(a, b, r, s)
    near = np.abs(out.numpy() - want) / (np.abs(want) + 1)
    # A quotient by a small number and three products: some hundred units of the last digit.
    assert near.max() < (1e-11 if dtype == "complex128" else 5e-4)


@tec.kernel
def functions(z, out, host):
    i = tec.grid_idx(1)
    if i < z.shape[0]:
        x = z[i]
        out[0, i] = cmath.exp(x)
        out[1, i] = cmath.log(x)
        out[2, i] = cmath.sqrt(x)
        out[3, i] = cmath.rect(abs(x), cmath.phase(x))
        out[4, i] = complex(x == x, x != x.conjugate())
        out[5, i] = tec.exp(x * 1j)
        if host[0]:  # more on the CPU alone: they are made of the same functions of reals
            out[6, i] = np.sin(x)
            out[7, i] = np.cos(x)
            out[8, i] = cmath.tanh(x)
            out[9, i] = x ** (0.5 + 1j)


@devices
def test_functions_of_complex_numbers(dev: Any) -> None:
    host = dev.kind == "cpu"
    z = drawn(random.Random(seeds.stream("functions")), "complex128" if host else "complex64", 24)
    out = tec.nd.array(np.zeros((10, 24), z.dtype), dev)
    functions.launch(24)(tec.nd.array(z, dev), out, (host,))
    want = [np.exp(z), np.log(z), np.sqrt(z), z, 1 + 1j * (z.imag != 0), np.exp(1j * z)]
    want += [np.sin(z), np.cos(z), np.tanh(z), z ** (0.5 + 1j)] if host else [0 * z] * 4
    np.testing.assert_allclose(out.numpy(), np.array(want), **dict.fromkeys(("rtol", "atol"), 1e-12 if host else 1e-4))


@devices
def test_complex_storage_of_a_block(dev: Any) -> None:
    """Shared and local complex arrays: a discrete Fourier transform of a block; sums by atomics."""

    @tec.kernel
    def transform(x, total):
        held, t = tec.shared((2, 16), np.complex64), tec.thread_idx.x
        own = tec.local(1, np.complex64)
        held[1, t] = x[t]
        tec.barrier()
        own[0] = 0
        row = held[1]
        for k in range(16):
            own[0] += row[k] * cmath.exp(-2j * math.pi * k * t / 16)
        x[t] = own[0]
        tec.atomic_add(total, 0, own[0])

    x = drawn(random.Random(seeds.stream("storage")), "complex64", 16)
    held, total = tec.nd.array(x, dev), tec.nd.array(np.zeros(1, np.complex64), dev)
    transform[1, 16](held, total)
    np.testing.assert_allclose(held.numpy(), np.fft.fft(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(total.numpy()[0], 16 * x[0], rtol=1e-3, atol=1e-3)


# ---- structs and tuples

BODY = np.dtype([("at", np.float32, 3), ("mass", np.float32), ("kind", np.int32), ("spin", np.complex64)], align=True)
NESTED = np.dtype([("id", np.int32), ("inner", [("u", np.float32), ("v", np.float32)])], align=True)


@tec.kernel
def move(bodies, others, dt):
    i = tec.grid_idx(1)
    if i < len(bodies):
        b = bodies[i]
        for k in range(3):
            b.at[k] += dt * b.mass
        b.mass *= 2.0
        bodies[i]["kind"] = others.kind[i] + b.kind
        b.spin = b.spin * 1j
        if b.kind > 9:
            others[i] = b


@devices
def test_arrays_of_structs(dev: Any) -> None:
    rng = np.random.default_rng(seeds.first())
    a, b = np.zeros(N, BODY), np.zeros(N, BODY)
    for x in (a, b):
        x["at"], x["mass"], x["kind"] = rng.random((N, 3)), rng.random(N), rng.integers(0, 9, N)
        x["spin"] = rng.random(N) + 1j
    want, other = a.copy(), b.copy()
    want["at"] += np.float32(0.5) * a["mass"][:, None]
    want["mass"] *= 2
    want["kind"] = b["kind"] + a["kind"]
    want["spin"] = a["spin"] * np.complex64(1j)
    other[want["kind"] > 9] = want[want["kind"] > 9]
    one, two = tec.nd.array(a, dev), tec.nd.array(b, dev)
    move.launch(N)(one, two, 0.5)
    for got, expected in ((one, want), (two, other)):
        for name in BODY.names or ():
            np.testing.assert_allclose(got.numpy()[name], expected[name], rtol=1e-6, err_msg=name)
    assert one["mass"].numpy().shape == (N,) and one["at"].shape == (N, 3)


@tec.kernel
def heaviest(bodies: Any, out: Any) -> None:
    most, kind = np.float32(-1), -1
    for b in bodies:
        if b.mass > most:
            most = b.mass
            kind = b.kind
    out[0] = kind
    for k, b in enumerate(bodies):
        b.kind = k


@devices
def test_a_loop_over_an_array_of_structs(dev: Any) -> None:
    a = np.zeros(N, BODY)
    a["mass"], a["kind"] = np.random.default_rng(seeds.first()).random(N), np.arange(N) + 7
    bodies, out = tec.nd.array(a, dev), tec.nd.array(np.zeros(1, np.int32), dev)
    heaviest[1, 1](bodies, out)
    assert out.numpy()[0] == a["kind"][a["mass"].argmax()]
    assert (bodies["kind"].numpy() == np.arange(N)).all()


def test_structs_of_numpy_are_written_in_place() -> None:
    @tec.kernel
    def swap(x):
        i = tec.grid_idx(1)
        x[i].inner.u, x[i].inner.v = x[i].inner.v, x[i].inner.u
        x[i]["id"] = -x[i]["id"]

    x = np.zeros(4, NESTED)
    x["id"], x["inner"]["u"], x["inner"]["v"] = 3, 1, 2
    swap[1, 4](x)
    assert (x["id"] == -3).all() and (x["inner"]["u"] == 2).all() and (x["inner"]["v"] == 1).all()


def test_a_field_that_no_device_reads() -> None:
    """Its place, or the distance from one struct to the next, is no multiple of its bytes."""
    for at, apart in ((1, 5), (2, 8), (4, 10)):
        x = np.zeros(4, {"names": ["a", "b"], "formats": [np.int8, np.float32], "offsets": [0, at], "itemsize": apart})
        with pytest.raises(tec.ArgumentError, match=rf"byte {at}.*{x.itemsize} bytes apart"):
            move.launch(4)(x, x, 0.5)


Pair = collections.namedtuple("Pair", "x scale")


@dataclasses.dataclass(frozen=True)
class Field:
    values: Any
    step: float
    name: str = "u"


@devices
def test_tuples_and_dataclasses_of_arrays(dev: Any) -> None:
    """Arrays in them are parameters, and so are numbers next to them: another number is no other code."""

    @tec.kernel
    def gather(pair, field, rest, out):
        i = tec.grid_idx(1)
        if i < len(out):
            best, at = pair.x[i] * pair.scale, 0  # a tuple that changes in a loop
            both = (best, at)
            for k in range(len(rest)):
                for x in rest:
                    if x[i] > both[0]:
                        both = (x[i], k + 1)
            out[i] = both[0] + field.values[i] * field.step + both[1]

    x, u, r = (drawn(random.Random(k), "float32") for k in range(3))
    for scale in (2.0, 3.0):
        out = tec.nd.array(np.zeros(N, np.float32), dev)
        put = [tec.nd.array(v, dev) for v in (x, u, r)]
        gather.launch(N)(Pair(put[0], scale), Field(put[1], 0.25), (put[2],), out)
        more = r > x * np.float32(scale)
        want = np.where(more, r + 1, x * np.float32(scale)) + u * np.float32(0.25)
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-6)
    assert len(gather._compiled) == 1


# ---- random numbers


@devices
def test_random_numbers_are_the_same_everywhere(dev: Any) -> None:
    """In Python, in a kernel of any launch, and the bits of `tec.array.random`."""

    @tec.kernel
    def draw(words, floats, doubles, normals, whole, seed):
        i = tec.grid_idx(1)
        w = tec.random.words(seed, i)
        for k in tec.static_range(4):
            words[i, k] = w[k]
        floats[i] = tec.random.uniform(seed, i, 7)
        doubles[i] = tec.random.uniform64(seed, i, 1)
        normals[i] = tec.random.normal(seed, i, 2)
        whole[i] = tec.random.integers(seed, -5, 6, i)

    seed = seeds.first(1 << 20) * 0x1_0000_0001
    made = [
        np.zeros((64, 4), np.uint32),
        np.zeros(64, np.float32),
        np.zeros(64),
        np.zeros(64, np.float32),
        np.zeros(64, np.int64),
    ]
    out = [tec.nd.array(x, dev) for x in made]
    draw[2, 32](*out, seed)
    words, floats, doubles, normals, whole = (x.numpy() for x in out)
    assert (words.ravel() == np.asarray(tec.array.random.Generator(seed).bits((256,)))).all()
    r = tec.random
    assert words.tolist() == [[int(w) for w in r.words(seed, i)] for i in range(64)]
    assert floats.tolist() == [float(r.uniform(seed, i, 7)) for i in range(64)]
    assert doubles.tolist() == [float(r.uniform64(seed, i, 1)) for i in range(64)]
    assert whole.tolist() == [int(r.integers(seed, -5, 6, i)) for i in range(64)]
    np.testing.assert_allclose(normals, [r.normal(seed, i, 2) for i in range(64)], rtol=1e-4, atol=1e-5)


# ---- threads together

FOLD = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@devices
@pytest.mark.parametrize("seed", seeds.some(2))
def test_what_threads_do_together(dev: Any, seed: int) -> None:
    """Scans and reductions of wavefronts and blocks, by NumPy's accumulate; blocks that are no whole wavefronts too."""
    rng = random.Random(seed)
    dtype = rng.choice(["int32", "float32", "uint8", "int64", "float64", "uint32"])
    ops = ["add", "min", "max", "mul"] + ["and", "or", "xor"] * (not dtype.startswith("float"))
    op, block = rng.choice(ops), rng.choice([(64, 1), (32, 4), (16, 2), (7, 5)])
    threads, wave = block[0] * block[1], 32 if dev.kind == "cpu" or "1100" in str(dev.arch) else 64
    whole, exclusive = threads % wave == 0, rng.random() < 0.5

    @tec.kernel
    def together(x, total, scanned, in_wave, alike):
        t = tec.thread_idx.y * tec.block_dim.x + tec.thread_idx.x
        total[t] = tec.block_reduce(x[t], op)
        scanned[t] = tec.block_scan(x[t], op, exclusive=exclusive)
        total[t] = tec.block_reduce(total[t], "max")  # its storage is used again
        if whole:
            in_wave[t] = tec.wave_scan(x[t], op)
            alike[t] = tec.popcount(tec.match_any(x[t])) + 100 * tec.match_all(x[t])

    x = drawn(rng, dtype, threads)
    out = [tec.nd.array(np.zeros(threads, d), dev) for d in (dtype, dtype, dtype, "int32")]
    together[1, block](tec.nd.array(x, dev), *out)
    total, scanned, in_wave, alike = (o.numpy() for o in out)
    close = {"rtol": 1e-4 if dtype == "float32" else 1e-12, "atol": 1e-4 if dtype == "float32" else 1e-12}
    want = FOLD[op].accumulate(x)
    np.testing.assert_allclose(scanned[exclusive:], want[: threads - exclusive], **close)
    np.testing.assert_allclose(total, np.full(threads, want[-1]), **close)
    assert not exclusive or FOLD[op](scanned[0], x[0]) == x[0]
    if whole:
        np.testing.assert_allclose(in_wave, FOLD[op].accumulate(x.reshape(-1, wave), 1, dtype).ravel(), **close)
        groups = x.reshape(-1, wave)
        same = (groups[:, :, None] == groups[:, None, :]).sum(2)
        assert (alike == (same + 100 * (same == wave)).ravel()).all()


@devices
@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_atomics_of_small_types(dev: Any, dtype: str) -> None:
    @tec.kernel
    def count(x, sums, top, low):
        t = tec.thread_idx.x
        # In the first block of the code, at the start of a word: LLVM's own loop would lose updates there.
        tec.atomic_add(sums, 0, x[t])
        tec.atomic_max(top, 0, x[t])
        tec.atomic_min(low, 0, x[t])
        s = tec.shared(3, x.dtype)
        if t < 3:
            s[t] = 0
        tec.barrier()
        tec.atomic_add(s, t % 3, x[t])
        tec.barrier()
        if t < 3:
            tec.atomic_add(sums, t + 1, s[t])

    x = (np.arange(64) * 37 % 64 // 16 + 1).astype(dtype)  # the least and the most are in the middle
    sums, top, low = (tec.nd.array(np.full(4, n, dtype), dev) for n in (0, 0, 50))  # whole words: docs/kernels.md
    count[1, 64](tec.nd.array(x, dev), sums, top, low)
    assert sums.numpy().tolist() == [160, *(x[k::3].sum() for k in range(3))]
    assert top.numpy()[0] == 4 and low.numpy()[0] == 1


def test_all_of_it_compiles_for_nvidia() -> None:
    types = ("complex64[:]", "complex64[:]", "float32[:]", "complex64[:]", "complex64", "int32")
    assert ".visible .entry" in arithmetic.asm(*types, target="cuda -arch=sm_90")

    @tec.kernel
    def much(x, small, counts):
        i = tec.grid_idx(1)
        tec.atomic_add(small, 0, x[i])
        v = tec.block_scan(tec.random.uniform(1, i)) + tec.block_reduce(x[i], "max")
        counts[i] = tec.popcount(tec.match_any(int(v)))

    assert "bar.sync" in much.asm("float32[:]", "float16[:]", "int32[:]", target="cuda -arch=sm_90")


@pytest.mark.parametrize(("meets", "size"), [("everywhere", 1024), ("nowhere", 2048), ("perhaps", 2048)])
def test_shared_arrays_share_where_all_threads_meet_between(meets: str, size: int) -> None:
    def body(x: Any, y: Any) -> None:
        i = tec.thread_idx.x
        a = tec.shared(256, np.float32)
        a[i] = x[i]
        tec.barrier()
        x[i] = a[255 - i]
        if meets == "everywhere" or (meets == "perhaps" and x[0] > 0.5):
            tec.barrier()
        b = tec.shared(256, np.float32)
        b[i] = y[i]
        tec.barrier()
        y[i] = b[255 - i]

    found = tec.kernel(body).resources("float32[:]", "float32[:]", block=256, target="rocm -mcpu=gfx942")
    assert found["lds_bytes"] == size


# ---- sizes of a launch


def test_occupancy_and_sizes_that_are_picked() -> None:
    @tec.kernel
    def stride(x, y):
        for i in range(tec.grid_idx(1), len(x), tec.grid_size(1)):
            y[i] = x[i] * 2.0

    @tec.kernel
    def crowded(x):
        s = tec.shared(8192, np.float32)
        s[tec.thread_idx.x] = x[tec.grid_idx(1)]
        tec.barrier()
        x[tec.grid_idx(1)] = s[255 - tec.thread_idx.x]

    found = tec.kernel.occupancy(crowded, "float32[:]", block=256, target="rocm -mcpu=gfx942")
    assert crowded.occupancy("float32[:]", block=256, target="rocm -mcpu=gfx942") == found
    # 64 KiB a unit hold two blocks of 32 KiB, of four wavefronts each.
    assert (found.limited_by, found.blocks, found.waves, found.shared_bytes) == ("LDS", 2, 8, 32768)
    for dev in DEVICES[:2]:
        x, y = tec.nd.array(np.arange(5000, dtype=np.float32), dev), tec.nd.zeros((5000,), "float32", dev)
        stride(x, y)
        assert (y.numpy() == 2 * np.arange(5000)).all()
    with pytest.raises(tec.KernelError, match="called like a function"):
        crowded(np.zeros(256, np.float32))


@pytest.mark.parametrize(
    ("registers", "block", "waves", "limit"),
    [(255, 256, 8, "registers"), (128, 128, 16, "registers"), (32, 256, 64, "threads")],
)
def test_occupancy_with_what_cudas_driver_says(
    monkeypatch: pytest.MonkeyPatch, registers: int, block: int, waves: int, limit: str
) -> None:
    """The numbers of CUDA's occupancy calculator: a warp's registers come in steps of 256 out of four parts of 16,384."""

    @tec.kernel
    def twice(x):
        x[tec.grid_idx(1)] *= 2.0

    assert tec.kernel.occupancy(twice, "float32[:]", block=block, target="cuda -arch=sm_90").registers is None
    monkeypatch.setattr(reflection, "_as_loaded", lambda module, name: {"registers": registers, "local_bytes": 16})
    found = tec.kernel.occupancy(twice, "float32[:]", block=block, target="cuda -arch=sm_90")
    assert (found.registers, found.waves, found.limited_by, found.scratch_bytes) == (registers, waves, limit, 16)


def test_autotune_measures_and_leaves_arrays_as_they_were() -> None:
    @tec.kernel(autotune=[{"T": 1, "block": 64}, {"T": 4}, {"T": 3, "grid": 99}])
    def scale(x, T, a):
        for k in tec.static_range(T):
            i = tec.grid_idx(1) * T + k
            if i < len(x):
                x[i] *= a

    x = np.ones(1000, np.float32)
    scale[lambda c: -(-1000 // (c.get("block", 128) * c["T"])), 128](x, 2.0)
    assert (x == 2).all() and scale.best in scale.configs
    scale[lambda c: -(-1000 // (c.get("block", 128) * c["T"])), 128](x, a=2.0)
    assert (x == 4).all()
    with pytest.raises(tec.KernelError, match="no parameter"):
        tec.kernel(autotune=[{"U": 1}])(scale.__tec_kernel__)


@tec.kernel
def quotient_beside_a_shift(x, y, o):
    i = tec.grid_idx(1)
    a = i // y[i]
    o[i] = a + (i >> i * x[i])


def test_facts_of_products_that_shift() -> None:
    """What is known of a quotient is looked up beside a product that only a shift has: the algebra of monomials knew no such term."""
    i = np.arange(64, dtype=np.int32)
    x, y, out = (i < 32).astype(np.int32), i + 1, np.zeros(64, np.int32)
    quotient_beside_a_shift[2, 32](x, y, out)
    np.testing.assert_array_equal(out, i // y + (i >> i * x))


@tec.kernel
def sorted_three(x, p, q, r):
    i = tec.grid_idx(1)
    if 0 < i < len(x) - 1:
        w = tec.local(3, np.float32)
        w[0], w[1], w[2] = x[i - 1], x[i], x[i + 1]
        for a in range(2):
            for b in range(2 - a):
                if w[b] > w[b + 1]:
                    w[b], w[b + 1] = w[b + 1], w[b]
        p[i], q[i], r[i] = w[0], w[1], w[2]


@tec.kernel
def changed(x, p, q, r):
    i = tec.grid_idx(1)
    if 0 < i < len(x) - 1:
        w = tec.local(3, np.float32)
        w[0], w[1], w[2] = x[i - 1], x[i], x[i + 1]
        if w[0] > 0.5:
            w[0] = 0.0
            if w[1] > 0.7:
                w[1] = w[0] + 1.0
                w[0] = 2.0
            else:
                w[1] = w[0]
                w[2] = 0.0
        else:
            w[0] = 1.0
            w[2] = 5.0
        p[i], q[i], r[i] = w[0], w[1], w[2]


def changed_in_python(w: Any) -> Any:
    if w[0] > 0.5:
        return (2.0, 1.0, w[2]) if w[1] > 0.7 else (0.0, 0.0, 0.0)
    return (1.0, w[1], 5.0)


@pytest.mark.parametrize(("kernel", "in_python"), [(sorted_three, np.sort), (changed, changed_in_python)])
def test_a_branch_changes_what_its_condition_read(kernel: Any, in_python: Any) -> None:
    """Also where threads become the lanes of vectors: the condition of a lane is what it was before the branch."""
    x = np.random.default_rng(seeds.first(5)).random(100).astype(np.float32)
    got, want = np.zeros((3, 100), np.float32), np.zeros((3, 100), np.float32)
    kernel[1, 128](x, *got)
    for i in range(1, 99):
        want[:, i] = in_python(x[i - 1 : i + 2])
    np.testing.assert_array_equal(got, want)


@tec.kernel
def types_of_numbers(x, y):
    a = x[0] * 2
    y[0] = a.astype(y.dtype)
    b = a.astype("int64")
    y[1] = 1 if b.dtype == "int64" else 0
    y[2] = 1 if a.dtype == "float32" else 0


def test_numbers_have_types() -> None:
    y = np.zeros(3, np.int32)
    types_of_numbers[1, 1](np.array([2.75], np.float32), y)
    assert y.tolist() == [5, 1, 1]
