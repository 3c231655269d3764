"""A session on the sample book, and the replies that a test reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recto.cli.shell.session import Reply, Session
from recto.search.retriever import Retriever

Ask = Callable[..., Reply]


@pytest.fixture
def session(retriever: Retriever) -> Session:
    return Session(retriever)


@pytest.fixture
def ask(session: Session) -> Ask:
    """Feed lines that must all succeed, and return the last reply."""

    def feed(*lines: str) -> Reply:
        reply = Reply()
        for line in lines:
            reply = session.feed(line)
            assert reply.error is None, f"{line}: {reply.error}"
        return reply

    return feed
