"""The two legs of hybrid search, the same in every store: how many candidates each asks for."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from recto.errors import ConfigurationError
from recto.types import Candidates, IndexInfo

LEXICAL = "lexical"
"""The name of the sparse vector; the dense vector has no name."""
_DENSE, _LISTED, _RESCORED = 20, 50, 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How many points the legs return: the nearest, those with a lexical score, and those of the latter that get a cosine, too.

    More candidates cost more than they find (decision 11).
    """

    dense: int
    lexical: int
    rescored: int


def limits_for(limit: int, *, hybrid: bool) -> Limits:
    """Return the candidates that the best `limit` results need."""
    if not hybrid:
        return Limits(limit, limit, 0)
    return Limits(max(_DENSE, limit), max(_LISTED, 2 * limit), max(_RESCORED, limit))


Scores = dict[Hashable, float]


def join(dense: Scores, lexical: Scores, rescored: Scores, limits: Limits) -> Candidates:
    """Join what the legs of one query found; `lexical` is ordered, best first.

    Engines order ties differently. Where a limit cuts through a tie, all of it is left out, so that every store returns the same.
    """
    scores = list(lexical.values())
    if len(scores) > limits.rescored:
        least = scores[limits.rescored]
        rescored = {id: score for id, score in rescored.items() if lexical.get(id, least) > least}
    if len(scores) >= limits.lexical and scores[-1] < scores[0]:
        lexical = {id: score for id, score in lexical.items() if score > scores[-1]}
    return Candidates(
        dense | rescored, lexical
    )  # keys of `dense` stay: a server store has their chunks already


def no_lexical_vectors(info: IndexInfo) -> ConfigurationError:
    """Return the error for a lexical query of an index that cannot answer it."""
    return ConfigurationError(
        f"Collection '{info.collection}' has no lexical vectors, so it can only be searched in dense mode",
        hint="Index the book again with `recto index PATH --collection NAME`, or use the dense mode.",
    )
