"""Time static search in Chromium, and find the longest task of the page's thread while a reader searches."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import NamedTuple

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PAGE = '<!doctype html><title>Book</title><script type="module" src="/recto/widget.js"></script>'
_TIME = """async (queries) => {
  const { RectoClient } = await import("/recto/static/client.js");
  const client = new RectoClient({ semantic: "on" });
  await (await client.search(queries[0])).improved;
  const times = [];
  for (const query of queries) {
    const began = performance.now();
    await client.search(query, { top_k: 6, group_by: "page" });
    const between = performance.now();
    await client.search(query, { top_k: 6, group_by: "page" });
    times.push([between - began, performance.now() - between]);
  }
  return times;
}"""
_WATCH = """() => {
  window.tasks = [];
  const note = (list) => window.tasks.push(...list.getEntries().map(({ duration }) => duration));
  new PerformanceObserver(note).observe({ type: "longtask" });
}"""
_DRAWN = """() => {
  const root = document.querySelector("recto-widget").shadowRoot;
  return !root.querySelector("dialog.busy") && !root.querySelector(".note").textContent;
}"""
_TASKS = "() => new Promise((resolve) => setTimeout(() => resolve(window.tasks.splice(0)), 300))"


class Times(NamedTuple):
    """Milliseconds: medians of a search by meaning, new and repeated, and the longest tasks of the page."""

    first: float
    again: float
    loading: float
    searching: float


def measure(directory: Path, queries: Sequence[str]) -> Times:
    """Search an export in Chromium with the client, and then type the queries into the widget."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, _NAMES)), None)
    (directory.parent / "index.html").write_text(_PAGE)
    with _serve(directory.parent) as origin, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context().new_page()
        page.set_default_timeout(120_000)
        page.goto(origin)
        times = page.evaluate(_TIME, list(queries))
        page = browser.new_context().new_page()  # with an empty cache
        page.set_default_timeout(120_000)
        page.goto(origin)
        page.evaluate(_WATCH)
        page.keyboard.press("Control+k")
        tasks = []
        for query in (queries[0], *queries):
            page.locator("recto-widget [role=combobox]").fill(query)
            page.wait_for_timeout(1000)
            page.wait_for_function(_DRAWN)
            tasks.append(max(page.evaluate(_TASKS), default=0.0))
        browser.close()
    first, again = (median(column) for column in zip(*times, strict=True))
    return Times(first, again, tasks[0], max(tasks[1:]))


@contextmanager
def _serve(directory: Path) -> Iterator[str]:
    handler = partial(_QuietHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass
