"""The recipe of a training run: arms of methods on one host, trained, evaluated, compared with a control."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from routelab.errors import RecipeError, closest
from routelab.methods.registry import METHODS, config_class
from routelab.recipe.inside import HarnessSpec, StudySpec, parse_studies
from routelab.recipe.reading import CHECKED, TUPLE, Seed, build, expect, refuse_unknown
from routelab.recipe.specs import DataSpec, HostSpec, MethodSpec, TaskSpec
from routelab.train.config import TrainConfig

_ARM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Recipe:
    """One run. ``control`` is the arm that the others are compared with; ``title`` and ``note`` head the report.

    ``study`` names what is measured inside all models: ``alignment``, which experts each task of ``evaluate`` uses.
    ``studies`` look at the first seed of the headline arm against the control's, and tasks of the ``harness`` are run
    on both and on the host.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    host: HostSpec
    arms: dict[str, tuple[MethodSpec, ...]] = Field(min_length=1)
    control: str
    seeds: Annotated[tuple[Seed, ...], TUPLE] = Field(min_length=1)
    data: tuple[DataSpec, ...] = Field(min_length=1)
    train: TrainConfig
    evaluate: tuple[TaskSpec, ...] = Field(min_length=1)
    study: Annotated[tuple[Literal["alignment"], ...], TUPLE] = ()
    studies: tuple[StudySpec, ...] = ()
    harness: HarnessSpec | None = None
    title: str = ""
    note: str = ""

    @property
    def headline(self) -> str:
        """The arm that the verdict is about: the first that is not the control, or the control where it is alone."""
        return next((arm for arm in self.arms if arm != self.control), self.control)


def parse_training(values: Mapping[str, Any], origin: str) -> Recipe:
    """Build a ``Recipe`` from plain values; ``origin`` is the name that errors give to their source."""
    sections = dict(values)
    refuse_unknown(Recipe, sections, origin, "")
    for key, cls in (("host", HostSpec), ("train", TrainConfig)):
        if key in sections:
            sections[key] = build(cls, sections[key], origin, key)
    for key, entry in (("data", DataSpec), ("evaluate", TaskSpec)):
        if key in sections:
            rows = expect(list, sections[key], origin, key)
            sections[key] = tuple(build(entry, row, origin, f"{key}.{i}") for i, row in enumerate(rows))
    if "arms" in sections:
        arms = expect(dict, sections["arms"], origin, "arms")
        sections["arms"] = {str(arm): _methods(rows, origin, f"arms.{arm}") for arm, rows in arms.items()}
    if "studies" in sections:
        sections["studies"] = parse_studies(sections["studies"], origin)
    if sections.get("harness") is not None:
        sections["harness"] = build(HarnessSpec, sections["harness"], origin, "harness")
    recipe = build(Recipe, sections, origin, "")
    _check_whole(recipe, origin)
    return recipe


def _methods(rows: Any, origin: str, where: str) -> tuple[MethodSpec, ...]:
    specs = []
    if rows == []:
        raise RecipeError(
            f"{origin}: {where} has no method, so there is nothing to train; the host itself is measured anyway"
        )
    for i, row in enumerate(expect(list, rows, origin, where)):
        at = f"{where}.{i}"
        values = dict(expect(dict, row, origin, at))
        method = values.pop("method", None)
        if method is None:
            raise RecipeError(f"{origin}: {at}.method is missing{closest('', METHODS)}")
        if not isinstance(method, str) or method not in METHODS:
            raise RecipeError(f"{origin}: {at}.method: no method is called {method!r}{closest(str(method), METHODS)}")
        specs.append(MethodSpec(method, build(config_class(method), values, origin, at)))
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
    _check_studies(recipe, origin)


def _check_studies(recipe: Recipe, origin: str) -> None:
    names = [spec.study for spec in recipe.studies]
    harness = [] if recipe.harness is None else list(recipe.harness.tasks)
    for key, given in (("studies", names), ("harness.tasks", harness)):
        if len(set(given)) < len(given):
            raise RecipeError(f"{origin}: {key}: {given} names one twice")
    if names and recipe.headline == recipe.control:
        raise RecipeError(f"{origin}: studies: they look at an arm against the control, and there is no other arm")
    methods = [spec.method for spec in recipe.arms[recipe.headline]]
    if "gates" in names and "aar" not in methods:
        raise RecipeError(
            f"{origin}: studies: 'gates' are those of attention-aware routing, and {recipe.headline!r} has "
            f"{', '.join(methods)}; put an arm of the method 'aar' first, or leave 'gates' out"
        )
