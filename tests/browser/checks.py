"""What can be checked of a page's accessibility without a person."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

_HERE = Path(__file__).parent


def problems(page: Page) -> list[str]:
    """Return everything that is wrong with what a page shows now."""
    return _found(page, "problems.js")


def unseen_focus(page: Page) -> list[str]:
    """Return the controls that look the same with the keyboard on them."""
    return _found(page, "unseen_focus.js")


def _found(page: Page, name: str) -> list[str]:
    found: list[str] = page.evaluate((_HERE / name).read_text("utf-8"))
    return found
