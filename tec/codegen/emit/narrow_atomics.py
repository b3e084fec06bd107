"""Atomic operations on 8 and 16 bits where the chip has only those on words of 32: a loop of compare-and-swap on the word around the element.

LLVM would make such a loop itself. That of LLVM 22 (AtomicExpand) loses updates of other threads where the address is a multiple of 4 and its arithmetic
stands in the function's first block: the shift of the word by 0 is folded while the word's phi has but one value, the word before the first attempt, so that
every attempt takes the element from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emitter import Emitter

# What takes the element from the word, by LLVM's name of the operation. The others work on the word: LLVM's loops of them are right.
EXTRACTING = frozenset(("min", "max", "umin", "umax", "fadd", "fmin", "fmax"))
_COMPARED = {"min": "slt", "max": "sgt", "umin": "ult", "umax": "ugt"}


def update(em: Emitter, how: str, pointer: str, type_: str, value: str, of: tuple[str, int], orders: str) -> str:
    """The old element, a value of type `of[0]` with `of[1]` bits, at a pointer of `type_`. orders: scope and orders of a cmpxchg."""
    kind, bits = of
    element = f"i{bits}"
    byte = em.op(f"and i32 {em.op(f'ptrtoint {type_} {pointer} to i32')}, 3")
    word = em.op(f"getelementptr i8, {type_} {pointer}, i32 {em.op(f'sub i32 0, {byte}')}")
    shift = em.op(f"shl i32 {byte}, 3")
    mask = em.op(f"shl i32 {(1 << bits) - 1}, {shift}")
    others = em.op(f"xor i32 {mask}, -1")
    scope = orders.partition(")")[0] + ") " if orders.startswith("syncscope") else ""
    first = em.op(f"load atomic i32, {type_} {word} {scope}monotonic, align 4")
    again, done, before, now = em.label("again"), em.label("done"), em.block, f"%{em.label('now')}"
    em.branch(again)
    em.place(again)
    was = em.op(f"phi i32 [ {first}, %{before} ], [ {now}, %{again} ]")
    old = _element(em, was, shift, kind, element)
    new = _combined(em, how, kind, old, value)
    held = new if kind == element else em.op(f"bitcast {kind} {new} to {element}")
    placed = em.op(f"shl i32 {em.op(f'zext {element} {held} to i32')}, {shift}")
    whole = em.op(f"or i32 {em.op(f'and i32 {was}, {others}')}, {placed}")
    pair = em.op(f"cmpxchg {type_} {word}, i32 {was}, i32 {whole} {orders}, align 4")
    em.line(f"{now} = extractvalue {{ i32, i1 }} {pair}, 0")
    em.branch_if(em.op(f"extractvalue {{ i32, i1 }} {pair}, 1"), done, again)
    em.place(done)
    return old


def _element(em: Emitter, word: str, shift: str, kind: str, element: str) -> str:
    held = em.op(f"trunc i32 {em.op(f'lshr i32 {word}, {shift}')} to {element}")
    return held if kind == element else em.op(f"bitcast {element} {held} to {kind}")


def _combined(em: Emitter, how: str, kind: str, old: str, value: str) -> str:
    if how == "fadd":
        return em.op(f"fadd {kind} {old}, {value}")
    if how in _COMPARED:
        holds = em.op(f"icmp {_COMPARED[how]} {kind} {old}, {value}")
        return em.op(f"select i1 {holds}, {kind} {old}, {kind} {value}")
    name = {"half": "f16", "bfloat": "bf16"}[kind]
    return em.intrinsic(f"llvm.{how[1:]}num.{name}", kind, [(kind, old), (kind, value)])
