"""Write the typing stubs of the packages that load their public names when they are first used.

Run it after a change of `_EXPORTS`: ``uv run python -m scripts.make_stubs``. A test compares the stubs with
the output of this script.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = ("recto", "recto.evaluation")


def stub_path(package: str) -> Path:
    """Return the path of the stub of a package."""
    return SOURCE.joinpath(*package.split("."), "__init__.pyi")


def build(package: str) -> str:
    """Return the stub of a package: an import for each name."""
    exports: dict[str, str] = vars(import_module(package))["_EXPORTS"]
    imports = [
        f"from {module} import {name} as {name}"
        for module, names in exports.items()
        for name in names.split()
    ]
    version = ["", "__version__: str"] if package == "recto" else []
    return "\n".join(("# scripts/make_stubs.py writes this file.", *imports, *version, ""))


if __name__ == "__main__":
    for name in PACKAGES:
        stub_path(name).write_text(build(name), "utf-8")
