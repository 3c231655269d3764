"""The guide lists all commands with their own help, and its scripts run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from recto.cli.shell.actions import COMMANDS
from tests.running import ROOT, environment

GUIDE = (ROOT / "docs" / "how-to" / "shell.md").read_text("utf-8")


def test_the_table_has_all_commands() -> None:
    rows = dict(re.findall(r"^\| `:(\w+) ?(.*?)` \|", GUIDE, re.MULTILINE))
    assert list(rows) == [command.name for command in COMMANDS]
    assert {name: usage.replace("\\|", "|") for name, usage in rows.items()} == {
        command.name: command.usage for command in COMMANDS
    }
    for command in COMMANDS:
        assert f"| {command.summary.partition(';')[0]}" in GUIDE, command.name


def test_the_scripts_shown_run(sample_home: Path, tmp_path: Path) -> None:
    (tmp_path / "questions.txt").write_text("What is ROS 2?\nsensors\n")
    program = f"{shlex.quote(sys.executable)} -m recto"
    ((_, script),) = [
        (found, body) for found, body in re.findall(r"(```text)\n(printf .*?)```", GUIDE, re.DOTALL)
    ]
    for line in script.strip().split("\n"):
        command = re.sub(r"\brecto\b", program, line)
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=environment(sample_home),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), line
    assert (tmp_path / "answers.json").read_text().count('"total_found": 5') == 2
