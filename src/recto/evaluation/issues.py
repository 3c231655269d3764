"""What can be wrong with the content of an index, each kind with its own name."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

_EXAMPLES = 5


class Trouble(StrEnum):
    """A kind of damage."""

    NO_TEXT = "no_text"
    NO_URL = "no_url"
    BAD_URL = "bad_url"
    NO_TITLE = "no_title"
    NO_MODULE = "no_module"
    BAD_NUMBER = "bad_number"
    MISSING = "missing_passages"
    REPEATED = "repeated_passages"
    SHUFFLED = "shuffled_passages"
    WRONG_ID = "wrong_id"
    OTHER_TEXT = "text_is_not_what_was_embedded"
    NOT_AS_PUBLISHED = "not_as_published"
    BAD_VECTOR = "unusable_vector"
    OTHER_VECTOR = "vector_of_another_text"
    OTHER_MODEL = "vectors_of_another_model"
    NOT_IN_SOURCE = "text_not_in_source"
    OTHER_LINES = "text_at_other_lines"


@dataclass(frozen=True, slots=True)
class Issue:
    """A kind of damage, how often it was found, and some of the places."""

    trouble: Trouble
    count: int
    places: tuple[str, ...]


@dataclass(slots=True)
class Issues:
    """Counts troubles while an index is read; only a few places of each are kept."""

    _counts: dict[Trouble, int] = field(default_factory=dict)
    _places: dict[Trouble, dict[str, None]] = field(default_factory=dict)

    def add(self, trouble: Trouble, place: str, count: int = 1) -> None:
        """Note one more."""
        self._counts[trouble] = self._counts.get(trouble, 0) + count
        places = self._places.setdefault(trouble, {})
        if len(places) < _EXAMPLES:
            places[place] = None

    def listed(self) -> tuple[Issue, ...]:
        """Return what was noted, in the order of the kinds."""
        return tuple(Issue(trouble, self._counts[trouble], tuple(self._places[trouble])) for trouble in Trouble if trouble in self._counts)
