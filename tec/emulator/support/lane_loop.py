"""The head of a loop over some lanes of a wavefront, which several support routines have."""

from __future__ import annotations


def over_lanes(w: int, mask: str, before: str, arrivals: str, done: str, carried: str = "", name: str = "") -> str:
    """LLVM IR text from the branch into the loop to the number of the lane, %li (i64): the body's first lines follow.

    Lanes of `mask` (i{w}) come from the lowest on. `before` is the block that this text continues; `arrivals` the other entries of the phi of the
    lanes that are left, "[ %left1, %block ]", one for each block that branches to `next`; `carried` phis of the loop's own; `done` the
    block to go to in the end. `name` stands before each name here, where a function has several loops.
    """
    return f"""  br label %{name}next
{name}next:
  %{name}left = phi i{w} [ {mask}, %{before} ], {arrivals}
{carried}  %{name}none = icmp eq i{w} %{name}left, 0
  br i1 %{name}none, label %{done}, label %{name}lane
{name}lane:
  %{name}lowest = call i{w} @llvm.cttz.i{w}(i{w} %{name}left, i1 true)
  %{name}less = sub i{w} %{name}left, 1
  %{name}left1 = and i{w} %{name}left, %{name}less
  %{name}wide = zext i{w} %{name}lowest to i128
  %{name}li = trunc i128 %{name}wide to i64
"""
