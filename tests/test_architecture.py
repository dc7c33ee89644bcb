"""The house rules, checked on the source: imports point one way, files stay small, nothing hides in globals."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "routelab"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_LINES = 350

#: What a layer may import besides itself; `errors` and `_version` are open to all, as are `processes` and `stored`.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_version": set(),
    "processes": set(),
    "stored": set(),
    "data": set(),
    "ops": set(),
    "hosts": {"ops", "data"},
    "methods": {"hosts", "ops", "data"},
    "theory": {"hosts", "ops", "data"},
    "train": {"methods", "theory", "hosts", "ops", "data"},
    "evaluate": {"methods", "theory", "hosts", "ops", "data"},
    "study": {"evaluate", "methods", "theory", "hosts", "ops", "data"},
    "bench": {"train", "methods", "theory", "hosts", "ops", "data"},
    "report": set(),
}
LEAVES = {"errors", "_version", "processes", "stored"}
HEAVY = {"torch", "transformers", "trl", "datasets", "matplotlib", "scipy", "pandas"}


def part(path: Path) -> str:
    """The layer a file belongs to: its folder, or its own name at the top."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide which layer is meant"
            yield node.module or "", node


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_file(path: Path) -> None:
    tree, layer = parsed(path), part(path)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
    assert path.name != "utils.py"
    assert ast.get_docstring(tree) or not path.read_text(encoding="utf-8").strip(), "a module says what it is for"
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Global)]
    for module, _ in imports(tree):
        top = module.split(".")[0]
        if layer in {"ops", "data", "report", "errors"} or path.name == "layer.py":
            assert top != "transformers", f"{module} in a layer that must not know it"
        if layer == "report":
            assert top != "torch"
        if top == "routelab" and layer in ALLOWED and module != "routelab":
            target = module.split(".")[1]
            assert target in ALLOWED[layer] | LEAVES | {layer}, f"{layer} must not import {target}"


def test_methods_never_import_each_other() -> None:
    for folder in sorted((SOURCE / "methods").iterdir()):
        for path in folder.glob("*.py") if folder.is_dir() else []:
            for module, _ in imports(parsed(path)):
                parts = module.split(".")
                if parts[:2] == ["routelab", "methods"] and (SOURCE / "methods" / parts[2]).is_dir():
                    assert parts[2] == folder.name, f"{path.name} of {folder.name} imports {module}"


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in {"list", "dict", "set"}


def test_no_module_level_mutable_state() -> None:
    """Literal tables are fine where they are never written: their name is upper case and nothing stores into it."""
    for path in FILES:
        tree = parsed(path)
        tables = {}
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            for target in targets:
                if isinstance(target, ast.Name) and isinstance(value, ast.expr) and _is_mutable(value):
                    tables[target.id] = node.lineno
        assert all(name.lstrip("_").isupper() or name == "__all__" for name in tables), f"{path}: {tables}"
        for node in ast.walk(tree):
            stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
            if stored and isinstance(node.value, ast.Name):
                assert node.value.id not in tables, f"{path}:{node.lineno} writes into a module-level table"
            method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            if method and isinstance(method.value, ast.Name) and method.value.id in tables:
                assert method.attr not in {"append", "update", "add", "setdefault", "pop", "clear", "extend"}


def test_errors_are_named() -> None:
    """No bare ValueError, RuntimeError or Exception is raised on purpose."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                assert node.exc.func.id not in {"ValueError", "RuntimeError", "Exception", "KeyError"}, (
                    f"{path}:{node.lineno} raises an unnamed error"
                )


LIGHT = [SOURCE / "__init__.py", SOURCE / "errors.py"]
LIGHT += [path for folder in ("cli", "recipe") for path in sorted((SOURCE / folder).glob("*.py"))]


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: str(path.relative_to(SOURCE)))
def test_light_modules_import_nothing_heavy(path: Path) -> None:
    """What `--help` needs imports the heavy libraries inside functions only."""
    for node in parsed(path).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module, _ in imports(node):
                assert module.split(".")[0] not in HEAVY
