"""A published book: plain HTML pages with the widget, on an origin of their own."""

from __future__ import annotations

import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
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


class Site:
    """The pages of a collection of `service`, which must be set before a page is loaded.

    `attributes` are set on the widget's script, `body` is HTML before the text of each page.
    """

    service: Caller

    def __init__(self) -> None:
        site = self
        self.attributes: dict[str, str] = {}
        self.body = ""
        self.language, self.direction = "en", "ltr"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def recto(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def _ask(self, path: str) -> Any:
        key = self.attributes.get("data-key")
        collection = self.attributes.get("data-collection")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        query = f"{'&' if '?' in path else '?'}collection={quote(collection)}" if collection else ""
        return self.service.get(path + query, **headers).json()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        if path == "/favicon.ico":
            kind, text = "image/x-icon", ""
        elif path == "/site.css":
            kind, text = "text/css", _STYLE
        else:
            kind, text = "text/html; charset=utf-8", self._html(f"local://docs{path}")
        content = text.encode()
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Content-Security-Policy", POLICY.format(recto=self.recto))
        request.end_headers()
        request.wfile.write(content)

    def _html(self, url: str) -> str:
        page = self._ask(f"/v1/pages/{quote(url, safe='')}?html=true")
        sections = "".join(
            f'<section id="{escape(anchor or "top")}">{"".join(chunk["html"] for chunk in group)}</section>'
            for anchor, group in groupby(page["chunks"], key=lambda chunk: str(chunk["anchor"]))
        )
        attributes = {"data-rewrite": "local://docs/ /", **self.attributes}
        written = " ".join(f'{name}="{escape(value)}"' for name, value in attributes.items())
        return (
            f'<!doctype html><html lang="{self.language}" dir="{self.direction}"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(page["title"])}</title>'
            f'<link rel="stylesheet" href="/site.css">'
            f'<script type="module" src="{self.recto}/widget.js" {written}></script></head>'
            f"<body>{self.body}<main>{sections}</main></body></html>"
        )
