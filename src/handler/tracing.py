"""X-Ray subsegments around what a request waits for: provider, store, tools. Through Powertools, on Lambda.

Switched off, nothing here is built or imported. Spans lie side by side under the invocation and are closed by
reference: X-Ray's own notion of "the current one" belongs to a thread, while saves overlap the stream and tools each
other.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridge.errors import BridgeError
from bridge.toolloop.tools import ServerCall
from handler.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bridge.canonical.json import JsonObject
    from bridge.ports import ConversationStore, Upstream, UpstreamCall, UpstreamReply
    from bridge.state.records import Found, Liveness, Origin, Recent, ToolRecord
    from bridge.toolloop.tools import BridgeTool, ToolOutput


class Tracing:
    """Opens and closes spans."""

    def __init__(self, service: str) -> None:
        from aws_lambda_powertools import Tracer

        try:
            self._recorder: Any = Tracer(service=service, auto_patch=False).provider
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"TRACING needs the library {error.name}, which is not installed: build with "
                "`make build WITH_TRACING=1`, or switch it off"
            ) from None

    @contextmanager
    def span(self, name: str, *, remote: bool = False) -> Iterator[dict[str, str | int]]:
        """One subsegment; what is put into the mapping becomes its annotations. Errors are told by kind alone."""
        said: dict[str, str | int] = {}
        subsegment = self._recorder.begin_subsegment(name, "remote" if remote else "local")
        if subsegment is None:  # not sampled, or no invocation is under way
            yield said
            return
        self._recorder.set_trace_entity(subsegment.parent_segment)
        try:
            yield said
        except BridgeError as error:
            said["error_kind"] = error.kind.name
            subsegment.add_fault_flag()
            raise
        except BaseException:
            subsegment.add_fault_flag()
            raise
        finally:
            for key, value in said.items():
                subsegment.put_annotation(key, value)
            self._recorder.set_trace_entity(subsegment)
            self._recorder.end_subsegment()

    def tool(self, tool: BridgeTool) -> BridgeTool:
        """A tool that the bridge runs, with a span for each run."""
        name = tool.shape.name if isinstance(tool.shape, ServerCall) else "mcp"

        async def run(arguments: JsonObject) -> ToolOutput:
            with self.span(f"tool {name}") as said:
                output = await tool.run(arguments)
                said["is_error"] = int(output.is_error)
                return output

        return replace(tool, run=run)


class TracedUpstream:
    """Providers, with a span from the call until the answer begins."""

    def __init__(self, upstream: Upstream, tracing: Tracing) -> None:
        self._upstream = upstream
        self._tracing = tracing

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        with self._tracing.span(f"upstream {call.provider}", remote=True) as said:
            reply = await self._upstream.send(call)
            said["status"] = reply.status
            return reply

    async def aclose(self) -> None:
        await self._upstream.aclose()


class TracedStore:
    """The conversation store, with a span for each operation."""

    def __init__(self, store: ConversationStore, tracing: Tracing) -> None:
        self._store = store
        self._tracing = tracing

    async def check(self) -> str:
        return await self._store.check()

    async def save(
        self,
        partition: str,
        records: Sequence[ToolRecord],
        known: Liveness | None = None,
        origin: Origin | None = None,
    ) -> int:
        with self._tracing.span("store save") as said:
            said["records"] = len(records)
            return await self._store.save(partition, records, known, origin)

    async def load(self, wanted: Mapping[str, Sequence[str]]) -> Found:
        with self._tracing.span("store load") as said:
            said["records"] = sum(len(ids) for ids in wanted.values())
            return await self._store.load(wanted)

    async def forget(self, partition: str, tool_id: str) -> bool:
        with self._tracing.span("store forget"):
            return await self._store.forget(partition, tool_id)

    async def terminate(self, partition: str) -> int:
        with self._tracing.span("store terminate"):
            return await self._store.terminate(partition)

    async def recent(self, owner: str, limit: int) -> Recent:
        with self._tracing.span("store recent"):
            return await self._store.recent(owner, limit)

    async def aclose(self) -> None:
        await self._store.aclose()
