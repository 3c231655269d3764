"""A reader's window on the page, which notes everything that must not happen there."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    expect,
)

WIDE, PHONE = (1280, 860), (360, 740)
SAMPLE_PAGE = "local://docs/docs/module-1-ros2/01-ros2-fundamentals"
_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""
_ANSWERED = "Failed to load resource"
"""What the browser itself says of an answer that is an error; the page has its own words for it."""


class Desk:
    """One reader: a window, what is kept for it, and what went wrong in it."""

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
        self._options: dict[str, Any] = {
            "viewport": {"width": size[0], "height": size[1]},
            "color_scheme": scheme,
            **more,
        }
        self.wrong: list[str] = []
        self.context: BrowserContext
        self.page: Page

    def __enter__(self) -> Self:
        self.context = self._browser.new_context(**self._options)
        self.context.set_default_timeout(20_000)
        self.context.add_init_script(_VIOLATIONS)
        self.page = self.tab()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for page in self.context.pages:
            self.wrong += page.evaluate("window.violations ?? []")
        self.context.close()
        if kind is None:
            assert self.wrong == []

    def tab(self) -> Page:
        """Open another tab of the same reader."""
        page = self.context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._asked)
        page.on("request", self._requested)
        return page

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_ANSWERED):
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:")):
            self.wrong.append(f"request to {request.url}")

    def open(self, **state: object) -> None:
        """Go to a state by its address, and wait until it is drawn."""
        query = urlencode(state, doseq=True)
        self.page.goto(f"{self.origin}/?{query}" if query else f"{self.origin}/")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is on its way."""
        expect(
            self.page.locator(
                "#filters:visible, .notice:visible, #page-title:visible, #health-title:visible"
            ).first
        ).to_be_visible()
        expect(self.page.locator("[aria-busy=true]")).to_have_count(0)

    def ask(self, question: str) -> None:
        """Type a question and send it."""
        self.page.fill("#q", question)
        self.page.press("#q", "Enter")
        expect(self.page).to_have_url(re.compile(r"[?&]q="))
        self.settle()

    @property
    def state(self) -> dict[str, list[str]]:
        """What the address bar says."""
        return parse_qs(urlsplit(self.page.url).query)

    @property
    def results(self) -> Locator:
        return self.page.locator("#list .entry")

    @property
    def links(self) -> Locator:
        """What opens the results, without the further passages of their pages."""
        return self.page.locator("#list .entry h3 .result")

    def unfold(self) -> None:
        """Open all that is folded in the list."""
        self.page.locator("#list details").evaluate_all("all => all.forEach(one => one.open = true)")

    def focused(self) -> str:
        """Return the words of the element that has the keyboard, or its name."""
        return str(
            self.page.evaluate(
                "document.activeElement.id || document.activeElement.textContent.trim().replace(/\\s+/g, ' ')"
            )
        )
