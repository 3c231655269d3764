"""Measure the widget in Chromium: from a letter to painted results, and the cost of loading it.

Run `python -m bench.widget`. It indexes nothing: RECTO_HOME must have the sample book, which any first
search makes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Error, Page, Response, sync_playwright

from recto.server.http.options import ServeOptions
from recto.server.keys import add_key
from recto.settings import load_settings
from tests.browser.site import Site
from tests.server.http.service import Service

COLLECTION = "physical-ai-book"
PAGE = "/docs/module-1-ros2/01-ros2-fundamentals"
QUERIES = (
    "how do nodes communicate",
    "quality of service for a camera",
    "domain randomization",
    "inverse kinematics",
    "which sensor measures acceleration",
    "from voice to motion",
)
_TYPING = 120  # milliseconds between letters: 100 words per minute
_WATCH = """() => {
    const root = document.querySelector("recto-widget").shadowRoot;
    const list = root.getElementById("results");
    const channel = new MessageChannel();
    window.paints = [];
    let typed = 0;
    let isWaiting = false;
    channel.port1.onmessage = () => {
        if (typed) window.paints.push(performance.now() - typed);
        typed = 0;
        isWaiting = false;
    };
    const note = (event) => { typed = event.timeStamp; };
    root.querySelector("[role=combobox]").addEventListener("input", note, { capture: true });
    new MutationObserver(() => {
        if (!typed || isWaiting) return;
        isWaiting = true;
        requestAnimationFrame(() => channel.port2.postMessage(null)); // the message arrives after the paint
    }).observe(list, { childList: true });
}"""


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure_typing(page: Page, url: str) -> tuple[list[float], list[float]]:
    """Return the milliseconds from each letter to painted results, and the service's own milliseconds."""
    responses: list[Response] = []
    page.goto(url, wait_until="networkidle")
    page.keyboard.press("Control+k")
    field = page.locator("recto-widget").get_by_role("combobox")
    field.press_sequentially("robot", delay=_TYPING)  # loads the model and the index
    page.wait_for_timeout(1000)
    page.evaluate(_WATCH)

    def note(response: Response) -> None:
        responses.append(response)

    page.on("response", note)
    for query in QUERIES:
        field.fill("")
        field.press_sequentially(query, delay=_TYPING)
        page.wait_for_timeout(600)
    server = []
    for response in responses:
        with suppress(Error):  # a cancelled response has no body
            server.append(response.json()["timings"]["total_ms"])
    return page.evaluate("window.paints"), server


def measure_load(browser: Browser, url: str, rounds: int, *, blocked: bool) -> tuple[float, float]:
    """Return the main thread's milliseconds of script and of all tasks while a page loads (medians)."""
    scripts, tasks = [], []
    for _ in range(rounds):
        context = browser.new_context()
        page = context.new_page()
        if blocked:
            page.route("**/widget.js", lambda route: route.abort())
        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        page.goto(url, wait_until="networkidle")
        page.wait_for_timeout(300)
        found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        scripts.append(found["ScriptDuration"] * 1e3)
        tasks.append(found["TaskDuration"] * 1e3)
        context.close()
    return statistics.median(scripts), statistics.median(tasks)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="loads of a page with and without the widget")
    rounds = parser.parse_args().rounds
    settings = load_settings()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with TemporaryDirectory() as folder, Site() as site, sync_playwright() as playwright:
        home = Path(shutil.copytree(settings.home, Path(folder) / "home"))
        _, key = add_key(home, "bench", "search", [site.origin], (COLLECTION,))
        site.attributes = {"data-key": key, "data-collection": COLLECTION}
        options = ServeOptions(collections=(COLLECTION,), has_stored_keys=True)
        with Service(replace(settings, home=home), options) as site.service:
            browser = playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--disable-gpu"]
            )
            paints, server = measure_typing(browser.new_page(), site.origin + PAGE)
            print(f"{len(paints)} letters, {_TYPING} ms apart")
            for name, values in (("letter to painted results", paints), ("time in the service", server)):
                p50, p95 = quantile(values, 0.5), quantile(values, 0.95)
                print(f"{name:28} p50 {p50:6.1f} ms  p95 {p95:6.1f} ms")
            without = measure_load(browser, site.origin + PAGE, rounds, blocked=True)
            with_it = measure_load(browser, site.origin + PAGE, rounds, blocked=False)
            for name, before, after in zip(("script", "all tasks"), without, with_it, strict=True):
                print(f"page load, {name:17} {before:6.1f} ms without, {after:6.1f} ms with the widget")
            browser.close()


if __name__ == "__main__":
    main()
