"""The same LLVM IR, element by element, compiled for the host and for each emulated chip: the results must agree.

LLVM's host and AMDGPU code generators share nothing below the IR, so this checks every instruction that AMDGPU lowers these
operations to, in the shapes in which it uses them.
"""

from __future__ import annotations

import ctypes
import re
import struct

import llvmlite.binding as llvm
import numpy as np
import pytest

from tec.emulator.translate.jit import get_jit
from tests import seeds
from tests.thinned import thinned

from .harness import download, function, upload

N = 192
PLACE = N * 8 * 4  # bytes of an array: four elements of 8 bytes a lane, at most
SIZES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i1": 1}
SHORT = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}
INTS, FLOATS = ("i8", "i16", "i32", "i64"), ("half", "float", "double")


def cases() -> dict[str, tuple[str, str, int, str, str, int]]:
    """name -> (element type, result type, sources, body, declarations, tolerance in ulps)."""
    out: dict[str, tuple[str, str, int, str, str, int]] = {}

    def add(name: str, t: str, r: str, n: int, body: str, declares: str = "", ulps: int = 0) -> None:
        out[name] = (t, r, n, body.replace("TY", t), declares, ulps)

    def vec(t: str, v: int) -> str:
        return t if v == 1 else f"<{v} x {t}>"

    for t in FLOATS:
        for v in (1, 2, 4):
            ty, m = vec(t, v), ("" if v == 1 else f"v{v}") + SHORT[t]
            for op in ("fadd", "fsub", "fmul", "fdiv"):
                # A half quotient comes from f32 steps; the double rounding of a denormal one may show.
                add(f"{op}_{m}", ty, ty, 2, f"%r = {op} TY %x0, %x1", ulps=1 if op == "fdiv" else 0)
            for op in ("sqrt", "fabs", "floor", "ceil", "trunc", "roundeven", "round"):
                add(f"{op}_{m}", ty, ty, 1, f"%r = call TY @llvm.{op}.{m}(TY %x0)", f"declare {ty} @llvm.{op}.{m}({ty})", ulps=1 if op == "sqrt" else 0)  # fmt: skip
            for op in ("minnum", "maxnum", "copysign", "minimum", "maximum"):
                add(f"{op}_{m}", ty, ty, 2, f"%r = call TY @llvm.{op}.{m}(TY %x0, TY %x1)", f"declare {ty} @llvm.{op}.{m}({ty},{ty})")  # fmt: skip
            add(f"fma_{m}", ty, ty, 3, f"%r = call TY @llvm.fma.{m}(TY %x0, TY %x1, TY %x2)", f"declare {ty} @llvm.fma.{m}({ty},{ty},{ty})")  # fmt: skip
        for p in ("olt", "oge", "oeq", "une", "uno", "ord", "ult", "ueq", "one"):
            add(f"fcmp_{p}_{t}", t, t, 2, f"%c = fcmp {p} TY %x0, %x1\n  %r = select i1 %c, TY %x0, TY %x1")
        add(f"frem_{t}", t, t, 2, "%y = call TY @llvm.fabs.M(TY %x1)\n  %z = fadd TY %y, 1.0\n  %r = frem TY %x0, %z".replace("M", SHORT[t]), f"declare {t} @llvm.fabs.{SHORT[t]}({t})") if t == "float" else None  # fmt: skip
        for i in INTS:
            for op in ("sitofp", "uitofp"):
                add(f"{op}_{i}_{t}", i, t, 1, f"%r = {op} TY %x0 to {t}")
            bits = int(i[1:])
            for op, s in (("fptosi", "s"), ("fptoui", "u")):
                name = f"llvm.{op}.sat.{i}.{SHORT[t]}"
                add(f"{op}_{t}_{i}", t, i, 1, f"%r = call {i} @{name}(TY %x0)", f"declare {i} @{name}({t})")
                del s
            del bits
        for u in FLOATS:
            if SIZES[u] > SIZES[t]:
                add(f"ext_{t}_{u}", t, u, 1, f"%r = fpext TY %x0 to {u}")
                add(f"trunc_{u}_{t}", u, t, 1, f"%r = fptrunc TY %x0 to {t}")
        name = f"llvm.is.fpclass.{SHORT[t]}"
        for mask in (3, 0x264, 0x90, 0x108):
            add(f"class_{t}_{mask}", t, "i32", 1, f"%c = call i1 @{name}(TY %x0, i32 {mask})\n  %r = zext i1 %c to i32", f"declare i1 @{name}({t}, i32)")  # fmt: skip
    for op in ("exp2", "log2", "exp", "log", "sin", "cos"):
        if op in ("sin", "cos"):
            body = f"%y = fptrunc float 0x3FF0000000000000 to half\n  %z = fpext half %y to float\n  %w = call TY @llvm.minnum.f32(TY %x0, TY 100.0)\n  %q = call TY @llvm.maxnum.f32(TY %w, TY -100.0)\n  %r = call TY @llvm.{op}.f32(TY %q)"  # fmt: skip
            add(f"{op}_f32", "float", "float", 1, body, f"declare float @llvm.{op}.f32(float)\ndeclare float @llvm.minnum.f32(float,float)\ndeclare float @llvm.maxnum.f32(float,float)", ulps=-1)  # fmt: skip
        else:
            add(f"{op}_f32", "float", "float", 1, f"%r = call TY @llvm.{op}.f32(TY %x0)", f"declare float @llvm.{op}.f32(float)", ulps=3)  # fmt: skip
    for t in INTS:
        for v in (1, 2, 4):
            ty, m = vec(t, v), ("" if v == 1 else f"v{v}") + t
            for op in "add sub mul and or xor".split():
                add(f"{op}_{m}", ty, ty, 2, f"%r = {op} TY %x0, %x1")
            amount = str(int(t[1:]) - 1) if v == 1 else f"splat ({t} {int(t[1:]) - 1})"
            for op in ("shl", "lshr", "ashr"):
                add(f"{op}_{m}", ty, ty, 2, f"%s = and TY %x1, {amount}\n  %r = {op} TY %x0, %s")
            for op in "smin smax umin umax uadd.sat sadd.sat usub.sat ssub.sat".split():
                add(f"{op}_{m}", ty, ty, 2, f"%r = call TY @llvm.{op}.{m}(TY %x0, TY %x1)", f"declare {ty} @llvm.{op}.{m}({ty},{ty})")  # fmt: skip
            for op in ("ctpop", "bitreverse"):
                add(
                    f"{op}_{m}", ty, ty, 1, f"%r = call TY @llvm.{op}.{m}(TY %x0)", f"declare {ty} @llvm.{op}.{m}({ty})"
                )
            for op in ("ctlz", "cttz", "abs"):
                add(f"{op}_{m}", ty, ty, 1, f"%r = call TY @llvm.{op}.{m}(TY %x0, i1 false)", f"declare {ty} @llvm.{op}.{m}({ty},i1)")  # fmt: skip
            for op in ("fshl", "fshr"):
                add(f"{op}_{m}", ty, ty, 3, f"%r = call TY @llvm.{op}.{m}(TY %x0, TY %x1, TY %x2)", f"declare {ty} @llvm.{op}.{m}({ty},{ty},{ty})")  # fmt: skip
        for op in ("sdiv", "udiv", "srem", "urem"):
            add(f"{op}_{t}", t, t, 2, f"%z = or TY %x1, 1\n  %m = icmp eq TY %z, -1\n  %d = select i1 %m, TY 3, TY %z\n  %r = {op} TY %x0, %d")  # fmt: skip
            add(f"{op}c_{t}", t, t, 1, f"%r = {op} TY %x0, 7")
        for u in INTS:
            if SIZES[u] > SIZES[t]:
                for op in ("sext", "zext"):
                    add(f"{op}_{t}_{u}", t, u, 1, f"%r = {op} TY %x0 to {u}")
                add(f"trunc_{u}_{t}", u, t, 1, f"%r = trunc TY %x0 to {t}")
        for p in ("slt", "ult", "eq", "sge", "ugt"):
            add(f"icmp_{p}_{t}", t, t, 2, f"%c = icmp {p} TY %x0, %x1\n  %r = select i1 %c, TY %x0, TY %x1")
    return out


# The host needs a run-time routine, which the JIT does not have, to round f64 to half; test_valu covers these.
_NO_HOST = {"trunc_double_half", "fma_f16", "fma_v2f16", "fma_v4f16", "sitofp_i64_half", "uitofp_i64_half"}
CASES = {name: case for name, case in cases().items() if name not in _NO_HOST}


def base_type(t: str) -> tuple[str, int]:
    m = re.match(r"<(\d+) x (\w+)>", t)
    return (m[2], int(m[1])) if m else (t, 1)


def declared(names: list[str]) -> str:
    """The declarations of cases, each once."""
    return "\n".join(dict.fromkeys(line for name in names for line in CASES[name][4].split("\n") if line))


def steps(name: str, k: int, gpu: bool) -> str:
    """Loads, operation and store of a case; its values have `k` in their names."""
    t, r, n, body, _, _ = CASES[name]
    space = " addrspace(1)" if gpu else ""
    lines = [
        f"  %g{i} = getelementptr {t}, ptr{space} %p{i}, i32 %t\n  %x{i} = load {t}, ptr{space} %g{i}, align {SIZES[base_type(t)[0]]}"
        for i in range(n)
    ]
    lines += [f"  {body}", f"  %go = getelementptr {r}, ptr{space} %o, i32 %t", f"  store {r} %r, ptr{space} %go, align {SIZES[base_type(r)[0]]}"]  # fmt: skip
    return re.sub(r"%(?!t\b|out\b)(\w+)", rf"%\1.{k}", "\n".join(lines)) if gpu else "\n".join(lines)


def host_source(names: list[str]) -> str:
    functions = [
        f"define void @k_{k}({', '.join(f'ptr %p{i}' for i in range(CASES[name][2]))}, ptr %o, i32 %t) {{\n{steps(name, k, False)}\n  ret void\n}}"
        for k, name in enumerate(names)
    ]
    return "\n".join([*functions, declared(names)])


def gpu_source(names: list[str]) -> str:
    """One kernel, whose work-groups do one case each: %all points to four places of `PLACE` bytes a case, three inputs and the result."""
    blocks, table = [], []
    for k, name in enumerate(names):
        n = CASES[name][2]
        places = [*(f"%p{i}.{k}" for i in range(n)), f"%o.{k}"]
        at = [*range(n), 3]
        blocks.append(f"case{k}:")
        blocks += [
            f"  {p} = getelementptr i8, ptr addrspace(1) %all, i64 {(4 * k + j) * PLACE}" for p, j in zip(places, at)
        ]
        blocks += [steps(name, k, True), "  br label %end"]
        table.append(f"i32 {k}, label %case{k}")
    text = "\n".join(blocks)
    return f"""define amdgpu_kernel void @k(ptr addrspace(1) %all) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %case = call i32 @llvm.amdgcn.workgroup.id.x()
  switch i32 %case, label %end [ {" ".join(table)} ]
{text}
end:
  ret void
}}
{declared(names)}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }}"""


def inputs(t: str, seed: int) -> np.ndarray:
    element, v = base_type(t)
    rng = np.random.default_rng(seed)
    n = N * v
    if element in INTS:
        bits = 8 * SIZES[element]
        a = (
            rng.integers(0, 2**bits, n, dtype=np.uint64, endpoint=False)
            if bits < 64
            else rng.integers(0, 2**64, n, dtype=np.uint64)
        )
        small = rng.integers(-4, 5, n).astype(np.int64).view(np.uint64)
        a = np.where(rng.random(n) < 0.3, small, a)
        edge = np.array([0, 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1, 2**bits - 1], np.uint64)
        a = np.where(rng.random(n) < 0.15, rng.choice(edge, n), a)
        return a.astype({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits])
    kind = {"half": np.float16, "float": np.float32, "double": np.float64}[element]
    with np.errstate(all="ignore"):
        a = (rng.standard_normal(n) * 10.0 ** rng.integers(-4, 5, n)).astype(kind)
        tiny = np.finfo(kind).smallest_subnormal
        edge = np.array(
            [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2.5, tiny, -tiny, np.finfo(kind).tiny, np.finfo(kind).max],
            kind,
        )
    return np.where(rng.random(n) < 0.25, rng.choice(edge, n), a).astype(kind)


def host_results(names: list[str], arrays: dict[str, list[np.ndarray]], outs: dict[str, np.ndarray]) -> None:
    # LLVM 22 gives -32768 for NaN in llvm.fptosi.sat.i16.f16 where the host has arithmetic on float16: the reference does without.
    host = f"{llvm.get_host_cpu_name()},{llvm.get_host_cpu_features().flatten()},-avx512fp16"
    jit = get_jit(host if llvm.get_host_cpu_features().get("avx512fp16") else "")
    body = jit.compile(host_source(names), 1, "plain", "the cases")
    addresses, keep = jit.link(body, [f"k_{i}" for i in range(len(names))], {})
    for i, name in enumerate(names):
        n = CASES[name][2]
        fn = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (n + 1), ctypes.c_int32)(addresses[f"k_{i}"])
        for t in range(N):
            fn(*(a.ctypes.data for a in arrays[name]), outs[name].ctypes.data, t)
    del keep


def result_array(r: str) -> np.ndarray:
    element, v = base_type(r)
    kind = {"half": np.float16, "float": np.float32, "double": np.float64}.get(element)
    if kind is None:
        kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[SIZES[element]]
    return np.zeros(N * v, kind)


def agree(name: str, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    ulps = CASES[name][5]
    if want.dtype.kind != "f":
        return got == want
    integer = {2: np.int16, 4: np.int32, 8: np.int64}[want.dtype.itemsize]
    same = (got.view(integer) == want.view(integer)) | (np.isnan(got) & np.isnan(want))
    if name.startswith(("minnum", "maxnum")):
        same |= got == want  # the sign of a zero is open
    with np.errstate(all="ignore"):
        if ulps < 0:
            same |= np.abs(got.astype(np.float64) - want) < 1e-5
        elif ulps:
            near = np.abs(got.view(integer).astype(np.int64) - want.view(integer).astype(np.int64)) <= ulps
            same |= near & np.isfinite(want) & np.isfinite(got)
    return same


GROUPS = ["f16", "f32", "f64", "i8", "i16", "i32", "i64", "other"]


def group_of(name: str) -> str:
    found = re.search(r"_(?:v\d)?(f16|f32|f64|i8|i16|i32|i64)$", name)
    return found[1] if found and name.count("_") == 1 else "other"


def taken(names: list[str]) -> list[str]:
    """What the gate compiles of a group: every other width of each operation; a night takes all."""
    if seeds.number():
        return names
    of: dict[str, list[str]] = {}
    for name in names:
        of.setdefault(name.rpartition("_")[0], []).append(name)
    return [name for k, found in enumerate(of.values()) for name in found[k % min(2, len(found)) :: 2]]


_SLOW = [pytest.param(c, marks=pytest.mark.slow) for c in ("gfx90a", "gfx1200")]


@thinned(1, ("chip", ["gfx942", "gfx1100", *_SLOW]), ("group", GROUPS))
def test_agrees_with_the_host(chip: str, group: str) -> None:
    names = [n for n in CASES if group_of(n) == group]
    assert len(names) > 20
    names = taken(names)
    arrays = {n: [inputs(CASES[n][0], i + 1) for i in range(CASES[n][2])] for n in names}
    want = {n: result_array(CASES[n][1]) for n in names}
    host_results(names, arrays, want)
    memory = np.zeros((len(names), 4, PLACE), np.uint8)
    for k, name in enumerate(names):
        for i, a in enumerate(arrays[name]):
            memory[k, i, : a.nbytes] = a.view(np.uint8)
    driver, kernel = function(gpu_source(names), chip)
    address = upload(driver, memory)
    driver.launch(kernel, (len(names), 1, 1), (N, 1, 1), 0, struct.pack("<Q", address))
    results = download(driver, address, memory)
    driver.free(0, address)
    wrong = []
    for k, name in enumerate(names):
        got = results[k, 3, : want[name].nbytes].view(want[name].dtype)
        bad = np.flatnonzero(~agree(name, got, want[name]))
        if len(bad):
            i = bad[0]
            wrong.append(
                f"{name}: {len(bad)} wrong, first [{i}] {[a[i] for a in arrays[name] if len(a) > i]} -> {got[i]!r}, want {want[name][i]!r}"
            )
    assert not wrong, "\n".join(wrong)
