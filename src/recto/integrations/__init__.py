"""Adapters for LangChain, LlamaIndex and Haystack; each is an extra."""

from __future__ import annotations

from recto.errors import install_command


def absent(framework: str, extra: str) -> ImportError:
    """Return the error for a framework that is not installed."""
    return ImportError(f"{framework} is not installed. Install it with: {install_command(extra)}")
