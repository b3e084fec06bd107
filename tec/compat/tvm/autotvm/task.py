"""Templates, tasks and tuners, over tec.tuning."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from math import prod
from types import SimpleNamespace
from typing import Any

from tec.choices.store.database import tuned
from tec.errors import ArgumentError
from tec.target import as_target
from tec.tuning import tune as _tune
from tec.tuning.templates import Holes, Template, TemplateSpace

from ..target import plain
from .space import CURRENT, Config

_TEMPLATES: dict[str, TvmTemplate] = {}
_RECORDS: ContextVar[str | None] = ContextVar("tec_autotvm_records", default=None)


class TvmTemplate(Template):
    """A function that asks `get_config()`, as one of tec's templates. Called with its own arguments it gives the schedule of the best that is known."""

    def __init__(self, name: str, function: Callable[..., Any]):
        super().__init__(function)
        self.name, self.plain = name, function
        self.function = self.with_holes

    def with_holes(self, holes: Holes, *args: Any) -> Any:
        """The schedule that a filling of the holes makes."""
        token = CURRENT.set(Config(holes))
        try:
            return self.plain(*args)
        finally:
            CURRENT.reset(token)

    def __call__(self, *args: Any) -> Any:
        if CURRENT.get() is not None:  # one template calls another
            return self.plain(*args)
        target = as_target(None)
        known = tuned(_RECORDS.get() or True, target, self.version)
        choice = known(self.signature(args), target, target.machine) if known is not None else None
        return self.with_holes(Holes(dict(choice or self.space(args, target).default)), *args)


def template(task_name: str, func: Callable[..., Any] | None = None) -> Any:
    """`@autotvm.template("name")`."""

    def make(f: Callable[..., Any]) -> TvmTemplate:
        made = _TEMPLATES[task_name] = TvmTemplate(task_name, f)
        return made

    return make(func) if func is not None else make


def get_config() -> Config:
    """The configuration of the template that is running. Raises ArgumentError outside of one."""
    found = CURRENT.get()
    if found is None:
        raise ArgumentError(
            "get_config outside of a template", hint='@autotvm.template("name") makes one of a function'
        )
    return found


class ConfigSpace:
    """The configurations of a task by number: a value for each of its knobs, whether a schedule takes them together or not."""

    def __init__(self, space: TemplateSpace):
        self.space_map: dict[str, tuple[Any, ...]] = dict(space.parameters)

    def __len__(self) -> int:
        return prod(len(options) for options in self.space_map.values())

    def get(self, index: int) -> dict[str, Any]:
        """Configuration `index`: the first knob changes fastest. Raises IndexError for one that there is not."""
        if not 0 <= index < len(self):
            raise IndexError(f"configuration {index} of {len(self)}")
        chosen = {}
        for name, options in self.space_map.items():
            index, k = divmod(index, len(options))
            chosen[name] = options[k]
        return chosen

    def __repr__(self) -> str:
        lines = [f"  {name}: {len(options)} values" for name, options in self.space_map.items()]
        return "\n".join([f"ConfigSpace of {len(self)}", *lines])


class Task:
    """A template with arguments, for a target."""

    def __init__(self, name: str, args: Any, target: Any):
        if name not in _TEMPLATES:
            raise ArgumentError(f"no template {name!r}", hint=f"there are {', '.join(_TEMPLATES) or 'none'}")
        self.template, self.name, self.args = _TEMPLATES[name], name, tuple(args)
        self.target = plain(target) or as_target(None)
        self._space = self.template.space(self.args, self.target)
        self.config_space = ConfigSpace(self._space)

    def instantiate(self, config: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The schedule and the parameters of a configuration. Raises ScheduleError where it is not legal."""
        return self._space.make(self._space.check(config))

    def __repr__(self) -> str:
        return f"Task({self.name}, {self.args}, {self.target})"


def create(task_name: str, args: Any, target: Any, target_host: Any = None) -> Task:
    """A task."""
    return Task(task_name, args, target)


class Tuner:
    """A search over one task. Which of TVM's tuners is asked for makes no difference: tec has one search."""

    def __init__(self, task: Task, *options: Any, **more: Any):
        self.task = task
        self.report: Any = None

    def tune(
        self,
        n_trial: int,
        measure_option: Any = None,
        early_stopping: Any = None,
        callbacks: Any = (),
        si_prefix: str = "G",
    ) -> None:
        """Search; the file of `callback.log_to_file` keeps tec's records."""
        files = [c.path for c in callbacks if hasattr(c, "path")]
        target = self.task.target
        self.report = _tune(
            self.task.template, self.task.args, target=target, trials=n_trial, db=files[0] if files else None
        )


@contextlib.contextmanager
def apply_history_best(records: Any) -> Iterator[None]:
    """Templates take what a search found inside of the block: `records` is the file of `callback.log_to_file`."""
    token = _RECORDS.set(None if records is None else str(records))
    try:
        yield
    finally:
        _RECORDS.reset(token)


def log_to_file(path: Any) -> Any:
    """A callback that names the file of records."""
    return SimpleNamespace(path=str(path))


def progress_bar(total: int, prefix: str = "") -> Any:
    """A callback; tec.tune shows its progress itself."""
    return SimpleNamespace()


def nothing(*args: Any, **options: Any) -> Any:
    """What says how trials are built and run; tec.tune runs them in processes of its own."""
    return SimpleNamespace(args=args, **options)
