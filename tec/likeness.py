"""Names that are like another, for messages about one that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NEAR = 0.75  # how like a name must be to be asked about: below it are chance likenesses (to_device and device)


def near(name: str, names: Iterable[str], count: int = 1) -> list[str]:
    """Those of `names` that are most like a name, the likest first; private ones are nobody's."""
    import difflib  # for messages alone

    return difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], count, NEAR)


def meant(name: str, names: Iterable[str], prefix: str = "") -> str | None:
    """The question that ends a message about a name that is not there; None where none of `names` is like it."""
    close = near(name, names)
    return f"is {prefix}{close[0]} meant?" if close else None


def by_name(here: Mapping[str, str]) -> dict[str, str]:
    """What things are called here, by each name that they have elsewhere. here: those names, with spaces between them, by ours."""
    return {theirs: ours for ours, names in here.items() for theirs in names.split()}
