"""Where the threads of a block meet, what lies between two meetings, and what outlives it: the analysis of `serialize_threads`.

A block's program is a sequence of items. Consecutive ones without a meeting make a region; regions are numbered, and for each let
and each thread's storage it is known which regions use it, and which values may differ between threads.
"""

from __future__ import annotations

from dataclasses import field

from ...errors import Loc
from ...records import dataclass
from .. import expr as E
from .. import stmt as S
from ..buffer import LOCAL, Buffer
from ..effects import effects
from ..intrin import INTRINS
from ..visit import free_vars, map_stmt, map_stmts, visit, walk_exprs


@dataclass(slots=True, eq=False)
class Item:
    """A step of a block's program: a statement, or a let (`var`) whose scope is the rest of the sequence."""

    stmt: S.Stmt | None
    var: E.Var | None = None
    value: E.Expr | None = None
    loc: Loc | None = None


@dataclass(slots=True, eq=False)
class Private:
    """Storage of each thread. `regions`: the regions that use it; `level`: the loop of meetings that it is declared in."""

    buffer: Buffer
    level: int
    regions: set[int] = field(default_factory=set)
    wide: Buffer | None = None  # an element a thread for each of its own, where it outlives a region


class Regions:
    """A kernel's body, taken apart. `thread_vars`: ids of the variables that number the threads of a block."""

    def __init__(self, body: S.Stmt, thread_vars: set[int]):
        self.body = body
        self.meets: dict[int, bool] = {}
        self.privates: dict[int, Private] = {}
        self.region_of: dict[int, int] = {}  # of a statement or let, by id
        self.level_of: dict[int, int] = {}  # of a region: which loop of meetings it is in
        self.lets: dict[int, Item] = {}  # of lets in sequences of meetings, by id of the variable
        self.let_regions: dict[int, set[int]] = {}
        self.home: dict[int, int] = {}  # the region in which a let is evaluated
        self.varying: set[int] = set(thread_vars)  # ids of variables and private buffers
        self.shared: list[Buffer] = []  # storage of the block
        self.regions = 0
        self._kept: dict[int, list[Item]] = {}
        self.top = self.items(body)
        self.number(self.top, 0)
        self.find_uses(body)
        self.find_varying()

    # ---- sequences

    def meeting(self, s: S.Stmt | E.Expr) -> bool:
        """Whether threads meet in a statement or an expression."""
        hit = self.meets.get(id(s))
        if hit is None:
            hit = False

            def on_expr(e: E.Expr) -> None:
                nonlocal hit
                hit = hit or (type(e) is E.Call and bool(INTRINS[e.op].collective))

            visit(s, on_expr)
            self.meets[id(s)] = hit
        return hit

    def items(self, s: S.Stmt) -> list[Item]:
        """A block's statements in a row: what is in the bodies of lets and allocations follows them."""
        out: list[Item] = []
        todo = [s]
        while todo:
            x = todo.pop()
            if not self.meeting(x):
                out.append(Item(x))
            elif isinstance(x, S.Seq):
                todo.extend(reversed(x.stmts))
            elif isinstance(x, S.LetStmt):
                out.append(Item(x, x.var, x.value, x.loc))
                todo.append(x.body)
            elif isinstance(x, S.Alloc):
                if x.buffer.scope == LOCAL:
                    self.privates[id(x.buffer)] = Private(x.buffer, -1)
                else:
                    self.shared.append(x.buffer)
                todo.append(x.body)
            elif isinstance(x, S.Attr):
                todo.append(x.body)
            else:
                out.append(Item(x))
        return out

    def number(self, items: list[Item], level: int) -> None:
        """Give each region of a sequence, and of those inside of it, its number."""
        for p in self.privates.values():
            if p.level < 0:
                p.level = level
        here = self.region(level)
        for x in items:
            s = x.stmt
            assert s is not None
            if x.var is not None:
                self.lets[id(x.var)] = x
                self.region_of[id(s)] = here
                if self.meeting(x.value):  # type: ignore[arg-type]
                    here = self.region(level)  # what is moved is read by the next
                self.home[id(x.var)] = here
            elif not self.meeting(s):
                self.region_of[id(s)] = here
            else:
                self.region_of[id(s)] = self.region(level)  # its condition or bounds
                loops = isinstance(s, (S.For, S.While))
                for inner in _bodies(s):
                    self.number(self.kept_items(inner), self.regions + 1000 if loops else level)
                here = self.region(level)

    def region(self, level: int) -> int:
        self.regions += 1
        self.level_of[self.regions] = level
        return self.regions

    def kept_items(self, s: S.Stmt) -> list[Item]:
        """`items` of a statement, the same each time."""
        found = self._kept.get(id(s))
        if found is None:
            found = self._kept[id(s)] = self.items(s)
        return found

    def find_uses(self, s: S.Stmt, region: int = 0) -> None:
        """Which regions use each private buffer and let."""
        region = self.region_of.get(id(s), region)

        def on_expr(e: E.Expr) -> E.Expr:
            for x in walk_exprs(e):
                if type(x) is E.BufferLoad and id(x.buffer) in self.privates:
                    self.privates[id(x.buffer)].regions.add(region)
                elif type(x) is E.Var and id(x) in self.lets:
                    self.let_regions.setdefault(id(x), set()).add(region)
            return e

        if isinstance(s, S.BufferStore) and id(s.buffer) in self.privates:
            self.privates[id(s.buffer)].regions.add(region)
        if isinstance(s, S.LetStmt) and id(s.var) in self.lets:
            on_expr(s.value)
            self.find_uses(s.body, region)
            return

        def below(x: S.Stmt) -> S.Stmt:
            self.find_uses(x, region)
            return x

        map_stmt(s, below, on_expr)

    def again(self, item: Item) -> bool:
        """Whether a let may be evaluated again in another region: it depends on nothing that changes."""
        assert item.value is not None
        if not effects(item.value).is_constant or (effects(item.value).is_varying and not _is_lane(item.value)):
            return False
        return all(id(v) not in self.lets or self.again(self.lets[id(v)]) for v in free_vars(item.value))

    # ---- who may differ

    def find_varying(self) -> None:
        """Variables and private buffers whose values may differ between the threads of a block."""
        while True:
            before = len(self.varying)
            self._vary(self.body, False)
            if len(self.varying) == before:
                return

    def _vary(self, s: S.Stmt, divergent: bool) -> None:
        """Note which variables and buffers differ from thread to thread; divergent: some threads alone come here."""
        match s:
            case S.IfThenElse():
                inside = divergent or self.is_varying(s.cond)
                self._vary(s.then, inside)
                if s.orelse is not None:
                    self._vary(s.orelse, inside)
            case S.While():
                self._vary(s.body, divergent or self.is_varying(s.cond))
            case S.For():
                inside = divergent or self.is_varying(s.min) or self.is_varying(s.extent)
                if inside:
                    self.varying.add(id(s.var))
                self._vary(s.body, inside)
            case S.LetStmt():
                if self.is_varying(s.value):
                    self.varying.add(id(s.var))
                self._vary(s.body, divergent)
            case S.BufferStore():
                if s.buffer.scope == LOCAL and (
                    divergent or self.is_varying(s.value) or any(map(self.is_varying, s.indices))
                ):
                    self.varying.add(id(s.buffer))
            case _:

                def below(x: S.Stmt) -> S.Stmt:
                    self._vary(x, divergent)
                    return x

                map_stmts(s, below)

    def is_varying(self, e: E.Expr) -> bool:
        for x in walk_exprs(e):
            if type(x) is E.Var and id(x) in self.varying:
                return True
            if type(x) is E.BufferLoad and id(x.buffer) in self.varying:
                return True
            if type(x) is E.Call and INTRINS[x.op].varying:
                return True
        return False


def _bodies(s: S.Stmt) -> list[S.Stmt]:
    match s:
        case S.IfThenElse():
            return [s.then] + ([s.orelse] if s.orelse is not None else [])
        case S.For() | S.While():
            return [s.body]
    return []


def _is_lane(e: E.Expr) -> bool:
    return all(type(x) is not E.Call or x.op == "wave_lane" or not INTRINS[x.op].varying for x in walk_exprs(e))
