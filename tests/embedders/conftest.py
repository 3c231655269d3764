"""Built-in models that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from recto.embedders.granite.embedder import BuiltInEmbedder, built_in_embedder

OpenModel = Callable[..., BuiltInEmbedder]


@pytest.fixture
def open_model(shared_home: Path) -> Iterator[OpenModel]:
    """Return a function that opens a model with a number of threads, with the weights that all tests share."""
    with ExitStack() as opened:

        def open_model(
            threads: int, *arguments: Any, home: Path = shared_home, **more: Any
        ) -> BuiltInEmbedder:
            return opened.enter_context(closing(built_in_embedder(home, threads, *arguments, **more)))

        yield open_model
