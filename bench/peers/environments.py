"""Build a virtual environment for each system, once, with exact versions."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.common import ROOT
from bench.peers.listing import SELF, Listing, System

_DONE = "recto-bench.json"
# As pip does; besides, NLTK, which LlamaIndex uses, rejects hard links.
_INSTALL = ("--compile-bytecode", "--link-mode", "copy")
_VERSIONS = """
import json, sys
from importlib.metadata import distributions
print(json.dumps({found.metadata["Name"].lower(): found.version for found in distributions()}))
"""


_MODEL = ("RECTO_MODEL", "RECTO_PRECISION")
"""The variables that choose the model, which all systems share."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter with a system, the installed versions, and their size."""

    python: Path
    path: tuple[Path, ...]
    versions: dict[str, str]
    size: int

    def variables(self) -> dict[str, str]:
        """Return the process environment: without the caller's Python settings, telemetry and network."""
        mine = {
            name: value
            for name, value in os.environ.items()
            if name in _MODEL or not name.startswith(("PYTHON", "RECTO_", "COHERE_", "QDRANT_"))
        }
        quiet = {
            "ANONYMIZED_TELEMETRY": "False",
            "HAYSTACK_TELEMETRY_ENABLED": "False",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }
        return {
            **mine,
            **quiet,
            "PYTHONPATH": os.pathsep.join(map(str, self.path)),
            "TOKENIZERS_PARALLELISM": "false",
        }


def here() -> Environment:
    """Return the running interpreter as Recto's environment: for trials, not for sizes."""
    return Environment(Path(sys.executable), (ROOT, ROOT / "src"), {}, 0)


def build(system: System, listing: Listing, cache: Path) -> Environment:
    """Install a system with the shared model, or reuse an installed one."""
    needs = [*listing.model, *system.needs]
    # Recto is installed again for every run: its sources change, but its version does not.
    folder = _install(system.name, needs, listing, cache, fresh=system.name == SELF)
    # Recto is imported as installed; the other systems import its embedder from the sources.
    path = (ROOT,) if system.name == SELF else (ROOT, ROOT / "src")
    return _described(folder, path)


def _install(name: str, needs: Sequence[str], listing: Listing, cache: Path, *, fresh: bool) -> Path:
    recipe = json.dumps([sys.version, *_INSTALL, list(needs), list(listing.pins)])
    folder = cache / "environments" / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if (folder / _DONE).exists() and not fresh:
        return folder
    print(f"Installing {name}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    constraints, overrides = folder.with_suffix(".pins.txt"), folder.with_suffix(".overrides.txt")
    constraints.write_text("\n".join(listing.pins), "utf-8")
    overrides.write_text("\n".join(listing.overrides), "utf-8")
    _run("uv", "venv", "--quiet", "--python", sys.executable, str(folder))
    paths = [str(ROOT) if need == "." else need for need in needs]
    command = ["uv", "pip", "install", "--quiet", *_INSTALL, "--python", str(_python(folder))]
    limits = ["--constraints", str(constraints), "--overrides", str(overrides)]
    _run(*command, "--reinstall-package", "recto-search", *limits, *paths)
    constraints.unlink()
    overrides.unlink()
    (folder / _DONE).write_text(recipe, "utf-8")
    return folder


def _described(folder: Path, path: tuple[Path, ...]) -> Environment:
    python = _python(folder)
    done = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, check=True, cwd=folder)
    packages = next(folder.glob("lib/python*/site-packages"), folder / "Lib" / "site-packages")
    size = sum(file.lstat().st_size for file in packages.rglob("*") if not file.is_dir())
    return Environment(python, path, json.loads(done.stdout), size)


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "VIRTUAL_ENV": ""}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed:\n{done.stderr[-2000:]}")
