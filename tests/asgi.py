"""Ask an application without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

from httpx import ASGITransport, AsyncClient
from starlette.types import ASGIApp


async def asked(
    application: ASGIApp, method: str, path: str, *parts: bytes, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body of an answer; the request's body comes in parts."""

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    sent = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    transport = ASGITransport(application, client=("127.0.0.1", 1))
    async with AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.request(method, path, content=body() if parts else None, headers=sent)
    return answer.status_code, dict(answer.headers), answer.content
