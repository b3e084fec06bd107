"""What `check="init"` calls where it found something undefined: LLVM IR text; see `undefined`.

`tec_undefined_<i64|i32>_<lanes>(addresses, lanes with an undefined address, lanes with undefined data, kind, ctx, site)` describes the
fault; `tec_origin_...(addresses, lanes, ctx, site)` remembers the load that brought undefined bits last.
"""

from __future__ import annotations

from .template import ir

ADDRESS = 15  # of `context.FAULTS`


def _lane(w: int, bits: str) -> str:
    return f"""  %l = call i{w} @llvm.cttz.i{w}(i{w} {bits}, i1 true)
  %l128 = zext i{w} %l to i128
  %li = trunc i128 %l128 to i64
"""


def _address(w: int, at: str) -> str:
    wide = "  %a = add i64 %a0, 0\n" if at == "i64" else "  %a = zext i32 %a0 to i64\n"
    return ir("undefined.address", w=w, at=at, wide=wide)


def undefined_functions(w: int) -> str:
    text = f"declare i{w} @llvm.cttz.i{w}(i{w}, i1)\n"
    for at in ("i64", "i32"):
        text += ir(
            "undefined.undefined", at=at, w=w, in_address=ADDRESS, lane=_lane(w, "%bits"), address=_address(w, at)
        )
    return text


def names(w: int) -> list[str]:
    return [f"tec_{kind}_{at}_{w}" for kind in ("undefined", "origin") for at in ("i64", "i32")]
