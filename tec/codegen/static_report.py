"""Figures of AMDGPU kernels read off their assembly: registers, spills, and what the main loop is made of.

In: assembly as LLVM prints it. Out: one `KernelReport` a kernel. The main loop is the innermost loop (a label and a
branch back to it) with the most matrix instructions, or the most instructions where there are none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

_LABEL = re.compile(r"^(\.?\w[\w.$]*):")
_BRANCH = re.compile(r"^\s+s_c?branch\w*\s+(\.\w+)")
_FIELD = re.compile(r"^\s+-?\s*\.(\w+):\s+(\S+)")
_WIDTH = {"dwordx4": 128, "b128": 128, "dwordx3": 96, "b96": 96, "dwordx2": 64, "b64": 64, "dword": 32, "b32": 32}


@dataclass
class KernelReport:
    """One kernel. Counts are of the main loop (of the whole kernel where it has no loop)."""

    name: str
    vgprs: int = 0
    agprs: int = 0
    sgprs: int = 0
    spills: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    has_loop: bool = False
    matrix: int = 0
    matrix_kind: str = ""
    valu: int = 0
    salu: int = 0
    barriers: int = 0
    global_loads: dict[int, int] = field(default_factory=dict)  # bits -> count
    lds_reads: dict[int, int] = field(default_factory=dict)
    lds_writes: dict[int, int] = field(default_factory=dict)
    body: list[str] = field(default_factory=list, repr=False)

    @property
    def load_cover(self) -> float | None:
        """Matrix work between a global load of the main loop and the wait for it, as a share of one pass; the least of all loads.

        None without a loop, matrix instructions or loads. Loads are counted as the hardware does, in order (vmcnt, loadcnt). Where they go straight into shared
        memory, or through registers into a slot beside the one that is worked on, a pass may be several steps, of a barrier each: then as a share of a step.
        """
        found = _load_cover(self.body) if self.has_loop and self.matrix else None
        direct = found is not None and any("_load_" in line and line.endswith(" lds") for line in self.body)
        return found * max(1, self.barriers) if found is not None and (direct or _has_slots(self.body)) else found

    def line(self) -> str:
        """One line for a table."""
        widths = " ".join(
            f"{what} " + ("+".join(f"{n}x{bits}" for bits, n in sorted(d.items(), reverse=True)) or "-")
            for what, d in (("gload", self.global_loads), ("ldsr", self.lds_reads), ("ldsw", self.lds_writes))
        )
        return (
            f"{self.name:<28} vgpr {self.vgprs:>3} agpr {self.agprs:>3} sgpr {self.sgprs:>3} spill {self.spills:>3} "
            f"lds {self.lds_bytes:>6} | matrix {self.matrix:>3} {self.matrix_kind:<20} valu {self.valu:>4} "
            f"salu {self.salu:>3} barrier {self.barriers} {widths}"
            + ("" if (cover := self.load_cover) is None else f" cover {cover:.2f}")
        )


def report(asm: str) -> list[KernelReport]:
    """The kernels of an assembly text, in order."""
    bodies = _bodies(asm)
    out = []
    for facts in _metadata(asm):
        r = KernelReport(str(facts.get("name", "")))
        r.vgprs, r.agprs, r.sgprs = (int(facts.get(f"{k}_count", 0)) for k in ("vgpr", "agpr", "sgpr"))
        r.spills = int(facts.get("vgpr_spill_count", 0)) + int(facts.get("sgpr_spill_count", 0))
        r.lds_bytes = int(facts.get("group_segment_fixed_size", 0))
        r.scratch_bytes = int(facts.get("private_segment_fixed_size", 0))
        _count(r, bodies.get(r.name, []))
        out.append(r)
    return out


def _metadata(asm: str) -> list[dict[str, str]]:
    """The entries of amdhsa.kernels; those of arguments are nested deeper and left out."""
    kernels: list[dict[str, str]] = []
    modules = asm.split("amdhsa.kernels:")[1:]  # a text may hold several, one behind the other
    for line in "".join(m.partition("amdhsa.target:")[0] for m in modules).splitlines():
        if line.startswith("  - "):
            kernels.append({})
        match = _FIELD.match(line)
        if match and kernels and (len(line) - len(line.lstrip())) in (2, 4):
            kernels[-1][match[1]] = match[2].strip("'\"")
    return kernels


def _bodies(asm: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    current: list[str] | None = None
    names = set(re.findall(r"^\s*\.type\s+(\S+?),@function", asm, re.M))
    for line in asm.splitlines():
        match = _LABEL.match(line)
        if match and match[1] in names:
            current = out.setdefault(match[1], [])
        elif line.lstrip().startswith((".section", ".size")):
            current = None
        elif current is not None:
            code = line.split(";")[0].rstrip()
            if code:
                current.append(code)
    return out


def _main_loop(body: list[str]) -> list[str] | None:
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for k, line in enumerate(body):
        match = _LABEL.match(line)
        if match:
            labels[match[1]] = k
        back = _BRANCH.match(line)
        if back and back[1] in labels:
            loops.append((labels[back[1]], k))
    loops = [a for a in loops if _comes_back(body, labels, *a)]
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    if not inner:
        return None
    pieces = [body[a : b + 1] for a, b in inner]
    if any(map(_is_matrix, body)) and not any(_is_matrix(line) for p in pieces for line in p):
        return None  # the product's loop is unrolled; what jumps back is a block that was moved
    return max(pieces, key=lambda p: (sum(map(_is_matrix, p)), len(p)))


def _comes_back(body: list[str], labels: dict[str, int], first: int, last: int) -> bool:
    """Whether control that begins at line `first` comes to the jump back at `last` without leaving the lines between: a block that was moved behind the kernel's end jumps back too."""
    seen: set[int] = set()
    begins = [first]
    while begins:
        k = begins.pop()
        while first <= k < last and k not in seen:
            seen.add(k)
            branch = _BRANCH.match(body[k])
            if branch and branch[1] in labels:
                begins.append(labels[branch[1]])
            if body[k].split()[0] in ("s_branch", "s_endpgm", "s_setpc_b64"):
                break
            k += 1
        if k == last:
            return True
    return False


def _is_matrix(line: str) -> bool:
    return line.lstrip().startswith(("v_mfma", "v_wmma", "v_smfmac"))


def _has_slots(body: list[str]) -> bool:
    """Whether between all barriers shared memory is both read and written in turns: what is read there is not what is written."""
    words = [
        w
        for line in body
        if (w := line.split()[0]).startswith(("ds_read", "ds_load", "ds_write", "ds_store", "s_barrier"))
    ]
    if "s_barrier" not in words:
        return False
    at = words.index("s_barrier")
    between = " ".join([*words[at + 1 :], *words[:at]]).split("s_barrier")
    return all(re.search("ds_(read|load)", x) and re.search("ds_(write|store)", x) for x in between)


def _load_cover(body: list[str]) -> float | None:
    work = 0
    under_way: list[int] = []  # accesses by the work done when they started
    least: int | None = None
    for turn in range(4):  # what the first passes leave under way is waited for in later ones
        begin = work
        for line in body:
            name, _, rest = line.strip().partition(" ")
            shape = re.search(r"_(\d+)x(\d+)x(\d+)", name) if _is_matrix(line) else None
            if shape:
                work += math.prod(map(int, shape.groups()))
            elif re.match(r"(global|buffer|flat)_load", name):
                under_way.append(work)
            elif (allowed := _loads_allowed(name, rest)) is not None:
                done = under_way[: max(0, len(under_way) - allowed)]
                del under_way[: len(done)]
                if turn:
                    least = min([work - at for at in done] + ([] if least is None else [least]), default=None)
    return None if least is None else least / (work - begin)


def _loads_allowed(name: str, operand: str) -> int | None:
    """How many loads may be under way behind a wait; None for what waits for no load."""
    if name == "s_waitcnt":
        vmcnt = re.search(r"vmcnt\((\d+)\)", operand)
        return int(vmcnt[1]) if vmcnt else None
    if name in ("s_wait_loadcnt", "s_wait_loadcnt_dscnt"):
        count = int(operand.strip(), 0)
        return count if name == "s_wait_loadcnt" else count >> 8
    return None


def _count(r: KernelReport, body: list[str]) -> None:
    """Count what a kernel's main loop does, or its whole body where it has none."""
    loop = _main_loop(body)
    r.has_loop, r.body = loop is not None, loop or body
    kinds: Counter[str] = Counter()
    loads: Counter[int] = Counter()
    reads: Counter[int] = Counter()
    writes: Counter[int] = Counter()
    for line in r.body:
        words = line.split()
        name = words[0]
        if _is_matrix(line):
            kinds[name] += 1
        elif name.startswith("v_"):
            # Two operations in one instruction count as two.
            r.valu += 2 if "::" in line else 1
        elif name == "s_barrier" or name.startswith("s_barrier_wait"):
            r.barriers += 1
        elif name.startswith(("s_waitcnt", "s_wait_", "s_nop", "s_delay", "s_clause", "s_barrier", "s_set")):
            continue
        elif name.startswith("s_"):
            r.salu += 1
        elif re.match(r"(global|buffer|flat)_load", name):
            loads[_bits(name)] += 1
        elif name.startswith(("ds_read", "ds_load")):
            reads[_bits(name)] += 1
        elif name.startswith(("ds_write", "ds_store")):
            writes[_bits(name)] += 1
    r.matrix = sum(kinds.values())
    r.matrix_kind = kinds.most_common(1)[0][0].removeprefix("v_") if kinds else ""
    r.global_loads, r.lds_reads, r.lds_writes = dict(loads), dict(reads), dict(writes)


def _bits(name: str) -> int:
    """Bits that one lane moves."""
    twice = 2 if re.search(r"(read|write|load|store)_?2", name) else 1
    for suffix, bits in _WIDTH.items():
        if name.endswith(suffix) or f"_{suffix}" in name:
            return twice * bits
    return 16 if "16" in name or "short" in name else 8
