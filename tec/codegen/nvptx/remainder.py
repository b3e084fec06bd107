"""C's fmod for PTX, which has no instruction for it: LLVM's own expansion of frem takes one rounded quotient, which is wrong beside multiples of the
divisor and where the quotient is large.

Written as one LLVM function a type, inlined where it is called: the divisor is scaled up by powers of two as far as the dividend goes, and each scaled
divisor is taken off as often as it fits. A quotient stays so small that it is one too large at most, and every step is exact.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir.dtype import dtype_info

if TYPE_CHECKING:
    from ..emit.emitter import Emitter

# (LLVM's type, its name in intrinsics, the power of two between two scaled divisors: a few bits below the significand's)
_KINDS = {"float32": ("float", "f32", 20), "float64": ("double", "f64", 48)}

_TEXT = """define internal {t} @{name}({t} %x, {t} %y) alwaysinline nounwind {{
entry:
  %ax = call {t} @llvm.fabs.{k}({t} %x)
  %ay = call {t} @llvm.fabs.{k}({t} %y)
  %some = fcmp ogt {t} %ay, 0.0
  %finite = fcmp olt {t} %ax, 0x7FF0000000000000
  %valid = and i1 %some, %finite
  br i1 %valid, label %near, label %none
none:
  ret {t} 0x7FF8000000000000
near:
  %below = fcmp olt {t} %ax, %ay
  br i1 %below, label %same, label %up
same:
  ret {t} %x
up:
  %t = phi {t} [ %ay, %near ], [ %more, %up ]
  %more = fmul {t} %t, {up}
  %fits = fcmp ole {t} %more, %ax
  br i1 %fits, label %up, label %down
down:
  %d = phi {t} [ %t, %up ], [ %less, %down ]
  %r = phi {t} [ %ax, %up ], [ %left, %down ]
  %q = fdiv {t} %r, %d
  %n = call {t} @llvm.trunc.{k}({t} %q)
  %minus = fneg {t} %n
  %rest = call {t} @llvm.fma.{k}({t} %minus, {t} %d, {t} %r)
  %over = fcmp olt {t} %rest, 0.0
  %back = fadd {t} %rest, %d
  %left = select i1 %over, {t} %back, {t} %rest
  %less = fmul {t} %d, {down}
  %last = fcmp ole {t} %d, %ay
  br i1 %last, label %done, label %down
done:
  %out = call {t} @llvm.copysign.{k}({t} %left, {t} %x)
  ret {t} %out
}}"""


def _hex(value: float) -> str:
    return f"0x{struct.pack('>d', value).hex().upper()}"


def definition(dtype: str) -> tuple[str, dict[str, str]]:
    """(the function's name, LLVM's text of it and of what it calls, by name) for float32 or float64."""
    t, k, bits = _KINDS[dtype]
    name = f"tec_fmod_{k}"
    arguments = {"fabs": 1, "trunc": 1, "fma": 3, "copysign": 2}
    texts = {f"llvm.{f}.{k}": f"declare {t} @llvm.{f}.{k}({', '.join([t] * n)})" for f, n in arguments.items()}
    texts[name] = _TEXT.format(t=t, k=k, name=name, up=_hex(2.0**bits), down=_hex(2.0**-bits))
    return name, texts


def fmod(em: Emitter, e: E.Call) -> str:
    """The call of it, lane by lane."""
    dtype = dtype_info(e.dtype).element
    name, texts = definition(dtype)
    for known, text in texts.items():
        em.declarations.setdefault(known, text)
    t = _KINDS[dtype][0]
    lanes = [em.lanes_of(em.expr(a), e.dtype) for a in e.args]
    return em.vector_of([em.intrinsic(name, t, [(t, x) for x in xs]) for xs in zip(*lanes)], e.dtype)
