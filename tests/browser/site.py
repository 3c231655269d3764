"""A published book: plain HTML pages with the widget, on an origin of their own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

from tests.server.http.service import Caller

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; font: 1.0625rem/1.6 system-ui, sans-serif; background: #fff; color: #1c1e21; }
pre { overflow-x: auto; background: #f4f5f7; padding: .75rem; }
a { color: #1f4fbf; }
:root[data-theme=dark] body { background: #17181a; color: #e6e6e8; }
:root[data-theme=dark] pre { background: #26272b; }
:root[data-theme=dark] a { color: #9db8ff; }
"""
POLICY = (
    "default-src 'none'; script-src {recto}; style-src 'self'; connect-src {recto}; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass
class Site:
    """The pages of a served collection; `attributes` are those of the widget's script."""

    service: Caller
    collection: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    headers: str = ""
    body: str = ""
    language: str = "en"
    direction: str = "ltr"

    def __enter__(self) -> Self:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        query = f"?collection={quote(self.collection)}" if self.collection else ""
        listed = self.service.get(f"/v1/pages{query}", **self._key()).json()["pages"]
        self.pages = {page["url"].removeprefix("local://docs"): page for page in listed}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _key(self) -> dict[str, str]:
        key = self.attributes.get("data-key")
        return {"Authorization": f"Bearer {key}"} if key else {}

    @property
    def recto(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        if path == "/site.css":
            kind, text = "text/css", _STYLE
        elif path in self.pages:
            kind, text = "text/html; charset=utf-8", self._html(self.pages[path])
        else:
            request.send_error(404)
            return
        content = text.encode()
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Content-Security-Policy", POLICY.format(recto=self.recto))
        request.end_headers()
        request.wfile.write(content)

    def _html(self, page: Mapping[str, Any]) -> str:
        query = f"&collection={quote(self.collection)}" if self.collection else ""
        address = f"/v1/pages/{quote(page['url'], safe='')}?html=true{query}"
        chunks = self.service.get(address, **self._key()).json()["chunks"]
        sections = "".join(
            f'<section id="{escape(anchor or "top")}">{"".join(chunk["html"] for chunk in group)}</section>'
            for anchor, group in groupby(chunks, key=lambda chunk: str(chunk["anchor"]))
        )
        attributes = {"data-rewrite": "local://docs/ /", **self.attributes}
        if self.collection:
            attributes["data-collection"] = self.collection
        written = " ".join(f'{name}="{escape(value)}"' for name, value in attributes.items())
        return (
            f'<!doctype html><html lang="{self.language}" dir="{self.direction}"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(page["title"])}</title>'
            f'<link rel="icon" href="data:,"><link rel="stylesheet" href="/site.css">'
            f'<script type="module" src="{self.recto}/widget.js" {written}></script></head>'
            f"<body>{self.body}<main>{sections}</main></body></html>"
        )
