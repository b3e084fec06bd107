"""What is written around a wave's accesses to memory, beside the access: checks of races and of the order of work-groups, counters, traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...target import CHIPS
from ...target.lds import lds_phase
from ..checks.across import Across
from ..checks.fills import issues, may_stay_out
from ..checks.order import Synchronization
from ..checks.race_record import EPOCHS, ONE_EPOCH
from ..checks.waits import fills_lds
from ..context import CTX, STATE_COVERED, STATE_ISSUED, STATE_WORKED
from ..decode.inst import Inst, KernelText
from ..support.trace import KINDS
from .wave import Wave

# How often a store that clashes lets other threads go on, whose store of the same value may be next: a time slice or two of a loaded host, once a race.
_YIELDS = 1000


class Accesses(Wave):
    """The translator's side of accesses; the opcodes' rules call these around `support.memory`'s functions."""

    order: Synchronization | None
    across: Across
    text: KernelText
    fill_counter: str  # of loads straight into LDS, where they are checked; else ""

    def site(self) -> int:
        raise NotImplementedError

    def leave_on_fault(self, rc: str) -> None:
        raise NotImplementedError

    def row(self, kind: str, start: int, nbytes: int = 0) -> int:
        raise NotImplementedError

    def ctx_load(self, name: str, ty: str) -> str:
        raise NotImplementedError

    def track(self, space: str, kind: int, nbytes: int, address: str, mask: str) -> None:
        """After an access: what the checks (of a load or an atomic; for a store see `before_store`) and the profile want to know of it."""
        w = self.lanes
        at = "i64" if space == "global" else "i32"
        checks = self.options.checks
        if "race" in checks and space in ("global", "lds") and kind != 1:
            if kind == 0 and space == "global" and self.position in self.across.loads:
                with self._in_interval(-1):
                    self._race(space, kind, nbytes, address, mask)
            self._race(space, kind, nbytes, address, mask)
        if self.fill_counter and space == "lds" and not (kind == 1 and self.inst is not None and fills_lds(self.inst)):
            self._filled(kind, nbytes, address, mask)
        if "screen" in checks and kind != 1:
            self._screen("ld", space, nbytes, address, mask)
        if "barrier" in checks and (kind or space == "lds"):
            self._worked(mask)
        if "arrays" in checks and space == "lds" and len(self.text.arrays) > 1:
            self._arrays(nbytes, address, mask)
        if self.options.profile and space in ("global", "lds"):
            row = self.row(f"{space}_{('load', 'store', 'atomic')[kind]}", self.position, nbytes)
            if self.options.trace:
                self.trace_access(row, space, kind, nbytes, address, mask)
                return
            name, more, last = "lines", "i64, i64", f"i64 {nbytes}, i64 7"
            if space == "lds":
                address, mask, more, last = self._phases(kind, nbytes, address, mask)
                name = "banks"
            self.out.declares.add(f"declare void @tec_{name}_{w}(<{w} x {at}>, i{w}, ptr, i64, {more})")
            self.out.put(f"call void @tec_{name}_{w}(<{w} x {at}> {address}, i{w} {mask}, ptr %ctx, i64 {row}, {last})")

    def scalar_load(self, address: str, nbytes: int | str, reads: str = "true") -> None:
        """The same of a load for the whole wave, as one of lane 0's; none where no lane is on, and so nothing uses the value, or where it does not read."""
        if "screen" in self.options.checks:
            name = f"@tec_screen_scalar_{self.lanes}"
            self.out.declares.add(f"declare i32 {name}(i64, i64, ptr, i32)")
            self.leave_on_fault(
                self.out.emit(f"call i32 {name}(i64 {address}, i64 {nbytes}, ptr %ctx, i32 {self.site()})")
            )
        if "race" not in self.options.checks:
            return
        if not self.full:
            reads = self.s.and_(reads, self.s.icmp("ne", self.mask_type, self.exec_bits(), "0"), "i1")
        on = "1" if reads == "true" else self.s.zext("i1", self.mask_type, reads)
        self._race("global", 2 if self.synchronizes() else 0, nbytes, self.whole_ops.splat("i64", address), on)

    def _arrays(self, nbytes: int, address: str, mask: str) -> None:
        """An instruction is of one array: its lanes' first and last bytes all lie in the array of its lowest lane's first."""
        o, w = self.whole_ops, self.lanes

        def number(place: str) -> str:
            total = o.const("i32", 0)
            for start in self.text.arrays[1:]:
                total = o.add(total, o.zext("i1", "i32", o.icmp("uge", "i32", place, o.const("i32", start))))
            return total

        name = f"@tec_arrays_{w}"
        vector = f"<{w} x i32>"
        last = number(o.add(address, o.const("i32", nbytes - 1)))
        self.out.declares.add(f"declare i32 {name}({vector}, {vector}, {vector}, i{w}, ptr, i32)")
        self.leave_on_fault(
            self.out.emit(
                f"call i32 {name}({vector} {address}, {vector} {number(address)}, {vector} {last}, i{w} {mask}, ptr %ctx, i32 {self.site()})"
            )
        )

    def leaves_out(self, space: str, writes: bool) -> bool:
        """Whether an access is traced and not done: a write of global memory, and what a skeleton needs not do."""
        return self.options.trace and ((writes and space == "global") or (self.position in self.options.skip))

    def trace_access(self, row: int, space: str, kind: int, nbytes: int, address: str, mask: str) -> None:
        w, at = self.lanes, "i64" if space == "global" else "i32"
        name = f"@tec_trace_{space}_{w}"
        event = KINDS["lds"] if space == "lds" else KINDS["store" if kind else "load"]
        tag = event << 30 | row << 12
        more, last = "", ""
        if space == "lds":
            address, mask, more, last = self._phases(kind, nbytes, address, mask)
            more, last = f", {more}", f", {last}"
        self.out.declares.add(f"declare void {name}(<{w} x {at}>, i{w}, ptr, i32{more})")
        self.out.put(f"call void {name}(<{w} x {at}> {address}, i{w} {mask}, ptr %ctx, i32 {tag}{last})")

    def _phases(self, kind: int, nbytes: int, address: str, mask: str) -> tuple[str, str, str, str]:
        """The lanes' addresses and mask in the order in which the LDS serves them; the types and values of dwords a lane, banks and lanes served together (`tec.target.lds`)."""
        w = self.lanes
        phase = lds_phase(self.chip, CHIPS[self.chip].lds_banks, ("load", "store", "atomic")[kind], nbytes)
        if phase.order:
            lanes = ", ".join(f"i32 {n}" for n in phase.lanes_of(w))
            order = f"<{w} x i32> <{lanes}>"
            address = self.out.emit(f"shufflevector <{w} x i32> {address}, <{w} x i32> poison, {order}")
            bits = self.out.emit(f"bitcast i{w} {mask} to <{w} x i1>")
            bits = self.out.emit(f"shufflevector <{w} x i1> {bits}, <{w} x i1> poison, {order}")
            mask = self.out.emit(f"bitcast <{w} x i1> {bits} to i{w}")
        return (
            address,
            mask,
            "i64, i64, i64",
            f"i64 {max(1, nbytes // 4)}, i64 {phase.banks}, i64 {phase.lanes}",
        )

    def before_store(
        self, space: str, nbytes: int, address: str, mask: str, data: str, changed: Callable[[], str]
    ) -> None:
        """A store against its own lanes and the other waves' accesses. `changed`: the lanes whose store will change memory."""
        if "screen" in self.options.checks:
            rc = self._screen("st", space, nbytes, address, mask)
            if "screen races" in self.options.checks and space != "scratch":
                clash, on = self.out.fresh_label("clash"), self.out.fresh_label("on")
                self.out.put(f"br i1 {self.out.emit(f'icmp eq i32 {rc}, 2')}, label %{clash}, label %{on}, !prof !0")
                self.out.label(clash)
                self._clash(space, nbytes, address, mask, data)
                self.out.put(f"br label %{on}")
                self.out.label(on)
        if "race" not in self.options.checks or space not in ("global", "lds"):
            return
        self._clash(space, nbytes, address, mask, data)
        kind = 2 if self.synchronizes() else 1
        self._race(space, kind, nbytes, address, mask, changed if kind == 1 else None)
        if kind == 1 and self.position in (self.across.stores if space == "global" else self.across.lds_stores):
            with self._in_interval(1):
                self._race(space, kind, nbytes, address, mask, changed)

    def _clash(self, space: str, nbytes: int, address: str, mask: str, data: str) -> None:
        """A store against its own lanes."""
        w, at = self.lanes, "i64" if space == "global" else "i32"
        name = f"@tec_clash_{space}_{w}"
        self.out.declares.add(f"declare i32 {name}(<{w} x {at}>, i{w}, ptr, ptr, i32, i64)")
        self.leave_on_fault(
            self.out.emit(
                f"call i32 {name}(<{w} x {at}> {address}, i{w} {mask}, ptr {data}, ptr %ctx, i32 {self.site()}, i64 {nbytes})"
            )
        )

    def _screen(self, verb: str, space: str, nbytes: int, address: str, mask: str) -> str:
        """The quick look at an access (`checks.screening`); gives what it found, where the wave goes on."""
        w, at = self.lanes, "i64" if space == "global" else "i32"
        name = f"@tec_screen_{verb}_{space}_{w}"
        self.out.declares.add(f"declare i32 {name}(<{w} x {at}>, i{w}, ptr, i32, i64)")
        rc = self.out.emit(
            f"call i32 {name}(<{w} x {at}> {address}, i{w} {mask}, ptr %ctx, i32 {self.site()}, i64 {nbytes})"
        )
        self.leave_on_fault(self.s.and_(rc, "1"))
        return rc

    def synchronizes(self) -> bool:
        """Whether the access that is written now is an atomic load or store, in a kernel whose work-groups wait for each other."""
        return self.order is not None and self.position in self.order.atomics

    def tell_order(self, address: str, mask: str, does: int) -> None:
        """Around an access to global memory that synchronizes: what of it `does` concerns the order of work-groups."""
        kind = self.order.kinds.get(self.position, 0) & does if self.order is not None else 0
        if kind:
            self._order(address, mask, kind)

    def _order(self, address: str, mask: str, kind: int) -> None:
        w = self.lanes
        name = f"@tec_order_{w}"
        self.out.declares.add(f"declare i32 {name}(<{w} x i64>, i{w}, ptr, i32, i64)")
        self.leave_on_fault(
            self.out.emit(
                f"call i32 {name}(<{w} x i64> {address}, i{w} {mask}, ptr %ctx, i32 {self.site()}, i64 {kind})"
            )
        )

    def count_fills(self, inst: Inst) -> None:
        """What an instruction does to the counter of loads straight into LDS (`checks.fills`): it adds to it, or waits for it."""
        left = may_stay_out(inst, self.fill_counter)
        if left is None and not issues(inst, self.fill_counter, self.gfx):
            return
        if self.region is not None:
            self.settle()
        at = self.out.emit(f"getelementptr i8, ptr %st, i64 {STATE_ISSUED}")
        issued = self.out.emit(f"load i32, ptr {at}")
        if left is None:
            self.out.put(f"store i32 {self.s.add(issued, '1')}, ptr {at}")
            return
        covered_at = self.out.emit(f"getelementptr i8, ptr %st, i64 {STATE_COVERED}")
        covered = self.out.emit(f"load i32, ptr {covered_at}")
        now = self.s.call("smax", "i32", covered, self.s.sub(issued, str(left)))
        self.out.put(f"store i32 {now}, ptr {covered_at}")

    def fill(self, dwords: int, address: str, mask: str, out: bool = False) -> None:
        """After a load straight into LDS, or a store out of it."""
        if not self.fill_counter:
            return
        name, vector = f"@tec_fill_{self.lanes}", f"<{self.lanes} x i32>"
        self.out.declares.add(f"declare void {name}({vector}, i{self.lanes}, ptr, ptr, i32, i32)")
        site = self.site() - out * (1 << 31)  # the highest bit says so
        self.out.put(
            f"call void {name}({vector} {address}, i{self.lanes} {mask}, ptr %ctx, ptr %st, i32 {dwords}, i32 {site})"
        )

    def _filled(self, kind: int, nbytes: int, address: str, mask: str) -> None:
        name, vector = f"@tec_filled_{self.lanes}", f"<{self.lanes} x i32>"
        self.out.declares.add(f"declare i32 {name}({vector}, i{self.lanes}, ptr, ptr, i32, i32, i1)")
        self.leave_on_fault(
            self.out.emit(
                f"call i32 {name}({vector} {address}, i{self.lanes} {mask}, ptr %ctx, ptr %st, i32 {nbytes}, i32 {self.site()}, i1 {int(kind > 0)})"
            )
        )

    def _worked(self, mask: str) -> None:
        """Note that the wave touched LDS or stored something (`check="barrier"`)."""
        at = self.out.emit(f"getelementptr i8, ptr %st, i64 {STATE_WORKED}")
        some = self.s.zext("i1", "i32", self.s.icmp("ne", self.mask_type, mask, "0"))
        old = self.out.emit(f"load i32, ptr {at}")
        self.out.put(f"store i32 {self.s.or_(old, some)}, ptr {at}")

    @contextmanager
    def _in_interval(self, step: int) -> Iterator[None]:
        """What is written within is of the barrier interval `step` on, as the race check counts them; an access out of its own (`checks.across`)."""
        at = self.out.emit(f"getelementptr i8, ptr %ctx, i64 {CTX['race_me']}")
        now = self.out.emit(f"load i64, ptr {at}")
        moved = self.s.and_(self.s.add(now, str(step * ONE_EPOCH), "i64"), str(EPOCHS), "i64")
        self.out.put(f"store i64 {self.s.or_(self.s.and_(now, str(~EPOCHS), 'i64'), moved, 'i64')}, ptr {at}")
        yield
        self.out.put(f"store i64 {now}, ptr {at}")

    def _race(
        self,
        space: str,
        kind: int,
        nbytes: int | str,
        address: str,
        mask: str,
        changed: Callable[[], str] | None = None,
    ) -> None:
        """The access against the records of those before it (`support.race`); a store that changes nothing is noted, and in nobody's way."""
        w, at = self.lanes, "i64" if space == "global" else "i32"
        if kind < 2 and nbytes in (4, 8, 12, 16):
            name, types, more = f"@tec_race_{space}_{('ld', 'st')[kind]}{int(nbytes) // 4}_{w}", "", ""
        else:
            name, types, more = f"@tec_race_{space}_any_{w}", ", i64, i64", f", i64 {nbytes}, i64 {kind}"
        self.out.declares.add(f"declare i32 {name}(<{w} x {at}>, i{w}, ptr, i32{types})")

        def compare(lanes: str) -> str:
            return self.out.emit(
                f"call i32 {name}(<{w} x {at}> {address}, i{w} {lanes}, ptr %ctx, i32 {self.site()}{more})"
            )

        rc = compare(mask)
        if changed is None:
            self.leave_on_fault(rc)
            return
        clash, on = self.out.fresh_label("clash"), self.out.fresh_label("on")
        again, late, wait, fault, note = (self.out.fresh_label(x) for x in ("again", "late", "wait", "fault", "note"))
        bad = self.out.emit(f"icmp ne i32 {rc}, 0")
        self.out.put(f"br i1 {bad}, label %{clash}, label %{on}, !prof !0")
        self.out.label(clash)
        self.out.put(f"br label %{again}")
        self.out.label(again)
        # The other work-group has its record, but its values may be on their way: another thread of the host stores them next.
        self.out.put(f"%{again}_k = phi i32 [ 0, %{clash} ], [ %{wait}_k, %{wait} ]")
        status = self.out.emit(f"getelementptr i8, ptr %ctx, i64 {CTX['status']}")
        self.out.put(f"store i64 0, ptr {status}")
        rc = compare(self.s.and_(mask, changed(), self.mask_type))
        self.out.put(f"br i1 {self.out.emit(f'icmp ne i32 {rc}, 0')}, label %{late}, label %{note}")
        self.out.label(late)
        self.out.put(f"br i1 {self.out.emit(f'icmp ult i32 %{again}_k, {_YIELDS}')}, label %{wait}, label %{fault}")
        self.out.label(wait)
        self.out.declares.add("declare i32 @sched_yield()")
        self.out.emit("call i32 @sched_yield()")
        self.out.put(f"%{wait}_k = add i32 %{again}_k, 1")
        self.out.put(f"br label %{again}")
        self.out.label(fault)
        self.leave_on_fault(rc)
        self.out.put(f"br label %{note}")
        self.out.label(note)
        notes = self.ctx_load("notes", "ptr")
        self.out.put(f"store i8 1, ptr {self.out.emit(f'getelementptr i8, ptr {notes}, i64 {self.site()}')}")
        self.out.put(f"br label %{on}")
        self.out.label(on)
