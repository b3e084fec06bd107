"""A server of language models with OpenAI's API: `tec serve model.gguf --port 8000`.

    requests (JSON) -> wanted (checked) -> engine (slots, batching, sampling: one thread) -> events -> answers (JSON, or server-sent events)

`Engine` is what a server needs of a model; `SlotEngine` serves what gives logits. `application` makes an ASGI application of an engine.
"""

from .engine import Done, Engine, Event, Refused, Request, Token
from .slots import Model, Slot, SlotEngine

__all__ = ["Done", "Engine", "Event", "Model", "Refused", "Request", "Slot", "SlotEngine", "Token"]
