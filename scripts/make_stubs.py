"""Write the typing stubs of the packages that load their public names when they are first used.

Run it after a change of `_EXPORTS`: ``uv run python -m scripts.make_stubs``. A test compares the stubs with
the output of this script.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = ("recto", "recto.evaluation")
LINE_LENGTH = 110


def stub_path(package: str) -> Path:
    """Return the path of the stub of a package."""
    return SOURCE.joinpath(*package.split("."), "__init__.pyi")


def build(package: str) -> str:
    """Return the stub of a package: the imports of its public names, and `__all__`."""
    contents = vars(import_module(package))
    imports = [_import(module, names.split()) for module, names in contents["_EXPORTS"].items()]
    version = ["", "__version__: str"] if "__version__" in contents else []
    public = (f'    "{name}",' for name in contents["__all__"])
    note = "# scripts/make_stubs.py writes this file."
    return "\n".join((note, *imports, *version, "", "__all__ = [", *public, "]", ""))


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join((f"from {module} import (", *(f"    {name}," for name in names), ")"))


if __name__ == "__main__":
    for name in PACKAGES:
        stub_path(name).write_text(build(name), "utf-8")
