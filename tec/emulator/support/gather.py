"""Global loads of two and four dwords a lane whose lanes do not follow each other: groups of 16 lanes, each in its cheapest way.

A group in sequence is one wide load; another whose lanes are all on takes one load a lane, put together and taken apart by
dword (a host gather would fetch dword by dword); a group with lanes off is gathered under its mask. Used by `support.memory`,
after the addresses are checked.
"""

from __future__ import annotations

from .template import ir


def _seq(n: int, start: int = 0, step: int = 1, ty: str = "i32") -> str:
    return "<" + ", ".join(f"{ty} {start + i * step}" for i in range(n)) + ">"


def grouped_loads(w: int, n: int) -> str:
    """IR from %addr (<w x i64>), %m (mask bits) to the dwords in %out, one vector of w dwords after another."""
    return "".join(_group(w, n, g) for g in range(w // 16))


def _group(w: int, n: int, g: int) -> str:
    s, wide, vec = f"v{g}", f"<{16 * n} x i32>", "<16 x i32>"
    text = ir(
        "gather.group",
        s=s,
        w=w,
        own_lanes=_seq(16, 16 * g),
        first_lane=16 * g,
        steps=_seq(16, 0, 4 * n, "i64"),
        wide=wide,
    )
    parts = []
    for i in range(16):
        text += f"""  %{s}e{i} = extractelement <16 x i64> %{s}a, i64 {i}
  %{s}q{i} = inttoptr i64 %{s}e{i} to ptr
  %{s}l{i} = load <{n} x i32>, ptr %{s}q{i}, align 1
"""
        parts.append(f"%{s}l{i}")
    size, step = n, 0
    while len(parts) > 1:  # pairs, pairs of pairs, ...
        joined = []
        for j in range(0, len(parts), 2):
            name = f"%{s}j{step}_{j}"
            text += f"  {name} = shufflevector <{size} x i32> {parts[j]}, <{size} x i32> {parts[j + 1]}, <{2 * size} x i32> {_seq(2 * size)}\n"
            joined.append(name)
        parts, size, step = joined, 2 * size, step + 1
    text += f"  br label %{s}apart\n{s}apart:\n  %{s}big = phi {wide} [ %{s}rv, %{s}row ], [ {parts[0]}, %{s}each ]\n"
    for k in range(n):
        text += f"  %{s}w{k} = shufflevector {wide} %{s}big, {wide} poison, <16 x i32> {_seq(16, k, n)}\n"
    text += f"  br label %{s}join\n{s}part:\n  %{s}mask = bitcast i16 %{s}m to <16 x i1>\n"
    for k in range(n):
        text += f"""  %{s}x{k} = add <16 x i64> %{s}a, splat (i64 {4 * k})
  %{s}p{k} = inttoptr <16 x i64> %{s}x{k} to <16 x ptr>
  %{s}g{k} = call {vec} @llvm.masked.gather.v16i32.v16p0(<16 x ptr> align 1 %{s}p{k}, <16 x i1> %{s}mask, {vec} zeroinitializer)
"""
    text += f"  br label %{s}join\n{s}join:\n"
    for k in range(n):
        text += f"  %{s}r{k} = phi {vec} [ %{s}w{k}, %{s}apart ], [ %{s}g{k}, %{s}part ]\n"
    for k in range(n):
        text += f"""  %{s}o{k} = getelementptr i8, ptr %out, i64 {4 * w * k + 64 * g}
  store {vec} %{s}r{k}, ptr %{s}o{k}, align 64
"""
    return text
