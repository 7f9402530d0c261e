"""Answers that write themselves: a provider's stream, translated for the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.events import MessageEnd, StreamFailed
from bridge.deadline import until
from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import Answer
from bridge.protocols import registry
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from bridge.canonical.events import StreamEvent
    from bridge.exchange import ClientCall, StreamBody, Write
    from bridge.ports import StreamEncoder
    from bridge.state.keeper import AnswerKeeper

EVENT_STREAM = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Translation:
    """A provider's stream on its way to becoming a client's."""

    batches: AsyncIterator[list[StreamEvent]]
    """Never empty ones."""
    close: Callable[[], Awaitable[None]]
    encoder: StreamEncoder
    keeper: AnswerKeeper

    async def first_batch(self) -> list[StreamEvent]:
        """What the stream says first; raises what it says if that is an error."""
        batch = await anext(self.batches)
        if isinstance(batch[0], StreamFailed):
            raise batch[0].error
        return batch

    def say(self, batch: list[StreamEvent], write: Write) -> Awaitable[None]:
        """Write a batch; the end of the message waits until its tool calls are stored."""
        if len(batch) == 1 and batch[0].__class__ in self.keeper.unwatched:  # as nearly every one
            return write(self.encoder.encode(batch))
        batch = self.keeper.observe(batch)
        if batch[-1].__class__ is not MessageEnd:
            return write(self.encoder.encode(batch))
        return self._say_end(batch, write)

    async def _say_end(self, batch: list[StreamEvent], write: Write) -> None:
        if len(batch) > 1:
            await write(self.encoder.encode(batch[:-1]))
        await self.keeper.settle()
        await write(self.encoder.encode(batch[-1:]))


async def streamed(call: ClientCall, translation: Translation, headers: Callable[[], Mapping[str, str]]) -> Answer:
    """Wait for the first events, so that an early failure still has a status of its own, then stream."""
    try:
        first = await translation.first_batch()
    except BaseException:
        await translation.close()
        raise
    body = _stream_body(call, translation, first)
    return Answer(200, {"content-type": EVENT_STREAM, **headers()}, body, registry.heartbeat(call.protocol))


def _stream_body(call: ClientCall, translation: Translation, first: list[StreamEvent]) -> StreamBody:
    encode = translation.encoder.encode

    async def write_all(write: Write) -> None:
        try:
            async with until(call.deadline):
                batch = first
                await translation.say(batch, write)
                while not isinstance(batch[-1], StreamFailed):
                    batch = await anext(translation.batches)
                    await translation.say(batch, write)
                call.record.fail(batch[-1].error)
        except StopAsyncIteration:
            pass
        except BridgeError as error:
            call.record.fail(error)
            await write(encode([StreamFailed(error)]))
        except Exception:
            await write(encode([StreamFailed(BridgeError(ErrorKind.API, "the bridge failed in this stream"))]))
            raise
        finally:
            await translation.close()
            await translation.keeper.give_up()

    return write_all
