"""What is taken in: whole bodies of a size, in time, and so many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive

from recto.server.limits import MAX_BODY, AdmissionLimits, Refused, check_length


def arriving(messages: Sequence[Message]) -> Receive:
    """Give messages out one after the other; after the last, nothing comes."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_is_given_out_whole_and_then_what_comes_behind_it() -> None:
    async def main() -> list[Message]:
        receive = await AdmissionLimits().read(
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
        ([part(b"{", more=True), {"type": "http.disconnect"}], 400, "left"),
    ],
)
def test_a_body_that_does_not_come_or_does_not_end(messages: list[Message], status: int, reason: str) -> None:
    bounds = AdmissionLimits(body_seconds=0.05, readers=1)
    for _ in range(2):  # one that was refused leaves room for the next
        with pytest.raises(Refused) as refused:
            asyncio.run(bounds.read(arriving(messages)))
        assert (refused.value.refusal.status, refused.value.reason) == (status, reason)


def test_so_many_are_read_at_once() -> None:
    async def main() -> None:
        bounds = AdmissionLimits(readers=1)
        first = asyncio.create_task(bounds.read(arriving([])))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="reads as many requests as it can") as refused:
            await bounds.read(arriving([part(b"{}")]))
        assert dict(refused.value.refusal.headers)["Retry-After"] == "1"
        with bounds.answering():
            first.cancel()
        await asyncio.wait([first])
        assert await (await bounds.read(arriving([part(b"{}")])))() == part(b"{}")

    asyncio.run(main())


def test_so_many_are_answered_at_once() -> None:
    bounds = AdmissionLimits(most=2)
    with bounds.answering():
        with (
            bounds.answering(),
            pytest.raises(Refused, match="as many requests as it can answer"),
            bounds.answering(),
        ):
            pass
        with bounds.answering():
            pass


@pytest.mark.parametrize("said", [str(MAX_BODY + 1), "9" * 30])
def test_a_length_that_is_too_large(said: str) -> None:
    with pytest.raises(Refused, match="larger than 65536 bytes"):
        check_length(said)
    for fine in ("", "0", str(MAX_BODY), "-1", "²"):
        check_length(fine)
