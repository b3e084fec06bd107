"""What `check="race"` runs at each access: LLVM IR of `tec_race_<space>_<ld|st><dwords>_<lanes>` and its slow path.

Each dword of memory has two records of 64 bits, its last store and its last load, in arrays of their own:

    launch 8 | work-group 24 | barrier interval 15 | releases 6 | atomic 1 | wave 6 | bytes 4

A third and a fourth array hold the sites of these accesses, for messages. A record of another launch counts as none. An access conflicts with a record whose bytes it touches where the groups differ, or
where in one interval of one group the waves differ; one of the two must be a store, and not both atomics. Loads by several
waves leave the wave `SEVERAL`, loads by several groups the group `ANY`, so nothing of them is lost. Interval and releases are the
time of a wave: an access is in nobody's way whose group has learned, through atomics, of a later time of its owner (`order`). Where the bytes of a
dword have different stories its record is `SPLIT`, and each byte has one of its own in arrays that are touched only then.

Aligned accesses of whole dwords go lane by lane, all dwords of a lane at once; what they cannot decide, narrow accesses and
atomics go to `tec_race_slow`. Records of global memory are changed under the launch's lock (null on one thread);
accesses that need no change, as the third load of a word, do not take it.
"""

from __future__ import annotations

from ..checks.race_record import ANY, GROUP_SHIFT, TICK_BITS, TICK_SHIFT
from ..context import CTX
from .clash import clash_function
from .lane_loop import over_lanes
from .memory import ctx_load
from .race_runs import alike, line_of_lane, runs, turn, turned_back
from .race_slow import conflict
from .template import ir

WIDTHS = (1, 2, 3, 4)  # dwords a lane


def names(w: int) -> list[str]:
    """The functions for kernels, both spaces."""
    forms = [f"{verb}{n}" for verb in ("ld", "st") for n in WIDTHS] + ["any"]
    races = [f"tec_race_{space}_{form}_{w}" for space in ("global", "lds") for form in forms]
    return races + [f"tec_clash_{space}_{w}" for space in ("global", "lds")] + [f"tec_order_{w}"]


def _fetch(space: str, verb: str) -> tuple[str, str]:
    """IR of the fields that an access needs, and from a lane's number to its place in the records (%off), or to `next`."""
    if space == "global":
        head = ctx_load("arena", "arena") + ctx_load("arena_bytes", "arena_bytes") + ctx_load("lock", "lock", "ptr")
        head += "  %held0 = icmp eq ptr %lock, null\n" + ctx_load("lines", "global_lines", "ptr")
        fetch = ir("race.fetch_global")
    else:
        head = "  %held0 = icmp eq i1 true, true\n" + ctx_load("lds_size", "lds_bytes")
        fetch = ir("race.fetch_lds").replace(
            "INSIDE",
            "br label %known"
            if verb == "ld"
            else "%inside = icmp ult i64 %off, %lds_size\n  br i1 %inside, label %known, label %next",
        )
        # A store is looked at before its bounds are checked.
    return head, fetch


def race_function(w: int, space: str, verb: str, n: int) -> str:
    """`verb` "ld" or "st" of n dwords a lane; "any" takes %nbytes and %kind and always goes the slow way."""
    is_global = space == "global"
    at = "i64" if is_global else "i32"
    name, extra = (f"any_{w}", ", i64 %nbytes, i64 %kind") if verb == "any" else (f"{verb}{n}_{w}", "")
    nbytes = "%nbytes" if verb == "any" else str(4 * n)
    head = "".join(
        ctx_load(k, f"{space}_{f}", "ptr") for k, f in (("w0", "stores"), ("r0", "loads"), ("wb0", "bytes_w"), ("rb0", "bytes_r"), ("ws0", "sites_w"), ("rs0", "sites_r"))
    )  # fmt: skip
    more, fetch = _fetch(space, verb)
    places = ir("race.places") + (line_of_lane(verb, nbytes) if is_global else "")
    body, ends = _body(is_global, verb, n)
    turns = verb == "st" and not is_global
    mask, fewer, before = "%m", "", "entry"
    if verb != "any":
        mask, before = "%rest", "gend"
        fewer = (alike(w) if verb == "ld" and not is_global else "") + runs(w, space, verb, n)
    # The ways by which a lane is left as it was.
    skips = ["lane", "fresh"] if is_global or verb != "ld" else ["lane"]
    skips += ["known"] * _may_be_covered(is_global, verb)
    left = "".join(f"[ %left1, %{s} ], " for s in skips)
    held = "".join(f"[ %held, %{s} ], " for s in skips)
    last = "".join(f"[ {'%last' if s == 'lane' else '%a'}, %{s} ], " for s in skips)
    carried = (
        f"  %held = phi i1 [ %held0, %{before} ], {held}{ends[1]}\n"
        f"  %last = phi i64 [ -1, %{before} ], {last}{ends[2]}\n"
    )
    return ir(
        "race.race",
        space=space,
        name=name,
        w=w,
        at=at,
        extra=extra,
        addresses=turn(w, at, n) if turns else f"  store <{w} x {at}> %addr, ptr %buf",
        head=head + more,
        me_mask=-1 if is_global else ~((1 << TICK_BITS) - 1 << TICK_SHIFT),
        any_15=ANY << GROUP_SHIFT | 15,
        n=n,
        splat_mev=_splat("mev", "%me", n),
        splat_mesv=_splat("mesv", "%mes", n),
        splat_anyv=_splat("anyv", "%any", n),
        fewer=fewer,
        lanes=over_lanes(w, mask, before, left + ends[0], "done", carried),
        fetch=fetch,
        places=places,
        body=body,
        acquire=ir("race.acquire") if is_global else "",
        unlock="  store atomic i32 0, ptr %lock release, align 4\n" if is_global else "",
        detail=_detail(),
        lane_of_place=turned_back(w) if turns else "  %lfault = add i64 %li, 0",
    )


def _may_be_covered(is_global: bool, verb: str) -> bool:
    """Whether an access may find its line done (`tec_race_line`)."""
    return is_global and verb == "ld"


def _body(is_global: bool, verb: str, n: int) -> tuple[str, tuple[str, str, str]]:
    """What is done with a lane's dwords, and by which blocks it ends, with what is left, whether the lock is held, and the last address."""
    nbytes, kind = ("%nbytes", "%kind") if verb == "any" else (str(4 * n), str(int(verb == "st")))
    shared = {
        "here": "look" if is_global else "known",
        "acquired": ", [ true, %acquire ]" if is_global else "",
        "need": "  br i1 %now, label %act, label %acquire\n" if is_global else "  br label %act\n",
        "slow": ir("race.slow", nbytes=nbytes, kind=kind, timeless="false" if is_global else "true"),
    }
    if verb == "any":
        return ir("race.always_slow", **shared), ("[ %left1, %slow ]", "[ true, %slow ]", "[ %a, %slow ]")
    covered = _may_be_covered(is_global, verb)
    vt, bt = f"<{n} x i64>", f"<{n} x i1>"
    if verb == "ld":
        decide, target = ir("race.decide_load", bt=bt, vt=vt, ones="splat (i64 15)"), "%rp"
    else:
        decide, target = (
            f"  %candv = or {bt} %wc, %rc\n  %updv = icmp ne {vt} %wv, %mev\n  %newv = or {vt} %mev, zeroinitializer\n",
            "%wp",
        )
    body = ir(
        "race.decided",
        **shared,
        vt=vt,
        conflict_w=conflict("w", "%wv", vt, str(n), not is_global),
        conflict_r=conflict("r", "%rv", vt, str(n), not is_global),
        decide=decide,
        bt=bt,
        n=n,
        # At the end of a line, which is read from its beginning, the whole of it may be done.
        calm="calm" if covered else "next",
        closes=ir("race_runs.close_line") if covered else "",
        target=target,
        sites=target[:2],
    )
    calms = ["calm", "close"] if covered else ["again"]
    left, now, last = ("".join(f"[ {v}, %{c} ], " for c in calms) for v in ("%left1", "%now", "%a"))
    return body, (
        left + "[ %left1, %update ], [ %left1, %slow ]",
        now + "[ true, %update ], [ true, %slow ]",
        last + "[ %a, %update ], [ %a, %slow ]",
    )


def _splat(out: str, value: str, n: int) -> str:
    vt = f"<{n} x i64>"
    return (
        f"  %{out}_i = insertelement {vt} poison, i64 {value}, i64 0\n"
        f"  %{out} = shufflevector {vt} %{out}_i, {vt} poison, <{n} x i32> zeroinitializer\n"
    )


def _detail() -> int:
    return CTX["detail"]


def race_functions(w: int, space: str) -> str:
    forms = [(verb, n) for verb in ("ld", "st") for n in WIDTHS] + [("any", 1)]
    line = ir("race_runs.line") if space == "global" else ""
    return line + "".join(race_function(w, space, verb, n) for verb, n in forms) + clash_function(w, space)
