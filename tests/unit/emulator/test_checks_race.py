"""`check="race"` byte by byte: kernels with and without one shared byte, and the recording functions against a model."""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

import numpy as np
import pytest

import tec
from tec.emulator import arena
from tec.emulator.arena import Arena
from tec.emulator.beginning import aligned
from tec.emulator.checks.race_record import (
    EPOCH_SHIFT,
    GROUP_SHIFT,
    LAUNCH_SHIFT,
    RECORD_BYTES,
    RECORDS,
    WAVE_SHIFT,
    records_at,
    who,
)
from tec.emulator.context import CTX, CTX_BYTES
from tec.emulator.errors import KernelFault
from tec.emulator.translate.jit import get_jit
from tests import seeds

from .harness import download, function, upload

_DECLARES = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }
"""
_BARRIER = """  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
"""
CHIPS = ("gfx90a", "gfx942", "gfx1100")


def kernel(body: str) -> str:
    return f"""@lds = internal addrspace(3) global [1024 x i8] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %o, i32 %n) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
{body}  ret void
}}
{_DECLARES}"""


# Wave w of lane l stores byte 4 * l + min(w, n) in LDS: with n = 3 every byte once (64 lanes), with less some twice.
LDS_BYTES = (
    kernel(
        f"""  %l = and i32 %t, 63
  %w = lshr i32 %t, 6
  %b = call i32 @llvm.umin.i32(i32 %w, i32 %n)
  %l4 = shl i32 %l, 2
  %at = add i32 %l4, %b
  %p = getelementptr i8, ptr addrspace(3) @lds, i32 %at
  %v = trunc i32 %t to i8
  store i8 %v, ptr addrspace(3) %p
{_BARRIER}  %q = getelementptr i8, ptr addrspace(3) @lds, i32 %t
  %x = load i8, ptr addrspace(3) %q
  %c = getelementptr i8, ptr addrspace(1) %o, i32 %t
  store i8 %x, ptr addrspace(1) %c
"""
    )
    + "declare i32 @llvm.umin.i32(i32, i32)\n"
)


# Group g stores 16-bit elements n * g to n * g + 8: with n = 9 they share words but no byte, with 8 they share an element.
HALVES = kernel("""  %b = mul i32 %g, %n
  %i = add i32 %b, %t
  %p = getelementptr i16, ptr addrspace(1) %o, i32 %i
  %j = add i32 %i, %g
  %v = trunc i32 %j to i16
  store i16 %v, ptr addrspace(1) %p
""")


@pytest.mark.parametrize("chip", CHIPS)
def test_waves_store_different_bytes_of_a_word(chip: str) -> None:
    driver, k = function(LDS_BYTES, chip, check="race")
    o = upload(driver, np.zeros(256, np.uint8))
    driver.launch(k, (1, 1, 1), (256, 1, 1), 0, struct.pack("<Qi", o, 3))
    want = (np.arange(4)[None, :] * 64 + np.arange(64)[:, None]).reshape(-1).astype(np.uint8)
    assert (download(driver, o, np.zeros(256, np.uint8)) == want).all()
    with pytest.raises(KernelFault, match="race") as e:
        driver.launch(k, (1, 1, 1), (256, 1, 1), 0, struct.pack("<Qi", o, 2))
    lanes = driver.chip.wavefront_size
    assert e.value.fault.wave == 192 // lanes
    assert f"a store by wave {128 // lanes} of work-group (0, 0, 0)" in e.value.fault.detail


@pytest.mark.parametrize("chip", CHIPS)
def test_work_groups_store_different_bytes_of_a_word(chip: str) -> None:
    driver, k = function(HALVES, chip, check="race", threads=1)
    o = upload(driver, np.zeros(200, np.int16))
    driver.launch(k, (20, 1, 1), (9, 1, 1), 0, struct.pack("<Qi", o, 9))
    assert (download(driver, o, np.zeros(200, np.int16))[:180] == np.arange(180) + np.arange(180) // 9).all()
    with pytest.raises(KernelFault, match="race") as e:
        driver.launch(k, (20, 1, 1), (9, 1, 1), 0, struct.pack("<Qi", o, 8))
    place, rest = divmod(e.value.fault.address - o, 16)  # between two neighbours, whichever came second
    assert not rest and e.value.fault.workgroup in ((place - 1, 0, 0), (place, 0, 0))
    other = 2 * place - 1 - e.value.fault.workgroup[0]
    assert f"a store by wave 0 of work-group ({other}, 0, 0)" in e.value.fault.detail


def test_several_threads_share_the_records() -> None:
    driver, k = function(HALVES, "gfx942", check="race", threads=4)
    o = upload(driver, np.zeros(9 * 2001, np.int16))
    for _ in range(3):
        driver.launch(k, (2000, 1, 1), (9, 1, 1), 0, struct.pack("<Qi", o, 9))
    for _ in range(3):
        with pytest.raises(KernelFault, match="race"):
            driver.launch(k, (2000, 1, 1), (9, 1, 1), 0, struct.pack("<Qi", o, 8))


def test_launches_do_not_race_with_each_other() -> None:
    """More launches than there are launch numbers, and memory that is freed and handed out again."""
    driver, k = function(HALVES, "gfx942", check="race", threads=1)
    for _ in range(300):
        o = upload(driver, np.zeros(64, np.int16))
        driver.launch(k, (2, 1, 1), (9, 1, 1), 0, struct.pack("<Qi", o, 9))
        driver.launch(k, (1, 1, 1), (18, 1, 1), 0, struct.pack("<Qi", o, 0))
        driver.free(0, o)


# The recording functions, called directly.

LANES = 64
LDS_ROOM = 16384


class Machine:
    """The functions for one space, by (verb, bytes); `access` plays one access of one wave."""

    def __init__(self, space: str) -> None:
        self.space = space
        at = "i64" if space == "global" else "i32"
        forms = [f"{v}{n}" for v in ("ld", "st") for n in (1, 2, 3, 4)]
        ir = ""
        for form in [*forms, "any"]:
            more = ", i64 %nbytes, i64 %kind" if form == "any" else ""
            types = ", i64, i64" if form == "any" else ""
            ir += f"""define i32 @d_{form}(ptr %p, i64 %m, ptr %ctx, i64 %nbytes, i64 %kind) {{
  %a = load <{LANES} x {at}>, ptr %p
  %r = call i32 @tec_race_{space}_{form}_{LANES}(<{LANES} x {at}> %a, i64 %m, ptr %ctx, i32 0{more})
  ret i32 %r
}}
declare i32 @tec_race_{space}_{form}_{LANES}(<{LANES} x {at}>, i64, ptr, i32{types})
"""
        jit = get_jit()
        needed = jit.support_for(ir)
        names = [f"d_{f}" for f in [*forms, "any"]]
        addresses, self.keep = jit.link(jit.compile(ir, 1, "registers", "the checks"), names, needed)
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        )
        self.call = {n: kind(a) for n, a in addresses.items()}
        self.buffer, self.ctx = aligned(CTX_BYTES, 0)
        self.base = 0
        if space == "global":
            self.arena = Arena(1 << 20)
            self.base = self.arena.base
            for name in RECORDS:
                self.put(f"global_{name}", self.arena.shadow[name])
            self.put("global_lines", self.arena.lines)
            self.put("arena", self.base)
            self.put("arena_bytes", self.arena.size)
            self.lock = np.zeros(1, np.uint32)
            self.put("lock", self.lock.ctypes.data)
        else:
            self.records = np.zeros(RECORD_BYTES * LDS_ROOM // 8 + 64, np.uint64)
            self.put("lds_bytes", LDS_ROOM)
            for name, at in records_at(self.records.ctypes.data, LDS_ROOM):
                self.put(f"lds_{name}", at)
        self.addresses, self.at = aligned(8 * LANES)

    def put(self, name: str, value: int) -> None:
        ctypes.c_uint64.from_address(self.ctx + CTX[name]).value = value

    def forget(self) -> None:
        self.records[:] = 0

    def access(self, launch: int, who: tuple[int, int, int], kind: int, nbytes: int, places: dict[int, int]) -> int:
        """0, or the record in the way. `who`: group, epoch, wave; `places`: lane -> offset."""
        group, epoch, wave = who
        me = launch << LAUNCH_SHIFT | group + 1 << GROUP_SHIFT | epoch << EPOCH_SHIFT | wave << WAVE_SHIFT | 15
        self.put("race_me", me)
        size = 8 if self.space == "global" else 4
        mask = 0
        for lane, offset in places.items():
            mask |= 1 << lane
            ctypes.memmove(self.at + size * lane, (self.base + offset).to_bytes(size, "little"), size)
        whole = kind < 2 and nbytes % 4 == 0
        form = f"d_{('ld', 'st')[kind]}{nbytes // 4}" if whole else "d_any"
        if not self.call[form](self.at, mask, self.ctx, nbytes, kind):
            return 0
        return ctypes.c_uint64.from_address(self.ctx + CTX["detail"]).value


class Model:
    """Every access to each byte, remembered."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[int, int, int, int]]] = {}

    def conflicts(self, who: tuple[int, int, int], kind: int, byte: int) -> bool:
        group, epoch, wave = who
        for g, e, w, k in self.seen.get(byte, ()):
            if (g != group or (e == epoch and w != wave)) and (k or kind) and not (k == 2 == kind):
                return True
        return False

    def note(self, who: tuple[int, int, int], kind: int, byte: int) -> None:
        past = self.seen.setdefault(byte, [])
        if kind == 2:  # a plain store of the group's own, before a barrier, is not kept beside an atomic
            past[:] = [p for p in past if not (p[0] == who[0] and p[1] < who[1] and p[3] == 1)]
        past.append((*who, kind))


@pytest.mark.parametrize("space", ["lds", "global"])
@pytest.mark.parametrize("narrow", [False, True])
def test_records_against_a_model(space: str, narrow: bool) -> None:
    machine, rng = Machine(space), random.Random(seeds.stream(f"{space}{narrow}"))
    launch, found, clean = 0, 0, 0
    for trial in range(400):
        launch = launch % 255 + 1
        if launch == 1 and space == "global":
            for name in ("stores", "loads", "lines"):
                machine.arena.clear(name)
        if space == "lds":
            machine.forget()
        model, epoch = Model(), {0: 0, 1: 0, 2: 0}
        for _ in range(60):
            group = rng.randrange(3) if space == "global" else 0
            if rng.random() < (0.15 if trial % 4 else 0.8):
                epoch[group] += 1
            who = (group, epoch[group], rng.choice((0, 1, 31)))
            kind = rng.choice((0, 0, 0, 1, 2) if trial % 2 else (0, 0, 0, 0, 1))
            nbytes = rng.choice((1, 2, 4, 8)) if narrow else rng.choice((4, 8, 12, 16))
            if kind == 2:
                nbytes = rng.choice((4, 8))
            step = 1 if narrow and rng.random() < 0.3 and kind < 2 else min(nbytes, 4)
            lanes = sorted(rng.sample(range(LANES), rng.randint(1, 3)))
            # In calm trials the groups have ranges of their own, which may still meet within a dword.
            own = 0 if trial % 4 else group * (97 if narrow else 96)
            places = {l: own + rng.randrange(0, 96 - nbytes, step) for l in lanes}
            bad = False
            for offset in places.values():
                touched = range(offset, offset + nbytes)
                bad = bad or any(model.conflicts(who, kind, b) for b in touched)
                for b in touched:
                    model.note(who, kind, b)
            got = machine.access(launch, who, kind, nbytes, places)
            assert bool(got) == bad, (trial, who, kind, nbytes, places)
            if bad:
                found += 1
                break
        else:
            clean += 1
    assert found > 50 and clean > 5
    if space == "global":
        assert machine.lock[0] == 0


SHAPES = {
    "run": lambda l: l, "one": lambda l: 0, "by 16": lambda l: l // 16, "alike": lambda l: l % 16, "rows": lambda l: l % 4 + 16 * (l // 4),
    "turned": lambda l: 16 * (l % 4) + l // 4, "turned by 8": lambda l: 16 * (l % 8) + l // 8, "back": lambda l: 63 - l,
}  # fmt: skip


@pytest.mark.parametrize(("space", "locked"), [("lds", False), ("global", False), ("global", True)])
def test_whole_waves_against_a_model(space: str, locked: bool) -> None:
    """Lanes in sequence, in rows, in columns: what is looked at by lines and by eight records must come to what each lane's does."""
    machine, rng, clean, found = (
        Machine(space),
        random.Random(seeds.stream(f"{space}{locked}")),
        0,
        dict.fromkeys(SHAPES, 0),
    )
    if not locked:
        machine.put("lock", 0)
    for launch in range(1, 81):
        if space == "lds":
            machine.forget()
        model, epoch, calm = Model(), [0, 0, 0, 0], launch % 3
        for _ in range(16):
            group = rng.randrange(4) if space == "global" else 0
            epoch[group] += rng.random() < (0.2 if calm else 0.9)
            who = (group, epoch[group], rng.choice((0, 1, 31)))
            kind = int(rng.random() < (0.15 if calm else 0.3))
            nbytes, shape = rng.choice((4, 8, 12, 16)), rng.choice([*SHAPES])
            start = rng.choice((0, 0, 64, 4, 60)) + (1024 * group if kind and calm else 0)
            places = {l: (start + nbytes * SHAPES[shape](l)) % 8192 for l in range(LANES)}
            if rng.random() < 0.2:
                del places[rng.randrange(64)]
            touched = {b for at in places.values() for b in range(at, at + nbytes)}
            bad = any(model.conflicts(who, kind, b) for b in touched)
            for b in touched:
                model.note(who, kind, b)
            assert bool(machine.access(launch, who, kind, nbytes, places)) == bad, (
                launch,
                who,
                kind,
                nbytes,
                shape,
                start,
            )
            found[shape] += bad
            if bad:
                break
        else:
            clean += 1
    assert clean > 5 and sum(map(bool, found.values())) >= 6, (clean, found)


@pytest.mark.parametrize("space", ["lds", "global"])
def test_loads_that_repeat_every_16_lanes(space: str) -> None:
    """Of LDS the first 16 lanes stand for all: their words are recorded and held against others'; one lane that reads elsewhere counts again."""
    alike = {lane: 8 * (lane % 16) for lane in range(LANES)}
    for odd in (None, 0, 17, 63):
        machine = Machine(space)
        places = dict(alike)
        if odd is not None:
            places[odd] = 136
        assert machine.access(1, (0, 1, 0), 0, 8, places) == 0
        for place in {*places.values()}:
            for word in (0, 4):
                assert machine.access(1, (0, 1, 1), 1, 4, {0: place + word}), (odd, place, word)
        machine = Machine(space)
        assert machine.access(1, (0, 1, 1), 1, 4, {0: places[odd or 5] + 4}) == 0
        assert machine.access(1, (0, 1, 0), 0, 8, places), odd


def test_a_record_names_the_access() -> None:
    me = 7 << LAUNCH_SHIFT | (1 + 7) << GROUP_SHIFT | 5 << EPOCH_SHIFT | 3 << WAVE_SHIFT
    assert who(me | 2, (2, 2, 2)) == "a store by wave 3 of work-group (1, 1, 1)"
    assert who(me | 1, (8, 1, 1)) == "a load by wave 3 of work-group (7, 0, 0)"
    assert who(me | 63 << WAVE_SHIFT | 1, (8, 1, 1)) == "a load by several waves of work-group (7, 0, 0)"


def test_many_devices_leave_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host with much memory 25 devices took all addresses of the process, whose other allocations then failed."""
    monkeypatch.setattr(arena, "_host_bytes", lambda: 256 << 30)
    held = [Arena(192 << 30) for _ in range(60)]
    assert held[0].size > held[-1].size >= 1 << 28
    assert arena.Reservation(1 << 42).address  # another library's


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_addresses_are_there_on_either_system(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    with monkeypatch.context() as m:
        m.setattr(arena.os, "name", system)
        held = arena.Reservation(1 << 16)
    assert held.address and len(held.map) == held.nbytes == 1 << 16


@tec.kernel
def adds_nothing(counts: Any) -> None:
    tec.atomic_add(counts, 0, 1)
    tec.atomic_or(counts, 0, 0)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_an_atomic_that_changes_nothing_is_one(chip: str) -> None:
    """LLVM makes a coherent load of it, which is no plain access, also where nothing in the kernel synchronizes."""
    counts = tec.nd.array(np.zeros(1, np.int32), tec.rocm_emu(chip, check="race"))
    adds_nothing[2, 64](counts)
    assert counts.numpy().tolist() == [128]
