"""The recipe of a run on hybrid thinking: one host taught to think and not to think, in several ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from routelab.data.hybrid.config import HybridConfig, Limits
from routelab.errors import RecipeError, closest
from routelab.recipe.reading import CHECKED, TUPLE, Scalar, Seed, build, expect, refuse_unknown
from routelab.recipe.specs import HostSpec, TaskSpec
from routelab.train.config import TrainConfig


@plain_dataclass(frozen=True)
class ModeArm:
    """What an arm trains: ``method`` on the rows of ``mode`` (None: of both), in one phase or in two; ``average`` is
    the mean of the weights of the two specialists and trains nothing."""

    method: Literal["pathlock", "full", "average"]
    mode: Literal["think", "no_think"] | None = None
    phases: int = 1


#: The arms of arXiv 2604.27201: Path-Lock, the dense controls on the same rows, the specialists and their mean.
MODE_ARMS: Mapping[str, ModeArm] = MappingProxyType(
    {
        "path-lock": ModeArm("pathlock"),
        "sft": ModeArm("full"),
        "sft-two-phase": ModeArm("full", phases=2),
        "think-only": ModeArm("full", mode="think"),
        "no_think-only": ModeArm("full", mode="no_think"),
        "average": ModeArm("average"),
    }
)


@dataclass(frozen=True, config=CHECKED)
class HybridSpec:
    """Where the hybrid corpus comes from.

    ``source`` is a generator (``mini-arithmetic``) that takes ``options``, or a file below ``ROUTELAB_DATA``, of which
    ``limit`` rows are drawn with ``seed``. ``format`` names a reader of ``routelab.data.hybrid``, to which ``reader``
    goes. ``condense`` puts the bare gold answer in the place of every no_think answer (appendix A.11). With
    ``expected_rows``, ``--dry-run`` needs no file.
    """

    source: str
    format: str = "mini-arithmetic"
    limit: int | None = Field(default=None, ge=1)
    seed: int = 0
    options: dict[str, Scalar | Annotated[tuple[Scalar, ...], TUPLE]] = Field(default_factory=dict)
    reader: dict[str, Scalar] = Field(default_factory=dict)
    condense: bool = False
    expected_rows: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, config=CHECKED)
class VariantSpec:
    """An arm under a name of its own, for ablations: it trains as ``arm`` does, and starts from another ``host``, from
    the weights that an arm before it has trained (``after``, same seed), or trains on other ``data``."""

    arm: str
    host: HostSpec | None = None
    after: str | None = None
    data: HybridSpec | None = None


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class ModesRecipe:
    """One run. ``control`` is the arm that the others are compared with, in each mode.

    ``arms`` are names of ``MODE_ARMS`` and of ``variants``.

    ``probe`` is the number of rows of each mode on which gradients are compared before training; 0 leaves it out.
    ``crossed`` also measures every expert of Path-Lock under the other mode's control word.
    """

    kind: Literal["modes"] = "modes"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    host: HostSpec
    arms: Annotated[tuple[str, ...], TUPLE] = Field(min_length=1)
    control: str
    variants: dict[str, VariantSpec] = Field(default_factory=dict)
    seeds: Annotated[tuple[Seed, ...], TUPLE] = Field(min_length=1)
    data: HybridSpec
    hybrid: HybridConfig = Field(default_factory=HybridConfig)
    train: TrainConfig
    evaluate: TaskSpec
    probe: int = Field(default=16, ge=0)
    crossed: bool = False
    title: str = ""
    note: str = ""

    def variant(self, arm: str) -> VariantSpec:
        """Return what an arm starts from and trains on; an arm of ``MODE_ARMS`` is a variant without changes."""
        return self.variants.get(arm, VariantSpec(arm))

    def trains(self, arm: str) -> ModeArm:
        """Return what an arm trains."""
        return MODE_ARMS[self.variant(arm).arm]

    def host_of(self, arm: str) -> HostSpec:
        """Return the host that an arm starts from, or from whose training."""
        return self.variant(arm).host or self.host

    def data_of(self, arm: str) -> HybridSpec:
        """Return where the corpus of an arm comes from."""
        return self.variant(arm).data or self.data


def parse_modes(values: Mapping[str, Any], origin: str) -> ModesRecipe:
    """Build a recipe of this kind from plain values; ``origin`` is the name that errors give to their source."""
    sections = dict(values)
    refuse_unknown(ModesRecipe, sections, origin, "")
    if "hybrid" in sections:
        sections["hybrid"] = _hybrid(sections["hybrid"], origin)
    for key, cls in (("host", HostSpec), ("train", TrainConfig), ("data", HybridSpec), ("evaluate", TaskSpec)):
        if key in sections:
            sections[key] = build(cls, sections[key], origin, key)
    if "variants" in sections:
        given = expect(dict, sections["variants"], origin, "variants")
        sections["variants"] = {name: _variant(each, origin, f"variants.{name}") for name, each in given.items()}
    recipe: ModesRecipe = build(ModesRecipe, sections, origin, "")
    for arm in recipe.arms:
        if arm not in MODE_ARMS and arm not in recipe.variants:
            raise RecipeError(f"{origin}: arms: unknown arm {arm!r}{closest(arm, [*MODE_ARMS, *recipe.variants])}")
    for name, variant in recipe.variants.items():
        _check_variant(recipe, name, variant, f"{origin}: variants.{name}")
    if recipe.control not in recipe.arms:
        raise RecipeError(
            f"{origin}: control: no arm is called {recipe.control!r}{closest(recipe.control, recipe.arms)}"
        )
    if "average" in recipe.arms and not {"think-only", "no_think-only"} <= set(recipe.arms):
        raise RecipeError(f"{origin}: arms: 'average' is the mean of 'think-only' and 'no_think-only'; list them too")
    for what, given in (("arms", recipe.arms), ("seeds", recipe.seeds)):
        if len(set(given)) < len(given):
            raise RecipeError(f"{origin}: {what}: {list(given)} names one twice")
    return recipe


def _variant(values: Any, origin: str, where: str) -> VariantSpec:
    given = dict(expect(dict, values, origin, where))
    for key, cls in (("host", HostSpec), ("data", HybridSpec)):
        if given.get(key) is not None:
            given[key] = build(cls, given[key], origin, f"{where}.{key}")
    variant: VariantSpec = build(VariantSpec, given, origin, where)
    return variant


def _check_variant(recipe: ModesRecipe, name: str, variant: VariantSpec, where: str) -> None:
    if name in MODE_ARMS:
        raise RecipeError(f"{where}: {name!r} is an arm of every recipe; give the variant a name of its own")
    if name not in recipe.arms:
        raise RecipeError(f"{where}: no arm is called {name!r}{closest(name, recipe.arms)}")
    trainable = [arm for arm, spec in MODE_ARMS.items() if spec.method != "average"]
    if variant.arm not in trainable:
        raise RecipeError(f"{where}.arm: unknown arm {variant.arm!r}{closest(variant.arm, trainable)}")
    if variant.after is not None:
        before = [arm for arm in recipe.arms[: recipe.arms.index(name)] if recipe.trains(arm).method == "full"]
        if variant.after not in before:
            hint = closest(variant.after, before)
            raise RecipeError(f"{where}.after: {variant.after!r} is no dense arm that is trained before{hint}")
        if variant.host is not None:
            raise RecipeError(f"{where}: it starts after {variant.after!r}, whose host it has; leave host out")


def _hybrid(values: Any, origin: str) -> HybridConfig:
    given = dict(expect(dict, values, origin, "hybrid"))
    if "limits" in given:
        limits = expect(dict, given["limits"], origin, "hybrid.limits")
        given["limits"] = {
            str(domain): build(Limits, each, origin, f"hybrid.limits.{domain}") for domain, each in limits.items()
        }
    if "reflective" in given:
        given["reflective"] = tuple(expect(list, given["reflective"], origin, "hybrid.reflective"))
    config: HybridConfig = build(HybridConfig, given, origin, "hybrid")
    return config
