"""Grammars over bytes as machines whose states are made when a text first comes to them.

A grammar is a list of rules, a rule a list of alternatives, and an alternative a sequence of byte sets and numbers of rules. A state is a set of stacks: what may still
come, one rule within another. Equal states are one object, so a text that goes round, such as a string, makes no new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import ArgumentError

Bytes = frozenset[int]
# A byte of a set, or a rule by its number.
Item = Bytes | int
# Of an alternative that is under way: its rule, its number, how many of its items are there.
Frame = tuple[int, int, int]
# The innermost last.
Stack = tuple[Frame, ...]

MOST_STATES = 1 << 15  # kept at once: some 30 MB; a machine that has more begins anew
MOST_STACKS = 1 << 10  # of one state: a grammar beyond it would take seconds a token


def literal(text: str | bytes) -> list[Item]:
    """The bytes of a text, one after the other."""
    return [frozenset((b,)) for b in (text.encode() if isinstance(text, str) else text)]


def one_of(values: Iterable[int]) -> Bytes:
    return frozenset(values)


class Grammar:
    """Rules, which are added one by one. Rule 0 is the whole."""

    def __init__(self) -> None:
        self.rules: list[list[list[Item]]] = []

    def rule(self, *alternatives: Sequence[Item]) -> int:
        """A new rule. Its number."""
        self.rules.append([list(a) for a in alternatives])
        return len(self.rules) - 1

    def repeated(self, item: Item, least: int = 0, most: int | None = None) -> int:
        """A rule of so many items. most: None for any number."""
        if most is None:
            more = self.rule()
            self.rules[more] = [[item, more], []]
        else:
            more = self.rule([])
            for _ in range(most - least):
                more = self.rule([item, more], [])
        return self.rule([*[item] * least, more])


class State:
    """A place in a grammar. ends: whether a text may end here. `next`: by byte."""

    __slots__ = ("ends", "next", "stacks")

    def __init__(self, stacks: frozenset[Stack]):
        self.stacks = stacks
        self.ends = () in stacks
        self.next: dict[int, State | None] = {}

    @property
    def is_last(self) -> bool:
        """Whether nothing may follow."""
        return self.stacks == {()}


class Machine:
    """The states of a grammar. Raises ArgumentError where one is too large."""

    def __init__(self, grammar: Grammar, start: int = 0):
        self._rules = grammar.rules
        self._states: dict[frozenset[Stack], State] = {}
        found: set[Stack] = set()
        for k in range(len(self._rules[start])):
            self._open((), (start, k, 0), found)
        self.start = self._state(found)

    def after(self, state: State, byte: int) -> State | None:
        """The state behind a byte; None where it does not fit."""
        if byte not in state.next:
            found: set[Stack] = set()
            for stack in state.stacks:
                if stack:
                    rule, k, at = stack[-1]
                    item = self._rules[rule][k][at]
                    if isinstance(item, frozenset) and byte in item:
                        self._open(stack[:-1], (rule, k, at + 1), found)
            state.next[byte] = self._state(found) if found else None
        return state.next[byte]

    def read(self, state: State, text: bytes) -> State | None:
        """The state behind some bytes; None where they do not fit."""
        found: State | None = state
        for byte in text:
            found = self.after(found, byte) if found is not None else None
        return found

    def _state(self, stacks: Iterable[Stack]) -> State:
        key = frozenset(stacks)
        if len(key) > MOST_STACKS:
            raise ArgumentError("the form of the answer has too many ways to go on", hint="a simpler schema")
        if key not in self._states:
            if len(self._states) >= MOST_STATES:
                self._states.clear()
            self._states[key] = State(key)
        return self._states[key]

    def _open(self, below: Stack, frame: Frame, found: set[Stack]) -> None:
        """Add the stacks whose next item is a byte: rules that stand there are entered, those that are over are left."""
        work, seen = [(below, frame)], set()
        while work:
            if work[-1] in seen:  # what may be empty within what repeats it
                work.pop()
                continue
            seen.add(work[-1])
            below, (rule, k, at) = work.pop()
            items = self._rules[rule][k]
            if at == len(items):
                if below:
                    work.append((below[:-1], below[-1]))
                else:
                    found.add(())
                continue
            item = items[at]
            if isinstance(item, frozenset):
                found.add((*below, (rule, k, at)))
                continue
            # Of a rule that stands last nothing is left to come back to.
            rest = below if at + 1 == len(items) else (*below, (rule, k, at + 1))
            work += [(rest, (item, n, 0)) for n in range(len(self._rules[item]))]
