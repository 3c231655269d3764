"""Commands of npm, which the plugin npm2yarn also shows for other package managers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from recto._util.markdown import code_fences
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import Directive

NPM2YARN = "npm2yarn"
_RUNNERS = {"yarn": "yarn dlx", "pnpm": "pnpm dlx", "bun": "bun x"}
_NPM = re.compile(r"npm(?:[ ]++([^&\n]*[^&\s]))?")
_LONG = {"i": "install", "un": "uninstall", "remove": "uninstall", "rm": "uninstall", "t": "test"}
_SAVE = {"--save": "", "-S": ""}
_OPTIONS = {"-D": "--dev", "-P": "--production", "-O": "--optional", "-E": "--exact", "-g": "--global"}
_OPTIONS |= {f"--save-{option[2:]}": option for option in ("--dev", "--optional", "--exact")}
_OPTIONS |= {"--save-prod": "--production", **_SAVE}
_KNOWN = ("run", "exec", "test", "start", "stop", "link", "unlink")
_OF_YARN = frozenset(
    {"add", "audit", "check", "config", "info", "init", "install", "link", "list", "pack", "publish"}
    | {"start", "stop", "test", "version", "why"}
)
"""Scripts that yarn starts only with `run`."""


def managers(plugins: Any) -> list[str]:
    """Return the package managers that the options of the plugin state, else its usual ones."""
    options = (get(plugin, "1", "converters") for plugin in (plugins if isinstance(plugins, list) else ()))
    stated = next((names for names in options if isinstance(names, list)), list(_RUNNERS))
    return [name for name in stated if name in list(_RUNNERS)]


def find_commands(text: str, names: Sequence[str]) -> Iterator[Directive]:
    """Find the fences with commands of npm, which are repeated for the other package managers."""
    for opened, closed in code_fences(text) if NPM2YARN in text else ():
        if closed is not None and opened[0].split()[1:] == [NPM2YARN]:
            code, fences = text[opened.end() : closed.start()], list[str]()
            for name in ("npm", *names):
                label = name if "npm" in name else name.title()
                info = opened[0].replace(NPM2YARN, f'title="{label}"')
                fences.append(f"{info}{_converted(code, name)}{closed[0]}")
            yield Directive(opened.start(), closed.end(), new="\n\n".join(fences))


def _converted(code: str, manager: str) -> str:
    """Return code with the commands of a package manager instead of those of npm."""
    if manager == "npm":
        return code
    if code.lstrip().startswith("npx "):
        return code.replace("npx", _RUNNERS[manager], 1)
    return _NPM.sub(lambda npm: _command((npm[1] or "").split(), manager), code)


def _command(words: list[str], manager: str) -> str:
    """Return the words after `npm` as a command of another package manager."""
    name, *rest = [word for word in words if word != "--"] or [""]
    name, program = _LONG.get(name, name), manager
    stated = bool(rest) and not rest[0].startswith("-")
    if name in ("install", "uninstall"):
        packages = [word for word in rest if manager != "pnpm" or not word.startswith("-")]
        name = "remove" if name == "uninstall" else "add" if packages else name
        rest = [(_SAVE if manager == "pnpm" else _OPTIONS).get(word, word) for word in rest]
        if manager == "yarn" and "--global" in rest:
            name = f"global {name}"
            rest.remove("--global")
    elif name in ("init", "create") and stated:
        package = rest[0].replace("@latest", "")
        program, name = ("bunx", "") if manager == "bun" else (manager, "create")
        scope, slash, package = package.rpartition("/") if manager == "bun" else ("", "", package)
        rest[0] = f"{scope}{slash}{'create-' * (manager == 'bun')}{package}"
    elif name == "run" and manager == "yarn" and stated and rest[0] not in _OF_YARN:
        name = ""
    elif name == "exec" and manager != "pnpm":
        program, name = ("bunx", "") if manager == "bun" else (manager, "")
    elif name == "test" and manager == "bun":
        name = "run test"
    elif name not in _KNOWN and (manager != "yarn" or name not in _OF_YARN):
        program, rest = "npm", [*rest, "# couldn't auto-convert command"]
    return " ".join(filter(None, (program, name, *rest)))
