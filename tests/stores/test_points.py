"""Chunks as payloads: every field is restored."""

from __future__ import annotations

from dataclasses import fields, replace

from recto.stores.points import from_payload, to_payload
from recto.types.search import Chunk

CHUNK = Chunk(
    id="0190b3c2-0000-5000-8000-000000000001",
    text="Soil holds water.",
    page_url="https://example.org/soil/",
    title="Soil",
    module="garden",
    module_keys=("garden", "module-1-garden"),
    headings=("Soil", "Water"),
    anchor="water",
    chunk_index=3,
    total_chunks=7,
    start_line=11,
    end_line=13,
    content_hash="c" * 64,
    source="soil.md",
    book="house",
    anchors=("water", "rain"),
    version="2.0",
    locale="de",
    language="ur",
    revision="r" * 64,
    locales=("ur", "fa"),
)


def test_every_field_is_restored() -> None:
    result = from_payload(CHUNK.id, to_payload(CHUNK))
    assert result == CHUNK
    values = {repr(getattr(result, part.name)) for part in fields(Chunk)}
    assert len(values) == len(fields(Chunk)), "every field of the example has a different value"


def test_fields_missing_in_older_indexes_are_empty() -> None:
    newer = ("book", "anchors", "version", "locale", "revision", "language", "locales")
    payload = {name: value for name, value in to_payload(CHUNK).items() if name not in newer}
    assert from_payload(CHUNK.id, payload) == replace(
        CHUNK, book="", anchors=(), version="", locale="", revision="", language="", locales=()
    )
