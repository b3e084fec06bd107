"""Traces by OpenTelemetry, where its interface (opentelemetry-api) is installed: a span for each inference.

What is exported, and where to, is the program's: OTEL_EXPORTER_OTLP_ENDPOINT and `opentelemetry-instrument`, or a provider that was set. A request's `traceparent`
is its parent. Without the package there are no spans, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import propagate, trace
except ImportError:  # not installed
    trace = propagate = None  # type: ignore[assignment]

Told = Callable[[str, Any], None]


def _nobody(name: str, value: Any) -> None:
    pass


@contextmanager
def span(
    what: str, model: str, version: str, over: str = "", headers: Mapping[str, Any] | None = None
) -> Iterator[Told]:
    """A span around a block; what it yields sets further attributes. headers: of the request, whose trace it belongs to."""
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # nobody exports
        yield _nobody
        return
    context = propagate.extract(headers) if headers else None
    attributes = {"tec.model": model, "tec.version": version, **({"tec.protocol": over} if over else {})}
    with trace.get_tracer("tec.serve").start_as_current_span(f"tec.{what}", context, attributes=attributes) as s:
        yield lambda name, value: s.set_attribute(f"tec.{name}", value)
