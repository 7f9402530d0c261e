"""Limits, sampling, output format and identity -> parameters, by what the model takes."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.canonical.json import dumps
from bridge.schemas.anthropic import adapt_enforced
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.losses import Losses
    from bridge.canonical.request import OutputFormat, Request
    from bridge.protocols.anthropic.claude import Claude

MAX_USER_CHARACTERS = 256
STREAMED_TOKENS = 32_000
WHOLE_TOKENS = 16_000
MIN_TOP_P_WITH_THINKING = 0.95
_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
_KNOWN_EXTRAS = frozenset({"context_management", "container", "inference_geo", "speed"})
_ONE_OBJECT = "Answer with one JSON object and nothing else: no text around it, no code fence."


@dataclass(frozen=True, slots=True)
class ParameterRenderer:
    """Renders the parameters of one request."""

    claude: Claude
    losses: Losses

    def max_tokens(self, request: Request) -> int:
        """Anthropic wants a limit: where the client gives none, one that the way of answering can bear."""
        most, wanted = self.claude.max_output_tokens, request.max_tokens
        if wanted is None:
            return min(most, STREAMED_TOKENS if request.stream else WHOLE_TOKENS)
        if wanted > most:
            self.losses.add(f"max_tokens: {wanted} lowered to {most}, the most this model takes")
        return min(wanted, most)

    def render(self, request: Request, *, thinks: bool) -> JsonObject:
        body = self._sampling(request, thinks=thinks)
        stops = [stop for stop in request.stop_sequences if stop.strip()]
        if len(stops) < len(request.stop_sequences):
            self.losses.add("stop_sequences: Anthropic takes none that is only white space")
        if stops:
            body["stop_sequences"] = list(stops)
        if request.user_id:
            body["metadata"] = {"user_id": _bounded_user(request.user_id)}
        if request.service_tier is not None:
            if request.service_tier in _TIERS:
                body["service_tier"] = _TIERS[request.service_tier]
            else:
                self.losses.add(f"service_tier: Anthropic has nothing like {request.service_tier[:40]!r}")
        return body | self._extras(request)

    def format(self, wanted: OutputFormat | None) -> tuple[JsonObject, str | None]:
        """The output format to enforce, and the words that ask for what cannot be enforced."""
        if wanted is None:
            return {}, None
        if wanted.schema is None:
            self.losses.add("response_format: json_object is asked for in words")
            return {}, _ONE_OBJECT
        schema, changes = adapt_enforced(wanted.schema) if self.claude.enforces_schemas else (None, ())
        for change in changes:
            self.losses.add(f"response_format: {change}")
        if schema is None:
            self.losses.add("response_format: the schema is asked for in words, not enforced")
            return {}, f"{_ONE_OBJECT} It has to follow this JSON schema: {dumps(wanted.schema).decode()}"
        return {"format": {"type": "json_schema", "schema": schema}}, None

    def _sampling(self, request: Request, *, thinks: bool) -> JsonObject:
        body: JsonObject = {}
        if request.temperature is not None:
            self._temperature(request.temperature, body, thinks=thinks)
        if request.top_p is not None:
            self._top_p(request.top_p, body, thinks=thinks)
        if request.top_k is not None:
            if self.claude.sampling == "none" or thinks:
                self._refused("top_k", thinks=thinks)
            else:
                body["top_k"] = request.top_k
        return body

    def _temperature(self, temperature: float, body: JsonObject, *, thinks: bool) -> None:
        if self.claude.sampling == "none" or thinks:
            if temperature != 1:
                self._refused("temperature", thinks=thinks)
            return
        if not 0 <= temperature <= 1:
            self.losses.add("temperature: Claude's goes from 0 to 1")
        body["temperature"] = min(max(temperature, 0), 1)

    def _top_p(self, top_p: float, body: JsonObject, *, thinks: bool) -> None:
        if self.claude.sampling == "none" or (thinks and top_p < MIN_TOP_P_WITH_THINKING):
            if top_p != 1:
                self._refused("top_p", thinks=thinks)
        elif self.claude.sampling == "one" and "temperature" in body:
            if top_p != 1:
                self.losses.add("top_p: this model takes temperature or top_p, not both")
        else:
            body["top_p"] = top_p

    def _refused(self, name: str, *, thinks: bool) -> None:
        always = self.claude.sampling == "none" or not thinks
        self.losses.add(f"{name}: this model does not take it" if always else f"{name}: not taken while Claude thinks")

    def _extras(self, request: Request) -> JsonObject:
        for name in (*request.extras, *request.unread):
            if name not in _KNOWN_EXTRAS or name not in request.extras:
                self.losses.add(f"{name}: this upstream has nothing like it")
        return {name: value for name, value in request.extras.items() if name in _KNOWN_EXTRAS}


def _bounded_user(user_id: str) -> str:
    """What is too long becomes a digest, the same for the same user."""
    return user_id if len(user_id) <= MAX_USER_CHARACTERS else sha256(user_id.encode()).hexdigest()
