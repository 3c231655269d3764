"""Test admission limits: body size, deadlines, concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from recto.server.limits import (
    MAX_BODY,
    MAX_WAITING,
    AdmissionLimits,
    CurrentRequest,
    FairSlots,
    RateLimiter,
    Refused,
    current_request,
)


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
        replay, size = await limits.read_body(arriving([part(b"{}")]))
        assert (await replay(), size) == (part(b"{}"), 2)

    asyncio.run(main())


def test_callers_take_turns() -> None:
    """One caller holds at most half of the slots, and those who wait are served in turns."""
    order: list[str] = []

    async def hold(slots: FairSlots, caller: str, end: asyncio.Event) -> None:
        async with slots.take(caller):
            order.append(caller)
            await end.wait()

    async def main() -> None:
        slots, end = FairSlots(4), asyncio.Event()
        greedy = [asyncio.create_task(hold(slots, "greedy", end)) for _ in range(20)]
        await asyncio.sleep(0)
        assert order == ["greedy"] * 2
        others = [asyncio.create_task(hold(slots, name, end)) for name in "abcd"]
        await asyncio.sleep(0)
        assert order == ["greedy"] * 2 + ["a", "b"]
        end.set()
        await asyncio.gather(*greedy, *others)
        assert sorted(order[4:7]) == ["c", "d", "greedy"], "no caller is served twice before the others"

    asyncio.run(main())


def test_a_caller_with_too_many_waiting_requests_is_refused() -> None:
    async def main() -> None:
        slots = FairSlots(1)
        waiting = [asyncio.create_task(slots.acquire("a")) for _ in range(1 + MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="at the same time") as refused:
            await slots.acquire("a")
        assert (refused.value.refusal.status, refused.value.reason) == (429, "queue")
        for one in waiting:
            slots.release("a") if one.done() else one.cancel()
        async with asyncio.timeout(60), slots.take("a"):
            pass

    asyncio.run(main())


def test_a_request_that_stops_waiting_keeps_no_slot() -> None:
    async def main() -> None:
        slots = FairSlots(1)
        for given in (False, True):  # cancelled while it waits, or in the moment when it gets the slot
            holding = slots.take("a")
            await holding.__aenter__()
            waiting = asyncio.create_task(slots.take("b").__aenter__())
            await asyncio.sleep(0)
            if given:
                await holding.__aexit__(None, None, None)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not given:
                await holding.__aexit__(None, None, None)
            async with asyncio.timeout(60), slots.take("c"):  # the slot is free
                pass

    asyncio.run(main())


@pytest.mark.parametrize("leaves", [True, False])
def test_threads_stop_when_the_client_leaves_or_the_deadline_passes(leaves: bool) -> None:
    worked: list[bool] = []

    async def working(_scope: Scope, _receive: Receive, _send: Send) -> None:
        request = current_request()
        try:
            await asyncio.Event().wait()
        finally:
            worked.append(request.cancelled.is_set())

    async def send(_message: Message) -> None:
        pass

    async def main() -> None:
        limits = AdmissionLimits(deadline=60.0 if leaves else 0.05)
        messages = [part(b"{}"), {"type": "http.disconnect"}] if leaves else [part(b"{}")]
        request = CurrentRequest("a")
        with pytest.raises(Refused) as refused:
            await limits.admit(working, {"method": "POST"}, arriving(messages), send, request)
        assert refused.value.reason == ("disconnect" if leaves else "timeout")
        assert request.cancelled.is_set()

    asyncio.run(main())
    assert worked == [True]


def test_token_buckets_refill_and_a_costly_request_counts_as_several() -> None:
    now = 0.0
    rate = RateLimiter(60, lambda: now)
    for _ in range(5):  # five seconds at one request per second
        rate.check("a")
    with pytest.raises(Refused) as refused:
        rate.check("a")
    assert dict(refused.value.refusal.headers)["Retry-After"] == "1"
    rate.check("b")  # each caller has a bucket of its own
    for _ in range(1000):
        RateLimiter(0).check("a")
    now = 5.0
    rate.check("a")
    rate.charge("a", 30)  # a batch
    now = 30.0
    with pytest.raises(Refused) as refused:
        rate.check("a")
    assert dict(refused.value.refusal.headers)["Retry-After"] == "2"
    now = 32.0
    rate.check("a")


def test_a_response_that_has_started_is_not_followed_by_an_error() -> None:
    """A client that reads slowly keeps `send` waiting until the deadline has passed."""
    sent: list[str] = []

    async def started(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message["type"])

    async def main() -> None:
        limits, request = AdmissionLimits(deadline=0.05), CurrentRequest("a")
        await limits.admit(started, {"method": "POST"}, arriving([part(b"{}")]), send, request)
        assert request.cancelled.is_set()
        assert not request.disconnected.is_set()

    asyncio.run(main())
    assert sent == ["http.response.start"]


def test_the_end_of_a_response_is_not_taken_for_a_client_that_left() -> None:
    """The server reports a disconnect as soon as it has sent the whole response."""
    answered = asyncio.Event()

    async def slow_to_return(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})
        for _ in range(10):
            await asyncio.sleep(0)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            answered.set()

    async def main() -> None:
        first = [part(b"{}")]

        async def receive() -> Message:
            if first:
                return first.pop()
            await answered.wait()
            return {"type": "http.disconnect"}

        request = CurrentRequest("a")
        await AdmissionLimits().admit(slow_to_return, {"method": "POST"}, receive, send, request)
        assert not request.disconnected.is_set()

    asyncio.run(main())
