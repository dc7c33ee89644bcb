"""The recipe of a run on working sets: one recurrent host answers the same questions under several conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from routelab.errors import RecipeError, RoutelabError, closest
from routelab.methods.wise.config import CONDITIONS, WISEConfig
from routelab.recipe.reading import CHECKED, TUPLE, Seed, build, expect, refuse_unknown
from routelab.recipe.specs import HostSpec

#: The generator of questions over paragraphs of the mini-world.
MINI = "mini-paragraphs"
#: What a sweep may vary, one at a time.
SWEPT = ("mass", "discovery_steps", "window", "block_size")


@dataclass(frozen=True, config=CHECKED)
class QuestionSpec:
    """Which questions are asked, in contexts of which lengths.

    ``source`` is ``mini-paragraphs`` (``hops`` of reasoning, 1 or 2), or a file or hub name of HotpotQA or
    2WikiMultiHopQA rows, of which ``pool`` are read (default: all) to fill contexts with. ``limit`` questions are
    asked. ``contexts`` are lengths in tokens; the first is the one that sweeps are made at. ``prompt`` is the host's
    ``chat`` template or ``plain`` completion.
    """

    source: str = MINI
    split: str | None = None
    limit: int = Field(default=200, ge=1)
    pool: int | None = Field(default=None, ge=1)
    hops: Literal[1, 2] = 2
    contexts: Annotated[tuple[Annotated[int, Field(strict=True, ge=32)], ...], TUPLE] = Field(
        default=(256,), min_length=1
    )
    prompt: Literal["chat", "plain"] = "chat"
    max_new_tokens: int = Field(default=16, ge=1)
    batch_size: int = Field(default=16, ge=1)
    expected_rows: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, config=CHECKED)
class MeasureSpec:
    """On how many of the questions the inside is looked at: ``routing`` (block masses: densities, retained mass,
    stability) and ``convergence`` (the four convergence times). 0 leaves a measure out."""

    routing: int = Field(default=50, ge=0)
    convergence: int = Field(default=30, ge=0)


@plain_dataclass(frozen=True)
class Variant:
    """One way to answer: a name, unique in its run, and the configuration it stands for."""

    name: str
    config: WISEConfig


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class WorkingSetsRecipe:
    """One run. Seeds are those of the initial state. ``wise`` are the values of ``WISEConfig`` that all conditions
    share; ``sweeps`` give, per value, further values at which WISE is run, the others as in ``wise``."""

    kind: Literal["working-sets"] = "working-sets"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    host: HostSpec
    num_steps: int = Field(default=32, ge=2)
    conditions: Annotated[tuple[str, ...], TUPLE] = (
        "full",
        "static",
        "mass_matched",
        "size_matched",
        "freeze",
        "truncate",
        "wise",
    )
    wise: dict[str, Any] = Field(default_factory=dict)
    sweeps: dict[str, Annotated[tuple[int | float, ...], TUPLE]] = Field(default_factory=dict)
    seeds: Annotated[tuple[Seed, ...], TUPLE] = Field(default=(0, 1, 2), min_length=1)
    questions: QuestionSpec = Field(default_factory=QuestionSpec)
    measure: MeasureSpec = Field(default_factory=MeasureSpec)
    title: str = ""
    note: str = ""

    @property
    def base(self) -> WISEConfig:
        """WISE as this run has it."""
        return WISEConfig(**self.wise)

    @property
    def variants(self) -> list[Variant]:
        """The conditions, in order."""
        return [Variant(each, replace(self.base, condition=each)) for each in self.conditions]

    @property
    def swept(self) -> list[Variant]:
        """WISE at every value of the sweeps other than its own."""
        return [
            Variant(f"{field}-{value}", WISEConfig(**{**self.wise, field: value}))
            for field, values in self.sweeps.items()
            for value in values
            if value != getattr(self.base, field)
        ]


def parse_working_sets(values: Mapping[str, Any], origin: str) -> WorkingSetsRecipe:
    """Build a recipe of this kind from plain values; ``origin`` is the name that errors give to their source."""
    sections = dict(values)
    refuse_unknown(WorkingSetsRecipe, sections, origin, "")
    for key, cls in (("host", HostSpec), ("questions", QuestionSpec), ("measure", MeasureSpec)):
        if key in sections:
            sections[key] = build(cls, sections[key], origin, key)
    wise = expect(dict, sections.get("wise", {}), origin, "wise")
    refuse_unknown(WISEConfig, wise, origin, "wise")
    if "condition" in wise:
        raise RecipeError(f"{origin}: wise.condition: the conditions of a run are listed under conditions")
    recipe: WorkingSetsRecipe = build(WorkingSetsRecipe, sections, origin, "")
    for condition in recipe.conditions:
        if condition not in CONDITIONS:
            raise RecipeError(
                f"{origin}: conditions: no condition is called {condition!r}{closest(condition, CONDITIONS)}"
            )
    if not {"full", "wise"} <= set(recipe.conditions):
        raise RecipeError(f"{origin}: conditions: every run has 'full' and 'wise', which the others are compared with")
    for field in recipe.sweeps:
        if field not in SWEPT:
            raise RecipeError(f"{origin}: sweeps: {field!r} cannot be swept{closest(field, SWEPT)}")
    for what, given in (("conditions", recipe.conditions), ("seeds", recipe.seeds), *recipe.sweeps.items()):
        if len(set(given)) < len(given):
            raise RecipeError(f"{origin}: {what}: {list(given)} names one twice")
    try:
        variants = [*recipe.variants, *recipe.swept]
    except RoutelabError as error:
        raise RecipeError(f"{origin}: wise: {error}") from error
    for each in variants:
        depth = each.config.discovery_steps
        if depth >= recipe.num_steps:
            raise RecipeError(
                f"{origin}: {each.name}: discovery_steps={depth} leaves none of the {recipe.num_steps} steps for reuse"
            )
    return recipe
