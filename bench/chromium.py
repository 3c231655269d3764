"""Time static search in Chromium, and find the longest task of the page's thread while a reader searches.

CPU time does not depend on what else the machine does; on a quiet machine, it is about the time that a reader
waits.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PAGE = '<!doctype html><title>Book</title><script type="module" src="/recto/widget.js"></script>'
_OPEN = """async (query) => {
  const { RectoClient } = await import("/recto/static/client.js");
  window.client = new RectoClient({ semantic: "on" });
  await (await client.search(query)).improved;
}"""
_SEARCH = """async (query) => {
  const began = performance.now();
  await client.search(query, { top_k: 6, group_by: "page" });
  return performance.now() - began;
}"""
_DRAWN = """() => {
  const root = document.querySelector("recto-widget").shadowRoot;
  return !root.querySelector("dialog.busy") && !root.querySelector(".note").textContent;
}"""
_TRACED = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]


class Times(NamedTuple):
    """Milliseconds: medians of searches by meaning, new and repeated, and of the CPU time of a repeated one.

    `loading` and `searching` are the largest CPU times of a task of the page's thread.
    """

    first: float
    again: float
    cpu: float
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
        page.goto(origin)
        page.evaluate(_OPEN, queries[0])
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        times = []
        for query in queries:
            first = page.evaluate(_SEARCH, query)
            before = _thread_time(session.send("Performance.getMetrics"))
            again = page.evaluate(_SEARCH, query)
            times.append((first, again, _thread_time(session.send("Performance.getMetrics")) - before))
        page = browser.new_context().new_page()  # with an empty cache
        page.set_default_timeout(120_000)
        page.goto(origin)
        page.keyboard.press("Control+k")
        tasks = []
        for query in (queries[0], *queries):
            browser.start_tracing(page=page, categories=_TRACED)
            page.locator("recto-widget [role=combobox]").fill(query)
            page.wait_for_timeout(1000)
            page.wait_for_function(_DRAWN)
            tasks.append(_longest_task(browser.stop_tracing()))
        browser.close()
    first, again, cpu = (median(column) for column in zip(*times, strict=True))
    return Times(first, again, cpu, tasks[0], max(tasks[1:]))


def _thread_time(metrics: dict[str, Any]) -> float:
    """Return the CPU time of the page's thread so far, in milliseconds."""
    values = {one["name"]: float(one["value"]) for one in metrics["metrics"]}
    return 1000 * values["ThreadTime"]


def _longest_task(trace: bytes) -> float:
    """Return the largest CPU time of a task of the page's thread in a trace, in milliseconds."""
    events = json.loads(trace)["traceEvents"]
    names = (event for event in events if event["name"] == "thread_name")
    threads = {(one["pid"], one["tid"]) for one in names if one["args"]["name"] == "CrRendererMain"}
    tasks = (
        event for event in events if event["name"] == "RunTask" and (event["pid"], event["tid"]) in threads
    )
    return max((one.get("tdur", 0) / 1000 for one in tasks), default=0.0)


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
