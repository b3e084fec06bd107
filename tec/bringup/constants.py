"""Microbenchmarks of the time model's constants: each is timed on the chip and modelled, and the difference between the two is what the machine table lacks.

A latency is a chain of dependent loads over so many bytes, with its elements in a drawn order; a bandwidth is all units that read the same bytes again and again; a rate of arithmetic
is independent chains in all lanes. Each is timed twice, with more and with fewer rounds, and the difference counts: launches and first touches fall out. What the chip and the model say
is compared, not what the chip and the table say, so what else is in a kernel falls out as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..emulator import emulator_profile, get_driver
from ..target import Machine, latency_ns, level_gbps
from .findings import AGREES, DIFFERS, FAILED, NOTE, Finding, wanted
from .gpu import Gpu, code_object, kernels
from .instructions import Instruction, instructions

SECTION = "constants of the model"
WITHIN = 0.15  # of the model's word
_KB, _MB = 1 << 10, 1 << 20
_ID = "declare i32 @llvm.amdgcn.workitem.id.x()\ndeclare i32 @llvm.amdgcn.workgroup.id.x()"
# 64-bit addresses, each the place of the next one. The first depends on the lane, so that loads are vector loads.
_CHASE = """define amdgpu_kernel void @chase(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %steps) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %first = getelementptr i64, ptr addrspace(1) %p, i32 %t
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]
  %a0 = phi ptr addrspace(1) [ %first, %entry ], [ %a8, %loop ]
LOADS
  %k1 = add i32 %k, 8
  %c = icmp ult i32 %k1, %steps
  br i1 %c, label %loop, label %done
done:
  store ptr addrspace(1) %a8, ptr addrspace(1) %o
  ret void
}""".replace(
    "LOADS", "\n".join(f"  %a{i + 1} = load ptr addrspace(1), ptr addrspace(1) %a{i}, align 8" for i in range(8))
)


def _reads(head: str, carried: str, count: int, load: Callable[[int], str]) -> str:
    """A kernel of vectors of 16 bytes that a loop loads, `count` a round, and that are kept by their exclusive or, which is stored where it is a number that it never is.

    head: up to the loop. carried: what the loop carries besides. load: how vector `%x{i}` comes from memory.
    """
    steps = "\n".join(f"{load(i)}\n  %s{i + 1} = xor <4 x i32> %s{i}, %x{i}" for i in range(count))
    return f"""{head}
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]{carried}
  %s0 = phi <4 x i32> [ zeroinitializer, %entry ], [ %s{count}, %loop ]
{steps}
  %k1 = add i32 %k, 1
  %c = icmp ult i32 %k1, %rounds
  br i1 %c, label %loop, label %done
done:
  %x = extractelement <4 x i32> %s{count}, i32 0
  %never = icmp eq i32 %x, 305419896
  br i1 %never, label %write, label %end
write:
  store i32 %x, ptr addrspace(1) %o
  br label %end
end:
  ret void
}}"""


# Each work-item reads 16 bytes, four times a round, `stride` bytes apart, from places within `mask` + 1 bytes.
_READ = _reads(
    """define amdgpu_kernel void @read(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %first, i32 %stride, i32 %mask, i32 %rounds) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %lane = shl i32 %t, 4
  %group = mul i32 %g, %first
  %at = add i32 %lane, %group""", "\n  %a0 = phi i32 [ %at, %entry ], [ %a4, %loop ]", 4,
    lambda i: f"  %m{i} = and i32 %a{i}, %mask\n  %q{i} = getelementptr i8, ptr addrspace(1) %p, i32 %m{i}\n"
    f"  %x{i} = load <4 x i32>, ptr addrspace(1) %q{i}, align 16\n  %a{i + 1} = add i32 %a{i}, %stride",
)  # fmt: skip
# 16 bytes a lane from LDS, eight times a round.
_LDS = _reads(
    """@lds = internal addrspace(3) global [4096 x i32] poison, align 16
define amdgpu_kernel void @lds_read(ptr addrspace(1) %o, i32 %stride, i32 %rounds) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %l = getelementptr i32, ptr addrspace(3) @lds, i32 %t
  store i32 %t, ptr addrspace(3) %l
  %mul = mul i32 %t, %stride
  %lane = and i32 %mul, 4095""", "", 8,
    lambda i: f"  %b{i} = add i32 %lane, {1024 * (i % 4) + 512 * (i // 4)}\n  %m{i} = and i32 %b{i}, 4092\n"
    f"  %q{i} = getelementptr i32, ptr addrspace(3) @lds, i32 %m{i}\n  %x{i} = load volatile <4 x i32>, ptr addrspace(3) %q{i}, align 16",
)  # fmt: skip
_EMPTY = "define amdgpu_kernel void @empty(ptr addrspace(1) %p) #0 {\n  ret void\n}"
_LINE = 128  # bytes: the longest of any level
CHAINS = 8  # independent, so that no instruction waits for the one before


def _loop(name: str, start: str, t: str, step: Callable[[str], str]) -> str:
    """A kernel of `CHAINS` values of type `t` that a loop carries, each changed by `step` once a round; stored at the end."""
    lines = [f"define amdgpu_kernel void @{name}(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %rounds) #0 {{", "entry:", start, "  br label %loop", "loop:"]  # fmt: skip
    lines += ["  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]"]
    lines += [f"  %v{i} = phi {t} [ %start, %entry ], [ %n{i}, %loop ]" for i in range(CHAINS)]
    lines += [f"  %n{i} = {step(f'%v{i}')}" for i in range(CHAINS)]
    lines += ["  %k1 = add i32 %k, 1", "  %c = icmp ult i32 %k1, %rounds", "  br i1 %c, label %loop, label %done", "done:"]  # fmt: skip
    for i in range(CHAINS):
        lines += [f"  %e{i} = getelementptr {t}, ptr addrspace(1) %o, i32 {i}", f"  store {t} %n{i}, ptr addrspace(1) %e{i}, align 4"]  # fmt: skip
    return "\n".join([*lines, "  ret void", "}"])


_FMA = _loop(
    "fma", "  %x = load float, ptr addrspace(1) %p\n  %t = call i32 @llvm.amdgcn.workitem.id.x()\n  %start = uitofp i32 %t to float", "float",
    lambda v: f"call float @llvm.fma.f32(float {v}, float %x, float 1.0)",
)  # fmt: skip


def _rates(chip: str) -> dict[str, Instruction]:
    """The matrix instruction of each type that a chip's products use, by the type: of most multiply-adds."""
    names = {
        "f32": "float32",
        "f16": "float16",
        "bf16": "bfloat16",
        "i8": "int8",
        "iu8": "int8",
        "fp8": "float8",
        "f64": "float64",
        "fp4": "float4",
    }
    best: dict[str, tuple[int, Instruction]] = {}
    for x in instructions(chip)[0]:
        size = re.search(r"_(\d+)x(\d+)x(\d+)", x.name)
        a, b, _ = x.elements
        if x.sparse or size is None or a != b or a not in names or x.name.endswith(("us", "su", "uu")):
            continue
        # In one matrix: instructions of several blocks do fewer in a clock.
        m, n, k = map(int, size.groups())
        lanes, registers = 64 if chip.startswith("gfx9") else 32, 2 if x.elements[2] == "f64" else 1
        is_one = x.regs[2] // registers * lanes <= m * n
        if is_one and m * n * k > best.get(names[a], (0, None))[0]:
            best[names[a]] = (m * n * k, x)
    return {t: x for t, (_, x) in sorted(best.items())}


def _matrix_kernel(name: str, x: Instruction) -> str:
    words = {w: f"<{r} x i32>" if r > 1 else "i32" for w, r in zip("abc", x.regs)}
    start = ["  %t = call i32 @llvm.amdgcn.workitem.id.x()"]
    for w, t in zip("abc", x.types):
        start += [
            f"  %q{w} = getelementptr {words[w]}, ptr addrspace(1) %p, i32 %t", f"  %w{w} = load {words[w]}, ptr addrspace(1) %q{w}, align 4",
            f"  %{'start' if w == 'c' else w} = bitcast {words[w]} %w{w} to {t}",
        ]  # fmt: skip
    call = x.call
    return _loop(name, "\n".join(start), x.types[2], lambda v: f"call {x.types[2]} @{call.format(a='%a', b='%b', c=v, i='0', i16='0', i32='0')}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """Work in two sizes, whose times' difference is of `units` units of what `unit` names. `corrects`: the datum of the machine table. `work(gpu, rounds)` prepares a launch."""

    name: str
    unit: str
    corrects: str
    rounds: tuple[int, int]
    scale: float  # (microseconds of the difference) -> `unit`: scale / us of rates, scale * us of times
    work: Callable[[Gpu, int], Callable[[], None]]
    is_time: bool = False
    by_table: float = 0.0  # what the table has, in `unit`, where the model cannot say (see `Suite.modelled`)


class Suite:
    """The benchmarks of one machine. `size`: a divisor of the memory's benchmark and of rounds, 1 on a chip."""

    def __init__(self, chip: str, machine: Machine, size: int = 1):
        self.chip, self.machine, self.size = chip, machine, size
        self.matrix = {t: x for t, x in _rates(chip).items() if machine.matrix_macs.get(t.partition("_")[0])}
        declared = [_ID, "declare float @llvm.fma.f32(float, float, float)"]
        bodies = [_CHASE, _READ, _LDS, _EMPTY, _FMA]
        for t, x in self.matrix.items():
            bodies.append(_matrix_kernel(f"matrix_{t}", x))
            declared.append(x.declaration)
        self.image = code_object(chip, kernels(bodies, declared, 256, '"amdgpu-no-implicitarg-ptr"'), "microbenchmarks")
        self.tables: dict[int, np.ndarray] = {}

    def benches(self) -> Iterator[Bench]:
        """What is timed: launches, and latency and bandwidth of each level of memory."""
        m = self.machine
        yield Bench("launch after launch", "us", "launch_us", (20, 220), 1 / 200, self._launches, True)
        sizes = {x.name: x.size_bytes for x in m.levels}
        before = 0
        for level in m.levels:
            spans = {
                "L1": level.size_bytes // 2,
                "L2": max(512 * _KB, 2 * before),
                "MALL": 2 * before,
                "memory": 2 * sizes.get("MALL", sizes["L2"]),
            }
            if level.name in spans and (level.name != "MALL" or self.size == 1):
                yield self._latency(level.name, spans[level.name], 4096 if level.name == "memory" else _LINE)
            before = level.size_bytes
        if "L2" in sizes:
            yield self._bandwidth("L2", min(sizes["L2"] // 2, 2 * _MB), 16)
        if "MALL" in sizes and self.size == 1:
            yield self._bandwidth("MALL", min(sizes["MALL"] // 4, 64 * _MB), 16)
        yield self._bandwidth(
            "memory",
            max(1024 * _MB // self.size, 4 * sizes.get("MALL", sizes["L2"]) if self.size == 1 else 64 * _MB),
            1,
        )
        groups = 2 * m.units
        for name, stride in (("contiguous", 4), ("16 lanes on the same banks", 64)):
            yield Bench(f"LDS, {name}", "bytes/clock of a unit", "scratch_bytes_a_clock" if stride == 4 else "", (100, 100 + 800 // self.size), 800 // self.size * 8 * 16 * 256 * groups / m.units / m.clock_mhz, self._lds(groups, stride))  # fmt: skip
        yield self._arithmetic("fma", "float32 vector", 256 * CHAINS, "float32 vector clock")
        for t, x in self.matrix.items():
            size = re.search(r"_(\d+)x(\d+)x(\d+)", x.name)
            assert size is not None
            a, b, c = map(int, size.groups())
            waves = 4 if self.chip.startswith("gfx9") else 8
            yield self._arithmetic(f"matrix_{t}", f"{t} matrix", a * b * c * waves * CHAINS, f"matrix_clocks {t}")

    def _function(self, gpu: Gpu, name: str) -> Any:
        return gpu.function(self.image, name)

    def _launches(self, gpu: Gpu, count: int) -> Callable[[], None]:
        f, o = self._function(gpu, "empty"), gpu.empty(4)

        def work() -> None:
            for _ in range(count):
                gpu.launch(f, 1, 64, "Q", o)

        return work

    def _latency(self, level: str, span: int, stride: int) -> Bench:
        """The chain goes through `span` bytes in steps of a line, in a drawn order; a first round brings what a cache keeps. Memory's goes on to fresh lines, once."""
        count = span // stride
        fresh = level == "memory"
        rounds = (8 * (count // 32), 8 * (count // 16)) if fresh else (2 * count, 4 * count)

        def work(gpu: Gpu, steps: int) -> Callable[[], None]:
            order = np.random.default_rng(1).permutation(count).astype(np.int64)
            o, base = gpu.empty(8), gpu.empty(span)
            chain = np.zeros((count, stride // 8), np.int64) if span <= 64 * _MB else None
            following = np.empty(count, np.int64)
            following[order] = np.roll(order, -1)
            where = base + following * stride
            if chain is not None:
                chain[:, 0] = where
                gpu.driver.copy_to_device(gpu.ordinal, base, chain.ctypes.data, chain.nbytes)
            else:
                for k in range(count):
                    gpu.driver.copy_to_device(gpu.ordinal, base + k * stride, where[k : k + 1].ctypes.data, 8)
            f = self._function(gpu, "chase")
            return lambda: gpu.launch(f, 1, 1, "QQI", base, o, steps)

        table = latency_ns(self.machine, level) if level == "MALL" else 0.0
        return Bench(
            f"latency, {level}", "ns", f"{level} latency_ns", rounds, 1e3 / (rounds[1] - rounds[0]), work, True, table
        )

    def _bandwidth(self, level: str, span: int, least: int) -> Bench:
        # A power of two, so that each group keeps to its own places.
        groups = 1 << (8 * self.machine.units).bit_length() - 1
        each = 256 * 16  # bytes of a work-group's load
        span = 1 << (span.bit_length() - 1)
        more = max(least, -(-4 * span // (groups * each * 4)) if level == "memory" else 2 * least)
        rounds = (more, 3 * more)
        # In L2 all groups read all of it; else they share the span out, each round somewhere else.
        first, stride = (each, each) if level == "L2" else (each, groups * each)

        def work(gpu: Gpu, count: int) -> Callable[[], None]:
            p, o = gpu.empty(span), gpu.empty(4)
            gpu.driver.memset(gpu.ordinal, p, 0, span)
            f = self._function(gpu, "read")
            return lambda: gpu.launch(f, groups, 256, "QQIIII", p, o, first, stride & 0xFFFFFFFF, span - 1, count)

        done = (rounds[1] - rounds[0]) * 4 * each * groups
        table = level_gbps(self.machine, level) if level == "MALL" else 0.0
        return Bench(f"bandwidth, {level}", "GB/s", f"{level} gbps", rounds, done * 1e-3, work, by_table=table)

    def _lds(self, groups: int, stride: int) -> Callable[[Gpu, int], Callable[[], None]]:
        def work(gpu: Gpu, count: int) -> Callable[[], None]:
            f, o = self._function(gpu, "lds_read"), gpu.empty(4)
            return lambda: gpu.launch(f, groups, 256, "QII", o, stride, count)

        return work

    def _arithmetic(self, kernel: str, name: str, macs: int, corrects: str) -> Bench:
        """`macs`: of a work-group in a round."""
        groups, more = 2 * self.machine.units, max(200, 4000 // self.size)

        def work(gpu: Gpu, count: int) -> Callable[[], None]:
            p, o = gpu.array(np.zeros(1 << 14, np.uint32)), gpu.empty(_MB)
            f = self._function(gpu, kernel)
            return lambda: gpu.launch(f, groups, 256, "QQI", p, o, count)

        return Bench(f"rate, {name}", "TFLOP/s", corrects, (more, 3 * more), 2 * more * macs * groups * 2e-6, work)

    def time(self, b: Bench, gpu: Gpu, repeats: int) -> float:
        found = []
        for rounds in b.rounds:
            with gpu.scope():
                found.append(gpu.microseconds(b.work(gpu, rounds), repeats))
        return found[1] - found[0]

    def modelled(self, b: Bench, product: str) -> float:
        """The same by the time model; nothing is run. It knows a cache by the mean rate at which new lines come, over the first 32,768 accesses of a wave (`time.traffic`), and so takes spans
        that no L2 holds, gone round again and again, for more or for less than they are: there the table's figure is what is expected."""
        if b.by_table:
            return b.by_table / b.scale if b.is_time else b.scale / b.by_table
        driver = get_driver(self.chip, instance=1)
        gpu, found = Gpu(driver), []
        for rounds in b.rounds:
            with gpu.scope(), emulator_profile(driver, False, product) as p:
                b.work(gpu, rounds)()
                found.append(float(sum(x.estimate.microseconds for x in p.launches)))
        return found[1] - found[0]


def check(gpu: Gpu, machine: Machine | None, size: int = 1, repeats: int = 5, only: str = "") -> Iterator[Finding]:
    """A finding a benchmark, whose expected value is the model's. `size`: see `Suite`."""
    if machine is None:
        yield Finding(SECTION, "not measured", NOTE, "the device is no product of the machine table")
        return
    suite = Suite(gpu.chip, machine, size)
    for b in suite.benches():
        if not wanted(only, b.name):
            continue
        try:
            us, model = suite.time(b, gpu, repeats), suite.modelled(b, machine.name)
            if us <= 0 or model <= 0:
                yield Finding(SECTION, b.name, FAILED, f"more work took {us:.2f} us more, {model:.2f} by the model")
                continue
            want, got = (b.scale * model, b.scale * us) if b.is_time else (b.scale / model, b.scale / us)
            state = AGREES if abs(us / model - 1) <= WITHIN else DIFFERS
            yield Finding(SECTION, b.name, state, "", want, got, b.unit, b.corrects)
        except Exception as error:  # a benchmark that fails is told, and the next one goes on
            yield Finding(SECTION, b.name, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0]}")
