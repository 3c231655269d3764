"""The same answers as plain text, for clients that do not hand structured results to their model."""

from __future__ import annotations

from recto.mcp.results import ModulesResult, PageResult, Passage, SearchResult
from recto.types import HEADING_SEPARATOR


def search_text(result: SearchResult) -> str:
    """Write passages with their citations."""
    blocks = [line for line in (result.message, *(f"Warning: {warning}" for warning in result.warnings)) if line]
    blocks += [_passage(number, passage) for number, passage in enumerate(result.passages, 1)]
    return "\n\n".join(blocks)


def page_text(result: PageResult) -> str:
    """Write a page below its title."""
    head = f"{result.title} ({result.module})\n{result.link}"
    return "\n\n".join(block for block in (head, result.markdown, result.note) if block)


def modules_text(result: ModulesResult) -> str:
    """Write one line a module."""
    lines = [f"- {module.name}: {module.passages} passages" for module in result.modules]
    return "\n".join([f"{result.collection}: {result.pages} pages", *lines])


def _passage(number: int, passage: Passage) -> str:
    facts = [f"module {passage.module}", f"score {passage.score:.3f}"]
    facts += ["weak"] if passage.above_noise is False else []
    facts += [f"matches: {', '.join(passage.matches)}"] if passage.matches else []
    place = HEADING_SEPARATOR.join(passage.headings) or passage.title
    return f"[{number}] {place} ({'; '.join(facts)})\n{passage.link}\n\n{passage.text}"
