"""Automatic accessibility checks of a page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

_HERE = Path(__file__).parent


def problems(page: Page) -> list[str]:
    """Return the accessibility problems of the current page."""
    return _found(page, "problems.js")


def invisible_focus(page: Page) -> list[str]:
    """Return the controls that look the same with and without focus."""
    return _found(page, "invisible_focus.js")


def _found(page: Page, name: str) -> list[str]:
    found: list[str] = page.evaluate((_HERE / name).read_text("utf-8"))
    return found
