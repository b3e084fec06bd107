"""The beginning of kernels whose arguments arrive in SGPRs ("Preloaded Kernel Arguments", LLVM's AMDGPU usage guide).

LLVM puts 256 bytes before such a kernel that load the same registers, for firmware that cannot preload; firmware that can begins behind them, and so does the
software GPU: loads that no chip of today waits for are not part of a kernel's time.
"""

from __future__ import annotations

from dataclasses import replace

from ...runtime.objects.codeobject import KernelInfo
from ..decode.inst import KernelText


def without_prologue(text: KernelText, info: KernelInfo) -> KernelText:
    """The kernel from where firmware that preloads its arguments begins it; as it is where there are none, or no such loads."""
    if not info.kernarg_preload_dwords:
        return text
    n = next((k for k, i in enumerate(text.insts) if not i.op.startswith(("s_load_dword", "s_waitcnt"))), 0)
    if not n or text.insts[n].op != "s_branch":
        return text
    start = text.labels.get(text.insts[n].operands[0].text, 0)
    # Between the branch and its goal is what fills 256 bytes; nothing else leads there.
    if start <= n or any(at < start for at in text.functions.values()):
        return text
    return replace(
        text,
        insts=text.insts[start:],
        labels={name: at - start for name, at in text.labels.items() if at >= start},
        functions={name: at - start for name, at in text.functions.items()},
        jumps={k - start: tuple(at - start for at in to) for k, to in text.jumps.items()},
    )
