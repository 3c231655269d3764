"""Read what a collection on a server is from its configuration: vectors, fingerprint, vocabulary."""

from __future__ import annotations

from typing import Any

from recto.errors import ConfigurationError, other_format
from recto.stores.points import LEXICAL
from recto.stores.qdrant.build import CALIBRATION_KEY, LEXICON_KEY, LEXICON_TOO_LARGE, METADATA_KEY
from recto.stores.qdrant.index import REINDEX
from recto.types import Calibration, Fingerprint

METADATA_FORMAT = 1
"""Of the metadata of a collection; if it has no `format`, it is this one."""


def read_vectors(params: Any) -> tuple[str | None, int, str]:
    """Return name, size and distance of the dense vectors; if there are several, of the first."""
    name = None
    if isinstance(params, dict):
        if not params:
            raise ConfigurationError("The collection has no dense vectors", hint="Choose another collection.")
        name = min(params)  # the unnamed vector has the name ""
        params = params[name]
    return name or None, int(params.size), str(getattr(params.distance, "value", params.distance))


def read_fingerprint(config: Any) -> tuple[Fingerprint | None, Calibration | None]:
    """Read the fingerprint and the calibration from a collection's metadata."""
    data = (getattr(config, "metadata", None) or {}).get(METADATA_KEY)
    if not isinstance(data, dict):
        return None, None
    if isinstance(format := data.get("format", METADATA_FORMAT), int) and format != METADATA_FORMAT:
        raise other_format("The collection on the server", format, METADATA_FORMAT, REINDEX)
    measured = data.get(CALIBRATION_KEY)
    try:
        fingerprint = Fingerprint.from_dict(
            {name: value for name, value in data.items() if name != CALIBRATION_KEY}
        )
    except (TypeError, KeyError):
        return None, None
    try:
        return fingerprint, Calibration.from_dict(measured) if measured is not None else None
    except (TypeError, KeyError, ValueError):
        return fingerprint, None


def read_lexical(config: Any, fingerprint: Fingerprint | None) -> tuple[bool, str, str]:
    """Return whether there are lexical vectors, the encoded vocabulary, and a warning if one is missing."""
    if fingerprint is None or not fingerprint.analyzer:
        return False, "", ""
    lost = "The collection has lost its {}, so it is searched in dense mode. " + REINDEX
    if not has_lexical_vectors(config):
        return False, "", lost.format("lexical vectors")
    lexicon = (getattr(config, "metadata", None) or {}).get(LEXICON_KEY)
    if lexicon == "":
        return True, "", LEXICON_TOO_LARGE
    if not isinstance(lexicon, str):
        return True, "", lost.format("vocabulary")
    return True, lexicon, ""


def has_lexical_vectors(config: Any) -> bool:
    """Return whether the points have lexical vectors."""
    return LEXICAL in (config.params.sparse_vectors or {})


def has_server_idf(config: Any) -> bool:
    """Return whether the server multiplies lexical terms by their IDF, as in Recto 0.1."""
    params = (config.params.sparse_vectors or {}).get(LEXICAL)
    return getattr(params, "modifier", None) == "idf"
