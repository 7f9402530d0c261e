"""Work for a client ends when the client leaves, however the server tells, and only then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from handler.app import _ClientWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

pytestmark = pytest.mark.req("C12")


async def never() -> dict[str, Any]:
    return await asyncio.Event().wait()  # type: ignore[func-returns-value]


def watch(on_client_gone: Callable[[Callable[[], None] | None], None] | None, receive: Any = never) -> _ClientWatch:
    request: Any = SimpleNamespace(on_client_gone=on_client_gone)
    return _ClientWatch(request, receive)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 5))


def pending() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def test_a_client_that_left_before_the_work_began_ends_it() -> None:
    async def test() -> None:
        with watch(lambda callback: callback() if callback else None) as watched:
            await asyncio.sleep(4)
            pytest.fail("the work went on")
        assert (watched.has_left, pending()) == (True, 0)

    run(test())


def test_a_client_that_leaves_ends_the_work() -> None:
    async def test() -> None:
        told: list[Callable[[], None] | None] = []
        with watch(told.append) as watched:
            assert told[0] is not None
            asyncio.get_running_loop().call_soon(told[0])
            await asyncio.sleep(4)
            pytest.fail("the work went on")
        assert (watched.has_left, pending(), told[-1]) == (True, 0, None)

    run(test())


def test_a_server_that_only_speaks_asgi_is_asked_by_a_task() -> None:
    async def leave() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def test() -> None:
        with watch(None, leave) as watched:
            await asyncio.sleep(4)
            pytest.fail("the work went on")
        assert (watched.has_left, pending()) == (True, 0)

    run(test())


def test_a_write_that_finds_the_client_gone_takes_no_cancellation_of_others() -> None:
    async def work(told: list[Any]) -> None:
        with watch(told.append) as watched:
            told[0]()  # by this task itself, as its own write does
            assert watched.has_left
            await asyncio.sleep(4)

    async def test() -> None:
        task = asyncio.create_task(work([]))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test())


def test_work_that_ends_by_itself_is_left_alone() -> None:
    async def test() -> None:
        before = asyncio.all_tasks()
        with watch(None) as watched:
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == len(before) + 1
        await asyncio.sleep(0)
        assert (watched.has_left, pending(), asyncio.all_tasks()) == (False, 0, before)

    run(test())
