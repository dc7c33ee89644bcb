"""What commands share: places that cannot be written are named before the work."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from routelab.cli import app
from routelab.errors import ConfigError

COMMANDS = (
    ["compare", "a", "b", "--out"],
    ["bench", "working-set", "--length", "64", "--out"],
    ["evaluate", "--task", "mini-facts", "--limit", "1", "--out"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_unwritable_place_is_named_before_the_work(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = CliRunner().invoke(app, [*command, str(tmp_path / "file" / "found.json")])
    assert isinstance(done.exception, ConfigError)
    assert "its folder cannot be made" in str(done.exception)


@pytest.mark.parametrize("command", COMMANDS[:2], ids=lambda command: command[0])
def test_directory_in_place_of_a_file(command: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*command, str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert "it is a directory; name a file in it" in str(done.exception)
