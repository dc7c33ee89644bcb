"""A recipe: one YAML file that describes one run, read into frozen dataclasses.

    name: mini-aar
    title: Attention-aware routing on mini-moe
    host: {name: mini-moe, dtype: float32}
    arms:
      aar: [{method: aar, layers: all, window: 40}]
      routing-only: [{method: routing_only}]
    control: routing-only
    seeds: [0, 1, 2]
    data: [{source: mini-arithmetic, split: train, limit: 2000}]
    train: {steps: 100, batch_size: 8, learning_rate: 1e-3}
    evaluate: [{task: mini-arithmetic, limit: 200}]

Every key is checked: an unknown one is refused with the file, the path of the key and the nearest known key. The
resolved recipe, with all defaults written out, goes through YAML and back without change.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from routelab.errors import ConfigError, RecipeError, RoutelabError, closest
from routelab.methods.registry import METHODS, config_class
from routelab.train.config import TrainConfig

# Strict: YAML has types, so ``true`` is no number and ``1.0`` no count; only tuples are written as lists.
_CHECKED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_Tuple = Field(strict=False)
_ARM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
Scalar = str | int | float | bool | None
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


class _Loader(yaml.SafeLoader):
    """YAML in which ``1e-3`` is a number, as everywhere else; YAML 1.1 reads it as text for want of a dot."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


@dataclass(frozen=True, config=_CHECKED)
class HostSpec:
    """The model that every arm starts from: a shipped mini, a directory or a hub name.

    ``config`` names a JSON file with the host's public configuration values (a path, or one that is shipped, such
    as ``olmoe-1b-7b-0125``). ``--dry-run`` builds the host from it on the meta device, so that a recipe can be
    checked where its weights are not.
    """

    name: str
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    config: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True, config=_CHECKED)
class MethodSpec:
    """One method of an arm: its registered name and its typed configuration."""

    method: str
    config: Any


@dataclass(frozen=True, config=_CHECKED)
class DataSpec:
    """One source of training rows: a mini-world generator (``mini-arithmetic``, ...), a file here or below
    ``ROUTELAB_DATA``, or a hub name (``split`` then defaults to ``train``).

    ``format`` is the form of the rows (``messages``, ``gsm8k``, ``alpaca``, ...; generators have their own). ``limit``
    and ``fraction`` keep part of the rows, drawn with ``seed``; all arms and seeds train on the same rows. ``options``
    go to a generator. ``expected_rows`` lets ``--dry-run`` count steps where a hub's data is not at hand.
    """

    source: str
    split: str | None = None
    format: str = "messages"
    limit: int | None = Field(default=None, ge=1)
    fraction: float | None = Field(default=None, gt=0, le=1)
    seed: int = 0
    options: dict[str, Scalar | Annotated[tuple[Scalar, ...], _Tuple]] = Field(default_factory=dict)
    expected_rows: int | None = Field(default=None, ge=1)

    def kept(self, rows: int) -> int:
        """Return how many of ``rows`` rows are trained on."""
        wanted = rows if self.fraction is None else max(1, round(rows * self.fraction))
        return wanted if self.limit is None else min(wanted, self.limit)


@dataclass(frozen=True, config=_CHECKED)
class TaskSpec:
    """One evaluation: the task's registered name, how many examples, and the task's own options."""

    task: str
    limit: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=16, ge=1)
    max_new_tokens: int | None = Field(default=None, ge=1)
    num_samples: int = Field(default=1, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    options: dict[str, Scalar] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, config=_CHECKED)
class Recipe:
    """One run. ``control`` is the arm that the others are compared with; ``title`` and ``note`` head the report."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    host: HostSpec
    arms: dict[str, tuple[MethodSpec, ...]] = Field(min_length=1)
    control: str
    seeds: Annotated[tuple[Seed, ...], _Tuple] = Field(min_length=1)
    data: tuple[DataSpec, ...] = Field(min_length=1)
    train: TrainConfig
    evaluate: tuple[TaskSpec, ...] = Field(min_length=1)
    title: str = ""
    note: str = ""


def load_recipe(name: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, or a shipped one by name (``mini/aar``), with ``key.path=value`` overrides.

    Raises ``RecipeError`` naming the file and the key path for anything that is unknown, missing or out of domain.
    """
    path = recipe_path(name)
    values = _read(read_text(path), str(path))
    if not isinstance(values, dict):
        raise RecipeError(f"{path} must hold a mapping of keys, not {type(values).__name__}")
    for override in overrides:
        _override(values, override)
    return parse_recipe(values, str(name))


def parse_recipe(values: Mapping[str, Any], origin: str) -> Recipe:
    """Build a ``Recipe`` from plain values; ``origin`` is the name that errors give to their source."""
    sections = dict(values)
    _refuse_unknown(Recipe, sections, origin, "")
    for key, cls in (("host", HostSpec), ("train", TrainConfig)):
        if key in sections:
            sections[key] = _build(cls, sections[key], origin, key)
    for key, entry in (("data", DataSpec), ("evaluate", TaskSpec)):
        if key in sections:
            rows = _expect(list, sections[key], origin, key)
            sections[key] = tuple(_build(entry, row, origin, f"{key}.{i}") for i, row in enumerate(rows))
    if "arms" in sections:
        arms = _expect(dict, sections["arms"], origin, "arms")
        sections["arms"] = {str(arm): _methods(rows, origin, f"arms.{arm}") for arm, rows in arms.items()}
    recipe = _build(Recipe, sections, origin, "")
    _check_whole(recipe, origin)
    return recipe


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """Return the resolved recipe as plain values, every default written out; ``parse_recipe`` gives it back."""
    return {field.name: _plain(getattr(recipe, field.name)) for field in dataclasses.fields(recipe)}


def recipe_yaml(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML text."""
    return yaml.safe_dump(recipe_values(recipe), sort_keys=False, allow_unicode=True)


def first_difference(old: Any, new: Any, path: str = "") -> str | None:
    """Return the first key path at which two plain recipes differ, with both values, or None when they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(key, old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new])]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = list(zip(map(str, range(len(old))), old, new, strict=True))
    else:
        return None if old == new else f"{path} ({old!r} there, {new!r} now)"
    found = (first_difference(a, b, f"{path}.{key}" if path else str(key)) for key, a, b in pairs)
    return next((difference for difference in found if difference), None)


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes of the package by name, such as ``mini/aar``."""
    root = Path(str(resources.files("routelab"))) / "recipes"
    return {str(path.relative_to(root).with_suffix("")): path for path in sorted(root.rglob("*.yaml"))}


def recipe_path(name: str | Path) -> Path:
    """Return the file of a recipe given as a path or as the name of a shipped one."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if str(name) in shipped:
        return shipped[str(name)]
    raise RecipeError(f"no recipe file and no shipped recipe is called {str(name)!r}{closest(str(name), shipped)}")


def read_text(path: Path) -> str:
    """Return the text of a recipe file; raises ``RecipeError`` when it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read as UTF-8 text: {error}") from error


def host_config_path(name: str) -> Path:
    """Return the JSON file that ``host.config`` names: a path, or a configuration shipped with the package."""
    path = Path(name)
    if path.is_file():
        return path
    root = Path(str(resources.files("routelab"))) / "recipes" / "paper" / "hosts"
    shipped = {file.stem: file for file in root.glob("*.json")}
    if name in shipped:
        return shipped[name]
    raise RecipeError(f"host.config: no file and no shipped configuration is called {name!r}{closest(name, shipped)}")


def _methods(rows: Any, origin: str, where: str) -> tuple[MethodSpec, ...]:
    specs = []
    if rows == []:
        raise RecipeError(
            f"{origin}: {where} has no method, so there is nothing to train; the host itself is measured anyway"
        )
    for i, row in enumerate(_expect(list, rows, origin, where)):
        at = f"{where}.{i}"
        values = dict(_expect(dict, row, origin, at))
        method = values.pop("method", None)
        if method is None:
            raise RecipeError(f"{origin}: {at}.method is missing{closest('', METHODS)}")
        if not isinstance(method, str) or method not in METHODS:
            raise RecipeError(f"{origin}: {at}.method: no method is called {method!r}{closest(str(method), METHODS)}")
        specs.append(MethodSpec(method, _build(config_class(method), values, origin, at)))
    return tuple(specs)


def _check_whole(recipe: Recipe, origin: str) -> None:
    if recipe.control not in recipe.arms:
        raise RecipeError(
            f"{origin}: control: no arm is called {recipe.control!r}{closest(recipe.control, recipe.arms)}"
        )
    if len(set(recipe.seeds)) < len(recipe.seeds):
        raise RecipeError(f"{origin}: seeds: {list(recipe.seeds)} names a seed twice")
    tasks = [spec.task for spec in recipe.evaluate]
    if len(set(tasks)) < len(tasks):
        raise RecipeError(f"{origin}: evaluate: {tasks} names a task twice")
    for arm in recipe.arms:
        if not _ARM.fullmatch(arm):
            rule = "letters, digits, '.', '_', '-' and '+', starting with a letter or digit"
            raise RecipeError(f"{origin}: arms: {arm!r} cannot be an arm's name; it takes {rule}")
        if arm == "base":
            raise RecipeError(f"{origin}: arms: 'base' cannot be a folder of an arm: the host's records lie there")


def _build(cls: type, values: Any, origin: str, where: str) -> Any:
    values = _expect(dict, values, origin, where)
    _refuse_unknown(cls, values, origin, where)
    try:
        return cls(**values)
    except ValidationError as error:
        raise RecipeError(f"{origin}: " + "; ".join(_sentences(error, where))) from error
    except RoutelabError as error:
        raise RecipeError(f"{origin}: {where}: {error}") from error


def _sentences(error: ValidationError, where: str) -> Iterable[str]:
    for item in error.errors(include_url=False):
        keys = [where, *map(str, item["loc"])]
        path = ".".join(key for key in keys if key)
        if item["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
            yield f"{path} is missing"
        else:
            given = "" if isinstance(item["input"], dict) else f" (given: {item['input']!r})"
            yield f"{path}: {item['msg'].removeprefix('Value error, ')}{given}"


def _refuse_unknown(cls: type, values: Mapping[str, Any], origin: str, where: str) -> None:
    known = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in known:
            path = f"{where}.{key}" if where else str(key)
            raise RecipeError(f"{origin}: unknown key {path!r}{closest(str(key), known)}")


def _expect(kind: type, value: Any, origin: str, where: str) -> Any:
    if not isinstance(value, kind):
        wanted = "a mapping of keys" if kind is dict else "a list"
        raise RecipeError(f"{origin}: {where or 'the recipe'} must be {wanted}, not {value!r}")
    return value


def assignments(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """Return ``key=value`` texts as a mapping, the values read as YAML; ``option`` is their name in errors.

    Raises ``RecipeError`` for a text without a key or without ``=``.
    """
    found = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key.strip():
            raise RecipeError(f"{option} {pair!r}: write key=value")
        found[key.strip()] = _read(text, f"{option} {pair!r}")
    return found


def _override(values: dict[str, Any], override: str) -> None:
    ((path, value),) = assignments([override], "--set").items()
    keys = path.split(".")
    node: Any = values
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                at = ".".join(keys[:depth])
                raise RecipeError(f"--set {override!r}: {at} has {len(node)} entries, numbered from 0; {key!r} is none")
            slot: Any = int(key)
        elif isinstance(node, dict):
            slot = key
            if not last:
                node.setdefault(key, {})
        else:
            raise RecipeError(f"--set {override!r}: {'.'.join(keys[:depth])} is a value and has no keys")
        if last:
            node[slot] = value
        else:
            node = node[slot]


def _read(text: str, origin: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{origin} is not valid YAML: {' '.join(str(error).split())}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, MethodSpec):
        return {"method": value.method, **_plain(value.config)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ConfigError(f"a recipe holds plain values only, not {type(value).__name__}")
