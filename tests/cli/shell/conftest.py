"""A shell session on the sample book."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recto.cli.shell.session import ShellReply, ShellSession
from recto.search.retriever import Retriever

Ask = Callable[..., ShellReply]


@pytest.fixture
def session(retriever: Retriever) -> ShellSession:
    return ShellSession(retriever)


@pytest.fixture
def ask(session: ShellSession) -> Ask:
    """Run lines that must succeed, and return the last reply."""

    def feed(*lines: str) -> ShellReply:
        reply = ShellReply()
        for line in lines:
            reply = session.feed(line)
            assert reply.error is None, f"{line}: {reply.error}"
        return reply

    return feed
