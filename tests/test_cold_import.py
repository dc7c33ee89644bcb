"""Starting is quick: the package, recipes and every ``--help`` leave the heavy libraries alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "trl", "datasets", "matplotlib", "scipy", "numpy", "jinja2")
COMMANDS = (
    *("", "demo", "run", "generate", "trace", "evaluate", "chat", "export", "construct", "report"),
    *("bench", "bench window", "bench pathlock", "bench table1", "bench working-set", "recipes", "doctor"),
    *("compare", "lm-eval", "study", "study acf", "study depth", "study convergence"),
)

HELP = """
import sys
from routelab.cli import app
for command in {commands!r}:
    try:
        app([*command.split(), "--help"], prog_name="routelab")
    except SystemExit as stop:
        assert not stop.code, (command, stop.code)
found = sorted(set({heavy!r}) & set(sys.modules))
assert not found, found
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_help_imports_anything_heavy() -> None:
    shown = run(HELP.format(commands=COMMANDS, heavy=HEAVY))
    assert shown.count("Usage: routelab") == len(COMMANDS)


@pytest.mark.parametrize("module", ["routelab", "routelab.errors", "routelab.cli"])
def test_light_modules(module: str) -> None:
    run(f"import sys, {module}; found = set({HEAVY!r}) & set(sys.modules); assert not found, found")


@pytest.mark.parametrize("module", ["routelab.recipe", "routelab.rundir", "routelab.manifest", "routelab.data"])
def test_recipes_and_data_need_no_torch(module: str) -> None:
    run(f"import sys, {module}; found = {{'torch', 'transformers', 'trl'}} & set(sys.modules); assert not found, found")
