"""An embedded index of fifty chunks that tests copy, which is faster than publishing one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recto.stores.edge import EdgeStore, layout
from recto.testing.parts import chunk, publish_lexical
from recto.types.index import Calibration

CALIBRATION = Calibration(0.6, 0.97, 20, 30)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the collection `books`, an alias, a calibration and an archive; tests only copy it."""
    home = tmp_path_factory.mktemp("template")
    store = EdgeStore(home)
    publish_lexical(store, "books", [chunk(number, text=f"soil {number}") for number in range(50)])
    store.set_aliases(["library"], "books")
    store.save_calibration(store.open("books").info, CALIBRATION)
    store.backup("books", home / "books.recto")
    return home


@pytest.fixture
def store(template: Path, home: Path) -> EdgeStore:
    """The embedded store in `home`, with a copy of the template."""
    layout.copy_tree(template / "collections", home / "collections")
    shutil.copy(template / "aliases.json", home)
    return EdgeStore(home)
