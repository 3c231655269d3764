"""Test admission limits: body size, deadlines, concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from recto.server.limits import MAX_BODY, AdmissionLimits, Refused, check_length


def arriving(messages: Sequence[Message]) -> Receive:
    """Return a `receive` that gives the messages in order, and then waits."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_is_read_whole_and_replayed() -> None:
    async def main() -> list[Message]:
        receive = await AdmissionLimits().read_body(
            arriving([part(b"ab", more=True), part(b"", more=True), part(b"c"), {"type": "http.disconnect"}])
        )
        return [await receive(), await receive()]

    assert asyncio.run(main()) == [part(b"abc"), {"type": "http.disconnect"}]


@pytest.mark.parametrize(
    ("messages", "status", "reason"),
    [
        ([], 408, "slow"),
        ([part(b"{", more=True)], 408, "slow"),
        ([part(b" " * MAX_BODY, more=True), part(b" ", more=True)], 413, "size"),
        ([part(b"{", more=True), {"type": "http.disconnect"}], 400, "disconnect"),
    ],
)
def test_incomplete_bodies(messages: list[Message], status: int, reason: str) -> None:
    limits = AdmissionLimits(body_deadline=0.05, readers=1)
    for _ in range(2):  # one that was refused leaves room for the next
        with pytest.raises(Refused) as refused:
            asyncio.run(limits.read_body(arriving(messages)))
        assert (refused.value.refusal.status, refused.value.reason) == (status, reason)


def test_maximum_concurrent_bodies() -> None:
    async def main() -> None:
        limits = AdmissionLimits(readers=1)
        first = asyncio.create_task(limits.read_body(arriving([])))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="reading as many requests as it can") as refused:
            await limits.read_body(arriving([part(b"{}")]))
        assert dict(refused.value.refusal.headers)["Retry-After"] == "1"
        first.cancel()
        await asyncio.wait([first])
        assert await (await limits.read_body(arriving([part(b"{}")])))() == part(b"{}")

    asyncio.run(main())


def test_maximum_concurrent_requests() -> None:
    began, end = asyncio.Event(), asyncio.Event()

    async def held(_scope: Scope, _receive: Receive, _send: Send) -> None:
        began.set()
        await end.wait()

    async def send(_message: Message) -> None:
        pass

    async def main() -> None:
        limits = AdmissionLimits(concurrency=1)

        def admitted() -> Coroutine[None, None, None]:
            return limits.admit(held, {"method": "POST"}, arriving([part(b"{}")]), send)

        first = asyncio.create_task(admitted())
        await began.wait()
        await limits.read_body(arriving([part(b"{}")]))  # a body can arrive while all slots are taken
        with pytest.raises(Refused, match="answering as many requests as it can"):
            await admitted()
        end.set()
        await first
        await admitted()

    asyncio.run(main())


@pytest.mark.parametrize("said", [str(MAX_BODY + 1), "9" * 30])
def test_large_content_lengths(said: str) -> None:
    with pytest.raises(Refused, match="larger than 65536 bytes"):
        check_length({"content-length": said})
    for fine in ("", "0", str(MAX_BODY), "-1", "²"):
        check_length({"content-length": fine})
