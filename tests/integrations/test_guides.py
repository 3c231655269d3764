"""Every Python example in the guides of the frameworks runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT, environment

PACKAGES = {"langchain": "langchain_core", "llamaindex": "llama_index.core", "haystack": "haystack"}
EXAMPLES = [
    (name, code)
    for name in PACKAGES
    for code in re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / "docs" / "how-to" / f"{name}.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
]


@pytest.mark.parametrize(
    ("name", "code"), EXAMPLES, ids=[f"{name}-{number}" for number, (name, _) in enumerate(EXAMPLES)]
)
def test_examples(sample_home: Path, tmp_path: Path, name: str, code: str) -> None:
    pytest.importorskip(PACKAGES[name], reason=f"uv run --group {name} has it")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(sample_home),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "local://docs/docs/" in done.stdout
