"""Drive the web UI in a browser, record errors and requests to other servers, and check accessibility."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, expect

_HERE = Path(__file__).parent
WIDE, PHONE = (1280, 860), (360, 740)
SAMPLE_TITLE = "Physical AI and Humanoid Robotics"
SAMPLE_PAGE = "local://docs/docs/module-1-ros2/01-ros2-fundamentals"
_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""
_FAILED_RESPONSE = "Failed to load resource"
"""The browser's own message for an error response; the page shows its own."""


class WebUI:
    """A browser window with its own storage; leaving it fails if `wrong` is not empty."""

    def __init__(
        self,
        browser: Browser,
        port: int,
        size: tuple[int, int] = WIDE,
        scheme: Literal["light", "dark"] = "light",
        **more: Any,
    ) -> None:
        self._browser = browser
        self.origin = f"http://127.0.0.1:{port}"
        self.allowed = [self.origin, "data:"]  # how the addresses of requests may begin
        viewport = {"width": size[0], "height": size[1]}
        self._options: dict[str, Any] = {"viewport": viewport, "color_scheme": scheme, **more}
        self.wrong: list[str] = []
        self.context: BrowserContext
        self.page: Page

    def __enter__(self) -> Self:
        self.context = self._browser.new_context(**self._options)
        self.context.set_default_timeout(20_000)
        self.context.add_init_script(_VIOLATIONS)
        self.page = self.tab()
        self.results = self.page.locator("#list .entry")
        self.links = self.results.locator("h3 .result")  # without the links of further sections
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for page in self.context.pages:
            self.wrong += page.evaluate("window.violations ?? []")
        self.context.close()
        if kind is None:
            assert self.wrong == [], self.wrong

    def tab(self) -> Page:
        """Open another tab with the same storage."""
        page = self.context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("request", self._on_request)
        return page

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_FAILED_RESPONSE):
            self.wrong.append(f"{message.type}: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(tuple(self.allowed)):
            self.wrong.append(f"request to {request.url}")

    def open(self, **state: object) -> None:
        """Go to a state by its URL, and wait until it is drawn."""
        query = urlencode(state, doseq=True)
        self.page.goto(f"{self.origin}/?{query}" if query else f"{self.origin}/")
        self.settle()

    def settle(self, url: str = ".") -> None:
        """Wait until the URL has a part, and no request is in progress."""
        expect(self.page).to_have_url(re.compile(url))
        drawn = "#filters:visible, .notice:visible, #page-title:visible, #health-title:visible"
        expect(self.page.locator(drawn).first).to_be_visible()
        expect(self.page.locator("[aria-busy=true]")).to_have_count(0)
        expect(self.page.locator("#book-title")).not_to_be_empty()

    def ask(self, query: str) -> None:
        """Type a query and submit it."""
        self.page.fill("#q", query)
        self.page.press("#q", "Enter")
        self.settle(r"[?&]q=")

    def reload(self) -> None:
        self.page.reload()
        self.settle()

    def go_back(self) -> None:
        self.page.go_back()
        self.settle()

    @property
    def state(self) -> dict[str, list[str]]:
        """The parameters of the URL."""
        return parse_qs(urlsplit(self.page.url).query)

    @property
    def modules(self) -> set[str]:
        """The modules of the results."""
        return set(self.results.locator(".module").all_text_contents())

    @property
    def pages(self) -> list[str]:
        """The pages of the results."""
        return list(self.results.evaluate_all("all => all.map(one => one.dataset.page)"))

    def unfold(self) -> None:
        """Open all folded parts of the list."""
        self.page.locator("#list details").evaluate_all("all => all.forEach(one => one.open = true)")

    def open_filters(self) -> None:
        self.page.locator("#filters > summary").click()

    def focused(self) -> str:
        """Return the id or the text of the focused element."""
        shown = "({ id, textContent }) => id || textContent.trim().replace(/\\s+/g, ' ')"
        return str(self.page.evaluate(f"({shown})(document.activeElement)"))


def problems(page: Page) -> list[str]:
    """Return the accessibility problems of the current page."""
    return _found(page, "problems.js")


def invisible_focus(page: Page) -> list[str]:
    """Return the controls that look the same with and without focus."""
    return _found(page, "invisible_focus.js")


def _found(page: Page, name: str) -> list[str]:
    found: list[str] = page.evaluate((_HERE / name).read_text("utf-8"))
    return found
