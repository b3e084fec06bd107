"""What `check="init"` calls where it found something undefined: LLVM IR text; see `undefined`.

`tec_undefined_<i64|i32>_<lanes>(addresses, lanes with an undefined address, lanes with undefined data, kind, ctx, site)` describes the
fault; `tec_origin_...(addresses, lanes, ctx, site)` remembers the load that brought undefined bits last.
"""

from __future__ import annotations

from ..context import CTX

ADDRESS = 15


def _lane(w: int, bits: str) -> str:
    return f"""  %l = call i{w} @llvm.cttz.i{w}(i{w} {bits}, i1 true)
  %l128 = zext i{w} %l to i128
  %li = trunc i128 %l128 to i64
"""


def _address(w: int, at: str) -> str:
    wide = "  %a = add i64 %a0, 0\n" if at == "i64" else "  %a = zext i32 %a0 to i64\n"
    return f"""  %buf = alloca <{w} x {at}>, align 64
  store <{w} x {at}> %addr, ptr %buf
  %p = getelementptr {at}, ptr %buf, i64 %li
  %a0 = load {at}, ptr %p
{wide}"""


def undefined_functions(w: int) -> str:
    text = f"declare i{w} @llvm.cttz.i{w}(i{w}, i1)\n"
    for at in ("i64", "i32"):
        text += f"""
define void @tec_undefined_{at}_{w}(<{w} x {at}> %addr, i{w} %where, i{w} %what, i64 %kind, ptr %ctx, i32 %site) noinline cold {{
  %isaddr = icmp ne i{w} %where, 0
  %bits = select i1 %isaddr, i{w} %where, i{w} %what
  %k = select i1 %isaddr, i64 {ADDRESS}, i64 %kind
{_lane(w, "%bits")}{_address(w, at)}  %r = call i32 @tec_fault(ptr %ctx, i64 %k, i32 %site, i64 %li, i64 %a)
  ret void
}}
define void @tec_origin_{at}_{w}(<{w} x {at}> %addr, i{w} %bits, ptr %ctx, i32 %site) noinline cold {{
{_lane(w, "%bits")}{_address(w, at)}  %p0 = getelementptr i8, ptr %ctx, i64 {CTX["origin_site"]}
  %s = zext i32 %site to i64
  %s1 = add i64 %s, 1
  store i64 %s1, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {CTX["origin_lane"]}
  store i64 %li, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 {CTX["origin_address"]}
  store i64 %a, ptr %p2
  ret void
}}
"""
    return text


def names(w: int) -> list[str]:
    return [f"tec_{kind}_{at}_{w}" for kind in ("undefined", "origin") for at in ("i64", "i32")]
