"""`dataclass`, whose methods are written when they are first used.

Python's own decorator compiles up to eight functions for each class while a module is imported: half a millisecond a class (Zen 4, Python 3.11), a third of what importing
the compiler takes, and a sixth of a language model's start from what is kept on the disk. Most classes of a run are never made, compared or hashed. Here a method stands as a
descriptor that compiles it when somebody asks for it, and puts it in its own place.

It takes the options of `dataclasses.dataclass` that tec uses, and gives classes that `dataclasses.fields`, `replace` and `asdict` know, and that classes of either decorator
may derive from. What a start from the disk imports has no others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, repr=True):
        """See the module. With slots it returns another class, as Python's does."""

        def made(cls):
            return _made(cls, frozen, slots, eq, repr)

        return made if cls is None else made(cls)


def _made(cls: Any, frozen: bool, slots: bool, eq: bool, with_repr: bool) -> Any:
    own = cls.__dict__
    methods: dict[str, Any] = {"__init__": _Later("__init__", _init_source)}
    if with_repr:
        methods["__repr__"] = _repr
    if eq:
        methods["__eq__"] = _Later("__eq__", _eq_source)
        methods["__hash__"] = _Later("__hash__", _hash_source) if frozen else None
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # else Python makes one of the signature, which is not there yet
    has_own_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
    # Python checks that what derives from a frozen class is one: the methods that it makes for that alone are replaced below.
    of_frozen = frozen and any(p.frozen for b in cls.__mro__[1:] if (p := getattr(b, "__dataclass_params__", None)))
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=of_frozen, slots=slots)(cls)
    made.__dataclass_params__.frozen = frozen
    for name, method in methods.items():
        if has_own_hash if name == "__hash__" else name in own:
            continue
        if isinstance(method, _Later):
            method.owner, method.frozen, method.slots = made, frozen, slots
        setattr(made, name, method)
    if frozen:
        names = frozenset(made.__dataclass_fields__)
        made.__setattr__, made.__delattr__ = _refusing(made, names, "assign to"), _refusing(made, names, "delete")
        if slots and "__getstate__" not in own:
            made.__getstate__, made.__setstate__ = _getstate, _setstate
    return made


class _Factory:
    """The default of a parameter whose value is made anew each time."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Later:
    """A method that is compiled when it is first asked for."""

    owner: Any
    frozen: bool
    slots: bool

    def __init__(self, name: str, source: Callable[[_Later, dict[str, Any]], str]):
        self.name, self.source = name, source

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        space: dict[str, Any] = {}
        exec(self.source(self, space), space)
        method = space[self.name]
        method.__qualname__, method.__module__ = f"{self.owner.__qualname__}.{self.name}", self.owner.__module__
        if self.name == "__init__":  # the types that `help` shows
            taken = {f.name: f.type for f in dataclasses.fields(self.owner) if f.init}
            method.__annotations__ = {**taken, "return": None}
        setattr(self.owner, self.name, method)
        return method.__get__(instance, owner)


def _init_source(method: _Later, space: dict[str, Any]) -> str:
    """The text of `__init__`, and in `space` what it names."""
    params: list[str] = []
    named: list[str] = []  # those that are given by name alone
    body: list[str] = []
    space.update(_set=object.__setattr__, _factory=_FACTORY)
    for f in dataclasses.fields(method.owner):
        made = f"_make_{f.name}()"
        if f.default_factory is not MISSING:
            space[f"_make_{f.name}"] = f.default_factory
        elif f.default is not MISSING:
            space[f"_default_{f.name}"] = f.default
        if f.init:
            value, into = f.name, named if f.kw_only else params
            if f.default_factory is not MISSING:
                into.append(f"{f.name}=_factory")
                value = f"{made} if {f.name} is _factory else {f.name}"
            else:
                into.append(f.name if f.default is MISSING else f"{f.name}=_default_{f.name}")
        elif f.default_factory is not MISSING:
            value = made
        elif method.slots and f.default is not MISSING:
            value = f"_default_{f.name}"
        else:
            continue  # `__post_init__` gives it a value, or the class has it
        body.append(f"_set(self, {f.name!r}, {value})" if method.frozen else f"self.{f.name} = {value}")
    if hasattr(method.owner, "__post_init__"):
        body.append("self.__post_init__()")
    taken = ", ".join(["self", *params, *(["*", *named] if named else [])])
    return f"def __init__({taken}):\n  " + "\n  ".join(body or ["pass"])


def _eq_source(method: _Later, space: dict[str, Any]) -> str:
    names = [f.name for f in dataclasses.fields(method.owner) if f.compare]
    return (
        "def __eq__(self, other):\n  if other.__class__ is not self.__class__: return NotImplemented\n"
        f"  return {_tuple('self', names)} == {_tuple('other', names)}"
    )


def _hash_source(method: _Later, space: dict[str, Any]) -> str:
    names = [f.name for f in dataclasses.fields(method.owner) if (f.compare if f.hash is None else f.hash)]
    return f"def __hash__(self):\n  return hash({_tuple('self', names)})"


def _tuple(of: str, names: list[str]) -> str:
    return "(" + "".join(f"{of}.{n}, " for n in names) + ")"


@recursive_repr()
def _repr(self: Any) -> str:
    told = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({told})"


def _refusing(cls: Any, names: frozenset[str], what: str) -> Callable[..., None]:
    """`__setattr__` or `__delattr__` of a frozen class."""

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {what} field {name!r}")
        (super(cls, self).__setattr__ if value else super(cls, self).__delattr__)(name, *value)

    return refuse


def _getstate(self: Any) -> list[Any]:
    """What is pickled of a frozen class with slots, whose attributes cannot be set one by one."""
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state):
        object.__setattr__(self, f.name, value)
