"""A killed service loses at most a second of its query log, and damages nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.querylog import kill_service, kill_writers


@pytest.mark.parametrize("killed", ["writers", "services"])
def test_killed_processes(killed: str, house: Path, tmp_path: Path) -> None:
    """Three kills; `bench.querylog --kills 50` is the long version."""
    outcome = kill_writers(tmp_path, 3) if killed == "writers" else kill_service(house / "home", tmp_path, 3)
    assert outcome["queries"]
    assert (outcome["lost from before (goal 0)"], outcome["damaged lines (goal 0)"]) == (0, 0)
