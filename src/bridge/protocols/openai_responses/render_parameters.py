"""Sampling, limits, reasoning and output format -> parameters of a response, by what the model takes."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.canonical.effort import is_wanted, level_of, nearest_effort
from bridge.canonical.renaming import short_name
from bridge.schemas.said import said_schema
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.losses import Losses
    from bridge.canonical.request import OutputFormat, Reasoning, Request
    from bridge.traits import Traits

MIN_OUTPUT_TOKENS = 16
MAX_USER_CHARACTERS = 64
CACHE_KEY = "prompt_cache_key"
_LEGAL_FORMAT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ParameterRenderer:
    """Renders the parameters of one request."""

    traits: Traits
    losses: Losses

    def render(self, request: Request) -> JsonObject:
        body: JsonObject = {"store": False}
        self._limits(request, body)
        self._sampling(request, body)
        self._reasoning(request.reasoning, body)
        if request.output_format is not None:
            body["text"] = {"format": self._format(request.output_format)}
        self._identity(request, body)
        self._extras(request, body)
        return body

    def _limits(self, request: Request, body: JsonObject) -> None:
        wanted, most = request.max_tokens, self.traits.max_output_tokens
        if request.stop_sequences:
            self.losses.add("stop_sequences: this upstream has nothing like it")
        if wanted is None:
            return
        if most is not None and wanted > most:
            self.losses.add(f"max_tokens: {wanted} lowered to {most}, the most this model takes")
            wanted = most
        elif wanted < MIN_OUTPUT_TOKENS:
            self.losses.add(f"max_tokens: {wanted} raised to {MIN_OUTPUT_TOKENS}, the least this upstream takes")
            wanted = MIN_OUTPUT_TOKENS
        body["max_output_tokens"] = wanted

    def _sampling(self, request: Request, body: JsonObject) -> None:
        if request.top_k is not None:
            self.losses.add("top_k: this upstream has nothing like it")
        for name, value in (("temperature", request.temperature), ("top_p", request.top_p)):
            if value is None:
                continue
            if name in self.traits.unsupported:
                self.losses.add(f"{name}: this model does not take it")
            else:
                body[name] = value

    def _reasoning(self, reasoning: Reasoning, body: JsonObject) -> None:
        if self.traits.reasoning == "none":
            if is_wanted(reasoning):
                self.losses.add("thinking: this model does not reason on request")
            return
        said: JsonObject = {}
        if effort := self._effort(reasoning):
            said["effort"] = effort
        if is_wanted(reasoning) and not reasoning.exclude:
            said["summary"] = "auto"
        if said:
            body["reasoning"] = said
        if self.traits.reasoning == "effort":  # nothing is stored there, so its reasoning has to come back with calls
            body["include"] = ["reasoning.encrypted_content"]

    def _effort(self, reasoning: Reasoning) -> str | None:
        level = level_of(reasoning)
        if level == "none":
            if not self.traits.effort_off:
                self.losses.add("thinking: this model cannot be kept from reasoning")
            return self.traits.effort_off
        if level is None:
            return None
        nearest = nearest_effort(level, self.traits.efforts)
        if nearest != level:
            self.losses.add(f"effort: {level} becomes {nearest}, the nearest this model takes")
        return nearest

    def _format(self, wanted: OutputFormat) -> JsonObject:
        if wanted.schema is None:
            return {"type": "json_object"}
        schema, strict = said_schema(wanted.schema, self.traits, self.losses, wants_strict=True)
        name = wanted.name or "output"
        if not _LEGAL_FORMAT_NAME.fullmatch(name):
            name = short_name(name)
        return {"type": "json_schema", "name": name, "schema": schema, "strict": strict}

    def _identity(self, request: Request, body: JsonObject) -> None:
        if request.user_id and "user" not in self.traits.unsupported:
            body["safety_identifier"] = _bounded(request.user_id)
        if request.service_tier is None:
            return
        if self.traits.service_tier:
            body["service_tier"] = "default" if request.service_tier == "standard_only" else request.service_tier
        elif request.service_tier != "auto":
            self.losses.add("service_tier: this upstream has none")

    def _extras(self, request: Request, body: JsonObject) -> None:
        for name in (*request.extras, *request.unread):
            if name == CACHE_KEY and name in request.extras:
                body[name] = request.extras[name]
            else:
                self.losses.add(f"{name}: this upstream has nothing like it")


def _bounded(user_id: str) -> str:
    """Clients put whole JSON objects here: what is too long becomes a digest, the same for the same user."""
    return user_id if len(user_id) <= MAX_USER_CHARACTERS else sha256(user_id.encode()).hexdigest()
