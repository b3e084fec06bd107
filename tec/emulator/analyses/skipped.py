"""Vector instructions that a wave passes over: `s_setvskip` as branches.

In: a kernel's text. Out: the same text, in which `s_setvskip sN, BIT` (skip vector instructions from here on where that bit of the register is set) is a branch
`s_cbranch_vskip` to the `s_setvskip 0, 0` that ends it. That holds where only vector instructions lie between the two, which is how AMD's assembly
guards a row's stores; anything else is refused, since scalar instructions between them would run.
Source: "AMD Instinct MI300 Instruction Set Architecture", S_SETVSKIP.
"""

from __future__ import annotations

from ..decode.inst import Inst, KernelText, Operand
from ..errors import UnsupportedInstruction

_VECTOR = ("v_", "ds_", "buffer_", "tbuffer_", "global_", "flat_", "scratch_", "image_")
BRANCH = "s_cbranch_vskip"


def branch_over_skipped(text: KernelText) -> None:
    """Rewrite each pair of `s_setvskip`. Raises UnsupportedInstruction where a pair is not a stretch of vector instructions alone."""
    insts = text.insts
    labelled = set(text.labels.values())
    at = 0
    while at < len(insts):
        begin = insts[at]
        at += 1
        if begin.op != "s_setvskip" or _is_off(begin):
            continue
        end = at
        while end < len(insts) and insts[end].op.startswith(_VECTOR) and end not in labelled:
            end += 1
        if end == len(insts) or end in labelled or not _is_off(insts[end]) or begin.operands[1].kind != "int":
            raise UnsupportedInstruction(
                "s_setvskip over more than vector instructions",
                kernel=text.name,
                line=begin.line,
                instruction=begin.text,
            )
        label = f".Lvskip_{end}"
        text.labels[label] = end
        operands = [Operand("label", label), *begin.operands]
        insts[at - 1] = Inst(BRANCH, "", operands, {}, begin.line, begin.text)
        at = end


def _is_off(inst: Inst) -> bool:
    return inst.op == "s_setvskip" and inst.operands[0].kind == "int" and not inst.operands[0].value
