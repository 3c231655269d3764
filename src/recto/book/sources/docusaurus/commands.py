"""Commands of npm, which the plugin npm2yarn also shows for other package managers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recto._util.markdown import code_fences
from recto.book.sources.includes import Directive

_MANAGERS = {"npm": "npx", "yarn": "yarn dlx", "pnpm": "pnpm dlx", "bun": "bun x"}
"""The package managers, and what runs a package with each."""
_NPM = re.compile(r"np(?:m[ ]([^&\n]*[^&\s])|x(?=[ ]))")
_OTHER = re.compile(r"\bnpm (?!(?:i|install|un|uninstall|rm|run|start)\b)| (?:-[gEOP]|--global)\b")
"""Commands that each package manager writes in its own way, which are only shown for npm."""
_NAMES = {"i": "add", "install": "add", "un": "remove", "uninstall": "remove", "rm": "remove"}
_OPTIONS = {"--save": "", "-S": "", "-D": "--dev", "--save-dev": "--dev"}


def find_commands(text: str) -> Iterator[Directive]:
    """Find the fences with commands of npm, which are repeated for the other package managers."""
    for opened, closed in code_fences(text) if "npm2yarn" in text else ():
        if closed is not None and opened[0].split()[1:] == ["npm2yarn"]:
            code, fences = text[opened.end() : closed.start()], list[str]()
            for name in ["npm"] if _OTHER.search(code) else _MANAGERS:
                label = name if "npm" in name else name.title()
                info = opened[0].replace("npm2yarn", f'title="{label}"')
                fences.append(f"{info}{_converted(code, name)}{closed[0]}")
            yield Directive(opened.start(), closed.end(), new="\n\n".join(fences))


def _converted(code: str, manager: str) -> str:
    """Return code with the commands of a package manager instead of those of npm."""

    def command(npm: re.Match[str]) -> str:
        if npm[1] is None:
            return _MANAGERS[manager]
        name, *rest = [word for word in npm[1].split() if word != "--"] or [""]
        if name in _NAMES:
            name = _NAMES[name] if rest else "install"
            rest = [word if manager == "pnpm" else _OPTIONS.get(word, word) for word in rest]
        return " ".join(filter(None, (manager, name, *rest)))

    return code if manager == "npm" else _NPM.sub(command, code)
