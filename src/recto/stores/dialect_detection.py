"""Find out a collection's dialect from a sample of its points, or take it from the settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recto.errors import ConfigurationError
from recto.modules import nearest
from recto.stores.dialects import (
    ALIASES,
    RECTO,
    Dialect,
    Reader,
    as_address,
    as_headings,
    as_module,
    as_number,
    as_text,
    as_title,
    is_recto,
    paths_of,
    value_at,
)

SAMPLE = 64
"""How many points are looked at; more would not change what is found."""

_READERS: Mapping[str, Reader[Any]] = {
    "text": as_text,
    "page_url": as_address,
    "page_title": as_title,
    "module": as_module,
    "section": as_headings,
    "chunk_index": as_number,
    "total_chunks": as_number,
}

_FAMILIES = (
    RECTO,
    Dialect("module", "text", "page_url", "page_title", "module_name", "", "chunk_index"),
    Dialect("url", "text", "url", "page_title", "", "", "chunk_index", "total_chunks"),
    Dialect("content", "content", "url", "title", "", "headings", "chunk_index", "metadata.total_chunks"),
    Dialect("nested-module", "content", "url", "title", "metadata.module", "", "chunk_index", "total_chunks"),
    Dialect("chapter", "text", "source_url", "title", "chapter", "section", "chunk_index"),
    Dialect("source-url", "content", "source_url", "title", "", "section", "chunk_index"),
    Dialect("position", "content", "source_url", "page_title", "chapter", "section_title", "position"),
    Dialect("source-file", "text", "source_file", "", "module_name", "section_heading", "chunk_index", "total_chunks"),
    Dialect(
        *("metadata", "content", "metadata.page_url", "metadata.page_title", "metadata.chapter_name", ""),
        *("metadata.chunk_id", "metadata.total_chunks"),
    ),
    Dialect("path", "text", "url_path", "", "", "heading", "chunk_index"),
    Dialect("file", "text", "source", "filename"),
)
FAMILIES: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _FAMILIES}
"""The shapes that have a name in the settings; every other is detected or mapped in a file."""

_SHAPE = (
    f"Set RECTO_DIALECT to one of {', '.join(FAMILIES)}, or to a JSON or TOML file like "
    '{"text": "body", "page_url": "meta.link", "page_title": "meta.title", "module": "chapter"}; '
    f"its keys are {', '.join(ALIASES)}, its values are payload fields. Leave it unset to have the dialect detected."
)


def detect(payloads: Sequence[Mapping[str, Any]]) -> Dialect:
    """Choose for each canonical field the alias that most of the sample has with a usable value."""
    sample = payloads[:SAMPLE]
    if sample and all(is_recto(payload) for payload in sample):
        return RECTO
    chosen: dict[str, str] = {}
    partial: list[str] = []
    for canonical, reader in _READERS.items():
        counts = {path: sum(reader(path, value_at(payload, path)) is not None for payload in sample) for path in paths_of(canonical)}
        best = max(counts, key=counts.__getitem__)  # the first of several, that is the one that is believed most
        if counts[best]:
            chosen[canonical] = best
            partial.extend([canonical] if counts[best] < len(sample) else [])
    return Dialect("detected", **chosen, partial=tuple(partial))


def load_dialect(name_or_path: str | Path) -> Dialect:
    """Return the dialect of a known name, or the one that a mapping file describes."""
    known = FAMILIES.get(str(name_or_path).strip().lower())
    if known:
        return known
    path = Path(name_or_path)
    mapping = _read_mapping(path)
    unknown = sorted(set(mapping) - set(ALIASES) - {"name"})
    if unknown:
        meant = nearest(unknown[0], ALIASES)
        raise ConfigurationError(f"{path}: unknown key {unknown[0]!r}" + (f", did you mean {meant!r}?" if meant else ""), hint=_SHAPE)
    for key, value in mapping.items():
        if not isinstance(value, str) or not all(part.strip() for part in value.split(".")):
            raise ConfigurationError(f"{path}: {key!r} must name a payload field, not {value!r}", hint=_SHAPE)
    if not set(mapping) & set(ALIASES):
        raise ConfigurationError(f"{path} maps no field", hint=_SHAPE)
    return replace(Dialect(path.stem), **{key: value.strip() for key, value in mapping.items()})


def _read_mapping(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = path.expanduser().read_text("utf-8-sig")
        data = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"RECTO_DIALECT is neither a known shape nor a file: {path} ({reason})", hint=_SHAPE) from error
    except (ValueError, RuntimeError) as error:  # also of nesting without end, and of a home that does not exist
        raise ConfigurationError(f"The dialect file {path} cannot be read: {error}", hint=_SHAPE) from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path} holds no mapping of fields", hint=_SHAPE)
    return data
