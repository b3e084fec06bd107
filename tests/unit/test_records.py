"""Classes of `tec.records.dataclass` behave as those of Python's own."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from tec import records

OPTIONS: list[dict[str, bool]] = [
    {}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}, {"eq": False}, {"slots": True, "eq": False, "repr": False},
]  # fmt: skip


def family(dataclass: Callable[..., Any], **options: bool) -> tuple[Any, Any]:
    """A class and one that derives from it."""

    @dataclass(**options)
    class Base:
        """A base."""

        kind: ClassVar[str] = "base"
        a: int
        b: list[int] = field(default_factory=list, hash=False)
        c: str = "c"
        hidden: float = field(default=0.5, repr=False, compare=False)
        named: int = field(default=4, kw_only=True)

    @dataclass(**options)
    class Derived(Base):
        """One that derives."""

        a: int = 3
        d: Any = None
        size: int = field(init=False, default=7)
        total: int = field(init=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.a + len(self.b))

    return Base, Derived


def told(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as e:
        return type(e), str(e).replace("family.<locals>.", "") if isinstance(e, FrozenInstanceError) else ""


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_they_behave_as_pythons(options: dict[str, bool]) -> None:
    seen = []
    for dataclass in (records.dataclass, dataclasses.dataclass):
        base, derived = family(dataclass, **options)
        x, y, z = derived(1, [2], d=4), derived(a=1, b=[2], d=4), base(1, [2])
        same_lists = base(1).b is base(1).b
        shown = repr(x).split(" object at")[0], repr(z).split(" object at")[0]
        state = (
            told(lambda y=y: setattr(y, "c", "new")),
            told(lambda y=y: delattr(y, "hidden")),
            told(lambda y=y: setattr(y, "other", 1))
            is None,  # Python 3.11 raises a TypeError of its own where a class is frozen and has slots
        )
        parts = [(f.name, f.init) for f in dataclasses.fields(x)], base.__match_args__, derived.__match_args__
        seen.append((
            x == derived(1, [2], d=4), x == z, x != derived(2), z == base(1, [2], hidden=1.0), same_lists, shown, state, parts, x.size, x.total,
            told(lambda x=x, w=derived(1, [5], d=4): hash(x) == hash(w)), base.__hash__ is None, dataclasses.replace(x, a=9).total,
            told(lambda x=x: dataclasses.asdict(x)), told(lambda base=base: base()), told(lambda base=base: base(1, 2, 3, 4, 5)), derived(1, named=6).named,
            str(inspect.signature(derived)), hasattr(x, "__dict__"),
        ))  # fmt: skip
    assert seen[0] == seen[1]


@records.dataclass(frozen=True, slots=True)
class Point:
    """A point."""

    x: int
    y: tuple[int, ...] = ()


@records.dataclass(eq=True)
class Own:
    """A class with methods of its own."""

    x: int

    def __init__(self, x: int) -> None:
        self.x = 2 * x

    def __hash__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "mine"


def test_a_frozen_class_with_slots_is_pickled_and_copied() -> None:
    point = Point(1, (2, 3))
    assert pickle.loads(pickle.dumps(point)) == point and {point: 1}[Point(1, (2, 3))] == 1
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]


def test_methods_of_ones_own_stay() -> None:
    assert (Own(2).x, hash(Own(2)), repr(Own(2)), Own(2) == Own(2)) == (4, 5, "mine", True)


@pytest.mark.parametrize("first", [records.dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("second", [records.dataclass, dataclasses.dataclass])
def test_either_kind_derives_from_either(first: Callable[..., Any], second: Callable[..., Any]) -> None:
    @first(frozen=True)
    class Base:
        """A base."""

        x: int

    @second(frozen=True)
    class Derived(Base):
        """One that derives."""

        y: int = 2

    assert (Derived(1).x, Derived(1).y) == (1, 2) and Derived(1) == Derived(1, 2) and Derived(1) != Base(1)
    with pytest.raises(FrozenInstanceError):
        Derived(1).y = 3


def test_methods_are_compiled_when_they_are_asked_for() -> None:
    @records.dataclass(frozen=True)
    class Late:
        """Nothing is made of it yet."""

        x: int

    assert {type(vars(Late)[n]).__name__ for n in ("__init__", "__eq__", "__hash__")} == {"_Later"}
    assert Late(1) == Late(1)
    assert [type(vars(Late)[n]).__name__ for n in ("__init__", "__eq__", "__hash__")] == [
        "function",
        "function",
        "_Later",
    ]


_FIRST_KERNEL = """
import dataclasses
written, own = [], dataclasses.dataclass
def counting(cls=None, /, **options):
    if cls is None:
        return lambda cls: counting(cls, **options)
    if options.get("init", True) and cls.__module__.startswith("tec"):
        written.append(f"{cls.__module__}.{cls.__qualname__}")
    return own(cls, **options)
dataclasses.dataclass = counting
import tec
a = tec.placeholder((64,), name="a")
b = tec.compute((64,), lambda i: a[i] + 1.0, name="b")
s = tec.create_schedule(b.op)
tec.build(s, [a, b], "llvm")
print(*written)
"""


def test_a_first_kernel_writes_no_methods_of_classes_at_import() -> None:
    """Python's own decorator takes half a millisecond a class: a fifth of what compiling a first kernel took."""
    done = subprocess.run([sys.executable, "-c", _FIRST_KERNEL], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
