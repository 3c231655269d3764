"""A website on loopback: pages, sitemaps, robots.txt, conditional requests, compression, faults."""

from __future__ import annotations

import gzip
import hashlib
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from tests.doubles.server import LONGEST, Answer, Double, Exchange, Fault, Request

HTML = "text/html; charset=utf-8"
XML = "application/xml"


def page(title: str, text: str = "Some words of the book.", *links: str, head: str = "") -> str:
    leads = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return (
        f"<!doctype html><html><head><title>{title} | Bee Book</title>{head}</head><body><nav>{leads}</nav>"
        f"<main><h1>{title}</h1><p>{text}</p></main></body></html>"
    )


def sitemap(*addresses: str) -> str:
    entries = "".join(f"<url><loc>{address}</loc></url>" for address in addresses)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'


def sitemap_index(*addresses: str) -> str:
    entries = "".join(f"<sitemap><loc>{address}</loc></sitemap>" for address in addresses)
    return f'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</sitemapindex>'


class SiteDouble(Double):
    """Serves the pages that `put` adds; counts requests by path, 304 responses and sent bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.unchanged: Counter[str] = Counter()
        self.sent = 0
        self._files: dict[str, Answer] = {}

    def put(
        self,
        path: str,
        body: str | bytes,
        kind: str = "",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        content = body.encode() if isinstance(body, str) else body
        looks = XML if path.endswith(".xml") else "text/plain" if path.endswith(".txt") else HTML
        tag = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:16]}"'} if status == 200 else {}
        self._files[path] = Answer(status, content, kind or looks, {**tag, **(headers or {})})

    def drop(self, path: str) -> None:
        del self._files[path]

    def redirect(self, path: str, target: str, status: int = 302) -> None:
        self.put(path, b"", status=status, headers={"Location": target})

    def answer(self, request: Request) -> Answer:
        self.asked[request.path] += 1
        result = self._files.get(request.path)
        if result is None:
            return Answer(404, page("Not here").encode(), HTML)
        if result.status == 200 and request.headers.get("if-none-match") == result.headers.get("ETag"):
            self.unchanged[request.path] += 1
            return Answer(304, b"", result.content_type, {"ETag": result.headers["ETag"]})
        if (
            "gzip" in request.headers.get("accept-encoding", "")
            and len(result.body) > 1000
            and "Content-Encoding" not in result.headers
        ):
            headers = {**result.headers, "Content-Encoding": "gzip"}
            return Answer(result.status, gzip.compress(result.body), result.content_type, headers)
        return result


def endless(kind: str = HTML, most: int = 64 << 20) -> Fault:
    """Send a chunked body without an end, while the client reads it."""

    def act(exchange: Exchange) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        _pour(exchange, head, b"10000\r\n" + b"x" * 0x10000 + b"\r\n", most)

    return act


def dripping_header(pause: float = 0.05) -> Fault:
    """Send a header line without an end, byte by byte."""

    def act(exchange: Exchange) -> None:
        end = time.monotonic() + LONGEST
        with suppress(OSError):
            exchange._handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while time.monotonic() < end and exchange.wait(pause):
                exchange._handler.wfile.write(b"x")
        exchange.close()

    return act


def _pour(exchange: Exchange, head: bytes, part: bytes, most: int) -> None:
    site: Any = exchange.double
    sent = 0
    with suppress(OSError):
        exchange._handler.wfile.write(head)
        while sent < most and exchange.wait(0):
            exchange._handler.wfile.write(part)
            sent += len(part)
    site.sent += sent
    exchange.close()


@cache
def gzip_bomb(size: int = 64 << 20) -> bytes:
    """Return a small gzip file that unpacks to very many zeros."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [packer.compress(b"\0" * (1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, packer.flush()])


_ENTITIES = "".join(f'<!ENTITY {chr(n + 1)} "{f"&{chr(n)};" * 10}">' for n in range(ord("a"), ord("j")))
ENTITY_BOMB = f'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">{_ENTITIES}]><urlset><url><loc>&j;</loc></url></urlset>'
FILE_ENTITY = '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><urlset><url><loc>http://127.0.0.1/&f;</loc></url></urlset>'
