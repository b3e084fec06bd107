"""What a processor must have to run code for a target: the features, by LLVM's names, of which LLVM may choose instructions for it.

LLVM itself is asked which of them a CPU's name stands for (`tec.llvmworker.jobs`): a list of one's own would leave some out, and code with an
instruction that a processor lacks ends the process. What nobody could ask a processor for is switched off where code is made (`UNUSED`).
"""

from __future__ import annotations

from dataclasses import astuple

from ...errors import TecError
from ...llvmworker import client
from ...target import Target
from .. import cache, llvm_util
from .build import UNUSED, machine_of

# Features of which LLVM chooses instructions by itself. Others (aes, sha, clzero, rdrand) have instructions that a program must ask for by name.
CHOSEN = {
    "x86_64": (
        "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "movbe", "lzcnt", "avx", "fma", "f16c", "bmi", "bmi2", "avx2",
        "xop", "fma4", "tbm", "gfni", *UNUSED,
        "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg",
        "avx512vpopcntdq", "avx512fp16", "avx512bf16", "avxvnni", "amx-bf16", "amx-tile", "amx-int8",
    ),
    "aarch64": (
        "lse", "crc", "rdm", "rcpc", "rcpc-immo", "fullfp16", "fp16fml", "dotprod", "jsconv", "complxnum", "fptoint", "flagm", "bf16", "i8mm",
        "sve", "sve2", "cssc", "mops",
    ),
}  # fmt: skip


def required_features(target: Target) -> tuple[str, ...]:
    """The features that code for a target may use, in the order of their names; none for processors without a list here."""
    try:
        machine = machine_of(target)
    except TecError:
        return ()
    arch = machine.triple.split("-")[0]
    chosen = CHOSEN.get("aarch64" if arch == "arm64" else arch, ())
    if not chosen:
        return ()
    words = machine.features.split(",")
    if {w[1:] for w in words} >= set(chosen):
        # Of this host, whose string has all of them; the last word on each counts.
        last = {w[1:]: w[0] for w in words}
        return tuple(sorted(f for f in chosen if last[f] == "+"))
    return _of(machine, chosen)


def _of(machine: llvm_util.LLVMMachine, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Those that LLVM says a machine has, from the disk cache where it is known."""
    key = cache.key_of("features", machine.triple, machine.cpu, machine.features, *chosen, llvm_util.llvm_version())
    found = cache.load(key)
    if found is None:
        job = {"do": "features", "machine": astuple(machine), "of": chosen}
        found = ",".join(client.submit(job, f"the features of {machine.cpu}").result()["has"]).encode()
        cache.store(key, found)
    return tuple(sorted(filter(None, found.decode().split(","))))
