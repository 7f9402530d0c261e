"""Anthropic's web search on providers that search by themselves: the wish going there, what was found coming back.

Clients count the searches and list what they found by Anthropic's blocks. Providers tell of a search by its citations
alone, most of them at the very end; so the blocks stand behind the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.canonical.content import ServerBlock, Text
from bridge.canonical.events import CitationDelta, MessageEnd, WholeBlock
from bridge.canonical.request import ServerTool, WebSearch
from bridge.canonical.searches import search_use

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from bridge.canonical.content import Citation
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.request import Request

MAX_QUERY_CHARACTERS = 400
_TYPE = "web_search_"


def with_native_search(request: Request) -> Request:
    """The request with its web search tool as a wish to the provider; a choice of that tool is the wish itself."""
    tool = next((tool for tool in request.tools if _is_search(tool)), None)
    if not isinstance(tool, ServerTool):
        return request
    choice, others = request.tool_choice, tuple(other for other in request.tools if not _is_search(other))
    if choice is not None and choice.mode == "none":
        return replace(request, tools=others)
    is_demanded = choice is not None and (choice.name == tool.name or (choice.mode == "any" and not others))
    return replace(
        request,
        tools=others,
        tool_choice=None if is_demanded else choice,
        web_search=_wish(tool.options),
        unread=(*request.unread, *(["tool_choice of web_search"] if is_demanded else [])),
    )


def searched_for(request: Request) -> str:
    """What a provider that does not tell its queries will have searched for: the newest words of the user."""
    for turn in reversed(request.turns):
        texts = [block.text for block in turn.content if isinstance(block, Text)] if turn.role == "user" else []
        if texts:
            return texts[-1].strip()[:MAX_QUERY_CHARACTERS]
    return ""


@dataclass(slots=True)
class ShownSearches:
    """Adds to an answer what Anthropic would have shown of its searches."""

    query: str
    _searches: list[str] = field(default_factory=list)
    _found: dict[str, Citation] = field(default_factory=dict)

    def show(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        shown: list[StreamEvent] = []
        for event in events:
            match event:
                case CitationDelta(citation):
                    self._found.setdefault(citation.url, citation)
                case WholeBlock(ServerBlock("server_tool_use", raw)):
                    self._searches.append(str(raw.get("id")))
                case MessageEnd(usage=usage) if self._found or self._searches:
                    shown += self._blocks()
                    event = replace(event, usage=replace(usage, web_searches=max(len(self._searches), 1)))
            shown.append(event)
        return shown

    async def shown(self, batches: AsyncIterator[list[StreamEvent]]) -> AsyncIterator[list[StreamEvent]]:
        async for batch in batches:
            yield self.show(batch)

    def _blocks(self) -> list[StreamEvent]:
        blocks: list[StreamEvent] = []
        if not self._searches:
            use = search_use(self.query, self.query)
            self._searches.append(str(use.raw["id"]))
            blocks.append(WholeBlock(use))
        results: list[JsonValue] = [_result(citation) for citation in self._found.values()]
        for search in self._searches:
            content = results if search == self._searches[-1] else []
            raw: JsonObject = {"type": "web_search_tool_result", "tool_use_id": search, "content": content}
            blocks.append(WholeBlock(ServerBlock("web_search_tool_result", raw)))
        return blocks


def _is_search(tool: object) -> bool:
    return isinstance(tool, ServerTool) and tool.type.startswith(_TYPE)


def _wish(options: JsonObject) -> WebSearch:
    uses, location, size = (options.get(name) for name in ("max_uses", "user_location", "search_context_size"))
    engine, results = options.get("engine"), options.get("max_results")
    return WebSearch(
        max_uses=uses if isinstance(uses, int) else None,
        allowed_domains=_names(options.get("allowed_domains")),
        blocked_domains=_names(options.get("blocked_domains")),
        user_location=location if isinstance(location, dict) else None,
        context_size=size if isinstance(size, str) else None,
        engine=engine if isinstance(engine, str) else None,
        max_results=results if isinstance(results, int) else None,
    )


def _names(value: JsonValue) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def _result(citation: Citation) -> JsonObject:
    return {
        "type": "web_search_result",
        "url": citation.url,
        "title": citation.title or citation.url,
        "encrypted_content": "",
        "page_age": None,
    }
