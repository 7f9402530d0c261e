"""Sampling, limits, reasoning and output format -> chat parameters, by what the model takes."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.canonical.effort import is_wanted, level_of, nearest_effort
from bridge.errors import invalid_request
from bridge.schemas.said import said_schema
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.losses import Losses
    from bridge.canonical.request import Reasoning, Request, WebSearch
    from bridge.traits import Traits

MAX_USER_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class ParameterRenderer:
    """Renders the parameters of one request."""

    traits: Traits
    losses: Losses

    def render(self, request: Request, *, has_tools: bool) -> JsonObject:
        body: JsonObject = {}
        self._limits(request, body)
        self._sampling(request, body)
        self._reasoning(request, body, has_tools)
        self._format(request, body)
        self._search(request.web_search, body)
        self._identity(request, body)
        if request.extras or request.unread:
            self._extras(request, body)
        return body

    def _extras(self, request: Request, body: JsonObject) -> None:
        """Fields beyond the Messages API: those that the upstream knows go on, the others are losses."""
        known = {self.traits.cache_key_field} | ({"cache_control"} if self.traits.cache_control else set())
        for name in (*request.extras, *request.unread):
            if name in known and name in request.extras:
                body[name] = request.extras[name]
            else:
                self.losses.add(f"{name}: this upstream has nothing like it")

    def _limits(self, request: Request, body: JsonObject) -> None:
        most, wanted = self.traits.max_output_tokens, request.max_tokens
        if wanted is not None:
            if most is not None and wanted > most:
                self.losses.add(f"max_tokens: {wanted} lowered to {most}, the most this model takes")
                wanted = most
            body[self.traits.max_tokens_field] = wanted
        stops = list(request.stop_sequences)
        if len(stops) > self.traits.stop_limit:
            self.losses.add(f"stop_sequences: only the first {self.traits.stop_limit} of {len(stops)}")
            stops = stops[: self.traits.stop_limit]
        if stops:
            self._set("stop", list(stops), body, "stop_sequences")

    def _sampling(self, request: Request, body: JsonObject) -> None:
        for name, value in (
            ("temperature", request.temperature),
            ("top_p", request.top_p),
            ("top_k", request.top_k),
        ):
            if value is not None:
                self._set(name, value, body, name)

    def _set(self, name: str, value: JsonValue, body: JsonObject, told_as: str) -> None:
        if name in self.traits.unsupported:
            self.losses.add(f"{told_as}: this model does not take it")
        else:
            body[name] = value

    def _reasoning(self, request: Request, body: JsonObject, has_tools: bool) -> None:
        reasoning = request.reasoning
        match self.traits.reasoning:
            case "openrouter":
                if said := _openrouter_reasoning(reasoning):
                    body["reasoning"] = said
            case "deepseek":
                self._deepseek(request, body)
            case "effort" | "gemini":
                self._effort(reasoning, body, has_tools)
            case "none":
                if is_wanted(reasoning):
                    self.losses.add("thinking: this model does not reason on request")

    def _effort(self, reasoning: Reasoning, body: JsonObject, has_tools: bool) -> None:
        level = level_of(reasoning)
        if has_tools and self.traits.tools_with_reasoning == "never":
            raise invalid_request(
                "tools: OpenAI serves this model with tools only on its Responses API; choose another model"
            )
        if has_tools and self.traits.tools_with_reasoning == "none_only":
            if is_wanted(reasoning):
                self.losses.add("thinking: OpenAI refuses reasoning together with tools on chat completions")
            body["reasoning_effort"] = "none"
        elif level == "none":
            if self.traits.effort_off:
                body["reasoning_effort"] = self.traits.effort_off
            else:
                self.losses.add("thinking: this model cannot be kept from reasoning")
        elif level is not None:
            body["reasoning_effort"] = self._nearest(level)

    def _nearest(self, level: str) -> str:
        nearest = nearest_effort(level, self.traits.efforts)
        if nearest != level:
            self.losses.add(f"effort: {level} becomes {nearest}, the nearest this model takes")
        return nearest

    def _deepseek(self, request: Request, body: JsonObject) -> None:
        level = level_of(request.reasoning)
        choice = request.tool_choice
        if choice is not None and choice.mode in ("any", "tool"):
            if level not in (None, "none"):
                self.losses.add("thinking: DeepSeek refuses it together with a forced tool")
            body["thinking"] = {"type": "disabled"}
        elif level == "none":
            body["thinking"] = {"type": "disabled"}
        elif level is not None:
            body |= {"thinking": {"type": "enabled"}, "reasoning_effort": self._nearest(level)}

    def _format(self, request: Request, body: JsonObject) -> None:
        if request.output_format is None:
            return
        wanted = request.output_format
        if wanted.schema is None:
            body["response_format"] = {"type": "json_object"}
            return
        schema, strict = said_schema(wanted.schema, self.traits, self.losses, wants_strict=True)
        json_schema: JsonObject = {"name": wanted.name or "output", "schema": schema}
        if strict:
            json_schema["strict"] = True
        body["response_format"] = {"type": "json_schema", "json_schema": json_schema}

    def _search(self, wish: WebSearch | None, body: JsonObject) -> None:
        """The provider's own search; what it cannot be told about it is a loss."""
        if wish is None:
            return
        if wish.max_uses is not None:
            self.losses.add("max_uses: this upstream decides how often it searches")
        options: JsonObject = {
            "search_context_size": wish.context_size,
            "user_location": _approximate(wish.user_location),
        }
        if self.traits.web_search == "plugin":
            domains = {"include_domains": wish.allowed_domains, "exclude_domains": wish.blocked_domains}
            plugin: JsonObject = {"id": "web", **{name: list(given) for name, given in domains.items() if given}}
            tuned = {"engine": wish.engine, "max_results": wish.max_results}
            body["plugins"] = [plugin | {name: value for name, value in tuned.items() if value is not None}]
        elif wish.allowed_domains or wish.blocked_domains:
            self.losses.add("allowed_domains, blocked_domains: this upstream searches everywhere")
        said: JsonObject = {name: value for name, value in options.items() if value}
        if said or self.traits.web_search == "options":
            body["web_search_options"] = said

    def _identity(self, request: Request, body: JsonObject) -> None:
        if request.user_id and "user" not in self.traits.unsupported:
            body["user"] = _bounded_user(request.user_id)
        if request.service_tier is None:
            return
        if self.traits.service_tier:
            body["service_tier"] = "default" if request.service_tier == "standard_only" else request.service_tier
        elif request.service_tier != "auto":
            self.losses.add("service_tier: this upstream has none")


def _approximate(location: JsonObject | None) -> JsonObject | None:
    """Where the user is, as chat completions want it: one level deeper than Anthropic says it."""
    if not location:
        return None
    return {"type": "approximate", "approximate": {name: v for name, v in location.items() if name != "type" and v}}


def _bounded_user(user_id: str) -> str:
    """Clients put whole JSON objects here: what is too long becomes a digest, the same for the same user."""
    return user_id if len(user_id) <= MAX_USER_CHARACTERS else sha256(user_id.encode()).hexdigest()


def _openrouter_reasoning(reasoning: Reasoning) -> JsonObject:
    said: JsonObject = {}
    if reasoning.enabled is False:
        said["enabled"] = False
    elif reasoning.budget_tokens is not None:
        said["max_tokens"] = reasoning.budget_tokens
    elif reasoning.effort is not None:
        said["effort"] = reasoning.effort
    elif reasoning.enabled:
        said["enabled"] = True
    if reasoning.exclude:
        said["exclude"] = True
    return said
